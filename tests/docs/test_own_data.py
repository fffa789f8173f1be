"""docs/own-data.md: sentences, truths and pictures are those of the stored result."""

from __future__ import annotations

import copy
import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dpb_gym

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
    assert marked.block(PAGE, "estimates") == advice.estimates(data)
    assert marked.block(PAGE, "coverage") == advice.covered(data["coverage"])
    assert marked.block(PAGE, "forms") == advice.other_forms(data["forms"])
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


def test_stored_estimates_are_those_of_an_independent_optimiser(advice: Any) -> None:
    data = json.loads(advice.STORED.read_text())
    rows = [log["estimate"] for log in data["logs"].values()] + data["generated"] + data["files"]
    rows = [row for row in rows if row and row["independent"]]
    assert len(rows) >= 25
    assert [row["file"] for row in data["files"]] == list(advice.FILES)
    for row in rows:
        value, error = row["independent"]
        ours, low, high = row["ours"]
        assert low < ours < high, row["file"]
        if value > 0.0:  # the rate of an item, which the fit pulls to those of the others
            assert low < value < high, row["file"]
        else:
            assert high < 0.0 and abs(ours - value) < error, row["file"]


def test_stored_intervals_hold_on_generated_logs(advice: Any) -> None:
    kinds = json.loads(advice.STORED.read_text())["coverage"]
    assert set(kinds) == {generate(0).name for generate in advice.GENERATED}
    assert sum(own["logs"] for own in kinds.values()) >= 200
    for what in ("elasticity", "gain", "earned", "today"):
        held = sum(own["held"].get(what, 0) for own in kinds.values())
        asked = sum(own["asked"].get(what, 0) for own in kinds.values())
        assert asked >= 150 and held >= 0.9 * asked, what
    assert sum(own["worse"] for own in kinds.values()) == 0, "decisions that bring less than today"
    below = {name: own["below"] for name, own in kinds.items() if own["below"]}
    assert not below, "decisions that bring less than their interval says"


def test_stored_intervals_hold_for_demand_of_other_forms(advice: Any) -> None:
    kinds = json.loads(advice.STORED.read_text())["forms"]
    assert set(kinds) == {generate(0).name for generate in advice.OTHER_FORMS}
    logs = sum(own["logs"] - own["refused"] for own in kinds.values())
    assert logs >= 200
    for what in ("elasticity", "gain", "earned", "today"):
        held = sum(own["held"][what] for own in kinds.values())
        assert held >= 0.9 * logs, what
    assert sum(own["worse"] + own["below"] for own in kinds.values()) == 0


def test_a_published_estimate_is_ours_without_a_penalty(advice: Any) -> None:
    rows = json.loads(advice.STORED.read_text())
    every = [log["estimate"] for log in rows["logs"].values()] + rows["files"]
    shown = [row for row in every if row and row["published"]]
    assert len(shown) == len(advice.PUBLISHED) == 2
    for row in shown:
        assert row["independent"][0] == pytest.approx(float(row["published"].split()[0]), rel=5e-3)


def test_what_is_true_of_generated_logs_is_their_mean(advice: Any) -> None:
    """The truths of many logs of a kind agree with the means of the logs themselves."""
    for generate in advice.GENERATED:
        gaps = []
        for seed in range(12):
            truth = generate(seed)
            frame = truth.frame
            if truth.problem == "pricing":
                count = frame.get("visitors", 1)
                sold = frame.get("units", frame.get("bought"))
                own = (frame["price"] * sold).sum() / np.sum(np.broadcast_to(count, sold.shape))
            elif truth.problem == "assortment":
                paid = frame["cost"] * frame["chosen"] * (frame["alt"] != "car")
                own = paid.sum() / len(set(frame["case"]))
            else:
                own = frame["click"].mean()
            gaps.append(own / truth.today - 1.0)
        assert abs(np.mean(gaps)) < 4 * np.std(gaps) / np.sqrt(12), generate.__name__


def test_a_check_fails_for_a_wrong_truth(advice: Any) -> None:
    truth = advice.GENERATED[1](3)
    right = advice.check(truth, 3)
    assert set(right["held"]) == {"gain", "earned", "today", "elasticity"}
    assert all(right["held"].values()) and right["kind"] == "fixed"
    wrong = replace(truth, today=3 * truth.today, elasticity=truth.elasticity / 2)
    checked = advice.check(wrong, 3)
    assert not checked["held"]["today"] and not checked["held"]["elasticity"]
    assert not checked["held"]["gain"] and checked["decided"][0] < 0.0


def test_the_world_of_a_truth_responds_by_its_demand(advice: Any) -> None:
    truth = advice.GENERATED[3](0)  # with a logarithmic feature
    world = advice.World(truth, horizon=50)
    instance = world.instance([0])
    order = instance.hidden["order"][0]
    for t in range(5):
        income = {"income": truth.frame["income"][order[t : t + 1]]}
        price = np.array([0.7 * world.highest_price])
        expected = 0.7 * truth.demand(price, income)
        np.testing.assert_allclose(instance.respond(np.array([0.7])).expected, expected, rtol=1e-3)
        instance.advance()


def test_two_logs_of_one_kind_may_end_in_a_run_of_an_agent(
    advice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "ROUNDS_COVERED", 40)
    decision = SimpleNamespace(kind="agent", action="one-pass-pricing at rho=1")
    gains = []
    for seed in (0, 1):
        truth = advice.GENERATED[2](seed)
        log = dpb_gym.from_log(truth.frame, "pricing", progress=False, **truth.settings)
        gains.append(advice.true_gain(truth, SimpleNamespace(decision=decision, log=log), seed))
    assert gains[0] != gains[1] and all(-100.0 < gain < 200.0 for gain in gains)
