"""Composition of accounting events on the same records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import dpb_gym.privacy.objective_perturbation  # noqa: F401 - registers its event
from dpb_gym import state
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.events import EVENT_TYPES, Event, GaussianEvent, PureEvent, ZCDPEvent


@state.register
@dataclass(frozen=True)
class Composition:
    """Events that one protected unit is charged with; their losses add up.

    Releases over disjoint records are one event of their releaser.

    Attributes:
        events: Distinct events, each with its count.
    """

    events: tuple[Event, ...] = ()

    @classmethod
    def of(cls, *events: Event) -> Composition:
        """Return the composition of `events`, in any order.

        Counts of events that are otherwise equal add up.
        """
        # equal events in another order are one composition, so that caches and texts agree
        counts: dict[Event, int] = {}
        for event in events:
            key = replace(event, count=1) if hasattr(event, "count") else event  # type: ignore[call-arg]
            counts[key] = counts.get(key, 0) + getattr(event, "count", 1)
        merged: list[Event] = []
        for key, times in counts.items():
            counted = hasattr(key, "count")
            merged += [replace(key, count=times)] if counted else [key] * times  # type: ignore[call-arg]
        return cls(tuple(merged))

    @property
    def zcdp(self) -> float | None:
        """rho of zCDP, or None if some event has no such bound."""
        known = [event.zcdp for event in self.events if event.zcdp is not None]
        return sum(known) if len(known) == len(self.events) else None

    @property
    def pure(self) -> float:
        """Epsilon of pure differential privacy; infinite if there is none."""
        return sum(event.pure for event in self.events)

    def group(self, size: int) -> Composition | None:
        """Return the cost for a group of `size` protected units; None if no bound is known.

        Sensitivities of Gaussian noise and epsilons of pure privacy are multiplied by `size`, zCDP
        by `size` squared (Bun & Steinke 2016, Proposition 27).
        """
        if size == 1:
            return self
        grouped: list[Event] = []
        for event in self.events:
            if isinstance(event, GaussianEvent):
                # triangle inequality: a chain of neighbours of so many steps
                grouped.append(replace(event, sensitivity=size * event.sensitivity))
            elif math.isfinite(event.pure):
                count = getattr(event, "count", 1)
                grouped.append(PureEvent(size * event.pure / count, count))
            elif event.zcdp is not None:
                grouped.append(ZCDPEvent(size * size * event.zcdp))
            else:
                return None
        return Composition.of(*grouped)

    def __bool__(self) -> bool:
        return bool(self.events)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the composition as plain JSON values; inverse of `from_dict`."""
        return [event.to_dict() for event in self.events]

    @classmethod
    def from_dict(cls, data: Iterable[Mapping[str, Any]]) -> Composition:
        """Return the composition of a `to_dict` value.

        Raises:
            ParameterError: If an event is unknown or invalid.
        """
        try:
            return cls.of(*(event_from_dict(item) for item in data))
        except (TypeError, AttributeError, ValueError) as error:
            raise ParameterError(f"a composition is a list of events: {error}") from error


def event_from_dict(data: Mapping[str, Any]) -> Event:
    """Return the event of an `Event.to_dict` value.

    Raises:
        ParameterError: If the kind or a field is unknown or invalid.
    """
    values = dict(data)
    kind = values.pop("kind", None)
    if not kind or kind not in EVENT_TYPES:
        known = ", ".join(sorted(k for k in EVENT_TYPES if k))
        raise ParameterError(f"unknown kind of accounting event {kind!r}; known: {known}")
    try:
        return EVENT_TYPES[kind](**values)
    except TypeError as error:
        raise ParameterError(f"a {kind!r} event has other fields: {error}") from error
