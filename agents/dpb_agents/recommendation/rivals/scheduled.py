"""LinUCB on noisy sums or estimates that are released on a fixed schedule, or by episodes."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.recommendation.ridge_agents import central
from dpb_agents.recommendation.rivals.linear_rival import (
    COMPOSITIONS,
    LinearRival,
    RewardSums,
    optimistic,
    record_reward,
    shrunk,
)
from dpb_gym import portable
from dpb_gym.kernels.vectors import (
    add,
    clipped,
    copy_matrix,
    copy_to,
    grow_inverse,
    grow_inverse_clipped,
    log,
    operator_norm,
    times,
)
from dpb_gym.parameters import choice, integer, real
from dpb_gym.play import Functions, Plan, jit
from dpb_gym.privacy import Curator, Segment
from dpb_gym.problems.rounds import ProblemInfo

# Growth of the number of rounds between two updates of the norm of A^-1.
STALE = 1.02


@jit
def record(c, s, t, x, k, reward, z):
    """r and x."""
    return record_reward(c, x, k, reward)


# ------------------------------------------------------------------ batched-aggregation


class KnownBatches(NamedTuple):
    """Public constants.

    Attributes:
        alpha: Width of the bonus.
        shift: Subtracted from rewards.
        noisy: Whether sums carry noise.
    """

    alpha: float
    shift: float
    noisy: bool


class StateBatches(NamedTuple):
    """State of one replicate: A^-1 ``(d, d)`` and b ``(d,)``."""

    A: Any
    b: Any


@jit
def act_batches(c, s, t, x, z):
    """Candidate of the largest <x, theta> + alpha ||x||_{A^-1}, theta = A^-1 b."""
    return optimistic(x, times(s.A, s.b), s.A, c.alpha, z)


@jit
def see_batches(c, s, t, x, k):
    """A <- A + x x'."""
    grow_inverse_clipped(s.A, x[k])


@jit
def learn_batches(c, s, released, t):
    """b <- b + the noisy sum of the batch."""
    add(s.b, 1.0, released.sum)


@central("batched-aggregation", needs_horizon=True)
class BatchedAggregation(LinearRival):
    """LinUCB on noisy batch sums that divide the budget among them (RU, Table 6) [construct].

    A = ridge I + sum x x' is public and grows every round; every `batch` rounds the batch's sum
    of r x is released with noise and added to b. RU gives each batch rho B / T. The batches
    are disjoint, so each could spend all of rho. That agent is `adaprivate-ucb`, and Table 6
    compares with a weaker baseline than necessary.

    Sensitivity of a batch's sum: the reward's range. The ledger composes the batches in parallel,
    so with ``composition="sequential"`` the noise is that of the paper and the guarantee is about
    B / T of the budget. Central, for the **reward** of one round,
    replace-one.

    Args:
        batch: Rounds between releases. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        composition: ``"sequential"``: the batches share the budget, as in the paper;
            ``"parallel"``: each batch spends all of it.
    """

    functions = Functions(act_batches, record, learn_batches, see_batches)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "composition": ["sequential", "parallel"],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    batch: int = integer(300, 1)
    composition: str = choice("sequential", COMPOSITIONS)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        facts = self.facts(problem)
        interval = self.batch * facts.stretch
        # The last, partial batch is not released.
        batches = max(1, facts.horizon // interval)
        split = batches if self.composition == "sequential" else 1
        sums = curator.batch_sum(
            facts.dim, reward=facts.reward, share=1.0 / split, what="reward sum of a batch"
        )
        return self.planned(problem, sums, every=interval)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[KnownBatches, StateBatches]:
        facts = self.facts(problem)
        known = KnownBatches(self.alpha, facts.shift, sums.sigma > 0.0)
        return known, StateBatches(np.eye(facts.dim) / self.ridge, self.ridge * facts.mean)


# ------------------------------------------------------------------ dgs-lin-ucb


class KnownDynamic(NamedTuple):
    """Public constants.

    Attributes:
        alpha: Width of the bonus.
        ridge: lambda.
        mean: Prior mean of theta, ``(d,)``.
        informed: Whether it is not 0.
        shift: Subtracted from rewards.
        noisy: Whether releases carry noise.
    """

    alpha: float
    ridge: float
    mean: Any
    informed: bool
    shift: float
    noisy: bool


class StateDynamic(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: Newest release, ``(d,)``.
        A: A^-1, ``(d, d)``.
        norm: Upper bound of ||A^-1||, ``(1,)``.
        renewal: First round in which the bound is computed again, ``(1,)``.
    """

    theta: Any
    A: Any
    norm: Any
    renewal: Any


@jit
def act_dynamic(c, s, t, x, z):
    """Candidate of the largest <x, theta> + alpha ||x||_{A^-1}."""
    if c.informed:
        return optimistic(x, shrunk(s.theta, s.A, c.ridge, c.mean), s.A, c.alpha, z)
    return optimistic(x, s.theta, s.A, c.alpha, z)


@jit
def see_dynamic(c, s, t, x, k):
    """A <- A + x x'."""
    grow_inverse_clipped(s.A, x[k])


@jit
def image_dynamic(c, s, t):
    """A^-1 and a bound of its norm, at most 2% of the rounds old."""
    # A only grows, so that an older norm of its inverse is larger: the noise is never too small.
    if t >= s.renewal[0]:
        s.norm[0] = operator_norm(s.A)
        s.renewal[0] = math.ceil(STALE * t)
    return s.A, s.norm[0]


@jit
def learn_dynamic(c, s, released, t):
    """theta <- the noisy A^-1 b."""
    copy_to(released.sum, s.theta)


@central("dgs-lin-ucb", needs_horizon=True)
class DynamicSensitivity(LinearRival):
    """LinUCB on estimates noised by their dynamic global sensitivity.

    After Wang, Zhao, Wu, Chopra, Khaitan & Wang (2022), from the abstract and RU's use of it:
    every `every` rounds theta = A^-1 b + N(0, (||A^-1|| sigma)^2 I) is released afresh, and the
    bonus is alpha ||x||_{A^-1}; A is public. (The original draws the noise by a tree; on
    estimates, which are not sums, a tree has no proof.)

    Replacing one reward moves A^-1 b by at most the reward's range times ||A^-1||, for rewards
    only: a replaced context would move A itself, which is used as it is. Every reward is in all
    later releases, at most n = T // every, so they compose in sequence: sigma =
    range sqrt(n / (2 rho)). At ``every=1`` that is so much noise that it drowns the estimate at
    any usual budget. The guarantee is central, for the **reward** of one round, replace-one.

    The norm of A^-1 in use is at most 2% of the rounds old, which is sound as it only falls.

    Args:
        every: Rounds between releases; 1 is the published schedule. Where only one in
            n_candidates rounds is observed (rejection replay), n_candidates times as many.
    """

    functions = Functions(act_dynamic, record, learn_dynamic, see_dynamic, image=image_dynamic)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "every": [1, 1000],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    every: int = integer(1, 1)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        facts = self.facts(problem)
        interval = self.every * facts.stretch
        sums = RewardSums(
            curator,
            facts.dim,
            Segment(*facts.reward),
            "estimates from all rounds",
            # Every reward is in all later releases, each of which is charged.
            keep=max(1, facts.horizon // interval),
        )
        return self.planned(problem, sums, every=interval)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[KnownDynamic, StateDynamic]:
        facts = self.facts(problem)
        known = KnownDynamic(
            self.alpha,
            self.ridge,
            facts.mean,
            bool(facts.mean.any()),
            facts.shift,
            sums.sigma > 0.0,
        )
        return known, StateDynamic(
            theta=np.zeros(facts.dim),
            A=np.eye(facts.dim) / self.ridge,
            norm=np.full(1, 1.0 / self.ridge),
            renewal=np.ones(1, np.int64),
        )


# ------------------------------------------------------------------ zcdp-episodic


class KnownEpisodic(NamedTuple):
    """Public constants.

    Attributes:
        alpha: Width of the bonus.
        ridge: lambda.
        mean: Prior mean of theta, ``(d,)``.
        informed: Whether it is not 0.
        shift: Subtracted from rewards.
        noisy: Whether releases carry noise.
        gain: log det A must grow by more in an episode.
    """

    alpha: float
    ridge: float
    mean: Any
    informed: bool
    shift: float
    noisy: bool
    gain: float


class StateEpisodic(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: Release of the last episode, ``(d,)``.
        V: V^-1 of the last episode, ``(d, d)``.
        A: A^-1 of all rounds, ``(d, d)``.
        own: V^-1 of this episode, ``(d, d)``.
        gain: Growth of log det A in this episode, ``(1,)``.
        begin: Rounds before it, ``(1,)``.
        length: Its least number of rounds, ``(1,)``.
    """

    theta: Any
    V: Any
    A: Any
    own: Any
    gain: Any
    begin: Any
    length: Any


@jit
def act_episodes(c, s, t, x, z):
    """Candidate of the largest <x, theta> + alpha ||x||_{V^-1}."""
    if c.informed:
        return optimistic(x, shrunk(s.theta, s.V, c.ridge, c.mean), s.V, c.alpha, z)
    return optimistic(x, s.theta, s.V, c.alpha, z)


@jit
def see_episodes(c, s, t, x, k):
    """A <- A + x x' and V <- V + x x'."""
    v = clipped(x[k])
    # A of all rounds decides when the episode ends, V of this one makes its estimate.
    s.gain[0] += log(grow_inverse(s.A, v))
    grow_inverse(s.own, v)


@jit
def due_episodes(c, s, t):
    """Whether the episode is long enough and det A has grown."""
    return t - s.begin[0] >= s.length[0] and s.gain[0] > c.gain


@jit
def image_episodes(c, s, t):
    """V^-1 of the episode and its norm."""
    return s.own, operator_norm(s.own)


@jit
def learn_episodes(c, s, released, t):
    """theta <- the noisy V^-1 b of the episode; the next one is at least twice as long."""
    copy_to(released.sum, s.theta)
    copy_matrix(s.own, s.V)
    for i in range(s.own.shape[0]):
        for j in range(s.own.shape[0]):
            # Each episode is estimated from its own rounds, so that a reward is in one estimate.
            s.own[i, j] = 1.0 / c.ridge if i == j else 0.0
    s.gain[0] = 0.0
    s.begin[0] = t
    s.length[0] *= 2


@central("zcdp-episodic")
class Episodic(LinearRival):
    """Episodes of doubling length, one noisy estimate from each, after RU's comparison [construct].

    At the end of an episode with Gram matrix V = ridge I + sum x x' of its own rounds, theta =
    V^-1 sum r x plus noise of standard deviation D sigma, D = ||V^-1||, is released, and the
    next episode plays <x, theta> + alpha ||x||_{V^-1} with that theta and V. An episode ends
    when it is long enough and det A, of all rounds, has grown by `trigger` since the last end.

    Replacing one reward moves theta by at most the reward's range times ||V^-1 x|| <= D; V is
    public. An estimate from *all* data would contain every reward many times, and sigma
    would be too small. With an estimate from each episode alone, every reward is in one
    estimate, and they compose in parallel. The guarantee is central, for the **reward** of one
    round, replace-one.

    Args:
        length: Rounds of the first episode; the next are twice as long each. Where only one in
            n_candidates rounds is observed (rejection replay), n_candidates times as many.
        trigger: Least growth of det A per episode, >= 1; at 1 only the length counts.
    """

    functions = Functions(
        act_episodes, record, learn_episodes, see_episodes, due_episodes, image=image_episodes
    )
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "alpha": [0.1, 0.5],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    alpha: float = 0.5
    length: int = integer(100, 1)
    trigger: float = real(2.0, 1.0)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        facts = self.facts(problem)
        bound = Segment(*facts.reward)
        sums = RewardSums(curator, facts.dim, bound, "estimate of one episode")
        return self.planned(problem, sums)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[KnownEpisodic, StateEpisodic]:
        facts = self.facts(problem)
        known = KnownEpisodic(
            alpha=self.alpha,
            ridge=self.ridge,
            mean=facts.mean,
            informed=bool(facts.mean.any()),
            shift=facts.shift,
            noisy=sums.sigma > 0.0,
            # growth by exactly the trigger counts
            gain=math.nextafter(portable.log(self.trigger), -math.inf),
        )
        start = np.eye(facts.dim) / self.ridge
        return known, StateEpisodic(
            theta=np.zeros(facts.dim),
            V=start,
            A=start,
            own=start,
            gain=np.zeros(1),
            begin=np.zeros(1, np.int64),
            length=np.full(1, self.length * facts.stretch),
        )
