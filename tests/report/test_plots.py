"""The regret plot."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from dpb_gym.errors import ParameterError, UnknownNameError
from dpb_gym.report import plot, plot_frontier
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.tables import board


def colours(data):
    """Colour on paper by agent label."""
    return {x.row.agent: x.colour[0] for table in board(data).tasks for x in table.lines}


def panels(figure):
    """Return the axes with data; legends have separate axes."""
    return [axes for axes in figure.axes if axes.axison]


def pixels(path):
    with Image.open(path) as image:
        image.verify()
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB")).astype(int)


def count(image, colour, tolerance=12):
    target = np.array([round(255 * c) for c in to_rgb(colour)])
    return int((np.abs(image - target).max(axis=2) <= tolerance).sum())


@pytest.mark.slow
def test_png_shows_every_agent_in_its_colour(make, tmp_path):
    data = make.data()
    path = tmp_path / "deep" / "er" / "regret.png"
    plot(data, path)
    image = pixels(path)
    assert image.shape[0] > 400 and image.shape[1] > 1000
    for agent, shade in colours(data).items():
        assert count(image, shade) > 60, agent


@pytest.mark.slow
def test_curves_follow_the_regret(make, tmp_path):
    """With the regret of one agent doubled, its line ends higher and the other's lower."""

    def heights(scale):
        rng = np.random.default_rng(0)
        rows = tuple(
            make.row(rng, agent=name, name=name, regret=Interval(top, top, top))
            for name, top in (("a", 100.0), ("b", 100.0 * scale))
        )
        task = replace(make.task(), rows=rows)
        plot(task, tmp_path / f"{scale}.png", y="linear")
        image = pixels(tmp_path / f"{scale}.png")
        tops = []
        for agent in ("a", "b"):
            target = np.array([round(255 * c) for c in to_rgb(colours(task)[agent])])
            mask = np.abs(image[:500] - target).max(axis=2) <= 12
            tops.append(np.flatnonzero(mask.any(axis=1)).min())
        return tops

    low, high = heights(2.0), heights(4.0)
    assert low[1] < low[0] and high[1] < high[0]
    assert high[0] > low[0] and abs(high[1] - low[1]) <= 3


@pytest.mark.slow
def test_lines_and_bands_have_the_values_of_the_curves(make):
    data = make.data()
    figure = plot(data, x="linear", y="linear")
    assert [axes.get_title("left") for axes in panels(figure)] == [task.task for task in data.tasks]
    for axes, task in zip(panels(figure), data.tasks):
        lines = {tuple(line.get_ydata()): line for line in axes.lines}
        bands = [band.get_paths()[0].vertices for band in axes.collections]
        assert len(lines) == len(bands) == len(task.rows)
        for row in task.rows:
            t, mean, low, high = zip(*row.curve)
            line = lines[mean]
            assert tuple(line.get_xdata()) == t
            assert line.get_color() == colours(data)[row.agent]
            assert (line.get_linestyle() == "-") is row.private
            assert any(
                {(t[-1], low[-1]), (t[-1], high[-1]), (t[0], low[0])} <= set(map(tuple, band))
                for band in bands
            )


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".PDF", ".svg"])
def test_formats_by_suffix_and_the_same_bytes_twice(make, tmp_path, suffix):
    for name in "ab":
        plot(make.task(), tmp_path / f"{name}{suffix}")
    first, second = ((tmp_path / f"{name}{suffix}").read_bytes() for name in "ab")
    assert first == second
    if suffix == ".svg":
        assert ElementTree.fromstring(first).tag.endswith("svg")
    else:
        assert first.startswith(b"\x89PNG" if suffix == ".png" else b"%PDF")
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"a{suffix}", f"b{suffix}"]


@pytest.mark.parametrize("name", ["regret.gif", "regret", "regret.png.txt", ".png", ""])
def test_other_suffixes_are_refused_before_anything_is_written(make, tmp_path, name):
    with pytest.raises(ParameterError, match=r"\.png, \.pdf, \.svg"):
        plot(make.task(), tmp_path / "new" / name if name else "")
    assert list(tmp_path.iterdir()) == []


def test_bad_targets_and_data_are_refused(make, tmp_path):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ParameterError, match="folder"):
        plot(make.task(), tmp_path / "folder.png")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ParameterError, match="not a folder"):
        plot(make.task(), tmp_path / "file" / "regret.png")
    with pytest.raises(ParameterError, match="got 3"):
        plot(make.task(), 3)
    with pytest.raises(ParameterError, match="LeaderboardData"):
        plot([make.task()], tmp_path / "regret.png")


@pytest.mark.parametrize("logs", [{}, {"x": "linear"}, {"y": "log"}, {"x": "linear", "y": "log"}])
def test_empty_lone_crowded_and_extreme_data_are_drawn(make, tmp_path, logs):
    rng = np.random.default_rng(0)
    task = make.task()
    lone = make.row(rng, curve=[(10, 5.0, 4.0, 6.0)])
    wild = tuple(
        make.row(rng, agent=label, regret=Interval(mean, mean - abs(mean) / 9, mean + abs(mean)))
        for label, mean in (
            ("$\\alpha$", 1e-12),
            ("_under", 3e200),
            ("<b>&", 0.0),
            ("$broken", -5.0),
            ("word" * 60, 1e7),
        )
    )
    for k, data in enumerate(
        (
            make.data([]),
            make.data([replace(task, rows=())]),
            replace(task, rows=(lone,)),
            replace(task, rows=(make.row(rng, curve=()),)),
            replace(task, rows=wild),
            make.crowd(rows=30, tasks=5) if not logs else make.crowd(rows=3, tasks=4),
        )
    ):
        plot(data, tmp_path / f"{k}.png", **logs)
        assert pixels(tmp_path / f"{k}.png").std() > 0


def test_agents_and_scales_are_chosen_and_misspellings_named(make):
    task = make.task()
    figure = plot(task, agents=["DPMNL", "Oracle"])
    (axes,) = panels(figure)
    rows = [row for row in task.rows if row.agent == "DPMNL"]
    assert len(axes.lines) == len(rows) and axes.get_xscale() == axes.get_yscale() == "log"
    with pytest.raises(UnknownNameError, match="did you mean 'DPMNL'"):
        plot(task, agents=["DPMNl"])
    with pytest.raises(ParameterError, match="'log', 'linear'"):
        plot(task, x="logarithmic")


def test_a_task_is_drawn_into_given_axes(make):
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot(make.task(), ax=left) is figure and plot_frontier(make.task(), ax=right) is figure
    assert left.lines and right.lines and left.get_legend() is not None
    with pytest.raises(ParameterError, match="one panel"):
        plot(make.data(), ax=left)


@pytest.mark.slow
def test_a_figure_shows_in_a_notebook(make):
    assert plot(make.task())._repr_png_().startswith(b"\x89PNG")


def test_frontiers_are_drawn_at_the_regret_of_their_rows(make):
    task = make.task("assortment")
    (axes,) = panels(plot_frontier(task))
    for agent in ("One-pass MNL", "Noisy Newton", "DPMNL"):
        rows = sorted((r.budget.rho, r.regret.mean) for r in task.rows if r.agent == agent)
        assert any([tuple(point) for point in line.get_xydata()] == rows for line in axes.lines), (
            agent
        )
    best = min(
        r.regret.mean for r in task.rows if not r.private and r.name not in ("oracle", "random")
    )
    assert any(set(line.get_ydata()) == {best} for line in axes.lines)
    bare = replace(task, rows=tuple(row for row in task.rows if not row.private))
    with pytest.raises(ParameterError, match="no row has a budget"):
        plot_frontier(bare)


def test_long_names_do_not_squeeze_the_panel(make):
    task = make.task("assortment")
    names = dict.fromkeys(row.agent for row in task.rows if not row.private)
    long = {name: f"Without privacy, number {i}" for i, name in enumerate(names)}
    rows = tuple(replace(row, agent=long.get(row.agent, row.agent)) for row in task.rows)
    figure = plot_frontier(replace(task, rows=rows), agents=["One-pass MNL", "DPMNL"])
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    assert panels(figure)[0].get_position().width > 0.75
    assert legend.get_window_extent(renderer).x1 <= figure.bbox.x1


@pytest.mark.slow
@pytest.mark.parametrize("draw", [plot, plot_frontier])
def test_four_budgets_of_six_agents_have_a_legend_that_fits(make, draw):
    """No text of the figure leaves it or overlaps another."""
    data = make.arena(agents=12, sizes=1, budgets=4)
    task = data.tasks[0]
    figure = draw(task, agents=sorted({row.agent for row in task.rows if row.private}))
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    boxes = [text.get_window_extent(renderer) for text in legend.get_texts()]
    axes = panels(figure)[0].get_tightbbox(renderer)
    assert len(boxes) == 6 + 4 if draw is plot else 7
    for i, box in enumerate(boxes):
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= axes.y0
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_no_global_state_is_touched(make, tmp_path):
    """Neither pyplot nor another backend is loaded, and the settings do not change."""
    code = f"""
import sys
import dpb_gym.report
assert "matplotlib" not in sys.modules and "jinja2" not in sys.modules
from dpb_gym.report import plot
from dpb_gym.report.leaderboard_data import LeaderboardData
import matplotlib
before = matplotlib.rcParams.copy()
plot(LeaderboardData("t", "s", "2026-01-01", "0", None, "", ()), {str(tmp_path / "x.png")!r})
assert dict.__eq__(matplotlib.rcParams, before)
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
