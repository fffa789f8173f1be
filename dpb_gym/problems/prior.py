"""Prior information on theta, with the privacy cost of its release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym import kernels, state, validation
from dpb_gym.errors import ParameterError, shown

if TYPE_CHECKING:
    from dpb_gym.privacy import Guarantee


@state.register
@dataclass(frozen=True)
class Prior:
    """Normal prior of theta before the first round.

    Attributes:
        mean: ``(d,)``, in units of theta; any array, stored as a tuple.
        precision: Inverse covariance ``(d, d)``, symmetric and positive semidefinite; 0 where
            nothing is known. None: only the mean is given, and agents choose its weight.
        guarantee: Guarantee of the release that the prior was computed from. Its cost is charged
            to the ledger of every agent that receives the prior, because the same people may
            return. None: public knowledge, or unprotected data.

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
        """Return a prior from a `Prior` or from the mapping that `to_dict` returns.

        Raises:
            ParameterError: If the value is neither.
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
        """Return the prior as JSON values, without fields that are None; see `read`."""
        values: dict[str, Any] = {"mean": list(self.mean)}
        if self.precision is not None:
            values["precision"] = [list(row) for row in self.precision]
        if self.guarantee is not None:
            values["guarantee"] = self.guarantee.to_dict()
        return values

    def fitting(self, dim: int) -> Prior:
        """Return the prior itself after checking its dimension.

        Raises:
            ParameterError: If the mean does not have `dim` coordinates.
        """
        if len(self.mean) != dim:
            raise ParameterError(f"the prior is of {len(self.mean)} numbers, theta has {dim}")
        return self

    @property
    def centre(self) -> NDArray[np.float64]:
        """The mean as an array ``(d,)``."""
        return np.array(self.mean)

    def information(self, variance: float = 1.0) -> NDArray[np.float64] | None:
        """Return precision times the variance of one record: a ridge matrix ``(d, d)``, or None."""
        return None if self.precision is None else variance * np.array(self.precision)
