"""Budgets and guarantees: validation, text, serialisation."""

from __future__ import annotations

import json
import math
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy import (
    ApproxEvent,
    Budget,
    Composition,
    Event,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    PerturbedObjectiveEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
    ZCDPEvent,
)
from dpb_gym.privacy.composition import event_from_dict
from dpb_gym.privacy.guarantee import NOTIONS, PUBLIC, RESPONSES, UNITS, UNTRUSTED, implies

PAGE = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text(encoding="utf-8")

EVENTS: list[Event] = [
    GaussianEvent(2.0, 0.5, 3),
    ZCDPEvent(0.1, xi=0.2),
    ZCDPEvent(0.1),
    PureEvent(0.3, 2),
    RandomizedResponseEvent(0.7, 5, 2),
    LaplaceEvent(2.0, 1.0),
    PoissonGaussianEvent(0.3, 1.5, 1.0, 2, "symmetric"),
    ApproxEvent(0.1, 1e-6),
    PerturbedObjectiveEvent(0.1, 3.0, 4.0, 5, output_mu=1e-3, count=2),
]


@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, math.inf, "1", True, None])
def test_bad_rho(rho: object) -> None:
    with pytest.raises(BudgetError, match="rho"):
        Budget.zcdp(rho)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-5), (-1, 1e-5), (math.nan, 1e-5), (math.inf, 1e-5)]
    + [(1.0, d) for d in (0.0, 1.0, -0.1, 2.0, math.nan, "x")],
)
def test_bad_epsilon_delta(epsilon: object, delta: object) -> None:
    with pytest.raises(BudgetError, match=r"epsilon|delta"):
        Budget.approx(epsilon, delta)  # type: ignore[arg-type]


def test_budget_is_a_value() -> None:
    a, b = Budget.zcdp(0.5), Budget.approx(1, 1e-5)
    assert a == Budget.zcdp(0.5) and hash(a) == hash(Budget.zcdp(0.5)) and a != b
    assert (str(a), str(b)) == ("rho=0.5", "eps=1,delta=1e-5")
    for budget in (a, b):
        assert pickle.loads(pickle.dumps(budget)) == budget
    with pytest.raises(AttributeError):
        a.rho = 3.0  # type: ignore[misc]


@given(
    value=st.floats(min_value=1e-300, max_value=1e300),
    delta=st.floats(min_value=1e-300, max_value=1.0, exclude_max=True),
)
def test_the_text_of_a_budget_is_exact(value: float, delta: float) -> None:
    for budget in (Budget.zcdp(value), Budget.approx(value, delta)):
        assert Budget.parse(str(budget)) == budget
        assert " " not in str(budget) and Budget.parse(f" {str(budget).upper()} ") == budget


def test_no_budget_has_a_text_too() -> None:
    assert Budget.parse("none") is Budget.parse(None) is None
    assert (Budget.text(None), Budget.text(Budget.zcdp(2))) == ("none", "rho=2")
    assert str(Budget.approx(1.0000001, 1e-6)) == "eps=1.0000001,delta=1e-6"


@pytest.mark.parametrize(
    "text",
    ["", "rho", "rho=", "rho=x", "rho=-1", "rho=nan", "eps=1", "delta=1e-5", "rho=1,rho=2",
     "rho=1,eps=1,delta=.1", "eps=1,delta=1", "mu=1", "eps=1;delta=1e-5", 3, ["rho=1"]],
)  # fmt: skip
def test_bad_texts(text: object) -> None:
    with pytest.raises(BudgetError):
        Budget.parse(text)  # type: ignore[arg-type]


def test_a_budget_is_a_field() -> None:
    class Model(BaseModel):
        budget: Budget | None = None

    model = Model(budget="eps=1,delta=1e-5")  # type: ignore[arg-type]
    assert model.budget == Budget.approx(1, 1e-5)
    assert Model.model_validate_json(model.model_dump_json()) == model
    with pytest.raises(ValidationError, match=r"rho=0\.5"):
        Model(budget="rho 1")  # type: ignore[arg-type]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_events_survive_json(event: Event) -> None:
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event
    curve = Composition.of(event, EVENTS[0])
    guarantee = Guarantee("joint", "reward", curve=curve)
    assert Guarantee.from_dict(json.loads(json.dumps(guarantee.to_dict()))) == guarantee
    assert hash(guarantee) == hash(Guarantee.from_dict(guarantee.to_dict()))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (GaussianEvent, {"sigma": 0.0}),
        (GaussianEvent, {"sigma": 1.0, "count": 0}),
        (GaussianEvent, {"sigma": math.nan}),
        (ZCDPEvent, {"rho": 0.1, "xi": -1.0}),
        (ZCDPEvent, {"rho": math.nan}),
        (RandomizedResponseEvent, {"epsilon": 1.0, "categories": 1}),
        (PoissonGaussianEvent, {"q": 1.5, "sigma": 1.0}),
        (PoissonGaussianEvent, {"q": 0.5, "sigma": 1.0, "pair": "other"}),
        (ApproxEvent, {"epsilon": 1.0, "delta": 1.0}),
        (
            PerturbedObjectiveEvent,
            {"ratio": 0.5, "sigma": 1, "sensitivity": 1, "dim": 0},
        ),
    ],
)
def test_bad_events(kind: type[Event], values: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        kind(**values)


def test_bad_event_dicts() -> None:
    for data in ({}, {"kind": ""}, {"kind": "gauss"}, {"kind": "gaussian", "mu": 1.0}):
        with pytest.raises(ParameterError):
            event_from_dict(data)
    with pytest.raises(ParameterError):
        Composition.from_dict([1])


def test_guarantee_text() -> None:
    gaussian = Guarantee("joint", "user-round", curve=Composition.of(ZCDPEvent(1.0)))
    assert str(gaussian) == (
        "joint zCDP rho=1 per user-round (replace-one); eps=7.077 at delta=1e-05"
    )
    local = Guarantee("local", "user-round", curve=Composition.of(PureEvent(1.0)))
    assert str(local) == "local DP eps=1 per user-round (replace-one)"
    sampled = Guarantee("central", "reward", curve=Composition.of(PoissonGaussianEvent(0.3, 2.0)))
    assert sampled.rho == 0.125 and "eps=0.9" in str(sampled)
    approximate = Guarantee("central", "reward", curve=Composition.of(ApproxEvent(1.0, 1e-6)))
    assert approximate.rho is None and str(approximate).startswith("central DP eps=1 at")
    assert "\n" not in str(gaussian)


def test_no_guarantee() -> None:
    none = Guarantee.none()
    assert str(none) == "non-private" and not none.private
    assert none.rho is None and none.epsilon(1e-5) == math.inf and none.delta(3.0) == 1.0
    assert Guarantee.from_dict(none.to_dict()) == none
    nothing_released = Guarantee("joint", "user-round", curve=Composition())
    assert nothing_released.private and nothing_released.rho == 0.0
    assert nothing_released.epsilon(1e-9) == 0.0 and nothing_released.delta(0.0) == 0.0


@pytest.mark.parametrize(
    "names", [("secret", "reward"), ("joint", "row"), ("joint", "reward", "swap")]
)
def test_bad_names(names: tuple[str, ...]) -> None:
    with pytest.raises(BudgetError, match="must be one of"):
        Guarantee(*names)


def test_delta_inverts_epsilon() -> None:
    for events in ([GaussianEvent(2.0)], [ZCDPEvent(0.1)], [PoissonGaussianEvent(0.2, 1.0)]):
        guarantee = Guarantee("joint", "reward", curve=Composition.of(*events))
        epsilon = guarantee.epsilon(1e-6)
        assert guarantee.delta(epsilon) == pytest.approx(1e-6, rel=1e-5)
        assert guarantee.epsilon(1e-4) < epsilon
    with pytest.raises(BudgetError):
        guarantee.delta(-1.0)


def rows_below(title: str) -> list[list[str]]:
    """Return the cells of the first table below a heading of the page."""
    table = PAGE.partition(f"\n## {title}")[2].partition("\n|")[2].partition("\n\n")[0]
    lines = table.splitlines()[2:]
    return [[cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_page_lists_the_notions_by_strength() -> None:
    """A stronger notion implies a weaker one, but for the exception that the page names."""
    names = [row[0] for row in rows_below("Notion")]
    assert sorted(names) == sorted(NOTIONS)
    for unit in UNITS:
        for i, weak in enumerate(names):
            for j, strong in enumerate(names):
                exception = weak == "central" and strong in UNTRUSTED and unit not in RESPONSES
                assert implies(strong, weak, unit) == (j >= i and not exception), (strong, weak)
    assert "`aggregate`, `shuffle` and `local` imply `central` only where contexts are public" in (
        re.sub(r"\s+", " ", PAGE)
    )


def test_the_page_states_what_each_unit_leaves_public() -> None:
    rows = {row[0]: row[2] for row in rows_below("Unit")}
    assert rows == PUBLIC and set(rows) == set(UNITS)


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [(1.0, "1"), (1.000013678, "1.00002"), (0.1 + 0.2, "0.3"), (123.45678, "123.457")],
)
def test_a_pure_epsilon_is_stated_as_an_upper_bound(epsilon, text):
    curve = Composition.of(PureEvent(epsilon))
    assert str(Guarantee("local", "user-round", curve=curve)).startswith(f"local DP eps={text} per")
