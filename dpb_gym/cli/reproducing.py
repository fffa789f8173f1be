"""``dpb reproduce``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpb_gym.cli.options import new_folder, read_settings
from dpb_gym.cli.output import print_json
from dpb_gym.evaluation.progress import duration

if TYPE_CHECKING:
    from dpb_gym.papers import Reproduction


def run(
    target: str,
    out: str | None,
    replicates: int | None,
    quick: bool,
    workers: int | None,
    settings: Sequence[str],
    quiet: bool,
    as_json: bool,
) -> int:
    """Runs the figures of a paper, prints verdicts, or all as JSON, and where everything is.

    Returns:
        Exit status: 1 if an agent failed, else 0, whatever the verdicts.
    """
    from dpb_gym.papers import reproduce

    new_folder(out)
    done = reproduce(
        target,
        out,
        replicates=replicates,
        quick=quick,
        workers=workers,
        progress=False if quiet else None,
        env_kwargs=read_settings(settings),
    )
    if as_json:
        figures = [
            {**one.to_dict(), "skipped": one.skipped, "folder": str(one.folder)}
            for one in done.figures
        ]
        print_json({"figures": figures, "failures": list(done.failures), "page": str(done.page)})
    else:
        _show(done)
    for message in done.failures:
        print(f"dpb: failed: {message}", file=sys.stderr)
    return 1 if done.failures else 0


def _show(done: Reproduction) -> None:
    done.table()
    for one in done.figures:
        if one.skipped:
            print(f"{one.figure.target}: skipped: {one.skipped}", file=sys.stderr)
            continue
        speed = f" ({one.rounds / one.seconds:,.0f} agent rounds/s)" if one.rounds else ""
        print(f"{one.figure.target}: {duration(one.seconds)}{speed}; {one.folder}")
    print(f"Look at it: {done.page}")
