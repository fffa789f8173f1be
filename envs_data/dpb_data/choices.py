"""Choice sets: what people were offered, with which attributes, and what they took."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data import synthetic
from dpb_data.frames import encode_features, take_columns
from dpb_data.places import Source, existing_path, of_kind
from dpb_data.reading import Column, first_line
from dpb_data.table import digest_of, renumber
from dpb_gym.errors import DataError, ParameterError, unknown_name

Array = NDArray[Any]


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
        people: int64 ``(n_sets,)``, who chose, or None where the file does not say.
        notes: What was left out, and why.
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

    @property
    def sets_per_person(self) -> int:
        """Choice sets of one person at most; 1 where the file does not say who chose."""
        return 1 if self.people is None else int(np.bincount(self.people).max())

    def digest(self) -> str:
        """Hexadecimal digest of the contents; the table's name does not count."""
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


@dataclass(frozen=True)
class Layout:
    """Where a published file keeps what a `ChoiceTable` holds.

    Attributes:
        case: Column that numbers the sets of a file with one line per alternative; empty for one
            with a line per set, whose columns name the alternatives.
        item: Column of the alternative (long files).
        chosen: Column of the choice: 0/1 or TRUE/FALSE (long), or the alternative (wide).
        features: Columns of attributes; in wide files with ``{}`` for the alternative, and an
            alternative without such a column has 0.
        person: Column of who chose, or empty.
        alternatives: Wide files: what stands for ``{}``, by the value of `chosen`.
        available: Wide files: column that is 1 where the alternative was offered.
        free: Wide files: features that are 0 where a column is not 0, by that column.
    """

    chosen: str
    features: tuple[str, ...]
    case: str = ""
    item: str = ""
    person: str = ""
    alternatives: Mapping[str, str] | None = None
    available: str = ""
    free: Mapping[str, tuple[str, ...]] | None = None


LAYOUTS: dict[str, Layout] = {
    "mode-canada": Layout(
        "choice", ("cost", "ivt", "ovt", "freq"), case="case", item="alt",
    ),
    "electricity": Layout(
        "choice", ("pf", "cl", "loc", "wk", "tod", "seas"), case="chid", item="alt", person="id",
    ),
    "swissmetro": Layout(
        "CHOICE", ("{}_TT", "{}_CO", "{}_HE", "{}_SEATS"), person="ID",
        alternatives={"1": "TRAIN", "2": "SM", "3": "CAR"}, available="{}_AV",
        # Who holds the annual season ticket pays nothing for the trip by rail.
        free={"GA": ("TRAIN_CO", "SM_CO")},
    ),
    "car-choice": Layout(
        "choice",
        ("price{}", "range{}", "acc{}", "speed{}", "pollution{}", "size{}", "space{}", "cost{}",
         "station{}", "type{}", "fuel{}"),
        alternatives={f"choice{k}": str(k) for k in range(1, 7)},
    ),
}  # fmt: skip


def load_choices(source: str | os.PathLike[str], *, layout: str | None = None) -> ChoiceTable:
    """Loads a published choice data set, or a generated one, and checks every value it takes.

    Args:
        source: Name of a registered data set of choices, or a path to a CSV file (``.csv.gz``
            too) in one of the `LAYOUTS`, here or below ``$DPB_DATA``.
        layout: Name of the layout; found by the file's columns if None.

    Raises:
        DataError: Missing, damaged, or of no known layout; names the line or row.
        UnknownNameError: A bare word that is neither a data set nor a path; or unknown layout.

    Example:
        >>> import dpb_data
        >>> dpb_data.load_choices("synthetic-mode-canada")
        ChoiceTable('synthetic-mode-canada': 600 sets of 2 to 4, 4 alternatives, 4 features)
    """
    known = of_kind(source, "choices")
    if known is not None and known.generate is not None:
        made: ChoiceTable = known.generate()
        return made
    place = existing_path(source)
    if layout is not None and layout not in LAYOUTS:
        raise unknown_name("layout of choices", layout, LAYOUTS)
    name = layout or _layout_of(Source(place))
    found = LAYOUTS[name]
    if found.case:
        return choices(
            place, case=found.case, item=found.item, chosen=found.chosen, features=found.features,
            person=found.person or None,
        )  # fmt: skip
    return _wide(place, found)


def synthetic_choices() -> ChoiceTable:
    """The generated data set ``"synthetic-mode-canada"``."""
    long = LAYOUTS["mode-canada"]
    return choices(
        synthetic.mode_canada(), case=long.case, item=long.item, chosen=long.chosen,
        features=long.features, name="synthetic-mode-canada",
    )  # fmt: skip


def choices(
    source: Any,
    *,
    case: str,
    item: str,
    chosen: str,
    features: Sequence[str],
    person: str | None = None,
    name: str | None = None,
) -> ChoiceTable:
    """Makes a table of choice sets of yours: one row per alternative that was offered.

    Args:
        source: Frame, mapping of arrays, or path of a CSV or Parquet file, see
            `dpb_data.frames.take_columns`.
        case: Column that tells the choice sets apart.
        item: Column of the alternatives' names.
        chosen: Column that is 1 (or true) in the row that was taken; a set may have none.
        features: Columns of attributes; a text column becomes one feature per level but the
            first.
        person: Column of who chose.
        name: Name of the table, the file's by default.

    Raises:
        DataError: A column is missing or a value not allowed; a set has two choices, or the same
            alternative twice; or no attribute varies within a set.
    """
    ids = [Column(column, kind="id") for column in (case, item, *([person] if person else []))]
    label, read = take_columns(source, [*ids, Column(chosen, kind="flag"), *_attributes(features)])
    label = name or label
    cases, case_ids = renumber(case, read[case])
    items, item_ids = renumber(item, read[item])
    order = np.argsort(cases, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(cases))).astype(np.int64)
    _refuse_twins(cases, items, case_ids, item_ids, label)
    took = read[chosen][order]
    counts = np.add.reduceat(took, starts[:-1])
    if (counts > 1).any():
        bad = int((counts > 1).argmax())
        raise DataError(f"{label}: {case} {case_ids[bad]}: expected at most one choice, found two")
    place = np.arange(len(took)) - starts[cases[order]]
    position = np.full(len(starts) - 1, -1, np.int64)
    position[cases[order][took == 1]] = place[took == 1]
    people = None
    if person is not None:
        people = renumber(person, read[person][order][starts[:-1]])[0]
    matrix, names = encode_features({name: read[name][order] for name in features}, label)
    return _checked(
        ChoiceTable(label, starts, items[order], item_ids, matrix, names, position, people)
    )


def _wide(place: Any, layout: Layout) -> ChoiceTable:
    """Reads a file with one line per choice set."""
    alternatives = dict(layout.alternatives or {})
    wanted = {
        (feature, alternative): feature.format(alternative)
        for feature in layout.features
        for alternative in alternatives.values()
    }
    columns = [Column(layout.chosen, kind="text"), *_attributes(wanted.values(), required=False)]
    for template in (layout.person, *(layout.free or {})):
        columns += [Column(template, kind="id")] if template else []
    if layout.available:
        flags = [layout.available.format(a) for a in alternatives.values()]
        columns += [Column(flag, kind="flag") for flag in flags]
    label, read = take_columns(place, columns)
    n, m = len(read[layout.chosen]), len(alternatives)
    offered = np.ones((n, m), np.bool_)
    if layout.available:
        offered = np.column_stack([read[flag] == 1 for flag in flags])
    for column, freed in (layout.free or {}).items():
        for name in freed:
            read[name] = np.where(read[column].astype(str) == "0", read[name], 0.0)
    by_feature = {}
    for feature in layout.features:
        found = [read.get(wanted[feature, a], np.zeros(n)) for a in alternatives.values()]
        by_feature[feature.replace("{}", "").strip("_")] = np.column_stack(found)[offered]
    matrix, names = encode_features(by_feature, label)
    took = np.array([[str(c) == key for key in alternatives] for c in read[layout.chosen]])
    usable = (took & offered).any(axis=1)
    notes: tuple[str, ...] = ()
    if not usable.all():
        notes = (f"{label}: left out {int((~usable).sum()):,} sets without a known choice",)
    kept = np.repeat(usable, offered.sum(axis=1))
    position = (np.cumsum(offered, axis=1) - 1)[np.arange(n), took.argmax(axis=1)][usable]
    starts = np.append(0, np.cumsum(offered[usable].sum(axis=1))).astype(np.int64)
    people = renumber(layout.person, read[layout.person][usable])[0] if layout.person else None
    item_ids = np.array(list(alternatives.values()))
    items = np.broadcast_to(np.arange(m), (n, m))[offered][kept]
    return _checked(
        ChoiceTable(
            label, starts, items, item_ids, matrix[kept], names, position, people, notes
        )
    )  # fmt: skip


def _attributes(names: Any, required: bool = True) -> list[Column]:
    return [Column(name, kind="any", required=required) for name in names]


def _layout_of(source: Source) -> str:
    if source.main is None:
        raise DataError(f"{source.path}: expected the path of a CSV file")
    where = source.where(source.main)
    line = first_line(source.read(source.main, 1 << 16), where)
    names = {name.strip().strip('"') for name in line.split(",")}
    for key, layout in LAYOUTS.items():
        first = next(iter((layout.alternatives or {"": ""}).values()))
        wanted = {layout.chosen, layout.features[0].format(first), layout.case or layout.chosen}
        if wanted <= names:
            return key
    raise DataError(
        f"{where}: line 1: expected the columns of one of {', '.join(LAYOUTS)}, found "
        f"{', '.join(sorted(names))[:200]}. Choices of your own load with "
        "dpb_data.choices(file, case=, item=, chosen=, features=[...])"
    )


def _refuse_twins(cases: Array, items: Array, case_ids: Array, item_ids: Array, label: str) -> None:
    pairs = np.sort(cases * len(item_ids) + items)
    twins = pairs[1:][pairs[1:] == pairs[:-1]]
    if len(twins):
        case, item = divmod(int(twins[0]), len(item_ids))
        raise DataError(
            f"{label}: set {case_ids[case]}: expected each alternative once, found "
            f"{item_ids[item]} twice"
        )


def _checked(table: ChoiceTable) -> ChoiceTable:
    """Refuses tables from which no choice model can be learned."""
    if table.n_sets == 0 or not (table.chosen >= 0).any():
        raise DataError(f"{table.name}: expected choice sets of which some have a choice")
    within = np.repeat(np.arange(table.n_sets), np.diff(table.starts))
    mean = np.add.reduceat(table.features, table.starts[:-1]) / np.diff(table.starts)[:, None]
    varies = np.abs(table.features - mean[within]).max(axis=0) > 1e-9
    if not varies.any():
        raise ParameterError(
            f"{table.name}: no attribute varies within a choice set: nothing tells alternatives "
            "apart"
        )
    for values in (table.starts, table.items, table.features, table.chosen, table.people):
        if values is not None:
            values.flags.writeable = False
    return table
