"""Where the noise comes from: one generator per replicate, never the environment's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import MissingExtraError, ParameterError
from dpb_gym.portable import each, fill_normals, log
from dpb_gym.streams import BlockDraws
from dpb_gym.validation import FloatArray

GRID_BITS = 20
EXACT_BITS = 52


def _generator(seed: np.random.SeedSequence) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


class NoiseSource:
    """Random numbers for a batch of replicates, each from its own generator.

    Simulation grade: the generators are seeded from the replicates' seeds, so that results
    can be repeated; somebody who knows the seed knows the noise. Replicate i draws from
    generator i only, so its noise does not depend on the number of replicates.

    Args:
        generators: One generator per replicate, used for nothing else.

    Raises:
        ParameterError: If there is none, one is no `numpy.random.Generator`, or two
            replicates share one.
    """

    system = False
    _fill: Callable[[np.random.Generator, FloatArray], None] = staticmethod(fill_normals)

    def __init__(self, generators: Sequence[np.random.Generator]) -> None:
        self.generators = tuple(generators)
        if not self.generators or not all(isinstance(g, np.random.Generator) for g in generators):
            raise ParameterError(
                f"a noise source needs numpy.random.Generator objects, one or more; got "
                f"{generators!r}"
            )
        if len({id(g.bit_generator) for g in self.generators}) < len(self.generators):
            raise ParameterError("replicates must not share a generator")

    @classmethod
    def from_seed(cls, seed: int | Sequence[int], replicates: int = 1) -> NoiseSource:
        """A noise source of its own, for scripts and tests: replicate i spawns from `seed`."""
        validation.integer("replicates", replicates, 1)
        return cls([_generator(child) for child in np.random.SeedSequence(seed).spawn(replicates)])

    @property
    def replicates(self) -> int:
        """Number of replicates B."""
        return len(self.generators)

    def normal(self, shape: int | tuple[int, ...] = ()) -> FloatArray:
        """Standard normals of shape ``(B, *shape)``, row i drawn from generator i."""
        tail = (shape,) if isinstance(shape, int) else tuple(shape)
        out = np.empty((self.replicates, *tail))
        for i in range(self.replicates):
            self.fill(i, out[i : i + 1])
        return out

    def fill(self, replicate: int, out: FloatArray) -> None:
        """Fills `out` with standard normals from the replicate's generator."""
        self._fill(self.generators[replicate], out)

    def heads(self, tosses: FloatArray, probability: float) -> FloatArray:
        """Numbers of heads in that many independent tosses, of the shape of `tosses`, (B, ...)."""
        counts = tosses.astype(np.int64)
        rows = [rng.binomial(row, probability) for rng, row in zip(self.generators, counts)]
        return np.array(rows, dtype=np.float64)

    def uniform(self) -> FloatArray:
        """One uniform number on [0, 1) per replicate, ``(B,)``."""
        return np.array([generator.random() for generator in self.generators])

    def gumbel(self, shape: tuple[int, ...]) -> FloatArray:
        """Standard Gumbel numbers ``(B, *shape)``, row i drawn from generator i."""
        # an exponential of 0 has no logarithm
        drawn = np.stack([1.0 - generator.random(shape) for generator in self.generators])
        exponentials = np.maximum(-each(log, drawn), 1e-300)
        return -each(log, exponentials)

    def gaussian(self, std: float, width: int) -> FloatArray:
        """Noise ``(B, width)`` of standard deviation `std`."""
        return std * self.normal(width)

    def stream(self, width: int, on_grid: float = 0.0) -> BlockDraws:
        """Standard normals ``(B, width)`` for step after step, from generators of their own.

        Args:
            width: Numbers per step and replicate.
            on_grid: With system noise: standard deviation of noise on the grid, instead.
        """
        source = self.spawn()
        return BlockDraws(source.generators, (width,), source._fill)

    def spawn(self) -> NoiseSource:
        """An independent noise source, its seeds drawn from these generators."""
        words = [generator.bit_generator.random_raw(4).tolist() for generator in self.generators]
        return self._like([_generator(np.random.SeedSequence(row)) for row in words])

    def single(self, replicate: int) -> NoiseSource:
        """The noise of one replicate alone."""
        return self._like([self.generators[replicate]])

    def _like(self, generators: Sequence[np.random.Generator]) -> NoiseSource:
        return NoiseSource(generators)


class QuietNoise(NoiseSource):
    """Noise of `factor` times the standard deviation that is charged: for audits of audits.

    What is released with it has no guarantee; a run with it shows whether an audit would notice.

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


class SystemNoise(NoiseSource):
    """Noise from the operating system's entropy: not seeded, not repeatable.

    What is added to sums is discrete Gaussian, on a grid far finer than the noise: records are
    rounded to it, all sums stay below 2^53 grid units, so double precision adds them without
    error, and no floating-point attack on the noise applies. The discrete Gaussian of scale
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
        """Without generators: who goes on from a checkpoint draws fresh noise."""
        return {"replicates": self.replicates, "grid": self._grid}

    def __setstate__(self, state: dict[str, float]) -> None:
        SystemNoise.__init__(self, int(state["replicates"]))
        self._grid = state["grid"]

    def __init__(self, replicates: int = 1) -> None:
        try:
            import opendp.prelude as opendp
        except ImportError as error:
            raise MissingExtraError(
                "noise='system' needs OpenDP; install it with: pip install 'dpb-gym[secure]'"
            ) from error
        opendp.enable_features("contrib")
        self._opendp = opendp
        validation.integer("replicates", replicates, 1)
        super().__init__([_generator(np.random.SeedSequence()) for _ in range(replicates)])
        self._grid = 0.0

    def _like(self, generators: Sequence[np.random.Generator]) -> SystemNoise:
        return SystemNoise(len(generators))

    def use_grid(self, grid: float, horizon: int | None, longest: float | None) -> None:
        """Fixes the grid.

        Args:
            grid: Its width.
            horizon: Most records of a sum, None if that is not known.
            longest: Largest size of a record, None if it has no bound.

        Raises:
            ParameterError: If the records have no horizon or bound, or sums could leave the exact
                range of double precision.
        """
        self._grid = grid
        if horizon is None or longest is None:
            raise ParameterError("system noise needs a declared horizon and bounded records: clip")
        noise = 2.0 ** (GRID_BITS + 7) * grid * (1 + math.log2(horizon + 1))
        if horizon * (longest + grid) + noise > grid * 2.0**EXACT_BITS:
            raise ParameterError(
                f"sums of {horizon} records of size {longest:g} leave the exact range of "
                "double precision; system noise needs more noise or fewer records"
            )

    def gaussian(self, std: float, width: int) -> FloatArray:
        space = (
            self._opendp.vector_domain(self._opendp.atom_domain(T="i64")),
            self._opendp.l2_distance(T="f64"),
        )
        draw = self._opendp.m.make_gaussian(*space, scale=float(math.ceil(std / self._grid)))
        rows = [draw([0] * width) for _ in range(self.replicates)]
        return np.array(rows, dtype=np.float64) * self._grid

    def stream(self, width: int, on_grid: float = 0.0) -> BlockDraws:
        return GridStream(self, on_grid, width)


def grid_of(sigma: float) -> float:
    """Grid of system noise of standard deviation `sigma`: a power of two, a millionth of it."""
    return float(2.0 ** (math.floor(math.log2(sigma)) - GRID_BITS))


class GridStream(BlockDraws):
    """System noise for step after step, none of it before its time: no checkpoint tells it."""

    def __init__(self, source: SystemNoise, std: float, width: int) -> None:
        self._source, self._std, self._width = source, std, width

    def next(self) -> FloatArray:
        return self._source.gaussian(self._std, self._width)
