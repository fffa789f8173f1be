"""Quantiles and tails agree with SciPy's."""

from __future__ import annotations

import math

import pytest
from scipy.special import chdtrc, stdtrit

from dpb_gym.distributions import chi_squared_tail, student_quantile


@pytest.mark.parametrize("freedom", [1.0, 1.5, 7.0, 31.5, 250.0, 273e3])
def test_quantiles_of_student(freedom):
    for probability in (0.5, 0.6, 0.975, 0.9995, 1.0 - 1e-6):
        expected = stdtrit(freedom, probability)
        assert student_quantile(freedom, probability) == pytest.approx(expected, rel=2e-11)


@pytest.mark.parametrize("freedom", [1, 2, 10, 73, 5000])
def test_tails_of_chi_squared(freedom):
    for x in (0.0, 0.3, 0.9 * freedom, freedom, 1.5 * freedom, 3.0 * freedom):
        assert chi_squared_tail(freedom, x) == pytest.approx(chdtrc(freedom, x), rel=1e-10)


def test_ends():
    assert math.isnan(student_quantile(0.0, 0.9))
    assert chi_squared_tail(3, math.inf) == 0.0
    assert math.isnan(chi_squared_tail(3, math.nan))
