"""Lemmas and equations of the papers, checked by numbers at a few points."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate
from scipy.special import comb, expit, logsumexp

from dpb_gym.privacy import objective_cs

Array = NDArray[Any]


# ------------------------------------------------------------------ CS


@pytest.mark.parametrize(
    ("L", "eta", "q", "rho"), [(1.0, 0.25, 0.5, 0.5), (2.0, 1.0, 0.2, 1.0), (0.5, 0.1, 0.9, 3.0)]
)
def test_theorem_1_for_other_losses(L: float, eta: float, q: float, rho: float) -> None:
    """Renyi divergences of both outputs, by quadrature at d = 1, are at most rho alpha.

    A record's loss is logistic in theta with slope L and curvature eta at its steepest point. Two
    data sets of 30 records differ in one, whose gradients have opposite signs.
    """
    plan = objective_cs(rho, dim=1, rank=1, gradient_bound=L, eigenvalue=eta, curvature=eta, q=q)
    assert plan.ridge == pytest.approx(eta / math.expm1((1 - q) * rho))
    assert plan.sigma == pytest.approx(L * (math.sqrt(1 + 2 * q * rho) + 1) / (q * rho))
    k = 4 * eta / L  # the loss L/k log(1 + exp(k s theta)) has slope L and curvature L k / 4

    def log_density(signs: Array, theta: Array) -> Array:
        z = k * theta[:, None] * signs
        gradient = (L * signs * expit(z)).sum(axis=1) + plan.ridge * theta
        hessian = (L * k * expit(z) * expit(-z)).sum(axis=1) + plan.ridge
        spread = math.log(math.sqrt(2 * math.pi) * plan.sigma)
        return np.log(hessian) - 0.5 * (gradient / plan.sigma) ** 2 - spread

    rng = np.random.default_rng(0)
    shared = rng.choice([-1.0, 1.0], 29)
    one, other = (np.append(shared, sign) for sign in (1.0, -1.0))
    reach = 12 * (plan.sigma + 30 * L) / plan.ridge
    theta = np.linspace(-reach, reach, 400_001)
    p, r = log_density(one, theta), log_density(other, theta)
    assert integrate.simpson(np.exp(p), x=theta) == pytest.approx(1.0, abs=1e-6)
    for alpha in (1.1, 2.0, 8.0, 32.0):
        for a, b in ((p, r), (r, p)):
            integral = integrate.simpson(np.exp(alpha * a + (1 - alpha) * b), x=theta)
            assert math.log(integral) / (alpha - 1) <= rho * alpha


# ------------------------------------------------------------------ CSW

POINTS = [(2, 1e4, 1.0), (3, 1e5, 100.0), (5, 1e6, 3000.0)]
"""d, T and nu."""
G, S = 1.0, 1.0
K = 1.0 / (expit(2.0) * expit(-2.0))  # of the logistic link with zeta = 1 on [-2, 2]


def least_ridge(d: int, T: float, nu: float) -> float:
    """Return the smallest rho that Lemmas 3 and 4 allow."""
    log = math.log(T)
    return max(5 * nu * math.sqrt(5 * d * log), 2 + 48 * S**2 * G**2 * K * d * log)


def fits(d: int, nu: float, ridge: float, count: float, expected: bool, draws: int) -> Any:
    """Return minimisers with noise w, theta* and the Gram matrix of `count` customers.

    Customers have one of 2 d vectors of the unit ball, so their number may be large.
    """
    rng = np.random.default_rng(int(d + nu))
    phi = rng.normal(size=(2 * d, d))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    truth = rng.normal(size=d)
    truth /= np.linalg.norm(truth)
    each = count / len(phi)
    mean = each * expit(phi @ truth)
    sold = np.tile(mean, (draws, 1))
    if not expected:
        sold = rng.binomial(int(each), expit(phi @ truth), size=(draws, len(phi)))
    w = nu * rng.normal(size=(draws, d))
    theta = np.zeros((draws, d))
    for _ in range(60):
        f = expit(theta @ phi.T)
        gradient = (each * f - sold) @ phi + ridge * theta + w
        weights = each * f * (1 - f)
        hessian = np.einsum("bi,ij,ik->bjk", weights, phi, phi) + ridge * np.eye(d)
        theta -= np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
    assert np.abs(gradient).max() < 1e-6 * (ridge + count)
    return theta, truth, each * phi.T @ phi


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("count", [0.0, 1e3, 1e6])
def test_lemma_2_bounds_the_minimiser_of_the_expected_loss(point: Any, count: float) -> None:
    d, T, nu = point
    ridge = 5 * nu * math.sqrt(5 * d * math.log(T))
    theta, _, _ = fits(d, nu, ridge, count, expected=True, draws=500)
    assert np.linalg.norm(theta, axis=1).max() <= 1.5


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("count", [1e3, 1e6])
def test_lemmas_3_and_4_bound_the_private_estimate(point: Any, count: float) -> None:
    d, T, nu = point
    ridge, log = least_ridge(d, T, nu), math.log(T)
    theta, truth, gram = fits(d, nu, ridge, count, expected=False, draws=500)
    assert np.linalg.norm(theta, axis=1).max() < 2.0
    error = theta - truth
    square = np.einsum("bj,jk,bk->b", error, gram + ridge * np.eye(d), error)
    bound = S * K * math.sqrt(3 * d * log) + (2 * G + 3) * math.sqrt(ridge)
    bound += G * nu * math.sqrt(5 * d * log)
    assert square.max() <= bound**2  # (5)


@pytest.mark.parametrize("point", POINTS)
def test_lemma_4_with_many_customers(point: Any) -> None:
    """(6) needs lambda_min >= lambda_0, which is 1e7 and more: above T at all three points."""
    d, T, nu = point
    ridge, log = least_ridge(d, T, nu), math.log(T)
    least = math.ceil((2 * G + 3) * ridge / math.sqrt(5 * d * log) + nu * G) ** 2
    assert least > 100 * T
    smallest = np.linalg.eigvalsh(fits(d, nu, ridge, 1.0, True, 1)[2])[0]
    theta, truth, gram = fits(d, nu, ridge, 1.1 * least / smallest, False, 300)
    assert np.linalg.eigvalsh(gram)[0] >= least
    error = theta - truth
    square = np.einsum("bj,jk,bk->b", error, gram + ridge * np.eye(d), error)
    assert square.max() <= (4 * S * K * math.sqrt(d * log)) ** 2


@pytest.mark.parametrize(("d", "T", "epsilon"), [(2, 1e2, 1.0), (3, 1e4, 0.1), (5, 1e6, 1.0)])
def test_corollary_2_and_lemma_5_of_noisy_determinants(d: int, T: float, epsilon: float) -> None:
    """With rho as printed, the noise of m nodes moves determinants by far less than a tenth."""
    delta, m = T**-2, math.ceil(math.log2(T))
    inner = delta / (2 * m)
    node = epsilon / (2 * m * math.log(1 / inner))
    sigma = math.sqrt(2 * math.log(1.25 / inner)) / node
    ridge = d * math.sqrt(d) * math.log(T / delta) ** 5 / epsilon
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(40, d))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    # far beyond T customers, since within T no determinant grows by half
    counts = [0.0, 0.1 * ridge, 0.5 * ridge, 2 * ridge, 10 * ridge]
    true = [n * phi.T @ phi / 40 * d + ridge * np.eye(d) for n in counts]
    ratios, both = [], []
    for _ in range(200):
        noise = sigma * math.sqrt(m) * rng.normal(size=(len(true), d, d))
        noise = np.triu(noise) + np.triu(noise, 1).transpose(0, 2, 1)
        private = np.linalg.slogdet(np.array(true) + noise)
        assert (private[0] > 0).all()
        exact = np.linalg.slogdet(true)[1]
        ratios.append(np.exp(private[1] - exact))
        both += list(zip(np.diff(private[1]), np.diff(exact)))
    assert np.min(ratios) >= 0.9 and np.max(ratios) <= 1.11
    for grown, truly in both:
        assert not grown > math.log(2) or truly >= math.log(1.5)
        assert not truly > math.log(2.5) or grown > math.log(2)
    assert 0.5 * ridge > T  # before T rounds det Lambda cannot double: no update is ever due


# ------------------------------------------------------------------ RU


def subsampled(alpha: int, q: float, sigma: float) -> float:
    """Return the exact divergence of order alpha of the Poisson-subsampled Gaussian."""
    k = np.arange(alpha + 1)
    terms = np.log(comb(alpha, k)) + (alpha - k) * math.log1p(-q) + k * math.log(q)
    return float(logsumexp(terms + (k * k - k) / (2 * sigma**2)) / (alpha - 1))


def printed(alpha: int, q: float, sigma: float) -> float:
    """Return Eq. 3.6."""
    total = 1 + comb(alpha, 2) * 2 * q**2 / sigma**2
    total += sum(comb(alpha, j) * (2 * q**2) ** (j / 2) / sigma**j for j in range(3, alpha + 1))
    return math.log(total) / (alpha - 1)


@pytest.mark.parametrize(("alpha", "q", "sigma"), [(2, 0.3, 100.0), (5, 0.1, 200.0), (8, 0.5, 1e4)])
def test_equation_3_7_where_q_alpha_over_sigma_is_small(alpha: int, q: float, sigma: float) -> None:
    """q^2 alpha / sigma^2, which is 2 q^2 rho alpha, is Eq. 3.6 there, and twice the exact cost."""
    assert q * alpha / sigma < 0.01
    approximate = q**2 * alpha / sigma**2
    assert printed(alpha, q, sigma) == pytest.approx(approximate, rel=0.03)
    assert subsampled(alpha, q, sigma) == pytest.approx(0.5 * approximate, rel=0.01)


@pytest.mark.parametrize("alpha", [4, 8, 16])
def test_equation_3_7_fails_at_the_papers_own_noise(alpha: int) -> None:
    """At q = 1/2 and sigma = 1.055, the noise of epsilon = 5, the exact cost is above it."""
    assert subsampled(alpha, 0.5, 1.055) > 0.25 * alpha / 1.055**2


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(0.1, 3.0))
def test_the_bias_of_clipped_users_in_6_1(seed: int, users: int, C: float) -> None:
    """A batch's mean moves by at most sum_u max(0, ||c_u|| - C) / B, attained in one direction."""
    rng = np.random.default_rng(seed)
    B = 50
    sums = rng.normal(size=(users, 4)) * rng.exponential(size=(users, 1))
    for c in (sums, np.abs(sums[:, :1]) * np.eye(4)[0]):
        norm = np.linalg.norm(c, axis=1)
        clipped = c * np.minimum(1.0, C / np.maximum(norm, 1e-300))[:, None]
        bias = np.linalg.norm((c - clipped).sum(axis=0)) / B
        bound = np.maximum(0.0, norm - C).sum() / B
        assert bias <= bound + 1e-12
    assert bias == pytest.approx(bound, abs=1e-12)


def test_the_growth_of_the_smallest_eigenvalue_in_6_1() -> None:
    """lambda_min(A_t) - lambda grows like d log(t)^2 / (2 gamma |A|) if candidates span R^d.

    The candidates are the d unit vectors, and the policy takes the first one unless it explores.
    """
    d, gamma, runs = 5, 0.05, 400
    rng = np.random.default_rng(0)
    counts, eigenvalues = np.zeros((runs, d)), {}
    for t in range(1, 20_001):
        p = min(1.0, d * math.log(t) / (t * gamma))
        explores = rng.random(runs) < p
        counts[np.arange(runs), np.where(explores, rng.integers(0, d, runs), 0)] += 1
        if t in (200, 2000, 20_000):
            eigenvalues[t] = counts[:, 1:].mean()
    # without the rounds in which p = 1
    grown = [b - a for a, b in pairwise(eigenvalues.values())]
    ends = [math.log(t) ** 2 for t in eigenvalues]
    expected = [d / (2 * gamma * d) * (b - a) for a, b in pairwise(ends)]
    first = sum(min(1.0, d * math.log(t) / (t * gamma)) / d for t in range(201, 2001))
    assert grown[0] == pytest.approx(first, rel=0.05)
    assert grown[1] == pytest.approx(expected[1], rel=0.05)


def test_rank_deficient_candidates_do_not_grow_in_6_1() -> None:
    """(6.1) needs candidate sets that span R^d; where they never do, lambda_min stays."""
    rng = np.random.default_rng(0)
    A = np.eye(4)
    for _ in range(500):
        x = np.append(rng.normal(size=3), 0.0)
        A += np.outer(x, x)
    assert np.linalg.eigvalsh(A)[0] == pytest.approx(1.0)
