"""Continual sums: what is released is the sum plus the stated noise, whatever the batch."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_oracles import factors
from scipy import stats

from dpb_gym.errors import BudgetExceeded, HorizonExceeded, ParameterError, UnknownNameError
from dpb_gym.privacy import (
    Ball,
    Budget,
    ContinualSum,
    ExactSum,
    GaussianEvent,
    Ledger,
    NoiseSource,
    PSDBall,
    Segment,
    noise,
)
from dpb_gym.privacy.noise import NormalStream

MECHANISMS = ("binary-tree", "blt", "sqrt-toeplitz")


def make(name: str, horizon: int, **kwargs: object) -> ContinualSum:
    replicates = int(kwargs.get("replicates", 1))  # type: ignore[call-overload]
    defaults = {
        "dim": 2,
        "replicates": replicates,
        "clip": 1.0,
        "sigma": 1.0,
        "noise": NoiseSource.from_seed(7, replicates),
        "ledger": Ledger(None),
    }
    if "symmetric" in kwargs:
        del defaults["dim"]
    if "rho" in kwargs:
        del defaults["sigma"]
    return ContinualSum(name, horizon=horizon, **{**defaults, **kwargs})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("horizon", [1, 5, 37])
def test_releases_are_sums_plus_correlated_noise(name: str, horizon: int) -> None:
    """Against the factorisation written out as matrices and the same normals."""
    releaser = make(name, horizon, sigma=0.7, replicates=3)
    rng = np.random.default_rng(0)
    records = 0.3 * rng.normal(size=(horizon, 3, 2)) / 2
    got = []
    for record in records:
        releaser.add(record)
        got.append(releaser.release())
    weights, _ = factors(name, horizon)
    normals = NormalStream(NoiseSource.from_seed(7, 3), 2).take(horizon)
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


@pytest.mark.parametrize("name", MECHANISMS)
def test_measured_variance_matches(name: str) -> None:
    replicates, horizon = 4000, 50
    releaser = make(name, horizon, sigma=2.0, replicates=replicates, dim=1)
    zero = np.zeros((replicates, 1))
    for step in range(1, horizon + 1):
        releaser.add(zero)
        if step in (1, 7, 32, 50):
            sample = releaser.release()[:, 0]
            statistic = (sample**2).sum() / releaser.noise_std**2
            assert 1e-4 < stats.chi2.cdf(statistic, replicates) < 1 - 1e-4
            assert abs(sample.mean()) < 5 * releaser.noise_std / math.sqrt(replicates)
    assert releaser.noise_std <= releaser.noise_std_max * (1 + 1e-12)


@pytest.mark.parametrize("name", MECHANISMS)
def test_matrix_noise_is_goe(name: str) -> None:
    """Off-diagonal variance half of the diagonal's; symmetric; sums exact."""
    replicates = 3000
    releaser = make(name, 3, symmetric=3, clip=PSDBall(1.0), sigma=5.0, replicates=replicates)
    x = np.array([0.5, -0.3, 0.2])
    for _ in range(3):
        releaser.add(np.broadcast_to(np.outer(x, x), (replicates, 3, 3)))
    gap = releaser.release() - 3 * np.outer(x, x)
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
        old, noise.BLOCK = noise.BLOCK, block
        try:
            releaser = make(
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
                out.append(releaser.release())
        finally:
            noise.BLOCK = old
        return np.array(out)

    together = run([0, 1, 2], 2048)
    assert (run([1], 2048)[:, 0] == together[:, 1]).all()
    assert (run([2, 0], 7)[:, 0] == together[:, 2]).all()


@pytest.mark.parametrize("name", MECHANISMS)
def test_release_interval_is_a_shorter_mechanism(name: str) -> None:
    horizon, every = 43, 5
    sparse = make(name, horizon, every=every, rho=0.5, dim=1)
    dense = make(name, horizon // every, rho=0.5, dim=1)
    assert sparse.steps == 8 and sparse.sens == dense.sens and sparse.sigma == dense.sigma
    values = np.random.default_rng(1).uniform(-1, 1, horizon) / every
    for t, value in enumerate(values, start=1):
        sparse.add([[value]])
        if t % every == 0:
            dense.add([[values[t - every : t].sum()]])
            assert sparse.release() == pytest.approx(dense.release(), abs=1e-12)
            held = sparse.release()
        elif t < every:
            assert sparse.release() == 0.0 and sparse.noise_std == 0.0
        else:
            assert sparse.release() == held


@pytest.mark.parametrize("name", MECHANISMS)
def test_resumed_run_equals_the_uninterrupted_one(name: str) -> None:
    horizon = 60
    records = 0.1 * np.random.default_rng(3).normal(size=(horizon, 2, 2))
    whole = make(name, horizon, replicates=2, every=3)
    for record in records[:31]:
        whole.add(record)
    state = pickle.loads(pickle.dumps(copy.deepcopy(whole.state_dict())))
    resumed = make(name, horizon, replicates=2, every=3, noise=NoiseSource.from_seed(123, 2))
    resumed.load_state(state)
    assert (resumed.release() == whole.release()).all()
    for record in records[31:]:
        whole.add(record)
        resumed.add(record)
        assert (resumed.release() == whole.release()).all()
    assert (resumed.clipped_count == whole.clipped_count).all()
    for releaser in (whole, resumed):
        with pytest.raises(HorizonExceeded):
            releaser.add(records[0])
    with pytest.raises(ParameterError):
        make("blt" if name == "binary-tree" else "binary-tree", horizon, replicates=2).load_state(
            state
        )


def test_releases_do_not_reuse_noise_between_releasers() -> None:
    source = NoiseSource.from_seed(5, 1)
    ledger = Ledger(None)
    a, b = (make("blt", 10, noise=source, ledger=ledger, what=w) for w in "ab")
    for releaser in (a, b):
        releaser.add([[0.0, 0.0]])
    assert (a.release() != b.release()).all()


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("rho", [0.01, 1.0])
def test_charged_once_and_exactly(name: str, rho: float) -> None:
    ledger = Ledger(Budget.zcdp(rho))
    releaser = make(name, 1000, rho=rho, ledger=ledger, clip=Ball(0.5))
    assert ledger.spent == pytest.approx(rho, rel=1e-9) and ledger.spent <= rho
    assert releaser.event == GaussianEvent(releaser.sigma, 1.0 * releaser.sens)
    with pytest.raises(BudgetExceeded):
        make(name, 1000, rho=1e-3 * rho, ledger=ledger)
    for _ in range(5):
        releaser.add([[0.1, 0.2]])
        releaser.release()
        releaser.release()
    assert len(ledger.entries) == 1 and ledger.entries[0].times == 1


@pytest.mark.parametrize(
    ("clip", "kwargs", "relation", "expected"),
    [
        (Ball(1.5), {"dim": 3}, "replace-one", 3.0),
        (Ball(1.5), {"dim": 3}, "add-remove", 1.5),
        (PSDBall(1.5), {"symmetric": 3}, "replace-one", 1.5 * math.sqrt(2)),
        (PSDBall(1.5), {"symmetric": 3}, "add-remove", 1.5),
        (Segment(-0.5, 0.5), {"dim": 3}, "replace-one", 1.0),
        (Segment(0.0, 1.0), {"dim": 3}, "add-remove", 1.0),
    ],
)
def test_sensitivity_follows_from_bound_and_relation(
    clip: object, kwargs: dict[str, int], relation: str, expected: float
) -> None:
    ledger = Ledger(None, relation=relation)
    assert make("blt", 10, clip=clip, ledger=ledger, **kwargs).sensitivity == expected
    forced = make("blt", 10, clip=clip, ledger=ledger, sensitivity=9.0, **kwargs)
    assert forced.sensitivity == 9.0


def test_exact_twin_has_the_same_interface() -> None:
    exact = ExactSum((2, 2), 3)
    private = make("blt", 10, symmetric=2, replicates=3, sigma=1e-12)
    records = np.random.default_rng(0).normal(size=(10, 3, 2, 2)) / 9
    records = records + records.transpose(0, 1, 3, 2)
    for record in records:
        for releaser in (exact, private):
            releaser.add(record)
        assert exact.release() == pytest.approx(private.release(), abs=1e-9)
    assert exact.noise_std == 0.0 and exact.rounds == private.rounds == 10


def test_memory_of_the_streaming_mechanisms_does_not_grow() -> None:
    for name, rows in (("blt", 6), ("binary-tree", 21)):
        releaser = make(name, 10**6, dim=4, replicates=2)
        arrays = [v for v in vars(releaser._mechanism).values() if isinstance(v, np.ndarray)]
        assert sum(a.size for a in arrays) <= (rows + 1) * 4 * 2 + 20
    with pytest.raises(ParameterError, match="2 GB"):
        make("sqrt-toeplitz", 10**7, dim=20, replicates=64)


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"horizon": 0}, ParameterError),
        ({"horizon": 10, "every": 11}, ParameterError),
        ({"horizon": 10, "every": 0}, ParameterError),
        ({"horizon": 10, "rho": 1.0, "sigma": 1.0}, ParameterError),
        ({"horizon": 10, "sigma": -1.0}, ParameterError),
        ({"horizon": 10, "sigma": math.nan}, ParameterError),
        ({"horizon": 10, "clip": 0.0}, ParameterError),
        ({"horizon": 10, "clip": None}, ParameterError),
        ({"horizon": 10, "dim": 2, "symmetric": 2}, ParameterError),
        ({"horizon": 10, "dim": 0}, ParameterError),
        ({"horizon": 10, "clip": PSDBall(1.0)}, ParameterError),
        ({"horizon": 10, "replicates": 2, "noise": NoiseSource.from_seed(0, 3)}, ParameterError),
        ({"horizon": 10, "noise": "seed"}, ParameterError),
    ],
)
def test_bad_arguments(kwargs: dict[str, object], error: type[Exception]) -> None:
    full = {"dim": 2, "clip": 1.0, "noise": NoiseSource.from_seed(0), "ledger": Ledger(None)}
    if "sigma" not in kwargs:
        full["sigma"] = 1.0
    with pytest.raises(error):
        ContinualSum(**{**full, **kwargs})  # type: ignore[arg-type]


def test_unknown_mechanism() -> None:
    with pytest.raises(UnknownNameError, match="binary-tree"):
        make("binary", 10)
