"""``dpb reproduce``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dpb_gym.cli.options import Json, Quiet, Workers, new_folder, read_settings, setting
from dpb_gym.cli.output import end, print_json

if TYPE_CHECKING:
    from dpb_gym.papers import Reproduction


def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PAPER[/FIGURE]|FILE.yaml",
            help="private-assortment, private-pricing, adaprivate-ts, a package's, or a file.",
        ),
    ],
    out: Annotated[
        str | None, typer.Option(help="Folder; reproductions/PAPER by default. Resumes.")
    ] = None,
    replicates: Annotated[int | None, typer.Option(help="Instead of the figures' own.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version: checks that everything runs.")
    ] = False,
    workers: Workers = None,
    set_: Annotated[
        list[str] | None,
        setting(
            "Parameter of the environments, or of one task's (data=FILE); may be repeated.",
            "[TASK.]KEY=VALUE",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a paper's figures and tables and judge its claims: HOLDS, CONDITIONAL or FAILS.

    Example: dpb reproduce private-assortment/fig4 --replicates 10
    """
    from dpb_gym import papers

    new_folder(out)
    done = papers.reproduce(
        target, out, replicates=replicates, quick=quick, workers=workers,
        progress=False if quiet else None, env_kwargs=read_settings(set_ or ()),
    )  # fmt: skip
    if json:
        figures = [
            {**one.to_dict(), "skipped": one.skipped, "folder": str(one.folder)}
            for one in done.figures
        ]
        print_json({"figures": figures, "failures": list(done.failures), "page": str(done.page)})
    else:
        _say(done)
    end(done.failures)


def _say(done: Reproduction) -> None:
    from dpb_gym.evaluation.progress import duration

    done.table()
    for one in done.figures:
        if one.skipped:
            print(f"{one.figure.target}: skipped: {one.skipped}", file=sys.stderr)
            continue
        speed = f" ({one.rounds / one.seconds:,.0f} agent rounds/s)" if one.rounds else ""
        print(f"{one.figure.target}: {duration(one.seconds)}{speed}; {one.folder}")
    print(f"Look at it: {done.page}")
