"""Base of the sums that need no trusted curator: disjoint batches, each released once."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym.errors import BudgetError, ParameterError, shown
from dpb_gym.privacy.calibration import gaussian_sigma
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.privacy.releasers.release_schedule import ReleaseModel, Schedule
from dpb_gym.privacy.releasers.releaser import CuratorProtocol
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

    Attributes:
        side: Part of a split session. ``"device"``: a record becomes the message `mail`.
            ``"server"``: records are placeholders, and `mail` is received, if there is one.
            ``"replica"``: records are placeholders, and `coming` has the releases. ``""``:
            records are turned into messages and received, as in simulations.
        mail: Message ``(B, n)``, or None.
        past: Releases of a split session: ``round``, ``devices`` and ``sum``, JSON values.
        coming: Releases that a replica has still to make.
    """

    evolves: ClassVar[tuple[str, ...]] = ("mail", "past", "coming", "_own")
    per_record = False
    """Whether every message has noise of its own."""
    whole = False
    """Whether messages are whole numbers."""

    def __init__(
        self, curator: CuratorProtocol, width: int | RecordShape, **options: object
    ) -> None:
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        self.side = ""
        self.mail: Messages | None = None
        self.past: list[dict[str, Any]] = []
        self.coming: list[dict[str, Any]] = []

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
        self._own = np.zeros_like(self._rows)
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
        if self.side in ("server", "replica"):
            self._own[:] = 0.0  # a placeholder is no record
        self._send(self._own)

    def _send(self, rows: FloatArray) -> None:
        """Send a round's records; those after the last release are in no message."""
        if self.releases == len(self._schedule.ends):
            return
        if self.side == "device":
            self.mail = self.message(rows)
            return
        if self.side:
            if self.mail is not None:
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
        """Turn the next record into a message, with noise of this source if it is given."""
        self.side, self.mail = "device", None
        self._noise = noise or self._noise

    def _close(self, batch: int) -> tuple[FloatArray, int]:
        """Return the noisy sum ``(B, width)`` of the open batch, number `batch` from 0.

        Returns:
            The sum and the number of devices in it.
        """
        return self._total, int(self._schedule.sizes[batch])

    def _count(self, batch: int, devices: int) -> None:
        """Adapt the scale of the noise of a batch to the number of devices in its sum."""

    def _release_if_due(self) -> None:
        k = self.releases
        if self.rounds != self._schedule.ends[k]:
            return
        if self.side == "replica":
            release = self.coming.pop(0)
            values = np.array(release["sum"])[None]
            devices = int(release["devices"])
            self._count(k, devices)
        elif self._sigma:
            values, devices = self._close(k)
            self._count(k, devices)
        else:
            values = self._total
            devices = 0
        self._released = values.copy()
        if self.side:
            record = {"round": self.rounds, "devices": devices, "sum": values[0].tolist()}
            self.past.append(record)
        self._total[:] = 0.0
        self.releases += 1
