"""What is known of theta before the first round, and what knowing it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym import kernels, validation
from dpb_gym.errors import ParameterError, shown

if TYPE_CHECKING:
    from dpb_gym.privacy import Guarantee


@dataclass(frozen=True)
class Prior:
    """theta is about normal, of this mean and precision, before the first round.

    Attributes:
        mean: ``(d,)``, in units of theta; any array, kept as a tuple.
        precision: Inverse covariance ``(d, d)``, symmetric and positive semidefinite; 0 where
            nothing is known. None: only the mean is told, and how much it counts is the agent's.
        guarantee: What those are promised from whose records it was released. An agent that is
            told the prior has its cost on its own ledger, for they may come again. None: public
            knowledge, or data that nobody protects.

    Raises:
        ParameterError: If the shapes do not fit, a number is not finite, or the precision is not
            symmetric and positive semidefinite.
    """

    mean: Any
    precision: Any = None
    guarantee: Guarantee | None = None

    def __post_init__(self) -> None:
        mean = validation.array("the prior's mean", self.mean, (None,))
        object.__setattr__(self, "mean", tuple(mean.tolist()))
        if self.precision is None:
            return
        matrix = validation.array("the prior's precision", self.precision, (len(mean),) * 2)
        size = float(np.abs(matrix).max(initial=0.0))
        least = kernels.linalg.eigvalsh(matrix[None]).min(initial=0.0)
        if np.abs(matrix - matrix.T).max(initial=0.0) > 1e-9 * size or least < -1e-9 * size:
            raise ParameterError("the prior's precision must be symmetric, positive semidefinite")
        object.__setattr__(self, "precision", tuple(map(tuple, matrix.tolist())))

    @classmethod
    def read(cls, value: Any) -> Prior:
        """A prior, or the mapping that `to_dict` makes of one.

        Raises:
            ParameterError: If it is neither.
        """
        if isinstance(value, Prior):
            return value
        if not isinstance(value, Mapping) or "mean" not in value:
            raise ParameterError(
                f"prior must be a dpb_gym.Prior or a mapping with mean, got {shown(value)}"
            )
        known = {"precision": None, "guarantee": None}
        given = validation.settings("prior", value, {"mean": None, **known})
        if given["guarantee"] is not None:
            from dpb_gym.privacy import Guarantee

            given["guarantee"] = Guarantee.from_dict(given["guarantee"])
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """The prior as plain JSON values, without what is None; see `read`."""
        found: dict[str, Any] = {"mean": list(self.mean)}
        if self.precision is not None:
            found["precision"] = [list(row) for row in self.precision]
        if self.guarantee is not None:
            found["guarantee"] = self.guarantee.to_dict()
        return found

    def fitting(self, dim: int) -> Prior:
        """The prior itself.

        Raises:
            ParameterError: If theta has not `dim` coordinates.
        """
        if len(self.mean) != dim:
            raise ParameterError(f"the prior is of {len(self.mean)} numbers, theta has {dim}")
        return self

    @property
    def centre(self) -> NDArray[np.float64]:
        """The mean as an array ``(d,)``."""
        return np.array(self.mean)

    def information(self, variance: float = 1.0) -> NDArray[np.float64] | None:
        """The precision times the variance of one record, ``(d, d)``: how many records it is worth,
        as a ridge matrix."""
        return None if self.precision is None else variance * np.array(self.precision)
