"""One-pass private Newton for pricing. Symbols as in docs/one-pass.md.

phi = [x; -p] / sqrt(d). A customer buys with probability sigmoid(zeta <phi, theta>); Gaussian
demand has the mean <phi, theta>. Sale t enters a running sum once, as a curvature H_t and a
response u_t with E u_t = H_t theta. theta is computed from noisy releases of that sum alone.
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
    conditional,
    embedded,
    estimate,
    geometric_schedule,
    isometric,
    level_posterior,
    padded,
    planned_horizon,
    row_weight,
    store,
    stored_by,
    symmetric,
)
from dpb_gym.agent import unsuitable
from dpb_gym.kernels.customer_prices import (
    best_net_price_of,
    best_price_of,
    intercept,
    revenue_of,
)
from dpb_gym.kernels.vectors import (
    compose,
    copy_matrix,
    copy_to,
    exp,
    log,
    moved,
    normal_cdf,
    scaled,
    sigmoid,
)
from dpb_gym.parameters import flag, integer, positive, real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import Curator
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent

# First feature of every customer if there may be an intercept. Its square is what it takes of the
# sensitivity, in units of what a feature of 1 takes.
CONSTANT = 0.2
# Prior deviation of its coefficient, in units of that of another coordinate: an intercept is about
# as long as a feature of .7 would make it (docs/one-pass.md, "Constants").
LONGER = 3.5
# Gaussian demand has unit variance and a mean within [-1, 1]: clipped beyond two deviations.
GAUSSIAN_RANGE = (-3.0, 3.0)
# A budget is hopeless if twice the round of the first release is beyond half of the rounds.
HOPELESS = 0.25
# Prices that are drawn again for each record; 1, 3 and 7 are within 10%.
TWINS = 3
# Candidate sizes of theta in units of `norm`, and the probability of each but the first: 1% in
# all that demand is steeper than foreseen. Less than the usual 5%, so these are unexpected.
SIZES = np.array([1.0, 1.6, 2.5, 4.0, 8.0])
OTHERS = 0.0025
# A direction is rare below this part of the mean information; the prior size there, in units of
# `norm`. Both trade an intercept against customers that drift (docs/one-pass.md, "Constants").
RARE = 0.15
WIDE = 2.5
# Quantiles of blind prices, for their expected revenue.
QUANTILES = 4
# For small draws around a price in (0, 1) gain and cost are equal, so the limit must exceed 1.
BET = 2.0


class Known(NamedTuple):
    """Public constants.

    Attributes:
        logistic: Whether demand is logistic.
        private: Whether there is a budget.
        zeta: Slope of the link; 1 for Gaussian demand.
        U: Bound of u.
        B: Bound of H.
        q: Part of the sensitivity that u gets.
        a: Factor of H in a row.
        b: Factor of u in a row.
        disperse: Size of draws, in units of the posterior's standard deviation.
        constant: First coordinate of phi; 0: there is none.
        twins: Prices drawn again for each record.
        blind: Rounds that are played without theta.
        cautious: Whether prices are blind for customers with whom theta may earn less.
        low: Least demand that counts.
        high: Largest demand that counts.
        prior: Prior of theta.
        stock: Whether a unit has a cost, see `State.bid`.
        sums: How releases are combined.
    """

    logistic: bool
    private: bool
    zeta: float
    U: float
    B: float
    q: float
    a: float
    b: float
    disperse: float
    constant: float
    twins: int
    blind: int
    cautious: bool
    low: float
    high: float
    prior: Belief
    stock: bool
    sums: Combination


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: Posterior mean, ``(d,)``.
        V: Posterior covariance, ``(d, d)``.
        root: Draws are theta + root z, ``(d, d)``.
        weak: sqrt(k) v: in the direction v of least information records count 1 + k times.
        bid: What a unit of a limited stock costs, ``(1,)``; set by `ResolvingPricing`.
        sums: Stored releases, see `History`.
        ends: Their rounds.
        count: Their number.
    """

    theta: Any
    V: Any
    root: Any
    weak: Any
    bid: Any
    sums: Any
    ends: Any
    count: Any


@jit
def act(c, s, t, x, z):
    """Price that is best for theta plus a draw, or a blind or a safe price."""
    safe = safe_bet(c, s, x)
    if is_blind(c, s, t, safe):
        u = normal_cdf(z[0, 0])
        # exp(-U) has the least worst-case regret
        return exp(-u) if c.twins > 0 else u
    return explored_price(c, s, x, z[0], safe)


@jit
def is_blind(c, s, t, safe):
    """Whether a customer's price does not depend on theta.

    Without a trusted curator it does not while blind prices may earn more: while the gain over
    them is less than its posterior standard deviation. Of theta's errors only that of the price's
    coefficient counts, since the others are averaged over customers.
    """
    if t <= c.blind or not c.cautious:
        return t <= c.blind
    a, slope, price, gain = safe
    # derivative of the gain by -slope
    steep = revenue_slope(c, a, slope, price)
    for i in range(QUANTILES):
        p = exp(-(i + 0.5) / QUANTILES)
        gain -= revenue_of(a, slope, p, c.zeta) / QUANTILES
        steep -= revenue_slope(c, a, slope, p) / QUANTILES
    d = s.theta.shape[0]
    variance = s.V[d - 1, d - 1] / (d - int(c.constant > 0.0))
    return gain < abs(steep) * math.sqrt(variance)


@jit
def revenue_slope(c, a, slope, price):
    """Derivative of the expected revenue at a price by -slope."""
    f = sigmoid(c.zeta * (a - slope * price))
    return c.zeta * price * price * f * (1.0 - f)


@jit
def line(c, x, theta):
    """(a, slope) of the linear predictor a - slope p."""
    m = int(c.constant > 0.0)
    a, slope = intercept(x, theta[m:])
    if m > 0:
        a += c.constant * theta[0]
    return a, slope


@jit
def safe_bet(c, s, x):
    """(a, slope) of the linear predictor a - slope p for theta, its best price and revenue."""
    a, slope = line(c, x, s.theta)
    price = best_price_of(a, slope, c.logistic, c.zeta)
    return a, slope, price, revenue_of(a, slope, price, c.zeta)


@jit
def explored_price(c, s, x, z, safe):
    """Best price for theta + root z; the one for theta where that is a bad bet."""
    a, slope = line(c, x, moved(s.theta, s.root, z))
    if c.stock:
        return best_net_price_of(a, slope, c.zeta, s.bid[0])
    price = best_price_of(a, slope, c.logistic, c.zeta)
    if c.logistic and c.disperse > 0.0:
        own_a, own_slope, other, most = safe
        cost = most - revenue_of(own_a, own_slope, price, c.zeta)
        gain = revenue_of(a, slope, price, c.zeta) - revenue_of(a, slope, other, c.zeta)
        if cost > BET * gain:
            return other
    return price


@jit
def demand(c, s, phi):
    """<phi, theta>, the expected demand averaged over V, and h, the factor of phi phi' in H."""
    m = 0.0
    v = 0.0
    for j in range(phi.shape[0]):
        m += phi[j] * s.theta[j]
        for k in range(phi.shape[0]):
            v += phi[j] * s.V[j, k] * phi[k]
    if not c.logistic:
        return m, m, 1.0
    k = math.sqrt(1.0 + 0.125 * math.pi * c.zeta * c.zeta * v)
    f = sigmoid(c.zeta * m / k)
    return m, f, c.zeta * c.zeta * f * (1.0 - f) / k


@jit
def record(c, s, t, x, price, y, z):
    """Row of a sale.

    H = h phi phi' + n g D^2 e e' + h (<w, phi> / |w|)^2 w w',
    u = H theta + zeta (y - f) (phi + n g / h D e + <w, phi> w)
    with w = `weak`, e the price's direction, D the gap of phi's last coordinate to its mean over
    n prices drawn alike, and g the least h of any of them. n D^2 is on average, over which of the
    prices is posted, their sum of squares.
    """
    d = s.theta.shape[0]
    phi = np.zeros(d)
    m = int(c.constant > 0.0)
    if m > 0:
        phi[0] = c.constant
    root = math.sqrt(d - m)
    for j in range(d - 1 - m):
        phi[m + j] = x[j] / root
    n = 1 + c.twins
    safe = safe_bet(c, s, x)
    blind = is_blind(c, s, t, safe)
    least = np.inf
    mean = 0.0
    for i in range(c.twins, 0, -1):
        if blind:
            twin = exp(-normal_cdf(z[i - 1, 0]))
        else:
            twin = explored_price(c, s, x, z[i - 1], safe)
        phi[d - 1] = -twin / root
        least = min(least, demand(c, s, phi)[2])
        mean += phi[d - 1] / n
    phi[d - 1] = -price / root
    m, f, h = demand(c, s, phi)
    least = min(least, h)
    mean += phi[d - 1] / n
    D = phi[d - 1] - mean
    along = 0.0
    known = 0.0
    square = 0.0
    for j in range(d):
        along += s.weak[j] * phi[j]
        known += s.weak[j] * s.theta[j]
        square += s.weak[j] * s.weak[j]
    more = along * along / square if square > 0.0 else 0.0
    u = np.zeros(d)
    H = np.zeros((d, d))
    for j in range(d):
        u[j] = h * (m * phi[j] + more * known * s.weak[j])
        for k in range(j, d):
            H[j, k] = h * (phi[j] * phi[k] + more * s.weak[j] * s.weak[k])
    H[d - 1, d - 1] += n * least * D * D
    u[d - 1] += n * least * D * D * s.theta[d - 1]
    score = phi
    for j in range(d):
        score[j] += along * s.weak[j]
    score[d - 1] += n * (least / h if h > 0.0 else 0.0) * D
    # the weight uses the whole sensitivity and does not depend on the demand
    w = 1.0
    unit = c.zeta
    if c.private:
        lowest = 0.0
        highest = 0.0
        for j in range(d):
            lowest += (u[j] + unit * (c.low - f) * score[j]) ** 2
            highest += (u[j] + unit * (c.high - f) * score[j]) ** 2
        w = row_weight(H, max(lowest, highest), c.B, c.U, c.q)
    bounded = min(max(y, c.low), c.high) if y == y else y
    for j in range(d):
        u[j] += unit * (bounded - f) * score[j]
    return isometric(H, u, w * c.a, w * c.b)


@jit
def learn(c, s, released, t):
    """Update theta with all releases.

    Records taken at a theta that was far too short mislead, because the link is flat there: where
    theta is longer than expected, the first part of the records is left out. So it is where a
    level is looked for, since a theta that is too short looks like one.
    """
    history = History(s.sums, s.ends, s.count)
    store(c.sums, history, released, t)
    old = stored_by(history, t - c.sums.window) if c.sums.window > 0 else 0
    early = stored_by(history, c.sums.first_part * t)
    if c.prior.level > 0.0 and learn_level(
        c, s, estimate(c.sums, history, released, max(old, early))
    ):
        return
    unexpected = learn_from(c, s, estimate(c.sums, history, released, old))
    if early > old and unexpected:
        learn_from(c, s, estimate(c.sums, history, released, early))


@jit
def learn_from(c, s, estimated):
    """Take the posterior without a level. Return whether theta is unexpectedly long."""
    H, u, std, uneven, noise = equations(c, s, estimated)
    first = int(c.prior.level > 0.0)
    p = conditional(c.prior, H, u, first, c.sums.least_evenness, std, uneven, noise)
    take(c, s, p)
    return p.size > 0


@jit
def learn_level(c, s, estimated):
    """Take the posterior with a level, if that is the likelier model. Return whether it is."""
    H, u, std, uneven, noise = equations(c, s, estimated)
    p = level_posterior(c.prior, LONGER, H, u, c.sums.least_evenness, std, uneven, noise)
    # zero is the log of p(u | no level) / p(u | level)
    if p.zero > log(c.prior.level / (1.0 - c.prior.level)):
        return False
    take(c, s, p)
    return True


@jit
def equations(c, s, estimated):
    """H and u of estimated sums, the noise of an entry of H, `uneven`, and that in u."""
    sums, std, uneven = estimated
    D = s.theta.shape[0]
    H = symmetric(sums, D, 1.0 / c.a)
    u = scaled(1.0 / c.b, sums[D * (D + 1) // 2 :])
    return H, u, std / c.a, uneven, (std / c.b) ** 2


@jit
def take(c, s, p):
    """Write theta, its covariance, the root of draws and the weak direction."""
    D = s.theta.shape[0]
    if c.private and c.prior.rare > 0.0:
        copy_to(padded(p.weak, D), s.weak)
    copy_to(padded(p.theta, D), s.theta)
    copy_matrix(embedded(p.V, D), s.V)
    # draws are whole in rare directions of prior size, and `disperse` of the posterior elsewhere
    for i in range(p.deviation.shape[0]):
        whole = min(1.0, p.deviation[i] / math.sqrt(c.prior.sizes[0]))
        p.deviation[i] *= max(c.disperse, whole) if p.few[i] else c.disperse
    copy_matrix(embedded(compose(p.E, p.deviation), D), s.root)


@register_agent("one-pass-pricing", supports=["pricing"], protects=("anticipating", "user-round"))
class OnePassPricing(Algorithm):
    """One-pass private Newton for pricing: noisy sums of curvature and response.

    Each sale enters once: its curvature H_t and its response u_t, H_t theta_t plus a score that
    is zero in the mean, at the theta that was released when the customer arrived. A public
    weight brings every record to the full sensitivity without bias. The running sums of both
    are released with Gaussian noise at rounds that grow geometrically, and theta is the
    posterior mean given all releases, the known noise and a prior whose size is learned.

    The price is best for theta plus a small draw from its posterior, so that prices never stop
    to differ: the factor `disperse` costs about disperse^2 of what not knowing theta costs. In
    rare directions, which carry next to no information (intercept against slope, for example),
    the draw is whole and the prior wide until prices have explored them. A draw is rejected if
    its price costs more than twice what it may gain.

    With a budget, logistic records count more in two ways. The gap between the price and others
    drawn for the same customer is independent of the customer, and counts more for the price's
    coefficient. The direction of least information counts more if the price takes part in it.

    Until the first release the price is that of the prior mean: 1 for theta = 0 and logistic
    demand, random for Gaussian demand. If the budget is too small to learn in time and there is no
    prior mean, prices for logistic demand are blind: exp(-U), U uniform, which minimises the
    worst-case regret. Without a trusted curator they are blind for every customer with whom theta
    may earn less.

    The guarantee is anticipating zCDP (or the given (epsilon, delta)) per user-round, or per user
    with `max_rounds_per_user`, replace-one; the same argument gives joint privacy. It covers all
    rounds and is spent from the first round on. Without a budget the sums are exact, records have
    no weights, and the agent is a non-private online Newton method. Proofs: docs/one-pass.md.

    Args:
        norm: Prior size of theta - prior mean. Sizes up to 8 times as large have a small prior
            probability each.
        clip: Norm U of a response for which the row has its full sensitivity, in units of the
            largest that is possible (zeta, or the range to which Gaussian demand is clipped).
        bound: The same norm B of the curvature, in units of zeta^2 / 4, or 1 for Gaussian
            demand.
        disperse: Size of the draw, in units of the posterior; with 0 prices are greedy, in rare
            directions too.
        first: Round of the first release, in units of t_0, the round at which the noise in one
            coordinate is as large as the signal.
        decay: Power of t with which the noise of a release grows, >= 0.
        anytime: Plan the releases for every horizon up to 10^9 instead of T. Always the case if
            T is not known.
        window: Number of last rounds that theta is estimated from, at least (drift): the newest
            release before them is subtracted, which costs no privacy. None: all rounds.
        max_rounds_per_user: k, the most rounds of a user that are learnt from, if all rounds of
            one user are protected; user ids are public. None: a single round is protected.
        level: Prior probability that demand has an intercept that no feature shows, < 1. phi has
            a constant as first coordinate, and theta its coefficient. With 0 they have none.
        prior_mean: Public prior mean of theta, ``(d,)``. It replaces `ProblemInfo.prior`; zeros
            give a cold start. None: use `ProblemInfo.prior`.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    functions = Functions(act, record, learn)
    sells_stock: ClassVar[bool] = False
    retired: ClassVar[dict[str, str]] = {
        "rare": "it is 0.15, and disperse=0 plays greedily",
        "ratio": "it is 1.1, and others hardly matter",
    }
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "clip": [0.3, 0.45],
        "disperse": [0.05, 0.1],
        "first": [1.6, 2.4],
    }

    norm: float = positive(0.85)
    clip: float = positive(0.3)
    bound: float = positive(0.2)
    disperse: float = real(0.1, 0.0)
    first: float = positive(2.4)
    decay: float = real(1.25, 0.0)
    anytime: bool = flag(False)
    window: int | None = integer(None, 1)
    max_rounds_per_user: int | None = integer(None, 1)
    level: float = real(0.005, 0.0, 1.0, open_high=True)
    prior_mean: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_rounds_per_user is not None:
            self.protects = ("anticipating", "user")

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable("one-pass-pricing", problem, "pricing", "demand")

    def _dim(self, problem: ProblemInfo) -> int:
        """Return D, the dimension of theta with the intercept, if there may be one."""
        return problem.dim + int(self.level > 0.0)

    def _constants(self, problem: ProblemInfo, private: bool) -> dict[str, Any]:
        d = problem.dim
        D = self._dim(problem)
        logistic = problem.demand == "logistic"
        zeta = 1.0 if problem.zeta is None or not logistic else problem.zeta
        steepest = zeta**2 / 4 if logistic else 1.0
        U = self.clip * (zeta if logistic else GAUSSIAN_RANGE[1])
        B = self.bound * steepest
        # the share of least noise in u - H theta for |theta| = norm
        q = 2 * U / (2 * U + self.norm * B * math.sqrt(1 + 1 / D))
        a = math.sqrt((1.0 - q) / 2.0) / B if private else 1.0
        b = math.sqrt(q) / (2.0 * U) if private else 1.0
        # unit noise in a row moves a coordinate of u - H theta so far: the noise N of H is
        # isometric, so a coordinate of N theta has mean square (1 + 1/d) / 2 norm^2
        unit_noise = math.sqrt(1.0 / b**2 + 0.5 * (1.0 + 1.0 / D) * (self.norm / a) ** 2)
        # a quarter of the largest trace, spread over d coordinates
        rate = steepest / (4 * d)
        return dict(
            logistic=logistic, zeta=zeta, U=U, B=B, q=q, a=a, b=b, unit_noise=unit_noise, rate=rate
        )

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        from dpb_gym.privacy import ReleaseModel

        d = problem.dim
        D = self._dim(problem)
        private = curator.private
        c = self._constants(problem, private)
        horizon = planned_horizon(problem, self.anytime)
        sums = curator.weighted_sum(
            D * (D + 1) // 2 + D,
            schedule=geometric_schedule(
                private,
                horizon,
                d,
                self.first * c["unit_noise"] / c["rate"],
                self.decay,
            ),
            model=ReleaseModel(
                horizon,
                c["unit_noise"],
                c["rate"],
                1.0 / c["rate"],
                self.norm**2 / d,
                self.anytime or problem.horizon is None,
                linear=False,
            ),
            sensitivity=1.0,
            limit=self.max_rounds_per_user,
            # no row is longer, so no row is clipped
            clip=math.sqrt(0.5) * (1.0 + 1e-9) if private else None,
            what="running sums of curvature and response",
        )
        twins = TWINS if c["logistic"] and private else 0
        users = self.max_rounds_per_user is not None
        return Plan(sums, draws=1, repeats=twins, dim=D, users=users)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        d = problem.dim
        D = self._dim(problem)
        private = sums.sigma > 0.0
        c = self._constants(problem, private)
        unit_noise = c.pop("unit_noise")
        rate = c.pop("rate")
        prior, V = believed(
            problem,
            D,
            self.norm * SIZES,
            np.append(1.0 - 4 * OTHERS, np.full(4, OTHERS)),
            self.norm,
            level=self.level,
            rare=RARE if c["logistic"] and self.disperse else 0.0,
            wide=(WIDE * self.norm) ** 2 / d,
        )
        blind = int(sums.schedule.ends[0])
        if c["logistic"]:
            horizon = planned_horizon(problem, self.anytime)
            blind = horizon if blind > HOPELESS * horizon and private else 0
        cautious = c["logistic"] and sums.trust.devices
        if prior.centre.any():
            blind = 0
            cautious = False
        low, high = (0.0, 1.0) if c["logistic"] else GAUSSIAN_RANGE
        known, history = combination(sums, private, unit_noise, rate, self.window)
        return Known(
            private=private,
            disperse=self.disperse,
            constant=CONSTANT / math.sqrt(d) if self.level else 0.0,
            twins=TWINS if c["logistic"] and private else 0,
            blind=blind,
            cautious=cautious,
            low=low,
            high=high,
            prior=prior,
            stock=self.sells_stock and problem.stock is not None,
            sums=known,
            **c,
        ), State(prior.centre, V, np.zeros((D, D)), np.zeros(D), np.zeros(1), *history)
