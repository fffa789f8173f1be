"""What the values of a table's columns look like, and which columns number persons."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpb_data.column_reader import Array, Column, Opened
from dpb_data.dataset_registry import read_words
from dpb_data.rating_table import MAX_LEVELS
from dpb_data.table_repair import Repair
from dpb_gym.errors import DataError, QuestionError

_ID_WORDS = read_words("id_words")
_NO_ID_WORDS = read_words("no_id_words")
_TIMES = read_words("times")
_LONG = 6  # letters of a word that counts at the end of another, such as kundennummer
_FEWEST_NAMED, _FEWEST = 3, 10  # distinct values of an id whose name says so, and of another
_CHANCE = 1e-5  # of taking a column for an id whose counts are random
_CODES_BELOW = (-1.0, -7.0, -8.0, -9.0, -77.0, -88.0, -99.0, -999.0, -9999.0)
_CODES_ABOVE = (99.0, 999.0, 9999.0, 99999.0)
_FIRST_DAY = 19_000_000.0  # the least number in the form of 20240131 that is taken for a day
_FEWEST_CODED = 4  # distinct values of a column with codes for missing ones
_FREQUENT, _ROUGH = 5.0, 6.0  # mean count that shows equal counts, and roughness of ids


@dataclass(frozen=True, eq=False)
class Profile:
    """The values of a column.

    Attributes:
        name: Name of the column.
        values: float64 with NaN, or objects with None, for missing ones ``(n,)``.
        dates: Whether they were read from dates, or are such as 20240131.
        percent: Whether they have a percent sign.
    """

    name: str
    values: Array
    dates: bool = False
    percent: bool = False

    @property
    def text(self) -> bool:
        """Whether the values are text."""
        return bool(self.values.dtype == object)

    @cached_property
    def missing(self) -> Array:
        """Mask of the missing values ``(n,)``."""
        if self.text:
            return np.equal(self.values, None).astype(np.bool_)
        return np.isnan(self.values)

    @cached_property
    def known(self) -> Array:
        """Values that are not missing."""
        return self.values[~self.missing]

    @cached_property
    def distinct(self) -> int:
        """Number of different values."""
        return len(self.texts) if self.text else len(self.counted[0])

    @cached_property
    def _numbered(self) -> tuple[list[str | None], Array]:
        """The different texts in the order of the table, and each row's number among them."""
        values = self.values.tolist()
        texts = [*dict.fromkeys(values)]
        place = {text: number for number, text in enumerate(texts)}
        return texts, np.fromiter(map(place.__getitem__, values), np.int64, len(values))

    @property
    def texts(self) -> list[str]:
        """The different known texts, in the order of the table."""
        return [str(text) for text in self._numbered[0] if text is not None]

    @cached_property
    def counted(self) -> tuple[Array, Array]:
        """The different known values, ascending, and how often each comes."""
        if not self.text:
            return np.unique(self.known, return_counts=True)
        texts, numbers = self._numbered
        counts = np.bincount(numbers)[[text is not None for text in texts]]
        known = np.array(self.texts)
        order = np.argsort(known)
        return known[order], counts[order]

    @cached_property
    def whole(self) -> bool:
        """Whether all known values are whole numbers from 0."""
        if self.text or not len(self.known):
            return False
        return bool((self.known >= 0).all() and (self.known % 1 == 0).all())

    @cached_property
    def binary(self) -> bool:
        """Whether all known values are 0 or 1."""
        return self.whole and bool((self.known <= 1).all())

    def within(self, low: float, high: float) -> bool:
        """Return whether all known values are numbers above `low` and at most `high`."""
        if self.text or not len(self.known):
            return False
        return bool((self.known > low).all() and (self.known <= high).all())

    @cached_property
    def _codes(self) -> Array:
        if self.text:
            texts, numbers = self._numbered
            levels = np.array(texts, object).astype(str)  # each text is compared once
            codes: Array = np.unique(levels, return_inverse=True)[1].ravel()[numbers]
        else:
            codes = np.unique(self.values, return_inverse=True)[1].ravel()
        codes.flags.writeable = False
        return codes

    def codes(self) -> Array:
        """Return the number of each row's value ``(n,)``, equal for equal values; read-only."""
        return self._codes


def read_profiles(opened: Opened) -> tuple[dict[str, Profile], dict[str, str]]:
    """Read all columns of a table whose names are different.

    Args:
        opened: The table.

    Returns:
        Profiles by name, and for each other column why it cannot be read.
    """
    failed = {
        name: "several columns have this name" if name else "a column without a name"
        for name in opened.columns
        if not name or opened.columns.count(name) > 1
    }
    names = [name for name in opened.columns if name not in failed]
    rules = opened.repair or Repair()
    profiles: dict[str, Profile] = {}
    try:
        return _profiles(opened, names, rules), failed
    except QuestionError as error:
        column = error.questions[0].column
        rules = replace(rules, decimal=",") if rules.decimal is None else rules
        failed[column] = "its decimal mark is not known"
    except DataError:
        pass
    for name in names:
        try:
            profiles |= _profiles(opened, [name], rules)
            failed.pop(name, None)
        except DataError as error:
            failed[name] = str(error).partition(": ")[2] or str(error)
    return profiles, failed


def _profiles(opened: Opened, names: Sequence[str], rules: Repair) -> dict[str, Profile]:
    repair = replace(rules, notes=[], unit={}, rows=None, wrong={}, codes=set())
    columns = [Column(name, kind="any", nullable=True) for name in names]
    read = replace(opened, repair=repair).take(columns)
    dated = {note.split(": dates read")[0] for note in repair.notes if ": dates read" in note}
    return {
        name: Profile(name, v, name in dated or _calendar(v), repair.unit.get(name) == "%")
        for name, v in read.items()
    }


def _calendar(values: Array) -> bool:
    """Return whether all known values are days such as 20240131."""
    if values.dtype == object:
        return False
    known = values[~np.isnan(values)]
    if not len(known) or known.min() < _FIRST_DAY or (known % 1 != 0).any():
        return False
    year = known // 10_000
    month = known // 100 % 100
    day = known % 100
    return bool(
        (np.abs(year - 2_000) <= 100).all() and ((month >= 1) & (month <= 12)).all()
        and ((day >= 1) & (day <= 31)).all()
    )  # fmt: skip


def missing_codes(profile: Profile) -> list[float]:
    """Return numbers such as -999 or 99 that may stand for missing values.

    They come several times and are apart from all other values: below 0, where no other value is,
    or all nines and more than twice the largest other value.
    """
    if profile.text or profile.dates or profile.distinct < _FEWEST_CODED:
        return []
    values, counts = profile.counted
    often = dict(zip(values.tolist(), counts.tolist()))
    low = [code for code in _CODES_BELOW if often.get(code, 0) > 1]
    rest = values[~np.isin(values, low)]
    codes = low if len(rest) > 2 and rest.min() >= 0.0 else []
    high = [code for code in _CODES_ABOVE if often.get(code, 0) > 1]
    rest = values[~np.isin(values, [*low, *high])]
    if len(rest) > 2 and (rest % 1 == 0).all():
        codes = [*codes, *(code for code in high if code > 2.0 * rest.max())]
    return codes


def response_codes(profile: Profile) -> list[float]:
    """Return numbers below 0, such as -1, that come several times in a response of 0 and 1."""
    if profile.text:
        return []
    values, counts = profile.counted
    often = {value for value, count in zip(values.tolist(), counts.tolist()) if count > 1}
    codes = [code for code in _CODES_BELOW if code in often]
    return codes if {*values.tolist()} == {0.0, 1.0, *codes} else []


def is_id_name(name: str) -> bool:
    """Return whether a name says that a column numbers persons or things.

    The last word decides: ``user`` and ``userNo`` do, ``user_age`` does not; or the first is id.
    """
    words = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name.strip()).lower()
    parts = [part for part in re.split(r"[\W_]+", words) if part]
    if not parts or parts[0] == "unnamed":  # as pandas calls the numbers of rows
        return bool(parts)
    last = parts[-1].rstrip("0123456789") or parts[-1]
    return (
        last in _ID_WORDS
        or parts[0] == "id"
        or (last.endswith("id") and len(last) > 2 and last not in _NO_ID_WORDS)
        or any(last.endswith(word) for word in _ID_WORDS if len(word) >= _LONG)
    )


def is_time_name(name: str) -> bool:
    """Return whether a word of a name says that a column holds times, such as weeks."""
    words = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name.strip()).lower()
    return bool({*re.split(r"[\W_]+", words)} & {*_TIMES})


def recurring_ids(
    profiles: Mapping[str, Profile], sets: Array | None = None
) -> dict[str, tuple[int, int]]:
    """Return the columns whose values may number persons who come several times.

    A column does if its values recur and its name says so; or if it is text with many values; or
    if it is of whole numbers whose counts are not those of a random property: they are more equal,
    rougher from one number to the next, or another column is constant for each number.

    Args:
        profiles: The columns that may be ids or features.
        sets: Number of each row's choice set ``(n,)``, in which a person is the same.

    Returns:
        By name, how many values there are, and how often the most frequent one comes.
    """
    first = None if sets is None else np.unique(sets, return_index=True)[1]
    ids = {}
    coded: dict[str, Array] = {}
    for name, profile in profiles.items():
        if profile.dates or len(profile.known) < len(profile.values):
            continue
        if is_time_name(name) and not is_id_name(name):
            continue
        codes = profile.codes()
        if first is not None and sets is not None:
            if (codes != codes[first][sets]).any():
                continue  # differs between the alternatives of a set
            codes = codes[first]
        coded[name] = codes
    for name, codes in coded.items():
        profile = profiles[name]
        counts = np.bincount(codes)
        counts = counts[counts > 0]
        if len(counts) > len(codes) / 2 or not (profile.text or profile.whole):
            continue
        fewest = _FEWEST if profile.text and not _has_digits(profile) else _FEWEST_NAMED
        named = is_id_name(name) and len(counts) >= fewest
        others = {key: other for key, other in coded.items() if key != name}
        if named or (len(counts) >= _FEWEST and _like_ids(profile, codes, others)):
            ids[name] = len(counts), int(counts.max())
    return ids


def _like_ids(profile: Profile, codes: Array, others: Mapping[str, Array]) -> bool:
    """Return whether values look like numbers of persons, whatever the name of the column."""
    from scipy.special import chdtr

    counts = np.bincount(codes).astype(np.float64)
    d = len(counts)
    if profile.text:
        return d > MAX_LEVELS or _has_digits(profile)
    if counts.min() == counts.max():
        return True
    mean = len(codes) / d
    if mean >= _FREQUENT:  # of rarer values many do not come at all
        spread = float(np.sum((counts - mean) ** 2) / mean)
        if chdtr(d - 1, spread) < _CHANCE:
            return True
    dense = float(profile.known.max() - profile.known.min()) < 1.5 * d
    if dense and d >= 2 * _FEWEST and _roughness(counts) > _ROUGH:
        return True
    return any(_is_property(codes, other) for other in others.values())


def _roughness(counts: Array) -> float:
    """Return how much counts of successive numbers ``(d,)`` jump; 1 for a smooth distribution.

    It is the mean squared second difference, relative to its variance for Poisson counts.
    """
    before = counts[:-2]
    here = counts[1:-1]
    after = counts[2:]
    return float(np.mean((before - 2 * here + after) ** 2 / (before + 4 * here + after)))


def _has_digits(profile: Profile) -> bool:
    """Return whether nearly all texts have a digit, as codes do."""
    texts = profile.texts
    return sum(bool(re.search("[0-9]", text)) for text in texts) > 0.9 * len(texts)


def _is_property(codes: Array, other: Array) -> bool:
    """Return whether another column is the same for each number, and no range of numbers."""
    levels = _count(other)
    if not 2 <= levels < _count(codes) or not decides(codes, other):
        return False
    each = np.full(int(codes.max()) + 1, -1)
    each[codes] = other
    return int((np.diff(each[each >= 0]) != 0).sum()) > levels - 1


def _count(codes: Array) -> int:
    """Return the number of different codes, whole numbers from 0."""
    return int(np.count_nonzero(np.bincount(codes)))


def decides(codes: Array, others: Array) -> bool:
    """Return whether rows with the same code ``(n,)`` have the same other code ``(n,)``."""
    last = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    last[codes] = others
    return bool((last[codes] == others).all())


def renames(own: Profile, item: Profile, rows: Array) -> bool:
    """Return whether a column has one text or running number per item, and the reverse."""
    if own.distinct != item.distinct or len(own.known) < len(own.values):
        return False
    if not own.text and not (own.whole and np.ptp(own.known) == own.distinct - 1):
        return False
    pairs = np.column_stack([own.codes(), item.codes()[rows]])
    return len(np.unique(pairs, axis=0)) == own.distinct
