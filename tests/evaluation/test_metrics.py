"""Aggregates against closed forms, brute force and scipy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpb_gym.errors import ParameterError
from dpb_gym.evaluation import metrics

SAMPLES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(SAMPLES)
def test_iqm_is_the_mean_of_the_middle_half(values: list[float]) -> None:
    cut = len(values) // 4
    middle = sorted(values)[cut : len(values) - cut]
    assert metrics.trimmed_mean(values, metrics.MIDDLE) == pytest.approx(
        math.fsum(middle) / len(middle), abs=1e-6
    )


@settings(max_examples=30, deadline=None)
@given(SAMPLES)
def test_intervals_contain_the_estimate_and_lie_in_the_range(values: list[float]) -> None:
    for cut in (0.0, metrics.MIDDLE):
        found = metrics.bootstrap(values, cut, resamples=200)
        assert found.mean == pytest.approx(float(metrics.trimmed_mean(values, cut)), abs=1e-6)
        slack = 1e-6 * (1 + max(map(abs, values)))
        assert min(values) - slack <= found.low <= found.mean <= found.high <= max(values) + slack


def test_bootstrap_of_the_mean_agrees_with_the_normal_limit() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 4000)
    found = metrics.bootstrap(values, resamples=4000)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert found.mean == values.mean()
    assert found.low == pytest.approx(values.mean() - half, abs=0.08 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.08 * half)


def test_bootstrap_of_two_values_is_the_exact_distribution() -> None:
    # Resamples of {0, 1} have means 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4.
    assert metrics.bootstrap([0.0, 1.0]) == metrics.Interval(0.5, 0.0, 1.0)
    half = metrics.bootstrap([0.0, 1.0], confidence=0.3)
    assert (half.low, half.high) == (0.5, 0.5)


def test_coverage_of_the_interval_is_about_95_percent() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    trials = 300
    for _ in range(trials):
        found = metrics.bootstrap(rng.exponential(1.0, 60), resamples=400)
        covered += found.low <= 1.0 <= found.high
    # Percentile intervals of skewed data cover a little less than they promise.
    assert stats.binomtest(covered, trials, 0.93).pvalue > 1e-3


def test_the_same_values_give_the_same_interval_and_one_value_no_width() -> None:
    values = np.random.default_rng(0).random(12)
    assert metrics.bootstrap(values) == metrics.bootstrap(values)
    assert metrics.bootstrap(values, seed=1) != metrics.bootstrap(values, seed=2)
    assert metrics.bootstrap([2.0]) == metrics.Interval(2.0, 2.0, 2.0)
    assert metrics.bootstrap([2.0, 2.0, 2.0]) == metrics.Interval(2.0, 2.0, 2.0)


def test_bands_are_the_bootstrap_of_each_column() -> None:
    values = np.random.default_rng(0).random((9, 4))
    for i, band in enumerate(metrics.bands(values)):
        column = metrics.bootstrap(values[:, i])
        for name in ("mean", "low", "high"):
            assert getattr(band, name) == pytest.approx(getattr(column, name), rel=1e-12)


def test_the_stratified_bootstrap_resamples_within_tasks() -> None:
    # Between-task differences are no uncertainty: tasks without spread give no width.
    assert metrics.stratified_bootstrap([[1.0, 1.0], [5.0, 5.0, 5.0]]) == metrics.Interval(
        3.0, 3.0, 3.0
    )
    rng = np.random.default_rng(2)
    strata = [rng.normal(0, 1, 300), rng.normal(10, 3, 500)]
    found = metrics.stratified_bootstrap(strata, resamples=4000)
    variance = (strata[0].var() / 300 + strata[1].var() / 500) / 4
    assert found.mean == pytest.approx((strata[0].mean() + strata[1].mean()) / 2)
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.sqrt(variance), rel=0.06)


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 3), min_size=1),
       st.dictionaries(st.integers(20, 29), st.integers(0, 3), min_size=1))  # fmt: skip
def test_unpaired_improvement_is_mann_whitney(a: dict[int, int], b: dict[int, int]) -> None:
    found = metrics.probability_of_improvement(a, b)  # type: ignore[arg-type]
    statistic = stats.mannwhitneyu(list(b.values()), list(a.values())).statistic
    assert found == pytest.approx(statistic / (len(a) * len(b)))


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
    found = metrics.bootstrap(metrics.differences(a, b))
    assert found.low > 0 and found.high - found.low < 0.2


def test_an_interquartile_mean_is_resampled_as_scipy_does_it() -> None:
    values = np.random.default_rng(0).exponential(3.0, 21)
    cut = lambda x, axis: stats.trim_mean(x, 0.25, axis=axis)  # noqa: E731
    theirs = stats.bootstrap(
        (values,), cut, n_resamples=20_000, method="percentile", rng=np.random.default_rng(7)
    ).confidence_interval
    ours = metrics.bootstrap(values, metrics.MIDDLE, resamples=20_000)
    assert ours.mean == pytest.approx(stats.trim_mean(values, 0.25))
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)


def test_scores_are_linear_between_random_and_oracle() -> None:
    constants = {"random": 10.0, "oracle": 30.0}
    np.testing.assert_allclose(
        metrics.normalised_score([20.0, 0.0, 10.0, 30.0], constants), [0, 1, 0.5, -0.5]
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.bootstrap([]),
        lambda: metrics.bootstrap([1.0, math.nan]),
        lambda: metrics.bootstrap([[1.0]]),
        lambda: metrics.bootstrap([1.0, 2.0], confidence=1.0),
        lambda: metrics.bands([1.0]),
        lambda: metrics.bands([[math.inf]]),
        lambda: metrics.stratified_bootstrap([]),
        lambda: metrics.stratified_bootstrap([[1.0], []]),
        lambda: metrics.bootstrap(metrics.differences({1: 1.0}, {2: 1.0})),
        lambda: metrics.probability_of_improvement({}, {1: 1.0}),
        lambda: metrics.normalised_score([1.0], {"random": 1.0, "oracle": 1.0}),
        lambda: metrics.normalised_score([1.0], {"random": math.nan, "oracle": 1.0}),
    ],
)
def test_nothing_to_aggregate_is_refused(call: Any) -> None:
    with pytest.raises(ParameterError):
        call()
