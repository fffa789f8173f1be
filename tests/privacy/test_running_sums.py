"""Running sums: releases are the sum plus the stated noise, independent of the batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from curated import curator, running
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_oracles import factors
from scipy import stats

from dpb_gym import streams
from dpb_gym.errors import ParameterError, UnknownNameError
from dpb_gym.privacy import Ball, GaussianEvent, NoiseSource, PSDBall, RunningSum, Segment

MECHANISMS = ("binary-tree", "blt", "sqrt-toeplitz")


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("horizon", [1, 5, 37])
def test_releases_are_sums_plus_correlated_noise(name: str, horizon: int) -> None:
    """Against the factorisation written out as matrices and the same normals."""
    releaser = running(name, horizon, sigma=0.7, replicates=3)
    rng = np.random.default_rng(0)
    records = 0.3 * rng.normal(size=(horizon, 3, 2)) / 2
    got = []
    for record in records:
        releaser.add(record)
        got.append(releaser.value)
    weights, _ = factors(name, horizon)
    # the curator's source, then the releaser's, then the stream's
    draws = NoiseSource.from_seed(7, 3).spawn().stream(2)
    normals = np.stack([draws.next().copy() for _ in range(horizon)], axis=1)
    if name == "binary-tree":  # a node's normal is drawn when its last leaf arrives
        levels = horizon.bit_length()
        nodes = [(level, i) for level in range(levels) for i in range(horizon >> level)]
        last = [((i + 1) << level) - 1 for level, i in nodes]
        lowest = [((t + 1) & -(t + 1)).bit_length() - 1 for t in last]
        completes = np.array([bit == level for (level, _), bit in zip(nodes, lowest)])
        assert not weights[:, ~completes].any()
        normals = normals[:, last] * completes[None, :, None]
    expected = np.cumsum(records, axis=0) + 0.7 * np.einsum("tk,bkw->tbw", weights, normals)
    assert np.array(got) == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_measured_variance_matches(name: str) -> None:
    replicates, horizon = 4000, 50
    releaser = running(name, horizon, sigma=2.0, replicates=replicates, width=1)
    zero = np.zeros((replicates, 1))
    for step in range(1, horizon + 1):
        releaser.add(zero)
        if step in (1, 7, 32, 50):
            sample = releaser.value[:, 0]
            statistic = (sample**2).sum() / releaser.noise_std**2
            assert 1e-4 < stats.chi2.cdf(statistic, replicates) < 1 - 1e-4
            assert abs(sample.mean()) < 5 * releaser.noise_std / math.sqrt(replicates)
    assert releaser.noise_std <= releaser.noise_std_max * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_matrix_noise_is_goe(name: str) -> None:
    """Off-diagonal variance half of the diagonal's; symmetric; sums exact."""
    replicates = 3000
    releaser = running(name, 3, symmetric=3, clip=PSDBall(1.0), sigma=5.0, replicates=replicates)
    x = np.array([0.5, -0.3, 0.2])
    for _ in range(3):
        releaser.add(np.broadcast_to(np.outer(x, x), (replicates, 3, 3)))
    gap = releaser.value - 3 * np.outer(x, x)
    assert (gap == gap.transpose(0, 2, 1)).all()
    for i in range(3):
        for j in range(i, 3):
            scale = releaser.noise_std**2 * (1.0 if i == j else 0.5)
            statistic = (gap[:, i, j] ** 2).sum() / scale
            assert 1e-4 < stats.chi2.cdf(statistic, replicates) < 1 - 1e-4
    assert abs((gap[:, 0, 0] * gap[:, 0, 1]).mean()) < 5 * releaser.noise_std**2 / math.sqrt(
        replicates
    )


@pytest.mark.parametrize("name", MECHANISMS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), every=st.integers(1, 4), horizon=st.integers(4, 40))
def test_a_replicate_does_not_depend_on_the_batch(
    name: str, seed: int, every: int, horizon: int
) -> None:
    """Bit for bit, and the block length of the noise changes nothing."""
    seeds = [seed, seed + 1, seed + 2]

    def run(picked: list[int], block: int) -> np.ndarray:
        generators = [np.random.default_rng(seeds[i]) for i in picked]
        old, streams.MAX_BLOCK_ROUNDS = streams.MAX_BLOCK_ROUNDS, block
        try:
            releaser = running(
                name,
                horizon,
                symmetric=3,
                replicates=len(picked),
                noise=NoiseSource(generators),
                every=every,
            )
            records = np.random.default_rng(99).normal(size=(horizon, 3, 3, 3))
            records = records + records.transpose(0, 1, 3, 2)
            out = []
            for record in records:
                releaser.add(record[picked])
                out.append(releaser.value)
        finally:
            streams.MAX_BLOCK_ROUNDS = old
        return np.array(out)

    together = run([0, 1, 2], 2048)
    assert (run([1], 2048)[:, 0] == together[:, 1]).all()
    assert (run([2, 0], 7)[:, 0] == together[:, 2]).all()


@pytest.mark.parametrize("name", MECHANISMS)
def test_release_interval_is_a_shorter_mechanism(name: str) -> None:
    horizon, every = 43, 5
    sparse = running(name, horizon, every=every, rho=0.5, width=1)
    dense = running(name, horizon // every, rho=0.5, width=1)
    assert sparse.steps == 8 and sparse.gain == dense.gain and sparse.sigma == dense.sigma
    values = np.random.default_rng(1).uniform(-1, 1, horizon) / every
    for t, value in enumerate(values, start=1):
        sparse.add([[value]])
        if t % every == 0:
            dense.add([[values[t - every : t].sum()]])
            assert sparse.value == pytest.approx(dense.value, abs=1e-12)
            held = sparse.value
        elif t < every:
            assert sparse.value == 0.0 and sparse.noise_std == 0.0
        else:
            assert sparse.value == held


def test_releases_do_not_reuse_noise_between_releasers() -> None:
    own = curator(horizon=10)
    a, b = (RunningSum(own, 2, clip=1.0, what=what) for what in "ab")
    for releaser in (a, b):
        releaser.add([[0.0, 0.0]])
    assert (a.value != b.value).all()


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("rho", [0.01, 1.0])
def test_charged_once_and_exactly(name: str, rho: float) -> None:
    releaser = running(name, 1000, rho=rho, clip=Ball(0.5))
    sigma, ledger = releaser.sigma, releaser.curator.ledger
    assert ledger.spent == pytest.approx(rho, rel=1e-9) and ledger.spent <= rho
    assert ledger.entries[0].event == GaussianEvent(sigma, 1.0 * releaser.gain)
    for _ in range(5):
        releaser.add([[0.1, 0.2]])
        assert (releaser.value == releaser.value).all()
    assert len(ledger.entries) == 1


@pytest.mark.parametrize(
    ("clip", "kwargs", "relation", "expected"),
    [
        (Ball(1.5), {"width": 3}, "replace-one", 3.0),
        (Ball(1.5), {"width": 3}, "add-remove", 1.5),
        (PSDBall(1.5), {"symmetric": 3}, "replace-one", 1.5 * math.sqrt(2)),
        (PSDBall(1.5), {"symmetric": 3}, "add-remove", 1.5),
        (Segment(-0.5, 0.5), {"width": 3}, "replace-one", 1.0),
        (Segment(0.0, 1.0), {"width": 3}, "add-remove", 1.0),
    ],
)
def test_sensitivity_follows_from_bound_and_relation(
    clip: object, kwargs: dict[str, int], relation: str, expected: float
) -> None:
    own = {"clip": clip, "relation": relation, **kwargs}
    assert running("blt", 10, **own).sensitivity == expected
    assert running("blt", 10, sensitivity=9.0, **own).sensitivity == 9.0


def test_exact_sums_are_the_limit_of_small_noise() -> None:
    exact = curator(None, 3, horizon=10).running_sum(symmetric=2, clip=1.0)
    private = running("blt", 10, symmetric=2, replicates=3, sigma=1e-12)
    records = np.random.default_rng(0).normal(size=(10, 3, 2, 2)) / 9
    records = records + records.transpose(0, 1, 3, 2)
    for record in records:
        for releaser in (exact, private):
            releaser.add(record)
        assert exact.value == pytest.approx(private.value, abs=1e-9)
    assert exact.noise_std == 0.0 and exact.rounds == private.rounds == 10


def test_memory_of_the_streaming_mechanisms_does_not_grow() -> None:
    for name, rows in (("blt", 6), ("binary-tree", 21)):
        releaser = running(name, 10**6, width=4, replicates=2)
        releaser.ready()
        arrays = [v for v in vars(releaser._mechanism).values() if isinstance(v, np.ndarray)]
        assert sum(a.size for a in arrays) <= (rows + 1) * 4 * 2 + 20
    with pytest.raises(ParameterError, match="2 GB"):
        running("sqrt-toeplitz", 10**7, width=20, replicates=64).ready()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"horizon": 0},
        {"every": 11},
        {"every": 0},
        {"sigma": -1.0},
        {"sigma": math.nan},
        {"clip": 0.0},
        {"clip": None},
        {"symmetric": 2},
        {"width": 0},
        {"clip": PSDBall(1.0)},
        {"noise": "seed"},
    ],
)
def test_bad_arguments(kwargs: dict[str, object]) -> None:
    full: dict[str, object] = {"horizon": 10, "width": 2, **kwargs}
    with pytest.raises(ParameterError):
        running("blt", **full)  # type: ignore[arg-type]


def test_unknown_mechanism() -> None:
    with pytest.raises(UnknownNameError, match="binary-tree"):
        running("binary", 10)
