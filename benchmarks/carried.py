"""Keep the rows of a stored result that today's code computes alike, and drop the others.

    python benchmarks/carried.py docs/leaderboard/dpb-bench-v1 results/dpb-bench-v1
    dpb run dpb-bench-v1 --out results/dpb-bench-v1

The key of a cell has a digest of its agent's code, so any change of the code asks for a new run.
Replicates are independent, therefore one of them tells whether the code still computes the same:
the script plays the first replicate of every row of other code alone, to the horizon, and compares
the curves of regret and reward bit for bit. From `LONG` rounds on it plays one budget of each
agent. An agent that differs anywhere on a task loses all its rows of that task. `dpb run` computes
what is missing.
Audits are kept for agents without such a difference on any task of a kind.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from dpb_gym.registry import agent_spec
from dpb_gym.results.cell_result import CellResult
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.running.plan import make_jobs, plan_suite
from dpb_gym.running.runner import run_block
from dpb_gym.suites.spec import AgentRun, Cell
from dpb_gym.suites.suite import load_suite

LONG = 50_000


def place(cell: Cell) -> tuple[str, str, str]:
    """Return task, label and budget of a cell."""
    return cell.task.name, cell.agent.label, str(cell.agent.budget)


def one_of_each(cells: list[Cell]) -> list[Cell]:
    """Return one cell, at a random budget, of each agent."""
    rng = random.Random(0)
    by_label: dict[str, list[Cell]] = {}
    for cell in cells:
        by_label.setdefault(cell.agent.label, []).append(cell)
    return [rng.choice(some) for some in by_label.values()]


def unchanged(stored: Path, suite_name: str, task: str) -> set[str]:
    """Return the labels of the agents on a task that compute what is stored."""
    suite = load_suite(suite_name)
    results = ResultDirectory.open(stored).results()
    old = {place(result.cell): result for result in results if result.cell.start == 0}
    job = make_jobs(suite, plan_suite(suite, None, [task]))[0]
    stored_cells = [cell for cell in job.cells if place(cell) in old]
    cells = [cell for cell in stored_cells if old[place(cell)].cell.key != cell.key]
    if job.task.horizon >= LONG:
        cells = one_of_each(cells)
    first = [cell.block(0, 1) for cell in cells]
    played = run_block(job.task.problem(), first) if first else []
    differ: set[str] = set()
    for cell, new in zip(cells, played):
        before = old[place(cell)]
        same = isinstance(new, CellResult) and np.array_equal(new.regret[0], before.regret[0])
        if not same or not np.array_equal(new.reward[0], before.reward[0]):
            differ.add(cell.agent.label)
    print(
        f"{task}: {len(cells)} rows played, other numbers: {sorted(differ) or 'none'}", flush=True
    )
    return {cell.agent.label for cell in stored_cells} - differ


def carry_over(
    stored: Path, out: Path, name: str | None = None, workers: int = 2
) -> tuple[int, int]:
    """Write the rows that did not change to a new result directory; return kept and all cells.

    Args:
        stored: A result directory.
        out: The new one.
        name: Name or file of its suite of today; the suite's own name by default.
        workers: Processes.
    """
    before = ResultDirectory.open(stored)
    name = name or before.suite.name
    tasks = sorted({result.cell.task.name for result in before.results()})
    with ProcessPoolExecutor(workers) as pool:
        labels = list(pool.map(partial(unchanged, stored, name), tasks))
    same = {(task, label) for task, task_labels in zip(tasks, labels) for label in task_labels}
    suite = load_suite(name)
    planned = {
        (*place(cell), cell.start, cell.stop): cell
        for job in make_jobs(suite, plan_suite(suite))
        for cell in job.cells
    }
    shutil.copytree(stored, out)
    with ResultDirectory.writing(out, suite) as store:
        results = store.check()[0]
        kept = []
        for result in results:
            key = (*place(result.cell), result.cell.start, result.cell.stop)
            if key[:2] in same and key in planned:
                kept.append(replace(result, cell=planned[key]))
        store.replace(kept)
        agents = {(r.cell.agent.name, r.cell.task.kind) for r in results}
        changed = {
            (r.cell.agent.name, r.cell.task.kind) for r in results if place(r.cell)[:2] not in same
        }
        keep_audits(store, agents - changed)
    return len(kept), len(results)


def keep_audits(store: ResultDirectory, unchanged: set[tuple[str, str]]) -> None:
    """Give the audits of agents that compute the same on a kind of problem today's digest."""
    for key, report in store.manifest["audits"].items():
        name, params, kind = json.loads(key)
        if (name, kind) in unchanged and "error" not in report:
            report["code"] = AgentRun(spec=agent_spec(name, **params)).code
    store.save()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("stored", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--suite", help="name or file; by default the name that is stored")
    options = parser.parse_args()
    print("kept {} of {} cells".format(*carry_over(options.stored, options.out, options.suite)))
