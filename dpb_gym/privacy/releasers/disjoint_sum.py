"""Base of the sums that need no trusted curator: disjoint batches, each released once."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym.errors import BudgetError, ParameterError, shown
from dpb_gym.privacy.calibration import gaussian_sigma
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.release_schedule import ReleaseModel, Schedule
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.privacy.releasers.weighted_sum import Plan, WeightedSum
from dpb_gym.validation import FloatArray

Messages = NDArray[Any]


class DisjointSum(WeightedSum):
    """Sums of disjoint batches of customers' messages, released at the rounds of a plan.

    A customer's device turns a record into a `message`; the server `receive`s it. The newest
    release is the sum of the last batch alone (`Schedule.carry` is 0). `Schedule.best_weights`
    combines all batches.

    The plan is `ReleaseModel.batches`: the schedule of a trusted curator is not used.
    """

    evolves: ClassVar[tuple[str, ...]] = ("mail", "past", "coming", "_own")
    per_record = False
    """Whether every message has noise of its own."""
    whole = False
    """Whether messages are whole numbers."""
    side = ""
    """``"device"``: records become messages in `mail`; ``"server"``: they are read from it."""
    mail: Messages | None = None

    def _planned(self, schedule: Plan, model: ReleaseModel | None) -> Schedule:
        if model is None:
            raise BudgetError(
                f"{self.what}: this agent's releases are planned for a trusted curator only "
                "(weighted_sum without a model); give a budget without @"
            )
        self.model = model
        return model.batches(self._likely_sigma(), self.per_record)

    def _likely_sigma(self) -> float:
        """Return the standard deviation of the noise that the plan is made for."""
        return gaussian_sigma(self.curator.most_rho * self._part, self.sensitivity * self.gain)

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        Sum.open(self, rho, noise)
        assert isinstance(self._plan, Schedule)
        self._schedule = self._plan

    @abstractmethod
    def message(self, rows: FloatArray) -> Messages:
        """Return the customers' messages for clipped records ``(B, width)``."""

    @abstractmethod
    def receive(self, messages: Messages) -> None:
        """Add the messages of one round to the open batch."""

    def _add(self, records: ArrayLike, along: ArrayLike | None) -> None:
        self._own = np.zeros_like(self._rows)
        self._take(records, along, self._own)
        self._send(self._own)

    def _send(self, rows: FloatArray) -> None:
        """Send a round's records; those after the last release are in no message."""
        if self.releases == len(self._schedule.ends):
            return
        if self.side == "device":
            self.mail = self.message(rows)
            return
        if self.side == "server":
            assert self.mail is not None
            self.receive(self.mail)
        elif self._sigma:
            self.receive(self.message(rows))
        else:  # the exact copy of an audit
            self._total += self._row(rows)
        self._release_if_due()

    def _row(self, rows: FloatArray) -> FloatArray:
        """Return the part of the sum ``(B, width)`` that records are."""
        return rows

    def add_rounds(self, records: FloatArray, along: FloatArray | None = None) -> None:
        Sum.add_rounds(self, records, along)

    @property
    def message_width(self) -> int:
        """Numbers of a message."""
        return self.shape.width

    @property
    def modulus(self) -> int | None:
        """Modulus of the messages of the current batch, or None."""
        return None

    @property
    @abstractmethod
    def message_range(self) -> tuple[float, float]:
        """Range that a device's numbers leave with probability below 1e-30."""

    def check_message(self, messages: Messages) -> None:
        """Raise ParameterError unless devices can have sent the messages ``(B, n)`` of a round."""
        if self.releases == len(self._schedule.ends):
            return
        shape, (low, high) = (self.replicates, self.message_width), self.message_range
        right = messages.shape == shape and messages.dtype.kind in "if"
        right = right and bool(((messages >= low) & (messages <= high)).all())
        if not right or (self.whole and (messages % 1 != 0).any()):
            kind = "whole numbers" if self.whole else "numbers"
            raise ParameterError(
                f"a message has {shape[1]} {kind} in [{low:g}, {high:g}]; got {shown(messages[0])}"
            )

    def become_device(self, noise: NoiseSource | None) -> None:
        """Forget what the server has received, and draw from `noise`, if given."""
        self.side, self.mail, self._total = "device", None, np.zeros_like(self._total)
        self._noise = noise or self._noise

    def _close(self, batch: int) -> FloatArray:
        """Return the noisy sum of the open batch, number `batch` from 0, ``(B, width)``."""
        return self._total

    def _release_if_due(self) -> None:
        k = self.releases
        if self.rounds == self._schedule.ends[k]:
            self._released = (self._close(k) if self._sigma else self._total).copy()
            self._total[:] = 0.0
            self.releases += 1
