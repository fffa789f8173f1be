"""Records, batch sums and exact sums: clipping, counting, rejection, charges."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from curated import batch, curator, running, silent
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.kernels import continual as kernels
from dpb_gym.privacy import (
    Ball,
    BatchSum,
    GaussianEvent,
    NoiseSource,
    NonNegativeBall,
    PoissonGaussianEvent,
    PSDBall,
    ReleaseModel,
    Schedule,
    Segment,
)
from dpb_gym.privacy.releasers.release_times import OnRequest
from dpb_gym.privacy.releasers.releaser import behind

rows = hnp.arrays(
    np.float64, (2, 3), elements=st.floats(-1e300, 1e300, allow_nan=False, allow_infinity=False)
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(rows, st.floats(1e-3, 1e3))
def test_clipping_is_the_projection_onto_the_ball(value: np.ndarray, radius: float) -> None:
    releaser = silent(clip=radius)
    releaser.add(value)
    out = releaser.release()
    for row, clipped, counted in zip(value, out, releaser.clipped_count):
        scale = max(1e-300, np.abs(row).max())
        norm = scale * np.linalg.norm(row / scale)
        assert np.linalg.norm(clipped) <= radius * (1 + 1e-9)
        if norm <= radius:
            assert clipped == pytest.approx(row, rel=1e-12, abs=1e-190) and counted == 0
        elif norm > radius * (1 + 1e-9):
            assert counted == (norm > radius * (1 + 1e-6))
            assert clipped == pytest.approx(row * (radius / norm), rel=1e-9, abs=1e-190)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    hnp.arrays(np.float64, (2,), elements=st.floats(-5, 5)),
    hnp.arrays(np.float64, (2, 3), elements=st.floats(-5, 5)),
)
def test_segment_clips_value_and_direction(values: np.ndarray, directions: np.ndarray) -> None:
    releaser = silent(clip=Segment(-0.5, 1.0))
    releaser.add(values, directions)
    norms = np.maximum(1.0, np.linalg.norm(directions, axis=1))
    expected = np.clip(values, -0.5, 1.0)[:, None] * directions / norms[:, None]
    assert releaser.release() == pytest.approx(expected, abs=1e-12)
    outside = (values < -0.5) | (values > 1.0) | (norms > 1 + 2e-6)
    assert (releaser.clipped_count >= outside).all()


@pytest.mark.parametrize(
    ("kind", "trust"),
    [
        ("batch_sum", ""),
        ("running_sum", ""),
        *(("weighted_sum", trust) for trust in ("", "@aggregator", "@shuffler", "@local")),
    ],
)
def test_long_public_directions_are_refused(kind: str, trust: str) -> None:
    own = curator(f"rho=0.5{trust}", 2, unit="reward", notion="central", horizon=9)
    model = ReleaseModel(horizon=9, unit_noise=0.05, rate=0.1, spread=2.0, prior=0.5)
    schedule = Schedule.unweighted(np.array([9]))
    plan = {"schedule": schedule, "model": model} if kind == "weighted_sum" else {}
    sums = getattr(own, kind)(3, reward=(-1.0, 2.0), **plan)
    short, long = np.eye(3)[:2] * (1 + 1e-7), np.array([[0.6, 0.8, 0.0], [0.0, 3.0, 4.0]])
    sums.add([1.0, 1.0], short)
    before = behind(sums)._total.copy()
    text = r"record 2 of replicate 1 has length 5; .*L.* reward=\(-1 \* L, 2 \* L\)"
    with pytest.raises(ParameterError, match=text):
        sums.add([1.0, 1.0], long)
    assert sums.rounds == 1
    np.testing.assert_array_equal(behind(sums)._total, before)
    with pytest.raises(ParameterError, match="record 4 of replicate 1 has length 5"):
        sums.add_rounds(np.ones((3, 2)), np.stack([short, short, long]))
    with pytest.raises(ParameterError, match="length inf"):
        sums.add([1.0, 1.0], np.full((2, 3), 1e200))


def test_long_protected_directions_are_clipped_without_an_error() -> None:
    """An error would depend on a protected context; without a budget nothing is protected."""
    released = []
    for size in (1.0, 5.0):
        sums = curator("rho=0.5", horizon=9).batch_sum(3, reward=(0.0, 1.0))
        sums.add([1.0], np.eye(3)[:1] * size)
        released.append(sums.release())
    np.testing.assert_array_equal(*released)
    with pytest.raises(ParameterError, match="has length 5"):
        curator(None, horizon=9).batch_sum(3, reward=(0.0, 1.0)).add([1.0], np.eye(3)[:1] * 5.0)


@pytest.mark.parametrize("radius", [1e-170, 1e-165, 1e-150, 1.0, 1e160])
def test_no_size_escapes_the_ball(radius: float) -> None:
    """Also if squares of norms overflow or underflow."""
    for size in (1e-300, 1e-164, 1e-155, 1.0, 1e150, 1e170, 1e307):
        releaser = batch(clip=Ball(radius), sigma=1e-300, width=2)
        releaser.add(np.full((2, 2), size))
        assert np.hypot(*releaser.release()[0]) <= radius * (1 + 1e-9)


def test_single_precision_rounding_is_scaled_but_not_counted() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    x = x / np.linalg.norm(x, axis=1, keepdims=True) * np.float32(1 + 1e-7)
    for releaser, args in ((silent(), (x,)), (silent(clip=Segment(0, 1)), ([1.0, 1.0], x))):
        releaser.add(*args)
        assert (releaser.clipped_count == 0).all()
        assert (np.linalg.norm(releaser.release(), axis=1) <= 1 + 1e-12).all()


def test_matrices_keep_their_frobenius_norm() -> None:
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(2, 4, 4))
    matrices = matrices + matrices.transpose(0, 2, 1)
    packed = np.empty((2, 10))
    assert kernels.pack_symmetric(matrices, False, 0.0, packed) == kernels.OK
    assert (packed**2).sum(axis=1) == pytest.approx((matrices**2).sum(axis=(1, 2)))
    releaser = silent(symmetric=4, clip=100.0)
    releaser.add(matrices)
    assert releaser.release() == pytest.approx(matrices, rel=1e-14)
    small = silent(symmetric=4, clip=0.5)
    small.add(matrices)
    assert (small.release() ** 2).sum(axis=(1, 2)) == pytest.approx([0.25, 0.25])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_records_change_nothing(bad: float) -> None:
    for releaser, good in (
        (silent(), np.ones((2, 3))),
        (silent(symmetric=2), np.stack([np.eye(2)] * 2)),
        (running("blt", 9, width=3, replicates=2), np.ones((2, 3))),
    ):
        releaser.add(good)
        before = releaser._total.copy(), releaser.rounds, releaser.clipped_count.copy()
        spoilt = good.copy()
        spoilt[1, ..., -1] = bad
        with pytest.raises(ParameterError, match="finite"):
            releaser.add(spoilt)
        for one, other in zip(before, (releaser._total, releaser.rounds, releaser.clipped_count)):
            np.testing.assert_array_equal(one, other)
    segment = silent(clip=Segment(0, 1))
    for values, directions in (
        ([bad, 0.0], np.ones((2, 3))),
        ([0.0, 0.0], [[1, 1, bad], [0, 0, 0]]),
    ):
        with pytest.raises(ParameterError, match="finite"):
            segment.add(values, directions)
    assert segment.rounds == 0


@pytest.mark.parametrize(
    "records",
    [np.ones((3, 3)), np.ones((2, 4)), np.ones(3), 1.0, np.ones((2, 3, 1)), [["a", "b", "c"]] * 2],
)
def test_wrong_shapes_and_mixed_replicates(records: object) -> None:
    with pytest.raises(ParameterError, match=r"shape|numbers"):
        silent().add(records)  # type: ignore[arg-type]


def test_matrix_records_are_checked_against_their_bound() -> None:
    skew = np.array([[[0.0, 1.0], [0.0, 0.0]]] * 2)
    with pytest.raises(ParameterError, match="symmetric"):
        silent(symmetric=2).add(skew)
    indefinite = np.array([np.eye(2), np.diag([1.0, -1e-6])])
    with pytest.raises(ParameterError, match="semidefinite"):
        silent(symmetric=2, clip=PSDBall(2.0)).add(indefinite)
    silent(symmetric=2, clip=Ball(2.0)).add(indefinite)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 3))
def test_gram_matrices_and_covariances_pass_as_semidefinite(seed: int, d: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, rank, d))
    gram = np.einsum("bki,bkj->bij", x, x)
    p = rng.dirichlet(np.ones(rank), size=2)
    mean = np.einsum("bk,bki->bi", p, x)
    covariance = np.einsum("bk,bki,bkj->bij", p, x, x) - mean[:, :, None] * mean[:, None, :]
    for matrices in (gram, covariance, np.zeros_like(gram)):
        matrices = (matrices + matrices.transpose(0, 2, 1)) / 2
        sums = silent(symmetric=d, clip=PSDBall(10.0))
        sums.add(matrices)
        assert sums.rounds == 1


@pytest.mark.parametrize("many", [1, 4])
@pytest.mark.parametrize("radius", [0.3, 3.0, 1e9])
def test_squares_are_the_matrices_bit_for_bit(many: int, radius: float) -> None:
    rng = np.random.default_rng(3)
    values, vectors = rng.random(2), rng.normal(size=(2, many, 5))
    matrices = np.zeros((2, 5, 5))
    for k in range(many):
        v = vectors[:, k]
        matrices += (values[:, None] * v)[:, :, None] * v[:, None, :]
    lower = np.tril_indices(5)
    matrices[:, lower[0], lower[1]] = matrices[:, lower[1], lower[0]]
    for clip in (Ball(radius), PSDBall(radius)):
        whole, squares = (silent(symmetric=5, clip=clip) for _ in range(2))
        whole.add(matrices)
        squares.add(values, vectors if many > 1 else vectors[:, 0])
        np.testing.assert_array_equal(whole.clipped_count, squares.clipped_count)
        np.testing.assert_array_equal(whole.release(), squares.release())


@pytest.mark.parametrize("radius", [1e-170, 1e-40, 1.0])
def test_no_square_escapes_the_ball(radius: float) -> None:
    """Also if squares of a direction underflow and the value is large."""
    for value, size in ((1e300, 1e-162), (1e300, 1e-170), (1.0, 1e-80), (1.0, 1.0)):
        releaser = batch(clip=Ball(radius), sigma=1e-300, symmetric=2)
        releaser.add(np.full(2, value), np.full((2, 2), size))
        assert np.hypot(*releaser.release()[0]).max() <= radius * (1 + 1e-9)


def test_squares_are_checked_before_anything_is_added() -> None:
    ones = np.ones((2, 3))
    releaser = silent(symmetric=3, clip=PSDBall(9.0))
    with pytest.raises(ParameterError, match="semidefinite"):
        releaser.add([1.0, -1.0], ones)
    for values, along in (([1.0, np.nan], ones), ([1.0, 1.0], np.array([ones[0], [1, np.inf, 1]]))):
        with pytest.raises(ParameterError, match="finite"):
            releaser.add(values, along)
    for along in (np.ones((2, 4)), np.ones((3, 3)), np.ones(3), np.ones((2, 1, 1, 3))):
        with pytest.raises(ParameterError, match="shape"):
            releaser.add([1.0, 1.0], along)
    releaser.add([1.0, 2.0], ones)
    np.testing.assert_allclose(releaser.release(), [[[1.0] * 3] * 3, [[2.0] * 3] * 3])
    general = silent(symmetric=3, clip=Ball(9.0))
    general.add([1.0, -1.0], ones)
    np.testing.assert_allclose(general.release()[1], -1.0)


def test_bounds_must_fit_the_shape() -> None:
    for clip, kwargs in ((PSDBall(1.0), {"width": 3}), (Segment(0, 1), {"symmetric": 3})):
        with pytest.raises(ParameterError):
            batch(clip=clip, **kwargs)
    with pytest.raises(ParameterError, match="directions"):
        batch(clip=Segment(0, 1)).add(np.ones((2, 3)))
    for low, high in ((1, 0), (0, math.inf), (math.nan, 1)):
        with pytest.raises(ParameterError):
            Segment(low, high)


def test_disjoint_batches_cost_as_much_as_one() -> None:
    own = curator("eps=1,delta=1e-5", notion="central", unit="reward")
    releaser = BatchSum(own, 3, reward=(0.0, 1.0))
    for _ in range(20):
        for _ in range(5):
            releaser.add([0.5], [[1.0, 0.0, 0.0]])
        releaser.release()
    assert 1.0 - 1e-6 < own.ledger.spent <= 1.0
    assert releaser.releases == 20 and len(own.ledger.entries) == 1


def test_batch_release_distribution_and_reset() -> None:
    replicates = 5000
    releaser = batch(width=1, replicates=replicates, sigma=3.0)
    for value in (0.25, 0.5):
        releaser.add(np.full((replicates, 1), value))
        releaser.add(np.full((replicates, 1), value))
        noise = releaser.release()[:, 0] - 2 * value
        assert stats.kstest(noise / 3.0, "norm").pvalue > 1e-4
    with pytest.raises(ParameterError, match="empty"):
        releaser.release()


def test_cumulative_sums_accumulate_their_noise() -> None:
    """Erratum R5: after k batches the noise variance is k sigma^2."""
    replicates = 4000
    releaser = batch(width=1, replicates=replicates, sigma=2.0, cumulative=True)
    for k in range(1, 6):
        releaser.add(np.full((replicates, 1), 0.1))
        gap = releaser.release()[:, 0] - 0.1 * k
        assert releaser.noise_std == pytest.approx(2.0 * math.sqrt(k))
        statistic = (gap**2).sum() / releaser.noise_std**2
        assert 1e-4 < stats.chi2.cdf(statistic, replicates) < 1 - 1e-4


@pytest.mark.slow
def test_forgetting_subtracts_releases_with_their_noise_at_no_cost() -> None:
    replicates, plans = 4000, []
    forgetful = batch(width=1, replicates=replicates, sigma=2.0, cumulative=True)
    keeping = batch(width=1, replicates=replicates, sigma=2.0, cumulative=True)
    for releaser in (forgetful, keeping):
        releases = []
        for k in range(1, 13):
            releaser.add(np.full((replicates, 1), 0.01 * k))
            value = releaser.release()[:, 0]
            if releaser is forgetful and k % 3 == 0:
                value = releaser.forget()[:, 0]
            releases.append(value)
        plans.append(np.array(releases))
    kept = plans[1]
    for k in range(12):
        # after the third batch only that block remains; before, also the one before it
        dropped = max(0, (k + 1) // 3 * 3 - 3)
        wanted = kept[k] - (kept[dropped - 1] if dropped else 0.0)
        np.testing.assert_allclose(plans[0][k], wanted, atol=1e-9)
    assert forgetful.noise_std == pytest.approx(2.0 * math.sqrt(3))
    gap = plans[0][-1] - 0.01 * (10 + 11 + 12)
    statistic = (gap**2).sum() / forgetful.noise_std**2
    assert 1e-4 < stats.chi2.cdf(statistic, replicates) < 1 - 1e-4
    assert forgetful.curator.ledger.spent == keeping.curator.ledger.spent
    with pytest.raises(ParameterError, match="only cumulative sums"):
        batch(width=1, replicates=1, sigma=2.0).forget()


def test_a_replicate_does_not_depend_on_the_batch() -> None:
    records = np.random.default_rng(0).normal(size=(6, 3, 3))

    def run(picked: list[int]) -> np.ndarray:
        source = NoiseSource([np.random.default_rng([5, i]) for i in picked])
        releaser = batch(replicates=len(picked), noise=source)
        out = []
        for start in (0, 3):
            for record in records[start : start + 3]:
                releaser.add(record[picked])
            out.append(releaser.release())
        return np.array(out)

    together = run([0, 1, 2])
    assert (run([1])[:, 0] == together[:, 1]).all() and (run([2, 0])[:, 0] == together[:, 2]).all()


def test_horizon_is_enforced_before_release() -> None:
    for releaser in (batch(horizon=2), BatchSum(curator(None, 2), 3, horizon=2)):
        releaser.add(np.zeros((2, 3)))
        releaser.add(np.zeros((2, 3)))
        with pytest.raises(HorizonExceeded, match="nothing was released"):
            releaser.add(np.zeros((2, 3)))
        assert releaser.rounds == 2


def test_without_a_budget_the_same_calls_are_exact() -> None:
    own = curator(None, 2, horizon=9)
    total, parts = own.running_sum(2, clip=9.0), own.batch_sum(2, clip=9.0)
    for i in range(1, 5):
        for releaser in (total, parts):
            releaser.add(np.full((2, 2), float(i)))
        if i % 2 == 0:
            assert (parts.release() == {2: 3.0, 4: 7.0}[i]).all()
    assert (total.value == 10.0).all() and total.noise_std == total.noise_std_max == 0.0
    assert own.guarantee is None and not own.ledger.entries


def test_sampling_is_charged_exactly() -> None:
    own = curator("eps=1,delta=1e-5", notion="central", unit="reward")
    releaser = BatchSum(own, 3, reward=(0.0, 1.0), sampling=0.3)
    sigma = releaser.sigma
    assert own.ledger.entries[0].event == PoissonGaussianEvent(0.3, sigma)
    assert 1.0 - 1e-5 < own.ledger.spent <= 1.0
    plain = batch(rho=0.5, clip=Ball(2.0))
    assert plain.sigma == pytest.approx(4.0)
    assert plain.curator.ledger.entries[0].event == GaussianEvent(plain.sigma, 4.0)


@pytest.mark.parametrize(
    ("reward", "distance", "pair"),
    [((1.0, 2.0), 2.0, "zero-out"), ((0.0, 1.0), 1.0, "zero-out"), ((-0.5, 0.5), 1.0, "symmetric")],
)
def test_a_sampled_record_moves_the_sum_by_its_length(
    reward: tuple[float, float], distance: float, pair: str
) -> None:
    """A record that is left out moves the sum by up to 2, although two records differ by 1."""
    own = curator("rho=1", unit="reward", notion="central", horizon=9)
    event = behind(BatchSum(own, 3, reward=reward, sampling=0.3)).cost(0.5)
    assert (event.sensitivity, event.pair) == (distance, pair)


def test_sampled_sums_are_unbiased() -> None:
    replicates = 4000
    own = curator("rho=2", replicates, notion="central", unit="reward")
    releaser = BatchSum(own, 1, reward=(0.0, 1.0), sampling=0.25)
    for _ in range(8):
        releaser.add(np.full(replicates, 0.5), np.ones((replicates, 1)))
    out = releaser.release()[:, 0]
    spread = math.sqrt(8 * 0.25 * 3 + releaser.noise_std**2)
    assert abs(out.mean() - 4.0) < 5 * spread / math.sqrt(replicates)


def test_users_with_several_records() -> None:
    """Erratum R10: replacing a user with k records moves a sum by up to k times a record's."""
    for make in (batch, lambda **kwargs: running("blt", 5, **kwargs)):
        with pytest.raises(ParameterError, match="limit"):
            make(unit="user")
    assert batch(unit="user", participations=5).sensitivity == 10.0
    assert batch(unit="user", sensitivity=3.0, participations=1).sensitivity == 3.0
    with pytest.raises(ParameterError):
        batch(participations=0)


def test_records_of_zeros_count_where_it_is_protected_that_they_are_zero() -> None:
    # in two worlds of one user other rounds are zero: first two records, or last two
    totals = []
    for nonzero in ((0, 1), (2, 3)):
        own = curator("rho=1", 1, notion="joint", unit="user", horizon=8)
        sums = own.batch_sum(1, clip=1.0, sensitivity=1.0, limit=2)
        for t in range(4):
            sums.add(np.full((1, 1), float(t in nonzero)), users=[5])
        sums.add(np.full((1, 1), 1.0), users=[-1])  # of no user
        totals.append(float(behind(sums)._total[0, 0]))
    assert abs(totals[0] - totals[1]) <= sums.sensitivity == 2.0
    assert totals == [2.0, 0.0]


@pytest.mark.parametrize("unit", ["user", "user-rewards"])
@pytest.mark.parametrize("kind", ["batch_sum", "running_sum", "weighted_sum"])
def test_a_limit_is_enforced_and_a_typed_number_is_declared(kind: str, unit: str) -> None:
    def made(**options: Any) -> Any:
        own = curator("rho=1e30", 2, notion="central", unit=unit, horizon=200)
        if kind == "weighted_sum":
            options["schedule"] = Schedule.unweighted(np.array([200]))
        return getattr(own, kind)(1, reward=(0.0, 1.0), **options)

    limited = made(limit=3)
    assert limited.sensitivity == 3.0 * (2.0 if unit == "user" else 1.0)
    with pytest.raises(ParameterError, match="identifies users"):
        limited.add(np.ones(2), np.ones((2, 1)))
    for t in range(200):
        users = [7, t % 50]
        limited.add(np.ones(2), np.full((2, 1), float(t >= 50)), users=np.array(users))
    released = limited.release() if kind == "batch_sum" else limited.value
    # that a direction is zero is public for rewards; otherwise the first 50 records count too
    assert released[:, 0] == pytest.approx([0.0, 100.0] if unit == "user" else [3.0, 150.0])
    with pytest.raises(ParameterError, match="identifies users"):
        made(limit=3).add_rounds(np.ones((2, 2)), np.ones((2, 2, 1)))
    assert "declared" not in str(limited.curator.guarantee)
    typed = made(participations=3).curator.guarantee
    assert "declared" in typed.basis and "at most 3 records of a user" in str(typed)
    assert "sensitivity 5 of a user" in str(made(sensitivity=5.0).curator.guarantee)


@pytest.mark.parametrize("kind", ["batch_sum", "running_sum", "weighted_sum"])
def test_a_sensitivity_needs_a_bound(kind: str) -> None:
    def made(**options: Any) -> Any:
        own = curator("rho=1e30", 1, unit="reward", horizon=1)
        if kind == "weighted_sum":
            options["schedule"] = Schedule.unweighted(np.array([1]))
        return getattr(own, kind)(2, sensitivity=1.0, what="sums", **options)

    with pytest.raises(ParameterError, match="give clip or reward"):
        made()
    ball = made(clip=1e9)
    if kind == "batch_sum":
        ball.add([[1e9, 0.0]])
    else:
        ball.add_rounds(np.array([[[1e9, 0.0]]]))
    released = ball.release() if kind == "batch_sum" else ball.value
    assert released == pytest.approx(np.array([[1.0, 0.0]]))
    assert str(ball.curator.guarantee).endswith("declared: sensitivity 1 of sums")
    for bound in ({"reward": (-1.0, 1.0)}, {"clip": NonNegativeBall(1.0)}):
        assert "sensitivity 1)" in made(**bound).curator.guarantee.basis
    assert "declared" not in str(made(reward=(0.0, 1.0)).curator.guarantee)


def test_non_negative_records_are_a_right_angle_apart() -> None:
    releaser = silent(clip=NonNegativeBall(2.0), width=2, replicates=1)
    assert releaser.sensitivity == pytest.approx(2.0 * math.sqrt(2.0))
    for record in ([3.0, -1.0], [-5.0, 1.0]):
        releaser.add([record])
    assert releaser.release() == pytest.approx(np.array([[2.0, 1.0]]))
    with pytest.raises(ParameterError, match="no directions"):
        releaser.add([1.0], along=[[0.0, -1.0]])
    with pytest.raises(ParameterError, match="vectors"):
        batch(symmetric=2, clip=NonNegativeBall(1.0), width=0)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, "x"])
def test_bad_scales(sigma: object) -> None:
    with pytest.raises(ParameterError):
        batch(sigma=sigma)


class TestNoiseSource:
    """One generator per replicate, and nothing shared."""

    def test_rows_come_from_their_own_generators(self) -> None:
        a = NoiseSource([np.random.default_rng(i) for i in range(3)])
        b = NoiseSource([np.random.default_rng(2)])
        assert (a.normal((4, 2))[2] == b.normal((4, 2))[0]).all()
        assert a.normal().shape == (3,)

    def test_children_differ_and_depend_on_the_replicate_only(self) -> None:
        a = NoiseSource.from_seed(1, 3)
        first, second = a.spawn().normal(5), a.spawn().normal(5)
        assert (first != second).all()
        single = NoiseSource([NoiseSource.from_seed(1, 3).generators[1]])
        assert (single.spawn().normal(5)[0] == first[1]).all()

    @pytest.mark.parametrize("bad", [[], [1], [np.random.RandomState(0)]])
    def test_bad_generators(self, bad: list[object]) -> None:
        with pytest.raises(ParameterError):
            NoiseSource(bad)  # type: ignore[arg-type]

    def test_shared_generators_are_refused(self) -> None:
        generator = np.random.default_rng(0)
        with pytest.raises(ParameterError, match="share"):
            NoiseSource([generator, generator])


@pytest.mark.parametrize(
    ("bounds", "distance", "pair"), [((5.0, 6.0), 6.0, "zero-out"), ((-1.0, 1.0), 2.0, "symmetric")]
)
def test_a_sampled_record_may_be_left_out(
    bounds: tuple[float, float], distance: float, pair: str
) -> None:
    """The event's distance is at least a record's own length, which leaving it out moves."""
    clip = Segment(*bounds)
    sums = SimpleNamespace(clip=clip, sensitivity=bounds[1] - bounds[0])
    event = OnRequest(sampling=0.5).cost(sums, 2.0, GaussianEvent(2.0))  # type: ignore[arg-type]
    assert event == PoissonGaussianEvent(0.5, 2.0, distance, 1, pair)
