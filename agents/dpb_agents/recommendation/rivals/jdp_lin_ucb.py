"""JDP-LinUCB: joint privacy of contexts and rewards by a continual sum (Shariff & Sheffet).

arXiv:1810.00068.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from dpb_agents.common.parameters import choice, real
from dpb_agents.recommendation.linear import SUPPORTS
from dpb_agents.recommendation.rivals.joint import JointLinUCB, isometric_noise_norm
from dpb_gym import portable
from dpb_gym.errors import BudgetError
from dpb_gym.privacy import Curator, PSDBall, RunningSum
from dpb_gym.problems.base import Array
from dpb_gym.registry import register_agent

MECHANISMS = ("binary-tree", "blt", "sqrt-toeplitz")


@register_agent(
    "jdp-lin-ucb",
    supports=SUPPORTS,
    protects=("joint", "user-round"),
    budget="required",
    needs_horizon=True,
)
class JDPLinUCB(JointLinUCB):
    """LinUCB on a private running sum of [x; r] [x; r]' (Shariff & Sheffet 2018).

    Joint privacy of one **user-round**, replace-one: features, reward, and in rejection replay
    whether she was observed, against whoever sees all recommendations but her own.

    Sensitivity: a record [x; r] [x; r]' is positive semidefinite of Frobenius norm at most L =
    1 + max r^2 (2 for rewards in [0, 1]), so replacing one moves the sum by at most sqrt(2) L;
    a continual sum multiplies that by its own sensitivity (sqrt(levels) for the tree). V =
    noisy sum + ``shift`` times a bound on the noise's operator norm; bonus alpha ||x||_{V^-1}.

    Args:
        alpha: Width of the bonus; with ``calibration="paper"`` a factor of the paper's beta_t.
        mechanism: ``"binary-tree"`` (the paper), ``"blt"`` or ``"sqrt-toeplitz"``.
        every: Rounds between releases; the mechanism runs over T / every steps.
        calibration: ``"verified"``: sigma from the sensitivity above and the budget.
            ``"paper"``: node noise N' of standard deviation s = 4 sqrt(m) L log(4/delta) /
            epsilon, symmetrised by (N' + N'^T) / sqrt(2), shift 2 Upsilon and width beta_t of
            the published algorithm; needs an (epsilon, delta) budget. Sound, and the guarantee
            is what it really costs: a small part of the budget.
        norm: Assumed bound of ||theta||, in the width of ``calibration="paper"`` only.
        centre: Subtract the middle of the reward's range (erratum R9): L falls to 1.25.

    Raises:
        BudgetError: If ``calibration="paper"`` gets a budget without epsilon and delta.
    """

    releaser: RunningSum = field(init=False, repr=False)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "shift": [0.3, 1.0],
        "every": [10, 100],
        "centre": [False, True],
    }

    mechanism: str = choice("binary-tree", MECHANISMS)
    every: int = 10
    norm: float = real(1.0, 0.0)

    def _open_sums(self, clip: PSDBall, curator: Curator) -> None:
        budget, sigma, d = curator.budget, None, self._theta.shape[1]
        if self.calibration == "paper":
            if budget is None or budget.epsilon is None or budget.delta is None:
                raise BudgetError("calibration='paper' takes an (epsilon, delta) budget")
            self._levels = 1 + (self._horizon - 1).bit_length()
            log = portable.log(4.0 / budget.delta)
            self._entry_std = 4 * math.sqrt(self._levels) * self._size * log / budget.epsilon
            # (N' + N'^T) / sqrt(2) is isometric, with twice the variance on its diagonal
            sigma = math.sqrt(2.0) * self._entry_std
        self.releaser = RunningSum(
            curator,
            symmetric=d + 1,
            clip=clip,
            mechanism=self.mechanism,
            every=self._interval,
            sigma=sigma,
            what="running sum of [x; r] [x; r]'",
        )
        # before the first release the policy acts as if V were the shift alone
        start = self.ridge + self.shift * self._noise_norm()
        self._inverse[:] = np.eye(d) / start
        self._pull[:] = start

    def _newest(self) -> Array:
        return self.releaser.value

    def _noise_norm(self) -> float:
        d, T = self._theta.shape[1], self._horizon
        if self.calibration == "paper":
            # 2 Upsilon, with failure probability 1 / (2 T)
            log = portable.log(2.0 * T * 2.0 * T)
            spread = 4.0 * math.sqrt(d) + 2.0 * log
            return 2.0 * self._entry_std * math.sqrt(2.0 * self._levels) * spread
        return isometric_noise_norm(self.releaser.noise_std_max, d, T)

    def _widths(self) -> Array:
        if self.calibration != "paper":
            return self._width
        d, T = self._theta.shape[1], self._horizon
        upsilon = 0.5 * self._noise_norm()
        log = portable.log(2.0 * T)
        gain = np.maximum(0.0, self._logdet - d * portable.log(upsilon))
        statistical = self._half * np.sqrt(2.0 * portable.log(4.0 * T) + gain)
        shifted = self.norm * math.sqrt(3.0 * upsilon)
        noise = math.sqrt(self._levels / upsilon) * self._entry_std
        noise *= math.sqrt(d) + math.sqrt(2.0 * (log + portable.log(T)))
        return self.alpha * (statistical + shifted + noise)
