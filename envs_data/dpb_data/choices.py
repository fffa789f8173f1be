"""Choice sets: offered alternatives with attributes, and the chosen one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpb_data import synthetic
from dpb_data.column_reader import Array, Column, Opened, open_table, take_columns
from dpb_data.dataset_registry import generated, read_layouts
from dpb_data.rating_table import digest_of, encode_features, first_duplicate, frozen, renumber
from dpb_data.table_repair import Repair
from dpb_data.wide_choices import Layout, code, stem, wide_layout
from dpb_gym.errors import DataError, ParameterError, unknown_name


@dataclass(frozen=True, eq=False, repr=False)
class ChoiceTable:
    """Choice sets, one row per alternative offered, grouped by set.

    Attributes:
        name: Name of the data set or file.
        starts: int64 ``(n_sets + 1,)``: set s has rows ``starts[s]:starts[s + 1]``.
        items: int64 ``(rows,)``, index of the alternative in `item_ids`.
        item_ids: Original names or numbers of the alternatives, ascending.
        features: float64 ``(rows, d)``, finite, in the units of the file.
        feature_names: d names; ``"fuel=gasoline"`` for a level of a text column.
        chosen: int64 ``(n_sets,)``, position of the choice in its set, -1 for none of them.
        people: int64 ``(n_sets,)``, index of the person, or None.
        notes: Descriptions of omitted sets and of repairs.
    """

    name: str
    starts: Array
    items: Array
    item_ids: Array
    features: Array
    feature_names: tuple[str, ...]
    chosen: Array
    people: Array | None = None
    notes: tuple[str, ...] = ()

    @property
    def n_sets(self) -> int:
        """Number of choice sets."""
        return len(self.chosen)

    def digest(self) -> str:
        """Return a hexadecimal digest of the contents; the name does not count."""
        return digest_of(
            self.starts, self.items, self.item_ids, self.features, self.feature_names,
            self.chosen, self.people,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return (
            f"ChoiceTable({self.name!r}: {self.n_sets:,} sets of {np.diff(self.starts).min()} to "
            f"{np.diff(self.starts).max()}, {len(self.item_ids)} alternatives, "
            f"{len(self.feature_names)} features)"
        )


LAYOUTS: dict[str, Layout] = read_layouts("choices", Layout)


def load_choices(source: str | os.PathLike[str], *, layout: str | None = None) -> ChoiceTable:
    """Load a published or generated choice data set and check every value that is used.

    Args:
        source: Name of a registered data set of choices, or a path to a CSV file (``.csv.gz``
            too) in one of the `LAYOUTS`, here or below ``$DPB_DATA``.
        layout: Name of the layout; by default detected by the file's columns.

    Raises:
        DataError: Missing, damaged, or of unknown layout; names the line or row.
        UnknownNameError: Neither the name of a data set nor a path; or unknown layout.

    Example:
        >>> import dpb_data
        >>> dpb_data.load_choices("synthetic-mode-canada")
        ChoiceTable('synthetic-mode-canada': 600 sets of 2 to 4, 4 alternatives, 4 features)
    """
    made: ChoiceTable | None = generated(source, "choices")
    if made is not None:
        return made
    if layout is not None and layout not in LAYOUTS:
        raise unknown_name("layout of choices", layout, LAYOUTS)
    opened = open_table(source)
    known = find_layout(opened) if layout is None else LAYOUTS[layout]
    if known is None:
        raise DataError(
            f"{opened.where}: line 1: expected the columns of one of {', '.join(LAYOUTS)}, found "
            f"{', '.join(sorted(opened.columns))[:200]}. Choices of your own load with "
            "dpb_data.choices(file, case=, item=, chosen=, features=[...]); dpb_data.read(file) "
            "proposes these arguments"
        )
    return (_long if known.case else _wide)(opened, known)


def synthetic_choices() -> ChoiceTable:
    """Return the generated data set ``"synthetic-mode-canada"``."""
    return _long(synthetic.mode_canada(), LAYOUTS["mode-canada"], "synthetic-mode-canada")


def _long(source: Any, layout: Layout, name: str | None = None) -> ChoiceTable:
    return choices(
        source, case=layout.case, item=layout.item, chosen=layout.chosen, features=layout.features,
        person=layout.person or None, name=name,
    )  # fmt: skip


def choices(
    source: Any,
    *,
    chosen: str,
    case: str | Sequence[str] | None = None,
    item: str | None = None,
    features: Sequence[str] = (),
    person: str | None = None,
    alternatives: Mapping[Any, Any] | Sequence[Any] | None = None,
    none: Any = None,
    unknown: Any = None,
    name: str | None = None,
    missing: str | None = None,
    decimal: str | None = None,
    header: Sequence[str] | str | None = None,
    absent: Mapping[str, Any] | str | None = None,
    success: Any = None,
) -> ChoiceTable:
    """Return a table of choice sets: one row per offered alternative, or one row per set.

    In a wide table (no `case`) the columns of an attribute are named by the alternative and the
    attribute, such as ``train_cost``, ``cost.train`` or ``CostTrain``. Those named ``av`` or
    ``available`` say which alternatives were offered; an alternative with a missing attribute was
    not offered. Columns such as ``cost1`` are attributes only if ``"cost"`` is among `features`,
    or 1 among `alternatives`.

    Args:
        source: Frame, mapping of arrays, or path of a CSV or Parquet file, see
            `dpb_data.column_reader.take_columns`.
        chosen: Long tables: column that is 1 (or true) in the chosen row; a set may have none.
            Wide tables: column of the chosen alternatives.
        case: Column of the choice sets' ids, for long tables; or several columns that together
            number the sets, such as a person and a task.
        item: Column of the alternatives' names, for long tables.
        features: Columns of attributes (wide tables: the attributes' names, all by default); a
            text column becomes one feature per level but the first. Wide tables: also columns of
            the customer.
        person: Column of person ids.
        alternatives: Wide tables: text of the alternatives in the names of columns, by value of
            `chosen`; or a list, if they are the same.
        none: Wide tables: values of `chosen` that mean that no alternative was chosen;
            ``"missing"`` for an empty one. Words such as ``"none"`` are known.
        unknown: Wide tables: values of `chosen` whose rows are left out.
        name: Name of the table; by default the file's.
        missing: See `dpb_data.table_repair.Repair`; a set with a missing attribute is left out.
        decimal: See `dpb_data.table_repair.Repair`.
        header: See `dpb_data.table_repair.Repair`.
        absent: See `dpb_data.table_repair.Repair`.
        success: Long tables: values of `chosen` that mean that the row was chosen, see
            `dpb_data.table_repair.Repair`.

    Raises:
        QuestionError: A value of `chosen` is none of the alternatives, or the columns of the
            attributes are not named by them.
        DataError: A column is missing or a value not allowed; a set has two choices, or the same
            alternative twice; or no attribute varies within a set.
    """
    features = [features] if isinstance(features, str) else features
    repair = Repair(missing, decimal, header, absent)
    if case is None and success is not None:
        raise ParameterError("success= belongs to long tables, with case=")
    if case is not None:
        repair.success, repair.answers = success, {chosen}
    wide = {"alternatives": alternatives, "none": none, "unknown": unknown}
    if case is None:
        opened = open_table(source, repair)
        made = _wide(opened, wide_layout(opened, chosen, features, person or "", **wide))
        return replace(made, name=name or made.name)
    if given := [key for key, value in wide.items() if value is not None]:
        raise ParameterError(f"{given[0]}= belongs to wide tables, without case=")
    if not features or item is None:
        what = "item=, the alternatives' names" if features else "features=: attributes that vary"
        raise ParameterError(f"choices need {what} within a set")
    cases = [case] if isinstance(case, str) else [*case]
    return _long_choices(source, chosen, cases, item, features, person, name, repair)


def _long_choices(
    source: Any, chosen: str, cases: list[str], item: str, features: Sequence[str],
    person: str | None, name: str | None, repair: Repair,
) -> ChoiceTable:  # fmt: skip
    """Return the choice sets of a table with one row per offered alternative; see `choices`."""
    others = [item, *([person] if person and person not in cases else [])]
    ids = [Column(column, kind="id", nullable=column == item) for column in (*cases, *others)]
    took = Column(chosen, 0.0, 1.0, 1.0, nullable=True, hint=" (0 or 1)")
    about = [replace(c, nullable=repair.missing in (None, "drop")) for c in _attributes(features)]
    opened, read = take_columns(source, [*ids, took, *about], repair)
    read = _without_none(read, item, features, repair, opened.where)
    blank = np.isnan(read[chosen])
    repair.note(f"{chosen}: rows without a value read as not chosen", int(blank.sum()))
    case = " and ".join(cases)
    sets, set_ids = _numbered(read, cases)
    lacks = np.zeros(len(set_ids), np.bool_)
    for feature in features:
        lacks[sets[_absent(read[feature])]] = True
    repair.note("sets with a missing attribute left out", int(lacks.sum()))
    repair.check_dropped(lacks, opened.where)
    if lacks.any():
        read = {key: values[~lacks[sets]] for key, values in read.items()}
        sets, set_ids = _numbered(read, cases)
    items, item_ids = renumber(item, read[item])
    twins = first_duplicate(sets, items, len(item_ids))
    if twins is not None:
        raise DataError(
            f"{opened.at(twins[1])}: expected each alternative of a set once, found "
            f"{read[item][twins[1]]} twice in {case} {set_ids[sets[twins[1]]]}. If its numbers "
            "begin again with each person, name both columns: case=[person, task]"
        )
    taken = read[chosen] == 1
    several = np.bincount(sets, weights=taken) > 1
    if several.any():
        bad = set_ids[int(several.argmax())]
        raise DataError(f"{opened.where}: {case} {bad}: expected at most one choice, found two")
    return _grouped(
        name or opened.name, sets, items, item_ids, {key: read[key] for key in features},
        taken, read[person] if person else None, tuple(repair.notes),
    )  # fmt: skip


def _without_none(
    read: Mapping[str, Array], item: str, features: Sequence[str], repair: Repair, where: str
) -> Mapping[str, Array]:  # fmt: skip
    """Return rows of alternatives, without those that stand for choosing none of them.

    Such a row has no name of an item, or the name none, and no attribute. Rows without a name
    that have attributes are left out by the rule for missing values.
    """
    unnamed = _absent(read[item])
    if not unnamed.any():
        return read
    bare = np.logical_and.reduce([_absent(read[feature]) for feature in features])
    if (bare | ~unnamed).all():
        said = f"{item}: rows without a name and attributes read as choosing none"
        repair.note(said, int(unnamed.sum()))
    else:
        repair.note(f"{item}: rows without a value left out", int(unnamed.sum()))
        repair.check_dropped(unnamed, where)
    return {name: values[~unnamed] for name, values in read.items()}


def _numbered(read: Mapping[str, Array], columns: Sequence[str]) -> tuple[Array, Array]:
    """Return the number of each row's choice set, from 0, and the sets' ids."""
    sets, ids = renumber(columns[0], read[columns[0]])
    for column in columns[1:]:
        within, own = renumber(column, read[column])
        sets, pairs = renumber("case", sets * np.int64(len(own)) + within)
        ids = np.array([f"{ids[p // len(own)]}, {own[p % len(own)]}" for p in pairs])
    return sets, ids


def _absent(values: Array) -> Array:
    return np.array([v is None for v in values]) if values.dtype == object else np.isnan(values)


def _wide(opened: Opened, layout: Layout) -> ChoiceTable:
    """Read a file with one line per choice set."""
    alternatives = dict(layout.alternatives or {})
    names = list(alternatives.values())
    lenient = layout.none is not None
    columns = [Column(layout.chosen, kind="code" if lenient else "text", nullable=lenient)]
    columns += [Column(c, kind="id") for c in (layout.person, *(layout.free or {})) if c]
    offers = [layout.available.format(a) for a in names] if layout.available else []
    columns += [Column(offer, kind="flag") for offer in offers]
    wanted = [feature.format(a) for feature in layout.features for a in names]
    about = [
        replace(c, nullable=lenient) for c in _attributes([*dict.fromkeys(wanted)], required=False)
    ]
    read = opened.take([*columns, *about])
    n = len(read[layout.chosen])
    m = len(names)
    offered = np.ones((n, m), np.bool_)
    if offers:
        offered = np.column_stack([read[offer] == 1 for offer in offers])
    for column, freed in (layout.free or {}).items():
        for name in freed:
            read[name] = np.where(read[column].astype(str) == "0", read[name], 0.0)
    answers = [code(value) for value in read[layout.chosen]]
    took = np.array([[answer == key for key in alternatives] for answer in answers])
    notes = [] if opened.repair is None else opened.repair.notes
    if lenient:
        lacking = {column: _absent(read[column]) for column in wanted if column in read}
        for k, column in enumerate(wanted):
            if column in read:
                offered[:, k % m] &= ~lacking[column]
        for column, lacks in lacking.items():
            read[column] = np.where(lacks, 0.0, read[column])
    usable = np.logical_or.reduce(took & offered, axis=1)
    if layout.none is not None:
        none = np.array([answer in layout.none for answer in answers]) & offered.any(axis=1)
        usable |= none
        if none.any():
            notes = [*notes, f"{layout.chosen}: read as choosing none ({int(none.sum()):,} rows)"]
    if not usable.all():
        out = int((~usable).sum())
        notes = [*notes, f"{opened.name}: left out {out:,} sets without a known choice"]
    offered &= usable[:, None]
    sets, items = np.nonzero(offered)
    features = {}
    for feature in layout.features:
        by_alternative = [read.get(feature.format(a), np.zeros(n)) for a in names]
        features[stem(feature)] = np.column_stack(by_alternative)[offered]
    return _grouped(
        opened.name, renumber("set", sets)[0], items, np.array(names), features, took[offered],
        read[layout.person][sets] if layout.person else None, tuple(notes),
    )  # fmt: skip


def _attributes(names: Sequence[str], required: bool = True) -> list[Column]:
    return [Column(name, kind="any", required=required) for name in names]


def find_layout(opened: Opened) -> Layout | None:
    """Return the published layout if a table has all of its columns, or None."""
    columns = {*opened.columns}
    return next((layout for layout in LAYOUTS.values() if layout.columns() <= columns), None)


def _grouped(
    name: str,
    sets: Array,
    items: Array,
    item_ids: Array,
    attributes: Mapping[str, Array],
    took: Array,
    people: Array | None,
    notes: tuple[str, ...] = (),
) -> ChoiceTable:
    """Group rows by set; reject tables that no choice model can be fitted to."""
    if not took.any():
        raise DataError(f"{name}: expected choice sets of which some have a choice")
    order = np.argsort(sets, kind="stable")
    sets, sizes = sets[order], np.bincount(sets)
    starts = np.append(0, np.cumsum(sizes)).astype(np.int64)
    features, names = encode_features({key: v[order] for key, v in attributes.items()}, name)
    mean = np.add.reduceat(features, starts[:-1]) / sizes[:, None]
    if not (np.abs(features - mean[sets]).max(axis=0) > 1e-9).any():
        raise ParameterError(
            f"{name}: no attribute varies within a choice set: nothing distinguishes alternatives"
        )
    rows = np.flatnonzero(took[order])
    chosen = np.full(len(sizes), -1, np.int64)
    chosen[sets[rows]] = rows - starts[sets[rows]]
    who = None
    if people is not None:
        who = frozen(renumber("person", people[order][starts[:-1]])[0])
    return ChoiceTable(
        name, frozen(starts), frozen(items[order]), item_ids, frozen(features), names,
        frozen(chosen), who, notes,
    )  # fmt: skip
