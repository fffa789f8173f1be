"""Jointly private LinUCB on noisy sums of [x; r] [x; r]': continual, batched or shuffled."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import choice, integer, real
from dpb_agents.recommendation.linear import SUPPORTS
from dpb_agents.recommendation.linear_records import shifted_inverse
from dpb_agents.recommendation.rivals.linear_rival import LinearRival
from dpb_gym import portable
from dpb_gym.errors import BudgetError
from dpb_gym.privacy import (
    BatchSum,
    Curator,
    PSDBall,
    RunningSum,
    Segment,
    ShuffledSum,
    gaussian_sigma,
    textbook_rho,
)
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.registry import register_agent

CALIBRATIONS = ("verified", "paper")
joint = partial(register_agent, supports=SUPPORTS, protects=("joint", "user-round"))
MECHANISMS = ("binary-tree", "blt", "sqrt-toeplitz")


def isometric_noise_norm(std: float, side: int, horizon: int) -> float:
    """Return a bound on the operator norm of isometric symmetric noise in all T rounds.

    It holds with probability 1 - 1/T.

    Noise of standard deviation s on the diagonal and s / sqrt(2) off it has mean operator norm
    at most s sqrt(2 side) and is 1-Lipschitz in the underlying normals, so it exceeds the bound
    with probability 1 / T^2 per round.
    """
    return std * (math.sqrt(2 * side) + math.sqrt(4 * portable.log(horizon)))


class JointLinUCB(LinearRival):
    """LinUCB on noisy sums of [x; r] [x; r]'.

    V is the noisy sum of x x' plus a shift that bounds the noise's operator norm with high
    probability. theta = V^-1 u with the noisy u = sum r x. Eigenvalues of V below half the shift
    are raised to half the shift.

    Args:
        shift: Multiple of the bound on the noise's operator norm that is added to V, >= 0.
        ridge: Added to V in addition, > 0.
    """

    releaser: RunningSum | BatchSum = field(init=False, repr=False)
    every: int = integer(1, 1)
    calibration: str = choice("verified", CALIBRATIONS)
    shift: float = real(1.0, 0.0)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        # ||[x; r]||^2, with rewards in `bound` and ||x|| <= 1
        self._size = 1.0 + max(bound.low * bound.low, bound.high * bound.high)
        self._low, self._high = bound.low, bound.high
        self._next = self._interval = min(self.every * self._stretch, self._horizon)
        self._logdet = np.empty(len(self._theta))
        self._open_sums(PSDBall(self._size), curator)

    @abstractmethod
    def _open_sums(self, clip: PSDBall, curator: Curator) -> None:
        """Make the releaser."""

    @abstractmethod
    def _newest(self) -> Array:
        """Return the release that is due, ``(B, d + 1, d + 1)``."""

    @abstractmethod
    def _noise_norm(self) -> float:
        """Return a high-probability bound on the operator norm of the current noise."""

    def _widths(self) -> Array:
        """Return the widths of the bonus after a release, ``(B,)``."""
        return self._width

    def _learn(self, reward: Array, chosen: Array) -> None:
        inside = np.minimum(np.maximum(reward, self._low), self._high)
        records = np.empty((*chosen.shape[:2], chosen.shape[2] + 1))
        agent_kernels.linear.with_reward(chosen, inside, records)
        self.releaser.add_rounds(np.ones_like(reward), records)
        if self._rounds == self._next:
            self._next += self._interval
            self._refresh(self._newest())

    def _refresh(self, noisy: Array) -> None:
        shift = self.ridge + self.shift * self._noise_norm()
        self._pull[:] = shift
        shifted_inverse(noisy, shift, self._inverse, self._theta, self._logdet)
        self._width = self._widths()


@joint("jdp-lin-ucb", budget="required", needs_horizon=True)
class JDPLinUCB(JointLinUCB):
    """LinUCB on a private running sum of [x; r] [x; r]' (Shariff & Sheffet 2018).

    arXiv:1810.00068.

    The guarantee is joint privacy of one **user-round**, replace-one: features, reward and, in
    rejection replay, whether the round was observed. An adversary may see every recommendation
    except the user's own.

    Sensitivity: a record [x; r] [x; r]' is positive semidefinite of Frobenius norm at most L =
    1 + max r^2 (2 for rewards in [0, 1]), so replacing one moves the sum by at most sqrt(2) L.
    A continual sum multiplies that by its own sensitivity (sqrt(levels) for the tree). V is the
    noisy sum plus ``shift`` times a bound on the noise's operator norm. The bonus is alpha
    ||x||_{V^-1}.

    Args:
        alpha: Width of the bonus; with ``calibration="paper"`` a factor of the paper's beta_t.
        mechanism: ``"binary-tree"`` (the paper), ``"blt"`` or ``"sqrt-toeplitz"``.
        every: Rounds between releases; the mechanism runs over T / every steps.
        calibration: ``"verified"``: sigma from the sensitivity above and the budget.
            ``"paper"``: node noise N' of standard deviation s = 4 sqrt(m) L log(4/delta) /
            epsilon, symmetrised by (N' + N'^T) / sqrt(2), shift 2 Upsilon and width beta_t of
            the published algorithm; needs an (epsilon, delta) budget. It is valid, and the
            guarantee states its true cost, which is a small part of the budget.
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
        self.releaser = curator.running_sum(
            symmetric=d + 1,
            clip=clip,
            mechanism=self.mechanism,
            every=self._interval,
            sigma=sigma,
            what="running sum of [x; r] [x; r]'",
        )
        # before the first release V is the shift alone
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


@joint("noisy-gram-ucb", budget="required")
class NoisyGramUCB(JointLinUCB):
    """LinUCB on batch sums of x x' and r x that both carry noise: RU's "A&b-noise" [construct].

    The first row of RU's ablation (Table 4), which the paper does not specify. Every `every`
    rounds the batch's noisy sum of [x; r] [x; r]' is added to the earlier ones. A record has
    sensitivity sqrt(2) (1 + max r^2) (see `jdp-lin-ucb`). The guarantee is joint privacy of one
    **user-round**, replace-one. Batches are disjoint and compose in parallel.

    Args:
        every: Rounds between releases. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        calibration: ``"verified"``, or ``"paper"``: noise of standard deviation range /
            sqrt(2 rho) on A (off its diagonal) and b, as if only the reward counted, rho by RU's
            Eq. 2.8 for an (epsilon, delta) budget. The guarantee is what that gives for a
            user-round: four times that rho for rewards in [0, 1].
        shift: Multiple of a bound on the noise's operator norm that is added to V, >= 0; at 0
            only the ridge is added.
        ridge: Added to V in addition, > 0. Eigenvalues below half of both are raised to that.
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
            # the noise in the paper costs more than the budget
            curator.as_printed("RU, Table 4")
            rho = budget.rho
            if budget.epsilon is not None and budget.delta is not None:
                rho = textbook_rho(budget.epsilon, budget.delta)
            assert rho is not None
            sigma = math.sqrt(2.0) * gaussian_sigma(rho, 2.0 * self._half)
        self.releaser = curator.batch_sum(
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


@register_agent("shuffle-lin-ucb", supports=SUPPORTS, protects=("shuffle", "user-round"))
class ShuffleLinUCB(NoisyGramUCB):
    """LinUCB on shuffled batch sums of x x' and r x (Chowdhury & Zhou 2022; Garcelon et al. 2022).

    Customers of batch m receive V_{m-1} and theta_{m-1}, choose the largest <x, theta> + alpha
    ||x||_{V^-1} by their own features, and send [x; r] [x; r]' as randomised bits
    (`dpb_gym.privacy.ShuffledSum`, which documents how it differs from the papers' protocols). The
    shuffler mixes the bits of the `every` customers of the batch. V_m is the estimated sum plus
    ``shift`` times a bound on the noise's operator norm. One record includes both sums, so its
    sensitivity is exact.

    The guarantee has notion shuffle, for one **user-round**, replace-one. It trusts the shuffler to
    hide who sent which bits, and no other party. The sensitivity of a record is sqrt(2)
    (1 + max r^2) as in `jdp-lin-ucb`, in steps of the bits. Batches are disjoint and compose in
    parallel. Without a budget the sums are exact.

    Args:
        every: Customers of a batch, B. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many; customers without feedback send x = 0.
    """

    releaser: ShuffledSum = field(init=False, repr=False)
    calibration: str = field(default="verified", init=False)

    def _open_sums(self, clip: PSDBall, curator: Curator) -> None:
        self.releaser = curator.shuffled_sum(
            symmetric=self._theta.shape[1] + 1,
            clip=clip,
            batch=self._interval,
            cumulative=True,
            what="shuffled sums of [x; r] [x; r]'",
        )
