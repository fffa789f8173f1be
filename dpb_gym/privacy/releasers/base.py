"""The one interface of everything between raw records and a policy."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.privacy.checks import FloatArray, count, positive, records
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.releasers.bounds import Ball, Bound, PSDBall, Segment, clip_norm
from dpb_gym.privacy.releasers.shapes import RecordShape

PSD_TOLERANCE = 1e-9


@runtime_checkable
class Releaser(Protocol):
    """Raw records in, releases out; a policy sees `release()` only.

    Attributes:
        replicates: Number of replicates B.
        rounds: Records per replicate so far.
        clipped_count: Records of each replicate that were clipped so far, (B,) integers.
    """

    replicates: int
    rounds: int
    clipped_count: NDArray[np.int64]

    def add(self, records: ArrayLike, directions: ArrayLike | None = None) -> None:
        """Ingests one record per replicate, (B, *shape)."""

    def release(self) -> FloatArray:
        """The current release, (B, *shape), fresh."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint needs."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""


class Intake:
    """Validates, clips and counts the records of a releaser.

    Args:
        shape: Shape of one record.
        replicates: Number of replicates B.
        clip: Bound of the records; a number is the radius of a ball, `None` clips nothing.
        horizon: Largest number of records per replicate, or `None`.
    """

    def __init__(
        self,
        shape: RecordShape,
        replicates: int,
        clip: Bound | float | None,
        horizon: int | None,
    ) -> None:
        if clip is not None and not isinstance(clip, (Ball, Segment)):
            clip = Ball(positive("clip", clip))
        if isinstance(clip, PSDBall) and not shape.symmetric:
            raise ParameterError("PSDBall bounds symmetric matrices; use Ball for vectors")
        if isinstance(clip, Segment) and shape.symmetric:
            raise ParameterError("Segment bounds vectors; use Ball or PSDBall for matrices")
        self.shape = shape
        self.replicates = count("replicates", replicates)
        self.clip = clip
        self.horizon = None if horizon is None else count("horizon", horizon)
        self.rounds = 0
        self.clipped_count: NDArray[np.int64] = np.zeros(self.replicates, dtype=np.int64)

    def take(self, value: ArrayLike, directions: ArrayLike | None = None) -> FloatArray:
        """One round's records as clipped rows (B, width).

        Raises:
            HorizonExceeded: If the horizon is already full; nothing changes.
            ParameterError: On a wrong shape, NaN or infinity, a matrix that is not symmetric
                or not positive semidefinite although promised; nothing changes.
        """
        if self.horizon is not None and self.rounds >= self.horizon:
            raise HorizonExceeded(
                f"this releaser was declared for {self.horizon} records per replicate; "
                "nothing was released"
            )
        rows, clipped = self._rows(value, directions)
        self.rounds += 1
        self.clipped_count += clipped
        return rows

    def _rows(
        self, value: ArrayLike, directions: ArrayLike | None
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        batch = self.replicates
        if directions is not None:
            vectors = records("directions", directions, (batch, self.shape.dim))
            values = records("values", value, (batch,))
            if isinstance(self.clip, Segment):
                values, clipped = self.clip.clip_values(values)
                vectors, long = clip_norm(vectors, 1.0)
                return values[:, None] * vectors, clipped | long
            rows = values[:, None] * vectors
        elif isinstance(self.clip, Segment):
            raise ParameterError("records bounded by a Segment need their public directions")
        else:
            rows = self.shape.pack(records("records", value, (batch, *self.shape.shape)))
        if self.clip is None:
            return rows, np.zeros(batch, dtype=np.bool_)
        if isinstance(self.clip, PSDBall):
            require_psd(self.shape.unpack(rows))
        return self.clip.clip(rows)

    def state_dict(self) -> dict[str, Any]:
        """Counts so far."""
        return {"rounds": self.rounds, "clipped_count": self.clipped_count.copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        clipped = np.array(state["clipped_count"], dtype=np.int64)
        if clipped.shape != (self.replicates,):
            raise ParameterError(
                f"the state is of {clipped.shape} replicates; expected {self.replicates}"
            )
        self.rounds, self.clipped_count = int(state["rounds"]), clipped


def require_psd(matrices: FloatArray) -> None:
    """Raises unless each matrix (B, d, d) is positive semidefinite up to rounding.

    Raises:
        ParameterError: If an eigenvalue is below -1e-9 times the largest entry.
    """
    largest = np.abs(matrices).max(axis=(1, 2), initial=0.0)
    shifted = matrices + (PSD_TOLERANCE * largest + 1e-300)[:, None, None] * np.eye(
        matrices.shape[1]
    )
    for index, matrix in enumerate(shifted):
        if largest[index] == 0:
            continue
        try:
            np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError as error:
            raise ParameterError(
                f"record of replicate {index} is not positive semidefinite, as its bound "
                "promises; use Ball for general symmetric matrices"
            ) from error


def sensitivity_of(clip: Bound | None, given: float | None, ledger: Ledger | None) -> float:
    """The sensitivity to charge: given by the caller, who then vouches for it, or the bound's."""
    if given is not None:
        return positive("sensitivity", given)
    if clip is None:
        raise ParameterError("give clip (a bound of the records) or an explicit sensitivity")
    return clip.sensitivity("replace-one" if ledger is None else ledger.relation)
