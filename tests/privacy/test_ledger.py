"""The ledger: sums of charges, rejection, pickling."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym.errors import BudgetError, BudgetExceeded, ParameterError
from dpb_gym.privacy import (
    ApproxEvent,
    Budget,
    GaussianEvent,
    Ledger,
    PoissonGaussianEvent,
)


def unit(rho: float) -> GaussianEvent:
    return GaussianEvent(sigma=(2 * rho) ** -0.5)


def test_charges_add_up_and_the_last_is_refused() -> None:
    ledger = Ledger(Budget.zcdp(1.0))
    for _ in range(10):
        ledger.charge(unit(0.1), what="sum")
    assert ledger.spent == pytest.approx(1.0) and ledger.remaining == pytest.approx(0, abs=1e-12)
    before = ledger.guarantee, ledger.spent
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        ledger.charge(unit(1e-6), what="one more")
    assert (ledger.guarantee, ledger.spent) == before and len(ledger.entries) == 10


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 5), st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12))
def test_never_above_the_budget(rho: float, charges: list[float]) -> None:
    ledger, total = Ledger(Budget.zcdp(rho)), 0.0
    for cost in charges:
        if total + cost <= rho * (1 + 1e-10):
            ledger.charge(unit(cost), what="r")
            total += cost
        elif total + cost > rho * (1 + 1e-8):
            with pytest.raises(BudgetExceeded):
                ledger.charge(unit(cost), what="r")
    assert ledger.spent <= rho * (1 + 1e-9)
    assert ledger.spent == pytest.approx(total)


def test_approx_budget_spends_epsilon() -> None:
    ledger = Ledger(Budget.approx(1.0, 1e-5), unit="reward")
    ledger.charge(GaussianEvent(3.7307), what="b")
    assert 0.9999 < ledger.spent <= 1.0
    with pytest.raises(BudgetExceeded):
        ledger.charge(GaussianEvent(100.0), what="another")


def test_events_without_zcdp_need_an_approx_budget() -> None:
    with pytest.raises(BudgetError, match="epsilon, delta"):
        Ledger(Budget.zcdp(1.0)).charge(ApproxEvent(0.1, 1e-7), what="b")
    ledger = Ledger(Budget.approx(1.0, 1e-5))
    ledger.charge(PoissonGaussianEvent(0.1, 5.0), what="b")
    ledger.charge(ApproxEvent(0.1, 1e-7), what="mle")
    assert 0.1 < ledger.spent < 1.0


def test_without_budget() -> None:
    ledger = Ledger(None)
    assert not ledger.guarantee.private and ledger.spent == 0.0
    ledger.charge(unit(0.3), what="sum")
    assert ledger.guarantee.rho == pytest.approx(0.3) and ledger.remaining == math.inf
    ledger.charge(ApproxEvent(0.1, 1e-7), what="b")
    assert math.isnan(ledger.spent) and ledger.guarantee.rho is None
    ledger.disclose("exact sum")
    assert not ledger.guarantee.private


def test_the_basis_of_a_guarantee() -> None:
    ledger = Ledger(Budget.zcdp(1.0))
    ledger.charge(unit(0.3), what="sum")
    assert ledger.guarantee.basis == "computed"
    ledger.charge(unit(0.3), what="of a package", basis="declared")
    assert ledger.guarantee.basis == "declared"
    ledger.lift("some paper")
    ledger.charge(unit(5.0), what="its noise")
    assert ledger.guarantee.basis == "declared; as printed (some paper)"
    assert ledger.guarantee.rho == pytest.approx(5.6)


def test_bad_input() -> None:
    with pytest.raises(BudgetError):
        Ledger(1.0)  # type: ignore[arg-type]
    with pytest.raises(BudgetError):
        Ledger(None, notion="secret")
    with pytest.raises(ParameterError):
        Ledger(None).charge(0.5, what="x")  # type: ignore[arg-type]
