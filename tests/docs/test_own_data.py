"""docs/own-data.md: sentences, truths and pictures are those of the stored result."""

from __future__ import annotations

import copy
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/own-data.md").read_text(encoding="utf-8")


@pytest.fixture
def advice(import_benchmark: Any) -> Any:
    return import_benchmark("advice")


def test_the_page_is_written_from_the_stored_result(advice: Any) -> None:
    marked, data = importlib.import_module("marked"), json.loads(advice.STORED.read_text())
    assert list(data["logs"]) == list(advice.LOGS), "run benchmarks/advice.py"
    assert marked.block(PAGE, "truths") == advice.table(data)
    assert marked.block(PAGE, "examples") == advice.examples(data)
    for picture in advice.PICTURES.values():
        assert (ROOT / "docs/_static" / picture).read_bytes().startswith(b"\x89PNG")
    changed = copy.deepcopy(data)
    changed["logs"]["synthetic-loans"]["rows"][0]["truths"]["generated"][0] += 0.01
    assert advice.table(changed) != advice.table(data)


def test_stored_sentences_are_of_the_agents_and_commands_of_today(advice: Any) -> None:
    for name, log in json.loads(advice.STORED.read_text())["logs"].items():
        assert log["command"] == advice.command(name)
        now = {agent: advice.code(agent) for agent in log["agents"]}
        assert log["agents"] == now, f"run benchmarks/advice.py --log '{name}'"


def test_a_sentence_is_right_if_every_truth_agrees(advice: Any) -> None:
    row = {"interval": [1.0, 3.0], "truths": {"simulated": [2.0, 0.1], "generated": [2.9, 0.4]}}
    assert advice.is_right(row)
    assert advice.is_right(row | {"truths": row["truths"] | {"generated": [3.1, 0.4]}})
    assert not advice.is_right(row | {"truths": row["truths"] | {"generated": [3.5, 0.4]}})
    thin = {"customers": 500, "truths": {"simulated": {"100": [0.0, 1.0], "500": [2.0, 1.9]}}}
    assert advice.is_right(thin)
    thin["truths"]["simulated"]["500"] = [2.0, 2.1]
    assert not advice.is_right(thin)
