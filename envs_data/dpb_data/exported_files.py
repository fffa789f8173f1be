"""Exported files: workbooks, encodings, comments, JSON lines, and lines above the header."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpb_data import vowpal_wabbit
from dpb_data.questions import Answer, Question
from dpb_data.table_repair import Repair
from dpb_gym.errors import DataError, ParameterError, QuestionError, optional_module, shown

SEPARATORS = ",;\t|"
FIRST = "first"
"""Value of ``header=`` for a file whose first line has the names of its columns."""
_NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([T ].*)?")
_TEXT_FORMAT = re.compile(r"shared \||[0-9]+:[-+.0-9eE]+(:[-+.0-9eE]+)? .*\||\|.*[^|\s]\s*$")
"""First line of Vowpal Wabbit's text format."""
_SAMPLE = 1 << 16  # bytes of a file that show its header
_BELOW = 20  # rows that show that a header has two
_TWO_ROWS = "names of the columns read from two rows"
_TOTALS_OUT = "rows of totals left out"
_MOST_TOTALS = 0.25  # share of rows, as of subtotals
_TOTAL = re.compile(
    r"((sub|sub-|grand )?totals?|(zwischen|gesamt)?summe|(ins)?gesamt|sums?|somme|suma|totale|"
    r"totaal):?"
)


def excel_rows(path: Any, repair: Repair) -> tuple[dict[str, list[Any]], int]:
    """Return the columns of an .xlsx file and the number of its first row.

    Sheets with the same names of columns are one table. Of several tables the one with most cells
    is read. Rows above the header, which is the first row with two cells, are left out, as are
    empty rows and totals.

    Raises:
        DataError: If the file is damaged or has no rows.
        MissingExtraError: If openpyxl is not installed.
    """
    openpyxl = optional_module("openpyxl", "reading .xlsx files", "data")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book.worksheets}
    except Exception as error:  # openpyxl raises whatever its parsers raise
        raise DataError(f"{path}: expected an .xlsx file, found damage ({error})") from error
    full = {title: rows for title, rows in sheets.items() if sum(map(_filled, rows)) > 2}
    if not full:
        raise DataError(f"{path}: expected a sheet with a header and rows, found none")
    tables: dict[tuple[str, ...], dict[str, int]] = {}
    for title, rows in full.items():
        top = next((k for k, row in enumerate(rows) if _filled(row) > 1), 0)
        tables.setdefault(tuple(_texts(rows[top])), {})[title] = top
    cells = {head: sum(sum(map(_filled, full[title])) for title in tops)
             for head, tops in tables.items()}  # fmt: skip
    tops = tables[max(cells, key=cells.__getitem__)]
    top = next(iter(tops.values()))
    first, *others = tops
    rows = [*full[first], *(row for title in others for row in full[title][tops[title] + 1 :])]
    if len(full) > 1:
        some = f"only the sheet {first!r}" if not others else f"the sheets {', '.join(tops)}"
        verb = "were" if others else "was"
        repair.note(f"{some} of {', '.join(full)} {verb} read", len(rows) - top - 1)
    repair.note("rows above the header left out", top)
    names = [str(n) if n is not None else f"unnamed {k}" for k, n in enumerate(rows[top])]
    below = [_texts(row) for row in rows[top + 1 : top + 1 + _BELOW]]
    if joined := _joined_header(_texts(rows[top]), below):
        names = joined
        top += 1
        repair.notes.append(_TWO_ROWS)
    kept = [row for row in rows[top + 1 :] if _filled(row)]
    totals = _totals([_texts(row) for row in kept])
    repair.note(_TOTALS_OUT, len(totals))
    kept = [row for k, row in enumerate(kept) if k not in totals]
    return {name: [row[k] for row in kept] for k, name in enumerate(names)}, top + 2


def _texts(row: Sequence[Any]) -> list[str]:
    """Return the cells of a row as text, empty for none, fractions with two decimals."""
    return [
        "" if cell is None else f"{cell:.2f}" if isinstance(cell, float) else str(cell).strip()
        for cell in row
    ]


def _joined_header(first: Sequence[str], below: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of columns of a header of two rows, or an empty list.

    Such a header has empty cells, each below or right of a name, and its second row has texts
    where the rows below have numbers.

    Args:
        first: Cells of the first row.
        below: Cells of the next rows.
    """
    if len(below) < 2 or "" not in first or len(below[0]) != len(first):
        return []
    second = below[0]
    named = [k for k, cell in enumerate(second) if cell]
    gaps = [k for k, cell in enumerate(first) if not cell]
    if any(_is_value(cell) for cell in (*first, *second)) or not {*gaps} & {*named}:
        return []
    rows = [row for row in below[1:] if len(row) == len(first)]
    numbers = [k for k in named if rows and all(_has_digit(row[k]) for row in rows if row[k])]
    if not numbers:
        return []
    names = []
    group = ""
    for k, cell in enumerate(first):
        group = cell or group
        over = group if cell or (k in named and k) else ""
        names.append(" ".join(part for part in (over, second[k]) if part) or f"unnamed {k}")
    return names if len({*names}) == len(names) else []


def _has_digit(text: str) -> bool:
    return any(letter.isdigit() for letter in text)


def _totals(rows: Sequence[Sequence[str]]) -> set[int]:
    """Return the numbers of rows that are totals of the others.

    They are if the last row begins with a word for it. A total is larger than all other values in
    some column, so that a brand of this name is none.
    """
    if len(rows) < 3 or not _is_total(rows[-1]):
        return set()
    marked = [k for k, row in enumerate(rows) if _is_total(row)]
    if len(marked) > _MOST_TOTALS * len(rows):
        return set()
    drop = {*marked}
    others = [row for k, row in enumerate(rows) if k not in drop]
    last = rows[-1]
    larger = any(
        _number(last[k]) > max(_number(row[k]) for row in others if len(row) > k)
        for k in range(len(last))
        if _number(last[k]) > 0.0
    )
    return drop if larger else set()


def _is_total(row: Sequence[str]) -> bool:
    words = next((cell for cell in row if cell.strip()), "").strip().casefold()
    return bool(_TOTAL.fullmatch(words))


def _number(text: str) -> float:
    """Return the whole part of a number in any notation; 0 for a text without digits."""
    digits = re.sub(r"[^0-9.,]", "", text)
    whole = re.sub(r"[.,]([0-9]{1,2}|[0-9]{4,})$", "", digits)
    return float(re.sub(r"[.,]", "", whole) or 0)


def _filled(row: Sequence[Any]) -> int:
    return sum(cell not in (None, "") for cell in row)


def plain_text(raw: bytes, repair: Repair) -> bytes:
    """Return a text file as UTF-8 with line feeds and complete lines, ready for a CSV reader."""
    wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
    raw, mixed = (raw, 0) if wide else _in_utf8(raw)
    for encoding in ("utf-16",) if wide else ("utf-8-sig", "cp1252"):
        try:
            text = raw.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    else:
        return raw  # the reader says what is wrong
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.count("\n")
    if encoding != "utf-8-sig":
        repair.note(f"the file's encoding is {encoding}, not UTF-8", lines)
    repair.note("letters in cp1252 in a file in UTF-8", mixed)
    if not text.endswith("\n") and lines > 1:
        text = text[: text.rfind("\n") + 1]
        repair.note("the last line does not end, was perhaps cut off, and is left out", 1)
    return (text.rstrip("\n") + "\n").encode()


def _in_utf8(raw: bytes) -> tuple[bytes, int]:
    """Return a file in UTF-8 that has some letters in cp1252 in UTF-8, and their lines.

    A file with more letters of another encoding than of UTF-8 is returned as it is.
    """
    text = raw.decode("utf-8", errors="surrogateescape")
    odd = re.findall("[\udc80-\udcff]", text)
    if not odd or len(re.findall("[^\x00-\x7f\udc80-\udcff]", text)) <= len(odd):
        return raw, 0
    lines = sum(bool(re.search("[\udc80-\udcff]", line)) for line in text.split("\n"))
    for letter in {*odd}:
        byte = letter.encode("utf-8", "surrogateescape")
        text = text.replace(letter, byte.decode("cp1252", errors="replace"))
    return text.encode(), lines


def header_line(raw: bytes, repair: Repair) -> tuple[int, str]:
    """Return how many lines are above the header, and the separator if there are any.

    The header is the first line with values in most fields, if all lines below have as many
    fields; else the first line.
    """
    lines = raw[:_SAMPLE].decode("utf-8", errors="replace").split("\n")[:-1]
    found = []
    for mark in SEPARATORS:
        rows = [*csv.reader(lines, delimiter=mark)]
        width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
        top = next((k for k, row in enumerate(rows) if _filled(row) > max(1, width // 2)), 0)
        if width > 1 and len(rows) == len(lines) and {*map(len, rows[top:])} == {width}:
            found.append((top, -width, mark))
    top, _, mark = min(found, default=(0, 0, ""))
    repair.note("rows above the header left out", top)
    return top, mark if top else ""


@dataclass(frozen=True)
class TextTable:
    """The lines of a text file that are a table.

    Attributes:
        raw: The lines.
        above: Number of lines above the header or the first row.
        delimiter: Separator, or empty where the header shows it.
        names: Names of all columns, for a file without a header.
        removed: Numbers of the file's lines that are not in `raw`, from 1, ascending.
    """

    raw: bytes
    above: int = 0
    delimiter: str = ""
    names: tuple[str, ...] = ()
    removed: tuple[int, ...] = ()


def text_table(raw: bytes, where: str, repair: Repair) -> TextTable:
    """Return the table of a text file without comments, with the place of its header.

    Args:
        raw: The file, as `plain_text` returns it.
        where: Its name in messages.
        repair: Rules, of which `header` is read, and the record of changes.

    Raises:
        QuestionError: If the first line looks like a row.
        ParameterError: If `header` names more or fewer columns than the file has.
        DataError: If it is in Vowpal Wabbit's text format.
    """
    raw, totals = _without_totals(raw, repair)
    raw, comments, removed = _without_comments(raw, repair)
    removed = _all_removed(totals, removed)
    raw = _with_single_marks(raw, repair)
    raw, blanks = _with_tabs(raw, repair)
    above, mark = header_line(raw, repair)
    lines = raw[:_SAMPLE].decode("utf-8", errors="replace").split("\n")[:-1]
    first = lines[above] if above < len(lines) else ""
    if _TEXT_FORMAT.match(first):
        raise DataError(
            f"{where}: line 1 is of Vowpal Wabbit's text format, which has no names of columns: "
            "write the log with --dsjson, or as a table with a header"
        )
    mark = mark or ("\t" if blanks else max(SEPARATORS, key=first.count))
    rows = [*csv.reader(lines[above:], delimiter=mark)]
    fields = [field.strip() for field in rows[0]] if rows else []
    if repair.header is not None and repair.header != FIRST:
        names = repair.header
        if len(names) != len(fields):
            raise ParameterError(
                f"header= names {len(names)} columns, but {where} has {len(fields)} in its first "
                f"line: {shown(first)}"
            )
        return TextTable(raw, above, mark, tuple(names), removed)
    if repair.header is None and _is_row(fields, rows[1:]):
        said = [*csv.reader(comments[-1:], delimiter=mark)] if comments else []
        own = [name.strip() for name in said[0]] if said else []
        if len(own) == len(fields) and not _is_row(own, rows):
            repair.notes.append(f"names of the columns read from the comment {comments[-1]!r}")
            return TextTable(raw, above, mark, tuple(own), removed)
        raise QuestionError(_header_question(where, first, len(fields), above + len(removed)))
    below = [[field.strip() for field in row] for row in rows[1 : 1 + _BELOW]]
    if joined := _joined_header(fields, below):
        repair.notes.append(_TWO_ROWS)
        return TextTable(raw, above + 2, mark, tuple(joined), removed)
    return TextTable(raw, above, mark if above or blanks else "", (), removed)


def _without_totals(raw: bytes, repair: Repair) -> tuple[bytes, tuple[int, ...]]:
    """Return a text file without rows of totals, and the numbers of their lines, from 1."""
    last = raw[raw.rfind(b"\n", 0, -1) + 1 :].decode("utf-8", errors="replace")
    marks = [mark for mark in SEPARATORS if mark in last]
    if not marks or not _is_total(next(csv.reader([last], delimiter=marks[0]), [])):
        return raw, ()
    mark = max(marks, key=last.count)
    lines = raw.split(b"\n")[:-1]
    rows = [line.decode("utf-8", errors="replace").split(mark) for line in lines]
    totals = _totals([[field.strip(' "') for field in row] for row in rows])
    repair.note(_TOTALS_OUT, len(totals))
    kept = [line for k, line in enumerate(lines) if k not in totals]
    return b"\n".join([*kept, b""]), tuple(k + 1 for k in sorted(totals))


def _without_comments(raw: bytes, repair: Repair) -> tuple[bytes, list[str], tuple[int, ...]]:
    """Return a file without lines that begin with #, the first block of these, and their numbers.

    A header may begin with #: the last comment above the first row, see `text_table`.
    """
    if b"#" not in raw:
        return raw, [], ()
    lines = raw.split(b"\n")
    marked = [k for k, line in enumerate(lines) if line.startswith(b"#")]
    if not marked or len(marked) > len(lines) // 2:
        return raw, [], ()
    repair.note("lines that begin with # left out", len(marked))
    drop = {*marked}
    kept = b"\n".join(line for k, line in enumerate(lines) if k not in drop)
    above = [k for place, k in enumerate(marked) if place == k]
    texts = [lines[k].decode("utf-8", errors="replace").lstrip("#").strip() for k in above]
    return kept, texts, tuple(k + 1 for k in marked)


def _all_removed(first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of all removed lines, of which the second ones count after the first."""
    found = [*first]
    for number in then:
        for line in sorted(first):
            number += line <= number
        found.append(number)
    return tuple(sorted(found))


def _with_single_marks(raw: bytes, repair: Repair) -> bytes:
    """Return a file whose columns are separated by ``::`` with tabs."""
    lines = raw[:_SAMPLE].split(b"\n")[:-1]
    counts = {line.count(b"::") for line in lines}
    if len(lines) < 2 or len(counts) != 1 or counts == {0} or b"\t" in raw:
        return raw
    repair.note("'::' read as separator of columns", raw.count(b"\n"))
    return raw.replace(b"::", b"\t")


def _with_tabs(raw: bytes, repair: Repair) -> tuple[bytes, bool]:
    """Return a file whose columns are separated by blanks with tabs, and whether it was one."""
    lines = raw[:_SAMPLE].decode("utf-8", errors="replace").split("\n")[:-1]
    widths = {len(line.split()) for line in lines}
    if any(mark in line for line in lines for mark in SEPARATORS) or len(widths) != 1:
        return raw, False
    if max(widths) < 2 or len(lines) < 2 or any('"' in line for line in lines):
        return raw, False
    repair.note("blanks read as separators of columns", raw.count(b"\n"))
    joined = (b"\t".join(line.split()) for line in raw.split(b"\n"))
    return b"\n".join(joined), True


def _is_row(fields: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the fields of a first line are values, not names of columns.

    They are if all are numbers or dates; or if those columns hold numbers and every other field
    comes again in its column.
    """
    full = [k for k, field in enumerate(fields) if field]
    values = [k for k in full if _is_value(fields[k])]
    if not values:
        return False
    if len(values) == len(full):
        return True
    rows = [row for row in rows if len(row) == len(fields)]
    others = [k for k in full if k not in values]
    return bool(rows) and all(
        all(_is_value(row[k].strip()) or not row[k].strip() for row in rows) for k in values
    ) and all(any(row[k].strip() == fields[k] for row in rows) for k in others)  # fmt: skip


def _is_value(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text) or _DATE.fullmatch(text))


def _header_question(where: str, first: str, width: int, above: int) -> Question:
    names = [f"NAME{k}" for k in range(1, width + 1)]
    some = [*names[:2], "..."] if width > 3 else names
    return Question(
        "header",
        f"{where}: line {above + 1} looks like a row, not like names of {width} columns: "
        f"{shown(first)}. What are the columns called?",
        (
            Answer({"header": some}, "the names, in the order of the columns", pattern=True),
            Answer({"header": FIRST}, "this line has the names"),
        ),
    )


def json_columns(
    raw: bytes, where: str
) -> tuple[dict[str, list[Any]], tuple[int, ...]] | None:  # fmt: skip
    """Return the columns of JSON lines or of a JSON list of objects, and numbers of empty lines.

    The columns of objects inside of objects have names such as ``customer.age``.
    Logs of Vowpal Wabbit become rounds, see `dpb_data.vowpal_wabbit.table`. None for other text.

    Raises:
        DataError: If a line is damaged, or holds a list, or a name stands for objects and values.
    """
    text = raw.decode("utf-8", errors="replace").lstrip("\ufeff")
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return None
    lines = text.split("\n")
    if start == "{":
        numbers = [k for k, line in enumerate(lines, start=1) if line.strip()]
        places = [f"line {k}" for k in numbers]
        records = [_json(f"{where}: line {k}", lines[k - 1]) for k in numbers]
        empty = tuple(k for k in range(1, numbers[-1]) if not lines[k - 1].strip())
    else:
        records = _json(where, text)
        places = [f"entry {k}" for k in range(1, len(records) + 1)]
        empty = ()
    if any(isinstance(record, dict) and vowpal_wabbit.is_round(record) for record in records[:1]):
        return vowpal_wabbit.table(lines), ()
    plain = [record for record in records if isinstance(record, dict)]
    objects = {name for record in plain for name, value in record.items()
               if isinstance(value, dict)}  # fmt: skip
    if not any(record.get(name) is not None and not isinstance(record.get(name), dict)
               for name in objects for record in plain):  # fmt: skip
        records = [_flat(record) if isinstance(record, dict) else record for record in records]
    names = dict.fromkeys(name for record in records if isinstance(record, dict) for name in record)
    for place, record in zip(places, records):
        if not isinstance(record, dict):
            raise DataError(f"{where}: {place}: expected an object, got {shown(record)}")
        inner = [name for name, value in record.items() if isinstance(value, (dict, list))]
        if inner:
            raise DataError(
                f"{where}: {place}: {inner[0]} holds {shown(record[inner[0]])}: write it as "
                "columns of plain values"
            )
    return {name: [record.get(name) for record in records] for name in names}, empty


def _flat(record: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return an object without objects inside, whose names are joined by points."""
    found = {}
    for name, value in record.items():
        own = f"{before}{name}"
        found |= _flat(value, f"{own}.") if isinstance(value, dict) else {own: value}
    return found


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{where}: expected JSON ({error})") from error


def as_columns(source: Any) -> Any:
    """Return a list of mappings as columns; any other source unchanged."""
    if not (isinstance(source, list) and source and all(isinstance(r, Mapping) for r in source)):
        return source
    names = dict.fromkeys(str(name) for row in source for name in row)
    return {name: [row.get(name) for row in source] for name in names}
