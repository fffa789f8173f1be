"""Accounting events: privacy losses of releases, as plain immutable data.

Each event states the privacy loss of one kind of release for one pair of neighbouring data sets.
Its sensitivity is the one of the guarantee's relation (for replace-one, the distance between two
records).

Every event has

* ``rdp(orders)``: a bound on the Renyi divergence at each order > 1, infinite where none is
  known,
* ``zcdp``: rho such that the divergence at every order is at most ``rho * order``, or `None`,
* ``pure``: epsilon of pure differential privacy, infinite if there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from dpb_gym import portable, state, validation
from dpb_gym.errors import ParameterError
from dpb_gym.validation import FloatArray

EVENT_TYPES: dict[str, type[Event]] = {}
_COUNTS = {"count": 1, "dim": 1, "categories": 2, "coins": 1}
_POSITIVE = ("sigma", "scale", "epsilon", "delta", "q", "ratio")
_NOT_NEGATIVE = ("rho", "xi", "sensitivity", "output_mu")


@dataclass(frozen=True)
class Event:
    """Base of the accounting events; see the module's docstring."""

    kind: ClassVar[str] = ""
    gaussian_mu: ClassVar[float | None] = None
    _most: ClassVar[dict[str, float]] = {"delta": 1.0, "q": 1.0}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        state.register_plain(cls)
        # by kind, so that certificates name no class
        EVENT_TYPES[cls.kind] = cls

    def __post_init__(self) -> None:
        for name in list(vars(self)):
            if name in _COUNTS:
                validation.settle(self, name, validation.integer, _COUNTS[name])
            elif name in (*_POSITIVE, *_NOT_NEGATIVE):
                ends = 0.0, self._most.get(name, math.inf)
                open_ends = {"open_low": name in _POSITIVE, "open_high": name == "delta"}
                validation.settle(self, name, validation.real, *ends, **open_ends)

    def rdp(self, orders: FloatArray) -> FloatArray:
        """Return a bound on the Renyi divergence at each order (> 1); infinite if none is known."""
        return np.full(orders.shape, math.inf)

    @property
    def zcdp(self) -> float | None:
        """rho, or `None` if no zCDP bound is known."""
        return None

    @property
    def pure(self) -> float:
        """Epsilon of pure differential privacy; infinite if there is none."""
        return math.inf

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain JSON values."""
        return {"kind": self.kind, **{f.name: getattr(self, f.name) for f in fields(self)}}


@dataclass(frozen=True)
class GaussianEvent(Event):
    """`count` releases of a value of 2-norm sensitivity `sensitivity` plus N(0, sigma^2 I).

    Renyi divergence ``count * order * sensitivity^2 / (2 sigma^2)``; Gaussian differential
    privacy with ``mu = sqrt(count) * sensitivity / sigma`` (Dong, Roth & Su 2022), which is
    exact, also under adaptive composition.

    Attributes:
        sigma: Standard deviation of the noise per coordinate.
        sensitivity: Largest 2-norm distance between the values on neighbouring data sets.
        count: Number of such releases that one record can affect.
    """

    kind: ClassVar[str] = "gaussian"
    sigma: float
    sensitivity: float = 1.0
    count: int = 1

    @property
    def gaussian_mu(self) -> float:  # type: ignore[override]
        """mu of Gaussian differential privacy."""
        return math.sqrt(self.count) * self.sensitivity / self.sigma

    def rdp(self, orders: FloatArray) -> FloatArray:
        return 0.5 * self.gaussian_mu**2 * orders

    @property
    def zcdp(self) -> float:
        return 0.5 * self.count * (self.sensitivity / self.sigma) ** 2


@dataclass(frozen=True)
class ZCDPEvent(Event):
    """A release whose Renyi divergence is at most ``xi + rho * order`` at every order.

    Bun & Steinke's (xi, rho)-zCDP.
    """

    kind: ClassVar[str] = "zcdp"
    rho: float
    xi: float = 0.0

    def rdp(self, orders: FloatArray) -> FloatArray:
        return self.xi + self.rho * orders

    @property
    def zcdp(self) -> float:
        return self.xi + self.rho


def randomised_response_rdp(epsilon: float, categories: int, orders: FloatArray) -> FloatArray:
    """Return the exact Renyi divergence of k-ary randomised response at each order."""
    k = categories
    a = orders
    # logarithms of the probabilities of the true answer and of each other one
    keep = -portable.log1p((k - 1) * portable.exp(-epsilon))
    other = keep - epsilon
    total = np.logaddexp(a * keep + (1 - a) * other, a * other + (1 - a) * keep)
    if k > 2:
        # answers that are true in neither of the two worlds
        total = np.logaddexp(total, portable.log(k - 2) + other)
    return np.maximum(total / (a - 1), 0.0)


def zcdp_of_pure(epsilon: float, count: int) -> float:
    """Return rho of `count` epsilon-DP releases (Bun & Steinke 2016, Proposition 1.4)."""
    return 0.5 * count * epsilon**2


@dataclass(frozen=True)
class PureEvent(Event):
    """`count` releases of an epsilon-differentially private mechanism.

    The worst such mechanism is binary randomized response with the same epsilon, which
    dominates it under every divergence used here.
    """

    kind: ClassVar[str] = "pure"
    categories: ClassVar[int] = 2  # of the worst mechanism
    epsilon: float
    count: int = 1

    @property
    def pure(self) -> float:
        return self.count * self.epsilon

    @property
    def zcdp(self) -> float:
        return zcdp_of_pure(self.epsilon, self.count)

    def rdp(self, orders: FloatArray) -> FloatArray:
        return self.count * randomised_response_rdp(self.epsilon, 2, orders)


@dataclass(frozen=True)
class RandomizedResponseEvent(Event):
    """`count` answers of k-ary randomized response.

    The answer is the true one with probability ``e^eps / (e^eps + categories - 1)``, otherwise
    uniform over the other answers.
    """

    kind: ClassVar[str] = "randomized-response"
    epsilon: float
    categories: int = 2
    count: int = 1

    @property
    def pure(self) -> float:
        return self.count * self.epsilon

    @property
    def zcdp(self) -> float:
        return zcdp_of_pure(self.epsilon, self.count)

    def rdp(self, orders: FloatArray) -> FloatArray:
        return self.count * randomised_response_rdp(self.epsilon, self.categories, orders)


@dataclass(frozen=True)
class LaplaceEvent(Event):
    """`count` releases of a number of sensitivity `sensitivity` plus Laplace(scale) noise."""

    kind: ClassVar[str] = "laplace"
    scale: float
    sensitivity: float = 1.0
    count: int = 1

    @property
    def epsilon(self) -> float:
        """Epsilon of one release."""
        return self.sensitivity / self.scale

    @property
    def pure(self) -> float:
        return self.count * self.epsilon

    @property
    def zcdp(self) -> float:
        return zcdp_of_pure(self.epsilon, self.count)

    def rdp(self, orders: FloatArray) -> FloatArray:
        """Return the exact Renyi divergence (Mironov 2017, Proposition 6)."""
        a = orders
        ratio = self.epsilon
        # in logarithms: e^(a epsilon) overflows at the orders of the accountant
        near = np.log(a / (2 * a - 1)) + (a - 1) * ratio
        far = np.log((a - 1) / (2 * a - 1)) - a * ratio
        divergence: FloatArray = self.count * np.logaddexp(near, far) / (a - 1)
        return np.maximum(divergence, 0.0)


@dataclass(frozen=True)
class PoissonGaussianEvent(Event):
    """`count` Gaussian releases, each over a fresh Poisson sample of the records.

    Attributes:
        q: Probability with which each record enters the sample, in (0, 1].
        sigma: Standard deviation of the noise per coordinate, before any rescaling by 1/q.
        sensitivity: Largest distance between the contributions of two records.
        count: Number of such releases that one record can affect.
        pair: ``"zero-out"`` if every contribution, like its distance to every other, has norm
            at most `sensitivity` (a reward in [0, 1] times a public unit vector);
            ``"symmetric"`` if contributions lie in a ball of radius ``sensitivity / 2`` (two
            records can be opposite).
    """

    kind: ClassVar[str] = "poisson-gaussian"
    q: float
    sigma: float
    sensitivity: float = 1.0
    count: int = 1
    pair: str = "zero-out"

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.settle(self, "sensitivity", validation.real, 0.0, open_low=True)
        if self.pair not in ("zero-out", "symmetric"):
            raise ParameterError(f"pair must be 'zero-out' or 'symmetric'; got {self.pair!r}")

    @property
    def zcdp(self) -> float:
        """rho without sampling: conditionally on the sampling bits the release is Gaussian."""
        return 0.5 * self.count * (self.sensitivity / self.sigma) ** 2


@dataclass(frozen=True)
class ShuffledBitsEvent(Event):
    """`count` shuffled batches of randomised-response bits and fair coins.

    Renyi divergence at most ``count * order * (epsilon * sensitivity)^2 / (2 coins)`` at every
    order, proved in docs/privacy.md for epsilon up to 2.39. If one bit is exchanged among N
    bits, all others fair, that is epsilon^2 / 2 of randomised response divided by N.

    Attributes:
        epsilon: Epsilon of one bit's randomised response.
        coins: Fair coins per batch and coordinate.
        sensitivity: 2-norm, over coordinates, of the numbers of bits in which neighbours differ.
        count: Number of such batches that one record can affect.
    """

    kind: ClassVar[str] = "shuffled-bits"
    epsilon: float
    coins: int
    sensitivity: float
    count: int = 1
    _most: ClassVar[dict[str, float]] = {"epsilon": 2.39}

    def rdp(self, orders: FloatArray) -> FloatArray:
        return self.zcdp * orders

    @property
    def zcdp(self) -> float:
        return 0.5 * self.count * (self.epsilon * self.sensitivity) ** 2 / self.coins


@dataclass(frozen=True)
class ApproxEvent(Event):
    """`count` releases of an (epsilon, delta)-differentially private mechanism."""

    kind: ClassVar[str] = "approx"
    epsilon: float
    delta: float
    count: int = 1


@dataclass(frozen=True)
class SelectionEvent(Event):
    """The best of a geometric number of runs on the same records, each of them `rho`-zCDP.

    Only the best run's output is released. With L = log(runs), the Renyi divergence at order a is
    at most ``rho a + 2 min(2 sqrt(rho L) - rho, L) + L / (a - 1)`` (Papernot & Steinke 2022,
    Theorem 2 at eta = 1, gamma = 1 / runs and the best order lambda-hat).

    Attributes:
        rho: zCDP of one run.
        runs: Mean number of runs, > 1.
    """

    kind: ClassVar[str] = "selection"
    rho: float
    runs: float

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.settle(self, "runs", validation.real, 1.0, open_low=True)

    def rdp(self, orders: FloatArray) -> FloatArray:
        """Return the bound, at a larger order where that is smaller."""
        L, rho = portable.log(self.runs), max(self.rho, 1e-300)
        # the divergence grows in the order, so that of a larger order is a bound as well
        a = np.maximum(orders, 1.0 + math.sqrt(L / rho))
        return rho * a + 2.0 * (2.0 * math.sqrt(rho * L) - rho if rho < L else L) + L / (a - 1.0)

    @property
    def zcdp(self) -> float:
        """The divergence at small orders, where it does not depend on the order."""
        return float(self.rdp(np.array([1.0]))[0])
