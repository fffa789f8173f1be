"""Encoding of searches: levels, standardisation, missing values, imputation, choices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpb_data
from dpb_data.expedia import SearchLog, read_searches
from dpb_data.expedia_encoding import HOTEL, USER, HotelChoices, best_split, impute, predict
from dpb_data.expedia_synthetic import HEADER
from dpb_gym.errors import DataError, ParameterError

NAMES = HEADER.split(",")
# The paper's counts, section 5.2.1: levels minus one, or one for a number.
TABLE_1_HOTEL = {
    "star": 3, "review": 2, "brand": 1, "location": 1, "log_hist_price": 1, "price": 1,
    "promotion": 1,
}  # fmt: skip
TABLE_1_USER = {
    "length_of_stay": 3, "booking_window": 3, "adults": 2, "children": 2, "rooms": 1,
    "saturday": 1, "website": 1, "hist_star": 2, "hist_price": 3,
}  # fmt: skip


def row(search: int, hotel: int, **values: Any) -> dict[str, Any]:
    usual = {
        "srch_id": search, "prop_id": hotel, "srch_destination_id": 1, "booking_bool": 0,
        "click_bool": 0, "prop_starrating": 3, "prop_brand_bool": 1, "prop_location_score1": 2.0,
        "prop_log_historical_price": 5.0, "price_usd": 100.0, "promotion_flag": 0,
        "srch_length_of_stay": 1, "srch_booking_window": 10, "srch_adults_count": 2,
        "srch_children_count": 0, "srch_room_count": 1, "srch_saturday_night_bool": 0,
        "site_id": 5, "prop_review_score": 4.0, "position": hotel,
    }  # fmt: skip
    return {**usual, **values}


def log_of(*rows: dict[str, Any], without: tuple[str, ...] = ()) -> SearchLog:
    names = [name for name in NAMES if name not in without]
    lines = [",".join(str(r.get(name, "NULL")) for name in names) for r in rows]
    content = "\n".join([",".join(names), *lines, ""]).encode()
    return read_searches(content, "m", "m")


def features(names: tuple[str, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name.partition("=")[0]] = counts.get(name.partition("=")[0], 0) + 1
    return counts


def column(data: HotelChoices, name: str) -> np.ndarray[Any, Any]:
    if name in data.hotel_features:
        return data.hotels[:, data.hotel_features.index(name)]
    return data.users[:, data.user_features.index(name)]


@pytest.fixture(scope="module")
def encoded() -> HotelChoices:
    return dpb_data.encode_searches(dpb_data.load_searches("synthetic-expedia"))


@pytest.mark.slow
def test_table_1_when_all_levels_occur(encoded: HotelChoices) -> None:
    assert features(encoded.hotel_features) == TABLE_1_HOTEL and encoded.hotels.shape[1] == 10
    assert features(encoded.user_features) == TABLE_1_USER and encoded.users.shape[1] == 18
    assert len(encoded.hotel_ids) == 124 and not encoded.dropped
    assert encoded.destination == 8192


def test_every_feature_has_mean_0_and_variance_1(encoded: HotelChoices) -> None:
    for matrix in (encoded.hotels, encoded.users):
        np.testing.assert_allclose(matrix.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(matrix.var(axis=0), 1.0, rtol=1e-12)


@pytest.mark.slow
def test_hotel_features_by_hand(encoded: HotelChoices) -> None:
    """Means over searches, unknown values at the mean, by plain loops over the log."""
    log = dpb_data.load_searches("synthetic-expedia").select(8192)

    def mean_of(name: str, hotel: int) -> float:
        values = [
            math.log(v) if name == "price_usd" else v
            for v, h in zip(log.columns[name].tolist(), log.columns["prop_id"].tolist())
            if h == hotel and not math.isnan(v)
        ]
        return sum(values) / len(values) if values else math.nan

    def check(name: str, raw: list[float]) -> None:
        known = [v for v in raw if not math.isnan(v)]
        filled = [sum(known) / len(known) if math.isnan(v) else v for v in raw]
        mean = sum(filled) / len(filled)
        spread = math.sqrt(sum((v - mean) ** 2 for v in filled) / len(filled))
        np.testing.assert_allclose(
            column(encoded, name), [(v - mean) / spread for v in filled], atol=1e-9
        )

    hotels = encoded.hotel_ids.tolist()
    for name, source in [(f.name, f.column) for f in HOTEL if not f.labels]:
        check(name, [mean_of(source, h) for h in hotels])
    star = [mean_of("prop_starrating", h) for h in hotels]
    assert any(math.isnan(v) for v in star)
    for label, wanted in (("3", 3.0), ("4", 4.0), ("5", 5.0)):
        check(f"star={label}", [math.nan if math.isnan(v) else float(v == wanted) for v in star])
    review = [mean_of("prop_review_score", h) for h in hotels]
    check("review=4", [math.nan if math.isnan(v) else float(v == 4.0) for v in review])
    check("review=4.5+", [math.nan if math.isnan(v) else float(v >= 4.5) for v in review])
    expected = [math.exp(mean_of("price_usd", h)) for h in hotels]
    np.testing.assert_allclose(encoded.prices, expected)


@pytest.mark.slow
def test_user_levels_by_hand(encoded: HotelChoices) -> None:
    log = dpb_data.load_searches("synthetic-expedia").select(8192)
    rules = {
        "length_of_stay=2": ("srch_length_of_stay", lambda v: v == 2),
        "length_of_stay=3": ("srch_length_of_stay", lambda v: v == 3),
        "length_of_stay=4+": ("srch_length_of_stay", lambda v: v >= 4),
        "booking_window=2-7": ("srch_booking_window", lambda v: 2 <= v <= 7),
        "booking_window=8-30": ("srch_booking_window", lambda v: 8 <= v <= 30),
        "booking_window=31+": ("srch_booking_window", lambda v: v >= 31),
        "adults=2": ("srch_adults_count", lambda v: v == 2),
        "adults=3+": ("srch_adults_count", lambda v: v >= 3),
        "children=1": ("srch_children_count", lambda v: v == 1),
        "children=2+": ("srch_children_count", lambda v: v >= 2),
        "rooms=2+": ("srch_room_count", lambda v: v >= 2),
        "saturday": ("srch_saturday_night_bool", lambda v: v == 1),
        "website": ("site_id", lambda v: v == 5),
    }
    for name, (source, rule) in rules.items():
        expected = np.array([rule(v) for v in log.per_search(source)])
        # A dummy's standardised values: two numbers, the larger one where the rule holds.
        np.testing.assert_array_equal(column(encoded, name) > 0, expected, err_msg=name)
    history = log.per_search("visitor_hist_adr_usd")
    known = ~np.isnan(history)
    assert 0.2 < known.mean() < 0.6
    for name, low, high in (
        ("hist_price=100-150", 100, 150), ("hist_price=150-200", 150, 200),
        ("hist_price=200+", 200, np.inf),
    ):  # fmt: skip
        expected = (history >= low) & (history < high)
        np.testing.assert_array_equal((column(encoded, name) > 0)[known], expected[known])


@pytest.mark.slow
def test_shown_and_choices(encoded: HotelChoices) -> None:
    log = dpb_data.load_searches("synthetic-expedia").select(8192)
    np.testing.assert_array_equal(encoded.hotel_ids[encoded.shown], log.columns["prop_id"])
    for s, (a, b) in enumerate(zip(encoded.starts[:-1], encoded.starts[1:])):
        booked = np.flatnonzero(log.columns["booking_bool"][a:b])
        assert encoded.choice[s] == (booked[0] if len(booked) else -1)
    assert 0.5 < (encoded.choice >= 0).mean() < 0.9


def test_clicks_as_choices() -> None:
    rows = [
        row(1, 1, position=9), row(1, 2, click_bool=1, position=8),
        row(1, 3, click_bool=1, booking_bool=1, position=10),
        row(2, 1, click_bool=1, position=30), row(2, 2, click_bool=1, position=6),
        row(3, 1, price_usd=70), row(3, 2),
    ]  # fmt: skip
    log = log_of(*rows)
    assert dpb_data.encode_searches(log).choice.tolist() == [2, -1, -1]
    assert dpb_data.encode_searches(log, choice="click").choice.tolist() == [2, 1, -1]
    bare = log_of(*rows, without=("click_bool",))
    assert dpb_data.encode_searches(bare).choice.tolist() == [2, -1, -1]
    with pytest.raises(DataError, match="needs the column click_bool"):
        dpb_data.encode_searches(bare, choice="click")
    bare = log_of(*rows, without=("position",))
    assert dpb_data.encode_searches(bare, choice="click").choice.tolist() == [2, 0, -1]


def test_columns_missing_in_more_than_the_allowed_share_are_dropped() -> None:
    def searches(known: int, partly: bool = False) -> SearchLog:
        rows = []
        for s in range(10):
            score: Any = 2.0 + s % 3 if s < known else "NULL"
            rows.append(row(s + 1, 1, prop_review_score=score, price_usd=50 + s))
            rows.append(row(s + 1, 2, prop_review_score="" if partly else score, price_usd=60))
        return log_of(*rows)

    # Missing in exactly 90% of the searches: kept; in all: dropped.
    means = dpb_data.encode_searches(searches(1)).dropped
    assert "review" not in means
    assert "review" in dpb_data.encode_searches(searches(1), max_missing=0.89).dropped
    message = dpb_data.encode_searches(searches(0)).dropped["review"]
    assert message == "prop_review_score is missing in 100.0% of the searches"
    assert "review" in dpb_data.encode_searches(searches(0), max_missing=1.0).dropped
    # One hotel without a score does not make it missing in a search.
    assert "review" not in dpb_data.encode_searches(searches(1, partly=True)).dropped


def test_absent_levels_and_columns_are_listed() -> None:
    rows = [row(s, h, price_usd=40 * h, prop_starrating=h + 2, srch_length_of_stay=2 + s % 2)
            for s in (1, 2, 3) for h in (1, 2, 3)]  # fmt: skip
    data = dpb_data.encode_searches(log_of(*rows, without=("site_id", "prop_review_score")))
    # Stars 3, 4, 5 occur: the lowest that occurs is the reference.
    assert [n for n in data.hotel_features if n[:4] == "star"] == ["star=4", "star=5"]
    assert data.dropped["star=1-2"] == "no prop_starrating has this level"
    assert data.dropped["website"] == "the file has no column site_id"
    assert data.dropped["review"] == "the file has no column prop_review_score"
    assert data.dropped["brand"] == "prop_brand_bool never varies"
    assert "missing in 100.0%" in data.dropped["hist_star"]
    assert data.user_features == ("length_of_stay=3",)
    with pytest.raises(DataError, match="no feature distinguishes the 2 hotels"):
        dpb_data.encode_searches(log_of(row(1, 1), row(1, 2)))


def test_an_unknown_price_counts_as_the_median_one() -> None:
    rows = [row(1, 1, price_usd=0), row(1, 2, price_usd=100), row(1, 3, price_usd=400)]
    data = dpb_data.encode_searches(log_of(*rows))
    np.testing.assert_allclose(data.prices, [200.0, 100.0, 400.0])
    assert column(data, "price")[0] == pytest.approx(0.0)


@pytest.mark.slow
def test_destination() -> None:
    log = dpb_data.load_searches("synthetic-expedia")
    other = dpb_data.encode_searches(log, 20319)
    assert other.destination == 20319 and len(other.hotel_ids) == 40
    everything = dpb_data.encode_searches(log, "all")
    assert everything.destination is None and len(everything.users) == 700
    assert len(everything.hotel_ids) == 194
    for bad in ("8192", 3, "All"):
        with pytest.raises(ParameterError, match="destination must be"):
            dpb_data.encode_searches(log, bad)
    for kwargs in ({"choice": "view"}, {"max_missing": 1.5}, {"max_missing": math.nan}):
        with pytest.raises(ParameterError, match=next(iter(kwargs))):
            dpb_data.encode_searches(log, **kwargs)  # type: ignore[arg-type]


def test_levels_cover_all_numbers() -> None:
    for levels in (f for f in (*HOTEL, *USER) if f.labels):
        assert len(levels.labels) == len(levels.cuts) + 1
        assert list(levels.cuts) == sorted(levels.cuts)


GRID = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(-5, 5)),
                min_size=2, max_size=25)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=GRID, min_leaf=st.integers(1, 4))
def test_best_split_against_brute_force(data: list[tuple[int, int, int]], min_leaf: int) -> None:
    table = np.array(data, dtype=np.float64)
    X, y = table[:, :2], table[:, 2]

    def error(part: np.ndarray[Any, Any]) -> float:
        return float(((part - part.mean()) ** 2).sum())

    options = {}
    for feature in range(2):
        for threshold in np.arange(-0.5, 5.0, 0.25):
            left = X[:, feature] <= threshold
            if min(left.sum(), (~left).sum()) >= min_leaf:
                options[feature, threshold] = error(y[left]) + error(y[~left])
    split = best_split(X, y, min_leaf)
    if split is None:
        assert not options or min(options.values()) >= error(y) - 1e-9
        return
    left = X[:, split[0]] <= split[1]
    assert error(y[left]) + error(y[~left]) == pytest.approx(min(options.values()), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(data=GRID, depth=st.integers(0, 4), min_leaf=st.integers(1, 5))
def test_tree_predicts_leaf_means(
    data: list[tuple[int, int, int]], depth: int, min_leaf: int
) -> None:
    table = np.array(data, dtype=np.float64)
    X, y = table[:, :2], table[:, 2]
    fitted = predict(X, y, X, depth, min_leaf)
    leaves = np.unique(fitted)
    assert len(leaves) <= 2**depth
    for value in leaves:  # leaves with equal means pool to the same mean
        assert y[fitted == value].mean() == pytest.approx(value)
        assert (fitted == value).sum() >= min(min_leaf, len(y))
    if depth == 0:
        assert (fitted == y.mean()).all()


def test_imputation_recovers_a_step_and_keeps_what_is_known() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((400, 3))
    truth = np.where(X[:, 1] > 0.4, 5.0, 1.0) + np.where(X[:, 2] > 0.7, 2.0, 0.0)
    values = np.where(rng.random(400) < 0.6, np.nan, truth)
    filled = impute(values, X)
    known = np.isfinite(values)
    np.testing.assert_array_equal(filled[known], values[known])
    assert np.mean(np.abs(filled - truth) < 1e-9) > 0.97
    X[5] = np.nan  # a missing predictor is imputed, too
    assert np.isfinite(impute(values, X)).all()
    nothing = np.full(3, np.nan)
    assert np.isnan(impute(nothing, X[:3])).all()
