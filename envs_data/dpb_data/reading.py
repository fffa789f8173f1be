"""Read an unknown table: roles of its columns, open questions, and the table itself.

A reading never guesses where two readings fit: it has a question, and each answer is an argument of
`read`. `dpb_gym.advise` and its dry run, the command line and notebooks share it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpb_data import rating_loader, response_tables
from dpb_data.choices import choices, find_layout, load_choices
from dpb_data.column_profiles import Profile, is_id_name, read_profiles, recurring_ids
from dpb_data.column_reader import Array, Opened, open_table
from dpb_data.column_roles import (
    MEANINGS,
    ROLES,
    TABLES,
    TableLayout,
    named_columns,
    plain_name,
    possible_columns,
)
from dpb_data.data_files import existing_path
from dpb_data.dataset_registry import DataSet, datasets, find_dataset
from dpb_data.feature_columns import select_features
from dpb_data.formats import holds_ratings
from dpb_data.questions import Answer, Question
from dpb_data.table_repair import Repair, match_names
from dpb_data.wide_choices import Layout, stem, wide_layout
from dpb_gym import validation
from dpb_gym.errors import (
    DataError,
    ParameterError,
    QuestionError,
    did_you_mean,
    shown,
    unknown_name,
)

NAMED = ("choices", "ratings", "prices")
"""Kinds of the data sets whose name is enough."""
_RULES = ("name", "missing", "decimal", "header")
_ARGUMENTS = {
    "pricing": ("price", "bought", "offered", "features", "person", *_RULES),
    "assortment": ("case", "item", "chosen", "features", "person", "alternatives", "none",
                   "unknown", *_RULES),
    "recommendation": ("item", "reward", "propensity", "features", "person", "user", "rating",
                       "rating_range", "time", "title", *_RULES),
}  # fmt: skip
"""Arguments of the reader of each problem's tables."""
_SETTINGS = {
    "pricing": ("ridge", "bounds", "extrapolate", "log_scale"),
    "assortment": ("ridge", "bounds", "log_scale", "outside", "revenue", "capacity"),
    "recommendation": ("ridge", "bounds", "log_scale"),
}
"""Arguments of the fit of each problem's model, see `dpb_gym.from_log`."""
_COLUMNS = (*ROLES, "user", "features", "time", "title")
_ONLY_WIDE = ("alternatives", "none", "unknown")
_LAYOUT_OF = {
    "rating_range": "ratings", "time": "ratings", "title": "ratings", "user": "ratings",
} | dict.fromkeys(_ONLY_WIDE, "wide choices")  # fmt: skip
_NO_PERSON = "none"
_MOST_ANSWERS = 8
_MANY = 1e6  # customers of a row while their number is not known
_MOST_PAIRED = 12  # columns of which pairs may number choice sets
_STOPS = ("problem", "header", "alternatives", "none", "outside")
"""Topics of questions after which no others can be found."""
_ANY = ("offered", "person", "case")
"""Roles of which any answer leads to the same later questions."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What a table is read as.

    Attributes:
        where: Name of the table in messages.
        problem: ``"pricing"``, ``"assortment"`` or ``"recommendation"``; empty if not known.
        layout: Kind of table, such as ``"long choices"``; empty if not known.
        names: Names of all columns of the table.
        columns: Arguments of the reader: column by role, ``features``, and rules.
        settings: Arguments of the fit, such as ``outside``.
        unused: Reason by name of each column that is not used.
        questions: Questions that must be answered before the table can be used.
        repairs: What was changed when the table was read.
    """

    where: str
    problem: str = ""
    layout: str = ""
    names: tuple[str, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    unused: Mapping[str, str] = field(default_factory=dict)
    questions: tuple[Question, ...] = ()
    repairs: tuple[str, ...] = ()
    _asked: tuple[Any, str | None, Mapping[str, Any]] = (None, None, {})
    _load: Callable[[], Any] | None = None

    @property
    def source(self) -> Any:
        """The source that was read."""
        return self._asked[0]

    @property
    def roles(self) -> dict[str, str]:
        """The role of each column by name: a role, ``"feature"``, or why it is not used."""
        found = dict[str, str]()
        for role, value in self.columns.items():
            if role in _COLUMNS:
                listed = [value] if isinstance(value, str) else value
                kind = "feature" if role == "features" else role
                names = listed if isinstance(listed, (list, tuple)) else []
                found |= {name: kind for name in names if name in self.names}
        return found | dict(self.unused)

    def table(self) -> Any:
        """Return the table: `PriceTable`, `ChoiceTable`, `ClickTable` or `RatingTable`.

        Raises:
            QuestionError: If questions are open.
        """
        if self.questions or self._load is None:
            raise QuestionError(*self.questions)
        return self._load()

    def answer(self, problem: str | None = None, **given: Any) -> Reading:
        """Return the reading with further arguments of `read`."""
        source, own, before = self._asked
        return read(source, problem or own, **{**before, **given})

    def lines(self) -> list[str]:
        """Return what the table is read as, without the questions, as lines."""
        head = f"read as {self.layout}, for {self.problem}" if self.layout else self.where
        lines = [head, *(f"  {role}: {value}" for role, value in self.columns.items())]
        if not self.questions:
            for why in dict.fromkeys(self.unused.values()):
                names = [name for name, own in self.unused.items() if own == why]
                lines.append(f"  not used ({why}): {', '.join(names)}")
        return lines

    def __str__(self) -> str:
        lines = self.lines()
        for question in self.questions:
            lines.append(f"  question: {question.text}")
            lines += [f"    {answer}: {answer.means}" for answer in question.answers]
        return "\n".join(lines)


def read(source: Any, problem: str | None = None, **given: Any) -> Reading:
    """Return what a table is read as, with the questions that it leaves open.

    Columns are recognised by their names and values; what is given is not guessed.

    Args:
        source: See `dpb_data.column_reader.take_columns`; or the name or file of a published data
            set of ratings, choices or prices, which needs no columns; or a reading to add to.
        problem: ``"pricing"``, ``"assortment"`` or ``"recommendation"``, if known.
        **given: Columns by role, ``features``, other arguments of `dpb_data.prices`,
            `dpb_data.choices`, `dpb_data.clicks` and `dpb_data.ratings`, and ``outside``,
            ``revenue``, ``bounds`` and others of `dpb_gym.from_log`. ``person="none"``: no column
            numbers persons.

    Raises:
        DataError: If the table is damaged.
        ParameterError: If an argument is unknown, or of another problem.
        UnknownNameError: If there is no column of a given name, or no such file.

    Example:
        >>> import dpb_data
        >>> weeks = {"price": [2.0, 3.0, 2.0, 3.0], "units": [9, 4, 11, 3]}
        >>> reading = dpb_data.read(weeks)
        >>> [question.topic for question in reading.questions]
        ['offered']
        >>> reading.answer(offered=50).table()
        PriceTable('frame': 200 quotes from 2 to 3, 27 bought, 0 features)
    """
    if isinstance(source, Reading):
        return source.answer(problem, **given) if problem or given else source
    given = _checked(problem, given)
    own = {key: value for key, value in given.items() if key not in _all_settings()}
    settings = {key: value for key, value in given.items() if key in _all_settings()}
    asked = (source, problem, given)
    data = find_dataset(source) if isinstance(source, str) else None
    made = _published(source, data, problem, own)
    if made is None:
        made = _unknown(data.generate() if data and data.generate else source, problem, own)
    return _finished(replace(made, settings=settings, _asked=asked))


def _all_settings() -> set[str]:
    return {key for keys in _SETTINGS.values() for key in keys}


def _checked(problem: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not None; ``person=None`` means ``"none"``.

    Raises:
        ParameterError: If one is unknown, or of another problem.
    """
    if problem is not None:
        validation.choice("problem", problem, _ARGUMENTS)
    problems = [problem] if problem else [*_ARGUMENTS]
    allowed = [*dict.fromkeys(key for p in problems for key in (*_ARGUMENTS[p], *_SETTINGS[p]))]
    for key in given:
        if key not in allowed:
            what = f"a table for {problem}" if problem else "a table"
            close = did_you_mean(key, allowed)
            raise ParameterError(
                f"{what} has no argument {shown(key)}{f' ({close})' if close else ''}; it takes "
                f"{', '.join(allowed) if problem else 'what dpb_data.read documents'}"
            )
    found = {key: value for key, value in given.items() if value is not None}
    if "person" in given and given["person"] is None:
        found["person"] = _NO_PERSON
    if "user" in found:
        found["person"] = found.pop("user")
    return found


def _published(
    source: Any, data: DataSet | None, problem: str | None, own: Mapping[str, Any]
) -> Reading | None:
    """Return the reading of a published data set that needs no columns, or None."""
    path = isinstance(source, (str, os.PathLike)) and not own
    if data is not None and data.kind == "choices":
        said = f"the data set {data.name}"
        return Reading(data.name, "assortment", said, _load=lambda: load_choices(data.name))
    ratings = path and problem in (None, "recommendation")
    if ratings and (data.kind == "ratings" if data else holds_ratings(existing_path(source))):
        return Reading(
            str(source), "recommendation", "a published file of ratings",
            _load=lambda: rating_loader.ratings(source),
        )  # fmt: skip
    if data is not None and data.kind != "prices":
        named = ", ".join(d.name for d in datasets() if d.generate and d.kind in NAMED)
        raise DataError(
            f"{data.name}: give the CSV file of its rounds instead of its name "
            "(dpb_data.write_sample('synthetic-open-bandit', 'rounds.csv') writes such a file). "
            f"Generated data need no file: {named}"
        )
    return None


def _unknown(source: Any, problem: str | None, own: dict[str, Any]) -> Reading:
    """Return the reading of a table of unknown layout."""
    repair = Repair(own.get("missing"), own.get("decimal"), own.get("header"))
    try:
        opened = open_table(source, repair)
    except QuestionError as error:
        return Reading(str(source), questions=error.questions)
    known = find_layout(opened)
    if known is not None and not own and problem in (None, "assortment"):
        about = ", ".join(known.features).replace("{}", "*")
        said = f"choices in the layout {known.name} (chosen: {known.chosen}; attributes: {about})"
        return Reading(
            opened.where, "assortment", said, tuple(opened.columns),
            _load=lambda: load_choices(source, layout=known.name),
        )  # fmt: skip
    own = _existing(own, opened)
    profiles, failed = read_profiles(opened)
    return _Reader(source, opened, problem, own, profiles, failed).reading()


def _existing(own: dict[str, Any], opened: Opened) -> dict[str, Any]:
    """Return the arguments with the names of columns as in the table.

    Raises:
        UnknownNameError: If there is no such column.
    """
    found = dict(own)
    for key in _COLUMNS:
        if key not in own or (key == "offered" and not isinstance(own[key], str)):
            continue
        many = isinstance(own[key], (list, tuple))
        names = [str(name) for name in own[key]] if many else [str(own[key])]
        if key == "person" and names == [_NO_PERSON] and _NO_PERSON not in opened.columns:
            continue
        matched = match_names(names, opened.columns, Repair())
        for name in matched.values():
            if name not in opened.columns and key != "features":
                raise unknown_name(f"column for {key}=", name, opened.columns)
        values = [matched[name] for name in names]
        found[key] = values if many or key == "features" else values[0]
    return found


class _Reader:
    """Roles, features and questions of one opened table."""

    def __init__(
        self, source: Any, opened: Opened, problem: str | None, own: dict[str, Any],
        profiles: dict[str, Profile], failed: dict[str, str],
    ) -> None:  # fmt: skip
        self.source, self.opened, self.problem, self.own = source, opened, problem, own
        self.profiles, self.failed = profiles, failed
        self.questions: list[Question] = []
        self.candidates = self._candidates()
        self.wide: Layout | None = None

    def reading(self) -> Reading:
        """Return the reading, without the questions that need the table itself."""
        layout = self._layout()
        if layout is None:
            return self._made("", "", {}, {})
        columns = self._columns(layout)
        if self.questions:
            return self._made(layout.problem, layout.name, columns, {})
        if layout.name == "prices":
            self._ask_offered(columns)
        if layout.name == "ratings":
            return self._ratings(layout, columns)
        free = self._free(columns)
        ids = self._ask_person(layout, columns, free)
        unused = {k: v for k, v in self.failed.items() if k and k not in columns.values()}
        if layout.name == "wide choices":
            unused |= self._wide(columns, free, ids)
        elif "features" in self.own:
            columns["features"] = self._given_features()
        else:
            some, rest = self._features(layout, columns, free, ids)
            columns["features"] = some
            unused |= rest
            if layout.name == "long choices" and not some:
                self._ask_features(rest)
        extra = {k: v for k, v in self.own.items() if k not in columns and k != "person"}
        return self._made(layout.problem, layout.name, {**columns, **extra}, unused)

    def _made(
        self, problem: str, layout: str, columns: dict[str, Any], unused: dict[str, str]
    ) -> Reading:
        notes = () if self.opened.repair is None else tuple(self.opened.repair.notes)
        reading = Reading(
            self.opened.where, problem, layout, tuple(self.opened.columns), columns,
            unused=unused, questions=tuple(self.questions), repairs=notes,
        )  # fmt: skip
        if self.questions:
            return reading
        source = self.opened if layout == "ratings" else self.source
        reader = {
            "prices": response_tables.prices,
            "clicks": response_tables.clicks,
            "ratings": rating_loader.ratings,
        }.get(layout, choices)
        given = {k: v for k, v in columns.items() if layout != "ratings" or k not in _RULES[1:]}
        return replace(reading, _load=lambda: reader(source, **given))

    # ------------------------------------------------------------------ layout and roles

    def _candidates(self) -> dict[str, list[str]]:
        """Return the columns that may have each role, by given arguments and by names."""
        taken = {name for key in _COLUMNS for name in _listed(self.own.get(key))}
        free = [name for name in self.opened.columns if name and name not in taken]
        found = {}
        for key, role in ROLES.items():
            if key in self.own:
                found[key] = _listed(self.own[key])
                continue
            found[key] = named_columns(role, free, self.profiles)
            if len(found[key]) == 1:  # a column has one role: purchase_price is a price
                free = [name for name in free if name not in found[key]]
        return found

    def _layout(self) -> TableLayout | None:
        """Return the layout of the table, or None with a question."""
        given = {key for key in self.own if key in ROLES and key != "person"}
        implied = {_LAYOUT_OF[key] for key in self.own if key in _LAYOUT_OF}
        allowed = [
            table for table in TABLES.values()
            if self.problem in (None, table.problem) and given <= {*table.roles}
            and (not implied or implied == {table.name})
        ]  # fmt: skip
        if not allowed:
            raise ParameterError(
                f"no table has the arguments {', '.join(sorted(given))} together: needed are "
                f"{_needs([t for t in TABLES.values() if self.problem in (None, t.problem)])}"
            )
        complete = [t for t in allowed if all(self.candidates[role] for role in t.needed)]
        names = [table.name for table in complete]
        if "wide choices" in names and ("long choices" in names or not self._is_wide(allowed)):
            complete = [table for table in complete if table.name != "wide choices"]
        if len(complete) == 1:
            return complete[0]
        if complete:
            self._ask_layout(
                complete, f"{self.opened.where}: the columns fit {len(complete)} kinds of tables."
            )
            return None
        return self._partial(allowed)

    def _is_wide(self, allowed: Sequence[TableLayout]) -> bool:
        """Return whether the table is one of wide choices; raise if no other layout may fit."""
        if len(self.candidates["chosen"]) != 1:
            return True
        try:
            self._wide_layout(self.candidates["chosen"][0])
        except QuestionError:
            return True
        except DataError:
            other = [t for t in allowed if any(self.candidates[role] for role in t.needed)]
            if len(other) == 1:
                raise
            return False
        return True

    def _partial(self, allowed: Sequence[TableLayout]) -> TableLayout | None:
        """Return the layout of which most roles are known, or None with a question."""
        if len(allowed) == 1:
            return allowed[0]
        known = {
            t.name: sum(bool(self.candidates[role]) for role in t.needed)
            for t in allowed
            if t.name != "wide choices"
        }
        most = max(known.values(), default=0)
        best = [name for name, count in known.items() if count == most]
        if most and len(best) == 1:
            return TABLES[best[0]]
        if len(known) == 1:
            return TABLES[best[0]]
        roles = {role: names[0] for role, names in self.candidates.items() if names}
        seen = "; ".join(f"{role} is {name!r}" for role, name in roles.items())
        self._ask_layout(
            allowed,
            f"{self.opened.where}: the roles of the columns "
            f"{', '.join(self.opened.columns[:30])} are not known by their names"
            f"{f', but {seen}' if seen else ''}. What is a row?",
        )
        return None

    def _ask_layout(self, tables: Sequence[TableLayout], text: str) -> None:
        rows = {
            "clicks": "an item that was shown, with its probability",
            "ratings": "a rating",
            "long choices": "an alternative of a choice set",
            "wide choices": "a choice, with attributes in columns such as train_cost",
            "prices": "a quoted price",
        }
        answers = []
        for table in tables:
            settings: dict[str, Any] = {"problem": table.problem}
            free = dict(self.profiles)
            possible = True
            for role in table.needed:
                names = self.candidates[role] or possible_columns(ROLES[role], free)
                settings[role] = names[0] if len(names) == 1 else "COLUMN"
                possible = possible and bool(names)
                if len(names) == 1:
                    free.pop(names[0], None)
            pattern = "COLUMN" in settings.values()
            answers.append((not possible, Answer(settings, rows[table.name], pattern)))
        answers = [answer for _, answer in sorted(answers, key=lambda pair: pair[0])]
        self.questions.append(Question("problem", text, tuple(answers)))

    def _columns(self, layout: TableLayout) -> dict[str, Any]:
        """Return the column of each role of a layout; ask for those that are not known."""
        columns = dict[str, Any]()
        for role in layout.roles:
            names = self.candidates[role]
            if role in self.own:
                if self.own[role] != _NO_PERSON or role != "person":
                    columns[role] = self.own[role]
            elif len(names) == 1:
                columns[role] = names[0]
            elif role in layout.needed and role != "case":
                self._ask_role(role, names, columns)
        if layout.name == "long choices" and "case" not in self.own:
            self._ask_case(columns)
        return columns

    def _ask_case(self, columns: dict[str, Any]) -> None:
        """Ask for the choice sets, unless the column with their name numbers them.

        Numbers of tasks may begin again with each person: then two columns number the sets.
        """
        named = self.candidates["case"]
        roles = [columns[role] for role in ("item", "chosen") if role in columns]
        known = [name for name in roles if name in self.profiles]
        if len(known) < 2 or (len(named) == 1 and self._numbers_sets(named, *known)):
            if not named:
                self._ask_role("case", named, columns)
            return
        pool = [
            name for name, profile in self.profiles.items()
            if name not in roles and (profile.text or profile.whole) and profile.distinct > 1
            and len(profile.known) == len(profile.values)
        ]  # fmt: skip
        pool = [name for name in pool if is_id_name(name) or name in named] + [
            name for name in pool if not is_id_name(name) and name not in named
        ]
        pool = pool[:_MOST_PAIRED]
        options: list[list[str]] = [[name] for name in named or pool]
        options += [[a, b] for k, a in enumerate(pool) for b in pool[k + 1 :]
                    if not named or {a, b} & {*named}]  # fmt: skip
        fitting = [names for names in options if self._numbers_sets(names, *known)]
        shortest = min(map(len, fitting), default=0)
        fitting = [names for names in fitting if len(names) == shortest][:_MOST_ANSWERS]
        if not fitting:
            if not named:
                self._ask_role("case", named, columns)
            return
        columns.pop("case", None)
        again = f"{named[0]} begins again, so that it" if len(named) == 1 else "no column"
        said = f"{again} does not number the choice sets" if named else f"{again} is named so"
        self.questions.append(
            Question(
                "case",
                f"{self.opened.where}: {said}. Which columns number the choice sets?",
                tuple(
                    Answer(
                        {"case": names[0] if len(names) == 1 else names},
                        f"{int(self._sets(names).max()) + 1:,} sets",
                    )
                    for names in fitting
                ),
            )
        )

    def _numbers_sets(self, names: Sequence[str], item: str, chosen: str) -> bool:
        """Return whether columns number sets with each item once, and at most one choice."""
        if any(name not in self.profiles for name in names):
            return False
        sets = self._sets(list(names))
        count = int(sets.max()) + 1
        items = self.profiles[item].codes()
        if 2 * count > len(sets) or len({*zip(sets.tolist(), items.tolist())}) < len(sets):
            return False
        taken = self.profiles[chosen]
        if taken.text:
            return True
        return bool((np.bincount(sets, np.nan_to_num(taken.values) == 1) <= 1).all())

    def _ask_role(self, role: str, names: Sequence[str], columns: Mapping[str, Any]) -> None:
        taken = {name for value in columns.values() for name in _listed(value)}
        pool = {name: p for name, p in self.profiles.items() if name not in taken}
        fitting = [*names] or possible_columns(ROLES[role], pool)
        answers = [
            Answer({role: name}, _some_values(self.profiles[name]))
            for name in fitting[:_MOST_ANSWERS]
            if name in self.profiles
        ]
        if not answers or len(fitting) > _MOST_ANSWERS:
            answers.append(Answer({role: "COLUMN"}, "another column", pattern=True))
        if names:
            text = f"{self.opened.where}: {_and(names)} may each be {MEANINGS[role]}. Which is it?"
        else:
            seen = "; ".join(f"{known} is {name!r}" for known, name in columns.items())
            text = (
                f"{self.opened.where}: {f'{seen}, but ' if seen else ''}no name of a column says "
                f"which is {MEANINGS[role]} (columns: {', '.join(self.opened.columns[:30])}). "
                "Which is it?"
            )
        self.questions.append(Question(role, text, tuple(answers)))

    # ------------------------------------------------------------- questions of a layout

    def _ask_offered(self, columns: dict[str, Any]) -> None:
        """Find the number of customers of each row of prices, or ask for it."""
        bought = self.profiles.get(columns["bought"])
        if "offered" in self.own or bought is None or not bought.whole:
            return
        columns.pop("offered", None)
        sold = np.nan_to_num(bought.values)
        possible = [
            name for name in possible_columns(ROLES["offered"], self.profiles)
            if name not in columns.values() and _at_least(self.profiles[name].values, sold)
        ]  # fmt: skip
        named = [name for name in self.candidates["offered"] if name in possible]
        counted = plain_name(columns["bought"]) in ROLES["bought"].counts
        counted = counted and "bought" not in self.own
        if not bought.binary and len(named) == 1:
            columns["offered"] = named[0]
        elif not bought.binary or counted or named or sold.min() > 0:
            listed = named or [name for name in possible if not is_id_name(name)]
            question = response_tables.units_question(
                self.opened, columns["bought"], sold.astype(np.int64), listed[:_MOST_ANSWERS]
            )
            self.questions.append(question)

    def _ask_person(
        self, layout: TableLayout, columns: dict[str, Any], free: Sequence[str]
    ) -> dict[str, tuple[int, int]]:
        """Find the column of persons, or ask; return the columns that number persons or things."""
        sets = None
        if layout.name == "long choices":
            sets = self._sets(columns["case"])
        given = {*_listed(self.own.get("features"))}
        cases = _listed(columns.get("case"))  # of two, one may number persons
        names = [*(cases if len(cases) > 1 else ()), *free]
        pool = {name: self.profiles[name] for name in names if name not in given}
        ids = recurring_ids(pool, sets)
        offered = columns.get("offered", self.own.get("offered", 1))
        if "person" in self.own or "person" in columns or offered != 1:
            return {name: sizes for name, sizes in ids.items() if is_id_name(name)}
        persons = [name for name in self.candidates["person"] if name in ids]
        for_question = {name: ids[name] for name in persons} if len(persons) > 1 else ids
        if not for_question:
            return {}
        n = len(next(iter(pool.values())).values) if sets is None else int(sets.max()) + 1
        unit = "rows" if sets is None else "choice sets"
        said = _and([f"{name} ({d:,} values)" for name, (d, _) in for_question.items()])
        answers = [
            Answer({"person": name}, f"it numbers persons, who have up to {most:,} {unit} each")
            for name, (_, most) in [*for_question.items()][:_MOST_ANSWERS]
        ]
        answers.append(Answer({"person": _NO_PERSON}, f"no person has several {unit}"))
        self.questions.append(
            Question(
                "person",
                f"{self.opened.where}: values recur in {said} of {n:,} {unit}, as if they numbered "
                "persons. A budget that protects one round does not protect a person with several. "
                "Which column numbers persons?",
                tuple(answers),
                next(iter(for_question)),
            )
        )
        return ids

    def _ratings(self, layout: TableLayout, columns: dict[str, Any]) -> Reading:
        columns["user"] = columns.pop("person")
        if "rating_range" not in self.own:
            known = self.profiles[columns["rating"]].known
            low, high = float(known.min()), float(known.max())
            self.questions.append(
                Question(
                    "rating_range",
                    f"{self.opened.where}: {columns['rating']} goes from {low:g} to {high:g}. "
                    "ratings need rating_range=(lowest, highest possible rating), which a sample "
                    "need not contain. What is it?",
                    (
                        Answer({"rating_range": [low, high]}, "as in the table"),
                        Answer({"rating_range": ["LOWEST", "HIGHEST"]}, "another", pattern=True),
                    ),
                    columns["rating"],
                )
            )
        own = {k: v for k, v in self.own.items() if k not in columns and k != "person"}
        return self._made(layout.problem, layout.name, {**columns, **own}, {})

    # -------------------------------------------------------------------------- features

    def _wide_layout(self, chosen: str) -> Layout:
        given = {key: self.own.get(key) for key in _ONLY_WIDE}
        person = self.own.get("person", "")
        return wide_layout(self.opened, chosen, self.own.get("features", ()), person, **given)

    def _wide(
        self, columns: dict[str, Any], free: Sequence[str], ids: Mapping[str, Any]
    ) -> dict[str, str]:
        """Set the attributes of wide choices; return the reasons of columns without a role."""
        try:
            layout = self._wide_layout(columns["chosen"])
        except QuestionError as error:
            self.questions += error.questions
            return {}
        columns["features"] = [stem(pattern) for pattern in layout.features]
        texts = [*(layout.alternatives or {}).values()]
        known = {p.format(text) for p in (*layout.features, layout.available) for text in texts}
        return {
            name: "numbers of persons or things"
            if name in ids
            else "no attribute of an alternative"
            for name in sorted(free)
            if name not in known
        }

    def _ask_features(self, rest: Mapping[str, str]) -> None:
        """Ask for the attributes of long choices, of which there must be one."""
        vary = [name for name, why in rest.items() if "too few" in why]
        answers = [Answer({"features": vary}, "all that vary within a set")] if vary else []
        answers.append(Answer({"features": ["NAME"]}, "the attributes of the items", pattern=True))
        reasons = "; ".join(f"{name}: {why}" for name, why in rest.items()) or "none is left"
        self.questions.append(
            Question(
                "features",
                f"{self.opened.where}: no column is taken as an attribute ({reasons}). Which are?",
                tuple(answers),
            )
        )

    def _given_features(self) -> list[str]:
        names = _listed(self.own["features"])
        for name in names:
            if name not in self.opened.columns:
                raise unknown_name("column for features=", name, self.opened.columns)
        return names

    def _free(self, columns: Mapping[str, Any]) -> list[str]:
        taken = {name for value in columns.values() for name in _listed(value)}
        return [name for name in self.profiles if name not in taken]

    def _sets(self, case: Any) -> Array:
        codes = [self.profiles[name].codes() for name in _listed(case) if name in self.profiles]
        sets: Array = np.unique(np.column_stack(codes), axis=0, return_inverse=True)[1].ravel()
        return sets

    def _customers(self, columns: Mapping[str, Any]) -> Array | float | None:
        """Return the customers of each row: their column, their number, or None for one."""
        offered = columns.get("offered", self.own.get("offered"))
        if isinstance(offered, str):
            return (
                np.nan_to_num(self.profiles[offered].values) if offered in self.profiles else None
            )
        if any(question.topic == "offered" for question in self.questions):
            return _MANY
        return float(offered) if isinstance(offered, (int, float)) and offered > 1 else None

    def _features(
        self, layout: TableLayout, columns: Mapping[str, Any], free: Sequence[str],
        ids: Mapping[str, Any],
    ) -> tuple[list[str], dict[str, str]]:  # fmt: skip
        asked = {q.column for q in self.questions if q.topic == "person"} and ids
        named = [name for name in ids if is_id_name(name) or name in asked]
        if layout.name == "long choices":
            sets = self._sets(columns["case"])
            return select_features(
                self.profiles, free, (int(sets.max()) + 1) // 2, sets=sets, ids=named
            )
        answer = self.profiles.get(columns.get("reward", columns.get("bought")))
        events = 0
        if answer is not None and not answer.text:
            events = _events(np.nan_to_num(answer.values), self._customers(columns))
        item = self.profiles.get(columns.get("item", ""))
        models = item.distinct if item is not None else 1
        return select_features(self.profiles, free, events, models, ids=named)


def _events(answers: Array, customers: Array | float | None) -> int:
    """Return the number of the rarer response: of rows, or of the customers of each row."""
    if customers is None:
        yes = int((answers > 0).sum())
        return min(yes, len(answers) - yes)
    yes = int(answers.sum())
    return max(0, min(yes, int(np.sum(np.zeros(len(answers)) + customers)) - yes))


def _finished(reading: Reading) -> Reading:
    """Return a reading with the questions that arise when the table is made.

    Answers to the questions before are tried, so that as many as possible are asked at once.
    """
    if reading.questions:
        return replace(_with_settings(reading, None), questions=_with_later(reading))
    if reading._load is None or reading.layout == "a published file of ratings":  # 32 million rows
        return _with_settings(reading, None)
    try:
        table = reading._load()
    except QuestionError as error:
        asked = replace(reading, questions=error.questions, _load=None)
        return replace(asked, questions=_with_later(asked))
    loaded = replace(reading, repairs=getattr(table, "notes", ()), _load=lambda: table)
    return _with_settings(loaded, table)


def _with_later(reading: Reading) -> tuple[Question, ...]:
    """Return the questions of a reading, and those that remain if these are answered."""
    tried = dict[str, Any]()
    for question in reading.questions:
        plain = [answer for answer in question.answers if not answer.pattern]
        if question.topic in _STOPS or not plain or (question.topic in ROLES and len(plain) > 1
                                                     and question.topic not in _ANY):  # fmt: skip
            return reading.questions
        tried |= plain[-1 if question.topic == "person" else 0].settings
    try:
        later = reading.answer(**tried).questions
    except DataError:
        if {question.topic for question in reading.questions} <= {*_ANY}:
            raise
        return reading.questions  # that of a wrong answer
    topics = {question.topic for question in reading.questions}
    return *reading.questions, *(question for question in later if question.topic not in topics)


def _with_settings(reading: Reading, table: Any) -> Reading:
    """Return a reading whose settings are checked, with the question of the outside option."""
    allowed = _SETTINGS.get(reading.problem)
    for key in reading.settings if allowed else ():
        if key not in allowed:
            raise ParameterError(
                f"{key}= does not belong to {reading.problem}, which takes {', '.join(allowed)}"
            )
    if table is None:
        return reading
    names = getattr(table, "feature_names", ())
    bounded = {*names, "price"} if reading.problem == "pricing" else {*names}
    for name in reading.settings.get("bounds") or ():
        if name not in bounded:
            raise unknown_name("feature of bounds=", name, bounded)
    for name in _listed(reading.settings.get("log_scale")):
        if name not in bounded:
            raise unknown_name("feature of log_scale=", name, bounded)
    if reading.problem != "assortment":
        return reading
    revenue, outside = reading.settings.get("revenue"), reading.settings.get("outside")
    if revenue is not None and revenue not in names:
        raise ParameterError(f"revenue must be one of {', '.join(names)}, got {revenue!r}")
    items = table.item_ids.astype(str)
    if outside is not None and str(outside) not in items:
        raise ParameterError(
            f"outside must be one of {shown(table.item_ids.tolist())}, got {shown(outside)}"
        )
    if outside is None and (table.chosen >= 0).all():
        return replace(reading, questions=(_outside_question(reading.where, table),), _load=None)
    return reading


def _outside_question(where: str, table: Any) -> Question:
    """Return the question of which alternative stands for choosing nothing."""
    counts = np.bincount(table.items, minlength=len(table.item_ids))
    order = np.argsort(-counts, kind="stable")[:_MOST_ANSWERS]
    answers = [
        Answer(
            {"outside": table.item_ids[k].item()},
            f"offered in {counts[k] / table.n_sets:.0%} of the sets",
        )
        for k in order
    ]
    return Question(
        "outside",
        f"{where}: every set has a choice, which does not tell how many would buy nothing. Which "
        "alternative stands for buying nothing of the others?",
        tuple(answers),
    )


def _needs(tables: Sequence[TableLayout]) -> str:
    return "; ".join(f"{', '.join(table.needed)} for {table.name}" for table in tables)


def _listed(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(name) for name in value] if isinstance(value, (list, tuple)) else []


def _at_least(values: Array, sold: Array) -> bool:
    """Return whether numbers of customers are nowhere below the units sold, and above somewhere."""
    known = np.isfinite(values)
    return bool((values[known] >= sold[known]).all() and (values[known] > sold[known]).any())


def _some_values(profile: Profile) -> str:
    some = list(dict.fromkeys(profile.known.tolist()))[:4]
    shown_values = [f"{v:g}" if isinstance(v, float) else str(v) for v in some]
    return f"values such as {', '.join(shown_values)}"


def _and(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
