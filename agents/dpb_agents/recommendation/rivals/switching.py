"""Rarely switching LinUCB: theta and the bonus are constant between switches."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dpb_agents.common.parameters import inside, positive, real
from dpb_agents.recommendation.linear import CENTRED, SUPPORTS, WIDTHS, central
from dpb_agents.recommendation.rivals.linear_rival import LinearRival, RewardSums
from dpb_gym import kernels, portable
from dpb_gym.privacy import Curator, Segment
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.registry import register_agent


@central("rarely-switching-zcdp")
class RarelySwitching(LinearRival):
    """Rarely switching private LinUCB with a plain bonus, after RU's comparison [construct].

    RU names "RarelySwitching-zCDP" without a definition. This is `adac-oful-zcdp` with the bonus
    alpha ||x||_{V^-1} and a larger `growth`. A = ridge I + sum x x' is public. When det A has grown
    by the factor ``1 + growth``, the sum of r x since the last switch is released with noise and
    added to b. theta = A^-1 b and V = A are constant until the next switch.

    Sensitivity of a released sum: the reward's range. Every reward is in one sum. The guarantee is
    central, for the **reward** of one round, replace-one. Features, actions and the times of
    switches count as public.

    Args:
        growth: A switch happens when det A exceeds ``1 + growth`` times its value at the last.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "growth": [4.0, 16.0],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    growth: float = positive(4.0)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        B, d = self._theta.shape
        self.releaser = RewardSums(curator, d, bound, "reward sum between switches")
        self._grown = self._grams(1)
        self._response = np.zeros_like(self._theta)
        self._switched_at = np.zeros(B)
        self._switches = np.zeros(B, np.int64)
        self._rise = portable.log1p(self.growth)
        self._width = self._widths(self._all)

    def _widths(self, due: Array) -> Array:
        """Return the widths of the bonus ``(B,)``, updated where `due`."""
        return self._width

    def _limits(self) -> tuple[Array, Array, float]:
        return np.zeros(len(self._theta), np.int64), self._switched_at, self._rise

    def _learn(self, reward: Array, chosen: Array) -> None:
        self.releaser.add_rounds(reward, chosen)
        (current,), (logdet,) = self._grown
        due = logdet - self._switched_at > self._rise
        if not due.any():
            return
        self._response[due] += self.releaser.release(due)[due]
        self._switched_at[due] = logdet[due]
        self._switches += due
        self._inverse[due] = current[due]
        kernels.linalg.multiply(self._inverse, self._response, self._theta)
        self._width = self._widths(due)


@central("adac-oful-zcdp")
class AdaCOFUL(RarelySwitching):
    """AdaC-OFUL (Azize & Basu): rarely switching OFUL on noisy reward sums.

    arXiv:2309.00557, from the abstract and the literature, not from the text. Width of the bonus:
    alpha times ``sqrt(ridge) norm`` + half the reward's range times
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
            + self._half * np.sqrt(log + self._switched_at[due])
            + noise * (math.sqrt(d) + math.sqrt(log))
        )
        return width


@register_agent("oful", supports=SUPPORTS)
class OFUL(RarelySwitching):
    """OFUL (Abbasi-Yadkori, Pal & Szepesvari 2011): ridge regression, self-normalised bonus.

    https://papers.nips.cc/paper/4417-improved-algorithms-for-linear-stochastic-bandits. Recommends
    the largest ``<x, theta> + alpha width ||x||_{V^-1}`` with the width of their Theorem 2, ``R
    sqrt(log(det V / ridge^d) + 2 log(1 / delta)) + sqrt(ridge) norm``, where rewards in a range
    are sub-Gaussian with R half of it. theta, V and width are updated when det V has grown by the
    factor ``1 + growth`` (their rarely switching form; 1 doubles it). `lin-ucb` has a constant
    width instead and updates every round.

    Args:
        alpha: Factor of the width, >= 0; 1 in the paper.
        norm: Assumed bound of ||theta||, >= 0.
        delta: Probability with which the confidence set may fail, in (0, 1).
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {"alpha": WIDTHS, **CENTRED}

    growth: float = 1.0
    norm: float = real(1.0, 0.0)
    delta: float = inside(0.01)

    def _widths(self, due: Array) -> Array:
        level = -2.0 * portable.log(self.delta)
        printed = (
            self._half * np.sqrt(self._switched_at + level) + math.sqrt(self.ridge) * self.norm
        )
        return np.where(due, self.alpha * printed, self._width)
