"""Delayed feedback: delay distributions, arrival times, and the buffer of pending feedback.

Delays come from a separate random stream, so arrival times are fixed before play: they depend on
no context, action or response. Responses queue by arrival, and at most one is delivered per round.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
PLACEHOLDERS = {"choice": -1, "arms": -1, "users": -1}
"""Placeholders for absent feedback in the fields where it is not 0."""
# Rows of a buffer: the placeholder for rounds without arrivals, and one that is never read.
_PLACEHOLDER = 0
_UNREAD = 1


@dataclass(frozen=True)
class Delay:
    """Distribution of the number of rounds between an action and its response; 0 is no delay.

    `str` and `parse` are inverse: ``fixed=50``, ``geometric=50,lost=0.1`` or
    ``pareto=10,cap=1000,shape=1.5,window=200``.

    Attributes:
        law: ``"fixed"``; ``"geometric"``; or ``"pareto"``, heavy-tailed:
            P[delay >= k] = (1 + k / rounds)^-shape for k up to `cap`.
        rounds: Fixed: the delay. Geometric: its mean. Pareto: its scale.
        cap: Pareto: the largest delay.
        shape: Pareto: tail exponent. Without the cap the mean is infinite for shapes up to 1.
        lost: Probability that a response never arrives.
        window: Largest delay of a response that still arrives (a conversion window).

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
        validation.optional(validation.integer, "delay: cap", self.cap, 1, LONGEST)
        validation.real("delay: shape", self.shape, 0.0, open_low=True)
        if self.law != "pareto" and self.shape != 1.5:
            raise ParameterError(f"only pareto delays have a shape; got {self}")
        validation.real("delay: lost", self.lost, 0.0, 1.0, open_high=True)
        validation.optional(validation.integer, "delay: window", self.window, 0)

    @classmethod
    def parse(cls, value: Any) -> Delay | None:
        """Parse the text form, or a fixed delay as an integer; None is no delay.

        Raises:
            ParameterError: If the value has another form or is out of range.
        """
        if value is None or isinstance(value, Delay):
            return value
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return cls("fixed", int(value))
        if not isinstance(value, str):
            raise ParameterError(f"delay must be {_FORMS}; got {shown(value)}")
        arguments: dict[str, Any] = {}
        for part in value.split(","):
            name, equals, number = (piece.strip() for piece in part.partition("="))
            known = (
                name in ("cap", "shape", "lost", "window") if "law" in arguments else name in LAWS
            )
            try:
                amount = float(number)
            except ValueError:
                known = False
            if not known or not equals or name in arguments:
                raise ParameterError(
                    f"delay must be {_FORMS}, then cap=, shape=, lost= or window=; got {value!r}"
                )
            whole = amount.is_integer() and name not in ("shape", "lost")
            arguments["rounds" if name in LAWS else name] = int(amount) if whole else amount
            if name in LAWS:
                arguments["law"] = name
        return cls(**arguments)

    def __str__(self) -> str:
        rest = [
            f"{field.name}={getattr(self, field.name):.15g}"
            for field in fields(self)[2:]
            if getattr(self, field.name) not in (None, field.default)
        ]
        return ",".join([f"{self.law}={self.rounds:.15g}", *rest])

    def tails(self, horizon: int) -> Array:
        """Return P[delay >= k] for k = 1, 2, ..., up to the largest possible delay."""
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
    """Pending responses of one replicate."""

    def __init__(self, rng: Generator) -> None:
        self.draws = BlockDraws([rng], (2,), fill_uniforms)
        self.waiting: list[tuple[int, int, int]] = []
        self.free: list[int] = []
        self.rows = _UNREAD + 1
        self.t = 0

    def put(self, late: int | None) -> int:
        """Return the buffer row for this round's feedback, due in `late` rounds (None: never)."""
        if late is None:
            return _UNREAD
        if not self.free:
            self.free.append(self.rows)
            self.rows += 1
        row = self.free.pop()
        heapq.heappush(self.waiting, (self.t + late, self.t, row))
        return row

    def take(self) -> tuple[int, int]:
        """Return buffer row and round of the response that arrives now, or `_PLACEHOLDER` and 0."""
        if not self.waiting or self.waiting[0][0] > self.t:
            return _PLACEHOLDER, 0
        _, origin, row = heapq.heappop(self.waiting)
        self.free.append(row)
        return row, origin


class Arrivals:
    """Arrival times of the responses of B replicates.

    Attributes:
        origin: The round whose response arrived in the last round, 0 where none did ``(B,)``.
        waiting: Number of pending responses ``(B,)``.
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
        self._put, self._take = np.full(B, _UNREAD), np.full(B, _PLACEHOLDER)
        self.origin = np.zeros(B, np.int64)
        self._queues: list[_Queue] = [None] * B  # type: ignore[list-item]
        for i, (seed, episode) in enumerate(zip(seeds, episodes or [0] * B)):
            self.restart(i, seed, episode)

    @property
    def arrived(self) -> Array:
        """Mask of the replicates in which a response arrived in the last round, ``(B,)``."""
        return self.origin > 0

    @property
    def waiting(self) -> Array:
        """Number of pending responses, ``(B,)``."""
        return np.array([len(queue.waiting) for queue in self._queues])

    def restart(self, i: int, seed: int, episode: int) -> None:
        """Restart replicate i; its pending responses are dropped."""
        self._queues[i] = _Queue(generator(seed, Stream.DELAY, episode))

    def turn(self, lanes: Array | None = None) -> None:
        """Advance to the next round, in all replicates or where the mask `lanes` is True."""
        for i, queue in enumerate(self._queues):
            if lanes is not None and not lanes[i]:
                self._put[i], self._take[i], self.origin[i] = _UNREAD, _PLACEHOLDER, 0
                continue
            queue.t += 1
            self._put[i] = queue.put(self._late(queue))
            self._take[i], self.origin[i] = queue.take()

    def _late(self, queue: _Queue) -> int | None:
        """Draw the delay of this round's response; None if it never arrives."""
        lost, uniform = queue.draws.next()[0].tolist()
        late = len(self._tails) - int(np.searchsorted(self._tails, uniform, side="right"))
        closed = self._window is not None and late > self._window
        return None if lost < self._lost or closed or queue.t + late > self._horizon else late

    def swap(self, buffer: DelayBuffer, rows: dict[str, Array]) -> dict[str, Array]:
        """Put this round's rows ``(B, ...)`` into a buffer; return copies of those that arrive."""
        return buffer.swap(rows, self._put, self._take)

    def exchange(self, buffer: DelayBuffer, feedback: Feedback) -> Feedback:
        """Put this round's feedback into a buffer and return the feedback that arrives.

        `observed` is False where nothing arrives.
        """
        arriving = self.swap(buffer, _arrays(feedback))
        seen = arriving.get("observed", np.ones(len(feedback.reward), bool))
        arriving["observed"] = self.arrived & seen
        return feedback._replace(**arriving)


class DelayBuffer:
    """Buffer of contexts, actions and feedback of B replicates until their responses arrive.

    Where nothing arrives a placeholder is returned: zeros, no choice, no arms, and `action` in all
    entries of an action. So no customer's features are shown twice, whatever an agent does with
    rounds that were not observed.

    Args:
        action: Placeholder in actions.
    """

    def __init__(self, action: int = 0) -> None:
        self._placeholders = {**PLACEHOLDERS, "action": action}
        self._rows: dict[str, Array] = {}

    def swap(self, rows: dict[str, Array], put: Array, take: Array) -> dict[str, Array]:
        """Store rows at the indices `put` and return those at `take`; see `Arrivals.swap`."""
        last = int(put.max())
        taken = {}
        for name, value in rows.items():
            lanes = np.arange(len(value))
            stored = self._rows.get(name, value[:0, None])
            if last >= len(stored):
                grown = np.zeros((2 * (last + 1), *value.shape), value.dtype)
                grown[_PLACEHOLDER] = self._placeholders.get(name, 0)
                grown[: len(stored)] = stored
                stored = self._rows[name] = grown
            stored[put, lanes] = value
            taken[name] = stored[take, lanes]
        return taken


class Delivery:
    """Delivery of feedback to the agents of a block of replicates, delayed if the problem says so.

    Args:
        problem: The problem.
        seeds: Seeds of the replicates; a single one is shared by all replicates.
    """

    def __init__(self, problem: Problem, seeds: Sequence[int]) -> None:
        delay = Delay.parse(problem.info.delay)
        self.arrivals = None if delay is None else Arrivals(delay, problem.horizon, seeds)
        nothing = kind_of(problem.kind).nothing
        self._buffers: defaultdict[int | None, DelayBuffer] = defaultdict(
            partial(DelayBuffer, nothing)
        )

    def open(self, context: Context) -> None:
        """Advance to the round of a context."""
        self._context = context
        if self.arrivals is not None:
            self.arrivals.turn()
            arriving = self.arrivals.swap(self._buffers[None], _arrays(context))
            self._context = context._replace(**arriving)  # type: ignore[arg-type]

    def deliver(
        self, action: Array, feedback: Feedback, agent: int = 0
    ) -> tuple[Context, Array, Feedback]:
        """Return context, action and feedback that an agent observes in this round.

        With a delay they belong to the round whose response arrives. ``context.t`` stays the
        current round, and ``feedback.observed`` is False where nothing arrives.

        Args:
            action: The agent's actions in this round.
            feedback: Feedback to these actions.
            agent: Number of the agent, which has a separate buffer.
        """
        if self.arrivals is None:
            return self._context, action, feedback
        buffer = self._buffers[agent]
        (arrived,) = self.arrivals.swap(buffer, {"action": action}).values()
        return self._context, arrived, self.arrivals.exchange(buffer, feedback)

    def saved(self) -> dict[str, Any]:
        """Return the pending responses as plain state, for `restore`."""
        queues = [] if self.arrivals is None else self.arrivals._queues
        return {
            "queues": [vars(queue) for queue in queues],
            "buffers": {agent: buffer._rows for agent, buffer in self._buffers.items()},
        }

    def restore(self, saved: Mapping[str, Any], numbers: Sequence[int]) -> None:
        """Continue a delivery of the same problem and seeds, with some of its agents.

        Args:
            saved: What `saved` returned.
            numbers: Numbers that the agents had there, in their new order.
        """
        assert self.arrivals is not None
        for queue, state in zip(self.arrivals._queues, saved["queues"], strict=True):
            vars(queue).update(state)
        for new, old in [(None, None), *enumerate(numbers)]:
            self._buffers[new]._rows = saved["buffers"][old]


def _arrays(batch: Context | Feedback) -> dict[str, Array]:
    return {k: v for k, v in batch._asdict().items() if isinstance(v, np.ndarray)}
