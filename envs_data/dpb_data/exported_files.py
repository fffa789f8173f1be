"""Exported files: workbooks, encodings, comments, JSON lines, and lines above the header."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dpb_data.header_rows import (
    ROWS_BELOW,
    TOTALS_OUT,
    TWO_ROWS,
    filled,
    is_total,
    is_value,
    joined_header,
    total_rows,
)
from dpb_data.questions import Answer, Question
from dpb_data.table_repair import Repair
from dpb_gym.errors import DataError, ParameterError, QuestionError, shown

SEPARATORS = ",;\t|"
FIRST = "first"
"""Value of ``header=`` for a file whose first line has the names of its columns."""
_TEXT_FORMAT = re.compile(
    r"shared \||[0-9]+:[-+.0-9eE]+(:[-+.0-9eE]+)? .*\||\|.*[^|\s]\s*$"
    # a label, an importance and a tag before a namespace, or before features with values
    r"|[-+]?[0-9.]+( [-+.0-9eE]+){0,2} ('?[^\s|]*)\|"
    r"([A-Za-z_]\S* +[^\s|]| .*[^\s:|]:[-+.0-9eE]+(\s|$))"
)
"""First line of Vowpal Wabbit's text format."""
_SAMPLE = 1 << 16  # bytes of a file that show its header


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
    if raw.isascii():
        return raw, 0
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
    candidates = []
    for mark in SEPARATORS:
        rows = [*csv.reader(lines, delimiter=mark)]
        width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
        top = next((k for k, row in enumerate(rows) if filled(row) > max(1, width // 2)), 0)
        if width > 1 and len(rows) == len(lines) and {*map(len, rows[top:])} == {width}:
            candidates.append((top, -width, mark))
    top, _, mark = min(candidates, default=(0, 0, ""))
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
    below = [[field.strip() for field in row] for row in rows[1 : 1 + ROWS_BELOW]]
    if joined := joined_header(fields, below):
        repair.notes.append(TWO_ROWS)
        return TextTable(raw, above + 2, mark, tuple(joined), removed)
    return TextTable(raw, above, mark if above or blanks else "", (), removed)


def _without_totals(raw: bytes, repair: Repair) -> tuple[bytes, tuple[int, ...]]:
    """Return a text file without rows of totals, and the numbers of their lines, from 1."""
    last = raw[raw.rfind(b"\n", 0, -1) + 1 :].decode("utf-8", errors="replace")
    marks = [mark for mark in SEPARATORS if mark in last]
    if not marks or not is_total(next(csv.reader([last], delimiter=marks[0]), [])):
        return raw, ()
    mark = max(marks, key=last.count)
    lines = raw.split(b"\n")[:-1]
    rows = [line.decode("utf-8", errors="replace").split(mark) for line in lines]
    totals = total_rows([[field.strip(' "') for field in row] for row in rows])
    repair.note(TOTALS_OUT, len(totals))
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
    numbers = [*first]
    for number in then:
        for line in sorted(first):
            number += line <= number
        numbers.append(number)
    return tuple(sorted(numbers))


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
    values = [k for k in full if is_value(fields[k])]
    if not values:
        return False
    if len(values) == len(full):
        return True
    rows = [row for row in rows if len(row) == len(fields)]
    others = [k for k in full if k not in values]
    return bool(rows) and all(
        all(is_value(row[k].strip()) or not row[k].strip() for row in rows) for k in values
    ) and all(any(row[k].strip() == fields[k] for row in rows) for k in others)  # fmt: skip


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
