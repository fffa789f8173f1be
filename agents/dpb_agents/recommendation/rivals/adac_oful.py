"""AdaC-OFUL-zCDP: rarely switching optimism with a width that accounts for the noise.

After Azize & Basu, arXiv:2309.00557.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dpb_agents.common.parameters import real
from dpb_agents.recommendation.linear import SUPPORTS
from dpb_agents.recommendation.rivals.switching import Switching
from dpb_gym import kernels, portable
from dpb_gym.problems.base import Array
from dpb_gym.registry import register_agent


@register_agent(
    "adac-oful-zcdp", supports=SUPPORTS, protects=("central", "reward"), budget="required"
)
class AdaCOFUL(Switching):
    """AdaC-OFUL (Azize & Basu): rarely switching OFUL on noisy reward sums.

    From the published abstract and the literature, not from the paper's text. Width of the
    bonus: alpha times ``sqrt(ridge) norm`` + half the reward's range times
    ``sqrt(2 log T + log det V - d log ridge)`` + ``sigma sqrt(l) (sqrt(d) + sqrt(2 log T)) /
    sqrt(smallest eigenvalue of V)`` after l switches: the noise of the blocks adds up in b.

    Sensitivity of a block's sum of r x: the reward's range, since features are public and lie
    in the unit ball; sigma = range / sqrt(2 rho), or the exact Gaussian one for an
    (epsilon, delta) budget. (The paper takes rewards in [-1, 1], hence 2 / sqrt(2 rho).) Every
    reward is in one block, so the blocks compose in parallel; the switches depend on the public
    features only. The guarantee is central, for the **reward** of one round, replace-one.

    Args:
        alpha: Factor of the confidence width, >= 0.
        norm: Assumed bound of ||theta||, >= 0.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "growth": [1.0, 4.0],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    alpha: float = 0.5
    growth: float = 1.0
    norm: float = real(1.0, 0.0)

    def _widths(self, due: Array) -> Array:
        d = self._theta.shape[1]
        log = 2.0 * portable.log(self._horizon)
        sigma = self.releaser.sigma
        width = self._width.copy()
        # 1 / smallest eigenvalue of V
        inverse_least = kernels.linalg.eigvalsh(self._inverse[due])[:, -1]
        noise = sigma * np.sqrt(self._switches[due] * inverse_least)
        width[due] = self.alpha * (
            math.sqrt(self.ridge) * self.norm
            + self._half * np.sqrt(log + self._logdet[due])
            + noise * (math.sqrt(d) + math.sqrt(log))
        )
        return width
