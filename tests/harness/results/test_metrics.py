"""Aggregates against closed forms, brute force and scipy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpb_gym.errors import ParameterError
from dpb_gym.report.leaderboard_data import Normalisation
from dpb_gym.results import metrics

SAMPLES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(SAMPLES)
def test_iqm_is_the_mean_of_the_middle_half(values: list[float]) -> None:
    cut = len(values) // 4
    middle = sorted(values)[cut : len(values) - cut]
    interval = metrics.interval(values, metrics.MIDDLE)
    assert interval.mean == pytest.approx(math.fsum(middle) / len(middle), abs=1e-6)
    assert interval.low <= interval.mean <= interval.high


def test_the_interval_of_a_mean_is_students() -> None:
    for n in (2, 3, 30):
        values = np.random.default_rng(n).exponential(3.0, n)
        theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
        ours = metrics.interval(values)
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
        assert metrics.interval(values, floor=0.0).low == max(0.0, ours.low)


def test_the_interval_of_an_interquartile_mean_is_yuens() -> None:
    values, zero = np.random.default_rng(0).exponential(3.0, 21), np.zeros(21)
    with np.errstate(all="ignore"):
        theirs = stats.ttest_ind(values, zero, equal_var=False, trim=0.25)
    ours = metrics.interval(values, metrics.MIDDLE)
    error = ours.mean / theirs.statistic
    assert ours.high - ours.mean == pytest.approx(stats.t.ppf(0.975, 10) * error)


@pytest.mark.parametrize("n", [2, 4, 8, 30])
def test_intervals_have_their_coverage_from_two_replicates_on(n: int) -> None:
    samples = np.random.default_rng(5).normal(1.0, 3.0, (n, 4000))
    _, low, high = metrics.limits(samples)
    covered = int(((low <= 1.0) & (high >= 1.0)).sum())
    assert stats.binomtest(covered, 4000, 0.95).pvalue > 1e-3


def test_equal_values_have_no_width_and_one_value_has_no_ends() -> None:
    unknown = metrics.Interval(2.0, -np.inf, np.inf)
    assert metrics.interval([2.0]) == metrics.interval([2.0], metrics.MIDDLE, floor=0.0) == unknown
    assert not unknown.bounded and metrics.grouped([2.0], [0]) == unknown
    assert metrics.mean_of_tasks([[2.0], [2.0, 2.0]]) == unknown
    assert metrics.interval([2.0, 2.0, 2.0]) == metrics.Interval(2.0, 2.0, 2.0)


def test_limits_are_the_intervals_of_the_columns() -> None:
    values = np.random.default_rng(0).random((9, 4))
    for i, ends in enumerate(metrics.limits(values, metrics.MIDDLE).T):
        column = metrics.interval(values[:, i], metrics.MIDDLE)
        assert vars(column) == pytest.approx(dict(zip(("mean", "low", "high"), ends)))


def test_a_mean_of_tasks_is_uncertain_within_tasks_only() -> None:
    # Between-task differences are no uncertainty: tasks without spread give no width.
    assert metrics.mean_of_tasks([[1.0, 1.0], [5.0] * 3]) == metrics.Interval(3.0, 3.0, 3.0)
    rng = np.random.default_rng(2)
    a, b = rng.normal(0, 1, 12), rng.normal(10, 3, 9)
    # Half the sum of two means has half the interval of Welch's difference of one and minus other.
    theirs = stats.ttest_ind(a, -b, equal_var=False).confidence_interval(0.95)
    interval = metrics.mean_of_tasks([a, b])
    assert (interval.low, interval.high) == pytest.approx((theirs.low / 2, theirs.high / 2))
    assert metrics.mean_of_tasks([a]) == metrics.interval(a)


@pytest.mark.slow
@given(st.dictionaries(st.integers(0, 9), st.integers(0, 3), min_size=1),
       st.dictionaries(st.integers(20, 29), st.integers(0, 3), min_size=1))  # fmt: skip
def test_unpaired_improvement_is_mann_whitney(a: dict[int, int], b: dict[int, int]) -> None:
    probability = metrics.probability_of_improvement(a, b)  # type: ignore[arg-type]
    statistic = stats.mannwhitneyu(list(b.values()), list(a.values())).statistic
    assert probability == pytest.approx(statistic / (len(a) * len(b)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_paired_improvement_counts_shared_replicates(pairs: list[tuple[int, int]]) -> None:
    a = {i: float(pair[0]) for i, pair in enumerate(pairs)} | {100: -5.0}
    b = {i: float(pair[1]) for i, pair in enumerate(pairs)} | {200: -9.0}
    wins = sum(1.0 if x < y else 0.5 if x == y else 0.0 for x, y in pairs)
    assert metrics.probability_of_improvement(a, b) == pytest.approx(wins / len(pairs))
    both = metrics.probability_of_improvement(a, b) + metrics.probability_of_improvement(b, a)
    assert both == pytest.approx(1.0)


def test_paired_differences_remove_what_the_customers_share() -> None:
    rng = np.random.default_rng(3)
    common = rng.normal(0, 100, 30)
    a = {i: c + 1.0 + 0.1 * rng.normal() for i, c in enumerate(common)}
    b = {i: float(c) for i, c in enumerate(common)} | {99: 1e9}
    assert metrics.differences(a, b) == [a[i] - b[i] for i in range(30)]
    interval = metrics.interval(metrics.differences(a, b))
    assert interval.low > 0 and interval.high - interval.low < 0.2


def test_scores_are_linear_between_random_and_oracle() -> None:
    constants = Normalisation(random=10.0, oracle=30.0)
    np.testing.assert_allclose(
        metrics.normalised_score([20.0, 0.0, 10.0, 30.0], constants), [0, 1, 0.5, -0.5]
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.interval([]),
        lambda: metrics.interval([1.0, math.nan]),
        lambda: metrics.interval([[1.0]]),
        lambda: metrics.limits([1.0]),
        lambda: metrics.limits([[math.inf]]),
        lambda: metrics.mean_of_tasks([]),
        lambda: metrics.mean_of_tasks([[1.0], []]),
        lambda: metrics.interval(metrics.differences({1: 1.0}, {2: 1.0})),
        lambda: metrics.probability_of_improvement({}, {1: 1.0}),
        lambda: metrics.normalised_score([1.0], Normalisation(1.0, 1.0)),
        lambda: metrics.normalised_score([1.0], Normalisation(math.nan, 1.0)),
    ],
)
def test_statistics_of_invalid_samples_raise_an_error(call: Any) -> None:
    with pytest.raises(ParameterError):
        call()
