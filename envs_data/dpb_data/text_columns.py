"""A column of text: which of its values are numbers, with which decimal mark and unit, or dates."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data.questions import Answer, Question
from dpb_data.response_words import ABSENT, NO, YES
from dpb_gym.errors import DataError

_NUMERIC_SHARE = 0.9  # of a column's values must be numbers (or dates) for the column to be
UNIT = (
    "(?:(?:US|CA|AU|NZ|HK|[CAR])?[€$£¥₹₽₩₺₴₫₱₪₦]|%|CHF|EUR|USD|GBP|JPY|CNY|INR|BRL|CAD|AUD|NZD|HKD|"
    "SGD|SEK|NOK|DKK|PLN|CZK|HUF|MXN|ZAR|TRY|Fr\\.|Rs\\.?|kr\\.?|zł|Kč|Ft)"
)
_PER = "(?: ?/ ?[a-z]+| per [a-z]+)?"
SYMBOLS = {"€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY", "₹": "INR", "US$": "USD"}
_FORM = (
    "[+-]?(?:[0-9]+|[1-9][0-9]{{0,2}}(?:{0}[0-9]{{2,3}})*{0}[0-9]{{3}})?(?:{1}[0-9]*)?"
    "(?:[eE][+-]?[0-9]+)?"
)
_FORMS = {".": _FORM.format(",", "[.]"), ",": _FORM.format("[.]", ",")}
_CODE = "^0[0-9]+$"
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
        spaced = pc.replace_substring_regex(self.trimmed, f"(?i){UNIT}{_PER}", "")
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

        mask: NDArray[np.bool_] = pc.match_substring(self.bare, mark).fill_null(False).to_numpy()
        return mask

    def _unit(self, signed: NDArray[np.bool_]) -> str | None:
        some = self.trimmed.filter(signed).unique().to_pylist()
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

        day = pc.replace_substring_regex(self.trimmed, "[T ][0-9]{1,2}:[0-9]{2}.*$", "")
        parsed = [pc.strptime(day, format=f, unit="s", error_is_null=True) for f in _DATES]
        known = [len(values) - values.null_count for values in parsed]
        present = int((~self.absent).sum())
        if not present or max(known) < _NUMERIC_SHARE * present:
            return None
        best = [values for values, n in zip(parsed, known) if n == max(known)]
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
    return pc.divide(seconds.cast(pa.float64()), 86400.0)


def unit_of_name(name: str) -> str:
    """Return the currency in brackets at the end of a column's name, such as ``"fee (€)"``."""
    match = re.search(rf"[(\[]\s*({UNIT})\s*[)\]]\s*$", name)
    return "" if match is None else SYMBOLS.get(match[1], match[1])
