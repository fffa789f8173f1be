"""One-pass private least squares for recommendation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpb_agents.common.one_pass import MECHANISMS, Design
from dpb_agents.recommendation.one_pass_learners import (
    ExactLearner,
    Learner,
    PrivateLearner,
    PublicLearner,
    Setting,
)
from dpb_agents.recommendation.one_pass_users import LifetimeWeights
from dpb_gym import kernels, validation
from dpb_gym.agent import Agent, register_agent
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.privacy import ContributionCap
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator

NOTIONS = {"reward": "central", "user-rewards": "central", "user-round": "joint", "user": "joint"}


@register_agent("one-pass-linear", supports=["recommendation"], protects=("central", "reward"))
class OnePassLinear(Agent):
    """One-pass private least squares: greedy on the posterior mean given noisy sums.

    Every round enters running sums once; they are released with Gaussian noise at rounds that
    grow geometrically, with precisions that minimise a model of the regret (`planned`). theta,
    with the rewards' level, is the posterior mean given all releases, a Gaussian prior and
    the known noise; the agent plays the largest <x, theta>, and the first candidate until the
    first release. Proofs: docs/agents/one-pass-linear.md.

    What is protected is chosen by `unit`, all replace-one, of users or rounds against whoever
    sees the recommendations:

    * ``"reward"``: the reward of one round, central (every recommendation may be seen).
      Contexts, which items were recommended, and in rejection replay which rounds were
      accepted, count as public and are **not** protected.
    * ``"user-rewards"``: the rewards of all rounds of one user, central; likewise.
    * ``"user-round"``: context and reward of one round, joint (every recommendation but her
      own).
    * ``"user"``: contexts and rewards of all rounds of one user, joint; which rounds are hers
      is public.

    A user counts with her first `max_rounds_per_user` rounds. Without a budget the sums are
    exact and theta is renewed every round.

    Args:
        unit: See above.
        max_rounds_per_user: k, for the user units; by default what the problem declares.
        norm: Prior size of theta in units of half the reward's range: theta has prior
            variance ``(norm range / 2)^2 / d`` per coordinate. With features in the unit ball
            and rewards that never leave their range, a linear model has norm at most 1.
        intercept: Value of the constant feature in what is released, which tells the rewards'
            level, > 0; by default 0.15 with public and 0.5 with private contexts, where the
            noise in the mean of x, which the level multiplies, falls with it.
        curvature: With private contexts: budget of x x' relative to that of the rewards; up
            to 1/8 it is free.
        start: Earliest first release, in rounds.
        mechanism: ``"planned"``: see above; ``"weighted"``: the same sums with noise that
            grows like t^decay; or a continual sum, see `Design`.
        first: See `Design`.
        ratio: See `Design`.
        decay: See `Design`; not used by ``"planned"``.
        every: See `Design`.

    Attributes:

    Raises:
        ParameterError: If a parameter is out of range, the problem's rewards are not bounded,
            or users are to be protected that nobody bounds or identifies.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "norm": [0.7, 1.0],
        "first": [0.03, 0.07, 0.2],
    }

    def __init__(
        self,
        unit: str = "reward",
        max_rounds_per_user: int | None = None,
        norm: float = 1.0,
        intercept: float | None = None,
        curvature: float = 0.125,
        start: int = 20,
        mechanism: str = "planned",
        first: float = 0.07,
        ratio: float = 1.1,
        decay: float = 1.25,
        every: int = 100,
    ) -> None:
        self.unit = validation.choice("unit", unit, tuple(NOTIONS))
        self.max_rounds_per_user = (
            None
            if max_rounds_per_user is None
            else validation.integer("max_rounds_per_user", max_rounds_per_user, 1)
        )
        self.norm = validation.real("norm", norm, 0.0, open_low=True)
        if intercept is None:
            intercept = 0.5 if NOTIONS[self.unit] == "joint" else 0.15
        self.intercept = validation.real("intercept", intercept, 0.0, open_low=True)
        self.curvature = validation.real("curvature", curvature, 0.0, open_low=True)
        self.start = validation.integer("start", start, 1)
        self.mechanism = validation.choice("mechanism", mechanism, ("planned", *MECHANISMS))
        kind = "weighted" if mechanism == "planned" else mechanism
        self.design = Design(kind, first, ratio, decay, every)
        self.protects = (NOTIONS[self.unit], self.unit)
        self._learner: Learner
        self._cap: ContributionCap | None = None

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "recommendation":
            raise AgentError(f"one-pass-linear plays recommendation, not {problem.kind}")
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
        setting = Setting(
            problem,
            streams.replicates,
            self.norm,
            self.intercept,
            self.start,
            self.design,
            self.mechanism == "planned",
        )
        self._all = np.ones(streams.replicates, bool)
        self._cap = None
        if not curator.private:
            self._learner = ExactLearner(setting, curator)
            return
        k = self._most_rounds(problem)
        if NOTIONS[self.unit] == "joint":
            if k is not None:
                self._cap = ContributionCap(k, streams.replicates)
            self._learner = PrivateLearner(setting, self.curvature, curator, k)
            return
        users = None if k is None else LifetimeWeights(streams.replicates, problem.dim + 1, k)
        self._learner = PublicLearner(setting, curator, users)

    def _most_rounds(self, problem: ProblemInfo) -> int | None:
        if self.unit not in ("user", "user-rewards"):
            return None
        k = self.max_rounds_per_user or problem.max_interactions
        if k is None:
            raise ParameterError(
                f"unit={self.unit!r} needs max_rounds_per_user, the most rounds of a user that "
                "may be learnt from: this problem declares none"
            )
        return k

    @property
    def theta(self) -> Array:
        """The newest estimate, from releases only: slopes and level, ``(B, d + 1)``."""
        return self._learner.theta

    def act(self, context: Context) -> Array:
        action = np.empty(len(self._all), np.int64)
        kernels.one_pass_linear.best_candidates(context.features, self._learner.theta, action)
        return action

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        observed = self._all if feedback.observed is None else feedback.observed
        if self._cap is not None:
            observed = self._cap.admit(context.users, observed)
        self._learner.learn(context, action, feedback, observed)
