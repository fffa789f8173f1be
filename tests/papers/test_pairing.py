"""Paired t-tests: against scipy's, and against the delta method for ratios."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from figure_helpers import claim, curve
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from dpb_gym.errors import ResultError
from dpb_gym.papers.pairing import paired_t
from dpb_gym.papers.quantities import Measured
from dpb_gym.papers.verdicts import judge

numbers = arrays.arrays(
    float, st.integers(3, 30), elements=st.floats(-100, 100, width=32), unique=True
)


def one(values: Any) -> Measured:
    return Measured((dict(enumerate(np.asarray(values, float).tolist())),))


@settings(max_examples=60, deadline=None)
@given(numbers, st.integers(0, 2**32 - 1))
def test_differences_are_the_paired_t_test(values: Any, seed: int) -> None:
    other = values + np.random.default_rng(seed).normal(0.3, 1.0, len(values))
    found = paired_t([one(values), one(other)], lambda v: v[0] - v[1])
    assert found == pytest.approx(stats.ttest_rel(values, other).pvalue, rel=1e-6, abs=1e-12)
    found = paired_t([one(values)], lambda v: v[0] - 2.5)
    assert found == pytest.approx(stats.ttest_1samp(values, 2.5).pvalue, rel=1e-5, abs=1e-12)


def test_ratios_by_the_delta_method() -> None:
    rng = np.random.default_rng(4)
    over = rng.normal(50, 5, 400)
    values = 0.5 * over + rng.normal(0.3, 2, 400)
    ratio = Measured(tuple(dict(enumerate(v)) for v in (values, over)), "ratio")
    found = paired_t([ratio], lambda v: v[0] - 0.5)
    centre = values.mean() / over.mean()
    error = (values - centre * over).std(ddof=1) / over.mean() / np.sqrt(400)
    expected = 2 * stats.t.sf(abs(centre - 0.5) / error, 399)
    assert found == pytest.approx(expected, rel=0.05)


def test_shortfalls_are_one_minus_ratios() -> None:
    score = Measured(({0: 1.0, 1: 3.0, 2: 2.0}, {0: 10.0, 1: 10.0, 2: 20.0}), "shortfall")
    assert float(score.of([2.0, 40 / 3])) == pytest.approx(1 - 6 / 40)


def test_where_there_is_no_test() -> None:
    constant = Measured((), "constant", 3.0)
    assert paired_t([constant], lambda v: v[0]) is None
    assert paired_t([one([1.0, 2.0])], lambda v: v[0]) is None
    same = one([1.0, 2.0, 4.0])
    assert paired_t([same, same], lambda v: v[0] - v[1]) == 1.0
    assert paired_t([one([2.0, 2.0, 2.0])], lambda v: v[0] - 1.0) == 0.0
    with pytest.raises(ResultError, match="share no replicate"):
        paired_t([same, Measured(({7: 1.0, 8: 2.0, 9: 3.0},))], lambda v: v[0] - v[1])


def test_the_false_alarm_rate_is_the_level() -> None:
    rng = np.random.default_rng(11)
    hits = sum(
        paired_t([one(rng.normal(size=12)), one(rng.normal(size=12))], lambda v: v[0] - v[1]) < 0.05
        for _ in range(400)
    )
    assert stats.binomtest(hits, 400, 0.05).pvalue > 1e-3


def test_comparisons_carry_the_p_value() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(100, 10, 12)
    low, high = common + rng.normal(0, 1, 12), common + rng.normal(2, 1, 12)
    (found,) = judge(claim(), [curve(high, rho=0.1), curve(low, rho=1.0)], ()).comparisons
    assert found.p_value == pytest.approx(stats.ttest_rel(low, high).pvalue)
