"""Pictures show everything that was drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
from test_figure_spec import fabricated

from dpb_gym.papers import load_figures
from dpb_gym.papers.figure_output import draw

TARGETS = ["private-pricing/fig2", "private-pricing/fig4", "adaprivate-ts/table1"]


@pytest.mark.parametrize("target", TARGETS)
def test_no_curve_leaves_its_panel(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Panels of a row share the regret axis, columns have separate horizons, and no panel is
    drawn twice, also where the columns are variants."""
    drawn: list[Any] = []
    save = matplotlib.figure.Figure.savefig

    def keep(canvas: Any, *args: Any, **kwargs: Any) -> Any:
        drawn.append(canvas)
        return save(canvas, *args, **kwargs)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", keep)
    (figure,) = load_figures(target)
    draw(figure, fabricated(figure), tmp_path / "figure.png")
    (canvas,) = drawn
    horizons = set()
    for axes in canvas.axes:
        if not axes.lines:  # this run has no such horizon
            assert [text.get_text() for text in axes.texts] == ["not run"]
        for line in axes.lines:
            x, y = line.get_xdata(), line.get_ydata()
            (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
            assert left == low == 0.0
            assert np.max(x) <= right <= 1.2 * np.max(x) and np.max(y) <= high
            horizons.add(int(np.max(x)))
        assert all(len(part) <= 46 for part in axes.get_title(loc="left").split("\n"))
    titles = [axes.get_title(loc="left") for axes in canvas.axes]
    assert len(set(titles)) == len(titles)
    assert horizons == {task.horizon for task in figure.suite.tasks}
    assert (tmp_path / "figure.png").stat().st_size > 10_000
