"""Loading hotel searches: the layout, the pitfalls of the original files, and damage."""

from __future__ import annotations

import csv
import io
import re
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpb_data
from dpb_data.expedia import COLUMNS, DROP_LAST, SearchLog, read_searches, synthetic_log
from dpb_data.expedia_synthetic import DESTINATIONS, EMPTY_PLACES, HEADER, searches_csv
from dpb_gym.errors import DataError, ParameterError, UnknownNameError

NAMES = HEADER.split(",")
CONTENT = searches_csv(40, seed=3)


def parse(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def unparse(rows: list[dict[str, str]]) -> bytes:
    names = list(rows[0])
    lines = [",".join(names)] + [",".join(row[name] for name in names) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def load(content: bytes, repair: str | None = None) -> SearchLog:
    return read_searches(content, "m.csv", "m", repair=repair)


def refusal(content: bytes, repair: str | None = None) -> str:
    with pytest.raises(DataError, match=r"^m\.csv: line \d+: ") as caught:
        load(content, repair)
    return str(caught.value)


def edited(row: int, **values: str) -> bytes:
    rows = parse(CONTENT)
    rows[row].update(values)
    return unparse(rows)


def number(text: str, zero_is_unknown: bool) -> float:
    value = float("nan") if text in ("", "NULL") else float(text)
    return float("nan") if zero_is_unknown and value == 0 else value


def test_every_value_equals_an_independent_reading() -> None:
    rows = parse(CONTENT)
    log = load(CONTENT)
    assert len(log) == len(rows) and not log.absent and not log.notes
    for column in COLUMNS:
        expected = [number(row[column.name], column.zero_is_unknown) for row in rows]
        np.testing.assert_array_equal(log.columns[column.name], expected, err_msg=column.name)
    searches = [row["srch_id"] for row in rows]
    assert log.n_searches == len(set(searches)) == 40
    for a, b in zip(log.starts[:-1], log.starts[1:]):
        assert len(set(searches[a:b])) == 1 and (b == len(rows) or searches[b] != searches[a])
    with pytest.raises(ValueError, match="read-only"):
        log.columns["price_usd"][0] = 1.0
    with pytest.raises(TypeError):
        log.columns["price_usd"] = log.columns["srch_id"]  # type: ignore[index]


@pytest.mark.slow
def test_the_generated_file_has_the_traits_of_the_original() -> None:
    rows = parse(searches_csv())
    assert len(NAMES) == 54 and "gross_bookings_usd" in NAMES
    assert {row["prop_review_score"] for row in rows} >= {"", "0.000000"}
    assert {row["visitor_hist_starrating"] for row in rows} >= {"NULL"}
    assert {row["prop_starrating"] for row in rows} == set("012345")
    groups: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault(row["srch_id"], []).append(row)
    assert all(5 <= len(group) <= 38 for group in groups.values())
    without = 0
    for group in groups.values():
        hotels = [int(row["prop_id"]) for row in group]
        assert hotels == sorted(set(hotels))
        places = sorted(int(row["position"]) for row in group)
        assert len(set(places)) == len(places) and not set(places) & set(EMPTY_PLACES)
        booked = [row for row in group if row["booking_bool"] == "1"]
        assert len(booked) <= 1 and all(row["click_bool"] == "1" for row in booked)
        assert all((row["gross_bookings_usd"] != "NULL") == (row in booked) for row in group)
        assert any(row["click_bool"] == "1" for row in group)
        without += not booked
    assert 0.2 < without / len(groups) < 0.45
    assert max(int(row["position"]) for row in rows) > 34  # the gaps push places up
    assert searches_csv(9, seed=1) == searches_csv(9, seed=1) != searches_csv(9, seed=2)
    assert set(synthetic_log().destinations) == {d for d, _, _ in DESTINATIONS}
    assert next(iter(synthetic_log().destinations)) == DESTINATIONS[0][0]
    with pytest.raises(ParameterError, match=">= 3"):
        searches_csv(2)


def test_null_empty_and_zero_as_unknown_are_missing_values() -> None:
    for text in ("NULL", "", "0", "0.000000"):
        log = load(edited(4, prop_review_score=text, prop_starrating=text, price_usd=text))
        for name in ("prop_review_score", "prop_starrating", "price_usd"):
            assert np.isnan(log.columns[name][4]), (name, text)
    log = load(edited(4, prop_location_score1="0.000000", promotion_flag="0"))
    assert log.columns["prop_location_score1"][4] == 0.0 == log.columns["promotion_flag"][4]


def test_columns_in_any_order_and_with_any_line_end_are_read() -> None:
    expected = load(CONTENT)
    rows = [{"": str(i), **dict(reversed(row.items()))} for i, row in enumerate(parse(CONTENT))]
    assert load(unparse(rows)).digest() == expected.digest()
    assert load(CONTENT.replace(b"\n", b"\r\n")).digest() == expected.digest()
    assert load(b"\xef\xbb\xbf" + CONTENT).digest() == expected.digest()
    assert load(searches_csv(40, seed=4)).digest() != expected.digest()


def test_searches_may_come_in_any_order() -> None:
    rows = parse(CONTENT)
    order = np.random.default_rng(0).permutation(len(rows))
    log = load(unparse([rows[i] for i in order]))
    known = load(CONTENT)
    np.testing.assert_array_equal(log.starts, known.starts)
    for a, b in zip(log.starts[:-1], log.starts[1:]):
        within = np.argsort(log.columns["prop_id"][a:b])
        np.testing.assert_array_equal(
            log.columns["price_usd"][a:b][within], known.columns["price_usd"][a:b]
        )
    # Line numbers are those of the file.
    shuffled = [dict(rows[i]) for i in order]
    target = next(i for i, row in enumerate(shuffled) if row["booking_bool"] == "1")
    shuffled[target]["click_bool"] = "0"
    assert f"line {target + 2}: expected a booked hotel" in refusal(unparse(shuffled))


@pytest.mark.parametrize("column", [c.name for c in COLUMNS])
def test_a_missing_column(column: str) -> None:
    required = next(c.required for c in COLUMNS if c.name == column)
    rows = [{k: v for k, v in row.items() if k != column} for row in parse(CONTENT)]
    if not required:
        log = load(unparse(rows))
        assert log.absent == (column,) and column not in log.columns
        return
    message = refusal(unparse(rows))
    assert f"line 1: expected the columns {column}, found " in message
    assert "The test file has no responses" in message


def test_other_files() -> None:
    assert "expected text, found an empty file" in refusal(b"")
    assert "is this the training file of Expedia's searches?" in refusal(b"a,b,c\n1,2,3\n")
    assert "nothing after the header" in refusal(CONTENT.splitlines(keepends=True)[0])
    assert "expected each column once, found prop_id twice" in refusal(
        CONTENT.replace(b"site_id", b"prop_id", 1)
    )
    assert "UTF-16" in refusal(CONTENT.decode().encode("utf-16"))
    assert "NUL bytes" in refusal(b"\0" + CONTENT)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("srch_id", "NULL"), ("srch_id", "x"), ("prop_id", ""), ("prop_id", "0"),
        ("prop_id", "1.5"), ("srch_destination_id", "-3"), ("booking_bool", "NULL"),
        ("booking_bool", "2"), ("click_bool", "0.5"), ("prop_starrating", "6"),
        ("prop_review_score", "-1"), ("price_usd", "-0.01"), ("price_usd", "inf"),
        ("price_usd", "nan"), ("price_usd", "12,5"), ("price_usd", "1e400"), ("position", "0"),
        ("position", "2.5"), ("position", "NULL"), ("promotion_flag", "yes"),
        ("srch_length_of_stay", "0"), ("srch_adults_count", "-1"), ("site_id", "0"),
        ("visitor_hist_adr_usd", "-5"), ("prop_location_score1", "high"),
    ],
)  # fmt: skip
def test_bad_values_are_named_with_their_line(column: str, text: str) -> None:
    message = refusal(edited(7, **{column: text}))
    assert "line 9: expected " in message
    if "," not in text:
        assert f"expected {column} to be " in message
        shown = {"": "none", "NULL": "none", "1e400": "'inf'"}.get(text, repr(text))
        assert f"found {shown}" in message


def test_checks_across_the_rows_of_a_search() -> None:
    rows = parse(CONTENT)
    first = [row for row in rows if row["srch_id"] == rows[0]["srch_id"]]
    n = len(first)
    again = unparse([*rows[:n], rows[0], *rows[n:]])
    assert f"line {n + 2}: expected each hotel once in a search" in refusal(again)
    for column, text in (("srch_length_of_stay", "9"), ("visitor_hist_adr_usd", "77.7")):
        message = refusal(edited(2, **{column: text}))
        assert f"line 4: expected {column} to be the same throughout a search" in message
    booked = next(i for i, row in enumerate(rows) if row["booking_bool"] == "1")
    message = refusal(edited(booked, click_bool="0"))
    assert f"line {booked + 2}: expected a booked hotel to be clicked" in message
    same = [i for i, r in enumerate(rows) if r["srch_id"] == rows[booked]["srch_id"]]
    other = next(i for i in same if i > booked) if same[-1] > booked else same[0]
    message = refusal(edited(other, click_bool="1", booking_bool="1"))
    assert f"line {max(other, booked) + 2}: expected at most one booking in a search" in message


def test_joined_files_are_refused() -> None:
    assert "expected srch_id to be a whole number" in refusal(CONTENT + CONTENT)
    body = CONTENT[CONTENT.index(b"\n") + 1 :]
    assert "expected each hotel once" in refusal(CONTENT + body)
    assert "expected srch_id to be a whole number" in refusal(CONTENT + b"\n")
    assert "expected srch_id to be a whole number" in refusal(CONTENT.replace(b"\n", b"\n\n", 5))


def complete_before(cut: int) -> int:
    """Return the searches that end before the line with byte `cut`."""
    lines = CONTENT[:cut].splitlines(keepends=True)
    whole = parse(b"".join(line for line in lines if line.endswith(b"\n")))
    tail = "" if lines[-1].endswith(b"\n") else lines[-1].decode()
    ids = [row["srch_id"] for row in whole]
    known = len(dict.fromkeys(ids))
    same = ids and ids[-1] == tail.split(",")[0] if "," in tail else ids[-1].startswith(tail)
    return known - bool(same)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cut=st.integers(len(CONTENT) // 3, len(CONTENT) - 1))
def test_a_file_cut_anywhere_inside_a_line_is_refused_or_repaired_on_request(cut: int) -> None:
    cut_file = CONTENT[:cut]
    if cut_file.endswith(b"\n"):  # a cut between two lines leaves no trace
        assert load(cut_file).n_searches >= 1
        return
    line = cut_file.count(b"\n") + 1
    message = refusal(cut_file)
    assert f"m.csv: line {line}: expected " in message and DROP_LAST in message
    with pytest.warns(UserWarning, match=rf"line {line} is cut off; dropped it"):
        log = load(cut_file, DROP_LAST)
    assert len(log.notes) == 1 and f"line {line}" in log.notes[0]
    assert log.n_searches == complete_before(cut)
    # What is left are complete searches of the original.
    whole = load(CONTENT)
    np.testing.assert_array_equal(log.starts, whole.starts[: len(log.starts)])
    for name, values in log.columns.items():
        np.testing.assert_array_equal(values, whole.columns[name][: len(log)])


def test_repair_accepts_no_other_damage() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(CONTENT, DROP_LAST).digest() == load(CONTENT).digest()
    assert "line 9: expected price_usd" in refusal(edited(7, price_usd="-1"), DROP_LAST)
    last = len(parse(CONTENT)) - 1
    for bad in (edited(last, price_usd="-1"), edited(last, price_usd="1,2")[:-1]):
        message = refusal(bad, DROP_LAST)
        assert f"line {last + 2}: expected" in message
        assert "repair=" not in refusal(bad)
    head = CONTENT.splitlines(keepends=True)[:4]
    assert "no complete search precedes it" in refusal(b"".join(head)[:-9], DROP_LAST)
    assert "nothing after the header" in refusal(head[0] + head[1][:-9], DROP_LAST)
    with pytest.raises(ParameterError, match="repair must be one of 'drop-last-search'"):
        dpb_data.load_searches("synthetic-expedia", repair="guess")


@pytest.mark.slow
def test_where_files_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load(CONTENT).digest()
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.csv").write_bytes(CONTENT)
    assert dpb_data.load_searches(folder / "train.csv").digest() == expected
    log = dpb_data.load_searches(folder)
    assert log.digest() == expected and log.name == "mine"
    assert repr(log).startswith("SearchLog('mine': 40 searches, ")
    (folder / "test.csv").write_text("x\n")
    assert dpb_data.load_searches(folder).digest() == expected
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("train.csv", CONTENT)
        archive.writestr("test.csv", "x\n")
    assert dpb_data.load_searches(tmp_path / "data.zip").digest() == expected
    (folder / "train.csv").rename(folder / "some.csv")
    with pytest.raises(DataError, match=r"expected train\.csv or .*Give the path of the file"):
        dpb_data.load_searches(folder)
    with pytest.raises(DataError, match="no such file"):
        dpb_data.load_searches(tmp_path / "none.csv")
    with pytest.raises(UnknownNameError, match="did you mean 'synthetic-expedia'"):
        dpb_data.load_searches("synthetic-expedi")
    with pytest.raises(DataError, match="holds ratings, expected one of searches: expedia-"):
        dpb_data.load_searches("ml-1m")
    published = "expedia-personalized-sort"
    with pytest.raises(DataError, match=r"was not found.*Get it from https://"):
        dpb_data.load_searches(published)
    monkeypatch.setenv("DPB_DATA", str(tmp_path))
    (tmp_path / published).mkdir()
    (tmp_path / published / "train.csv").write_bytes(CONTENT)
    with pytest.raises(DataError, match="expected 399,344 searches, found 40"):
        dpb_data.load_searches(published)
    report = dpb_data.check(published)
    assert not report.ok and "399,344" in report.problems[0]
    assert dpb_data.check("synthetic-expedia").ok
    with pytest.raises(DataError, match="'synthetic-expedia' holds searches"):
        dpb_data.load_ratings("synthetic-expedia")


def test_destinations() -> None:
    log = load(CONTENT)
    assert sum(log.destinations.values()) == 40
    counts = list(log.destinations.values())
    assert counts == sorted(counts, reverse=True)
    for destination, count in log.destinations.items():
        part = log.select(destination)
        assert part.n_searches == count
        assert set(part.columns["srch_destination_id"].tolist()) == {destination}
        mask = log.columns["srch_destination_id"] == destination
        np.testing.assert_array_equal(part.columns["price_usd"], log.columns["price_usd"][mask])
    with pytest.raises(ParameterError, match=r"one of the 3 in m \(most searched: 8192, 20319"):
        log.select(5)


def test_a_tie_goes_to_the_smaller_id() -> None:
    rows = parse(CONTENT)
    ids = list(dict.fromkeys(row["srch_id"] for row in rows))[:4]
    rows = [row for row in rows if row["srch_id"] in ids]
    for row in rows:
        row["srch_destination_id"] = "7" if row["srch_id"] in ids[2:] else "9"
    assert list(load(unparse(rows)).destinations) == [7, 9]


def test_messages_are_short(tmp_path: Path) -> None:
    message = refusal(edited(3, price_usd="9" * 5000 + "x"))
    assert len(message) < 400 and re.search(r"line 5: expected price_usd", message)
