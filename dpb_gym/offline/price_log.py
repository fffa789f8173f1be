"""Logs of prices, and kernel weights for their off-policy evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.offline.array_checks import NO_BOUNDS, features_of, values
from dpb_gym.offline.collecting import Columns, draw_prices
from dpb_gym.offline.estimators import (
    LIMITS,
    NEEDS_MODEL,
    WEIGHTING,
    Estimator,
    Terms,
    Weighted,
    cross_fitted,
    effective_sample_size,
)
from dpb_gym.offline.log import Log, answers
from dpb_gym.problems.base import Array, Problem

KERNELS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "epanechnikov": (lambda u: 0.75 * (1 - u * u), lambda u: 0.5 + 0.75 * u - 0.25 * u**3),
    "triangular": (lambda u: 1 - np.abs(u), lambda u: 0.5 + u - 0.5 * u * np.abs(u)),
    "cosine": (
        lambda u: np.pi / 4 * np.cos(np.pi / 2 * u),
        lambda u: 0.5 + 0.5 * np.sin(np.pi / 2 * u),
    ),
    "gaussian": (lambda u: np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi), ndtr),
}
"""Densities and distribution functions; all densities but the Gaussian are zero outside [-1, 1]."""

LEAST_ROUNDS = 10
"""Smallest effective sample size of an automatic bandwidth."""


def kernel_weights(
    prices: Array,
    densities: Array,
    target: Array,
    bandwidth: float,
    kernel: str,
    price_range: tuple[float, float],
) -> Array:
    """Return K((target - price) / h) / (h density), ``(n,)`` (Kallus & Zhou 2018).

    It is divided by the kernel's mass within the range of the prices, which corrects the bias of
    targets near its ends.

    Args:
        prices: Logged prices ``(n,)``.
        densities: Their densities under the logging policy ``(n,)``.
        target: The target policy's prices ``(n,)``.
        bandwidth: h > 0.
        kernel: One of `KERNELS`.
        price_range: Lowest and highest price of the logging policy; may be infinite.
    """
    h = validation.real("bandwidth", bandwidth, 0.0, open_low=True)
    density, mass = KERNELS[validation.choice("kernel", kernel, KERNELS)]
    bounded = kernel != "gaussian"

    def within(u: Array) -> Array:
        return np.clip(u, -1.0, 1.0) if bounded else u

    low, high = price_range
    share = mass(within((high - target) / h)) - mass(within((low - target) / h))
    weights: Array = density(within((target - prices) / h)) / (h * densities * share)
    return weights


@dataclass(frozen=True, eq=False, repr=False)
class PriceLog(Log):
    """n logged prices: customers' features, densities of the prices, and rewards.

    Create it from arrays or with `from_problem`. The estimators are those of recommendations with
    kernel weights (`kernel_weights`).

    Attributes:
        features: float32 ``(n, d)``, the customers' features.
        prices: ``(n,)``.
        densities: ``(n,)``, positive: the logging policy's density at its price.
        price_range: Lowest and highest price of the logging policy; infinite if unbounded.
    """

    features: Array
    prices: Array
    densities: Array
    rewards: Array
    reward_range: tuple[float, float]
    price_range: tuple[float, float] = NO_BOUNDS
    name: str = "log"

    kind: ClassVar[str] = "pricing"
    decide = staticmethod(draw_prices)
    estimators: ClassVar[Mapping[str, Estimator]] = {
        name: of for name, of in WEIGHTING.items() if "mips" not in name
    }
    usual: ClassVar[tuple[str, ...]] = ("ips", "snips", "dm", "dr", "sndr")
    options: ClassVar[tuple[str, ...]] = (*LIMITS, "kernel", "bandwidth")

    @classmethod
    def of_rounds(cls, made: Problem, c: Columns, least: float | None, name: str) -> PriceLog:
        return cls.from_arrays(
            c["features"], c["prices"], c["densities"], c["rewards"], made.info.reward_range,
            price_range=(0.0, 1.0), name=name,
        )  # fmt: skip

    def __post_init__(self) -> None:
        offered = validation.span("price_range", self.price_range, finite=False)
        ends = validation.span("reward_range", self.reward_range)
        x = features_of(self.features, 2)
        n = (len(x),)
        self._keep(
            features=x, price_range=offered, reward_range=ends,
            prices=values("prices", self.prices, n, *offered),
            densities=values("densities", self.densities, n, 0.0, positive=True),
            rewards=values("rewards", self.rewards, n, *ends),
        )  # fmt: skip

    def __repr__(self) -> str:
        n, d = self.features.shape
        return f"PriceLog({self.name!r}: {n:,} rounds, {d} features)"

    def target(self, policy: Agent | ArrayLike, samples: int) -> Array:
        """Return the target's prices ``(n,)``; a random agent draws one per round."""
        if isinstance(policy, Agent):
            policy = np.array([answer[0, 0] for answer in answers(policy, [self], 2)])
        return values("target", policy, (len(self),), *self.price_range)

    def inverse_propensities(self) -> tuple[Array, float, str] | None:
        low, high = self.price_range
        if not np.isfinite([low, high]).all():
            return None
        return 1.0 / self.densities, high - low, "the width of the range of prices"

    def predicted(self, target: Array, **model: Any) -> Array:
        """Return predicted rewards at the logged and at the target's prices ``(n, 2)``.

        Cross-fitted ridge regression on x, p, p^2, p x, and the square of the price times x,
        within the declared range. Reads raw rewards: **not private**. See `Log.ingredients` for
        `model`.
        """
        x = self.features.astype(np.float64)[:, None]
        p = np.stack([self.prices, target], axis=1)[:, :, None]
        columns = np.concatenate(
            [p, p * p, np.broadcast_to(x, (*p.shape[:2], x.shape[2])), p * x, p * p * x], axis=2
        )
        predictions = cross_fitted(columns[:, 0], self.rewards, columns, **model)
        return np.clip(predictions, *self.reward_range)

    def ingredients(
        self, target: Array, names: Sequence[str], q: ArrayLike | None, model: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Weighted:  # fmt: skip
        """See `Log.ingredients`; `q` is ``(n, 2)``: at the logged and at the target's prices."""
        n = len(self)
        predicted = np.zeros((n, 2))
        if q is not None:
            predicted = validation.array("q", q, (n, 2))
        elif any(name in NEEDS_MODEL for name in names):
            predicted = self.predicted(target, **model)
        kernel = options.get("kernel") or "epanechnikov"
        chosen: dict[str, float] = {}

        def weights(h: float) -> Array:
            log = (self.prices, self.densities, target)
            return kernel_weights(*log, h, kernel, self.price_range)

        h = options.get("bandwidth")
        if h is None:
            h = automatic_bandwidth(self.prices, self.rewards, weights)
            chosen["bandwidth"] = h
        return Weighted(
            weights(h), self.rewards, self.reward_range, predicted[:, 1], predicted[:, 0],
            limits=options, chosen=chosen,
        )  # fmt: skip


def automatic_bandwidth(prices: Array, rewards: Array, weights: Callable[[float], Array]) -> float:
    """Return the largest bandwidth that is consistent with all smaller ones (SLOPE).

    After Su, Srinath & Krishnamurthy (2020). Bandwidths grow from 1/64 of the spread of the prices
    by factors of sqrt 2. An interval is two standard errors around the self-normalised estimate.
    The result is the last bandwidth whose interval intersects those of all smaller ones.

    Args:
        prices: Logged prices ``(n,)``.
        rewards: ``(n,)``.
        weights: Kernel weights by bandwidth.
    """
    spread = float(prices.max() - prices.min()) or 1.0
    low = -np.inf
    high = np.inf
    best = spread
    for h in spread * 2.0 ** np.arange(-6, 0.25, 0.5):
        w = weights(float(h))
        if effective_sample_size(w) < LEAST_ROUNDS:
            continue
        one = Terms.ratio(w * rewards, w)
        value = one.value
        error = 2.0 * one.std_error
        if max(low, value - error) > min(high, value + error):
            break
        low = max(low, value - error)
        high = min(high, value + error)
        best = float(h)
    return best
