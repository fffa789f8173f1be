"""A page with sentences, one picture, a table and lists, without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.templating import TEMPLATES, template


def advice_page(
    title: str,
    sentences: Sequence[str],
    bars: Sequence[tuple[str, str, Interval]],
    axis: str,
    table: tuple[Sequence[str], Iterable[Sequence[str]]],
    lists: Mapping[str, Sequence[str]],
) -> str:
    """Return a self-contained page for phones and screens, light, dark and printed.

    Args:
        title: Title and heading.
        sentences: The answer, first on the page.
        bars: Label, explanation and value of each line of the picture; the first is the baseline.
        axis: Label of the picture's axis.
        table: Heads and rows.
        lists: Lists of sentences by heading; empty ones are left out.
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
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8").partition("*,")[0],
    )  # fmt: skip
