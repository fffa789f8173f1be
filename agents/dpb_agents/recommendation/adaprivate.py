"""The AdaPrivate family (RU): linear policies on noisy reward sums of disjoint batches."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from dpb_agents.recommendation.adaprivate_sums import lifetime_radius, printed_sigma
from dpb_agents.recommendation.linear import SUPPORTS, WIDTHS, LinearPolicy
from dpb_gym import validation
from dpb_gym.agent import register_agent
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import ContributionCap, Curator, Segment, UserSum
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo

CALIBRATIONS = ("verified", "paper")
PROTECTS = ("central", "reward")
UNITS = ("reward", "user")
USER_BOUNDS = ("clip", "group")


@register_agent(
    "adaprivate-ucb", supports=SUPPORTS, protects=PROTECTS, budget="required", rule="ucb", batch=300
)
@register_agent(
    "adaprivate-ts", supports=SUPPORTS, protects=PROTECTS, budget="required", rule="ts", batch=300
)
@register_agent(
    "adaprivate-adaptive",
    supports=SUPPORTS,
    protects=PROTECTS,
    budget="required",
    rule="ts",
    batch=300,
    v=1.5,
    decay=0.95,
)
@register_agent(
    "adaprivate-amp",
    supports=SUPPORTS,
    protects=PROTECTS,
    budget="required",
    rule="ts",
    batch=300,
    sampling=0.5,
)
class AdaPrivate(LinearPolicy):
    """AdaPrivate: LinUCB or Thompson sampling on noisy reward sums of disjoint batches.

    RU, Algorithm 1, and its variants. A = ridge I + sum x x' is public and exact; b = sum r x
    grows by the noisy sum of one batch at a time. Every reward is in one batch, so the batches
    compose in parallel; the last, partial batch is never used. The noise of the batches adds
    up in b (erratum R5).

    * ``adaprivate-ts``, ``adaprivate-ucb``: Thompson sampling (Algorithm 1) and its UCB twin.
    * ``adaprivate-adaptive`` (section 3.3): the width of the draw falls by `decay` per batch.
    * ``adaprivate-amp`` (section 3.2): each reward enters the sums with probability `sampling`.

    Protected is, with ``unit="reward"``, the **reward** of one round, against whoever sees all
    recommendations. With ``unit="user"`` it is the rewards of **all rounds of one user**. In
    both cases the contexts, which items were recommended, which rounds are whose, and in
    rejection replay which rounds were accepted, count as public and are **not** protected
    (erratum R15): the Gram matrix A is released without noise.

    Args:
        rule: See `LinearPolicy`.
        alpha: See `LinearPolicy`.
        v: See `LinearPolicy`.
        ridge: See `LinearPolicy`.
        batch: Rounds between releases of b; where only one in n_candidates rounds is
            observed (rejection replay), n_candidates times as many.
        centre: See `LinearPolicy`; the sensitivity is the same.
        intercept: See `LinearPolicy`.
        decay: See `LinearPolicy`; RU take 0.95 with v = 1.5.
        forced_exploration: See `LinearPolicy`.
        gamma: See `LinearPolicy`.
        tuned_v: Start at ``v = 1 + sigma / (d sqrt(lambda_0))`` (RU, section 4.2), where sigma
            is the noise of one batch and lambda_0 = 1/d as on the unit sphere.
        calibration: ``"verified"`` (default): sigma of the exact Gaussian mechanism, or of the
            exactly accounted Poisson-sampled one. ``"paper"``: RU, Eq. 2.8 (valid, erratum
            R1) or, with sampling, Eq. 3.6 (no bound at all, erratum R2); the guarantee states
            what is really delivered.
        sampling: q, in (0, 1]; 1 includes every reward.
        unit: ``"reward"`` or ``"user"``.
        max_rounds_per_user: k with ``unit="user"``: only the first k rounds of a user are
            learnt from. None: what the problem declares.
        user_bound: With ``unit="user"``. ``"clip"``: a user's sums of all batches together are
            clipped to the radius C = `clip` sqrt(k) h, with h the largest absolute reward
            after centring; replacing her costs 2C (erratum R10). Where that is more than k
            rewards can differ, nothing is clipped. ``"group"``: group privacy, rho / k^2 per
            reward.
        clip: See `user_bound`, > 0.

    Attributes:
        releaser: Takes the raw rewards; the policy reads its releases only.

    Raises:
        ParameterError: If a parameter is out of range, the problem's rewards are not bounded,
            its users are not identified although they are to be protected, or Eq. 3.6 has no
            solution.
        BudgetError: If Eq. 3.6 is to be solved for a zCDP budget.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "adaprivate-ucb": {"alpha": WIDTHS},
        "adaprivate-ts": {"v": WIDTHS},
        "adaprivate-adaptive": {"v": [0.1, 0.3, 0.75, 1.5, 3.0, 6.0]},
        "adaprivate-amp": {"v": WIDTHS},
    }

    def __init__(
        self,
        rule: str = "ts",
        alpha: float = 1.0,
        v: float = 1.0,
        ridge: float = 1.0,
        batch: int = 300,
        centre: bool = False,
        intercept: float = 0.0,
        decay: float = 1.0,
        forced_exploration: bool = False,
        gamma: float | None = None,
        tuned_v: bool = False,
        calibration: str = "verified",
        sampling: float = 1.0,
        unit: str = "reward",
        max_rounds_per_user: int | None = None,
        user_bound: str = "clip",
        clip: float = 1.0,
    ) -> None:
        super().__init__(
            rule, alpha, v, ridge, batch, centre, intercept, decay, forced_exploration, gamma
        )
        self.tuned_v = validation.flag("tuned_v", tuned_v)
        self.calibration = validation.choice("calibration", calibration, CALIBRATIONS)
        self.sampling = validation.real("sampling", sampling, 0.0, 1.0, open_low=True)
        self.unit = validation.choice("unit", unit, UNITS)
        self.max_rounds_per_user = (
            None
            if max_rounds_per_user is None
            else validation.integer("max_rounds_per_user", max_rounds_per_user, 1)
        )
        self.user_bound = validation.choice("user_bound", user_bound, USER_BOUNDS)
        self.clip = validation.real("clip", clip, 0.0, open_low=True)
        if self.unit == "reward" and max_rounds_per_user is not None:
            raise ParameterError("max_rounds_per_user belongs to unit='user'")
        if self.unit == "user" and self.sampling < 1.0:
            raise ParameterError(
                "sampling protects single rewards: unit='user' needs sampling=1, because the "
                "rounds of one user would be sampled one by one"
            )
        if self.unit == "user" and self.calibration == "paper":
            raise ParameterError(
                "unit='user' has no calibration='paper': the printed noise C / sqrt(2 rho) "
                "covers neither a replaced user nor one in several batches (erratum R10)"
            )
        self.protects = ("central", "reward" if unit == "reward" else "user-rewards")
        self._cap: ContributionCap | None = None

    def _sums(self, problem: ProblemInfo, curator: Curator, width: int) -> Any:
        self._cap = None
        if self.unit == "user" and curator.private:
            return self._user_sums(problem, curator, width)
        sigma = None
        if self.calibration == "paper" and curator.budget is not None:
            curator.as_printed("RU, Eq. 2.8 and 3.6")
            sigma = printed_sigma(curator.budget, self._reward, self.sampling)
        return curator.batch_sum(
            width, reward=self._reward, sigma=sigma, sampling=self.sampling, cumulative=True
        )

    def _user_sums(self, problem: ProblemInfo, curator: Curator, width: int) -> Any:
        k = self.max_rounds_per_user or problem.max_interactions
        if k is None:
            raise ParameterError(
                "unit='user' needs max_rounds_per_user, the most rounds of a user that may be "
                "learnt from: this problem declares none"
            )
        self._cap = ContributionCap(k, curator.replicates)
        radius = None
        if self.user_bound == "clip":
            radius = lifetime_radius(Segment(*self._reward), k, self.clip)
        if radius is not None:
            return curator.user_sum(width, radius=radius, reward=self._reward, cumulative=True)
        return curator.batch_sum(width, reward=self._reward, participations=k, cumulative=True)

    def _first_width(self, dim: int) -> float:
        if not self.tuned_v:
            return self.v
        sigma = float(self.releaser.sigma)
        return 1.0 + sigma / (dim * math.sqrt(1.0 / dim))

    def _admitted(self, context: Context, feedback: Feedback) -> Array:
        observed = super()._admitted(context, feedback)
        return observed if self._cap is None else self._cap.admit(context.users, observed)

    def _add(self, values: Array, context: Context) -> None:
        if isinstance(self.releaser, UserSum):
            self.releaser.add(values, self._chosen, context.users)
        else:
            self.releaser.add(values, self._chosen)
