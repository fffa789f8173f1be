"""Noisy running sums of curvature and response: rows, estimates and posteriors of one replicate.

Shared by one-pass-mnl and one-pass-pricing. A row is a symmetric curvature H as an isometric half
(upper triangle row by row, off-diagonal entries times sqrt(2)) times a factor a, followed by the
response u times a factor b. docs/one-pass.md has the symbols and the proofs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpb_gym import kernels, portable
from dpb_gym.kernels.vectors import (
    copy_matrix,
    copy_to,
    dot,
    eigh,
    exp,
    inverse,
    log,
    signed_logdet,
)
from dpb_gym.play import jit
from dpb_gym.privacy import Schedule
from dpb_gym.problems.prior import Prior
from dpb_gym.problems.rounds import LONGEST, ProblemInfo

ROOT2 = math.sqrt(2.0)
# Keeps the norm of a row below its bound in floating point.
ROUNDING = 1.0 - 1e-12
# Least prior deviation of the curvature from isotropy, relative to its mean eigenvalue. 0 costs
# 4% on pricing tasks and up to 17%, .1 and 1 at most 3% (docs/one-pass.md, "Constants").
LEAST_EVENNESS = 0.3
# Sums of squares below it have few digits left (the least normal number is 2e-308).
LEAST_LOAD = 1e-305
# Part of the rounds that is left out where theta is longer than expected: if their records are
# as good as the others, the variance of the estimate grows by 1 / (1 - FIRST_PART).
FIRST_PART = 0.1
# Factor between the rounds of two releases. Others hardly matter.
RATIO = 1.1
# Exact sums are free: they are released so many times as often, and every so many-th is stored.
EXACT_RELEASES = 5


class Combination(NamedTuple):
    """How releases are combined into the best estimate of the running sums. Public.

    Attributes:
        private: Whether releases carry noise.
        weights: Of releases 0..k in the estimate after release k, ``(K, K)``.
        std: Standard deviation of its noise at sigma = 1, without the records of the first m
            stored releases, ``(K, K)`` by k and m.
        uneven: Mean squared weight of the records, ``(K,)``.
        sigma: Standard deviation of the noise at scale 1.
        window: Rounds that are estimated from, at least; 0: all.
        every: A release in so many is stored.
        least_evenness: Least prior deviation of the curvature from isotropy, see `even_out`.
        first_part: Part of the rounds that is left out where theta is longer than expected.
    """

    private: bool
    weights: Any
    std: Any
    uneven: Any
    sigma: float
    window: int
    every: int
    least_evenness: float
    first_part: float


class History(NamedTuple):
    """Stored releases of one replicate.

    Attributes:
        sums: ``(R, width)``.
        ends: Rounds of these releases, after a leading 0, ``(R + 1,)``.
        count: Their number, ``(1,)``.
    """

    sums: Any
    ends: Any
    count: Any


def geometric_schedule(
    private: bool, horizon: int, first_exact: int, first: float, decay: float
) -> Any:
    """Return the function that plans the releases for a sigma.

    Args:
        private: Whether there is a budget.
        horizon: Rounds that are planned for.
        first_exact: Round of the first release without a budget.
        first: The same with a budget, in units of sigma.
        decay: Power of t with which the noise of a release grows.
    """
    return _Plan(private, horizon, first_exact, first, decay)


class _Plan(NamedTuple):
    private: bool
    horizon: int
    first_exact: int
    first: float
    decay: float

    def __call__(self, sigma: float) -> Schedule:
        if self.private:
            return Schedule.geometric(self.horizon, self.first * sigma, RATIO, self.decay)
        often = portable.power(RATIO, 1.0 / EXACT_RELEASES)
        exact = Schedule.geometric(self.horizon, self.first_exact, often, 0.0)
        return Schedule.unweighted(exact.ends)


def planned_horizon(problem: ProblemInfo, anytime: bool) -> int:
    """Return the number of rounds that releases are planned for."""
    return LONGEST if anytime else problem.longest


def combination(
    sums: Any,
    private: bool,
    unit_noise: float,
    rate: float,
    window: int | None,
    every: int = EXACT_RELEASES,
) -> tuple[Combination, History]:
    """Return how releases are combined, and an empty history.

    Args:
        sums: The releaser.
        private: Whether there is a budget.
        unit_noise: Standard deviation that unit noise in a row causes in u - H theta.
        rate: Typical eigenvalue of the curvature of a record.
        window: Last rounds that are estimated from, at least; None: all.
        every: Without a budget or window one release in so many is stored.
    """
    schedule = sums.schedule
    K = len(schedule.ends)
    # Noisy sums are combined from all releases, and a window begins at any of them.
    every = 1 if private or window is not None else every
    weights = np.zeros((1, 1))
    std = np.zeros((1, 1))
    uneven = np.ones(1)
    if private:
        best = schedule.best_weights(sums.sigma * unit_noise, rate)
        weights = best.weights
        uneven = best.uneven
        std = np.zeros((K, K))
        for k in range(K):
            # Combinations k and m share releases, so their difference has the noise of the
            # difference of their weights; release i has noise of 1 / scale_i.
            std[k, 0] = best.std[k]
            apart = (weights[k] - weights[:k]) / schedule.scales
            std[k, 1 : k + 1] = np.sqrt((apart**2).sum(axis=1))
    known = Combination(
        private,
        weights,
        std,
        uneven,
        float(sums.sigma),
        window or 0,
        every,
        LEAST_EVENNESS,
        FIRST_PART,
    )
    # Rounded up: release 0 is stored too.
    stored = -(-K // every)
    history = History(
        np.zeros((stored, sums.shape.width)),
        np.zeros(stored + 1, np.int64),
        np.zeros(1, np.int64),
    )
    return known, history


@jit
def store(c, h, released, t):
    """Store a release, if it is one in `every`."""
    if released.number % c.every == 0:
        n = h.count[0]
        copy_to(released.sum, h.sums[n])
        h.ends[n + 1] = t
        h.count[0] = n + 1


@jit
def stored_by(h, t):
    """Number of stored releases of the first t rounds."""
    n = 0
    for i in range(h.count[0]):
        n += h.ends[i + 1] <= t
    return n


@jit
def estimate(c, h, released, without):
    """Best estimate of the running sums from all releases, without the first stored ones' records.

    Return the sums, the standard deviation of the noise in each coordinate, and the mean squared
    weight of the records.
    """
    k = released.number
    sums = np.zeros(released.sum.shape[0])
    if not c.private:
        for j in range(sums.shape[0]):
            # Exact sums are of all records so far, so a difference leaves out the first ones.
            start = h.sums[without - 1, j] if without > 0 else 0.0
            sums[j] = released.sum[j] - start
        return sums, 0.0, 1.0
    for i in range(k + 1):
        w = c.weights[k, i]
        if without > 0:
            w -= c.weights[without - 1, i]
        for j in range(sums.shape[0]):
            sums[j] += w * h.sums[i, j]
    return sums, c.sigma * c.std[k, without], c.uneven[k]


@jit
def isometric(H, u, a, b):
    """The row (a half(H), b u)."""
    d = u.shape[0]
    row = np.zeros(d * (d + 1) // 2 + d)
    column = 0
    for j in range(d):
        row[column] = a * H[j, j]
        column += 1
        for k in range(j + 1, d):
            row[column] = ROOT2 * a * H[j, k]
            column += 1
    for j in range(d):
        row[column + j] = b * u[j]
    return row


@jit
def symmetric(row, d, a):
    """a times the matrix whose isometric half begins a row."""
    H = np.zeros((d, d))
    column = 0
    for j in range(d):
        H[j, j] = a * row[column]
        column += 1
        for k in range(j + 1, d):
            value = a * row[column] / ROOT2
            H[j, k] = value
            H[k, j] = value
            column += 1
    return H


@jit
def row_weight(H, longest, B, U, q):
    """Factor that brings a row to the full sensitivity, given H and the largest |u|^2.

    It makes (1 - q) |H|_F^2 / B^2 + q |u|^2 / U^2 equal to 1, and is 1 if they are next to 0.
    """
    curvature = 0.0
    for j in range(H.shape[0]):
        for k in range(j, H.shape[0]):
            curvature += H[j, k] * H[j, k] * (1.0 if j == k else 2.0)
    # The longest |u| of all outcomes is in the load: the weight must not depend on the outcome.
    load = (1.0 - q) * curvature / (B * B) + q * longest / (U * U)
    return ROUNDING / math.sqrt(load) if load > LEAST_LOAD else 1.0


@jit
def even_out(H, noise, least_evenness):
    """H shrunk towards an isotropic matrix, in place; return the variance left in an entry.

    With mu = trace / d (negative ones count as 0) and n = `noise`, the standard deviation of the
    entries of the isometric half, H becomes mu I + w (H - mu I), w = v / (v + n^2). v is the mean
    square deviation of those entries less n^2, at least (least_evenness mu)^2. v n^2 / (v + n^2)
    is left.
    """
    if noise == 0.0:
        return 0.0
    d = H.shape[0]
    square = noise * noise
    mu = 0.0
    for j in range(d):
        mu += H[j, j]
    # Noise can make the trace negative.
    mu = max(0.0, mu / d)
    deviation = 0.0
    for j in range(d):
        for k in range(d):
            deviation += (H[j, k] - (mu if j == k else 0.0)) ** 2
    # The sum over the d^2 entries is that over the half, whose entries off the diagonal have a
    # factor sqrt(2). The half has d (d + 1) / 2 entries.
    own = max(deviation / (d * (d + 1) / 2) - square, (least_evenness * mu) ** 2)
    w = own / (own + square)
    for j in range(d):
        for k in range(d):
            H[j, k] *= w
        H[j, j] += (1.0 - w) * mu
    return w * square


class Belief(NamedTuple):
    """Prior of theta. Public.

    With a level, theta_0 is its coefficient and D = d + 1. Otherwise D = d.

    Attributes:
        sizes: Candidate variances of a coordinate of theta.
        weights: Their probabilities.
        centre: Prior mean, ``(D,)``.
        informed: Whether the prior has a precision instead of a size.
        precision: That precision, with the one of the likeliest size added, ``(D, D)``.
        level: Prior probability of a level, < 1; 0: records have no constant.
        rare: Part of the mean information below which a direction is rare; 0: none is.
        wide: Least prior variance of a coordinate in rare directions.
    """

    sizes: Any
    weights: Any
    centre: Any
    informed: bool
    precision: Any
    level: float
    rare: float
    wide: float


def believed(
    problem: ProblemInfo,
    D: int,
    sizes: Any,
    weights: Any,
    likely: float,
    *,
    level: float,
    rare: float = 0.0,
    wide: float = 0.0,
) -> tuple[Belief, Any]:
    """Return the prior of theta, and its covariance ``(D, D)`` while there is no level.

    Args:
        problem: Has the prior mean and precision, if any, and d.
        D: d, or d + 1 with a level.
        sizes: Candidate norms of theta.
        weights: Their probabilities.
        likely: The likeliest norm.
        level: See `Belief`, like the following.
        rare: See `Belief`.
        wide: See `Belief`.
    """
    d = problem.dim
    prior = (problem.prior or Prior((0.0,) * d)).fitting(d)
    own = slice(D - d, D)
    V = np.zeros((D, D))
    # theta_0 is 0 while there is no level, so it has no variance.
    V[own, own] = np.eye(d) * float((weights * sizes**2).sum()) / d
    precision = np.eye(D) * (d / likely**2)
    if prior.precision is not None:
        precision[own, own] += prior.information()
        kernels.linalg.inverse(precision[None, own, own], V[None, own, own])
    belief = Belief(
        sizes=sizes**2 / d,
        weights=weights,
        centre=np.append(np.zeros(D - d), prior.centre),
        informed=prior.precision is not None,
        precision=precision,
        level=level,
        rare=rare,
        wide=wide,
    )
    return belief, V


class Posterior(NamedTuple):
    """Posterior of n coordinates of theta: n = D, or D - 1 if theta_0 is 0.

    Attributes:
        theta: Mean, ``(n,)``.
        V: Covariance, ``(n, n)``.
        E: Directions of draws as columns.
        deviation: Standard deviation in each of them.
        few: Which of them are rare.
        size: Number of the likeliest size.
        weak: See `weak_direction`, ``(n,)``.
        zero: Log density of theta_0 at 0, less that of the prior.
    """

    theta: Any
    V: Any
    E: Any
    deviation: Any
    few: Any
    size: int
    weak: Any
    zero: float


@jit
def posterior(c, H, u, least_evenness, std, spread, noise):
    """Posterior of theta under the likelier of two models, with and without a level.

    The model without a level is the other one given theta_0 = 0. So the ratio of its marginal
    likelihood to the other's is the posterior density of theta_0 at 0 over its prior density
    (Dickey 1971).

    Args:
        c: The prior.
        H: Estimated sum of curvatures, ``(D, D)``.
        u: Estimated sum of responses, ``(D,)``.
        least_evenness: See `even_out`.
        std: Standard deviation of the noise of an entry of H.
        spread: Factor of H in the variance of the responses.
        noise: Variance of the noise of a coordinate of u.
    """
    whole = conditional(c, H, u, 0, least_evenness, std, spread, noise)
    # zero is the log of p(u | no level) / p(u | level), compared with the prior odds.
    if c.level > 0.0 and whole.zero > log(c.level / (1.0 - c.level)):
        return conditional(c, H, u, 1, least_evenness, std, spread, noise)
    return whole


@jit
def conditional(c, H, u, first, least_evenness, std, spread, noise):
    """Posterior of theta whose coordinates before `first` are 0, given u = H theta + e."""
    H = H[first:, first:].copy()
    u = u[first:].copy()
    centre = c.centre[first:].copy()
    # First, so that the prior and the weak direction see the evened H and its remaining error.
    left = even_out(H, std, least_evenness)
    weak = weak_direction(H, left)
    if c.informed:
        precision = c.precision[first:, first:].copy()
        theta, V = informed(H, u, centre, precision, spread, noise, left)
        values, E = eigh(V)
        for i in range(u.shape[0]):
            values[i] = math.sqrt(max(values[i], 0.0))
        # With a given precision there is no candidate size, and no direction is rare.
        few = np.zeros(u.shape[0], np.bool_)
        zero = normal(theta[0], V[0, 0]) - normal(0.0, 1.0 / precision[0, 0])
        return Posterior(theta, V, E, values, few, 0, weak, zero)
    theta, V, E, deviation, few, size, zero = size_mixture(
        H, u, centre, c.sizes, c.weights, spread, noise, left, c.rare, c.wide
    )
    return Posterior(theta, V, E, deviation, few, size, weak, zero)


@jit
def level_posterior(c, longer, H, u, least_evenness, std, spread, noise):
    """Posterior of theta with a level, whose coefficient has a prior size of its own.

    Args:
        c: The prior.
        longer: Prior deviation of theta_0, in units of that of another coordinate.
        H: Estimated sum of curvatures, ``(D, D)``.
        u: Estimated sum of responses, ``(D,)``.
        least_evenness: See `even_out`.
        std: Standard deviation of the noise of an entry of H.
        spread: Factor of H in the variance of the responses.
        noise: Variance of the noise of a coordinate of u.
    """
    H = H.copy()
    D = u.shape[0]
    left = even_out(H, std, least_evenness)
    values, E = eigh(H)
    far = dot(c.centre, c.centre)
    sizes = 1 if c.informed else c.sizes.shape[0]
    weights = np.zeros(sizes)
    means = np.zeros((sizes, D))
    covariances = np.zeros((sizes, D, D))
    # log densities of theta_0 at 0
    before = np.zeros(sizes)
    after = np.zeros(sizes)
    for r in range(sizes):
        P = c.precision.copy() if c.informed else np.eye(D) / c.sizes[r]
        P[0, 0] /= longer * longer
        square = far
        for j in range(D):
            square += 1.0 / P[j, j]
        slack = 0.5 * left * (1.0 + 1.0 / D) * square
        theta, V, evidence = fitted(values, E, u, c.centre, P, spread, noise, slack)
        belief = 0.0 if c.informed else log(c.weights[r])
        weights[r] = belief + evidence
        copy_to(theta, means[r])
        copy_matrix(V, covariances[r])
        before[r] = belief + normal(0.0, 1.0 / P[0, 0])
        after[r] = normal(theta[0], V[0, 0])
    size = np.argmax(weights)
    theta, V = averaged(weights, means, covariances)
    for r in range(sizes):
        after[r] += log(weights[r]) if weights[r] > 0.0 else -np.inf
    zero = log_sum(after) - log_sum(before)
    deviation, E = eigh(V)
    for i in range(D):
        deviation[i] = math.sqrt(max(deviation[i], 0.0))
    # Prices that explored the level against the slope would cost more than they bring.
    few = np.zeros(D, np.bool_)
    return Posterior(theta, V, E, deviation, few, size, weak_direction(H, left), zero)


@jit
def averaged(weights, means, covariances):
    """Mean and covariance of a mixture of Gaussians; their log weights become weights."""
    m, d = means.shape
    total = log_sum(weights)
    mean = np.zeros(d)
    covariance = np.zeros((d, d))
    for r in range(m):
        weights[r] = exp(weights[r] - total)
        for j in range(d):
            mean[j] += weights[r] * means[r, j]
    for r in range(m):
        for j in range(d):
            for k in range(d):
                apart = (means[r, j] - mean[j]) * (means[r, k] - mean[k])
                covariance[j, k] += weights[r] * (covariances[r, j, k] + apart)
    return mean, covariance


@jit
def log_sum(values):
    """log(sum of exp(values))."""
    top = -np.inf
    for value in values:
        top = max(top, value)
    if top == -np.inf:
        return top
    total = 0.0
    for value in values:
        total += exp(value - top)
    return top + log(total)


@jit
def normal(x, variance):
    """Log density of N(0, variance) at x, without the constant."""
    return -0.5 * (log(variance) + x * x / variance)


@jit
def embedded(M, D):
    """A square matrix as the last rows and columns of a D x D matrix of zeros."""
    n = M.shape[0]
    out = np.zeros((D, D))
    for j in range(n):
        for k in range(n):
            out[D - n + j, D - n + k] = M[j, k]
    return out


@jit
def padded(v, D):
    """A vector after zeros, ``(D,)``."""
    n = v.shape[0]
    out = np.zeros(D)
    for j in range(n):
        out[D - n + j] = v[j]
    return out


@jit
def size_mixture(H, u, centre, sizes, beliefs, spread, noise, left, rare, wide):
    """Posterior of theta ~ N(m, r I) of unknown variance r, given u = H theta + e.

    In the direction of eigenvalue h of H (negative ones count as 0) and with m = `centre`,
    u = h t + e, t ~ N(m, r), e ~ N(0, spread h + noise + left (1 + 1/n) / 2 (n r + |m|^2)).
    A candidate's weight is its belief times the likelihood of u.

    A direction is rare if h is less than `rare` times the mean eigenvalue and times H's last
    diagonal entry, and the square of the direction's last coordinate exceeds 1 / n, its mean. The
    prior variance there is at least `wide`.

    Return theta, its covariance, the eigenvectors, the standard deviation in each of these
    directions, which of them are rare, the number of the likeliest size, and the log density of
    theta's first coordinate at its prior mean, less that of the prior.
    """
    d = u.shape[0]
    m = sizes.shape[0]
    values, E = eigh(H)
    rotated = np.zeros(d)
    few = np.zeros(d, np.bool_)
    level = 0.0
    far = 0.0
    for j in range(d):
        far += centre[j] * centre[j]
    for i in range(d):
        values[i] = max(values[i], 0.0)
        level += values[i] / d
        for j in range(d):
            rotated[i] += E[j, i] * (u[j] - values[i] * centre[j])
    # Compared with the price's own information too, which a rare direction takes part in.
    level = min(level, H[d - 1, d - 1])
    for i in range(d):
        few[i] = values[i] < rare * level and d * E[d - 1, i] ** 2 > 1.0
    weights = np.zeros(m)
    means = np.zeros((m, d))
    variances = np.zeros((m, d))
    for r in range(m):
        # E theta has the mean square left |theta|^2 (1 + 1/d) / 2 per coordinate, as errors off the
        # diagonal have half the variance `left`; |theta|^2 is d r + |m|^2 on average.
        error = noise + 0.5 * left * (1.0 + 1.0 / d) * (d * sizes[r] + far)
        weights[r] = log(beliefs[r])
        for i in range(d):
            h = values[i]
            prior = max(wide, sizes[r]) if few[i] else sizes[r]
            own = spread * h + error
            total = prior * h * h + own
            variances[r, i] = prior
            # without noise nothing is known where h = 0
            if total > 0.0:
                weights[r] -= 0.5 * (log(total) + rotated[i] ** 2 / total)
                means[r, i] = prior * h * rotated[i] / total
                variances[r, i] = prior * own / total
    likeliest = np.argmax(weights)
    mean, local = mixture(weights, means, variances)
    # the density of the first coordinate, before and after
    before = 0.0
    after = 0.0
    for r in range(m):
        prior = 0.0
        shift = 0.0
        variance = 0.0
        for i in range(d):
            square = E[0, i] * E[0, i]
            prior += square * (max(wide, sizes[r]) if few[i] else sizes[r])
            shift += E[0, i] * means[r, i]
            variance += square * variances[r, i]
        before += beliefs[r] * exp(normal(0.0, prior))
        after += weights[r] * exp(normal(shift, variance)) if variance > 0.0 else 0.0
    zero = log(after) - log(before) if after > 0.0 else -np.inf
    theta, V = turned_back(E, mean, local, centre)
    deviation = np.zeros(d)
    for i in range(d):
        deviation[i] = math.sqrt(local[i, i])
    return theta, V, E, deviation, few, likeliest, zero


@jit
def mixture(weights, means, variances):
    """Mean and covariance of a mixture of Gaussians with diagonal covariances and log weights."""
    m, d = means.shape
    # Without subtracting the largest weight, exp could underflow for all sizes.
    top = -np.inf
    for r in range(m):
        top = max(top, weights[r])
    total = 0.0
    for r in range(m):
        weights[r] = exp(weights[r] - top)
        total += weights[r]
    mean = np.zeros(d)
    covariance = np.zeros((d, d))
    for r in range(m):
        weights[r] /= total
        for i in range(d):
            mean[i] += weights[r] * means[r, i]
            covariance[i, i] += weights[r] * variances[r, i]
    for r in range(m):
        for i in range(d):
            for j in range(d):
                # Sizes have different means, whose spread is part of the covariance.
                apart = (means[r, i] - mean[i]) * (means[r, j] - mean[j])
                covariance[i, j] += weights[r] * apart
    return mean, covariance


@jit
def turned_back(E, mean, local, centre):
    """centre + E mean and E local E'."""
    d = mean.shape[0]
    theta = np.zeros(d)
    V = np.zeros((d, d))
    line = np.zeros(d)
    for j in range(d):
        theta[j] = centre[j]
        for i in range(d):
            theta[j] += E[j, i] * mean[i]
        for o in range(d):
            line[o] = 0.0
            for i in range(d):
                line[o] += E[j, i] * local[i, o]
        for k in range(j, d):
            s = 0.0
            for o in range(d):
                s += line[o] * E[k, o]
            V[j, k] = s
            V[k, j] = s
    return theta, V


@jit
def informed(H, u, centre, precision, spread, noise, left):
    """Posterior mean and covariance of theta ~ N(m, P^-1), given u = H theta + e.

    m = `centre`, P = `precision`, positive definite. In the direction of eigenvalue h of H
    (negative ones count as 0), u = h t + e,
    e ~ N(0, spread h + noise + left (1 + 1/d) / 2 (d^2 / trace P + |m|^2)).
    """
    d = u.shape[0]
    values, E = eigh(H)
    size = 0.0
    far = 0.0
    for j in range(d):
        size += precision[j, j] / d
        far += centre[j] * centre[j]
    # d^2 / trace P is at most the trace of P^-1, and equal to it for an isotropic P.
    size = d / size
    slack = 0.5 * left * (1.0 + 1.0 / d) * (size + far)
    theta, V, _ = fitted(values, E, u, centre, precision, spread, noise, slack)
    return theta, V


@jit
def fitted(values, E, u, centre, precision, spread, noise, slack):
    """Posterior mean and covariance of theta ~ N(m, P^-1), and the log evidence of u.

    In the direction of eigenvalue h of H (negative ones count as 0), u = h t + e with
    e ~ N(0, spread h + noise + slack). The evidence is up to a constant.
    """
    d = u.shape[0]
    pull = np.zeros(d)
    total = np.zeros((d, d))
    copy_matrix(precision, total)
    evidence = 0.5 * signed_logdet(precision)[1]
    for i in range(d):
        h = max(values[i], 0.0)
        error = spread * h + noise + slack
        rotated = 0.0
        for j in range(d):
            rotated += E[j, i] * (u[j] - h * centre[j])
        if error > 0.0:
            evidence -= 0.5 * (log(error) + rotated * rotated / error)
        if h == 0.0:
            continue
        for j in range(d):
            pull[j] += E[j, i] * h / error * rotated
            for k in range(d):
                total[j, k] += E[j, i] * E[k, i] * h * h / error
    V = inverse(total)
    theta = np.zeros(d)
    for j in range(d):
        theta[j] = centre[j]
        for k in range(d):
            theta[j] += V[j, k] * pull[k]
    evidence += 0.5 * dot(pull, theta - centre) - 0.5 * signed_logdet(total)[1]
    return theta, V, evidence


@jit
def weak_direction(H, left):
    """k^(1/2) v: in the direction v of least information records count 1 + k times.

    With eigenvalues of mean m, the least being h, k = ((m / h)^(1/2) - 1) (1 - e^2 / h^2)_+.
    e^2 = (d - 1) / 2 times the variance `left` of the error in an entry is the mean square of the
    error that mixes v with other directions. k is 0 where the square of the last coordinate of v
    is at most 1 / d, its mean.
    """
    d = H.shape[0]
    values, E = eigh(H)
    level = 0.0
    least = 0
    for i in range(d):
        level += max(values[i], 0.0) / d
        if values[i] < values[least]:
            least = i
    h = values[least]
    # v turns towards d - 1 directions, each by an error off the diagonal of variance left / 2.
    error = 0.5 * (d - 1) * left
    k = 0.0
    if h > 0.0 and h * h > error and d * E[d - 1, least] ** 2 > 1.0:
        k = (math.sqrt(level / h) - 1.0) * (1.0 - error / (h * h))
    v = np.zeros(d)
    for j in range(d):
        v[j] = math.sqrt(max(k, 0.0)) * E[j, least]
    return v
