"""Messy files, each read with at most three answers, no guess, no wrong claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import messy_files as files
import numpy as np
import pytest

import dpb_data
import dpb_gym
from dpb_data.column_profiles import Profile, missing_codes
from dpb_gym.errors import DataError, DPBError, ParameterError, QuestionError

Actions = tuple[Mapping[str, Any], ...]
READS: dict[str, tuple[files.Generator, Actions, str, dict[str, Any]]] = {
    "weekly prices": (files.weekly_prices, ({"offered": 200},), "pricing",
                      {"price": "AveragePrice", "bought": "Units Sold",
                       "features": ["type", "year"]}),
    "scanner panel": (files.scanner_panel, ({"person": "id"}, {"outside": "hiland"}), "assortment",
                      {"chosen": "choice", "features": ["feat", "price"]}),
    "travel, long": (files.travel_long, ({"case": "individual"}, {"outside": "car"}),
                     "assortment", {"item": "mode", "chosen": "choice"}),
    "travel, wide": (files.travel_wide,
                     ({"person": "ID"},
                      {"alternatives": {1: "TRAIN", 2: "SM", 3: "CAR"}, "unknown": [0]},
                      {"outside": "CAR"}), "assortment", {"features": ["CO", "TT"]}),
    "fishing": (files.fishing, ({"outside": "beach"},), "assortment",
                {"chosen": "mode", "features": ["catch", "price"]}),
    "german": (files.quotes_german, (), "pricing",
               {"price": "Angebotspreis (€)", "bought": "Gebucht?", "features": ["Alter"]}),
    "french": (files.quotes_french, (), "pricing",
               {"price": "Prix proposé", "bought": "Acheté", "features": ["Ville"]}),
    "clicks": (files.logged_clicks, (), "recommendation",
               {"item": "item_id", "reward": "click", "propensity": "propensity_score"}),
    "percent": (files.logged_percent, (), "recommendation",
                {"item": "Banner", "reward": "Clicked", "propensity": "Prob"}),
    "colons": (files.ratings_colons,
               ({"header": ["user", "item", "rating", "time"]}, {"rating_range": [1, 5]}),
               "recommendation", {"user": "user", "item": "item", "rating": "rating"}),
    "conjoint, wide": (files.conjoint_wide,
                       ({"person": "respondent"}, {"features": ["price", "gps"]},
                        {"none": ["0"], "unknown": ["-1"]}), "assortment",
                       {"chosen": "answer", "features": ["gps", "price"]}),
    "conjoint, long": (files.conjoint_long,
                       ({"case": ["resp.id", "ques"]}, {"person": "resp.id"}, {"outside": 3}),
                       "assortment", {"item": "alt", "features": ["seat", "price"]}),
    "json lines": (files.json_lines, (), "pricing",
                   {"price": "price", "bought": "purchased", "features": ["segment"]}),
    "headerless": (files.headerless, ({"header": ["price", "age", "bought"]},), "pricing",
                   {"features": ["age"]}),
    "offers": (files.offers, (), "pricing",
               {"price": "Offer Price", "bought": "Accepted",
                "features": ["Annual income", "Segment"]}),
    "auction": (files.auction, ({"price": "reserve"},), "pricing",
                {"price": "reserve", "bought": "sold", "features": []}),
    "itineraries": (files.itineraries,
                    ({"problem": "assortment", "case": "search_id", "item": "carrier",
                      "chosen": "booked"}, {"absent": {"elapsed": -999}}), "assortment",
                    {"features": ["fare_usd", "stops", "elapsed"]}),
    "workbook": (files.workbook, (), "pricing",
                 {"price": "Preis", "bought": "Verkauft", "offered": "Besucher", "features": []}),
    "survey codes": (files.survey_codes, ({"absent": {"age": -999, "income_class": 99}},),
                     "pricing", {"features": ["age", "income_class"]}),
    "renewals": (files.renewals, (), "pricing",
                 {"price": "premium", "features": ["age", "claims"]}),
    "two prices": (files.price_test, (), "pricing", {"bought": "converted"}),
    "till": (files.till_report, (), "pricing",
             {"price": "VK-Preis", "bought": "Menge", "offered": "Kunden",
              "features": ["Wochentag"]}),
    "conjoint with none": (files.conjoint_export,
                           ({"case": ["sys_RespNum", "Task"], "person": "sys_RespNum"},),
                           "assortment",
                           {"item": "Brand", "chosen": "Response",
                            "features": ["Price", "Battery (h)"]}),
    "hotel quotes": (files.hotel_quotes, ({"success": "confirmed"},), "pricing",
                     {"price": "Nightly rate", "bought": "Status",
                      "features": ["Nights", "Lead time", "Room type", "Channel"]}),
    "price experiment": (files.price_experiment, ({"person": "user_pseudo_id"},), "pricing",
                         {"price": "price_shown", "bought": "purchase",
                          "features": ["device_category"]}),
    "loyalty": (files.loyalty_offers, ({"person": "Card No"},), "recommendation",
                {"item": "Offer", "reward": "Redeemed", "propensity": "Assignment probability",
                 "features": ["Points", "Tier"]}),
    "customer numbers": (files.customer_numbers, (), "pricing",
                         {"price": "Angebotspreis", "bought": "Gekauft", "features": []}),
    "mixed encodings": (files.mixed_encodings, (), "pricing",
                        {"price": "Preis", "bought": "Gebucht?", "features": ["Ort"]}),
    "unknown responses": (files.unknown_responses, ({"absent": {"accepted": -1}},), "pricing",
                          {"price": "price", "bought": "accepted"}),
    "thousands": (files.thousands, ({"decimal": ","},), "pricing",
                  {"price": "Preis", "bought": "Gekauft", "features": ["Region"]}),
    "product codes": (files.product_codes, (), "pricing", {"features": ["artikel"]}),
    "choices of codes": (files.choices_of_codes, (), "assortment", {"item": "sku"}),
    "merged cells": (files.merged_workbook,
                     ({"price": "Price Paid"}, {"bought": "Sales Units"}), "pricing",
                     {"offered": "Sales Visitors", "features": ["Price List"]}),
    "merged cells as text": (files.merged_text,
                             ({"price": "Price Paid"}, {"bought": "Sales Units"}), "pricing",
                             {"offered": "Sales Visitors", "features": ["Price List"]}),
    "monthly sheets": (files.monthly_sheets, (), "pricing", {"price": "Price", "features": []}),
    "days with totals": (files.days_with_totals, (), "pricing",
                         {"bought": "units", "offered": "visitors", "features": []}),
    "nested": (files.nested_events, (), "pricing",
               {"price": "offer_price", "bought": "accepted",
                "features": ["customer.age", "customer.plan.tier"]}),
    "discounts": (files.discounts, ({"price": "price"},), "pricing", {"features": ["discount"]}),
    "gifts": (files.gifts, ({"absent": {"price": "<=0"}},), "pricing", {"price": "price"}),
    "returns": (files.returns, ({"absent": {"units": "<0"}},), "pricing",
                {"bought": "units", "offered": "visitors"}),
    "marks": (files.marked("x"), ({"success": "x"},), "pricing", {"bought": "bought"}),
    "marks of yes": (files.marked("yes"), ({"success": "yes"},), "pricing", {"bought": "bought"}),
    **{name: (files.panel(name), ({"person": name},), "pricing", {"person": name, "features": []})
       for name in files.ID_NAMES},
}  # fmt: skip
"""Files with the answers that a user gives, the problem, and the columns that are read."""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dpb_data.Reading]:
    """A function that reads a file of `READS` once."""

    @cache
    def read_once(name: str) -> dpb_data.Reading:
        return dpb_data.read(str(READS[name][0](tmp_path_factory.mktemp("messy"))))

    return read_once


def answered(reading: dpb_data.Reading, action: Mapping[str, Any]) -> dpb_data.Reading:
    given = dict(action)
    return reading.answer(given.pop("problem", None), **given)


@pytest.mark.slow
@pytest.mark.parametrize("name", READS)
def test_at_most_three_commands_lead_to_a_model(name: str, read: Any) -> None:
    """The first names the file alone, each other one answers all open questions."""
    _, actions, problem, columns = READS[name]
    reading = read(name)
    commands = 1
    left = [*actions]
    while reading.questions:
        topics = {question.topic for question in reading.questions}
        given = [action for action in left if topics & {*action}]
        assert given, f"no answer to {topics} among {left}"
        reading = answered(reading, {k: v for action in given for k, v in action.items()})
        left = [action for action in left if action not in given]
        commands += 1
    assert commands <= 3 and not left
    assert not reading.questions and reading.problem == problem
    assigned = {key: reading.columns.get(key) for key in columns}
    if "features" in assigned:
        assigned["features"] = sorted(assigned["features"])
        columns = {**columns, "features": sorted(columns["features"])}
    assert assigned == columns
    log = dpb_gym.from_log(reading.table(), problem, progress=False, **reading.settings)
    assert dpb_gym.make_problem(log, horizon=100).info.kind == problem


@pytest.mark.parametrize("name", READS)
def test_no_question_is_skipped(name: str, read: Any) -> None:
    """Without the answers there is no table: nothing is guessed."""
    if not READS[name][1]:
        return
    with pytest.raises(QuestionError):
        read(name).table()


@pytest.mark.slow
def test_effects_are_those_of_the_demand_that_generated_the_files(tmp_path: Path) -> None:
    """What was repaired does not change the effect of the price."""
    for make, actions, slope in (
        (files.quotes_german, {}, -0.05),
        (files.quotes_french, {}, -0.13),
        (files.offers, {}, -0.0014),
        (files.survey_codes, {"absent": {"age": -999, "income_class": 99}}, -0.08),
        (files.renewals, {"bought": "status"}, -0.004),
    ):
        reading = dpb_data.read(str(make(tmp_path)), **actions)
        log = dpb_gym.from_log(reading.table(), "pricing", progress=False)
        effect = dpb_gym.make_problem(log).effects["price"]  # type: ignore[attr-defined]
        assert abs(effect.value - slope) < 3.5 * effect.error


def test_percentages_of_propensities_are_shares(tmp_path: Path) -> None:
    table = dpb_data.read(str(files.logged_percent(tmp_path))).table()
    assert sorted({*table.propensity}) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert "Prob: percentages read as shares (3,000 rows)" in table.notes


@pytest.mark.parametrize(
    ("make", "given", "said"),
    [
        (files.rising, {}, "purchases rise with the price"),
        (files.separated, {}, "none of the 73 rows with channel other than shop, web was chosen"),
    ],
)
def test_what_cannot_be_estimated_is_refused(
    make: files.Generator, given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    reading = dpb_data.read(str(make(tmp_path)), **given)
    with pytest.raises(DataError, match=said):
        dpb_gym.from_log(reading.table(), reading.problem, progress=False, **reading.settings)


def test_cancellations_and_dates_are_no_purchases(tmp_path: Path) -> None:
    """The question which column is the purchase does not list them, nor ids."""
    questions = dpb_data.read(str(files.hotel(tmp_path))).questions
    (question,) = (one for one in questions if one.topic == "bought")
    listed = {answer.settings["bought"] for answer in question.answers}
    assert not listed & {"is_canceled", "arrival_year", "arrival_day", "adr"}
    sales = dpb_data.read(str(files.baskets(tmp_path)))
    assert sales.questions and "SALES_VALUE" not in sales.columns.values()


def test_prices_of_buyers_alone_are_asked_about(tmp_path: Path) -> None:
    (question,) = dpb_data.read(str(files.auction(tmp_path))).questions
    assert (
        question.topic == "price" and "clearing_price has a value only where sold" in question.text
    )
    assert question.answers[0].settings == {"price": "reserve"}
    # nor does a buyer without a price make it one of all customers
    raw = (tmp_path / "auction.csv").read_text().split("\n")
    sold = next(k for k, line in enumerate(raw) if line.endswith(",1"))
    first, reserve, _, last = raw[sold].split(",")
    raw[sold] = f"{first},{reserve},,{last}"
    (tmp_path / "auction.csv").write_text("\n".join(raw))
    assert dpb_data.read(str(tmp_path / "auction.csv")).questions[0].topic == "price"
    # a price that some who did not buy have, too, is a price
    rng = np.random.default_rng(0)
    price = np.round(rng.uniform(1, 5, 600), 2)
    won = (rng.random(600) < files.sigmoid(2.5 - price)).astype(int)
    some = np.where((won == 0) & (rng.random(600) < 0.1), np.nan, price)
    assert not dpb_data.read({"price": some, "won": won}).questions


def test_numbers_of_rows_of_a_larger_file_are_no_feature() -> None:
    """Pandas writes them as a first column without a name; a sample of rows leaves gaps."""
    rng = np.random.default_rng(0)
    price = rng.uniform(1, 5, 600)
    frame = {
        "Unnamed: 0": rng.choice(10**6, 600, replace=False), "price": price,
        "bought": (rng.random(600) < files.sigmoid(2.5 - price)).astype(int),
    }  # fmt: skip
    assert dpb_data.read(frame).columns["features"] == []


def test_rows_of_a_search_may_be_customers(tmp_path: Path) -> None:
    """The answer that they are leads to a table of prices; two sales in a set need no question."""
    reading = dpb_data.read(str(files.itineraries(tmp_path)))
    assert [question.topic for question in reading.questions] == ["problem"]
    own = reading.answer("pricing", person="search_id", absent={"elapsed": -999})
    assert not own.questions and own.columns["price"] == "fare_usd"
    lines = Path(tmp_path / "itineraries.txt").read_text().split("\n")
    first = [line for line in lines if line.startswith("S0\t")]
    sold = [f"{line[:-1]}1" for line in first]
    (tmp_path / "twice.txt").write_text("\n".join([*lines[:3], *sold, *lines[3 + len(first) :]]))
    topics = {q.topic for q in dpb_data.read(str(tmp_path / "twice.txt")).questions}
    assert "problem" not in topics and "person" in topics


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([18, 40, 70, -999, -999], [-999.0]),
        ([1, 2, 3, 4, 99, 99, -1, -1], [-1.0, 99.0]),
        ([1, 2, 3, 4, -1], []),  # once
        ([-1, 0, 1, -1, 1, 0], []),  # three values
        ([-3, 1, 2, 5, -1, -1], []),  # other negative numbers
        ([90, 95, 60, 99, 99, 71], []),  # not apart from the others
        ([0.5, 1.5, 2.5, 99, 99, 3.5], []),  # not whole
    ],
)
def test_codes_are_apart_from_all_other_values(values: list[float], codes: list[float]) -> None:
    assert missing_codes(Profile("x", np.array(values, float))) == codes


def test_absent_values_are_missing_in_their_column_alone(tmp_path: Path) -> None:
    path = str(files.survey_codes(tmp_path))
    both = {"absent": {"age": [-999], "income_class": 99}}
    table = dpb_data.read(path, **both).table()
    assert table.features.min() > 0 and table.features[:, 1].max() == 8
    assert any(note.startswith("age: -999 read as missing (") for note in table.notes)
    raw = dpb_data.read(path, absent="none").table()
    assert raw.features.min() == -999 and len(raw) == 1_000 > len(table)
    median = dpb_data.read(path, missing="median", **both).table()
    assert len(median) == 1_000 and median.features.min() > 0
    for wrong in ({"age": 5.5}, {"age": "x"}, "all", {"bought": -999}):
        with pytest.raises(ParameterError, match="absent="):
            dpb_data.read(path, absent=wrong).table()


@pytest.mark.slow
def test_answers_can_be_typed_as_they_are_printed(read: Any) -> None:
    """The options of each question's first complete answer are read back as the same settings."""
    from dpb_gym.cli.options import read_settings

    for name in READS:
        for question in read(name).questions:
            for answer in question.answers:
                words = answer.options()
                pairs = dict(zip(words[1::2], words[::2]))
                typed = read_settings([text for text, key in pairs.items() if key == "--set"])
                own = {k: v for k, v in answer.settings.items() if k != "problem"}
                assert {k: str(v) for k, v in typed.items()} == {k: str(v) for k, v in own.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["german", "survey codes", "clicks"])
def test_the_last_action_brings_a_decision(name: str, tmp_path: Path) -> None:
    make, actions, _, _ = READS[name]
    given = {key: value for action in actions for key, value in action.items()}
    advice = dpb_gym.advise(
        str(make(tmp_path)), budgets="rho=1", horizon=200, replicates=8, progress=False, **given
    )
    assert advice.decision.kind in ("fixed", "agent", "keep", "collect")
    assert advice.sentences[0] == advice.decision.text


@pytest.mark.slow
def test_errors_of_files_are_of_one_type(tmp_path: Path) -> None:
    """Cut at any place, no file raises anything but the package's errors."""
    outcomes = set()
    for make in (files.quotes_german, files.itineraries, files.json_lines, files.conjoint_wide):
        raw = make(tmp_path).read_bytes()
        for share in (0, 0.01, 0.3, 0.77):
            (tmp_path / "cut.csv").write_bytes(raw[: int(share * len(raw))])
            try:
                dpb_data.read(str(tmp_path / "cut.csv"))
                outcomes.add("read")
            except DPBError:
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.slow
def test_answers_of_several_words_are_asked_about(tmp_path: Path) -> None:
    reading = dpb_data.read(str(files.hotel_quotes(tmp_path)))
    (question,) = reading.questions
    assert (question.topic, question.column) == ("success", "Status")
    assert question.answers[-2].settings == {"success": "declined"}  # words for no come last
    bought = reading.answer(success=["Confirmed"]).table().bought
    raw = [line.split(",") for line in (tmp_path / "quotes.csv").read_text().splitlines()[1:]]
    priced = [row for row in raw if row[6] != "on request"]
    assert bought.tolist() == [int(row[7] == "confirmed") for row in priced]
    both = reading.answer(success=["confirmed", "expired"]).table().bought
    assert both.sum() == sum(row[7] != "declined" for row in priced)
    for wrong in ("booked", ["confirmed", "declined", "expired"]):
        with pytest.raises(ParameterError, match=r"success=: Status of .*confirmed, declined"):
            reading.answer(success=wrong)
    text = (tmp_path / "quotes.csv").read_text().replace(",declined,", ",,", 20)
    (tmp_path / "gaps.csv").write_text(text)
    gaps = dpb_data.read(str(tmp_path / "gaps.csv"), success="confirmed").table()
    assert len(bought) - 20 <= len(gaps) < len(bought), "an answer that is missing is not a no"
    assert gaps.bought.sum() == bought.sum()
    with pytest.raises(QuestionError, match="Status is"):
        dpb_data.prices(str(tmp_path / "quotes.csv"), price="Nightly rate", bought="Status")


def test_codes_of_a_response_may_be_numbers() -> None:
    rng = np.random.default_rng(0)
    price = rng.uniform(1, 5, 300)
    sold = rng.random(300) < files.sigmoid(2.5 - price)
    frame = {"price": price, "bought": np.where(sold, 1, 2)}
    assert dpb_data.read(frame, success=1).table().bought.tolist() == sold.astype(int).tolist()
    named = {"price": price, "bought": sold.astype(int), "ad": ["a", "b", "c"] * 100,
             "p": [1 / 3] * 300, "click": np.where(sold, "opened", "ignored")}  # fmt: skip
    table = dpb_data.clicks(named, item="ad", reward="click", propensity="p", success="opened")
    assert table.clicked.tolist() == sold.astype(int).tolist()


@pytest.mark.slow
def test_rows_of_choosing_none_are_no_alternatives(tmp_path: Path) -> None:
    given = {"case": ["sys_RespNum", "Task"], "person": "sys_RespNum"}
    path = files.conjoint_export(tmp_path)
    table = dpb_data.read(str(path), **given).table()
    assert table.item_ids.tolist() == ["Aro", "Belo", "Cima"] and (np.diff(table.starts) == 3).all()
    raw = [line.split(",") for line in path.read_text().splitlines()[1:]]
    none = sum(row[3] == "None" and row[6] == "1" for row in raw)
    assert none > 50 and (table.chosen < 0).sum() == none
    assert any("rows without a name and attributes read as choosing none (1,200" in note
               for note in table.notes)  # fmt: skip
    # a row without a name that has attributes is a missing value
    text = path.read_text().replace(",Aro,", ",,")
    path.write_text(text)
    assert [q.topic for q in dpb_data.read(str(path), **given).questions] == ["missing"]


def test_columns_that_follow_from_the_response_or_the_price_are_no_features() -> None:
    rng = np.random.default_rng(0)
    n = 400
    price = rng.choice([2.0, 3.0, 4.0, 5.0], n)
    sold = (rng.random(n) < files.sigmoid(2.5 - price)).astype(int)
    seen = rng.integers(30, 60, n)
    units = rng.binomial(seen, files.sigmoid(2.5 - price))
    first = {
        "paid": np.where(sold, price * rng.uniform(0.9, 1.1, n), 0.0),
        "reason": np.where(sold, None, rng.choice(["dear", "late"], n)),
        "variant": np.array(["a", "b", "c", "d"])[price.astype(int) - 2],
        "with tax": 1.19 * price,
        "cheap": (price < 3.5).astype(int),
    }
    own = {"age": rng.integers(18, 80, n), "web": rng.integers(0, 2, n),
           "cost": price + rng.normal(0, 0.3, n),
           "mood": price + rng.integers(0, 2, n)}  # fmt: skip
    read = dpb_data.read({"price": price, "bought": sold, **first, **own})
    assert {*read.columns["features"]} == {*own}
    assert {name: "recorded after" in read.unused[name] for name in first} == {
        "paid": True, "reason": True, "variant": False, "with tax": False, "cheap": False
    }  # fmt: skip
    assert "the same at each price" in read.unused["variant"]
    takings = {"takings": np.round(price * units, 2), "shipped": units}
    counted = {"price": price, "units": units, "visitors": seen, **takings, **own}
    read = dpb_data.read(counted)
    assert {*read.columns["features"]} == {*own}
    assert all("units, revenue or a rate" in read.unused[name] for name in takings)
    # what follows from the item that was shown has no effect beside it
    item = rng.integers(0, 4, n)
    shown = {"item": item, "click": sold, "propensity": np.full(n, 0.25), "size": item % 3 + 1}
    assert dpb_data.read(shown).columns["features"] == []
    # a named feature is taken as the user says
    named = dpb_data.read({"price": price, "bought": sold, **first}, features=["cheap"])
    assert named.columns["features"] == ["cheap"]


@pytest.mark.slow
def test_days_and_weeks_are_no_persons(tmp_path: Path) -> None:
    for make, times in ((files.price_experiment, "event_date"), (files.loyalty_offers, "Week")):
        (question,) = dpb_data.read(str(make(tmp_path))).questions
        assert question.topic == "person"
        assert times not in {answer.settings["person"] for answer in question.answers}
    # nor are days in a column of any other name
    days = np.repeat(np.arange("2024-01-01", "2024-02-10", dtype="datetime64[D]").astype(str), 10)
    rng = np.random.default_rng(0)
    price = rng.uniform(1, 5, 400)
    sold = (rng.random(400) < files.sigmoid(2.5 - price)).astype(int)
    plain = np.char.replace(days, "-", "").astype(int)
    for when in (days, plain):
        reading = dpb_data.read({"price": price, "bought": sold, "when": when})
        assert not reading.questions and "dates" in reading.unused["when"]
    # 20241301 is no day
    reading = dpb_data.read({"price": price, "bought": sold, "when": plain + 1_200})
    assert "dates" not in reading.unused.get("when", "")


def test_flags_that_decide_the_response_are_asked_about() -> None:
    rng = np.random.default_rng(0)
    n = 400
    price = rng.uniform(1, 5, n)
    sold = (rng.random(n) < files.sigmoid(2.5 - price)).astype(int)
    table = {"price": price, "bought": sold, "age": rng.integers(18, 80, n),
             "cart": np.maximum(sold, rng.random(n) < 0.2).astype(int),
             "sent": sold * (rng.random(n) < 0.5)}  # fmt: skip
    (question,) = dpb_data.read(table).questions
    assert question.topic == "features" and "cart and sent" in question.text
    assert question.answers[0].settings == {"features": ["age"]}
    # seven customers with one value may have the same response by chance
    few = {**table, "cart": np.arange(n) < 0, "sent": np.zeros(n, int)}
    rows = np.flatnonzero(sold == 0)[:7]
    few["cart"] = np.isin(np.arange(n), rows).astype(int)
    few["sent"] = rng.integers(0, 2, n)
    assert not dpb_data.read(few).questions


@pytest.mark.slow
def test_rows_of_many_customers_are_no_persons(tmp_path: Path) -> None:
    """Responses of one day depend on each other, but its customers are different persons."""
    table = dpb_data.read(str(files.till_report(tmp_path))).table()
    assert table.grouped and len(np.unique(table.people)) == 300
    problem: Any = dpb_gym.make_problem(dpb_gym.from_log(table, "pricing", progress=False))
    assert problem.visits == 1 and problem.persons == 300
    days = {"price": table.price[::50], "units": table.bought[::50] * 3 + 1, "seen": 9}
    person = np.arange(len(days["price"])) % 20
    given = {"price": "price", "bought": "units", "offered": 9, "person": "who"}
    named = dpb_data.prices({**days, "who": person}, **given)
    assert not named.grouped
    rows = dpb_data.read(str(files.panel("household")(tmp_path)), person="household").table()
    assert not rows.grouped and rows.people is not None


def test_rates_and_revenue_per_customer_follow_from_the_units() -> None:
    """As in daily reports of web shops and hotels."""
    rng = np.random.default_rng(0)
    n = 200
    price = rng.choice([19.0, 24.0, 29.0, 34.0], n)
    seen = rng.poisson(310, n)
    sold = rng.binomial(seen, files.sigmoid(0.2 - 0.09 * price))
    table = {
        "Price": price, "Sessions": seen, "Orders": sold, "Revenue": price * sold,
        "Conv. rate": np.round(100 * sold / seen, 1), "RevPAR": np.round(price * sold / seen, 2),
        "Weekday": np.arange(n) % 7, "Temperature": np.round(rng.normal(15, 8, n)),
    }  # fmt: skip
    reading = dpb_data.read(table)
    assert not reading.questions and reading.columns["offered"] == "Sessions"
    assert reading.columns["bought"] == "Orders"
    assert reading.columns["features"] == ["Weekday", "Temperature"]
    rooms = {"ADR": price, "Rooms available": np.full(n, 400), "Rooms sold": sold,
             "Room revenue": price * sold, "Occ": sold / 400}  # fmt: skip
    (question,) = dpb_data.read(rooms).questions
    columns = {answer.settings.get("offered") for answer in question.answers}
    assert "Rooms available" in columns and "Room revenue" not in columns
    assert dpb_data.read(rooms, offered="Rooms available").columns["features"] == []


def test_codes_one_and_two_may_mean_yes_and_no() -> None:
    rng = np.random.default_rng(0)
    price = rng.choice([5.0, 7.0, 9.0, 11.0], 300)
    answer = np.where(rng.random(300) < files.sigmoid(2.6 - 0.35 * price), 1, 2)
    reading = dpb_data.read({"price": price, "bought": answer})
    (question,) = reading.questions
    assert question.answers[0].settings == {"success": 1}
    assert reading.answer(success=1).table().bought.tolist() == (answer == 1).astype(int).tolist()
    assert not any(
        "success" in answer.settings
        for answer in dpb_data.read({"price": price, "bought": answer + 1}).questions[0].answers
    )


def test_results_of_offers_with_a_chance_are_responses() -> None:
    rng = np.random.default_rng(0)
    which = rng.choice(3, 900, p=[0.5, 0.3, 0.2])
    table = {
        "campaign": np.array(["ten", "twenty", "free"])[which],
        "p_sent": np.array([0.5, 0.3, 0.2])[which],
        "result": np.where(rng.random(900) < 0.2, "redeemed", "ignored"),
        "age": rng.integers(18, 80, 900),
    }
    reading = dpb_data.read(table)
    assert [question.topic for question in reading.questions] == ["success"]
    assert reading.roles == {"campaign": "item", "p_sent": "propensity", "result": "reward",
                             "age": "feature"}  # fmt: skip


def test_receipts_of_buyers_alone_are_no_demand(tmp_path: Path) -> None:
    """A number of its own in every row is not offered as a response."""
    reading = dpb_data.read(str(files.receipts(tmp_path)), "pricing", price="amount")
    (question,) = (one for one in reading.questions if one.topic == "bought")
    assert "Purchases alone do not show demand" in question.text
    assert "receipt" not in str(question.answers)


def test_letters_of_two_encodings_are_read_and_said(tmp_path: Path) -> None:
    reading = dpb_data.read(str(files.mixed_encodings(tmp_path)))
    assert "letters in cp1252 in a file in UTF-8 (3 rows)" in reading.repairs
    assert not any("encoding is" in text for text in reading.repairs)
    old = tmp_path / "old.csv"
    old.write_bytes(
        "price;bought;Straße\n".encode("cp1252") + b"1;0;\xdf\n2;1;e\n" * 60 + b"2;1;\xdf\x80\n"
    )
    assert any("encoding is cp1252" in text for text in dpb_data.read(str(old)).repairs)


def answered_table(make: files.Generator, folder: Path, **given: Any) -> Any:
    return dpb_data.read(str(make(folder)), **given).table()


@pytest.mark.slow
def test_points_between_thousands_are_no_decimals(tmp_path: Path) -> None:
    """Prices such as 1.299 fit both; another column with decimals decides."""
    (question,) = dpb_data.read(str(files.thousands(tmp_path))).questions
    assert question.topic == "decimal" and "999" not in question.text.split("such as")[1][:9]
    table = answered_table(files.thousands, tmp_path, decimal=",")
    assert 699 < table.price.min() < table.price.max() < 3_500
    table = answered_table(files.thousands, tmp_path, decimal=".")
    assert table.price.min() < 4.0
    text = (tmp_path / "moebel.csv").read_bytes().replace(b"Nord", b"0,5").replace(b"Sued", b"1,5")
    (tmp_path / "other.csv").write_bytes(text)
    table = dpb_data.read(str(tmp_path / "other.csv")).table()
    assert table.price.min() > 699 and {*table.features[:, 0]} == {0.5, 1.5}


def test_codes_with_leading_zeros_stay_texts(tmp_path: Path) -> None:
    table = answered_table(files.product_codes, tmp_path)
    assert table.features.shape == (3_000, len(files.CODES) - 1)
    assert any("codes" in note for note in table.notes)
    sets = answered_table(files.choices_of_codes, tmp_path)
    assert {*sets.item_ids} == {"007", "012", "100", "0200"}
    # padded months and prices are numbers
    frame = {"price": ["007.5", "012.5"] * 300, "month": ["01", "12", "07"] * 200,
             "bought": [0, 1, 0, 0, 1, 1] * 100}  # fmt: skip
    read = dpb_data.read(frame, features=["month"]).table()
    assert {*read.price} == {7.5, 12.5} and {*read.features[:, 0]} == {1.0, 12.0, 7.0}


@pytest.mark.parametrize("make", [files.merged_workbook, files.merged_text])
def test_a_header_of_two_rows_is_joined(make: files.Generator, tmp_path: Path) -> None:
    reading = dpb_data.read(str(make(tmp_path)), price="Price Paid", bought="Sales Units")
    table = reading.table()
    rows = files.merged_rows()
    assert len(table) == sum(row[3] for row in rows)
    assert table.bought.sum() == sum(row[4] for row in rows)
    assert {*table.price.round(2)} == {row[2] for row in rows}
    assert any("two rows" in note for note in table.notes)
    assert not any("left out" in note for note in table.notes)


def test_sheets_of_one_layout_are_one_table(tmp_path: Path) -> None:
    table = answered_table(files.monthly_sheets, tmp_path)
    assert len(table) == 800 and any("Jan, Feb" in note for note in table.notes)


def test_rows_of_totals_are_left_out(tmp_path: Path) -> None:
    path = files.days_with_totals(tmp_path)
    table = dpb_data.read(str(path)).table()
    rows = [line.split(",") for line in path.read_text().split("\n") if line.startswith("day ")]
    assert len(rows) == 140 and len(table) == sum(int(row[2]) for row in rows)
    assert any("total" in note and "6 rows" in note for note in table.notes)
    # a brand of this name is no total
    brands = ["Total", *["Shell", "Esso"] * 3] * 100
    lines = [f"{b},{1 + k % 7},{int(k % 3 == k % 7 % 2)}" for k, b in enumerate(brands)]
    path.write_text("\n".join(["brand,price,bought", *lines[1:], lines[0], ""]))
    assert len(dpb_data.read(str(path)).table()) == 700


def test_a_discount_is_asked_about(tmp_path: Path) -> None:
    """The price of a row may be the one before the discount."""
    (question,) = dpb_data.read(str(files.discounts(tmp_path))).questions
    assert question.topic == "price" and question.column == "discount"
    assert {a.settings["price"] for a in question.answers} == {"price", "COLUMN"}
    rng = np.random.default_rng(0)
    frame = {"price": rng.uniform(1, 5, 300), "discount": rng.integers(0, 2, 300),
             "bought": rng.integers(0, 2, 300)}  # fmt: skip
    assert not dpb_data.read(frame).questions  # a mark of a reduced price


def test_gifts_and_returns_are_left_out_if_the_user_says_so(tmp_path: Path) -> None:
    (question,) = dpb_data.read(str(files.gifts(tmp_path))).questions
    assert question.topic == "absent" and "63 rows" in question.text
    table = answered_table(files.gifts, tmp_path, absent={"price": "<=0"})
    assert len(table) == 1_437 and table.price.min() > 0
    assert any("63 rows" in note for note in table.notes)
    (question,) = dpb_data.read(str(files.returns(tmp_path))).questions
    assert question.topic == "absent" and "12 rows" in question.text
    for wrong in ("<=x", "above 3"):
        with pytest.raises(ParameterError, match="absent="):
            dpb_data.read(str(files.gifts(tmp_path)), absent={"price": wrong}).table()


@pytest.mark.parametrize("word", ["x", "yes"])
def test_an_empty_response_beside_a_mark_means_no(word: str, tmp_path: Path) -> None:
    make = files.marked(word)
    (question,) = dpb_data.read(str(make(tmp_path))).questions
    assert question.topic == "success" and "empty" in question.text
    table = answered_table(make, tmp_path, success=word)
    assert len(table) == 1_000 and 400 < table.bought.sum() < 700
