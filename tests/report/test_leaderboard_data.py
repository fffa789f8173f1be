"""Leaderboard data rejects invalid fields."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpb_gym.errors import ParameterError
from dpb_gym.report.exports import plain
from dpb_gym.report.leaderboard_data import Interval

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE, FINITE, FINITE)
def test_interval_holds_exactly_the_ordered_triples(mean, low, high):
    if low > high:
        with pytest.raises(ParameterError, match="exceeds"):
            Interval(mean, low, high)
    else:
        made = Interval(mean, low, high)
        assert (made.mean, made.low, made.high) == (mean, low, high)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), None, "1", True, 1j])
@pytest.mark.parametrize("place", ["mean", "low", "high"])
def test_interval_rejects_values_that_are_not_finite(bad, place):
    half = "both ends" if isinstance(bad, float) and np.isinf(bad) and place != "mean" else place
    backwards = (place, bad) in [("low", np.inf), ("high", -np.inf)]
    with pytest.raises(ParameterError, match="exceeds" if backwards else half):
        Interval(**({"mean": 0.0, "low": -1e9, "high": 1e9} | {place: bad}))


def test_an_interval_without_ends_is_null_in_json_and_has_no_text_anywhere(make):
    unknown = Interval(3.0, -np.inf, np.inf)
    assert not unknown.bounded and Interval(3.0, 3.0, 3.0).bounded
    row = make.row(
        np.random.default_rng(0), regret=unknown, iqm_regret=unknown, score=None, excess=None,
        lead=None, reward=unknown, curve=[(5, 3.0, -np.inf, np.inf)],
    )  # fmt: skip
    written = plain(row)
    assert written["regret"] == {"mean": 3.0, "low": None, "high": None}
    assert written["curve"] == [[5, 3.0, None, None]]
    with pytest.raises(ParameterError, match="both ends"):
        make.row(np.random.default_rng(0), curve=[(5, 3.0, -np.inf, 4.0)])
    for bad in (np.nan, np.inf):
        with pytest.raises(ParameterError, match="finite"):
            make.row(np.random.default_rng(0), curve=[(5, bad, -np.inf, np.inf)])


def test_numpy_scalars_become_plain_numbers(make):
    row = make.row(
        np.random.default_rng(0),
        regret=Interval(np.float32(1.5), np.float64(1), np.int64(2)),
        curve=[(np.int64(3), np.float32(1), np.float64(0), np.float64(2))],
        replicates=np.int32(4),
    )
    assert type(row.regret.mean) is float and type(row.regret.high) is float
    assert row.curve == ((3, 1.0, 0.0, 2.0),)
    assert [type(v) for v in row.curve[0]] == [int, float, float, float]
    assert type(row.replicates) is int


BAD_ROWS = [
    ({"agent": ""}, "agent"),
    ({"agent": "  "}, "agent"),
    ({"agent": 3}, "agent"),
    ({"agent": "a\nb"}, "control"),
    ({"agent": "a\x00b"}, "control"),
    ({"agent": "a\u2028b"}, "control"),
    ({"agent": "a\ud800"}, "surrogate"),
    ({"agent": "a\u202eb"}, "direction"),
    ({"agent": "a\u200bb"}, "zero-width"),
    ({"guarantee": None}, "guarantee"),
    ({"budget": ""}, "budget"),
    ({"notion": "joint"}, "unit"),
    ({"accounting": "guessed"}, "accounting"),
    ({"trust": ""}, "trust"),
    ({"finals": {0: float("nan")}}, "finals"),
    ({"unit": "reward"}, "notion"),
    ({"regret": (1, 0, 2)}, "regret"),
    ({"score": 0.5}, "score"),
    ({"reward": None}, "reward"),
    ({"rounds_per_second": 0}, "rounds_per_second"),
    ({"rounds_per_second": float("nan")}, "rounds_per_second"),
    ({"curve": [(1, 2.0, 3.0)]}, "curve"),
    ({"curve": [(1, 2.0, 3.0, 1.0)]}, "exceeds"),
    ({"curve": [(1, 0.0, 0.0, 0.0), (1, 0.0, 0.0, 0.0)]}, "increase"),
    ({"curve": [(-1, 0.0, 0.0, 0.0)]}, "round"),
    ({"curve": [(1.5, 0.0, 0.0, 0.0)]}, "round"),
    ({"curve": [(1, float("nan"), 0.0, 0.0)]}, "finite"),
    ({"curve": 7}, "curve"),
    ({"params": [1]}, "params"),
    ({"params": {1: 2}}, "params"),
    ({"replicates": 0}, "replicates"),
    ({"audit": {"claimed": 1.0}}, "lower_bound"),
    ({"audit": {"claimed": 1.0, "lower_bound": -1, "verdict": "pass"}}, "lower_bound"),
    ({"audit": {"claimed": 1.0, "lower_bound": 0.0, "verdict": ""}}, "verdict"),
]


@pytest.mark.parametrize("fields,named", BAD_ROWS, ids=[str(i) for i in range(len(BAD_ROWS))])
def test_row_names_the_field_that_is_wrong(make, fields, named):
    row = make.row(np.random.default_rng(0))
    with pytest.raises(ParameterError, match=named):
        dataclasses.replace(row, **fields)


@pytest.mark.parametrize(
    "fields,named",
    [
        ({"problem": ""}, "problem"),
        ({"horizon": 0}, "horizon"),
        ({"replicates": 2.0}, "replicates"),
        ({"normalisation": {"random": 1.0}}, "oracle"),
        ({"normalisation": {"random": 1.0, "oracle": float("inf")}}, "oracle"),
        ({"rows": ["row"]}, "Row"),
        ({"rows": 3}, "rows"),
        ({"task": ""}, "task"),
        ({"description": None}, "description"),
    ],
)
def test_task_names_the_field_that_is_wrong(make, fields, named):
    with pytest.raises(ParameterError, match=named):
        dataclasses.replace(make.task(), **fields)


def test_task_rejects_two_rows_with_one_key(make):
    rng = np.random.default_rng(0)
    twin = make.row(rng, agent="A", budget="rho=1")
    with pytest.raises(ParameterError, match=r"A \(rho=1\)"):
        dataclasses.replace(make.task(), rows=(twin, twin))


@pytest.mark.parametrize(
    "fields,named",
    [
        ({"created": "yesterday"}, "ISO 8601"),
        ({"title": ""}, "title"),
        ({"revision": ""}, "revision"),
        ({"tasks": [1]}, "TaskResult"),
        ({"notes": "one string"}, "notes"),
        ({"command": None}, "command"),
    ],
)
def test_leaderboard_names_the_field_that_is_wrong(make, fields, named):
    with pytest.raises(ParameterError, match=named):
        dataclasses.replace(make.data(), **fields)


def test_leaderboard_rejects_a_duplicate_task(make):
    with pytest.raises(ParameterError, match="assortment-clip"):
        make.data([make.task(), make.task(seed=1)])


def test_tracks_and_tasks_name_each_other(make):
    data = make.arena(agents=3, sizes=2, budgets=1)
    for wrong in ({"tasks": data.tasks[1:]}, {"tracks": data.tracks[1:]}):
        with pytest.raises(ParameterError, match="do not name each other"):
            dataclasses.replace(data, **wrong)


def test_everything_is_frozen_and_sequences_are_tuples(make):
    data = make.data()
    assert isinstance(data.tasks, tuple) and isinstance(data.tasks[0].rows, tuple)
    for thing, name in (
        (data, "title"),
        (data.tasks[0], "task"),
        (data.tasks[0].rows[0], "agent"),
        (data.tasks[0].rows[0].regret, "mean"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, name, "x")


def test_key_names_the_budget_where_there_is_one(make):
    rng = np.random.default_rng(0)
    assert make.row(rng, agent="A").key == "A"
    assert make.row(rng, agent="A", budget="rho=1").key == "A (rho=1)"
