"""The ledger: refuses before, composes right, survives checkpoints."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym.errors import BudgetError, BudgetExceeded, ParameterError
from dpb_gym.privacy import (
    ApproxEvent,
    Budget,
    Composition,
    GaussianEvent,
    Ledger,
    PoissonGaussianEvent,
    PureEvent,
    ZCDPEvent,
    accounting,
)


def unit(rho: float) -> GaussianEvent:
    return GaussianEvent(sigma=(2 * rho) ** -0.5)


def test_sequential_charges_add_up_and_the_last_is_refused() -> None:
    ledger = Ledger(Budget.zcdp(1.0))
    for _ in range(10):
        ledger.charge(unit(0.1), what="sum")
    assert ledger.spent == pytest.approx(1.0) and ledger.remaining == pytest.approx(0, abs=1e-12)
    before = ledger.state_dict()
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        ledger.charge(unit(1e-6), what="one more")
    assert ledger.state_dict() == before
    assert [(e.what, e.times) for e in ledger.entries] == [("sum", 10)]


def test_disjoint_releases_cost_what_the_costliest_does() -> None:
    ledger = Ledger(Budget.zcdp(0.5))
    for rho in (0.1, 0.4, 0.2, 0.4):
        ledger.charge(unit(rho), what="batch", parallel="batches")
    assert ledger.spent == pytest.approx(0.4)
    ledger.charge(unit(0.1), what="features")
    assert ledger.spent == pytest.approx(0.5)
    with pytest.raises(BudgetExceeded):
        ledger.charge(unit(0.41), what="batch", parallel="batches")
    with pytest.raises(BudgetExceeded):
        ledger.charge(unit(0.1), what="batch", parallel="another group")
    assert ledger.spent == pytest.approx(0.5)


def test_parallel_groups_of_unlike_members_take_the_worst_case() -> None:
    members = [GaussianEvent(4.0), PureEvent(0.6), ZCDPEvent(0.04)]
    ledger = Ledger(None)
    for member in members:
        ledger.charge(member, what="part", parallel="parts")
    ledger.charge(GaussianEvent(3.0), what="all")
    worst = max(
        accounting.epsilon(Composition.of(GaussianEvent(3.0), member), 1e-5) for member in members
    )
    assert ledger.guarantee.epsilon(1e-5) == pytest.approx(worst)
    assert ledger.guarantee.rho == pytest.approx(0.6**2 / 2 + 1 / 18)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.05, 5),
    st.lists(st.tuples(st.floats(0.001, 1.0), st.booleans()), min_size=1, max_size=12),
)
def test_never_above_the_budget(rho: float, charges: list[tuple[float, bool]]) -> None:
    ledger = Ledger(Budget.zcdp(rho))
    total, worst = 0.0, 0.0
    for cost, parallel in charges:
        after = total + max(worst, cost) if parallel else total + cost + worst
        if after <= rho * (1 + 1e-10):
            ledger.charge(unit(cost), what="r", parallel="p" if parallel else None)
            total, worst = (total, max(worst, cost)) if parallel else (total + cost, worst)
        elif after > rho * (1 + 1e-8):
            with pytest.raises(BudgetExceeded):
                ledger.charge(unit(cost), what="r", parallel="p" if parallel else None)
    assert ledger.spent <= rho * (1 + 1e-9)
    assert ledger.spent == pytest.approx(total + worst)


def test_approx_budget_spends_epsilon() -> None:
    ledger = Ledger(Budget.approx(1.0, 1e-5), unit="reward")
    ledger.charge(GaussianEvent(3.7307), what="b", parallel="b")
    assert 0.9999 < ledger.spent <= 1.0
    ledger.charge(GaussianEvent(3.7307), what="b", parallel="b")
    with pytest.raises(BudgetExceeded):
        ledger.charge(GaussianEvent(100.0), what="another")
    assert ledger.entries[0].times == 2


def test_events_without_zcdp_need_an_approx_budget() -> None:
    with pytest.raises(BudgetError, match=r"Budget\.approx"):
        Ledger(Budget.zcdp(1.0)).charge(PoissonGaussianEvent(0.1, 5.0), what="b")
    ledger = Ledger(Budget.approx(1.0, 1e-5))
    ledger.charge(PoissonGaussianEvent(0.1, 5.0), what="b")
    ledger.charge(ApproxEvent(0.1, 1e-7), what="mle")
    assert 0.1 < ledger.spent < 1.0


def test_without_budget() -> None:
    ledger = Ledger(None)
    assert not ledger.guarantee.private and ledger.spent == 0.0
    ledger.charge(unit(0.3), what="sum")
    assert ledger.guarantee.rho == pytest.approx(0.3) and ledger.remaining == math.inf
    ledger.charge(PoissonGaussianEvent(0.1, 5.0), what="b")
    assert math.isnan(ledger.spent) and ledger.guarantee.rho is None
    ledger.disclose("exact sum")
    assert not ledger.guarantee.private
    with pytest.raises(BudgetExceeded, match="without noise"):
        Ledger(Budget.zcdp(1.0)).disclose("exact sum")


def test_a_budget_without_charge_is_perfect_privacy() -> None:
    guarantee = Ledger(Budget.zcdp(1.0)).guarantee
    assert guarantee.private and guarantee.rho == 0.0


def test_state_round_trip_gives_nothing_back() -> None:
    ledger = Ledger(Budget.approx(2.0, 1e-6), "anticipating", "reward", "add-remove")
    ledger.charge(GaussianEvent(4.0), what="a")
    ledger.charge(GaussianEvent(4.0), what="a")
    for _ in range(5):
        ledger.charge(GaussianEvent(5.0), what="b", parallel="b")
    ledger.charge(GaussianEvent(6.0), what="b", parallel="b")
    again = Ledger.from_state(json.loads(json.dumps(ledger.state_dict())))
    assert again.guarantee == ledger.guarantee and again.spent == ledger.spent
    assert again.entries == ledger.entries
    assert again.resumed == 1 and ledger.resumed == 0
    for one in (ledger, again):
        with pytest.raises(BudgetExceeded):
            one.charge(GaussianEvent(0.5), what="c")


def test_damaged_states_are_refused() -> None:
    good = Ledger(Budget.zcdp(1.0))
    good.charge(unit(0.9), what="a")
    for key in ("budget", "entries", "notion", "resumed"):
        broken = good.state_dict()
        del broken[key]
        with pytest.raises(BudgetError):
            Ledger.from_state(broken)
    over = good.state_dict()
    over["entries"][0]["times"] = 2
    with pytest.raises(BudgetError, match="more than"):
        Ledger.from_state(over)
    over["entries"][0]["times"] = -1
    with pytest.raises(BudgetError):
        Ledger.from_state(over)


def test_bad_input() -> None:
    with pytest.raises(BudgetError):
        Ledger(1.0)  # type: ignore[arg-type]
    with pytest.raises(BudgetError):
        Ledger(None, notion="secret")
    with pytest.raises(ParameterError):
        Ledger(None).charge(0.5, what="x")  # type: ignore[arg-type]
