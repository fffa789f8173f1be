"""Jointly private LinUCB on noisy sums of [x; r] [x; r]': continual, batched or shuffled."""

from __future__ import annotations

import math
from dataclasses import field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.recommendation.ridge_agents import SUPPORTS
from dpb_agents.recommendation.rivals.linear_rival import (
    LinearRival,
    RivalFacts,
    optimistic,
    record_reward,
    shrunk,
)
from dpb_gym import portable
from dpb_gym.errors import BudgetError
from dpb_gym.kernels.vectors import copy_matrix, copy_to, shifted_inverse, times
from dpb_gym.parameters import choice, integer, real
from dpb_gym.play import Functions, Plan, jit
from dpb_gym.privacy import Curator, PSDBall, gaussian_sigma, textbook_rho
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent

CALIBRATIONS = ("verified", "paper")
joint = partial(register_agent, supports=SUPPORTS, protects=("joint", "user-round"))
MECHANISMS = ("binary-tree", "blt", "sqrt-toeplitz")


def isometric_noise_norm(std: float, side: int, horizon: int) -> float:
    """Return a bound on the operator norm of isometric symmetric noise in all T rounds.

    It holds with probability 1 - 1/T.

    Noise of standard deviation s on the diagonal and s / sqrt(2) off it has mean operator norm
    at most s sqrt(2 side) and is 1-Lipschitz in the underlying normals, so it exceeds the bound
    with probability 1 / T^2 per round.
    """
    return std * (math.sqrt(2 * side) + math.sqrt(4 * portable.log(horizon)))


class Published(NamedTuple):
    """Constants of the published width beta_t of `jdp-lin-ucb`.

    Attributes:
        used: Whether that width is used.
        half: Half the width of the rewards' range.
        level: 2 log(4 T).
        volume: d log Upsilon.
        size: ||theta|| sqrt(3 Upsilon).
        noise: Part of the noise of u.
    """

    used: bool
    half: float
    level: float
    volume: float
    size: float
    noise: float


class Known(NamedTuple):
    """Public constants.

    Attributes:
        alpha: Width of the bonus, or its factor.
        ridge: Added to V.
        mean: Prior mean of theta, ``(d,)``.
        informed: Whether it is not 0.
        shift: Subtracted from rewards.
        low: Lowest shifted reward.
        high: Highest shifted reward.
        noisy: Whether sums carry noise.
        fixed: Shift of V in a running sum; 0 in batch sums, whose noise grows.
        scale: Multiple of the bound of the noise's norm that is added to V.
        norm: That bound, per standard deviation of batch sums.
        published: See `Published`.
    """

    alpha: float
    ridge: float
    mean: Any
    informed: bool
    shift: float
    low: float
    high: float
    noisy: bool
    fixed: float
    scale: float
    norm: float
    published: Published


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: V^-1 u, ``(d,)``.
        V: V^-1, ``(d, d)``.
        pull: Multiple of the identity in V, ``(1,)``.
        width: Width of the bonus, ``(1,)``.
    """

    theta: Any
    V: Any
    pull: Any
    width: Any


@jit
def act(c, s, t, x, z):
    """Candidate of the largest <x, theta> + width ||x||_{V^-1}."""
    if c.informed:
        return optimistic(x, shrunk(s.theta, s.V, s.pull[0], c.mean), s.V, s.width[0], z)
    return optimistic(x, s.theta, s.V, s.width[0], z)


@jit
def record(c, s, t, x, k, reward, z):
    """[x; r] [x; r]', as 1 in the direction [x; r]."""
    r, v = record_reward(c, x, k, reward)
    d = v.shape[0]
    row = np.zeros(d + 1)
    for j in range(d):
        row[j] = v[j]
    # Clipped before the product, so that no record is longer than the bound of `PSDBall`.
    row[d] = min(max(r, c.low), c.high)
    return 1.0, row


@jit
def learn(c, s, released, t):
    """V <- the noisy sum of x x' plus a shift, theta <- V^-1 u."""
    d = s.theta.shape[0]
    # Noises of disjoint batches add up; a running sum's noise is bounded for all rounds at once.
    s.pull[0] = c.fixed if c.fixed > 0.0 else c.ridge + c.scale * (released.std * c.norm)
    V, logdet = shifted_inverse(released.sum[:d, :d].copy(), s.pull[0])
    copy_matrix(V, s.V)
    copy_to(times(V, released.sum[:d, d].copy()), s.theta)
    if c.published.used:
        # Noise may leave det V below that of the shift alone.
        gain = max(0.0, logdet - c.published.volume)
        statistical = c.published.half * math.sqrt(c.published.level + gain)
        s.width[0] = c.alpha * (statistical + c.published.size + c.published.noise)


FUNCTIONS = Functions(act, record, learn)
ORDINARY = Published(False, 0.0, 0.0, 0.0, 0.0, 0.0)


def joint_start(
    agent: Any,
    facts: RivalFacts,
    sums: Any,
    fixed: float = 0.0,
    published: Published = ORDINARY,
) -> tuple[Known, State]:
    """Return c and s; see `Known`."""
    known = Known(
        alpha=agent.alpha,
        ridge=agent.ridge,
        mean=facts.mean,
        informed=bool(facts.mean.any()),
        shift=facts.shift,
        low=facts.low,
        high=facts.high,
        noisy=sums.sigma > 0.0,
        fixed=fixed,
        scale=agent.shift,
        norm=isometric_noise_norm(1.0, facts.dim, facts.horizon),
        published=published,
    )
    # before the first release V is the shift alone
    first = fixed or agent.ridge
    return known, State(
        theta=np.zeros(facts.dim),
        V=np.eye(facts.dim) / first,
        pull=np.full(1, first),
        width=np.full(1, agent.alpha),
    )


def square(facts: RivalFacts) -> float:
    """Return the largest ||[x; r]||^2, the norm of a record."""
    return 1.0 + max(facts.low * facts.low, facts.high * facts.high)


def interval(agent: Any, facts: RivalFacts) -> int:
    """Return the rounds between releases."""
    return int(min(agent.every * facts.stretch, facts.horizon))


@joint("jdp-lin-ucb", budget="required", needs_horizon=True)
class JDPLinUCB(LinearRival):
    """LinUCB on a private running sum of [x; r] [x; r]' (Shariff & Sheffet 2018).

    arXiv:1810.00068.

    The guarantee is joint privacy of one **user-round**, replace-one: features, reward and, in
    rejection replay, whether the round was observed. An adversary may see every recommendation
    except the user's own.

    Sensitivity: a record [x; r] [x; r]' is positive semidefinite of Frobenius norm at most L =
    1 + max r^2 (2 for rewards in [0, 1]), so replacing one moves the sum by at most sqrt(2) L.
    A continual sum multiplies that by its own sensitivity (sqrt(levels) for the tree). V is the
    noisy sum plus ``shift`` times a bound on the noise's operator norm. The bonus is alpha
    ||x||_{V^-1}.

    Args:
        alpha: Width of the bonus; with ``calibration="paper"`` a factor of the paper's beta_t.
        mechanism: ``"binary-tree"`` (the paper), ``"blt"`` or ``"sqrt-toeplitz"``.
        every: Rounds between releases; the mechanism runs over T / every steps. Where only one in
            n_candidates rounds is observed (rejection replay), n_candidates times as many.
        shift: Multiple of the bound on the noise's operator norm that is added to V, >= 0.
        ridge: Added to V in addition, > 0. Eigenvalues below half of both are raised to that.
        calibration: ``"verified"``: sigma from the sensitivity above and the budget.
            ``"paper"``: node noise N' of standard deviation s = 4 sqrt(m) L log(4/delta) /
            epsilon, symmetrised by (N' + N'^T) / sqrt(2), shift 2 Upsilon and width beta_t of
            the published algorithm; needs an (epsilon, delta) budget. It is valid, and the
            guarantee states its true cost, which is a small part of the budget.
        norm: Assumed bound of ||theta||, in the width of ``calibration="paper"`` only.
        centre: Subtract the middle of the reward's range (erratum R9): L falls to 1.25.

    Raises:
        BudgetError: If ``calibration="paper"`` gets a budget without epsilon and delta.
    """

    functions = FUNCTIONS
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "shift": [0.3, 1.0],
        "every": [10, 100],
        "centre": [False, True],
    }

    every: int = integer(10, 1)
    calibration: str = choice("verified", CALIBRATIONS)
    shift: float = real(1.0, 0.0)
    mechanism: str = choice("binary-tree", MECHANISMS)
    norm: float = real(1.0, 0.0)

    def printed(self, facts: RivalFacts, curator: Curator) -> float | None:
        """Return sigma of the paper; None: of the budget."""
        if self.calibration != "paper":
            return None
        budget = curator.budget
        if budget is None or budget.epsilon is None or budget.delta is None:
            raise BudgetError("calibration='paper' takes an (epsilon, delta) budget")
        levels = 1 + (facts.horizon - 1).bit_length()
        log = portable.log(4.0 / budget.delta)
        entry = 4 * math.sqrt(levels) * square(facts) * log / budget.epsilon
        # (N' + N'^T) / sqrt(2) is isometric, with twice the variance on its diagonal
        return math.sqrt(2.0) * entry

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        facts = self.facts(problem)
        every = interval(self, facts)
        sums = curator.running_sum(
            symmetric=facts.dim + 1,
            clip=PSDBall(square(facts)),
            mechanism=self.mechanism,
            every=every,
            sigma=self.printed(facts, curator),
            what="running sum of [x; r] [x; r]'",
        )
        return self.planned(problem, sums, every=every, running=True)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        facts = self.facts(problem)
        T = facts.horizon
        d = facts.dim
        if self.calibration != "paper":
            bound = isometric_noise_norm(float(sums.noise_std_max), d, T)
            return joint_start(self, facts, sums, self.ridge + self.shift * bound)
        levels = 1 + (T - 1).bit_length()
        entry = float(sums.sigma) / math.sqrt(2.0)
        # 2 Upsilon bounds the noise, with failure probability 1 / (2 T)
        spread = 4.0 * math.sqrt(d) + 2.0 * portable.log(2.0 * T * 2.0 * T)
        bound = 2.0 * entry * math.sqrt(2.0 * levels) * spread
        upsilon = 0.5 * bound
        noise = math.sqrt(levels / upsilon) * entry
        noise *= math.sqrt(d) + math.sqrt(2.0 * (portable.log(2.0 * T) + portable.log(T)))
        published = Published(
            used=True,
            half=facts.half,
            level=2.0 * portable.log(4.0 * T),
            volume=d * portable.log(upsilon),
            size=self.norm * math.sqrt(3.0 * upsilon),
            noise=noise,
        )
        return joint_start(self, facts, sums, self.ridge + self.shift * bound, published)


@joint("noisy-gram-ucb", budget="required")
class NoisyGramUCB(LinearRival):
    """LinUCB on batch sums of x x' and r x that both carry noise: RU's "A&b-noise" [construct].

    The first row of RU's ablation (Table 4), which the paper does not specify. Every `every`
    rounds the batch's noisy sum of [x; r] [x; r]' is added to the earlier ones. A record has
    sensitivity sqrt(2) (1 + max r^2) (see `jdp-lin-ucb`). The guarantee is joint privacy of one
    **user-round**, replace-one. Batches are disjoint and compose in parallel.

    Args:
        every: Rounds between releases. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        calibration: ``"verified"``, or ``"paper"``: noise of standard deviation range /
            sqrt(2 rho) on A (off its diagonal) and b, as if only the reward counted, rho by RU's
            Eq. 2.8 for an (epsilon, delta) budget. The guarantee is what that gives for a
            user-round: four times that rho for rewards in [0, 1].
        shift: Multiple of a bound on the noise's operator norm that is added to V, >= 0; at 0
            only the ridge is added.
        ridge: Added to V in addition, > 0. Eigenvalues below half of both are raised to that.
    """

    functions = FUNCTIONS
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "shift": [0.3, 1.0],
        "every": [300, 1000],
        "centre": [False, True],
    }

    every: int = integer(300, 1)
    calibration: str = choice("verified", CALIBRATIONS)
    shift: float = real(1.0, 0.0)

    def printed(self, facts: RivalFacts, curator: Curator) -> float | None:
        """Return sigma of the paper, which costs more than the budget; None: of the budget."""
        budget = curator.budget
        if self.calibration != "paper" or budget is None:
            return None
        curator.as_printed("RU, Table 4")
        rho = budget.rho
        if budget.epsilon is not None and budget.delta is not None:
            rho = textbook_rho(budget.epsilon, budget.delta)
        assert rho is not None
        # The releaser's sigma is that of the diagonal; off it and in b the noise is smaller by
        # sqrt(2).
        return math.sqrt(2.0) * gaussian_sigma(rho, 2.0 * facts.half)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        facts = self.facts(problem)
        sums = curator.batch_sum(
            symmetric=facts.dim + 1,
            clip=PSDBall(square(facts)),
            sigma=self.printed(facts, curator),
            cumulative=True,
            what="batch sums of [x; r] [x; r]'",
        )
        return self.planned(problem, sums, every=interval(self, facts))

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        return joint_start(self, self.facts(problem), sums)


@register_agent("shuffle-lin-ucb", supports=SUPPORTS, protects=("shuffle", "user-round"))
class ShuffleLinUCB(LinearRival):
    """LinUCB on shuffled batch sums of x x' and r x (Chowdhury & Zhou 2022; Garcelon et al. 2022).

    Customers of batch m receive V_{m-1} and theta_{m-1}, choose the largest <x, theta> + alpha
    ||x||_{V^-1} by their own features, and send [x; r] [x; r]' as randomised bits
    (`dpb_gym.privacy.ShuffledSum`, which documents how it differs from the papers' protocols). The
    shuffler mixes the bits of the `every` customers of the batch. V_m is the estimated sum plus
    ``shift`` times a bound on the noise's operator norm. One record includes both sums, so its
    sensitivity is exact.

    The guarantee has notion shuffle, for one **user-round**, replace-one. It trusts the shuffler to
    hide who sent which bits, and no other party. The sensitivity of a record is sqrt(2)
    (1 + max r^2) as in `jdp-lin-ucb`, in steps of the bits. Batches are disjoint and compose in
    parallel. Without a budget the sums are exact.

    Args:
        every: Customers of a batch, B. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many; customers without feedback send x = 0.
        shift: See `NoisyGramUCB`.
        ridge: See `NoisyGramUCB`.
    """

    functions = FUNCTIONS
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "shift": [0.3, 1.0],
        "every": [300, 1000],
        "centre": [False, True],
    }

    every: int = integer(300, 1)
    calibration: str = field(default="verified", init=False)
    shift: float = real(1.0, 0.0)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        facts = self.facts(problem)
        every = interval(self, facts)
        sums = curator.shuffled_sum(
            symmetric=facts.dim + 1,
            clip=PSDBall(square(facts)),
            batch=every,
            cumulative=True,
            what="shuffled sums of [x; r] [x; r]'",
        )
        return self.planned(problem, sums, every=every)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        return joint_start(self, self.facts(problem), sums)
