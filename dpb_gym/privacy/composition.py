"""Events that concern the same records, added up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import dpb_gym.privacy.objective_perturbation  # noqa: F401 - registers its event
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.events import EVENT_TYPES, Event, GaussianEvent, PureEvent, ZCDPEvent


@dataclass(frozen=True)
class Composition:
    """What one protected unit can be charged with: the losses of its events add up.

    Releases over disjoint records are one event of the releaser that keeps them disjoint.

    Attributes:
        events: Distinct events, each with its count.
    """

    events: tuple[Event, ...] = ()

    @classmethod
    def of(cls, *events: Event) -> Composition:
        """The composition of `events`, in any number and order: counts of those that differ in
        nothing else add up."""
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
        """What `size` protected units are charged with at once; None if nothing is known.

        Group privacy, one unit after the other: Gaussian noise and pure privacy degrade `size`
        times, zCDP `size` squared times (Bun & Steinke 2016, Proposition 27).
        """
        if size == 1:
            return self
        grouped: list[Event] = []
        for event in self.events:
            if isinstance(event, GaussianEvent):
                grouped.append(replace(event, sensitivity=size * event.sensitivity))
            elif math.isfinite(event.pure):
                grouped.append(PureEvent(size * event.pure))
            elif event.zcdp is not None:
                grouped.append(ZCDPEvent(size * size * event.zcdp))
            else:
                return None
        return Composition.of(*grouped)

    def __bool__(self) -> bool:
        return bool(self.events)

    def to_dict(self) -> list[dict[str, Any]]:
        """The composition as plain JSON values; inverse of `from_dict`."""
        return [event.to_dict() for event in self.events]

    @classmethod
    def from_dict(cls, data: Iterable[Mapping[str, Any]]) -> Composition:
        """Rebuilds a composition from `to_dict`.

        Raises:
            ParameterError: If an event is unknown or invalid.
        """
        try:
            return cls.of(*(event_from_dict(item) for item in data))
        except (TypeError, AttributeError, ValueError) as error:
            raise ParameterError(f"a composition is a list of events: {error}") from error


def event_from_dict(data: Mapping[str, Any]) -> Event:
    """Rebuilds an event from `Event.to_dict`.

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
