"""What commands print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160


def console() -> Console:
    """The standard output; in a pipe as wide as ``COLUMNS`` says, or so wide that little is cut."""
    from rich.console import Console

    found = Console(highlight=False)
    if found.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return found
    return Console(highlight=False, width=PIPE_WIDTH)


def print_json(value: Any) -> None:
    """Prints strict, indented JSON."""
    print(json.dumps(value, indent=2, allow_nan=False, default=str))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table; texts are printed as they are, without markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for i, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    console().print(table)


def print_fields(title: str, fields: Mapping[str, object]) -> None:
    """Prints a heading and one line per field, values aligned."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column(overflow="fold")
    for key, value in fields.items():
        grid.add_row(Text(f"  {key}"), Text(str(value)))
    console().print(Text(title, style="bold"), grid, sep="\n")


def print_text(text: str) -> None:
    """Prints a paragraph as it is."""
    console().print(text, markup=False, emoji=False)


def log(line: str) -> None:
    """Prints a line of progress on the standard error."""
    print(line, file=sys.stderr, flush=True)


def end(failures: Sequence[object]) -> None:
    """Names what failed; then the command ends with status 1.

    Raises:
        typer.Exit: If anything failed.
    """
    for failure in failures:
        log(f"dpb: failed: {failure}")
    if failures:
        raise typer.Exit(1)
