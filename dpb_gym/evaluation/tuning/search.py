"""`tune`: the same effort for every agent, on seeds that no evaluation uses.

Every point of an agent's grid runs on the same tuning customers through the ordinary
harness, so that tuning is paired, resumable and bit for bit repeatable. The agent's
defaults are always among the points.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpb_gym import validation
from dpb_gym.errors import AgentError, BudgetError, ParameterError
from dpb_gym.evaluation.api import LARGEST_BLOCK, one_task_suite
from dpb_gym.evaluation.leaderboard import Series, collect
from dpb_gym.evaluation.plan import TaskPlan, make_jobs
from dpb_gym.evaluation.progress import show_by_default
from dpb_gym.evaluation.recipes import write_recipe
from dpb_gym.evaluation.run import run_plan
from dpb_gym.evaluation.schema import canonical, plain
from dpb_gym.evaluation.spec import AgentRun
from dpb_gym.evaluation.store import Store
from dpb_gym.evaluation.suite import SEED_SPAN, Suite
from dpb_gym.evaluation.tuning.points import Grid, choose_points, read_grid
from dpb_gym.evaluation.tuning.results import Point, Recipe, Selection, Tuning
from dpb_gym.privacy import Budget
from dpb_gym.registry import AgentSpec, agent_spec

TUNING_SEEDS = range(SEED_SPAN, 2 * SEED_SPAN)
"""Seeds for tuning: `Suite.tuning_seed` and what follows. Evaluation has those before."""

POINTS = 32
"""Points per agent and budget, unless more or fewer are asked for."""

REPLICATES = 20


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
    seed: int = TUNING_SEEDS.start,
    out: str | os.PathLike[str] | None = None,
    recipes: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool | Callable[[int, int], Any] | None = None,
) -> Tuning:
    """Tunes agents on one environment, each with the same effort, and writes recipes.

    Same effort: the same tuning customers, the same number of replicates and rounds, and at
    most the same number of points. What is in the folder already is not computed again.

    Args:
        env_id: Environment id.
        agents: Registered names.
        budgets: Budgets, or their texts, of the agents that take one; the best is sought at
            each.
        horizon: T; the environment's default if not given.
        env_kwargs: Parameters of the environment.
        grids: Per agent a grid that replaces its class's own `tuning_grid`.
        params: Per agent parameters that are fixed while the others vary.
        points: Most points per agent and budget; None for all. If a grid has more, the
            defaults and a random choice of the others run, the same every time.
        replicates: Tuning replicates; replicate i has seed ``seed + i``.
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
        BudgetError: If a private agent is given no budget.
        AgentError: If an agent does not support the environment, or all its points fail.
    """
    names = _names(agents)
    replicates = validation.integer("replicates", replicates, 1, SEED_SPAN)
    check_seeds(seed, replicates)
    cap = None if points is None else validation.integer("points", points, 1)
    specs = {name: agent_spec(name) for name in names}
    for what, given in (("grid", grids), ("parameters", params)):
        for name in given or {}:
            if name not in specs:
                raise ParameterError(f"{what} for {name!r}, which is not among {', '.join(names)}")
    chosen = {n: read_grid(spec, (grids or {}).get(n)) for n, spec in specs.items()}
    fixed = {n: dict((params or {}).get(n, {})) for n in names}
    sets = {n: choose_points(spec, chosen[n], fixed[n], cap) for n, spec in specs.items()}
    kwargs = dict(env_kwargs or {})
    if horizon is None:
        horizon = kwargs.pop("horizon", None)
    suite = one_task_suite(
        env_id, kwargs, horizon, replicates, seed, 1, min(LARGEST_BLOCK, replicates)
    )
    asked = [Budget.parse(budget) for budget in budgets]
    grid = {n: _budgets(spec, asked) for n, spec in specs.items()}
    runs = [run for n in names for run in _runs(specs[n], fixed[n], sets[n], grid[n])]
    plans = [TaskPlan(suite.tasks[0], runs)]
    folder = Path(
        f"results/tune-{suite.tasks[0].name}-{suite.protocol[:8]}" if out is None else out
    )
    show = show_by_default(progress)
    report = run_plan(suite, plans, folder, workers=workers, show=show)
    wanted = {cell.key for job in make_jobs(suite, plans) for cell in job.cells}
    stored = Store.open(folder).results()
    series = {
        (s.cell.agent.name, s.budget, canonical(s.cell.agent.identity["params"])): s
        for s in collect(result for result in stored if result.cell.key in wanted)
    }
    home = folder / "recipes" if recipes is None else Path(recipes)
    options = {"horizon": suite.tasks[0].horizon, **suite.tasks[0].env_kwargs}
    seeds = (seed, seed + replicates - 1)
    found = []
    for name in names:
        choices = tuple(
            _choose(specs[name], budget, sets[name], fixed[name], series, replicates)
            for budget in grid[name]
        )
        best = _overall(choices)
        merged = {**specs[name].defaults, **fixed[name], **best}
        path = home / f"{name}.yaml"
        recipe = Recipe(name, merged, choices, chosen[name], len(sets[name]), path)
        write_recipe(
            path,
            _recipe_data(recipe, specs[name], suite, options, grid[name], seeds),
            f"What dpb tune found for {name}; what was measured stands below.",
        )
        found.append(recipe)
    failures = tuple(failure.message for failure in report.failures)
    return Tuning(
        suite.tasks[0].env, options, seeds, tuple(found), failures, folder, report.rounds,
        report.seconds,
    )  # fmt: skip


def check_seeds(first: int, replicates: int) -> None:
    """Refuses seeds that evaluation or normalisation use.

    Raises:
        ParameterError: If a seed is outside `TUNING_SEEDS`.
    """
    low, high = TUNING_SEEDS.start, TUNING_SEEDS.stop - 1
    first = validation.integer("seed", first, 0)
    if first < low or first + replicates - 1 > high:
        raise ParameterError(
            f"tuning takes seeds {low}..{high} only, so that no agent is tuned on the customers "
            f"that it is evaluated on; got {first}..{first + replicates - 1}"
        )


def _names(agents: Sequence[str]) -> list[str]:
    names = [agents] if isinstance(agents, str) else list(agents)
    if not names:
        raise ParameterError("name at least one agent to tune (dpb list agents)")
    return list(dict.fromkeys(names))


def _budgets(spec: AgentSpec, budgets: Sequence[Budget | None]) -> list[Budget | None]:
    if spec.budget == "never":
        return [None]
    fitting = [b for b in budgets if b is not None or spec.budget == "optional"]
    if not fitting and spec.budget == "required":
        raise BudgetError(
            f"agent {spec.name!r} is private: give at least one budget (--budget rho=1)"
        )
    return list(dict.fromkeys(fitting)) or [None]


def _runs(
    spec: AgentSpec,
    fixed: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
    budgets: Sequence[Budget | None],
) -> list[AgentRun]:
    """All parameters are written out, so that a changed default is another cell."""
    runs = []
    for point in points:
        said = ", ".join(f"{k}={v}" for k, v in {**fixed, **point}.items()) or "defaults"
        merged = {**spec.defaults, **fixed, **point}
        runs += [AgentRun.of(spec, f"{spec.name} [{said}]", b, merged) for b in budgets]
    return runs


def _choose(
    spec: AgentSpec,
    budget: Budget | None,
    points: Sequence[Mapping[str, Any]],
    fixed: Mapping[str, Any],
    series: Mapping[tuple[str, str, str], Series],
    replicates: int,
) -> Selection:
    label = Budget.text(budget)
    measured = []
    default = None
    for params in points:
        merged = plain({**spec.defaults, **fixed, **params}, spec.name)
        found = series.get((spec.name, label, canonical(merged)))
        if found is None or len(found.replicates) < replicates:
            continue
        regret = found.regret[:, -1]
        error = float(regret.std(ddof=1) / math.sqrt(replicates)) if replicates > 1 else math.nan
        point = Point(dict(params), float(regret.mean()), error)
        measured.append(point)
        default = point if not params else default
    if not measured:
        raise AgentError(f"every point of {spec.name!r} at {label} failed: nothing to choose from")
    ordered = sorted(measured, key=lambda point: point.regret)  # stable: first in the grid wins
    return Selection(spec.name, label, ordered[0], default, tuple(ordered))


def _overall(choices: Sequence[Selection]) -> Mapping[str, Any]:
    """The point that is best on average over the budgets, each relative to its own best."""
    totals: dict[str, list[float]] = {}
    params: dict[str, Mapping[str, Any]] = {}
    for choice in choices:
        least = max(choice.best.regret, 1e-12)
        for point in choice.points:
            key = canonical(dict(point.params))
            params[key] = point.params
            totals.setdefault(key, []).append(point.regret / least)
    everywhere = {k: sum(v) / len(v) for k, v in totals.items() if len(v) == len(choices)}
    if not everywhere:
        raise AgentError(f"no point of {choices[0].agent!r} runs at every budget")
    return params[min(everywhere, key=everywhere.__getitem__)]


def _recipe_data(
    recipe: Recipe,
    spec: AgentSpec,
    suite: Suite,
    options: Mapping[str, Any],
    budgets: Sequence[Budget | None],
    seeds: tuple[int, int],
) -> dict[str, Any]:
    def rounded(point: Point) -> list[float]:
        numbers = [point.regret] + ([] if math.isnan(point.error) else [point.error])
        return [float(f"{number:.4g}") for number in numbers]

    measured = []
    for budget, choice in zip(budgets, recipe.choices):
        row = {
            "budget": Budget.text(budget),
            "parameters": dict(choice.best.params),
            "regret": rounded(choice.best),
        }
        if choice.default is not None:
            row["default_regret"] = rounded(choice.default)
        measured.append(row)
    return {
        "agent": spec.name,
        "parameters": plain(dict(recipe.parameters), "parameters"),
        "tuned_on": {
            "environment": suite.tasks[0].env,
            "options": dict(options),
            "budgets": [Budget.text(budget) for budget in budgets],
            "seeds": list(seeds),
            "points": recipe.points,
            "grid": {key: list(values) for key, values in recipe.grid.items()},
        },
        "best_per_budget": measured,
    }
