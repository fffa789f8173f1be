"""Noise sources: one generator per replicate, separate from the environment's."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpb_gym import kernels, state, validation
from dpb_gym.errors import MissingExtraError, ParameterError
from dpb_gym.portable import each, fill_normals, log
from dpb_gym.privacy.tape import external
from dpb_gym.streams import BlockDraws
from dpb_gym.validation import FloatArray

GRID_BITS = 20
EXACT_BITS = 52
MOST_REPLICATES = 10**6


def _generator(seed: np.random.SeedSequence) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


@state.register
class NoiseSource:
    """Random numbers for a batch of replicates, each from its own generator.

    For simulations only: the generators are seeded from the replicates' seeds, so results are
    reproducible, and the seed reveals the noise. Replicate i draws from generator i only, so its
    noise does not depend on the number of replicates.

    Args:
        generators: One generator per replicate, not used elsewhere.

    Raises:
        ParameterError: If there is none, one is no `numpy.random.Generator`, or two
            replicates share one.
    """

    system = False
    _fill: Callable[[np.random.Generator, FloatArray], None] = staticmethod(fill_normals)

    def __init__(self, generators: Sequence[np.random.Generator]) -> None:
        self.generators: tuple[Any, ...] = tuple(generators)
        if not self.generators or not all(isinstance(g, np.random.Generator) for g in generators):
            raise ParameterError(
                f"a noise source needs numpy.random.Generator objects, one or more; got "
                f"{generators!r}"
            )
        # a shared generator would make the noise of a replicate depend on the others
        if len({id(g.bit_generator) for g in self.generators}) < len(self.generators):
            raise ParameterError("replicates must not share a generator")

    @classmethod
    def from_seed(cls, seed: int | Sequence[int], replicates: int = 1) -> NoiseSource:
        """Return a noise source for scripts and tests; replicate i is child i of `seed`."""
        validation.integer("replicates", replicates, 1)
        return cls([_generator(child) for child in np.random.SeedSequence(seed).spawn(replicates)])

    @property
    def replicates(self) -> int:
        """Number of replicates B."""
        return len(self.generators)

    def normal(self, shape: int | tuple[int, ...] = ()) -> FloatArray:
        """Return standard normals ``(B, *shape)``, row i drawn from generator i."""
        # row by row, so that the bits of a replicate do not depend on the batch
        tail = (shape,) if isinstance(shape, int) else tuple(shape)
        out = np.empty((self.replicates, *tail))
        for i in range(self.replicates):
            self.fill(i, out[i : i + 1])
        return out

    def fill(self, replicate: int, out: FloatArray) -> None:
        """Fill `out` with standard normals from the replicate's generator."""
        self._fill(self.generators[replicate], out)

    def heads(self, tosses: FloatArray, probability: float) -> FloatArray:
        """Return binomial numbers of heads, of the shape of `tosses`, (B, ...)."""
        # NumPy's binomial takes integers
        counts = tosses.astype(np.int64)
        rows = [rng.binomial(row, probability) for rng, row in zip(self.generators, counts)]
        return np.array(rows, dtype=np.float64)

    def uniform(self, shape: tuple[int, ...] = ()) -> FloatArray:
        """Return uniform numbers on [0, 1), ``(B, *shape)``, row i drawn from generator i."""
        return np.array([generator.random(shape) for generator in self.generators])

    def discrete_gaussian(self, std: float, width: int) -> FloatArray:
        """Return discrete Gaussian integers ``(B, width)`` of scale `std` >= 8.

        The integer nearest to a normal x = std z is accepted with probability proportional to
        exp((x^2 - y^2) / (2 std^2)). So y has probability proportional to exp(-y^2 / (2 std^2)),
        up to the largest normal that 53 bits give.
        """
        out = np.empty((self.replicates, width))
        normals = np.empty((1, width))
        uniforms = np.empty(width)
        for i, rng in enumerate(self.generators):
            places = np.arange(width)
            missing = width
            while missing:
                self.fill(i, normals[:, :missing])
                rng.random(out=uniforms[:missing])
                tried = normals[0, :missing], uniforms[:missing], places[:missing]
                missing = kernels.elementary.discrete_gaussians(*tried, std, out[i])
        return out

    def gumbel(self, shape: tuple[int, ...]) -> FloatArray:
        """Return standard Gumbel numbers ``(B, *shape)``, row i drawn from generator i."""
        # avoid the logarithm of 0
        drawn = np.stack([1.0 - generator.random(shape) for generator in self.generators])
        # a uniform number of exactly 1 would give an infinite Gumbel number
        exponentials = np.maximum(-each(log, drawn), 1e-300)
        return -each(log, exponentials)

    def gaussian(self, std: float, width: int) -> FloatArray:
        """Return Gaussian noise ``(B, width)`` of standard deviation `std`."""
        return std * self.normal(width)

    def stream(self, width: int, on_grid: float = 0.0) -> BlockDraws:
        """Return a stream of standard normals ``(B, width)`` per step, from spawned generators.

        Args:
            width: Numbers per step and replicate.
            on_grid: Standard deviation of the noise on the grid (system noise only).
        """
        source = self.spawn()
        return BlockDraws(source.generators, (width,), source._fill)

    def spawn(self) -> NoiseSource:
        """Return an independent noise source, its seeds drawn from these generators."""
        # 256 bits of each generator seed the new one, so that streams do not collide
        words = [generator.bit_generator.random_raw(4).tolist() for generator in self.generators]
        return self._like([_generator(np.random.SeedSequence(row)) for row in words])

    def single(self, replicate: int) -> NoiseSource:
        """Return the noise source of one replicate."""
        return self._like([self.generators[replicate]])

    def _like(self, generators: Sequence[np.random.Generator]) -> NoiseSource:
        return NoiseSource(generators)


class QuietNoise(NoiseSource):
    """Noise of `factor` times the charged standard deviation, to test audits.

    Its releases have no guarantee. A run with it shows whether an audit detects that.

    Args:
        generators: See `NoiseSource`.
        factor: Factor of the standard deviation.
    """

    def __init__(self, generators: Sequence[np.random.Generator], factor: float) -> None:
        super().__init__(generators)
        self.factor = factor

    def _fill(self, rng: np.random.Generator, out: FloatArray) -> None:
        fill_normals(rng, out)
        out *= self.factor

    def heads(self, tosses: FloatArray, probability: float) -> FloatArray:
        mean = tosses * probability
        return mean + self.factor * (super().heads(tosses, probability) - mean)

    def gumbel(self, shape: tuple[int, ...]) -> FloatArray:
        return self.factor * super().gumbel(shape)

    def _like(self, generators: Sequence[np.random.Generator]) -> NoiseSource:
        return QuietNoise(generators, self.factor)


class SystemGenerator:
    """Uniform numbers from the operating system's generator, as `numpy.random.Generator.random`.

    It has no state, so a copy of it reveals no past or future numbers.
    """

    def random(self, size: Any = (), out: FloatArray | None = None) -> FloatArray:
        """Return uniforms on [0, 1), multiples of 2^-53, or write them to `out`."""
        drawn = np.empty(size) if out is None else out
        drawn[...] = external(drawn.size, lambda: _uniforms(drawn.size)).reshape(drawn.shape)
        return drawn


def _uniforms(count: int) -> FloatArray:
    words = np.frombuffer(os.urandom(8 * count), np.uint64)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class SystemNoise(NoiseSource):
    """Noise from the operating system's generator: not seeded, not reproducible.

    OpenDP draws discrete noise with OpenSSL's generator, which the operating system seeds. Nothing
    is drawn before its release, and no generator is stored.

    Sums get discrete Gaussian noise on a grid far finer than the noise. Records are rounded to the
    grid and sums stay below 2^53 grid units, so double precision adds them exactly, and
    floating-point attacks on the noise do not apply. The discrete Gaussian of scale
    sigma on vectors of integers is zCDP with ``rho = sensitivity^2 / (2 sigma^2)``, like the
    continuous one (Canonne, Kamath & Steinke 2020, Theorem 14), but **not** mu-Gaussian-DP, so
    (epsilon, delta) budgets convert less tightly. The linear term of objective perturbation
    (`normal`) is continuous, in double precision.

    Args:
        replicates: Number of replicates B.

    Raises:
        MissingExtraError: If OpenDP is not installed (extra ``[secure]``).
    """

    system = True

    def __getstate__(self) -> dict[str, float]:
        """Return the state without generators: a loaded checkpoint draws new noise."""
        return {"replicates": self.replicates, "grid": self._grid}

    def __setstate__(self, state: dict[str, float]) -> None:
        SystemNoise.__init__(self, int(state["replicates"]))
        self._grid = float(state["grid"])

    def __init__(self, replicates: int = 1) -> None:
        try:
            import opendp.prelude as opendp
        except ImportError as error:
            raise MissingExtraError(
                "noise='system' needs OpenDP; install it with: pip install 'dpb-gym[secure]'"
            ) from error
        opendp.enable_features("contrib")
        # stored, because the package is optional and slow to import
        self._opendp = opendp
        validation.integer("replicates", replicates, 1, MOST_REPLICATES)
        self.generators = tuple(SystemGenerator() for _ in range(replicates))
        self._grid = 0.0

    def spawn(self) -> SystemNoise:
        return SystemNoise(self.replicates)

    def single(self, replicate: int) -> SystemNoise:
        return SystemNoise(1)

    def use_grid(self, grid: float, horizon: int | None, longest: float | None) -> None:
        """Set the grid.

        Args:
            grid: Distance of its points.
            horizon: Largest number of records of a sum, None if unknown.
            longest: Largest norm of a record, None if unbounded.

        Raises:
            ParameterError: If the records have no horizon or bound, or sums could leave the exact
                range of double precision.
        """
        self._grid = grid
        if horizon is None or longest is None:
            raise ParameterError("system noise needs a declared horizon and bounded records: clip")
        # at least 64 standard deviations for each level of a tree
        noise = 2.0 ** (GRID_BITS + 7) * grid * (1 + math.log2(horizon + 1))
        if horizon * (longest + grid) + noise > grid * 2.0**EXACT_BITS:
            raise ParameterError(
                f"sums of {horizon} records of size {longest:g} leave the exact range of "
                "double precision; system noise needs more noise or fewer records"
            )

    def heads(self, tosses: FloatArray, probability: float) -> FloatArray:
        """Toss every coin: fair ones are bits of the generator, others uniforms of 53 bits."""
        return np.reshape([self._heads(int(n), probability) for n in tosses.flat], tosses.shape)

    def _heads(self, tosses: int, probability: float) -> float:
        # a fair coin needs one bit of the generator, any other coin a whole uniform number
        if probability != 0.5:
            return float((self.generators[0].random(tosses) < probability).sum())
        return float(external(1, lambda: _fair_heads(tosses))[0])

    def discrete_gaussian(self, std: float, width: int) -> FloatArray:
        return self._discrete("make_gaussian", self._opendp.l2_distance(T="f64"), std, width, 1.0)

    def gaussian(self, std: float, width: int) -> FloatArray:
        distance = self._opendp.l2_distance(T="f64")
        return self._discrete("make_gaussian", distance, std, width, self._grid)

    def laplace(self, scale: float, width: int) -> FloatArray:
        """Return discrete Laplace noise ``(B, width)`` on the grid."""
        distance = self._opendp.l1_distance(T="i64")
        return self._discrete("make_laplace", distance, scale, width, self._grid)

    def _discrete(
        self, law: str, distance: Any, scale: float, width: int, grid: float
    ) -> FloatArray:
        # OpenDP draws on integers, so that no rounding of floats leaks the value
        domain = self._opendp.vector_domain(self._opendp.atom_domain(T="i64"))
        # exact: the grid is a power of two, and OpenDP reads the scale as a rational number
        cells = scale / grid
        draw = getattr(self._opendp.m, law)(domain, distance, scale=cells)
        rows = external(
            self.replicates * width, lambda: [draw([0] * width) for _ in range(self.replicates)]
        )
        return rows.reshape(self.replicates, width) * grid

    def stream(self, width: int, on_grid: float = 0.0) -> BlockDraws:
        return GridStream(self, on_grid, width)


def _fair_heads(tosses: int) -> int:
    bits = int.from_bytes(os.urandom((tosses + 7) // 8)) >> (-tosses % 8)
    return bits.bit_count()


state.register(SystemNoise, out=SystemNoise.__getstate__, into=SystemNoise.__setstate__)


def grid_of(sigma: float) -> float:
    """Return the grid of system noise: the power of two near a millionth of `sigma`."""
    return float(2.0 ** (math.floor(math.log2(sigma)) - GRID_BITS))


@state.register
class GridStream(BlockDraws):
    """Draw system noise one step at a time, so that checkpoints contain no future noise."""

    def __init__(self, source: SystemNoise, std: float, width: int) -> None:
        self._source = source
        self._std = std
        self._width = width

    def next(self) -> FloatArray:
        return self._source.gaussian(self._std, self._width)
