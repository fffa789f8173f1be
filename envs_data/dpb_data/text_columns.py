"""A column of text: which of its values are numbers, with which decimal mark and unit, or dates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data.arrow_arrays import from_numpy, from_texts, scalar, to_numpy
from dpb_data.questions import Answer, Question
from dpb_data.response_words import ABSENT, NO, YES
from dpb_gym.errors import DataError

_NUMERIC_SHARE = 0.9  # of a column's values must be numbers (or dates) for the column to be
UNIT = (
    "(?:(?:US|CA|AU|NZ|HK|[CAR])?[€$£¥₹₽₩₺₴₫₱₪₦]|%|CHF|EUR|USD|GBP|JPY|CNY|INR|BRL|CAD|AUD|NZD|HKD|"
    "SGD|SEK|NOK|DKK|PLN|CZK|HUF|MXN|ZAR|TRY|Fr\\.|Rs\\.?|kr\\.?|zł|Kč|Ft)"
)
_PER = "(?: ?/ ?\\pL+\\.?| (?:per|pro|je|par|por) \\pL+\\.?)?"
_PIECE = "^[+-]?[0-9][0-9.,]*( ?/ ?\\pL+\\.?)$"
"""A number without a currency per piece, such as 12,90/Stk."""
_FROM = f"(?i)^(?:ab|von|from|dès|desde|vanaf|à partir de) ((?:{UNIT})? ?[0-9].*)$"
"""Words for from before a number, which is the price that was shown."""
SYMBOLS = {"€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY", "₹": "INR", "US$": "USD"}
_FORM = (
    "[+-]?(?:[0-9]+|[1-9][0-9]{{0,2}}(?:{0}[0-9]{{2,3}})*{0}[0-9]{{3}})?(?:{1}[0-9]*)?"
    "(?:[eE][+-]?[0-9]+)?"
)
_FORMS = {".": _FORM.format(",", "[.]"), ",": _FORM.format("[.]", ",")}
_CODE = "^0[0-9]+$"
_HEAD = 4_096  # rows that show whether texts recur
_RECURRING = 0.25  # share of different texts, above which they hardly do
_SHORTEST_CODE = 3  # digits; two may be a month or an hour
_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")


class TextColumn:
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
        begun: Number of values such as "ab 12,90", from 12.90.
        piece: End of all values such as "/Stk" of 12,90/Stk, or empty.
        number: The values as numbers if all of them are plain ones such as 1234.5, else None.
    """

    def __init__(self, name: str, values: Any, where: str) -> None:
        import pyarrow as pa

        self.name, self.where = name, where
        self._levels = _Levels.of(values.cast(pa.string()))
        numbers = _plain_numbers(self._levels)
        self.number = None if numbers is None else self._levels.rows(numbers)
        self.unit: str | None = None
        self.units = 0
        self.words = 0
        self.begun = 0
        self.piece = ""
        if numbers is None:
            self._read()
        else:
            self._bare = self._trimmed = self._levels.texts
            self._absent = to_numpy(self._bare.is_null())
            fits = ~self._absent
            comma = self._fit(",") if self._has(".").any() else fits
            self._fits = {".": fits, ",": comma}
        self._expand()
        counts = {mark: int(fits.sum()) for mark, fits in self.fits.items()}
        self.mark = "," if counts[","] > counts["."] else "."
        marked = (self.fits["."] | self.fits[","]) & (self.contains(",") | self.contains("."))
        self.marked = self.bare[int(marked.argmax())].as_py() if marked.any() else None
        self.sure = counts["."] != counts[","] and self.marked is not None
        present = int((~self.absent).sum())
        self.numeric = present > 0 and counts[self.mark] >= _NUMERIC_SHARE * present
        if self.numeric and self.unit and self.units < present and self.unit == "%":
            raise DataError(
                f"{where}: {name} has a percent sign in {self.units:,} of {present:,} values: "
                "write all of them with it, or none"
            )

    def _read(self) -> None:
        """Set what is known of texts that are not all plain numbers, for each different one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        trimmed = pc.utf8_trim_whitespace(self._levels.texts)
        lower = pc.utf8_lower(trimmed)
        absent = pc.or_(pc.is_in(lower, from_texts(ABSENT)), trimmed.is_null())
        self._absent = to_numpy(absent)
        self._trimmed = pc.if_else(absent, pa.nulls(1, pa.string())[0], trimmed)
        yes, no = (pc.is_in(lower, from_texts(words)) for words in (YES, NO))
        unbegun = pc.replace_substring_regex(self._trimmed, _FROM, "\\1")
        spaced = pc.replace_substring_regex(unbegun, f"(?i){UNIT}{_PER}", "")
        self.piece = self._piece(spaced, absent)
        if self.piece:
            spaced = pc.replace_substring(spaced, self.piece, "")
        bare = pc.replace_substring_regex(spaced, "[\\s\u00a0\u202f\u2009']", "")
        zero, one = from_texts(("0", "1"))
        self._bare = pc.if_else(yes, one, pc.if_else(no, zero, bare))
        some = _mask(pc.match_substring_regex(self._bare, "[0-9]"))
        self._fits = {mark: self._fit(mark) & some for mark in _FORMS}
        fits = self._fits["."] | self._fits[","]
        signed = _mask(pc.not_equal(spaced, unbegun)) & fits
        begun = _mask(pc.not_equal(unbegun, self._trimmed)) & fits
        self.unit = self._unit(signed)
        self.units = int(self._levels.counts[signed].sum())
        self.begun = int(self._levels.counts[begun].sum())
        self.words = int(self._levels.counts[_mask(pc.or_(yes, no))].sum())

    def _piece(self, texts: Any, absent: Any) -> str:
        """Return what all texts end in after a number and a slash, or an empty text."""
        import pyarrow.compute as pc

        known = texts.filter(pc.invert(absent))
        if not len(known) or not pc.all(pc.match_substring_regex(known, _PIECE)).as_py():
            return ""
        ends = pc.replace_substring_regex(known, "^[+-]?[0-9.,]+", "").unique().to_pylist()
        return str(ends[0]) if len(ends) == 1 else ""

    def _expand(self) -> None:
        """Set the attributes of rows from those of their different texts."""
        levels = self._levels
        self.bare = levels.rows(self._bare)
        self.trimmed = self.bare if self._trimmed is self._bare else levels.rows(self._trimmed)
        self.absent = levels.mask(self._absent)
        self.fits = {mark: levels.mask(fits) for mark, fits in self._fits.items()}

    def _fit(self, mark: str) -> NDArray[np.bool_]:
        """Return a mask of the different texts that are numbers with a decimal mark ``(m,)``."""
        import pyarrow.compute as pc

        return _mask(pc.match_substring_regex(self._bare, f"^(?:{_FORMS[mark]})$"))

    def _has(self, mark: str) -> NDArray[np.bool_]:
        """Return a mask of the different texts with a mark ``(m,)``."""
        import pyarrow.compute as pc

        return _mask(pc.match_substring(self._bare, mark))

    @property
    def padded(self) -> int:
        """Number of values of digits that begin with 0, such as 007."""
        import pyarrow.compute as pc

        code = pc.and_(
            pc.match_substring_regex(self._trimmed, _CODE),
            pc.greater_equal(pc.utf8_length(self._trimmed), scalar(_SHORTEST_CODE, "int32")),
        )
        return int(self._levels.counts[_mask(code)].sum())

    def contains(self, mark: str) -> NDArray[np.bool_]:
        """Return a mask of the values with a mark ``(n,)``."""
        return self._levels.mask(self._has(mark))

    def _unit(self, signed: NDArray[np.bool_]) -> str | None:
        some = self._trimmed.filter(from_numpy(signed)).unique().to_pylist()
        units = {m.upper() for text in some for m in re.findall(f"(?i){UNIT}", text)}
        names = {SYMBOLS.get(unit, unit) for unit in units}
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

        levels = self._levels
        day = pc.replace_substring_regex(self._trimmed, "[T ][0-9]{1,2}:[0-9]{2}.*$", "")
        parsed = [pc.strptime(day, format=f, unit="s", error_is_null=True) for f in _DATES]
        known = [int(levels.counts[_mask(values.is_valid())].sum()) for values in parsed]
        present = int((~self.absent).sum())
        if not present or max(known) < _NUMERIC_SHARE * present:
            return None
        best = [values for values, n in zip(parsed, known) if n == max(known)]
        if any(not values.equals(best[0]) for values in best):
            raise DataError(
                f"{self.where}: {self.name} has dates such as {self.trimmed[0].as_py()!r}, whose "
                "day and month may be exchanged: write them as 2026-12-31"
            )
        return levels.rows(best[0])


@dataclass(frozen=True)
class _Levels:
    """The different texts of a column, so that each is parsed once.

    Attributes:
        texts: Arrow array ``(m,)``, of which one may be null.
        index: Number of each row's text ``(n,)``; None where texts hardly recur: they are the rows.
        counts: Number of rows of each text ``(m,)``.
    """

    texts: Any
    index: Any
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, values: Any) -> _Levels:
        """Return the different texts of an Arrow array."""
        whole = values.combine_chunks() if hasattr(values, "combine_chunks") else values
        if hasattr(whole, "chunks"):  # combined chunks that are too many for one array
            return cls(whole, None, np.ones(len(whole), np.int64))
        head = whole[:_HEAD]
        if len(head.unique()) > len(head) * _RECURRING:
            return cls(whole, None, np.ones(len(whole), np.int64))
        coded = whole.dictionary_encode(null_encoding="encode")
        counts = np.bincount(to_numpy(coded.indices), minlength=len(coded.dictionary))
        return cls(coded.dictionary, coded.indices, counts)

    def rows(self, values: Any) -> Any:
        """Return the values of the rows as an Arrow array, from those of their texts ``(m,)``."""
        import pyarrow as pa

        if self.index is not None:
            values = values.take(self.index)
        return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])

    def mask(self, values: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of rows ``(n,)`` from one of their texts ``(m,)``."""
        return values if self.index is None else values[to_numpy(self.index)]


def _mask(values: Any) -> NDArray[np.bool_]:
    """Return Arrow booleans as a mask; false for null."""
    import pyarrow.compute as pc

    known = pc.and_kleene(values, values.is_valid())
    return np.asarray(to_numpy(known), np.bool_)


def _plain_numbers(levels: _Levels) -> Any:
    """Return different texts as numbers if all are such as 1234.5 or missing, else None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        numbers = levels.texts.cast(pa.float64())
    except (pa.ArrowException, NotImplementedError):
        return None
    finite = pc.all(pc.is_finite(numbers)).as_py()
    return numbers if finite and numbers.null_count < len(numbers) else None


def mark_question(text: TextColumn) -> Question:
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


def days(moments: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    seconds = moments.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    return pc.divide(seconds.cast(pa.float64()), scalar(86400.0))


def unit_of_name(name: str) -> str:
    """Return the currency in brackets at the end of a column's name, such as ``"fee (€)"``."""
    match = re.search(rf"[(\[]\s*({UNIT})\s*[)\]]\s*$", name)
    return "" if match is None else SYMBOLS.get(match[1], match[1])
