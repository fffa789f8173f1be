"""Load and check Expedia's personalised hotel searches.

The data of the ICDM 2013 contest "Personalize Expedia Hotel Searches" have one row per hotel shown
in a search, with clicks and bookings. A file must have the required `COLUMNS` under their original
names; it may have others.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dpb_data.column_reader import Array, Column, Opened, open_csv
from dpb_data.data_files import Source, shorten
from dpb_data.data_folders import locate
from dpb_data.dataset_registry import Counts, find_dataset, generated, read_layouts
from dpb_data.rating_table import digest_of, frozen
from dpb_gym import validation
from dpb_gym.errors import DataError, ParameterError

DROP_LAST = "drop-last-search"
TRAIN_FILES = ("train.csv", "training_set_VU_DM.csv")
PER_SEARCH = (
    "srch_destination_id", "site_id", "visitor_hist_starrating", "visitor_hist_adr_usd",
    "srch_length_of_stay", "srch_booking_window", "srch_adults_count", "srch_children_count",
    "srch_room_count", "srch_saturday_night_bool",
)  # fmt: skip
_NULLS = ("", "NULL")
_HINT = " (is this the training file of Expedia's searches? The test file has no responses)"


COLUMNS: tuple[Column, ...] = tuple(read_layouts("searches", Column).values())


@dataclass(frozen=True, eq=False, repr=False)
class SearchLog:
    """Searches and the hotels shown in them, one row per hotel shown, grouped by search.

    Attributes:
        name: Name of the data set, or of the file.
        columns: Columns by their original names, each ``(rows,)`` and read-only: ids int64, the
            rest float64 with NaN for missing (``NULL``, an empty field, and 0 in columns with
            `Column.zero_is_unknown`).
        starts: int64 ``(n_searches + 1,)``: search s has rows ``starts[s]:starts[s + 1]``.
        absent: Optional columns that the file does not have.
        notes: Descriptions of repairs; empty for an intact file.
    """

    name: str
    columns: Mapping[str, Array]
    starts: NDArray[np.int64]
    absent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def n_searches(self) -> int:
        """Number of searches."""
        return len(self.starts) - 1

    @property
    def n_hotels(self) -> int:
        """Number of distinct hotels."""
        return len(np.unique(self.columns["prop_id"]))

    @property
    def destinations(self) -> dict[int, int]:
        """Numbers of searches per destination, in descending order, ties by id."""
        ids, counts = np.unique(
            self.columns["srch_destination_id"][self.starts[:-1]], return_counts=True
        )
        order = np.argsort(-counts, kind="stable")
        return {int(ids[i]): int(counts[i]) for i in order}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __repr__(self) -> str:
        return (
            f"SearchLog({self.name!r}: {self.n_searches:,} searches, {len(self):,} rows, "
            f"{self.n_hotels:,} hotels, {len(self.destinations):,} destinations)"
        )

    def per_search(self, column: str) -> Array:
        """Return a column that is constant within searches, ``(n_searches,)``."""
        values: Array = self.columns[column][self.starts[:-1]]
        return values

    def select(self, destination: int) -> SearchLog:
        """Return the searches of one destination.

        Raises:
            ParameterError: It has no searches; the message lists some that have.
        """
        known = self.destinations
        if destination not in known:
            some = ", ".join(map(str, list(known)[:5]))
            raise ParameterError(
                f"destination must be one of the {len(known)} in {self.name} (most searched: "
                f"{some}) or 'all', got {destination!r}"
            )
        rows = self.columns["srch_destination_id"] == destination
        lengths = np.diff(self.starts)[self.per_search("srch_destination_id") == destination]
        columns = {name: frozen(values[rows]) for name, values in self.columns.items()}
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return SearchLog(
            self.name, MappingProxyType(columns), frozen(starts), self.absent, self.notes
        )

    def digest(self) -> str:
        """Return a hexadecimal digest of columns and rows."""
        named = (([name, ""], self.columns[name]) for name in sorted(self.columns))
        return digest_of(*(part for pair in named for part in pair))


def load_searches(source: str | os.PathLike[str], *, repair: str | None = None) -> SearchLog:
    """Load hotel searches and check every value that is used.

    Args:
        source: Name of a registered data set of searches, or a path to a CSV file, a zip archive
            or a folder with one (or with ``train.csv`` among others).
        repair: None rejects a file that was cut off in its last line. ``"drop-last-search"`` drops
            all rows of the search in that line, with a warning and an entry in
            `SearchLog.notes`. Other damage is always rejected.

    Returns:
        The log, searches in ascending order of their ids.

    Raises:
        DataError: Missing, damaged, truncated or not of the format; names file, line, what was
            expected and what was found.
        ParameterError: `repair` is unknown.
        UnknownNameError: Neither the name of a data set nor a path.

    Example:
        >>> import dpb_data
        >>> dpb_data.load_searches("synthetic-expedia")
        SearchLog('synthetic-expedia': 700 searches, 13,168 rows, 194 hotels, 3 destinations)
    """
    validation.optional(validation.choice, "repair", repair, (DROP_LAST,))
    made: SearchLog | None = generated(source, "searches")
    if made is not None:
        return made
    known = find_dataset(source)
    location = locate(source)
    opened = Source(location)
    member = _member(opened)
    name = known.name if known is not None else location.absolute().stem
    log = read_searches(opened.read(member), opened.where(member), name, repair=repair)
    if known is not None:
        known.require(Counts(searches=log.n_searches), location)
    return log


def _member(source: Source) -> str:
    """Return the file of searches in a source."""
    if source.main is not None:
        return source.main
    names = source.names()
    tables = [name for name in names if name.lower().endswith(".csv")]
    for name in (*TRAIN_FILES, *(tables if len(tables) == 1 else [])):
        if name in names:
            return name
    raise DataError(
        f"{source.path}: expected {' or '.join(TRAIN_FILES)}, or one single .csv file; found "
        f"{source.listing()}. Give the path of the file itself"
    )


def synthetic_log(seed: int = 0) -> SearchLog:
    """Return the generated data set, written in the original layout and read from it."""
    from dpb_data.expedia_synthetic import searches_csv

    name = "synthetic-expedia"
    return read_searches(searches_csv(seed=seed), name, name)


def read_searches(raw: bytes, where: str, name: str, *, repair: str | None = None) -> SearchLog:
    """Read a file in memory.

    Args:
        raw: The file.
        where: Its name in messages.
        name: Name of the log.
        repair: See `load_searches`.
    """
    tail = raw[raw.rfind(b"\n") + 1 :]
    opened = open_csv(raw, where, delimiter=",", nulls=_NULLS, quoted=False, strict=False)
    fields = tail.decode("utf-8", errors="replace").split(",")
    # a cut file ends without newline, with at most as many fields as columns
    cut = bool(tail) and len(fields) <= len(opened.columns)
    notes: tuple[str, ...] = ()
    if cut:
        at = f"{where}: line {raw.count(bytes([10])) + 1}"
        if repair != DROP_LAST:
            raise DataError(
                f"{at}: expected {len(opened.columns)} fields, found {len(fields)} and no newline: "
                f"{shorten(tail)}; the file was cut off. repair='drop-last-search' loads the "
                "complete searches before this line"
            )
        whole = raw[: len(raw) - len(tail)]
        opened = open_csv(whole, where, delimiter=",", nulls=_NULLS, quoted=False)
    rows = opened.take(COLUMNS, hint=_HINT)
    if cut:
        rows, note = _without_last(rows, fields, opened.columns, at)
        notes = (note,)
        warnings.warn(note, UserWarning, stacklevel=3)
    search = rows["srch_id"]
    order = np.argsort(search, kind="stable")
    if (search[1:] < search[:-1]).any():
        rows = {key: values[order] for key, values in rows.items()}
        search = rows["srch_id"]
    starts = np.flatnonzero(np.concatenate([[True], search[1:] != search[:-1], [True]]))
    _check_searches(rows, starts, order, opened)
    for column in COLUMNS:
        if column.zero_is_unknown and column.name in rows:
            values = rows[column.name]
            rows[column.name] = np.where(values == 0.0, np.nan, values)
    columns = {key: frozen(values) for key, values in rows.items()}
    absent = tuple(c.name for c in COLUMNS if c.name not in rows)
    return SearchLog(name, MappingProxyType(columns), frozen(starts), absent, notes)


def _without_last(
    rows: dict[str, Array], fields: list[str], header: list[str], where: str
) -> tuple[dict[str, Array], str]:
    """Drop the rows of the search whose last line was cut off; return the rest and a note."""
    at = header.index("srch_id")
    last = int(rows["srch_id"][-1])
    text = fields[at].strip() if at < len(fields) else ""
    if len(fields) > at + 1 and text.isdigit():
        search = int(text)
    else:  # the id itself may be cut: compare it with the beginning of the id above
        search = last if str(last).startswith(text) else -1
    dropped = rows["srch_id"] == search
    if dropped.all():
        raise DataError(f"{where}: cut off; no complete search precedes it")
    rest = {name: values[~dropped] for name, values in rows.items()}
    before = f" and the {int(dropped.sum())} rows of its search {search} before it"
    what = f"it{before if dropped.any() else ''}"
    return rest, f"{where} is cut off; dropped {what}, kept {len(rest['srch_id']):,} rows"


def _check_searches(rows: dict[str, Array], starts: Array, order: Array, opened: Opened) -> None:
    """Check conditions across lines; `order` has the rows' positions in the file."""

    def refuse(bad: Array, problem: str) -> None:
        if bad.any():
            row = int(bad.argmax())
            values = {name: float(column[row]) for name, column in rows.items()}
            text = problem.format(**values)
            raise DataError(f"{opened.at(order[row])}: {text} (search {search[row]})")

    search = rows["srch_id"]
    hotel = rows["prop_id"]
    index = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    again = np.zeros(len(search), np.bool_)
    by_hotel = np.lexsort((hotel, index))
    again[by_hotel[1:]] = (np.diff(search[by_hotel]) == 0) & (np.diff(hotel[by_hotel]) == 0)
    refuse(
        again,
        "expected each hotel once in a search, found hotel {prop_id:.0f} again (were two files "
        "joined?)",
    )
    for column in PER_SEARCH:
        if column in rows:
            values = rows[column]
            first = values[starts[:-1]][index]
            differs = (values != first) & ~(np.isnan(values) & np.isnan(first))
            what = f"expected {column} to be the same throughout a search, found {{{column}:g}}"
            refuse(differs, what)
    booked = rows["booking_bool"] == 1.0
    clicked = rows.get("click_bool", booked) == 1.0
    refuse(booked & ~clicked, "expected a booked hotel to be clicked, found click_bool 0")
    so_far = np.cumsum(booked)
    before = (so_far - booked)[starts[:-1]][index]
    refuse(booked & (so_far - before > 1), "expected at most one booking in a search, found two")
