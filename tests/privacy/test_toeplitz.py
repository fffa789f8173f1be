"""Coefficients, sensitivities and variances of the continual sums against plain matrices."""

from __future__ import annotations

import math
import runpy
import time
from pathlib import Path

import numpy as np
import pytest
from privacy_oracles import blt_arrays, factors, running_sum

from dpb_gym.audits import audit_sum
from dpb_gym.errors import ParameterError
from dpb_gym.kernels.continual import blt_impulse
from dpb_gym.privacy import Curator, NoiseSource
from dpb_gym.privacy.releasers.correlated_noise import (
    MECHANISMS,
    Toeplitz,
    blt_parameters,
    blt_sensitivity,
    make_mechanism,
)

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "make_blt_table.py"
BUFFERS, optimise_blt = (runpy.run_path(str(SCRIPT))[name] for name in ("BUFFERS", "optimise_blt"))


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("steps", [1, 2, 3, 8, 37, 64, 200])
def test_sensitivity_and_variance_against_the_matrices(name: str, steps: int) -> None:
    noise, strategy = factors(name, steps)
    assert noise @ strategy == pytest.approx(running_sum(steps), abs=1e-9)
    mechanism = make_mechanism(name, steps)
    largest_column = np.sqrt((strategy**2).sum(axis=0)).max()
    assert mechanism.gain == pytest.approx(largest_column, rel=1e-9)
    variances = (noise**2).sum(axis=1)
    assert mechanism.variances(steps) == pytest.approx(variances, rel=1e-9)
    made = mechanism.matrix(steps)
    assert made @ made.T == pytest.approx(noise @ noise.T, abs=1e-9)


@pytest.mark.slow
def test_custom_mechanisms_define_column_and_gain(monkeypatch) -> None:
    """Noise on every record, C = I: releases, cost and statement pass the audit."""

    class OnRecords(Toeplitz):
        gain = 1.0

        def column(self, steps: int) -> np.ndarray:
            return np.ones(steps)

    monkeypatch.setitem(MECHANISMS, "on-records", OnRecords)
    own = Curator("rho=0.5", noise=NoiseSource.from_seed(0, 4000), horizon=6)
    sums = own.running_sum(1, clip=1.0, mechanism="on-records")
    for t in range(1, 7):
        sums.add(np.full((4000, 1), 0.5))
        noise = sums.value - 0.5 * t
        assert noise.std() == pytest.approx(sums.noise_std, rel=0.05)
        assert sums.noise_std == pytest.approx(2.0 * math.sqrt(t), rel=1e-9)
    report = audit_sum(
        lambda c: c.running_sum(1, clip=1.0, mechanism="on-records"), [1.0], [-1.0], rounds=4
    )
    assert report.passed and report.mu > 0.7


@pytest.mark.parametrize(
    ("name", "steps", "largest", "mean"),
    [
        ("binary-tree", 10**4, 182, 90.5),
        ("sqrt-toeplitz", 10**4, 15.98, 14.71),
        ("blt", 10**4, 15.99, 14.72),
        ("binary-tree", 10**6, 380, 198),
        ("sqrt-toeplitz", 10**6, 29.85, 28.11),
        ("blt", 10**6, 30.12, 28.30),
    ],
)
def test_variance_table(name: str, steps: int, largest: float, mean: float) -> None:
    """Noise variance per coordinate at unit sensitivity and rho = 1/2."""
    mechanism = make_mechanism(name, steps)
    variances = mechanism.gain**2 * mechanism.variances(mechanism.steps)
    assert variances.max() == pytest.approx(largest, rel=3e-3)
    assert variances.mean() == pytest.approx(mean, rel=5e-3)


def test_known_blt_parameters() -> None:
    """Parameters published for 10^4 and 10^6 steps: same formulas, and ours are no worse."""
    known = {
        10**4: (
            [0.9999185517, 0.9987783105, 0.9905515291, 0.9312467003, 0.5845181373],
            [0.0121294127, 0.02373002, 0.0618280092, 0.1565116954, 0.2414918799],
            3.996912,
        ),
        10**6: (
            [0.999998663, 0.9999622604, 0.9991623965, 0.9843461185, 0.7619205351],
            [0.0016850586, 0.0060969273, 0.0281512492, 0.1156951107, 0.3280445726],
            5.585443,
        ),
    }
    for steps, (theta, omega, squared) in known.items():
        theirs = largest_variance(np.array(theta), np.array(omega), steps)
        assert blt_sensitivity(np.array(theta), np.array(omega), steps) ** 2 == pytest.approx(
            squared, rel=1e-5
        )
        assert largest_variance(*blt_arrays(steps), steps) <= theirs * (1 + 1e-6)


def largest_variance(theta: np.ndarray, omega: np.ndarray, steps: int) -> float:
    weights = blt_impulse(theta, omega, steps)
    return blt_sensitivity(theta, omega, steps) ** 2 * float((weights**2).sum())


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "table"), [(10**4, 15.99), (10**5, 22.44), (10**6, 30.12)])
def test_optimiser_reaches_the_table(steps: int, table: float, record_property: object) -> None:
    start = time.perf_counter()
    theta, omega = optimise_blt(steps)
    record_property("seconds", time.perf_counter() - start)  # type: ignore[operator]
    assert largest_variance(np.array(theta), np.array(omega), steps) <= 1.01 * table


@pytest.mark.slow
@pytest.mark.parametrize("steps", [17, 129, 1001, 11_700, 300_001])
def test_shipped_parameters_are_near_the_optimum_between_grid_points(steps: int) -> None:
    best = largest_variance(*(np.array(p) for p in optimise_blt(steps)), steps)
    assert largest_variance(*blt_arrays(steps), steps) <= 1.005 * best


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 1000, 2**24, 2**30])
def test_shipped_parameters_are_sane(steps: int) -> None:
    theta, omega = blt_parameters(steps)
    assert len(theta) == len(omega) == BUFFERS
    assert all(0 < value < 1 for value in theta) and all(weight >= 0 for weight in omega)


def test_steps_beyond_the_table_use_its_last_entry() -> None:
    last = blt_parameters(2**30)
    assert blt_parameters(2**31) == last != blt_parameters(2**29)
    arrays = [np.array(part) for part in last]
    assert blt_sensitivity(*arrays, 2**31) > blt_sensitivity(*arrays, 2**30)


def test_bad_steps() -> None:
    for bad in (0, -1, 2.5, None):
        with pytest.raises(ParameterError):
            blt_parameters(bad)  # type: ignore[arg-type]
