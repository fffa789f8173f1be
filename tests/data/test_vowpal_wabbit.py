"""Logs of Vowpal Wabbit, against Vowpal Wabbit itself where it is installed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpb_data
from dpb_data.vowpal_wabbit import table
from dpb_gym.errors import DataError

ACTIONS = [{"Item": {"kind": kind}} for kind in ("tea", "juice", "soup")]


def line(index: int = 1, cost: float = -1.0, chance: float = 0.5, **more: Any) -> dict[str, Any]:
    """Return a line as services write it; the ranking begins with the logged action."""
    order = [index + 1, *(k + 1 for k in range(len(ACTIONS)) if k != index)]
    shared = more.pop("shared", {"User": {"age": 0.25}})
    return {
        "_label_cost": cost,
        "_label_probability": chance,
        "_label_Action": index + 1,
        "_labelIndex": index,
        "EventId": "e0",
        "a": order,
        "c": {**shared, "_multi": ACTIONS},
        "p": [0.5, 0.25, 0.25],
        **more,
    }


def read(*records: dict[str, Any], **options: Any) -> dict[str, list[Any]]:
    return table([json.dumps(record) for record in records], **options)


def test_the_logged_action_is_a_position_and_the_reward_minus_the_cost() -> None:
    columns = read(line(1, -1.0), line(2, 0.0, 0.25), line(0, 0.5))
    assert columns["item"] == [2, 3, 1]
    assert columns["reward"] == [1.0, 0.0, -0.5]
    assert str(columns["reward"][1]) == "0.0", "not minus zero"
    assert columns["propensity"] == [0.5, 0.25, 0.5]
    assert columns["User_age"] == [0.25] * 3


def test_shared_features_of_all_forms() -> None:
    shared = {
        "From": [{"daypart": 0.5}, {"wet": True}],
        "User": {"town": "Ulm", "old": False, "near": {"km": 3}, "past": [1, 0, 2], "gone": None},
        "_tag": "ignored",
    }
    columns = read(line(shared=shared), line(shared={"User": {"town": "Bern"}}), line(shared={}))
    assert {k: v for k, v in columns.items() if k not in ("item", "reward", "propensity")} == {
        "From_daypart": [0.5, 0.0, 0.0],
        "From_wet": [1.0, 0.0, 0.0],
        "User_town": ["Ulm", "Bern", None],
        "User_old": [0.0, 0.0, 0.0],
        "User_near_km": [3.0, 0.0, 0.0],
        "User_past_0": [1.0, 0.0, 0.0],
        "User_past_1": [0.0, 0.0, 0.0],
        "User_past_2": [2.0, 0.0, 0.0],
    }


def test_items_by_a_feature_of_the_action() -> None:
    other = line(0)
    other["c"] = {**other["c"], "_multi": ACTIONS[::-1]}
    assert read(line(0), other, item="Item_kind")["item"] == ["tea", "soup"]
    with pytest.raises(DataError, match=r"line 2: .* item='Item_kind'"):
        read(line(0), other)
    with pytest.raises(DataError, match="line 1: the action has no feature 'id'; it has 'Item_k"):
        read(line(0), item="id")


def test_lines_that_are_not_learnt_from_are_left_out() -> None:
    late = {"RewardValue": 1.0, "EventId": "e9"}
    unlabelled = {k: v for k, v in line().items() if not k.startswith("_label")}
    text = "\n".join(json.dumps(r) for r in (late, line(), unlabelled, line(_skipLearn=True)))
    assert table([*text.splitlines(), "", "  "])["item"] == [2]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (line(_labelIndex=7), "position of an action, 0..2, got 7"),
        (line(_labelIndex=True), "position of an action"),
        (line(_label_Action=3), "_label_Action 3 is not _labelIndex 1"),
        (line(_label_probability=0.0), r"_label_probability must lie in \(0, 1\], got 0.0"),
        (line(_label_probability=1.5), "_label_probability"),
        (line(_label_cost="low"), "_label_cost must be a number"),
        (line(c={"User": {}}), "c._multi must list the actions"),
        (line(c={"_multi": []}), "c._multi must list the actions"),
        (line(pdrop=0.5), "pdrop"),
        (line(_outcomes=[]), "_outcomes belongs to several slots"),
        (line(shared={"User": {"_text": "good morning"}}), "User__text is free text"),
        (line(shared={"User": [{"age": 1}, {"age": 2}]}), "feature User_age occurs twice"),
        (line(shared={"User": {"mixed": [1, "a"]}}), "expected an object or a list of objects"),
        ({k: v for k, v in line().items() if k != "_labelIndex"}, "_labelIndex is missing"),
        ([1], "expected an object"),
    ],
)
def test_what_is_not_understood_names_its_line(record: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"^lines: line 2: .*{message}"):
        table([json.dumps(line()), json.dumps(record)])


def test_damaged_files(tmp_path: Any) -> None:
    with pytest.raises(DataError, match=r"log\.json: line 1: no JSON"):
        (tmp_path / "log.json").write_text("{oh\n")
        table(tmp_path / "log.json")
    with pytest.raises(DataError, match="line 1: no JSON: NaN is no JSON number"):
        table([json.dumps(line(cost=float("nan")))])
    with pytest.raises(DataError, match=r"absent\.json: cannot be read"):
        table(tmp_path / "absent.json")
    with pytest.raises(DataError, match="has no line"):
        table([])
    (tmp_path / "latin").write_bytes(b"\xdf")
    with pytest.raises(DataError, match="latin: cannot be read"):
        table(str(tmp_path / "latin"))
    with pytest.raises(DataError, match="User_x is text in some lines"):
        read(line(shared={"User": {"x": 1}}), line(shared={"User": {"x": "1"}}))
    with pytest.raises(DataError, match="called 'item'"):
        read(line(shared={}) | {"c": {"item": 1.0, "_multi": ACTIONS}})


def test_the_table_is_one_of_clicks(tmp_path: Any) -> None:
    file = tmp_path / "log.json"
    file.write_text("\n".join(json.dumps(line(k % 3, -float(k % 2))) for k in range(12)))
    clicks = dpb_data.clicks(
        table(file), item="item", reward="reward", propensity="propensity", features=["User_age"]
    )
    assert clicks.clicked.tolist() == [0, 1] * 6
    assert clicks.item_ids[clicks.items].tolist() == [1, 2, 3] * 4


values = st.one_of(
    st.integers(-3, 3), st.floats(-5, 5, width=32), st.booleans(), st.sampled_from(["a", "bb"])
)
names = st.sampled_from(["age", "town", "kind", "x"])
objects = st.dictionaries(names, values, max_size=3)
namespaces = st.dictionaries(
    st.sampled_from(["User", "Page", "Geo"]), objects | objects.map(lambda one: [one]), max_size=3
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    shared=namespaces,
    index=st.integers(0, 2),
    cost=st.floats(-2, 2, width=32),
    chance=st.sampled_from([0.125, 0.5, 1.0]),
)
def test_vowpal_wabbit_reads_the_same(shared: Any, index: int, cost: float, chance: float) -> None:
    vw = pytest.importorskip("vowpalwabbit", reason="Vowpal Wabbit is not installed")
    record = line(index, cost, chance, shared=shared)
    columns = read(record)
    workspace = vw.Workspace("--cb_explore_adf --dsjson --quiet")
    try:
        examples = workspace.parse(json.dumps(record))
        first, *actions = examples
        labels = [one.get_label(vw.LabelType.CONTEXTUAL_BANDIT).costs for one in actions]
        ((at, logged),) = [(k, costs[0]) for k, costs in enumerate(labels) if costs]
        assert columns["item"] == [at + 1]
        assert columns["reward"][0] == pytest.approx(-logged.cost)
        assert columns["propensity"][0] == pytest.approx(logged.probability)
        weights = sorted(
            vw.pyvw.pylibvw.example.feature_weight(first, space, k)
            for space in (first.namespace(i) for i in range(first.num_namespaces()))
            if chr(space) != "\x80"  # the constant that Vowpal Wabbit adds
            for k in range(vw.pyvw.pylibvw.example.num_features_in(first, space))
        )
        own = [v[0] for k, v in columns.items() if k not in ("item", "reward", "propensity")]
        # a category is one feature of weight 1; a number of 0 is no feature
        expected = sorted(1.0 if isinstance(v, str) else v for v in own if v != 0.0)
        assert weights == pytest.approx(expected)
        workspace.finish_example(examples)
    finally:
        workspace.finish()
