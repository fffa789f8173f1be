"""Jackknife intervals and tests: against scipy's t, the delta method, and their coverage."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from figure_helpers import claim, curve
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from dpb_gym.errors import ResultError
from dpb_gym.papers.pairing import Measured, interval, jackknife, leave_one_out, p_value
from dpb_gym.papers.quantities import constant, ratio
from dpb_gym.papers.verdicts import judge

numbers = arrays.arrays(
    float, st.integers(3, 30), elements=st.floats(-100, 100, width=32), unique=True
)


def one(values: Any) -> Measured:
    return Measured((dict(enumerate(np.asarray(values, float).tolist())),))


def two_sided(first: Measured, second: Measured) -> float | None:
    (a, b), _ = jackknife(first, second)
    return p_value(a - b)


@settings(max_examples=60, deadline=None)
@given(numbers, st.integers(0, 2**32 - 1))
def test_differences_are_the_paired_t_test(values: Any, seed: int) -> None:
    other = values + np.random.default_rng(seed).normal(0.3, 1.0, len(values))
    reference = stats.ttest_rel(values, other)
    p = two_sided(one(values), one(other))
    assert p == pytest.approx(reference.pvalue, rel=1e-6, abs=1e-12)
    (a, b), count = jackknife(one(values), one(other))
    expected = reference.confidence_interval(0.95)
    assert count == len(values)
    for got in (
        interval(a - b, len(values)),
        interval(leave_one_out(values - other), len(values)),
    ):
        assert got.mean == pytest.approx((values - other).mean(), abs=1e-9)
        assert (got.low, got.high) == pytest.approx(
            (expected.low, expected.high), rel=1e-6, abs=1e-9
        )
    p = two_sided(one(values), constant(2.5))
    assert p == pytest.approx(stats.ttest_1samp(values, 2.5).pvalue, rel=1e-5, abs=1e-12)


def test_ratios_by_the_delta_method() -> None:
    rng = np.random.default_rng(4)
    over = rng.normal(50, 5, 400)
    values = 0.5 * over + rng.normal(0.3, 2, 400)
    columns = tuple(dict(enumerate(v)) for v in (values, over))
    (ratios,), _ = jackknife(Measured(columns, ratio))
    centre = values.mean() / over.mean()
    error = (values - centre * over).std(ddof=1) / over.mean() / np.sqrt(400)
    expected = 2 * stats.t.sf(abs(centre - 0.5) / error, 399)
    assert p_value(ratios - 0.5) == pytest.approx(expected, rel=0.05)
    got = interval(ratios, len(ratios) - 1)
    assert got.mean == pytest.approx(centre)
    assert got.high - got.low == pytest.approx(2 * stats.t.ppf(0.975, 399) * error, rel=0.01)


def test_ratios_are_of_means_not_means_of_ratios() -> None:
    columns = (dict(enumerate([1.0, 9.0])), dict(enumerate([1.0, 90.0])))
    (values,), shared = jackknife(Measured(columns, ratio))
    assert shared == 2
    assert values.tolist() == pytest.approx([10 / 91, 9 / 90, 1.0])


def test_few_or_constant_values_have_no_p_value() -> None:
    (value,), count = jackknife(constant(3.0))
    assert (value.tolist(), count, p_value(value)) == ([3.0], 0, None)
    assert two_sided(one([1.0, 2.0]), constant(0.0)) is None
    same = one([1.0, 2.0, 4.0])
    assert two_sided(same, same) == 1.0
    assert two_sided(one([2.0, 2.0, 2.0]), constant(1.0)) == 0.0
    with pytest.raises(ResultError, match="share no replicate"):
        jackknife(same, Measured(({7: 1.0, 8: 2.0, 9: 3.0},), operator.sub))


def test_the_false_alarm_rate_is_the_level() -> None:
    rng = np.random.default_rng(11)
    hits = sum(two_sided(one(rng.normal(size=12)), one(rng.normal(size=12))) < 0.05
               for _ in range(400))  # fmt: skip
    assert stats.binomtest(hits, 400, 0.05).pvalue > 1e-3


@pytest.mark.parametrize("n", [4, 8, 30])
def test_the_interval_covers_at_small_samples_too(n: int) -> None:
    """The percentile bootstrap covers 79% at n = 4."""
    rng = np.random.default_rng(n)
    samples = rng.normal(1.0, 3.0, (4000, n))
    inside = 0
    for sample in samples:
        limits = interval(leave_one_out(sample), len(sample))
        inside += limits.low <= 1.0 <= limits.high
    assert stats.binomtest(inside, 4000, 0.95).pvalue > 1e-3


def test_comparisons_carry_the_p_value() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(100, 10, 12)
    low, high = common + rng.normal(0, 1, 12), common + rng.normal(2, 1, 12)
    (comparison,) = judge(claim(), [curve(high, rho=0.1), curve(low, rho=1.0)], ()).comparisons
    assert comparison.p_value == pytest.approx(stats.ttest_rel(low, high).pvalue)
