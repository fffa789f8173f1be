"""A page with sentences, one picture, a table and lists, without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.templating import TEMPLATES, template


def advice_page(
    title: str,
    sentences: Sequence[str],
    bars: Sequence[tuple[str, str, Interval]],
    axis: str,
    table: tuple[Sequence[str], Iterable[Sequence[str]]],
    lists: Mapping[str, Sequence[str]],
    facts: str = "",
    curves: Sequence[tuple[str, Sequence[tuple[int, float]]]] = (),
) -> str:
    """Return a self-contained page for phones and screens, light, dark and printed.

    Args:
        title: Title and heading.
        sentences: The answer, first on the page.
        bars: Label, explanation and value of each line of the picture; the first is the baseline.
        axis: Label of the picture's axis.
        table: Heads and rows.
        lists: Lists of sentences by heading; empty ones are left out.
        facts: The data, the version and the date, below the heading.
        curves: Label and points (last customer, percent lost) of each learning curve.
    """
    ends = [end for _, _, one in bars for end in (one.low, one.high)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = 0.04 * (high - low or abs(high) or 1.0)
    low, high = low - margin, high + margin

    from matplotlib.ticker import MaxNLocator

    def place(value: float) -> float:
        return round(100.0 * (value - low) / (high - low), 2)

    return template(TEMPLATES, "advice.html.j2").render(
        title=title, sentences=sentences, bars=bars, axis=axis, table=table, lists=lists,
        place=place, ticks=[t for t in MaxNLocator(4).tick_values(low, high) if low <= t <= high],
        facts=facts, learning=_learning(curves),
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8").partition("*,")[0],
    )  # fmt: skip


WIDTH, HEIGHT, EDGE = 640, 240, 40
"""Size of the picture of the learning curves, and of its margins, in pixels."""


def _learning(curves: Sequence[tuple[str, Sequence[tuple[int, float]]]]) -> dict[str, Any] | None:
    """Return the lines and ticks of the learning curves in pixels; None without curves."""
    points = [point for _, line in curves for point in line]
    if not points:
        return None
    start, end = (math.log(max(1, pick(t for t, _ in points))) for pick in (min, max))
    top = max(1e-9, *(lost for _, lost in points))
    bottom = min(0.0, *(lost for _, lost in points))

    def place(customers: int, lost: float) -> tuple[float, float]:
        x = (math.log(max(1, customers)) - start) / max(end - start, 1e-9)
        y = (lost - bottom) / (top - bottom)
        return (
            round(EDGE + x * (WIDTH - 2 * EDGE), 1),
            round(HEIGHT - EDGE - y * (HEIGHT - 2 * EDGE), 1),
        )

    lines = [
        {"label": label, "points": " ".join(f"{x},{y}" for x, y in (place(*p) for p in line)),
         "end": place(*line[-1]), "dash": k}
        for k, (label, line) in enumerate(curves)
    ]  # fmt: skip
    customers = sorted({t for t, _ in points})
    across = [(place(t, 0.0)[0], f"{t:,}") for t in customers]
    up = [(place(customers[0], v)[1], f"{v:.1f}%") for v in sorted({bottom, 0.0, top})]
    return {"lines": lines, "across": across, "up": up, "width": WIDTH, "height": HEIGHT}
