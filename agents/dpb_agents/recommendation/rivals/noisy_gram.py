"""Noisy-Gram UCB: batch sums of features and rewards, both with noise (RU, Table 4)."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar

from dpb_agents.recommendation.linear import SUPPORTS
from dpb_agents.recommendation.rivals.joint import JointLinUCB, isometric_noise_norm
from dpb_gym.privacy import BatchSum, Curator, PSDBall, gaussian_sigma, textbook_rho
from dpb_gym.problems.base import Array
from dpb_gym.registry import register_agent


@register_agent(
    "noisy-gram-ucb", supports=SUPPORTS, protects=("joint", "user-round"), budget="required"
)
class NoisyGramUCB(JointLinUCB):
    """LinUCB on batch sums of x x' and r x that both carry noise: RU's "A&b-noise" [construct].

    The first row of RU's ablation (Table 4), which the paper does not specify. Every `every`
    rounds the batch's noisy sum of [x; r] [x; r]' is added to those before. With the calibration
    that follows from the sensitivity sqrt(2) (1 + max r^2) of a record (see `jdp-lin-ucb`) this
    gives what noise on A can be for: joint privacy of one **user-round**, replace-one. Batches
    are disjoint and compose in parallel.

    Args:
        every: Rounds between releases. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        calibration: ``"verified"``, or ``"paper"``: noise of standard deviation range /
            sqrt(2 rho) on A (off its diagonal) and b, as if only the reward counted, rho by RU's
            Eq. 2.8 for an (epsilon, delta) budget. The guarantee is what that gives for a
            user-round: four times that rho for rewards in [0, 1].
        shift: Multiple of a bound on the noise's operator norm that is added to V; at 0, the
            naive reading, only the ridge is.
        ridge: Added to V besides, > 0; eigenvalues below half of both are raised to that.
    """

    releaser: BatchSum = field(init=False, repr=False)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "shift": [0.3, 1.0],
        "every": [300, 1000],
        "centre": [False, True],
    }
    every: int = 300

    def _open_sums(self, clip: PSDBall, curator: Curator) -> None:
        budget, sigma = curator.budget, None
        if self.calibration == "paper" and budget is not None:
            # the paper's noise costs more than the budget
            curator.as_printed("RU, Table 4")
            rho = budget.rho
            if budget.epsilon is not None and budget.delta is not None:
                rho = textbook_rho(budget.epsilon, budget.delta)
            assert rho is not None
            sigma = math.sqrt(2.0) * gaussian_sigma(rho, 2.0 * self._half)
        self.releaser = BatchSum(
            curator,
            symmetric=self._theta.shape[1] + 1,
            clip=clip,
            sigma=sigma,
            cumulative=True,
            what="batch sums of [x; r] [x; r]'",
        )

    def _newest(self) -> Array:
        return self.releaser.release()

    def _noise_norm(self) -> float:
        d = self._theta.shape[1]
        return isometric_noise_norm(self.releaser.noise_std, d, self._horizon)
