"""Kernels of one-pass-mnl and one-pass-pricing: one round's row, the posterior of theta.

Arrays lead with the replicate axis; every replicate is handled on its own, in a fixed order.
A row is a symmetric curvature H as an isometric half (upper triangle row by row, off-diagonal
entries times sqrt(2)) times one factor, followed by the response u times another.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels import elementary, linalg
from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.one_pass import ROOT2
from dpb_gym.kernels.pricing import LOGISTIC

# A row's norm stays below its bound in floating point too.
ROUNDING = 1.0 - 1e-12


@jit
def _softmax(scores, scale, p):
    """Choice probabilities of utilities ``scores / scale``; the last score is the outside's."""
    top = scores[0]
    for i in range(1, scores.shape[0]):
        top = max(top, scores[i])
    total = 0.0
    for i in range(scores.shape[0]):
        p[i] = elementary.exp((scores[i] - top) / scale)
        total += p[i]
    for i in range(scores.shape[0]):
        p[i] /= total


@jit
def _mean(p, x, out):
    for j in range(x.shape[1]):
        out[j] = 0.0
        for i in range(p.shape[0]):
            out[j] += p[i] * x[i, j]


@jit
def _square(matrix, vector, shift):
    """(vector - shift)' matrix (vector - shift) of a symmetric matrix."""
    total = 0.0
    for j in range(vector.shape[0]):
        s = 0.0
        for k in range(vector.shape[0]):
            s += matrix[j, k] * (vector[k] - shift[k])
        total += s * (vector[j] - shift[j])
    return total


@jit
def _weight(curvature, response, bound, radius, share, most):
    """Factor that brings squared norms of H and u to the full sensitivity, at most `most`."""
    load = (1.0 - share) * curvature / (bound * bound) + share * response / (radius * radius)
    return min(most, ROUNDING / np.sqrt(load)) if load > 0.0 else most


@jit
def choice_rows(
    features, slates, choice, theta, covariance, cut, bound, radius, share, most, factors, rows
):
    """Rows of one multinomial-logit choice per replicate.

    The alternatives are the slate's items and the outside option x = 0. With p the choice
    probabilities at <x, theta> / c, where c^2 = 1 + (pi / 4) sum p_i s_i' V s_i flattens the
    link for the uncertainty V of theta (p at c = 1), s_i = x_i - sum p x, and
    v_i = s_i cut to norm `cut`: H = sum p_i v_i s_i' / c, u = H theta + v_chosen - sum p v.
    Both are multiplied by `_weight`, which does not depend on the choice.

    Args:
        features: ``(B, N, d)``.
        slates: ``(B, K)`` distinct items; -1 leaves a place empty.
        choice: ``(B,)``: position in the slate, or -1.
        theta: ``(B, d)``.
        covariance: V, ``(B, d, d)``.
        cut: Largest norm of v.
        bound: B of the weight.
        radius: U of the weight.
        share: q of the weight.
        most: Largest weight.
        factors: Of H and u in the row.
        rows: Output ``(B, d (d + 1) / 2 + d)``.
    """
    B, K = slates.shape
    d = theta.shape[1]
    x = np.empty((K + 1, d))
    p = np.empty(K + 1)
    scores = np.empty(K + 1)
    lengths = np.empty(K + 1)
    centre = np.empty(d)
    mean = np.empty(d)
    u = np.empty(d)
    h = np.empty((d, d))
    for b in range(B):
        n = 0
        chosen = -1
        for k in range(K):
            item = slates[b, k]
            if item < 0:
                continue
            if k == choice[b]:
                chosen = n
            s = 0.0
            for j in range(d):
                x[n, j] = features[b, item, j]
                s += x[n, j] * theta[b, j]
            scores[n] = s
            n += 1
        x[n] = 0.0
        scores[n] = 0.0
        if chosen < 0:
            chosen = n
        n += 1
        _softmax(scores[:n], 1.0, p[:n])
        _mean(p[:n], x, centre)
        c = 0.0
        for i in range(n):
            c += p[i] * _square(covariance[b], x[i], centre)
        c = np.sqrt(1.0 + 0.25 * np.pi * c)
        _softmax(scores[:n], c, p[:n])
        _mean(p[:n], x, centre)
        h[:] = 0.0
        mean[:] = 0.0
        for i in range(n):
            s = 0.0
            for j in range(d):
                x[i, j] -= centre[j]
                s += x[i, j] * x[i, j]
            lengths[i] = np.sqrt(s)
            cutting = 1.0 if lengths[i] <= cut else cut / lengths[i]
            for j in range(d):
                w = cutting * p[i] * x[i, j]
                mean[j] += w
                for k in range(j, d):
                    h[j, k] += w * x[i, k] / c
            lengths[i] = cutting
        curvature = 0.0
        for j in range(d):
            for k in range(j, d):
                h[k, j] = h[j, k]
                curvature += h[j, k] * h[j, k] * (1.0 if j == k else 2.0)
        for j in range(d):
            s = -mean[j]
            for k in range(d):
                s += h[j, k] * theta[b, k]
            u[j] = s
        longest = 0.0
        for i in range(n):
            s = 0.0
            for j in range(d):
                s += (u[j] + lengths[i] * x[i, j]) ** 2
            longest = max(longest, s)
        for j in range(d):
            u[j] += lengths[chosen] * x[chosen, j]
        w = _weight(curvature, longest, bound, radius, share, most)
        _fill(h, u, w * factors[0], w * factors[1], rows[b])


@jit
def _fill(h, u, curvature_factor, response_factor, row):
    column = 0
    d = u.shape[0]
    for j in range(d):
        row[column] = curvature_factor * h[j, j]
        column += 1
        for k in range(j + 1, d):
            row[column] = ROOT2 * curvature_factor * h[j, k]
            column += 1
    for j in range(d):
        row[column + j] = response_factor * u[j]


@jit
def demand_rows(
    features,
    price,
    demand,
    theta,
    covariance,
    model,
    zeta,
    low,
    high,
    bound,
    radius,
    share,
    most,
    factors,
    rows,
):
    """Rows of one demand per replicate.

    phi = [x; -p] / sqrt(d). Logistic: with s = zeta <phi, theta>,
    c^2 = 1 + (pi / 8) zeta^2 phi' V phi and f the sigmoid, H = zeta^2 f'(s / c) / c phi phi',
    u = H theta + zeta (y - f(s / c)) phi. Gaussian: H = phi phi', u = y phi, y the demand
    moved into [low, high]. Both are multiplied by `_weight`, which does not depend on the
    demand.

    Args:
        features: ``(B, d - 1)``.
        price: ``(B,)``.
        demand: ``(B,)``.
        theta: ``(B, d)``.
        covariance: V, ``(B, d, d)``.
        model: 0 logistic, 1 Gaussian.
        zeta: Link scale of the logistic model.
        low: Least demand that counts.
        high: Largest demand that counts.
        bound: B of the weight.
        radius: U of the weight.
        share: q of the weight.
        most: Largest weight.
        factors: Of H and u in the row.
        rows: Output ``(B, d (d + 1) / 2 + d)``.
    """
    B, d = theta.shape
    root = np.sqrt(np.float64(d))
    phi = np.empty(d)
    zero = np.zeros(d)
    u = np.empty(d)
    h = np.empty((d, d))
    for b in range(B):
        for j in range(d - 1):
            phi[j] = features[b, j] / root
        phi[d - 1] = -price[b] / root
        y = min(max(demand[b], low), high) if demand[b] == demand[b] else demand[b]
        square = 0.0
        for j in range(d):
            square += phi[j] * phi[j]
        if model == LOGISTIC:
            s = 0.0
            for j in range(d):
                s += phi[j] * theta[b, j]
            c = np.sqrt(1.0 + 0.125 * np.pi * zeta * zeta * _square(covariance[b], phi, zero))
            f = elementary.sigmoid(zeta * s / c)
            slope = zeta * zeta * f * (1.0 - f) / c
            response = slope * s + zeta * (y - f)
            longest = max(abs(slope * s + zeta * (1.0 - f)), abs(slope * s - zeta * f))
        else:
            slope = 1.0
            response = y
            longest = max(abs(low), abs(high))
        for j in range(d):
            u[j] = response * phi[j]
            for k in range(j, d):
                h[j, k] = slope * phi[j] * phi[k]
        w = _weight(
            slope * slope * square * square, longest * longest * square, bound, radius, share, most
        )
        _fill(h, u, w * factors[0], w * factors[1], rows[b])


@jit
def even_out(matrices, noise, evenness, left):
    """Shrinks noisy symmetric matrices ``(B, d, d)`` towards isotropic ones, in place.

    With mu = trace / d (negative ones count as 0) and n = `noise`, the standard deviation of
    the entries of the isometric half, M becomes mu I + w (M - mu I), w = v / (v + n^2): v is
    the mean square deviation of those entries less n^2, at least (evenness mu)^2.

    Args:
        matrices: Replaced.
        noise: n.
        evenness: Least deviation that is believed in, relative to mu.
        left: Output ``(B,)``: v n^2 / (v + n^2), the variance of the error that stays in an
            entry.
    """
    B, d, _ = matrices.shape
    left[:] = 0.0
    if noise == 0.0:
        return
    square = noise * noise
    for b in range(B):
        level = 0.0
        for j in range(d):
            level += matrices[b, j, j]
        level = max(0.0, level / d)
        deviation = 0.0
        for j in range(d):
            for k in range(d):
                deviation += (matrices[b, j, k] - (level if j == k else 0.0)) ** 2
        own = max(deviation / (d * (d + 1) / 2) - square, (evenness * level) ** 2)
        w = own / (own + square)
        left[b] = w * square
        for j in range(d):
            for k in range(d):
                matrices[b, j, k] *= w
            matrices[b, j, j] += (1.0 - w) * level


@jit
def posterior(
    information,
    response,
    centre,
    sizes,
    beliefs,
    spread,
    noise,
    left,
    rare,
    loose,
    calm,
    radius,
    theta,
    covariance,
    root,
):
    """Posterior mean and covariance of theta, its prior size averaged over candidates.

    With m = `centre`, in the direction of eigenvalue h of the information (negative ones count
    as 0), u = h t + e with t ~ N(m, r^2 / d) and
    e ~ N(0, spread h + noise + left (1 + 1/d) / 2 (r^2 + |m|^2)), for each candidate r; a
    candidate weighs its belief times the likelihood of u. A direction is rare if it carries
    less than `rare` of the mean information; its prior size is `loose` instead of r.

    Args:
        information: ``(B, d, d)``, symmetric.
        response: u, ``(B, d)``.
        centre: Prior mean, ``(d,)``.
        sizes: Candidates r, ``(m,)``.
        beliefs: Their prior probabilities, ``(m,)``, > 0.
        spread: Variance of the responses themselves per unit of information.
        noise: Variance of the noise in u.
        left: Variance of the error in an entry of the information, ``(B,)``.
        rare: Part of the mean information.
        loose: Prior size in rare directions.
        calm: Factor of the posterior's standard deviation in `root`; 1 in rare directions.
        radius: Largest norm of theta.
        theta: Output ``(B, d)``.
        covariance: Output ``(B, d, d)``.
        root: Output ``(B, d, d)``: theta + root z, z standard normal, explores.
    """
    B, d = response.shape
    m = sizes.shape[0]
    values, vectors = np.empty(d), np.empty((d, d))
    weights, means, kept = np.empty(m), np.empty((m, d)), np.empty((m, d))
    mean, rotated, scaled = np.empty(d), np.empty(d), np.empty(d)
    local = np.empty((d, d))
    far = 0.0
    for j in range(d):
        far += centre[j] * centre[j]
    for b in range(B):
        linalg.eigh_one(information[b], values, vectors)
        level = 0.0
        for i in range(d):
            values[i] = max(values[i], 0.0)
            level += values[i] / d
            rotated[i] = 0.0
            for j in range(d):
                rotated[i] += vectors[j, i] * (response[b, j] - values[i] * centre[j])
        top = -np.inf
        for r in range(m):
            size = sizes[r] * sizes[r]
            weights[r] = elementary.log(beliefs[r])
            for i in range(d):
                h = values[i]
                prior = (loose * loose if h < rare * level else size) / d
                error = spread * h + noise + 0.5 * left[b] * (1.0 + 1.0 / d) * (size + far)
                total = prior * h * h + error
                means[r, i], kept[r, i] = 0.0, prior
                if total > 0.0:
                    weights[r] -= 0.5 * (elementary.log(total) + rotated[i] * rotated[i] / total)
                    means[r, i] = prior * h * rotated[i] / total
                    kept[r, i] = prior * error / total
            top = max(top, weights[r])
        total = 0.0
        for r in range(m):
            weights[r] = elementary.exp(weights[r] - top)
            total += weights[r]
        mean[:] = 0.0
        local[:] = 0.0
        for r in range(m):
            weights[r] /= total
            for i in range(d):
                mean[i] += weights[r] * means[r, i]
                local[i, i] += weights[r] * kept[r, i]
        for r in range(m):
            for i in range(d):
                for j in range(d):
                    apart = (means[r, i] - mean[i]) * (means[r, j] - mean[j])
                    local[i, j] += weights[r] * apart
        norm = 0.0
        for j in range(d):
            theta[b, j] = centre[j]
            for i in range(d):
                theta[b, j] += vectors[j, i] * mean[i]
            norm += theta[b, j] * theta[b, j]
        if norm > radius * radius:
            theta[b] *= radius / np.sqrt(norm)
        for j in range(d):
            for o in range(d):
                scaled[o] = 0.0
                for i in range(d):
                    scaled[o] += vectors[j, i] * local[i, o]
            for k in range(j, d):
                s = 0.0
                for o in range(d):
                    s += scaled[o] * vectors[k, o]
                covariance[b, j, k] = s
                covariance[b, k, j] = s
            for i in range(d):
                factor = 1.0 if values[i] < rare * level else calm
                root[b, j, i] = factor * np.sqrt(local[i, i]) * vectors[j, i]


@jit
def dispersed(theta, root, normals, out):
    """out = theta + root normals, ``(B, d)``."""
    B, d = theta.shape
    for b in range(B):
        for j in range(d):
            out[b, j] = theta[b, j]
            for i in range(d):
                out[b, j] += root[b, j, i] * normals[b, i]
