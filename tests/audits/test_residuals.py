"""Residuals: numbers that were not released say nothing, and distances are SciPy's."""

import math

import numpy as np
import pytest
from scipy import stats

from dpb_gym.audits.residuals import _distance, check_residuals


@pytest.mark.parametrize("place", ["first", "last", "between"])
def test_releases_without_residuals_do_not_refute_the_others(place):
    """A minimiser whose estimates are on the edge of their domain has no residuals."""
    rng = np.random.default_rng(1)
    left, missing, right = rng.normal(size=(60, 5)), np.full((60, 4), np.nan), np.empty((60, 0))
    if place == "between":
        left, right = left[:, :3], left[:, 3:]
    order = [missing, left] if place == "first" else [left, missing, right]
    values = np.concatenate(order, axis=1)
    text, wrong = check_residuals(values, [str(i) for i in range(values.shape[1])], 3.0)
    assert not wrong, text
    assert text.startswith("300 numbers")


def test_a_release_without_noise_is_found_beside_missing_ones():
    values = np.full((60, 8), np.nan)
    values[:, :2] = np.random.default_rng(2).normal(size=(60, 2))
    values[:, 2] = 0.0
    text, wrong = check_residuals(values, [str(i) for i in range(8)], 3.0)
    assert wrong
    assert "variance 0 of the charged one" in text


@pytest.mark.parametrize("count", [1, 2, 17, 1000])
@pytest.mark.parametrize("fourth", [3.0, 6.0])
def test_distances_are_those_of_an_independent_implementation(fourth, count):
    rng = np.random.default_rng(count)
    values = rng.standard_t(4, size=count)
    law = stats.norm() if fourth == 3.0 else stats.laplace(scale=math.sqrt(0.5))
    wanted = stats.kstest(values, law.cdf, method="asymp").statistic
    assert _distance(values, fourth) == pytest.approx(wanted, abs=1e-12)
