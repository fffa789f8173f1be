"""Guarantees per rating and per person of replayed ratings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dpb_gym.errors import BudgetError
from dpb_gym.privacy import (
    ApproxEvent,
    Composition,
    Event,
    GaussianEvent,
    Guarantee,
    PureEvent,
    ZCDPEvent,
)


def test_guarantees_per_rating_and_person() -> None:
    curve = Composition.of(GaussianEvent(4.0, 1.0, 3))
    guarantee = Guarantee("central", "reward", curve=curve, uses=(2, 9))
    epsilons = guarantee.data_level(1e-6)
    for what, size in (("rating", 2), ("person", 9)):
        exact = Guarantee(
            "central", "reward", curve=Composition.of(GaussianEvent(4.0, float(size), 3))
        )
        assert epsilons[what] == pytest.approx(exact.epsilon(1e-6), rel=1e-9)
    assert "; per rating (<= 2 rounds): eps=" in str(guarantee)
    assert f"; per person (<= 9 rounds): eps={guarantee.data_level()['person']:.4g}" in str(
        guarantee
    )
    assert Guarantee.from_dict(guarantee.to_dict()) == guarantee
    once = replace(guarantee, uses=(1, 1))
    assert set(once.data_level(1e-6).values()) == {once.epsilon(1e-6)}
    assert "per rating (<= 1 round): eps=" in str(once)
    assert replace(guarantee, uses=None).data_level() == {} and "rating" not in str(
        replace(guarantee, uses=None)
    )


@pytest.mark.parametrize(
    ("event", "grouped"),
    [
        (ZCDPEvent(0.1), ZCDPEvent(2.5)),
        (ZCDPEvent(0.1, 0.02), ZCDPEvent(3.0)),
        (PureEvent(0.3), PureEvent(1.5)),
        (PureEvent(0.3, 4), PureEvent(1.5, 4)),
    ],
)
def test_groups_of_five(event: Event, grouped: Event) -> None:
    composition = Composition.of(event).group(5)
    assert composition is not None and len(composition.events) == 1
    assert composition.zcdp == pytest.approx(grouped.zcdp) and composition.pure == pytest.approx(
        grouped.pure
    )


def test_groups_without_a_bound_and_user_units() -> None:
    approximate = Composition.of(ApproxEvent(0.5, 1e-7))
    assert approximate.group(1) == approximate and approximate.group(2) is None
    unknown = Guarantee("central", "reward", curve=approximate, uses=(1, 2)).data_level()
    assert unknown["rating"] < math.inf == unknown["person"]
    for unit in ("user", "user-rewards"):
        whole = Guarantee("central", unit, curve=Composition.of(PureEvent(0.7)), uses=(3, 40))
        assert set(whole.data_level().values()) == {whole.epsilon(1e-5)}
    for wrong in ((0, 1), (1.0, 2), (True, 2), (1, 10**400), (1,), (1, 2, 3)):
        with pytest.raises(BudgetError, match="two positive integers"):
            Guarantee("central", "reward", uses=wrong)  # type: ignore[arg-type]
