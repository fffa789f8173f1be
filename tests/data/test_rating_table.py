"""RatingTable: validation, renumbering and scale, against NumPy's own and brute force."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpb_data import RatingTable
from dpb_data.rating_table import first_duplicate, renumber
from dpb_gym.errors import ParameterError

IDS = hnp.arrays(np.int64, st.integers(1, 60), elements=st.integers(0, 40))
WIDE_IDS = hnp.arrays(np.int64, st.integers(1, 30), elements=st.integers(0, 2**62))


def build(**changes: object) -> RatingTable:
    columns: dict[str, object] = {
        "name": "t",
        "users": np.array([0, 0, 1]),
        "items": np.array([0, 1, 1]),
        "ratings": np.array([0.5, 5.0, 3.0]),
        "timestamps": None,
        "rating_range": (0.5, 5.0),
        "user_ids": np.array([7, 9]),
        "item_ids": np.array([3, 4]),
    }
    return RatingTable(**{**columns, **changes})  # type: ignore[arg-type]


@pytest.mark.slow
@settings(deadline=None)
@given(st.one_of(IDS, WIDE_IDS, IDS.map(lambda a: a.astype(np.int32))))
def test_renumber_agrees_with_unique(ids: np.ndarray) -> None:
    index, known = renumber("ids", ids)
    distinct, inverse = np.unique(ids, return_inverse=True)
    assert np.array_equal(known, distinct) and np.array_equal(index, inverse)
    assert index.dtype == known.dtype == np.int64


@pytest.mark.parametrize(
    "ids", [[], [[1, 2]], [1.0, 2.0], [-1, 3], ["a", None], np.array([np.nan])], ids=repr
)
def test_renumber_refuses(ids: object) -> None:
    with pytest.raises(ParameterError, match="ids"):
        renumber("ids", ids)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=25))
def test_first_duplicate_agrees_with_brute_force(pairs: list[tuple[int, int]]) -> None:
    users, items = (np.array(column) for column in zip(*pairs))
    duplicate = first_duplicate(users, items, 6)
    if len(set(pairs)) == len(pairs):
        assert duplicate is None
    else:
        assert duplicate is not None
        a, b = duplicate
        assert a < b and pairs[a] == pairs[b]
        assert pairs[a] not in pairs[a + 1 : b] and pairs[a] not in pairs[:a]


@settings(deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-10, 10)),
    st.sampled_from([(-10.0, 10.0), (-12.5, 10.0)]),
)
def test_normalised_is_affine_onto_the_unit_interval(
    ratings: np.ndarray, bounds: tuple[float, float]
) -> None:
    n = len(ratings)
    table = RatingTable.from_columns(
        "t", np.arange(n), np.zeros(n, int), ratings, rating_range=bounds
    )
    unit = table.normalised()
    assert unit.min() >= 0 and unit.max() <= 1
    assert np.allclose(bounds[0] + unit * (bounds[1] - bounds[0]), ratings, atol=1e-12)


def test_ends_of_the_scale_map_exactly() -> None:
    assert build().normalised()[:2].tolist() == [0.0, 1.0]


def test_columns_are_read_only_and_do_not_lock_the_callers_array() -> None:
    mine = np.array([0.5, 5.0, 3.0])
    table = build(ratings=mine)
    with pytest.raises(ValueError, match="read-only"):
        table.ratings[0] = 1.0
    mine[0] = 1.0


def test_pickles() -> None:
    table = build(titles=["a", "b"])
    copy = pickle.loads(pickle.dumps(table))
    assert np.array_equal(copy.ratings, table.ratings) and copy.titles == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": np.array([0, 0])}, "users has 2 rows, ratings has 3"),
        ({"users": np.array([0, 0, 2])}, r"users must lie in \[0, 2\)"),
        ({"items": np.array([0, -1, 1])}, r"items must lie in \[0, 2\)"),
        ({"items": np.array([0.0, 1.0, 1.0])}, "items must hold integers"),
        ({"ratings": np.array([0.5, 5.5, 3.0])}, r"in \[0.5, 5\], found 0.5..5.5"),
        ({"ratings": np.array([0.5, np.nan, 3.0])}, "finite"),
        ({"ratings": np.array([0.5, np.inf, 3.0])}, "finite"),
        ({"ratings": np.array([[0.5, 1.0, 3.0]])}, "one-dimensional"),
        ({"ratings": np.array([1j, 1, 1])}, "real numbers"),
        ({"ratings": np.array([])}, "at least one rating"),
        ({"rating_range": (5.0, 0.5)}, "increasing"),
        ({"rating_range": (0.0, np.inf)}, "finite"),
        ({"timestamps": np.array([1])}, "timestamps has 1 rows"),
        ({"titles": ["one"]}, "titles has 1 entries, there are 2 items"),
    ],
)
def test_bad_tables_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        build(**change)


def test_from_columns_wants_a_title_for_every_item() -> None:
    with pytest.raises(ParameterError, match="no entry for item id 8"):
        RatingTable.from_columns(
            "t", [1, 1], [5, 8], [1.0, 2.0], rating_range=(0, 5), titles={5: "five"}
        )


def test_ids_with_gaps_are_renumbered_and_kept() -> None:
    table = RatingTable.from_columns(
        "t",
        [900, 4, 900],
        [70, 70, 3],
        [1.0, 2.0, 3.0],
        rating_range=(0, 5),
        titles={3: "c", 70: "g"},
    )
    assert table.users.tolist() == [1, 0, 1] and table.user_ids.tolist() == [4, 900]
    assert table.items.tolist() == [1, 1, 0] and table.item_ids.tolist() == [3, 70]
    assert table.titles == ["c", "g"] and (table.n_users, table.n_items, len(table)) == (2, 2, 3)
