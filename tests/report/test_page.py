"""The page as a document: complete, escaped, self-contained, replaced whole."""

from __future__ import annotations

import base64
import gzip
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
from dpb_gym.privacy import Budget
from dpb_gym.report import html
from dpb_gym.report.comparison_groups import questions, under
from dpb_gym.report.leaderboard_data import (
    REFERENCES,
    RULINGS,
    Audit,
    Interval,
    RulingComparison,
)
from dpb_gym.report.page import MOST_POINTS, TEMPLATES, render
from dpb_gym.report.tables import board

VOID = {"meta", "link", "input", "line", "path", "br"}


class Page(HTMLParser):
    """Parser of tags, attributes and texts that fails on bad nesting."""

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
        return self.data()["tables"]

    def data(self):
        (element,) = [e for e in self.elements if e.get("id") == "data"]
        return json.loads(gzip.decompress(base64.b64decode(element["text"])))


LABELS = st.text(
    st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), min_size=1, max_size=40
).filter(lambda t: t.strip() and t not in REFERENCES and not t.startswith("stated"))
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
    """Return a page with `text` in every field that users can set."""
    rng = np.random.default_rng(0)
    rows = tuple(
        make.row(
            rng,
            agent=f"{text} {k}",
            name=text,
            guarantee=text,
            notion=text,
            unit=text,
            budget=f"rho={k + 1}",
            params={text: text, f"{text}2": [text]},
            regret=Interval(k, k, k + 1),
            score=Interval(0.5, 0.4, 0.6),
            trust=text,
            tuning=text,
            audit=Audit(1.0, 0.5, text),
        )
        for k in range(2)
    )
    task = replace(make.task(), task=text, env_id=text, description=text, rows=rows)
    return make.data(
        [task], title=text, suite=text, version=text, revision=text, command=text, notes=(text,)
    )


@pytest.mark.slow
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
    (table,) = page.payload()
    assert table["name"] == table["env"] == table["about"] == text
    read = rows_of(page.payload(), 0)
    assert [row["agent"] for row in read] == [f"{text} 0", f"{text} 1"]
    for row in read:
        assert row["guarantee"] == row["trust"] == row["tuning"] == row["audit_verdict"] == text
        assert row["params"] == [[text, text], [f"{text}2", f"[{text!r}]"]]
    (title,) = [e for e in page.elements if e["tag"] == "title"]
    assert title["text"] == text
    chips = [e["value"] for e in page.elements if e.get("name") == "budget"]
    assert chips == ["rho=1", "rho=2"]
    scripts = [e for e in page.elements if e["tag"] == "script"]
    assert len(scripts) == 2 and scripts[0]["type"] == "text/plain"
    assert scripts[1]["text"] == [e for e in plain.elements if e["tag"] == "script"][1]["text"]


def rows_of(payload, t):
    """Return the rows of a table of the page's data, as its script unpacks them."""
    columns = payload[t]["rows"] | payload[t]["values"]
    rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
    return [payload[t]["same"] | row for row in rows]


def test_every_row_is_in_the_data_with_its_numbers(make):
    data = make.data()
    payload = Page(render(data)).payload()
    for t, task in enumerate(data.tasks):
        read = {row["key"]: row for row in rows_of(payload, t)}
        assert len(read) == len(task.rows)
        for row in task.rows:
            shown = read[row.key]
            assert shown["budget"] == str(row.budget or "none")
            values = {"regret": row.regret, "iqm_regret": row.iqm_regret}
            for name, value in (values | {"score": row.score, "reward": row.reward}).items():
                assert shown[name] == pytest.approx((value.mean, value.low, value.high), rel=1e-5)
            assert (shown["guarantee"], shown["replicates"]) == (row.guarantee, row.replicates)
            assert shown["accounting"] == ("computed" if row.private else None)
            assert shown["trust"] == "computed here"
            assert shown["params"] == [
                [key, str(value)] for key, value in sorted(row.params.items())
            ]
            assert shown["finals"] == pytest.approx(list(row.finals.values()), rel=1e-6)
            assert shown["rounds_per_second"] == pytest.approx(row.rounds_per_second, rel=1e-5)
            for name in ("verdict", "lower_bound", "claimed"):
                value = getattr(row.audit, name, None)
                close = value if name == "verdict" else value and pytest.approx(value, rel=1e-5)
                assert shown[f"audit_{name}"] == close


def test_the_headline_counts_the_comparisons_of_our_agents(make):
    """For each ruling and trust model by itself, with what is not compared."""

    def compared(ruling, first, low, high, survives, ours=True, trust="curator"):
        gain = None if low is None else Interval((low + high) / 2, low, high)
        return RulingComparison(
            "assortment-clip", ruling, trust, "joint", "user-round", "rho=1", first, "b", gain,
            ours, survives,
        )  # fmt: skip

    comparisons = (
        compared("default", "a", 1, 2, True),
        compared("default", "b", 1, 2, False),
        compared("default", "c", -1, 2, False),
        compared("default", "d", -2, -1, True),
        compared("default", "e", 1, 2, True, ours=False),
        compared("default", "f", None, None, False),
        compared("default", "g", 1, 2, True, trust="local"),
        compared("tuned", "a", -2, 1, False),
    )
    page = Page(render(make.data(comparisons=comparisons)))
    lines = {
        (e["data-ruling"], e["data-trust"]): e for e in page.named("headline") if "data-trust" in e
    }
    assert len(lines) == 8 and sum("hidden" not in line for line in lines.values()) == 1
    first = lines["default", "curator"]
    assert "hidden" not in first and "2 of 6" in first["text"]
    assert "In 1 the 95% interval" in first["text"] and "in 1 the other agent" in first["text"]
    assert "2 are not compared" in first["text"]
    assert "1 of the 2 leads also hold" in first["text"]
    assert "1 of 1" in lines["default", "local"]["text"]
    assert "0 of 0" in lines["tuned", "local"]["text"]
    assert "0 of 1" in lines["tuned", "curator"]["text"]
    shown = page.data()["comparisons"]
    assert [c[:3] for c in shown] == [["assortment-clip", c.ruling, c.trust] for c in comparisons]
    assert [c[8] for c in shown] == [c.outcome for c in comparisons]
    assert not any("data-trust" in e for e in Page(render(make.data())).named("headline"))


def test_the_page_has_the_answers_to_every_question(make):
    """The same rows, in the same order, as the comparisons are made from."""
    data = make.data()
    page = Page(render(data)).data()
    tables = {table["name"]: table for table in page["tables"]}
    expected = {}
    for task in data.tasks:
        for ruling in RULINGS:
            rows = under(ruling, task.rows, set())
            for trust, (group, budget), answers in questions(rows):
                asked = (task.task, ruling, trust, group.slug, Budget.text(budget))
                expected[asked] = [row.key for row in answers]
    shown = {
        tuple(asked): [tables[asked[0]]["rows"]["key"][i] for i in places]
        for *asked, places in page["questions"]
    }
    assert shown == expected and len(shown) > 8
    assert {asked[3] for asked in shown} == set(page["asked"])


def test_a_leaderboard_can_be_cited(make):
    page = Page(render(make.data()))
    (entry,) = [e["text"] for e in page.elements if e.get("id") == "bibtex"]
    assert entry.startswith("@misc{dpbgym-corev0-2026,") and "4d481cf0" in entry
    assert entry.count("{") == entry.count("}")


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
    assert [t["count"] for t in page.payload()] == [len(t.rows) for t in data.tasks]
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
    payload = Page(render(make.data([replace(make.task(), rows=(row,))]))).payload()
    rounds, mean, below, above = rows_of(payload, 0)[0]["curve"]
    np.testing.assert_allclose([below, above], 0.5, rtol=5e-2)
    assert len(rounds) == len(mean) == len(below) == len(above) == MOST_POINTS
    assert rounds[0] == 1 and rounds[-1] == 5000 and rounds == sorted(set(rounds))
    np.testing.assert_allclose(mean, np.sqrt(rounds), rtol=1e-3)


def test_curves_with_other_rounds_keep_their_own(make):
    rng = np.random.default_rng(0)
    curves = [[(1, 1.0, 0.5, 2.0), (9, 2.0, 1.0, 4.0)], [(3, 1.0, 0.5, 2.0)]]
    rows = tuple(make.row(rng, agent=f"A{k}", curve=c) for k, c in enumerate(curves))
    payload = Page(render(make.data([replace(make.task(), rows=rows)]))).payload()
    read = {row["agent"]: row["curve"] for row in rows_of(payload, 0)}
    assert read == {"A0": [[1, 9], [1, 2], [0.5, 1], [1, 2]], "A1": [[3], [1], [0.5], [1]]}


def test_replicates_that_a_row_lacks_leave_a_gap(make):
    rng = np.random.default_rng(0)
    rows = tuple(
        make.row(rng, agent=name, finals=finals)
        for name, finals in (("A", {0: 1.0, 2: 3.0}), ("B", {1: 5.0, 2: 6.0}))
    )
    payload = Page(render(make.data([replace(make.task(), rows=rows)]))).payload()
    read = {row["agent"]: row["finals"] for row in rows_of(payload, 0)}
    assert read == {"A": [1, None, 3], "B": [None, 5, 6]}


def test_tracks_hold_their_scores(make):
    data = make.arena(agents=8, sizes=2, budgets=2)
    page = Page(render(data))
    assert len(set(page.ids)) == len(page.ids)
    assert {e["data-filter"] for e in page.elements if "data-filter" in e} >= {"track"}
    payload = page.payload()
    assert [t["name"] for t in payload[6:]] == ["assortment", "pricing", "recommendation"]
    for k, track in enumerate(data.tracks):
        read = {row["key"]: row["score"] for row in rows_of(payload, 6 + k)}
        for row in track.rows:
            ends = (row.score.mean, row.score.low, row.score.high)
            assert read[row.key] == pytest.approx(ends, rel=1e-5)


def test_rows_that_lack_a_task_are_last_and_not_ranked(make):
    data = make.arena(agents=8, sizes=2, budgets=1)
    first, second = data.tasks[:2]
    winner = min((r for r in first.rows if r.notion == "joint"), key=lambda r: r.regret.mean)
    second = replace(second, rows=tuple(r for r in second.rows if r.key != winner.key))
    track = make.track("assortment", [first, second])
    read = rows_of(Page(render(make.data([first, second], tracks=(track,)))).payload(), 2)
    gaps = [row for row in read if row["gaps"]]
    assert [row["agent"] for row in gaps] == [winner.agent] and not gaps[0]["best"]
    same = board(make.data([first, second], tracks=(track,))).tracks[0].sections[0][1]
    assert same[-1].row.key == winner.key


@pytest.mark.slow
def test_two_thousand_rows_fit_into_one_megabyte(make):
    data = make.crowd(rows=400, tasks=5)
    assert sum(len(task.rows) for task in data.tasks) == 2000
    assert len(render(data).encode()) < 1_000_000


@pytest.mark.slow
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
