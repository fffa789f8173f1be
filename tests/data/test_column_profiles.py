"""Which columns may number persons, by their values and by their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_data.column_profiles import Profile, decides, is_id_name, read_profiles, recurring_ids
from dpb_data.column_reader import open_table
from dpb_data.feature_columns import select_features
from dpb_data.table_repair import Repair

N = 1200


def profiles(**columns: Any) -> dict[str, Profile]:
    return read_profiles(open_table(columns, Repair()))[0]


def test_codes_number_texts_in_ascending_order() -> None:
    values = np.array(["b", None, "a", "b", "é", "A"], object)
    codes = Profile("x", values).codes()
    np.testing.assert_array_equal(codes, np.unique(values.astype(str), return_inverse=True)[1])
    np.testing.assert_array_equal(Profile("x", values).missing, [v is None for v in values])


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("household", True), ("household_id", True), ("HHID", True), ("memberID", True),
        ("CustNo", True), ("account number", True), ("id", True), ("id_kunde", True),
        ("Kundennummer", True), ("user_age", False), ("user_feature_0", False), ("paid", False),
        ("valid", False), ("age", False), ("", False), ("store size", False), ("panelist", True),
    ],
)  # fmt: skip
def test_names_of_ids(name: str, known: bool) -> None:
    assert is_id_name(name) == known


PANELS = {
    "as many rows each": lambda rng: np.repeat(np.arange(40), N // 40),
    "two rows each": lambda rng: np.arange(N) // 2,
    "nearly as many rows each": lambda rng: np.concatenate(
        [np.repeat(np.arange(40), 28), rng.integers(0, 40, 80)]
    ),
    "rough counts": lambda rng: rng.choice(60, N, p=rng.dirichlet(np.full(60, 0.8))),
    "codes": lambda rng: np.array([f"H{k:03d}" for k in rng.integers(0, 90, N)]),
    "many words": lambda rng: np.array(["".join(w) for w in rng.choice([*"abcdefgh"], (80, 6))])[
        rng.integers(0, 80, N)
    ],
}


@pytest.mark.parametrize("name", PANELS)
@pytest.mark.parametrize("seed", range(3))
def test_values_of_a_panel_are_ids_whatever_their_name(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids = recurring_ids(profiles(x7=PANELS[name](rng), age=rng.integers(18, 80, N)))
    assert [*ids] == ["x7"]
    values = np.unique(PANELS[name](np.random.default_rng(seed)), return_counts=True)
    assert ids["x7"] == (len(values[0]), values[1].max())


def test_a_number_with_a_constant_property_is_an_id() -> None:
    rng = np.random.default_rng(0)
    who = rng.integers(0, 100, N)
    sex = rng.integers(0, 2, 100)
    assert [*recurring_ids(profiles(x=who, sex=sex[who]))] == ["x"]
    assert [*recurring_ids(profiles(x=who, sex=rng.integers(0, 2, N)))] == []
    group = np.arange(100) // 25  # a range of the number, as of ages
    assert [*recurring_ids(profiles(x=who, group=group[who]))] == []


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_random_properties_are_seldom_taken_for_ids(seed: int) -> None:
    """The test of equal counts has a level of 1e-5, so that no example is expected to fail."""
    rng = np.random.default_rng(seed)
    ages = np.clip(rng.normal(45, 15, N).round(), 18, 90)
    ids = recurring_ids(
        profiles(age=ages, month=rng.integers(1, 13, N), score=rng.integers(300, 850, N),
                 visits=rng.poisson(12, N), spent=np.round(rng.lognormal(3, 1, N), 2),
                 town=rng.choice([f"{c}{d}" for c in "abcdef" for d in "xyz"], N))
    )  # fmt: skip
    assert ids == {}


def test_a_person_is_the_same_within_a_choice_set() -> None:
    sets = np.repeat(np.arange(300), 4)
    who = np.repeat(np.arange(30), 40)
    made = profiles(user=who, itemId=np.tile(np.arange(4), 300))
    assert recurring_ids(made, sets) == {"user": (30, 10)}


def test_columns_that_cannot_be_read_are_named() -> None:
    table = {"price": [1.0, 2.0], "day": ["01/02/2024"] * 2, "fee": ["3 EUR", "4 USD"]}
    readable, failed = read_profiles(open_table(table, Repair()))
    assert [*readable] == ["price"] and {*failed} == {"day", "fee"}
    assert "day and month may be exchanged" in failed["day"] and "mixes" in failed["fee"]
    comma = {"price": ["1,234", "2,500"], "age": [3, 4]}
    readable, failed = read_profiles(open_table(comma, Repair()))
    assert {*readable} == {"price", "age"} and failed == {}


def test_features_are_those_that_vary_most_whatever_their_order() -> None:
    rng = np.random.default_rng(1)
    made = profiles(
        rare=(rng.random(N) < 0.02).astype(int), age=rng.normal(size=N), row=np.arange(N),
        one=np.ones(N), half=rng.integers(0, 2, N), town=rng.choice(["a", "b", "c"], N),
        shop_id=rng.integers(0, 9, N),
    )  # fmt: skip
    names = [*made]
    features, unused = select_features(made, names, 30, ids=["shop_id"])
    assert features == ["age", "half"] and unused["rare"].startswith("30 responses are too few")
    assert unused["row"] == "a number of its own in every row"
    assert unused["one"] == "a single value" and unused["shop_id"].startswith("numbers of persons")
    assert {*select_features(made, names[::-1], 30, ids=["shop_id"])[0]} == {*features}
    assert len(select_features(made, names, 10_000)[0]) == 5


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1))
def test_a_code_decides_another_if_no_pair_is_new(pairs: list[tuple[int, int]]) -> None:
    first, second = np.array(pairs).T
    assert decides(first, second) == (len({*pairs}) == len({*first.tolist()}))
