"""Repair of exported tables: decimal commas, currencies, dates and missing values, with a record.

Each rule is decided for a whole column, and the decimal mark for the table where a column alone
does not show it. Everything that is changed is in `Repair.notes` with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpb_data.arrow_arrays import from_numpy, scalar, to_numpy
from dpb_data.questions import Answer, Question
from dpb_data.response_words import outcomes, read_success, success_question
from dpb_data.text_columns import SYMBOLS, TextColumn, days, mark_question
from dpb_gym import validation
from dpb_gym.errors import ParameterError, QuestionError

Parsed: TypeAlias = dict[str, tuple[Any, TextColumn]]
"""Columns of a table that were parsed: their values and what they are read as, by name."""
MISSING_RULES = ("drop", "median", "error")
MOST_DROPPED = 0.1
"""Largest share of rows that is left out because of missing values unless the rule is named."""
NO_CODES = "none"
"""Value of ``absent=`` for a table whose numbers are all values."""
BELOW: dict[str, Callable[[Any], Any]] = {"<0": lambda v: v < 0.0, "<=0": lambda v: v <= 0.0}
"""Values of a column in ``absent=`` that stand for all numbers below, or up to, 0."""


@dataclass
class Repair:
    """Rules for reading an exported table, and a record of what they changed.

    Attributes:
        missing: Rule for missing values: ``"drop"`` leaves the rows out, ``"median"`` replaces
            numbers by the median and text by the level ``"missing"`` in features (other rows are
            left out), ``"error"`` raises. None is ``"drop"`` for at most 10% of the rows, else an
            error.
        decimal: ``"."`` or ``","`` where the values of a column fit both; None to decide by the
            other columns.
        header: Names of all columns, for a text file whose first line is a row; ``"first"`` if
            the first line has the names although it looks like a row; None to decide by the file.
        absent: Numbers that stand for a missing value by column, one or a list, such as
            ``{"age": -999}``, or a text of `BELOW`; ``"none"`` if all numbers are values; None to
            ask.
        shares: Columns of which percentages are divided by 100.
        success: Values of a response that mean yes, one or a list, such as ``"confirmed"``; all
            others mean no. None: 1, and words such as yes.
        answers: Columns of responses, to which `success` applies.
        notes: One sentence per rule and column, with the number of rows.
        unit: Currency or percent sign of each column, by name.
        rows: Numbers of the rows that remain ``(n,)``, or None for all.
        wrong: Row and value of the first text in a column of numbers that is mostly text, by name.
        codes: Columns of digits that are texts, as some begin with 0.
    """

    missing: str | None = None
    decimal: str | None = None
    header: Sequence[str] | str | None = None
    absent: Mapping[str, Any] | str | None = None
    shares: Set[str] = frozenset()
    success: Any = None
    answers: Set[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    unit: dict[str, str] = field(default_factory=dict)
    rows: NDArray[Any] | None = None
    wrong: dict[str, tuple[int, str]] = field(default_factory=dict)
    codes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        validation.optional(validation.choice, "missing", self.missing, MISSING_RULES)
        validation.optional(validation.choice, "decimal", self.decimal, (".", ","))
        if isinstance(self.header, str) and self.header != "first":
            raise ParameterError(
                "header= lists the names of all columns, or is 'first' if the first line has them, "
                f"got {self.header!r}"
            )
        if self.absent not in (None, NO_CODES) and not isinstance(self.absent, Mapping):
            raise ParameterError(
                "absent= gives numbers that stand for missing values by column, such as "
                f"{{'age': -999}}, or is 'none', got {self.absent!r}"
            )

    def note(self, what: str, rows: int) -> None:
        """Record a change of `rows` rows."""
        text = f"{what} ({rows:,} {'row' if rows == 1 else 'rows'})"
        if rows and text not in self.notes:
            self.notes.append(text)

    def columns(
        self,
        given: Mapping[str, Any],
        kinds: Mapping[str, str],
        free: Set[str],
        where: str,
        parsed: Parsed | None = None,
    ) -> dict[str, Any]:
        """Return repaired columns, without the rows that lack a value.

        Args:
            given: Arrow arrays by name.
            kinds: Kind of each column, see `dpb_data.column_reader.Column`.
            free: Columns whose missing values stay.
            where: Name of the table in messages.
            parsed: Columns that were parsed before; those of this call are added.

        Raises:
            DataError: If a column is ambiguous, mixes units or lacks too many values.
        """
        import pyarrow as pa

        if self.success is not None:
            own = {name for name in self.answers if name in given}
            rules = self.success, where, self.note
            given = {**given, **{k: read_success(k, given[k], *rules) for k in own}}
        texts = {
            name: _text_column(name, values, where, parsed)
            for name, values in given.items()
            if pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
            if kinds[name] != "code"
        }
        for name, text in texts.items():
            if kinds[name] in _CODED and (count := text.padded):
                self.codes.add(name)
                self.note(f"{name}: digits read as codes, since some begin with 0", count)
        numeric = {
            k: t for k, t in texts.items()
            if t.numeric and kinds[k] not in _UNTOUCHED and k not in self.codes
        }  # fmt: skip
        for name, text in texts.items():
            bad = ~(text.fits[text.mark] | text.absent)
            if kinds[name] in _NUMBERS and name not in numeric and bad.any():
                levels = outcomes(text.trimmed.to_pylist()) if name in self.answers else {}
                if levels:
                    raise QuestionError(success_question(where, name, levels))
                row = int(bad.argmax())
                self.wrong[name] = row, text.trimmed[row].as_py()
        marks = {t.mark for t in numeric.values() if t.sure}
        clean = {}
        for name, values in given.items():
            text = texts.get(name)
            if name in numeric:
                clean[name] = self._number(numeric[name], marks)
            elif pa.types.is_temporal(values.type) and kinds[name] == "any":
                clean[name] = self._days(name, values.cast(pa.timestamp("us")))
            elif text is None or kinds[name] == "time":
                clean[name] = values
            elif name in self.codes:
                clean[name] = text.trimmed
            elif kinds[name] in ("text", "id") or (dates := text.dates()) is None:
                clean[name] = self._levels(text) if kinds[name] == "any" else text.trimmed
            else:
                clean[name] = self._days(name, dates)
        for name, codes in (self.absent if isinstance(self.absent, Mapping) else {}).items():
            if name in clean:
                clean[name] = self._without_codes(name, clean[name], codes, where)
        return self._without_missing(clean, kinds, free, where)

    def _without_codes(self, name: str, values: Any, codes: Any, where: str) -> Any:
        """Return numbers with null in place of codes for missing values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        below = BELOW.get(codes) if isinstance(codes, str) else None
        listed = codes if isinstance(codes, (list, tuple)) else [codes]
        try:
            wanted = from_numpy(np.array([] if below else [float(c) for c in listed], np.float64))
            numbers = values.cast(pa.float64())
        except (TypeError, ValueError):
            raise ParameterError(
                f"absent=: {name} of {where} and its codes must be numbers, got {codes!r}"
            ) from None
        known = to_numpy(numbers.fill_null(scalar(1.0)))
        coded = pa.chunked_array([below(known)]) if below else pc.is_in(numbers, wanted)
        count = int(pc.sum(coded).as_py() or 0)
        if not count:
            raise ParameterError(f"absent=: no value of {name} in {where} is {codes!r}")
        self.note(f"{name}: {', '.join(map(str, listed))} read as missing", count)
        return pc.if_else(coded, pa.nulls(1, pa.float64())[0], numbers)

    def _number(self, text: TextColumn, marks: set[str]) -> Any:
        """Return the numbers of a text column, with null where there is none."""
        import pyarrow.compute as pc

        mark = text.mark if text.sure else self.decimal
        if mark is None:
            mark = next(iter(marks)) if len(marks) == 1 else "."
            if text.marked and len(marks) != 1:
                raise QuestionError(mark_question(text))
        if mark == "." and text.number is not None:
            return text.number
        other = "," if mark == "." else "."
        fits = text.fits[mark]
        grouped = fits & text.contains(other)
        plain = pc.replace_substring(text.bare, other, "")
        values = pc.if_else(from_numpy(fits), pc.replace_substring(plain, mark, "."), None)
        if text.unit == "%" and text.name in self.shares:
            self.note(f"{text.name}: percentages read as shares", text.units)
            return pc.divide(values.cast("float64"), scalar(100.0))
        if text.unit:
            self.unit[text.name] = SYMBOLS.get(text.unit, text.unit)
            self.note(f"{text.name}: {text.unit} removed", text.units)
        if text.piece:
            self.note(f"{text.name}: {text.piece} removed", len(values) - values.null_count)
        if mark == ",":
            self.note(f"{text.name}: decimal comma read", int((fits & text.contains(",")).sum()))
        self.note(f"{text.name}: separators of thousands removed", int(grouped.sum()))
        self.note(f"{text.name}: yes and no read as 1 and 0", text.words)
        self.note(f"{text.name}: words for 'from' before numbers removed", text.begun)
        wrong = ~fits & ~text.absent
        some = ", ".join(
            sorted({repr(v) for v in text.trimmed.filter(from_numpy(wrong))[:3].to_pylist()})
        )
        self.note(f"{text.name}: {some} taken as missing, since the others are numbers",
                  int(wrong.sum()))  # fmt: skip
        return values.cast("float64")

    def _levels(self, text: TextColumn) -> Any:
        """Return a text column whose levels that differ only in case are merged."""
        import pyarrow.compute as pc

        lower = pc.utf8_lower(text.trimmed)
        if pc.count_distinct(lower).as_py() == pc.count_distinct(text.trimmed).as_py():
            return text.trimmed
        different = int(pc.sum(pc.not_equal(lower, text.trimmed)).as_py() or 0)
        self.note(f"{text.name}: values in lower case, as some differ only in case", different)
        return lower

    def _days(self, name: str, moments: Any) -> Any:
        self.note(f"{name}: dates read as days since 1970-01-01", len(moments) - moments.null_count)
        return days(moments)

    def _without_missing(
        self, clean: dict[str, Any], kinds: Mapping[str, str], free: Set[str], where: str
    ) -> dict[str, Any]:
        """Apply the rule for missing values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        lengths = {len(values) for values in clean.values()}
        if len(lengths) != 1:
            return clean
        dropped = np.zeros(lengths.pop(), np.bool_)
        for name, values in clean.items():
            absent = to_numpy(values.is_null(nan_is_null=True))
            if not absent.any() or name in free:
                continue
            if self.missing == "median" and kinds[name] == "any" and not absent.all():
                number = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
                known = values.filter(from_numpy(~absent))
                new = float(np.median(to_numpy(known))) if number else "missing"
                clean[name] = pc.if_else(from_numpy(absent), pa.scalar(new), values)
                self.note(f"{name}: missing values replaced by {new!r}", int(absent.sum()))
            elif self.missing != "error":
                self.note(f"{name}: rows without a value left out", int(absent.sum()))
                dropped |= absent
        self.check_dropped(dropped, where)
        if dropped.any():
            self.rows = np.flatnonzero(~dropped)
            rest = from_numpy(~dropped)
            clean = {name: values.filter(rest) for name, values in clean.items()}
        return clean

    def check_dropped(self, dropped: NDArray[np.bool_], where: str) -> None:
        """Raise DataError if the default rule leaves out too many rows or choice sets."""
        if self.missing is None and dropped.sum() > MOST_DROPPED * len(dropped):
            raise QuestionError(
                Question(
                    "missing",
                    f"{where}: {'; '.join(self.notes)}: more than {MOST_DROPPED:.0%} of "
                    f"{len(dropped):,}. Leave the column out, or name the rule: "
                    "missing='drop' or missing='median'.",
                    (
                        Answer({"missing": "drop"}, "rows without a value are left out"),
                        Answer({"missing": "median"}, "features without a value get the median"),
                    ),
                )
            )


def _text_column(name: str, values: Any, where: str, parsed: Parsed | None) -> TextColumn:
    """Return a column of text, which is parsed once."""
    known = None if parsed is None else parsed.get(name)
    if known is not None and known[0] is values:
        return known[1]
    text = TextColumn(name, values, where)
    if parsed is not None:
        parsed[name] = values, text
    return text


_NUMBERS = ("number", "integer", "flag")
_UNTOUCHED = ("id", "text", "time")
_CODED = ("id", "any")


def match_names(wanted: list[str], columns: list[str], repair: Repair) -> dict[str, str]:
    """Return the actual name of each wanted column: equal, or equal but for case and spaces."""
    plain: dict[str, list[str]] = {}
    for name in columns:
        plain.setdefault(name.strip().casefold(), []).append(name)
    matched = {}
    for name in wanted:
        same = plain.get(str(name).strip().casefold(), [])
        matched[name] = same[0] if name not in columns and len(same) == 1 else name
        if matched[name] != name:
            repair.notes.append(f"the column {matched[name]!r} was read as {name!r}")
    return matched
