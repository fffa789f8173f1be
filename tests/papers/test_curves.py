"""Quantities and coordinates of curves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from figure_helpers import claim, curve

from dpb_gym.errors import ResultError
from dpb_gym.papers.claims import AxisMap, Quantity
from dpb_gym.papers.curves import coordinate
from dpb_gym.papers.quantities import slopes
from dpb_gym.papers.verdicts import judge
from dpb_gym.privacy import Budget, Composition, GaussianEvent, Guarantee


def quantity(kind: str, **fields: Any) -> Quantity:
    return Quantity.model_validate({"kind": kind, **fields})


def value(one: Any, kind: str, curves: Any = (), **fields: Any) -> float:
    measured = quantity(kind, **fields).of(one, curves)
    return float(measured.of(*(np.mean(list(column.values())) for column in measured.columns)))


def test_quantities_have_hand_computed_values() -> None:
    regret = np.array([[1.0, 4.0, 6.0, 7.0], [3.0, 4.0, 8.0, 9.0]])
    one = curve(regret, reward=[20.0, 30.0], horizon=200, agent="a", K=5)
    other = curve([10.0, 30.0], reward=[50.0, 50.0], agent="random", K=5)
    apart = curve([1.0, 1.0], agent="random", K=10)
    curves = [one, other, apart]
    assert value(one, "final-regret") == 8.0
    assert value(one, "average-regret") == pytest.approx(0.04)
    assert value(one, "final-reward") == 25.0
    reference = {"reference": {"agent": "random"}}
    assert value(one, "relative-regret", curves, **reference) == pytest.approx(0.4)
    assert value(one, "relative-reward", curves, **reference) == pytest.approx(0.5)
    assert value(one, "regret-drop", curves, **reference) == pytest.approx(12.0)
    # rounds 50, 100, 150, 200: (7 - 6 + 9 - 8) / 50 over (1 + 3) / 50, both halved
    parts = {"early": [0.0, 0.25], "late": [0.75, 1.0]}
    assert value(one, "slope-ratio", **parts) == pytest.approx(0.5)
    assert slopes(one, (0.25, 0.75)) == {0: 0.05, 1: 0.05}


def test_linear_growth_has_slope_ratio_one_and_roots_less() -> None:
    rounds = np.linspace(0, 1000, 51)[1:]
    parts = {"early": [0.1, 0.3], "late": [0.8, 1.0]}
    linear = curve(np.tile(0.3 * rounds, (2, 1)), horizon=1000)
    root = curve(np.tile(np.sqrt(rounds), (2, 1)), horizon=1000)
    assert value(linear, "slope-ratio", **parts) == pytest.approx(1.0)
    exact = (math.sqrt(1000) - math.sqrt(800)) / (math.sqrt(300) - math.sqrt(100))
    assert value(root, "slope-ratio", **parts) == pytest.approx(exact)
    with pytest.raises(ResultError, match="no two checkpoints"):
        slopes(curve([1.0, 2.0]), (0.6, 0.9))


def test_spent_is_the_cost_over_the_requested_budget() -> None:
    def run(event: GaussianEvent, budget: Budget) -> float:
        promise = Guarantee("joint", "user-round", curve=Composition.of(event)).to_dict()
        return value(curve([1.0, 2.0], guarantee=promise, budget=budget), "spent")

    event = GaussianEvent(2.0, 1.0)  # rho = 0.125
    assert run(event, Budget.zcdp(0.125)) == pytest.approx(1.0)
    assert run(event, Budget.zcdp(0.0125)) == pytest.approx(10.0)
    assert run(event, Budget.approx(1.9931, 1e-5)) == pytest.approx(1.0, abs=1e-4)
    nothing = curve([1.0, 2.0], budget=Budget.zcdp(1.0))
    assert value(nothing, "spent") == math.inf
    judgement = judge(claim(quantity="spent", value=1.0, expect="below"), [nothing], ())
    assert judgement.verdict == "UNDECIDED" and "infinite" in judgement.summary


def test_a_budget_that_is_kept_exactly_holds() -> None:
    promise = Guarantee("joint", "user-round", curve=Composition.of(GaussianEvent(2.0, 1.0)))
    made = {"guarantee": promise.to_dict(), "budget": Budget.zcdp(0.125)}
    one = claim(quantity="spent", value=1.0, expect="below", tolerance=1e-6)
    assert judge(one, [curve([1.0, 2.0], **made)], ()).verdict == "HOLDS"
    made["budget"] = Budget.zcdp(0.1249)
    assert judge(one, [curve([1.0, 2.0], **made)], ()).verdict == "FAILS"


def test_a_reference_must_be_a_single_curve() -> None:
    one = curve([1.0, 2.0], agent="a", K=5)
    for others in ([], [curve([1.0, 1.0], agent="random", K=k) for k in (None, 5)]):
        with pytest.raises(ResultError):
            value(one, "relative-regret", [one, *others], reference={"agent": "random"})


def test_equality_of_coordinates() -> None:
    assert coordinate(0.1 + 0.2) == 0.3 and coordinate(5) == 5 and coordinate(True) is True
    assert coordinate(None) is None and coordinate("1") == "1"
    assert curve([1.0], rho=coordinate(0.1 + 0.2)).matches({"rho": (0.1, 0.3)})
    map_ = AxisMap.model_validate({"path": "budget.rho", "values": [[0.1 + 0.2, 0.3]]})
    assert map_.values == ((0.3, 0.3),)
    assert not curve([1.0], rho=None).matches({"rho": 0.3})


def test_reward_rates_of_parts_of_the_horizon() -> None:
    """Rewards 5, 15, 20, 40 at rounds 25, 50, 75, 100, and twice as much in a second replicate."""
    earned = np.array([[5.0, 15.0, 20.0, 40.0], [10.0, 30.0, 40.0, 80.0]])
    one = curve(np.zeros_like(earned), reward=earned)

    def rate(**options: Any) -> list[float]:
        quantity = Quantity.model_validate({"kind": "reward-rate", **options})
        return [list(column.values()) for column in quantity.of(one, [one]).columns]

    assert rate() == [[0.4, 0.8]]
    assert rate(part=[0.25, 0.75]) == [[0.3, 0.6]]
    assert rate(part=[0.75, 1], over=[0, 0.25]) == [[0.8, 1.6], [0.2, 0.4]]
