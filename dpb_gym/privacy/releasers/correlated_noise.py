"""Correlated noise of running sums: binary tree, square root, buffered linear Toeplitz.

The running sums ``A x`` (A: ones on and below the diagonal) are released as ``A C^-1 (C x + z)``
with z ~ N(0, sigma^2 I). One record changes ``C x`` by a column of C times its distance. So the
largest norm of a column is the sensitivity at unit distance (`CorrelatedNoise.gain`). The noise at
step t is the t-th entry of ``A C^-1 z``.
"""

from __future__ import annotations

import functools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import resources
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels, portable, state, validation
from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.streams import BlockDraws
from dpb_gym.validation import FloatArray

MEMORY_LIMIT = 2**31
Parameters = tuple[tuple[float, ...], tuple[float, ...]]


class CorrelatedNoise(ABC):
    """Noise of a running sum at sigma = 1, generated step by step.

    Args:
        steps: Number of steps n.

    Attributes:
        gain: Sensitivity of the whole sequence of releases at unit distance of the records.
        noise: Noise of the current release (B, width); the releaser multiplies it by sigma.
    """

    evolves: ClassVar[tuple[str, ...]] = ("noise", "step", "_prefix", "_past", "_all")
    gain: float
    noise: FloatArray

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def start(self, draws: BlockDraws, shape: tuple[int, int]) -> None:
        """Start with zero noise; `draws` yields independent normals (B, width) per step."""
        self._draws = draws
        self.step = 0
        self.noise = np.zeros(shape)

    @abstractmethod
    def advance(self) -> None:
        """Set `noise` to that of the next step."""

    @abstractmethod
    def variances(self, steps: int) -> FloatArray:
        """Return the variance of the noise per coordinate in the first steps, ``(steps,)``."""

    @abstractmethod
    def matrix(self, steps: ArrayLike) -> FloatArray:
        """Return the linear map from independent normals to the noise of some steps.

        Args:
            steps: Numbers of the steps ``(n,)``, from 1; a number n stands for the first n.

        Returns:
            Weights ``(n, normals)``.
        """


def _numbers(steps: ArrayLike) -> NDArray[np.int64]:
    return np.arange(1, int(steps) + 1) if np.isscalar(steps) else np.asarray(steps)  # type: ignore[arg-type]


@state.register
class BinaryTree(CorrelatedNoise):
    """Noise of a binary tree of partial sums (Chan, Shi & Song 2011; Dwork et al. 2010).

    A record is in at most ``m = 1 + floor(log2 n)`` nodes, so gain = sqrt(m); the release at t
    sums popcount(t) nodes. Memory: one row per level.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        # a record is in one node per level, and each node is released with its own noise
        self.gain = math.sqrt(steps.bit_length())

    def start(self, draws: BlockDraws, shape: tuple[int, int]) -> None:
        super().start(draws, shape)
        self._prefix = np.zeros((self.steps.bit_length(), *shape))

    def advance(self) -> None:
        self.step += 1
        kernels.continual.tree_step(self._draws.next(), self.step, self._prefix, self.noise)

    def variances(self, steps: int) -> FloatArray:
        return np.bitwise_count(np.arange(1, steps + 1)).astype(np.float64)

    def matrix(self, steps: ArrayLike) -> FloatArray:
        at = _numbers(steps)
        made = np.zeros((len(at), int(at.max())))
        for row, t in zip(made, at.tolist()):
            while t:  # step t completes the node of its lowest bit, earlier steps the others
                row[t - 1] = 1.0
                t &= t - 1
        return made


@state.register
class BufferedToeplitz(CorrelatedNoise):
    """Buffered linear Toeplitz noise (Dvijotham, McMahan, Pillutla, Steinke & Thakurta 2024).

    The first column of C is c_0 = 1, c_k = sum_i omega_i theta_i^(k-1), so the noise needs one
    buffer per term instead of all past normals. Memory: 5 rows.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self._parameters = blt_parameters(steps)
        self.theta, self.omega = (np.array(part) for part in self._parameters)
        self.gain = blt_sensitivity(self.theta, self.omega, steps)

    def start(self, draws: BlockDraws, shape: tuple[int, int]) -> None:
        super().start(draws, shape)
        self._past = np.zeros((shape[0], self.theta.size, shape[1]))

    def advance(self) -> None:
        normals = self._draws.next()
        kernels.continual.blt_step(normals, self.theta, self.omega, self._past, self.noise)

    def variances(self, steps: int) -> FloatArray:
        return toeplitz_variances(self.column, self.steps, steps)

    def matrix(self, steps: ArrayLike) -> FloatArray:
        return toeplitz_matrix(self.column, steps)

    def column(self, steps: int) -> FloatArray:
        """Return the first column of A C^-1: weights of past normals, newest first."""
        return _blt_column(*self._parameters, steps)


@state.register
class Toeplitz(CorrelatedNoise):
    """Square-root Toeplitz noise (Fichtenberger, Henzinger & Upadhyay 2023).

    C = A^(1/2), whose first column is f_0 = 1, f_k = f_{k-1} (1 - 1/(2k)); then A C^-1 = C. The
    noise does not depend on the records, so that of all steps is computed at the first step, by FFT
    convolution of independent normals. Memory: a row per step.

    Another factorisation into Toeplitz matrices is a subclass with its own `column` and `gain`.
    """

    @functools.cached_property
    def gain(self) -> float:  # type: ignore[override]
        """Norm of the first column of C, which here is that of A C^-1."""
        return math.sqrt(float((self.column(self.steps) ** 2).sum()))

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
        # SciPy's signal module takes long to import, and few agents need it
        from scipy.signal import fftconvolve

        replicates, width = self.noise.shape
        normals = np.empty((self.steps, replicates, width))
        for step in normals:
            step[:] = self._draws.next()
        weights = self.column(self.steps)
        out = np.empty_like(normals)
        # one transform per coordinate: a row's bits must not depend on the batch
        for b, w in np.ndindex(replicates, width):
            out[:, b, w] = fftconvolve(normals[:, b, w], weights)[: self.steps]
        return out

    def variances(self, steps: int) -> FloatArray:
        return toeplitz_variances(self.column, self.steps, steps)

    def matrix(self, steps: ArrayLike) -> FloatArray:
        return toeplitz_matrix(self.column, steps)

    def column(self, steps: int) -> FloatArray:
        """Return the first column of A C^-1: weights of past normals, newest first."""
        return square_root_coefficients(steps)


Column = Callable[[int], FloatArray]
"""Weights of past normals in the noise of step n, newest first, ``(n,)``."""


def toeplitz_variances(column: Column, declared: int, steps: int) -> FloatArray:
    """Return the variances of the first steps, of `declared` ones, if A C^-1 is Toeplitz."""
    # an open-ended sum declares far more steps than it takes: compute few columns
    weights = column(min(declared, 1 << steps.bit_length()))[:steps]
    return np.cumsum(weights**2)


def toeplitz_matrix(column: Column, steps: ArrayLike) -> FloatArray:
    """Return the rows of some steps of a lower-triangular Toeplitz A C^-1, ``(n, normals)``."""
    at = _numbers(steps)
    last = int(at.max())
    lag = np.subtract.outer(at, np.arange(1, last + 1))
    return np.where(lag >= 0, column(last)[np.maximum(lag, 0)], 0.0)


@functools.lru_cache(maxsize=16)
def square_root_coefficients(steps: int) -> FloatArray:
    """Return f_0..f_{steps-1}, the first column of the square root of the running-sum matrix."""
    return np.concatenate([[1.0], np.cumprod(1.0 - 0.5 / np.arange(1, steps))])


def blt_sensitivity(theta: FloatArray, omega: FloatArray, steps: int) -> float:
    """Return the norm of the first column of a BLT's C for `steps` steps, in closed form."""
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
def _blt_table() -> dict[int, Parameters]:
    text = (resources.files("dpb_gym.privacy") / "data" / "blt.json").read_text()
    table = json.loads(text)["parameters"]
    return {int(n): (tuple(row["theta"]), tuple(row["omega"])) for n, row in table.items()}


@functools.lru_cache(maxsize=128)
def blt_parameters(steps: int) -> Parameters:
    """Return parameters (theta, omega) of a near-optimal BLT for `steps` steps.

    They come from a table (``benchmarks/make_blt_table.py``) whose step counts grow by a factor of
    at most 2^(1/4): the entry for the smallest count that is at least `steps`, within 1% of the
    optimum. Beyond the table (2^30 steps) its last entry is used. The sensitivity is computed for
    `steps` exactly, so privacy does not depend on the quality of the parameters.

    Raises:
        ParameterError: If `steps` is not a positive integer.
    """
    validation.integer("steps", steps, 1)
    table = _blt_table()
    return table[min((n for n in table if n >= steps), default=max(table))]


MECHANISMS: dict[str, type[CorrelatedNoise]] = {
    "binary-tree": BinaryTree,
    "blt": BufferedToeplitz,
    "sqrt-toeplitz": Toeplitz,
}


def make_mechanism(name: str, steps: int) -> CorrelatedNoise:
    """Return the named mechanism for `steps` steps.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in MECHANISMS:
        raise unknown_name("continual-sum mechanism", name, MECHANISMS)
    return MECHANISMS[name](steps)
