"""Plans and jobs: which agent runs on which task, at which budget, in which blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from dpb_gym import validation
from dpb_gym.envs.registration import environment
from dpb_gym.errors import DataError, DPBError, ParameterError, SuiteError, unknown_name
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Problem, ProblemInfo
from dpb_gym.problems.delay import Delay
from dpb_gym.registry import AgentSpec, agent_spec, agent_specs, check_supported, shortcoming
from dpb_gym.results.cell_result import Study
from dpb_gym.suites.spec import AgentRun, Cell, Task
from dpb_gym.suites.suite import (
    DEFAULT_GRID,
    SEED_SPAN,
    TRACK_GRID,
    Participant,
    Suite,
    resolve_checkpoints,
)


@dataclass(frozen=True)
class TaskPlan:
    """Agents of a task.

    Attributes:
        task: The task.
        runs: The agents, once per budget; each supports the task.
        skipped: Labels of the agents that do not run, with the reason.
        missing: How to get missing data, empty if the data are available.
        problem: The task's problem, None if it has not been created.
        study: See `Job.study`.
        blocks: Replicates that run together; those of the suite if empty.

    Raises:
        ParameterError: If two runs share label and budget, or differ in case only.
        AgentError: If an agent does not support the task or its budget.
    """

    task: Task
    runs: Sequence[AgentRun]
    skipped: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""
    problem: Problem | None = None
    study: Study | None = None
    blocks: Sequence[range] = ()

    def __post_init__(self) -> None:
        seen: dict[tuple[str, str], AgentRun] = {}
        info = task_info(self.task) if self.problem is None else self.problem.info
        for run in self.runs:
            key = run.label.casefold(), str(run.budget)
            if key in seen:
                twice = ", ".join(dict.fromkeys((seen[key].title, run.title)))
                raise ParameterError(f"agent given twice: {twice}; use distinct labels")
            seen[key] = run
            check_supported(run.spec, info, run.budget is not None)


@dataclass(frozen=True)
class Job:
    """Cells of one task and one block of replicates, run together.

    Attributes:
        cells: The cells, one per run.
        problem: The task's problem if this process has created it. It is pickled only if other
            processes cannot create it by name.
        study: Measures every agent after its run; None for regret and reward alone.
        isolate: See `dpb_gym.running.runner.run_block`.
    """

    cells: tuple[Cell, ...]
    problem: Problem | None = None
    study: Study | None = None
    isolate: bool = False

    def __getstate__(self) -> dict[str, Any]:
        by_name = isinstance(environment(self.task.env).problem, str)
        problem = None if by_name else self.problem or self.task.problem()
        return {**vars(self), "problem": problem}

    @property
    def task(self) -> Task:
        """The task."""
        return self.cells[0].task

    @property
    def rounds(self) -> int:
        """Agent rounds."""
        return len(self.cells) * len(self.cells[0].replicates) * self.task.horizon

    @property
    def title(self) -> str:
        """Task and replicates, for progress bars."""
        cell = self.cells[0]
        return f"{cell.task.name} {cell.start}-{cell.stop - 1}"


def plan_suite(
    suite: Suite, agents: Sequence[str] | None = None, tasks: Sequence[str] | None = None
) -> list[TaskPlan]:
    """Return which agents run on which tasks at which budgets.

    Agents are skipped on tasks that they do not support. Tasks with missing data are left out
    unless they are requested. A registered agent that the suite does not list takes part if it is
    requested, at every budget of the track if it takes one.

    Args:
        suite: The suite.
        agents: Labels or names to restrict it to; all by default.
        tasks: Names of tasks to restrict it to; all by default.

    Raises:
        UnknownNameError: If a name of `agents` or `tasks` is unknown.
        SuiteError: If the suite names an agent that is not registered, gives a budget to
            one that takes none, or none to one that needs it.
        DataError: If data are missing of a task that was asked for.
    """
    by_name = {task.name: task for task in suite.tasks}
    for name in tasks or ():
        if name not in by_name:
            raise unknown_name("task", name, by_name)
    chosen = [(agent, _registered(suite, agent)) for agent in _choose_agents(suite, agents)]
    plans = []
    for task in suite.tasks:
        if tasks is not None and task.name not in tasks:
            continue
        missing = task.missing_data()
        if missing and tasks is not None:
            raise DataError(f"task {task.name!r} of suite {suite.name!r}: {missing}")
        runs: list[AgentRun] = []
        skipped: dict[str, str] = {}
        for agent, spec in chosen:
            reason = agent.left_out(task) or shortcoming(spec, task_info(task))
            if not reason and agent.needs is not None and find_spec(agent.needs) is None:
                reason = f"needs the module {agent.needs}, which is not installed"
            if reason:
                skipped[agent.label] = reason
            else:
                runs += _at_budgets(suite, agent, spec, task)
        try:
            plans.append(TaskPlan(task, () if missing else runs, skipped, missing))
        except DPBError as error:
            raise SuiteError(f"suite {suite.name!r}, task {task.name!r}: {error}") from None
    return plans


def _choose_agents(suite: Suite, names: Sequence[str] | None) -> list[Participant]:
    if names is None:
        return list(suite.agents)
    registered = agent_specs()
    chosen = []
    for name in dict.fromkeys(names):
        matches = [agent for agent in suite.agents if name == agent.label]
        matches = matches or [agent for agent in suite.agents if name == agent.name]
        if not matches:
            if name not in registered:
                labels = {agent.label for agent in suite.agents}
                raise unknown_name("agent", name, labels | set(registered))
            matches = [Participant(name=name, label=name)]
            if registered[name].budget == "optional" and _has_grids(suite):
                matches.append(Participant(name=name, label=name, budgets=TRACK_GRID))
        chosen += [agent for agent in matches if agent not in chosen]
    return chosen


def _registered(suite: Suite, agent: Participant) -> AgentSpec:
    where = f"suite {suite.name!r}, agent {agent.label!r}"
    try:
        spec = agent_spec(agent.name)
    except DPBError as error:
        raise SuiteError(f"{where}: {error}") from error
    if agent.budgets is not None and spec.budget == "never":
        raise SuiteError(f"{where}: agent {agent.name!r} is non-private and takes no budget")
    if agent.budgets is None and spec.budget == "required" and not _has_grids(suite):
        raise SuiteError(
            f"{where}: agent {agent.name!r} is private: give budgets, or a "
            f"grid called {DEFAULT_GRID!r}"
        )
    return spec


def _has_grids(suite: Suite) -> bool:
    return DEFAULT_GRID in suite.budgets or suite.all_tracks_have_grids


def _at_budgets(suite: Suite, agent: Participant, spec: AgentSpec, task: Task) -> list[AgentRun]:
    spec = spec.over(agent.params)
    if agent.points is not None:
        points = agent.points[task.name].items()
        return [
            AgentRun(spec=spec.over(params), label=agent.label, budget=Budget.parse(budget))
            for budget, params in points
        ]
    grid = agent.budgets
    if grid == TRACK_GRID or (grid is None and spec.budget == "required"):
        own = suite.tracks[task.track].budgets if task.track is not None else None
        grid = DEFAULT_GRID if own is None else own
    budgets = [None] if grid is None else suite.grid(grid)
    return [AgentRun(spec=spec, label=agent.label, budget=budget) for budget in budgets]


def task_info(task: Task) -> ProblemInfo:
    """Return the `ProblemInfo` of a task without loading data, for `check_supported`."""
    given = task.parameters
    delay = Delay.parse(given.get("delay"))
    horizon = None if given.get("unknown_horizon") else task.horizon
    arms = None if given.get("fresh") else given.get("n_arms")
    return ProblemInfo(
        task.kind,
        horizon,
        1,
        (0.0, 1.0),
        masked=given.get("available") is not None,
        n_candidates=given.get("n_candidates", arms),
        n_arms=arms,
        partial_feedback=given.get("protocol") == "replay",
        delay=None if delay is None else str(delay),
    )


def make_jobs(
    suite: Suite,
    plans: Sequence[TaskPlan],
    replicates: int | None = None,
    *,
    stored: bool = True,
    isolate: bool = False,
) -> list[Job]:
    """Split the plan into jobs.

    Args:
        suite: The suite.
        plans: Its plan.
        replicates: Overrides the number of the suite and of its tasks.
        stored: Whether cells will be stored, and need the digests of protocol, data and code.
        isolate: See `Job`.

    Raises:
        ParameterError: If a parameter is invalid or cannot be stored.
        DataError: If data are missing or damaged.
    """
    if replicates is not None:
        validation.integer("replicates", replicates, 1, SEED_SPAN)
    protocol = suite.protocol if stored else ""
    jobs: list[tuple[int, int, Job]] = []
    for plan in plans:
        if not plan.runs:
            continue
        task = plan.task
        runs = [run.sealed() for run in plan.runs] if stored else plan.runs
        shared: dict[str, Any] = {
            "suite": suite.name,
            "protocol": protocol,
            "task": task,
            "data": task.data_digest() if stored else None,
            "checkpoints": resolve_checkpoints(suite.checkpoints, task.horizon),
            "seed": suite.seed,
            "study": None if plan.study is None else plan.study.identity,
        }
        for number, block in enumerate(plan.blocks or blocks(suite, task, replicates)):
            shared |= {"start": block.start, "stop": block.stop}
            cells = tuple(Cell(**shared, agent=run) for run in runs)
            jobs.append((-task.horizon, number, Job(cells, plan.problem, plan.study, isolate)))
    # Longest first, so that workers finish together; then block by block, so that workers start
    # with different tasks and compile different kernels.
    return [job for *_, job in sorted(jobs, key=lambda item: item[:2])]


def blocks(suite: Suite, task: Task, replicates: int | None = None) -> list[range]:
    """Return the replicates of a task in blocks that run together."""
    count = replicates or task.replicates or suite.replicates
    size = task.block or suite.block
    return [range(start, min(start + size, count)) for start in range(0, count, size)]
