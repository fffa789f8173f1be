"""UCB1, and LDP-UCB, which is UCB1 on locally private bits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.multi_armed.arms import SUPPORTS, check_arms, indicator, place
from dpb_gym import validation
from dpb_gym.errors import AgentError
from dpb_gym.feedback.local_mechanisms import RandomizedResponse
from dpb_gym.kernels.vectors import copy_to, largest, log
from dpb_gym.local_privacy import LocalPrivacy
from dpb_gym.parameters import real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import Budget, Curator
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

ALPHAS = [0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0]


class Known(NamedTuple):
    """Public constants: weight of the bonus, and width of the rewards' range."""

    alpha: float
    width: float


class State(NamedTuple):
    """Sums of rewards and numbers of pulls, ``(n_arms,)``."""

    sum: Any
    count: Any


@jit
def act(c, s, t, x, z):
    """Arm of the largest mean + range sqrt(alpha log t / N); arms that were never played first."""
    # by arm, so that a tie does not depend on the order of the candidates
    index = np.zeros(s.count.shape[0])
    bonus = c.alpha * log(t)
    for arm in range(s.count.shape[0]):
        n = s.count[arm]
        index[arm] = s.sum[arm] / n + c.width * math.sqrt(bonus / n) if n > 0.0 else np.inf
    return place(x, largest(index, z[0, 0]))


@jit
def see(c, s, t, x, k):
    """Count the pull."""
    s.count[x[k]] += 1.0


@jit
def record(c, s, t, x, k, reward, z):
    """The reward, in the direction of its arm."""
    return reward, indicator(s.count.shape[0], x[k])


@jit
def learn(c, s, released, t):
    """Take the sums."""
    copy_to(released.sum, s.sum)


@register_agent("ucb", supports=SUPPORTS, fixed_arms=True)
class UCB(Algorithm):
    """UCB1 (Auer, Cesa-Bianchi & Fischer 2002): the largest mean + range sqrt(alpha log t / N).

    doi:10.1023/A:1013689704352.

    Args:
        alpha: Weight of the bonus, >= 0; 2 in UCB1.
    """

    functions = Functions(act, record, learn, see)
    context = ("arms",)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {"alpha": ALPHAS}

    alpha: float = real(0.3, 0.0)

    def check(self, problem: ProblemInfo) -> None:
        check_arms("ucb", problem)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        assert problem.n_arms is not None
        sums = curator.batch_sum(problem.n_arms, reward=problem.reward_range, cumulative=True)
        return Plan(sums, directed=True, draws=1, dim=1, law="uniforms")

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        low, high = problem.reward_range
        n = problem.n_arms
        return Known(self.alpha, high - low), State(np.zeros(n), np.zeros(n))


class BernoulliResponse(RandomizedResponse):
    """A reward in [low, high] as one private bit: CTB of Ren et al. (2020), Algorithm 1.

    The bit is 1 with probability (r e^eps + 1 - r) / (e^eps + 1), r the reward on the scale of
    [0, 1]. For r = 0 and r = 1 this is randomized response. In between the odds change less, so
    it is epsilon-private for all rewards.

    Args:
        epsilon: Local epsilon, positive.
        low: Smallest reward; smaller ones are clipped to it.
        high: Largest reward; larger ones are clipped to it.
    """

    def __init__(self, epsilon: float, low: float, high: float) -> None:
        super().__init__(epsilon)
        self.low, self.high, self.width = low, high, 1

    def privatise(self, values: ArrayLike, numbers: ArrayLike) -> NDArray[np.int64]:
        """Return bits ``(B,)`` for rewards ``(B,)``, given uniforms ``(B, 1)``."""
        rewards = np.clip(validation.array("answers", values, (None,)), self.low, self.high)
        r = (rewards - self.low) / (self.high - self.low)
        chance = self.other + (self.keep - self.other) * r
        return (self._noise(numbers, len(r))[:, 0] < chance).astype(np.int64)

    @property
    def bounds(self) -> tuple[float, float]:
        width = self.high - self.low
        none, one = super().bounds
        # Values of the bit as an unbiased estimate, which lie outside of [low, high].
        return self.low + width * none, self.low + width * one


@register_agent(
    "ldp-ucb",
    supports=SUPPORTS,
    protects=("local", "reward"),
    budget="required",
    fixed_arms=True,
)
class LDPUCB(LocalPrivacy):
    """LDP-UCB (Ren, Zhou, Liu & Shroff 2020): UCB on one private bit of every user's reward.

    LDP-UCB-B of arXiv:2007.03121: each user sends a bit (`BernoulliResponse`) and the server plays
    the largest mean of bits + sqrt(alpha log t / N). Here the bits are first converted to unbiased
    estimates of the reward. This scales mean and bonus by the same factor and changes no action.

    The guarantee is local, for the **reward** of one round; contexts and actions are public.

    Args:
        alpha: Weight of the bonus, >= 0; 2 in the paper.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {"alpha": ALPHAS}

    def __init__(self, alpha: float = 0.3) -> None:
        self.alpha = validation.real("alpha", alpha, 0.0)
        super().__init__("ucb", params={"alpha": self.alpha})

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if not np.isfinite(problem.reward_range).all():
            raise AgentError(f"rewards must be bounded, got the range {problem.reward_range}")
        if curator.budget is not None:
            # The mechanism depends on the rewards' range, which is not known before.
            self.mechanism = self._bit(curator.budget, *problem.reward_range)
        super().begin(problem, streams, curator)

    def _bit(self, budget: Budget, low: float, high: float) -> BernoulliResponse:
        epsilon = RandomizedResponse.for_budget(budget).epsilon
        return BernoulliResponse(epsilon, low, high)
