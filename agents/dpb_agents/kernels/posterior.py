"""Kernels of one-pass-mnl and one-pass-pricing: theta's posterior, from noisy sums of rows.

Arrays lead with the replicate axis; every replicate is handled on its own, in a fixed order.
"""

from __future__ import annotations

import numpy as np

from dpb_agents.kernels.newton_records import ROOT2
from dpb_gym.kernels import elementary, linalg
from dpb_gym.kernels._jit import inline, jit

# Least square of the last coordinate in a rare direction: others no price can explore.
LEVER = 0.1


@jit
def unpack(rows, factor, out):
    """Symmetric matrices ``(B, d, d)``: `factor` times the halves that begin `rows`."""
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
    lead,
    calm,
    theta,
    covariance,
    root,
    likeliest,
):
    """Posterior mean and covariance of theta, its prior size averaged over candidates.

    With m = `centre`, in the direction of eigenvalue h of the information (negative ones count
    as 0), u = h t + e with t ~ N(m, r^2 / d) and
    e ~ N(0, spread h + noise + left (1 + 1/d) / 2 (r^2 + |m|^2)), for each candidate r; a
    candidate weighs its belief times the likelihood of u. A direction is rare if it carries
    less than `rare` of the mean information and of the last coordinate's, and the last
    coordinate, which the policy sets, takes part in it; its prior size is at least `loose`.
    Where r < `lead`, the last coordinate's prior deviation is that of `lead`: t has one more
    part, g e in the eigenbasis with g ~ N(0, (lead^2 - r^2) / d) and e the last unit vector.

    Args:
        information: ``(B, d, d)``, symmetric.
        response: u, ``(B, d)``.
        centre: Prior mean, ``(d,)``.
        sizes: Candidates r, ``(m,)``.
        beliefs: Their prior probabilities, ``(m,)``, > 0.
        spread: Variance of the responses themselves per unit of information.
        noise: Variance of the noise in u.
        left: Variance of the error in an entry of the information, ``(B,)``.
        rare: See above.
        loose: Least prior size in rare directions.
        lead: Least prior size of the last coordinate.
        calm: Factor of the posterior's standard deviation in `root`; in rare directions that
            deviation over the first candidate's, at least `calm` and at most 1.
        theta: Output ``(B, d)``.
        covariance: Output ``(B, d, d)``.
        root: Output ``(B, d, d)``: theta + root z, z standard normal, explores.
        likeliest: Output ``(B,)``: the candidate that is likeliest now.
    """
    B, d = response.shape
    m = sizes.shape[0]
    values, vectors = np.empty(d), np.empty((d, d))
    weights, means, kept = np.empty(m), np.empty((m, d)), np.empty((m, d))
    leant, errors = np.empty((m, d)), np.empty(d)
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
            few[i] = values[i] < rare * level and vectors[d - 1, i] ** 2 > LEVER
        for r in range(m):
            size = sizes[r] * sizes[r]
            extra = max(0.0, lead * lead - size) / d
            unknown = 0.5 * left[b] * (1.0 + 1.0 / d) * (size + extra + far)
            for i in range(d):
                kept[r, i] = (max(loose * loose, size) if few[i] else size) / d
                errors[i] = spread * values[i] + noise + unknown
                leant[r, i] = vectors[d - 1, i]
            prior = elementary.log(beliefs[r])
            weights[r] = _told(prior, values, rotated, errors, extra, means[r], kept[r], leant[r])
        likeliest[b] = sizes[np.argmax(weights)]
        _average(weights, means, kept, leant, mean, local)
        _turn_back(vectors, mean, local, centre, scaled, theta[b], covariance[b])
        for j in range(d):
            for i in range(d):
                factor = calm
                if few[i]:
                    factor = max(calm, min(1.0, np.sqrt(local[i, i] * d) / sizes[0]))
                root[b, j, i] = factor * np.sqrt(local[i, i]) * vectors[j, i]


@inline
def _told(weight, values, rotated, errors, extra, mean, kept, leant):
    """Posterior of t + g e, t of prior variances `kept` and g ~ N(0, `extra`), given `rotated`.

    Writes its mean; its covariance is diag(kept) + leant leant', where leant came as e. Returns
    `weight` plus the logarithm of the likelihood.
    """
    along, told = 0.0, 0.0
    for i in range(values.shape[0]):
        h, prior, total = values[i], kept[i], kept[i] * values[i] * values[i] + errors[i]
        mean[i] = 0.0
        if total > 0.0:
            weight -= 0.5 * (elementary.log(total) + rotated[i] * rotated[i] / total)
            mean[i] = prior * h * rotated[i] / total
            kept[i] = prior * errors[i] / total
            along += h * h * leant[i] ** 2 / total
            told += h * leant[i] * rotated[i] / total
            leant[i] *= errors[i] / total
    ratio = 1.0 + extra * along
    for i in range(values.shape[0]):
        mean[i] += extra * told / ratio * leant[i]
        leant[i] *= np.sqrt(extra / ratio)
    return weight + 0.5 * (extra * told * told / ratio - elementary.log(ratio))


@inline
def _average(weights, means, kept, leant, mean, covariance):
    """Mean and covariance of a mixture, of logarithms of weights ``(m,)``.

    Its parts are Gaussians of covariances diag(kept) + leant leant'.
    """
    m, d = means.shape
    top, total = weights.max(), 0.0
    for r in range(m):
        weights[r] = elementary.exp(weights[r] - top)
        total += weights[r]
    mean[:] = 0.0
    covariance[:] = 0.0
    for r in range(m):
        weights[r] /= total
        for i in range(d):
            mean[i] += weights[r] * means[r, i]
            covariance[i, i] += weights[r] * kept[r, i]
    for r in range(m):
        for i in range(d):
            for j in range(d):
                apart = (means[r, i] - mean[i]) * (means[r, j] - mean[j])
                covariance[i, j] += weights[r] * (apart + leant[r, i] * leant[r, j])


@inline
def _turn_back(vectors, mean, local, centre, scaled, theta, covariance):
    """Writes centre + V mean and V local V', of columns of V and what is told by them."""
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


@jit
def weak_direction(information, left, out):
    """The direction of least information, as long as records shall count more along it.

    With eigenvalues of mean m, the least being h, in direction v: out = k^(1/2) v,
    k = ((m / h)^(1/2) - 1) (1 - e^2 / h^2)_+, where e^2 = (d - 1) / 2 times the variance `left` of
    the error in an entry is the mean square of what v shares with the other directions by error. 0
    where the last coordinate does not take part in v.

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
        if h > 0.0 and h * h > error and vectors[d - 1, least] ** 2 > LEVER:
            k = (np.sqrt(level / h) - 1.0) * (1.0 - error / (h * h))
        for j in range(d):
            out[b, j] = np.sqrt(max(k, 0.0)) * vectors[j, least]


@jit
def informed_posterior(
    information, response, centre, precision, spread, noise, left, calm, theta, covariance, root
):
    """Posterior mean and covariance of theta ~ N(m, P^-1).

    m = `centre`, P = `precision` ``(d, d)``, positive definite. In the direction of eigenvalue h of
    the information (negative ones count as 0), u = h t + e,
    e ~ N(0, spread h + noise + left (1 + 1/d) / 2 (d^2 / trace P + |m|^2)). The other arguments,
    and what is written, are those of `posterior`.
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
        total[:] = precision
        pull[:] = 0.0
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
            theta[b, j] = centre[j]
            for k in range(d):
                theta[b, j] += inverse[j, k] * pull[k]
        covariance[b] = inverse
        linalg.cholesky_one(inverse, inverse)
        for j in range(d):
            for k in range(d):
                root[b, j, k] = calm * inverse[j, k] if k <= j else 0.0


@jit
def dispersed(theta, root, normals, out):
    """out = theta + root normals, ``(B, d)``."""
    B, d = theta.shape
    for b in range(B):
        for j in range(d):
            out[b, j] = theta[b, j]
            for i in range(d):
                out[b, j] += root[b, j, i] * normals[b, i]
