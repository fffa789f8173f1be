"""``python -m dpb_gym.evaluation.reproduce TARGET``: the command, without the rest of `dpb`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dpb_gym.errors import DPBError, ParameterError
from dpb_gym.evaluation.progress import duration


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    from dpb_gym.evaluation.reproduce import targets

    known = targets()
    papers = sorted({target.split("/")[0] for target in known})
    found = argparse.ArgumentParser(
        prog="python -m dpb_gym.evaluation.reproduce",
        description="Run the figures of a paper and judge its claims. Resumes what is there.",
        epilog=f"Papers: {', '.join(papers)}. Figures: {', '.join(known)}.",
    )
    found.add_argument("target", metavar="PAPER[/FIGURE]", help="what to reproduce")
    found.add_argument("--out", help="folder; reproductions/PAPER by default")
    found.add_argument("--replicates", type=int, help="instead of those of the figures")
    found.add_argument(
        "--quick", action="store_true", help="a small version: checks that everything runs"
    )
    found.add_argument("--workers", type=int, help="processes; one per core by default")
    found.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="parameter of the environments, e.g. the path of a data file; may be repeated",
    )
    found.add_argument("--quiet", action="store_true", help="no progress")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    from dpb_gym.evaluation.reproduce import reproduce

    given = parser().parse_args(arguments)
    try:
        done = reproduce(
            given.target,
            given.out,
            replicates=given.replicates,
            quick=given.quick,
            workers=given.workers,
            progress=False if given.quiet else None,
            env_kwargs=_settings(given.set),
        )
    except DPBError as error:
        print(f"dpb: {error}", file=sys.stderr)
        return 2
    done.table()
    for one in done.figures:
        speed = f" ({one.rounds / one.seconds:,.0f} agent rounds/s)" if one.rounds else ""
        print(f"{one.figure.target}: {duration(one.seconds)}{speed}; {one.files[0].parent}")
    print(f"Look at it: {done.page}")
    for message in done.failures:
        print(f"dpb: failed: {message}", file=sys.stderr)
    return 1 if done.failures else 0


def _settings(settings: Sequence[str]) -> dict[str, object]:
    from dpb_gym.evaluation.yamlfile import parse_yaml

    found: dict[str, object] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ParameterError(f"--set wants KEY=VALUE, got {setting!r}")
        found[key.strip()] = parse_yaml(text)
    return found


if __name__ == "__main__":
    sys.exit(main())
