"""Expedia's personalised hotel searches: from a file in the original layout to a checked log.

The data of the ICDM 2013 contest "Personalize Expedia Hotel Searches": one row per hotel shown
in a search, with what the visitor clicked and booked. Original column names are expected; every
file that has the columns without a default below loads, whatever others it has or lacks.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data.expedia_columns import COLUMNS
from dpb_data.expedia_reading import MemorySource, find_member, read_rows
from dpb_data.loading import existing_path
from dpb_data.locating import path as locate
from dpb_data.registry import datasets, find_dataset
from dpb_data.sources import Source, open_source
from dpb_gym.errors import DataError, ParameterError

Array = NDArray[Any]

DROP_LAST = "drop-last-search"
PER_SEARCH = (
    "srch_destination_id", "site_id", "visitor_hist_starrating", "visitor_hist_adr_usd",
    "srch_length_of_stay", "srch_booking_window", "srch_adults_count", "srch_children_count",
    "srch_room_count", "srch_saturday_night_bool",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class SearchLog:
    """Searches and the hotels shown in them, one row per hotel shown, grouped by search.

    Attributes:
        name: Name of the data set, or of the file.
        columns: Columns by their original names, each ``(rows,)`` and read-only: ids int64, the
            rest float64 with NaN for missing (``NULL``, an empty field, and 0 in the columns in
            which 0 stands for unknown).
        starts: int64 ``(n_searches + 1,)``: search s has rows ``starts[s]:starts[s + 1]``.
        absent: Optional columns that the file does not have.
        notes: What was repaired, in words; empty for an intact file.
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
        """Searches per destination, most searched first, ties by id."""
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
        """A column that is constant within searches, ``(n_searches,)``."""
        values: Array = self.columns[column][self.starts[:-1]]
        return values

    def select(self, destination: int) -> SearchLog:
        """The searches of one destination.

        Raises:
            ParameterError: Nobody searched there; the message names some that were searched.
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
        columns = {name: _frozen(values[rows]) for name, values in self.columns.items()}
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return SearchLog(
            self.name, MappingProxyType(columns), _frozen(starts), self.absent, self.notes
        )

    def digest(self) -> str:
        """Hexadecimal digest of the contents, the same for equal columns and rows."""
        digest = hashlib.sha256()
        for name in sorted(self.columns):
            digest.update(name.encode() + b"\0")
            values = self.columns[name]
            kind = "<i8" if values.dtype.kind == "i" else "<f8"
            digest.update(np.ascontiguousarray(values, dtype=kind).tobytes())
        return digest.hexdigest()[:32]


def load_searches(source: str | os.PathLike[str], *, repair: str | None = None) -> SearchLog:
    """Loads hotel searches and checks every value that is used.

    Args:
        source: Name of a registered data set of searches, or a path to a CSV file, a zip archive
            or a folder with one (or with ``train.csv`` among others).
        repair: None refuses a file that was cut off in its last line. ``"drop-last-search"``
            drops that line together with all rows of its search, says so in a warning and in
            `SearchLog.notes`, and refuses every other damage all the same.

    Returns:
        The log, searches in ascending order of their ids.

    Raises:
        DataError: Missing, damaged, truncated or not of the format; names file, line, what was
            expected and what was found.
        ParameterError: `repair` is unknown.
        UnknownNameError: A bare word that is neither a data set nor a path.

    Example:
        >>> import dpb_data
        >>> dpb_data.load_searches("synthetic-expedia")
        SearchLog('synthetic-expedia': 700 searches, 13,168 rows, 194 hotels, 3 destinations)
    """
    if repair not in (None, DROP_LAST):
        raise ParameterError(f"repair must be None or {DROP_LAST!r}, got {repair!r}")
    known = find_dataset(source) if isinstance(source, str) else None
    if known is not None and known.kind != "searches":
        names = ", ".join(d.name for d in datasets() if d.kind == "searches")
        raise DataError(
            f"the data set {known.name!r} holds {known.kind}, expected one of searches: {names}"
        )
    if known is not None and known.generate is not None:
        log = known.generate()
        assert isinstance(log, SearchLog)
        return log
    location = existing_path(source) if known is None else locate(known.name)
    opened = open_source(location)
    name = known.name if known is not None else location.absolute().stem
    log = read_searches(opened, find_member(opened), name, repair=repair)
    if known is not None and known.name == PUBLISHED_NAME and log.n_searches != PUBLISHED_SEARCHES:
        raise DataError(
            f"{location}: expected {PUBLISHED_SEARCHES:,} searches, found {log.n_searches:,}: this "
            f"is not the complete {known.name}. A sample of your own loads by its path"
        )
    return log


PUBLISHED_NAME = "expedia-personalized-sort"
PUBLISHED_SEARCHES = 399_344  # Cho & Sun, section 5.2.1


def synthetic_log(seed: int = 0) -> SearchLog:
    """The generated data set, written in the original layout and read like any file."""
    from dpb_data.expedia_synthetic import searches_csv

    name = "synthetic-expedia"
    return read_searches(MemorySource(name, searches_csv(seed=seed)), name, name)


def read_searches(
    source: Source, member: str, name: str, *, repair: str | None = None
) -> SearchLog:
    """Reads one member; see `load_searches`."""
    where = source.where(member)
    rows, absent, notes = read_rows(source, member, drop_last=repair == DROP_LAST)
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=3)
    search = rows["srch_id"]
    lines = np.arange(2, len(search) + 2)
    if bool(np.any(search[1:] < search[:-1])):
        order = np.argsort(search, kind="stable")
        rows = {key: values[order] for key, values in rows.items()}
        search, lines = rows["srch_id"], lines[order]
    first = np.flatnonzero(np.concatenate([[True], search[1:] != search[:-1]]))
    starts = np.concatenate([first, [len(search)]]).astype(np.int64)
    _check_searches(rows, starts, lines, where)
    for column in COLUMNS:
        if column.zero_is_unknown and column.name in rows:
            values = rows[column.name]
            values[values == 0.0] = np.nan
    columns = {key: _frozen(values) for key, values in rows.items()}
    return SearchLog(name, MappingProxyType(columns), _frozen(starts), absent, notes)


def _check_searches(rows: dict[str, Array], starts: Array, lines: Array, where: str) -> None:
    """Checks what no single line can show."""

    def refuse(row: int, problem: str) -> DataError:
        search = int(rows["srch_id"][row])
        return DataError(f"{where}: line {lines[row]}: {problem} (search {search})")

    lengths = np.diff(starts)
    index = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((rows["prop_id"], index))
    same = (np.diff(index[order]) == 0) & (np.diff(rows["prop_id"][order]) == 0)
    if same.any():
        row = int(order[1:][same].min())
        hotel = int(rows["prop_id"][row])
        raise refuse(
            row, f"expected each hotel once in a search, found hotel {hotel} again (were two "
            "files joined?)"
        )  # fmt: skip
    for column in PER_SEARCH:
        if column not in rows:
            continue
        values = rows[column]
        expected = values[starts[:-1]][index]
        differs = (values != expected) & ~(np.isnan(values) & np.isnan(expected))
        if differs.any():
            row = int(differs.argmax())
            raise refuse(
                row, f"expected {column} to be the same throughout a search ("
                f"{expected[row]:g}), found {values[row]:g}"
            )  # fmt: skip
    booked = rows["booking_bool"] == 1.0
    if "click_bool" in rows and bool((booked & (rows["click_bool"] != 1.0)).any()):
        row = int((booked & (rows["click_bool"] != 1.0)).argmax())
        raise refuse(row, "expected a booked hotel to be clicked, found click_bool 0")
    bookings = np.add.reduceat(booked.astype(np.int64), starts[:-1])
    if (bookings > 1).any():
        search = int((bookings > 1).argmax())
        row = int(starts[search] + np.flatnonzero(booked[starts[search] : starts[search + 1]])[1])
        raise refuse(row, f"expected at most one booking in a search, found {bookings[search]}")


def _frozen(values: Array) -> Array:
    values = np.ascontiguousarray(values)
    values.flags.writeable = False
    return values
