"""The noise of continual sums: binary tree, square root, buffered linear Toeplitz."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dpb_gym import kernels
from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.privacy import toeplitz
from dpb_gym.privacy.checks import FloatArray
from dpb_gym.privacy.noise import NoiseSource, NormalStream
from dpb_gym.privacy.secure import SecureNoise, SecureStream

MEMORY_LIMIT = 2**31


class Mechanism(Protocol):
    """Noise of a running sum at sigma = 1, step by step.

    Attributes:
        sens: Sensitivity of the whole sequence of releases at unit distance of the records.
        noise: Noise of the current release (B, W), to be multiplied by sigma.
        secure: The secure source in use, or `None`.
    """

    sens: float
    noise: FloatArray
    secure: SecureNoise | None

    def advance(self) -> None:
        """Moves `noise` to the next step."""

    def std(self, step: int) -> float:
        """Standard deviation of the noise at a step, from 1."""

    def variances(self) -> FloatArray:
        """Variance of the noise at steps 1..n."""

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""


class _Streaming(ABC):
    """What the mechanisms have in common: a stream of normals, and the current noise."""

    sens: float
    secure: SecureNoise | None = None

    def __init__(
        self, steps: int, source: NoiseSource | SecureNoise, replicates: int, width: int
    ) -> None:
        self.steps = steps
        self.noise: FloatArray = np.zeros((replicates, width))
        self._stream: NormalStream | SecureStream
        if isinstance(source, SecureNoise):
            self.secure = source.spawn()
            self._stream = SecureStream(self.secure, width)
        else:
            self._stream = NormalStream(source, width)

    @abstractmethod
    def advance(self) -> None:
        """Moves to the next step's noise."""

    def std(self, step: int) -> float:
        return math.sqrt(self.variances()[step - 1])

    @abstractmethod
    def variances(self) -> FloatArray:
        """Variance of the noise per coordinate at every step, ``(steps,)``."""

    def _buffers(self) -> dict[str, FloatArray]:
        return {"noise": self.noise}

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: array.copy() for name, array in self._buffers().items()}
        return {"stream": self._stream.state_dict(), **arrays}

    def load_state(self, state: dict[str, Any]) -> None:
        for name, array in self._buffers().items():
            value = np.asarray(state[name], dtype=np.float64)
            if value.shape != array.shape:
                raise ParameterError(f"state {name!r} has shape {value.shape}, not {array.shape}")
            array[...] = value
        self._stream.load_state(state["stream"])


class BinaryTree(_Streaming):
    """Noise of a binary tree of partial sums (Chan, Shi & Song 2011; Dwork et al. 2010).

    A record is in at most ``m = 1 + floor(log2 n)`` nodes, so sens = sqrt(m); the release at t
    sums popcount(t) nodes. Memory: one row per level.
    """

    def __init__(
        self, steps: int, source: NoiseSource | SecureNoise, replicates: int, width: int
    ) -> None:
        super().__init__(steps, source, replicates, width)
        levels = steps.bit_length()
        self.sens = math.sqrt(levels)
        self.step = 0
        self._prefix = np.zeros((levels, replicates, width))

    def advance(self) -> None:
        self.step += 1
        index = self._stream.advance()
        kernels.continual.tree_step(self._stream.block, index, self.step, self._prefix, self.noise)

    def std(self, step: int) -> float:
        return math.sqrt(step.bit_count())

    def variances(self) -> FloatArray:
        return np.bitwise_count(np.arange(1, self.steps + 1)).astype(np.float64)

    def _buffers(self) -> dict[str, FloatArray]:
        return {"noise": self.noise, "prefix": self._prefix}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "step": self.step}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.step = int(state["step"])


class BufferedToeplitz(_Streaming):
    """Buffered linear Toeplitz noise; see `dpb_gym.privacy.toeplitz`. Memory: 5 rows."""

    def __init__(
        self, steps: int, source: NoiseSource | SecureNoise, replicates: int, width: int
    ) -> None:
        _refuse_secure(source, "blt")
        super().__init__(steps, source, replicates, width)
        theta, omega = toeplitz.blt_parameters(steps)
        self.theta, self.omega = np.array(theta), np.array(omega)
        self.sens = toeplitz.blt_sensitivity(self.theta, self.omega, steps)
        self._past = np.zeros((replicates, self.theta.size, width))
        self._fresh = np.empty(width)

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
        return _blt_variances(self.steps)

    def _buffers(self) -> dict[str, FloatArray]:
        return {"noise": self.noise, "past": self._past}


class SquareRootToeplitz(_Streaming):
    """Square-root Toeplitz noise (Fichtenberger, Henzinger & Upadhyay 2023).

    Noise does not depend on the records, so the noise of all steps is made at the first one,
    by convolution (FFT) of independent normals, coordinate by coordinate.
    """

    def __init__(
        self, steps: int, source: NoiseSource | SecureNoise, replicates: int, width: int
    ) -> None:
        _refuse_secure(source, "sqrt-toeplitz")
        if 8 * steps * replicates * width > MEMORY_LIMIT:
            gigabytes = 8e-9 * steps * replicates * width
            raise ParameterError(
                f"sqrt-toeplitz keeps the noise of all {steps} steps ({gigabytes:.1f} GB for "
                f"{replicates} replicates of {width} numbers; the limit is 2 GB); use 'blt', or "
                "a larger release interval"
            )
        super().__init__(steps, source, replicates, width)
        self.coefficients = toeplitz.square_root_coefficients(steps)
        self.sens = math.sqrt(float((self.coefficients**2).sum()))
        self.step = 0
        self._start = self._stream.state_dict()
        self._all: FloatArray | None = None

    def advance(self) -> None:
        if self._all is None:
            self._all = self._make()
        self.noise[:] = self._all[self.step]
        self.step += 1

    def _make(self) -> FloatArray:
        from scipy import fft

        assert isinstance(self._stream, NormalStream)
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

    def state_dict(self) -> dict[str, Any]:
        return {"start": self._start, "step": self.step}

    def load_state(self, state: dict[str, Any]) -> None:
        self._stream.load_state(state["start"])
        self._start = state["start"]
        self._all = None
        self.step = int(state["step"])
        if self.step:
            self._all = self._make()
            self.noise[:] = self._all[self.step - 1]


@functools.lru_cache(maxsize=16)
def _blt_variances(steps: int) -> FloatArray:
    theta, omega = toeplitz.blt_parameters(steps)
    weights = toeplitz.blt_noise_coefficients(np.array(theta), np.array(omega), steps)
    return np.cumsum(weights**2)


def _refuse_secure(source: NoiseSource | SecureNoise, name: str) -> None:
    if isinstance(source, SecureNoise):
        raise ParameterError(
            f"secure noise is not available for {name!r}: it weighs noise by real numbers, and "
            "the guarantee of integer noise does not carry over; use 'binary-tree'"
        )


MECHANISMS: dict[str, Callable[..., Mechanism]] = {
    "binary-tree": BinaryTree,
    "blt": BufferedToeplitz,
    "sqrt-toeplitz": SquareRootToeplitz,
}


def make_mechanism(
    name: str, steps: int, source: NoiseSource | SecureNoise, replicates: int, width: int
) -> Mechanism:
    """The named mechanism for `steps` steps.

    Raises:
        UnknownNameError: If there is none of that name.
        ParameterError: If it would need too much memory, or refuses secure noise.
    """
    if name not in MECHANISMS:
        raise unknown_name("continual-sum mechanism", name, MECHANISMS)
    return MECHANISMS[name](steps, source, replicates, width)
