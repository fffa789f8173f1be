"""Damaged and foreign files: always a DataError that names file, line, expected and found."""

from __future__ import annotations

import re
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rating_files import write_fixture

import dpb_data
from dpb_data import data_files, excel_files, parquet_files
from dpb_data.column_reader import take_columns
from dpb_data.formats import FORMATS
from dpb_data.table_column import Column
from dpb_gym.errors import DataError, DPBError

HEADER = "userId,movieId,rating,timestamp"
GOOD = {
    "ml-csv": f"{HEADER}\n1,10,4.0,964982703\n1,20,0.5,1147880044\n2,10,5.0,1537208657\n",
    "ml-100k": "1\t10\t4\t964982703\n1\t20\t1\t1147880044\n2\t10\t5\t1537208657\n",
    "ml-1m": "1::10::4::964982703\n1::20::1::1147880044\n2::10::5::1537208657\n",
    "ml-10m": "1::10::4::964982703\n1::20::0.5::1147880044\n2::10::5::1537208657\n",
}


def write(folder: Path, format: str, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    (folder / FORMATS[format].file).write_bytes(data)
    return folder / FORMATS[format].file


def refusal(path: Path, format: str, **kwargs: bool) -> str:
    with pytest.raises(DataError) as caught:
        dpb_data.load_ratings(path, format=format, **kwargs)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("format", GOOD)
def test_the_good_file_is_good(tmp_path: Path, format: str) -> None:
    table = dpb_data.load_ratings(write(tmp_path, format, GOOD[format]), format=format)
    assert len(table) == 3


@pytest.mark.parametrize("format", GOOD)
@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ("1{d}10{d}4", r"line 2: expected 4 fields .* found 3"),
        ("1{d}10{d}4{d}964982703{d}9", r"line 2: expected 4 fields .* found 5"),
        ("one{d}10{d}4{d}964982703", "line 2: expected userId to be a whole number.*'one'"),
        ("1{d}ten{d}4{d}964982703", "line 2: expected movieId to be a whole number.*'ten'"),
        ("1{d}{d}4{d}964982703", "line 2: expected movieId to be a whole number.*''"),
        ("0{d}10{d}4{d}964982703", "line 2: expected userId .* from 1 .*'0'"),
        ("1{d}0{d}4{d}964982703", "line 2: expected movieId .* from 1 .*'0'"),
        ("-3{d}10{d}4{d}964982703", "line 2: expected userId .* from 1 .*'-3'"),
        ("99999999999{d}10{d}4{d}964982703", "line 2: expected userId .*'99999999999'"),
        ("1{d}10{d}good{d}964982703", "line 2: expected rating to be a .*'good'"),
        ("1{d}10{d}{d}964982703", "line 2: expected rating to be a .*''"),
        ("1{d}10{d}6{d}964982703", "line 2: expected rating to be a .* to 5, found '6'"),
        ("1{d}10{d}0{d}964982703", "line 2: expected rating to be a .*'0'"),
        ("1{d}10{d}-1{d}964982703", "line 2: expected rating to be a .*'-1'"),
        ("1{d}10{d}4.25{d}964982703", "line 2: expected rating to be a .*'4.25'"),
        ("1{d}10{d}nan{d}964982703", "line 2: expected rating to be a .*'nan'"),
        ("1{d}10{d}NaN{d}964982703", "line 2: expected rating to be a .*'nan'"),
        ("1{d}10{d}inf{d}964982703", "line 2: expected rating to be a .*'inf'"),
        ("1{d}10{d}4{d}yesterday", "line 2: expected timestamp .*'yesterday'"),
        ("1{d}10{d}4{d}964982703.5", "line 2: expected timestamp .*'964982703.5'"),
        ("1{d}10{d}4{d}96498270", "line 2: expected timestamp .*cut off.*'96498270'"),
        ("1{d}10{d}4{d}964982703000", "line 2: expected timestamp .*'964982703000'"),
        ("", "line 2: expected userId .* found ''"),
        ("1{d}10{d}4{d}9649\x0082703", "line 2: .*NUL"),
        ('1{d}10{d}4{d}"964982703"', "line 2: expected timestamp"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, format: str, bad: str, expected: str) -> None:
    lines = GOOD[format].split("\n")
    lines.insert(1, bad.replace("{d}", FORMATS[format].delimiter))
    if FORMATS[format].header is None:
        lines[1], lines[0] = lines[1], lines[0]
    message = refusal(write(tmp_path, format, "\n".join(lines)), format)
    assert re.search(expected, message), message


@pytest.mark.parametrize("format", ["ml-100k", "ml-1m"])
def test_whole_star_formats_reject_half_stars(tmp_path: Path, format: str) -> None:
    bad = GOOD[format].replace(
        FORMATS[format].delimiter + "4" + FORMATS[format].delimiter,
        FORMATS[format].delimiter + "3.5" + FORMATS[format].delimiter,
    )
    message = refusal(write(tmp_path, format, bad), format)
    assert "line 1: expected rating to be a whole number from 1 to 5, found '3.5'" in message


@pytest.mark.parametrize("format", GOOD)
def test_every_truncation_is_detected(tmp_path: Path, format: str) -> None:
    """A file cut anywhere but between two lines is rejected, also inside the last digits."""
    raw = GOOD[format].encode()
    ends = {i + 1 for i, byte in enumerate(raw) if byte == ord("\n")}
    first = len(HEADER) + 1 if format == "ml-csv" else 0
    for cut in range(len(raw)):
        path = write(tmp_path, format, raw[:cut])
        if cut in ends and cut > first:
            assert len(dpb_data.load_ratings(path, format=format)) < 3
        else:
            assert ": line " in refusal(path, format)


@pytest.mark.parametrize("format", GOOD)
def test_a_truncated_last_timestamp_is_detected_without_the_newline_rule(
    tmp_path: Path, format: str
) -> None:
    shortened = GOOD[format][:-2] + "\n"
    assert "'153720865'" in refusal(write(tmp_path, format, shortened), format)


def test_truncation_between_lines_is_detected_by_known_counts(tmp_path: Path) -> None:
    whole = dpb_data.synthetic.movielens(step=1.0)
    folder = write_fixture(whole, tmp_path / "mine", "ml-100k")
    lines = (folder / "u.data").read_bytes().splitlines(keepends=True)
    (folder / "u.data").write_bytes(b"".join(lines[:-7]))
    with pytest.raises(
        DataError, match=r"u\.info: line 3: it declares 12,000 ratings, found 11,993"
    ):
        dpb_data.load_ratings(folder)
    assert len(dpb_data.load_ratings(folder, strict=False)) == 11_993

    half = dpb_data.synthetic.movielens()
    for zipped in (False, True):
        place = write_fixture(half, tmp_path / "ml-25m", "ml-25m", zipped=zipped)
        with pytest.raises(DataError, match=r"expected 25,000,095 ratings, found 12,000"):
            dpb_data.load_ratings(place)
        assert len(dpb_data.load_ratings(place, strict=False)) == 12_000


def test_missing_final_newline_is_for_strict_only(tmp_path: Path) -> None:
    for format, content in GOOD.items():
        path = write(tmp_path, format, content.rstrip("\n"))
        assert "line" in refusal(path, format) and "newline" in refusal(path, format)
        assert len(dpb_data.load_ratings(path, format=format, strict=False)) == 3


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "line 1: expected .* found an empty file"),
        (HEADER.encode() + b"\n", "line 2: expected .* found nothing after the header"),
        (b"1,10,4.0,964982703\n", "line 1: expected the header .* found '1,10,4.0,964982703'"),
        (b"movieId,userId,rating,timestamp\n1,1,4.0,964982703\n", "line 1: expected the header"),
        (HEADER.encode() + b",x\n1,1,4.0,964982703,1\n", "line 1: expected the header"),
        (GOOD["ml-csv"].encode("utf-16"), "line 1: expected plain text, found UTF-16"),
        (GOOD["ml-csv"].encode("utf-16-le"), "line 1: .*NUL bytes"),
        (b"\x1f\x8b\x08\x00abc\n", "line 1: .*(NUL|gzip)"),
        (bytes(range(256)) * 40, "line 1: "),
        (GOOD["ml-csv"].replace(",", ";").encode(), "line 1: expected the header"),
    ],
)
def test_foreign_files(tmp_path: Path, content: bytes, expected: str) -> None:
    assert re.search(expected, refusal(write(tmp_path, "ml-csv", content), "ml-csv"))


def test_joined_files(tmp_path: Path) -> None:
    path = write(tmp_path, "ml-csv", GOOD["ml-csv"] * 2)
    assert (
        "line 5: expected userId to be a whole number from 1 to 2147483647, found 'userId'"
        in refusal(path, "ml-csv")
    )
    path = write(tmp_path, "ml-csv", GOOD["ml-csv"] + GOOD["ml-csv"].split("\n", 1)[1])
    message = refusal(path, "ml-csv", strict=False)
    assert "line 5: expected each user to rate an item once" in message
    assert "user 1 rating item 10 already in line 2" in message


@pytest.mark.parametrize("format", GOOD)
def test_carriage_returns_end_lines_only_before_a_newline(tmp_path: Path, format: str) -> None:
    content = GOOD[format].replace("\n", "\r\n")
    assert len(dpb_data.load_ratings(write(tmp_path, format, content), format=format)) == 3
    lines = GOOD[format].split("\n", 2)
    for bad in ("\r".join(lines), lines[0] + "\n\r" + lines[1] + "\n" + lines[2]):
        message = refusal(write(tmp_path, format, bad), format, strict=False)
        assert re.search(r"line [12]: expected .*\\r", message), message


def test_a_single_colon_is_no_separator(tmp_path: Path) -> None:
    for bad in (GOOD["ml-1m"].replace("::", ":"), GOOD["ml-1m"].replace("::", ":::", 1)):
        assert "line 1: " in refusal(write(tmp_path, "ml-1m", bad), "ml-1m")
    # the reader's replacement of "::" is not a separator in files
    bad = GOOD["ml-1m"].replace("::", "\x1f")
    assert "line 1: found a control character" in refusal(write(tmp_path, "ml-1m", bad), "ml-1m")


ALPHABET = [bytes([b]) for b in b'0123456789.,:;-eE\n\r\t "\0\xff'] + [b"nan", b"::", b"inf"]


def reference(raw: bytes, delimiter: str, header: str | None) -> list[tuple[int, int, float, int]]:
    """A strict plain reader: raises ValueError on anything irregular."""
    lines = re.split(r"\r?\n", raw.decode("ascii"))
    if lines.pop() != "" or (header is not None and lines.pop(0) != header):
        raise ValueError("end or header")
    rows = []
    for line in lines:
        user, item, rating, stamp = line.split(delimiter)
        if "\r" in line:
            raise ValueError("carriage return")
        rows.append((int(user), int(item), float(rating), int(stamp)))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("format", GOOD)
@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_mutated_files_never_load_wrongly(tmp_path: Path, format: str, data: st.DataObject) -> None:
    """After any small edit: rejected with file and line, or read exactly."""
    raw = GOOD[format].encode()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        drop = data.draw(st.integers(0, 3))
        raw = raw[:at] + data.draw(st.sampled_from([b"", *ALPHABET])) + raw[at + drop :]
    fmt = FORMATS[format]
    path = write(tmp_path, format, raw)
    try:
        table = dpb_data.load_ratings(path, format=format)
    except DPBError as error:
        assert isinstance(error, DataError) and f"{path}: line " in str(error), str(error)
        return
    assert table.timestamps is not None
    rows = list(
        zip(
            table.user_ids[table.users].tolist(),
            table.item_ids[table.items].tolist(),
            table.ratings.tolist(),
            table.timestamps.tolist(),
        )
    )
    assert rows == reference(raw, fmt.delimiter, fmt.header)


@pytest.mark.parametrize("format", ["ml-csv", "ml-10m", "ml-100k"])
def test_damaged_archives(tmp_path: Path, format: str) -> None:
    step = 1.0 if format == "ml-100k" else 0.5
    table = dpb_data.synthetic.movielens(step=step)
    archive = write_fixture(table, tmp_path / "m", format, zipped=True)
    raw = archive.read_bytes()
    archive.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(DataError, match=r"m\.zip: expected a complete zip archive"):
        dpb_data.load_ratings(archive)
    for at in (200, len(raw) // 3):  # inside compressed data: only the check sum detects it
        archive.write_bytes(raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :])
        with pytest.raises(DataError, match=r"m\.zip"):
            dpb_data.load_ratings(archive)
    archive.write_bytes(b"")
    with pytest.raises(DataError, match=r"m\.zip: expected a complete zip archive"):
        dpb_data.load_ratings(archive)


class TestFilesThatUnpackToMuchMore:
    """A table of a few kB must not take more memory than one of its size should."""

    @pytest.fixture(autouse=True)
    def limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Half a MB, so that files that exceed it are made quickly."""
        monkeypatch.setattr(parquet_files, "SMALL", 1 << 19)
        monkeypatch.setattr(parquet_files, "_memory", lambda: 0)
        monkeypatch.setattr(excel_files, "MOST_CELLS", 100_000)

    def parquet(self, folder: Path, prices: Any, **options: Any) -> Path:
        path = folder / "sales.parquet"
        table = pa.table({"price": prices, "bought": pa.array([0, 1] * (len(prices) // 2))})
        pq.write_table(table, path, compression="zstd", **options)
        return path

    def refused(self, path: Path, columns: Any = ("price", "bought")) -> str:
        tracemalloc.start()
        before = pa.total_allocated_bytes()
        try:
            with pytest.raises(DataError) as caught:
                take_columns(path, [Column(name) for name in columns])
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
            assert pa.total_allocated_bytes() - before < 8 << 20
        finally:
            tracemalloc.stop()
        return str(caught.value)

    def test_rows_of_equal_values(self, tmp_path: Path) -> None:
        path = self.parquet(tmp_path, pa.array(np.ones(100_000, np.int8)))
        assert path.stat().st_size < 4000
        assert "unpack to 100,000 rows" in self.refused(path)

    def test_a_long_text_in_every_row(self, tmp_path: Path) -> None:
        path = self.parquet(tmp_path, pa.array(["x" * 10_000] * 2000))
        assert path.stat().st_size < 4000
        assert "unpack to 2,000 rows" in self.refused(path)

    def test_texts_that_are_written_out(self, tmp_path: Path) -> None:
        path = self.parquet(tmp_path, pa.array(["x" * 10_000] * 2000), use_dictionary=False)
        assert "unpack to 2,000 rows" in self.refused(path)

    def test_long_texts_that_differ(self, tmp_path: Path) -> None:
        texts = pa.array([f"{k:06}" + "x" * 100_000 for k in range(200)])
        path = self.parquet(tmp_path, texts, use_dictionary=False)
        assert path.stat().st_size < 20_000
        del texts
        assert "unpack to 200 rows" in self.refused(path)

    def test_a_larger_machine_may_take_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = self.parquet(tmp_path, pa.array(np.ones(100_000, np.int8)))
        monkeypatch.setattr(parquet_files, "_memory", lambda: 1 << 26)
        _, read = take_columns(path, [Column("price"), Column("bought")])
        assert read["price"].sum() == 100_000

    def test_categories(self, tmp_path: Path) -> None:
        path = self.parquet(tmp_path, pa.array(["x" * 10_000] * 2000).dictionary_encode())
        assert "unpack to 2,000 rows" in self.refused(path)

    @pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.large_string()])
    def test_other_long_values(self, tmp_path: Path, kind: Any) -> None:
        path = self.parquet(tmp_path, pa.array(["x" * 10_000] * 2000).cast(kind))
        assert "unpack to 2,000 rows" in self.refused(path)

    @pytest.mark.parametrize(
        "values",
        [
            lambda: pa.array([[1] * 10_000] * 2000),
            lambda: pa.array([{"a": 1}] * 2000),
            lambda: pa.array([b"x" * 10_000] * 2000, pa.binary(10_000)),
        ],
    )
    def test_values_that_are_not_single_ones(self, tmp_path: Path, values: Any) -> None:
        path = self.parquet(tmp_path, values())
        assert "expected price to be numbers or texts, found" in self.refused(path)

    @pytest.mark.parametrize("rows", [10, 20_000])
    def test_other_tables_are_read(self, tmp_path: Path, rows: int) -> None:
        prices = pa.array([f"{k}.5" for k in range(rows)])
        path = self.parquet(tmp_path, prices, row_group_size=7000)
        _, read = take_columns(path, [Column("price"), Column("bought")])
        assert read["price"].tolist() == [k + 0.5 for k in range(rows)]
        assert read["bought"].tolist() == [0, 1] * (rows // 2)

    def sheet(self, folder: Path, far: int) -> Path:
        """A sheet of 300 rows of two cells, the second one in column `far`."""
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet("Sales")
        sheet.append(["price", *[None] * (far - 2), "bought"])
        for k in range(299):
            sheet.append([1.5 + k, *[None] * (far - 2), k % 2])
        book.save(folder / "sales.xlsx")
        return folder / "sales.xlsx"

    def test_empty_cells_of_a_sheet(self, tmp_path: Path) -> None:
        message = self.refused(self.sheet(tmp_path, 4000))
        assert "sheet 'Sales' has more cells than a file of this size should" in message

    def test_a_cell_of_another_format_far_away_does_no_harm(self, tmp_path: Path) -> None:
        """Cells without a value, as of whole rows and columns in bold."""
        openpyxl = pytest.importorskip("openpyxl")
        path = self.sheet(tmp_path, 2)
        book = openpyxl.load_workbook(path)
        for place in ("XFD1", "C2000"):
            book.active[place].font = openpyxl.styles.Font(bold=True)
        book.save(path)
        _, read = take_columns(path, [Column("price"), Column("bought")])
        assert read["price"].tolist() == [1.5 + k for k in range(299)]

    def test_a_long_text_in_many_cells(self, tmp_path: Path) -> None:
        """An array of texts of one length would have 32,000 letters for each of them."""
        texts = ["yes", "no"] * 20_000 + ["x" * 32_000]
        tracemalloc.start()
        try:
            _, read = take_columns({"note": texts}, [Column("note", kind="text")])
            assert tracemalloc.get_traced_memory()[1] < 50 << 20
        finally:
            tracemalloc.stop()
        assert read["note"].tolist() == texts

    def test_other_sheets_are_read(self, tmp_path: Path) -> None:
        path = self.sheet(tmp_path, 2)
        _, read = take_columns(path, [Column("price"), Column("bought")])
        assert read["price"].tolist() == [1.5 + k for k in range(299)]

    def test_packed_parts_of_a_sheet(self, tmp_path: Path) -> None:
        path = tmp_path / "sales.xlsx"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("xl/sharedStrings.xml", b" " * (data_files.SMALL + 1))
        assert "more than any known data set needs" in self.refused(path)
