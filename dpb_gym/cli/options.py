"""Options shared by commands, the values read from them, and printing.

Imports are light, because this module is imported before the arguments are read.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from dpb_gym import privacy
from dpb_gym.cli.completion import complete
from dpb_gym.errors import ParameterError
from dpb_gym.files import check_target

if TYPE_CHECKING:
    from rich.console import Console

QUESTIONS = 3
"""Exit status of a command whose table can be read in several ways."""
USUAL_DELTA = "1e-5"
BUDGET = "rho=R|eps=E,delta=D|none"
DIRECTORY: Any = Argument(metavar="DIR", help="Result directory, or its address.")
JSON: Any = Option(False, "--json", help="Print JSON.")
QUIET: Any = Option(False, "--quiet", help="No progress.")
TASKS: Any = Option(
    None,
    help="Only these tasks, comma-separated.",
    autocompletion=complete("tasks", commas=True),
)
WORKERS: Any = Option(None, help="Processes; one per core by default.")
HORIZON: Any = Option(None, help="Rounds T.")


def output_file(value: str | None) -> str | None:
    """Return the path of an output file.

    Raises:
        ParameterError: If it is an address or a folder, or a parent is a file.
    """
    if value is not None:
        if "://" in value:
            raise ParameterError(f"{value!r} is an address, but this output must be a local file")
        check_target(value)
    return value


def picture_file(value: str | None) -> str | None:
    """Return the path of a picture.

    Raises:
        ParameterError: See `output_file`; also if the suffix is no format of pictures.
    """
    if value is not None:
        from dpb_gym.report.figure_layout import picture_format

        picture_format(value)
    return output_file(value)


# Callbacks run while the arguments are read, before the command does any work.
PLOT: Any = Option(None, callback=picture_file, help="Draw to this .png, .pdf or .svg file.")
HTML: Any = Option(None, callback=output_file, help="Write the page to this file.")


def settings(text: str, metavar: str = "KEY=VALUE") -> Any:
    """Return the option ``--set``."""
    return Option([], "--set", metavar=metavar, help=f"{text}; may be repeated.")


def budgets(text: str = "Budget") -> Any:
    """Return the option ``--budget`` of a command that takes several."""
    return Option([], metavar=BUDGET, help=f"{text}; may be repeated.")


def read_budgets(given: Sequence[str]) -> list[privacy.Budget | None]:
    """Parse budgets; an epsilon alone gets delta=1e-5, with a note on the standard error.

    Raises:
        BudgetError: If a budget is malformed or a number is out of range.
    """
    parsed = []
    for text in given:
        if re.fullmatch(r"\s*eps(ilon)?\s*=[^,]*", text):
            text = f"{text.strip()},delta={USUAL_DELTA}"
            note(f"taking delta={USUAL_DELTA}: --budget {text}")
        parsed.append(privacy.Budget.parse(text))
    return parsed


def read_settings(given: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Parse KEY=VALUE settings; values are read as YAML.

    Raises:
        ParameterError: If a setting is malformed.
    """
    from dpb_gym.suites.schema import parse_yaml

    parsed: dict[str, Any] = {}
    for word in given:
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            raise ParameterError(f"{option} takes KEY=VALUE or AGENT.KEY=VALUE, got {word!r}")
        try:
            parsed[key.strip()] = parse_yaml(text)
        except ValueError as error:
            raise ParameterError(f"{option} {word!r}: not a value: {error}") from None
    return parsed


def settings_of(
    given: Sequence[str], agents: Sequence[str], option: str = "--set"
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Parse settings and return those without an owner, and those of each agent.

    Raises:
        ParameterError: If a setting is malformed or names another agent.
    """
    alone: dict[str, Any] = {}
    owned: dict[str, dict[str, Any]] = {}
    for key, value in read_settings(given, option).items():
        owner, dot, name = key.rpartition(".")
        if dot and owner not in agents:
            raise ParameterError(
                f"{option} {key!r}: {owner!r} is not among the agents {', '.join(agents)}"
            )
        (owned.setdefault(owner, {}) if dot else alone)[name] = value
    return alone, owned


def new_folder(path: str | None) -> None:
    """Print a note if the parent folder of an output file does not exist yet.

    Raises:
        ParameterError: If the path is an address.
    """
    if "://" in (path or ""):
        raise ParameterError(f"{path!r} is an address, but this output must be a local file")
    parent = Path(path or ".").parent
    if not parent.exists():
        note(f"creating the folder {parent}")


def names(text: str | None) -> list[str] | None:
    """Split a comma-separated list; None stays None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def note(text: str) -> None:
    """Print a remark on the standard error."""
    print(f"dpb: note: {text}", file=sys.stderr)


PIPE_WIDTH = 160


def console() -> Console:
    """Return a console on the standard output; in a pipe of width ``COLUMNS`` or `PIPE_WIDTH`."""
    from rich.console import Console

    output = Console(highlight=False)
    if output.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return output
    return Console(highlight=False, width=PIPE_WIDTH)


def print_json(value: Any) -> None:
    """Print a value as strict, indented JSON; dataclasses become mappings of their fields."""
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(value, fallback=str, inf_nan_mode="null")
    print(json.dumps(plain, indent=2, allow_nan=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table of texts, without markup; a list of rows where words would not fit."""
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    texts = [[str(value) for value in row] for row in rows]
    words = [max(len(w) for t in row for w in t.split() or [""]) for row in zip(columns, *texts)]
    names = max((len(row[0]) for row in texts), default=0)
    if names + sum(words[1:]) + 2 * len(words) > console().width:
        for name, *rest in texts:
            said = "; ".join(f"{column}: {text}" for column, text in zip(columns[1:], rest) if text)
            console().print(Text(name, style="bold"), Padding(Text(said), (0, 0, 0, 2)), sep="\n")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for i, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=i == 0)
    for row in texts:
        table.add_row(*map(Text, row))
    console().print(table)


def print_fields(title: str, fields: Mapping[str, object]) -> None:
    """Print a heading and one line per field, values aligned."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="cyan")
    grid.add_column(overflow="fold")
    for key, value in fields.items():
        grid.add_row(Text(f"  {key}"), Text(str(value)))
    console().print(Text(title, style="bold"), grid, sep="\n")


def print_text(text: str) -> None:
    """Print a paragraph without markup."""
    console().print(text, markup=False, emoji=False)


def log(line: str) -> None:
    """Print a line of progress on the standard error."""
    print(line, file=sys.stderr, flush=True)


def exit_on_failures(failures: Sequence[object]) -> None:
    """Print the failures, if any, and exit with status 1.

    Raises:
        typer.Exit: If there are failures.
    """
    for failure in failures:
        log(f"dpb: failed: {failure}")
    if failures:
        raise typer.Exit(1)
