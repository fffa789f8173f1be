"""Roles of the columns of an unknown table, by their names and values."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dpb_data.column_profiles import Profile, is_id_name, is_time_name
from dpb_data.dataset_registry import read_layouts, read_words
from dpb_data.response_words import NO, YES, plain_text

_NO_RESPONSES = read_words("no_responses")
_AMOUNTS = read_words("amounts")
DISCOUNTS = read_words("discounts")
"""Words in the names of discounts."""
_MOST_TEXTS = 12  # different texts of a column of outcomes, or of offers
_SHORTEST = 5  # letters of a name that counts inside of a word, such as preis in Angebotspreis


@dataclass(frozen=True)
class Role:
    """A role of columns, and the names by which they are known.

    Attributes:
        name: The argument of the reader.
        names: Names of columns; other cases, and ``userId`` for ``user_id``, are known too.
        by_word: Whether, if no column has a name, one with a name as a word counts, and else one
            with a name at the beginning or end of a word.
        counts: Names of columns that count instead, such as ``"units"`` for ``"bought"``.
        last: Words in the names of columns of a few texts that count if no other column does.
    """

    name: str
    names: tuple[str, ...]
    by_word: bool = False
    counts: tuple[str, ...] = ()
    last: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableLayout:
    """A layout of a table with the problem that it fits.

    Attributes:
        name: Such as ``"long choices"``.
        problem: Name of the problem.
        needed: Roles that it needs.
        optional: Roles that it may have.
    """

    name: str
    problem: str
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        """All roles."""
        return *self.needed, *self.optional


ROLES: dict[str, Role] = read_layouts("roles", Role)
TABLES: dict[str, TableLayout] = read_layouts("tables", TableLayout)
MEANINGS = {
    "price": "the price that was quoted",
    "bought": "whether the customer bought, 0 or 1, or how many units were sold",
    "case": "the number of the choice set",
    "item": "the item or alternative",
    "chosen": "which alternative was chosen",
    "rating": "the rating",
    "reward": "the response, 0 or 1",
    "propensity": "the probability of showing the item",
    "person": "the person",
    "offered": "the number of customers who saw the price",
}
_FITS: dict[str, Callable[[Profile], bool]] = {
    "price": lambda p: p.within(0.0, 1e12),
    "bought": lambda p: p.whole and p.distinct > 1 and not (_says_otherwise(p) or _is_amount(p)),
    "case": lambda p: p.text or p.whole,
    "item": lambda p: (p.text or p.whole) and p.distinct > 1,
    "chosen": lambda p: p.distinct > 1,
    "rating": lambda p: not p.text and p.distinct > 1,
    "reward": lambda p: p.binary and not _says_otherwise(p),
    "propensity": lambda p: p.within(0.0, 100.0 if p.percent else 1.0),
    "person": lambda p: p.text or p.whole,
    "offered": lambda p: (
        p.whole
        and p.within(0.0, 1e12)
        and not (_says_otherwise(p) or _is_amount(p) or is_id_name(p.name))
    ),
}


def _says_otherwise(profile: Profile) -> bool:
    """Return whether a column holds times, or says by its name what is no response."""
    words = {*plain_name(profile.name).split("_")}
    return profile.dates or is_time_name(profile.name) or bool(words & {*_NO_RESPONSES})


def _is_amount(profile: Profile) -> bool:
    """Return whether the name of a column says that its numbers are money."""
    return not profile.binary and bool({*plain_name(profile.name).split("_")} & {*_AMOUNTS})


def named_columns(role: Role, columns: Iterable[str], profiles: Mapping[str, Profile]) -> list[str]:
    """Return the columns whose names say that they have a role.

    Only the columns that match best are returned: those with a name of the role, else those with
    one as a word, else those with one in a word. Values must fit where several columns match, or
    where the match is not exact.

    Args:
        role: The role.
        columns: Names of the columns that have no other role.
        profiles: Values of the columns that can be read.
    """
    plain = {name: plain_name(name) for name in columns}
    fits = _FITS[role.name]

    def fitting(names: list[str]) -> list[str]:
        return [name for name in names if name in profiles and fits(profiles[name])]

    exact = [name for name, text in plain.items() if text in role.names]
    exact = exact or [name for name, text in plain.items() if text in role.counts]
    if exact:
        return (fitting(exact) or exact) if len(exact) > 1 else exact
    if not role.by_word:
        return [name for name, text in plain.items() if _is_outcome(role, text, profiles.get(name))]
    words = {name: {*text.split("_")} for name, text in plain.items()}
    for names in (role.names, role.counts):
        some = [name for name, own in words.items() if own & {*names}]
        if some := fitting(some):
            return some
    parts = [text for text in (*role.names, *role.counts) if len(text) >= _SHORTEST]
    some = fitting([
        name for name, own in words.items()
        if any(word.startswith(part) or word.endswith(part) for word in own for part in parts)
    ])  # fmt: skip
    if some:
        return some
    return [name for name, text in plain.items() if _is_outcome(role, text, profiles.get(name))]


def _is_outcome(role: Role, plain: str, profile: Profile | None) -> bool:
    """Return whether a column of a few texts has a name that counts if no other does.

    Words for yes and no are 1 and 0 by now.
    """
    if profile is None or not {*plain.split("_")} & {*role.last}:
        return False
    return _has_few_texts(profile) or (role.by_word and profile.binary)


def _has_few_texts(profile: Profile) -> bool:
    return profile.text and 2 <= profile.distinct <= _MOST_TEXTS


def is_price_name(name: str) -> bool:
    """Return whether a word of a name is one of prices."""
    return bool({*plain_name(name).split("_")} & {*ROLES["price"].names, "cost"})


def possible_columns(role: Role, profiles: Mapping[str, Profile]) -> list[str]:
    """Return the columns whose values fit a role, whatever their names."""
    names = [name for name, profile in profiles.items() if _FITS[role.name](profile)]
    if role.name in ("bought", "reward", "chosen"):
        names = [name for name in names if not _numbers_rows(profiles[name])]
        binary = [name for name in names if profiles[name].binary]
        said = [name for name, profile in profiles.items() if _says_yes_or_no(profile)]
        either = [name for name in profiles if name in {*binary, *said}]
        return either or [name for name in names if not is_id_name(name)]
    return names


def _numbers_rows(profile: Profile) -> bool:
    """Return whether every row has its own value, as numbers of receipts do."""
    return profile.distinct == len(profile.values) > 2


def _says_yes_or_no(profile: Profile) -> bool:
    """Return whether some of a few texts are words such as declined."""
    known = {*map(plain_text, profile.known)} if _has_few_texts(profile) else set[str]()
    return bool(known & {*YES, *NO})


def plain_name(name: str) -> str:
    """Return a name in lower case, without accents, and with underscores between its words."""
    letters = unicodedata.normalize("NFKD", name.strip().replace("ß", "ss"))
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    words = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", plain)
    return re.sub(r"\W+", "_", words.lower()).strip("_")
