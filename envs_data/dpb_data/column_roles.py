"""Roles of the columns of an unknown table, guessed by their names and values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_data.choices import find_layout, stem, wide_layout
from dpb_data.column_reader import Array, Column, Opened, open_table
from dpb_data.data_files import existing_path
from dpb_data.dataset_registry import datasets, find_dataset, read_layouts
from dpb_data.formats import holds_ratings
from dpb_data.rating_table import MAX_LEVELS, renumber
from dpb_data.table_repair import Repair
from dpb_gym.errors import DataError, ParameterError

_EVENTS_EACH = 10
NAMED = ("choices", "ratings", "prices")
"""Kinds of the data sets whose name is enough."""
_UNIX = 1e8


@dataclass(frozen=True)
class Role:
    """A role of columns, and the names by which they are known.

    Attributes:
        name: The argument of the reader.
        names: Names of columns; other cases, and ``userId`` for ``user_id``, are known too.
        by_word: Whether, if no column has a name, the only one with a name as a word counts.
    """

    name: str
    names: tuple[str, ...]
    by_word: bool = False


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


ROLES: dict[str, Role] = read_layouts("roles", Role)
TABLES: dict[str, TableLayout] = read_layouts("tables", TableLayout)


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are used for.

    Attributes:
        problem: ``"pricing"``, ``"assortment"`` or ``"recommendation"``.
        layout: Kind of table, such as ``"long choices"``.
        columns: Arguments of the reader: column by role, and ``features``.
        unused: Reason by name of each column that is not used.
    """

    problem: str
    layout: str
    columns: dict[str, Any]
    unused: dict[str, str]

    def __str__(self) -> str:
        used = [f"  {role}: {column}" for role, column in self.columns.items()]
        reasons = dict.fromkeys(self.unused.values())
        rest = [
            f"  not used ({why}): {', '.join(n for n, own in self.unused.items() if own == why)}"
            for why in reasons
        ]
        return "\n".join([f"read as {self.layout}, for {self.problem}", *used, *rest])


def guess_roles(source: Any, problem: str | None = None, **given: Any) -> Roles:
    """Guess the roles of the columns; what is given is not guessed.

    Args:
        source: See `dpb_data.column_reader.take_columns`; or the name or file of a published data
            set of ratings, choices or prices, which needs no columns.
        problem: Name of the problem, if known.
        **given: Columns by role, ``features``, and other arguments of the reader.

    Raises:
        DataError: If no problem fits the columns; the message says what to name.
    """
    data = find_dataset(source) if isinstance(source, str) else None
    if data is not None and data.kind == "choices":
        return Roles("assortment", f"the data set {data.name}", {}, {})
    path = isinstance(source, (str, os.PathLike)) and not given and problem != "assortment"
    if path and (data.kind == "ratings" if data else holds_ratings(existing_path(source))):
        return Roles("recommendation", "a published file of ratings", {}, {})
    if data is not None and data.kind != "prices":
        named = ", ".join(d.name for d in datasets() if d.generate and d.kind in NAMED)
        raise DataError(
            f"{data.name}: give the CSV file of its rounds instead of its name "
            "(dpb_data.write_sample('synthetic-open-bandit', 'rounds.csv') writes such a file). "
            f"Generated data need no file: {named}"
        )
    repair = Repair(given.get("missing"), given.get("decimal"))
    opened = open_table(data.generate() if data and data.generate else source, repair)
    known = find_layout(opened)
    if known is not None and not given and problem in (None, "assortment"):
        about = ", ".join(known.features).replace("{}", "*")
        said = f"choices in the layout {known.name} (chosen: {known.chosen}; attributes: {about})"
        return Roles("assortment", said, {}, {})
    layout, columns = _named(opened, problem, given)
    used, unused = set(map(str, columns.values())), dict[str, str]()
    if layout == "ratings":
        columns["user"] = columns.pop("person")
        if "rating_range" not in given:
            raise ParameterError("ratings need rating_range=(lowest, highest possible rating)")
    elif "features" in given:
        columns["features"] = given["features"]
    elif layout == "wide choices":
        wide = wide_layout(opened, columns["chosen"])
        columns["features"] = [stem(pattern) for pattern in wide.features]
        known_columns = [p.format(a) for p in (*wide.features, wide.available) for a in
                         (wide.alternatives or {}).values()]  # fmt: skip
        rest = set(opened.columns) - used - set(known_columns)
        unused = dict.fromkeys(sorted(rest), "the same for all alternatives")
    else:
        rest = [name for name in opened.columns if name not in used and name]
        columns["features"], unused = _features(opened, rest, layout, columns)
    extra = {key: value for key, value in given.items() if key not in ROLES}
    return Roles(TABLES[layout].problem, layout, {**columns, **extra}, unused)


def _named(
    opened: Opened, problem: str | None, given: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the layout that the columns' names fit, and the columns by role."""
    given_columns = {value for value in given.values() if isinstance(value, str)}
    free = [name for name in opened.columns if name not in given_columns]
    words = {name: re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name.strip()) for name in free}
    plain = {re.sub(r"\W+", "_", text.lower()).strip("_"): name for name, text in words.items()}
    roles = {}
    for name, role in ROLES.items():
        found = [plain[known] for known in role.names if known in plain]
        if role.by_word and not found:
            some = [column for text, column in plain.items() if {*role.names} & {*text.split("_")}]
            found = some if len(some) == 1 else []
        own = given.get("user" if name == "person" else name, given.get(name))
        if own is not None or found:
            roles[name] = own if own is not None else found[0]
    for layout, table in TABLES.items():
        if problem in (None, table.problem) and {*table.needed} <= {*roles}:
            return layout, {r: roles[r] for r in (*table.needed, *table.optional) if r in roles}
    what = "; ".join(f"{', '.join(t.needed)} for {layout}" for layout, t in TABLES.items())
    seen = "; ".join(f"{role} is {column!r}" for role, column in roles.items())
    raise DataError(
        f"{opened.where}: the roles of the columns {', '.join(opened.columns[:30])} are not known "
        f"by their names{f', but {seen}' if seen else ''}. Name them, e.g. bought='sold' or --set "
        f"bought=sold. Needed are {what}"
    )


def _features(
    opened: Opened, names: Sequence[str], layout: str, columns: Mapping[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """Return the columns that are features, and the reason for each column that is not.

    There are `_EVENTS_EACH` rarer outcomes for each coefficient, the rule of Peduzzi et al. (1996)
    for logistic regression.
    """
    answer = columns.get("reward", columns.get("bought"))
    group = {"long choices": columns.get("case"), "clicks": columns.get("item")}.get(layout)
    about = [Column(name, kind="any", nullable=True) for name in names]
    about += [Column(group, kind="id")] if group else []
    read = opened.take([*about, *([Column(answer, nullable=True)] if answer else [])])
    groups = renumber(group, read.pop(group))[0] if group else None
    if answer:
        hit = np.nan_to_num(read.pop(answer)) > 0
        events = int(min(hit.sum(), len(hit) - hit.sum()))
    else:
        events = 0 if groups is None else len(groups) // 2
    items = int(groups.max()) + 1 if layout == "clicks" and groups is not None else 1
    within = groups if layout == "long choices" else None
    changes = [] if opened.repair is None else opened.repair.notes
    dated = {note.split(": dates read")[0] for note in changes if ": dates read" in note}
    features, unused, total = [], dict[str, str](), 1
    for name, values in read.items():
        size = len({*values}) - 1 if values.dtype == object else 1
        why = _useless(values, within)
        if name in dated:
            why = "dates, which do not recur; features= takes them"
        elif not why and _EVENTS_EACH * items * (total + size) > events:
            why = f"{events:,} responses are too few for more coefficients"
        if why:
            unused[name] = why
        else:
            total += size
            features.append(name)
    return features, unused


def _useless(values: Array, groups: Array | None) -> str:
    """Return why a column is no feature, or an empty text; `groups` are the choice sets."""
    text = values.dtype == object
    known = np.array([v for v in values if v is not None]) if text else values[~np.isnan(values)]
    distinct = len(np.unique(known))
    if len(known) < 0.8 * len(values):
        return "more than a fifth is missing"
    if distinct < 2:
        return "a single value"
    if text and distinct > MAX_LEVELS:
        return f"text with {distinct} values"
    whole = not text and len(known) == len(values) and (known % 1 == 0).all()
    if whole and (np.diff(known) > 0).all():
        return "numbers of the rows"
    if not text and np.median(known) > _UNIX:
        return "Unix times"
    if groups is not None and len(known) == len(values):
        _, codes = np.unique(values.astype(str), return_inverse=True)
        pairs = len(np.unique(groups * np.int64(distinct) + codes))
        return "the same for all alternatives" if pairs == groups.max() + 1 else ""
    return ""
