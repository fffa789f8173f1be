"""Tuning with equal effort for every agent, on seeds that no evaluation uses.

Every point of an agent's grid runs on the same tuning customers like any other run, so tuning is
paired, resumable and reproducible bit for bit. The agent's defaults are always among the points.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.planning.grid_ends import beyond
from dpb_gym.privacy import Budget
from dpb_gym.registry import AgentSpec, agent_spec
from dpb_gym.results.row_result import RowResult, collect
from dpb_gym.running.api import LARGEST_BLOCK, plan_task
from dpb_gym.running.execution import RunReport, run_plan
from dpb_gym.running.plan import TaskPlan
from dpb_gym.suites.recipes import load_recipe as load_recipe
from dpb_gym.suites.recipes import write_recipe as write_recipe
from dpb_gym.suites.schema import canonical, plain
from dpb_gym.suites.spec import AgentRun
from dpb_gym.suites.suite import SEED_SPAN

TUNING_SEEDS = range(SEED_SPAN, 2 * SEED_SPAN)
"""Seeds for tuning, from `Suite.tuning_seed` on. Evaluation uses smaller seeds."""

POINTS = 32
"""Default number of points per agent and budget."""

REPLICATES = 20
SHUFFLE_SEED = 20_240_229

Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Point:
    """One set of parameters, measured at one budget.

    Attributes:
        params: Parameters other than the agent's defaults; empty for the defaults.
        regret: Mean regret at the horizon over the tuning replicates.
        error: Its standard error; NaN for one replicate.
        replicates: Number of replicates.
        first: Mean regret over the replicates of the first step, which all points have.
    """

    params: Mapping[str, Any]
    regret: float
    error: float
    replicates: int
    first: float

    @property
    def rounded(self) -> list[float]:
        """Regret and its error, rounded as in a recipe."""
        return [float(f"{x:.4g}") for x in (self.regret, self.error) if not math.isnan(x)]


@dataclass(frozen=True)
class Selection:
    """Tuning result of an agent at one budget.

    Attributes:
        budget: Budget as text, ``"none"`` without one.
        points: All points that ran; more replicates come first, then less regret.
    """

    budget: str
    points: tuple[Point, ...]

    @property
    def best(self) -> Point:
        """The point of least mean regret in the last step."""
        return self.points[0]

    @property
    def default(self) -> Point | None:
        """The agent's defaults, None if they failed."""
        return next((point for point in self.points if not point.params), None)


@dataclass(frozen=True)
class Recipe:
    """One set of parameters for all budgets, with the points that were tried.

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

    def write(self, tuned_on: Mapping[str, Any]) -> None:
        """Write the recipe's file.

        Args:
            tuned_on: The environment with options and seeds.
        """
        rows = []
        for choice in self.choices:
            row: dict[str, Any] = {"budget": choice.budget, "parameters": dict(choice.best.params)}
            row |= {"regret": choice.best.rounded}
            row |= {} if choice.default is None else {"default_regret": choice.default.rounded}
            rows.append(row)
        search = {"budgets": [c.budget for c in self.choices], "points": self.points}
        data = {
            "agent": self.agent,
            "parameters": self.parameters,
            "tuned_on": {**tuned_on, **search, "grid": self.grid},
            "best_per_budget": rows,
        }
        comment = f"Parameters that dpb tune chose for {self.agent}, and its measurements."
        write_recipe(self.path, data, comment)


@dataclass(frozen=True)
class Tuning:
    """A finished tuning.

    Attributes:
        env_id: Environment.
        options: Its parameters, the horizon among them.
        seeds: First and last tuning seed.
        recipes: One per agent.
        failures: Messages of points that failed; they cannot be chosen.
        folder: Result directory.
        rounds: Agent rounds computed in this run.
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


def tune(
    env_id: str,
    agents: Sequence[str],
    budgets: Sequence[Budget | str | None] = (),
    *,
    horizon: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    grids: Mapping[str, Grid] | None = None,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    points: int | None = POINTS,
    replicates: int = REPLICATES,
    halving: int | None = None,
    widen: bool = False,
    seed: int = TUNING_SEEDS.start,
    out: str | os.PathLike[str] | None = None,
    recipes: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool | Callable[[int, int], Any] | None = None,
) -> Tuning:
    """Tune agents on one environment with equal effort, and write recipes.

    Equal effort means the same tuning customers, replicates and rounds, and at most the same
    number of points, without `widen`. Cells that the folder already contains are not recomputed.

    Args:
        env_id: Environment id.
        agents: Registered names.
        budgets: Budgets, or their texts, of the agents that take one; each is tuned
            separately.
        horizon: T; the environment's default if not given.
        env_kwargs: Parameters of the environment.
        grids: Per agent a grid that replaces its class's own `tuning_grid`.
        params: Per agent parameters that are fixed while the others vary.
        points: Most points per agent and budget; None for all. If a grid has more, the
            defaults and a fixed random choice of the others run.
        replicates: Tuning replicates; replicate i has seed ``seed + i``.
        halving: Factor of successive halving, None for one step. With 3, `replicates` are those
            of the first step, and each further step has the best third of the points of each
            budget on three times as many replicates, until at most three points ran.
        widen: Whether to go on outside of the grid, in its own steps (`grid_ends.beyond`), while
            the best point of a budget has a number at an end of it. Points outside run on the
            replicates of the last step. They change one number of the best point.
        seed: First tuning seed, within 1,000,000..1,999,999.
        out: Folder of the results; one below ``results/`` by default.
        recipes: Folder of the recipes; ``recipes`` below `out` by default.
        workers: Processes; the number of usable cores by default.
        progress: True for progress bars, False for silence, or a function of (rounds done,
            rounds in all); by default bars on a terminal.

    Raises:
        UnknownNameError: If the environment or an agent is not registered.
        ParameterError: If an agent has nothing to tune, a parameter is unknown or out of
            range, or the seeds are not tuning seeds.
        AgentError: If an agent does not support the environment, needs a budget and is given
            none, or all its points fail.
    """
    names = list(dict.fromkeys([agents] if isinstance(agents, str) else agents))
    if not names:
        raise ParameterError("name at least one agent to tune (dpb list agents)")
    replicates = validation.integer("replicates", replicates, 1, SEED_SPAN)
    factor = 1 if halving is None else validation.integer("halving", halving, 2)
    cap = None if points is None else validation.integer("points", points, 1)
    asked = [Budget.parse(budget) for budget in budgets]
    searches = _searches(names, grids or {}, params or {}, cap)
    steps = _steps(max(len(search.points) for search in searches), replicates, factor)
    check_seeds(seed, steps[-1][1])
    reports: list[RunReport] = []
    blocks: list[range] = []

    def play(count: int, wanted: set[tuple[str, str]] | None) -> TaskPlan:
        """Run the points of the searches, or the `wanted` ones, on `count` replicates."""
        tried = {label: agent for search in searches for label, agent in search.agents().items()}
        suite, plan = plan_task(env_id, tried, horizon, count, seed, 1, env_kwargs, asked)
        runs = [
            run
            for run in plan.runs
            if wanted is None or (run.label, Budget.text(run.budget)) in wanted
        ]
        folder = Path(f"results/tune-{plan.task.name}-{suite.protocol[:8]}" if out is None else out)
        part = replace(plan, blocks=blocks, runs=runs)
        reports.append(run_plan(suite, [part], folder, workers=workers, show=progress))
        rows = [row for row in collect(reports[-1].results()) if len(row.replicates) == count]
        for search in searches:
            search.measure(rows, replicates)
        return plan

    for size, count in steps:
        starts = range(blocks[-1].stop if blocks else 0, count, LARGEST_BLOCK)
        blocks += [range(first, min(first + LARGEST_BLOCK, count)) for first in starts]
        left = {pair for search in searches for pair in search.best(size)} if reports else None
        if left is None or left:
            plan = play(count, left)
    while widen and (added := {pair for search in searches for pair in search.widened()}):
        play(count, added)

    task = plan.task
    folder = Path(reports[-1].path)
    home = folder / "recipes" if recipes is None else Path(recipes)
    options = {"horizon": task.horizon, **task.identity["env_kwargs"]}
    seeds = (seed, seed + count - 1)
    tuned = tuple(search.recipe(plan.runs, home) for search in searches)
    for recipe in tuned:
        recipe.write({"environment": task.env, "options": options, "seeds": seeds})
    failures = tuple(failure.message for report in reports for failure in report.failures)
    rounds = sum(report.rounds for report in reports)
    seconds = sum(report.seconds for report in reports)
    return Tuning(task.env, options, seeds, tuned, failures, folder, rounds, seconds)


def _steps(points: int, replicates: int, factor: int) -> list[tuple[int, int]]:
    """Return the numbers of points per budget and of replicates of every step of halving."""
    steps = [(points, replicates)]
    while factor > 1 and points > factor:
        points = math.ceil(points / factor)
        replicates = replicates * factor
        steps.append((points, replicates))
    return steps


def _searches(
    names: Sequence[str],
    grids: Mapping[str, Grid],
    params: Mapping[str, Mapping[str, Any]],
    cap: int | None,
) -> list[_Search]:
    """Return the search of each agent, over at most `cap` points."""
    for what, given in (("grid", grids), ("parameters", params)):
        for name in given:
            if name not in names:
                raise ParameterError(f"{what} for {name!r}, which is not among {', '.join(names)}")
    searches = []
    for name in names:
        spec = agent_spec(name)
        fixed = dict(params.get(name, {}))
        grid = read_grid(spec, grids.get(name))
        searches.append(_Search(spec, grid, fixed, choose_points(spec, grid, fixed, cap)))
    return searches


def check_seeds(first: int, replicates: int) -> None:
    """Reject seeds that evaluation or normalisation use.

    Raises:
        ParameterError: If a seed is outside `TUNING_SEEDS`.
    """
    low = TUNING_SEEDS.start
    high = TUNING_SEEDS.stop - 1
    first = validation.integer("seed", first, 0)
    if first < low or first + replicates - 1 > high:
        raise ParameterError(
            f"tuning takes seeds {low}..{high} only, so that no agent is tuned on the customers "
            f"that it is evaluated on; got {first}..{first + replicates - 1}"
        )


def read_grid(spec: AgentSpec, given: Grid | None = None) -> dict[str, tuple[Any, ...]]:
    """Return the given grid, or the `tuning_grid` of the agent's class.

    A class that is registered under several names may map each name to a grid.

    Raises:
        ParameterError: If there is nothing to tune, or the grid is not a mapping to lists.
    """
    grid: Any = given
    if grid is None:
        own: Any = getattr(spec.maker, "tuning_grid", {})
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
                f"the grid of {spec.name!r} needs a list of values for {key!r}, got {values!r}"
            )
        start = own_values.get(key)
        read[str(key)] = tuple(
            # YAML's 1 equals a default of 1.0.
            float(v) if isinstance(start, float) and type(v) is int else v
            for v in plain(list(values), f"grid of {spec.name!r}, {key}")
        )
    return read


def choose_points(
    spec: AgentSpec, grid: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any], cap: int | None
) -> list[dict[str, Any]]:
    """Return the points to run, the defaults (``{}``) first.

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


@dataclass(frozen=True)
class _Search:
    """Points and grid of one agent, and its points that ran, by budget and label.

    `outside` has the points of each budget that were added outside of the grid.
    """

    spec: AgentSpec
    grid: dict[str, tuple[Any, ...]]
    fixed: dict[str, Any]
    points: list[dict[str, Any]]
    measured: dict[str, dict[str, Point]] = field(default_factory=dict)
    outside: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def full(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters explicitly, so that a changed default gives another cell."""
        return {**self.spec.defaults, **self.fixed, **point}

    def label(self, point: Mapping[str, Any]) -> str:
        said = ", ".join(f"{k}={v}" for k, v in {**self.fixed, **point}.items()) or "defaults"
        return f"{self.spec.name} [{said}]"

    def agents(self) -> dict[str, AgentSpec]:
        return {self.label(point): self.spec.over(self.full(point)) for point in self.points}

    def measure(self, rows: Sequence[RowResult], first: int) -> None:
        """Take the points of a step's rows; `first` is the number of replicates of step one."""
        points = {self.label(params): params for params in self.points}
        for row in rows:
            if row.agent in points:
                regret = row.regret[:, -1]
                n = len(regret)
                error = float(regret.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
                means = float(regret.mean()), error, n, float(regret[:first].mean())
                self.measured.setdefault(row.budget, {})[row.agent] = Point(
                    points[row.agent], *means
                )

    def ranked(self, budget: str) -> list[Point]:
        """Return the points of a budget; those that equal each other in the grid's order."""
        measured = self.measured.get(budget, {})
        points = [measured[label] for label in map(self.label, self.points) if label in measured]
        return sorted(points, key=lambda point: (-point.replicates, point.regret))

    def best(self, size: int) -> list[tuple[str, str]]:
        """Return label and budget of the best `size` points of each budget."""
        return [(self.label(p.params), b) for b in self.measured for p in self.ranked(b)[:size]]

    def widened(self) -> list[tuple[str, str]]:
        """Add the points next to the best of each budget outside of the grid, if it is at an end.

        Returns:
            Label and budget of every added point. A value that the agent refuses is not added.
        """
        added = []
        for budget in self.measured:
            best = dict(self.ranked(budget)[0].params)
            outside = self.outside.setdefault(budget, [])
            for key, grid in self.grid.items():
                own = self.full(best)
                tried = [q for q in map(self.full, outside) if {**q, key: own[key]} == own]
                values = [*grid, self.full({})[key], *(q[key] for q in tried)]
                for value in beyond(values, own[key]):
                    point = {**best, key: value}
                    with suppress(ParameterError):
                        self.spec.over(self.full(point)).make()
                        outside.append(point)
                        added.append((self.label(point), budget))
                        # another budget may have added it before
                        if point not in self.points:
                            self.points.append(point)
        return added

    def recipe(self, runs: Sequence[AgentRun], home: Path) -> Recipe:
        name = self.spec.name
        budgets = dict.fromkeys(Budget.text(run.budget) for run in runs if run.name == name)
        choices = tuple(Selection(budget, tuple(self.ranked(budget))) for budget in budgets)
        for choice in choices:
            if not choice.points:
                raise AgentError(
                    f"every point of {name!r} at {choice.budget} failed: nothing to choose from"
                )
        best = plain(self.full(_overall(name, choices)), "parameters")
        return Recipe(name, best, choices, self.grid, len(self.points), home / f"{name}.yaml")


def _overall(name: str, choices: Sequence[Selection]) -> Mapping[str, Any]:
    """Return the point that is best on average over budgets, relative to each budget's best."""
    totals: dict[str, list[float]] = {}
    params: dict[str, Mapping[str, Any]] = {}
    for choice in choices:
        least = max(min(point.first for point in choice.points), 1e-12)
        for point in choice.points:
            key = canonical(dict(point.params))
            params[key] = point.params
            totals.setdefault(key, []).append(point.first / least)
    everywhere = {k: sum(v) / len(v) for k, v in totals.items() if len(v) == len(choices)}
    if not everywhere:
        raise AgentError(f"no point of {name!r} runs at every budget")
    return params[min(everywhere, key=everywhere.__getitem__)]
