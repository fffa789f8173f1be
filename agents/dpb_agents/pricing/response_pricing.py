"""Pricing from messages about the response alone, with a public law of the features.

phi = [x; -p] / sqrt(d). A customer buys with probability f(phi) = sigmoid(zeta <phi, theta>);
Gaussian demand has the mean <phi, theta>. With the response y scaled to [0, 1] a record is

    (y - 1/2) u,    u = A phi / |A phi|.

The matrix A and the prices of a batch follow from earlier releases. So the mean record g_e(theta)
of batch e is an integral over the law of x, which is public, and no curvature has to be released.
theta minimises

    sum_e |S_e - n_e g_e(theta)|^2 / v_e + |theta - m|_P^2,

where S_e is the released sum of n_e records and v_e the variance of one of its coordinates.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_gym import portable, validation
from dpb_gym.agent import unsuitable
from dpb_gym.errors import ParameterError
from dpb_gym.kernels.customer_prices import best_price_of, intercept
from dpb_gym.kernels.vectors import (
    cholesky,
    compose,
    copy_matrix,
    copy_to,
    dot,
    eigh,
    exp,
    inverse,
    moved,
    power,
    product,
    quadratic,
    scaled,
    sigmoid,
    signed_logdet,
    squared_norm,
)
from dpb_gym.parameters import positive
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import Curator, ReleaseModel, Schedule
from dpb_gym.problems.prior import Prior
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent

# Gaussian demand has unit variance and a mean within [-1, 1]: clipped beyond two deviations.
GAUSSIAN_RANGE = (-3.0, 3.0)
# Candidate sizes of theta in units of `norm`.
SIZES = (1.0, 2.0, 4.0)
# All but the first are exp(2) times less likely.
LESS_LIKELY = 2.0
# Points of the uniform law. 256 have 10% more regret at rho = 1.
POINTS = 512
# A is this power of the loss's Hessian. 1/4 and 1/2 are within 10%; 0 has a third more regret.
POWER = 1.0 / 3.0
# Eigenvalues of the Hessian below this part of the largest one are raised to it.
FLATTEST = 1e-9
# Keeps the norm of a record below its bound in floating point.
ROUNDING = 1.0 - 1e-12
# Fractional parts of its multiples are evenly spread over (0, 1).
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


class Known(NamedTuple):
    """Public constants.

    Attributes:
        logistic: Whether demand is logistic.
        zeta: Slope of the link; 1 for Gaussian demand.
        low: Least response that counts.
        high: Largest response that counts.
        cheapest: Lowest price.
        dearest: Highest price.
        blind: Whether prices do not depend on theta before the first release.
        points: Points of the law of the features, ``(m, d - 1)``.
        uniform: A number in (0, 1) for each point, ``(m,)``.
        normals: Standard normals for each point, ``(m, d)``.
        centre: Prior mean of theta, ``(d,)``.
        precision: Precision of theta in each candidate prior, ``(H, d, d)``.
        belief: Its log density at the centre plus its log probability, up to a constant, ``(H,)``.
    """

    logistic: bool
    zeta: float
    low: float
    high: float
    cheapest: float
    dearest: float
    blind: bool
    points: Any
    uniform: Any
    normals: Any
    centre: Any
    precision: Any
    belief: Any


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: Posterior mean, ``(d,)``.
        V: Posterior covariance, ``(d, d)``.
        A: Matrix of the directions of records, ``(d, d)``.
        thetas: theta in each batch, ``(E, d)``.
        shapes: A in each batch, ``(E, d, d)``.
        sums: Released sums, ``(E, d)``.
        records: Numbers of their records, ``(E,)``.
        variances: Variances of a coordinate of the sums, ``(E,)``.
        means: Posterior mean under each candidate prior, ``(H, d)``.
        spreads: Posterior covariance under each candidate prior, ``(H, d, d)``.
        count: Number of releases, ``(1,)``.
        seen: Records at the last release, ``(1,)``.
    """

    theta: Any
    V: Any
    A: Any
    thetas: Any
    shapes: Any
    sums: Any
    records: Any
    variances: Any
    means: Any
    spreads: Any
    count: Any
    seen: Any


@jit
def act(c, s, t, x, z):
    """Best price for theta. Before the first release exp(-U), U evenly spread over the rounds."""
    if c.blind and s.count[0] == 0:
        return blind_price(c, t * GOLDEN % 1.0)
    return own_price(c, s.theta, x)


@jit
def blind_price(c, u):
    """exp(-u), which for u uniform has the least worst-case regret; u for Gaussian demand."""
    p = exp(-u) if c.logistic else u
    return min(c.dearest, max(c.cheapest, p))


@jit
def own_price(c, theta, x):
    """Best price for theta."""
    a, slope = intercept(x, theta)
    p = best_price_of(a, slope, c.logistic, c.zeta)
    return min(c.dearest, max(c.cheapest, p))


@jit
def features_of(x, price):
    """phi = [x; -p] / sqrt(d)."""
    d = x.shape[0] + 1
    root = math.sqrt(d)
    phi = np.zeros(d)
    for j in range(d - 1):
        phi[j] = x[j] / root
    phi[d - 1] = -price / root
    return phi


@jit
def direction(A, phi):
    """A phi / |A phi|, or 0 for A phi = 0."""
    u = product(A, phi)
    square = squared_norm(u)
    return scaled(ROUNDING / math.sqrt(square), u) if square > 0.0 else u


@jit
def record(c, s, t, x, price, y, z):
    """(y - 1/2) u with y scaled to [0, 1]."""
    if y == y:
        y = (min(max(y, c.low), c.high) - c.low) / (c.high - c.low)
    return scaled(y - 0.5, direction(s.A, features_of(x, price)))


@jit
def demand(c, theta, V, phi):
    """Mean scaled response, averaged over the posterior, and its derivative by <phi, theta>."""
    m = dot(phi, theta)
    if not c.logistic:
        return (m - c.low) / (c.high - c.low), 1.0 / (c.high - c.low)
    k = math.sqrt(1.0 + 0.125 * math.pi * c.zeta * c.zeta * quadratic(V, phi))
    f = sigmoid(c.zeta * m / k)
    return f, c.zeta * f * (1.0 - f) / k


@jit
def learn(c, s, released, t):
    """Store a batch, and update theta and A with all batches."""
    d = s.theta.shape[0]
    e = s.count[0]
    copy_to(s.theta, s.thetas[e])
    copy_matrix(s.A, s.shapes[e])
    copy_to(released.sum, s.sums[e])
    n = released.records - s.seen[0]
    s.records[e] = n
    # a record of norm at most 1/2 adds at most 1 / (4 d) to the mean variance of a coordinate
    s.variances[e] = released.std * released.std + n / (4.0 * d)
    s.seen[0] = released.records
    s.count[0] = e + 1
    fit(c, s)
    copy_matrix(shape_of(hessian(c, s.theta, cholesky(s.V))), s.A)


@jit
def fit(c, s):
    """Update the posterior under each prior, and write that of the likeliest.

    One Gauss-Newton step from the last posterior of the same prior; four change nothing.
    """
    features, directions = designs(c, s)
    chosen = 0
    best = -np.inf
    for r in range(c.belief.shape[0]):
        V = s.spreads[r].copy()
        theta = s.means[r].copy()
        _, total, pull = evidence(c, s, features, directions, r, theta, V)
        V = inverse(total)
        theta = product(V, pull)
        copy_to(theta, s.means[r])
        copy_matrix(V, s.spreads[r])
        value, total, _ = evidence(c, s, features, directions, r, theta, V)
        value -= 0.5 * signed_logdet(total)[1]
        if value > best:
            best = value
            chosen = r
    copy_to(s.means[chosen], s.theta)
    copy_matrix(s.spreads[chosen], s.V)


@jit
def designs(c, s):
    """phi and u of the law's points in each batch, ``(E, m, d)`` each."""
    m = c.points.shape[0]
    d = s.theta.shape[0]
    n = s.count[0]
    features = np.zeros((n, m, d))
    directions = np.zeros((n, m, d))
    for e in range(n):
        for i in range(m):
            if c.blind and e == 0:
                price = blind_price(c, c.uniform[i])
            else:
                price = own_price(c, s.thetas[e], c.points[i])
            copy_to(features_of(c.points[i], price), features[e, i])
            copy_to(direction(s.shapes[e], features[e, i]), directions[e, i])
    return features, directions


@jit
def mean_record(c, theta, V, features, directions):
    """Mean record over the law of the features, and its derivative by theta."""
    m, d = features.shape
    g = np.zeros(d)
    J = np.zeros((d, d))
    for i in range(m):
        f, h = demand(c, theta, V, features[i])
        for j in range(d):
            g[j] += (f - 0.5) * directions[i, j]
            part = h * directions[i, j]
            for k in range(d):
                J[j, k] += part * features[i, k]
    for j in range(d):
        g[j] /= m
        for k in range(d):
            J[j, k] /= m
    return g, J


@jit
def evidence(c, s, features, directions, r, theta, V):
    """Log density of the releases and theta, and the Gauss-Newton equations there.

    The equations are ``total @ solution = pull``.
    """
    d = s.theta.shape[0]
    total = c.precision[r].copy()
    pull = product(total, c.centre)
    away = theta - c.centre
    value = c.belief[r] - 0.5 * dot(away, product(total, away))
    for e in range(s.count[0]):
        n = s.records[e]
        if n == 0.0:
            continue
        variance = s.variances[e] / (n * n)
        g, J = mean_record(c, theta, V, features[e], directions[e])
        for j in range(d):
            residual = s.sums[e, j] / n - g[j]
            value -= 0.5 * residual * residual / variance
            target = (residual + dot(J[j], theta)) / variance
            for k in range(d):
                pull[k] += J[j, k] * target
                for o in range(d):
                    total[k, o] += J[j, k] * J[j, o] / variance
    return value, total, pull


@jit
def hessian(c, mean, root):
    """Half the Hessian by theta of the mean loss, averaged over draws mean + root z.

    The loss of a price is |R''| / 2 times its squared error, with R the revenue. At the best price
    p of logistic demand R'' = -zeta b f, and p = (1 + W(exp(zeta a - 1))) / (zeta b) has the
    derivatives W / ((1 + W) b) by a and -p / b by the slope b, with 1 + W = zeta b p.
    """
    d = mean.shape[0]
    m = c.points.shape[0]
    width = math.sqrt(d)
    H = np.zeros((d, d))
    move = np.zeros(d)
    for i in range(m):
        a, slope = intercept(c.points[i], moved(mean, root, c.normals[i]))
        p = best_price_of(a, slope, c.logistic, c.zeta)
        # at an end of the range a small error of theta has no loss
        if slope <= 0.0 or p <= c.cheapest or p >= c.dearest:
            continue
        by_a = 0.5 / slope
        bend = 2.0 * slope
        if c.logistic:
            by_a = (1.0 - 1.0 / (c.zeta * slope * p)) / slope
            bend = c.zeta * slope * sigmoid(c.zeta * (a - slope * p))
        for j in range(d - 1):
            move[j] = by_a * c.points[i, j] / width
        move[d - 1] = -p / slope / width
        for j in range(d):
            for k in range(d):
                H[j, k] += 0.5 * bend * move[j] * move[k] / m
    return H


@jit
def shape_of(H):
    """Power of a matrix relative to its norm; the identity for 0."""
    d = H.shape[0]
    values, E = eigh(H)
    largest = values[d - 1]
    if largest <= 0.0:
        return np.eye(d)
    for i in range(d):
        values[i] = power(max(values[i] / largest, FLATTEST), POWER)
    return compose(E, values)


def evenly_spread(m: int, n: int) -> Any:
    """Return m points that are evenly spread over [0, 1)^n.

    Fractional parts of multiples of the roots of primes (Richtmyer 1951): their averages have a
    smaller error than those of random points.
    """
    primes: list[int] = []
    k = 2
    while len(primes) < n:
        if all(k % p for p in primes):
            primes.append(k)
        k += 1
    return np.arange(1, m + 1)[:, None] * np.sqrt(np.array(primes, float)) % 1.0


def law_of(features: Any, n: int) -> tuple[Any, Any]:
    """Return points of a law of n features, ``(m, n)``, and a number in (0, 1) for each."""
    if isinstance(features, str):
        spread = evenly_spread(POINTS, n + 1)
        return 2.0 * spread[:, :n] - 1.0, spread[:, n].copy()
    points = validation.array("features", features, (None, n))
    if not len(points):
        raise ParameterError("features must have at least one row")
    return np.ascontiguousarray(points, np.float64), evenly_spread(len(points), 1)[:, 0]


@register_agent("response-pricing", supports=["pricing"], protects=("anticipating", "user-round"))
class ResponsePricing(Algorithm):
    """Pricing from noisy sums of responses alone, with a public law of the features.

    For budgets with `@local`, where the noise of the curvature is most of what `one-pass-pricing`
    loses. A customer's record is the response, scaled to [-1/2, 1/2], times a unit vector of d
    numbers. Sums of disjoint batches of records are released. What a record tells about theta
    depends on the features' distribution, which the agent does not learn: it is the parameter
    `features`. The owner states that it is public.

    The price is best for the posterior mean of theta given all releases (Gauss-Newton). Before the
    first release prices for logistic demand are exp(-U), U evenly spread over [0, 1]. The prior has
    three sizes of theta; the one of the largest posterior probability is used.

    Relation: replace-one, one user-round. Sensitivity: a record has norm at most 1/2 for all
    features, prices and responses, so two of them differ by at most 1. With a local zCDP budget
    a device adds N(0, I / (2 rho)). The customer's own features are used on the device only: for
    the price and the direction. Every record is in one batch, so that all releases together are
    one mechanism in every trust model.

    The guarantee is anticipating zCDP (or the given (epsilon, delta)) per user-round with a trusted
    curator, and that of the trust model otherwise. If the law is wrong the guarantee holds, but
    regret can grow. Without a budget the sums are exact.

    Args:
        features: Public law of the features: ``"uniform"`` on [-1, 1]^(d - 1), or a public sample
            ``(m, d - 1)``. It must not contain customers that the guarantee protects.
        norm: Prior size of theta - prior mean. Twice and four times this size have a small prior
            probability.
        prior_mean: Public prior mean of theta, ``(d,)``. It replaces `ProblemInfo.prior`; zeros
            give a cold start. None: use `ProblemInfo.prior`.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    functions = Functions(act, record, learn)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "norm": [0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0]
    }

    features: Any = "uniform"
    norm: float = positive(1.0)
    prior_mean: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.features, str):
            validation.choice("features", self.features, ("uniform",))

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable("response-pricing", problem, "pricing", "demand")
        law_of(self.features, problem.dim - 1)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        d = problem.dim
        # the mean derivative of a record by theta has about this eigenvalue
        rate = problem.zeta / (8 * d) if problem.demand == "logistic" and problem.zeta else 1 / 6
        model = ReleaseModel(
            problem.longest,
            1.0,
            rate,
            1.0 / (4 * d * rate**2),
            self.norm**2 / d,
            problem.horizon is None,
            linear=False,
        )
        sums = curator.weighted_sum(
            d,
            schedule=partial(planned, model, d),
            model=model,
            clip=0.5,
            what="sums of responses times directions",
        )
        return Plan(sums)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        d = problem.dim
        logistic = problem.demand == "logistic"
        low, high = (0.0, 1.0) if logistic else GAUSSIAN_RANGE
        cheapest, dearest = problem.price_range or (0.0, 1.0)
        points, uniform = law_of(self.features, d - 1)
        prior = (problem.prior or Prior((0.0,) * d)).fitting(d)
        precision = np.zeros((len(SIZES), d, d))
        belief = np.zeros(len(SIZES))
        for r, size in enumerate(SIZES):
            precision[r] = np.eye(d) * (d / (size * self.norm) ** 2)
            if prior.precision is not None:
                precision[r] += prior.information()
            belief[r] = 0.5 * signed_logdet(precision[r])[1] - LESS_LIKELY * (r > 0)
        known = Known(
            logistic=logistic,
            zeta=problem.zeta if logistic and problem.zeta else 1.0,
            low=low,
            high=high,
            cheapest=float(cheapest),
            dearest=float(dearest),
            blind=not prior.centre.any(),
            points=points,
            uniform=uniform,
            normals=portable.normals(np.random.default_rng(0), (len(points), d)),
            centre=prior.centre,
            precision=precision,
            belief=belief,
        )
        E = len(sums.schedule.ends)
        V = np.stack([inverse(each) for each in precision])
        return known, State(
            theta=prior.centre,
            V=V[0],
            A=np.eye(d),
            thetas=np.zeros((E, d)),
            shapes=np.zeros((E, d, d)),
            sums=np.zeros((E, d)),
            records=np.zeros(E),
            variances=np.zeros(E),
            means=np.repeat(prior.centre[None], len(SIZES), axis=0),
            spreads=V,
            count=np.zeros(1, np.int64),
            seen=np.zeros(1),
        )


def planned(model: ReleaseModel, first: int, sigma: float) -> Schedule:
    """Return the batches of a trusted curator, of which the first has at least `first` rounds."""
    ends = model.batches(sigma).ends
    # fewer records than coordinates do not determine theta
    ends = np.maximum(ends, min(first, int(ends[-1])))
    ends = np.unique(ends)
    ones = np.ones(len(ends))
    return Schedule(ends, ones, ones, carry=0.0)
