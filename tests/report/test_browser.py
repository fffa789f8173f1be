"""The page in a real browser."""

from __future__ import annotations

import http.server
import json
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dpb_gym.report import Interval, html
from dpb_gym.report.grouping import groups
from dpb_gym.report.numerals import decimals, number

pytestmark = pytest.mark.browser

VISIBLE = """
const task = document.querySelector('#task-' + arguments[0]);
return [...task.querySelectorAll('tr.row')].filter(tr => tr.getClientRects().length)
  .map(tr => tr.querySelector('.label').textContent + '|' +
             tr.querySelector('td.budget').textContent.trim());
"""


def visible(page, task=0):
    """Labels and budgets of the rows that can be seen, from top to bottom."""
    return page.execute_script(VISIBLE, task)


def named(rows):
    return [f"{row.agent}|{'–' if row.budget == 'none' else row.budget}" for row in rows]


def find(page, selector):
    return page.find_element("css selector", selector)


def press(page, selector):
    """Clicks in the middle of an element, as a reader does."""
    element = find(page, selector)
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def keys(page, selector, text):
    element = find(page, selector)
    page.execute_script("arguments[0].focus()", element)
    assert page.switch_to.active_element == element
    element.send_keys(text)


def fragment(page):
    return page.execute_script("return location.hash")


@pytest.fixture(autouse=True)
def quiet(driver):
    """No test may leave an error or warning in the console."""
    yield
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []


def test_numbers_on_the_page_are_those_of_the_data(opened, make):
    data = make.data()
    page = opened(data)
    assert page.title == data.title
    for t, task in enumerate(data.tasks):
        places = decimals(row.regret.mean for row in task.rows)
        for i, row in enumerate(task.rows):
            cell = find(page, f"#row-{t}-{i} td.regret")
            assert find(page, f"#row-{t}-{i} td.regret .mean").text == number(
                row.regret.mean, places
            )
            assert float(cell.get_attribute("data-value")) == row.regret.mean
            assert number(row.regret.low, places) in cell.text
            score = find(page, f"#row-{t}-{i} td.score")
            assert float(score.get_attribute("data-value")) == row.score.mean


def test_rows_stand_by_group_and_regret_at_first(opened, make):
    data = make.data()
    page = opened(data)
    for t, task in enumerate(data.tasks):
        assert visible(page, t) == named(r for _, rows in groups(task.rows) for r in rows)
    header = find(page, "#task-0 th[data-sort=regret]")
    assert header.get_attribute("aria-sort") == "ascending"


def expected(task, key, reverse, apart=True):
    order = []
    for rows in [rows for _, rows in groups(task.rows)] if apart else [list(task.rows)]:
        rows = sorted(rows, key=lambda row: row.key)
        order += (
            sorted(rows, key=key, reverse=False)
            if not reverse
            else sorted(rows, key=lambda row: -key(row))
        )
    return named(order)


def test_a_click_sorts_a_column_within_each_guarantee(opened, make):
    data = make.data()
    page = opened(data)
    press(page, "#task-0 th[data-sort=speed] button")
    header = find(page, "#task-0 th[data-sort=speed]")
    assert header.get_attribute("aria-sort") == "descending"
    assert find(page, "#task-0 th[data-sort=regret]").get_attribute("aria-sort") is None
    for t, task in enumerate(data.tasks):
        assert visible(page, t) == expected(task, lambda row: row.rounds_per_second, True)
    press(page, "#task-0 th[data-sort=speed] button")
    assert header.get_attribute("aria-sort") == "ascending"
    assert visible(page) == expected(data.tasks[0], lambda row: row.rounds_per_second, False)


@pytest.mark.parametrize("key", ["\ue007", " "], ids=["enter", "space"])
def test_the_keyboard_sorts_too(opened, make, key):
    data = make.data()
    page = opened(data)
    keys(page, "#task-1 th[data-sort=reward] button", key)
    header = find(page, "#task-1 th[data-sort=reward]")
    assert header.get_attribute("aria-sort") == "descending"
    assert visible(page, 1) == expected(data.tasks[1], lambda row: row.reward.mean, True)


def test_every_column_sorts_and_missing_values_stay_last(opened, make):
    rng = np.random.default_rng(3)
    rows = tuple(
        make.row(
            rng,
            agent=f"A{k}",
            score=None if k % 2 else Interval(k / 10, 0, 1),
            rounds_per_second=None if k == 0 else float(10 + k),
            budget=f"rho={10.0 ** (k - 2):g}",
        )
        for k in range(5)
    )
    page = opened(make.data([replace(make.task(), rows=rows)]))

    def agents():
        return [label.split("|")[0] for label in visible(page)]

    press(page, "th[data-sort=score] button")
    assert agents() == ["A4", "A2", "A0", "A1", "A3"]
    press(page, "th[data-sort=score] button")
    assert agents() == ["A0", "A2", "A4", "A1", "A3"]
    press(page, "th[data-sort=speed] button")
    assert agents() == ["A4", "A3", "A2", "A1", "A0"]
    press(page, "th[data-sort=speed] button")
    assert agents() == ["A1", "A2", "A3", "A4", "A0"]
    press(page, "th[data-sort=budget] button")
    assert agents() == ["A0", "A1", "A2", "A3", "A4"]  # 0.01 ... 100, not by text
    press(page, "th[data-sort=agent] button")
    press(page, "th[data-sort=agent] button")
    assert agents() == ["A4", "A3", "A2", "A1", "A0"]
    press(page, "th[data-sort=guarantee] button")
    assert sorted(agents()) == agents()


def test_filters_by_problem_guarantee_budget_and_text(opened, make):
    data = make.data()
    page = opened(data)
    press(page, "input[name=problem][value=pricing]")
    assert [bool(visible(page, t)) for t in range(3)] == [False, True, False]
    assert find(page, "#status").text == "10 of 37 rows"
    press(page, "input[name=problem][value=assortment]")
    assert [bool(visible(page, t)) for t in range(3)] == [True, True, False]

    press(page, "#reset")
    press(page, "input[name=guarantee][value='joint/user-round']")
    for t, task in enumerate(data.tasks):
        rows = [r for _, members in groups(task.rows) for r in members if r.notion == "joint"]
        assert visible(page, t) == named(rows)
    press(page, "input[name=guarantee][value='non-private']")
    assert len(visible(page, 1)) == 4

    press(page, "#reset")
    press(page, "input[name=budget][value='rho=0.5']")
    for t in range(3):
        assert visible(page, t) and all(x.endswith("|rho=0.5") for x in visible(page, t))

    press(page, "#reset")
    keys(page, "#q", "adaprivate -UCB")
    assert [visible(page, t) for t in (0, 1)] == [[], []]
    assert {x.split("|")[0] for x in visible(page, 2)} == {"AdaPrivate-TS"}
    keys(page, "#q", " nothing like it")
    assert find(page, "#nothing").is_displayed()
    press(page, "#clear")
    assert sum(len(visible(page, t)) for t in range(3)) == 37
    assert not find(page, "#nothing").is_displayed()
    assert fragment(page) == ""


def test_the_keyboard_reaches_the_filters(opened, make):
    page = opened(make.data())
    keys(page, "input[name=problem][value=recommendation]", " ")
    assert [bool(visible(page, t)) for t in range(3)] == [False, False, True]


def test_guarantees_stand_apart_unless_asked_otherwise(opened, make):
    data = make.data()
    page = opened(data)
    assert not find(page, "#mixed").is_displayed()
    press(page, "#apart")
    assert find(page, "#mixed").is_displayed()
    assert visible(page) == expected(data.tasks[0], lambda r: r.regret.mean, False, apart=False)
    press(page, "#apart")
    assert visible(page) == expected(data.tasks[0], lambda r: r.regret.mean, False)


def test_the_address_holds_the_view_and_gives_it_back(opened, make):
    data = make.data()
    page = opened(data)
    press(page, "input[name=problem][value=assortment]")
    press(page, "input[name=budget][value='rho=1']")
    press(page, "th[data-sort=score] button")
    press(page, "th[data-sort=score] button")
    keys(page, "#q", "mnl")
    press(page, "#logy")
    press(page, "#row-0-2 .pin")
    seen, link = visible(page), fragment(page)
    assert len(seen) == 2

    page = opened(data, hash=link)
    assert visible(page) == seen
    assert find(page, "#q").get_attribute("value") == "mnl"
    assert find(page, "input[name=budget][value='rho=1']").is_selected()
    assert find(page, "#logy").is_selected() and not find(page, "#logx").is_selected()
    header = find(page, "#task-0 th[data-sort=score]")
    assert header.get_attribute("aria-sort") == "ascending"
    assert find(page, "#row-0-2 .pin").get_attribute("aria-pressed") == "true"
    assert fragment(page) == link

    page.execute_script("location.hash = 'problem=pricing&sort=agent'")
    assert [bool(visible(page, t)) for t in range(3)] == [False, True, False]
    header = find(page, "#task-1 th[data-sort=agent]")
    assert header.get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize(
    "odd",
    [
        "#sort=nonsense&dir=up&problem=poker&budget=rho%3D77&task=no&pin=a/b",
        "#%E0%A4%A",
        "#q=%00",
        "#problem=<script>alert(1)</script>",
    ],
)
def test_a_broken_address_does_no_harm(opened, make, odd):
    page = opened(make.data(), hash=odd)
    if "q=" in odd:
        assert find(page, "#nothing").is_displayed()
    else:
        assert sum(len(visible(page, t)) for t in range(3)) == 37


def test_task_links_go_to_their_task_and_into_the_address(opened, make):
    page = opened(make.data())
    press(page, ".tasks a:nth-child(3)")
    top = page.execute_script(
        "return document.querySelector('#task-2').getBoundingClientRect().top"
    )
    assert abs(top) < 40
    assert fragment(page) == "#task=recommendation-clip"
    page = opened(make.data(), hash="#task=pricing-clip")
    top = page.execute_script(
        "return document.querySelector('#task-1').getBoundingClientRect().top"
    )
    assert abs(top) < 40


def ends(page, task=0):
    """Pixel heights at which the curves end, by row."""
    return page.execute_script(
        """
        const found = {};
        document.querySelectorAll(`#task-${arguments[0]} .curves .series`).forEach(g => {
          const path = g.querySelector('.path');
          const p = path.getPointAtLength(path.getTotalLength());
          found[g.dataset.rows] = [p.x, p.y];
        });
        return found;
        """,
        task,
    )


@pytest.mark.parametrize("hash", ["", "#logx=1", "#logx=1&logy=1"])
def test_curves_end_where_the_data_say(opened, make, hash):
    task = make.task()
    page = opened(make.data([task]), hash=hash)
    found = ends(page)
    scale = np.log if "logy" in hash else np.asarray
    rows = {str(i): row for i, row in enumerate(task.rows) if row.curve[-1][1] > 0 or not hash[7:]}
    assert found.keys() == rows.keys()
    values = np.array([float(scale(row.curve[-1][1])) for row in rows.values()])
    heights = np.array([found[i][1] for i in rows])
    slope, offset = np.polyfit(values, heights, 1)
    assert slope < 0
    np.testing.assert_allclose(slope * values + offset, heights, atol=0.3)
    assert np.ptp([x for x, _ in found.values()]) < 0.1


def test_log_rounds_moves_the_points_to_log_places(opened, make):
    data = make.data([make.task()])
    page = opened(data, hash="#logx=1")
    places = page.execute_script(
        "return document.querySelector('.curves .path').getAttribute('d').match(/[ML][\\d.-]+/g)"
        ".map(s => +s.slice(1))"
    )
    rounds = [point[0] for point in data.tasks[0].rows[0].curve]
    slope, offset = np.polyfit(np.log(rounds), places, 1)
    np.testing.assert_allclose(slope * np.log(rounds) + offset, places, atol=0.1)


def lit(page, task=0):
    return page.execute_script(
        "return [...document.querySelectorAll(`#task-${arguments[0]} .curves .series.hot`)]"
        ".map(g => g.dataset.rows)",
        task,
    )


def test_pointing_at_a_row_singles_out_its_curve(opened, make):
    from selenium.webdriver import ActionChains

    page = opened(make.data(), height=1600)
    row = find(page, "#row-0-4 td.reward")
    ActionChains(page).move_to_element(row).perform()
    assert lit(page) == ["4"]
    ActionChains(page).move_to_element(find(page, "h1")).perform()
    assert lit(page) == []
    press(page, "#row-0-4 td.reward")
    ActionChains(page).move_to_element(find(page, "h1")).perform()
    assert lit(page) == ["4"]
    keys(page, "#row-0-6 .pin", " ")
    page.execute_script("document.activeElement.blur()")
    assert sorted(lit(page)) == ["4", "6"]
    press(page, "#reset")
    assert lit(page) == []


def test_pointing_at_a_curve_reads_it_out_and_marks_its_row(opened, make):
    from selenium.webdriver import ActionChains

    task = make.task()
    page = opened(make.data([task]), height=1600)
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
    actions = ActionChains(page)
    actions.w3c_actions.pointer_action.move_to_location(int(spot[0]), round(spot[1]))
    actions.perform()
    panel = find(page, ".readout").text
    t, mean, low, high = row.curve[-1]
    assert f"round {t:,}" in panel
    assert find(page, ".readout .near").text.split()[-1] == number(mean)
    assert number(low) in panel and number(high) in panel
    assert "hot" in find(page, "#row-0-7").get_attribute("class").split()
    assert lit(page) == ["7"]
    ActionChains(page).move_to_element(find(page, "h1")).perform()
    assert page.find_elements("css selector", ".readout") == []


def test_details_open_by_click_and_keyboard(opened, make):
    page = opened(make.data())
    panel = find(page, "#detail-0-0")
    assert not panel.is_displayed()
    press(page, "#row-0-0 .more button")
    assert panel.is_displayed() and "Probability of improvement" in panel.text
    assert find(page, "#row-0-0 .more button").get_attribute("aria-expanded") == "true"
    assert find(page, "#row-0-0 .pin").get_attribute("aria-pressed") == "false"
    keys(page, "#row-0-0 .more button", " ")
    assert not panel.is_displayed()
    keys(page, "#row-0-1 .more button", "\ue007")
    panel = find(page, "#detail-0-1")
    assert panel.is_displayed()
    press(page, "th[data-sort=agent] button")
    after = page.execute_script("return document.querySelector('#row-0-1').nextElementSibling.id")
    assert after == "detail-0-1" and panel.is_displayed()


def test_guarantees_are_explained_on_demand(opened, make):
    page = opened(make.data())
    text = find(page, "#task-0 tbody tr.group p")
    assert not text.is_displayed()
    press(page, "#task-0 tbody tr.group summary")
    assert text.is_displayed() and "one customer" in text.text


def test_frontiers_stand_where_budgets_vary_and_only_within_a_guarantee(opened, make):
    tasks = [
        make.task("assortment", task="one", budgets=(1.0,)),
        make.task("recommendation", task="two", budgets=(0.1, 0.5, 1.0)),
    ]
    page = opened(make.data(tasks))
    assert page.find_elements("css selector", "#task-0 .frontiers figure") == []
    captions = [e.text for e in page.find_elements("css selector", "#task-1 .frontiers figcaption")]
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
        "return [...document.querySelectorAll('#task-1 .charts > *')].map(n => n.offsetHeight)"
    )
    assert abs(heights[0] - heights[1]) < 20  # two frontiers stand beside one taller chart
    press(page, "input[name=budget][value='rho=1']")
    assert len(page.find_elements("css selector", "#task-1 .frontiers figure")) == 2


@pytest.mark.parametrize("width", [320, 375, 430, 701, 768, 1024, 1280])
@pytest.mark.parametrize("shape", ["usual", "crowd", "odd"])
def test_no_width_makes_the_page_scroll_sideways(opened, make, width, shape):
    rng = np.random.default_rng(0)
    long = "word" * 30
    odd = tuple(
        make.row(
            rng,
            agent=f"{long}{k}",
            name=long,
            guarantee=long,
            notion="joint",
            unit="user-round",
            budget=f"rho={10.0**k:g}",
            params={long: long},
            regret=Interval(v, v / 2, v * 2),
            reward=Interval(v, v, v),
            score=Interval(-4.0, -12345.0, 1.0),
        )
        for k, v in enumerate((1e300, 123456789.0, 1e-300))
    )
    data = {
        "usual": make.data,
        "crowd": lambda: make.crowd(rows=12, tasks=2),
        "odd": lambda: make.data(
            [replace(make.task(), task=long, env_id=long, rows=odd)],
            title=long,
            command=long * 3,
            notes=(long,),
            revision=long,
        ),
    }[shape]()
    page = opened(data, width=width, height=800)
    if width <= 700:
        assert not find(page, "#choices").is_displayed()
        press(page, "#fold")
    assert find(page, "#choices").is_displayed()
    for button in page.find_elements("css selector", ".more button")[:3]:
        page.execute_script("arguments[0].click()", button)
    inner, outer = page.execute_script(
        "const d = document.documentElement; return [d.scrollWidth, d.clientWidth]"
    )
    assert outer == width
    assert inner <= outer


def test_a_phone_shows_agent_regret_and_score_and_the_rest_on_demand(opened, make):
    data = make.data()
    page = opened(data, width=375, height=800)
    for name, shown in (
        ("regret", True),
        ("score", True),
        ("reward", False),
        ("speed", False),
        ("guarantee", False),
        ("budget", False),
    ):
        assert find(page, f"#row-0-0 td.{name}").is_displayed() is shown
    assert find(page, "#row-0-0 .under").text == data.tasks[0].rows[0].budget
    press(page, "#row-0-0 .more button")
    panel = find(page, "#detail-0-0").text
    assert data.tasks[0].rows[0].guarantee in " ".join(panel.split())
    press(page, "#task-0 th[data-sort=score] button")
    assert visible(page)[0].startswith("One-pass MNL")


def contrast(page, selector):
    """WCAG contrast of an element's text against the page."""
    text, back = page.execute_script(
        "return [getComputedStyle(document.querySelector(arguments[0])).color,"
        "getComputedStyle(document.body).backgroundColor]",
        selector,
    )

    def level(colour):
        parts = [float(x) / 255 for x in colour.split("(")[1].rstrip(")").split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((level(text), level(back)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_is_readable_in_both_themes(opened, make, dark):
    page = opened(make.data(), dark=dark)
    back = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") is not dark
    for selector in (
        "h1",
        ".meta",
        "td.guarantee",
        ".ends",
        "thead button",
        ".tasks a",
        ".verdict.pass",
        ".verdict.fail",
        "tr.reference .label",
    ):
        assert contrast(page, selector) >= 4.5, selector


def test_nasty_labels_are_shown_as_they_are_and_run_nothing(opened, make):
    labels = [
        "</script><script>window.hacked=1</script>",
        "<img src=x onerror=window.hacked=1>",
        "\"' onmouseover='window.hacked=1",
        "&amp; {{ 1 }}",
        "数据 🎲",
    ]
    rng = np.random.default_rng(0)
    rows = tuple(
        make.row(
            rng,
            agent=label,
            regret=Interval(k, k, k),
            budget=f"rho={k + 1}",
            notion="<b>n</b>",
            unit="<i>u</i>",
        )
        for k, label in enumerate(labels)
    )
    page = opened(make.data([replace(make.task(), rows=rows, task="<u>t</u>")]), width=1280)
    shown = [e.text for e in page.find_elements("css selector", ".label")]
    assert shown == labels
    assert page.execute_script("return window.hacked === undefined")
    assert page.find_elements("css selector", "main b b, main i i, main u, img") == []
    drawn = page.execute_script(
        "return [...document.querySelectorAll('.curves .end')].map(t => t.textContent)"
    )
    assert sorted(text[:6] for text in drawn) == sorted(f"{label} rho"[:6] for label in labels)


def test_empty_leaderboards_open(opened, make):
    assert "no tasks yet" in find(opened(make.data([])), "main").text
    page = opened(make.data([replace(make.task(), rows=())]))
    assert "No results yet" in find(page, "#task-0").text


def test_wild_numbers_open(opened, make):
    rng = np.random.default_rng(0)
    rows = tuple(
        make.row(
            rng,
            agent=f"A{k}",
            regret=Interval(v, min(v, 0.9 * v), max(v, 1.1 * v)),
            budget=f"rho={k + 1}",
            notion="joint",
            unit="user-round",
        )
        for k, v in enumerate((1e300, -1e300, 1e-300, 0.0, 1e15, 5.0))
    )
    for hash in ("", "#logx=1&logy=1"):
        page = opened(make.data([replace(make.task(), rows=rows)]), hash=hash)
        broken = page.execute_script(
            "return [...document.querySelectorAll('svg *')].filter(n => [...n.attributes]"
            ".some(a => /NaN|Infinity/.test(a.value))).map(n => n.outerHTML)"
        )
        assert broken == []


def test_no_request_leaves_the_page(driver, opened, make, tmp_path):
    """Served over HTTP, the page is asked for once and nothing else is, icon included."""
    html(make.data(), tmp_path / "served" / "board.html")
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_request(self, code="-", size="-"):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "served"))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        opened(make.data([]))
        driver.get_log("performance")
        driver.get(f"http://127.0.0.1:{server.server_port}/board.html")
        press(driver, "#logx")
        press(driver, "#row-0-0 .more button")
        press(driver, "th[data-sort=score] button")
    finally:
        server.shutdown()
        server.server_close()
    assert asked == ["/board.html"]
    sent = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            sent.append(message["params"]["request"]["url"])
    assert [url.split("/")[-1] for url in sent if not url.startswith("data:")] == ["board.html"]
