"""Random streams: one per replicate and purpose, so that nothing depends on the batch.

A replicate is identified by its integer seed (and, inside an environment, by the number of its
episode). Every kind of random number has a separate stream and consumes a fixed count of numbers
per round. Therefore numbers are bit for bit the same for any block length, batch size and set of
other agents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpb_gym import state
from dpb_gym.errors import ParameterError, StateError, shown
from dpb_gym.portable import fill_normals

BLOCK_BYTES = 1 << 21
MAX_BLOCK_ROUNDS = 512


class Stream(IntEnum):
    """Purposes of random streams; the numbers affect every result: append, never renumber."""

    HIDDEN = 0
    FEATURES = 1
    REVENUES = 2
    CANDIDATES = 3
    RESPONSE = 4
    USERS = 5
    AGENT = 6
    PRIVACY = 7
    LOCAL_PRIVACY = 8
    DRIFT = 9
    AVAILABLE = 10
    CUSTOMERS = 11
    CONTAMINATION = 12
    DELAY = 13
    TAILS = 14
    RETURNS = 15


def generator(
    seed: int, stream: Stream, episode: int = 0, configuration: str = ""
) -> np.random.Generator:
    """Return the generator of one replicate for one purpose.

    Args:
        seed: Seed of the replicate, a non-negative integer.
        stream: Purpose of the numbers.
        episode: Number of the episode inside an environment; the harness uses 0.
        configuration: Agent, parameters and budget as text. Two budgets of one agent must not
            share noise: subtracting their releases would cancel it.
    """
    key: tuple[int, ...] = (int(episode), int(stream))
    if configuration:
        digest = hashlib.sha256(configuration.encode()).digest()
        key += tuple(np.frombuffer(digest[:16], dtype="<u4").tolist())
    sequence = np.random.SeedSequence(entropy=int(seed), spawn_key=key)
    return np.random.Generator(np.random.SFC64(sequence))


def check_seed(seed: object) -> int:
    """Return a non-negative integer seed or raise `ParameterError`."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ParameterError(f"seed must be a non-negative integer, got {shown(seed)}")
    return int(seed)


def block_rounds(replicates: int, bytes_per_round: int) -> int:
    """Return the rounds per block: enough to amortise calls, few enough to stay in cache."""
    per_round = max(1, replicates * bytes_per_round)
    return int(min(MAX_BLOCK_ROUNDS, max(1, BLOCK_BYTES // per_round)))


class BlockDraws:
    """Per-round random numbers for B replicates, drawn ahead in blocks.

    Each call of `next` returns the next round's numbers, shape ``(B, *shape)``, as a
    view that stays valid until the next call.

    Args:
        generators: One generator per replicate, not used elsewhere.
        shape: Shape of one replicate's numbers in one round.
        fill: ``fill(generator, out)`` writes the numbers of ``len(out)`` rounds.
    """

    evolves: ClassVar[tuple[str, ...]] = ("_block", "_next")

    def __init__(
        self,
        generators: Sequence[np.random.Generator],
        shape: tuple[int, ...],
        fill: Callable[[np.random.Generator, NDArray[np.float64]], None],
    ) -> None:
        self._generators = tuple(generators)
        self._fill = fill
        count = int(np.prod(shape, dtype=np.int64)) if shape else 1
        rounds = block_rounds(len(self._generators), 8 * count)
        self._block = np.zeros((rounds, len(self._generators), *shape))
        self._next = rounds

    def next(self) -> NDArray[np.float64]:
        """Return the next round's numbers, shape ``(B, *shape)``."""
        self._fill_if_empty()
        self._next += 1
        drawn: NDArray[np.float64] = self._block[self._next - 1]
        return drawn

    def take(self, rounds: int) -> NDArray[np.float64]:
        """Return the numbers of the next rounds, ``(rounds, B, *shape)``, as copies."""
        taken = np.empty((rounds, *self._block.shape[1:]))
        done = 0
        while done < rounds:
            self._fill_if_empty()
            part = self._block[self._next : self._next + rounds - done]
            taken[done : done + len(part)] = part
            self._next, done = self._next + len(part), done + len(part)
        return taken

    def _fill_if_empty(self) -> None:
        if self._next == len(self._block):
            ahead = np.empty_like(self._block[:, 0])
            for i, rng in enumerate(self._generators):
                self._fill(rng, ahead)
                self._block[:, i] = ahead
            self._next = 0


def fill_uniforms(rng: np.random.Generator, out: NDArray[Any]) -> None:
    """Fill an array with uniforms on [0, 1)."""
    rng.random(out=out)


def _written(draws: BlockDraws) -> dict[str, Any]:
    """Return the attributes of draws, with the name of the function that fills them."""
    named = [name for name, fill in FILLS.items() if fill is draws._fill]
    if not named:
        raise StateError(f"random numbers are filled by {' or '.join(FILLS)}, not {draws._fill}")
    return {**vars(draws), "_fill": named[0]}


def _read(draws: BlockDraws, attributes: dict[str, Any]) -> None:
    fill = attributes.get("_fill")
    if set(attributes) != {"_generators", "_fill", "_block", "_next"} or fill not in FILLS:
        raise StateError(f"random numbers are filled by {' or '.join(FILLS)}, got {shown(fill)}")
    vars(draws).update(attributes, _fill=FILLS[fill])


FILLS = {"normals": fill_normals, "uniforms": fill_uniforms}
"""Functions that fill blocks, by their names in files."""
state.register(BlockDraws, out=_written, into=_read)


@state.register
class AgentStreams:
    """Random numbers of an agent: for decisions and for privacy noise.

    Args:
        seeds: Seeds of the B replicates.
        configuration: Agent, parameters and budget as text; see `generator`.
        episode: Number of the episode.

    Attributes:
        seeds: Seeds of the B replicates.
        replicates: B.
        agent: One generator per replicate for the agent's decisions.
        noise: One generator per replicate for privacy noise.
    """

    def __init__(self, seeds: Sequence[int], configuration: str = "", episode: int = 0) -> None:
        self.seeds = tuple(check_seed(s) for s in seeds)
        self.replicates = len(self.seeds)
        self.configuration = configuration
        self.agent = tuple(generator(s, Stream.AGENT, episode, configuration) for s in self.seeds)
        self.noise = tuple(generator(s, Stream.PRIVACY, episode, configuration) for s in self.seeds)

    def uniforms(self, *shape: int) -> BlockDraws:
        """Return per-round uniforms on [0, 1) from the agents' generators.

        An agent that needs several kinds of numbers must request them in one block, because
        all blocks share the replicate's generator.
        """
        return BlockDraws(self.agent, shape, fill_uniforms)

    def normals(self, *shape: int) -> BlockDraws:
        """Return per-round standard normals from the agents' generators (see `uniforms`)."""
        return BlockDraws(self.agent, shape, fill_normals)
