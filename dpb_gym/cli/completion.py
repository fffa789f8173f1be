"""Completion of names in the shell; ``dpb --install-completion`` sets it up.

Imports are inside the functions, because options name their completion before the arguments are
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from typer import Context

Names = Callable[[Context], Iterable[str]]


def _listed(kind: str) -> Names:
    """Return a function for the names that ``dpb list`` prints."""

    def names(_: Context) -> Iterable[str]:
        from dpb_gym.cli.listings import KINDS

        return (next(iter(record.values())) for record in KINDS[kind]())

    return names


def _papers(_: Context) -> Iterable[str]:
    from dpb_gym.papers.theorems import PAPERS

    return PAPERS


def _figures(_: Context) -> Iterable[str]:
    """Return papers and their figures."""
    from dpb_gym.papers import figure_files

    figures = figure_files()
    return [*dict.fromkeys(name.partition("/")[0] for name in figures), *figures]


def _worlds(_: Context) -> Iterable[str]:
    from dpb_gym.outside import WORLDS

    return WORLDS


def _tasks(context: Context) -> Iterable[str]:
    """Return the tasks of the suite or result directory on the command line."""
    from dpb_gym import Result, suites

    # click leaves the arguments before an option without a value in `args`
    of_directory = "directory" in context.params
    named = context.params.get("directory" if of_directory else "suite") or context.args[0]
    suite = Result.load(named).suite if of_directory else suites.load_suite(named)
    return [task.name for task in suite.tasks]


LISTINGS: dict[str, Names] = {
    **{kind: _listed(kind) for kind in ("envs", "agents", "suites", "data")},
    "listings": lambda _: ("envs", "agents", "suites", "data"),
    "papers": _papers,
    "figures": _figures,
    "worlds": _worlds,
    "tasks": _tasks,
}


def complete(*listings: str, commas: bool = False) -> Callable[[Context, str], list[str]]:
    """Return a shell completion of the names in some listings.

    Args:
        *listings: Keys of `LISTINGS`.
        commas: Whether the last name of a comma-separated list is completed. Names before it are
            not offered again.
    """

    def completed(ctx: Context, incomplete: str) -> list[str]:
        first, comma, last = incomplete.rpartition(",") if commas else ("", "", incomplete)
        taken = first.split(",")
        try:
            names: list[Any] = [name for each in listings for name in LISTINGS[each](ctx)]
        except Exception:  # a shell would show the error inside the line that is being typed
            return []
        left = (name for name in names if name.startswith(last) and name not in taken)
        return [f"{first}{comma}{name}" for name in left]

    return completed
