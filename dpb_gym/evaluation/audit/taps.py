"""Taps on the privacy boundary: what releasers take in and give out.

A running agent's releasers (anything with `add` and `release`) and message senders (anything
with `send`) are found among its attributes; their methods are wrapped on the instance. The
code that runs is the code that ships.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dpb_gym.agent import BatchedSingle
from dpb_gym.privacy import ObjectivePerturbation
from dpb_gym.problems.base import Array

MOST_TAPS = 16
# Minimisers whose noise is worked out from the released parameters, per releaser.
MOST_MINIMA = 2
PLAIN = ("numpy", "builtins", "collections", "functools")
Gradient = Callable[[Array], Array]


def boundary(agent: Any) -> list[tuple[str, Any]]:
    """Releasers or senders of an agent by attribute path, the outermost only.

    Those of the copies of a `SingleAgent` are taken together, see `Lanes`. Where messages are
    sent, everything behind is post-processing, so only senders count.
    """
    if isinstance(agent, BatchedSingle) and agent.copies:
        walks = [dict(_walk(copy, type(copy).__name__, set())) for copy in agent.copies]
        if any(walk.keys() != walks[0].keys() for walk in walks):
            return []
        found = [(name, Lanes([walk[name] for walk in walks])) for name in walks[0]]
    else:
        found = list(_walk(agent, type(agent).__name__, set()))
    senders = [(name, thing) for name, thing in found if not is_releaser(thing)]
    return senders or found


def is_releaser(thing: Any) -> bool:
    """Whether records go in by `add` and releases come out by `release`."""
    return callable(getattr(thing, "add", None)) and callable(getattr(thing, "release", None))


class Lanes:
    """The same releaser or sender of every copy of a `SingleAgent`, as one of all replicates.

    Whenever all copies have called a method once more, it is called here with their arguments
    (for outputs: with what came out) stacked along the replicates.
    """

    def __init__(self, things: Sequence[Any]) -> None:
        first = things[0]
        self.kind = type(first).__name__
        self.event = getattr(first, "event", None)
        self.sensitivity = getattr(first, "sensitivity", None)
        self.plan = getattr(first, "plan", None)
        methods = ("add", "release") if is_releaser(first) else ("send",)
        for method in methods:
            object.__setattr__(self, method, _same)
            queues: list[deque[Any]] = [deque() for _ in things]
            for lane, thing in enumerate(things):
                wrap(thing, method, partial(self._call, method, queues, lane))

    def _call(
        self,
        method: str,
        queues: list[deque[Any]],
        lane: int,
        original: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        out = original(*args, **kwargs)
        if method == "add":
            named = {
                key: np.array(value, ndmin=1) for key, value in kwargs.items() if value is not None
            }
            queues[lane].append(([np.array(value, ndmin=1) for value in args], named))
        else:
            queues[lane].append(([[np.array(part) for part in _arrays(out)]], {}))
        if all(queues):
            calls = [queue.popleft() for queue in queues]
            named = {key: _stacked([call[1][key] for call in calls]) for key in calls[0][1]}
            getattr(self, method)(*map(_stacked, zip(*(call[0] for call in calls))), **named)
        return out


def _same(value: Any = None, *rest: Any, **named: Any) -> Any:
    """What a stacked call returns: its first argument, which for outputs is what came out."""
    return value


def _stacked(lanes: Sequence[Any]) -> Any:
    if isinstance(lanes[0], list):
        parts = [np.concatenate(part) for part in zip(*lanes)]
        return parts[0] if len(parts) == 1 else parts
    return np.concatenate(lanes)


def _walk(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _walk(item, f"{name}[{i}]", seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{name}[{key!r}]", seen)
    elif type(value).__module__.split(".")[0] not in PLAIN and hasattr(value, "__dict__"):
        if is_releaser(value) or callable(getattr(value, "send", None)):
            yield name, value
            return
        for key, item in vars(value).items():
            yield from _walk(item, f"{name}.{key}", seen)


def wrap(thing: Any, method: str, around: Callable[..., Any]) -> None:
    """Replaces a method of one instance by ``around(original, *args, **kwargs)``."""
    original = getattr(thing, method)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    object.__setattr__(thing, method, wrapped)


class Tap:
    """Records one releaser or sender of an agent that runs both worlds at once.

    For sums, what matters is their change along the direction in which the two target records
    differ; the sum of all other records along it, which the attacker knows, is kept beside it
    so that a discriminant can subtract it.

    Args:
        name: Where it was found.
        thing: The releaser or sender.
        runs: Replicates in each world, the first world's first.
    """

    def __init__(self, name: str, thing: Any, runs: int) -> None:
        self.name, self.thing, self.runs = name, thing, runs
        self.target = False
        self.calls = 0
        self.additive = True
        self.axis: Array | None = None
        self.distance = 0.0
        self._others: Array | None = None
        self._record: Array | None = None
        self._outputs: list[tuple[Array, Array | None]] = []
        self._messages: list[Array] = []
        self._losses: tuple[Gradient, Gradient] | None = None
        self.others_gradient: Gradient | None = None
        self._minima: list[Array] = []
        if is_releaser(thing):
            wrap(thing, "add", self._add)
            wrap(thing, "release", self._release)
        else:
            wrap(thing, "send", self._send)

    def _add(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.additive:
            self._take(*args, **kwargs)
        return original(*args, **kwargs)

    def _take(
        self,
        records: Any = None,
        directions: Any = None,
        users: Any = None,
        *rest: Any,
        **more: Any,
    ) -> None:
        rows = np.asarray(records, dtype=np.float64)
        if rest or more or rows.ndim == 0 or len(rows) != 2 * self.runs:
            self.additive = False
            return
        if directions is not None:
            directions = np.asarray(directions, dtype=np.float64)
            if rows.ndim != 1 or directions.ndim != 2:
                self.additive = False
                return
            rows = rows[:, None] * directions
        rows = rows.reshape(len(rows), -1)
        if self.target:
            self._record = rows.copy() if self._record is None else self._record + rows
        elif self.axis is not None:
            self._others += (rows * self.axis).sum(axis=1)
        else:
            self._others = rows.copy() if self._others is None else self._others + rows

    def aim(self, first_loss: Gradient, second_loss: Gradient) -> None:
        """Fixes the direction, once the target has sent everything.

        Args:
            first_loss: Gradient of the target's loss in the first world, for releasers that
                minimise.
            second_loss: The same in the second world.
        """
        self._losses = first_loss, second_loss
        if self._record is None or not self.additive:
            return
        first, second = self._record[: self.runs], self._record[self.runs :]
        gap = second.mean(axis=0) - first.mean(axis=0)
        self.distance = float(np.sqrt((gap**2).sum()))
        self.axis = gap / self.distance if self.distance > 0 else np.zeros_like(gap)
        others = np.zeros_like(self._record) if self._others is None else self._others
        self._others = (others * self.axis).sum(axis=1)
        self._outputs = [self._project(rows, known) for rows, known in self._outputs]

    def _project(self, rows: Array, known: Array | None) -> tuple[Array, Array]:
        assert self.axis is not None
        if rows.shape[1] != self.axis.size:
            self.additive = False
            return rows, np.zeros((len(rows), 0))
        along = (rows * self.axis).sum(axis=1)
        other = np.zeros(len(rows)) if known is None else (known * self.axis).sum(axis=1)
        return along, other

    def _release(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        released = original(*args, **kwargs)
        rows = np.array(released, dtype=np.float64).reshape(len(released), -1)
        self.calls += 1
        if self.wants_gradient and self.others_gradient is not None:
            gradient = self.others_gradient(np.ascontiguousarray(rows))
            self._minima.append(-(gradient + self._plan.ridge * rows))
        if self.axis is None or not self.additive:
            known = self._others if self.additive else None
            self._outputs.append((rows, None if known is None else known.copy()))
        elif rows.shape[1] == self.axis.size:
            assert self._others is not None
            self._outputs.append(((rows * self.axis).sum(axis=1), self._others.copy()))
        return released

    @property
    def wants_gradient(self) -> bool:
        """Whether the gradient of everybody else's loss is still of use."""
        planned = isinstance(self._plan, ObjectivePerturbation)
        return planned and len(self._minima) < MOST_MINIMA

    def _send(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        sent = original(*args, **kwargs)
        self.calls += 1
        if self.target:
            parts = [a.reshape(2 * self.runs, -1) for a in _arrays(sent)]
            self._messages.append(np.concatenate(parts, axis=1).astype(np.float64))
        return sent

    def features(self, most: int = 16) -> Array:
        """What was seen, ``(2 runs, numbers)``."""
        blank = np.zeros((2 * self.runs, 0))
        if self._messages:
            return np.concatenate(self._messages, axis=1)
        if not self._outputs:
            return blank
        if self._minima:
            return np.concatenate(self._minima, axis=1)
        if self.axis is None or not self.additive:
            few = [self._outputs[i][0] for i in spread(len(self._outputs), max(1, most // 3))]
            return np.concatenate([rows.reshape(2 * self.runs, -1) for rows in few], axis=1)
        kept = [self._outputs[i] for i in spread(len(self._outputs), most)]
        columns = []
        for j in range(2):
            values = np.stack([np.asarray(output[j]) for output in kept], axis=1)
            columns.append(np.diff(values, axis=1, prepend=0.0))
        return np.concatenate(columns, axis=1)

    @property
    def attained(self) -> tuple[float, float] | None:
        """Distance of the two target records and the sensitivity they are charged with."""
        if isinstance(self._plan, ObjectivePerturbation):
            return self._gradient_gap(self._plan)
        event = getattr(self.thing, "event", None)
        whole = getattr(self.thing, "sensitivity", getattr(event, "sensitivity", None))
        if self.axis is None or not isinstance(whole, float) or not whole > 0:
            return None
        return self.distance, whole

    @property
    def _plan(self) -> Any:
        return getattr(self.thing, "plan", None)

    def _gradient_gap(self, plan: ObjectivePerturbation) -> tuple[float, float] | None:
        """At the first released parameters: the target's gradients in the two worlds."""
        if not self._outputs or self._losses is None:
            return None
        theta = np.ascontiguousarray(self._outputs[0][0][: self.runs])
        gap = self._losses[0](theta) - self._losses[1](theta)
        return float(np.median(np.sqrt((gap**2).sum(axis=1)))), plan.event.sensitivity

    @property
    def mu(self) -> float:
        """mu of what was charged, or of the noise in one minimisation; 0 if not known."""
        if isinstance(self._plan, ObjectivePerturbation):
            return self._plan.event.sensitivity / self._plan.sigma
        found = getattr(getattr(self.thing, "event", None), "gaussian_mu", None)
        return float(found or 0.0)


def _arrays(value: Any) -> Iterator[Array]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays(item)


def spread(count: int, most: int) -> list[int]:
    """At most `most` of the indices 0..count-1: the first ones, then ever sparser, the last."""
    if count <= most:
        return list(range(count))
    first = most // 2
    rest = np.geomspace(first + 1, count, most - first).round().astype(int) - 1
    return sorted({*range(first), *rest.tolist()})
