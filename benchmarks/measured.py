"""Write the tables of agents' pages from stored runs of small suites.

    dpb run docs/results/suites/NAME.yaml --out results/NAME
    python benchmarks/measured.py results/NAME ...

The second command stores mean and 95% half-width of every cell in docs/results/suites/NAME.json,
with digests of the suite and of the code of its agents, and writes the pages. Without folders the
pages are written from what is stored. Tests compare the pages with what is stored, and the digests
with the code of today. rekey.py writes the digests again.

A page has blocks ``<!-- cells NAME: TASK; TASK -->``. With one task the columns are budgets, with
several they are tasks, and each budget has a row. NAME can be a suite of the package.
``<!-- waits -->`` has the extra wait of delayed responses, which is simulated.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from marked import replaced
from paper_pages import code

from dpb_gym import Result
from dpb_gym.privacy import Budget
from dpb_gym.problems.delay import Arrivals, Delay
from dpb_gym.report.comparison_groups import budget_order, short
from dpb_gym.suites.suite import load_suite

DOCS = Path(__file__).parents[1] / "docs"
SUITES = DOCS / "results" / "suites"
WAITS = (
    "geometric=50",
    "geometric=50,lost=0.1",
    "pareto=10,cap=1000",
    "pareto=50,cap=5000,shape=1.2",
)


def file(name: str) -> Path:
    """Return the file of a suite, here or in the package."""
    own = SUITES / f"{name}.yaml"
    return own if own.exists() else DOCS.parent / f"dpb_gym/suites/{name}.yaml"


def digests(name: str) -> dict[str, Any]:
    """Return the digests of a suite's file and of the code of its agents."""
    path = file(name)
    names = sorted({agent.name for agent in load_suite(str(path)).agents})
    return {
        "suite": hashlib.sha256(path.read_bytes()).hexdigest()[:16],
        "agents": {agent: code(agent) for agent in names},
    }


def stored(folder: Path) -> dict[str, Any]:
    """Return what is stored of a result of one of the suites."""
    data = Result.load(folder).to_leaderboard()
    rows = [(task.task, row) for task in data.tasks for row in task.rows]
    cells = [
        [task, row.agent, Budget.text(row.budget), row.regret.mean, row.regret.high]
        for task, row in rows
    ]
    numbers = [[*cell[:3], f"{cell[3]:.5g}", f"{cell[4] - cell[3]:.3g}"] for cell in cells]
    replicates = sorted({row.replicates for _, row in rows})
    return {**digests(folder.name), "replicates": replicates, "cells": numbers}


def save(name: str, data: dict[str, Any]) -> None:
    """Store the cells of a suite, one line each."""
    text = json.dumps(data, ensure_ascii=False).replace("], [", "],\n[")
    (SUITES / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def read(name: str) -> dict[str, Any]:
    """Return the stored cells and digests of a suite."""
    suite: dict[str, Any] = json.loads((SUITES / f"{name}.json").read_text(encoding="utf-8"))
    return suite


def formatted(mean: str, half: str) -> str:
    """Return mean and half-width with at most three digits after the point."""
    value, error = float(mean), float(half)
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def table(name: str, tasks: list[str]) -> str:
    """Return a table of some tasks of a suite, rows in the order of its agents."""
    data = read(name)
    labels = list(dict.fromkeys(a.label for a in load_suite(str(file(name))).agents))
    cells = {
        (task, label, Budget.parse(budget)): formatted(mean, half)
        for task, label, budget, mean, half in data["cells"]
        if task in tasks
    }
    budgets = sorted({budget for _, _, budget in cells}, key=budget_order)
    titles = {budget: short(budget) if budget else "no budget" for budget in budgets}
    head, lines = ["agent", "budget", *tasks], []
    if len(tasks) == 1:
        head = ["agent", *titles.values()]
    for label in labels:
        if len(tasks) == 1:
            line = [cells.get((tasks[0], label, budget), "–") for budget in budgets]
            lines += [[label, *line]] if set(line) != {"–"} else []
            continue
        for budget, title in titles.items():
            line = [cells.get((task, label, budget), "–") for task in tasks]
            lines += [[label, title, *line]] if set(line) != {"–"} else []
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def waits(rounds: int = 20_000, seeds: int = 5) -> str:
    """Return a table of delays and of the extra waits for responses that arrive earlier."""
    lines = ["| delay | its mean | extra wait, mean | largest |", "|---|---|---|---|"]
    for text in WAITS:
        delay, late, extra = Delay.parse(text), [], []
        assert delay is not None
        for seed in range(seeds):
            arrivals = Arrivals(delay, rounds, [seed])
            (queue,) = arrivals._queues
            for t in range(1, rounds + 1):
                queue.t = t
                queue.put(arrivals._late(queue))
                due = queue.waiting[0][0] if queue.waiting else 0
                if origin := queue.take()[1]:
                    late.append(due - origin)
                    extra.append(t - due)
        cells = f"`{text}`", f"{np.mean(late):.1f}", f"{np.mean(extra):.1f}", f"{max(extra)}"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def on_pages(page: str) -> str:
    """Return a page with every block of cells written again."""

    def made(words: str, _: str) -> str:
        name, _, tasks = words.partition(":")
        return table(name.strip(), [task.strip() for task in tasks.split(";")])

    return replaced(replaced(page, "cells", made), "waits", lambda _, __: waits())


def main() -> None:
    """Store the given results and write all pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="results of suites")
    for folder in parser.parse_args().folders:
        save(folder.name, stored(folder))
    for path in sorted(DOCS.rglob("*.md")):
        if "<!-- cells " in (text := path.read_text(encoding="utf-8")):
            path.write_text(on_pages(text), encoding="utf-8")


if __name__ == "__main__":
    main()
