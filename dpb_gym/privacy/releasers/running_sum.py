"""Running sums, and their noise: binary tree, square root, buffered linear Toeplitz.

The running sums ``A x`` (A all ones below the diagonal) are released as ``A C^-1 (C x + z)``
with z ~ N(0, sigma^2 I): one record changes ``C x`` by a column of C times its distance, so the
largest norm of a column is the sensitivity at unit distance (`gain`). The noise at step t is the
t-th entry of ``A C^-1 z``.
"""

from __future__ import annotations

import functools
import json
import math
from abc import ABC, abstractmethod
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import kernels, portable, validation
from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.streams import BlockDraws
from dpb_gym.validation import FloatArray

if TYPE_CHECKING:
    from dpb_gym.privacy.curator import Curator

MEMORY_LIMIT = 2**31
Parameters = tuple[tuple[float, ...], tuple[float, ...]]


class Mechanism(ABC):
    """Noise of a running sum at sigma = 1, step by step.

    Args:
        steps: Number of steps n.

    Attributes:
        gain: Sensitivity of the whole sequence of releases at unit distance of the records.
        noise: Noise of the current release (B, width), to be multiplied by sigma.
    """

    gain: float
    noise: FloatArray

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def start(self, draws: BlockDraws, shape: tuple[int, int]) -> None:
        """Gets its normals, of shape (B, width) at a step; the noise is zero before the first."""
        self._draws, self.step = draws, 0
        self.noise = np.zeros(shape)

    @abstractmethod
    def advance(self) -> None:
        """Moves to the next step's noise."""

    @abstractmethod
    def variances(self, steps: int) -> FloatArray:
        """Variance of the noise per coordinate in the first steps, ``(steps,)``."""

    @abstractmethod
    def matrix(self, steps: int) -> FloatArray:
        """How independent normals make the noise of the first steps, ``(steps, normals)``."""


class BinaryTree(Mechanism):
    """Noise of a binary tree of partial sums (Chan, Shi & Song 2011; Dwork et al. 2010).

    A record is in at most ``m = 1 + floor(log2 n)`` nodes, so gain = sqrt(m); the release at t
    sums popcount(t) nodes. Memory: one row per level.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.gain = math.sqrt(steps.bit_length())

    def start(self, draws: BlockDraws, shape: tuple[int, int]) -> None:
        super().start(draws, shape)
        self._prefix = np.zeros((self.steps.bit_length(), *shape))

    def advance(self) -> None:
        self.step += 1
        kernels.continual.tree_step(self._draws.next(), self.step, self._prefix, self.noise)

    def variances(self, steps: int) -> FloatArray:
        return np.bitwise_count(np.arange(1, steps + 1)).astype(np.float64)

    def matrix(self, steps: int) -> FloatArray:
        made = np.zeros((steps, steps))
        for t in range(1, steps + 1):
            # step t completes the node of its lowest bit; its other nodes are those of step `rest`
            made[t - 1, t - 1] = 1.0
            if rest := t & (t - 1):
                made[t - 1] += made[rest - 1]
        return made


class Toeplitz(Mechanism):
    """A C^-1 and C are lower-triangular Toeplitz: a subclass tells `column` and `gain`.

    Noise does not depend on the records, so the noise of all steps is made at the first one,
    by convolution (FFT) of independent normals, coordinate by coordinate.
    """

    @abstractmethod
    def column(self, steps: int) -> FloatArray:
        """Weight of each past normal in the noise, newest first: `steps` entries of A C^-1."""

    def start(self, draws: BlockDraws, shape: tuple[int, int]) -> None:
        gigabytes = 8e-9 * self.steps * math.prod(shape)
        if 1e9 * gigabytes > MEMORY_LIMIT:
            raise ParameterError(
                f"this mechanism keeps the noise of all {self.steps} steps ({gigabytes:.1f} GB for "
                f"{shape[0]} replicates of {shape[1]} numbers; the limit is 2 GB); "
                "use 'blt', or a larger release interval"
            )
        super().start(draws, shape)

    def advance(self) -> None:
        if self.step == 0:
            self._all = self._make()
        self.noise[:] = self._all[self.step]
        self.step += 1

    def _make(self) -> FloatArray:
        from scipy import fft

        replicates, width = self.noise.shape
        normals = np.empty((self.steps, replicates, width))
        for step in normals:
            step[:] = self._draws.next()
        length = fft.next_fast_len(2 * self.steps - 1, real=True)
        transfer = fft.rfft(self.column(self.steps), length)
        out = np.empty((self.steps, replicates, width))
        # one transform at a time: a row's bits must not depend on its neighbours
        for b, w in np.ndindex(replicates, width):
            product = fft.rfft(np.ascontiguousarray(normals[:, b, w]), length) * transfer
            out[:, b, w] = fft.irfft(product, length)[: self.steps]
        return out

    def variances(self, steps: int) -> FloatArray:
        # sums without end have more steps than are ever taken; few columns are kept
        weights = self.column(min(self.steps, 1 << steps.bit_length()))[:steps]
        return np.cumsum(weights**2)

    def matrix(self, steps: int) -> FloatArray:
        lag = np.subtract.outer(np.arange(steps), np.arange(steps))
        return np.where(lag >= 0, self.column(steps)[np.abs(lag)], 0.0)


class BufferedToeplitz(Toeplitz):
    """Buffered linear Toeplitz noise (Dvijotham, McMahan, Pillutla, Steinke & Thakurta 2024).

    The first column of C is c_0 = 1, c_k = sum_i omega_i theta_i^(k-1), so the noise needs one
    buffer per term instead of the whole past. Memory: 5 rows.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self._parameters = blt_parameters(steps)
        self.theta, self.omega = (np.array(part) for part in self._parameters)
        self.gain = blt_sensitivity(self.theta, self.omega, steps)

    def start(self, draws: BlockDraws, shape: tuple[int, int]) -> None:
        Mechanism.start(self, draws, shape)
        self._past = np.zeros((shape[0], self.theta.size, shape[1]))

    def advance(self) -> None:
        state = self._past, self.noise
        kernels.continual.blt_step(self._draws.next(), self.theta, self.omega, *state)

    def column(self, steps: int) -> FloatArray:
        return _blt_column(*self._parameters, steps)


class SquareRootToeplitz(Toeplitz):
    """Square-root Toeplitz noise (Fichtenberger, Henzinger & Upadhyay 2023).

    C = A^(1/2), whose first column is f_0 = 1, f_k = f_{k-1} (1 - 1/(2k)); then A C^-1 = C.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.gain = math.sqrt(float((self.column(steps) ** 2).sum()))

    def column(self, steps: int) -> FloatArray:
        return square_root_coefficients(steps)


@functools.lru_cache(maxsize=16)
def square_root_coefficients(steps: int) -> FloatArray:
    """f_0..f_{steps-1} of the square root of the running-sum matrix."""
    k = np.arange(1, steps)
    return np.concatenate([[1.0], np.cumprod(1.0 - 0.5 / k)])


def blt_sensitivity(theta: FloatArray, omega: FloatArray, steps: int) -> float:
    """Norm of the first column of a BLT's C for `steps` steps, in closed form."""
    if steps == 1:
        return 1.0
    product = theta[:, None] * theta[None, :]
    grown = (steps - 1) * portable.each(portable.log, product)
    series = -portable.each(portable.expm1, grown) / (1.0 - product)
    return math.sqrt(1.0 + float((omega[:, None] * omega[None, :] * series).sum()))


@functools.lru_cache(maxsize=16)
def _blt_column(theta: tuple[float, ...], omega: tuple[float, ...], steps: int) -> FloatArray:
    made: FloatArray = kernels.continual.blt_impulse(np.array(theta), np.array(omega), steps)
    return made


@functools.lru_cache(maxsize=1)
def _shipped() -> dict[int, Parameters]:
    text = (resources.files("dpb_gym.privacy") / "data" / "blt.json").read_text()
    table = json.loads(text)["parameters"]
    return {int(n): (tuple(row["theta"]), tuple(row["omega"])) for n, row in table.items()}


@functools.lru_cache(maxsize=128)
def blt_parameters(steps: int) -> Parameters:
    """Parameters (theta, omega) of a good BLT for `steps` steps.

    From the shipped table (``benchmarks/make_blt_table.py``), whose step counts grow by a factor
    of at most 2^(1/4): the entry for the least count that is not below `steps`, which is within 1%
    of the optimum; beyond the table (2^30) its last entry. Privacy rests on the sensitivity, which
    is computed for `steps` exactly, never on how good the parameters are.

    Raises:
        ParameterError: If `steps` is not a positive integer.
    """
    validation.integer("steps", steps, 1)
    table = _shipped()
    return table[min((n for n in table if n >= steps), default=max(table))]


MECHANISMS: dict[str, type[Mechanism]] = {
    "binary-tree": BinaryTree,
    "blt": BufferedToeplitz,
    "sqrt-toeplitz": SquareRootToeplitz,
}


def make_mechanism(name: str, steps: int) -> Mechanism:
    """The named mechanism for `steps` steps.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in MECHANISMS:
        raise unknown_name("continual-sum mechanism", name, MECHANISMS)
    return MECHANISMS[name](steps)


class RunningSum(Sum):
    """The running sum of a stream of records, readable at any step.

    Each record enters once. The whole sequence of releases is one Gaussian mechanism of
    sensitivity ``sensitivity * gain`` (`gain`: of the mechanism, at unit distance); it stays
    private when records depend on earlier releases (Denisov, McMahan, Rush, Smith & Thakurta
    2022, Theorem 2.1).

    Args:
        mechanism: ``"blt"`` (buffered linear Toeplitz, constant memory), ``"sqrt-toeplitz"``
            (square root; memory grows with the number of steps) or ``"binary-tree"``
            (logarithmic memory; about twelve times the variance at 10^4 steps). None: ``"blt"``,
            or with system noise the tree, the only one whose noise adds up on a grid.
        every: Release interval in rounds: noise is drawn, and the release moves, only every so
            many rounds, so that the mechanism runs over ``horizon // every`` steps. Records
            after the last full interval are never released.
        **options: The others of `Sum`. The horizon must be known.

    Attributes:
        gain: Sensitivity of the mechanism at unit distance.
        steps: Number of steps of the mechanism.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self,
        curator: Curator,
        width: int | None = None,
        *,
        mechanism: str | None = None,
        every: int = 1,
        **options: object,
    ) -> None:
        options.setdefault("what", "running sum")
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        horizon = validation.integer("horizon", self.horizon, 1)
        self.every = validation.integer("every", every, 1)
        if self.every > horizon:
            raise ParameterError(f"every must be at most the horizon {horizon}; got {every}")
        self.steps = horizon // self.every
        self.mechanism = mechanism or ("binary-tree" if curator.system_noise else "blt")
        self._mechanism = make_mechanism(self.mechanism, self.steps)
        self.gain = self._mechanism.gain
        if curator.system_noise and self.mechanism != "binary-tree":
            raise ParameterError(
                f"system noise is not available for {self.mechanism!r}: it weighs noise by real "
                "numbers, and the guarantee of noise on a grid does not carry over; use "
                "'binary-tree'"
            )
        self._pending = np.zeros_like(self._total)
        self._scale = 0.0

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        super().open(rho, noise)
        if self._sigma:
            draws = noise.stream(self.shape.width, self._sigma if self.grid else 0.0)
            self._mechanism.start(draws, (self.replicates, self.shape.width))
            self._scale = 1.0 if self.grid else self._sigma

    def add(self, records: ArrayLike, along: ArrayLike | None = None) -> None:
        self.ready()
        if self.every == 1:
            self._take(records, along, self._total)
        else:
            self._take(records, along, self._pending)
            if self.rounds % self.every:
                return
            self._total += self._pending
            self._pending[:] = 0.0
        if self._scale:
            self._mechanism.advance()

    @property
    def value(self) -> FloatArray:
        """The noisy sum as of the last full interval, ``(B, *shape)``; before that, zeros.

        Two reads without a full interval between them are the same numbers.
        """
        self.ready()
        noise = self._mechanism.noise if self._scale else self._total
        return self.shape.emit(self._total, noise, self._scale)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the current release's noise per coordinate of the row."""
        step = self.rounds // self.every
        if not (step and self.sigma):
            return 0.0
        return self.sigma * math.sqrt(float(self._mechanism.variances(step)[-1]))

    @property
    def variances(self) -> FloatArray:
        """Variance of the noise at every step, at sigma = 1, ``(steps,)``; of a private sum."""
        return self._mechanism.variances(self.steps)

    def noise_matrix(self, steps: int) -> FloatArray:
        """How normals make the noise of the first releases at sigma = 1, ``(steps, normals)``."""
        return self._mechanism.matrix(steps)

    @property
    def noise_std_max(self) -> float:
        """Largest standard deviation over all releases."""
        if self.sigma == 0:
            return 0.0
        return self.sigma * math.sqrt(float(self.variances.max()))
