"""Eq. 3.6 of RU: reproduced, and reported at its true cost (errata R2, R3)."""

from __future__ import annotations

import math

import pytest

from dpb_gym.errors import ParameterError
from dpb_gym.privacy import (
    Budget,
    Composition,
    Guarantee,
    Ledger,
    PoissonGaussianEvent,
    amplified_sigma_ru,
    calibrate_scale,
    equivalent_rho,
    gaussian_sigma,
)
from dpb_gym.privacy.printed_calibrations import RU_ORDERS

DELTA = 1e-5


def bound(q: float, sigma: float, order: int) -> float:
    terms = [math.comb(order, j) * (2 * q * q) ** (j / 2) / sigma**j for j in range(2, order + 1)]
    return math.log1p(sum(terms)) / (order - 1)


@pytest.mark.parametrize(
    ("q", "nominal", "true"),
    [
        (0.3, 0.5, 2.3),
        (0.3, 1.0, 14.0),
        (0.3, 2.0, 114),
        (0.3, 5.0, 37_000),
        (0.5, 0.5, 1.4),
        (0.5, 1.0, 7.5),
        (0.5, 2.0, 52),
        (0.5, 5.0, 13_600),
    ],
)
def test_true_cost_of_the_papers_noise(q: float, nominal: float, true: float) -> None:
    event = amplified_sigma_ru(nominal, DELTA, q)
    claimed = min(bound(q, event.sigma, a) + math.log(1 / DELTA) / (a - 1) for a in RU_ORDERS)
    assert claimed == pytest.approx(nominal, rel=1e-6)
    ledger = Ledger(None, "central", "reward")
    ledger.charge(event, what="subsampled rewards")
    assert ledger.guarantee.epsilon(DELTA) == pytest.approx(true, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.3, 0.5])
def test_peer_accountant_agrees(q: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    event = amplified_sigma_ru(1.0, DELTA, q)
    peer = pld.from_gaussian_mechanism(event.sigma, sampling_prob=q).get_epsilon_for_delta(DELTA)
    ours = Guarantee("central", "reward", curve=Composition.of(event)).epsilon(DELTA)
    assert ours == pytest.approx(peer, rel=1e-3)


@pytest.mark.parametrize(("q", "least", "most"), [(0.3, 1.44, 2.64), (0.9, 1.02, 1.09)])
def test_sampling_never_pays(q: float, least: float, most: float) -> None:
    """Erratum R3: exactly accounted, the noise after rescaling by 1/q exceeds the plain one."""
    ratios = []
    for epsilon in (0.5, 1.0, 2.0, 5.0):
        budget = Budget.approx(epsilon, DELTA)
        sampled = calibrate_scale(budget, lambda s: [PoissonGaussianEvent(q, s)])
        plain = gaussian_sigma(equivalent_rho(budget), 1.0)
        ratios.append(sampled / q / plain)
    assert min(ratios) == pytest.approx(least, abs=0.01)
    assert max(ratios) == pytest.approx(most, abs=0.01)


def test_budgets_that_the_equation_never_reaches() -> None:
    with pytest.raises(ParameterError, match="never reaches"):
        amplified_sigma_ru(0.1, DELTA, 0.3)
    for bad in ({"epsilon": -1.0}, {"delta": 0.0}, {"q": 0.0}, {"q": 1.5}):
        with pytest.raises(ParameterError):
            amplified_sigma_ru(**{"epsilon": 1.0, "delta": DELTA, "q": 0.3, **bad})
