"""From a suite to the entries of each task, and from those to jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from dpb_gym.agent import AgentSpec, agent_spec, agent_specs, check_supported
from dpb_gym.errors import DataError, DPBError, ParameterError, SuiteError, unknown_name
from dpb_gym.evaluation.cells import Cell, Task, make_cell
from dpb_gym.evaluation.checkpoints import resolve_checkpoints
from dpb_gym.evaluation.entries import Entry, check_distinct, named_entry
from dpb_gym.evaluation.suite import DEFAULT_GRID, SEED_SPAN, TRACK_GRID, Suite, SuiteAgent
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import ProblemInfo


@dataclass(frozen=True)
class TaskPlan:
    """Who takes part in a task.

    Attributes:
        task: The task.
        entries: The agents that run, once per budget.
        skipped: Labels of the agents that do not, with the reason.
        missing: How to get the data without which nobody runs, empty if they are here.
    """

    task: Task
    entries: tuple[Entry, ...]
    skipped: Mapping[str, str]
    missing: str = ""


@dataclass(frozen=True)
class Job:
    """Cells of one task and one block of replicates, computed together.

    Attributes:
        task: The task.
        entries: Who runs.
        cells: Their cells, in the same order.
    """

    task: Task
    entries: tuple[Entry, ...]
    cells: tuple[Cell, ...]

    @property
    def rounds(self) -> int:
        """Agent rounds."""
        return len(self.cells) * len(self.cells[0].replicates) * self.task.horizon

    @property
    def title(self) -> str:
        """Task and replicates, for progress bars."""
        block = self.cells[0].replicates
        return f"{self.task.name} {block[0]}-{block[-1]}"


def plan_suite(
    suite: Suite, agents: Sequence[str] | None = None, tasks: Sequence[str] | None = None
) -> list[TaskPlan]:
    """Decides who runs on what.

    Agents that do not support a task are skipped there, and tasks whose data are not here are
    left out unless they were asked for. An agent that the suite does not name but that is
    registered takes part if asked for, at every budget of the track if it takes any.

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
    chosen_tasks = _choose_tasks(suite, tasks)
    chosen_agents = [(agent, _spec(suite, agent)) for agent in _choose_agents(suite, agents)]
    plans = []
    for task in chosen_tasks:
        entries: list[Entry] = []
        skipped: dict[str, str] = {}
        missing = task.missing_data() or ""
        if missing and tasks is not None:
            raise DataError(f"task {task.name!r} of suite {suite.name!r}: {missing}")
        track = suite.task(task.name).track
        for agent, spec in chosen_agents:
            reason = agent.left_out(task.name, track) or _unsupported(task, agent, spec)
            if reason is None:
                entries += _entries(suite, agent, spec, track)
            else:
                skipped[agent.label] = reason
        try:
            check_distinct(entries)
        except ParameterError as error:
            raise SuiteError(f"suite {suite.name!r}, task {task.name!r}: {error}") from None
        plans.append(TaskPlan(task, () if missing else tuple(entries), skipped, missing))
    return plans


def plan_entries(task: Task, entries: Sequence[Entry]) -> TaskPlan:
    """Plans given entries on one task; each must support it.

    Raises:
        AgentError: If an agent does not support the task or its budget.
    """
    for entry in entries:
        check_supported(entry.spec, task_info(task), entry.budget)
    return TaskPlan(task, tuple(entries), {})


def task_info(task: Task) -> ProblemInfo:
    """What `check_supported` asks for, without loading any data."""
    return ProblemInfo(
        task.kind, task.horizon, 1, (0.0, 1.0), partial_feedback=task.partial_feedback
    )


def make_jobs(suite: Suite, plans: Sequence[TaskPlan], replicates: int | None = None) -> list[Job]:
    """Cuts the plan into jobs, after making every problem and agent once.

    Args:
        suite: The suite.
        plans: Its plan.
        replicates: Instead of the suite's and of the tasks' own.

    Raises:
        ParameterError: If a parameter is invalid.
        DataError: If data are missing or damaged.
    """
    count = suite.replicates if replicates is None else replicates
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= SEED_SPAN:
        raise ParameterError(f"replicates must be an integer in 1..{SEED_SPAN}, got {count!r}")
    protocol = suite.protocol
    tasks = []
    for plan in plans:
        if not plan.entries:
            continue
        plan.task.problem()
        for entry in plan.entries:
            entry.make()
        tasks.append((plan, plan.task.data_digest(), _blocks(suite, plan.task, replicates)))
    jobs = []
    # Block by block, so that workers start on different tasks and do not all compile the same.
    for number in range(max((len(blocks) for *_, blocks in tasks), default=0)):
        for plan, data, blocks in tasks:
            if number >= len(blocks):
                continue
            checkpoints = resolve_checkpoints(suite.checkpoints, plan.task.horizon)
            cells = tuple(
                make_cell(
                    suite.name, protocol, plan.task, data, entry, checkpoints, suite.seed,
                    blocks[number],
                )
                for entry in plan.entries
            )  # fmt: skip
            jobs.append(Job(plan.task, plan.entries, cells))
    return jobs


def _blocks(suite: Suite, task: Task, replicates: int | None) -> list[range]:
    """The replicates of a task in blocks."""
    own = next((item for item in suite.tasks if item.name == task.name), None)
    count = replicates or (own and own.replicates) or suite.replicates
    size = (own and own.block) or suite.block
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def _choose_tasks(suite: Suite, names: Sequence[str] | None) -> list[Task]:
    by_name = {task.name: task for task in suite.task_list}
    for name in names or ():
        if name not in by_name:
            raise unknown_name("task", name, by_name)
    return [task for task in by_name.values() if names is None or task.name in names]


def _choose_agents(suite: Suite, names: Sequence[str] | None) -> list[SuiteAgent]:
    if names is None:
        return list(suite.agents)
    registered = agent_specs()
    chosen = []
    for name in dict.fromkeys(names):
        found = [agent for agent in suite.agents if name == agent.label]
        found = found or [agent for agent in suite.agents if name == agent.name]
        if not found:
            if name not in registered:
                labels = {agent.label for agent in suite.agents}
                raise unknown_name("agent", name, labels | set(registered))
            found = [SuiteAgent(name=name)]
            if registered[name].budget == "optional" and _has_grids(suite):
                found.append(SuiteAgent(name=name, budgets=TRACK_GRID))
        chosen += [agent for agent in found if agent not in chosen]
    return chosen


def _spec(suite: Suite, agent: SuiteAgent) -> AgentSpec:
    try:
        spec = agent_spec(agent.name)
    except DPBError as error:
        raise SuiteError(f"{_where(suite, agent)}: {error}") from error
    if agent.budgets is not None and spec.budget == "never":
        raise SuiteError(
            f"{_where(suite, agent)}: agent {agent.name!r} is non-private and takes no budget"
        )
    if agent.budgets is None and spec.budget == "required" and not _has_grids(suite):
        raise SuiteError(
            f"{_where(suite, agent)}: agent {agent.name!r} is private: give budgets, or a "
            f"grid called {DEFAULT_GRID!r}"
        )
    return spec


def _has_grids(suite: Suite) -> bool:
    return DEFAULT_GRID in suite.budgets or suite.all_tracks_have_grids


def _entries(suite: Suite, agent: SuiteAgent, spec: AgentSpec, track: str | None) -> list[Entry]:
    grid = agent.budgets
    if grid == TRACK_GRID or (grid is None and spec.budget == "required"):
        own = suite.tracks[track].budgets if track is not None else None
        grid = DEFAULT_GRID if own is None else own
    budgets: list[Budget | None] = [None] if grid is None else list(suite.grid(grid))
    try:
        return [named_entry(agent.label, agent.name, b, agent.params) for b in budgets]
    except DPBError as error:
        raise SuiteError(f"{_where(suite, agent)}: {error}") from error


def _where(suite: Suite, agent: SuiteAgent) -> str:
    return f"suite {suite.name!r}, agent {agent.label!r}"


def _unsupported(task: Task, agent: SuiteAgent, spec: AgentSpec) -> str | None:
    info = task_info(task)
    if info.kind not in spec.supports:
        return f"supports {', '.join(spec.supports)}"
    if info.partial_feedback and not spec.partial_feedback:
        return "needs feedback in every round"
    if agent.needs is not None and not _importable(agent.needs):
        return f"needs the module {agent.needs}, which is not installed"
    return None


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
