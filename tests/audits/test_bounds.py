"""Bounds from error rates: against closed forms, coverage and the definition of privacy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from dpb_gym.audits.bounds import (
    clopper_pearson_upper,
    epsilon_bound,
    gaussian_mu_bound,
    mu_bound,
    rho_bound,
)
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import RandomizedResponseEvent
from dpb_gym.privacy.accounting import gaussian_delta, gaussian_epsilon

RATES = st.floats(1e-4, 0.9999)


@given(st.integers(0, 50), st.integers(1, 50), st.floats(0.5, 0.999))
def test_clopper_pearson_is_the_exact_binomial_limit(errors, trials, confidence):
    assume(errors <= trials)
    limit = float(clopper_pearson_upper(errors, trials, confidence))
    if errors == trials:
        assert limit == 1.0
    else:
        assert stats.binom.cdf(errors, trials, limit) == pytest.approx(1 - confidence, abs=1e-8)


def test_clopper_pearson_covers():
    """By enumeration of the binomial: the limit fails with probability at most 2.5%."""
    n = 40
    limits = clopper_pearson_upper(np.arange(n + 1), n, 0.975)
    for p in np.linspace(0.01, 0.99, 50):
        assert stats.binom.pmf(np.arange(n + 1), n, p)[limits < p].sum() <= 0.025 + 1e-12


@pytest.mark.parametrize("bad", [(-1, 10, 0.9), (11, 10, 0.9), (1, 10, 1.0), (0, 0, 0.9)])
def test_bad_counts_are_refused(bad):
    with pytest.raises(ParameterError):
        clopper_pearson_upper(*bad)


@given(st.floats(0.05, 4.0), st.floats(-3.0, 6.0))
def test_no_test_of_a_gaussian_mechanism_beats_its_own_mu(mu, threshold):
    """On its trade-off curve mu is attained, epsilon never exceeds the exact one."""
    fpr, fnr = stats.norm.sf(threshold), stats.norm.cdf(threshold - mu)
    assume(1e-9 < fpr < 1 - 1e-9 and 1e-9 < fnr < 1 - 1e-9)
    assert float(mu_bound(fpr, fnr)) == pytest.approx(mu, abs=1e-6)
    for delta in (1e-6, 1e-3, 0.1, 0.4):
        assert float(epsilon_bound(fpr, fnr, delta)) <= gaussian_epsilon(mu, delta) + 1e-9
    assert rho_bound(fpr, fnr) <= 0.5 * mu**2 * (1 + 1e-9)


@given(st.floats(0.1, 3.0), st.floats(0.1, 2.0))
@settings(max_examples=30)
def test_the_best_threshold_attains_epsilon(mu, epsilon):
    """The likelihood-ratio test at e^epsilon realises the hockey stick."""
    threshold = epsilon / mu + mu / 2
    fpr, fnr = stats.norm.sf(threshold), stats.norm.cdf(threshold - mu)
    delta = gaussian_delta(mu, epsilon)
    assume(delta > 1e-8)  # of less, 1 - delta - fnr keeps too few digits
    assert float(epsilon_bound(fpr, fnr, delta)) == pytest.approx(epsilon, rel=1e-6)


@given(st.floats(0.05, 5.0))
def test_binary_randomized_response_is_attained(epsilon):
    lie = 1 / (1 + math.exp(epsilon))
    assert float(epsilon_bound(lie, lie, 0.0)) == pytest.approx(epsilon)
    orders = 1.0 + np.geomspace(1e-3, 1e4, 600)
    exact = (RandomizedResponseEvent(epsilon).rdp(orders) / orders).max()
    assert rho_bound(lie, lie) == pytest.approx(exact, rel=1e-6)


@given(RATES, RATES, st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_worse_error_rates_never_raise_a_bound(fpr, fnr, more, again):
    worse = min(1.0, fpr + more), min(1.0, fnr + again)
    assert mu_bound(*worse) <= mu_bound(fpr, fnr) + 1e-12
    assert epsilon_bound(*worse, 1e-3) <= epsilon_bound(fpr, fnr, 1e-3) + 1e-12
    assert rho_bound(*worse) <= rho_bound(fpr, fnr) + 1e-9


def test_perfect_and_useless_tests():
    assert float(mu_bound(0.0, 0.0)) == math.inf
    assert rho_bound(0.0, 0.5) == math.inf
    assert float(epsilon_bound(0.0, 0.5, 0.1)) == math.inf
    assert float(mu_bound(0.5, 0.5)) == rho_bound(0.5, 0.5) == 0.0
    assert float(epsilon_bound(1.0, 1.0, 0.1)) == float(mu_bound(1.0, 1.0)) == 0.0
    with pytest.raises(ParameterError):
        mu_bound(math.nan, 0.5)


def test_the_parametric_bound_covers():
    rng = np.random.default_rng(0)
    for mu in (0.0, 0.5, 2.0):
        misses = [
            gaussian_mu_bound(rng.normal(size=60), rng.normal(size=60) + mu, 0.95) > mu
            for _ in range(400)
        ]
        assert np.mean(misses) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    far = gaussian_mu_bound(rng.normal(size=4000), rng.normal(size=4000) + 2.0, 0.95)
    assert 1.9 < far < 2.05


def test_the_parametric_bound_without_spread():
    assert gaussian_mu_bound(np.zeros(5), np.ones(5), 0.95) == math.inf
    assert gaussian_mu_bound(np.zeros(5), np.zeros(5), 0.95) == 0.0
    assert gaussian_mu_bound(np.ones(1), np.zeros(1), 0.95) == 0.0
