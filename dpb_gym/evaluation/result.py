"""What an evaluation returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from dpb_gym.errors import AgentError, ParameterError, ResultError, unknown_name
from dpb_gym.evaluation import manifest as origin
from dpb_gym.evaluation.audits import AUDIT_NOTE, audit_key, leaderboard_audit, read_audits
from dpb_gym.evaluation.leaderboard import Series, collect, to_leaderboard
from dpb_gym.evaluation.outcome import CellResult, Failure
from dpb_gym.evaluation.store import Store
from dpb_gym.evaluation.suite import Suite
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Array
from dpb_gym.report.model import LeaderboardData


class Result:
    """Results of one or more tasks: read them, draw them, keep them.

    Attributes:
        suite: What was run.
        cells: One `CellResult` per task, agent, budget and block of replicates.
        failures: A `Failure` per cell that broke down.
        created: ISO 8601 time.
        command: Command that computed them.
        revision: Source revision, None if unknown.
        versions: Versions of Python and the packages.
        audits: Kept audit reports as dicts, see `dpb_gym.evaluation.audits`.
    """

    def __init__(
        self,
        suite: Suite,
        cells: Sequence[CellResult],
        failures: Sequence[Failure] = (),
        *,
        created: str | None = None,
        command: str | None = None,
        revision: str | None = None,
        versions: dict[str, str] | None = None,
        notes: Sequence[str] = (),
        audits: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.suite = suite
        self.cells = tuple(cells)
        self.failures = tuple(failures)
        self.created = created or origin.now()
        self.command = origin.command_line() if command is None else command
        self.revision = revision
        self.versions = versions or origin.versions()
        self._notes = tuple(notes)
        self.audits: Mapping[str, Mapping[str, Any]] = dict(audits or {})

    @cached_property
    def series(self) -> list[Series]:
        """One entry per task, agent and budget."""
        return collect(self.cells)

    @property
    def labels(self) -> list[str]:
        """Labels of the agents, in order."""
        return list(dict.fromkeys(s.agent for s in self.series))

    def _find(self, label: str, budget: Any, task: str | None) -> Series:
        failed = {failure.cell.agent.label: failure for failure in self.failures}
        if label not in self.labels:
            if label in failed:
                raise AgentError(failed[label].message)
            raise unknown_name("agent label", label, self.labels)
        wanted = None if budget is None else Budget.text(Budget.parse(budget))
        found = [
            s
            for s in self.series
            if s.agent == label
            and (wanted is None or s.budget == wanted)
            and (task is None or s.task == task)
        ]
        if len(found) == 1:
            return found[0]
        known = [s for s in self.series if s.agent == label]
        rows = ", ".join(f"task={s.task!r} budget={s.budget!r}" for s in known)
        if not found:
            raise ParameterError(
                f"agent {label!r} has no result for task {task!r} and budget {wanted!r}; "
                f"it has {rows}"
            )
        raise ParameterError(f"agent {label!r} has several results; name one of: {rows}")

    def final_regret(self, label: str, budget: Any = None, task: str | None = None) -> Array:
        """Cumulative pseudo-regret at the horizon ``(replicates,)``, in replicate order.

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
        """Cumulative realised reward at the horizon; see `final_regret`."""
        return self._find(label, budget, task).reward[:, -1].copy()

    def records(self) -> list[dict[str, Any]]:
        """One dict per agent, replicate and checkpoint, ready for a data frame.

        Keys: task, agent, budget, replicate, seed, round, regret, reward (cumulative).
        """
        rows = []
        for s in self.series:
            for i, replicate in enumerate(s.replicates.tolist()):
                for c, t in enumerate(s.rounds.tolist()):
                    rows.append(
                        {
                            "task": s.task,
                            "agent": s.agent,
                            "budget": s.budget,
                            "replicate": replicate,
                            "seed": s.cell.seed + replicate,
                            "round": t,
                            "regret": float(s.regret[i, c]),
                            "reward": float(s.reward[i, c]),
                        }
                    )
        return rows

    def guarantees(self) -> dict[str, str]:
        """One line per agent and budget: what is promised, at which true cost."""
        rows = self.to_leaderboard().tasks
        return {row.key: row.guarantee for task in rows for row in task.rows}

    def to_leaderboard(self) -> LeaderboardData:
        """The rows with intervals and scores, as the report room draws them."""
        failed = [f"Failed: {failure}" for failure in self.failures]
        audits = self._row_audits()
        if audits:
            failed.append(AUDIT_NOTE)
        return to_leaderboard(
            self.suite,
            self.series,
            created=self.created,
            version=self.versions.get("dpb-gym", "unknown"),
            revision=self.revision,
            command=self.command,
            notes=[*self._notes, *failed],
            audits=audits,
        )

    @property
    def kinds(self) -> dict[str, str]:
        """Problem kind of each task."""
        return {task.name: task.kind for task in self.suite.tasks}

    def _row_audits(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        kinds, found = self.kinds, {}
        for s in self.series:
            report = self.audits.get(audit_key(s.cell.agent, kinds[s.task]))
            row = None if s.guarantee is None else leaderboard_audit(report)
            if row is not None:
                found[s.task, s.agent, s.budget] = row
        return found

    def table(self) -> None:
        """Prints regret, 95% interval, normalised score, guarantee and rounds per second."""
        from dpb_gym import report

        report.table(self.to_leaderboard())

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draws the regret curves to a file (``.png``, ``.pdf`` or ``.svg``)."""
        from dpb_gym import report

        return report.plot(self.to_leaderboard(), path)

    def html(self, path: str | os.PathLike[str]) -> Path:
        """Writes the self-contained leaderboard page."""
        from dpb_gym import report

        return report.html(self.to_leaderboard(), path)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Keeps the results in a directory that `load` and ``dpb leaderboard`` read.

        Equal cells that are there already stay as they are.

        Args:
            path: The directory; made if there is none.

        Raises:
            ResultError: If it holds other results, or cannot be written.
            ParameterError: If an agent's parameters cannot be stored.
        """
        store = Store.create(path, self.suite, self.suite.to_yaml())
        run = {
            "command": self.command,
            "agents": self.labels,
            "computed": len(self.cells),
            "failures": [str(failure) for failure in self.failures],
        }
        with store.writing(run):
            missing = {cell.key for cell in store.prepare([r.cell for r in self.cells])}
            for result in self.cells:
                if result.cell.key in missing:
                    store.write(result)
        return store.path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Reads the results of a directory that `save` or ``dpb run`` wrote.

        Raises:
            ResultError: If there is none, or a shard or the manifest is damaged.
        """
        store = Store.open(path)
        cells = store.results()
        if not cells:
            raise ResultError(f"{store.path} holds no results yet")
        runs = store.manifest["runs"]
        # An import says nothing of how the other results were computed.
        own = [run for run in runs if "imported" not in run]
        last = (own or runs or [{}])[-1]
        notes = [f"Failed: {text}" for text in last.get("failures", ())]
        labels = [label for run in runs for label in run.get("agents", ())]
        return cls(
            store.suite,
            sorted(cells, key=_order(store.suite, labels)),
            created=store.manifest["updated"],
            command=str(last.get("command", "")),
            revision=last.get("revision"),
            versions=last.get("versions"),
            notes=notes,
            audits=read_audits(store.path),
        )

    def __repr__(self) -> str:
        tasks = ", ".join(dict.fromkeys(s.task for s in self.series))
        return f"Result({self.suite.name!r}: tasks {tasks}; agents {', '.join(self.labels)})"


def _order(suite: Suite, labels: Sequence[str]) -> Callable[[CellResult], Any]:
    """Sorts cells by task, by label in the order of the runs, and by size of the budget."""
    tasks = {task.name: i for i, task in enumerate(suite.tasks)}
    agents: dict[str, int] = {}
    for label in [*(agent.label for agent in suite.agents), *labels]:
        agents.setdefault(label, len(agents))

    def key(result: CellResult) -> tuple[Any, ...]:
        cell = result.cell
        task, label, _ = cell.row
        budget = cell.agent.budget
        size = ("", 0.0) if budget is None else (budget.kind, budget.limit)
        place = agents.get(label, len(agents))
        return tasks.get(task, len(tasks)), place, label, size, cell.start

    return key
