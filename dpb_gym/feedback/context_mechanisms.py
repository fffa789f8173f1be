"""Local mechanisms for contexts and for sufficient statistics."""

from __future__ import annotations

import itertools
import math
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels, portable, validation
from dpb_gym.errors import ParameterError
from dpb_gym.feedback.local_mechanisms import NORMAL, RANGE, LocalMechanism
from dpb_gym.privacy import Budget, CapMessage, Event, GaussianEvent, PureEvent
from dpb_gym.privacy import plain_plans as plain
from dpb_gym.privacy.calibration import calibrate_scale, equivalent_rho, gaussian_sigma
from dpb_gym.validation import FloatArray


class GaussianContexts(LocalMechanism):
    """Feature vectors, clipped to the unit ball, plus N(0, sigma^2 I).

    Two users may differ in all `vectors` feature vectors, each by up to 2. So one message costs as
    much as `vectors` Gaussian releases of sensitivity 2.

    The guarantee covers contexts only. If the response is also sent, it needs a private response
    mechanism, too (see `dpb_gym.feedback.PrivateContexts`).

    Args:
        sigma: Standard deviation per coordinate, positive.
        vectors: Feature vectors of one user-round (pricing 1, assortment N, recommendation m).
        dim: Length of each vector.
    """

    numbers = NORMAL
    unit: ClassVar[str] = "user-round"

    def __init__(self, sigma: float, vectors: int, dim: int) -> None:
        self.sigma = validation.real("sigma", sigma, 0.0, open_low=True)
        self.vectors = validation.integer("vectors", vectors, 1)
        self.dim = validation.integer("dim", dim, 1)
        self.width = self.vectors * self.dim
        self.event = GaussianEvent(self.sigma, 2.0, self.vectors)

    @classmethod
    def for_budget(cls, budget: Budget, vectors: int, dim: int) -> Self:
        """Return the mechanism with the least noise within a budget."""
        return cls(gaussian_sigma(equivalent_rho(budget), 2.0, vectors), vectors, dim)

    @property
    def bound(self) -> float:
        """Upper bound on the coordinates of a message (12 standard deviations, by clamping)."""
        return float(np.float32(1.0 + portable.NORMAL_BOUND * self.sigma))

    def privatise(self, features: ArrayLike, numbers: ArrayLike) -> NDArray[np.float32]:
        """Return messages, float32, in the shape of `features`.

        Args:
            features: ``(B, vectors, dim)`` or, for a single vector, ``(B, dim)``.
            numbers: Standard normals ``(B, vectors * dim)``.

        Raises:
            ParameterError: On a wrong shape, NaN or infinity.
        """
        with np.errstate(over="ignore"):
            given = validation.numbers("features", features).astype(np.float32, order="C")
        B = len(given) if given.ndim else 0
        if given.size != B * self.width or given.shape[-1:] != (self.dim,):
            raise ParameterError(
                f"features must have shape (replicates, {self.vectors}, {self.dim}), "
                f"got {given.shape}"
            )
        if not np.isfinite(given).all():
            raise ParameterError("features must be finite, got NaN or infinity")
        clipped = given.reshape(-1, self.dim)
        kernels.feature_rows.normalise(clipped, kernels.feature_rows.CLIP)
        noise = self._noise(numbers, B).reshape(clipped.shape)
        kernels.feature_rows.perturb(clipped, self.sigma, noise, np.float32(self.bound))
        return given


def statistics_sensitivity(low: float, high: float) -> float:
    """Return the sensitivity of (x x', r x): the largest distance between two records.

    For ||x||, ||x'|| <= 1 with inner product c and rewards r, s in [low, high] the squared
    distance is at most ``2 (1 - c^2) + r^2 + s^2 - 2 r s c``, largest at c = -r s / 2: 4.5 for
    rewards in [0, 1] (not at orthogonal features, where it is 4, nor the 6 that adding the two
    worst cases gives), 2.53 for rewards centred at 1/2.
    """
    squares = []
    for r, s in itertools.product((low, high), repeat=2):
        c = max(-1.0, min(1.0, -0.5 * r * s))
        squares.append(2.0 * (1.0 - c * c) + r * r + s * s - 2.0 * r * s * c)
    return math.sqrt(max(squares))


class GaussianStatistics(LocalMechanism):
    """The statistics x x' and r x of one round as one stacked Gaussian message.

    x is the feature vector of the recommended candidate, clipped to the unit ball; r is the
    reward, clipped to [low, high]. A server that sums messages can run any linear bandit on them
    (as in Zheng, Cai, Huang, Li & Wang 2020, who add two worst cases; the stacked sensitivity
    here is exact). The symmetric matrix gets GOE noise: off-diagonal variance half of the
    diagonal's.

    Args:
        sigma: Standard deviation, positive.
        dim: Dimension d.
        low: Lowest reward.
        high: Highest reward.
    """

    numbers = NORMAL
    unit: ClassVar[str] = "user-round"

    def __init__(self, sigma: float, dim: int, low: float = 0.0, high: float = 1.0) -> None:
        self.sigma = validation.real("sigma", sigma, 0.0, open_low=True)
        self.dim = validation.integer("dim", dim, 1)
        self.low, self.high = validation.span("(low, high)", (low, high))
        self.sensitivity = statistics_sensitivity(self.low, self.high)
        self.event: Event = GaussianEvent(self.sigma, self.sensitivity)
        self.width = self.dim * (self.dim + 1) // 2 + self.dim

    @classmethod
    def for_budget(cls, budget: Budget, dim: int, low: float = 0.0, high: float = 1.0) -> Self:
        """Return the mechanism with the least noise within a budget."""
        sigma = gaussian_sigma(equivalent_rho(budget), statistics_sensitivity(low, high))
        return cls(sigma, dim, low, high)

    def privatise(
        self, features: ArrayLike, rewards: ArrayLike, numbers: ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        """Return messages: noisy x x' ``(B, d, d)`` and noisy r x ``(B, d)``.

        Args:
            features: x, ``(B, d)``.
            rewards: r, ``(B,)``.
            numbers: Standard normals ``(B, width)``.

        Raises:
            ParameterError: On a wrong shape, NaN or infinity.
        """
        given = validation.array("features", features, (None, self.dim))
        gram = np.empty((len(given), self.dim, self.dim))
        response = np.empty(given.shape)
        rows = self.rows(given, rewards, self._noise(numbers, len(given)))
        kernels.regression_records.unfold(rows, gram, response)
        return gram, response

    def rows(self, features: FloatArray, rewards: ArrayLike, numbers: FloatArray) -> FloatArray:
        """Return the messages as rows ``(B, width)``, which can be summed.

        A row contains the upper triangle of x x', row by row, then r x.
        `dpb_gym.kernels.regression_records.unfold` converts rows to matrices. Features and numbers
        are not checked and must be finite.
        """
        given = validation.array("rewards", rewards, (len(features),))
        r = np.minimum(np.maximum(given, self.low), self.high)
        out = np.empty_like(numbers)
        kernels.regression_records.statistics(features[:, None, :], r, self.sigma, numbers, out)
        return out


class CapStatistics(GaussianStatistics):
    """The statistics x x' and r x of one round as one `CapMessage`: pure epsilon-DP.

    At epsilon = 1 and delta = 1e-5 its noise has 0.22 of the variance of `GaussianStatistics`, for
    rewards in [-1/2, 1/2]. Local budgets of agents (``@local``) choose the same message.

    Args:
        epsilon: epsilon, positive; at most 30 of it are used.
        dim: Dimension d.
        low: Lowest reward.
        high: Highest reward.
    """

    def __init__(self, epsilon: float, dim: int, low: float = 0.0, high: float = 1.0) -> None:
        self.epsilon = validation.real("epsilon", epsilon, 0.0, open_low=True)
        # |x x'|^2 + |r x|^2 for |x| = 1
        radius = math.sqrt(1.0 + max(low * low, high * high))
        self._message = CapMessage.best(self.epsilon, radius)
        super().__init__(self._message.sigma, dim, low, high)
        self.event = PureEvent(self.epsilon)
        # entries off the diagonal count twice in the norm of x x'
        lengths = np.full((self.dim, self.dim), math.sqrt(2.0))
        np.fill_diagonal(lengths, 1.0)
        self._lengths = np.concatenate([lengths[np.triu_indices(self.dim)], np.ones(self.dim)])
        self.width += 2  # the message's additional coordinate and the coin

    @classmethod
    def for_budget(cls, budget: Budget, dim: int, low: float = 0.0, high: float = 1.0) -> Self:
        """Return the mechanism with the least noise within a budget."""
        return cls(1.0 / calibrate_scale(budget, lambda s: [PureEvent(1.0 / s)]), dim, low, high)

    def rows(self, features: FloatArray, rewards: ArrayLike, numbers: FloatArray) -> FloatArray:
        exact = super().rows(features, rewards, np.zeros((len(features), len(self._lengths))))
        sent = self._message.from_normals(exact * self._lengths, numbers)[:, :-1]
        return np.asarray(sent / self._lengths)


SIDE = plain.integer(1, 1 << 13)
plain.describe_argument(
    GaussianContexts,
    {"sigma": plain.positive, "vectors": plain.integer(1, 1 << 20), "dim": plain.width},
)
plain.describe_argument(GaussianStatistics, {"sigma": plain.positive, "dim": SIDE, **RANGE})
plain.describe_argument(CapStatistics, {"epsilon": plain.positive, "dim": SIDE, **RANGE})
