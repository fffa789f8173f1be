"""Weighted running sums: cost, releases and combinations of releases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.privacy import Budget, Curator, NoiseSource, Schedule, gaussian_sigma

APART = 100.0  # records are shorter than half of it


def schedules():
    return st.builds(
        Schedule.geometric,
        st.integers(2, 5000),
        st.floats(0.5, 300.0),
        st.floats(1.02, 2.5),
        st.floats(0.0, 2.5),
    )


def make(schedule, B=3, width=2, sigma=0.7, noise=None, horizon=None):
    """A releaser whose noise at scale 1 has standard deviation `sigma`."""
    curator = Curator(
        Budget.zcdp(0.5 * (APART / sigma) ** 2),
        noise=NoiseSource.from_seed(5, B) if noise is None else noise,
        horizon=horizon or int(schedule.ends[-1]) + 5,
    )
    return curator.weighted_sum(width, schedule=schedule, clip=APART / 2, what="sums")


class TestSchedule:
    @given(schedules())
    def test_every_record_spends_exactly_the_budget(self, schedule):
        m = len(schedule.ends)
        for j in range(m):
            cost = sum((schedule.weights[j] * schedule.scales[i]) ** 2 for i in range(j, m))
            assert cost == pytest.approx(1.0, rel=1e-12)

    @given(schedules())
    def test_releases_are_ordered_rounds(self, schedule):
        assert schedule.ends[0] >= 1
        assert (np.diff(schedule.ends) >= 1).all()
        assert schedule.sizes.sum() == schedule.ends[-1]

    def test_the_number_of_releases_grows_with_the_logarithm_of_the_horizon(self):
        counts = [len(Schedule.geometric(T, 50, 1.1, 1.25).ends) for T in (10**4, 10**5, 10**6)]
        per_decade = math.log(10) / math.log(1.1)
        assert np.diff(counts) == pytest.approx([per_decade] * 2, abs=1)

    @settings(max_examples=30, deadline=None)
    @given(schedules(), st.floats(0.1, 50.0), st.floats(0.0, 5.0), st.integers(0, 2**32))
    def test_no_other_combination_is_better(self, schedule, noise, spread, seed):
        m = min(len(schedule.ends), 25)
        schedule = Schedule(schedule.ends[:m], schedule.weights[:m], schedule.scales[:m])
        combination = schedule.best_weights(noise, spread)
        rng = np.random.default_rng(seed)
        k = int(rng.integers(m))

        def variance(alpha):
            # record by batch: weight of its own randomness; release by release: noise
            own = sum(
                schedule.sizes[j] * (schedule.weights[j] * alpha[j : k + 1].sum()) ** 2
                for j in range(k + 1)
            )
            return spread * own + sum((a * noise / s) ** 2 for a, s in zip(alpha, schedule.scales))

        def exposure(alpha):
            return sum(
                schedule.sizes[j] * schedule.weights[j] * alpha[j : k + 1].sum()
                for j in range(k + 1)
            )

        best = combination.weights[k, : k + 1]
        assert exposure(best) == pytest.approx(schedule.ends[k], rel=1e-6)
        assert (combination.weights[k, k + 1 :] == 0).all()
        noise_only = sum((a / s) ** 2 for a, s in zip(best, schedule.scales))
        assert combination.std[k] == pytest.approx(math.sqrt(noise_only), rel=1e-9)
        for _ in range(5):
            other = best + rng.normal(size=k + 1) * np.abs(best).max() * 0.3
            if abs(exposure(other)) > 1e-9:
                other = other * schedule.ends[k] / exposure(other)
                assert variance(best) <= variance(other) * (1 + 1e-7)
        newest = np.zeros(k + 1)
        newest[k] = schedule.ends[k] / exposure(np.eye(k + 1)[k])
        assert variance(best) <= variance(newest) * (1 + 1e-7)


class TestWeightedSum:
    def test_releases_are_the_weighted_sums_plus_noise_of_the_stated_size(self):
        schedule = Schedule.geometric(60, 4, 1.4, 1.25)
        B = 4000
        releaser = make(schedule, B=B, sigma=0.7)
        rng = np.random.default_rng(0)
        records = rng.normal(size=(60, 2))
        batch_of = np.searchsorted(schedule.ends, np.arange(1, 61))
        k = 0
        residuals = []
        for t in range(1, 61):
            releaser.add(np.broadcast_to(records[t - 1], (B, 2)).copy())
            if k < len(schedule.ends) and t == schedule.ends[k]:
                exact = sum(schedule.weights[batch_of[s]] * records[s] for s in range(t))
                residual = releaser.value - exact
                std = releaser.noise_std
                assert std == pytest.approx(0.7 / schedule.scales[k])
                # 5 standard errors of a mean and of a standard deviation of 8000 normals
                assert abs(residual.mean()) < 5 * std / math.sqrt(2 * B)
                assert residual.std() == pytest.approx(std, rel=5 / math.sqrt(4 * B))
                residuals.append(residual / std)
                k += 1
        assert k == len(schedule.ends)
        correlation = np.corrcoef(np.array(residuals).reshape(k, -1))
        off = correlation[~np.eye(k, dtype=bool)]
        assert np.abs(off).max() < 5.5 / math.sqrt(2 * B)

    def test_nothing_is_released_before_the_first_round_of_the_schedule(self):
        schedule = Schedule.geometric(50, 10, 1.5, 1.0)
        releaser = make(schedule)
        for _ in range(9):
            releaser.add(np.ones((3, 2)))
            assert (releaser.value == 0).all()
        releaser.add(np.ones((3, 2)))
        first = releaser.value
        assert (first != 0).all()
        releaser.add(np.full((3, 2), 99.0))
        np.testing.assert_array_equal(releaser.value, first)

    def test_the_whole_stream_is_charged_at_once(self):
        releaser = make(Schedule.geometric(50, 10, 1.5, 1.0), sigma=0.7)
        releaser.curator.seal()
        assert releaser.curator.ledger.spent == pytest.approx(0.5 * (APART / 0.7) ** 2, rel=1e-9)
        assert releaser.sigma == pytest.approx(gaussian_sigma(0.5 / 0.7**2, 1.0))

    def test_horizon_and_bad_records(self):
        schedule = Schedule.geometric(50, 10, 1.5, 1.0)
        releaser = make(schedule, horizon=12)
        with pytest.raises(ParameterError, match="finite"):
            releaser.add(np.full((3, 2), np.nan))
        with pytest.raises(ParameterError, match="shape"):
            releaser.add(np.zeros((2, 2)))
        assert releaser.rounds == 0
        for _ in range(12):
            releaser.add(np.zeros((3, 2)))
        with pytest.raises(HorizonExceeded, match="12"):
            releaser.add(np.zeros((3, 2)))

    def test_a_replicate_does_not_depend_on_its_batch(self):
        schedule = Schedule.geometric(40, 3, 1.3, 1.25)
        records = np.random.default_rng(1).normal(size=(40, 5, 2))

        def run(lanes):
            noise = NoiseSource([np.random.default_rng(s) for s in lanes])
            releaser = make(schedule, B=len(lanes), noise=noise, sigma=1.0)
            out = []
            for t in range(40):
                releaser.add(np.ascontiguousarray(records[t, lanes]))
                out.append(releaser.value)
            return np.array(out)

        np.testing.assert_array_equal(run([0, 1, 2, 3, 4])[:, 3], run([3])[:, 0])


class TestCombinations:
    def test_the_stated_noise_is_the_noise_of_the_combination(self):
        schedule = Schedule.geometric(300, 10, 1.3, 1.25)
        B = 4000
        releaser = make(schedule, B=B, width=1, sigma=2.0, horizon=300)
        combination, history = schedule.best_weights(2.0, 0.3), []
        for t in range(1, 300):
            releaser.add(np.ones((B, 1)))
            if releaser.releases > len(history):
                history.append(releaser.value[:, 0])
                k = len(history) - 1
                residual = combination.weights[k, : k + 1] @ np.array(history) - t
                std = 2.0 * combination.std[k]
                assert abs(residual.mean()) < 5 * std / math.sqrt(B)
                assert residual.std() == pytest.approx(std, rel=5 / math.sqrt(2 * B))

    def test_combining_beats_the_newest_release(self):
        schedule = Schedule.geometric(10**5, 100, 1.1, 1.25)
        combination = schedule.best_weights(100.0, 0.0)
        exposure = np.cumsum(schedule.weights * schedule.sizes)
        newest = schedule.ends / exposure / schedule.scales
        assert combination.std[-1] < 0.6 * newest[-1]
