"""``dpb tune``."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpb_gym.cli.options import read_settings
from dpb_gym.cli.output import print_json, print_table
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.evaluation.progress import duration
from dpb_gym.evaluation.tuning import tune
from dpb_gym.evaluation.tuning.results import Point, Tuning
from dpb_gym.privacy import Budget


@dataclass(frozen=True)
class TuneOptions:
    """Options of the command, as typed."""

    env: str
    budgets: tuple[str, ...]
    horizon: int | None
    settings: tuple[str, ...]
    grids: tuple[str, ...]
    points: int
    replicates: int
    seed: int
    out: str | None
    recipes: str | None
    workers: int | None
    quiet: bool
    json: bool


def run(agents: Sequence[str], options: TuneOptions) -> int:
    """Tunes, prints the table and says where the recipes are.

    Returns:
        Exit status: 1 if a point failed, else 0.
    """
    env_kwargs, fixed = split(read_settings(options.settings), agents, "--set")
    alone, grids = split(read_settings(options.grids), agents, "--grid")
    if alone:
        if len(agents) != 1:
            raise ParameterError(
                f"--grid {next(iter(alone))!r}: with several agents say whose: AGENT.KEY=[...]"
            )
        grids[agents[0]] = {**alone, **grids.get(agents[0], {})}
    done = tune(
        options.env,
        agents,
        [read_budget_text(text) for text in options.budgets],
        horizon=options.horizon,
        env_kwargs=env_kwargs,
        grids=grids,
        params=fixed,
        points=options.points or None,
        replicates=options.replicates,
        seed=options.seed,
        out=options.out,
        recipes=options.recipes,
        workers=options.workers,
        progress=False if options.quiet else None,
    )
    if options.json:
        print_json(done.to_dict())
    else:
        show(done)
    for message in done.failures:
        print(f"dpb: failed: {message}", file=sys.stderr)
    return 1 if done.failures else 0


def show(done: Tuning) -> None:
    """Prints the best of every agent at every budget."""
    rows = []
    for recipe in done.recipes:
        for choice in recipe.choices:
            default = "failed" if choice.default is None else _regret(choice.default)
            rows.append(
                (recipe.agent, choice.budget, _said(choice.best.params), _regret(choice.best),
                 default, f"{len(choice.points)} of {recipe.points}")
            )  # fmt: skip
    print_table(("agent", "budget", "best", "regret", "with defaults", "points"), rows)
    print(
        f"{done.env_id}, T={done.options['horizon']}, tuning seeds {done.seeds[0]} to "
        f"{done.seeds[1]}; the best of many points looks better here than it is: evaluate it on "
        "other seeds."
    )
    if done.rounds:
        speed = done.rounds / done.seconds if done.seconds > 0 else 0.0
        print(f"{done.rounds:,} agent rounds in {duration(done.seconds)} ({speed:,.0f}/s)")
    for recipe in done.recipes:
        print(f"{recipe.path}: {_said(recipe.parameters)}")


def _said(params: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in params.items()) or "defaults"


def _regret(point: Point) -> str:
    if math.isnan(point.error):
        return f"{point.regret:.4g}"
    return f"{point.regret:.4g} +- {point.error:.2g}"


def read_budget_text(text: str) -> Budget:
    """A budget as recipes write it: ``zcdp RHO`` or ``approx EPSILON DELTA``.

    Raises:
        BudgetError: If it has another form, or a number is out of range.
    """
    kind, *words = text.replace(",", " ").split() or [""]
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if kind == "zcdp" and len(numbers) == 1:
        return Budget.zcdp(numbers[0])
    if kind == "approx" and len(numbers) == 2:
        return Budget.approx(*numbers)
    raise BudgetError(f"--budget wants 'zcdp RHO' or 'approx EPSILON DELTA', got {text!r}")


def split(
    settings: dict[str, Any], agents: Sequence[str], option: str
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Splits settings into those without an owner and those of an agent."""
    alone: dict[str, Any] = {}
    owned: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        owner, dot, name = key.rpartition(".")
        if dot and owner not in agents:
            raise ParameterError(
                f"{option} {key!r}: {owner!r} is not among the agents {', '.join(agents)}"
            )
        (owned.setdefault(owner, {}) if dot else alone)[name] = value
    return alone, owned
