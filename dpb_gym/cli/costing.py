"""``dpb cost`` and ``dpb cost-of-privacy``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dpb_gym.cli.options import (
    BUDGET,
    Directory,
    Html,
    Json,
    Plot,
    Workers,
    read_budgets,
    read_settings,
    setting,
)
from dpb_gym.cli.output import print_json, print_table, print_text

if TYPE_CHECKING:
    from dpb_gym.evaluation.costs import Forecast

UNITS = ("B", "kB", "MB", "GB", "TB")


def cost(
    directory: Directory,
    rounds: Annotated[
        float | None, typer.Option(help="Agent rounds to extrapolate to, e.g. 1e9.")
    ] = None,
    cores: Annotated[int, typer.Option(help="Cores to spread them over.")] = 1,
    json: Json = False,
) -> None:
    """Print what a result directory cost per agent, and what a larger run would.

    Example: dpb cost results/smoke --rounds 1e9 --cores 64
    """
    from dpb_gym.evaluation.costs import costs
    from dpb_gym.evaluation.progress import duration

    found = costs(directory)
    rounds = rounds or found.rounds
    seconds, size = found.at(rounds, cores)
    if json:
        rates = ("rounds_per_second", "bytes_per_cell")
        agents = [
            dataclasses.asdict(row) | {name: getattr(row, name) for name in rates}
            for row in found.agents
        ]
        total = {"rounds": rounds, "cores": cores, "seconds": seconds, "bytes": size}
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
        f"{_size(size)} of tables"
    )


def print_forecast(found: Sequence[Forecast], workers: int | None, json: bool) -> None:
    """Prints what a plan will take."""
    from dpb_gym.evaluation.progress import duration
    from dpb_gym.evaluation.run import check_backend

    cores = check_backend(workers)
    seconds, most = sum(row.seconds for row in found), max(row.memory for row in found)
    total = {
        "jobs": sum(row.jobs for row in found),
        "cells": sum(row.cells for row in found),
        "rounds": sum(row.rounds for row in found),
        "seconds": seconds,
        "bytes": sum(row.bytes for row in found),
        "memory": most,
    }
    if json:
        print_json({"tasks": [dataclasses.asdict(row) for row in found], "total": total})
        return
    print_table(
        ("task", "jobs", "cells", "agent rounds", "core-hours", "table", "memory"),
        [
            (
                row.task, f"{row.jobs:,}", f"{row.cells:,}", f"{row.rounds:,}",
                f"{row.seconds / 3600:,.2f}", _size(row.bytes), _size(row.memory),
            )
            for row in found
        ],
    )  # fmt: skip
    print(
        f"{total['rounds']:,} agent rounds in {total['jobs']:,} jobs: {seconds / 3600:,.2f} "
        f"core-hours, {duration(seconds / cores)} on {cores} like this one; "
        f"{_size(total['bytes'])} of table; {_size(most)} of memory a worker"
    )


def _size(count: float) -> str:
    power = 0
    while count >= 1000 and power < len(UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:,.1f} {UNITS[power]}"


def cost_of_privacy(
    source: Annotated[
        str, typer.Argument(metavar="FILE|ENV", help="A log, .csv or .parquet; or an environment.")
    ],
    problem: Annotated[
        str | None,
        typer.Option(metavar="pricing|assortment|recommendation", help="What the log is of."),
    ] = None,
    budget: Annotated[
        list[str] | None, typer.Option(metavar=BUDGET, help="Budget; may be repeated.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        setting(
            "A column of the log (price=rate, features=[term,score]), or a parameter of the "
            "environment; may be repeated."
        ),
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Customers T.")] = None,
    replicates: Annotated[int, typer.Option(help="Replicates.")] = 20,
    workers: Workers = None,
    html: Html = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Say what privacy would cost on a log or an environment, in percent of what is earned.

    Example: dpb cost-of-privacy loans.csv --problem pricing --set bought=sold --set features=[term]
    """
    from dpb_gym.evaluation import privacy_cost

    found = privacy_cost.cost_of_privacy(
        source, read_budgets(budget or ()) or privacy_cost.BUDGETS, problem,
        **read_settings(set_ or ()), horizon=horizon, replicates=replicates, workers=workers,
    )  # fmt: skip
    if html is not None:
        found.to_html(html)
    if plot is not None:
        found.plot(plot)
    if json:
        print_json({"sentences": found.sentences, "losses": found.records(), "notes": found.notes})
    else:
        print_text(str(found))
