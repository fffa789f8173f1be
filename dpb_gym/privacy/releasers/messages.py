"""Messages that customers randomise themselves: mechanisms of local privacy.

Each is a pair of pure functions: `of` makes the message of a row, and `row` reads it again. Its law
is `log_density`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpb_gym import kernels, portable, state
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.validation import FloatArray

# parts of epsilon for the probability of the cap
SPLITS = np.linspace(0.0, 1.0, 65)

# A larger epsilon is not used: p and q would be 1 in floating point.
MOST_EPSILON = 30.0


@state.register
@dataclass(frozen=True)
class GaussianMessage:
    """The row plus N(0, sigma^2 I).

    Attributes:
        sigma: Standard deviation per coordinate.
    """

    sigma: float

    def of(self, rows: FloatArray, noise: NoiseSource) -> FloatArray:
        """Return messages ``(B, n)`` of rows ``(B, n)``."""
        return rows + noise.gaussian(self.sigma, rows.shape[1])

    def log_density(self, sent: FloatArray, rows: FloatArray) -> FloatArray:
        """Return the log-densities ``(B,)`` of messages given rows, up to a constant."""
        return np.asarray(-0.5 * ((sent - rows) ** 2).sum(axis=1) / self.sigma**2)

    def width(self, numbers: int) -> int:
        """Return the length of a message of a row of so many numbers."""
        return numbers

    def bounds(self, longest: float) -> tuple[float, float]:
        """Return a range that a message leaves with probability below 1e-30."""
        reach = longest + portable.NORMAL_BOUND * self.sigma
        return -reach, reach

    def row(self, messages: FloatArray) -> FloatArray:
        """Return what messages add to the sum of a batch."""
        return messages

    def released(self, total: FloatArray, devices: int) -> FloatArray:
        """Return the release of a batch from the sum of its messages, which have all the noise."""
        return total


@state.register
@dataclass(frozen=True)
class CapMessage:
    """PrivUnitG (Asi, Feldman & Talwar 2022): a pure epsilon-private message of any row.

    One more coordinate makes the norm of the row R. The message of R v is R U / m: U is standard
    normal, except that <U, v> is in the cap [gamma, infinity) with probability p instead of
    1 - q = P[N >= gamma]. Relation: any two rows of norm at most R. Their densities differ by at
    most the factor (p / (1 - q)) / ((1 - p) / q) = e^epsilon. The message is unbiased for
    m = phi(gamma) (p / (1 - q) - (1 - p) / q), and its standard deviation is R / m in the
    directions orthogonal to v, and less along v. p and q are those of `SPLITS` with the largest m.
    For rows of norm 0.71 at distance 1 and delta = 1e-5, its variance is 0.23 of the Gaussian's at
    epsilon = 1, and 0.18 of it at epsilon = 5.

    Attributes:
        epsilon: epsilon of pure differential privacy.
        radius: R.
        inside: p, probability of the cap.
        below: q, probability that a standard normal is below the cap.
        start: gamma.
        scale: m.
    """

    epsilon: float
    radius: float
    inside: float
    below: float
    start: float
    scale: float

    @classmethod
    @lru_cache(maxsize=64)
    def best(cls, epsilon: float, radius: float) -> CapMessage:
        """Return the message with the least variance, for epsilon > 0."""
        epsilon = min(epsilon, MOST_EPSILON)
        candidates = []
        # a grid, because the scale as a function of the split has no closed-form maximum
        for part in SPLITS.tolist():
            p, q = (1.0 / (1.0 + portable.exp(-x * epsilon)) for x in (part, 1.0 - part))
            start = float(kernels.elementary.normal_of(q))
            density = float(kernels.elementary.normal_density(start))
            # m, the mean of <U, v>: dividing by it makes the message unbiased
            scale = density * (p / (1.0 - q) - (1.0 - p) / q)
            candidates.append(cls(epsilon, radius, p, q, start, scale))
        return max(candidates, key=lambda message: message.scale)

    @property
    def sigma(self) -> float:
        """Standard deviation of the message orthogonal to the row."""
        return self.radius / self.scale if self.scale else math.inf

    def _units(self, rows: FloatArray) -> FloatArray:
        # v: the row with one more coordinate, so that all rows are on one sphere
        rest = np.sqrt(np.maximum(0.0, self.radius**2 - (rows * rows).sum(axis=1)))
        return np.concatenate([rows, rest[:, None]], axis=1) / self.radius

    def of(self, rows: FloatArray, noise: NoiseSource) -> FloatArray:
        """Return messages ``(B, n + 1)`` of rows ``(B, n)``; the last coordinate has no use."""
        return self.from_normals(rows, noise.normal(rows.shape[1] + 2))

    def from_normals(self, rows: FloatArray, drawn: FloatArray) -> FloatArray:
        """Return messages as `of`, from standard normals ``(B, n + 2)``."""
        units = self._units(rows)
        normals = drawn[:, :-1]
        along = (normals * units).sum(axis=1)
        level = portable.each(kernels.elementary.normal_cdf, along)
        coin = portable.each(kernels.elementary.normal_cdf, drawn[:, -1])
        # conditioned on its side, a normal is the quantile of a uniform number on that side
        capped = self.below + (1.0 - self.below) * level
        level = np.where(coin < self.inside, capped, self.below * level)
        # below 1, whose quantile is infinite
        aimed = portable.each(kernels.elementary.normal_of, np.minimum(level, 1.0 - 2.0**-53))
        return np.asarray(self.sigma * (normals + (aimed - along)[:, None] * units))

    def log_density(self, sent: FloatArray, rows: FloatArray) -> FloatArray:
        """Return the log-densities ``(B,)`` of messages given rows, up to a constant."""
        along = (sent * self._units(rows)).sum(axis=1) / self.sigma
        # the normal density is that of every row; only the side of the cap tells rows apart
        return np.where(along >= self.start, self.epsilon, 0.0)

    def width(self, numbers: int) -> int:
        """Return the length of a message of a row of so many numbers."""
        return numbers + 1

    def bounds(self, longest: float) -> tuple[float, float]:
        """Return a range that a message leaves with probability below 1e-30."""
        reach = longest + portable.NORMAL_BOUND * self.sigma
        return -reach, reach

    def row(self, messages: FloatArray) -> FloatArray:
        """Return what messages add to the sum of a batch."""
        return messages[:, :-1]

    def released(self, total: FloatArray, devices: int) -> FloatArray:
        """Return the release of a batch from the sum of its messages, which have all the noise."""
        return total


@state.register
@dataclass(frozen=True)
class SignMessage:
    """One of two numbers, c or -c: an epsilon-private message of a number in [-h, h].

    c = h coth(epsilon / 2), and c has probability (1 + x / c) / 2 for the number x, which is
    (1 + tanh(epsilon / 2)) / 2 at most. Relation: any two numbers in the range. For h and -h it is
    randomised response.

    Attributes:
        epsilon: epsilon of pure differential privacy.
        half: h.
        height: c.
    """

    epsilon: float
    half: float
    height: float

    @classmethod
    def of_range(cls, epsilon: float, half: float) -> SignMessage:
        """Return the message for numbers in [-half, half]."""
        epsilon = min(epsilon, MOST_EPSILON)
        small = portable.exp(-epsilon)
        return cls(epsilon, half, half * (1.0 + small) / (1.0 - small))

    @property
    def sigma(self) -> float:
        """What the message adds to the standard deviation h, the largest one of a number."""
        return math.sqrt(self.height**2 - self.half**2)

    def of(self, rows: FloatArray, noise: NoiseSource) -> FloatArray:
        """Return messages ``(B, 1)`` of numbers ``(B, 1)``."""
        # of normals, so that every message draws the same kind of number from its generator
        uniform = portable.each(kernels.elementary.normal_cdf, noise.normal(1))
        # unbiased: the mean of the two heights is the number
        positive = uniform < 0.5 * (1.0 + rows / self.height)
        return np.where(positive, self.height, -self.height)

    def log_density(self, sent: FloatArray, rows: FloatArray) -> FloatArray:
        """Return the log-probabilities ``(B,)`` of messages given numbers, up to a constant."""
        return portable.each(portable.log1p, (rows * np.sign(sent))[:, 0] / self.height)

    def width(self, numbers: int) -> int:
        """Return the length of a message of a row of so many numbers."""
        return 1

    def bounds(self, longest: float) -> tuple[float, float]:
        """Return a range that a message leaves with probability below 1e-30."""
        return -self.height, self.height

    def row(self, messages: FloatArray) -> FloatArray:
        """Return what messages add to the sum of a batch."""
        return messages

    def released(self, total: FloatArray, devices: int) -> FloatArray:
        """Return the release of a batch from the sum of its messages, which have all the noise."""
        return total


LocalMessage = GaussianMessage | CapMessage | SignMessage
