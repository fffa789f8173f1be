"""What every releaser is: a plan that its curator calibrates and charges once, then noise; and the
records that it takes: their shape as flat rows, and the bounds they are clipped to."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import kernels, validation
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.validation import FloatArray

if TYPE_CHECKING:
    from dpb_gym.privacy.curator import Curator
    from dpb_gym.privacy.events import Event
    from dpb_gym.privacy.noise import NoiseSource


class Releaser(ABC):
    """Raw records in, releases out; a policy sees releases only.

    Making one declares a plan to the curator: everything that will ever be released. The curator
    calibrates the plans of all its releasers together, charges each once (`cost`), and opens them
    (`open`); that happens when `begin` is over, or earlier if a scale is asked for. Without a
    budget `open` gets no rho, and the same calls release exact values.

    A new mechanism is a subclass with `cost`, `open` and methods of its own that take records and
    return releases; what it keeps between them is its state.

    Args:
        curator: Whose budget, ledger and noise it uses.
        share: Its part of the budget in (0, 1]; None: an equal part of what the others leave.
        what: What is released, in words, for the ledger.
    """

    def __init__(self, curator: Curator, *, share: float | None, what: str) -> None:
        self.curator, self.what = curator, what
        self.replicates = curator.replicates
        self.opened = False
        curator.register(self, share)

    @abstractmethod
    def cost(self, rho: float) -> Event:
        """The accounting event of the whole plan, made for `rho` zCDP or a nominal rho."""

    @abstractmethod
    def open(self, rho: float | None, noise: NoiseSource) -> None:
        """Sets the scale of the noise: that of ``cost(rho)``, or none if rho is None."""

    def ready(self) -> None:
        """Has the curator seal its plans if that has not happened yet.

        Raises:
            BudgetError: If that failed before; nothing is ever released then.
        """
        if not self.opened:
            self.curator.seal()
        if not self.opened:
            raise BudgetError(f"{self.what}: its curator refused the plans; nothing is released")


class WithoutAxis:
    """A releaser of one replicate, seen without the replicate axis.

    Records, directions, values and releases lose their leading axis of length 1; everything else
    is the releaser's own.
    """

    def __init__(self, releaser: Releaser) -> None:
        self.releaser: Any = releaser

    def add(self, record: ArrayLike, along: ArrayLike | None = None, **options: Any) -> None:
        """Ingests one record; see the releaser's own `add`."""
        directions = None if along is None else np.asarray(along, dtype=np.float64)[None]
        self.releaser.add(np.asarray(record, dtype=np.float64)[None], directions, **options)

    def release(self) -> FloatArray:
        """Releases; see the releaser's own `release`."""
        return np.asarray(self.releaser.release()[0])

    @property
    def value(self) -> FloatArray:
        """The newest release."""
        return np.asarray(self.releaser.value[0])

    def __getattr__(self, name: str) -> Any:
        if name == "releaser":
            raise AttributeError(name)
        return getattr(self.releaser, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the releaser: `LossMinimiser.loss`, say."""
        if name == "releaser":
            object.__setattr__(self, name, value)
        else:
            setattr(self.releaser, name, value)


@dataclass(frozen=True)
class RecordShape:
    """Shape of one record: a vector of `dim` numbers or a symmetric matrix.

    A symmetric d x d matrix becomes a row of d (d + 1) / 2 numbers, its upper triangle row by
    row with the off-diagonal entries times sqrt(2), so that the 2-norm of the row is the
    Frobenius norm. Equal noise on the row is then GOE noise on the matrix: the off-diagonal
    variance is half of the diagonal's.

    Attributes:
        dim: Length of a vector record, or 0.
        symmetric: Side of a symmetric matrix record, or 0.
        shape: Shape of one record as the user sees it.
        width: Numbers per record in a row.
    """

    dim: int = 0
    symmetric: int = 0
    shape: tuple[int, ...] = field(init=False)
    width: int = field(init=False)

    def __post_init__(self) -> None:
        if (self.dim == 0) == (self.symmetric == 0):
            raise ParameterError(
                "give either dim (vectors) or symmetric (side of symmetric matrices); got "
                f"dim={self.dim!r}, symmetric={self.symmetric!r}"
            )
        validation.integer("dim" if self.dim else "symmetric", self.dim or self.symmetric, 1)

        side = self.symmetric
        object.__setattr__(self, "shape", (side, side) if side else (self.dim,))
        object.__setattr__(self, "width", side * (side + 1) // 2 if side else self.dim)

    def emit(self, rows: FloatArray, noise: FloatArray, scale: float) -> FloatArray:
        """``rows + scale * noise``, both (B, width), as fresh records ``(B, *shape)``."""
        if not self.symmetric:
            return rows + scale * noise
        out = np.empty((rows.shape[0], *self.shape))
        kernels.continual.emit_symmetric(rows, noise, scale, out)
        return out


@dataclass(frozen=True)
class Ball:
    """Records of 2-norm (Frobenius norm for matrices) at most `radius`.

    Replace-one sensitivity ``2 radius``; add-remove ``radius``.

    Attributes:
        radius: Largest norm; longer records are scaled down to it.
        apart: Replace-one distance of two records at most, in radii.
    """

    radius: float
    apart: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        validation.real("radius", self.radius, 0.0, open_low=True)

    @property
    def longest(self) -> float:
        """Largest norm of a record."""
        return self.radius

    def sensitivity(self, relation: str = "replace-one", public: bool = True) -> float:
        """Largest distance between two records, or of a record from zero."""
        return self.radius * (self.apart if relation == "replace-one" else 1.0)


@dataclass(frozen=True)
class PSDBall(Ball):
    """Positive semidefinite matrices of Frobenius norm at most `radius`.

    Replace-one sensitivity ``sqrt(2) radius``: the inner product of two positive semidefinite
    matrices is not negative. A Gram matrix of a vector of norm c has Frobenius norm c^2; the
    Gram matrix of K vectors of norm at most 1 may have norm K (erratum A1), hence sensitivity
    ``sqrt(2) K``. The releaser rejects records that are not positive semidefinite.
    """

    apart: ClassVar[float] = math.sqrt(2.0)


@dataclass(frozen=True)
class Segment:
    """Records ``value * direction``: a protected number times a vector, which may be public.

    The value is clipped to [low, high], the direction to the unit ball. Where directions are
    public, neighbours differ in the value only: replace-one sensitivity ``high - low``. Where the
    unit protects contexts they differ in the direction too: twice the larger absolute value.
    Add-remove: the larger absolute value. For RU's rewards ``Segment(0, 1)``, or centred
    ``Segment(-0.5, 0.5)``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        validation.span("the ends of a segment", (self.low, self.high))

    @property
    def longest(self) -> float:
        """Largest norm of a record."""
        return max(abs(self.low), abs(self.high))

    def sensitivity(self, relation: str = "replace-one", public: bool = True) -> float:
        """Largest distance between two records; with the same direction, if that is `public`."""
        if relation != "replace-one":
            return self.longest
        return self.high - self.low if public else 2.0 * self.longest


Bound = Ball | PSDBall | Segment
