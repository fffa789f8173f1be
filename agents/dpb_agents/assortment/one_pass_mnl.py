"""One-pass private Newton for assortment. Symbols as in docs/one-pass.md.

A customer chooses an offered item or the outside option, of features 0, with probabilities
softmax(<x_i, theta>). Choice t enters a running sum once, as a curvature H_t and a response u_t
with E u_t = H_t theta. theta is computed from noisy releases of that sum alone.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.kernels.curvature import (
    Belief,
    Combination,
    History,
    believed,
    combination,
    embedded,
    estimate,
    geometric_schedule,
    isometric,
    padded,
    planned_horizon,
    posterior,
    row_weight,
    store,
    stored_by,
    symmetric,
)
from dpb_gym import kernels, portable
from dpb_gym.agent import unsuitable
from dpb_gym.kernels.customer_slates import (
    all_offered,
    alternatives,
    best_slate,
    chosen_row,
    expected_slate,
    slate_revenue,
    utilities,
)
from dpb_gym.kernels.vectors import (
    any_nonzero,
    compose,
    copy_matrix,
    copy_to,
    distance,
    eigh,
    mean_row,
    moved,
    scaled,
    softmax,
)
from dpb_gym.parameters import flag, inside, integer, positive, real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import Curator
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent

# First feature of every item if there may be a level. A larger one costs sensitivity.
CONSTANT = 1.0
# Nodes of the prior of |theta|, which is log-normal, in standard deviations of 1/2.
DEVIATIONS = np.linspace(-2.5, 2.5, 11)
# Prior probability up to which a size, together with larger ones, is unexpected: the usual 5%.
# Every value from .04 to .1 gives the same agents with default parameters.
UNEXPECTED = 0.05
# Draws of theta that items of equal revenues are valued by: the Monte Carlo error of a mean is
# 1/8 of the standard deviation of a draw.
DRAWS = 64
# Draws are used until a coordinate of theta is so many standard deviations of its noise long:
# that ratio is 1 at t_0 and grows like t.
UNSURE = 3.0
# A draw is rejected if it costs more than so many times what it may gain.
BET = 2.0
# Limits of the information in a rare direction, relative to the mean and to the prior's.
RARE = 0.1
FEW = 3.0
AMPLE = 10.0


class Known(NamedTuple):
    """Public constants.

    Attributes:
        private: Whether there is a budget.
        cut: Norm at which scores are cut, and U, the bound of u.
        B: Bound of H.
        share: Part of the sensitivity that u gets.
        a: Factor of H in a row.
        b: Factor of u in a row.
        norm: Median of the prior size of theta.
        largest: Number of the largest size of theta that is expected.
        unsure: Draws are used for so many rounds.
        draws: Their number.
        K: Capacity.
        exactly: Whether slates hold K items.
        equal: Whether all revenues are equal.
        constant: First feature of every item; 0: there is none.
        prior: Prior of theta.
        sums: How releases are combined.
    """

    private: bool
    cut: float
    B: float
    share: float
    a: float
    b: float
    norm: float
    largest: int
    unsure: float
    draws: int
    K: int
    exactly: bool
    equal: bool
    constant: float
    prior: Belief
    sums: Combination


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: Posterior mean, ``(d,)``.
        V: Posterior covariance, ``(d, d)``.
        root: Draws are theta + root z, ``(d, d)``.
        rare: The same in rare directions only.
        sums: Stored releases, see `History`.
        ends: Their rounds.
        count: Their number.
    """

    theta: Any
    V: Any
    root: Any
    rare: Any
    sums: Any
    ends: Any
    count: Any


@jit
def draws(c, t):
    """Number of normal vectors of round t."""
    return c.draws if t - 1 < c.unsure else 1


@jit
def items(c, x):
    """Rows (constant, x), or x if there is no constant."""
    n, d = x.shape
    m = int(c.constant > 0.0)
    out = np.zeros((n, m + d))
    for i in range(n):
        for j in range(m):
            out[i, j] = c.constant
        for j in range(d):
            out[i, m + j] = x[i, j]
    return out


@jit
def all_utilities(c, x, theta):
    """Utilities of all items."""
    m = int(c.constant > 0.0)
    u = utilities(x, theta[m:])
    if m > 0:
        for i in range(u.shape[0]):
            u[i] += c.constant * theta[0]
    return u


@jit
def act(c, s, t, offer, z):
    """Greedy slate for draws while theta is unsure, then the best slate for theta."""
    x = offer.features
    r = offer.revenues
    if t - 1 < c.unsure:
        return expected_slate(items(c, x), r, s.theta, s.root, z, c.K, c.exactly)
    equal = c.equal and all_offered(r)
    u = all_utilities(c, x, s.theta)
    best = best_slate(u, r, c.K, equal, c.exactly)
    if not any_nonzero(s.rare):
        return best
    bold = all_utilities(c, x, moved(s.theta, s.rare, z[0]))
    bet = best_slate(bold, r, c.K, equal, c.exactly)
    cost = slate_revenue(best, u, r) - slate_revenue(bet, u, r)
    gain = slate_revenue(bet, bold, r) - slate_revenue(best, bold, r)
    return best if cost > BET * gain else bet


@jit
def link_scale(c, s, p, x):
    """c of the page: by how much the uncertainty V of theta flattens the link."""
    centre = mean_row(p, x)
    k = 0.0
    for i in range(p.shape[0]):
        k += p[i] * distance(s.V, x[i], centre)
    return math.sqrt(1.0 + 0.25 * math.pi * k)


@jit
def record(c, s, t, offer, slate, choice, z):
    """Row of a choice.

    With p the choice probabilities at <x, theta> / c, s_i = x_i - sum p x and v_i = s_i cut to norm
    `cut`: H = sum p_i v_i s_i' / c, u = H theta + v_chosen - sum p v.
    """
    x = items(c, alternatives(offer.features, slate))
    n, d = x.shape
    # the last alternative is no purchase
    for j in range(d):
        x[n - 1, j] = 0.0
    chosen = chosen_row(slate, choice)
    scores = np.zeros(n)
    for i in range(n):
        for j in range(d):
            scores[i] += x[i, j] * s.theta[j]
    w = 1.0
    if not c.private:
        # less weight while theta is unknown, also where p is sure and wrong
        w /= link_scale(c, s, np.full(n, 1.0 / n), x)
    k = link_scale(c, s, softmax(scores, 1.0), x)
    p = softmax(scores, k)
    centre = mean_row(p, x)
    cut = np.ones(n)
    mean = np.zeros(d)
    H = np.zeros((d, d))
    for i in range(n):
        square = 0.0
        for j in range(d):
            x[i, j] -= centre[j]
            square += x[i, j] * x[i, j]
        length = math.sqrt(square)
        # scores that are to be private are cut radially
        cut[i] = 1.0 if length <= c.cut else c.cut / length
        for j in range(d):
            v = cut[i] * p[i] * x[i, j]
            mean[j] += v
            for o in range(j, d):
                H[j, o] += v * x[i, o] / k
    for j in range(d):
        for o in range(j, d):
            H[o, j] = H[j, o]
    u = np.zeros(d)
    for j in range(d):
        total = -mean[j]
        for o in range(d):
            total += H[j, o] * s.theta[o]
        u[j] = total
    # the weight uses the whole sensitivity and does not depend on the choice
    if c.private:
        longest = 0.0
        for i in range(n):
            square = 0.0
            for j in range(d):
                square += (u[j] + cut[i] * x[i, j]) ** 2
            longest = max(longest, square)
        w *= row_weight(H, longest, c.B, c.cut, c.share)
    for j in range(d):
        u[j] += cut[chosen] * x[chosen, j]
    return isometric(H, u, w * c.a, w * c.b)


@jit
def learn(c, s, released, t):
    """Update theta with all releases.

    Records taken at a theta that was far too short mislead, because the link is flat there: where
    theta is longer than expected, the first part of the records is left out.
    """
    history = History(s.sums, s.ends, s.count)
    store(c.sums, history, released, t)
    old = stored_by(history, t - c.sums.window) if c.sums.window > 0 else 0
    early = stored_by(history, c.sums.first_part * t)
    unexpected = learn_from(c, s, estimate(c.sums, history, released, old), t)
    if early > old and unexpected:
        learn_from(c, s, estimate(c.sums, history, released, early), t)


@jit
def learn_from(c, s, estimated, t):
    """Write theta, its covariance and the roots of draws; return if theta is unexpectedly long."""
    sums, std, uneven = estimated
    D = s.theta.shape[0]
    if c.private and t < c.unsure:
        # at distance 1, where the typical eigenvalue is `rate`, a cut response has variance cut^2
        # and the curvature has trace `cut`; draws use that variance, a single theta is safer with 1
        uneven *= c.cut
    H = symmetric(sums, D, 1.0 / c.a)
    u = scaled(1.0 / c.b, sums[D * (D + 1) // 2 :])
    noise = (std / c.b) ** 2
    p = posterior(c.prior, H, u, c.sums.least_evenness, std / c.a, uneven, noise)
    copy_to(padded(p.theta, D), s.theta)
    copy_matrix(embedded(p.V, D), s.V)
    copy_matrix(embedded(compose(p.E, p.deviation), D), s.root)
    copy_matrix(embedded(rare_root(c, p.theta, p.V), D), s.rare)
    return p.size > c.largest


@jit
def rare_root(c, theta, V):
    """V^(1/2) restricted to directions in which records carry almost no information.

    With eigenvalues lambda_i of V and p = d / max(norm, |theta|)^2, the precision of a prior of
    that size, the records' precision is h_i = (1 / lambda_i - p)_+.
    """
    d = theta.shape[0]
    values, E = eigh(V)
    length = 0.0
    for j in range(d):
        length += theta[j] * theta[j]
    p = d / max(c.norm * c.norm, length)
    h = np.zeros(d)
    mean = 0.0
    for i in range(d):
        h[i] = max(1.0 / values[i] - p, 0.0)
        mean += h[i] / d
    for i in range(d):
        few = h[i] < RARE * mean and h[i] < FEW * p
        values[i] = math.sqrt(values[i]) if few and mean > AMPLE * p else 0.0
    return compose(E, values)


@register_agent("one-pass-mnl", supports=["assortment"], protects=("joint", "user-round"))
class OnePassMNL(Algorithm):
    """One-pass private Newton for assortment: greedy on noisy sums of curvature and response.

    Each choice enters once: its curvature H_t and its response u_t, H_t theta_t plus a score
    that is zero in the mean, at the theta that was released when the customer arrived. Scores
    are cut radially, inside the mean as well, and a public weight brings every record to the
    full sensitivity, so that nothing is biased. The running sums of both are released with
    Gaussian noise at rounds that grow geometrically, and theta is the posterior mean given all
    releases, the known noise and a prior whose size is learned.

    The offer is the best assortment under theta. Where revenues are equal and theta is not yet
    known, it is a greedy assortment for the expected revenue under the prior or the posterior.
    In rare directions, about which the records say next to nothing (the constant of an item that
    is never offered, for example), theta gets a draw from its posterior. The draw's assortment is
    rejected if it costs more than twice what it may gain. The cost of a round does not depend on t.
    Proofs: docs/one-pass.md.

    The guarantee is joint zCDP (or the given (epsilon, delta)) per user-round, or per user with
    `max_rounds_per_user`, replace-one. It covers all rounds and is spent from the first round on.
    Without a budget the sums are exact, scores are not cut, records weigh less while theta is
    unknown, and the agent is a non-private online Newton method.

    Args:
        norm: Median of the prior size of theta - prior mean.
        cut: Norm at which an item's distance from the mean item is cut, and the norm U of a
            response for which the row has its full sensitivity.
        bound: The same norm B of the curvature, in units of `cut`.
        share: Part q of the budget that pays for the response; the rest is the curvature's.
        first: Round of the first release, in units of t_0, the round at which the noise in one
            coordinate is as large as the signal.
        decay: Power of t with which the noise of a release grows, >= 0.
        anytime: Plan the releases for every horizon up to 10^9 instead of T. Always the case if
            T is not known.
        window: Number of last rounds that theta is estimated from, at least (drift): the newest
            release before them is subtracted, which costs no privacy. None: all rounds.
        max_rounds_per_user: k, the most rounds of a user that are learnt from, if all rounds of
            one user are protected; user ids are public. None: a single round is protected.
        level: Prior probability that all utilities have a level in common that no feature shows,
            < 1. Then records have a constant as first feature, and so has theta its coefficient.
            With 0 they have none.
        prior_mean: Public prior mean of theta, ``(d,)``. It replaces `ProblemInfo.prior`; zeros
            give a cold start. None: use `ProblemInfo.prior`.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    functions = Functions(act, record, learn, draws=draws)
    retired: ClassVar[dict[str, str]] = {"ratio": "it is 1.1, and others hardly matter"}
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "norm": [1.4, 2.0],
        "share": [0.75, 0.85],
        "first": [1.0, 2.2],
    }

    norm: float = positive(2.0)
    cut: float = positive(0.5)
    bound: float = positive(0.35)
    share: float = inside(0.85)
    first: float = positive(1.0)
    decay: float = real(1.25, 0.0)
    anytime: bool = flag(False)
    window: int | None = integer(None, 1)
    max_rounds_per_user: int | None = integer(None, 1)
    level: float = real(0.1, 0.0, 1.0, open_high=True)
    prior_mean: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_rounds_per_user is not None:
            self.protects = ("joint", "user")

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "assortment" or problem.n_items is None or problem.capacity is None:
            raise unsuitable("one-pass-mnl", problem, "assortment", "n_items", "capacity")

    def _dim(self, problem: ProblemInfo) -> int:
        """Return D, the dimension of theta with the coefficient of the level, if there is one."""
        return problem.dim + int(self.level > 0.0)

    def _prior(self) -> tuple[Any, Any]:
        beliefs = portable.each(portable.exp, -0.5 * DEVIATIONS**2)
        sizes = self.norm * portable.each(portable.exp, 0.5 * DEVIATIONS)
        return sizes, beliefs / beliefs.sum()

    def _constants(self, problem: ProblemInfo, private: bool) -> dict[str, Any]:
        d = problem.dim
        D = self._dim(problem)
        B = self.bound * self.cut
        U = self.cut
        a = math.sqrt((1.0 - self.share) / 2.0) / B if private else 1.0
        b = math.sqrt(self.share) / (2.0 * U) if private else 1.0
        sizes, beliefs = self._prior()
        likely = float(sizes[beliefs.argmax()])
        unit_noise = math.sqrt(1.0 / b**2 + 0.5 * (1.0 + 1.0 / D) * (likely / a) ** 2)
        # the trace of the curvature of items that are cut, spread over d coordinates
        rate = self.cut / d
        return dict(B=B, a=a, b=b, unit_noise=unit_noise, rate=rate, likely=likely)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        from dpb_gym.privacy import ReleaseModel

        D = self._dim(problem)
        private = curator.private
        c = self._constants(problem, private)
        horizon = planned_horizon(problem, self.anytime)
        first = self.first * c["unit_noise"] / (c["rate"] * self.norm)
        sums = curator.weighted_sum(
            D * (D + 1) // 2 + D,
            schedule=geometric_schedule(private, horizon, 1, first, self.decay),
            model=ReleaseModel(
                horizon,
                c["unit_noise"],
                c["rate"],
                1.0 / c["rate"],
                c["likely"] ** 2 / problem.dim,
                self.anytime or problem.horizon is None,
                linear=False,
            ),
            sensitivity=1.0,
            limit=self.max_rounds_per_user,
            # no row is longer, so no row is clipped
            clip=math.sqrt(0.5) * (1.0 + 1e-9) if private else None,
            what="running sums of curvature and response",
        )
        return Plan(sums, draws=1, dim=D, users=self.max_rounds_per_user is not None)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        d = problem.dim
        D = self._dim(problem)
        private = sums.sigma > 0.0
        c = self._constants(problem, private)
        sizes, beliefs = self._prior()
        prior, V = believed(problem, D, sizes, beliefs, c["likely"], level=self.level)
        own = slice(D - d, D)
        root = np.zeros((D, D))
        kernels.linalg.cholesky(V[None, own, own], root[None, own, own])
        equal = bool(problem.equal_revenues) and problem.reward_range[1] > 0.0
        unsure = UNSURE * max(d, int(sums.schedule.ends[0])) if equal else 0.0
        tail = np.array([beliefs[sizes >= size].sum() for size in sizes])
        known, history = combination(sums, private, c["unit_noise"], c["rate"], self.window)
        return Known(
            private=private,
            cut=self.cut if private else math.inf,
            B=c["B"],
            share=self.share,
            a=c["a"],
            b=c["b"],
            norm=self.norm,
            largest=int(np.flatnonzero(tail > UNEXPECTED).max()),
            unsure=unsure,
            draws=DRAWS,
            K=int(problem.capacity or 0),
            exactly=bool(problem.exactly),
            equal=equal,
            constant=CONSTANT if self.level else 0.0,
            prior=prior,
            sums=known,
        ), State(prior.centre, V, root, np.zeros((D, D)), *history)
