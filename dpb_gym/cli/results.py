"""``dpb leaderboard`` and ``dpb verify``."""

from __future__ import annotations

import dataclasses
import sys

from dpb_gym import report
from dpb_gym.cli.options import new_folder
from dpb_gym.cli.output import console, print_json
from dpb_gym.evaluation.audits import audit_series
from dpb_gym.evaluation.result import Result
from dpb_gym.evaluation.verify import verify as check


def leaderboard(
    directory: str, html: str | None, plot: str | None, as_json: bool, runs: int | None
) -> None:
    """Prints the table of a result directory, and writes page and plot if asked.

    With `runs`, audits every private agent first; the reports stay in the directory.

    Raises:
        ResultError: If there are no results, or they are damaged.
    """
    result = Result.load(directory)
    for path in (html, plot):
        new_folder(path)
    if runs is not None:
        rows = [(series, result.kinds[series.task]) for series in result.series]
        result.audits = audit_series(directory, rows, runs, _say)
        for report_ in result.audits.values():
            if "error" in report_:
                _say(f"not audited: {report_['error']}")
    data = result.to_leaderboard()
    if as_json:
        print(report.to_json(data))
    else:
        report.table(data, console=console())
    messages = sys.stderr if as_json else sys.stdout
    if html is not None:
        print(f"page written to {report.html(data, html)}", file=messages)
    if plot is not None:
        report.plot(data, plot)
        print(f"regret curves written to {plot}", file=messages)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def verify(directory: str, sample: int, seed: int | None, agent: str | None, as_json: bool) -> bool:
    """Checks a result directory and says what was found; returns whether all is well."""
    found = check(directory, sample, seed, _say, agent)
    if as_json:
        print_json({**dataclasses.asdict(found), "ok": found.ok})
        return found.ok
    for line in found.damaged:
        print(f"damaged: {line}")
    for line in found.differing:
        print(f"differs: {line}")
    for line in found.impossible:
        print(f"cannot be computed again: {line}")
    for line in found.unavailable:
        print(f"not computed again here: {line}")
    same = len(found.again) - len(found.differing)
    print(
        f"{found.cells - len(found.damaged)} of {found.cells} cells have the right digest; "
        f"{same} of {len(found.again)} cells computed again are the same bit for bit; "
        f"{found.confirmed} of {found.rows} rows confirmed"
    )
    return found.ok
