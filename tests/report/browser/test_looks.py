"""Widths, themes, odd content and absence of requests in a real browser."""

from __future__ import annotations

import http.server
import json
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dpb_gym.report import html
from dpb_gym.report.leaderboard_data import Interval

pytestmark = pytest.mark.browser


WIDTHS = [320, 375, 430, 701, 768, 1024, 1280]
SHOWN = {"usual": (375, 768), "crowd": (430, 1024), "odd": (320, 701, 1280)}
"""Widths of `make test`: each once. Contents are widest in the last shape."""


@pytest.mark.parametrize(
    ("shape", "width"),
    [
        pytest.param(shape, width, marks=() if width in shown else pytest.mark.long)
        for shape, shown in SHOWN.items()
        for width in WIDTHS
    ],
)
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
    page = opened(data, width=width)
    assert not page.find("#choices").is_displayed()
    page.press("#fold")
    assert page.find("#choices").is_displayed()
    page.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.settle()
    for button in page.all(".more button")[:3]:
        page.execute_script("arguments[0].click()", button)
    inner, outer = page.execute_script(
        "const d = document.documentElement; return [d.scrollWidth, d.clientWidth]"
    )
    assert outer == width
    assert inner <= outer


def test_a_phone_shows_agent_regret_and_score_and_the_rest_on_demand(opened, make):
    data = make.data()
    page = opened(data, width=375)
    for name, shown in (
        ("regret", True),
        ("score", True),
        ("reward", False),
        ("rounds_per_second", False),
        ("guarantee", False),
        ("budget", False),
    ):
        assert page.find(f"#row-0-0 td.{name}").is_displayed() is shown
    assert page.find("#row-0-0 .under").text == str(data.tasks[0].rows[0].budget)
    page.press("#row-0-0 .more button")
    panel = page.find("#detail-0-0").text
    assert data.tasks[0].rows[0].guarantee in " ".join(panel.split())
    page.press("#task-0 th[data-sort=score] button")
    assert page.visible()[0].startswith("One-pass MNL")


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1400, False)])
def test_text_is_readable_in_both_themes(opened, make, dark, width):
    page = opened(make.data(), dark=dark, width=width)
    back = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") is not dark
    page.unfold()
    page.unfold_all()
    contrasts = page.contrasts()
    assert len(contrasts) > 400 and contrasts[0][0] >= 4.5, contrasts[:5]


NAMED = {"button", "checkbox", "combobox", "image", "img", "link", "radio", "region", "table"}
NAMED |= {"searchbox", "textbox", "form"}


def test_a_screen_reader_gets_a_name_of_everything_to_use(opened, make):
    page = opened(make.arena(agents=9, sizes=2, budgets=3))
    page.unfold()
    page.unfold_all()
    nodes = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    used = [node for node in nodes if node.get("role", {}).get("value") in NAMED]
    assert {node["role"]["value"] for node in used} >= {"button", "combobox", "radio", "table"}
    assert len(used) > 100
    assert [node for node in used if not node.get("name", {}).get("value")] == []


FOCUSED = """
const node = document.activeElement;
const outlined = one => (({ outlineStyle, outlineWidth, opacity }) =>
  opacity > 0 && outlineStyle === 'solid' && parseFloat(outlineWidth) > 0)(getComputedStyle(one));
const shown = outlined(node) || (node.nextElementSibling && outlined(node.nextElementSibling));
return [node.name || node.id || node.value || node.tagName, Boolean(shown)];
"""


def test_the_tab_key_visits_the_switches_in_order_and_shows_where_it_is(opened, make):
    from selenium.webdriver import ActionChains, Keys

    page = opened(make.arena(agents=9, sizes=2, budgets=3), width=390, height=844)
    visited = []
    while "q" not in visited and len(visited) < 80:
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        name, shown = page.execute_script(FOCUSED)
        assert shown, name
        visited.append(name)
    wanted = ["trust", "board", "heat", "rho=0.1", "Agent A of assortment", "q"]
    assert set(wanted) <= set(visited), visited
    places = [visited.index(name) for name in wanted]
    assert places == sorted(places)


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
            curve=[(10, 1.0, 0.5, 2.0), (10_000, 10.0 + k, 9.0, 20.0)],
        )
        for k, label in enumerate(labels)
    )
    page = opened(make.data([replace(make.task(), rows=rows, task="<u>t</u>")]), width=1280)
    shown = [e.text for e in page.all(".label")]
    assert shown == labels
    assert page.execute_script("return window.hacked === undefined")
    assert page.all("main b b, main i i, main u, #heat u, #pictures u, img") == []
    drawn = page.execute_script(
        "return [...document.querySelectorAll('.curves .end')].map(t => t.textContent)"
    )
    assert sorted(text[:6] for text in drawn) == sorted(label[:6] for label in labels)


def test_empty_leaderboards_open(opened, make):
    assert "no tasks yet" in opened(make.data([])).find("body").text
    page = opened(make.data([replace(make.task(), rows=())]))
    assert "No results yet" in page.find("body").text


def test_no_request_leaves_the_page(opened, make, tmp_path):
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
        page = opened(make.data([]))
        page.get_log("performance")
        page.get(f"http://127.0.0.1:{server.server_port}/board.html")
        page.press("#fold")
        page.press("#logx")
        page.press("#row-0-0 .more button")
        page.press("th[data-sort=score] button")
    finally:
        server.shutdown()
        server.server_close()
    assert asked == ["/board.html"]
    sent = []
    for entry in page.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            sent.append(message["params"]["request"]["url"])
    assert [url.split("/")[-1] for url in sent if not url.startswith("data:")] == ["board.html"]
