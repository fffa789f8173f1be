"""Messages that customers randomise themselves, mechanisms of local privacy, and their sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import kernels, portable, state, validation
from dpb_gym.errors import BudgetError
from dpb_gym.privacy.calibration import fit_rho, gaussian_sigma
from dpb_gym.privacy.events import Event, PureEvent
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.disjoint_sum import DisjointSum, Messages
from dpb_gym.privacy.releasers.record_bounds import Segment
from dpb_gym.privacy.releasers.release_schedule import ReleaseModel, Schedule
from dpb_gym.privacy.releasers.weighted_sum import Plan
from dpb_gym.validation import FloatArray

SPLITS = np.linspace(0.0, 1.0, 65)  # parts of epsilon for the probability of the cap
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
        epsilon, found = min(epsilon, MOST_EPSILON), []
        for part in SPLITS.tolist():
            p, q = (1.0 / (1.0 + portable.exp(-x * epsilon)) for x in (part, 1.0 - part))
            start = float(kernels.elementary.normal_of(q))
            density = float(kernels.elementary.normal_density(start))
            scale = density * (p / (1.0 - q) - (1.0 - p) / q)
            found.append(cls(epsilon, radius, p, q, start, scale))
        return max(found, key=lambda message: message.scale)

    @property
    def sigma(self) -> float:
        """Standard deviation of the message orthogonal to the row."""
        return self.radius / self.scale

    def _units(self, rows: FloatArray) -> FloatArray:
        rest = np.sqrt(np.maximum(0.0, self.radius**2 - (rows * rows).sum(axis=1)))
        return np.concatenate([rows, rest[:, None]], axis=1) / self.radius

    def of(self, rows: FloatArray, noise: NoiseSource) -> FloatArray:
        """Return messages ``(B, n + 1)`` of rows ``(B, n)``; the last coordinate has no use."""
        return self.from_normals(rows, noise.normal(rows.shape[1] + 2))

    def from_normals(self, rows: FloatArray, drawn: FloatArray) -> FloatArray:
        """Return messages as `of`, from standard normals ``(B, n + 2)``."""
        units = self._units(rows)
        normals, coin = drawn[:, :-1], drawn[:, -1]
        along = (normals * units).sum(axis=1)
        level, coin = (portable.each(kernels.elementary.normal_cdf, x) for x in (along, coin))
        # conditioned on its side, a normal is the quantile of a uniform number on that side
        capped = self.below + (1.0 - self.below) * level
        level = np.where(coin < self.inside, capped, self.below * level)
        aimed = portable.each(kernels.elementary.normal_of, np.minimum(level, 1.0 - 2.0**-53))
        return np.asarray(self.sigma * (normals + (aimed - along)[:, None] * units))

    def log_density(self, sent: FloatArray, rows: FloatArray) -> FloatArray:
        """Return the log-densities ``(B,)`` of messages given rows, up to a constant."""
        along = (sent * self._units(rows)).sum(axis=1) / self.sigma
        return np.where(along >= self.start, self.epsilon, 0.0)


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
        uniform = portable.each(kernels.elementary.normal_cdf, noise.normal(1))
        positive = uniform < 0.5 * (1.0 + rows / self.height)
        return np.where(positive, self.height, -self.height)

    def log_density(self, sent: FloatArray, rows: FloatArray) -> FloatArray:
        """Return the log-probabilities ``(B,)`` of messages given numbers, up to a constant."""
        return portable.each(portable.log1p, (rows * np.sign(sent))[:, 0] / self.height)


LocalMessage = GaussianMessage | CapMessage | SignMessage


class LocalSum(DisjointSum):
    """Sums of messages that each customer randomises on their own device; no one is trusted.

    A message is a `GaussianMessage` of the row or a `CapMessage`, whichever has less noise within
    the budget. If only rewards are protected, the direction is public. Then the message is of the
    number alone: a `GaussianMessage` or a `SignMessage`.

    Relation: replace-one. Sensitivity of a Gaussian message: the distance of two rows, as for the
    other sums; if all rounds of a user are protected, k^(1/2) times that for the `limit` k of the
    user's messages. The other messages are private for any two rows.

    Args:
        **options: Parameters of `WeightedSum`. Records need `clip` or `reward`.

    Attributes:
        sigma: Standard deviation of the noise of a message, per coordinate.
        sent: Newest messages ``(B, n)``, or None.
    """

    evolves: ClassVar[tuple[str, ...]] = ("sent", "_along")
    per_record = True
    sent: Messages | None = None

    def _planned(self, schedule: Plan, model: ReleaseModel | None) -> Schedule:
        budget, clip, times = self.curator.budget, self.clip, self.records_per_unit
        if clip is None or budget is None or self.curator.relation != "replace-one":
            raise BudgetError(f"{self.what}: local records need clip or reward, and replace-one")
        self._numbers = None
        if isinstance(clip, Segment) and self.curator.unit == "reward":
            self._numbers = clip
        self.gain = 1.0 / math.sqrt(times)
        normal = gaussian_sigma(self.curator.most_rho * self._part, self.sensitivity * self.gain)
        self._likely = normal
        if (budget.epsilon or 0.0) <= MOST_EPSILON:
            pure = fit_rho(budget, lambda rho: [self._pure_event(rho)]) * self._part
            self._likely = min(normal, self._pure_message(pure).sigma)
        self.pure = self._likely < normal
        if self.pure:
            self.proviso = ""  # rests on no distance of two rows
        if model is not None and self._numbers:
            spread = model.spread + self._likely**2 / model.rate
            model = replace(model, spread=spread, unit_noise=0.0)
        return super()._planned(schedule, model)

    def _likely_sigma(self) -> float:
        return self._likely

    def _pure_event(self, rho: float) -> PureEvent:
        times = self.records_per_unit
        return PureEvent(math.sqrt(2.0 * rho / times), times)

    def _pure_message(self, rho: float) -> CapMessage | SignMessage:
        epsilon = self._pure_event(rho).epsilon
        if self._numbers:
            return SignMessage.of_range(epsilon, 0.5 * (self._numbers.high - self._numbers.low))
        assert self.clip is not None
        return CapMessage.best(epsilon, self.clip.longest)

    def cost(self, rho: float) -> Event:
        return self._pure_event(rho) if self.pure else super().cost(rho)

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        if not self.pure:
            return super()._scales(rho)
        return self._pure_message(rho).sigma, 0.0, self._pure_event(rho)

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        super().open(rho, noise)
        assert rho is not None  # a curator without a budget makes other sums
        self._mechanism: LocalMessage = GaussianMessage(self._sigma)
        if self.pure:
            self._mechanism = self._pure_message(rho)

    @property
    def noise_std(self) -> float:
        return 0.0 if self._numbers else super().noise_std

    @property
    def record_std(self) -> float:
        return self.sigma if self._numbers else 0.0

    @property
    def message_width(self) -> int:
        width = 1 if self._numbers else self.shape.width
        return width + isinstance(self._mechanism, CapMessage)

    @property
    def message_range(self) -> tuple[float, float]:
        message = self._mechanism
        if isinstance(message, SignMessage):
            return -message.height, message.height
        assert self.clip is not None
        reach = self.clip.longest + portable.NORMAL_BOUND * message.sigma
        return -reach, reach

    def message(self, rows: FloatArray) -> Messages:
        return self._mechanism.of(rows, self._noise)

    def log_density(self, sent: FloatArray) -> FloatArray:
        """Return the log-densities ``(B,)`` of messages given the newest records."""
        return self._mechanism.log_density(sent, self._own)

    def receive(self, messages: Messages) -> None:
        self.sent = messages
        self._total += self._row(messages)

    def _row(self, rows: FloatArray) -> FloatArray:
        if not self._numbers:
            return np.asarray(rows[:, : self.shape.width])
        # a message can exceed the range of its number; the direction has norm at most 1
        norms = np.sqrt((self._along**2).sum(axis=1, keepdims=True))
        middle = 0.5 * (self._numbers.low + self._numbers.high)
        return np.asarray((rows + middle) * self._along / np.maximum(1.0, norms))

    def _add(self, records: ArrayLike, along: ArrayLike | None) -> None:
        clip = self._numbers
        if not clip:
            super()._add(records, along)
            return
        values = validation.array("values", records, (self.replicates,))
        self._along = validation.array("directions", along, (self.replicates, self.shape.width))
        self._check_room(1)
        self._ends(self._along)
        numbers = np.minimum(np.maximum(values, clip.low), clip.high) - 0.5 * (clip.low + clip.high)
        # without a direction the message says nothing about the number
        self._own = np.where(self._along.any(axis=1), numbers, 0.0)[:, None]
        self.rounds += 1
        self._send(self._own)
