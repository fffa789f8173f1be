"""Verdicts: against an independent bootstrap, and on results whose answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from figure_helpers import claim, curve
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpb_gym.evaluation import metrics
from dpb_gym.papers.pairing import resample
from dpb_gym.papers.quantities import Measured
from dpb_gym.papers.verdicts import (
    CONDITIONAL,
    CONTRADICTED,
    FAILS,
    HOLDS,
    OPEN,
    SUPPORTED,
    UNDECIDED,
    judge,
    verdict,
)

OUTCOMES = (SUPPORTED, CONTRADICTED, OPEN)


def noisy(mean: float, seed: int, n: int = 30, sd: float = 1.0) -> Any:
    return mean + np.random.default_rng(seed).normal(size=n) * sd


# ------------------------------------------------------------------ intervals


def test_the_interval_is_a_paired_bootstrap() -> None:
    """Against scipy's paired bootstrap of the difference, and far narrower than unpaired."""
    common = noisy(100, 0, sd=30)
    low, high = common + noisy(0, 1), common + noisy(2, 2)
    found = judge(claim(), [curve(high, rho=0.1), curve(low, rho=1.0)], ())
    (comparison,) = found.comparisons
    difference = high - low
    reference = stats.bootstrap(
        (difference,), np.mean, n_resamples=20_000, method="percentile", rng=5
    ).confidence_interval
    assert comparison.effect.mean == pytest.approx(difference.mean())
    assert comparison.effect.low == pytest.approx(reference.low, abs=0.06)
    assert comparison.effect.high == pytest.approx(reference.high, abs=0.06)
    assert comparison.outcome == SUPPORTED
    assert comparison.left_value.mean == pytest.approx(low.mean())
    unpaired = comparison.left_value.high - comparison.left_value.low
    assert unpaired > 5 * (comparison.effect.high - comparison.effect.low)


def test_only_shared_replicates_count() -> None:
    first = curve([1.0, 2.0, 3.0, 50.0], replicates=[0, 1, 2, 9], rho=1.0)
    second = curve([2.0, 3.0, 4.0, -99.0], replicates=[0, 1, 2, 7], rho=0.1)
    (comparison,) = judge(claim(), [first, second], ()).comparisons
    assert comparison.replicates == 3
    assert comparison.effect.low == pytest.approx(1.0)
    assert comparison.effect.high == pytest.approx(1.0)
    apart = curve([1.0, 2.0], replicates=[20, 21], rho=0.1)
    found = judge(claim(), [first, apart], ())
    assert found.verdict == UNDECIDED
    assert "share no replicate" in found.summary


def test_ratios_are_of_means_not_means_of_ratios() -> None:
    a, b = np.array([1.0, 9.0]), np.array([1.0, 90.0])
    columns = (dict(enumerate(a)), dict(enumerate(b)))
    (values,), shared = resample([Measured(columns, "ratio")])
    assert shared == 2
    assert values[0] == pytest.approx(10 / 91)
    assert set(np.round(values[1:], 9)) == {1.0, round(10 / 91, 9), 0.1}
    assert len(values) == metrics.RESAMPLES + 1


def test_the_95_percent_interval_covers() -> None:
    """The true difference lies inside in about 95% of repetitions; n = 30."""
    rng = np.random.default_rng(3)
    inside = 0
    for _ in range(200):
        common = rng.normal(size=30) * 5
        pair = [curve(common + rng.normal(size=30) + m, rho=r) for m, r in ((1.5, 0.1), (1.0, 1))]
        effect = judge(claim(), pair, ()).comparisons[0].effect
        inside += effect.low <= 0.5 <= effect.high
    assert stats.binomtest(inside, 200, 0.93).pvalue > 1e-3


# ------------------------------------------------------------------ outcomes


@pytest.mark.parametrize(
    ("difference", "sd", "outcome"),
    [(5.0, 1.0, SUPPORTED), (-5.0, 1.0, CONTRADICTED), (0.0, 20.0, OPEN), (0.0, 0.1, CONTRADICTED)],
)
@pytest.mark.parametrize(
    ("kind", "expect"),
    [("along", "falls"), ("along", "grows"), ("than", "below"), ("than", "above")],
)
def test_outcomes(difference: float, sd: float, outcome: str, kind: str, expect: str) -> None:
    """A surely negligible effect contradicts; a wide interval decides nothing."""
    sign = 1 if expect in ("falls", "below") else -1
    right = curve(noisy(100, 0, sd=sd), rho=0.1)
    left = curve(noisy(100 - sign * difference, 1, sd=sd), rho=1.0)
    given_ = {"along": "rho"} if kind == "along" else {"where": {"rho": 1.0}, "than": {"rho": 0.1}}
    found = judge(claim(expect=expect, **given_), [left, right], ())
    assert [c.outcome for c in found.comparisons] == [outcome]
    assert found.verdict == {SUPPORTED: HOLDS, CONTRADICTED: FAILS, OPEN: UNDECIDED}[outcome]


def test_one_replicate_proves_nothing() -> None:
    found = judge(claim(), [curve([9.0], rho=0.1), curve([1.0], rho=1.0)], ())
    assert found.verdict == UNDECIDED


def test_tolerance_and_least() -> None:
    left, right = curve(noisy(103, 0, sd=0.1), rho=1.0), curve(noisy(100, 0, sd=0.1), rho=0.1)
    for tolerance, outcome in ((0.0, CONTRADICTED), (0.02, CONTRADICTED), (0.05, SUPPORTED)):
        found = judge(claim(tolerance=tolerance), [left, right], ())
        assert found.comparisons[0].outcome == outcome
    # surely positive: supported, however small
    up = curve(noisy(99.6, 0, sd=0.1), rho=1.0)
    assert judge(claim(), [up, right], ()).verdict == HOLDS


@pytest.mark.parametrize(
    ("mean", "sd", "outcome"),
    [
        (1.0, 0.01, SUPPORTED),
        (1.3, 0.01, CONTRADICTED),
        (0.7, 0.01, CONTRADICTED),
        (1.1, 0.3, OPEN),
    ],
)
def test_near_a_number(mean: float, sd: float, outcome: str) -> None:
    one = curve(noisy(mean, 4, sd=sd), rho=1.0)
    found = judge(claim(value=1.0, expect="near", tolerance=0.1), [one], ())
    assert found.comparisons[0].outcome == outcome


def test_below_and_above_a_number() -> None:
    one = curve(noisy(5, 4), rho=1.0)
    for expect, value, verdict_ in (
        ("below", 8, HOLDS), ("above", 8, FAILS), ("above", 2, HOLDS), ("below", 5, UNDECIDED),
    ):  # fmt: skip
        assert judge(claim(value=float(value), expect=expect), [one], ()).verdict == verdict_


# ------------------------------------------------------------------ which are compared


def test_along_compares_neighbours_within_equal_other_axes() -> None:
    curves = [
        curve(noisy(100 / rho + K, int(10 * rho) + K), rho=rho, capacity=K, contexts="raw")
        for rho in (5.0, 0.1, 1.0)
        for K in (5, 10)
    ]
    curves.append(curve(noisy(3, 5), rho=None, capacity=None, contexts="raw"))
    found = judge(claim(), curves, ("contexts",))
    assert sorted((c.left, c.right) for c in found.comparisons) == [
        ("rho=1, capacity=10", "rho=0.1"),
        ("rho=1, capacity=5", "rho=0.1"),
        ("rho=5, capacity=10", "rho=1"),
        ("rho=5, capacity=5", "rho=1"),
    ]
    assert found.verdict == HOLDS


def test_counterparts_agree_on_every_other_axis_that_both_have() -> None:
    ours = [curve(noisy(v, v), agent="a", rho=r, contexts=c, conversion=None)
            for v, (r, c) in enumerate([(1.0, "raw"), (5.0, "raw"), (1.0, "clip")], 1)]  # fmt: skip
    theirs = [
        curve(noisy(50, 9), agent="b", rho=r, contexts="raw", conversion=k)
        for r in (1.0, 5.0)
        for k in ("paper", "correct")
    ]
    reference = curve(noisy(70, 8), agent="random", rho=None, contexts="raw", conversion=None)
    curves = [*ours, *theirs, reference]
    one = claim(where={"agent": "a"}, than={"agent": "b", "conversion": "paper"}, expect="below")
    assert len(judge(one, curves, ()).comparisons) == 2
    both = {"agent": "b", "conversion": ["paper", "correct"]}
    one = claim(where={"agent": "a"}, than=both, expect="below")
    assert len(judge(one, curves, ()).comparisons) == 4
    one = claim(where={"agent": "a"}, than={"agent": "random"}, expect="below")
    assert len(judge(one, curves, ()).comparisons) == 2
    ambiguous = judge(claim(where={"agent": "a"}, than={"agent": "b"}, expect="below"), curves, ())
    assert ambiguous.verdict == UNDECIDED and "name another axis" in ambiguous.summary


def test_nothing_to_compare_is_undecided() -> None:
    found = judge(claim(where={"rho": 7.0}), [curve([1.0, 2.0], rho=1.0)], ())
    assert found.verdict == UNDECIDED and "no curves" in found.summary
    twice = [curve([1.0, 2.0], rho=1.0), curve([1.0, 2.0], rho=1.0)]
    assert "give another axis" in judge(claim(), twice, ()).summary


# ------------------------------------------------------------------ verdicts


groups = st.lists(
    st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=5), min_size=1, max_size=5
)


@settings(max_examples=300, deadline=None)
@given(groups)
def test_the_verdict_by_its_definition(variants: list[list[str]]) -> None:
    flat = [outcome for group in variants for outcome in group]
    found = verdict(variants)
    assert (found == HOLDS) == (set(flat) == {SUPPORTED})
    assert (found == UNDECIDED) == (set(flat) == {OPEN})
    lost = all(group.count(SUPPORTED) <= group.count(CONTRADICTED) for group in variants)
    assert (found == FAILS) == (CONTRADICTED in flat and lost)
    # order never matters, and support for one more comparison never makes it worse
    assert verdict([sorted(group) for group in reversed(variants)]) == found
    rank = {FAILS: 0, UNDECIDED: 1, CONDITIONAL: 2, HOLDS: 3}
    better = [[SUPPORTED, *variants[0][1:]], *variants[1:]]
    assert rank[verdict(better)] >= rank[found] or found == UNDECIDED


def test_variants_are_judged_apart() -> None:
    cells = [("raw", 0.1, 50), ("raw", 1.0, 10), ("clip", 0.1, 10), ("clip", 1.0, 50)]
    curves = [
        curve(noisy(value, value), rho=rho, contexts=contexts) for contexts, rho, value in cells
    ]
    found = judge(claim(), curves, ("contexts",))
    assert found.verdict == CONDITIONAL
    assert found.variants == {"raw": HOLDS, "clip": FAILS}
    assert found.summary == (
        "1 of 2 comparisons support it, 1 contradict it (clip rho=1 against rho=0.1)"
    )
