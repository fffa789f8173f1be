"""``dpb run``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from dpb_gym.cli.options import read_budget, read_settings
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.evaluation.api import ad_hoc_suite
from dpb_gym.evaluation.entries import Entry, check_distinct, named_entry
from dpb_gym.evaluation.planning import TaskPlan, plan_entries, plan_suite
from dpb_gym.evaluation.progress import duration
from dpb_gym.evaluation.session import RunReport, run_plan
from dpb_gym.evaluation.suite import Suite, parse_suite, suite_text
from dpb_gym.privacy import Budget

DEFAULT_REPLICATES = 10
PROGRESS_DELAY = 0.5


@dataclass(frozen=True)
class AdHoc:
    """Options that describe a run without a suite, as typed."""

    env: str | None
    agents: tuple[str, ...]
    rho: float | None
    epsilon: float | None
    delta: float | None
    horizon: int | None
    seed: int | None
    settings: tuple[str, ...]


@dataclass(frozen=True)
class RunOptions:
    """Options of every run, as typed."""

    agents: str | None
    tasks: str | None
    replicates: int | None
    workers: int | None
    backend: str
    scheduler: str | None
    out: str | None
    progress: bool
    html: str | None = None


def run(suite_name: str | None, ad_hoc: AdHoc, options: RunOptions) -> int:
    """Runs a suite or an ad-hoc comparison and returns the exit status.

    Raises:
        DPBError: If an option is invalid.
    """
    if (suite_name is None) == (ad_hoc.env is None):
        raise ParameterError("give either a suite (dpb list suites) or --env ID with --agent NAME")
    if ad_hoc.env is None:
        suite, text, plans = _suite(str(suite_name), ad_hoc, options)
        out = options.out or f"results/{suite.name}"
    else:
        suite, plans = _ad_hoc(ad_hoc, options)
        text = suite.to_yaml()
        out = options.out or f"results/{suite.tasks[0].name}-{suite.protocol[:8]}"
    _say_left_out(plans)
    report = run_plan(
        suite,
        plans,
        out,
        suite_text=text,
        replicates=options.replicates,
        workers=options.workers,
        backend=options.backend,
        scheduler=options.scheduler,
        show=options.progress,
        delay=PROGRESS_DELAY,
    )
    _say(suite, report, options.html)
    return 1 if report.failures else 0


def _say_left_out(plans: list[TaskPlan]) -> None:
    for plan in plans:
        if plan.missing:
            print(f"dpb: left out: task {plan.task.name}: {plan.missing}", file=sys.stderr)


def _say(suite: Suite, report: RunReport, html: str | None) -> None:
    speed = report.rounds / report.seconds if report.seconds > 0 else 0.0
    done = f"{report.computed} cells computed"
    if report.computed:
        done += f" in {duration(report.seconds)} ({speed:,.0f} agent rounds/s)"
    if report.skipped:
        done += f", {report.skipped} were there already"
    print(f"{suite.name}: {done}; results in {report.path}")
    for task, failure in report.failures:
        print(f"dpb: failed: {task}: {failure.message}", file=sys.stderr)
    if report.failures:
        print(
            f"dpb: {len(report.failures)} of {report.cells} cells failed; the others are kept",
            file=sys.stderr,
        )
    if html is not None:
        from dpb_gym.evaluation.result import Result

        print(f"page written to {Result.load(report.path).html(html)}")
    elif not report.failures:
        print(f"Look at them: dpb leaderboard {report.path} --html leaderboard.html")


def _suite(name: str, ad_hoc: AdHoc, options: RunOptions) -> tuple[Suite, str, list[TaskPlan]]:
    given = {
        "--agent": ad_hoc.agents,
        "--rho": ad_hoc.rho,
        "--epsilon": ad_hoc.epsilon,
        "--delta": ad_hoc.delta,
        "--horizon": ad_hoc.horizon,
        "--seed": ad_hoc.seed,
        "--set": ad_hoc.settings,
    }
    wrong = [option for option, value in given.items() if value not in (None, ())]
    if wrong:
        raise ParameterError(
            f"{', '.join(wrong)} belongs to a run with --env; a suite fixes it "
            "(restrict a suite with --agents, --tasks and --replicates)"
        )
    text, source = suite_text(name)
    suite = parse_suite(text, source)
    return suite, text, plan_suite(suite, _names(options.agents), _names(options.tasks))


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _ad_hoc(ad_hoc: AdHoc, options: RunOptions) -> tuple[Suite, list[TaskPlan]]:
    from dpb_gym.envs.catalogue import environment

    assert ad_hoc.env is not None
    if options.tasks is not None:
        raise ParameterError("--tasks restricts a suite; --env is one task")
    names = [*ad_hoc.agents, *(_names(options.agents) or [])]
    if not names:
        raise ParameterError("--env needs at least one --agent NAME (dpb list agents)")
    env_kwargs, agent_kwargs = _settings(ad_hoc.settings, names)
    horizon = env_kwargs.pop("horizon", None) if ad_hoc.horizon is None else ad_hoc.horizon
    if horizon is None:
        horizon = environment(ad_hoc.env).parameters()["horizon"]
    suite = ad_hoc_suite(
        ad_hoc.env,
        env_kwargs,
        horizon,
        DEFAULT_REPLICATES if options.replicates is None else options.replicates,
        0 if ad_hoc.seed is None else ad_hoc.seed,
    )
    budget = read_budget(ad_hoc.rho, ad_hoc.epsilon, ad_hoc.delta)
    entries = [_entry(name, budget, agent_kwargs.get(name, {})) for name in names]
    if budget is not None and all(entry.budget is None for entry in entries):
        raise BudgetError(f"none of {', '.join(names)} takes a budget, but {budget} was given")
    check_distinct(entries)
    return suite, [plan_entries(suite.task_list[0], entries)]


def _entry(name: str, budget: Budget | None, params: dict[str, Any]) -> Entry:
    entry = named_entry(name, name, None, params)
    if entry.spec.budget == "never":
        return entry
    return named_entry(name, name, budget, params)


def _settings(
    settings: tuple[str, ...], agents: list[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Splits KEY=VALUE settings into those of the environment and those of agents."""
    env: dict[str, Any] = {}
    of_agents: dict[str, dict[str, Any]] = {}
    for key, value in read_settings(settings).items():
        owner, dot, name = key.rpartition(".")
        target = env
        if dot:
            if owner not in agents:
                raise ParameterError(
                    f"--set {key!r}: {owner!r} is not among the agents {', '.join(agents)}"
                )
            target = of_agents.setdefault(owner, {})
        target[name] = value
    return env, of_agents
