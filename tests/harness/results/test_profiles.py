"""Profiles and probabilities of improvement over a track, against values computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dpb_gym
from dpb_gym.errors import ParameterError
from dpb_gym.report.leaderboard_data import Interval, LeaderboardData, Row, TaskResult, TrackResult
from dpb_gym.results.profiles import compared, improvements, performance_profile, profiles

ONE = Interval(1.0, 1.0, 1.0)


def row(agent: str, finals: list[float], **fields: Any) -> Row:
    values: dict[str, Any] = {
        "name": agent.lower(), "budget": "rho=1", "notion": "joint", "unit": "user-round",
        "guarantee": "joint", "regret": Interval(*[float(np.mean(finals))] * 3),
        "iqm_regret": None, "score": None, "reward": ONE, "rounds_per_second": None, "curve": (),
        "finals": dict(enumerate(finals)), "replicates": len(finals),
    }  # fmt: skip
    return Row(agent, **(values | fields))


def board(*tasks: list[Row]) -> LeaderboardData:
    made = tuple(
        TaskResult(f"t{k}", "DPB/Pricing-v0", "pricing", "", 10, 2, None, tuple(rows), "both")
        for k, rows in enumerate(tasks)
    )
    track = TrackResult("both", "Both", "", tuple(task.task for task in made), ())
    return LeaderboardData("x", "x", "2026-01-01", "0", None, "", made, tracks=(track,))


def hand() -> LeaderboardData:
    first = [row("A", [1, 4]), row("B", [2, 2]), row("Alone", [9, 9])]
    second = [row("A", [3, 0]), row("B", [3, 5])]
    return board(first, second)


def test_shares_within_a_factor_are_those_counted_by_hand() -> None:
    shares = {(r["agent"], r["factor"]): r["share"] for r in profiles(hand(), (1.0, 2.0, 100.0))}
    # Ratios of A: 1 and 2; 1 and 1. Of B: 2 and 1; 1 and, the least being 0, none.
    assert shares == {
        ("A", 1.0): 0.75, ("A", 2.0): 1.0, ("A", 100.0): 1.0,
        ("B", 1.0): 0.5, ("B", 2.0): 0.75, ("B", 100.0): 0.75,
    }  # fmt: skip
    with pytest.raises(ParameterError, match="factors"):
        profiles(hand(), (0.5,))


def test_chances_over_a_track_are_those_counted_by_hand() -> None:
    chances = {(r["agent"], r["over"]): r for r in improvements(hand())}
    assert {pair: r["probability"] for pair, r in chances.items()} == {
        ("A", "B"): (1 / 2 + 3 / 4) / 2, ("B", "A"): (1 / 2 + 1 / 4) / 2,
    }  # fmt: skip
    record = chances["A", "B"]
    assert (record["track"], record["guarantee"]) == ("both", "joint, per user-round")
    assert (record["budget"], record["low"], record["high"]) == ("rho=1", None, None)
    first, second = [float(k) for k in range(10)], [4.5] * 10
    (one, _) = improvements(board([row("A", first), row("B", second)]))
    assert one["probability"] == 0.5 and 0 < one["low"] < 0.5 < one["high"] < 1


def test_only_verified_rows_of_one_guarantee_and_budget_are_compared() -> None:
    rows = [
        row("A", [1, 2]), row("B", [2, 3]), row("C", [1, 1], budget="rho=2"),
        row("D", [1, 1], trust="stated by Eve"), row("E", [0, 0], name="oracle", oracle=True),
        row("F", [1, 1], notion=None, unit=None, budget=None),
    ]  # fmt: skip
    ((_, agents, _),) = compared(board(rows))
    assert agents == ["A", "B"]
    apart = [row("A", [1.0]), replace(row("B", [1.0]), finals={7: 1.0})]
    assert list(compared(board(apart))) == []


TABLES = st.lists(arrays(float, (3, 4), elements=st.floats(0, 1e6)), min_size=1, max_size=3)


@given(tables=TABLES)
def test_profiles_grow_someone_is_best_and_units_do_not_matter(tables: Any) -> None:
    factors = (1.0, 1.5, 4.0, 1e9)
    shares = performance_profile(tables, factors)
    assert (np.diff(shares, axis=1) >= 0).all() and (shares >= 0).all() and (shares <= 1).all()
    assert shares[:, 0].sum() >= 1 - 1e-12
    scaled = [tables[0] * 2.0**10, *tables[1:]]  # a power of two: ratios keep their bits
    np.testing.assert_array_equal(performance_profile(scaled, factors), shares)


def test_a_result_has_them() -> None:
    result = dpb_gym.evaluate(
        "DPB/Pricing-v0", {"a": "greedy-pricing", "b": "ts-pricing"}, horizon=30, replicates=8
    )
    x, y = result.final_regret("a"), result.final_regret("b")
    (first, _) = (r for r in result.improvements())
    assert first["probability"] == pytest.approx(
        np.mean((x < y) + 0.5 * (x == y)) if first["agent"] == "a" else np.mean(y < x)
    )
    at_one = {r["agent"]: r["share"] for r in result.profiles() if r["factor"] == 1.0}
    assert at_one == {"a": np.mean(x <= y), "b": np.mean(y <= x)}
    figure = result.plot_profiles(budget="none")
    lines = figure.axes[0].get_lines()
    assert {float(line.get_ydata()[0]) for line in lines} == set(at_one.values())
    with pytest.raises(ParameterError, match="nothing to draw"):
        result.plot_profiles(track="nowhere")
