"""``dpb run``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from dpb_gym import report
from dpb_gym.cli.options import names, new_folder, read_budgets, settings_of
from dpb_gym.cli.output import console, print_json
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.evaluation.api import one_task_suite
from dpb_gym.evaluation.callbacks import logger
from dpb_gym.evaluation.plan import TaskPlan, plan_runs, plan_suite, read_agents
from dpb_gym.evaluation.progress import duration
from dpb_gym.evaluation.run import RunReport, run_plan
from dpb_gym.evaluation.suite import Suite, parse_suite, suite_text

DEFAULT_REPLICATES = 10
PROGRESS_DELAY = 0.5


def run(
    suite_name: str | None,
    env: str | None,
    ad_hoc: dict[str, Any],
    agents: str | None,
    tasks: str | None,
    html: str | None,
    out: str | None,
    as_json: bool,
    log: Sequence[str],
    **options: Any,
) -> int:
    """Runs a suite, or agents on one environment, and returns the exit status.

    Args:
        suite_name: Suite or path.
        env: Environment id instead.
        ad_hoc: Options that describe a run without a suite, by option, as typed.
        agents: Restricts the suite.
        tasks: Restricts the suite.
        html: Where to write the page.
        out: Result directory.
        as_json: Print JSON instead of the table.
        log: Loggers as typed.
        options: Those of `run_plan`.

    Raises:
        DPBError: If an option is invalid.
    """
    if (suite_name is None) == (env is None):
        raise ParameterError("give either a suite (dpb list suites) or --env ID with --agent NAME")
    text = None
    if env is None:
        assert suite_name is not None
        wrong = [f"--{option}" for option, value in ad_hoc.items() if value not in (None, ())]
        if wrong:
            raise ParameterError(
                f"{', '.join(wrong)} belongs to a run with --env; a suite fixes it "
                "(restrict a suite with --agents, --tasks and --replicates)"
            )
        text, source = suite_text(suite_name)
        suite = parse_suite(text, source)
        plans = plan_suite(suite, names(agents), names(tasks))
    elif tasks is not None:
        raise ParameterError("--tasks restricts a suite; --env is one task")
    else:
        chosen = [*ad_hoc["agent"], *(names(agents) or [])]
        suite, plans = one_environment(env, chosen, ad_hoc, options["replicates"])
    for plan in plans:
        if plan.missing:
            print(f"dpb: left out: task {plan.task.name}: {plan.missing}", file=sys.stderr)
    for path in (out, html):
        new_folder(path)
    done = run_plan(
        suite,
        plans,
        out or f"results/{suite.name if env is None else _place(suite)}",
        suite_text=text,
        delay=PROGRESS_DELAY,
        callbacks=[logger(text) for text in log],
        **options,
    )
    _say(suite, done, html, as_json)
    return 1 if done.failures else 0


def one_environment(
    env: str, agents: Sequence[str], ad_hoc: dict[str, Any], replicates: int | None
) -> tuple[Suite, list[TaskPlan]]:
    """The suite and plan of ``--env``."""
    if not agents:
        raise ParameterError("--env needs at least one --agent NAME (dpb list agents)")
    env_kwargs, params = settings_of(ad_hoc["set"], agents)
    horizon = env_kwargs.pop("horizon", None)
    suite = one_task_suite(
        env,
        env_kwargs,
        horizon if ad_hoc["horizon"] is None else ad_hoc["horizon"],
        DEFAULT_REPLICATES if replicates is None else replicates,
        ad_hoc["seed"] or 0,
    )
    budgets = read_budgets(ad_hoc["budget"]) or None
    (task,) = suite.tasks
    runs = read_agents([(name, None, params.get(name)) for name in agents], task.kind, budgets)
    asked = any(budget is not None for budget in budgets or ())
    if asked and all(run.budget is None for run in runs):
        raise BudgetError(
            f"none of {', '.join(agents)} takes a budget, but {ad_hoc['budget'][0]} was given"
        )
    return suite, [plan_runs(task, runs)]


def _place(suite: Suite) -> str:
    return f"{suite.tasks[0].name}-{suite.protocol[:8]}"


def _say(suite: Suite, run: RunReport, html: str | None, as_json: bool) -> None:
    from dpb_gym.evaluation.result import Result

    speed = run.rounds / run.seconds if run.seconds > 0 else 0.0
    done = f"{run.computed} cells computed"
    if run.computed:
        done += f" in {duration(run.seconds)} ({speed:,.0f} agent rounds/s)"
    if run.skipped:
        done += f", {run.skipped} were there already"
    for failure in run.failures:
        print(f"dpb: failed: {failure}", file=sys.stderr)
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
