"""Jester matrices: no header, a leading count, 99 for missing, CSV and Excel."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from rating_files import write_fixture

import dpb_data
from dpb_data import RatingTable
from dpb_gym.errors import DataError, MissingExtraError

ROWS = [
    [10, -9.95, 10.0, -10.0, 0.0, 1.25, 2.0, 3.0, 4.0, 5.0, -0.05],
    [3, 99, 9.9, 99, 99, 99, 99, 99, 99, -1.5, 7],
    [1, *[99] * 9, 0.5],
]


def csv_file(folder: Path, rows: list[list[float]], end: str = "\n") -> Path:
    path = folder / "jester.csv"
    path.write_text("\n".join(",".join(f"{value:g}" for value in row) for row in rows) + end)
    return path


def test_first_user_and_missing_ratings(tmp_path: Path) -> None:
    table = dpb_data.load_ratings(csv_file(tmp_path, ROWS))
    assert table.user_ids.tolist() == [1, 2, 3] and table.item_ids.tolist() == list(range(1, 11))
    assert len(table) == 14 and table.rating_range == (-10.0, 10.0)
    assert table.ratings[table.users == 0].tolist() == ROWS[0][1:]
    second = table.users == 1
    assert table.item_ids[table.items[second]].tolist() == [2, 9, 10]
    assert table.ratings[second].tolist() == [9.9, -1.5, 7.0]
    assert table.timestamps is None and table.titles is None


def test_a_user_without_ratings_gets_no_index(tmp_path: Path) -> None:
    rows = [ROWS[0], [0] + [99] * 10, ROWS[2]]
    assert dpb_data.load_ratings(csv_file(tmp_path, rows)).user_ids.tolist() == [1, 3]


def changed(row: int, column: int, value: float | str) -> str:
    cells = [[f"{cell:g}" for cell in line] for line in ROWS]
    cells[row][column] = f"{value}"
    return "\n".join(",".join(line) for line in cells) + "\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (changed(1, 0, 4), r"line 2: expected the first column to count the row's ratings \(3\)"),
        (changed(1, 2, 99), r"line 2: expected the first column to count .* \(2\), found 3"),
        (
            changed(0, 3, 10.5),
            "line 1: expected joke 3 to be .* or exactly 99 for none, found '10.5'",
        ),
        (changed(0, 3, -99), "line 1: expected joke 3 .* found '-99'"),
        (changed(0, 3, "nan"), "line 1: expected joke 3 to be a number .* found 'nan'"),
        (changed(2, 10, "x"), "line 3: expected joke 10 to be a number .* found 'x'"),
        (changed(2, 4, ""), "line 3: expected joke 4 to be a number .* found ''"),
        (changed(2, 0, "one"), "line 3: expected the count to be a number, found 'one'"),
        (changed(1, 10, "7,7"), "line 2: expected 11 fields .* found 12"),
        ("count," + ",".join(f"j{i}" for i in range(10)) + "\n" + changed(0, 0, 10), "line 1: "),
        ("", "line 1: expected text, found an empty file"),
        ("3,1,2,3\n", "line 1: expected a count and at least 10 ratings"),
        (
            changed(0, 1, 99).replace("10,", "9,", 1).split("\n")[0] + "\n\n",
            "line 2: expected the count to be a number, found ''",
        ),
    ],
)
def test_bad_matrices(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "jester.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=r"jester\.csv: ") as caught:
        dpb_data.load_ratings(path, format="jester-csv")
    assert re.search(expected, str(caught.value)), caught.value


def test_only_missing_ratings(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="only missing"):
        dpb_data.load_ratings(csv_file(tmp_path, [[0] + [99] * 10]))


def test_every_truncation_inside_a_row_is_detected(tmp_path: Path) -> None:
    raw = csv_file(tmp_path, ROWS).read_bytes()
    path = tmp_path / "cut.csv"
    ends = {i + 1 for i, byte in enumerate(raw) if byte == ord("\n")}
    for cut in range(1, len(raw)):
        path.write_bytes(raw[:cut])
        if cut in ends:
            dpb_data.load_ratings(path, format="jester-csv")
        else:
            with pytest.raises(DataError, match=r"cut\.csv: line"):
                dpb_data.load_ratings(path, format="jester-csv")


def test_a_truncated_last_digit_needs_the_newline_rule(tmp_path: Path) -> None:
    """Why the final newline matters: 0.5 cut to 0. is still a number, and the count still fits."""
    raw = csv_file(tmp_path, ROWS).read_bytes()[:-2]
    path = tmp_path / "cut.csv"
    path.write_bytes(raw)
    with pytest.raises(DataError, match="line 3: expected a newline"):
        dpb_data.load_ratings(path, format="jester-csv")
    assert dpb_data.load_ratings(path, format="jester-csv", strict=False).ratings[-1] == 0.0


def test_excel_without_xlrd_says_what_to_install(
    tmp_path: Path, jokes: RatingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_fixture(jokes, tmp_path / "j", "jester-xls")
    monkeypatch.setitem(sys.modules, "xlrd", None)
    with pytest.raises(MissingExtraError, match="dpb-gym\\[data\\]"):
        dpb_data.load_ratings(folder)
    report = dpb_data.check(folder)
    assert report.counts is None and any("xlrd" in note for note in report.notes)


@pytest.mark.slow
def test_excel_sheet_reads_like_the_csv(tmp_path: Path, jokes: RatingTable) -> None:
    pytest.importorskip("xlrd", reason="xlrd is not installed: the .xls reader is not exercised")
    folder = write_fixture(jokes, tmp_path / "j", "jester-xls")
    table = dpb_data.load_ratings(folder)
    for column in ("users", "items", "ratings", "user_ids", "item_ids"):
        assert np.array_equal(getattr(table, column), getattr(jokes, column))
    raw = (folder / "jester-data-1.xls").read_bytes()
    for cut in (5, 100, len(raw) // 2, len(raw) - 4):
        (folder / "jester-data-1.xls").write_bytes(raw[:cut])
        with pytest.raises(DataError, match=r"jester-data-1\.xls: expected a complete Excel"):
            dpb_data.load_ratings(folder)


class _Sheet:
    def __init__(self, rows: list[list[object]]) -> None:
        self._rows = rows
        self.nrows = len(rows)

    def row_values(self, index: int) -> list[object]:
        return self._rows[index]


def fake_xlrd(rows: list[list[object]] | Exception) -> types.ModuleType:
    """A fake xlrd with the two functions in use, to test without the package."""

    def open_workbook(*, file_contents: bytes, logfile: object) -> object:
        if isinstance(rows, Exception):
            raise rows
        return types.SimpleNamespace(sheet_by_index=lambda index: _Sheet(rows))

    module = types.ModuleType("xlrd")
    module.open_workbook = open_workbook  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([*ROWS, [1.0] + [99.0] * 9 + [""]], "expected joke 10 to be a number .* string: ''"),
        ([[2.0] + [99.0] * 9 + [1.0]], r"row 1: expected the first column to count .* \(1\)"),
        ([], "at least 10 ratings in each row, found 0 fields"),
        (IndexError("sector"), r"expected a complete Excel 97 .* \(sector\)"),
    ],
)
def test_bad_sheets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: object, expected: str
) -> None:
    if isinstance(rows, list):
        rows = [[float(v) if isinstance(v, int) else v for v in row] for row in rows]
    monkeypatch.setitem(sys.modules, "xlrd", fake_xlrd(rows))  # type: ignore[arg-type]
    (tmp_path / "j.xls").write_bytes(b"\xd0\xcf\x11\xe0")
    with pytest.raises(DataError, match=expected):
        dpb_data.load_ratings(tmp_path / "j.xls")
