"""``dpb leaderboard`` and ``dpb verify``."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from dpb_gym.cli.options import Directory, Html, Json, Plot, new_folder
from dpb_gym.cli.output import console, print_json


def leaderboard(
    directory: Directory,
    html: Html = None,
    plot: Plot = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Audit every private agent first; reports are kept.")
    ] = False,
    runs: Annotated[int, typer.Option(help="Runs in each world of an audit.")] = 2000,
    json: Json = False,
) -> None:
    """Print the table of a result directory; write the page and the regret curves.

    Example: dpb leaderboard results/smoke --html leaderboard.html --plot regret.png
    """
    from dpb_gym import report
    from dpb_gym.evaluation.audits import audit_series
    from dpb_gym.evaluation.result import Result

    for path in (html, plot):
        new_folder(path)
    result = Result.load(directory)
    if audit:
        rows = [(series, result.kinds[series.task]) for series in result.series]
        result.audits = audit_series(directory, rows, runs, _say)
        for kept in result.audits.values():
            if "error" in kept:
                _say(f"not audited: {kept['error']}")
    data = result.to_leaderboard()
    if json:
        print(report.to_json(data))
    else:
        report.table(data, console=console())
    messages = sys.stderr if json else sys.stdout
    if html is not None:
        print(f"page written to {report.html(data, html)}", file=messages)
    if plot is not None:
        report.plot(data, plot)
        print(f"regret curves written to {plot}", file=messages)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def verify(
    directory: Directory,
    sample: Annotated[
        int,
        typer.Option(help="Cells to compute again of each imported row, and of all others."),
    ] = 3,
    seed: Annotated[int | None, typer.Option(help="Chooses the sample; random by default.")] = None,
    agent: Annotated[
        str | None, typer.Option(help="Take the sample from this agent's cells alone.")
    ] = None,
    json: Json = False,
) -> None:
    """Check all digests, and compute cells again, bit for bit.

    Exit status 1 if something differs, or while a row is not confirmed.

    Example: dpb verify results/smoke --sample 5
    """
    from dpb_gym.evaluation import verify as checking

    found = checking.verify(directory, sample, seed, _say, agent)
    if json:
        print_json({**dataclasses.asdict(found), "ok": found.ok})
    else:
        said = {
            "damaged": found.damaged,
            "differs": found.differing,
            "last digits": found.rounding,
            "cannot be computed again": found.impossible,
            "not computed again here": found.unavailable,
        }
        for what, lines in said.items():
            for line in lines:
                print(f"{what}: {line}")
        same = len(found.again) - len(found.differing) - len(found.rounding)
        print(
            f"{found.cells - len(found.damaged)} of {found.cells} cells have the right digest; "
            f"{same} of {len(found.again)} cells computed again are the same bit for bit; "
            f"{found.confirmed} of {found.rows} rows confirmed"
        )
    if not found.ok:
        raise typer.Exit(1)
