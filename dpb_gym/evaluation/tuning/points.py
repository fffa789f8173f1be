"""Which points of a grid an agent is tuned on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.evaluation.schema import canonical, plain
from dpb_gym.registry import AgentSpec

SHUFFLE_SEED = 20_240_229

Grid = Mapping[str, Sequence[Any]]


def read_grid(spec: AgentSpec, given: Grid | None = None) -> dict[str, tuple[Any, ...]]:
    """The grid of an agent: the one given, or its class's `tuning_grid`.

    A class that is registered under several names may map each of them to a grid of its own.

    Raises:
        ParameterError: If there is nothing to tune, or a grid is not lists of values.
    """
    grid: Any = given
    if grid is None:
        own: Any = getattr(spec.load(), "tuning_grid", {})
        per_name = bool(own) and all(isinstance(value, Mapping) for value in own.values())
        grid = own.get(spec.name, {}) if per_name else own
    own_values = spec.defaults
    if not grid:
        known = ", ".join(own_values) or "none"
        raise ParameterError(
            f"agent {spec.name!r} has nothing to tune: its class has no tuning_grid. "
            f"Give a grid (--grid '{spec.name}.KEY=[VALUE, ...]'); its parameters are {known}"
        )
    read: dict[str, tuple[Any, ...]] = {}
    for key, values in grid.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Sequence) or not values:
            raise ParameterError(
                f"the grid of {spec.name!r} wants a list of values for {key!r}, got {values!r}"
            )
        start = own_values.get(key)
        read[str(key)] = tuple(
            # YAML's 1 is the same point as a default of 1.0.
            float(v) if isinstance(start, float) and type(v) is int else v
            for v in plain(list(values), f"grid of {spec.name!r}, {key}")
        )
    return read


def choose_points(
    spec: AgentSpec,
    grid: Mapping[str, Sequence[Any]],
    fixed: Mapping[str, Any],
    cap: int | None,
) -> list[dict[str, Any]]:
    """The points to run, the defaults (``{}``) first.

    Args:
        spec: The agent.
        grid: Values per parameter.
        fixed: Parameters that do not vary.
        cap: Most points; a random choice runs if the grid has more. None for all.

    Raises:
        ParameterError: If a parameter is both fixed and varied.
    """
    both = sorted(set(grid) & set(fixed))
    if both:
        raise ParameterError(f"{spec.name}: {', '.join(both)} cannot be fixed and varied")
    start = {**spec.defaults, **fixed}
    seen = {canonical(plain(start, spec.name))}
    points: list[dict[str, Any]] = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values))
        key = canonical(plain({**start, **point}, spec.name))
        if key not in seen:
            seen.add(key)
            points.append({k: v for k, v in point.items() if k not in start or start[k] != v})
    if cap is not None and len(points) > cap - 1:
        order = np.random.default_rng(SHUFFLE_SEED).permutation(len(points))
        points = [points[i] for i in sorted(order[: cap - 1])]
    return [{}, *points]
