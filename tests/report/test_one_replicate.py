"""One replicate shows no spread: no text, page, export or JSON has an interval for it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import dpb_gym
from dpb_gym import report

BOUNDS = re.compile(r"\[−?[\d.,]+, −?[\d.,]+\]|[\d.,]+ to [\d.,]+")


@pytest.fixture(scope="module")
def data() -> Any:
    agents = {"ours": ("one-pass-pricing", "rho=1"), "random": "random", "free": "greedy-pricing"}
    result = dpb_gym.evaluate("DPB/Pricing-v0", agents, 200, replicates=1, progress=False)
    return result.to_leaderboard()


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of JSON with its path."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, each in pairs:
        if isinstance(each, (dict, list)):
            yield from numbers(each, f"{path}/{name}")
        else:
            yield f"{path}/{name}", each


def test_no_text_has_an_interval(data: Any, capsys: pytest.CaptureFixture[str]) -> None:
    report.table(data)
    texts = [capsys.readouterr().out, report.to_latex(data), report.html_table(data)]
    for text in texts:
        shown = str(text).replace("[95% interval]", "")
        assert "ours" in shown and not BOUNDS.search(shown), shown


def test_no_export_has_ends(data: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(str(report.to_csv(data)))))
    assert len(rows) == 3
    for row in rows + report.records(data):
        ends = [name for name in row if name.endswith(("_low", "_high"))]
        assert len(ends) >= 8 and not any(row[name] for name in ends), row
        assert row["regret"] is not None
    exported = dict(numbers(json.loads(report.to_json(data))))
    ends = [name for name in exported if re.search("/(low|high)$|_(low|high)$", name)]
    assert len(ends) >= 18 and all(exported[name] is None for name in ends)
    curves = [name for name in exported if re.search("/curve/[0-9]+/[23]$", name)]
    assert curves and all(exported[name] is None for name in curves)
    assert "inf" not in report.to_json(data).lower().replace("info", "")


@pytest.mark.slow
def test_pictures_are_drawn(data: Any, tmp_path: Any, recwarn: pytest.WarningsRecorder) -> None:
    report.plot(data, tmp_path / "regret.png")
    report.plot_frontier(data, tmp_path / "frontier.png")
    assert not recwarn.list
