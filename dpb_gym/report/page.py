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
from dpb_gym.report.model import PROBLEMS, LeaderboardData, Row, TaskResult
from dpb_gym.report.numerals import decimals, number
from dpb_gym.report.page_parts import (
    score_axis,
    score_bar,
    share,
    shared_rounds,
    thin,
    track_view,
    verdict_class,
)
from dpb_gym.report.palette import colours
from dpb_gym.report.terminal import plain

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("tools.js", "state.js", "rows.js", "axes.js", "charts.js", "main.js")


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
    tracks = [
        track_view(track, data.tasks, shades, len(tasks) + k) for k, track in enumerate(data.tracks)
    ]
    page: str = _template().render(
        data=data,
        created=_readable(data.created),
        agents=len({row.agent for task in data.tasks for row in task.rows}),
        tasks=tasks,
        parts=_parts(data, tasks, tracks),
        filters=_filters(data),
        payload={"tasks": [view["payload"] for view in [*tasks, *tracks]]},
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
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def unindented(name: str) -> str:
        # The indentation of a thousand rows would be a third of the page.
        text = (TEMPLATES / name).read_text(encoding="utf-8")
        return "\n".join(line.strip() for line in text.splitlines())

    environment = Environment(
        loader=FunctionLoader(unindented),
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


def _parts(
    data: LeaderboardData, tasks: list[dict[str, Any]], tracks: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Each track with its tasks, then the tasks without one; tasks keep their numbers."""
    numbered = list(enumerate(tasks))
    parts = [
        {
            "track": view,
            "tasks": [(t, v) for t, v in numbered if v["task"].track == track.track],
        }
        for view, track in zip(tracks, data.tracks)
    ]
    loose = [(t, v) for t, v in numbered if not v["task"].track]
    return [*parts, *([{"track": None, "tasks": loose}] if loose else [])]


def _filters(data: LeaderboardData) -> list[dict[str, Any]]:
    """The choices of each filter, only those that occur."""
    rows = [row for task in data.tasks for row in task.rows]
    problems = [name for name in PROBLEMS if any(task.problem == name for task in data.tasks)]
    present = [group for group, _ in groups(rows)]
    budgets = sorted({row.budget for row in rows}, key=budget_order)
    return [
        {
            "name": "track",
            "title": "Track",
            "choices": [(track.track, track.title) for track in data.tracks],
        },
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
    best, alpha = best_keys(task), strength(task)
    scores = score_axis([row.score for row in task.rows if row.score is not None])
    position = {row.key: index for index, row in enumerate(task.rows)}
    rounds = shared_rounds(task.rows)
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
                    "bar": None if row.score is None else score_bar(row.score, scores),
                    "verdict": "" if row.audit is None else verdict_class(row.audit["verdict"]),
                    "params": [(key, _brief(value)) for key, value in sorted(row.params.items())],
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
        "zero": share(0.0, scores),
        "payload": {
            "task": task.task,
            "title": task.task,
            "track": task.track,
            "problem": task.problem,
            "rounds": rounds,
            "horizon": task.horizon,
            "rows": [_row_payload(row, task, shades, alpha[row.key], rounds) for row in task.rows],
        },
    }


def _row_payload(
    row: Row,
    task: TaskResult,
    shades: dict[str, tuple[str, str]],
    alpha: float,
    rounds: list[int] | None,
) -> dict[str, Any]:
    scale = budget_scale(row.budget)
    group = group_of(row)
    # The guarantee's words are those of its group and its budget.
    words = (row.agent, row.name, row.budget, row.guarantee, task.task, task.env_id, task.problem)
    chances = row.improvement or {}
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
        "curve": thin(row.curve, rounds is None),
        "chances": [_chance(chances.get(other.key)) for other in task.rows] if chances else None,
        "search": " ".join([*words, group.label, task.track]).lower(),
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


def _chance(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _brief(value: object) -> str:
    text = str(plain(value))
    return text if len(text) <= 200 else text[:199] + "…"
