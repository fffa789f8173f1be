"""What tuning found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Point:
    """One set of parameters, measured at one budget.

    Attributes:
        params: What differs from the agent's defaults; empty for the defaults.
        regret: Mean regret at the horizon over the tuning replicates.
        error: Its standard error; NaN for one replicate.
    """

    params: Mapping[str, Any]
    regret: float
    error: float


@dataclass(frozen=True)
class Selection:
    """What was found for one agent at one budget.

    Attributes:
        agent: Registered name.
        budget: Budget in short, ``"none"`` without one.
        best: The point of least mean regret.
        default: The agent's defaults, None if they failed.
        points: All points that ran, best first.
    """

    agent: str
    budget: str
    best: Point
    default: Point | None
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Recipe:
    """One set of parameters for all budgets, and how it was found.

    Attributes:
        agent: Registered name.
        parameters: The set whose regret, relative to the best at each budget, is smallest
            on average over the budgets; defaults included.
        choices: The best at each budget.
        grid: The grid.
        points: Points per budget, the defaults among them.
        path: The YAML file.
    """

    agent: str
    parameters: Mapping[str, Any]
    choices: tuple[Selection, ...]
    grid: Mapping[str, tuple[Any, ...]]
    points: int
    path: Path


@dataclass(frozen=True)
class Tuning:
    """A finished tuning.

    Attributes:
        env_id: Environment.
        options: Its parameters, the horizon among them.
        seeds: First and last tuning seed.
        recipes: One per agent.
        failures: Messages of points that failed; they cannot be chosen.
        folder: Where the results lie.
        rounds: Agent rounds computed now.
        seconds: Wall time.
    """

    env_id: str
    options: Mapping[str, Any]
    seeds: tuple[int, int]
    recipes: tuple[Recipe, ...]
    failures: tuple[str, ...]
    folder: Path
    rounds: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "environment": self.env_id,
            "options": dict(self.options),
            "seeds": list(self.seeds),
            "results": str(self.folder),
            "failures": list(self.failures),
            "agents": [
                {
                    "agent": recipe.agent,
                    "parameters": dict(recipe.parameters),
                    "grid": {key: list(values) for key, values in recipe.grid.items()},
                    "points": recipe.points,
                    "recipe": str(recipe.path),
                    "budgets": [
                        {
                            "budget": choice.budget,
                            "best": _point(choice.best),
                            "default": None if choice.default is None else _point(choice.default),
                            "points": [_point(point) for point in choice.points],
                        }
                        for choice in recipe.choices
                    ],
                }
                for recipe in self.recipes
            ],
        }


def _point(point: Point) -> dict[str, Any]:
    error = None if math.isnan(point.error) else point.error
    return {"parameters": dict(point.params), "regret": point.regret, "standard_error": error}
