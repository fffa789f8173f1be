"""OFUL: optimism with the self-normalised confidence width, learning at determinant doublings."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dpb_agents.common.parameters import inside, real
from dpb_agents.recommendation.linear import CENTRED, SUPPORTS, WIDTHS
from dpb_agents.recommendation.rivals.switching import Switching
from dpb_gym import portable
from dpb_gym.problems.base import Array
from dpb_gym.registry import register_agent


@register_agent("oful", supports=SUPPORTS)
class OFUL(Switching):
    """OFUL (Abbasi-Yadkori, Pal & Szepesvari 2011): ridge regression, self-normalised bonus.

    https://papers.nips.cc/paper/4417-improved-algorithms-for-linear-stochastic-bandits. Recommends
    the largest ``<x, theta> + alpha width ||x||_{V^-1}`` with the width of their Theorem 2, ``R
    sqrt(log(det V / ridge^d) + 2 log(1 / delta)) + sqrt(ridge) norm``, where rewards in a range
    are sub-Gaussian with R half of it. theta, V and width are renewed when det V has grown by the
    factor ``1 + growth`` (their rarely switching form; 1 doubles it). `lin-ucb` keeps a constant
    width instead and learns every round.

    Args:
        alpha: Factor of the width, >= 0; 1 is the paper's.
        norm: Assumed bound of ||theta||, >= 0.
        delta: Probability with which the confidence set may fail, in (0, 1).
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {"alpha": WIDTHS, **CENTRED}

    growth: float = 1.0
    norm: float = real(1.0, 0.0)
    delta: float = inside(0.01)

    def _widths(self, due: Array) -> Array:
        level = -2.0 * portable.log(self.delta)
        printed = self._half * np.sqrt(self._logdet + level) + math.sqrt(self.ridge) * self.norm
        return np.where(due, self.alpha * printed, self._width)
