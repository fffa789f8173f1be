"""LinUCB and linear Thompson sampling on exact or released reward sums.

A = ridge I + sum x x' is public and exact, b = ridge m + sum r x with the prior mean m. x is the
recommended candidate, scaled into the unit ball. Rewards are read through releases of b only.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_gym import kernels
from dpb_gym.agent import unsuitable
from dpb_gym.errors import ParameterError
from dpb_gym.kernels.customer_candidates import optimistic_candidate
from dpb_gym.kernels.vectors import (
    add_outer,
    cholesky,
    clip_factor,
    clipped,
    copy_matrix,
    dots,
    grow_factor,
    grow_inverse,
    grow_inverse_clipped,
    inverse,
    largest,
    log,
    normal_cdf,
    power,
    put_sum,
    sampled,
    times,
    transposed,
    upper_bounds,
    with_constant,
)
from dpb_gym.parameters import flag, integer, positive, real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import Curator
from dpb_gym.problems.prior import Prior
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.validation import integer as whole

SUPPORTS = ["recommendation"]
# Every tuning grid has eight points, and the defaults are one of them.
WIDTHS = [0.1, 0.3, 1.0, 3.0]
CENTRED = {"centre": [False, True]}
central = partial(
    register_agent, supports=SUPPORTS, protects=("central", "reward"), budget="required"
)


class Known(NamedTuple):
    """Public constants.

    Attributes:
        width: alpha of LinUCB, or v of Thompson sampling.
        decay: Factor of the width from batch to batch.
        interval: Rounds in a batch.
        pull: ridge m, ``(d,)``.
        least: A before the first round, ``(d, d)``.
        noisy: Whether sums carry noise. Exact sums weigh a reward like its features.
        shift: Subtracted from rewards.
        intercept: Value of the constant feature; 0 for none.
        explore: d / gamma of forced exploration; 0 for none.
        half: Rounds in half a window; 0 for no window.
        ties: Whether equal scores are decided at random: where every round offers the same arms, a
            rule by position would prefer some of them.
    """

    width: float
    decay: float
    interval: int
    pull: Any
    least: Any
    noisy: bool
    shift: float
    intercept: float
    explore: float
    half: int
    ties: bool


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        A: A^-1 in LinUCB, R with A = R'R in Thompson sampling, ``(d, d)``.
        b: ``(d,)``.
        block: Sum of x x' since the last half window; ``(0, 0)`` without a window.
    """

    A: Any
    b: Any
    block: Any


@jit
def optimistic(c, s, t, x, z):
    """Candidate of the largest <x, theta> + alpha ||x||_{A^-1}, theta = A^-1 b."""
    if c.explore > 0.0:
        k = forced(c, t, x.shape[0], z[0, 0], z[0, 1])
        if k >= 0:
            return k
    u = 0.0
    if c.ties:
        # the coin of a round that is not forced is not uniform on [0, 1)
        u = z[0, 1] if c.explore > 0.0 else z[0, 0]
    return optimistic_candidate(x, s.b, s.A, c.width, u)


@jit
def optimistic_with_constant(c, s, t, x, z):
    """`optimistic` with a constant feature."""
    return optimistic(c, s, t, with_constant(x, c.intercept), z)


@jit
def optimistic_shares(c, s, t, x):
    """Probabilities with which `optimistic` chooses the candidates."""
    scores = upper_bounds(x, times(s.A, s.b), s.A, c.width)
    m = scores.shape[0]
    best = largest(scores, 0.0)
    rate = forced_rate(c, t)
    shares = np.zeros(m)
    count = 0
    for k in range(m):
        shares[k] = rate / m
        # Equal scores share the rest of the probability.
        if scores[k] == scores[best]:
            count += 1
    if not c.ties:
        shares[best] += 1.0 - rate
        return shares
    for k in range(m):
        if scores[k] == scores[best]:
            shares[k] += (1.0 - rate) / count
    return shares


@jit
def optimistic_shares_with_constant(c, s, t, x):
    """`optimistic_shares` with a constant feature."""
    return optimistic_shares(c, s, t, with_constant(x, c.intercept))


@jit
def thompson(c, s, t, x, z):
    """Candidate of the largest <x, theta>, theta ~ N(A^-1 b, (v decay^k)^2 A^-1) in batch k."""
    d = s.b.shape[0]
    # All random numbers of this agent are normals; a coin and a choice need uniform ones.
    k = -1
    if c.explore > 0.0:
        k = forced(c, t, x.shape[0], normal_cdf(z[0, d]), normal_cdf(z[0, d + 1]))
    if k >= 0:
        return k
    width = c.width * power(c.decay, (t - 1) // c.interval)
    return largest(dots(x, sampled(s.A, s.b, width, z[0, :d])), 0.0)


@jit
def thompson_with_constant(c, s, t, x, z):
    """`thompson` with a constant feature."""
    return thompson(c, s, t, with_constant(x, c.intercept), z)


@jit
def forced_rate(c, t):
    """Probability min(1, d log(t) / (gamma t)) of a forced round. RU, section 6.2."""
    return min(1.0, c.explore * log(t) / t)


@jit
def forced(c, t, m, coin, u):
    """Uniformly random candidate in a forced round; otherwise -1."""
    if coin < forced_rate(c, t):
        # u can be 1, as the distribution function of a large normal.
        return min(int(m * u), m - 1)
    return -1


@jit
def features(c, x, k):
    """Features of candidate k, scaled into the unit ball."""
    if c.intercept > 0.0:
        return clipped(with_constant(x[k : k + 1], c.intercept)[0])
    return clipped(x[k])


@jit
def grow_inverted(c, s, t, x, k):
    """A <- A + x x', by its inverse."""
    if c.intercept == 0.0 and c.half == 0:
        grow_inverse_clipped(s.A, x[k])
        return
    v = features(c, x, k)
    grow_inverse(s.A, v)
    if c.half > 0:
        add_outer(s.block, 1.0, v)


@jit
def grow_root(c, s, t, x, k):
    """A <- A + x x', by its factor."""
    v = features(c, x, k)
    grow_factor(s.A, v)
    if c.half > 0:
        add_outer(s.block, 1.0, v)


@jit
def record(c, s, t, x, k, reward, z):
    """r and x. In exact sums both are scaled, which leaves a linear model unchanged."""
    centred = reward - c.shift
    if not c.noisy:
        if c.intercept > 0.0:
            centred *= clip_factor(with_constant(x[k : k + 1], c.intercept)[0])
        else:
            centred *= clip_factor(x[k])
    return centred, features(c, x, k)


@jit
def learn_inverted(c, s, released, t):
    """b <- ridge m + the newest release; at half windows A <- the last half."""
    put_sum(c.pull, released.sum, s.b)
    if c.half > 0 and t % c.half == 0:
        for i in range(s.block.shape[0]):
            for j in range(s.block.shape[0]):
                # The window's A starts from the prior and the ridge like that of all rounds.
                s.block[i, j] += c.least[i, j]
        copy_matrix(inverse(s.block), s.A)
        clear(s.block)


@jit
def learn_root(c, s, released, t):
    """`learn_inverted` for the factor of A."""
    put_sum(c.pull, released.sum, s.b)
    if c.half > 0 and t % c.half == 0:
        for i in range(s.block.shape[0]):
            for j in range(s.block.shape[0]):
                s.block[i, j] += c.least[i, j]
        copy_matrix(transposed(cholesky(s.block)), s.A)
        clear(s.block)


@jit
def clear(M):
    """Set a matrix to 0."""
    for i in range(M.shape[0]):
        for j in range(M.shape[1]):
            M[i, j] = 0.0


UCB = Functions(optimistic, record, learn_inverted, grow_inverted, shares=optimistic_shares)
TS = Functions(thompson, record, learn_root, grow_root)


class LinearPlan(NamedTuple):
    """Numbers of a linear policy on a problem.

    Attributes:
        dim: Dimension with the constant feature.
        interval: Rounds between releases.
        shift: Subtracted from rewards.
        reward: Range of the centred rewards.
        half: Rounds in half a window; 0 for none.
    """

    dim: int
    interval: int
    shift: float
    reward: tuple[float, float]
    half: int


def linear_plan(agent: Any, problem: ProblemInfo) -> LinearPlan:
    """Return the numbers of a linear policy.

    Raises:
        ParameterError: If rewards are not bounded.
    """
    low, high = problem.reward_range
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
    interval = agent.batch
    if problem.partial_feedback:
        assert problem.n_candidates is not None
        # A batch has as many records as with full feedback.
        interval *= problem.n_candidates
    shift = 0.5 * (low + high) if agent.centre else 0.0
    half = 0
    if agent.window is not None:
        # Whole batches, because b is released at their ends and forgets in step with A.
        half = agent.window * (interval // agent.batch) // 2 // interval * interval
    dim = problem.dim + (agent.intercept > 0.0)
    return LinearPlan(dim, interval, shift, (low - shift, high - shift), half)


def linear_start(
    agent: Any, problem: ProblemInfo, sums: Any, width: float, decay: float = 1.0
) -> tuple[Known, Any]:
    """Return c and A before the first round."""
    plan = linear_plan(agent, problem)
    d = problem.dim
    # prior mean and ridge in units of the scaled features
    prior = (problem.prior or Prior((0.0,) * d)).fitting(d)
    stretch = 1.0 + agent.intercept**2
    pull = prior.centre * (agent.ridge / math.sqrt(stretch))
    gram = np.eye(plan.dim) * (agent.ridge / stretch)
    low, high = problem.reward_range
    # Times s^2, the largest variance of a reward, it counts like the records it was learnt from.
    information = prior.information((0.5 * (high - low)) ** 2)
    if information is not None:
        gram[:d, :d] += information / stretch
        pulled = np.empty((1, d))
        kernels.linalg.multiply(information[None], prior.centre[None], pulled)
        pull += pulled[0] / math.sqrt(stretch)
    known = Known(
        width=width,
        decay=decay,
        interval=plan.interval,
        pull=np.append(pull, np.zeros(plan.dim - d)),
        least=gram,
        noisy=sums.sigma > 0.0,
        shift=plan.shift,
        intercept=agent.intercept,
        explore=0.0 if agent.gamma is None else d / agent.gamma,
        half=plan.half,
        ties=problem.fixed_arms,
    )
    return known, gram


def start_state(known: Known, A: Any) -> State:
    """Return the state before the first round."""
    side = len(known.pull) if known.half else 0
    return State(A, known.pull, np.zeros((side, side)))


@register_agent(
    "lin-greedy",
    supports=SUPPORTS,
    summary="Greedy on ridge regression of centred rewards: LinUCB without a bonus.",
    alpha=0.0,
    centre=True,
)
@register_agent("lin-ucb", supports=SUPPORTS)
class LinUCB(Algorithm):
    """LinUCB (Li et al. 2010): the largest <x, theta> + alpha ||x||_{A^-1}, theta = A^-1 b.

    With alpha = 0 it is greedy. arXiv:1003.0146. With a prior of precision P
    (`ProblemInfo.prior`), A = ridge I + s^2 P + sum x x' and b = (ridge I + s^2 P) m + sum r x,
    with s half the rewards' range: the prior counts like earlier records.

    Args:
        alpha: Width of the bonus, >= 0.
        ridge: lambda, > 0.
        batch: Rounds between releases of b; where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        centre: Subtract the middle of the reward's range. The features have no intercept, so this
            removes a large bias at no cost in privacy (erratum R9). The papers' agents do not.
            ``lin-greedy`` does, because without exploration the bias can fix it on a wrong
            candidate.
        intercept: Value of a constant feature for the rewards' level; 0 for none. Features and
            constant together are scaled into the unit ball, so private sums have the same
            sensitivity, and their noise grows by ``sqrt(1 + intercept^2)``.
        gamma: Forced exploration (RU, section 6.2): a uniformly random candidate with probability
            ``min(1, d log(t) / (gamma t))`` in round t, > 0; RU take d, hence about
            ``log(T)^2 / 2`` random rounds. It uses no data, so it costs no privacy. None: no forced
            exploration.
        window: Rounds in A and b, at least 2 `batch`: every half window they drop records that are
            older than half a window (for drift). None: all rounds.
        prior_mean: Public prior mean of theta, ``(d,)``, which theta is shrunk towards. It replaces
            `ProblemInfo.prior`; zeros give a cold start. None: use `ProblemInfo.prior`.

    Raises:
        ParameterError: If a parameter is out of range, or the problem's rewards are not bounded.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "lin-greedy": {"ridge": [0.3, 1.0, 3.0, 10.0], "intercept": [0.0, 0.5]},
        "lin-ucb": {"alpha": WIDTHS, **CENTRED},
    }

    prior_mean: Any = None
    ridge: float = positive(1.0)
    batch: int = integer(1, 1)
    centre: bool = flag(False)
    intercept: float = real(0.0, 0.0)
    gamma: float | None = positive(None)
    window: int | None = None
    alpha: float = real(1.0, 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_window(self)

    @property
    def functions(self) -> Functions:  # type: ignore[override]
        """The functions, with or without a constant feature."""
        if not self.intercept:
            return UCB
        return UCB._replace(act=optimistic_with_constant, shares=optimistic_shares_with_constant)

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "recommendation":
            raise unsuitable(type(self).__name__, problem, "recommendation")

    def sums(self, problem: ProblemInfo, curator: Curator, plan: LinearPlan) -> Plan:
        """Return the plan with the releaser of the sums of rewards times features."""
        sums = curator.batch_sum(plan.dim, reward=plan.reward, cumulative=True)
        return Plan(sums, directed=True)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        plan = linear_plan(self, problem)
        # two numbers for forced exploration, and one for ties
        dim = int(problem.fixed_arms) if self.gamma is None else 2
        return self.sums(problem, curator, plan)._replace(
            every=plan.interval,
            forget=plan.half,
            draws=min(dim, 1),
            dim=dim,
            law="uniforms",
        )

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        known, gram = linear_start(self, problem, sums, self.alpha)
        # The inverse of a multiple of I is exact by division; only a given precision needs more.
        A = np.eye(len(gram)) / gram[0, 0]
        if (gram != np.eye(len(gram)) * gram[0, 0]).any():
            both = np.empty((1, *gram.shape))
            kernels.linalg.inverse(gram[None], both)
            A = both[0]
        return known, start_state(known, A)


@register_agent("lin-ts", supports=SUPPORTS)
class LinTS(Algorithm):
    """Linear Thompson sampling (Agrawal & Goyal 2013): <x, theta> for a draw of theta.

    theta ~ N(A^-1 b, (v decay^(k - 1))^2 A^-1) in batch k. arXiv:1209.3352. The other parameters
    are those of `LinUCB`.

    Args:
        v: Width of the draw, >= 0.
        decay: Factor of the width from batch to batch, in (0, 1].
        ridge: See `LinUCB`.
        batch: See `LinUCB`.
        centre: See `LinUCB`.
        intercept: See `LinUCB`.
        gamma: See `LinUCB`.
        window: See `LinUCB`.
        prior_mean: See `LinUCB`.

    Raises:
        ParameterError: If a parameter is out of range, or the problem's rewards are not bounded.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {"v": WIDTHS, **CENTRED}

    prior_mean: Any = None
    ridge: float = positive(1.0)
    batch: int = integer(1, 1)
    centre: bool = flag(False)
    intercept: float = real(0.0, 0.0)
    gamma: float | None = positive(None)
    window: int | None = None
    v: float = real(1.0, 0.0)
    decay: float = real(1.0, 0.0, 1.0, open_low=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_window(self)

    @property
    def functions(self) -> Functions:  # type: ignore[override]
        """The functions, with or without a constant feature."""
        return TS._replace(act=thompson_with_constant) if self.intercept else TS

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "recommendation":
            raise unsuitable(type(self).__name__, problem, "recommendation")

    def sums(self, problem: ProblemInfo, curator: Curator, plan: LinearPlan) -> Plan:
        """Return the plan with the releaser of the sums of rewards times features."""
        sums = curator.batch_sum(plan.dim, reward=plan.reward, cumulative=True)
        return Plan(sums, directed=True)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        plan = linear_plan(self, problem)
        # theta's draw, and two numbers for forced exploration
        dim = plan.dim if self.gamma is None else plan.dim + 2
        return self.sums(problem, curator, plan)._replace(
            every=plan.interval, forget=plan.half, draws=1, dim=dim
        )

    def width(self, dim: int, sums: Any) -> float:
        """Return the width of the first batch's draws."""
        return self.v

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        plan = linear_plan(self, problem)
        width = self.width(plan.dim, sums)
        known, gram = linear_start(self, problem, sums, width, self.decay)
        lower = np.empty((1, *gram.shape))
        kernels.linalg.cholesky(gram[None], lower)
        return known, start_state(known, np.ascontiguousarray(lower[0].T))


def check_window(agent: Any) -> None:
    """Check the parameter `window`, which depends on `batch`."""
    if agent.window is not None:
        agent.window = whole("window", agent.window, 2 * agent.batch)
