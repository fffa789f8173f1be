"""What the private linear bandits of this package share."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpb_agents import kernels as zoo
from dpb_gym import kernels, validation
from dpb_gym.agent import Agent
from dpb_gym.errors import ActionError, AgentError, BudgetError, ParameterError
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_agents.recommendation.rivals.reward_sums import RewardSums
    from dpb_gym.privacy import (
        Budget,
        ContinualSum,
        GaussianSum,
        Ledger,
        NoiseSource,
        Segment,
    )

SUPPORTS = ["recommendation"]
COMPOSITIONS = ("sequential", "parallel")


class LinearRival(Agent):
    """A linear bandit that plays the largest <x, theta> + width ||x|| in some metric.

    Subclasses open their releasers in `_open` and learn in `_learn`; between releases they
    see public numbers only.

    Args:
        alpha: Width of the bonus, >= 0.
        ridge: lambda, > 0.
        centre: Subtract the middle of the reward's range (erratum R9).

    Attributes:
        tuning_grid: Values to try per parameter, eight points for every agent.
        ledger: What was released.
        releaser: Takes the raw records; the policy reads its releases only.
    """

    releaser: RewardSums | ContinualSum | GaussianSum
    tuning_grid: ClassVar[dict[str, list[Any]]] = {}

    def __init__(self, alpha: float, ridge: float, centre: bool) -> None:
        self.alpha = validation.real("alpha", alpha, 0.0)
        self.ridge = validation.real("ridge", ridge, 0.0, open_low=True)
        self.centre = validation.flag("centre", centre)
        self.ledger: Ledger | None = None

    def begin(
        self, problem: ProblemInfo, streams: AgentStreams, budget: Budget | None = None
    ) -> None:
        from dpb_gym.privacy import Composition, Guarantee, NoiseSource, Segment

        name = type(self).__name__
        if problem.kind != "recommendation":
            raise AgentError(f"{name} plays recommendation, not {problem.kind}")
        if budget is None:
            raise BudgetError(f"{name} is private and needs a budget, e.g. Budget.zcdp(0.1)")
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
        B, d = streams.replicates, problem.dim
        self._shift = 0.5 * (low + high) if self.centre else 0.0
        self._half = 0.5 * (high - low)
        # where only one in n_candidates rounds is observed, schedules stretch as much
        self._stretch = problem.n_candidates or 1 if problem.partial_feedback else 1
        self._horizon = problem.horizon
        self._rounds = 0
        self._theta = np.zeros((B, d))
        self._inverse = np.broadcast_to(np.eye(d) / self.ridge, (B, d, d)).copy()
        self._width = np.full(B, self.alpha)
        self._chosen = np.empty((B, d))
        self._growth = np.empty(B)
        self._ones = np.ones(B)
        self._all = np.ones(B, bool)
        bound = Segment(low - self._shift, high - self._shift)
        self._open(problem, bound, NoiseSource(streams.noise), budget)
        ledger = self.ledger
        assert ledger is not None
        # a record is in one release, or in as many as the event counts
        curve = Composition(parallel=((self.releaser.event,),))
        self.guarantee = Guarantee(ledger.notion, ledger.unit, ledger.relation, curve)

    @abstractmethod
    def _open(
        self, problem: ProblemInfo, bound: Segment, noise: NoiseSource, budget: Budget
    ) -> None:
        """Opens ledger and releasers; rewards, less the shift, lie in `bound`."""

    @abstractmethod
    def _learn(self, reward: Array) -> None:
        """Takes one shifted reward per replicate; the candidates are in ``_chosen``."""

    def act(self, context: Context) -> Array:
        action = np.empty(len(self._theta), np.int64)
        zoo.linear.choose(context.features, self._theta, self._inverse, self._width, action)
        return action

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        observed = self._all if feedback.observed is None else feedback.observed
        bad = kernels.recommendation.take(context.features, action, observed, self._chosen)
        if bad:
            raise ActionError(
                f"candidate {action[bad - 1]} of replicate {bad - 1} is outside "
                f"0..{context.features.shape[1] - 1}"
            )
        self._rounds += 1
        self._learn(feedback.reward - self._shift)


class RewardRival(LinearRival):
    """A rival that protects the reward of a round and takes features and actions as public."""

    releaser: RewardSums

    def _sums(
        self,
        bound: Segment,
        noise: NoiseSource,
        budget: Budget,
        what: str,
        *,
        split: int = 1,
        keep: int | None = None,
    ) -> None:
        """Opens ledger and releaser with noise for `split` releases of every record.

        Args:
            bound: Range of the shifted rewards.
            noise: Source of the noise.
            budget: What may be spent.
            what: What is released, in words.
            split: Number of releases that share the budget.
            keep: See `RewardSums`.
        """
        from dpb_agents.recommendation.rivals.reward_sums import RewardSums
        from dpb_gym.privacy import Ledger, Release, calibrate

        (sigma,) = calibrate(budget, Release(bound.sensitivity(), split))
        self.ledger = Ledger(budget, notion="central", unit="reward")
        B, d = self._theta.shape
        self.releaser = RewardSums(
            d,
            B,
            clip=bound,
            sigma=sigma,
            noise=noise,
            ledger=self.ledger,
            horizon=self._horizon,
            what=what,
            keep=keep,
        )

    @property
    def clipped_count(self) -> Array:
        """Rewards outside their declared range so far, ``(B,)``."""
        return self.releaser.clipped_count

    def _grow(self, inverse: Array) -> Array:
        """Adds the chosen candidates to a Gram matrix, given by its inverse, in place.

        Returns:
            Factors by which the determinants grew, ``(B,)``.
        """
        kernels.linalg.sherman_morrison(inverse, self._chosen, self._ones, self._growth)
        return self._growth


def operator_norm(matrices: Array) -> Array:
    """Largest absolute eigenvalues of symmetric matrices ``(n, d, d)``, rounded up."""
    found: Array = np.abs(np.linalg.eigvalsh(matrices)).max(axis=1)
    return found * (1.0 + 1e-9)
