"""The page as a document: complete, escaped, self-contained, written whole."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpb_gym.errors import ParameterError
from dpb_gym.files import write_whole
from dpb_gym.report import Interval, html
from dpb_gym.report.numerals import decimals, number
from dpb_gym.report.page import TEMPLATES, render
from dpb_gym.report.page_parts import MAX_POINTS

VOID = {"meta", "link", "input", "line", "path", "br"}


class Page(HTMLParser):
    """Reads tags, attributes and the text of each element; fails on bad nesting."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.elements, self.ids = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **dict(attributes)}
        self.tags.append((tag, tuple(sorted(name for name, _ in attributes))))
        self.elements.append(element)
        if "id" in element:
            self.ids.append(element["id"])
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1]["tag"] == tag, (tag, self.getpos())
        self.open.pop()

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def named(self, name):
        return [e for e in self.elements if name in (e.get("class") or "").split()]

    def payload(self):
        (element,) = [e for e in self.elements if e.get("id") == "data"]
        return json.loads(element["text"])


LABELS = st.text(
    st.characters(
        exclude_categories=["Cc", "Cs", "Zl", "Zp"],
        exclude_characters="\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    ),
    min_size=1,
    max_size=40,
).filter(str.strip)
NASTY = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"' onclick=alert(1) '",
    "&lt;b&gt; & &amp;",
    "{{ 7 * 7 }}{% raw %}",
    "<!--",
    "]]>",
    "数据 🎲 é",
    "`${alert(1)}`",
    "</style>",
    "a\\u003c",
]


def nasty_page(make, text):
    """A page with `text` in every place that users reach."""
    rng = np.random.default_rng(0)
    rows = tuple(
        make.row(
            rng,
            agent=f"{text} {k}",
            name=text,
            guarantee=text,
            notion=text,
            unit=text,
            budget=f"{text}{k}",
            params={text: text, f"{text}2": [text]},
            regret=Interval(k, k, k + 1),
            score=Interval(0.5, 0.4, 0.6),
            improvement={f"{text} {1 - k} ({text}{1 - k})": 0.5},
            audit={"claimed": 1.0, "lower_bound": 0.5, "verdict": text},
        )
        for k in range(2)
    )
    task = replace(make.task(), task=text, env_id=text, description=text, rows=rows)
    return make.data(
        [task], title=text, suite=text, version=text, revision=text, command=text, notes=(text,)
    )


@settings(max_examples=40, deadline=None)
@given(text=LABELS)
@example(text=NASTY[0])
@example(text=NASTY[1])
@example(text=NASTY[2])
@example(text=NASTY[3])
@example(text=NASTY[4])
@example(text=NASTY[5])
@example(text=NASTY[7])
@example(text=NASTY[9])
def test_no_label_changes_the_markup_and_each_reads_back(make, text):
    plain, page = (Page(render(nasty_page(make, t))) for t in ("plain", text))
    assert page.tags == plain.tags
    assert [e["text"] for e in page.named("label")] == [f"{text} 0", f"{text} 1"]
    assert page.payload()["tasks"][0]["task"] == text
    assert [r["agent"] for r in page.payload()["tasks"][0]["rows"]] == [f"{text} 0", f"{text} 1"]
    (title,) = [e for e in page.elements if e["tag"] == "title"]
    assert title["text"] == text
    chips = [e["value"] for e in page.elements if e.get("name") == "budget"]
    assert sorted(chips) == sorted([f"{text}0", f"{text}1"])
    scripts = [e for e in page.elements if e["tag"] == "script"]
    assert len(scripts) == 2 and scripts[0]["type"] == "application/json"
    assert scripts[1]["text"] == [e for e in plain.elements if e["tag"] == "script"][1]["text"]


def test_every_row_shows_its_numbers(make):
    data = make.data()
    page = Page(render(data))
    text = [e for e in page.elements if e["tag"] == "tr" and "row" in (e.get("class") or "")]
    rows = {e["id"]: e["text"] for e in text}
    assert len(rows) == sum(len(task.rows) for task in data.tasks)
    for t, task in enumerate(data.tasks):
        places = decimals(row.regret.mean for row in task.rows)
        for i, row in enumerate(task.rows):
            shown = rows[f"row-{t}-{i}"]
            assert row.agent in shown and row.guarantee in shown
            for value in (row.regret.mean, row.regret.low, row.regret.high):
                assert number(value, places) in shown
            assert number(row.score.mean, 3) in shown
            assert number(row.rounds_per_second) in shown
            if row.audit:
                assert row.audit["verdict"] in shown


def test_details_hold_the_rest(make):
    task = make.task("assortment")
    page = Page(render(make.data([task])))
    panels = {e["id"]: e["text"] for e in page.elements if e.get("id", "").startswith("detail-")}
    for i, row in enumerate(task.rows):
        panel = panels[f"detail-0-{i}"]
        assert row.guarantee in panel and row.name in panel
        assert all(key in panel and str(value) in panel for key, value in row.params.items())
        if row.clipped is not None:
            assert f"Records clipped{row.clipped}" in re.sub(r"\s+", "", panel).replace(
                "Recordsclipped", "Records clipped"
            )
    payload = page.payload()["tasks"][0]["rows"]
    for i, row in enumerate(task.rows):
        found = dict(zip((other.key for other in task.rows), payload[i]["chances"]))
        assert found.pop(row.key) is None
        assert found == pytest.approx(row.improvement, abs=5.01e-4)


def test_score_bars_stand_where_the_scores_are(make):
    rng = np.random.default_rng(0)
    scores = [(0.5, 0.25, 0.75), (-0.2, -0.25, -0.1), (1.1, 1.0, 1.2)]
    rows = tuple(
        make.row(rng, agent=f"A{k}", regret=Interval(k, k, k), score=Interval(*score))
        for k, score in enumerate(scores)
    )
    page = Page(render(make.data([replace(make.task(), rows=rows)])))

    def places(name):
        found = [re.findall(r"(left|width):([-\d.]+)%", e["style"]) for e in page.named(name)]
        return [{key: float(value) for key, value in style} for style in found]

    low, high = -0.25, 1.2

    def at(score):
        return 100 * (score - low) / (high - low)

    for (mean, lower, upper), fill, zero, whisker in zip(
        scores, places("fill"), places("zero"), places("whisker")
    ):
        assert zero["left"] == pytest.approx(at(0), abs=0.01)
        assert fill["left"] == pytest.approx(at(min(0, mean)), abs=0.01)
        assert fill["width"] == pytest.approx(abs(at(mean) - at(0)), abs=0.02)
        assert whisker["left"] == pytest.approx(at(lower), abs=0.01)
        assert whisker["width"] == pytest.approx(at(upper) - at(lower), abs=0.02)


def test_optional_columns_appear_only_with_something_to_show(make):
    def columns(task):
        page = Page(render(make.data([task])))
        return [e["data-sort"] for e in page.elements if "data-sort" in e]

    base = ["agent", "budget", "guarantee", "regret", "reward", "speed"]
    full = make.task()
    assert columns(full) == [*base[:4], "score", *base[4:], "audit"]
    bare = replace(full, rows=tuple(replace(r, score=None, audit=None) for r in full.rows))
    assert columns(bare) == base


@pytest.mark.parametrize("shape", ["none", "empty", "one", "crowd", "wild"])
def test_pages_of_every_size_are_well_formed(make, shape):
    rng = np.random.default_rng(0)
    task = make.task()
    wild = tuple(
        make.row(
            rng,
            agent=f"A{k}",
            regret=Interval(v, v, v),
            reward=Interval(v, v, v),
            rounds_per_second=abs(v) or 1e-300,
            score=Interval(v, v, v),
            curve=[(0, v, v, v)],
        )
        for k, v in enumerate((1e300, -1e300, 1e-300, 0.0, 123456789.0))
    )
    data = {
        "none": lambda: make.data([]),
        "empty": lambda: make.data([replace(task, rows=())]),
        "one": lambda: make.data([replace(task, rows=(make.row(rng),))]),
        "crowd": lambda: make.crowd(rows=30, tasks=5),
        "wild": lambda: make.data([replace(task, rows=wild)]),
    }[shape]()
    page = Page(render(data))
    assert len(set(page.ids)) == len(page.ids)
    controlled = [e["aria-controls"] for e in page.elements if "aria-controls" in e]
    assert set(controlled) <= set(page.ids)
    rows = [e for e in page.named("row")]
    assert len(rows) == sum(len(t.rows) for t in data.tasks)
    for e in page.elements:
        for style in re.findall(r"(?:left|width):([-\d.e+naif]+)%", e.get("style") or ""):
            assert 0 <= float(style) <= 100
    if shape == "none":
        assert "no tasks yet" in render(data)
    if shape == "empty":
        assert "No results yet" in render(data)


def test_a_filter_with_one_choice_is_left_out(make):
    def filters(*problems):
        page = Page(render(make.data([make.task(p, budgets=(1.0,)) for p in problems])))
        return {e["data-filter"] for e in page.elements if "data-filter" in e}

    assert filters("assortment", "pricing") == {"problem", "guarantee", "budget"}
    assert filters("assortment") == {"guarantee", "budget"}


def test_nothing_outside_the_file_is_named(make):
    text = render(make.data())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text).group(1)
    assert "default-src &#39;none&#39;" in policy or "default-src 'none'" in policy
    script = text.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"sha256-{digest}" in policy.replace("&#43;", "+").replace("&#x2B;", "+")
    page = Page(text)
    for element in page.elements:
        assert "src" not in element
        assert element.get("href", "#").startswith(("#", "data:"))
        assert not [name for name in element if name.startswith("on")]
    for name in os.listdir(TEMPLATES):
        source = (TEMPLATES / name).read_text(encoding="utf-8")
        for word in ("@import", "url(", "innerHTML", "insertAdjacentHTML", "fetch(", "eval("):
            assert word not in source, (name, word)
        assert re.findall(r"https?://[^'\"\s]+", source) in ([], ["http://www.w3.org/2000/svg"])


def test_curves_are_thinned_but_keep_their_ends(make):
    t = np.arange(1, 5001)
    curve = [(int(k), float(k) ** 0.5, float(k) ** 0.5 - 0.5, float(k) ** 0.5 + 0.5) for k in t]
    row = make.row(np.random.default_rng(0), curve=curve)
    page = Page(render(make.data([replace(make.task(), rows=(row,))])))
    task = page.payload()["tasks"][0]
    rounds, (mean, below, above) = task["rounds"], task["rows"][0]["curve"]
    low, high = np.subtract(mean, below), np.add(mean, above)
    np.testing.assert_allclose([below, above], 0.5, rtol=5e-3)
    assert len(rounds) == len(mean) == len(low) == len(high) == MAX_POINTS
    assert rounds[0] == 1 and rounds[-1] == 5000 and rounds == sorted(set(rounds))
    np.testing.assert_allclose(mean, np.sqrt(rounds), rtol=1e-5)


def test_curves_with_other_rounds_keep_their_own(make):
    rng = np.random.default_rng(0)
    curves = [[(1, 1.0, 0.5, 2.0), (9, 2.0, 1.0, 4.0)], [(3, 1.0, 0.5, 2.0)]]
    rows = tuple(make.row(rng, agent=f"A{k}", curve=c) for k, c in enumerate(curves))
    task = Page(render(make.data([replace(make.task(), rows=rows)]))).payload()["tasks"][0]
    assert task["rounds"] is None
    assert task["rows"][0]["curve"] == [[1, 9], [1, 2], [0.5, 1], [1, 2]]
    assert task["rows"][1]["curve"] == [[3], [1], [0.5], [1]]


def test_tracks_show_their_scores_and_those_of_their_tasks(make):
    data = make.arena(agents=8, sizes=2, budgets=2)
    page = Page(render(data))
    assert len(set(page.ids)) == len(page.ids)
    assert {e["data-filter"] for e in page.elements if "data-filter" in e} >= {"track"}
    rows = [e["text"] for e in page.named("row")]
    tracks = [row for track in data.tracks for row in track.rows]
    assert len(rows) == len(tracks) + sum(len(task.rows) for task in data.tasks)
    payload = page.payload()["tasks"]
    assert [view["task"] for view in payload[6:]] == ["assortment", "pricing", "recommendation"]
    scores = [r["sort"]["score"] for view in payload[6:] for r in view["rows"]]
    assert scores == [row.score.mean for row in tracks]
    for row in tracks:
        shown = [text for text in rows if row.agent in text and number(row.score.mean, 3) in text]
        assert any(number(row.score.low, 3) in text for text in shown)


def test_rows_that_miss_a_task_stand_last_and_win_nothing(make):
    data = make.arena(agents=8, sizes=2, budgets=1)
    first, second = data.tasks[:2]
    winner = min((r for r in first.rows if r.notion == "joint"), key=lambda r: r.regret.mean)
    rows = tuple(r for r in second.rows if r.key != winner.key)
    second = replace(
        second,
        rows=tuple(
            replace(r, improvement={k: v for k, v in r.improvement.items() if k != winner.key})
            for r in rows
        ),
    )
    track = make.track("assortment", [first, second])
    page = Page(render(make.data([first, second], tracks=(track,))))
    (gap,) = page.named("gaps")
    assert winner.agent in gap["text"] and "best" not in gap["class"].split()
    view = page.payload()["tasks"][2]
    (sort,) = [r["sort"] for r in view["rows"] if r["key"] == winner.key]
    assert sort["score"] is None


def test_a_page_of_many_rows_stays_small(make):
    data = make.arena(agents=14, sizes=2, budgets=4)
    count = sum(len(task.rows) for task in data.tasks)
    assert count > 200
    assert len(render(data).encode()) < 7000 * count


def test_the_same_data_give_the_same_bytes(make, tmp_path):
    a = html(make.data(), tmp_path / "a.html")
    b = html(make.data(), str(tmp_path / "deep" / "b.html"))
    assert a.read_bytes() == b.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "deep"]


def test_a_failed_write_leaves_the_old_file_and_no_litter(make, tmp_path, monkeypatch):
    path = html(make.data(), tmp_path / "page.html")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            html(make.data(title="another"), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    html(make.data(title="another"), path)
    assert b"another" in path.read_bytes()


def test_written_files_have_ordinary_permissions(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    write_whole(tmp_path / "ours", b"x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_bad_data_and_targets_are_refused(make, tmp_path):
    with pytest.raises(ParameterError, match="LeaderboardData"):
        html(make.task(), tmp_path / "page.html")
    with pytest.raises(ParameterError, match="folder"):
        html(make.data(), tmp_path)
    with pytest.raises(ParameterError, match="path"):
        html(make.data(), 3.5)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ParameterError, match="not a folder"):
        html(make.data(), tmp_path / "file" / "page.html")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
