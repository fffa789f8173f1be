"""Delayed feedback: when the response of a round arrives, and what waits until then.

Delays come from a stream of their own, so which round's response arrives in a round is fixed
before play: it depends on no context, action or response. Responses queue by arrival, and at most
one is handed over per round.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from dpb_gym import portable, validation
from dpb_gym.errors import ParameterError, shown
from dpb_gym.problems.base import Problem
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.rounds import Array, Context, Feedback
from dpb_gym.streams import BlockDraws, Stream, fill_uniforms, generator

LAWS = ("fixed", "geometric", "pareto")
LONGEST = 10**6
_FORMS = "a number of rounds, 'geometric=50', 'pareto=10,cap=1000' or the like"
NOTHING = {"choice": -1, "arms": -1}
"""What stands for nobody in the fields where that is not 0."""
# Rows of a buffer: what stands for a round in which nothing arrives, and what is never read.
_NOTHING, _WASTE = 0, 1


@dataclass(frozen=True)
class Delay:
    """How many rounds after its own a response arrives; 0 is at once.

    Its text is exact: ``fixed=50``, ``geometric=50,lost=0.1`` or
    ``pareto=10,cap=1000,shape=1.5,window=200``.

    Attributes:
        law: ``"fixed"``; ``"geometric"``; or ``"pareto"``, heavy-tailed:
            P[delay >= k] = (1 + k / rounds)^-shape for k up to `cap`.
        rounds: The delay; its mean; or its scale.
        cap: Pareto: the largest delay.
        shape: Pareto: the smaller, the heavier the tail; the mean is infinite up to 1 but for
            the cap.
        lost: Probability that a response never arrives.
        window: A response later than this never arrives (a conversion window).

    Raises:
        ParameterError: If an attribute is out of range or belongs to another law.

    Example:
        >>> str(Delay.parse("geometric = 50, lost = 0.1"))
        'geometric=50,lost=0.1'
    """

    law: str
    rounds: float
    cap: int | None = None
    shape: float = 1.5
    lost: float = 0.0
    window: int | None = None

    def __post_init__(self) -> None:
        validation.choice("delay: law", self.law, LAWS)
        if self.law == "fixed":
            validation.integer("delay", self.rounds, 0, LONGEST)
        else:
            validation.real("delay: rounds", self.rounds, 0.0, LONGEST, open_low=True)
        if (self.cap is not None) != (self.law == "pareto"):
            raise ParameterError(f"pareto delays, and no others, have a cap; got {self}")
        if self.cap is not None:
            validation.integer("delay: cap", self.cap, 1, LONGEST)
        validation.real("delay: shape", self.shape, 0.0, open_low=True)
        if self.law != "pareto" and self.shape != 1.5:
            raise ParameterError(f"only pareto delays have a shape; got {self}")
        validation.real("delay: lost", self.lost, 0.0, 1.0, open_high=True)
        if self.window is not None:
            validation.integer("delay: window", self.window, 0)

    @classmethod
    def parse(cls, value: Any) -> Delay | None:
        """Reads the text form, or a fixed delay as an integer; None is no delay.

        Raises:
            ParameterError: If it is anything else, or out of range.
        """
        if value is None or isinstance(value, Delay):
            return value
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return cls("fixed", int(value))
        if not isinstance(value, str):
            raise ParameterError(f"delay must be {_FORMS}; got {shown(value)}")
        found: dict[str, Any] = {}
        for part in value.split(","):
            name, equals, number = (piece.strip() for piece in part.partition("="))
            known = name in ("cap", "shape", "lost", "window") if "law" in found else name in LAWS
            try:
                amount = float(number)
            except ValueError:
                known = False
            if not known or not equals or name in found:
                raise ParameterError(
                    f"delay must be {_FORMS}, then cap=, shape=, lost= or window=; got {value!r}"
                )
            whole = amount.is_integer() and name not in ("shape", "lost")
            found["rounds" if name in LAWS else name] = int(amount) if whole else amount
            if name in LAWS:
                found["law"] = name
        return cls(**found)

    def __str__(self) -> str:
        rest = [
            f"{field.name}={getattr(self, field.name):.15g}"
            for field in fields(self)[2:]
            if getattr(self, field.name) not in (None, field.default)
        ]
        return ",".join([f"{self.law}={self.rounds:.15g}", *rest])

    def tails(self, horizon: int) -> Array:
        """P[delay >= k] for k = 1, 2, ..., up to the largest delay that matters."""
        if self.law == "fixed":
            return np.ones(min(int(self.rounds), horizon))
        if self.law == "geometric":
            ratio = self.rounds / (1.0 + self.rounds)
            # uniforms are multiples of 2^-53
            count = math.ceil(-53.0 * portable.log(2.0) / portable.log(ratio))
            return np.multiply.accumulate(np.full(min(max(1, count), horizon), ratio))
        assert self.cap is not None
        steps = np.arange(1, min(self.cap, horizon) + 1) / self.rounds
        return portable.each(lambda x: portable.power(1.0 + x, -self.shape), steps)


class _Queue:
    """The responses of one replicate that are on their way."""

    def __init__(self, rng: Generator) -> None:
        self.draws = BlockDraws([rng], (2,), fill_uniforms)
        self.waiting: list[tuple[int, int, int]] = []
        self.free: list[int] = []
        self.rows = _WASTE + 1
        self.t = 0

    def put(self, late: int | None) -> int:
        """The row in which this round's record waits, `late` rounds; None: for ever."""
        if late is None:
            return _WASTE
        if not self.free:
            self.free.append(self.rows)
            self.rows += 1
        row = self.free.pop()
        heapq.heappush(self.waiting, (self.t + late, self.t, row))
        return row

    def take(self) -> tuple[int, int]:
        """Row and round of the response that arrives now; `_NOTHING` and 0 if there is none."""
        if not self.waiting or self.waiting[0][0] > self.t:
            return _NOTHING, 0
        _, origin, row = heapq.heappop(self.waiting)
        self.free.append(row)
        return row, origin


class Arrivals:
    """Which round's response arrives in each round, for B replicates.

    Attributes:
        origin: The round whose response arrived in the last one, 0 where none did ``(B,)``.
        waiting: Responses that are late, or due and behind others ``(B,)``.
    """

    def __init__(
        self,
        delay: Delay,
        horizon: int,
        seeds: Sequence[int],
        episodes: Sequence[int] | None = None,
    ) -> None:
        B = len(seeds)
        self._horizon = horizon
        self._lost, self._window = delay.lost, delay.window
        self._tails = delay.tails(horizon)[::-1].copy()
        self._put, self._take = np.full(B, _WASTE), np.full(B, _NOTHING)
        self.origin = np.zeros(B, np.int64)
        self._queues: list[_Queue] = [None] * B  # type: ignore[list-item]
        for i, (seed, episode) in enumerate(zip(seeds, episodes or [0] * B)):
            self.restart(i, seed, episode)

    @property
    def arrived(self) -> Array:
        """Where a response arrived in the last round, ``(B,)``."""
        return self.origin > 0

    @property
    def waiting(self) -> Array:
        """How many responses are still to come, ``(B,)``."""
        return np.array([len(queue.waiting) for queue in self._queues])

    def restart(self, i: int, seed: int, episode: int) -> None:
        """Starts replicate i afresh; what was on its way is gone."""
        self._queues[i] = _Queue(generator(seed, Stream.DELAY, episode))

    def turn(self, lanes: Array | None = None) -> None:
        """Goes on to the next round, in all replicates or where the mask `lanes` is True."""
        for i, queue in enumerate(self._queues):
            if lanes is not None and not lanes[i]:
                self._put[i], self._take[i], self.origin[i] = _WASTE, _NOTHING, 0
                continue
            queue.t += 1
            self._put[i] = queue.put(self._late(queue))
            self._take[i], self.origin[i] = queue.take()

    def _late(self, queue: _Queue) -> int | None:
        """The delay of this round's response; None if it never arrives."""
        lost, uniform = queue.draws.next()[0].tolist()
        late = len(self._tails) - int(np.searchsorted(self._tails, uniform, side="right"))
        closed = self._window is not None and late > self._window
        if lost < self._lost or closed or queue.t + late > self._horizon:
            return None
        return late

    def swap(self, buffer: DelayBuffer, rows: dict[str, Array]) -> dict[str, Array]:
        """Keeps this round's rows ``(B, ...)`` in a buffer; returns copies of those that arrive."""
        return buffer.swap(rows, self._put, self._take)

    def exchange(self, buffer: DelayBuffer, feedback: Feedback) -> Feedback:
        """Keeps this round's feedback; returns what arrives, not observed where nothing does."""
        found = self.swap(buffer, _arrays(feedback))
        seen = found.get("observed", np.ones(len(feedback.reward), bool))
        found["observed"] = self.arrived & seen
        return feedback._replace(**found)


class DelayBuffer:
    """Rows of B replicates that wait for their response.

    Where nothing arrives the row is one of nothing: zeros, no choice, no arms, and in all entries
    of an action the number that the buffer is made with. Nobody's features are seen twice, then,
    whatever an agent does with rounds that were not observed.
    """

    def __init__(self, action: int = 0) -> None:
        self._nothing = {**NOTHING, "action": action}
        self._kept: dict[str, Array] = {}

    def swap(self, rows: dict[str, Array], put: Array, take: Array) -> dict[str, Array]:
        """Puts rows in their places and takes those that are due; see `Arrivals.swap`."""
        last, found = int(put.max()), {}
        for name, value in rows.items():
            lanes = np.arange(len(value))
            kept = self._kept.get(name, value[:0, None])
            if last >= len(kept):
                grown = np.zeros((2 * (last + 1), *value.shape), value.dtype)
                grown[_NOTHING] = self._nothing.get(name, 0)
                grown[: len(kept)] = kept
                kept = self._kept[name] = grown
            kept[put, lanes] = value
            found[name] = kept[take, lanes]
        return found


class Delivery:
    """What the agents of a block may learn from: this round's responses, or those that arrive.

    A single seed is that of all replicates.
    """

    def __init__(self, problem: Problem, seeds: Sequence[int]) -> None:
        delay = Delay.parse(problem.info.delay)
        self.arrivals = None if delay is None else Arrivals(delay, problem.horizon, seeds)
        nothing = kind_of(problem.kind).nothing
        self._buffers: defaultdict[int | None, DelayBuffer] = defaultdict(
            partial(DelayBuffer, nothing)
        )

    def open(self, context: Context) -> None:
        """Goes on to the round of this context."""
        self._context = context
        if self.arrivals is not None:
            self.arrivals.turn()
            found = self.arrivals.swap(self._buffers[None], _arrays(context))
            self._context = context._replace(**found)  # type: ignore[arg-type]

    def deliver(
        self, action: Array, feedback: Feedback, agent: int = 0
    ) -> tuple[Context, Array, Feedback]:
        """What an agent, one of several by its number, observes once a round.

        With a delay they are those of the round whose response arrives; ``context.t`` stays the
        current round, and ``feedback.observed`` is False where nothing arrives.
        """
        if self.arrivals is None:
            return self._context, action, feedback
        buffer = self._buffers[agent]
        (came,) = self.arrivals.swap(buffer, {"action": action}).values()
        return self._context, came, self.arrivals.exchange(buffer, feedback)


def _arrays(batch: Context | Feedback) -> dict[str, Array]:
    return {k: v for k, v in batch._asdict().items() if isinstance(v, np.ndarray)}
