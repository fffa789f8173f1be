"""Choices and records of the linear bandits.

Candidates are compared unclipped. Ties go to the lower index. The first axis of all arrays is the
replicate. Replicates are computed one by one.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import inline, jit
from dpb_gym.kernels.continual import OK, add_scaled_one
from dpb_gym.kernels.elementary import exp, log
from dpb_gym.kernels.feature_rows import clipped_row
from dpb_gym.kernels.linalg import (
    cholesky_one,
    cholesky_shifted_one,
    cholesky_update_one,
    copy_one,
    dot_one,
    inverse_cholesky_one,
    logdet_cholesky_one,
    multiply_one,
    quadratic_form_one,
    sherman_morrison_one,
    solve_lower_one,
    solve_upper_one,
)

# Replicates that are played in turn, whose states fit in a core's cache.
TILE = 8


@jit
def append_constant(features, constant, out):
    """Write (x, constant) / sqrt(1 + constant^2), which is in the unit ball if x is.

    Args:
        features: ``(B, m, d)``.
        constant: Value of the extra feature, >= 0.
        out: Output ``(B, m, d + 1)``.
    """
    B, m, d = features.shape
    scale = 1.0 / np.sqrt(1.0 + constant * constant)
    for b in range(B):
        for k in range(m):
            row = out[b, k]
            for j in range(d):
                row[j] = features[b, k, j] * scale
            row[d] = constant * scale


@inline
def _copy_rows(features, b, rows):
    """Write the features of replicate b to `rows`, in double precision."""
    for k in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            rows[k, j] = features[b, k, j]


@inline
def _best(features, b, theta, inverse, width, rows, images, scores):
    """Return the candidate of the largest score; overwrites `rows`, `images` and `scores`."""
    m, d = rows.shape
    _copy_rows(features, b, rows)
    if width > 0.0:
        # the operations of `multiply_one` for every row, with each row of the matrix read once
        images[:] = 0.0
        n = d - d % 4
        for i in range(0, n, 4):
            for k in range(m):
                x0, x1, x2, x3 = rows[k, i], rows[k, i + 1], rows[k, i + 2], rows[k, i + 3]
                for j in range(d):
                    images[k, j] += (x0 * inverse[i, j] + x1 * inverse[i + 1, j]) + (
                        x2 * inverse[i + 2, j] + x3 * inverse[i + 3, j]
                    )
        for i in range(n, d):
            for k in range(m):
                x = rows[k, i]
                for j in range(d):
                    images[k, j] += x * inverse[i, j]
    for k in range(m):
        scores[k] = dot_one(rows[k], theta)
        if width > 0.0:
            scores[k] += width * np.sqrt(max(0.0, dot_one(rows[k], images[k])))
    return np.argmax(scores)


@jit
def choose(features, theta, inverse, width, action):
    """Write argmax_k <x_k, theta> + width ||x_k||_inverse.

    Args:
        features: ``(B, m, d)``.
        theta: ``(B, d)``.
        inverse: Metric of the bonus, ``(B, d, d)``.
        width: ``(B,)``, >= 0; 0 is greedy.
        action: Output ``(B,)``.
    """
    B, m, d = features.shape
    rows, images, scores = np.empty((m, d)), np.empty((m, d)), np.empty(m)
    for b in range(B):
        action[b] = _best(features, b, theta[b], inverse[b], width[b], rows, images, scores)


@jit
def choose_optimistic(features, inverse, response, width, action):
    """Write the choice of `choose` with theta = inverse response and one width for all.

    Args:
        features: ``(B, m, d)``.
        inverse: ``(B, d, d)``.
        response: ``(B, d)``.
        width: >= 0; 0 is greedy.
        action: Output ``(B,)``.
    """
    B, m, d = features.shape
    theta, rows, images, scores = np.empty(d), np.empty((m, d)), np.empty((m, d)), np.empty(m)
    for b in range(B):
        multiply_one(inverse[b], response[b], theta)
        action[b] = _best(features, b, theta, inverse[b], width, rows, images, scores)


@inline
def _sampled(features, b, upper, response, v, xi, theta, rows, scores):
    """Candidate of the largest <x, theta> for a draw of theta; see `choose_sampled`."""
    solve_lower_one(upper.T, response, theta)
    for j in range(theta.shape[0]):
        theta[j] += v * xi[j]
    solve_upper_one(upper.T, theta, theta)
    _copy_rows(features, b, rows)
    for k in range(scores.shape[0]):
        scores[k] = dot_one(rows[k], theta)
    return np.argmax(scores)


@jit
def choose_sampled(features, upper, response, v, normals, action):
    """Write argmax_k <x_k, theta> with theta = R^-1 (R'^-1 b + v xi), where A = R'R.

    theta is a draw from N(A^-1 b, v^2 A^-1) (RU, Algorithm 1, line 8).

    Args:
        features: ``(B, m, d)``.
        upper: R, ``(B, d, d)``.
        response: b, ``(B, d)``.
        v: Width of the draw.
        normals: xi, ``(B, d)``.
        action: Output ``(B,)``.
    """
    B, m, d = features.shape
    theta, rows, scores = np.empty(d), np.empty((m, d)), np.empty(m)
    for b in range(B):
        xi = normals[b]
        action[b] = _sampled(features, b, upper[b], response[b], v, xi, theta, rows, scores)


@inline
def _record(features, b, k, observed, chosen):
    """`take` of one candidate; the weight of its reward."""
    if observed:
        return clipped_row(features, b, k, chosen)
    chosen[:] = 0.0
    return 1.0


@jit
def play_optimistic(rounds, rules, response, sums, inverse, draws, chosen, reward, action):
    """`act` and `observe` of LinUCB, round after round, one replicate after the other.

    Args:
        rounds: Of a stretch: features ``(n, B, m, d)``; rewards and whether they are observed, of
            every candidate ``(n, B, m)``.
        rules: The reward's shift, whether rewards are weighted like their features, and whether
            `response` follows the sums every round.
        response: ``(B, d)``, in place if it follows.
        sums: Its start ``(d,)``; exact sums ``(B, d)``, in place, their lowest and highest reward,
            and counts of clipped records ``(B,)``, in place.
        inverse: ``(B, d, d)``, in place.
        draws: Widths of the bonus ``(n,)``.
        chosen: Output ``(n, B, d)``: features of the recommended candidates.
        reward: Output ``(n, B)``: their rewards, as they are recorded.
        action: Output ``(n, B)``.

    Returns:
        A status of `dpb_gym.kernels.continual`.
    """
    features, rewards, observed = rounds
    shift, weigh, follow = rules
    widths = draws[0]
    n, B, m, d = features.shape
    theta, rows, images, scores = np.empty(d), np.empty((m, d)), np.empty((m, d)), np.empty(m)
    scratch = np.empty(d)
    for first in range(0, B, TILE):
        for t in range(n):
            for b in range(first, min(B, first + TILE)):
                multiply_one(inverse[b], response[b], theta)
                width = widths[t]
                k = _best(features[t], b, theta, inverse[b], width, rows, images, scores)
                action[t, b] = k
                weight = _record(features[t], b, k, observed[t, b, k], chosen[t, b])
                reward[t, b] = rewards[t, b, k] - shift
                if weigh:
                    reward[t, b] *= weight
                if follow:
                    status = _follow(reward[t, b], chosen[t, b], b, sums, scratch, response)
                    if status != OK:
                        return status
                sherman_morrison_one(inverse[b], chosen[t, b], 1.0, scratch)
    return OK


@jit
def play_growing(rounds, policy, grown, limits, chosen, weight, reward, action):
    """Play rounds of one policy, add their records to Gram matrices, stop where those call for it.

    Args:
        rounds: See `play_optimistic`.
        policy: theta, see `choose`; vectors ``(B, d)`` that `inverse` multiplies and that are added
            to theta, or ``(0, d)``; inverse, which may be one of those in `grown`; width.
        grown: Inverses of Gram matrices ``(G, B, d, d)`` and the growth of log det ``(G, B)``, in
            place.
        limits: Rounds ``(B,)``, a log det ``(B,)`` and a growth: play stops after the first round
            in which a replicate has played so many and its first log det has grown by more.
        chosen: Output ``(n, B, d)``: features of the recommended candidates.
        weight: Output ``(n, B)``: what they were scaled by.
        reward: Output ``(n, B)``.
        action: Output ``(n, B)``.

    Returns:
        Number of rounds played.
    """
    features, rewards, observed = rounds
    theta, pulled, inverse, width = policy
    grams, logdets = grown
    least, start, growth = limits
    n, B, m, d = features.shape
    rows, images, scores = np.empty((m, d)), np.empty((m, d)), np.empty(m)
    estimate, due = np.empty(d), False
    tile = TILE if growth == np.inf else B
    for first in range(0, B, tile):
        for t in range(n):
            for b in range(first, min(B, first + tile)):
                x, metric = features[t], inverse[b]
                copy_one(theta[b], estimate)
                if len(pulled) > 0:
                    multiply_one(metric, pulled[b], estimate)
                    for j in range(d):
                        estimate[j] = theta[b, j] + estimate[j]
                k = _best(x, b, estimate, metric, width[b], rows, images, scores)
                action[t, b] = k
                weight[t, b] = _record(x, b, k, observed[t, b, k], chosen[t, b])
                reward[t, b] = rewards[t, b, k]
                for g in range(len(grams)):
                    logdets[g, b] += log(
                        sherman_morrison_one(grams[g, b], chosen[t, b], 1.0, estimate)
                    )
                if growth < np.inf and t + 1 >= least[b]:
                    due = due or logdets[0, b] - start[b] > growth
            if due:
                return t + 1
    return n


@jit
def play_sampled(rounds, rules, response, sums, upper, draws, chosen, reward, action):
    """`act` and `observe` of LinTS; see `play_optimistic`.

    Args:
        rounds: See there.
        rules: See there.
        response: See there.
        sums: See there.
        upper: R, ``(B, d, d)``, in place.
        draws: Widths ``(n,)`` and normals ``(n, B, d)``.
        chosen: See there.
        reward: See there.
        action: See there.
    """
    features, rewards, observed = rounds
    shift, weigh, follow = rules
    widths, normals = draws
    n, B, m, d = features.shape
    theta, rows, scores = np.empty(d), np.empty((m, d)), np.empty(m)
    for first in range(0, B, TILE):
        for t in range(n):
            for b in range(first, min(B, first + TILE)):
                xi = normals[t, b]
                k = _sampled(
                    features[t], b, upper[b], response[b], widths[t], xi, theta, rows, scores
                )
                action[t, b] = k
                weight = _record(features[t], b, k, observed[t, b, k], chosen[t, b])
                reward[t, b] = rewards[t, b, k] - shift
                if weigh:
                    reward[t, b] *= weight
                if follow:
                    status = _follow(reward[t, b], chosen[t, b], b, sums, theta, response)
                    if status != OK:
                        return status
                cholesky_update_one(upper[b], chosen[t, b], 1.0, theta)
    return OK


@inline
def _follow(reward, chosen, b, sums, row, response):
    """Adds a record to the exact sums and renews the response."""
    start, total, low, high, clipped = sums
    status, beyond = add_scaled_one(reward, chosen, low, high, 1.0, row, total[b])
    clipped[b] += beyond
    for j in range(len(start)):
        response[b, j] = start[j] + total[b, j]
    return status


@jit
def choose_widest(features, active, theta, inverse, action):
    """Write the active candidate of largest ||x||_inverse; without one, the largest <x, theta>.

    Args:
        features: ``(B, m, d)``.
        active: Remaining candidates, ``(B, m)`` bool.
        theta: ``(B, d)``.
        inverse: ``(B, d, d)``.
        action: Output ``(B,)``.
    """
    B, m, d = features.shape
    row, scratch = np.empty(d), np.empty(d)
    for b in range(B):
        left = False
        for k in range(m):
            left = left or active[b, k]
        best = -np.inf
        action[b] = 0
        for k in range(m):
            if left and not active[b, k]:
                continue
            clipped_row(features, b, k, row)
            if left:
                score = quadratic_form_one(inverse[b], row, scratch)
            else:
                score = dot_one(row, theta[b])
            if score > best:
                best = score
                action[b] = k


@jit
def eliminate(features, theta, inverse, spread, noise, active):
    """Deactivate rows whose upper bound is below the largest lower bound, in place.

    The bounds are <x, theta> -+ (spread ||x||_inverse + noise ||inverse x||).

    Args:
        features: ``(B, n, d)``.
        theta: ``(B, d)``.
        inverse: ``(B, d, d)``.
        spread: Width for the randomness of the rewards, >= 0.
        noise: Width for the privacy noise, >= 0.
        active: ``(B, n)`` bool; rows that are not active do not count.
    """
    B, n, d = features.shape
    row, image = np.empty(d), np.empty(d)
    upper = np.empty(n)
    for b in range(B):
        highest = -np.inf
        for k in range(n):
            if not active[b, k]:
                continue
            clipped_row(features, b, k, row)
            form = max(0.0, quadratic_form_one(inverse[b], row, image))
            width = spread * np.sqrt(form) + noise * np.sqrt(dot_one(image, image))
            mean = dot_one(row, theta[b])
            upper[k] = mean + width
            highest = max(highest, mean - width)
        for k in range(n):
            if active[b, k] and upper[k] < highest:
                active[b, k] = False


@jit
def play_widest(rounds, pool, bounds, grown, chosen, weight, reward, action):
    """`choose_widest` and `take` until a phase ends, with the phase's Gram matrix as metric.

    Args:
        rounds: See `play_optimistic`.
        pool: Arms ``(n, B, m)``; the remaining ones ``(B, arms)``; see `remember`. Without a pool
            the candidates of every round are compared by `eliminate`.
        bounds: See `eliminate`, and whether there is an estimate.
        grown: See `play_growing`.
        chosen: See there.
        weight: See there.
        reward: See there.
        action: See there.

    Returns:
        Number of rounds played.
    """
    features, rewards, observed = rounds
    arms, active, seen, table = pool
    theta, inverse, spread, noise, estimated = bounds
    grams, logdets = grown
    n, B, m, d = features.shape
    left, scratch = np.empty((1, m), np.bool_), np.empty(d)
    for t in range(n):
        for b in range(B):
            own = slice(b, b + 1)
            x = features[t, own]
            left[:] = True
            if table.shape[1] > 0:
                remember(x, arms[t, own], table[own], seen[own])
                for k in range(m):
                    left[0, k] = active[b, arms[t, b, k]]
            elif estimated:
                eliminate(x, theta[own], inverse[own], spread, noise, left)
            choose_widest(x, left, theta[own], grams[0, own], action[t, own])
            k = action[t, b]
            weight[t, b] = _record(features[t], b, k, observed[t, b, k], chosen[t, b])
            reward[t, b] = rewards[t, b, k]
            logdets[0, b] += log(sherman_morrison_one(grams[0, b], chosen[t, b], 1.0, scratch))
    return n


@jit
def grow(inverses, vectors, logdets):
    """Add v v' to Gram matrices given by their inverses, and the growth of log det to `logdets`.

    Args:
        inverses: ``(B, d, d)``, in place.
        vectors: v, ``(B, d)``.
        logdets: ``(B,)``, in place.
    """
    B, d = vectors.shape
    scratch = np.empty(d)
    for b in range(B):
        logdets[b] += log(sherman_morrison_one(inverses[b], vectors[b], 1.0, scratch))


@jit
def remember(features, arms, table, seen):
    """Write the offered candidates' features into the tables of a fixed pool.

    Args:
        features: ``(B, m, d)``.
        arms: Pool indices ``(B, m)``.
        table: ``(B, n, d)`` float32, in place.
        seen: ``(B, n)`` bool, in place.
    """
    B, m, d = features.shape
    for b in range(B):
        for k in range(m):
            arm = arms[b, k]
            if not seen[b, arm]:
                seen[b, arm] = True
                for j in range(d):
                    table[b, arm, j] = features[b, k, j]


@jit
def release(sums, normals, cursor, due, sigma, inverse, norm, keep, out):
    """Write inverse[b] sums[b] + sigma norm[b] z where `due`, and advance the cursors there.

    Args:
        sums: Exact sums of the open segments ``(B, d)``; emptied where due, unless `keep`.
        normals: Independent standard normals ``(B, n, d)``.
        cursor: Next unused row of `normals`, ``(B,)``.
        due: ``(B,)`` bool.
        sigma: Noise scale.
        inverse: ``(B, d, d)``, symmetric.
        norm: ``(B,)``.
        keep: Whether segments stay open.
        out: ``(B, d)``.
    """
    B, d = sums.shape
    for b in range(B):
        if not due[b]:
            continue
        multiply_one(inverse[b], sums[b], out[b])
        for j in range(d):
            out[b, j] += sigma * norm[b] * normals[b, cursor[b], j]
            if not keep:
                sums[b, j] = 0.0
        cursor[b] += 1


@jit
def with_reward(vectors, rewards, out):
    """Write [x; r], ``(n, B, d + 1)``; 0 where x = 0, which marks a round without feedback."""
    n, B, d = vectors.shape
    for t in range(n):
        for b in range(B):
            seen = False
            for i in range(d):
                out[t, b, i] = vectors[t, b, i]
                seen = seen or vectors[t, b, i] != 0.0
            out[t, b, d] = rewards[t, b] if seen else 0.0


@jit
def shifted_inverse(noisy, shift, inverse, theta, logdet):
    """Write V^-1, theta = V^-1 u and log det V of V = G + shift I, from noisy [G, u; u', .].

    Args:
        noisy: ``(B, d + 1, d + 1)``.
        shift: > 0.
        inverse: Output ``(B, d, d)``.
        theta: Output ``(B, d)``.
        logdet: Output ``(B,)``; NaN, and nothing else written, where an eigenvalue of V is below
            half the shift.
    """
    B, d = theta.shape
    lower = np.empty((d, d))
    for b in range(B):
        gram = noisy[b, :d, :d]
        if not cholesky_shifted_one(gram, 0.5 * shift, lower):
            logdet[b] = np.nan
            continue
        cholesky_shifted_one(gram, shift, lower)
        logdet[b] = logdet_cholesky_one(lower)
        inverse_cholesky_one(lower, inverse[b])
        multiply_one(inverse[b], noisy[b, :d, d], theta[b])


@jit
def records(vectors, rewards, root, gamma, bound, weights, scaled, response):
    """Write the two records of a round, in units of their bound R = `bound`.

    With W = root^2, w = 1 / (1 + gamma ||W x||): weights[b] scaled[b] scaled[b]' =
    w (root x)(root x)' / R and response[b] = w r W x / R.

    Args:
        vectors: x ``(n, B, d)``; 0 adds nothing.
        rewards: r ``(n, B)``.
        root: W^(1/2), ``(B, d, d)``.
        gamma: ``(B,)``.
        bound: ``(B,)``.
        weights: Output ``(n, B)``.
        scaled: Output ``(n, B, d)``.
        response: Output ``(n, B, d)``.
    """
    n, B, d = vectors.shape
    y = np.empty(d)
    for t in range(n):
        for b in range(B):
            multiply_one(root[b], vectors[t, b], scaled[t, b])
            multiply_one(root[b], scaled[t, b], y)
            weights[t, b] = 1.0 / ((1.0 + gamma[b] * np.sqrt(dot_one(y, y))) * bound[b])
            for i in range(d):
                response[t, b, i] = weights[t, b] * rewards[t, b] * y[i]


@jit
def between(outer, inner):
    """Return outer inner outer for symmetric matrices ``(B, d, d)``, exactly symmetric."""
    B, d, _ = outer.shape
    scratch, out = np.empty((d, d)), np.empty((B, d, d))
    for b in range(B):
        for j in range(d):
            multiply_one(inner[b], outer[b, j], scratch[j])
        for j in range(d):
            for k in range(j + 1):
                out[b, j, k] = out[b, k, j] = dot_one(scratch[j], outer[b, k])
    return out


@jit
def slopes(vectors, theta, out):
    """Write mu'(<x, theta>) with the logistic mean mu, ``(n, B)``."""
    n, B, _ = vectors.shape
    for t in range(n):
        for b in range(B):
            e = exp(-abs(dot_one(vectors[t, b], theta[b])))
            out[t, b] = e / ((1.0 + e) * (1.0 + e))


@jit
def outgrown(gram, shift, frozen, factor, due):
    """Write whether gram[b] + shift I exceeds factor frozen[b] in some direction.

    Args:
        gram: ``(B, d, d)``.
        shift: Added to the diagonal.
        frozen: ``(B, d, d)``.
        factor: > 1.
        due: Output ``(B,)``.

    Returns:
        Whether any entry is True.
    """
    B, d, _ = gram.shape
    left, lower = np.empty((d, d)), np.empty((d, d))
    some = False
    for b in range(B):
        for j in range(d):
            for k in range(d):
                left[j, k] = factor * frozen[b, j, k] - gram[b, j, k]
            left[j, j] -= shift
        due[b] = not cholesky_one(left, lower)
        some = some or due[b]
    return some
