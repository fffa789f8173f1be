"""The limit of local messages, against information and minima that are computed by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture
def limit(import_benchmark):
    return import_benchmark("local_limit")


def channel(rng, inputs, outputs, spread):
    """Return a random channel ``(inputs, outputs)`` and the least rho of its zCDP."""
    logits = rng.normal(size=(inputs, outputs)) * spread
    law = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rho = 0.0
    for order in (1.0 + 1e-6, 1.5, 2.0, 3.0, 8.0, 50.0):
        for p in law:
            for q in law:
                renyi = math.log(float((p**order * q ** (1.0 - order)).sum())) / (order - 1.0)
                rho = max(rho, renyi / order)
    return law, rho


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(seed=seeds, spread=st.sampled_from([0.01, 0.1, 0.5, 2.0]))
def test_no_message_has_more_information_than_its_budget_allows(seed, spread):
    """The Fisher information of a message, of a family of laws with any scores."""
    rng = np.random.default_rng(seed)
    law, rho = channel(rng, 6, 7, spread)
    weight = rng.dirichlet(np.ones(6))
    scores = rng.normal(size=(6, 3))
    scores -= weight @ scores  # a score has mean 0
    covariance = (scores.T * weight) @ scores
    message = weight @ law
    means = (law.T * weight) @ scores / message[:, None]
    information = (means.T * message) @ means
    assert np.trace(np.linalg.solve(covariance, information)) <= math.expm1(2 * rho) * (1 + 1e-9)


def test_two_inputs_and_a_small_budget_attain_half_of_it():
    """Randomised responses: the constant is right up to the mean over the customers."""
    epsilon = 0.01
    p = 1.0 / (1.0 + math.exp(-epsilon))
    law = np.array([[p, 1 - p], [1 - p, p]])
    means = law.T @ np.array([1.0, -1.0])
    information = float((means**2 / 2).sum())
    rho = math.log(float((law[0] ** 2 / law[1]).sum())) / 2
    # The divergence from the mean over two equal inputs is a quarter of that between them.
    assert information == pytest.approx(math.expm1(2 * rho) / 4, rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_the_least_loss_by_search(limit, seed):
    rng = np.random.default_rng(seed)
    loss, score = (a @ a.T + 0.1 * np.eye(3) for a in rng.normal(size=(2, 3, 3)))

    def value(entries):
        half = entries.reshape(3, 3)
        J = half @ half.T + 1e-9 * np.eye(3)
        J /= np.trace(np.linalg.solve(score, J))
        return float(np.trace(loss @ np.linalg.inv(J)))

    tries = [minimize(value, rng.normal(size=9), method="L-BFGS-B").fun for _ in range(4)]
    assert min(tries) == pytest.approx(limit.least_loss(loss, score), rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_a_quadratic_loss_is_recovered(limit, seed):
    a = np.random.default_rng(seed).normal(size=(4, 4))
    loss = a @ a.T
    assert limit.quadratic(lambda e: float(e @ loss @ e), 4) == pytest.approx(loss, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["pricing", "assortment"])
def test_the_limit_falls_with_the_budget_and_is_below_random(limit, problem, monkeypatch):
    monkeypatch.setattr(limit, "INSTANCES", 2)  # of 8, which are averaged
    regrets = limit.limits.__wrapped__(problem)
    task = limit.TASKS[limit.CASES[problem][0]]
    assert all(a > b for a, b in itertools.pairwise(regrets))
    assert 0.0 < regrets[-1] < regrets[0] < task.normalisation.oracle - task.normalisation.random
