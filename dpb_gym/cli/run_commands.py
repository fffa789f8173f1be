"""The commands that run agents: ``dpb run``, ``tune``, ``reproduce`` and ``outside``."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal
from typer import Argument, Option

import dpb_gym
from dpb_gym import papers, report, suites
from dpb_gym.cli import options
from dpb_gym.cli.completion import complete
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.progress_lines import progress_lines
from dpb_gym.suites.provenance import shell_word

if TYPE_CHECKING:
    from dpb_gym.planning.costs import Forecast
    from dpb_gym.planning.tuning import Point, Tuning
    from dpb_gym.running.execution import RunReport
    from dpb_gym.running.plan import TaskPlan

DEFAULT_REPLICATES = 10
AGENT_NAMES = complete("agents")
SUITE: Any = Argument(
    None,
    help="Name of a suite, or a .yaml file, see docs/start.md. Not with --env.",
    autocompletion=complete("suites"),
)
ENV: Any = Option(None, help="Environment id, instead of a suite.", autocompletion=complete("envs"))
AGENT: Any = Option(
    [], help="Agent to run on --env; may be repeated.", autocompletion=complete("agents")
)
DRY_RUN: Any = Option(
    False, "--dry-run", help="Only forecast time and size, after a few seconds a task."
)
LOG: Any = Option(
    [],
    metavar="tensorboard=DIR|wandb=PROJECT|mlflow=URI",
    help="Log every checkpoint; may be repeated.",
)


def run(
    suite: str | None = SUITE,
    agents: str | None = Option(
        None,
        help="Only these agents: labels or names, comma-separated.",
        autocompletion=complete("agents", commas=True),
    ),
    tasks: str | None = options.TASKS,
    replicates: int | None = Option(None, help="Replicates per task."),
    workers: int | None = options.WORKERS,
    backend: str = Option("loky", metavar="loky|dask", help="Where to run."),
    scheduler: str | None = Option(None, help="Address of the dask scheduler."),
    out: str | None = Option(
        None, help="Result directory, or s3://BUCKET/PREFIX; results/SUITE by default."
    ),
    html: str | None = options.HTML,
    quiet: bool = options.QUIET,
    json: bool = options.JSON,
    dry_run: bool = DRY_RUN,
    env: str | None = ENV,
    agent: list[str] = AGENT,
    budget: list[str] = options.budgets("With --env: budget of the agents that take one"),
    horizon: int | None = Option(None, help="Rounds T, with --env."),
    seed: int | None = Option(None, help="Seed of replicate 0, with --env."),
    log: list[str] = LOG,
    isolate: bool = Option(False, "--isolate", help="Keep raw data from private agents' code."),
    set_: list[str] = options.settings(
        "With --env: a parameter of the environment, or of an agent as AGENT.KEY=VALUE"
    ),
) -> None:
    """Run a suite, or agents on one environment. Cells in the result directory are not run again.

    Example: dpb run smoke --workers 2

    Example: dpb run dpb-bench-v1 --replicates 10000 --workers 64 --dry-run

    Example: dpb run --env DPB/Pricing-v0 --agent fixed-price --horizon 5000 --set dim=5
    """
    from dpb_gym.exchange.archive import unfit_for_submission
    from dpb_gym.planning.costs import forecast
    from dpb_gym.running.api import plan_task
    from dpb_gym.running.callbacks import logger
    from dpb_gym.running.execution import run_plan

    if (suite is None) == (env is None):
        raise ParameterError("give either a suite (dpb list suites) or --env ID with --agent NAME")
    given = {"agent": agent, "budget": budget, "horizon": horizon, "seed": seed, "set": set_}
    if suite is not None:
        planned_suite, plans = _of_suite(suite, given, agents, tasks)
        place = planned_suite.name
    else:
        chosen, env_kwargs = _of_env([*agent, *(options.names(agents) or ())], given, tasks)
        replicates = DEFAULT_REPLICATES if replicates is None else replicates
        planned_suite, *plans = plan_task(
            str(env), chosen, horizon, replicates, seed or 0,
            env_kwargs=env_kwargs, budgets=options.read_budgets(budget) or None,
        )  # fmt: skip
        place = f"{planned_suite.tasks[0].name}-{planned_suite.protocol[:8]}"
    if dry_run:
        with progress_lines("dpb run", False if quiet else None):
            forecasts = forecast(planned_suite, plans, replicates)
        _print_forecast(forecasts, workers, json)
        return
    for path in (html, None if "://" in (out or "") else out):
        options.new_folder(path)
    tasks_run = [plan.task for plan in plans if plan.runs]
    if suite is not None and (reason := unfit_for_submission(planned_suite, tasks_run, replicates)):
        options.log(f"dpb: {reason}")
    done = run_plan(
        planned_suite, plans, out or f"results/{place}", replicates=replicates, workers=workers,
        backend=backend, scheduler=scheduler, show=not quiet,
        callbacks=[logger(word) for word in log], isolate=isolate,
    )  # fmt: skip
    _print_run(done, html, json)
    options.exit_on_failures(done.failures)


def _of_suite(
    name: str, given: Mapping[str, Any], agents: str | None, tasks: str | None
) -> tuple[suites.Suite, list[TaskPlan]]:
    """Return a suite and the plans of its tasks."""
    from dpb_gym.running.plan import plan_suite

    if wrong := [f"--{option}" for option, value in given.items() if value not in (None, [])]:
        raise ParameterError(
            f"{', '.join(wrong)} belongs to a run with --env; a suite fixes it "
            "(restrict a suite with --agents, --tasks and --replicates)"
        )
    suite = suites.load_suite(name)
    plans = plan_suite(suite, options.names(agents), options.names(tasks))
    for plan in plans:
        if plan.missing:
            print(f"dpb: left out: task {plan.task.name}: {plan.missing}", file=sys.stderr)
    return suite, plans


def _of_env(
    agents: Sequence[str], given: Mapping[str, Any], tasks: str | None
) -> tuple[list[tuple[str, None, Any]], dict[str, Any]]:
    """Return agents with their parameters, and parameters of the environment."""
    if tasks is not None:
        raise ParameterError("--tasks restricts a suite; --env is one task")
    if not agents:
        raise ParameterError("--env needs at least one --agent NAME (dpb list agents)")
    asked = [text for text in given["budget"] if text.strip() != "none"]
    if asked and all(dpb_gym.agent_spec(name).budget == "never" for name in agents):
        raise BudgetError(
            f"none of {', '.join(agents)} takes a budget, but {', '.join(asked)} was given"
        )
    env_kwargs, params = options.settings_of(given["set"], agents)
    return [(name, None, params.get(name)) for name in agents], env_kwargs


def _print_forecast(forecasts: Sequence[Forecast], workers: int | None, json: bool) -> None:
    """Print the expected time, size and memory of a plan."""
    from dpb_gym.running.execution import check_backend
    from dpb_gym.running.progress import duration

    cores = check_backend(workers)
    parts = ("jobs", "cells", "rounds", "seconds", "bytes")
    total = {part: sum(getattr(row, part) for row in forecasts) for part in parts}
    seconds = total["seconds"]
    most = max((row.memory for row in forecasts), default=0)
    if json:
        options.print_json({"tasks": forecasts, "total": {**total, "memory": most}})
        return
    options.print_table(
        ("task", "jobs", "cells", "agent rounds", "core-hours", "table", "memory"),
        [
            (
                row.task, f"{row.jobs:,}", f"{row.cells:,}", f"{row.rounds:,}",
                f"{row.seconds / 3600:,.2f}", decimal(row.bytes), decimal(row.memory),
            )
            for row in forecasts
        ],
    )  # fmt: skip
    print(
        f"{total['rounds']:,} agent rounds in {total['jobs']:,} jobs: {seconds / 3600:,.2f} "
        f"core-hours, {duration(seconds / cores)} on {cores} like this one; "
        f"{decimal(total['bytes'])} of table; {decimal(most)} of memory a worker"
    )


def _print_run(run: RunReport, html: str | None, as_json: bool) -> None:
    from dpb_gym.running.progress import duration

    data = None
    if run.failures:
        options.log(f"dpb: {len(run.failures)} of {run.cells} cells failed; the others are kept")
    if len(run.failures) < run.cells:
        data = dpb_gym.Result.read(run.store).to_leaderboard()
        if html is not None:
            path = report.html(data, html)
            print(f"page written to {path}", file=sys.stderr if as_json else None)
    if as_json:
        fields = {key: getattr(run, key) for key in ("cells", "computed", "rounds", "seconds")}
        failures = [str(failure) for failure in run.failures]
        rows = report.records(data) if data is not None else []
        options.print_json({"path": str(run.path), **fields, "failures": failures, "rows": rows})
        return
    if data is not None:
        report.table(data, console=options.console())
    done = f"{run.computed} cells computed"
    if run.computed:
        done += f" in {duration(run.seconds)} ({run.rounds:,} agent rounds)"
    if run.skipped:
        done += f", {run.skipped} were there already"
    print(f"{run.store.suite.name}: {done}; results in {shell_word(str(run.path))}")
    if data is not None:
        page = "" if html is not None else " --html leaderboard.html"
        print(f"Next: dpb leaderboard {shell_word(str(run.path))}{page} --plot regret.png")


def tune(
    agents: list[str] = Argument(
        metavar="AGENT...", help="Registered agents.", autocompletion=AGENT_NAMES
    ),
    env: str = Option(help="Environment id.", autocompletion=complete("envs")),
    budget: list[str] = options.budgets("Budget to tune at"),
    horizon: int | None = options.HORIZON,
    set_: list[str] = options.settings(
        "A parameter of the environment, or a fixed one of an agent as AGENT.KEY=VALUE"
    ),
    grid: list[str] = Option(
        [],
        metavar="[AGENT.]KEY=[V,V]",
        help="Values to try, instead of the agent's own grid; may be repeated.",
    ),
    points: int = Option(32, min=0, help="Most points per agent and budget; 0 for all."),
    replicates: int = Option(20, help="Tuning replicates, the same for all."),
    halving: int | None = Option(
        None,
        metavar="N",
        help="Successive halving: N times as many replicates for the best N-th of the points.",
    ),
    widen: bool = Option(
        False, "--widen", help="Go on outside of the grid while the best point is at an end of it."
    ),
    seed: int = Option(1_000_000, help="First tuning seed, 1000000 to 1999999."),
    out: str | None = Option(None, help="Result directory; results/tune-... by default. Resumes."),
    recipes: str | None = Option(None, help="Folder of the recipes; OUT/recipes by default."),
    private: bool = Option(False, help="Charge the selection to the budget; prints the choice."),
    runs: float = Option(32.0, help="With --private: mean number of runs."),
    workers: int | None = options.WORKERS,
    quiet: bool = options.QUIET,
    json: bool = options.JSON,
) -> None:
    """Tune agents with equal effort, on tuning seeds only, and write recipes.

    Example: dpb tune lin-ucb --env DPB/Recommendation-v0 --grid 'alpha=[0.1, 0.5, 1]'
    """
    from dpb_gym.planning import tuning

    env_kwargs, fixed = options.settings_of(set_, agents)
    alone, owned = options.settings_of(grid, agents, "--grid")
    if alone:
        if len(agents) != 1:
            raise ParameterError(
                f"--grid {next(iter(alone))!r}: with several agents say whose: AGENT.KEY=[...]"
            )
        owned[agents[0]] = {**alone, **owned.get(agents[0], {})}
    if private:
        from dpb_gym.planning.private_tuning import tune_privately

        own = env_kwargs | ({"horizon": horizon} if horizon else {})
        problem = dpb_gym.make_problem(env, **own)
        how: Any = {"runs": runs, "replicates": replicates}
        chosen = [
            tune_privately(a, problem, b, owned.get(a), **how) for a in agents for b in budget
        ]
        rows = [[c.agent, str(dict(c.params)), f"{c.score:.6g}", str(c.guarantee)] for c in chosen]
        return options.print_table(("agent", "chosen", "reward", "selection included"), rows)
    done = tuning.tune(
        env, agents, options.read_budgets(budget), env_kwargs=env_kwargs, grids=owned, params=fixed,
        horizon=horizon, points=points or None, replicates=replicates, halving=halving, widen=widen,
        seed=seed, out=out, recipes=recipes, workers=workers, progress=False if quiet else None,
    )  # fmt: skip
    if json:
        options.print_json(done)
    else:
        _print_tuning(done)
    options.exit_on_failures(done.failures)


def warm(
    agents: list[str] | None = Argument(
        None, help="Registered agents; all by default.", autocompletion=AGENT_NAMES
    ),
    workers: int | None = options.WORKERS,
    quiet: bool = options.QUIET,
) -> None:
    """Compile the kernels of agents and environments, so that nothing waits for the compiler later.

    Example: dpb warm one-pass-pricing lin-ucb
    """
    from dpb_gym.running import warming

    compiled = warming.warm(agents, workers=workers, show=not quiet)
    print(f"{compiled} kernels compiled" if compiled else "nothing to do: all kernels are compiled")


def _print_tuning(done: Tuning) -> None:
    """Print the best point of every agent at every budget."""
    from dpb_gym.running.progress import duration

    def listed(params: Any) -> str:
        return ", ".join(f"{key}={value}" for key, value in params.items()) or "defaults"

    def regret(point: Point | None) -> str:
        if point is None:
            return "failed"
        error = "" if math.isnan(point.error) else f" +- {point.error:.2g}"
        return f"{point.regret:.4g}{error}"

    rows = [
        (recipe.agent, choice.budget, listed(choice.best.params), regret(choice.best),
         regret(choice.default), f"{len(choice.points)} of {recipe.points}")
        for recipe in done.recipes for choice in recipe.choices
    ]  # fmt: skip
    options.print_table(("agent", "budget", "best", "regret", "with defaults", "points"), rows)
    print(
        f"{done.env_id}, T={done.options['horizon']}, tuning seeds {done.seeds[0]} to "
        f"{done.seeds[1]}; the best of many points looks better here than it is: evaluate it on "
        "other seeds."
    )
    if done.rounds:
        print(f"{done.rounds:,} agent rounds in {duration(done.seconds)}")
    for recipe in done.recipes:
        print(f"{recipe.path}: {listed(recipe.parameters)}")


def outside(
    world: str = Argument(
        help="shuffle-linear, private-arms, ldp-ratings, sparse, ldp-logistic.",
        autocompletion=complete("worlds"),
    ),
    folder: str = Argument(help="A clone of the world's repository. Its Python code is executed."),
    runs: int = Option(3, min=1, help="Replicates."),
    rounds: int | None = Option(None, min=100, help="Rounds; the published horizon by default."),
    json: bool = options.JSON,
) -> None:
    """Play a world that others published: their agents and ours, with true epsilons.

    Example: dpb outside shuffle-linear Differentially-Private-Bandits --runs 1 --rounds 2000
    """
    from dpb_gym.outside import outside as rows

    records = list(rows(world, folder, runs=runs, rounds=rounds))
    if json:
        options.print_json(records)
        return
    shown = ("setting", "agent", "by", "trust", "stated", "true", "regret", "sd")
    options.print_table(shown, [[_rounded(k, row[k]) for k in shown] for row in records])


def _rounded(name: str, value: object) -> object:
    """Return a number with four digits; an unbounded epsilon as a word."""
    if value is None:
        return "unbounded" if name == "true" else ""
    return f"{value:.4g}" if isinstance(value, float) else value


def reproduce(
    target: str = Argument(
        metavar="PAPER[/FIGURE]|FILE.yaml",
        help="private-assortment, private-pricing, adaprivate-ts, a package's, or a file.",
        autocompletion=complete("figures"),
    ),
    out: str | None = Option(None, help="Folder; reproductions/PAPER by default. Resumes."),
    replicates: int | None = Option(None, help="Instead of the figures' own."),
    quick: bool = Option(False, "--quick", help="A small version: checks that everything runs."),
    dry_run: bool = DRY_RUN,
    workers: int | None = options.WORKERS,
    set_: list[str] = options.settings(
        "Parameter of the environments, or of one task's (data=FILE)", "[TASK.]KEY=VALUE"
    ),
    quiet: bool = options.QUIET,
    json: bool = options.JSON,
) -> None:
    """Run a paper's figures and tables and judge every claim of the paper.

    Example: dpb reproduce private-assortment/fig4 --replicates 10
    """
    settings = options.read_settings(set_)
    if dry_run:
        with progress_lines("dpb reproduce", False if quiet else None):
            forecasts = papers.forecast_figures(
                target, replicates=replicates, quick=quick, env_kwargs=settings
            )
        _print_forecast(forecasts, workers, json)
        return
    options.new_folder(out)
    done = papers.reproduce(
        target, out, replicates=replicates, quick=quick, workers=workers,
        progress=False if quiet else None, env_kwargs=settings,
    )  # fmt: skip
    if json:
        figures = [
            {**one.to_dict(), "skipped": one.skipped, "folder": str(one.folder)}
            for one in done.figures
        ]
        options.print_json(
            {"figures": figures, "failures": list(done.failures), "page": str(done.page)}
        )
    else:
        _print_reproduction(done)
    options.exit_on_failures(done.failures)


def _print_reproduction(done: papers.Reproduction) -> None:
    from dpb_gym.running.progress import duration

    done.table(options.console())
    for one in done.figures:
        if one.skipped:
            options.log(f"{one.figure.target}: skipped: {one.skipped}")
            continue
        rounds = f" ({one.rounds:,} agent rounds)" if one.rounds else ""
        print(f"{one.figure.target}: {duration(one.seconds)}{rounds}; {one.folder}")
    print(f"Look at it: {done.page}")
