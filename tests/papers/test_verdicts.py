"""Verdicts: against Student's intervals, by their definition, and where the answer is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from figure_helpers import claim, curve
from pydantic import ValidationError
from scipy import stats

from dpb_gym.papers.verdicts import (
    CONDITIONAL,
    CONTRADICTED,
    EQUAL,
    FAILS,
    HOLDS,
    NO_DIFFERENCE,
    NOT_TESTED,
    OPEN,
    OUTCOMES,
    SUPPORTED,
    UNDECIDED,
    judge,
    verdict,
)
from dpb_gym.results.metrics import MIN_REPLICATES


def noisy(mean: float, seed: int, n: int = 30, sd: float = 1.0) -> Any:
    return mean + np.random.default_rng(seed).normal(size=n) * sd


# ------------------------------------------------------------------ intervals


def test_the_interval_is_paired() -> None:
    """Student's interval of the differences, and far narrower than unpaired."""
    common = noisy(100, 0, sd=30)
    low, high = common + noisy(0, 1), common + noisy(2, 2)
    judgement = judge(claim(), [curve(high, rho=0.1), curve(low, rho=1.0)], ())
    (comparison,) = judgement.comparisons
    reference = stats.ttest_rel(high, low).confidence_interval(0.95)
    assert comparison.effect.mean == pytest.approx((high - low).mean())
    assert comparison.effect.low == pytest.approx(reference.low)
    assert comparison.effect.high == pytest.approx(reference.high)
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
    judgement = judge(claim(), [first, apart], ())
    assert judgement.verdict == UNDECIDED
    assert "share no replicate" in judgement.summary


# ------------------------------------------------------------------ outcomes


@pytest.mark.parametrize(
    ("difference", "sd", "outcome"),
    [
        (5.0, 1.0, SUPPORTED),
        (-5.0, 1.0, CONTRADICTED),
        (-1.0, 1.0, CONTRADICTED),
        (0.0, 20.0, OPEN),
        (0.0, 0.1, EQUAL),
        (-0.5, 0.1, EQUAL),
        (0.5, 0.1, SUPPORTED),
    ],
)
@pytest.mark.parametrize(
    ("kind", "expect"),
    [("along", "falls"), ("along", "grows"), ("than", "below"), ("than", "above")],
)
def test_outcomes(difference: float, sd: float, outcome: str, kind: str, expect: str) -> None:
    """Negligible effects of both signs are equal; a wide interval leaves a claim undecided."""
    sign = 1 if expect in ("falls", "below") else -1
    right = curve(noisy(100, 0, sd=sd), rho=0.1)
    left = curve(noisy(100 - sign * difference, 1, sd=sd), rho=1.0)
    given_ = {"along": "rho"} if kind == "along" else {"where": {"rho": 1.0}, "than": {"rho": 0.1}}
    judgement = judge(claim(expect=expect, **given_), [left, right], ())
    assert [c.outcome for c in judgement.comparisons] == [outcome]
    expected = {SUPPORTED: HOLDS, CONTRADICTED: FAILS, OPEN: UNDECIDED, EQUAL: NO_DIFFERENCE}
    assert judgement.verdict == expected[outcome]


@pytest.mark.parametrize("n", [1, 2, MIN_REPLICATES - 1, MIN_REPLICATES])
@pytest.mark.parametrize("near", [False, True])
def test_few_replicates_decide_nothing(n: int, near: bool) -> None:
    curves = [curve(noisy(9, 0, n, 0.01), rho=0.1), curve(noisy(1, 1, n, 0.01), rho=1.0)]
    one = claim(value=9.0, where={"rho": 0.1}, expect="near", tolerance=1.0) if near else claim()
    judgement = judge(one, curves, ())
    assert judgement.verdict == (HOLDS if n >= MIN_REPLICATES else UNDECIDED)
    assert (f"{n} replicates decide nothing" in judgement.summary) == (n < MIN_REPLICATES)
    assert judgement.comparisons[0].replicates == n


def test_tolerance_and_least() -> None:
    left, right = curve(noisy(103, 0, sd=0.1), rho=1.0), curve(noisy(100, 0, sd=0.1), rho=0.1)
    for tolerance, outcome in ((0.0, CONTRADICTED), (0.02, CONTRADICTED), (0.05, SUPPORTED)):
        judgement = judge(claim(tolerance=tolerance), [left, right], ())
        assert judgement.comparisons[0].outcome == outcome
    # a claim with a tolerance says itself which miss counts: 0.5% is not equal
    near = curve(noisy(100.5, 0, sd=0.01), rho=1.0)
    for tolerance, outcome in ((0.0, EQUAL), (1e-6, CONTRADICTED)):
        judgement = judge(claim(tolerance=tolerance), [near, right], ())
        assert judgement.comparisons[0].outcome == outcome
    # an interval around the edge of the tolerance decides nothing, however narrow it is
    edge = curve(noisy(102, 0, sd=0.5), rho=1.0)
    assert judge(claim(tolerance=0.02), [edge, right], ()).comparisons[0].outcome == OPEN
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
        (0.85, 0.3, OPEN),
        (1.15, 0.3, OPEN),
    ],
)
def test_near_a_number(mean: float, sd: float, outcome: str) -> None:
    one = curve(noisy(mean, 4, sd=sd), rho=1.0)
    judgement = judge(claim(value=1.0, expect="near", tolerance=0.1), [one], ())
    assert judgement.comparisons[0].outcome == outcome


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
    judgement = judge(claim(), curves, ("contexts",))
    assert sorted((c.left, c.right) for c in judgement.comparisons) == [
        ("rho=1, capacity=10", "rho=0.1"),
        ("rho=1, capacity=5", "rho=0.1"),
        ("rho=5, capacity=10", "rho=1"),
        ("rho=5, capacity=5", "rho=1"),
    ]
    assert judgement.verdict == HOLDS


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
    judgement = judge(claim(where={"rho": 7.0}), [curve([1.0, 2.0], rho=1.0)], ())
    assert judgement.verdict == UNDECIDED and "no curves" in judgement.summary
    twice = [curve([1.0, 2.0], rho=1.0), curve([1.0, 2.0], rho=1.0)]
    assert "give another axis" in judge(claim(), twice, ()).summary


# ------------------------------------------------------------------ verdicts


def by_definition(variants: Sequence[Sequence[str]]) -> str:
    """Return the verdict where every comparison is decided, by its definition."""
    balance = [sum(1 if o == SUPPORTED else -1 for o in group) for group in variants]
    every = [o for group in variants for o in group]
    if set(every) == {SUPPORTED}:
        return HOLDS
    if max(balance) < 0:
        return NO_DIFFERENCE if every.count(EQUAL) > every.count(CONTRADICTED) else FAILS
    return CONDITIONAL


def completions(variants: Sequence[Sequence[str]]) -> Iterator[list[list[str]]]:
    """Yield every way of deciding the undecided comparisons."""
    decided = (SUPPORTED, CONTRADICTED, EQUAL)
    each = [decided if o == OPEN else (o,) for group in variants for o in group]
    for chosen in product(*each):
        left = iter(chosen)
        yield [[next(left) for _ in group] for group in variants]


@pytest.mark.parametrize(("count", "longest"), [(1, 5), (2, 3), (3, 2)])
def test_the_verdict_exhaustively(count: int, longest: int) -> None:
    """The verdict is the one of all completions, in any order of the comparisons."""
    sizes = range(1, longest + 1)
    groups = [list(c) for n in sizes for c in combinations_with_replacement(OUTCOMES, n)]
    seen = set()
    for variants in combinations_with_replacement(groups, count):
        possible = {by_definition(one) for one in completions(variants)}
        expected = possible.pop() if len(possible) == 1 else UNDECIDED
        assert verdict(variants) == expected, variants
        assert verdict([group[::-1] for group in reversed(variants)]) == expected
        seen.add(expected)
    assert seen == {HOLDS, CONDITIONAL, FAILS, NO_DIFFERENCE, UNDECIDED}


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ([[SUPPORTED, CONTRADICTED]], CONDITIONAL),
        ([[OPEN], [CONTRADICTED]], UNDECIDED),
        ([[SUPPORTED], [CONTRADICTED]], CONDITIONAL),
        ([[SUPPORTED, OPEN]], UNDECIDED),
        ([[SUPPORTED, OPEN], [CONTRADICTED]], CONDITIONAL),
        ([[SUPPORTED, SUPPORTED, OPEN], [CONTRADICTED]], CONDITIONAL),
        ([[CONTRADICTED, OPEN]], UNDECIDED),
        ([[CONTRADICTED, CONTRADICTED, OPEN]], FAILS),
        ([[EQUAL]], NO_DIFFERENCE),
        ([[EQUAL, EQUAL, OPEN]], NO_DIFFERENCE),
        ([[EQUAL, OPEN]], UNDECIDED),
        ([[EQUAL, CONTRADICTED]], FAILS),
        ([[EQUAL], [SUPPORTED]], CONDITIONAL),
        ([], UNDECIDED),
    ],
)
def test_verdicts_by_hand(variants: list[list[str]], expected: str) -> None:
    assert verdict(variants) == expected


def test_variants_are_judged_separately() -> None:
    cells = [("raw", 0.1, 50), ("raw", 1.0, 10), ("clip", 0.1, 10), ("clip", 1.0, 50)]
    curves = [
        curve(noisy(value, value), rho=rho, contexts=contexts) for contexts, rho, value in cells
    ]
    judgement = judge(claim(), curves, ("contexts",))
    assert judgement.verdict == CONDITIONAL
    assert judgement.variants == {"raw": HOLDS, "clip": FAILS}
    assert judgement.summary == (
        "1 of 2 comparisons support it, 1 contradict it (clip rho=1 against rho=0.1)"
    )


def test_claims_whose_conditions_are_not_met_are_not_tested() -> None:
    """Neither a contradiction nor a confirmation decides them; the counts remain."""
    curves = [curve(noisy(100, 0, sd=0.1), rho=0.1), curve(noisy(90, 1, sd=0.1), rho=1.0)]
    for expect in ("falls", "grows"):
        plain = judge(claim(expect=expect), curves, ())
        untested = judge(claim(expect=expect, untested="Other data."), curves, ())
        assert plain.verdict in (HOLDS, FAILS) and untested.verdict == NOT_TESTED
        assert set(untested.variants.values()) == {NOT_TESTED}
        assert untested.comparisons == plain.comparisons
        assert untested.summary == f"Other data. In this run {plain.summary}"
    with pytest.raises(ValidationError, match="control"):
        claim(by="control", untested="Other data.")


def test_equal_is_symmetric_and_takes_the_claims_least_effect() -> None:
    """The same pair of curves is equal for "falls" and "grows", at 1% and not at 0.01%."""
    right, left = curve(noisy(100, 0, sd=0.1), rho=0.1), curve(noisy(100, 1, sd=0.1), rho=1.0)
    for expect in ("falls", "grows"):
        judgement = judge(claim(expect=expect), [left, right], ())
        assert judgement.verdict == NO_DIFFERENCE
        assert "1 show no difference" in judgement.summary
        strict = judge(claim(expect=expect, least=1e-4), [left, right], ())
        assert strict.verdict in (UNDECIDED, FAILS)


def test_what_was_chosen_is_said_and_does_not_decide() -> None:
    curves = [curve(noisy(100, 0, sd=0.1), rho=0.1), curve(noisy(90, 1, sd=0.1), rho=1.0)]
    plain, chosen = (judge(claim(chosen=text), curves, ()) for text in ("", "T = 10,000"))
    assert chosen.verdict == plain.verdict == HOLDS
    assert chosen.summary == f"{plain.summary}; chosen here: T = 10,000"
