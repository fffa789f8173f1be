"""``dpb data``: a thin shell over `dpb_data`."""

from __future__ import annotations

from typing import Annotated

import typer

from dpb_gym.cli.options import Json
from dpb_gym.cli.output import print_json, print_table
from dpb_gym.errors import DataError

Name = Annotated[str, typer.Argument(help="Name of a data set; see: dpb data list")]


def list_all(json: Json = False) -> None:
    """List the data sets and where they lie.

    Example: dpb data list
    """
    import dpb_data

    records = []
    for known in dpb_data.datasets():
        try:
            place = "generated" if known.generated else str(dpb_data.path(known.name))
        except DataError:
            place = None
        records.append({**known.to_dict(), "path": place})
    if json:
        print_json(records)
        return
    missing = "not here (dpb data fetch)"
    rows = [[r["name"], r["path"] or missing, r["description"]] for r in records]
    print_table(["name", "where", "description"], rows)


def fetch(name: Name) -> None:
    """Download a data set into the cache, and check it.

    Example: dpb data fetch ml-latest-small
    """
    import dpb_data

    print(dpb_data.fetch(name))


def path(name: Name) -> None:
    """Print where a data set lies.

    Example: dpb data path ml-latest-small
    """
    import dpb_data

    print(dpb_data.path(name))


def check(
    name: Annotated[str, typer.Argument(help="Name of a data set, or a path.")],
    json: Json = False,
) -> None:
    """Check a data set: check sums, format, every value, counts.

    Example: dpb data check ml-latest-small
    """
    import dpb_data

    report = dpb_data.check(name)
    if json:
        print_json(report.to_dict())
    else:
        print(report)
    if not report.ok:
        raise typer.Exit(1)
