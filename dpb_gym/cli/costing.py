"""``dpb cost`` and ``dpb cost-of-privacy``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from dpb_gym.cli.options import read_budgets, read_settings
from dpb_gym.cli.output import print_json, print_table, print_text
from dpb_gym.evaluation import privacy_cost
from dpb_gym.evaluation.costs import costs
from dpb_gym.evaluation.progress import duration

UNITS = ("B", "kB", "MB", "GB", "TB")


def cost(directory: str, rounds: float | None, cores: int, as_json: bool) -> None:
    """Prints what a result directory cost, and what more rounds of the same would.

    Raises:
        ResultError: If there are no results or no timings.
        ParameterError: If an argument is out of range.
    """
    found = costs(directory)
    seconds, size = found.at(rounds if rounds is not None else found.rounds, cores)
    if as_json:
        agents: list[dict[str, Any]] = [
            dataclasses.asdict(row)
            | {"rounds_per_second": row.rounds_per_second, "bytes_per_cell": row.bytes_per_cell}
            for row in found.agents
        ]
        total = {"rounds": rounds or found.rounds, "cores": cores, "seconds": seconds}
        print_json({"agents": agents, "total": total | {"bytes": size}})
        return
    print_table(
        ("task", "agent", "rounds", "rounds/s/core", "seconds", "cells", "bytes/cell"),
        [
            (
                row.task,
                row.agent,
                f"{row.rounds:,}",
                f"{row.rounds_per_second:,.0f}",
                f"{row.seconds:,.1f}",
                row.cells,
                f"{row.bytes_per_cell:,.0f}",
            )
            for row in found.agents
        ],
    )
    many = "1 core" if cores == 1 else f"{cores} cores"
    print(
        f"{rounds or found.rounds:,.0f} agent rounds of this mix: {duration(seconds)} on {many}, "
        f"{_size(size)} of tables"
    )


def _size(count: float) -> str:
    power = 0
    while count >= 1000 and power < len(UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:,.1f} {UNITS[power]}"


def cost_of_privacy(
    source: str,
    problem: str | None,
    budgets: Sequence[str],
    settings: Sequence[str],
    html: str | None,
    plot: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Prints what privacy costs; see `dpb_gym.cost_of_privacy`, also for what is raised."""
    found = privacy_cost.cost_of_privacy(
        source, read_budgets(budgets) or privacy_cost.BUDGETS, problem,
        **read_settings(settings), **options,
    )  # fmt: skip
    if html is not None:
        found.to_html(html)
    if plot is not None:
        found.plot(plot)
    if as_json:
        print_json({"sentences": found.sentences, "losses": found.records(), "notes": found.notes})
    else:
        print_text(str(found))
