"""Composition of accounting events: in sequence, and in parallel over disjoint records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.events import Event, GaussianEvent, Zcdp, event_from_dict

MAX_ALTERNATIVES = 256


@dataclass(frozen=True)
class Composition:
    """What one record can be charged with.

    Attributes:
        sequence: Events that all concern the same records; their losses add up.
        parallel: Groups of events over disjoint records: a record takes part in at most one
            event of each group, so a group costs what its costliest member does.
    """

    sequence: tuple[Event, ...] = ()
    parallel: tuple[tuple[Event, ...], ...] = ()

    @classmethod
    def of(cls, *events: Event) -> Composition:
        """The sequential composition of `events`."""
        return cls(merge(events))

    def alternatives(self) -> list[tuple[Event, ...]]:
        """Every sequence of events that one record may face, one member per group.

        Raises:
            ParameterError: If the groups' members are so many and so different that there are
                more than `MAX_ALTERNATIVES`.
        """
        groups = [pruned(group) for group in self.parallel if group]
        if math.prod(len(group) for group in groups) > MAX_ALTERNATIVES:
            raise ParameterError(
                f"parallel groups have more than {MAX_ALTERNATIVES} different combinations of "
                "members; use the same noise for the batches of a group"
            )
        return [merge((*self.sequence, *pick)) for pick in itertools.product(*groups)]

    @property
    def zcdp(self) -> Zcdp | None:
        """``(rho, max_order)`` of the composition, or `None`."""
        rho, max_order = 0.0, math.inf
        for members in ((event,) for event in self.sequence):
            found = _worst(members)
            if found is None:
                return None
            rho, max_order = rho + found[0], min(max_order, found[1])
        for group in self.parallel:
            found = _worst(group)
            if found is None:
                return None
            rho, max_order = rho + found[0], min(max_order, found[1])
        return rho, max_order

    @property
    def pure(self) -> float:
        """Epsilon of pure differential privacy; infinite if there is none."""
        worst = (max((event.pure for event in group), default=0.0) for group in self.parallel)
        return sum(event.pure for event in self.sequence) + sum(worst)

    def __bool__(self) -> bool:
        return bool(self.sequence) or any(self.parallel)

    def to_dict(self) -> dict[str, Any]:
        """The composition as plain JSON values; inverse of `from_dict`."""
        return {
            "sequence": [event.to_dict() for event in self.sequence],
            "parallel": [[event.to_dict() for event in group] for group in self.parallel],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Composition:
        """Rebuilds a composition from `to_dict`."""
        try:
            sequence = tuple(event_from_dict(item) for item in data["sequence"])
            parallel = tuple(
                tuple(event_from_dict(item) for item in group) for group in data["parallel"]
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ParameterError(
                f"a composition is {{'sequence': [...], 'parallel': [[...], ...]}}: {error!r}"
            ) from error
        return cls(sequence, parallel)


def merge(events: Iterable[Event]) -> tuple[Event, ...]:
    """Adds up the counts of events that differ in nothing else, in order of appearance."""
    merged: dict[Event, int] = {}
    for event in events:
        times = getattr(event, "count", None)
        key = event if times is None else replace(event, count=1)  # type: ignore[call-arg]
        merged[key] = merged.get(key, 0) + (1 if times is None else times)
    result: list[Event] = []
    for key, times in merged.items():
        if not hasattr(key, "count"):
            result.extend([key] * times)
        else:
            result.append(replace(key, count=times))  # type: ignore[call-arg]
    return tuple(result)


def pruned(group: Iterable[Event]) -> tuple[Event, ...]:
    """Drops members of a parallel group that another member dominates in every respect."""
    members = list(dict.fromkeys(group))
    gaussians = [event for event in members if isinstance(event, GaussianEvent)]
    if len(gaussians) > 1:
        worst = max(gaussians, key=lambda event: event.gaussian_mu)
        members = [e for e in members if not isinstance(e, GaussianEvent) or e is worst]
    return tuple(members)


def _worst(members: Iterable[Event]) -> Zcdp | None:
    rho, max_order = 0.0, math.inf
    for event in members:
        found = event.zcdp
        if found is None:
            return None
        rho, max_order = max(rho, found[0]), min(max_order, found[1])
    return rho, max_order
