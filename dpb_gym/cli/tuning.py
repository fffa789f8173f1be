"""``dpb tune``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpb_gym.cli.options import BUDGET, Json, Quiet, Workers, read_budgets, setting, settings_of
from dpb_gym.cli.output import end, print_json, print_table
from dpb_gym.errors import ParameterError

if TYPE_CHECKING:
    from dpb_gym.evaluation.tuning.results import Point, Tuning


def tune(
    agents: Annotated[list[str], typer.Argument(metavar="AGENT...", help="Registered agents.")],
    env: Annotated[str, typer.Option(help="Environment id.")],
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar=BUDGET, help="Budget to tune at; may be repeated."),
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Rounds T.")] = None,
    set_: Annotated[
        list[str] | None,
        setting(
            "A parameter of the environment, or a fixed one of an agent as "
            "AGENT.KEY=VALUE; may be repeated."
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[AGENT.]KEY=[V,V]",
            help="Values to try, instead of the agent's own grid; may be repeated.",
        ),
    ] = None,
    points: Annotated[
        int, typer.Option(min=0, help="Most points per agent and budget; 0 for all.")
    ] = 32,
    replicates: Annotated[int, typer.Option(help="Tuning replicates, the same for all.")] = 20,
    seed: Annotated[int, typer.Option(help="First tuning seed, 1000000 to 1999999.")] = 1_000_000,
    out: Annotated[
        str | None, typer.Option(help="Result directory; results/tune-... by default. Resumes.")
    ] = None,
    recipes: Annotated[
        str | None, typer.Option(help="Folder of the recipes; OUT/recipes by default.")
    ] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Tune agents with the same effort each, on tuning seeds only, and write recipes.

    Example: dpb tune lin-ucb --env DPB/Recommendation-v0 --grid 'alpha=[0.1, 0.5, 1]'
    """
    from dpb_gym.evaluation import tuning

    env_kwargs, fixed = settings_of(set_ or (), agents)
    alone, owned = settings_of(grid or (), agents, "--grid")
    if alone:
        if len(agents) != 1:
            raise ParameterError(
                f"--grid {next(iter(alone))!r}: with several agents say whose: AGENT.KEY=[...]"
            )
        owned[agents[0]] = {**alone, **owned.get(agents[0], {})}
    done = tuning.tune(
        env, agents, read_budgets(budget or ()), env_kwargs=env_kwargs, grids=owned, params=fixed,
        horizon=horizon, points=points or None, replicates=replicates, seed=seed, out=out,
        recipes=recipes, workers=workers, progress=False if quiet else None,
    )  # fmt: skip
    if json:
        print_json(done.to_dict())
    else:
        _say(done)
    end(done.failures)


def _say(done: Tuning) -> None:
    """Prints the best of every agent at every budget."""
    from dpb_gym.evaluation.progress import duration

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
