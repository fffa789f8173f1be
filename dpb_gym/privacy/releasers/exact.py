"""Exact running sums: what the non-private twin of a private agent uses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.checks import FloatArray
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.releasers.base import Intake
from dpb_gym.privacy.releasers.bounds import Bound
from dpb_gym.privacy.releasers.shapes import RecordShape


class ExactSum:
    """The sum of all records so far, without noise.

    Same interface as the private sums, so that one policy class runs on both.

    Args:
        shape: Length of a vector record, or ``(d, d)`` for symmetric matrices.
        replicates: Number of replicates B.
        clip: Optional bound, as the private twin has.
        horizon: Largest number of records per replicate, or `None`.
        cumulative: `True`: `release` returns the sum of all records; `False`: of those since
            the last release (the twin of a `GaussianSum` that is not cumulative).
        ledger: If given, every release is disclosed to it: a ledger with a budget refuses,
            one without reports that there is no guarantee. Leave it out for public data.
        what: What is released, in words.
    """

    noise_std = 0.0

    def __init__(
        self,
        shape: int | tuple[int, ...],
        replicates: int,
        *,
        clip: Bound | float | None = None,
        horizon: int | None = None,
        cumulative: bool = True,
        ledger: Ledger | None = None,
        what: str = "exact sum",
    ) -> None:
        sides = (shape,) if isinstance(shape, int) else tuple(shape)
        if len(sides) == 1:
            self._shape = RecordShape(dim=sides[0])
        elif len(sides) == 2 and sides[0] == sides[1]:
            self._shape = RecordShape(symmetric=sides[0])
        else:
            raise ParameterError(f"shape must be n or (d, d); got {shape!r}")
        self._intake = Intake(self._shape, replicates, clip, horizon)
        self.replicates = self._intake.replicates
        self.cumulative = cumulative
        self._ledger, self._what = ledger, what
        self._total = np.zeros((self.replicates, self._shape.width))

    @property
    def rounds(self) -> int:
        """Records per replicate so far."""
        return self._intake.rounds

    @property
    def clipped_count(self) -> NDArray[np.int64]:
        """Clipped records per replicate."""
        return self._intake.clipped_count

    def add(self, records: ArrayLike, directions: ArrayLike | None = None) -> None:
        """Adds one record per replicate; see `Releaser.add`."""
        self._intake.take(records, directions, self._total)

    def release(self) -> FloatArray:
        """The sum, ``(B, *shape)``."""
        if self._ledger is not None:
            self._ledger.disclose(self._what)
        out = self._shape.emit(self._total, self._total, 0.0)
        if not self.cumulative:
            self._total[:] = 0.0
        return out

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint needs."""
        return {"intake": self._intake.state_dict(), "total": self._total.copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        self._intake.load_state(state["intake"])
        self._total[:] = state["total"]
