"""The leaderboard as one self-contained HTML file."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import ParameterError
from dpb_gym.files import write_whole
from dpb_gym.report.files import target
from dpb_gym.report.grouping import (
    COMPARISON_NOTE,
    NOTIONS,
    REFERENCES,
    UNITS,
    best_keys,
    budget_order,
    budget_scale,
    display,
    group_of,
    groups,
    strength,
    stroke,
)
from dpb_gym.report.model import PROBLEMS, CurvePoint, Interval, LeaderboardData, Row, TaskResult
from dpb_gym.report.numerals import decimals, number
from dpb_gym.report.palette import colours
from dpb_gym.report.terminal import plain

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("tools.js", "state.js", "rows.js", "axes.js", "charts.js", "main.js")
MAX_POINTS = 240
"""Curves are thinned to this many points; the first and last stay."""

_SCORE_FLOOR, _SCORE_CEILING = -0.5, 1.25


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


def render(data: LeaderboardData) -> str:
    """Returns the page as text.

    Raises:
        ParameterError: `data` is of another type.
    """
    if not isinstance(data, LeaderboardData):
        raise ParameterError(f"data must be a LeaderboardData, got {type(data).__name__}")
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shades = colours(data.tasks)
    tasks = [_task_view(task, shades) for task in data.tasks]
    page: str = _template().render(
        data=data,
        created=_readable(data.created),
        agents=len({row.agent for task in data.tasks for row in task.rows}),
        tasks=tasks,
        filters=_filters(data),
        payload={"tasks": [view["payload"] for view in tasks]},
        note=COMPARISON_NOTE,
        notions=NOTIONS,
        units=UNITS,
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=f"sha256-{digest}",
    )
    return page


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    return environment.get_template("page.html.j2")


def _script() -> str:
    """The script's text, exactly as the page holds it (its hash is in the policy)."""
    parts = [(TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return "(function () {\n'use strict';\n" + "\n".join(parts) + "\n})();"


def _readable(created: str) -> str:
    moment = datetime.fromisoformat(created)
    text = f"{moment.day} {moment:%B %Y}"
    if len(created) > 10:
        text += f", {moment:%H:%M}"
        if moment.tzinfo is not None:
            text += f" {moment:%Z}"
    return text


def _filters(data: LeaderboardData) -> list[dict[str, Any]]:
    """The choices of each filter, only those that occur."""
    rows = [row for task in data.tasks for row in task.rows]
    problems = [name for name in PROBLEMS if any(task.problem == name for task in data.tasks)]
    present = [group for group, _ in groups(rows)]
    budgets = sorted({row.budget for row in rows}, key=budget_order)
    return [
        {"name": "problem", "title": "Problem", "choices": [(p, p) for p in problems]},
        {
            "name": "guarantee",
            "title": "Guarantee",
            "choices": [(group.slug, group.label) for group in present],
        },
        {"name": "budget", "title": "Budget", "choices": [(budget, budget) for budget in budgets]},
    ]


def _task_view(task: TaskResult, shades: dict[str, tuple[str, str]]) -> dict[str, Any]:
    places = {
        "regret": decimals(row.regret.mean for row in task.rows),
        "reward": decimals(row.reward.mean for row in task.rows),
    }
    best, alpha, scores = best_keys(task), strength(task), _score_axis(task)
    position = {row.key: index for index, row in enumerate(task.rows)}
    by_key = {row.key: row for row in task.rows}
    sections = [
        {
            "group": group,
            "rows": [
                {
                    "row": row,
                    "index": position[row.key],
                    "label": display(row),
                    "kind": group.label,
                    "stroke": stroke(row),
                    "best": row.key in best,
                    "reference": row.name in REFERENCES,
                    "colour": shades[row.agent],
                    "alpha": alpha[row.key],
                    "bar": _bar(row.score, scores),
                    "verdict": _verdict(row),
                    "params": [(key, _brief(value)) for key, value in sorted(row.params.items())],
                    "improvement": _improvement(row, by_key),
                }
                for row in rows
            ],
        }
        for group, rows in groups(task.rows)
    ]
    return {
        "task": task,
        "places": places,
        "sections": sections,
        "audited": any(row.audit is not None for row in task.rows),
        "scored": any(row.score is not None for row in task.rows),
        "zero": _share(0.0, scores),
        "payload": {
            "task": task.task,
            "problem": task.problem,
            "horizon": task.horizon,
            "rows": [_row_payload(row, task, shades, alpha[row.key]) for row in task.rows],
        },
    }


def _row_payload(
    row: Row, task: TaskResult, shades: dict[str, tuple[str, str]], alpha: float
) -> dict[str, Any]:
    scale = budget_scale(row.budget)
    group = group_of(row)
    words = (
        row.agent,
        row.name,
        row.budget,
        row.guarantee,
        group.label,
        task.task,
        task.env_id,
        task.problem,
    )
    return {
        "key": row.key,
        "agent": row.agent,
        "label": display(row),
        "group": group.slug,
        "budget": row.budget,
        "scale": None if scale is None else [scale.kind, scale.value],
        "private": row.private,
        "stroke": stroke(row),
        "reference": row.name in REFERENCES,
        "colour": list(shades[row.agent]),
        "alpha": round(alpha, 3),
        "regret": [row.regret.mean, row.regret.low, row.regret.high],
        "curve": _thin(row.curve),
        "search": " ".join(words).lower(),
        "sort": {
            "agent": [row.agent.lower(), list(budget_order(row.budget))],
            "budget": list(budget_order(row.budget)),
            "guarantee": row.guarantee.lower(),
            "regret": row.regret.mean,
            "score": None if row.score is None else row.score.mean,
            "reward": row.reward.mean,
            "speed": row.rounds_per_second,
            "audit": None if row.audit is None else str(row.audit["verdict"]).lower(),
        },
    }


def _thin(curve: tuple[CurvePoint, ...]) -> list[list[float]]:
    """Returns the curve as four columns with at most `MAX_POINTS` entries, 6 digits each."""
    last = len(curve) - 1
    if last >= MAX_POINTS:
        curve = tuple(curve[round(i * last / (MAX_POINTS - 1))] for i in range(MAX_POINTS))
    columns: list[list[float]] = [[point[0] for point in curve]]
    for part in (1, 2, 3):
        columns.append([float(f"{point[part]:.6g}") for point in curve])
    return columns


def _score_axis(task: TaskResult) -> tuple[float, float]:
    """Ends of the score bars: 0 and 1, and as far beyond as intervals reach, within reason."""
    scores = [row.score for row in task.rows if row.score is not None]
    low = min([0.0, *(score.low for score in scores)])
    high = max([1.0, *(score.high for score in scores)])
    return max(low, _SCORE_FLOOR), min(high, _SCORE_CEILING)


def _share(value: float, axis: tuple[float, float]) -> float:
    low, high = axis
    return round(100 * min(1.0, max(0.0, (value - low) / (high - low))), 2)


def _bar(score: Interval | None, axis: tuple[float, float]) -> dict[str, float] | None:
    """Places of a score bar in percent of its width."""
    if score is None:
        return None
    zero, mean = _share(0.0, axis), _share(score.mean, axis)
    low, high = _share(score.low, axis), _share(score.high, axis)
    return {
        "left": min(zero, mean),
        "width": round(abs(mean - zero), 2),
        "low": low,
        "span": round(high - low, 2),
    }


def _verdict(row: Row) -> str:
    """Style class of an audit verdict."""
    if row.audit is None:
        return ""
    word = str(row.audit["verdict"]).lower()
    if word.startswith(("pass", "ok", "consistent")):
        return "pass"
    return "fail" if word.startswith(("fail", "violat", "refut")) else "open"


def _brief(value: object) -> str:
    text = str(plain(value))
    return text if len(text) <= 200 else text[:199] + "…"


def _improvement(row: Row, rows: dict[str, Row]) -> list[dict[str, Any]]:
    """Rivals under the same guarantee first, each part by falling probability."""
    entries: list[dict[str, Any]] = [
        {
            "label": display(rows[key]),
            "probability": probability,
            "same": group_of(rows[key]) == group_of(row),
        }
        for key, probability in (row.improvement or {}).items()
    ]
    return sorted(entries, key=lambda e: (not e["same"], -e["probability"], e["label"]))
