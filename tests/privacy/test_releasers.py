"""Intake, batch sums, exact twins: clipping, counting, refusing, charging."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from dpb_gym.errors import BudgetExceeded, HorizonExceeded, ParameterError
from dpb_gym.kernels import continual as kernels
from dpb_gym.privacy import (
    Ball,
    Budget,
    ContinualSum,
    ExactMinimiser,
    ExactSum,
    GaussianEvent,
    GaussianSum,
    Ledger,
    NoiseSource,
    PoissonGaussianEvent,
    PSDBall,
    Release,
    Releaser,
    Segment,
    calibrate,
)


def gaussian(**kwargs: object) -> GaussianSum:
    replicates = kwargs.get("replicates", 2)
    defaults = {
        "dim": 3,
        "replicates": replicates,
        "clip": 1.0,
        "sigma": 1.0,
        "noise": NoiseSource.from_seed(3, replicates),  # type: ignore[arg-type]
        "ledger": Ledger(None),
    }
    if "symmetric" in kwargs:
        del defaults["dim"]
    if "rho" in kwargs:
        del defaults["sigma"]
    return GaussianSum(**{**defaults, **kwargs})  # type: ignore[arg-type]


def silent(**kwargs: object) -> GaussianSum:
    return gaussian(sigma=1e-200, **kwargs)


rows = hnp.arrays(
    np.float64, (2, 3), elements=st.floats(-1e300, 1e300, allow_nan=False, allow_infinity=False)
)


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
        (ExactSum(3, 2), np.ones((2, 3))),
        (
            ContinualSum(
                dim=3,
                horizon=9,
                replicates=2,
                clip=1.0,
                sigma=1.0,
                noise=NoiseSource.from_seed(0, 2),
                ledger=Ledger(None),
            ),
            np.ones((2, 3)),
        ),
    ):
        releaser.add(good)
        before = copy.deepcopy(releaser.state_dict())
        spoilt = good.copy()
        spoilt[1, ..., -1] = bad
        with pytest.raises(ParameterError, match="finite"):
            releaser.add(spoilt)
        after = releaser.state_dict()
        assert str(before) == str(after)
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


def test_matrix_records_must_be_what_they_claim() -> None:
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
        silent(symmetric=d, clip=PSDBall(10.0)).add(matrices)


def test_bounds_must_fit_the_shape() -> None:
    for clip, kwargs in ((PSDBall(1.0), {"dim": 3}), (Segment(0, 1), {"symmetric": 3})):
        with pytest.raises(ParameterError):
            gaussian(clip=clip, **kwargs)
    with pytest.raises(ParameterError, match="directions"):
        gaussian(clip=Segment(0, 1)).add(np.ones((2, 3)))
    with pytest.raises(ParameterError, match="directions"):
        gaussian(symmetric=3).add([1.0, 1.0], np.ones((2, 3)))
    for low, high in ((1, 0), (0, math.inf), (math.nan, 1)):
        with pytest.raises(ParameterError):
            Segment(low, high)


def test_batches_compose_in_parallel() -> None:
    budget = Budget.approx(1.0, 1e-5)
    ledger = Ledger(budget, "central", "reward")
    (sigma,) = calibrate(budget, Release(1.0))
    releaser = gaussian(clip=Segment(0, 1), sigma=sigma, ledger=ledger, replicates=1)
    for _ in range(20):
        for _ in range(5):
            releaser.add([0.5], [[1.0, 0.0, 0.0]])
        releaser.release()
    assert ledger.spent == pytest.approx(1.0, abs=1e-6) and ledger.spent <= 1.0
    assert releaser.batches == 20 and ledger.entries[0].times == 20
    other = gaussian(clip=Segment(0, 1), sigma=sigma, ledger=ledger, replicates=1, what="second")
    other.add([0.5], [[1.0, 0.0, 0.0]])
    with pytest.raises(BudgetExceeded):
        other.release()
    before = other.state_dict()
    assert before["pending"] == 1 and before["batch"][0, 0] == 0.5 and other.batches == 0


def test_batch_release_distribution_and_reset() -> None:
    replicates = 5000
    releaser = gaussian(dim=1, replicates=replicates, sigma=3.0)
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
    releaser = gaussian(dim=1, replicates=replicates, sigma=2.0, cumulative=True)
    for k in range(1, 6):
        releaser.add(np.full((replicates, 1), 0.1))
        gap = releaser.release()[:, 0] - 0.1 * k
        assert releaser.noise_std == pytest.approx(2.0 * math.sqrt(k))
        statistic = (gap**2).sum() / releaser.noise_std**2
        assert 1e-4 < stats.chi2.cdf(statistic, replicates) < 1 - 1e-4


def test_a_replicate_does_not_depend_on_the_batch() -> None:
    records = np.random.default_rng(0).normal(size=(6, 3, 3))

    def run(picked: list[int]) -> np.ndarray:
        source = NoiseSource([np.random.default_rng([5, i]) for i in picked])
        releaser = gaussian(replicates=len(picked), noise=source)
        out = []
        for start in (0, 3):
            for record in records[start : start + 3]:
                releaser.add(record[picked])
            out.append(releaser.release())
        return np.array(out)

    together = run([0, 1, 2])
    assert (run([1])[:, 0] == together[:, 1]).all() and (run([2, 0])[:, 0] == together[:, 2]).all()


@pytest.mark.parametrize("cumulative", [False, True])
def test_resumed_batches_equal_the_uninterrupted(cumulative: bool) -> None:
    records = np.random.default_rng(1).normal(size=(12, 2, 3))
    whole = gaussian(cumulative=cumulative)
    for i, record in enumerate(records[:7]):
        whole.add(record)
        if i % 3 == 2:
            whole.release()
    resumed = gaussian(cumulative=cumulative, noise=NoiseSource.from_seed(77, 2))
    resumed.load_state(copy.deepcopy(whole.state_dict()))
    for record in records[7:]:
        whole.add(record)
        resumed.add(record)
    assert (whole.release() == resumed.release()).all()
    with pytest.raises(ParameterError):
        gaussian(replicates=3).load_state(whole.state_dict())


def test_horizon_is_enforced_before_release() -> None:
    for releaser in (gaussian(horizon=2), ExactSum(3, 2, horizon=2)):
        releaser.add(np.zeros((2, 3)))
        releaser.add(np.zeros((2, 3)))
        with pytest.raises(HorizonExceeded, match="nothing was released"):
            releaser.add(np.zeros((2, 3)))
        assert releaser.rounds == 2


def test_exact_sums() -> None:
    running, batch = ExactSum(2, 2), ExactSum(2, 2, cumulative=False)
    for i in range(1, 5):
        for releaser in (running, batch):
            releaser.add(np.full((2, 2), float(i)))
        if i % 2 == 0:
            expected = {2: 3.0, 4: 7.0}[i]
            assert (batch.release() == expected).all()
    assert (running.release() == 10.0).all()
    state = running.state_dict()
    again = ExactSum(2, 2)
    again.load_state(state)
    assert (again.release() == 10.0).all() and again.rounds == 4
    scaled = ExactSum(2, 2)
    scaled.add([2.0, 3.0], [[1.0, 0.0], [0.0, 2.0]])
    assert scaled.release().tolist() == [[2.0, 0.0], [0.0, 6.0]]
    with pytest.raises(ParameterError):
        ExactSum((2, 3), 1)


def test_exact_releases_leave_no_guarantee() -> None:
    for make in (
        lambda ledger: ExactSum(2, 1, ledger=ledger),
        lambda ledger: ExactMinimiser(1, 1, ledger=ledger),
    ):
        ledger = Ledger(None)
        releaser = make(ledger)
        release = (
            (lambda r=releaser: r.release(lambda b, t: (0.0, np.zeros(1), np.zeros((1, 1)))))
            if isinstance(releaser, ExactMinimiser)
            else releaser.release
        )
        release()
        assert not ledger.guarantee.private
        bounded = make(Ledger(Budget.zcdp(1.0)))
        with pytest.raises(BudgetExceeded):
            if isinstance(bounded, ExactMinimiser):
                bounded.release(lambda b, t: (0.0, np.zeros(1), np.zeros((1, 1))))
            else:
                bounded.release()


def test_releasers_satisfy_the_protocol() -> None:
    assert isinstance(gaussian(), Releaser) and isinstance(ExactSum(2, 1), Releaser)


def test_custom_event_is_charged() -> None:
    ledger = Ledger(Budget.approx(1.0, 1e-5))
    releaser = gaussian(ledger=ledger, sigma=2.0, event=PoissonGaussianEvent(0.3, 2.0))
    releaser.add(np.zeros((2, 3)))
    releaser.release()
    assert ledger.entries[0].event == PoissonGaussianEvent(0.3, 2.0)
    plain = gaussian(rho=0.5, clip=Ball(2.0))
    assert plain.event == GaussianEvent(plain.sigma, 4.0)
    assert plain.sigma == pytest.approx(4.0)


def test_users_with_several_records() -> None:
    """Erratum R10: replacing a user with k records moves a sum by up to k times as much."""
    ledger = Ledger(None, unit="user")
    with pytest.raises(ParameterError, match="participations"):
        gaussian(ledger=ledger)
    with pytest.raises(ParameterError, match="participations"):
        ContinualSum(
            horizon=5, dim=2, clip=1.0, sigma=1.0, noise=NoiseSource.from_seed(0), ledger=ledger
        )
    assert gaussian(ledger=ledger, participations=5).sensitivity == 10.0
    assert gaussian(ledger=ledger, sensitivity=3.0).sensitivity == 3.0
    with pytest.raises(ParameterError):
        gaussian(participations=0)


@pytest.mark.parametrize("kwargs", [{"sigma": None}, {"sigma": 1.0, "rho": 1.0}, {"sigma": 0.0}])
def test_bad_scales(kwargs: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        GaussianSum(
            2,
            1,
            clip=1.0,
            noise=NoiseSource.from_seed(0),
            ledger=Ledger(None),
            **kwargs,  # type: ignore[arg-type]
        )


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

    def test_children_after_a_checkpoint_are_new(self) -> None:
        a = NoiseSource.from_seed(1, 2)
        before = a.spawn().normal(3)
        b = NoiseSource.from_seed(9, 2)
        b.load_state(a.state_dict())
        assert (b.spawn().normal(3) == a.spawn().normal(3)).all()
        assert (b.spawn().normal(3) != before).all()

    @pytest.mark.parametrize("bad", [[], [1], [np.random.RandomState(0)]])
    def test_bad_generators(self, bad: list[object]) -> None:
        with pytest.raises(ParameterError):
            NoiseSource(bad)  # type: ignore[arg-type]

    def test_shared_generators_are_refused(self) -> None:
        generator = np.random.default_rng(0)
        with pytest.raises(ParameterError, match="share"):
            NoiseSource([generator, generator])
        with pytest.raises(ParameterError):
            NoiseSource.from_seed(0, 2).load_state(NoiseSource.from_seed(0, 3).state_dict())
