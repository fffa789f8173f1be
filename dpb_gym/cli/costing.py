"""``dpb cost`` and ``dpb cost-of-privacy``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.filesize import decimal
from typer import Argument, Option

from dpb_gym.cli.options import (
    DIRECTORY,
    HTML,
    JSON,
    PLOT,
    WORKERS,
    budgets,
    read_budgets,
    read_settings,
    settings,
)
from dpb_gym.cli.output import print_json, print_table, print_text

if TYPE_CHECKING:
    from dpb_gym.evaluation.costs import Forecast


def cost(
    directory: str = DIRECTORY,
    rounds: float | None = Option(None, help="Agent rounds to extrapolate to, e.g. 1e9."),
    cores: int = Option(1, help="Cores to spread them over."),
    json: bool = JSON,
) -> None:
    """Print what a result directory cost per agent, and what a larger run would.

    Example: dpb cost results/smoke --rounds 1e9 --cores 64
    """
    from dpb_gym.evaluation.costs import costs
    from dpb_gym.evaluation.progress import duration

    found = costs(directory)
    rounds = rounds or found.rounds
    seconds, table = found.at(rounds, cores)
    if json:
        rates = ("rounds_per_second", "bytes_per_cell")
        agents = [
            dataclasses.asdict(row) | {name: getattr(row, name) for name in rates}
            for row in found.agents
        ]
        total = {"rounds": rounds, "cores": cores, "seconds": seconds, "bytes": table}
        print_json({"agents": agents, "total": total})
        return
    print_table(
        ("task", "agent", "rounds", "rounds/s/core", "seconds", "cells", "bytes/cell"),
        [
            (
                row.task, row.agent, f"{row.rounds:,}", f"{row.rounds_per_second:,.0f}",
                f"{row.seconds:,.1f}", row.cells, f"{row.bytes_per_cell:,.0f}",
            )
            for row in found.agents
        ],
    )  # fmt: skip
    many = "1 core" if cores == 1 else f"{cores} cores"
    print(
        f"{rounds:,.0f} agent rounds of this mix: {duration(seconds)} on {many}, "
        f"{decimal(int(table))} of tables"
    )


def print_forecast(found: Sequence[Forecast], workers: int | None, json: bool) -> None:
    """Prints what a plan will take."""
    from dpb_gym.evaluation.progress import duration
    from dpb_gym.evaluation.run import check_backend

    cores = check_backend(workers)
    parts = ("jobs", "cells", "rounds", "seconds", "bytes")
    total = {part: sum(getattr(row, part) for row in found) for part in parts}
    seconds, most = total["seconds"], max(row.memory for row in found)
    if json:
        tasks = [dataclasses.asdict(row) for row in found]
        print_json({"tasks": tasks, "total": {**total, "memory": most}})
        return
    print_table(
        ("task", "jobs", "cells", "agent rounds", "core-hours", "table", "memory"),
        [
            (
                row.task, f"{row.jobs:,}", f"{row.cells:,}", f"{row.rounds:,}",
                f"{row.seconds / 3600:,.2f}", decimal(row.bytes), decimal(row.memory),
            )
            for row in found
        ],
    )  # fmt: skip
    print(
        f"{total['rounds']:,} agent rounds in {total['jobs']:,} jobs: {seconds / 3600:,.2f} "
        f"core-hours, {duration(seconds / cores)} on {cores} like this one; "
        f"{decimal(total['bytes'])} of table; {decimal(most)} of memory a worker"
    )


def cost_of_privacy(
    source: str = Argument(metavar="FILE|ENV", help="A log, .csv or .parquet; or an environment."),
    problem: str | None = Option(
        None, metavar="pricing|assortment|recommendation", help="What the log is of."
    ),
    budget: list[str] = budgets(),
    set_: list[str] = settings(
        "A column of the log (price=rate, features=[term,score]), or a parameter of the environment"
    ),
    horizon: int | None = Option(None, help="Customers T."),
    replicates: int = Option(20, help="Replicates."),
    workers: int | None = WORKERS,
    html: str | None = HTML,
    plot: str | None = PLOT,
    json: bool = JSON,
) -> None:
    """Say what privacy would cost on a log or an environment, in percent of what is earned.

    Example: dpb cost-of-privacy loans.csv --problem pricing --set bought=sold --set features=[term]
    """
    from dpb_gym.evaluation import privacy_cost

    found = privacy_cost.cost_of_privacy(
        source, read_budgets(budget) or privacy_cost.BUDGETS, problem,
        **read_settings(set_), horizon=horizon, replicates=replicates, workers=workers,
    )  # fmt: skip
    if html is not None:
        found.to_html(html)
    if plot is not None:
        found.plot(plot)
    if json:
        print_json({"sentences": found.sentences, "losses": found.records(), "notes": found.notes})
    else:
        print_text(str(found))
