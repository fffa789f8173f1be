"""Posterior of theta from noisy sums of rows: kernels of one-pass-mnl and one-pass-pricing.

The first axis of an array is the replicate; every replicate is computed on its own.
"""

from __future__ import annotations

import numpy as np

from dpb_agents.kernels.newton_records import ROOT2
from dpb_gym.kernels import elementary, linalg
from dpb_gym.kernels._jit import inline, jit

# Limits of the information in a rare direction, relative to the mean and to the prior's.
RARE_PART, FEW_PRIORS, AMPLE_PRIORS = 0.1, 3.0, 10.0


@jit
def unpack(rows, factor, out):
    """Write symmetric matrices ``(B, d, d)``: `factor` times the halves that begin `rows`."""
    d = out.shape[1]
    for b in range(out.shape[0]):
        column = 0
        for j in range(d):
            out[b, j, j] = factor * rows[b, column]
            column += 1
            for k in range(j + 1, d):
                value = factor * rows[b, column] / ROOT2
                out[b, j, k] = value
                out[b, k, j] = value
                column += 1


@jit
def even_out(matrices, noise, evenness, left):
    """Shrink noisy symmetric matrices ``(B, d, d)`` towards isotropic ones, in place.

    With mu = trace / d (negative ones count as 0) and n = `noise`, the standard deviation of
    the entries of the isometric half, M becomes mu I + w (M - mu I), w = v / (v + n^2): v is
    the mean square deviation of those entries less n^2, at least (evenness mu)^2.

    Args:
        matrices: Updated in place.
        noise: n.
        evenness: Least prior deviation, relative to mu.
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
    wide,
    calm,
    theta,
    covariance,
    root,
    likeliest,
):
    """Write the posterior mean and covariance of theta, averaged over candidate prior sizes.

    In the direction of eigenvalue h of the information (negative ones count as 0) and with
    m = `centre`, u = h t + e, t ~ N(m, r^2 / d) and
    e ~ N(0, spread h + noise + left (1 + 1/d) / 2 (r^2 + |m|^2)), for each candidate r. A
    candidate's weight is its belief times the likelihood of u.

    A direction is rare if h is less than `rare` times the mean eigenvalue and times the last
    diagonal entry of the information, and the square of the direction's last coordinate
    exceeds 1 / d, its mean. The prior size there is at least `wide`.

    Args:
        information: ``(B, d, d)``, symmetric.
        response: u, ``(B, d)``.
        centre: Prior mean, ``(d,)``.
        sizes: Candidates r, ``(m,)``.
        beliefs: Their prior probabilities, ``(m,)``, > 0.
        spread: Variance of the responses themselves per unit of information.
        noise: Variance of the noise in u.
        left: Variance of the error in an entry of the information, ``(B,)``.
        rare: See above; 0: no direction is rare.
        wide: Least prior size in rare directions.
        calm: Factor of the posterior's standard deviation in `root`. In rare directions it is
            that deviation over the first candidate's prior deviation, within [calm, 1].
        theta: Output ``(B, d)``.
        covariance: Output ``(B, d, d)``.
        root: Output ``(B, d, d)``, symmetric: theta + root z, z standard normal, explores.
        likeliest: Output ``(B,)``: the candidate of largest weight.
    """
    B, d = response.shape
    m = sizes.shape[0]
    values, vectors = np.empty(d), np.empty((d, d))
    weights, means, variances = np.empty(m), np.empty((m, d)), np.empty((m, d))
    mean, rotated, scaled, few = np.empty(d), np.empty(d), np.empty(d), np.empty(d, np.bool_)
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
        level = min(level, information[b, d - 1, d - 1])
        for i in range(d):
            few[i] = values[i] < rare * level and d * vectors[d - 1, i] ** 2 > 1.0
        for r in range(m):
            square = sizes[r] * sizes[r]
            error = noise + 0.5 * left[b] * (1.0 + 1.0 / d) * (square + far)
            weights[r] = elementary.log(beliefs[r])
            for i in range(d):
                h, prior = values[i], (max(wide * wide, square) if few[i] else square) / d
                own = spread * h + error
                total = prior * h * h + own
                means[r, i], variances[r, i] = 0.0, prior
                if total > 0.0:
                    weights[r] -= 0.5 * (elementary.log(total) + rotated[i] ** 2 / total)
                    means[r, i] = prior * h * rotated[i] / total
                    variances[r, i] = prior * own / total
        likeliest[b] = sizes[np.argmax(weights)]
        _average(weights, means, variances, mean, local)
        _turn_back(vectors, mean, local, centre, scaled, theta[b], covariance[b])
        for i in range(d):
            deviation = np.sqrt(local[i, i])
            whole = min(1.0, deviation * np.sqrt(np.float64(d)) / sizes[0])
            scaled[i] = deviation * (max(calm, whole) if few[i] else calm)
        _compose(vectors, scaled, root[b])


@inline
def _average(weights, means, variances, mean, covariance):
    """Write mean and covariance of a mixture of Gaussians of diagonal covariances.

    `weights` ``(m,)`` are logarithms and become probabilities.
    """
    m, d = means.shape
    top, total = -np.inf, 0.0
    for r in range(m):
        top = max(top, weights[r])
    for r in range(m):
        weights[r] = elementary.exp(weights[r] - top)
        total += weights[r]
    mean[:] = 0.0
    covariance[:] = 0.0
    for r in range(m):
        weights[r] /= total
        for i in range(d):
            mean[i] += weights[r] * means[r, i]
            covariance[i, i] += weights[r] * variances[r, i]
    for r in range(m):
        for i in range(d):
            for j in range(d):
                apart = (means[r, i] - mean[i]) * (means[r, j] - mean[j])
                covariance[i, j] += weights[r] * apart


@inline
def _turn_back(vectors, mean, local, centre, scaled, theta, covariance):
    """Write centre + V mean and V local V' for the eigenvectors V."""
    d = mean.shape[0]
    for j in range(d):
        theta[j] = centre[j]
        for i in range(d):
            theta[j] += vectors[j, i] * mean[i]
        for o in range(d):
            scaled[o] = 0.0
            for i in range(d):
                scaled[o] += vectors[j, i] * local[i, o]
        for k in range(j, d):
            s = 0.0
            for o in range(d):
                s += scaled[o] * vectors[k, o]
            covariance[j, k] = s
            covariance[k, j] = s


@inline
def _compose(vectors, values, out):
    """Write V diag(values) V' for the eigenvectors V."""
    d = values.shape[0]
    for j in range(d):
        for k in range(d):
            out[j, k] = 0.0
            for i in range(d):
                out[j, k] += vectors[j, i] * values[i] * vectors[k, i]


@jit
def weak_direction(information, left, out):
    """Write k^(1/2) v: in the direction v of least information records count 1 + k times.

    With eigenvalues of mean m, the least being h, k = ((m / h)^(1/2) - 1) (1 - e^2 / h^2)_+.
    e^2 = (d - 1) / 2 times the variance `left` of the error in an entry is the mean square of
    the error that mixes v with other directions. k is 0 where the square of the last coordinate
    of v is at most 1 / d, its mean.

    Args:
        information: ``(B, d, d)``, symmetric.
        left: ``(B,)``.
        out: Output ``(B, d)``.
    """
    B, d, _ = information.shape
    values, vectors = np.empty(d), np.empty((d, d))
    for b in range(B):
        linalg.eigh_one(information[b], values, vectors)
        level, least = 0.0, 0
        for i in range(d):
            level += max(values[i], 0.0) / d
            if values[i] < values[least]:
                least = i
        h, error = values[least], 0.5 * (d - 1) * left[b]
        k = 0.0
        if h > 0.0 and h * h > error and d * vectors[d - 1, least] ** 2 > 1.0:
            k = (np.sqrt(level / h) - 1.0) * (1.0 - error / (h * h))
        for j in range(d):
            out[b, j] = np.sqrt(max(k, 0.0)) * vectors[j, least]


@jit
def informed_posterior(
    information, response, centre, precision, spread, noise, left, calm, theta, covariance, root
):
    """Write the posterior mean and covariance of theta ~ N(m, P^-1).

    m = `centre`, P = `precision` ``(d, d)``, positive definite. In the direction of eigenvalue h of
    the information (negative ones count as 0), u = h t + e,
    e ~ N(0, spread h + noise + left (1 + 1/d) / 2 (d^2 / trace P + |m|^2)). The other arguments
    and the outputs are those of `posterior`.
    """
    B, d = response.shape
    values, vectors = np.empty(d), np.empty((d, d))
    total, inverse, pull = np.empty((d, d)), np.empty((d, d)), np.empty(d)
    size, far = 0.0, 0.0
    for j in range(d):
        size += precision[j, j] / d
        far += centre[j] * centre[j]
    size = d / size
    for b in range(B):
        linalg.eigh_one(information[b], values, vectors)
        for j in range(d):
            pull[j] = 0.0
            linalg.copy_one(precision[j], total[j])
        for i in range(d):
            h = max(values[i], 0.0)
            error = spread * h + noise + 0.5 * left[b] * (1.0 + 1.0 / d) * (size + far)
            if h == 0.0:
                continue
            rotated = 0.0
            for j in range(d):
                rotated += vectors[j, i] * (response[b, j] - h * centre[j])
            for j in range(d):
                pull[j] += vectors[j, i] * h / error * rotated
                for k in range(d):
                    total[j, k] += vectors[j, i] * vectors[k, i] * h * h / error
        linalg.cholesky_one(total, total)
        linalg.inverse_cholesky_one(total, inverse)
        for j in range(d):
            linalg.copy_one(inverse[j], covariance[b, j])
            theta[b, j] = centre[j]
            for k in range(d):
                theta[b, j] += inverse[j, k] * pull[k]
        linalg.cholesky_one(inverse, inverse)
        for j in range(d):
            for k in range(d):
                root[b, j, k] = calm * inverse[j, k] if k <= j else 0.0


@jit
def rare_directions(theta, covariance, size, root):
    """Write V^(1/2) restricted to directions in which the records carry almost no information.

    With eigenvalues lambda_i of V = `covariance` and p = d / max(`size`, |theta|)^2, the precision
    of a prior of that size, the records' precision is h_i = (1 / lambda_i - p)_+ . Direction i
    is rare if h_i is below a tenth of the mean and below 3 p, and the mean exceeds 10 p.

    Args:
        theta: ``(B, d)``.
        covariance: ``(B, d, d)``.
        size: Prior size of theta, > 0.
        root: Output ``(B, d, d)``: root z, z standard normal, is a draw in rare directions.
    """
    B, d = theta.shape
    values, vectors, known = np.empty(d), np.empty((d, d)), np.empty(d)
    for b in range(B):
        linalg.eigh_one(covariance[b], values, vectors)
        square = size * size
        length = 0.0
        for j in range(d):
            length += theta[b, j] * theta[b, j]
        p, mean = d / max(square, length), 0.0
        for i in range(d):
            known[i] = max(1.0 / values[i] - p, 0.0)
            mean += known[i] / d
        for i in range(d):
            few = known[i] < RARE_PART * mean and known[i] < FEW_PRIORS * p
            values[i] = np.sqrt(values[i]) if few and mean > AMPLE_PRIORS * p else 0.0
        _compose(vectors, values, root[b])


@jit
def dispersed(theta, root, normals, out):
    """Write theta + root normals to `out`, ``(B, d)``."""
    B, d = theta.shape
    for b in range(B):
        for j in range(d):
            out[b, j] = theta[b, j]
            for i in range(d):
                out[b, j] += root[b, j, i] * normals[b, i]
