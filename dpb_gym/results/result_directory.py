"""A directory of results.

DIR/manifest.json     suite, versions, runs, audits; digest, guarantee and timing of every cell
DIR/result.parquet    the numbers of the cells in the manifest, see `dpb_gym.results.parquet`
DIR/cells/TASK/*      during a run: one file per finished cell
DIR/unfinished/*      during a run: state of jobs, see `dpb_gym.running.unfinished`
DIR/set-aside/*       damaged or outdated files, never read
DIR/.lock, .owner     held while a run is writing

DIR is a folder or a prefix of an object store, see `dpb_gym.results.storage`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from dpb_gym.errors import ResultError
from dpb_gym.results import manifest_schema, parquet
from dpb_gym.results.cell_result import RECOMPUTED, CellResult
from dpb_gym.results.storage import (
    ASIDE,
    CELLS,
    MANIFEST,
    TABLE,
    UNFINISHED,
    DamagedResult,
    Storage,
    UnreachableError,
    storage_of,
    warn,
)
from dpb_gym.suites import provenance
from dpb_gym.suites.spec import ALGORITHM_VERSION, Cell
from dpb_gym.suites.suite import Suite, parse_suite

MOST_MANIFEST = 1 << 26


def keep(place: Storage, result: CellResult) -> None:
    """Write the file of a finished cell, if the run still holds the lock of the directory."""
    place.check()
    place.write(f"{CELLS}/{parquet.cell_file(result.cell)}", parquet.write_cell(result))


class ResultDirectory:
    """A result directory: `open` it to read, or write within `writing`.

    Attributes:
        place: The directory, and `path`, its path or address.
        suite: The suite it belongs to.
        manifest: Content of its ``manifest.json`` but for the rows.
        entries: The manifest's entry of every cell, by key; see `CellResult.entry`.
    """

    def __init__(
        self,
        place: Storage,
        suite: Suite,
        manifest: dict[str, Any],
        entries: Iterable[CellResult] = (),
    ) -> None:
        self.place, self.path = place, place.path
        self.suite = suite
        self.manifest = manifest
        self.entries = {entry.cell.key: entry for entry in entries}

    @classmethod
    def open(cls, path: str | os.PathLike[str] | Storage) -> ResultDirectory:
        """Open an existing result directory.

        Raises:
            ResultError: If it does not exist or its manifest is damaged.
        """
        place = storage_of(path)
        file = place.at(MANIFEST)
        if place.names() is None:
            raise ResultError(f"{place}: no such result directory (dpb run makes one)")
        try:
            content = place.read(MANIFEST, MOST_MANIFEST)
            manifest = manifest_schema.read(content)
            suite = parse_suite(manifest["suite_text"], f"{file}: suite_text")
            entries = parquet.from_rows(manifest.pop("rows"))
            if manifest["protocol"] != suite.protocol:
                raise ValueError("suite and protocol disagree")
        except UnreachableError:
            raise
        except FileNotFoundError:
            raise ResultError(f"{place} is not a result directory: it has no {MANIFEST}") from None
        except (ValueError, RecursionError) as error:
            said = f"is damaged or of another version ({error!s:.500})"
            raise ResultError(f"{file} {said}; {place.repair}") from error
        return cls(place, suite, manifest, entries)

    @classmethod
    @contextlib.contextmanager
    def writing(
        cls, path: str | os.PathLike[str], suite: Suite, run: dict[str, Any] | None = None
    ) -> Iterator[ResultDirectory]:
        """Lock a directory for writing; create it if it does not exist.

        At the end, cells are compacted into one table. Without `run`, only `add` writes.

        Args:
            path: The directory.
            suite: The suite; without `run` the manifest's copy stays unchanged.
            run: Record of the run for the manifest, which may be extended; None for a change that
                is not a run.

        Raises:
            ResultError: If it contains results of another suite or other files, another run has
                locked it, or it cannot be written.
        """
        place = storage_of(path)
        cls._existing(place, suite, repair=False)
        with place.held():
            store = cls._existing(place, suite, repair=True)
            if store is None:
                now = provenance.now()
                fresh = {"runs": [], "audits": {}, "stated": {}, "created": now, "updated": now}
                store = cls(place, suite, fresh)
            if run is not None or "suite" not in store.manifest:
                store.suite = suite
                store.manifest |= {
                    "manifest": manifest_schema.VERSION,
                    "suite": suite.name,
                    "protocol": suite.protocol,
                    "suite_text": suite.to_yaml(),
                    "algorithm": ALGORITHM_VERSION,
                }
            with store._recording(run):
                yield store

    @classmethod
    def _existing(cls, place: Storage, suite: Suite, *, repair: bool) -> ResultDirectory | None:
        """Return an existing directory, None if empty; `repair` sets a damaged manifest aside."""
        names = place.names() or []
        if MANIFEST in names:
            try:
                old = cls.open(place)
            except UnreachableError:
                raise
            except ResultError as error:
                if repair:
                    warn(f"{error}; moved to {place.set_aside(MANIFEST)} and written again")
                return None
            if old.manifest["protocol"] != suite.protocol:
                raise ResultError(
                    f"{place} holds results of {_named(old.suite)}, not of {_named(suite)}, whose "
                    "tasks, agents or seeds differ: give another directory (--out)"
                )
            return old
        others = sorted(set(names) - {TABLE, CELLS, UNFINISHED, ASIDE})
        if others:
            raise ResultError(
                f"{place} is not a result directory (it has no {MANIFEST}) and not empty "
                f"({', '.join(others[:3])}): give another directory"
            )
        return None

    @contextlib.contextmanager
    def _recording(self, run: dict[str, Any] | None) -> Iterator[None]:
        for earlier in self.manifest["runs"]:
            if earlier.get("status") == "running":
                earlier["status"] = "killed"
        record = {} if run is None else run
        record |= {"started": provenance.now(), "status": "running", **provenance.origin()}
        if run is not None:
            self.manifest["runs"].append(run)
            self.save()
        try:
            yield
            self.place.check()
            record |= {"status": "finished", "ended": provenance.now()}
            if self.place.cells():  # compact into the table; renaming the manifest commits it
                self.replace(self.check()[0])
            elif run is not None:
                self.save()
            self.place.remove_cells()
        except BaseException as error:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            record |= {"status": status, "ended": provenance.now()}
            if run is not None:
                with contextlib.suppress(ResultError):
                    self.place.check()
                    self.save()
            raise

    def save(self) -> None:
        """Write the manifest."""
        self.manifest["updated"] = provenance.now()
        ordered = sorted(self.entries.values(), key=lambda entry: _place(entry.cell))
        head = json.dumps(self.manifest, indent=2, allow_nan=False).removesuffix("\n}")
        # One row per line, so that manifests can be read and compared.
        rows = ",\n".join(json.dumps(row, allow_nan=False) for row in parquet.to_rows(ordered))
        self.place.write(MANIFEST, f'{head},\n  "rows": [\n{rows}\n]}}\n'.encode())

    def add(self, results: Sequence[CellResult]) -> None:
        """Add results to the table, all or none."""
        if results:
            every = {result.cell.key: result for result in (*self.check()[0], *results)}
            self.replace(every.values())

    def confirm(self, keys: Sequence[str]) -> None:
        """Record that cells were recomputed here with equal numbers."""
        for key in keys:
            self.entries[key] = replace(self.entries[key], provenance=RECOMPUTED)
        self.save()

    def replace(self, results: Iterable[CellResult]) -> None:
        """Replace the table by these results."""
        ordered = sorted(results, key=lambda result: _place(result.cell))
        self.place.write(TABLE, parquet.table_bytes(ordered))
        self.entries = {result.cell.key: result.entry for result in ordered}
        self.save()

    def _cells(self) -> Iterator[tuple[str, CellResult | DamagedResult]]:
        """Yield the files of single cells with their result or error."""

        def read(name: str) -> list[tuple[str, CellResult | DamagedResult]]:
            try:
                content = self.place.read(name, parquet.MOST_BYTES)
                return [(name, parquet.read_cell(content, self.place.at(name)))]
            except DamagedResult as error:
                return [(name, error)]
            except FileNotFoundError:  # compacted meanwhile
                return []

        with ThreadPoolExecutor(self.place.readers) as pool:
            for pairs in pool.map(read, self.place.cells()):
                yield from pairs

    def _table(self) -> tuple[list[CellResult], list[DamagedResult]]:
        """Return the results of the table and the errors of damaged entries."""
        entries = list(self.entries.values())
        where = self.place.at(TABLE)
        try:
            content = self.place.read(TABLE, parquet.MOST_BYTES) if entries else b""
            return parquet.read_table(content, where, entries) if entries else ([], [])
        except FileNotFoundError:
            return [], [DamagedResult(f"{where} is gone")]
        except DamagedResult as error:
            return [], [error]

    def results(self) -> list[CellResult]:
        """Read all results.

        Raises:
            ResultError: If a result is damaged or belongs to another suite.
        """
        intact, damaged = self.check()
        if damaged:
            repair = "running the suite again sets it aside and computes it again"
            raise ResultError(f"{damaged[0]}; {repair}") from damaged[0]
        return intact

    def check(self) -> tuple[list[CellResult], list[ResultError]]:
        """Return all intact results and the errors of the others."""
        read, damaged = self._table()
        intact = {result.cell.key: result for result in read}
        problems: list[ResultError] = list(damaged)
        for name, one in self._cells():
            if isinstance(one, DamagedResult):
                problems.append(one)
            elif one.cell.protocol == self.manifest["protocol"]:
                intact.setdefault(one.cell.key, one)
            else:
                said = f"{self.place.at(name)} belongs to another suite than {_named(self.suite)}"
                problems.append(ResultError(said))
        return list(intact.values()), problems

    def prepare(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells that are not stored yet.

        Cells that are damaged or of another version of the code are set aside with a warning.

        Raises:
            ResultError: If the directory has a row of the same task, label and budget that was
                computed with other parameters.
        """
        wanted = {cell.row: cell.identity for cell in cells}
        present, damaged = self._table()
        if damaged:
            aside = self.place.set_aside(TABLE, copy=True)
            warn(f"{damaged[0]} ({len(damaged)} in all); copied to {aside}")
        for name, one in self._cells():
            if isinstance(one, CellResult):
                present.append(one)
            else:
                warn(f"{one}; moved to {self.place.set_aside(name)}")
        kept = {}
        for result in present:
            cell = result.cell
            if (identity := wanted.get(cell.row, cell.identity)) == cell.identity:
                kept[cell.key] = result
                continue
            if why := _contradiction(cell.identity, identity):
                raise ResultError(f"{self.path} holds {cell} with {why}")
            name = f"{CELLS}/{parquet.cell_file(cell)}"
            self.place.write(name, parquet.write_cell(result))
            aside = self.place.set_aside(name)
            warn(f"{cell}: computed by another version of the code; moved to {aside}")
        self.entries = {key: entry for key, entry in self.entries.items() if key in kept}
        return [cell for cell in cells if cell.key not in kept]


def _contradiction(old: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Return what differs apart from the versions of the code, empty if nothing does."""
    changed = [name for name in old if old[name] != wanted.get(name)]
    own = [k for k in old["agent"] if old["agent"][k] != wanted["agent"].get(k)]
    if set(changed) <= {"algorithm", "agent"} and set(own) <= {"source"}:
        return ""
    if changed != ["agent"]:
        return f"another {', '.join(changed)}: give another directory"
    said = f"{old['agent']} instead of {wanted['agent']}"
    return f"other {', '.join(own)} ({said}): give another label or directory"


def _place(cell: Cell) -> tuple[Any, ...]:
    return *cell.row, cell.start, cell.stop, cell.key


def _named(suite: Suite) -> str:
    return f"suite {suite.name!r} (protocol {suite.protocol[:8]})"
