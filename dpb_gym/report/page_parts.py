"""Parts of the page: thinned curves, bars, and the tables of tracks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpb_gym.report.fields import NO_BUDGET, Interval
from dpb_gym.report.grouping import (
    REFERENCES,
    Group,
    budget_order,
    budget_scale,
    rank,
)
from dpb_gym.report.model import CurvePoint, Row, TaskResult, TrackResult, TrackRow

MAX_POINTS = 240
"""Curves are thinned to this many points; the first and last stay."""

_SCORE_FLOOR, _SCORE_CEILING = -0.5, 1.25


def shared_rounds(rows: Sequence[Row]) -> list[int] | None:
    """The rounds of all curves after thinning if they are the same, else None."""
    every = {tuple(point[0] for point in row.curve) for row in rows}
    if len(every) != 1:
        return None
    return [int(point[0]) for point in _chosen(rows[0].curve)]


def thin(curve: Sequence[CurvePoint], with_rounds: bool) -> list[list[float]]:
    """A curve as columns of at most `MAX_POINTS` entries.

    Args:
        curve: The points.
        with_rounds: Whether the rounds come first.

    Returns:
        Rounds if asked for, means (6 digits), and how far the interval reaches below and above
        them (3 digits), which is what a picture can show.
    """
    points = _chosen(curve)
    columns: list[list[float]] = [[point[0] for point in points]] if with_rounds else []
    columns.append([_digits(mean, 6) for _, mean, _, _ in points])
    columns.append([_digits(mean - low, 3) for _, mean, low, _ in points])
    columns.append([_digits(high - mean, 3) for _, mean, _, high in points])
    return columns


def _chosen(curve: Sequence[CurvePoint]) -> Sequence[CurvePoint]:
    last = len(curve) - 1
    if last < MAX_POINTS:
        return curve
    return [curve[round(i * last / (MAX_POINTS - 1))] for i in range(MAX_POINTS)]


def _digits(value: float, count: int) -> float:
    short = float(f"{value:.{count}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def score_axis(scores: Sequence[Interval]) -> tuple[float, float]:
    """Ends of the score bars: 0 and 1, and as far beyond as intervals reach, within reason."""
    low = min([0.0, *(score.low for score in scores)])
    high = max([1.0, *(score.high for score in scores)])
    return max(low, _SCORE_FLOOR), min(high, _SCORE_CEILING)


def share(value: float, axis: tuple[float, float]) -> float:
    """Place of a score on its axis, in percent."""
    low, high = axis
    return round(100 * min(1.0, max(0.0, (value - low) / (high - low))), 2)


def score_bar(score: Interval, axis: tuple[float, float]) -> dict[str, float]:
    """Places of a score bar in percent of its width."""
    zero, mean = share(0.0, axis), share(score.mean, axis)
    low, high = share(score.low, axis), share(score.high, axis)
    return {
        "left": min(zero, mean),
        "width": round(abs(mean - zero), 2),
        "low": low,
        "span": round(high - low, 2),
    }


def verdict_class(verdict: str) -> str:
    """Style class of an audit verdict, empty without one."""
    word = verdict.lower()
    if not word:
        return ""
    if word.startswith(("pass", "ok", "consistent")):
        return "pass"
    return "fail" if word.startswith(("fail", "violat", "refut")) else "open"


def track_view(
    track: TrackResult, tasks: Sequence[TaskResult], shades: dict[str, tuple[str, str]], t: int
) -> dict[str, Any]:
    """What the page shows of a track.

    Args:
        track: The track.
        tasks: All tasks of the leaderboard.
        shades: Colours by agent label.
        t: Its number among the page's tables.
    """
    members = [task for task in tasks if task.task in track.tasks]
    parts = {task.task: {row.key: row for row in task.rows} for task in members}
    scores = score_axis([row.score for row in track.rows])
    best = _best(track)
    found: dict[tuple[Group, str], list[dict[str, Any]]] = {}
    for index, row in enumerate(track.rows):
        group = Group(row.notion, row.unit)
        found.setdefault((group, row.budget), []).append(
            {
                "row": row,
                "index": index,
                "kind": group.label,
                "best": row.key in best,
                "reference": row.name in REFERENCES,
                "complete": len(row.tasks) == len(track.tasks),
                "stroke": _stroke(row),
                "colour": shades[row.agent],
                "bar": score_bar(row.score, scores),
                "verdict": verdict_class(row.verdict),
                "parts": [_part(parts[task], row.key) for task in track.tasks],
            }
        )
    return {
        "track": track,
        "number": t,
        "names": _short_names(track.tasks),
        "sections": [
            {
                "group": group,
                "name": group.label if budget == NO_BUDGET else f"{group.label}, {budget}",
                "rows": sorted(found[group, budget], key=_place),
            }
            for group, budget in sorted(found, key=lambda g: (rank(g[0]), budget_order(g[1])))
        ],
        "audited": any(row.verdict for row in track.rows),
        "zero": share(0.0, scores),
        "payload": {
            "task": track.track,
            "title": track.title,
            "track": track.track,
            "problem": members[0].problem,
            "rounds": None,
            "horizon": None,
            "rows": [_payload(row, track, members, shades) for row in track.rows],
        },
    }


def _payload(
    row: TrackRow,
    track: TrackResult,
    members: Sequence[TaskResult],
    shades: dict[str, tuple[str, str]],
) -> dict[str, Any]:
    scale = budget_scale(row.budget)
    group = Group(row.notion, row.unit)
    complete = len(row.tasks) == len(track.tasks)
    score = row.score
    words = [row.agent, row.name, row.budget, group.label, track.track, track.title]
    words += [word for task in members for word in (task.task, task.env_id, task.problem)]
    return {
        "key": row.key,
        "agent": row.agent,
        "label": row.agent if row.budget == NO_BUDGET else f"{row.agent} {row.budget}",
        "group": group.slug,
        "budget": row.budget,
        # Rows that miss a task have no place on a curve beside complete ones.
        "scale": None if scale is None or not complete else [scale.kind, scale.value],
        "private": row.notion is not None,
        "stroke": _stroke(row),
        "reference": row.name in REFERENCES or not complete,
        "colour": list(shades[row.agent]),
        "alpha": 1,
        "regret": [1 - score.mean, 1 - score.high, 1 - score.low],
        "curve": None,
        "chances": None,
        "search": " ".join(words).lower(),
        "sort": {
            "agent": [row.agent.lower(), list(budget_order(row.budget))],
            "budget": list(budget_order(row.budget)),
            "score": score.mean if complete else None,
            "ahead": row.ahead,
            "audit": row.verdict.lower() or None,
        },
    }


def _place(entry: dict[str, Any]) -> tuple[bool, float, str]:
    return not entry["complete"], -entry["row"].score.mean, entry["row"].key


def _part(rows: dict[str, Row], key: str) -> Interval | None:
    return rows[key].score if key in rows else None


def _stroke(row: TrackRow) -> str:
    if row.notion is not None:
        return "solid"
    return "dotted" if row.name == "oracle" else "dashed"


def _short_names(tasks: Sequence[str]) -> list[str]:
    """Names without the words that all of them begin with."""
    heads = {task.split("-", 1)[0] for task in tasks}
    if len(tasks) < 2 or len(heads) > 1 or not all("-" in task for task in tasks):
        return list(tasks)
    return [task.split("-", 1)[1] for task in tasks]


def _best(track: TrackResult) -> frozenset[str]:
    """The highest score at each (notion, unit, budget) with a contest of complete rows."""
    contests: dict[tuple[Group, str], list[TrackRow]] = {}
    for row in track.rows:
        if row.name not in REFERENCES and len(row.tasks) == len(track.tasks):
            contests.setdefault((Group(row.notion, row.unit), row.budget), []).append(row)
    return frozenset(
        max(rows, key=lambda row: (row.score.mean, row.key)).key
        for rows in contests.values()
        if len(rows) > 1
    )
