"""Read an unknown table: roles of its columns, open questions, and the table itself.

A reading never guesses where two readings fit: it has a question, and each answer is an argument of
`read`. `dpb_gym.advise` and its dry run, the command line and notebooks share it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpb_data import rating_loader, vowpal_wabbit
from dpb_data.choices import choices, find_layout, load_choices
from dpb_data.column_profiles import read_profiles
from dpb_data.column_reader import Opened, open_table
from dpb_data.column_roles import ROLES
from dpb_data.data_files import existing_path
from dpb_data.dataset_registry import DataSet, datasets, find_dataset
from dpb_data.formats import holds_ratings
from dpb_data.layout_reader import find_roles
from dpb_data.questions import Question
from dpb_data.reading_questions import NO_PERSON, outside_question
from dpb_data.response_tables import clicks, prices
from dpb_data.role_finder import COLUMNS, RoleFinder, names_of
from dpb_data.table_repair import Repair, match_names
from dpb_gym import validation
from dpb_gym.errors import (
    DataError,
    DPBError,
    ParameterError,
    QuestionError,
    did_you_mean,
    shown,
    unknown_name,
)

NAMED = ("choices", "ratings", "prices")
"""Kinds of the data sets whose name is enough."""
_RULES = ("name", "missing", "decimal", "header", "absent")
_ARGUMENTS = {
    "pricing": ("price", "bought", "offered", "features", "person", "success", *_RULES),
    "assortment": ("case", "item", "chosen", "features", "person", "alternatives", "none",
                   "unknown", "success", *_RULES),
    "recommendation": ("item", "reward", "propensity", "features", "person", "success", "user",
                       "rating", "rating_range", "time", "title", *_RULES),
}  # fmt: skip
"""Arguments of the reader of each problem's tables."""
_SETTINGS = {
    "pricing": ("ridge", "bounds", "extrapolate", "log_scale"),
    "assortment": ("ridge", "bounds", "log_scale", "outside", "revenue", "capacity"),
    "recommendation": ("ridge", "bounds", "log_scale"),
}
"""Arguments of the fit of each problem's model, see `dpb_gym.from_log`."""
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
        roles = dict[str, str]()
        for role, value in self.columns.items():
            if role in COLUMNS:
                listed = [value] if isinstance(value, str) else value
                kind = "feature" if role == "features" else role
                names = listed if isinstance(listed, (list, tuple)) else []
                roles |= {name: kind for name in names if name in self.names}
        return roles | dict(self.unused)

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
    arguments = {key: value for key, value in given.items() if value is not None}
    if "person" in given and given["person"] is None:
        arguments["person"] = NO_PERSON
    if "user" in arguments:
        arguments["person"] = arguments.pop("user")
    return arguments


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
    if "item" in own and isinstance(source, (str, os.PathLike)):
        place = existing_path(source)
        if own["item"] != vowpal_wabbit.ITEM and vowpal_wabbit.is_log(place):
            source = vowpal_wabbit.table(place, own["item"])
            own = {"name": place.name.split(".")[0], **own, "item": vowpal_wabbit.ITEM}
    rules = (own.get(key) for key in _RULES[1:])
    repair = Repair(*rules, shares={*names_of(own.get("propensity"))})
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
    roles = find_roles(RoleFinder(opened, problem, own, profiles), failed)
    notes = () if opened.repair is None else tuple(opened.repair.notes)
    layout = "" if roles.layout is None else roles.layout.name
    reading = Reading(
        opened.where, "" if roles.layout is None else roles.layout.problem, layout,
        tuple(opened.columns), roles.columns, unused=roles.unused, questions=roles.questions,
        repairs=notes,
    )  # fmt: skip
    if roles.questions:
        return reading
    loader: Any = {"prices": prices, "clicks": clicks, "ratings": rating_loader.ratings}
    load = loader.get(layout, choices)
    if layout == "ratings":  # its reader has no rules: the table is opened with them
        given = {key: value for key, value in roles.columns.items() if key not in _RULES[1:]}
        return replace(reading, _load=lambda: load(opened, **given))
    return replace(reading, _load=lambda: load(opened, **roles.columns))


def _existing(own: dict[str, Any], opened: Opened) -> dict[str, Any]:
    """Return the arguments with the names of columns as in the table.

    Raises:
        UnknownNameError: If there is no such column.
    """
    arguments = dict(own)
    for key in COLUMNS:
        if key not in own or (key == "offered" and not isinstance(own[key], str)):
            continue
        many = isinstance(own[key], (list, tuple))
        names = [str(name) for name in own[key]] if many else [str(own[key])]
        if key == "person" and names == [NO_PERSON] and NO_PERSON not in opened.columns:
            continue
        matched = match_names(names, opened.columns, Repair())
        for name in matched.values():
            if name not in opened.columns and key != "features":
                raise unknown_name(f"column for {key}=", name, opened.columns)
        values = [matched[name] for name in names]
        arguments[key] = values if many or key == "features" else values[0]
    return arguments


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
    except DPBError as error:
        if isinstance(error, DataError) and {q.topic for q in reading.questions} <= {*_ANY}:
            raise
        return reading.questions  # the error may be that of a wrong answer
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
    for name in names_of(reading.settings.get("log_scale")):
        if name not in bounded:
            raise unknown_name("feature of log_scale=", name, bounded)
    if reading.problem != "assortment":
        return reading
    revenue = reading.settings.get("revenue")
    outside = reading.settings.get("outside")
    if revenue is not None and revenue not in names:
        raise ParameterError(f"revenue must be one of {', '.join(names)}, got {revenue!r}")
    items = table.item_ids.astype(str)
    if outside is not None and str(outside) not in items:
        raise ParameterError(
            f"outside must be one of {shown(table.item_ids.tolist())}, got {shown(outside)}"
        )
    if outside is None and (table.chosen >= 0).all():
        return replace(reading, questions=(outside_question(reading.where, table),), _load=None)
    return reading
