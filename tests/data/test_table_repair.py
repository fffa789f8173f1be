"""Exported tables are read like the clean table that they were made of, and say what changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dirty_tables import COLUMNS, DIRTY, MODES, ROWS, WIDE, choices, quotes, write_lines
from hypothesis import given
from hypothesis import strategies as st

import dpb_data
import dpb_gym
from dpb_data import table_repair, text_columns
from dpb_gym.errors import DataError, MissingExtraError, ParameterError, QuestionError


@pytest.mark.parametrize("name", DIRTY)
def test_dirty_tables_are_read_like_the_clean_one(name: str, tmp_path: Path) -> None:
    case, clean = DIRTY[name], quotes()
    table = dpb_data.prices(case.write(clean, tmp_path), **case.columns)
    np.testing.assert_array_equal(table.price, clean["price"][case.rows])
    np.testing.assert_array_equal(table.bought, clean["bought"][case.rows])
    np.testing.assert_array_equal(table.features[:, 0], clean["age"][case.rows])
    np.testing.assert_array_equal(table.features[:, 1], clean["day"][case.rows])
    for text in case.notes:
        assert any(text in note for note in table.notes), table.notes
    if not case.notes:
        assert table.notes == ()


MESSY = [
    ["1.299", "2,5", None, " 3 ", "-"],
    ["12.90 €", "n/a", "9.90 €", None],
    ["yes", "No", "", "y"],
    ["2024-01-31", "2024-02-01 10:30", None],
    ["007", "012", "5"],
    ["a", "b c", "A "],
    ["1", "2.5", None],
]


@pytest.mark.parametrize("texts", MESSY, ids=lambda texts: texts[0])
def test_texts_that_recur_are_parsed_like_others(texts: list[Any], monkeypatch: Any) -> None:
    import pyarrow as pa

    values = pa.chunked_array([texts, texts[1:]], pa.string())
    monkeypatch.setattr(text_columns, "_RECURRING", 1.0)
    once = text_columns.TextColumn("x", values, "t")
    monkeypatch.setattr(text_columns, "_RECURRING", 0.0)
    each = text_columns.TextColumn("x", values, "t")
    assert len(once._levels.texts) == len(texts)
    assert len(each._levels.texts) == len(values)
    for name in ("mark", "sure", "marked", "numeric", "unit", "units", "words", "padded"):
        assert getattr(once, name) == getattr(each, name), name
    for name in ("bare", "trimmed", "number"):
        own = getattr(once, name)
        other = getattr(each, name)
        assert (own and own.to_pylist()) == (other and other.to_pylist()), name
    np.testing.assert_array_equal(once.absent, each.absent)
    for mark in (".", ","):
        np.testing.assert_array_equal(once.fits[mark], each.fits[mark])
        np.testing.assert_array_equal(once.contains(mark), each.contains(mark))
    dates = [text.dates() for text in (once, each)]
    assert (dates[0] and dates[0].to_pylist()) == (dates[1] and dates[1].to_pylist())


def test_a_table_is_parsed_once_and_keeps_its_notes(tmp_path: Path, monkeypatch: Any) -> None:
    parsed = []

    class Counted(text_columns.TextColumn):
        def __init__(self, name: str, *rest: Any) -> None:
            parsed.append(name)
            super().__init__(name, *rest)

    monkeypatch.setattr(table_repair, "TextColumn", Counted)
    rows = [f"{2 + k % 3}.5 €;{k % 2};{20 + k % 7}" for k in range(80)]
    lines = ["# exported", "price;bought;age", *rows, ""]
    file = tmp_path / "sales.csv"
    file.write_text("\n".join(lines), "utf-8")
    reading = dpb_data.read(file, person="none")
    table = reading.table()
    assert sorted(parsed) == ["age", "bought", "price"]
    assert any("begin with # left out" in note for note in table.notes)
    assert any("€" in note or "EUR" in note for note in table.notes)


@pytest.mark.parametrize("name", WIDE)
def test_wide_choice_tables(name: str) -> None:
    sets = choices()
    write, answers = WIDE[name]
    table = dpb_data.choices(write(sets), chosen="choice", **answers)
    assert table.n_sets == ROWS and tuple(map(str.lower, table.feature_names)) == ("cost", "time")
    offered = sets["offered"]
    np.testing.assert_array_equal(np.diff(table.starts), offered.sum(axis=1))
    wanted = [str(k + 1) if name == "numbered" else m for k, m in enumerate(MODES)]
    at = [str(i).lower() for i in table.item_ids]
    order = [at.index(m) for m in wanted]
    assert [order[k] for k in np.nonzero(offered)[1]] == table.items.tolist()
    np.testing.assert_array_equal(table.features[:, 0], sets["cost"][offered])
    np.testing.assert_array_equal(table.features[:, 1], sets["time"][offered])
    place = np.cumsum(offered, axis=1) - 1
    expected = np.where(sets["chosen"] < 0, -1, place[np.arange(ROWS), sets["chosen"]])
    np.testing.assert_array_equal(table.chosen, expected)
    none = int((sets["chosen"] < 0).sum())
    assert any(f"choice: read as choosing none ({none} rows)" in note for note in table.notes)


def test_from_log_reads_and_reports_the_same_way(tmp_path: Path) -> None:
    case = DIRTY["euros with dots of thousands"]
    file = case.write(quotes(), tmp_path)
    log = dpb_gym.from_log(file, "pricing", name="quotes", **COLUMNS)
    assert any("price: € removed" in note for note in log.summary()["notes"])
    clean = dpb_gym.from_log(quotes(), "pricing", name="quotes", **COLUMNS)
    assert not any("removed" in note for note in clean.summary()["notes"]), "a report of its own"
    tables = [dpb_data.prices(source, **COLUMNS) for source in (file, quotes())]
    assert tables[0].digest() == tables[1].digest(), "repairs do not count"


@pytest.mark.parametrize(
    ("written", "unit", "value"),
    [
        ("{} kr", "KR", 6.5), ("₹ {}", "INR", 6.5), ("US${}", "USD", 6.5), ("{}EUR", "EUR", 6.5),
        ("{} EUR/month", "EUR", 6.5), ("1,00,00{}", "", 100006.5), ("{} € / Stück", "EUR", 6.5),
        ("{} EUR pro Stk.", "EUR", 6.5),
    ],
)  # fmt: skip
def test_currencies_and_thousands_of_other_countries(written: str, unit: str, value: float) -> None:
    texts = [written.format(p) for p in ("6.5", "7.5", "8.5")] * 10
    towns = ["Mars", "Kraft", "Eurotown"] * 10  # units inside of words are none
    frame = {"price": texts, "bought": [0, 1, 1] * 10, "town": towns}
    table = dpb_data.prices(frame, features=["town"])
    assert (table.price[0], table.unit) == (value, unit)
    assert table.feature_names == ("town=Kraft", "town=Mars") and len(table.notes) == 1


@pytest.mark.parametrize("written", ["ab {}", "From €{}", "ab {} EUR/Stk", "à partir de {} €"])
def test_prices_that_begin_somewhere_are_read_and_named(written: str) -> None:
    texts = [written.format(p) for p in ("6,50", "7,50", "8,50")] * 10 + ["9,50"] * 2
    table = dpb_data.prices({"price": texts, "bought": [0, 1] * 16})
    assert table.price[[0, -1]].tolist() == [6.5, 9.5]
    assert any("words for 'from' before numbers removed (30 rows)" in n for n in table.notes)


def test_other_units_and_an_empty_file_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"written like 1234\.5, found '3 km'"):
        dpb_data.prices({"price": ["3 km", "4 km"], "bought": [0, 1]})
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(DataError, match="line 1: expected the columns' names, found an empty line"):
        dpb_data.prices(tmp_path / "empty.csv")


def test_lines_that_belong_to_no_row_are_named(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("Title\nprice,bought\n1.5,0\n2.5,x\n3.5,1\n")
    with pytest.raises(DataError, match=r"line 4: expected bought to be .*found 'x'"):
        dpb_data.prices(file)
    file.write_text("Title\nprice,bought\n1.5,0\n2.5,1\nTotal\n")
    with pytest.raises(DataError, match="Delete lines above the header and below the last row"):
        dpb_data.prices(file)


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 10**8), min_size=30, max_size=60),
    st.sampled_from([(",", "."), (",", " "), (".", ","), (".", "'")]),
)
def test_numbers_survive_any_consistent_notation(cents: list[int], marks: tuple[str, str]) -> None:
    decimal, thousands = marks
    plain = [f"{c / 100:,.2f}" for c in cents]
    written = [p.replace(",", "T").replace(".", decimal).replace("T", thousands) for p in plain]
    frame = {"price": ["1.5", "2.5"] * 15 + ["2.5"] * (len(cents) - 30), "x": written,
             "bought": [0, 1] * 15 + [1] * (len(cents) - 30)}  # fmt: skip
    table = dpb_data.prices(frame, features=["x"], decimal=decimal if decimal == "," else None)
    assert table.features[:, 0].tolist() == [c / 100 for c in cents]


def test_units_without_customers_are_a_question() -> None:
    frame = {"price": [2.0, 3.0, 4.0], "bought": [3, 0, 1], "age": [20, 30, 40]}
    with pytest.raises(QuestionError, match=r"row 0: bought is 3, as of units sold") as raised:
        dpb_data.prices(frame, features=["age"])
    (question,) = raised.value.questions
    assert (question.topic, question.column) == ("offered", "bought")
    assert [str(answer) for answer in question.answers] == [
        "offered=COLUMN", "offered=NUMBER", "offered=1"
    ]  # fmt: skip
    seen = {**frame, "seen": [4, 2, 1]}
    table = dpb_data.prices(seen, offered="seen", features=["age"])
    assert table.bought.tolist() == [1, 1, 1, 0, 0, 0, 1]
    assert table.people.tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert table.features[:, 0].tolist() == [20, 20, 20, 20, 30, 30, 40]
    assert "bought: 3 rows read as 7 customers (2 rows)" in table.notes
    same = dpb_data.prices({**frame, "four": [4, 4, 4]}, offered="four")
    number = dpb_data.prices(frame, offered=4)
    np.testing.assert_array_equal(number.bought, same.bought)
    np.testing.assert_array_equal(number.price, same.price)
    one = dpb_data.prices(frame, offered=1)
    assert one.bought.tolist() == [1, 0, 1] and one.people is None
    assert one.notes == ("bought: numbers above 1 read as one purchase (1 row)",)
    with pytest.raises(DataError, match="row 0: expected bought to be at most seen, found 3 of 2"):
        dpb_data.prices({**frame, "seen": [2, 2, 1]}, offered="seen")
    with pytest.raises(DataError, match="at most offered=2, found 3 of 2"):
        dpb_data.prices(frame, offered=2)
    with pytest.raises(ParameterError, match="offered must be an integer in 1"):
        dpb_data.prices(frame, offered=0.5)


def test_rules_for_missing_values() -> None:
    frame = {"price": [1.0, 2.0, 3.0, 4.0], "bought": [1, 0, 1, 0], "age": [30.0, np.nan, 40, 80],
             "town": ["a", "b", None, "a"]}  # fmt: skip
    with pytest.raises(DataError, match=r"more than 10% of 4\. Leave the column out, or name"):
        dpb_data.prices(frame, features=["age"])
    assert dpb_data.prices(frame, features=["age"], missing="drop").price.tolist() == [1, 3, 4]
    table = dpb_data.prices(frame, features=["age", "town"], missing="median")
    assert table.features[:, 0].tolist() == [30, 40, 40, 80]
    assert table.feature_names == ("age", "town=b", "town=missing")
    assert "age: missing values replaced by 40.0 (1 row)" in table.notes
    with pytest.raises(DataError, match="row 1: expected age to be some value, found none"):
        dpb_data.prices(frame, features=["age"], missing="error")
    # the price itself is never imputed
    gone = {**frame, "price": [1.0, None, 3.0, 4.0]}
    assert len(dpb_data.prices(gone, missing="median")) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"price": ["1,234", "2,500"]}, "comma may separate thousands or decimals: say decimal="),
        ({"price": ["3 EUR", "4 USD"]}, "price mixes EUR and USD"),
        ({"age": ["3 %", "4"]}, "age has a percent sign in 1 of 2 values"),
        ({"age": ["01/02/2024", "02/03/2024"]}, "day and month may be exchanged"),
        ({"price": ["cheap", "dear"]}, "row 0: expected price .* found 'cheap'"),
    ],
)
def test_ambiguous_columns_are_refused(change: dict[str, Any], message: str) -> None:
    frame = {"price": [1.0, 2.0], "bought": [1, 0], "age": [3, 4], **change}
    with pytest.raises(DataError, match=message):
        dpb_data.prices(frame, features=["age"])


def test_the_decimal_mark_is_decided_once_for_the_table() -> None:
    frame = {"price": ["1,234", "2,500"], "bought": [1, 0], "age": ["3,5", "4,25"]}
    assert dpb_data.prices(frame, features=["age"]).price.tolist() == [1.234, 2.5]
    assert dpb_data.prices({**frame, "age": ["3.5", "4.25"]}, features="age").price[0] == 1234
    assert dpb_data.prices(frame, decimal=".").price[0] == 1234.0
    with pytest.raises(ParameterError, match="decimal must be one of"):
        dpb_data.prices(frame, decimal=";")


def test_rows_are_named_as_in_the_file(tmp_path: Path) -> None:
    rows = {"price": ["5.0"] * 30, "bought": ["1"] * 30, "age": ["3"] * 30}
    rows["age"][4], rows["price"][20] = "", "-2"
    with pytest.raises(DataError, match=r"q\.csv: line 22: expected price .* found '-2'"):
        dpb_data.prices(write_lines(tmp_path / "q.csv", rows), features="age")


def test_excel_files_need_an_extra(tmp_path: Path, monkeypatch: Any) -> None:
    path = DIRTY["a workbook with a title"].write(quotes(), tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dpb-gym\[data\]'"):
        dpb_data.prices(path, **COLUMNS)
    monkeypatch.undo()
    path.write_bytes(b"no workbook")
    with pytest.raises(DataError, match=r"expected an \.xlsx file, found damage"):
        dpb_data.prices(path, **COLUMNS)


def test_long_tables_with_blanks() -> None:
    frame = {"trip": np.repeat(np.arange(20), 2), "mode": ["a", "b"] * 20,
             "took": [1, None] * 20, "cost": [1.0, 2.0, np.nan, *np.arange(37.0)]}  # fmt: skip
    table = dpb_data.choices(frame, case="trip", item="mode", chosen="took", features=["cost"])
    assert table.n_sets == 19 and table.chosen.tolist() == [0] * 19
    assert "took: rows without a value read as not chosen (20 rows)" in table.notes
    assert "sets with a missing attribute left out (1 row)" in table.notes
