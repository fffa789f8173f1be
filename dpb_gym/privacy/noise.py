"""Where the noise comes from: one generator per replicate, never the environment's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.checks import FloatArray, count

BLOCK = 2048


class NoiseSource:
    """Standard normals for a batch of replicates, each from its own generator.

    Simulation grade: the generators are seeded from the replicates' seeds, so that results
    can be repeated; somebody who knows the seed knows the noise. Replicate i draws from
    generator i only, so its noise does not depend on the number of replicates.

    Args:
        generators: One generator per replicate, used for nothing else.

    Raises:
        ParameterError: If there is none, one is no `numpy.random.Generator`, or two
            replicates share one.
    """

    def __init__(self, generators: Sequence[np.random.Generator]) -> None:
        self.generators = tuple(generators)
        if not self.generators:
            raise ParameterError("a noise source needs at least one generator")
        for generator in self.generators:
            if not isinstance(generator, np.random.Generator):
                raise ParameterError(
                    f"a noise source needs numpy.random.Generator objects; got {generator!r}"
                )
        if len({id(g.bit_generator) for g in self.generators}) < len(self.generators):
            raise ParameterError("replicates must not share a generator")

    @classmethod
    def from_seed(cls, seed: int | Sequence[int], replicates: int = 1) -> NoiseSource:
        """A noise source of its own, for scripts and tests: replicate i spawns from `seed`."""
        children = np.random.SeedSequence(seed).spawn(count("replicates", replicates))
        return cls([np.random.Generator(np.random.PCG64DXSM(child)) for child in children])

    @property
    def replicates(self) -> int:
        """Number of replicates B."""
        return len(self.generators)

    def normal(self, shape: int | tuple[int, ...] = ()) -> FloatArray:
        """Standard normals of shape ``(B, *shape)``, row i drawn from generator i."""
        tail = (shape,) if isinstance(shape, int) else tuple(shape)
        out = np.empty((self.replicates, *tail))
        for row, generator in zip(out, self.generators):
            if tail:
                generator.standard_normal(out=row)
        if not tail:
            out[:] = [generator.standard_normal() for generator in self.generators]
        return out

    def spawn(self) -> NoiseSource:
        """An independent noise source, its seeds drawn from these generators.

        Drawn, not counted: the children after a checkpoint differ from those before it.
        """
        words = [generator.integers(0, 2**64, 4, dtype=np.uint64) for generator in self.generators]
        seeds = [np.random.SeedSequence([int(word) for word in row]) for row in words]
        return NoiseSource([np.random.Generator(np.random.PCG64DXSM(seed)) for seed in seeds])

    def state_dict(self) -> dict[str, Any]:
        """States of the generators, for a checkpoint."""
        return {"generators": [g.bit_generator.state for g in self.generators]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`.

        Raises:
            ParameterError: If the state is of another number or kind of generators.
        """
        states = state["generators"]
        if len(states) != self.replicates:
            raise ParameterError(
                f"the state holds {len(states)} generators; expected {self.replicates}"
            )
        for generator, one in zip(self.generators, states):
            try:
                generator.bit_generator.state = one
            except (TypeError, ValueError) as error:
                raise ParameterError(f"state of another kind of generator: {error}") from error


class NormalStream:
    """A stream of normal vectors per replicate, drawn in blocks of steps.

    Has generators of its own, so the block length changes nothing in what it yields.

    Args:
        noise: Source from which the stream's generators are spawned.
        width: Numbers per step and replicate.
    """

    def __init__(self, noise: NoiseSource, width: int) -> None:
        self._source = noise.spawn()
        self.width = count("width", width)
        self.steps = max(1, BLOCK // self.width)
        self.block: FloatArray = np.empty((self._source.replicates, self.steps, self.width))
        self.position = self.steps

    def advance(self) -> int:
        """Index of the next step in `block` (replicates, steps, width)."""
        if self.position == self.steps:
            for row, generator in zip(self.block, self._source.generators):
                generator.standard_normal(out=row)
            self.position = 0
        self.position += 1
        return self.position - 1

    def take(self, steps: int) -> FloatArray:
        """The next `steps` steps at once, (B, steps, width)."""
        out = np.empty((self._source.replicates, steps, self.width))
        rest = self.block[:, self.position :][:, :steps]
        out[:, : rest.shape[1]] = rest
        self.position += rest.shape[1]
        for row, generator in zip(out, self._source.generators):
            generator.standard_normal(out=row[rest.shape[1] :])
        return out

    def state_dict(self) -> dict[str, Any]:
        """Generators' states and what is left of the block."""
        rest = self.block[:, self.position :].copy()
        return {"source": self._source.state_dict(), "rest": rest}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        rest = np.asarray(state["rest"], dtype=np.float64)
        if rest.ndim != 3 or rest.shape[::2] != self.block.shape[::2] or rest.shape[1] > self.steps:
            raise ParameterError(f"noise state of shape {rest.shape}, not {self.block.shape}")
        self._source.load_state(state["source"])
        self.position = self.steps - rest.shape[1]
        self.block[:, self.position :] = rest
