"""`Result`: what `evaluate` returns and what a result directory is loaded into."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym import report
from dpb_gym.errors import AgentError, ParameterError, ResultError, unknown_name
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Array
from dpb_gym.report.leaderboard_data import LeaderboardData, Row
from dpb_gym.report.tables import Line, Table, board
from dpb_gym.results import metrics, profiles
from dpb_gym.results.cell_result import CellResult, Failure
from dpb_gym.results.leaderboard import SET_ASIDE, leaderboard
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.row_result import RowResult, collect
from dpb_gym.suites import provenance
from dpb_gym.suites.suite import Suite

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(eq=False, repr=False)
class Result:
    """Results of one or more tasks, with tables, plots and files.

    Attributes:
        suite: What was run.
        cells: One `CellResult` per task, agent, budget and block of replicates.
        failures: One `Failure` per failed cell.
        created: ISO 8601 time.
        command: Command that computed them.
        revision: Source revision, None if unknown.
        versions: Versions of Python and the packages.
        notes: Remarks.
        audits: Stored audit reports as dicts, see `dpb_gym.results.row_audits`.
    """

    suite: Suite
    cells: Sequence[CellResult]
    failures: Sequence[Failure] = ()
    created: str = field(default_factory=provenance.now, kw_only=True)
    command: str = field(default_factory=provenance.command_line, kw_only=True)
    revision: str | None = field(default_factory=provenance.revision, kw_only=True)
    versions: Mapping[str, str] = field(default_factory=provenance.versions, kw_only=True)
    notes: Sequence[str] = field(default=(), kw_only=True)
    audits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, kw_only=True)

    @cached_property
    def rows(self) -> list[RowResult]:
        """One entry per task, agent and budget."""
        return collect(self.cells)

    @property
    def labels(self) -> list[str]:
        """Labels of the agents, in order."""
        return list(dict.fromkeys(s.agent for s in self.rows))

    def _find(self, label: str, budget: Any, task: str | None) -> RowResult:
        known = [s for s in self.rows if s.agent == label]
        if not known:
            failed = {failure.cell.agent.label: failure for failure in self.failures}
            if label in failed:
                raise AgentError(failed[label].message)
            raise unknown_name("agent label", label, self.labels)
        wanted = None if budget is None else Budget.text(Budget.parse(budget))
        matches = [s for s in known if wanted in (None, s.budget) and task in (None, s.task)]
        if len(matches) == 1:
            return matches[0]
        rows = ", ".join(f"task={s.task!r} budget={s.budget!r}" for s in known)
        many = (
            "several results" if matches else f"no result for task {task!r} and budget {wanted!r}"
        )
        raise ParameterError(f"agent {label!r} has {many}; name one of: {rows}")

    def final_regret(self, label: str, budget: Any = None, task: str | None = None) -> Array:
        """Return the cumulative pseudo-regret at the horizon ``(replicates,)``, in replicate order.

        Args:
            label: The agent's label.
            budget: Budget or its text, needed only if the agent ran with several.
            task: Name of the task, needed only if there are several.

        Raises:
            UnknownNameError: If there is no such agent.
            AgentError: If the agent failed.
            ParameterError: If budget or task do not name exactly one row.
        """
        return self._find(label, budget, task).regret[:, -1].copy()

    def final_reward(self, label: str, budget: Any = None, task: str | None = None) -> Array:
        """Return the cumulative realised reward at the horizon; see `final_regret`."""
        return self._find(label, budget, task).reward[:, -1].copy()

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per agent, replicate and checkpoint, for a data frame.

        Keys: task, agent, budget (text) and its numbers rho, epsilon and delta, replicate,
        seed, round, regret, reward (cumulative).
        """
        rows = []
        for s in self.rows:
            row: dict[str, Any] = {"task": s.task, "agent": s.agent, "budget": s.budget}
            budget = s.cell.agent.budget
            row |= {name: getattr(budget, name, None) for name in ("rho", "epsilon", "delta")}
            for i, replicate in enumerate(s.replicates.tolist()):
                whose = {**row, "replicate": replicate, "seed": s.cell.seed + replicate}
                curves = s.rounds.tolist(), s.regret[i].tolist(), s.reward[i].tolist()
                rows += [
                    {**whose, "round": t, "regret": regret, "reward": reward}
                    for t, regret, reward in zip(*curves)
                ]
        return rows

    def guarantees(self) -> dict[str, str]:
        """Return the guarantee of every agent and budget in one line, with its true cost."""
        rows = self.to_leaderboard().tasks
        return {row.key: row.guarantee for task in rows for row in task.rows}

    def to_leaderboard(self) -> LeaderboardData:
        """Return rows with intervals and scores, the data of tables and plots."""
        return leaderboard(
            self.suite,
            self.cells,
            self.audits,
            [*self.notes, *(f"Failed: {failure}" for failure in self.failures)],
            created=self.created,
            version=self.versions.get("dpb-gym", "unknown"),
            revision=self.revision,
            command=provenance.shown_command(self.command, self.suite.name),
        )

    @property
    def kinds(self) -> dict[str, str]:
        """Problem kind of each task."""
        return {task.name: task.kind for task in self.suite.tasks}

    def improvement(self, first: Any, second: Any, task: str | None = None) -> float:
        """Return the probability that one row has less regret than another on the same customers.

        Args:
            first: The agent's label, or (label, budget) if it ran with several.
            second: The other row.
            task: Name of the task, needed only if there are several.

        Raises:
            UnknownNameError: If there is no such agent.
            ParameterError: If they do not name exactly one row each.
        """
        pair = ((row, None) if isinstance(row, str) else row for row in (first, second))
        a, b = (self._find(label, budget, task) for label, budget in pair)
        return metrics.probability_of_improvement(a.final_regret, b.final_regret)

    def improvements(self) -> list[dict[str, Any]]:
        """Return probabilities of improvement for all pairs of comparable rows.

        Rows are comparable within a track at one guarantee and budget. Records of track, guarantee,
        budget, agent, over, probability, low, high: how often the agent has less regret than the
        other on the same customers, ties counting half, averaged over tasks, with its 95% interval
        (None with fewer than eight replicates of a task).
        """
        return profiles.improvements(self.to_leaderboard())

    def profiles(self, factors: Sequence[float] = profiles.FACTORS) -> list[dict[str, Any]]:
        """Return performance profiles per track, guarantee and budget.

        Records of track, guarantee, budget, agent, factor, share: the share of replicates on which
        an agent's regret is within a factor of the least regret.

        Args:
            factors: Multiples of the least regret, at least 1.

        Raises:
            ParameterError: If a factor is below 1.
        """
        return profiles.profiles(self.to_leaderboard(), factors)

    def plot_profiles(self, path: str | os.PathLike[str] | None = None, **where: Any) -> Figure:
        """Draw performance profiles; see `dpb_gym.report.plot_profiles`.

        Args:
            path: File to write.
            **where: What to draw, e.g. ``track="pricing", budget="rho=1"``; else all.
        """
        fine = tuple(float(factor) for factor in np.geomspace(1.0, 100.0, 201))
        chosen = [r for r in self.profiles(fine) if all(r.get(k) == v for k, v in where.items())]
        return report.plot_profiles(chosen, path)

    def table(self) -> None:
        """Print regret, 95% interval, normalised score, guarantee and rounds per second."""
        report.table(self.to_leaderboard())

    def plot(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Figure:
        """Draw the regret curves; see `dpb_gym.report.plot` for the options."""
        return report.plot(self.to_leaderboard(), path, **options)

    def plot_frontier(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Figure:
        """Draw regret against budget; see `dpb_gym.report.plot_frontier` for the options."""
        return report.plot_frontier(self.to_leaderboard(), path, **options)

    def plot_paired(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        against: str | None = None,
        task: str | None = None,
        agents: Sequence[str] | None = None,
        ax: Axes | None = None,
    ) -> Figure:
        """Draw each row's regret minus a baseline's on the same customers.

        Args:
            path: File to write; a figure is returned in any case.
            against: Label of the baseline; by default the best agent without privacy.
            task: Name of the task, needed only if there are several.
            agents: Labels to draw; all but the references by default.
            ax: Axes to draw in, instead of a new figure.

        Raises:
            UnknownNameError: If there is no such agent.
            ParameterError: If task or baseline do not name one.
        """
        tables = [t for t in board(self.to_leaderboard()).tasks if task in (None, t.name)]
        if len(tables) != 1:
            names = ", ".join(self.kinds)
            raise ParameterError(f"plot_paired draws one task; name one of: {names}")
        (table,) = tables
        base = table.rival if against is None else self._line(table, against)
        if base is None:
            raise ParameterError("no agent here is without privacy; name one with against=")
        for label in agents or ():
            self._line(table, label)
        differences = {}
        for line in table.ordered:
            row = line.row
            if line is base or (row.reference if agents is None else row.agent not in agents):
                continue
            assert isinstance(row, Row) and isinstance(base.row, Row)
            values = metrics.differences(row.finals, base.row.finals)
            if values:
                differences[row.key] = values, metrics.interval(values)
        return report.plot_paired(table.task, base.label, differences, path, ax=ax)

    @staticmethod
    def _line(table: Table, label: str) -> Line:
        for line in table.ordered:
            if label in (line.row.agent, line.row.key):
                return line
        raise unknown_name("agent label", label, {line.row.key for line in table.ordered})

    def to_frame(self) -> pandas.DataFrame:
        """Return a data frame, one row per task, agent and budget; see `dpb_gym.report.records`.

        Raises:
            MissingExtraError: If pandas is not installed.
        """
        return report.to_frame(self.to_leaderboard())

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | Path:
        """Write the same table as CSV and return the path; without a path return the text."""
        return report.to_csv(self.to_leaderboard(), path)

    def to_latex(self, path: str | os.PathLike[str] | None = None) -> str | Path:
        """Write a booktabs table per task and return the path; without a path return the text."""
        return report.to_latex(self.to_leaderboard(), path)

    def _repr_html_(self) -> str:
        return report.html_table(self.to_leaderboard())

    def html(self, path: str | os.PathLike[str]) -> Path:
        """Write the self-contained leaderboard page."""
        return report.html(self.to_leaderboard(), path)

    def save(self, path: str | os.PathLike[str]) -> Path | str:
        """Save the results to a directory that `load` and ``dpb leaderboard`` read.

        Equal cells that the directory already has are not changed.

        Args:
            path: The directory; created if it does not exist.

        Raises:
            ResultError: If it contains other results, or cannot be written.
            ParameterError: If an agent's parameters cannot be stored.
        """
        run = {
            "command": self.command,
            "agents": self.labels,
            "computed": len(self.cells),
            "failures": [str(failure) for failure in self.failures],
        }
        protocol, digests = self.suite.protocol, dict[str, str | None]()
        results = []
        for result in self.cells:
            cell, task = result.cell, result.cell.task
            if not cell.protocol:  # computed without a result directory: digests are missing
                if task.name not in digests:
                    digests[task.name] = task.data_digest()
                named = {"protocol": protocol, "data": digests[task.name]}
                cell = cell.model_copy(update={**named, "agent": cell.agent.sealed()})
            results.append(replace(result, cell=cell))
        with ResultDirectory.writing(path, self.suite, run) as store:
            missing = {cell.key for cell in store.prepare([r.cell for r in results])}
            store.add([result for result in results if result.cell.key in missing])
        return store.path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read the results of a directory that `save` or ``dpb run`` wrote.

        Raises:
            ResultError: If it does not exist, or all its results are damaged. Some damaged results
                among others are left out and noted.
        """
        return cls.read(ResultDirectory.open(path))

    @classmethod
    def read(cls, store: ResultDirectory) -> Result:
        """Read the results of an open directory; see `load`."""
        cells, damaged = store.check()
        if not cells:
            store.results()  # raises the error that names the damage
            raise ResultError(f"{store.path} holds no results yet")
        runs = store.manifest["runs"]
        # An import is not the run that computed the other results.
        own = [run for run in runs if "imported" not in run]
        last = (own or runs or [{}])[-1]
        notes = [f"Failed: {text}" for text in last.get("failures", ())]
        notes += [f"{SET_ASIDE}{problem}" for problem in damaged]
        labels = [label for run in runs for label in run.get("agents", ())]
        return cls(
            store.suite,
            sorted(cells, key=_order(store.suite, labels)),
            created=store.manifest["updated"],
            command=str(last.get("command", "")),
            revision=last.get("revision"),
            versions=last.get("versions") or provenance.versions(),
            notes=notes,
            audits={**store.manifest["stated"], **store.manifest["audits"]},
        )

    def __repr__(self) -> str:
        tasks = ", ".join(dict.fromkeys(s.task for s in self.rows))
        return f"Result({self.suite.name!r}: tasks {tasks}; agents {', '.join(self.labels)})"


def _order(suite: Suite, labels: Sequence[str]) -> Callable[[CellResult], Any]:
    """Sort cells by task, by label in the order of the runs, and by size of the budget."""
    tasks = [task.name for task in suite.tasks]
    agents = list(dict.fromkeys([*(agent.label for agent in suite.agents), *labels]))

    def key(result: CellResult) -> tuple[Any, ...]:
        task, label, _ = result.cell.row
        budget = result.cell.agent.budget
        size = ("", 0.0) if budget is None else (budget.kind, budget.limit)
        places = [*tasks, task].index(task), [*agents, label].index(label)
        return *places, label, size, result.cell.start

    return key
