"""One-pass private least squares for recommendation with public contexts.

A reward r in a range of length w around c has E r = c + m(level + <x, theta>), m(u) = u or
w (sigmoid(4 u / w) - 1/2). Every record enters a running sum once, as r times a public unit vector
v. The sums of v phi' and v v' of every batch are public, phi = [x; 1; xbar]. A Kalman filter on
(theta, level, gamma, weighted sum) is then the exact posterior for normal rewards.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.recommendation.lifetime_weights import LifetimeWeights
from dpb_gym import kernels
from dpb_gym.agent import unsuitable
from dpb_gym.errors import ParameterError
from dpb_gym.kernels.customer_candidates import best_candidate, mean_candidate, shared_part
from dpb_gym.kernels.filters import filter_step
from dpb_gym.kernels.vectors import (
    add_products,
    cholesky,
    copy_matrix,
    inverse,
    normal_cdf,
    sigmoid,
    squared_norm,
)
from dpb_gym.parameters import choice, flag, integer, positive, real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.problems.prior import Prior
from dpb_gym.problems.rounds import LONGEST, ProblemInfo
from dpb_gym.registry import register_agent

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator, ReleaseModel, Schedule


class Known(NamedTuple):
    """Public constants.

    Attributes:
        middle: c.
        width: w.
        intercept: Value of the constant feature in the records.
        contrast: Whether the part that a round's candidates share is left out of v.
        logistic: Whether m is logistic.
        effect: Prior size of gamma, in units of theta's.
        size: Prior variance of a coordinate of theta.
        spread: Largest variance of a reward.
        weights: Of the records of every batch in the sum, ``(K,)``.
        carry: Whether a release is about all batches, not about the last one alone.
        informed: Whether the prior has a precision.
        information: That precision, ``(d, d)``.
        ties: Whether equal scores are decided at random.
    """

    middle: float
    width: float
    intercept: float
    contrast: bool
    logistic: bool
    effect: float
    size: float
    spread: float
    weights: Any
    carry: bool
    informed: bool
    information: Any
    ties: bool


class State(NamedTuple):
    """State of one replicate, with n = d + 1 and m = 2 d + 1.

    Attributes:
        theta: Posterior mean of slopes and level, ``(n,)``.
        factor: Cholesky factor of the slopes' covariance given the level, ``(d, d)``.
        repeated: (1 - ratio)_+^2, ratio 1 for independent candidates and 0 for repeated ones.
        likeness: That ratio.
        moments: Sums over rounds of [xbar; |xbar|^2, mean |x_k|^2, 1], ``(d + 3,)``.
        mean: Posterior mean of (theta, level, gamma) and the weighted sum, ``(m + n,)``.
        covariance: Its covariance.
        gram: Sum of bent v phi' over the open batch, ``(n, m)``.
        own: Sum of bent v v', ``(n, n)``.
        offset: Sum of (E r - slope u) v, ``(n,)``.
        weight: Factor of this round's v, set by the player where users have limits.
    """

    theta: Any
    factor: Any
    repeated: Any
    likeness: Any
    moments: Any
    mean: Any
    covariance: Any
    gram: Any
    own: Any
    offset: Any
    weight: Any


@jit
def act(c, s, t, x, z):
    """Candidate of the largest <x, theta + (1 - ratio)_+^2 L z>.

    Where rounds repeat their candidates, a greedy policy never learns what it does not play.
    """
    u = normal_cdf(z[0, 0]) if c.ties else 0.0
    scale = s.repeated[0]
    # Candidates that change from round to round make a greedy choice explore enough.
    if scale == 0.0:
        return best_candidate(x, s.theta[: x.shape[1]], u)
    d = x.shape[1]
    draw = np.zeros(d)
    for i in range(d):
        draw[i] = s.theta[i]
        for j in range(i + 1):
            draw[i] += scale * s.factor[i, j] * z[0, j]
    return best_candidate(x, draw, u)


@jit
def regressor(c, x, k):
    """phi = [x; 1; xbar] of candidate k, |xbar|^2 and the mean of |x_k|^2."""
    d = x.shape[1]
    mean, alone = mean_candidate(x)
    phi = np.zeros(2 * d + 1)
    phi[d] = 1.0
    together = 0.0
    for j in range(d):
        phi[j] = x[k, j]
        phi[d + 1 + j] = mean[j]
        together += mean[j] ** 2
    return phi, together, alone


@jit
def contrast(phi, kappa):
    """z = x - kappa xbar."""
    d = phi.shape[0] // 2
    z = np.zeros(d)
    for j in range(d):
        z[j] = phi[j] - kappa * phi[d + 1 + j]
    return z


@jit
def own_part(c, x, k):
    """z of candidate k: what the candidates share does not inform about which of them to choose."""
    if not c.contrast:
        return x[k]
    phi, together, alone = regressor(c, x, k)
    return contrast(phi, shared_part(x.shape[0], x.shape[1], alone, together))


@jit
def direction(c, z):
    """v = [z / |z|; b] / sqrt(1 + b^2); 0 if z = 0."""
    d = z.shape[0]
    v = np.zeros(d + 1)
    square = squared_norm(z)
    if square == 0.0:
        return v
    # Every record has length 1, so that it uses the whole sensitivity whatever the unit of x.
    stretch = 1.0 + c.intercept * c.intercept
    for j in range(d):
        v[j] = z[j] / math.sqrt(square * stretch)
    v[d] = c.intercept / math.sqrt(stretch)
    return v


@jit
def record(c, s, t, x, k, reward, z):
    """The centred reward, along v."""
    return reward - c.middle, direction(c, own_part(c, x, k))


@jit
def see(c, s, t, x, k):
    """Add the public part of the round to the sums of the batch."""
    m, d = x.shape
    n = d + 1
    phi, together, alone = regressor(c, x, k)
    if together < np.inf:
        for j in range(d):
            s.moments[j] += phi[n + j]
        s.moments[d] += together
        s.moments[n] += alone
        s.moments[d + 2] += 1.0
    v = direction(c, own_part(c, x, k))
    for j in range(n):
        # The public sums need the v of the record, which the player may have shortened.
        v[j] *= s.weight[0]
    s.likeness[0] = likeness(s, m)
    s.repeated[0] = max(0.0, 1.0 - s.likeness[0]) ** 2
    slope = bend(c, s, phi, v)
    add_products(s.gram, slope, v, phi)
    add_products(s.own, slope, v, v)


@jit
def likeness(s, m):
    """m Var(xbar) / Var(x), 1 for independent candidates and 0 for repeated ones."""
    d = s.moments.shape[0] - 3
    rounds = s.moments[d + 2]
    # One round shows no variance between rounds.
    if rounds < 2.0:
        return 1.0
    centre = 0.0
    for j in range(d):
        centre += (s.moments[j] / rounds) ** 2
    # An unbiased variance; rounding may make the difference negative.
    between = rounds / (rounds - 1.0) * max(0.0, s.moments[d] / rounds - centre)
    return m * between / max(s.moments[d + 1] / rounds - centre, 1e-9)


@jit
def bend(c, s, phi, v):
    """Slope of the expected reward at the posterior mean; add (E r - slope u) v to the offset.

    With p = sigmoid(4 u / w) it has the slope 4 p (1 - p), which is 1 at u = 0 and proportional to
    the variance of the reward.
    """
    if not c.logistic:
        return 1.0
    steepness = 4.0 / c.width
    # Linearised where the round was played, at the released estimate (an extended Kalman filter).
    u = 0.0
    for i in range(phi.shape[0]):
        u += phi[i] * s.mean[i]
    p = sigmoid(steepness * u)
    slope = 4.0 * p * (1.0 - p)
    shift = 4.0 * (p - 0.5) / steepness - slope * u
    for j in range(v.shape[0]):
        s.offset[j] += shift * v[j]
    return slope


@jit
def learn(c, s, released, t):
    """Condition theta, level, gamma and the weighted sum on a release."""
    n = s.theta.shape[0]
    m = 2 * n - 1
    # The prior's scale is that of the features, which the first batch shows.
    if released.number == 0:
        set_prior(c, s)
    weight = c.weights[released.number]
    if not c.carry:
        # the release is about this batch alone
        for i in range(m, m + n):
            s.mean[i] = 0.0
            for j in range(m + n):
                s.covariance[i, j] = 0.0
                s.covariance[j, i] = 0.0
    for j in range(n):
        # The filter's model of the sum has its linear part only; the rest is public and added here.
        s.mean[m + j] += weight * s.offset[j]
    # a floor for exact sums keeps the filter's matrices invertible
    noise = max(released.std, 1e-3 * c.width)
    # Each message may carry noise of its own, such as that of random signs.
    spread = c.spread + released.record_std**2
    filter_step(s.mean, s.covariance, s.gram, s.own, weight, spread, released.sum, noise**2)
    for j in range(n):
        s.theta[j] = s.mean[j]
    # the covariance of theta given the level, which all candidates share
    d = n - 1
    given = np.zeros((d, d))
    for i in range(d):
        for j in range(d):
            product = s.covariance[d, i] * s.covariance[d, j]
            given[i, j] = s.covariance[i, j] - product / s.covariance[d, d]
    copy_matrix(cholesky(given), s.factor)
    for i in range(n):
        s.offset[i] = 0.0
        for j in range(n):
            s.own[i, j] = 0.0
        for j in range(m):
            s.gram[i, j] = 0.0


@jit
def set_prior(c, s):
    """Set the prior covariance of theta, level and gamma: theta's is for |x_k|^2 = 1 on average."""
    n = s.theta.shape[0]
    d = n - 1
    square = s.moments[n] / max(1.0, s.moments[d + 2])
    # Features that are all 0 have no scale.
    square = square if square > 0.0 else 1.0
    precision = np.zeros((d, d))
    for i in range(d):
        precision[i, i] = square / c.size
        if c.informed:
            for j in range(d):
                precision[i, j] += c.information[i, j]
    V = inverse(precision)
    for i in range(d):
        for j in range(d):
            s.covariance[i, j] = V[i, j]
    s.covariance[d, d] = c.size
    # The part of Var(xbar) that is not chance is the customer's; 0 for independent candidates.
    own = c.effect * (1.0 - 1.0 / max(1.0, s.likeness[0]))
    for i in range(n, 2 * n - 1):
        s.covariance[i, i] = own**2 * c.size / square


FUNCTIONS = Functions(act, record, learn, see)


def release_model(
    agent: Any, problem: ProblemInfo, unit_noise: float, variance: float
) -> ReleaseModel:
    """Return the model from which releases are planned.

    Args:
        agent: The algorithm.
        problem: Public facts.
        unit_noise: See `ReleaseModel`.
        variance: Prior variance of a coordinate of theta.
    """
    from dpb_gym.privacy import ReleaseModel

    anytime = agent.anytime or problem.horizon is None
    # A round carries about 1 / d of the information about one coordinate.
    rate = 1.0 / problem.dim
    if problem.partial_feedback:
        rate /= problem.n_candidates or 1
    horizon = LONGEST if anytime else problem.longest
    low, high = problem.reward_range
    # the variance of a reward is at most this
    spread = (0.5 * (high - low)) ** 2 / rate
    binary = bool(problem.binary)
    return ReleaseModel(horizon, unit_noise, rate, spread, variance, anytime, binary=binary)


def planned(
    d: int, first: float, ratio: float, variance: float, model: ReleaseModel, sigma: float
) -> Schedule:
    """Return the schedule of a trusted curator's releases.

    Args:
        d: Dimension.
        first: Round of the first release, in units of the round at which the noise is as large as
            the prior's theta.
        ratio: Factor between two releases' rounds.
        variance: Prior variance of a coordinate of theta.
        model: See `release_model`.
        sigma: Standard deviation of a release's noise; 0 if exact.
    """
    from dpb_gym.privacy import Schedule

    if sigma == 0.0:
        exact = Schedule.geometric(model.horizon, d, ratio, 0.0)
        return Schedule.unweighted(exact.ends)
    noise = sigma * model.unit_noise / model.rate
    # Fewer than d rounds do not determine d coordinates.
    start = max(d, first * noise / math.sqrt(variance))
    return model.running(Schedule.geometric(model.horizon, start, ratio, 1.0), sigma)


class ThetaPrior(NamedTuple):
    """Prior of theta and level.

    Attributes:
        mean: ``(d + 1,)``.
        size: Variance of a coordinate without further information.
        variance: Mean variance of a coordinate.
        covariance: ``(d + 1, d + 1)``.
        information: Precision of the slopes besides that of the size, or None.
    """

    mean: Any
    size: float
    variance: float
    covariance: Any
    information: Any


def theta_prior(norm: float, problem: ProblemInfo) -> ThetaPrior:
    """Return the prior: normal, of variance ``(norm w / 2)^2 / d`` per coordinate.

    Raises:
        ParameterError: If rewards are not bounded.
    """
    low, high = problem.reward_range
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
    d = problem.dim
    prior = (problem.prior or Prior((0.0,) * d)).fitting(d)
    size = (0.5 * norm * (high - low)) ** 2 / d
    covariance = np.eye(d + 1) * size
    variance = size
    information = prior.information()
    if information is not None:
        both = (information + np.eye(d) / size)[None]
        kernels.linalg.inverse(both, both)
        covariance[:d, :d] = both[0]
        variance = float(np.trace(both[0])) / d
    return ThetaPrior(np.append(prior.centre, 0.0), size, variance, covariance, information)


def linear_plan(agent: Any, problem: ProblemInfo, curator: Curator) -> Plan:
    """Return the plan of noisy running sums of rewards along public directions."""
    prior = theta_prior(agent.norm, problem)
    d = problem.dim
    low, high = problem.reward_range
    # A reward moves the sum along a public unit vector, hence by at most the range.
    reach = 1.0
    scale = None
    if agent.max_rounds_per_user is not None:
        scale = LifetimeWeights(curator.replicates, d + 1, agent.max_rounds_per_user)
        reach = scale.reach
    model = release_model(agent, problem, 1.0, prior.variance)
    sums = curator.weighted_sum(
        d + 1,
        reward=(-0.5 * (high - low), 0.5 * (high - low)),
        sensitivity=(high - low) * reach,
        schedule=partial(planned, d, agent.first, agent.ratio, prior.variance, model),
        model=model,
        what="running reward sums",
    )
    return Plan(sums, directed=True, draws=1, dim=d, scale=scale)


def linear_start(
    agent: Any, problem: ProblemInfo, sums: Any, contrast: bool = False
) -> tuple[Known, State]:
    """Return c and s before the first round."""
    prior = theta_prior(agent.norm, problem)
    d = problem.dim
    n = d + 1
    m = 2 * d + 1
    low, high = problem.reward_range
    factor = np.empty((1, d, d))
    kernels.linalg.cholesky(prior.covariance[None, :d, :d].copy(), factor)
    known = Known(
        middle=0.5 * (low + high),
        width=high - low,
        intercept=agent.intercept,
        contrast=contrast,
        logistic=agent.link == "logistic",
        effect=agent.effect,
        size=prior.size,
        spread=(0.5 * (high - low)) ** 2,
        weights=np.array(sums.schedule.weights, np.float64),
        carry=bool(sums.schedule.carry),
        informed=prior.information is not None,
        information=np.zeros((d, d)) if prior.information is None else prior.information,
        ties=problem.fixed_arms,
    )
    return known, State(
        theta=prior.mean,
        factor=factor[0],
        repeated=np.zeros(1),
        likeness=np.ones(1),
        moments=np.zeros(d + 3),
        mean=np.append(prior.mean, np.zeros(m)),
        covariance=np.zeros((m + n, m + n)),
        gram=np.zeros((n, m)),
        own=np.zeros((n, n)),
        offset=np.zeros(n),
        weight=np.ones(1),
    )


@register_agent("one-pass-linear", supports=["recommendation"], protects=("central", "reward"))
class OnePassLinear(Algorithm):
    """One-pass private Newton on noisy sums of rewards; contexts and actions are public.

    It plays the posterior mean of a linear predictor, given noisy sums of the records. theta and
    the level have independent normal priors. That of theta has the mean and precision of
    `ProblemInfo.prior`, and the variance ``(norm w / 2)^2 / d`` per coordinate around the mean.
    The level has the same variance around 0. Every record enters the sums once. The sums are
    released with Gaussian noise at rounds that grow geometrically; without a budget they are exact.
    Binary rewards become random signs instead, if one of them is protected and the modelled regret
    of signs is less. Until the first release the agent plays the prior mean, or the longest
    candidate if that is 0.

    The guarantee is central privacy of one reward, or of all rewards of one user, replace-one.
    Contexts, recommended items and, in rejection replay, the accepted rounds are not protected.

    A reward multiplies a public unit vector v, so its sensitivity is its range for features of any
    length (`LifetimeWeights` scales the vectors of a user). The sums of v [x; 1; xbar]' and v v' of
    every batch are public. A Kalman filter on (theta, level, gamma, weighted sum) is then the exact
    posterior for normal rewards. xbar is the mean of the round's candidates, and <xbar, gamma> the
    customer's taste, which all of them share. theta's prior size is for features of mean square 1.

    Where rounds repeat their candidates, a greedy policy never learns what it does not play, so
    the agent plays theta + (1 - ratio)_+^2 (draw - theta) with a draw from its posterior. The ratio
    is 0 for candidates that are the same in all rounds and 1 for independent ones.
    docs/agents/one-pass-linear.md has the derivations.

    Args:
        norm: Prior size of theta - `prior_mean`, in units of half the reward's range, > 0.
            A linear model has norm at most 1 if features are in the unit ball and mean rewards
            stay in their range.
        intercept: Value of the constant feature in the records, > 0.
        first: Round of the first release, in units of the round at which the noise is as large
            as the prior's theta.
        ratio: Factor between two releases' rounds, > 1.
        anytime: Plan the releases for every horizon up to 10^9, in which round t counts 1 / t,
            instead of the problem's own. This is the default if the horizon is unknown.
        max_rounds_per_user: k, the most rounds of a user that are learnt from, if all rounds of
            one user are protected; user ids are public. None: a single round is protected.
        prior_mean: Public prior mean of theta, ``(d,)``. It replaces `ProblemInfo.prior`; zeros
            give a cold start. None: use `ProblemInfo.prior`.
        effect: Prior size of gamma, in units of theta's, if all of xbar is the customer's, >= 0.
        link: Mean reward as a function of the linear predictor, ``"logistic"`` or ``"identity"``.

    Raises:
        ParameterError: If a parameter is out of range, or rewards are not bounded.
    """

    functions = FUNCTIONS
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "effect": [2.0, 4.0],
        "first": [0.03, 0.07],
        "intercept": [0.15, 0.35],
    }

    prior_mean: Any = None
    norm: float = positive(1.0)
    intercept: float = positive(0.15)
    first: float = positive(0.07)
    ratio: float = real(1.1, 1.0, open_low=True)
    anytime: bool = flag(False)
    max_rounds_per_user: int | None = integer(None, 1)
    effect: float = real(4.0, 0.0)
    link: str = choice("logistic", ("identity", "logistic"))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.protects = ("central", "user-rewards" if self.max_rounds_per_user else "reward")

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "recommendation":
            raise unsuitable("one-pass-linear", problem, "recommendation")

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        return linear_plan(self, problem, curator)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        return linear_start(self, problem, sums)
