"""Repair of exported tables: decimal commas, currencies, dates and missing values, with a record.

Each rule is decided for a whole column, and the decimal mark for the table where a column alone
does not show it. Everything that is changed is in `Repair.notes` with the number of rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data.questions import Answer, Question
from dpb_data.response_words import ABSENT, NO, YES, outcomes, read_success, success_question
from dpb_gym import validation
from dpb_gym.errors import DataError, ParameterError, QuestionError

MISSING_RULES = ("drop", "median", "error")
MOST_DROPPED = 0.1
"""Largest share of rows that is left out because of missing values unless the rule is named."""
NO_CODES = "none"
"""Value of ``absent=`` for a table whose numbers are all values."""
BELOW: dict[str, Callable[[Any], Any]] = {"<0": lambda v: v < 0.0, "<=0": lambda v: v <= 0.0}
"""Values of a column in ``absent=`` that stand for all numbers below, or up to, 0."""
_NUMERIC_SHARE = 0.9  # of a column's values must be numbers (or dates) for the column to be
_UNIT = (
    "(?:(?:US|CA|AU|NZ|HK|[CAR])?[€$£¥₹₽₩₺₴₫₱₪₦]|%|CHF|EUR|USD|GBP|JPY|CNY|INR|BRL|CAD|AUD|NZD|HKD|"
    "SGD|SEK|NOK|DKK|PLN|CZK|HUF|MXN|ZAR|TRY|Fr\\.|Rs\\.?|kr\\.?|zł|Kč|Ft)"
)
_PER = "(?: ?/ ?[a-z]+| per [a-z]+)?"
_SYMBOLS = {"€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY", "₹": "INR", "US$": "USD"}
_FORM = (
    "[+-]?(?:[0-9]+|[1-9][0-9]{{0,2}}(?:{0}[0-9]{{2,3}})*{0}[0-9]{{3}})?(?:{1}[0-9]*)?"
    "(?:[eE][+-]?[0-9]+)?"
)
_FORMS = {".": _FORM.format(",", "[.]"), ",": _FORM.format("[.]", ",")}
_CODE = "^0[0-9]+$"
_SHORTEST_CODE = 3  # digits; two may be a month or an hour
_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")


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
        self, found: Mapping[str, Any], kinds: Mapping[str, str], free: Set[str], where: str
    ) -> dict[str, Any]:
        """Return repaired columns, without the rows that lack a value.

        Args:
            found: Arrow arrays by name.
            kinds: Kind of each column, see `dpb_data.column_reader.Column`.
            free: Columns whose missing values stay.
            where: Name of the table in messages.

        Raises:
            DataError: If a column is ambiguous, mixes units or lacks too many values.
        """
        import pyarrow as pa

        if self.success is not None:
            own = {name for name in self.answers if name in found}
            rules = self.success, where, self.note
            found = {**found, **{k: read_success(k, found[k], *rules) for k in own}}
        texts = {
            name: _Text(name, values, where)
            for name, values in found.items()
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
        for name, values in found.items():
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
            wanted = pa.array([] if below else [float(code) for code in listed], pa.float64())
            numbers = values.cast(pa.float64())
        except (TypeError, ValueError):
            raise ParameterError(
                f"absent=: {name} of {where} and its codes must be numbers, got {codes!r}"
            ) from None
        known = numbers.fill_null(1.0).to_numpy()
        coded = pa.chunked_array([below(known)]) if below else pc.is_in(numbers, wanted)
        count = int(pc.sum(coded).as_py() or 0)
        if not count:
            raise ParameterError(f"absent=: no value of {name} in {where} is {codes!r}")
        self.note(f"{name}: {', '.join(map(str, listed))} read as missing", count)
        return pc.if_else(coded, pa.scalar(None, pa.float64()), numbers)

    def _number(self, text: _Text, marks: set[str]) -> Any:
        """Return the numbers of a text column, with null where there is none."""
        import pyarrow.compute as pc

        mark = text.mark if text.sure else self.decimal
        if mark is None:
            mark = next(iter(marks)) if len(marks) == 1 else "."
            if text.marked and len(marks) != 1:
                raise QuestionError(_mark_question(text))
        if mark == "." and text.number is not None:
            return text.number
        other = "," if mark == "." else "."
        fits = text.fits[mark]
        grouped = fits & text.contains(other)
        plain = pc.replace_substring(text.bare, other, "")
        values = pc.if_else(fits, pc.replace_substring(plain, mark, "."), None)
        if text.unit == "%" and text.name in self.shares:
            self.note(f"{text.name}: percentages read as shares", text.units)
            return pc.divide(values.cast("float64"), 100.0)
        if text.unit:
            self.unit[text.name] = _SYMBOLS.get(text.unit, text.unit)
            self.note(f"{text.name}: {text.unit} removed", text.units)
        if mark == ",":
            self.note(f"{text.name}: decimal comma read", int((fits & text.contains(",")).sum()))
        self.note(f"{text.name}: separators of thousands removed", int(grouped.sum()))
        self.note(f"{text.name}: yes and no read as 1 and 0", text.words)
        wrong = ~fits & ~text.absent
        some = ", ".join(sorted({repr(v) for v in text.trimmed.filter(wrong)[:3].to_pylist()}))
        self.note(f"{text.name}: {some} taken as missing, since the others are numbers",
                  int(wrong.sum()))  # fmt: skip
        return values.cast("float64")

    def _levels(self, text: _Text) -> Any:
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
        return _days(moments)

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
            absent = values.is_null(nan_is_null=True).to_numpy()
            if not absent.any() or name in free:
                continue
            if self.missing == "median" and kinds[name] == "any" and not absent.all():
                number = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
                known = values.filter(~absent)
                new = float(np.median(known.to_numpy())) if number else "missing"
                clean[name] = pc.if_else(absent, pa.scalar(new), values)
                self.note(f"{name}: missing values replaced by {new!r}", int(absent.sum()))
            elif self.missing != "error":
                self.note(f"{name}: rows without a value left out", int(absent.sum()))
                dropped |= absent
        self.check_dropped(dropped, where)
        if dropped.any():
            self.rows = np.flatnonzero(~dropped)
            clean = {name: values.filter(~dropped) for name, values in clean.items()}
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


_NUMBERS = ("number", "integer", "flag")
_UNTOUCHED = ("id", "text", "time")
_CODED = ("id", "any")


class _Text:
    """A column of text: its values without spaces and units, and which of them are numbers.

    Attributes:
        fits: Mask of the numbers ``(n,)`` by decimal mark.
        absent: Mask of missing values ``(n,)``.
        numeric: Whether the column is one of numbers.
        mark: Decimal mark that more values fit.
        sure: Whether the values alone decide the mark.
        marked: A number with a comma or a point, or None.
        unit: Currency or percent sign, or None; `units` counts the values with it.
        words: Number of values such as yes and no.
        number: The values as numbers if all of them are plain ones such as 1234.5, else None.
    """

    def __init__(self, name: str, values: Any, where: str) -> None:
        import pyarrow as pa

        self.name, self.where = name, where
        self.number = _plain_numbers(values)
        self.unit: str | None = None
        self.units = 0
        self.words = 0
        if self.number is None:
            self._read(values)
        else:
            self.bare = self.trimmed = values.cast(pa.string())
            self.absent = values.is_null().to_numpy()
            fits = ~self.absent
            self.fits = {".": fits, ",": self._fit(",") if self.contains(".").any() else fits}
        counts = {mark: int(fits.sum()) for mark, fits in self.fits.items()}
        self.mark = "," if counts[","] > counts["."] else "."
        marked = self.bare.filter(
            (self.fits["."] | self.fits[","]) & (self.contains(",") | self.contains("."))
        )
        self.marked = marked[0].as_py() if len(marked) else None
        self.sure = counts["."] != counts[","] and self.marked is not None
        present = int((~self.absent).sum())
        self.numeric = present > 0 and counts[self.mark] >= _NUMERIC_SHARE * present
        if self.numeric and self.unit and self.units < present and self.unit == "%":
            raise DataError(
                f"{where}: {name} has a percent sign in {self.units:,} of {present:,} values: "
                "write all of them with it, or none"
            )

    def _read(self, values: Any) -> None:
        """Set all attributes but the mark from texts that are not all plain numbers."""
        import pyarrow as pa
        import pyarrow.compute as pc

        trimmed = pc.utf8_trim_whitespace(values.cast(pa.string()))
        lower = pc.utf8_lower(trimmed)
        self.absent = pc.is_in(lower, pa.array(ABSENT)).to_numpy() | trimmed.is_null().to_numpy()
        self.trimmed = pc.if_else(self.absent, None, trimmed)
        yes, no = (pc.is_in(lower, pa.array(words)) for words in (YES, NO))
        spaced = pc.replace_substring_regex(self.trimmed, f"(?i){_UNIT}{_PER}", "")
        bare = pc.replace_substring_regex(spaced, "[\\s\u00a0\u202f\u2009']", "")
        self.bare = pc.if_else(yes, "1", pc.if_else(no, "0", bare))
        some = pc.match_substring_regex(self.bare, "[0-9]").fill_null(False).to_numpy()
        self.fits = {mark: self._fit(mark) & some for mark in _FORMS}
        signed = pc.not_equal(spaced, self.trimmed).fill_null(False).to_numpy()
        signed &= self.fits["."] | self.fits[","]
        self.unit, self.units = self._unit(signed), int(signed.sum())
        self.words = int(pc.sum(pc.or_(yes, no)).as_py() or 0)

    def _fit(self, mark: str) -> NDArray[np.bool_]:
        """Return a mask of the values that are numbers with a decimal mark ``(n,)``."""
        import pyarrow.compute as pc

        form = f"^(?:{_FORMS[mark]})$"
        fits: NDArray[np.bool_] = pc.match_substring_regex(self.bare, form).fill_null(
            False
        ).to_numpy()  # fmt: skip
        return fits

    @property
    def padded(self) -> int:
        """Number of values of digits that begin with 0, such as 007."""
        import pyarrow.compute as pc

        some = self.trimmed.filter(pc.starts_with(self.trimmed, "0"))
        some = some.filter(pc.greater_equal(pc.utf8_length(some), _SHORTEST_CODE))
        return int(pc.sum(pc.match_substring_regex(some, _CODE)).as_py() or 0)

    def contains(self, mark: str) -> NDArray[np.bool_]:
        """Return a mask of the values with a mark ``(n,)``."""
        import pyarrow.compute as pc

        found: NDArray[np.bool_] = pc.match_substring(self.bare, mark).fill_null(False).to_numpy()
        return found

    def _unit(self, signed: NDArray[np.bool_]) -> str | None:
        some = self.trimmed.filter(signed).unique().to_pylist()
        units = {m.upper() for text in some for m in re.findall(f"(?i){_UNIT}", text)}
        names = {_SYMBOLS.get(unit, unit) for unit in units}
        if len(names) > 1 and len(some) > 1:
            raise DataError(
                f"{self.where}: {self.name} mixes {' and '.join(sorted(names))}: convert it to one"
            )
        return min(units, default=None)

    def dates(self) -> Any:
        """Return Arrow timestamps if the column holds dates, else None.

        Raises:
            DataError: If day and month cannot be distinguished.
        """
        import pyarrow.compute as pc

        day = pc.replace_substring_regex(self.trimmed, "[T ][0-9]{1,2}:[0-9]{2}.*$", "")
        found = [pc.strptime(day, format=f, unit="s", error_is_null=True) for f in _DATES]
        known = [len(values) - values.null_count for values in found]
        present = int((~self.absent).sum())
        if not present or max(known) < _NUMERIC_SHARE * present:
            return None
        best = [values for values, n in zip(found, known) if n == max(known)]
        if any(not values.equals(best[0]) for values in best):
            raise DataError(
                f"{self.where}: {self.name} has dates such as {self.trimmed[0].as_py()!r}, whose "
                "day and month may be exchanged: write them as 2026-12-31"
            )
        return best[0]


def _plain_numbers(values: Any) -> Any:
    """Return texts as numbers if all are such as 1234.5 or missing, else None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        numbers = values.cast(pa.float64())
    except (pa.ArrowException, NotImplementedError):
        return None
    finite = pc.all(pc.is_finite(numbers)).as_py()
    return numbers if finite and numbers.null_count < len(numbers) else None


def _mark_question(text: _Text) -> Question:
    mark = "," if "," in (text.marked or "") else "."
    other = "." if mark == "," else ","
    named = {",": "comma", ".": "point"}[mark]
    return Question(
        "decimal",
        f"{text.where}: {text.name} has values such as {text.marked!r}, whose {named} may separate "
        "thousands or decimals: say decimal=',' or decimal='.'.",
        (
            Answer({"decimal": mark}, f"the {named} separates decimals"),
            Answer({"decimal": other}, f"the {named} separates thousands"),
        ),
        text.name,
    )


def _days(moments: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    seconds = moments.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    return pc.divide(seconds.cast(pa.float64()), 86400.0)


def unit_of_name(name: str) -> str:
    """Return the currency in brackets at the end of a column's name, such as ``"fee (€)"``."""
    found = re.search(rf"[(\[]\s*({_UNIT})\s*[)\]]\s*$", name)
    return "" if found is None else _SYMBOLS.get(found[1], found[1])


def match_names(wanted: list[str], found: list[str], repair: Repair) -> dict[str, str]:
    """Return the actual name of each wanted column: equal, or equal but for case and spaces."""
    plain: dict[str, list[str]] = {}
    for name in found:
        plain.setdefault(name.strip().casefold(), []).append(name)
    matched = {}
    for name in wanted:
        same = plain.get(str(name).strip().casefold(), [])
        matched[name] = same[0] if name not in found and len(same) == 1 else name
        if matched[name] != name:
            repair.notes.append(f"the column {matched[name]!r} was read as {name!r}")
    return matched
