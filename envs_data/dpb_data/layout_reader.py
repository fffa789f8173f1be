"""Features, persons and open questions of a table whose layout is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpb_data.column_profiles import (
    Profile,
    is_id_name,
    missing_codes,
    recurring_ids,
    renames,
    response_codes,
)
from dpb_data.column_reader import Array, Column
from dpb_data.column_roles import DISCOUNTS, ROLES, TableLayout, plain_name, possible_columns
from dpb_data.feature_columns import decided, follow, select_features
from dpb_data.questions import Question
from dpb_data.reading_questions import (
    MOST_ANSWERS,
    absent_question,
    after_question,
    discount_question,
    features_question,
    negative_question,
    paid_question,
    person_question,
    range_question,
    sets_question,
    units_question,
)
from dpb_data.response_words import (
    ABSENT,
    mark_question,
    outcomes,
    plain_text,
    succeeded,
    success_question,
)
from dpb_data.role_finder import RoleFinder, names_of
from dpb_data.table_repair import BELOW, MOST_DROPPED
from dpb_data.wide_choices import stem
from dpb_gym.errors import QuestionError, unknown_name

_NEARLY = 0.9  # share of rows or sets that a rule must hold in
MOST_ITEMS = 50
"""Largest number of items of choice sets that are recognised by their values."""
_MANY = 1e6  # customers of a row while their number is not known
_ID = "numbers of persons or things"


@dataclass(frozen=True)
class Found:
    """What was found out about a table.

    Attributes:
        layout: The layout, or None if it is not known.
        columns: Arguments of the reader.
        unused: Reason by name of each column that is not used.
        questions: Open questions.
    """

    layout: TableLayout | None
    columns: dict[str, Any] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)
    questions: tuple[Question, ...] = ()


def find_roles(finder: RoleFinder, failed: Mapping[str, str]) -> Found:
    """Return the roles of all columns of a table.

    Args:
        finder: The table, with its given arguments.
        failed: Reason by name of each column that cannot be read.
    """
    layout = finder.layout()
    if layout is None:
        return Found(None, questions=tuple(finder.questions))
    columns = finder.columns(layout)
    if finder.questions:
        return Found(layout, columns, {}, tuple(finder.questions))
    reader = _LayoutReader(finder, layout, columns)
    reader.run()
    used = {name for value in columns.values() for name in names_of(value)}
    unused = {name: why for name, why in failed.items() if name and name not in used}
    extra = {k: v for k, v in finder.own.items() if k not in columns and k != "person"}
    return Found(layout, {**columns, **extra}, unused | reader.unused, tuple(finder.questions))


class _LayoutReader:
    """Reads what the columns without a role mean in one layout; adds to `columns`."""

    def __init__(self, finder: RoleFinder, layout: TableLayout, columns: dict[str, Any]) -> None:
        self.finder = finder
        self.opened = finder.opened
        self.own = finder.own
        self.profiles = finder.profiles
        self.questions = finder.questions
        self.layout = layout
        self.columns = columns
        self.unused: dict[str, str] = {}
        self.negative: dict[str, tuple[str, int]] = {}

    def run(self) -> None:
        """Set features and persons, or add questions."""
        if self.layout.name == "ratings":
            self.columns["user"] = self.columns.pop("person")
            if "rating_range" not in self.own:
                rating = self.profiles[self.columns["rating"]]
                self.questions.append(range_question(self.opened, rating))
            return
        self._read_success()
        if self.layout.name == "prices":
            self._set_aside_negative()
            self._ask_paid()
            if self._ask_sets():
                return
            self._ask_offered()
        taken = {name for value in self.columns.values() for name in names_of(value)}
        free = [name for name in self.profiles if name not in taken]
        if self.layout.name == "prices":
            self._ask_discount(free)
        ids = self._ask_person(free)
        if self.layout.name == "wide choices":
            self._read_attributes(free, ids)
        elif "features" in self.own:
            self.columns["features"] = self._given_features()
        else:
            self._select_features(free, ids)
        self._ask_absent()

    def _read_success(self) -> None:
        """Read a response of texts by ``success=``, or ask which of them mean yes."""
        role = {"prices": "bought", "clicks": "reward", "long choices": "chosen"}.get(
            self.layout.name, ""
        )
        name = str(self.columns.get(role, ""))
        profile = self.profiles.get(name)
        if profile is None:
            return
        if "success" not in self.own:
            if (mark := self._only_mark(profile)) is not None:
                count = len(profile.known)
                self.questions.append(mark_question(self.opened.where, name, mark, count))
                self.profiles[name] = Profile(name, (~profile.missing).astype(np.float64))
                return
            levels = outcomes(profile.values.tolist()) if profile.text else {}
            if not levels:
                return
            self.questions.append(success_question(self.opened.where, name, levels))
            hit = np.array([value == next(iter(levels)) for value in profile.values])
        else:
            raw = self.opened.fetch([Column(name, kind="text")])[name].to_pylist()
            texts = [None if v is None or plain_text(v) in ABSENT else plain_text(v) for v in raw]
            hit = succeeded(texts, self.own["success"], name, self.opened.where)
        self.profiles[name] = Profile(name, hit.astype(np.float64))

    def _only_mark(self, profile: Profile) -> str | None:
        """Return the text of a response that is this text or empty, or None."""
        if profile.distinct != 1 or profile.missing.mean() <= MOST_DROPPED:
            return None
        column = Column(profile.name, kind="code", nullable=True)
        texts = {str(value).strip() for value in self.opened.take([column])[profile.name]
                 if value is not None}  # fmt: skip
        known = [text for text in texts if text.casefold() not in ABSENT]
        return known[0] if len({text.casefold() for text in known}) == 1 else None

    def _set_aside_negative(self) -> None:
        """Note prices up to 0 and units below 0, and take them as missing."""
        for role, rule in (("price", "<=0"), ("bought", "<0")):
            profile = self.profiles.get(str(self.columns.get(role, "")))
            if profile is None or profile.text:
                continue
            wrong = BELOW[rule](np.nan_to_num(profile.values, nan=1.0))
            if not wrong.any() or wrong.all():
                continue
            rest = Profile(profile.name, np.where(wrong, np.nan, profile.values))
            if role == "bought" and rest.binary:
                continue  # no returns, but an error
            self.negative[profile.name] = rule, int(wrong.sum())
            self.profiles[profile.name] = rest

    def _ask_discount(self, free: Sequence[str]) -> None:
        """Ask whether the price is the one before a discount that another column has."""
        asked = {question.topic for question in self.questions}
        if "price" in self.own or "price" in asked:
            return
        for name in free:
            profile = self.profiles[name]
            words = {*plain_name(name).split("_")}
            if words & DISCOUNTS and not (profile.text or profile.binary) and profile.distinct > 1:
                self.questions.append(discount_question(self.opened, self.columns["price"], name))
                return

    def _ask_absent(self) -> None:
        """Ask whether numbers in features stand for missing values, and for negative prices."""
        if "absent" in self.own:
            return
        price = self.columns.get("price")
        if any(question.topic == "price" for question in self.questions):
            self.negative.pop(str(price), None)  # what buyers alone paid is 0 for others
        if self.negative:
            self.questions.append(negative_question(self.opened, self.negative))
            return
        names = [name for name in self.columns.get("features", ()) if name in self.profiles]
        codes = {name: missing_codes(self.profiles[name]) for name in names}
        responses = [str(self.columns.get(role, "")) for role in ("bought", "reward")]
        codes |= {name: response_codes(self.profiles[name])
                  for name in responses if name in self.profiles}  # fmt: skip
        if codes := {name: own for name, own in codes.items() if own}:
            self.questions.append(absent_question(self.opened, codes))

    def _ask_paid(self) -> None:
        """Ask for the quoted price if the column of the price has values for buyers only."""
        names = self.columns["price"], self.columns["bought"]
        if "price" in self.own or any(name not in self.profiles for name in names):
            return
        price, bought = (self.profiles[name] for name in names)
        if price.text or not bought.binary:
            return
        lacking = ~(np.nan_to_num(price.values) > 0)
        refused = np.nan_to_num(bought.values) == 0
        if not refused.any() or lacking[refused].mean() < _NEARLY:
            return
        free = {k: p for k, p in self.profiles.items() if k not in names and not is_id_name(k)}
        others = possible_columns(ROLES["price"], free)
        self.questions.append(paid_question(self.opened, *names, others[: MOST_ANSWERS - 1]))

    def _ask_sets(self) -> bool:
        """Ask whether rows are alternatives of choice sets if they may be, and return whether."""
        bought = self.profiles.get(self.columns["bought"])
        named = bought is not None and bought.binary and self.finder.problem is None
        if bought is None or not named or "offered" in self.own or "person" in self.own:
            return False
        taken = np.nan_to_num(bought.values)
        free = {k: p for k, p in self.profiles.items() if k not in self.columns.values()}
        for name, profile in free.items():
            if not is_id_name(name) or len(profile.known) < len(taken):
                continue
            sets = profile.codes()
            sizes = np.bincount(sets)
            if np.mean(sizes > 1) < _NEARLY or np.bincount(sets, taken).max() > 1:
                continue
            for other, item in free.items():
                if other == name or item.distinct > MOST_ITEMS or not (item.text or item.whole):
                    continue
                if len(np.unique(np.column_stack([sets, item.codes()]), axis=0)) == len(sets):
                    self.questions.append(
                        sets_question(self.opened, name, other, self.columns, len(sizes))
                    )
                    return True
        return False

    def _ask_offered(self) -> None:
        """Find the number of customers of each row of prices, or ask for it."""
        columns = self.columns
        bought = self.profiles.get(columns["bought"])
        if "offered" in self.own or bought is None or not bought.whole:
            return
        columns.pop("offered", None)
        sold = np.nan_to_num(bought.values)
        possible = [
            name for name in possible_columns(ROLES["offered"], self.profiles)
            if name not in columns.values() and _at_least(self.profiles[name].values, sold)
        ]  # fmt: skip
        named = [name for name in self.finder.candidates["offered"] if name in possible]
        counted = plain_name(columns["bought"]) in ROLES["bought"].counts
        counted = counted and "bought" not in self.own
        if not bought.binary and len(named) == 1:
            columns["offered"] = named[0]
        elif not bought.binary or counted or named or sold.min() > 0:
            listed = named or [name for name in possible if not is_id_name(name)]
            question = units_question(
                self.opened, columns["bought"], sold.astype(np.int64), listed[:MOST_ANSWERS]
            )
            self.questions.append(question)

    def _ask_person(self, free: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Find the column of persons, or ask; return the columns that number persons or things."""
        columns = self.columns
        long = self.layout.name == "long choices"
        sets = self.finder.sets(columns["case"]) if long else None
        given = names_of(self.own.get("features"))
        cases = names_of(columns.get("case"))  # of two, one may number persons
        names = [*(cases if len(cases) > 1 else ()), *free]
        pool = {name: self.profiles[name] for name in names if name not in given}
        ids = recurring_ids(pool, sets)
        offered = columns.get("offered", self.own.get("offered", 1))
        if "person" in self.own or "person" in columns or offered != 1 or not ids:
            return {name: sizes for name, sizes in ids.items() if is_id_name(name)}
        persons = [name for name in self.finder.candidates["person"] if name in ids]
        asked = {name: ids[name] for name in persons} if len(persons) > 1 else ids
        n = int(sets.max()) + 1 if sets is not None else len(next(iter(pool.values())).values)
        unit = "choice sets" if long else "rows"
        self.questions.append(person_question(self.opened, asked, n, unit))
        return ids

    def _read_attributes(self, free: Sequence[str], ids: Mapping[str, Any]) -> None:
        """Set the attributes of wide choices."""
        try:
            layout = self.finder.wide_layout(self.columns["chosen"])
        except QuestionError as error:
            self.questions += error.questions
            return
        self.columns["features"] = [stem(pattern) for pattern in layout.features]
        texts = [*(layout.alternatives or {}).values()]
        known = {p.format(text) for p in (*layout.features, layout.available) for text in texts}
        for name in sorted(free):
            if name not in known:
                self.unused[name] = _ID if name in ids else "no attribute of an alternative"

    def _given_features(self) -> list[str]:
        names = names_of(self.own["features"])
        for name in names:
            if name not in self.opened.columns:
                raise unknown_name("column for features=", name, self.opened.columns)
        return names

    def _customers(self) -> Array | float | None:
        """Return the customers of each row: their column, their number, or None for one."""
        offered = self.columns.get("offered", self.own.get("offered"))
        if isinstance(offered, str):
            profile = self.profiles.get(offered)
            return None if profile is None else np.nan_to_num(profile.values)
        if any(question.topic == "offered" for question in self.questions):
            return _MANY
        return float(offered) if isinstance(offered, (int, float)) and offered > 1 else None

    def _within(self, name: str, rows: Array) -> Profile:
        """Return the values of a column in some rows."""
        own = self.profiles[name]
        return Profile(name, own.values[rows], own.dates, own.percent)

    def _select_features(self, free: Sequence[str], ids: Mapping[str, Any]) -> None:
        asked = any(question.topic == "person" for question in self.questions)
        ids = {name for name in ids if asked or is_id_name(name)}
        if self.layout.name == "long choices":
            sets = self.finder.sets(self.columns["case"])
            events = (int(sets.max()) + 1) // 2
            item = self.profiles.get(str(self.columns.get("item", "")))
            rows = np.ones(len(sets), np.bool_) if item is None else ~item.missing
            own = {name: self._within(name, rows) for name in free}
            sets = np.unique(sets[rows], return_inverse=True)[1].ravel()
            twins = {} if item is None else {
                name: "another name of the item" for name, profile in own.items()
                if renames(profile, item, rows)
            }  # fmt: skip
            rest = [name for name in free if name not in twins]
            features, unused = select_features(own, rest, events, sets=sets, ids=ids)
            selected = features, twins | unused
        else:
            answer = self.profiles.get(self.columns.get("reward", self.columns.get("bought")))
            known = answer is not None and not answer.text
            answers = np.nan_to_num(answer.values) if known and answer else np.zeros(0)
            item = self.profiles.get(self.columns.get("item", ""))
            models = 1 if item is None else item.distinct
            events = _events(answers, self._customers())
            after = {}
            if len(answers):
                cause = self.profiles.get(str(self.columns.get("price", self.columns.get("item"))))
                what = "price" if self.layout.name == "prices" else "item"
                customers = self._customers()
                after = follow(
                    self.profiles, free, answers, cause, what,
                    1.0 if customers is None else customers,
                )  # fmt: skip
            rest = [name for name in free if name not in after]
            features, unused = select_features(self.profiles, rest, events, models, ids=ids)
            selected = features, after | unused
            if self._customers() is None and len(answers):
                flags = decided(self.profiles, features, answers)
                others = [name for name in features if name not in flags]
                if flags:
                    self.questions.append(after_question(self.opened, flags, others))
        self.columns["features"], self.unused = selected
        if self.layout.name == "long choices" and not selected[0]:
            self.questions.append(features_question(self.opened, self.unused))


def _events(answers: Array, customers: Array | float | None) -> int:
    """Return the number of the rarer response: of rows, or of the customers of each row."""
    if customers is None:
        yes = int((answers > 0).sum())
        return min(yes, len(answers) - yes)
    yes = int(answers.sum())
    return max(0, min(yes, int(np.sum(np.zeros(len(answers)) + customers)) - yes))


def _at_least(values: Array, sold: Array) -> bool:
    """Return whether numbers of customers are nowhere below the units sold, and above somewhere."""
    known = np.isfinite(values)
    return bool((values[known] >= sold[known]).all() and (values[known] > sold[known]).any())
