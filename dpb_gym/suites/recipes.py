"""Recipes: tuned parameters of an agent and their tuning environment, as YAML files."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpb_gym.errors import DPBError, ParameterError
from dpb_gym.files import write_file
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec, check_parameters
from dpb_gym.suites.schema import parse_yaml

Points = dict[tuple[str | None, str] | None, dict[str, Any]]


def write_recipe(path: Path, data: Mapping[str, Any], comment: str) -> None:
    """Write a recipe, replacing an existing one atomically.

    Raises:
        ResultError: If it cannot be written.
    """
    import yaml

    whole = json.loads(json.dumps(data))  # no YAML anchors for shared objects
    text = yaml.safe_dump(whole, sort_keys=False, width=96, default_flow_style=None)
    write_file(path, f"# {comment}\n{text}".encode())


def load_recipe(
    path: str | os.PathLike[str], budget: Budget | str | None = None, task: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Read a recipe and return the agent's registered name and its parameters.

    Args:
        path: The file.
        budget: Budget, or its text, of the point to take; ``"none"`` for runs without privacy.
            By default the recipe's one set for all budgets.
        task: Name of the task, in a recipe that was tuned on several.

    Raises:
        ParameterError: If it cannot be read, is not a recipe, has no such point, or names a
            parameter that the agent does not have.
        UnknownNameError: If the agent is not registered.

    Example:
        >>> from dpb_gym import evaluate
        >>> name, params = load_recipe("agents/recipes/one-pass-linear.yaml")  # doctest: +SKIP
        >>> evaluate("DPB/Recommendation-v0", [(name, None, params)])  # doctest: +SKIP
    """
    try:
        data = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ParameterError(f"{path}: cannot read the recipe: {error}") from None
    named = isinstance(data, dict) and isinstance(data.get("agent"), str)
    if not named or not (points := _points(data)):
        raise ParameterError(f"{path}: a recipe names an agent and its parameters")
    wanted = None if budget is None else (task, Budget.text(Budget.parse(budget)))
    if wanted not in points:
        known = ", ".join(f"task={t!r}, budget={b!r}" for t, b in filter(None, points))
        raise ParameterError(f"{path}: has no such point; it has those of {known or 'no budget'}")
    spec = agent_spec(data["agent"])
    check_parameters(spec.name, spec.maker, points[wanted])
    return spec.name, points[wanted]


def _points(recipe: Mapping[str, Any]) -> Points:
    """Return a recipe's parameters by task and budget; those for all budgets have the key None."""
    common, tuned = recipe.get("parameters"), recipe.get("tuned_on")
    varied = tuned.get("grid", {}) if isinstance(tuned, dict) else {}
    points: Points = {}
    if isinstance(common, dict):
        points[None] = common
    for row in recipe.get("best_per_budget", ()):
        fixed = {k: v for k, v in (common or {}).items() if k not in varied}
        place = row.get("task"), Budget.text(Budget.parse(row["budget"]))
        points[place] = {**fixed, **row["parameters"]}
    return points


def effort(
    name: str, params: Mapping[str, Any], track: str = "", task: str = "", budget: str = "none"
) -> str:
    """Describe how an agent's parameters were tuned and at what cost; empty if unknown.

    Recipes are files ``recipes/AGENT.yaml`` inside or beside the agent's package, or
    ``recipes/TRACK/AGENT.yaml`` for one track.

    Args:
        name: Registered name.
        params: Parameters over the agent's defaults.
        track: Track of the task, if it has one.
        task: Name of the task, for recipes by task and budget.
        budget: Text of the budget, likewise.
    """
    try:
        spec = agent_spec(name)
        # YAML has lists where the agent has tuples.
        usual, chosen = (
            json.loads(json.dumps({**spec.defaults, **own}, default=str)) for own in ({}, params)
        )
    except DPBError:
        return ""
    for recipe, points in _recipes(name, spec.entry_point.split(":")[0].split(".")[0], track):
        tuned = recipe.get("tuned_on")
        point = points.get((task, budget), points.get(None))
        if isinstance(tuned, dict) and point is not None and {**usual, **point} == chosen:
            return _said(tuned, recipe.get("cost"))
    given = {key: chosen[key] for key in params}
    return "default parameters" if given.items() <= spec.params.items() else ""


def _said(tuned: Mapping[str, Any], cost: Any) -> str:
    first, last = tuned.get("seeds", (1, 0))
    seeds = f" on {last - first + 1} seeds" if last >= first else ""
    text = f"best of {tuned['points']} points{seeds}" if "points" in tuned else f"tuned{seeds}"
    if isinstance(cost, dict):
        text += f" ({cost['agent_rounds']:,} agent rounds, {cost['seconds']:,.0f} s)"
    return text


@functools.cache
def _read(path: Path) -> Any:
    """Return the content of a YAML file, None without one; cached, as tracks share recipes."""
    return parse_yaml(path.read_text("utf-8")) if path.is_file() else None


@functools.cache
def _recipes(name: str, package: str, track: str) -> list[tuple[dict[str, Any], Points]]:
    """Return the recipes of an agent, those of the track first, with their points."""
    recipes = []  # an agent of a script has no package
    for place in getattr(sys.modules.get(package), "__path__", ()):
        for folder in (Path(place) / "recipes", Path(place).parent / "recipes"):
            for home in (folder / track, folder) if track else (folder,):
                data = _read(home / f"{name}.yaml")
                if isinstance(data, dict) and (points := _points(data)):
                    recipes.append((data, points))
    return recipes
