"""What a larger run will cost, from the timings and files of a smaller one."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dpb_gym import validation
from dpb_gym.errors import ResultError
from dpb_gym.evaluation.places import TABLE
from dpb_gym.evaluation.store import Store


@dataclass(frozen=True)
class AgentCost:
    """What one agent costs on one task, all its budgets together.

    Attributes:
        task: Name of the task.
        agent: Label of the agent.
        rounds: Agent rounds that were timed (replicates times rounds).
        own_seconds: Time of one core in the agent and in the responses to it.
        shared_seconds: Its equal share of the contexts, which all agents of a task share.
        cells: Its cells.
        bytes: Their share of the tables' size.
    """

    task: str
    agent: str
    rounds: int
    own_seconds: float
    shared_seconds: float
    cells: int
    bytes: int

    @property
    def seconds(self) -> float:
        """Time of one core, shared time included."""
        return self.own_seconds + self.shared_seconds

    @property
    def rounds_per_second(self) -> float:
        """Agent rounds per second and core."""
        return self.rounds / self.seconds

    @property
    def bytes_per_cell(self) -> float:
        """Mean size of a cell."""
        return self.bytes / self.cells


@dataclass(frozen=True)
class Costs:
    """The costs of a result directory.

    Attributes:
        agents: One entry per task and agent, in the order of the table.
    """

    agents: tuple[AgentCost, ...]

    @property
    def rounds(self) -> int:
        """Agent rounds, of all agents."""
        return sum(cost.rounds for cost in self.agents)

    @property
    def seconds(self) -> float:
        """Seconds of one core, of all agents."""
        return sum(cost.seconds for cost in self.agents)

    @property
    def bytes(self) -> int:
        """Bytes of all cells."""
        return sum(cost.bytes for cost in self.agents)

    def at(self, rounds: float, cores: int = 1) -> tuple[float, float]:
        """Extrapolates to the same mix of agents and tasks with more replicates.

        Cost per round does not grow with the round and blocks are independent, so time and
        bytes are proportional to the number of cells; what a run costs once (start of the
        workers, compilation) is not in it.

        Args:
            rounds: Agent rounds, > 0.
            cores: Cores, >= 1, each as fast as the one that was timed.

        Returns:
            Seconds on `cores` cores, and bytes of tables.

        Raises:
            ParameterError: If an argument is out of range.
        """
        rounds = validation.real("rounds", rounds, 0.0, open_low=True)
        cores = validation.integer("cores", cores, 1)
        scale = rounds / self.rounds
        return self.seconds * scale / cores, self.bytes * scale


def costs(path: str | os.PathLike[str]) -> Costs:
    """Reads the costs of a result directory.

    Args:
        path: A result directory with timings.

    Raises:
        ResultError: If there is none, or nothing in it was timed.
    """
    store = Store.open(path)
    results = store.results()
    files = (TABLE, *store.place.cells())
    share = sum(map(store.place.size, files)) / max(1, len(results))
    totals: dict[tuple[str, str], list[float]] = {}
    for result in results:
        timing = result.timing
        if timing is None:
            continue
        total = totals.setdefault(result.cell.row[:2], [0, 0.0, 0.0, 0])
        own = timing.agent_seconds + timing.response_seconds
        shared = timing.environment_seconds / timing.companions
        for k, more in enumerate((timing.rounds, own, shared, 1)):
            total[k] += more
    found = tuple(
        AgentCost(task, agent, int(rounds), own, shared, int(cells), round(cells * share))
        for (task, agent), (rounds, own, shared, cells) in totals.items()
    )
    if not found:
        raise ResultError(f"{store.path} holds no timings: nothing to extrapolate from")
    return Costs(found)
