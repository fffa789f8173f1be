"""``dpb tune``."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from dpb_gym.cli.options import read_budgets, settings_of
from dpb_gym.cli.output import print_json, print_table
from dpb_gym.errors import ParameterError
from dpb_gym.evaluation.progress import duration
from dpb_gym.evaluation.tuning import tune
from dpb_gym.evaluation.tuning.results import Point, Tuning


def run(
    agents: Sequence[str],
    env: str,
    budgets: Sequence[str],
    settings: Sequence[str],
    grids: Sequence[str],
    as_json: bool,
    **options: Any,
) -> int:
    """Tunes, prints the table and says where the recipes are.

    Args:
        agents: Registered names.
        env: Environment id.
        budgets: Budgets as typed.
        settings: KEY=VALUE settings.
        grids: KEY=[...] grids.
        as_json: Print JSON instead of the table.
        options: The others of `tune`.

    Returns:
        Exit status: 1 if a point failed, else 0.
    """
    env_kwargs, fixed = settings_of(settings, agents)
    alone, owned = settings_of(grids, agents, "--grid")
    if alone:
        if len(agents) != 1:
            raise ParameterError(
                f"--grid {next(iter(alone))!r}: with several agents say whose: AGENT.KEY=[...]"
            )
        owned[agents[0]] = {**alone, **owned.get(agents[0], {})}
    done = tune(
        env,
        agents,
        read_budgets(budgets),
        env_kwargs=env_kwargs,
        grids=owned,
        params=fixed,
        **options,
    )
    if as_json:
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
