"""AdaPrivate for the rewards of all rounds of one user (RU, section 6.1, corrected).

arXiv:2606.21757.
"""

from __future__ import annotations

import math
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

from dpb_agents.common.parameters import integer
from dpb_agents.recommendation.linear import CENTRED, SUPPORTS, WIDTHS, LinearPolicy, LinTS, LinUCB
from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import ContributionCap, Curator, UserSum
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent

registered = partial(
    register_agent, supports=SUPPORTS, protects=("central", "user-rewards"), budget="required"
)


class UserBatches(LinearPolicy):
    """Noisy batch sums as in `NoisyBatches`, which protect all rewards of one user.

    Contexts, recommendations and which rounds are whose are public. Only the first k rounds of a
    user are learnt from. Her sums c_1, c_2, ... of all batches are shortened so that
    ``sum_j ||c_j||^2 <= C^2``, C = `clip` sqrt(k) h, with h the largest absolute reward after
    centring; replacing her then costs 2C (erratum R10). Where that is more than what k rewards
    can differ by, k times their range, nothing is shortened and that is charged.

    Args:
        max_rounds_per_user: k. None: what the problem declares.
        clip: See above, > 0. None: group privacy, rho / k^2 per reward.

    Raises:
        ParameterError: If a parameter is out of range, or the problem identifies no users.
    """

    retired: ClassVar[dict[str, str]] = {
        "window": "what a user gave is capped for good, so nothing is forgotten"
    }

    batch: int = 300
    window: int | None = field(default=None, init=False)
    max_rounds_per_user: int | None = integer(None, 1)
    clip: float | None = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is not None:
            self.clip = validation.real("clip", self.clip, 0.0, open_low=True)

    def _sums(
        self, problem: ProblemInfo, curator: Curator, width: int, reward: tuple[float, float]
    ) -> Any:
        k = self.max_rounds_per_user or problem.max_interactions or problem.person_uses
        if k is None:
            raise ParameterError(
                "max_rounds_per_user, the most rounds of a user that may be learnt from, is "
                "needed: this problem declares none"
            )
        self._cap = ContributionCap(k, curator.replicates)
        if self.clip is not None:
            radius = self.clip * math.sqrt(k) * max(abs(reward[0]), abs(reward[1]))
            if 2.0 * radius < k * (reward[1] - reward[0]):
                return curator.user_sum(width, radius=radius, reward=reward, cumulative=True)
        return curator.batch_sum(width, reward=reward, participations=k, cumulative=True)

    def _admitted(self, context: Context, feedback: Feedback) -> Array:
        return self._cap.admit(context.users, super()._admitted(context, feedback))

    def _add(self, reward: Array, context: Context) -> None:
        if isinstance(self.releaser, UserSum):
            self.releaser.add(reward, self._chosen, context.users)
        else:
            self.releaser.add(reward, self._chosen)


@registered("adaprivate-user-ucb")
class AdaPrivateUserUCB(UserBatches, LinUCB):
    """AdaPrivate-UCB for all rewards of a user: capped rounds, noisy sums.

    See `UserBatches`.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {"alpha": WIDTHS, **CENTRED}


@registered("adaprivate-user-ts")
class AdaPrivateUserTS(UserBatches, LinTS):
    """AdaPrivate-TS for all rewards of a user: capped rounds, noisy sums.

    See `UserBatches`.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {"v": WIDTHS, **CENTRED}
