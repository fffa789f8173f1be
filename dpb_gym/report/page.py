"""The leaderboard as one self-contained HTML file.

The matrix of winners stands in the page; everything else is compact data from which the page's
script makes rows and curves when they are seen.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import os
import re
from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import ParameterError
from dpb_gym.files import target, write_whole
from dpb_gym.privacy.budget import Budget
from dpb_gym.report.comparison_groups import (
    COMPARISON_NOTE,
    NOTIONS,
    UNITS,
    budget_order,
    scale_of,
    short,
)
from dpb_gym.report.exports import of, plain
from dpb_gym.report.leaderboard_data import CurvePoint, Interval, LeaderboardData, TrackResult
from dpb_gym.report.number_format import number
from dpb_gym.report.tables import MARKS, Board, Line, Table, board

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("data.js", "charts.js", "profiles.js", "tables.js", "main.js")
SITE = ('<meta name="docs" content="">', '<meta name="files" content="">')
MOST_POINTS, ALL_POINTS = 120, 36_000
"""Points of a curve, and of all curves together; the first and last of a curve stay."""


def html(data: LeaderboardData, path: str | os.PathLike[str]) -> Path:
    """Writes the leaderboard page.

    The file needs nothing else: styles, scripts and data are inside, and its content security
    policy forbids any request. Labels and parameters are escaped.

    Args:
        data: A leaderboard.
        path: File to write; folders are made, and a file that stands there is replaced whole.

    Returns:
        The path written.

    Raises:
        ParameterError: `data` is of another type or `path` is no file.
        OSError: The file cannot be written.
    """
    destination = target(path)
    write_whole(destination, render(data).encode("utf-8", errors="replace"))
    return destination


def placed(page: str, docs: str, files: str) -> str:
    """A page that knows where it stands, and links to what lies there; alone it names no file.

    Args:
        page: What `render` returned.
        docs: Where the documentation begins, as seen from the page, e.g. ``"../"``.
        files: Folder of ``result.parquet`` and ``manifest.json``, e.g. ``"dpb-bench-v1/"``.
    """
    for mark, place in zip(SITE, (docs, files)):
        page = page.replace(mark, mark.replace('""', f'"{escape(place)}"'), 1)
    return page


def render(data: LeaderboardData) -> str:
    """Returns the page as text.

    Raises:
        ParameterError: `data` is of another type.
    """
    if not isinstance(data, LeaderboardData):
        raise ParameterError(f"data must be a LeaderboardData, got {type(data).__name__}")
    shown = board(data)
    style, *scripts = (
        (TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", *SCRIPTS)
    )
    script = "(async function () {\n'use strict';\n" + "\n".join(scripts) + "\n})();"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    numbered = {id(table): t for t, table in enumerate((*shown.tasks, *shown.tracks))}
    packed = payload(data, shown)
    written = json.dumps(packed, separators=(",", ":"), allow_nan=False)
    zipped = gzip.compress(written.encode("utf-8", errors="replace"), mtime=0)
    page: str = template(TEMPLATES).render(
        data=data,
        board=shown,
        place=lambda table: numbered[id(table)],
        created=_readable(data.created),
        agents=len({row.agent for task in data.tasks for row in task.rows}),
        rows=sum(len(task.rows) for task in data.tasks),
        filters=_filters(packed),
        payload=base64.b64encode(zipped).decode(),
        bibtex=bibtex(data),
        note=COMPARISON_NOTE,
        marks=MARKS,
        notions=NOTIONS,
        units=UNITS,
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",
    )
    return page


@functools.cache
def template(folder: Path) -> Template:
    """The template ``page.html.j2`` of a folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, short=short)
    return environment.get_template("page.html.j2")


def _readable(created: str) -> str:
    moment = datetime.fromisoformat(created)
    day = f"{moment.day} {moment:%B %Y}"
    return day if len(created) <= 10 else f"{day}, {moment:%H:%M %Z}".strip()


def bibtex(data: LeaderboardData) -> str:
    """An entry that cites the leaderboard."""
    key = re.sub(r"[^a-z0-9]+", "", data.suite.lower()) or "leaderboard"
    said = f"Suite {data.suite}, dpb-gym {data.version}"
    said += f", revision {data.revision}" if data.revision else ""
    fields = {
        "title": "{" + re.sub(r"[{}\\]", "", data.title) + "}",
        "author": "{The dpb-gym developers}",
        "year": data.created[:4],
        "note": re.sub(r"[{}\\]", "", said),
    }
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@misc{{dpbgym-{key}-{data.created[:4]},\n{lines}}}"


def _filters(packed: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The choices of each filter by value, only those that occur."""
    tables = packed["tables"]
    return {
        "Track": {table["name"]: table["title"] for table in tables if table["kind"] == "track"},
        "Problem": {p: p for p in sorted({t["problem"] for t in tables if t["kind"] == "task"})},
        "Guarantee": {slug: group["kind"] for slug, group in packed["groups"].items()},
        "Budget": {budget: budget for budget in packed["budgets"]},
    }


def payload(data: LeaderboardData, shown: Board) -> dict[str, Any]:
    """What the page's script draws from: tables, their rows by column, and what rows share."""
    every = [line for table in (*shown.tasks, *shown.tracks) for line in table.lines]
    points = max(12, min(MOST_POINTS, ALL_POINTS // max(1, sum(len(t.lines) for t in shown.tasks))))
    budgets = sorted({line.row.budget for line in every}, key=budget_order)
    groups = sorted({line.group for line in every}, key=lambda group: group.rank)
    scales = (
        {"scale": scale_of(b), "limit": b.limit, "short": short(b)} if b else {} for b in budgets
    )
    return {
        "tables": [_table(table, points) for table in (*shown.tasks, *shown.tracks)],
        "budgets": {
            Budget.text(budget): {"order": place, **scale}
            for place, (budget, scale) in enumerate(zip(budgets, scales))
        },
        "groups": {
            group.slug: {"rank": place, "kind": group.label, "about": group.explanation}
            for place, group in enumerate(groups)
        },
        "origins": {one.name: vars(one) for one in data.origins},
    }


def _start(line: Line) -> dict[str, Any]:
    row = line.row
    return {
        **of(row, "key", "agent", "name", "private", "reference", "stated", "trust"),
        **of(line, "label", "colour", "stroke", "best"),
        "strength": round(line.strength, 2),
        "budget": Budget.text(row.budget),
        "group": line.group.slug,
        "gaps": not line.complete,
        "score": _interval(row.score, 6),
        "lead": _interval(row.lead, 4),
        "loss": _interval(row.loss, 6),
    }


def _table(table: Table, points: int) -> dict[str, Any]:
    """A task or track; its rows by column, which compress far better."""
    source, lines = table.source, table.lines
    told: dict[str, Any] = {
        "name": table.name,
        "title": table.title,
        "about": source.description,
        "track": source.track,
        "rival": None if table.rival is None else lines.index(table.rival),
        "count": len(lines),
    }
    if isinstance(source, TrackResult):
        told |= {"kind": "track", "tasks": list(source.tasks)}
        rows = [{**_start(line), **of(line.row, "verdict", "ahead")} for line in lines]
    else:
        ends = source.normalisation and list(vars(source.normalisation).values())
        told |= {"kind": "task", "env": source.env_id, "places": table.places, "ends": ends}
        told |= of(source, "problem", "horizon", "replicates")
        known = sorted({replicate for row in source.rows for replicate in row.finals})
        rows = [_row(line, line.row, points, known) for line in lines]
    return told | {"rows": {name: [row[name] for row in rows] for name in (rows or [{}])[0]}}


def _row(line: Line, row: Any, points: int, known: Sequence[int]) -> dict[str, Any]:
    return {
        **_start(line),
        **of(row, "guarantee", "tuning"),
        "tuned": row.tuning.startswith(("best of", "tuned")),
        "replicates": row.replicates,
        "accounting": row.accounting if row.private else "",
        "source": row.source[:12],
        "verdict": "" if row.audit is None else row.audit.verdict,
        "audit": row.audit and [row.audit.lower_bound, row.audit.claimed],
        "params": [[key, _brief(value)] for key, value in sorted(row.params.items())],
        "speed": row.rounds_per_second and _digits(row.rounds_per_second, 3),
        "iqm": _interval(row.iqm_regret, 6),
        "reward": _interval(row.reward, 6),
        "excess": _interval(row.excess, 4),
        "curve": thin(row.curve, points),
        "finals": [_digits(row.finals[i], 7) if i in row.finals else None for i in known],
    }


def _interval(value: Interval | None, digits: int) -> list[float] | None:
    parts = () if value is None else (value.mean, value.low, value.high)
    return [_digits(part, digits) for part in parts] or None


def thin(curve: Sequence[CurvePoint], points: int) -> list[list[float]]:
    """A curve as columns of at most `points` entries.

    Returns:
        Rounds, means (5 digits), and how far the interval reaches below and above them (3 digits),
        which is what a picture can show.
    """
    last = len(curve) - 1
    if last >= points:
        curve = [curve[round(i * last / (points - 1))] for i in range(points)]
    return [
        [t for t, *_ in curve],
        [_digits(mean, 5) for _, mean, _, _ in curve],
        [_digits(mean - low, 3) for _, mean, low, _ in curve],
        [_digits(high - mean, 3) for _, mean, _, high in curve],
    ]


def _digits(value: float, count: int) -> float:
    rounded = float(f"{value:.{count}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _brief(value: object) -> str:
    text = str(plain(value))
    return text if len(text) <= 200 else text[:199] + "…"
