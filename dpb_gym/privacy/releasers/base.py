"""The one interface of everything between raw records and a policy."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels
from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.privacy.checks import FloatArray, count, positive
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.releasers.bounds import Ball, Bound, PSDBall, Segment
from dpb_gym.privacy.releasers.shapes import RecordShape


@runtime_checkable
class Releaser(Protocol):
    """Raw records in, releases out; a policy sees `release()` only.

    `rounds` is the number of records per replicate so far, `clipped_count` (B,) how many of
    them were clipped.
    """

    replicates: int

    @property
    def rounds(self) -> int: ...

    @property
    def clipped_count(self) -> NDArray[np.int64]: ...

    def add(self, records: ArrayLike, directions: ArrayLike | None = None) -> None:
        """Ingests one record per replicate, ``(B, *shape)``.

        Args:
            records: One record per replicate; with `directions`, one number per replicate.
            directions: Public vectors (B, d) that the numbers multiply (see `Segment`).

        Raises:
            HorizonExceeded: Beyond the declared horizon; nothing changes.
            ParameterError: On a wrong shape (of replicates included), NaN or infinity, or a
                matrix that is not symmetric or positive semidefinite although promised;
                nothing changes.
        """

    def release(self) -> FloatArray:
        """The current release, ``(B, *shape)``, fresh."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint needs (the ledger has its own)."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""


class Intake:
    """Validates, clips and counts the records of a releaser.

    Args:
        shape: Shape of one record.
        replicates: Number of replicates B.
        clip: Bound of the records; a number is the radius of a ball, `None` clips nothing.
        horizon: Largest number of records per replicate, or `None`.
        grid: Round clipped records to multiples of it; 0 leaves them as they are.
    """

    def __init__(
        self,
        shape: RecordShape,
        replicates: int,
        clip: Bound | float | None,
        horizon: int | None,
        grid: float = 0.0,
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
        self.grid = grid
        self.rounds = 0
        self.clipped_count: NDArray[np.int64] = np.zeros(self.replicates, dtype=np.int64)
        self._rows = np.empty((self.replicates, shape.width))
        self._radius = clip.radius if isinstance(clip, Ball) else math.inf
        self._psd = isinstance(clip, PSDBall)

    def take(self, value: ArrayLike, directions: ArrayLike | None, into: FloatArray) -> None:
        """Adds one round's clipped records to the rows `into` (B, width).

        Raises:
            HorizonExceeded: If the horizon is already full; nothing changes.
            ParameterError: See `Releaser.add`; nothing changes.
        """
        if self.horizon is not None and self.rounds >= self.horizon:
            raise HorizonExceeded(
                f"this releaser was declared for {self.horizon} records per replicate; "
                "nothing was released"
            )
        if directions is not None:
            rows = self._scaled(value, directions)
        elif isinstance(self.clip, Segment):
            raise ParameterError("records bounded by a Segment need their public directions")
        elif self.shape.symmetric:
            rows = self._rows
            matrices = _array("records", value, (self.replicates, *self.shape.shape))
            shift = kernels.continual.PSD_TOLERANCE * min(self._radius, 1e300)
            _raise_for(kernels.continual.pack_symmetric(matrices, self._psd, shift, rows))
        else:
            rows = _array("records", value, (self.replicates, self.shape.width))
        _raise_for(
            kernels.continual.add_clipped(rows, self._radius, self.grid, into, self.clipped_count)
        )
        self.rounds += 1

    def _scaled(self, value: ArrayLike, directions: ArrayLike) -> FloatArray:
        if self.shape.symmetric:
            raise ParameterError("directions are for vector records, not for matrices")
        vectors = _array("directions", directions, (self.replicates, self.shape.dim))
        values = _array("values", value, (self.replicates,))
        low, high, longest = -math.inf, math.inf, math.inf
        if isinstance(self.clip, Segment):
            low, high, longest = self.clip.low, self.clip.high, 1.0
        _raise_for(
            kernels.continual.scale_directions(
                values, vectors, low, high, longest, self._rows, self.clipped_count
            )
        )
        return self._rows

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


def _raise_for(status: int) -> None:
    codes = kernels.continual
    if status == codes.NOT_FINITE:
        raise ParameterError("records must be finite; got NaN or infinity")
    if status == codes.NOT_SYMMETRIC:
        raise ParameterError("matrix records must be symmetric (to 1e-9 of the largest entry)")
    if status == codes.NOT_PSD:
        raise ParameterError(
            "a matrix record is not positive semidefinite, as its bound promises; use Ball for "
            "general symmetric matrices"
        )


def _array(name: str, value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    try:
        array = np.ascontiguousarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be an array of real numbers: {error}") from error
    if array.shape != shape:
        raise ParameterError(
            f"{name} must have shape {shape} (replicates first); got {array.shape}"
        )
    return array


def sensitivity_of(
    clip: Bound | None, given: float | None, ledger: Ledger, participations: int | None
) -> float:
    """The sensitivity to charge: given by the caller, who then vouches for it, or the bound's.

    A unit of protection with k records moves the sums by at most k times what one moves them.

    Raises:
        ParameterError: If there is neither, or the ledger protects users and it is not said
            how many records a user may have (erratum R10).
    """
    if given is not None:
        base = positive("sensitivity", given)
    elif clip is None:
        raise ParameterError("give clip (a bound of the records) or an explicit sensitivity")
    else:
        base = clip.sensitivity(ledger.relation)
        if ledger.unit in ("user", "user-rewards") and participations is None:
            raise ParameterError(
                "the ledger protects users, who may have several records: give participations "
                "(the most records of one user), or an explicit sensitivity"
            )
    return base * (1 if participations is None else count("participations", participations))
