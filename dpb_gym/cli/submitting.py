"""``dpb submit``, ``dpb import`` and ``dpb remove``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpb_gym.cli.options import Directory, Json
from dpb_gym.cli.output import print_json


def submit(
    directory: Directory,
    agent: Annotated[str, typer.Option(help="Registered name, or label, of the agent.")],
    out: Annotated[str | None, typer.Option(help="Archive, .zip; AGENT.zip by default.")] = None,
    by: Annotated[
        str | None, typer.Option(help="Who states the results; the agent's package by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Pack an agent's results, guarantee and source reference into one archive.

    Example: dpb submit results/dpb-bench-v1 --agent my-agent --out my-agent.zip
    """
    from dpb_gym.evaluation.exchange import submission

    target = Path(out or f"{agent}.zip".replace("/", "-").replace(" ", "-"))
    info = submission.submit(directory, agent, target, by)
    if json:
        print_json({"path": str(target), **info})
        return
    source, rows = info["agent"], info["summary"]
    package = f"{source['package']} {source['package_version']}" if source["package"] else "-"
    count = f"{len(rows)} {'row' if len(rows) == 1 else 'rows'}"
    print(
        f"{target}: {count} of {source['name']} ({package}, {source['file']} "
        f"{source['sha256'][:12]}), {target.stat().st_size / 1024:,.0f} KiB"
    )
    if source["revision"] is None or source["revision"].endswith("-dirty"):
        _say("note: the agent's file is not committed to git; others see its hash alone")
    partial = [row for row in rows if row["replicates"] < row["of"]]
    for row in partial[:5]:
        _say(
            f"note: {row['agent']} ({row['budget']}) on {row['task']} has "
            f"{row['replicates']} of {row['of']} replicates; the leaderboard marks it incomplete"
        )
    if len(partial) > 5:
        _say(f"note: so have {len(partial) - 5} rows more")
    print(f"Add it to a leaderboard: dpb import {target} --into DIR")


def import_(
    archive: Annotated[str, typer.Argument(metavar="FILE", help="What dpb submit wrote.")],
    into: Annotated[str, typer.Option(metavar="DIR", help="Result directory to add it to.")],
    json: Json = False,
) -> None:
    """Add a submission to a result directory: all of it or nothing.

    Example: dpb import my-agent.zip --into results/dpb-bench-v1
    """
    from dpb_gym.evaluation.exchange import merging

    merge = merging.import_submission(archive, into)
    if json:
        fields = {key: getattr(merge, key) for key in merge.__dataclass_fields__}
        print_json({**fields, "path": str(merge.path)})
        return
    before = f", {merge.present} were there already" if merge.present else ""
    print(
        f"{merge.path}: {merge.added} cells of {merge.agent} added{before}, "
        f"stated by {merge.sender}"
    )
    for difference in merge.differences:
        _say(f"note: {difference}: numbers may differ in the last bits")
    check = f"dpb verify {merge.path} --agent {merge.agent}"
    print(f"They get no rank before they are computed again here: {check}")


def remove(
    directory: Directory,
    agent: Annotated[str, typer.Option(help="Label, or name, of an imported agent.")],
    json: Json = False,
) -> None:
    """Take an imported agent out of a result directory; what was computed here stays.

    Example: dpb remove results/dpb-bench-v1 --agent my-agent
    """
    from dpb_gym.evaluation.exchange import merging

    count = merging.remove_submission(directory, agent)
    if json:
        print_json({"path": directory, "agent": agent, "removed": count})
    else:
        print(f"{directory}: {count} imported cells of {agent} removed")


def _say(line: str) -> None:
    print(f"dpb: {line}", file=sys.stderr)
