"""Comparisons under the two rulings, the paired test and Holm's procedure."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpb_gym.registry import agent_spec
from dpb_gym.report.leaderboard_data import DEFAULTS, TUNED, Interval, Row, TaskResult
from dpb_gym.results.leaderboard import _ruling
from dpb_gym.results.rulings import comparisons, holm, paired_p


def row(
    name: str, regret: float, *, budget: str = "rho=1", tuned: bool = False, n: int = 10
) -> Row:
    """A row whose replicates are `regret` plus a shared customer effect."""
    noise = np.random.default_rng(n).normal(size=n) + 0.1 * np.arange(n) * regret
    finals = {k: regret + float(noise[k]) for k in range(n)}
    return Row(
        agent=name + " (tuned)" * tuned, name=name, budget=budget, notion="joint",
        unit="user-round", guarantee="joint", regret=Interval(regret, regret, regret),
        iqm_regret=None, score=None, reward=Interval(0, 0, 0), rounds_per_second=None, curve=(),
        finals=finals, replicates=n, ruling=TUNED if tuned else DEFAULTS,
    )  # fmt: skip


def task(*rows: Row) -> TaskResult:
    return TaskResult("t", "DPB/Pricing-v0", "pricing", "", 10, 10, None, rows)


def pairs(*rows: Row, ours: str = "mine") -> dict[str, tuple[str, str, bool]]:
    found = comparisons([task(*rows)], {ours: "ours"})
    return {c.ruling: (c.first, c.second, c.ours) for c in found}


def test_our_agent_meets_the_best_other_under_each_ruling() -> None:
    rows = row("mine", 5), row("mine", 6, tuned=True), row("a", 9), row("b", 8)
    assert pairs(*rows, row("a", 3, tuned=True)) == {
        DEFAULTS: ("mine (rho=1)", "b (rho=1)", True),
        # Our tuned row, although the default is better; the better row of the other.
        TUNED: ("mine (tuned) (rho=1)", "a (tuned) (rho=1)", True),
    }
    assert pairs(row("mine", 5), row("a", 9)) == {
        ruling: ("mine (rho=1)", "a (rho=1)", True) for ruling in (DEFAULTS, TUNED)
    }


def test_without_our_agent_the_best_meets_the_second() -> None:
    found = pairs(row("a", 9), row("b", 8), row("b", 7, tuned=True))
    assert found == {
        DEFAULTS: ("b (rho=1)", "a (rho=1)", False),
        TUNED: ("b (tuned) (rho=1)", "a (rho=1)", False),
    }


def test_nothing_is_compared_with_few_replicates_without_budget_or_alone() -> None:
    assert pairs(row("mine", 5, n=7), row("a", 9, n=7)) == {}
    assert pairs(row("mine", 5)) == {}
    assert pairs(row("mine", 5), row("a", 9, budget="rho=2")) == {}
    free = [replace(r, budget=None) for r in (row("mine", 5), row("a", 9))]
    assert pairs(*free) == {}


def test_the_gain_is_the_others_regret_minus_ours() -> None:
    mine, other = row("mine", 5), row("a", 9)
    (found, _) = comparisons([task(mine, other)], {"mine": "ours"})
    gains = [other.finals[k] - mine.finals[k] for k in mine.finals]
    assert found.gain.mean == pytest.approx(np.mean(gains)) and found.outcome == "ahead"
    (lost, _) = comparisons([task(mine, row("a", 1))], {"mine": "ours"})
    assert lost.outcome == "behind" and lost.gain.mean < 0


@given(st.lists(st.integers(-1000, 1000), min_size=8, max_size=30))
def test_the_test_is_students(values: list[int]) -> None:
    if len(set(values)) == 1:
        assert paired_p(values) == float(values[0] == 0)
    else:
        expected = stats.ttest_1samp(values, 0).pvalue
        assert paired_p(values) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(st.lists(st.sampled_from([0.001, 0.009, 0.011, 0.015, 0.02, 0.03, 0.049, 0.06]), max_size=6))
def test_holm_is_the_closure_of_bonferroni(p_values: list[float]) -> None:
    """Reject i if Bonferroni rejects every intersection of hypotheses that contains i."""
    places = range(len(p_values))
    subsets = [s for k in places for s in itertools.combinations(places, k + 1)]
    expected = [
        all(min(p_values[j] for j in s) <= (1 - 0.95) / len(s) for s in subsets if i in s)
        for i in places
    ]
    assert holm(p_values) == expected


def test_families_are_corrected_apart() -> None:
    """A lead of p = 0.01 holds alone, and not among 40 comparisons of the same family."""
    gains = np.array([3.0, 1.0, 4.0, -1.0, 5.0, 2.0, 6.0, -1.0, 3.0, 2.0])
    assert 0.05 / 41 < paired_p(gains) < 0.05
    first = replace(row("x", 5), finals=dict.fromkeys(range(10), 0.0))
    other = replace(row("a", 9), finals=dict(enumerate(gains.tolist())))

    def held(names: list[str]) -> list[bool]:
        tasks = [
            replace(task(replace(first, agent=name, name=name), other), task=f"t{k}")
            for k, name in enumerate(names)
        ]
        found = comparisons(tasks, {"mine": "ours"})
        return [c.survives for c in found if c.ours and c.ruling == DEFAULTS]

    assert held(["mine"]) == [True] and held(["mine"] + ["x"] * 40) == [True]
    assert held(["mine"] * 41) == [False] * 41


def test_the_ruling_of_a_row_is_that_of_its_parameters() -> None:
    spec = agent_spec("lin-greedy")  # registered with parameters of its own
    name, value = next(iter(spec.params.items()))
    assert _ruling(spec, {}) == _ruling(spec, {name: value}) == DEFAULTS
    assert _ruling(spec, {"ridge": 12345.0}) == TUNED
    assert _ruling(None, {}) == DEFAULTS and _ruling(None, {"x": 1}) == TUNED
