"""The leaderboard as one self-contained HTML file.

The headline is HTML. Pictures, the table of agents, rows and curves are compact data that the
page's script renders, the rows and curves of tasks when they scroll into view.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import os
import re
from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from dpb_gym.errors import ParameterError
from dpb_gym.files import write_text
from dpb_gym.privacy.budget import Budget
from dpb_gym.report import comparison_groups
from dpb_gym.report.columns import COLUMNS, Value
from dpb_gym.report.comparison_groups import (
    TRUSTS,
    Group,
    budget_order,
    questions,
    scale_of,
    short,
    under,
)
from dpb_gym.report.exports import attributes, plain
from dpb_gym.report.leaderboard_data import (
    DELTAS,
    RULINGS,
    TUNED,
    CurvePoint,
    Interval,
    LeaderboardData,
    TrackResult,
)
from dpb_gym.report.tables import Board, Line, Table, base_label, board
from dpb_gym.report.templating import TEMPLATES, template

SCRIPTS = (
    "data.js",
    "charts.js",
    "profiles.js",
    "tables.js",
    "overview.js",
    "agent_page.js",
    "main.js",
)
SITE = ('<meta name="docs" content="">', '<meta name="files" content="">')
MOST_POINTS, ALL_POINTS = 120, 36_000
"""Most points of one curve, and of all curves together; first and last points are kept."""


def html(data: LeaderboardData, path: str | os.PathLike[str]) -> Path:
    """Write the leaderboard page.

    The file is self-contained: styles, scripts and data are inside, and its content security
    policy forbids any request. Labels and parameters are escaped.

    Args:
        data: A leaderboard.
        path: File to write. Missing folders are created; an existing file is replaced whole.

    Returns:
        The path written.

    Raises:
        ParameterError: `data` is of another type or `path` is no file.
        OSError: The file cannot be written.
    """
    return write_text(path, render(data))


def placed(page: str, docs: str, files: str) -> str:
    """Return a page with links to the documentation and to the files of its result.

    Args:
        page: Text of the page as `render` returns it, which has no such links.
        docs: Path from the page to the documentation's root, e.g. ``"../"``.
        files: Path to the folder of ``result.parquet`` and ``manifest.json``, e.g.
            ``"dpb-bench-v1/"``.
    """
    for mark, place in zip(SITE, (docs, files)):
        page = page.replace(mark, mark.replace('""', f'"{escape(place)}"'), 1)
    return page


def render(data: LeaderboardData) -> str:
    """Return the page as text.

    Raises:
        ParameterError: `data` is of another type.
    """
    if not isinstance(data, LeaderboardData):
        raise ParameterError(f"data must be a LeaderboardData, got {type(data).__name__}")
    shown = board(data)
    known = any(c.outcome != "not compared" for c in data.comparisons)
    tallies = {
        (ruling, trust): data.tally(ruling, trust)
        for ruling in (RULINGS if known else ())
        for trust in TRUSTS
    }
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
        tallies=tallies,
        deltas=DELTAS,
        groups=comparison_groups,
        place=lambda table: numbered[id(table)],
        moment=datetime.fromisoformat(data.created),
        agents=list(dict.fromkeys(base_label(r.agent) for t in data.tasks for r in t.rows)),
        filters=_filters(packed),
        payload=base64.b64encode(zipped).decode(),
        bibtex=bibtex(data),
        columns=COLUMNS,
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",
    )
    return page


def bibtex(data: LeaderboardData) -> str:
    """Return a BibTeX entry that cites the leaderboard."""
    key = re.sub(r"[^a-z0-9]+", "", data.suite.lower()) or "leaderboard"
    note = f"Suite {data.suite}, dpb-gym {data.version}"
    note += f", revision {data.revision}" if data.revision else ""
    fields = {
        "title": "{" + re.sub(r"[{}\\]", "", data.title) + "}",
        "author": "{The dpb-gym developers}",
        "year": data.created[:4],
        "note": re.sub(r"[{}\\]", "", note),
    }
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@misc{{dpbgym-{key}-{data.created[:4]},\n{lines}}}"


def _filters(packed: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the labels of each filter's choices by value; only choices that occur."""
    tables = packed["tables"]
    return {
        "Track": {table["name"]: table["title"] for table in tables if table["kind"] == "track"},
        "Problem": {p: p for p in sorted({t["problem"] for t in tables if t["kind"] == "task"})},
        "Guarantee": {slug: group["kind"] for slug, group in packed["groups"].items()},
        "Budget": {budget: budget for budget in packed["budgets"]},
    }


def payload(data: LeaderboardData, shown: Board) -> dict[str, Any]:
    """Return the data of the page's script: columns, tables with their rows, and shared facts."""
    every = [line for table in (*shown.tasks, *shown.tracks) for line in table.lines]
    points = max(12, min(MOST_POINTS, ALL_POINTS // max(1, sum(len(t.lines) for t in shown.tasks))))
    budgets = sorted({line.row.budget for line in every}, key=budget_order)
    groups = sorted({line.group for line in every}, key=lambda group: group.rank)
    scales = (
        {"scale": scale_of(b), "limit": b.limit, "short": short(b)} if b else {} for b in budgets
    )
    names = ("name", "title", "kind", "shown", "unit", "better", "decimals", "alias")
    asked, asked_groups = _questions(data, shown)
    return {
        "columns": [attributes(column, *names) for column in COLUMNS],
        "tables": [_table(table, points) for table in (*shown.tasks, *shown.tracks)],
        "budgets": {
            Budget.text(budget): {"order": place, **scale}
            for place, (budget, scale) in enumerate(zip(budgets, scales))
        },
        "groups": {
            group.slug: {"rank": place, "kind": group.label, "about": group.explanation}
            for place, group in enumerate(groups)
        },
        "questions": asked,
        "asked": {
            group.slug: {"rank": place, "kind": group.label, "about": group.explanation}
            for place, group in enumerate(sorted(asked_groups, key=lambda group: group.rank))
        },
        "origins": {one.name: vars(one) for one in data.origins},
        "comparisons": [
            [
                *attributes(c, "task", "ruling", "trust").values(),
                Group(c.notion, c.unit).slug,
                Budget.text(c.budget),
                *attributes(c, "first", "second", "survives", "outcome").values(),
                None if c.gain is None else _value(c.gain),
            ]
            for c in data.comparisons
        ],
    }


def _questions(
    data: LeaderboardData, shown: Board
) -> tuple[list[list[Any]], set[comparison_groups.Group]]:
    """Return the questions of every task, and their groups.

    Each is [task, ruling, trust model, group, budget, places of the answers in the table, best
    first]. See `comparison_groups.questions`.
    """
    ours = data.ours
    entries: list[list[Any]] = []
    groups: set[Group] = set()
    for task, table in zip(data.tasks, shown.tasks):
        places = {line.row.key: place for place, line in enumerate(table.lines)}
        for ruling in RULINGS:
            rows = under(ruling, task.rows, ours)
            for trust, (group, budget), answers in questions(rows):
                groups.add(group)
                where = [places[row.key] for row in answers]
                entries.append([task.task, ruling, trust, group.slug, Budget.text(budget), where])
    return entries, groups


def _table(table: Table, points: int) -> dict[str, Any]:
    """Return a task or track for the page, its rows by column.

    ``values`` has the columns of results, ``rows`` what drawing needs beside them. Arrays of one
    kind compress far better than rows. A value that all rows share is in ``same`` instead.
    """
    source, lines = table.source, table.lines
    fields: dict[str, Any] = {
        "name": table.name,
        "title": table.title,
        "about": source.description,
        "track": source.track,
        "rival": None if table.rival is None else lines.index(table.rival),
        "count": len(lines),
    }
    if isinstance(source, TrackResult):
        fields |= {"kind": "track", "tasks": list(source.tasks)}
        rows = [_drawing(line) for line in lines]
    else:
        ends = source.normalisation and list(vars(source.normalisation).values())
        fields |= {"kind": "task", "env": source.env_id, "places": table.places, "ends": ends}
        fields |= attributes(source, "problem", "horizon", "replicates")
        known = sorted({replicate for row in source.rows for replicate in row.finals})
        rows = [{**_drawing(line), **_curve(line.row, points, known)} for line in lines]
    fields["rows"] = {name: [row[name] for row in rows] for name in (rows or [{}])[0]}
    fields |= {"same": {}, "values": {}}
    for column in COLUMNS:
        values = [_value(column.of(source, line.row)) for line in lines]
        if any(value != values[0] for value in values):
            fields["values"][column.name] = values
        elif values:
            fields["same"][column.name] = values[0]
    return fields


def _drawing(line: Line) -> dict[str, Any]:
    """Return what the page needs of a row beside its columns."""
    return {
        **attributes(line.row, "key", "private", "reference", "stated", "trust_model"),
        **attributes(line, "label", "colour", "stroke", "best"),
        "strength": round(line.strength, 2),
        "group": line.group.slug,
        "gaps": not line.complete,
    }


def _curve(row: Any, points: int, known: Sequence[int]) -> dict[str, Any]:
    return {
        "tuned": row.ruling == TUNED,
        "params": [[key, _brief(value)] for key, value in sorted(row.params.items())],
        "epsilons": [_digits(epsilon, 4) for epsilon in row.epsilons],
        "curve": thin(row.curve, points),
        "finals": [_digits(row.finals[i], 7) if i in row.finals else None for i in known],
    }


def _value(value: Value) -> Any:
    """Return a column's value with six digits, an interval as [mean, low, high].

    An interval without known ends is [mean].
    """
    if isinstance(value, Interval) and not value.bounded:
        return [_digits(value.mean, 6)]
    if isinstance(value, Interval):
        return [_digits(part, 6) for part in (value.mean, value.low, value.high)]
    return _digits(value, 6) if isinstance(value, float) else value


def thin(curve: Sequence[CurvePoint], points: int) -> list[list[float | None]]:
    """Return a curve as columns of at most `points` entries.

    The columns are rounds, means (5 digits), and the interval's distance below and above the mean
    (3 digits, None where it is unknown).
    """

    def distance(value: float) -> float | None:
        return _digits(value, 3) if math.isfinite(value) else None

    last = len(curve) - 1
    if last >= points:
        curve = [curve[round(i * last / (points - 1))] for i in range(points)]
    return [
        [t for t, *_ in curve],
        [_digits(mean, 5) for _, mean, _, _ in curve],
        [distance(mean - low) for _, mean, low, _ in curve],
        [distance(high - mean) for _, mean, _, high in curve],
    ]


def _digits(value: float, count: int) -> float:
    rounded = float(f"{value:.{count}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _brief(value: object) -> str:
    text = str(plain(value))
    return text if len(text) <= 200 else text[:199] + "…"
