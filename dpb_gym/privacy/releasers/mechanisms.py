"""The noise of continual sums: binary tree, square root, buffered linear Toeplitz."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod

import numpy as np

from dpb_gym import kernels
from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.privacy import toeplitz
from dpb_gym.privacy.noise import NormalStream
from dpb_gym.validation import FloatArray

MEMORY_LIMIT = 2**31


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

    def start(self, stream: NormalStream) -> None:
        """Gets its normals; the noise is zero before the first step."""
        self._stream = stream
        self.noise = np.zeros((stream.replicates, stream.width))

    @abstractmethod
    def advance(self) -> None:
        """Moves to the next step's noise."""

    @abstractmethod
    def variances(self) -> FloatArray:
        """Variance of the noise per coordinate at every step, ``(steps,)``."""

    def std(self, step: int) -> float:
        """Standard deviation of the noise at a step, from 1."""
        return math.sqrt(self.variances()[step - 1])


class BinaryTree(Mechanism):
    """Noise of a binary tree of partial sums (Chan, Shi & Song 2011; Dwork et al. 2010).

    A record is in at most ``m = 1 + floor(log2 n)`` nodes, so gain = sqrt(m); the release at t
    sums popcount(t) nodes. Memory: one row per level.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.gain = math.sqrt(steps.bit_length())

    def start(self, stream: NormalStream) -> None:
        super().start(stream)
        self.step = 0
        self._prefix = np.zeros((self.steps.bit_length(), *self.noise.shape))

    def advance(self) -> None:
        self.step += 1
        index = self._stream.advance()
        kernels.continual.tree_step(self._stream.block, index, self.step, self._prefix, self.noise)

    def std(self, step: int) -> float:
        return math.sqrt(step.bit_count())

    def variances(self) -> FloatArray:
        return np.bitwise_count(np.arange(1, self.steps + 1)).astype(np.float64)


class BufferedToeplitz(Mechanism):
    """Buffered linear Toeplitz noise; see `dpb_gym.privacy.toeplitz`. Memory: 5 rows."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        theta, omega = toeplitz.blt_parameters(steps)
        self.theta, self.omega = np.array(theta), np.array(omega)
        self.gain = toeplitz.blt_sensitivity(self.theta, self.omega, steps)

    def start(self, stream: NormalStream) -> None:
        super().start(stream)
        self._past = np.zeros((stream.replicates, self.theta.size, stream.width))
        self._fresh = np.empty(stream.width)

    def advance(self) -> None:
        index = self._stream.advance()
        kernels.continual.blt_step(
            self._stream.block,
            index,
            self.theta,
            self.omega,
            self._past,
            self._fresh,
            self.noise,
        )

    def variances(self) -> FloatArray:
        return _blt_variances(self.steps, self.steps)

    def std(self, step: int) -> float:
        # sums without end have more steps than are ever taken
        first = min(self.steps, 1 << step.bit_length())
        return math.sqrt(_blt_variances(self.steps, first)[step - 1])


class SquareRootToeplitz(Mechanism):
    """Square-root Toeplitz noise (Fichtenberger, Henzinger & Upadhyay 2023).

    Noise does not depend on the records, so the noise of all steps is made at the first one,
    by convolution (FFT) of independent normals, coordinate by coordinate.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.coefficients = toeplitz.square_root_coefficients(steps)
        self.gain = math.sqrt(float((self.coefficients**2).sum()))

    def start(self, stream: NormalStream) -> None:
        gigabytes = 8e-9 * self.steps * stream.replicates * stream.width
        if 1e9 * gigabytes > MEMORY_LIMIT:
            raise ParameterError(
                f"sqrt-toeplitz keeps the noise of all {self.steps} steps ({gigabytes:.1f} GB for "
                f"{stream.replicates} replicates of {stream.width} numbers; the limit is 2 GB); "
                "use 'blt', or a larger release interval"
            )
        super().start(stream)
        self.step = 0

    def advance(self) -> None:
        if self.step == 0:
            self._all = self._make()
        self.noise[:] = self._all[self.step]
        self.step += 1

    def _make(self) -> FloatArray:
        from scipy import fft

        replicates, width = self.noise.shape
        normals = self._stream.take(self.steps)
        length = fft.next_fast_len(2 * self.steps - 1, real=True)
        transfer = fft.rfft(self.coefficients, length)
        out = np.empty((self.steps, replicates, width))
        # one transform at a time: a row's bits must not depend on its neighbours
        for b in range(replicates):
            for w in range(width):
                product = fft.rfft(np.ascontiguousarray(normals[b, :, w]), length) * transfer
                out[:, b, w] = fft.irfft(product, length)[: self.steps]
        return out

    def variances(self) -> FloatArray:
        return np.cumsum(self.coefficients**2)


@functools.lru_cache(maxsize=16)
def _blt_variances(steps: int, first: int) -> FloatArray:
    theta, omega = toeplitz.blt_parameters(steps)
    weights = toeplitz.blt_noise_coefficients(np.array(theta), np.array(omega), first)
    return np.cumsum(weights**2)


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
