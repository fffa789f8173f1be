"""Sums of messages that customers randomise themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import portable, validation
from dpb_gym.errors import BudgetError
from dpb_gym.privacy.calibration import fit_rho, gaussian_sigma
from dpb_gym.privacy.events import Event, PureEvent
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers import local_messages
from dpb_gym.privacy.releasers.disjoint_sum import DisjointSum, Messages
from dpb_gym.privacy.releasers.local_messages import CapMessage, GaussianMessage, SignMessage
from dpb_gym.privacy.releasers.record_bounds import Segment
from dpb_gym.privacy.releasers.release_schedule import ReleaseModel, Schedule
from dpb_gym.validation import FloatArray


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

    per_record = True
    sent: Messages | None = None

    def _planned(
        self, schedule: Schedule | Callable[[float], Schedule], model: ReleaseModel | None
    ) -> Schedule:
        budget, clip, times = self.curator.budget, self.clip, self.records_per_unit
        if clip is None or budget is None or self.curator.relation != "replace-one":
            raise BudgetError(f"{self.what}: local records need clip or reward, and replace-one")
        self._numbers = None
        if isinstance(clip, Segment) and self.curator.unit == "reward":
            self._numbers = clip
        self.gain = 1.0 / math.sqrt(times)
        normal = gaussian_sigma(self.curator.most_rho * self._part, self.sensitivity * self.gain)
        self._likely = normal
        if (budget.epsilon or 0.0) <= local_messages.MOST_EPSILON:
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
        self._mechanism: local_messages.LocalMessage = GaussianMessage(self._sigma)
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
        numbers = np.minimum(np.maximum(values, clip.low), clip.high) - 0.5 * (clip.low + clip.high)
        # without a direction the message says nothing about the number
        self._own = np.where(self._along.any(axis=1), numbers, 0.0)[:, None]
        self.rounds += 1
        self._send(self._own)
