"""Comparisons under the two rulings, the paired test and Holm's procedure."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpb_gym.registry import agent_spec
from dpb_gym.report.leaderboard_data import (
    DEFAULTS,
    TUNED,
    Interval,
    LeaderboardData,
    Row,
    TaskResult,
)
from dpb_gym.results.leaderboard import _ruling
from dpb_gym.results.rulings import comparisons, holm, paired_p


def row(
    name: str,
    regret: float,
    *,
    budget: str = "rho=1",
    tuned: bool = False,
    n: int = 10,
    notion: str = "joint",
    unit: str = "user-round",
    relation: str = "replace-one",
) -> Row:
    """A row whose replicates are `regret` plus a shared customer effect."""
    noise = np.random.default_rng(n).normal(size=n) + 0.1 * np.arange(n) * regret
    finals = {k: regret + float(noise[k]) for k in range(n)}
    return Row(
        agent=name + " (tuned)" * tuned, name=name, budget=budget, notion=notion,
        unit=unit, relation=relation, guarantee=notion, regret=Interval(regret, regret, regret),
        iqm_regret=None, score=None, reward=Interval(0, 0, 0), rounds_per_second=None, curve=(),
        finals=finals, replicates=n, ruling=TUNED if tuned else DEFAULTS,
    )  # fmt: skip


def task(*rows: Row) -> TaskResult:
    return TaskResult("t", "DPB/Pricing-v0", "pricing", "", 10, 10, None, rows)


def pairs(*rows: Row, ours: str = "mine") -> dict[str, tuple[str, str, bool]]:
    """The compared rows under each ruling if a curator is trusted, at the largest budget."""
    compared = comparisons([task(*rows)], {ours: "ours"})
    return {
        c.ruling: (c.first, c.second, c.ours)
        for c in compared
        if c.gain is not None and c.second is not None and c.trust == "curator"
    }


def asked(*rows: Row, trust: str, budget: str = "rho=1", ours: str = "mine") -> Any:
    """The comparisons of the defaults under a trust model at a budget."""
    return [
        c
        for c in comparisons([task(*rows)], {ours: "ours"})
        if c.ruling == DEFAULTS and c.trust == trust and str(c.budget) == budget
    ]


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
    compared = pairs(row("a", 9), row("b", 8), row("b", 7, tuned=True))
    assert compared == {
        DEFAULTS: ("b (rho=1)", "a (rho=1)", False),
        TUNED: ("b (tuned) (rho=1)", "a (rho=1)", False),
    }


def test_nothing_is_compared_with_few_replicates_without_budget_or_alone() -> None:
    assert pairs(row("mine", 5, n=7), row("a", 9, n=7)) == {}
    assert pairs(row("mine", 5)) == {}
    assert pairs(row("mine", 5, budget="rho=2"), row("a", 9, budget="eps=1,delta=1e-5")) == {}
    free = [replace(r, budget=None) for r in (row("mine", 5), row("a", 9))]
    assert pairs(*free) == {}


LADDER = {"local": "local", "shuffler": "shuffle", "aggregator": "aggregate", "curator": "joint"}


@pytest.mark.parametrize("given", LADDER)
def test_a_stronger_trust_model_counts_under_the_weaker_ones(given: str) -> None:
    """Ours and theirs: from the row's own trust model on, and never before."""
    order = list(LADDER)
    weaker = order[order.index(given) :]
    for names in (("mine", "a"), ("a", "mine")):
        strong = row(names[0], 5, notion=LADDER[given])
        weak = row(names[1], 9, notion="joint")
        for trust in order:
            compared = asked(strong, weak, trust=trust)
            if trust == "curator":
                (one,) = compared
                assert one.outcome == ("ahead" if names[0] == "mine" else "behind")
                assert {one.first, one.second} == {strong.key, weak.key}
            elif trust in weaker:
                (one,) = compared
                assert (one.first, one.second) == (strong.key, None)
                assert one.outcome == "not compared"
            else:
                assert compared == []


def test_a_smaller_budget_counts_under_the_larger_one_and_not_the_reverse() -> None:
    rows = (
        row("mine", 5, budget="rho=0.5"),
        row("mine", 8),
        row("a", 7),
        row("a", 6, budget="rho=2"),
    )
    (one,) = asked(*rows, trust="curator")
    assert (one.first, one.second) == ("mine (rho=0.5)", "a (rho=1)")
    (half,) = asked(*rows, trust="curator", budget="rho=0.5")
    assert (half.first, half.second, half.outcome) == ("mine (rho=0.5)", None, "not compared")
    (two,) = asked(*rows, trust="curator", budget="rho=2")
    assert (two.first, two.second) == ("mine (rho=0.5)", "a (rho=2)")


@pytest.mark.parametrize(
    "other",
    [
        {"unit": "reward"},
        {"relation": "add-remove"},
        {"budget": "eps=0.5,delta=1e-5"},
        {"notion": "anticipating"},
    ],
)
def test_another_unit_relation_or_scale_and_a_weaker_notion_imply_nothing(
    other: dict[str, Any],
) -> None:
    rows = row("mine", 5, **other), row("a", 9)
    compared = [c for c in asked(*rows, trust="curator") if c.second == "a (rho=1)" and c.ours]
    joint = [c for c in asked(*rows, trust="curator") if c.notion == "joint"]
    if other == {"notion": "anticipating"}:  # the weaker question has both rows
        assert [c.notion for c in compared] == ["anticipating"]
    else:
        assert compared == []
    assert {c.first for c in joint if c.unit == "user-round"} >= {"a (rho=1)"}


def test_the_transcript_of_public_contexts_follows_from_local_messages_only() -> None:
    rows = (
        row("mine", 5, notion="local", unit="reward"),
        row("a", 9, notion="central", unit="reward"),
    )
    (one,) = asked(*rows, trust="curator")
    assert one.outcome == "ahead"
    rows = row("mine", 5, notion="local"), row("a", 9, notion="central")
    (one,) = asked(*rows, trust="curator")
    assert (one.first, one.outcome) == ("a (rho=1)", "not compared")


@pytest.mark.parametrize(("unit", "notion"), [("user-round", "joint"), ("reward", "central")])
def test_of_a_curator_without_rows_the_strongest_that_follows_is_asked(
    unit: str, notion: str
) -> None:
    (one,) = asked(row("mine", 5, notion="local", unit=unit), trust="curator")
    assert (one.notion, one.unit, one.first) == (notion, unit, "mine (rho=1)")


def test_what_only_one_side_has_is_not_compared_and_counted() -> None:
    both = task(
        row("mine", 5), row("a", 9), row("b", 7, notion="local"), row("c", 8, notion="local")
    )
    compared = comparisons([both], {"mine": "ours"})
    data = LeaderboardData(
        title="t", suite="s", created="2026-01-01", version="0", revision=None, command="",
        tasks=(both,), comparisons=compared,
    )  # fmt: skip
    counts = {trust: data.tally(DEFAULTS, trust) for trust in LADDER}
    assert counts["curator"]["ahead"] == 1 and counts["curator"]["not compared"] == 0
    for trust in ("local", "shuffler", "aggregator"):
        assert counts[trust] == {
            "all": 1, "ahead": 0, "undecided": 0, "behind": 0, "not compared": 1, "holm": 0
        }  # fmt: skip


def test_the_gain_is_the_others_regret_minus_ours() -> None:
    mine, other = row("mine", 5), row("a", 9)
    (won,) = asked(mine, other, trust="curator")
    gains = [other.finals[k] - mine.finals[k] for k in mine.finals]
    assert won.gain.mean == pytest.approx(np.mean(gains)) and won.outcome == "ahead"
    (lost,) = asked(mine, row("a", 1), trust="curator")
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
        compared = comparisons(tasks, {"mine": "ours"})
        return [c.survives for c in compared if c.ours and c.ruling == DEFAULTS]

    assert held(["mine"]) == [True] and held(["mine"] + ["x"] * 40) == [True]
    assert held(["mine"] * 41) == [False] * 41


def test_the_ruling_of_a_row_is_that_of_its_parameters() -> None:
    spec = agent_spec("lin-greedy")  # registered with parameters of its own
    name, value = next(iter(spec.params.items()))
    assert _ruling(spec, {}) == _ruling(spec, {name: value}) == DEFAULTS
    assert _ruling(spec, {"ridge": 12345.0}) == TUNED
    assert _ruling(None, {}) == DEFAULTS and _ruling(None, {"x": 1}) == TUNED
