"""Reward sums that are released replicate by replicate: cost, noise, sensitivity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpb_agents.recommendation.rivals.linear_rival import RewardSums
from dpb_gym.errors import BudgetExceeded, HorizonExceeded, ParameterError
from dpb_gym.kernels.vectors import operator_norm
from dpb_gym.privacy import Budget, Curator, NoiseSource, Segment, SystemNoise

WIDTH = 3


def sums(replicates=2, sigma=1.0, seeds=None, keep=None, horizon=1000, bound=(0.0, 1.0)):
    """Return sums whose noise has standard deviation `sigma`."""
    generators = [np.random.default_rng(s) for s in (seeds or range(replicates))]
    rho = 0.5 * (keep or 1) * ((bound[1] - bound[0]) / sigma) ** 2
    curator = Curator(
        Budget.zcdp(rho), ("central", "reward"), noise=NoiseSource(generators), horizon=horizon
    )
    made = RewardSums(curator, WIDTH, Segment(*bound), "sums", keep=keep)
    curator.seal()
    assert made.sigma == pytest.approx(sigma, rel=1e-9)
    return made


def unit(rng, n):
    x = rng.standard_normal((n, WIDTH))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize(("keep", "split", "cost"), [(None, 1, 1.0), (4, 1, 1.0), (None, 4, 0.25)])
def test_a_closed_segment_costs_one_release_and_an_open_one_all(keep, split, cost):
    curator = Curator(Budget.zcdp(1.0), noise=NoiseSource.from_seed(0), horizon=10)
    made = RewardSums(curator, WIDTH, Segment(-0.5, 0.5), "sums", keep=keep, split=split)
    for _ in range(4):
        made.add(np.ones(1), np.eye(WIDTH)[:1])
        made.release(np.ones(1, bool))
    assert curator.ledger.spent == pytest.approx(cost, rel=1e-9)
    # what each release would cost alone, and how many every record is in
    assert (keep or 1) * 0.5 / made.sigma**2 == pytest.approx(cost, rel=1e-9)


def test_releases_run_out():
    made = sums(keep=2, sigma=10.0)
    due = np.array([True, False])
    for _ in range(2):
        made.release(due)
    with pytest.raises(BudgetExceeded, match="all 2 releases"):
        made.release(np.ones(2, bool))
    assert made.releases.tolist() == [2, 0], "nothing was released"


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize("keep", [None, 50])
def test_releases_are_the_exact_sums_plus_noise_of_the_stated_scale(image, keep):
    rng = np.random.default_rng(1)
    B, sigma = 300, 10.0
    made = sums(seeds=range(B), sigma=sigma, keep=keep, bound=(-0.5, 0.5))
    exact, last, noise = np.zeros((B, WIDTH)), np.zeros((B, WIDTH)), []
    for _ in range(12):
        r, x = rng.uniform(-0.5, 0.5, B), unit(rng, B)
        made.add(r, x)
        exact += r[:, None] * x
        due = rng.random(B) < 0.4
        if image:
            root = rng.standard_normal((B, WIDTH, WIDTH))
            m = root @ root.transpose(0, 2, 1)
            norm = np.array([operator_norm(one) for one in m])
            out = made.release(due, m, norm)
            clean = np.einsum("bij,bj->bi", m, exact)
            noise.append(((out - clean) / norm[:, None] / sigma)[due])
        else:
            out = made.release(due)
            noise.append(((out - exact) / sigma)[due])
        np.testing.assert_array_equal(out[~due], last[~due])
        last = out
        if keep is None:
            exact[due] = 0.0
    assert stats.kstest(np.concatenate(noise).ravel(), "norm").pvalue > 1e-3


def test_system_noise_has_the_stated_scale_and_is_not_stored():
    pytest.importorskip("opendp")
    B = 500
    own = Curator("rho=0.5", ("central", "reward"), noise=SystemNoise(B), horizon=10)
    made = RewardSums(own, WIDTH, Segment(0.0, 1.0), "sums")
    releases = []
    for _ in range(3):
        made.add(np.ones(B), np.tile(np.eye(WIDTH)[0], (B, 1)))
        releases.append(made.release(np.ones(B, bool)) - np.eye(WIDTH)[0])
        numbers = [v for v in vars(made).values() if isinstance(v, np.ndarray) and v.size >= B]
        stored = np.concatenate([v.ravel() for v in numbers if v is not made._released])
        assert not np.isin(stored[stored != 0.0], releases[-1] / made.sigma).any()
    assert made._cursor.min() == made._normals.shape[1] and not made._normals.any()
    assert stats.kstest(np.ravel(releases) / made.sigma, "norm").pvalue > 1e-4
    assert own.ledger.spent == pytest.approx(0.5, rel=1e-9)


def test_a_replicate_does_not_depend_on_when_others_are_due():
    rng = np.random.default_rng(3)
    r, x = rng.random((600, 4)), np.stack([unit(rng, 4) for _ in range(600)])
    due = rng.random((600, 4)) < [0.9, 0.5, 0.1, 0.02]
    together = sums(seeds=[5, 6, 7, 8])
    alone = [sums(seeds=[s]) for s in (5, 6, 7, 8)]
    for t in range(600):
        together.add(r[t], x[t])
        out = together.release(due[t])
        for b, one in enumerate(alone):
            one.add(r[t, b : b + 1], x[t, b : b + 1])
            np.testing.assert_array_equal(one.release(due[t, b : b + 1])[0], out[b])


def test_no_image_of_a_replaced_reward_moves_further_than_norm_times_range():
    """Search over directions, rewards and other records for the largest move; the least
    upper bound is attained."""
    rng = np.random.default_rng(4)
    for low, high in ((0.0, 1.0), (-0.5, 0.5), (-2.0, 1.0)):
        others = unit(rng, 40)
        m = np.linalg.inv(np.eye(WIDTH) + others.T @ others)
        norm = operator_norm(m)
        worst = 0.0
        _, vectors = np.linalg.eigh(m)
        for x in [*unit(rng, 2000), *(unit(rng, 2000) * rng.random((2000, 1))), *vectors.T]:
            a, b = rng.uniform(low, high, 2)
            for first, second in ((a, b), (low, high)):
                moved = m @ (first * x) - m @ (second * x)
                worst = max(worst, float(np.linalg.norm(moved)))
        assert worst <= norm * (high - low)
        assert worst > 0.999 * norm * (high - low)


def test_records_are_clipped_validated_and_counted():
    made = sums(sigma=1e-9)
    made.add(np.array([7.0, 0.5]), np.array([[0.6, 0.8, 0.0], [1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(
        made.release(np.ones(2, bool)), [[0.6, 0.8, 0.0], [0.5, 0.0, 0.0]], atol=1e-7
    )
    assert made.clipped_count.tolist() == [1, 0]
    with pytest.raises(ParameterError):
        made.add(np.array([math.nan, 0.0]), np.zeros((2, WIDTH)))
    with pytest.raises(ParameterError, match="both"):
        made.release(np.ones(2, bool), np.zeros((2, WIDTH, WIDTH)))
    short = sums(horizon=1)
    short.add(np.zeros(2), np.zeros((2, WIDTH)))
    with pytest.raises(HorizonExceeded):
        short.add(np.zeros(2), np.zeros((2, WIDTH)))


@pytest.mark.parametrize("norm", [0.5, np.nan, 0.0])
def test_a_norm_that_is_too_small_is_refused(norm):
    """The noise has its size."""
    made = sums()
    made.add(np.ones(2), np.eye(WIDTH)[:2])
    matrices = np.tile(np.eye(WIDTH), (2, 1, 1))
    due = np.array([True, False])
    with pytest.raises(ParameterError, match="norm is smaller"):
        made.release(due, matrices, np.array([norm, 1.0]))
    skewed = matrices.copy()
    skewed[0, 0, 1] = 1e6
    for odd in (skewed, matrices * np.nan):
        with pytest.raises(ParameterError, match="symmetric"):
            made.release(due, odd, np.ones(2))
    assert made.releases.tolist() == [0, 0]
    made.release(due, matrices, np.array([1.0, norm]))
    exact = RewardSums(Curator(None, replicates=2), WIDTH, Segment(0.0, 1.0), "sums")
    exact.release(due, matrices, np.array([norm, norm]))
