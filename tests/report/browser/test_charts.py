"""Curves and frontiers in a real browser."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.number_format import number

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("hash", ["", "#logx=0", "#logx=0&logy=0"])
def test_curves_end_at_the_regret_of_their_rows(opened, make, hash):
    task = make.task()
    page = opened(make.data([task]), hash=hash)
    ends = page.ends()
    log = "logy" not in hash
    scale = np.log if log else np.asarray
    rows = {str(i): row for i, row in enumerate(task.rows) if row.curve[-1][1] > 0 or not log}
    assert ends.keys() == rows.keys()
    values = np.array([float(scale(row.curve[-1][1])) for row in rows.values()])
    heights = np.array([ends[i][1] for i in rows])
    slope, offset = np.polyfit(values, heights, 1)
    assert slope < 0
    np.testing.assert_allclose(slope * values + offset, heights, atol=0.3)
    assert np.ptp([x for x, _ in ends.values()]) < 0.1


def test_log_rounds_moves_points_to_a_log_scale(opened, make):
    data = make.data([make.task()])
    page = opened(data)
    places = page.execute_script(
        "return document.querySelector('.curves .path').getAttribute('d').match(/[ML][\\d.-]+/g)"
        ".map(s => +s.slice(1))"
    )
    horizon = data.tasks[0].horizon
    rounds = [t for t, *_ in data.tasks[0].rows[0].curve if t >= horizon / 100]
    slope, offset = np.polyfit(np.log(rounds), places, 1)
    np.testing.assert_allclose(slope * np.log(rounds) + offset, places, atol=0.1)


def test_pointing_at_a_row_highlights_its_curve(opened, make):
    page = opened(make.data())
    page.hover("#row-0-4 td.reward")
    assert page.lit() == ["4"]
    page.hover("h1")
    assert page.lit() == []
    page.press("#row-0-4 td.reward")
    page.hover("h1")
    assert page.lit() == ["4"]
    page.keys("#row-0-6 .pin", " ")
    page.execute_script("document.activeElement.blur()")
    assert sorted(page.lit()) == ["4", "6"]
    page.press("#reset")
    assert page.lit() == []


def test_pointing_at_a_curve_shows_its_values_and_highlights_its_row(opened, make):
    from selenium.webdriver import ActionChains

    task = make.task()
    page = opened(make.data([task]))
    row = task.rows[7]
    assert row.agent == "DPMNL"
    spot = page.execute_script(
        """
        const path = document.querySelector('.curves .series[data-rows="7"] .path');
        const p = path.getPointAtLength(path.getTotalLength());
        const box = path.ownerSVGElement.getBoundingClientRect();
        return [box.left + p.x, box.top + p.y];
        """
    )
    actions = ActionChains(page.driver)
    actions.w3c_actions.pointer_action.move_to_location(int(spot[0]), round(spot[1]))
    actions.perform()
    panel = page.find(".readout").text
    t, mean, low, high = row.curve[-1]
    assert f"round {t:,}" in panel
    assert page.find(".readout .near").text.split()[-1] == number(mean)
    best = sorted((r for r in task.rows if r.curve[-1][1] > 0), key=lambda r: r.curve[-1][1])[:6]
    listed = [e.text for e in page.all(".readout td.ink")]
    assert [label.split(" rho")[0] for label in listed] == [r.agent for r in best] + ["DPMNL"]
    assert number(low) in panel and number(high) in panel
    assert "hot" in page.find("#row-0-7").get_attribute("class").split()
    assert page.lit() == ["7"]
    page.hover("h1")
    assert page.all(".readout") == []


def test_frontiers_are_drawn_per_guarantee_with_several_budgets(opened, make):
    tasks = [
        make.task("assortment", task="one", budgets=(1.0,)),
        make.task("recommendation", task="two", budgets=(0.1, 0.5, 1.0)),
    ]
    page = opened(make.data(tasks))
    assert page.all("#task-0 .frontiers figure") == []
    captions = [e.text for e in page.all("#task-1 .frontiers figcaption")]
    assert sorted(captions) == [
        "Final regret by budget, central, per reward",
        "Final regret by budget, joint, per user-round",
    ]
    titles = page.execute_script(
        "return [...document.querySelectorAll('#task-1 .frontiers title')].map(t => t.textContent)"
    )
    rows = {f"{r.agent} {r.budget}": r for r in tasks[1].rows if r.private}
    assert {title.split(":")[0] for title in titles} == set(rows)
    for title in titles:
        assert number(rows[title.split(":")[0]].regret.mean) in title
    heights = page.execute_script(
        "return [...document.querySelectorAll('#task-1 .frontiers figure')]"
        ".map(n => n.offsetHeight)"
    )
    assert len(heights) == 2 and min(heights) > 150
    levels = "return document.querySelectorAll('#task-1 .frontiers .path.dashed').length"
    assert page.execute_script(levels) == 2  # the best without privacy stands in each
    page.unfold()
    page.press("input[name=budget][value='rho=1']")
    assert len(page.all("#task-1 .frontiers figure")) == 2


def test_extreme_numbers_are_drawn(opened, make):
    rng = np.random.default_rng(0)
    rows = tuple(
        make.row(
            rng,
            agent=f"A{k}",
            regret=Interval(v, -1.0 if v == 5.0 else min(v, 0.9 * v), max(v, 1.1 * v)),
            budget=f"rho={k + 1}",
            notion="joint",
            unit="user-round",
        )
        for k, v in enumerate((1e300, -1e300, 1e-300, 0.0, 1e15, 5.0))
    )
    for hash in ("", "#logx=0&logy=0"):
        page = opened(make.data([replace(make.task(), rows=rows)]), hash=hash)
        broken = page.execute_script(
            "return [...document.querySelectorAll('svg *')].filter(n => [...n.attributes]"
            ".some(a => /NaN|Infinity/.test(a.value))).map(n => n.outerHTML)"
        )
        assert broken == []
