"""``dpb run``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dpb_gym.cli.listing import complete
from dpb_gym.cli.options import (
    BUDGET,
    Html,
    Json,
    Quiet,
    Workers,
    names,
    new_folder,
    read_budgets,
    setting,
    settings_of,
)
from dpb_gym.cli.output import console, end, print_json
from dpb_gym.errors import BudgetError, ParameterError

if TYPE_CHECKING:
    from dpb_gym.evaluation.plan import TaskPlan
    from dpb_gym.evaluation.run import RunReport
    from dpb_gym.evaluation.suite import Suite

DEFAULT_REPLICATES = 10
PROGRESS_DELAY = 0.5


def run(
    suite: Annotated[
        str | None,
        typer.Argument(
            help="Name of a suite, or a .yaml file. Not with --env.",
            autocompletion=complete("suites"),
        ),
    ] = None,
    agents: Annotated[
        str | None, typer.Option(help="Only these agents: labels or names, comma-separated.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Only these tasks, comma-separated.")] = None,
    replicates: Annotated[int | None, typer.Option(help="Replicates per task.")] = None,
    workers: Workers = None,
    backend: Annotated[str, typer.Option(metavar="loky|dask", help="Where to run.")] = "loky",
    scheduler: Annotated[str | None, typer.Option(help="Address of the dask scheduler.")] = None,
    out: Annotated[
        str | None,
        typer.Option(help="Result directory, or s3://BUCKET/PREFIX; results/SUITE by default."),
    ] = None,
    html: Html = None,
    quiet: Quiet = False,
    json: Json = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what it would take, after a few seconds a task."),
    ] = False,
    env: Annotated[
        str | None,
        typer.Option(help="Environment id, instead of a suite.", autocompletion=complete("envs")),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            help="Agent to run on --env; may be repeated.", autocompletion=complete("agents")
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar=BUDGET, help="With --env: budget of the agents that take one; may be repeated."
        ),
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Rounds T, with --env.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of replicate 0, with --env.")] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="tensorboard=DIR|wandb=PROJECT|mlflow=URI",
            help="Log every checkpoint; may be repeated.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        setting(
            "With --env: a parameter of the environment, or of an agent as AGENT.KEY=VALUE; "
            "may be repeated."
        ),
    ] = None,
) -> None:
    """Run a suite, or agents on one environment. Resumes what is in the result directory.

    Example: dpb run smoke --workers 2

    Example: dpb run dpb-bench-v1 --replicates 10000 --workers 64 --dry-run

    Example: dpb run --env DPB/Pricing-v0 --agent fixed-price --horizon 5000 --set dim=5
    """
    from dpb_gym.cli.costing import print_forecast
    from dpb_gym.evaluation.callbacks import logger
    from dpb_gym.evaluation.costs import forecast
    from dpb_gym.evaluation.plan import plan_suite
    from dpb_gym.evaluation.run import run_plan
    from dpb_gym.evaluation.suite import parse_suite, suite_text

    if (suite is None) == (env is None):
        raise ParameterError("give either a suite (dpb list suites) or --env ID with --agent NAME")
    text = None
    if suite is not None:
        given = {"agent": agent, "budget": budget, "horizon": horizon, "seed": seed, "set": set_}
        wrong = [f"--{option}" for option, value in given.items() if value not in (None, [])]
        if wrong:
            raise ParameterError(
                f"{', '.join(wrong)} belongs to a run with --env; a suite fixes it "
                "(restrict a suite with --agents, --tasks and --replicates)"
            )
        text, source = suite_text(suite)
        found = parse_suite(text, source)
        plans = plan_suite(found, names(agents), names(tasks))
        place = found.name
    elif tasks is not None:
        raise ParameterError("--tasks restricts a suite; --env is one task")
    else:
        chosen = [*(agent or ()), *(names(agents) or ())]
        found, plan = ad_hoc(
            str(env), chosen, set_ or (), budget or (), horizon, replicates, seed or 0
        )
        plans = [plan]
        place = f"{found.tasks[0].name}-{found.protocol[:8]}"
    for plan in plans:
        if plan.missing:
            print(f"dpb: left out: task {plan.task.name}: {plan.missing}", file=sys.stderr)
    if dry_run:
        print_forecast(forecast(found, plans, replicates), workers, json)
        return
    for path in (html, None if "://" in (out or "") else out):
        new_folder(path)
    done = run_plan(
        found, plans, out or f"results/{place}", suite_text=text, replicates=replicates,
        workers=workers, backend=backend, scheduler=scheduler, show=not quiet,
        delay=PROGRESS_DELAY, callbacks=[logger(word) for word in log or ()],
    )  # fmt: skip
    _say(found, done, html, json)
    end(done.failures)


def ad_hoc(
    env: str,
    agents: Sequence[str],
    settings: Sequence[str],
    budgets: Sequence[str],
    horizon: int | None,
    replicates: int | None,
    seed: int,
) -> tuple[Suite, TaskPlan]:
    """The suite of ``--env``, and who runs on its task."""
    from dpb_gym.evaluation.api import one_task_suite
    from dpb_gym.evaluation.plan import TaskPlan, read_agents

    if not agents:
        raise ParameterError("--env needs at least one --agent NAME (dpb list agents)")
    env_kwargs, params = settings_of(settings, agents)
    named = env_kwargs.pop("horizon", None)
    suite = one_task_suite(
        env,
        env_kwargs,
        named if horizon is None else horizon,
        DEFAULT_REPLICATES if replicates is None else replicates,
        seed,
    )
    (task,), grid = suite.tasks, read_budgets(budgets) or None
    runs = read_agents([(name, None, params.get(name)) for name in agents], task.kind, grid)
    if any(grid or ()) and all(one.budget is None for one in runs):
        raise BudgetError(
            f"none of {', '.join(agents)} takes a budget, but {', '.join(budgets)} was given"
        )
    return suite, TaskPlan(task, runs)


def _say(suite: Suite, run: RunReport, html: str | None, as_json: bool) -> None:
    from dpb_gym import report
    from dpb_gym.evaluation.progress import duration
    from dpb_gym.evaluation.result import Result

    speed = run.rounds / run.seconds if run.seconds > 0 else 0.0
    done = f"{run.computed} cells computed"
    if run.computed:
        done += f" in {duration(run.seconds)} ({speed:,.0f} agent rounds/s)"
    if run.skipped:
        done += f", {run.skipped} were there already"
    if run.failures:
        print(
            f"dpb: {len(run.failures)} of {run.cells} cells failed; the others are kept",
            file=sys.stderr,
        )
    data = None
    if len(run.failures) < run.cells:
        data = Result.load(run.path).to_leaderboard()
    if html is not None and data is not None:
        print(f"page written to {report.html(data, html)}", file=sys.stderr if as_json else None)
    if as_json:
        fields = {key: getattr(run, key) for key in ("cells", "computed", "rounds", "seconds")}
        failures = [str(failure) for failure in run.failures]
        rows = report.records(data) if data is not None else []
        print_json({"path": str(run.path), **fields, "failures": failures, "rows": rows})
        return
    if data is not None:
        report.table(data, console=console())
    print(f"{suite.name}: {done}; results in {run.path}")
    if data is not None:
        page = "" if html is not None else " --html leaderboard.html"
        print(f"Next: dpb leaderboard {run.path}{page} --plot regret.png")
