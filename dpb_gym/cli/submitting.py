"""``dpb submit`` and ``dpb import``."""

from __future__ import annotations

import sys
from pathlib import Path

from dpb_gym.cli.output import print_json
from dpb_gym.evaluation.exchange.merging import import_submission
from dpb_gym.evaluation.exchange.submission import submit as pack


def submit(directory: str, agent: str, out: str | None, sender: str | None, as_json: bool) -> None:
    """Writes the archive of an agent's results and says what is in it.

    Raises:
        DPBError: See `dpb_gym.evaluation.exchange.submission.submit`.
    """
    target = Path(out or f"{agent}.zip".replace("/", "-").replace(" ", "-"))
    info = pack(directory, agent, target, sender)
    if as_json:
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


def import_(archive: str, directory: str, as_json: bool) -> None:
    """Adds an archive to a result directory and says what is new.

    Raises:
        ResultError: See `dpb_gym.evaluation.exchange.merging.import_submission`.
    """
    merge = import_submission(archive, directory)
    if as_json:
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


def _say(line: str) -> None:
    print(f"dpb: {line}", file=sys.stderr)
