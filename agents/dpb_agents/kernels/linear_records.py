"""Kernels of one-pass least squares: choices, records, posterior means.

The first axis of all arrays is the replicate. Replicates are computed one by one.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import sigmoid
from dpb_gym.kernels.linalg import cholesky_one, copy_one, eigh_one, solve_cholesky_one

ROOT2 = np.sqrt(2.0)
# Lengths whose squares differ by a smaller factor count as equal.
ROUNDING = 1.0 + 1e-6
# Replicates that are played in turn; their states fit in a core's cache.
TILE = 8


@jit
def _add(features, b, k, weight, out):
    """Add weight x to `out` and return |x|^2."""
    square = 0.0
    for j in range(out.shape[0]):
        x = np.float64(features[b, k, j])
        square += x * x
        out[j] += weight * x
    return square


@jit
def best_candidates(features, theta, factor, scale, normals, action):
    """Write the candidate of the largest <x, theta + scale L z>, the longest of equals.

    Records have equal lengths, so the reward of a longer feature says more. Of equally long
    candidates the lower index is chosen.

    Args:
        features: ``(B, m, d)``.
        theta: ``(B, d)`` or wider.
        factor: L, lower triangular, ``(B, d, d)``.
        scale: ``(B,)``, >= 0; 0 is greedy.
        normals: z, ``(B, d)``.
        action: Output ``(B,)``.
    """
    B, m, d = features.shape
    x, drawn = np.empty(d), np.empty(d)
    for b in range(B):
        for i in range(d):
            drawn[i] = theta[b, i]
            if scale[b] > 0.0:
                for j in range(i + 1):
                    drawn[i] += scale[b] * factor[b, i, j] * normals[b, j]
        best, longest = -np.inf, 0.0
        action[b] = 0
        for k in range(m):
            x[:] = 0.0
            square = _add(features, b, k, 1.0, x)
            s = 0.0
            for j in range(d):
                s += x[j] * drawn[j]
            if s > best or (s == best and square > ROUNDING * longest):
                best, longest = s, square
                action[b] = k


@jit
def likeness(moments, m, ratio):
    """Write m Var(xbar) / Var(x), 1 for independent candidates and 0 for repeated ones.

    Args:
        moments: Sums over n rounds of [xbar; |xbar|^2, mean |x_k|^2, 1], ``(B, d + 3)``.
        m: Candidates in a round.
        ratio: Output ``(B,)``; 1 before the second round.
    """
    B, d = len(moments), moments.shape[1] - 3
    for b in range(B):
        n = moments[b, d + 2]
        ratio[b] = 1.0
        if n >= 2.0:
            centre = 0.0
            for j in range(d):
                centre += (moments[b, j] / n) ** 2
            between = n / (n - 1.0) * max(0.0, moments[b, d] / n - centre)
            ratio[b] = m * between / max(moments[b, d + 1] / n - centre, 1e-9)


@jit
def directions(features, action, observed, contrast, intercept, phi, out, moments):
    """Write the regressors phi of a round's reward and the unit vector v that it multiplies.

    phi[b] = [x; 1; xbar] for the chosen x and the mean xbar of the round's candidates. With
    z = x - kappa xbar, out[b] = [z / |z|; intercept] / sqrt(1 + intercept^2). kappa is 0 or, with
    `contrast`, (1 - (1 + 2 / d) s^2 / |xbar|^2)_+. s^2 is the expected |xbar|^2 of candidates that
    share nothing, estimated from their spread with a relative variance of 2 / d, so kappa xbar is
    a James-Stein estimate of what they share. kappa is at most 1 - 1 / m, so that nearly equal
    candidates leave a record. phi[b] and out[b] are 0 where nothing was observed, out[b] also if
    z = 0.

    Args:
        features: ``(B, m, d)``.
        action: ``(B,)``, the chosen candidates.
        observed: ``(B,)``.
        contrast: Whether kappa xbar is subtracted.
        intercept: Value of the constant feature.
        phi: Output ``(B, 2 d + 1)``.
        out: Output ``(B, d + 1)``.
        moments: Increased by [xbar; |xbar|^2, mean |x_k|^2, 1], ``(B, d + 3)``.

    Returns:
        0, or 1 + the first replicate whose action is out of range.
    """
    B, m, d = features.shape
    for b in range(B):
        if action[b] < 0 or action[b] >= m:
            return b + 1
    stretch = 1.0 + intercept * intercept
    for b in range(B):
        x, z = phi[b], out[b]
        x[:] = 0.0
        z[:] = 0.0
        if not observed[b]:
            continue
        alone, together = 0.0, 0.0
        for k in range(m):
            alone += _add(features, b, k, 1.0 / m, x[d + 1 :]) / m
        for j in range(d):
            together += x[d + 1 + j] ** 2
        if together < np.inf:  # not for NaN
            for j in range(d):
                moments[b, j] += x[d + 1 + j]
            moments[b, d] += together
            moments[b, d + 1] += alone
            moments[b, d + 2] += 1.0
        _add(features, b, action[b], 1.0, x[:d])
        x[d] = 1.0
        kappa, square = 0.0, 0.0
        if contrast and m > 1 and together > 0.0:
            chance = (1.0 + 2.0 / d) * (alone - together) / ((m - 1.0) * together)
            kappa = max(0.0, min(1.0 - chance, 1.0 - 1.0 / m))
        for j in range(d):
            z[j] = x[j] - kappa * x[d + 1 + j]
            square += z[j] * z[j]
        # the releaser raises for NaN
        if square == 0.0:
            continue
        for j in range(d):
            z[j] /= np.sqrt(square * stretch)
        z[d] = intercept / np.sqrt(stretch)
    return 0


@jit
def joint_rows(directions, response, weights, rows):
    """Write rows of private rounds: the isometric half of v v', and the response times v.

    Args:
        directions: v, ``(B, n)``.
        response: ``(B,)``.
        weights: Of the half and of the response; others are not used.
        rows: Output ``(B, n (n + 1) / 2 + n)``; further columns stay as they are.
    """
    B, n = directions.shape
    for b in range(B):
        v, row = directions[b], rows[b]
        column = 0
        for j in range(n):
            x = weights[0] * v[j]
            row[column] = x * v[j]
            for k in range(j + 1, n):
                row[column + k - j] = ROOT2 * x * v[k]
            column += n - j
            row[n * (n + 1) // 2 + j] = weights[1] * response[b] * v[j]


@jit
def bend(phi, mean, steepness, directions, bent, offset):
    """Linearise the expected logistic reward at the posterior mean.

    With p = sigmoid(s u), s = `steepness`, E r = (4 / s) (p - 1/2) has the slope 4 p (1 - p) at u,
    which is 1 at u = 0 and proportional to the variance of the reward.

    Args:
        phi: ``(B, n)``; u = <phi, mean>.
        mean: ``(B, n)`` or wider.
        steepness: 4 over the range of the rewards.
        directions: v, the factor of the reward, ``(B, m)``.
        bent: Output, the slope times v.
        offset: Increased by (E r - slope u) v, ``(B, m)``.
    """
    for b in range(len(phi)):
        u = 0.0
        for i in range(phi.shape[1]):
            u += phi[b, i] * mean[b, i]
        p = sigmoid(steepness * u)
        slope = 4.0 * p * (1.0 - p)
        shift = 4.0 * (p - 0.5) / steepness - slope * u
        for j in range(directions.shape[1]):
            bent[b, j] = slope * directions[b, j]
            offset[b, j] += shift * directions[b, j]


@jit
def add_products(left, right, out):
    """Add left[b] right[b]' to out[b]."""
    for b in range(len(left)):
        for i in range(left.shape[1]):
            for j in range(right.shape[1]):
                out[b, i, j] += left[b, i] * right[b, j]


@jit
def play_greedy(rounds, policy, rules, regression, moments, out, reward, action):
    """Write choices and records of `OnePass` for a stretch of rounds without a release.

    Args:
        rounds: Features ``(n, B, m, d)``; rewards and whether they are observed, of every
            candidate ``(n, B, m)``.
        policy: theta, factor and scale, see `best_candidates`; ratio, see `likeness`; normals
            ``(n, B, d)``. Scale and ratio are updated in place if a regression is wanted.
        rules: Contrast and intercept, see `directions`, and the middle of the rewards.
        regression: Whether sums for a regression are wanted and whether they are bent, steepness,
            mean and offset, see `bend`; sums of bent v times phi and of bent v times v, in place.
        moments: See `directions`.
        out: Output ``(n, B, d + 1)``: see `directions`.
        reward: Output ``(n, B)``: rewards less the middle.
        action: Output ``(n, B)``.
    """
    features, rewards, observed = rounds
    theta, factor, scale, ratio, normals = policy
    contrast, intercept, middle = rules
    regress, bends, steepness, mean, offset, gram, squares = regression
    n, B, m, d = features.shape
    phi, bent, seen = np.empty((1, 2 * d + 1)), np.empty((1, d + 1)), np.empty(1, np.bool_)
    for first in range(0, B, TILE):
        for t in range(n):
            for b in range(first, min(B, first + TILE)):
                own = slice(b, b + 1)
                x, v, chosen = features[t, own], out[t, own], action[t, own]
                best_candidates(x, theta[own], factor[own], scale[own], normals[t, own], chosen)
                k = action[t, b]
                seen[0] = observed[t, b, k]
                directions(x, chosen, seen, contrast, intercept, phi, v, moments[own])
                reward[t, b] = rewards[t, b, k] - middle
                if regress:
                    likeness(moments[own], m, ratio[own])
                    scale[b] = max(0.0, 1.0 - ratio[b]) ** 2
                    for j in range(d + 1):
                        bent[0, j] = v[0, j]
                    if bends:
                        bend(phi, mean[own], steepness, v, bent, offset[own])
                    add_products(bent, phi, gram[own])
                    add_products(bent, v, squares[own])


@jit
def _product(left, right):
    out = np.zeros((left.shape[0], right.shape[1]))
    for i in range(left.shape[0]):
        for k in range(left.shape[1]):
            for j in range(right.shape[1]):
                out[i, j] += left[i, k] * right[k, j]
    return out


@jit
def filter_step(mean, covariance, gram, own, weight, spread, release, noise):
    """Update the normal distribution of (theta, S), S the weighted sum of rewards times z.

    This is one step of a Kalman filter. A batch adds weight * sum (<phi, theta> + e) z to S,
    Var e = spread. Then the state is conditioned on release = S + N(0, noise I).

    Args:
        mean: ``(B, n + m)``, updated in place.
        covariance: ``(B, n + m, n + m)``, updated in place, exactly symmetric.
        gram: Sum of z phi' over the batch, ``(B, m, n)``.
        own: Sum of z z', ``(B, m, m)``.
        weight: Of the batch.
        spread: Variance of a reward.
        release: ``(B, m)``.
        noise: Variance of the release, > 0.
    """
    B, m, n = gram.shape
    lower, gain, error = np.empty((m, m)), np.empty((m, n + m)), np.empty(m)
    for b in range(B):
        c, centre = covariance[b], mean[b]
        g = weight * gram[b]
        moved = _product(g, c[:n])
        inner = _product(moved[:, :n], g.T.copy())
        for i in range(m):
            for j in range(m):
                inner[i, j] += weight * weight * spread * own[b, i, j]
                inner[i, j] += moved[i, n + j] + moved[j, n + i]
            for j in range(n):
                c[n + i, j] += moved[i, j]
                c[j, n + i] = c[n + i, j]
        for i in range(m):
            step = 0.0
            for j in range(n):
                step += g[i, j] * centre[j]
            centre[n + i] += step
            for j in range(m):
                c[n + i, n + j] += 0.5 * (inner[i, j] + inner[j, i])
                lower[i, j] = c[n + i, n + j]
            lower[i, i] += noise
        cholesky_one(lower, lower)
        for i in range(m):
            error[i] = release[b, i] - centre[n + i]
            for j in range(n + m):
                gain[i, j] = c[n + i, j]
            for k in range(i):
                error[i] -= lower[i, k] * error[k]
                for j in range(n + m):
                    gain[i, j] -= lower[i, k] * gain[k, j]
            error[i] /= lower[i, i]
            for j in range(n + m):
                gain[i, j] /= lower[i, i]
        for i in range(m):
            for r in range(n + m):
                centre[r] += error[i] * gain[i, r]
                for j in range(n + m):
                    c[r, j] -= gain[i, r] * gain[i, j]


@jit
def shrunken_curvature(half, share, noise, intercept, out):
    """Estimate H = sum v v' over t rounds, v = [z; b] / sqrt(1 + b^2), |z| = 1, from a noisy half.

    The trace and the constant's entry of H are public. The cross term c of slopes and constant
    is shrunk by its expected noise, d noise^2 / 2, and obeys Cauchy-Schwarz; the deviation D of
    the Schur complement from an isotropic matrix is shrunk likewise, by (d (d + 1) / 2 - 1)
    noise^2 (positive-part James-Stein); then the complement is made positive semidefinite.

    Args:
        half: Isometric half of H plus N(0, noise^2), ``(n (n + 1) / 2,)``.
        share: Number of rounds with a record.
        noise: Standard deviation.
        intercept: b > 0.
        out: Output ``(n, n)``.

    Returns:
        The factor of D by which the shrinkage multiplied it.
    """
    n = out.shape[0]
    d = n - 1
    column = 0
    for j in range(n):
        out[j, j] = half[column]
        for k in range(j + 1, n):
            out[j, k] = half[column + k - j] / ROOT2
            out[k, j] = out[j, k]
        column += n - j
    trace = share / (1.0 + intercept * intercept)
    level = share - trace
    square = (out[d, :d] * out[d, :d]).sum()
    kept = 0.0
    if square > 0.0:
        kept = max(0.0, 1.0 - 0.5 * d * noise * noise / square)
        kept = min(kept, np.sqrt(level * trace / square))
    cross = kept * out[d, :d]
    cut = np.empty((d, d))
    for j in range(d):
        for k in range(d):
            cut[j, k] = cross[j] * cross[k] / level
    slopes = out[:d, :d] - cut
    middle, rest = np.trace(slopes) / d, trace - np.trace(cut)
    for j in range(d):
        slopes[j, j] -= middle
    deviation = (slopes * slopes).sum()
    left = 0.0
    if deviation > 0.0:
        left = max(0.0, 1.0 - (0.5 * d * (d + 1) - 1.0) * noise * noise / deviation)
    slopes *= left
    for j in range(d):
        slopes[j, j] += rest / d
    if not cholesky_one(slopes, np.empty((d, d))):
        values, vectors = np.empty(d), np.empty((d, d))
        eigh_one(slopes, values, vectors)
        slopes = _product(vectors * np.maximum(values, 0.0), vectors.T.copy())
        slopes = 0.5 * (slopes + slopes.T)
    for j in range(d):
        for k in range(d):
            out[j, k] = slopes[j, k] + cut[j, k]
        out[d, j] = out[j, d] = cross[j]
    out[d, d] = level
    return left


@jit
def joint_posterior(
    halves,
    responses,
    shares,
    noise,
    spread,
    curvature_noise,
    response_noise,
    mean,
    prior,
    b,
    out,
):
    """Write posterior means of t given noisy sums of v v' and of the responses <v, t> + e times v.

    With H from `shrunken_curvature`, u = H t + e, t ~ N(mean, prior) and
    e ~ N(0, spread H + s^2 I), s^2 the variance of the noise of u and of H t after shrinkage, it is
    mean + prior H (H prior H + spread H + s^2 I)^-1 (u - H mean).

    Args:
        halves: Isometric halves, ``(B, n (n + 1) / 2)``.
        responses: u, ``(B, n)``.
        shares: Numbers of rounds with a record, ``(B,)``.
        noise: Standard deviation of `halves`.
        spread: Variance of a response.
        curvature_noise: Variance per coordinate of the whole noise of H times t.
        response_noise: Variance per coordinate of u, > 0.
        mean: ``(n,)``.
        prior: ``(n, n)``.
        b: Value of the constant feature.
        out: Output ``(B, n)``.
    """
    B, n = out.shape
    h, solution = np.empty((n, n)), np.empty(n)
    for r in range(B):
        left = shrunken_curvature(halves[r], shares[r], noise, b, h)
        reached = _product(prior, h)
        covariance = _product(h, reached) + spread * h
        for j in range(n):
            covariance[j, j] += response_noise + left * curvature_noise
            solution[j] = responses[r, j] - (h[j] * mean).sum()
        cholesky_one(covariance, covariance)
        solve_cholesky_one(covariance, solution, solution)
        for j in range(n):
            out[r, j] = mean[j] + (reached[j] * solution).sum()


@jit
def lifetime_weights(users, admitted, bound, counts, spent, kept, directions, weights):
    """Scale each round's public direction so that its user stays within a lifetime bound.

    With z_s the earlier directions of the user, the bound is on
    sum_{s,t} |<z_s, z_t>|, which is at least ||sum_t c_t z_t||^2 for all |c_t| <= 1. Directions
    that are not admitted become 0.

    Args:
        users: ``(B,)``, below counts.shape[1].
        admitted: ``(B,)``.
        bound: Largest sum, > 0.
        counts: Stored rounds ``(B, U)``, updated.
        spent: The sums ``(B, U)``, updated.
        kept: Scaled directions ``(B, U, k, m)``, float32, updated.
        directions: ``(B, m)``, in place.
        weights: Output ``(B,)``: the factors of the directions.
    """
    for b in range(len(directions)):
        u, z = users[b], directions[b]
        weights[b] = 0.0
        if not admitted[b]:
            z[:] = 0.0
            continue
        weights[b] = 1.0
        square, cross = (z * z).sum(), 0.0
        if not square < np.inf:
            # the releaser raises for it
            continue
        for i in range(counts[b, u]):
            cross += abs((kept[b, u, i] * z).sum())
        left = max(0.0, bound - spent[b, u])
        # the largest w <= 1 with w^2 square + 2 w cross <= left
        w = 1.0
        if square + 2.0 * cross > left:
            w = left / (cross + np.sqrt(cross * cross + square * left))
        z *= w
        weights[b] = w
        copy_one(z, kept[b, u, counts[b, u]])
        counts[b, u] += 1
        spent[b, u] += w * (w * square + 2.0 * cross)
