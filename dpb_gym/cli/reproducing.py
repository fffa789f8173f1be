"""``dpb reproduce``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dpb_gym.cli.options import read_settings
from dpb_gym.evaluation.progress import duration


def run(
    target: str,
    out: str | None,
    replicates: int | None,
    quick: bool,
    workers: int | None,
    settings: Sequence[str],
    quiet: bool,
) -> int:
    """Runs the figures of a paper, prints the verdicts and says where everything is.

    Returns:
        Exit status: 1 if an agent failed, else 0, whatever the verdicts.
    """
    from dpb_gym.papers import reproduce

    done = reproduce(
        target,
        out,
        replicates=replicates,
        quick=quick,
        workers=workers,
        progress=False if quiet else None,
        env_kwargs=read_settings(settings),
    )
    done.table()
    for one in done.figures:
        if one.skipped:
            print(f"{one.figure.target}: skipped: {one.skipped}", file=sys.stderr)
            continue
        speed = f" ({one.rounds / one.seconds:,.0f} agent rounds/s)" if one.rounds else ""
        print(f"{one.figure.target}: {duration(one.seconds)}{speed}; {one.folder}")
    print(f"Look at it: {done.page}")
    for message in done.failures:
        print(f"dpb: failed: {message}", file=sys.stderr)
    return 1 if done.failures else 0
