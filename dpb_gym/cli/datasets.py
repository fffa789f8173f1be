"""``dpb data``: a thin shell over `dpb_data`."""

from __future__ import annotations

import sys

import dpb_data
from dpb_gym.cli.output import print_json, print_table
from dpb_gym.errors import DataError


def list_all(as_json: bool) -> None:
    """Lists the data sets and where they lie."""
    records = []
    for known in dpb_data.datasets():
        records.append({**known.to_dict(), "path": _place(known.name, known.generated)})
    if as_json:
        print_json(records)
        return
    missing = "not here (dpb data fetch)"
    rows = [[r["name"], r["path"] or missing, r["description"]] for r in records]
    print_table(["name", "where", "description"], rows)


def _place(name: str, generated: bool) -> str | None:
    if generated:
        return "generated"
    try:
        return str(dpb_data.path(name))
    except DataError:
        return None


def fetch(name: str) -> None:
    """Downloads a data set and prints where it lies."""
    print(dpb_data.fetch(name))


def path(name: str) -> None:
    """Prints where a data set lies."""
    print(dpb_data.path(name))


def check(name: str, as_json: bool) -> bool:
    """Checks a data set, prints the report, and returns whether it is sound."""
    report = dpb_data.check(name)
    if as_json:
        print_json(report.to_dict())
    else:
        print(report, file=sys.stdout)
    return report.ok
