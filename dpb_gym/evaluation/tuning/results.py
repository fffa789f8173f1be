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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        error = None if math.isnan(self.error) else self.error
        return {"parameters": dict(self.params), "regret": self.regret, "standard_error": error}

    @property
    def rounded(self) -> list[float]:
        """Regret and its error as a recipe says them."""
        return [float(f"{x:.4g}") for x in (self.regret, self.error) if not math.isnan(x)]


@dataclass(frozen=True)
class Selection:
    """What was found for an agent at one budget.

    Attributes:
        budget: Budget as text, ``"none"`` without one.
        points: All points that ran, best first.
    """

    budget: str
    points: tuple[Point, ...]

    @property
    def best(self) -> Point:
        """The point of least mean regret."""
        return self.points[0]

    @property
    def default(self) -> Point | None:
        """The agent's defaults, None if they failed."""
        return next((point for point in self.points if not point.params), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        default = None if self.default is None else self.default.to_dict()
        points = [point.to_dict() for point in self.points]
        return {"budget": self.budget, "best": points[0], "default": default, "points": points}


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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "agent": self.agent,
            "parameters": dict(self.parameters),
            "grid": {key: list(values) for key, values in self.grid.items()},
            "points": self.points,
            "recipe": str(self.path),
            "budgets": [choice.to_dict() for choice in self.choices],
        }

    def to_yaml(self, tuned_on: Mapping[str, Any]) -> dict[str, Any]:
        """What the recipe's file says; `tuned_on` is the environment with options and seeds."""
        own, found = self.to_dict(), []
        for choice in self.choices:
            row: dict[str, Any] = {"budget": choice.budget, "parameters": dict(choice.best.params)}
            row |= {"regret": choice.best.rounded}
            row |= {} if choice.default is None else {"default_regret": choice.default.rounded}
            found.append(row)
        search = {"budgets": [c.budget for c in self.choices], "points": self.points}
        return {
            "agent": self.agent,
            "parameters": own["parameters"],
            "tuned_on": {**tuned_on, **search, "grid": own["grid"]},
            "best_per_budget": found,
        }


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
            "agents": [recipe.to_dict() for recipe in self.recipes],
        }
