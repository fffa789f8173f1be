"""Requests become arguments of a session, or errors that name row and field."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.service.bodies import MOST_ROWS, Bodies, BodyError

NAMES = ("sport", "politics", "music")
RANGES = {"hour": (0.0, 24.0), "age": (-10.0, 120.0)}
NEWS = Bodies(
    ProblemInfo("recommendation", 100, 9, (0.0, 1.0), n_candidates=3, masked=True),
    NAMES,
    RANGES,
    people=True,
)
PRICES = Bodies(
    ProblemInfo("pricing", 100, 3, (0.0, 1.0), demand="logistic", zeta=4.0), None, RANGES, False
)
SLATES = Bodies(
    ProblemInfo(
        "assortment", 100, 2, (0.0, 1.0), n_items=3, capacity=2, equal_revenues=False, masked=True
    ),
    NAMES,
    None,
    False,
)
ARMS = Bodies(
    ProblemInfo("recommendation", 100, 2, (0.0, 1.0), n_candidates=2, n_arms=5), None, None, False
)
ANA = {"features": {"hour": 6, "age": 55}, "user": "ana"}
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([*NAMES, 10**400, -(2**63), "\ud800", "41"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["features", "user", "excluded", "revenues", "arms", "hour", "age"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def errors(read: Any, body: Any) -> list[tuple[int | None, str | None]]:
    """Return rows and fields of what is wrong."""
    with pytest.raises(BodyError) as caught:
        read(body)
    assert all(error.message for error in caught.value.errors)
    json.dumps([error._asdict() for error in caught.value.errors])
    return [(error.row, error.field) for error in caught.value.errors]


@given(st.floats(0.0, 24.0), st.floats(-10.0, 120.0))
def test_each_candidate_has_intercept_and_scaled_features_in_its_block(
    hour: float, age: float
) -> None:
    (arguments,) = NEWS.decide({"features": {"age": age, "hour": hour}, "user": "ana"})
    own = np.array([1.0, hour / 24.0, (age + 10.0) / 130.0])
    assert np.allclose(arguments["features"], np.kron(np.eye(3), own) / math.sqrt(3), atol=1e-15)
    assert np.linalg.norm(arguments["features"], axis=1).max() <= 1.0
    (priced,) = PRICES.decide({"features": {"age": age, "hour": hour}})
    assert np.allclose(priced["features"], own[1:] / math.sqrt(3), atol=1e-15)


@given(ANYTHING, st.sampled_from([NEWS, PRICES, SLATES, ARMS]))
def test_any_json_is_read_or_refused(body: Any, bodies: Bodies) -> None:
    for read in (bodies.decide, bodies.observe):
        try:
            rows = read(body)
        except BodyError as error:
            count = len(body) if isinstance(body, list) else 1
            assert error.errors
            assert all(e.row is None or e.row < count for e in error.errors)
        else:
            assert len(rows) == (len(body) if isinstance(body, list) else 1)


@given(st.sampled_from(["hour", "age", "user", "excluded"]), ANYTHING)
def test_any_value_in_a_right_body_is_read_or_its_field_is_named(field: str, value: Any) -> None:
    body: dict[str, Any] = {**ANA, "features": dict(ANA["features"])}  # type: ignore[call-overload]
    if field in RANGES:
        body["features"][field] = value
    else:
        body[field] = value
    try:
        (arguments,) = NEWS.decide(body)
    except BodyError as error:
        ((row, named, _),) = error.errors
        assert row == 0 and named is not None
        assert named.removeprefix("features.").partition(".")[0] == field
    else:
        assert np.isfinite(arguments["features"]).all()
        if field in RANGES:
            low, high = RANGES[field]
            assert type(value) in (int, float) and low <= value <= high


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"features": {"hour": 6}}, "features.age"),
        ({"features": {"hour": 6, "age": "young"}}, "features.age"),
        ({"features": {"hour": 6, "age": math.nan}}, "features.age"),
        ({"features": {"hour": math.inf, "age": 5}}, "features.hour"),
        ({"features": {"hour": 25, "age": 5}}, "features.hour"),
        ({"features": {"hour": True, "age": 5}}, "features.hour"),
        ({"features": {"hour": None, "age": 5}}, "features.hour"),
        ({"features": {"hour": 5, "age": 5, "agee": 1}}, "features"),
        ({"features": [5, 5]}, "features"),
        ({"features": None}, "features"),
        ({"user": ""}, "user"),
        ({"user": "x" * 201}, "user"),
        ({"user": "a\u200bb"}, "user"),
        ({"user": -1}, "user"),
        ({"user": 1.5}, "user"),
        ({"user": True}, "user"),
        ({"user": None}, "user"),
        ({"excluded": list(NAMES)}, "excluded"),
        ({"excluded": ["sport", "sports"]}, "excluded.1"),
        ({"excluded": ["sport", "music", "sport"]}, "excluded.2"),
        ({"excluded": [0]}, "excluded.0"),
        ({"excluded": "sport"}, "excluded"),
        ({"excluded": None}, "excluded"),
        ({"revenues": [1, 1, 1]}, "revenues"),
        ({"available": [1, 1, 1]}, "available"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], field: str) -> None:
    assert errors(NEWS.decide, {**ANA, **change}) == [(0, field)]
    assert errors(NEWS.decide, [ANA, {**ANA, **change}, ANA]) == [(1, field)]


def test_bodies_that_are_no_rows() -> None:
    assert errors(NEWS.decide, {}) == [(0, "features")]
    assert errors(NEWS.decide, []) == [(None, None)]
    assert errors(NEWS.decide, [ANA] * (MOST_ROWS + 1)) == [(None, None)]
    assert errors(NEWS.decide, [ANA, 3, None]) == [(1, None), (2, None)]
    assert errors(NEWS.decide, "features") == [(0, None)]
    assert errors(NEWS.decide, {"features": ANA["features"]}) == [(0, "user")]
    assert errors(PRICES.decide, {**ANA}) == [(0, "user")]
    assert errors(PRICES.decide, {"features": ANA["features"], "excluded": []}) == [(0, "excluded")]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "decision"),
        ({"decision": 1}, "response"),
        ({"decision": "1", "response": 1}, "decision"),
        ({"decision": 0, "response": 1}, "decision"),
        ({"decision": 2**60, "response": 1}, "decision"),
        ({"decision": 1.0, "response": 1}, "decision"),
        ({"decision": True, "response": 1}, "decision"),
        ({"decision": 1, "response": None}, "response"),
        ({"decision": 1, "response": "1"}, "response"),
        ({"decision": 1, "response": [1]}, "response"),
        ({"decision": 1, "response": 1, "reward": 1}, "reward"),
    ],
)
def test_wrong_responses(body: dict[str, Any], field: str) -> None:
    assert errors(NEWS.observe, body) == [(0, field)]


def test_two_responses_to_one_decision() -> None:
    row = {"decision": 1, "response": 1}
    assert errors(NEWS.observe, [row, {**row, "decision": 2}, row]) == [(2, "decision")]


def test_texts_and_numbers_name_the_same_customers() -> None:
    users = [NEWS.decide({**ANA, "user": user})[0]["user"] for user in ("7", 7, "ana")]
    assert users == ["7", "7", "ana"]


def test_excluded_actions_are_a_mask() -> None:
    (arguments,) = NEWS.decide({**ANA, "excluded": ["music", "sport"]})
    assert arguments["available"].tolist() == [0.0, 1.0, 0.0]
    assert NEWS.excludes(arguments, "music") and not NEWS.excludes(arguments, "politics")
    slate = SLATES.decide(
        {"features": [[0, 1]] * 3, "revenues": [1, 0.5, 1], "excluded": ["politics"]}
    )[0]
    assert SLATES.excludes(slate, ["sport", "politics"])
    assert not SLATES.excludes(slate, ["sport", "music"]) and not SLATES.excludes(slate, [])


@pytest.mark.parametrize(
    ("features", "ok"),
    [
        ([[0, 1]] * 3, True),
        ([[0, 1]] * 2, False),
        ([[0, 1], [0], [1]], False),
        ([[0, True]] * 3, False),
        ([[0, "1"]] * 3, False),
        ([[0, math.nan]] * 3, False),
        ([[0, 1e39]] * 3, False),
        ([0, 1], False),
        ({}, False),
    ],
)
def test_arrays_of_features(features: Any, ok: bool) -> None:
    body = {"features": features, "revenues": [1, 1, 1]}
    if ok:
        assert SLATES.decide(body)[0]["features"].shape == (3, 2)
    else:
        assert errors(SLATES.decide, body) == [(0, "features")]


def test_arms_and_revenues() -> None:
    body = {"features": [[0, 1]] * 2}
    assert ARMS.decide({**body, "arms": [4, 0]})[0]["arms"].tolist() == [4, 0]
    for bad in ([4, 4], [5, 0], [0.5, 1], [1], None):
        assert errors(ARMS.decide, {**body, "arms": bad}) == [(0, "arms")]
    for bad in ([1, 1], [1, 1, 2], [1, 1, "1"]):
        slate = {"features": [[0, 1]] * 3, "revenues": bad}
        assert errors(SLATES.decide, slate) == [(0, "revenues")]


def test_names_of_answers_and_responses() -> None:
    assert NEWS.answer(2) == "music" and PRICES.answer(0.5) == 0.5 and ARMS.answer(1) == 1
    assert SLATES.answer([0, 2]) == ["sport", "music"]
    assert SLATES.response("music") == 2 and SLATES.response(None) is None
    assert errors(SLATES.observe, {"decision": 1, "response": "musik"}) == [(0, "response")]
