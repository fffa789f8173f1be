"""A directory of results.

DIR/manifest.json     suite, versions, runs, audits; of every cell its digest, guarantee, timing
DIR/result.parquet    the numbers of the cells in the manifest, see `dpb_gym.evaluation.table`
DIR/cells/TASK/*      while a run goes on: one file per cell that is finished
DIR/set-aside/*       damaged or outdated files, never read
DIR/.lock, .owner     held while a run is writing
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpb_gym.errors import ResultError, SuiteError
from dpb_gym.evaluation import manifest as origin
from dpb_gym.evaluation import stored
from dpb_gym.evaluation.filesystem import (
    locked,
    make_folder,
    refuse_links,
    remove_temporaries,
    set_aside,
    warn,
    write_file,
)
from dpb_gym.evaluation.outcome import RECOMPUTED, CellResult
from dpb_gym.evaluation.spec import ALGORITHM_VERSION, Cell
from dpb_gym.evaluation.suite import Suite, parse_suite
from dpb_gym.evaluation.table import (
    DamagedResult,
    Stored,
    cell_file,
    from_rows,
    read_cell,
    read_table,
    table_bytes,
    to_rows,
    write_cell,
)
from dpb_gym.files import TEMPORARY, read_regular

MANIFEST_VERSION = 2
MANIFEST, TABLE, CELLS, ASIDE = "manifest.json", "result.parquet", "cells", "set-aside"
LOCK, OWNER = ".lock", ".owner"
MOST_MANIFEST = 1 << 26
OURS = (MANIFEST, TABLE, CELLS, ASIDE, LOCK, OWNER)


@dataclass(frozen=True)
class Sink:
    """Where the jobs of one run write their cells.

    Attributes:
        path: The result directory.
        token: Of the run that holds it; another run's directory is not written to.
    """

    path: Path
    token: str

    def check(self) -> None:
        """Raises `ResultError` if the directory was deleted or taken over by another run."""
        try:
            held = read_regular(self.path / OWNER, 1 << 12).decode().split()[0]
        except (OSError, IndexError, UnicodeError):
            held = ""
        if held != self.token:
            what = "belongs to another run now" if held else "was deleted or moved"
            raise ResultError(f"{self.path} {what} while this run was writing to it")

    def write(self, result: CellResult) -> None:
        """Writes the file of a finished cell.

        Raises:
            ResultError: If it cannot be written.
        """
        self.check()
        write_file(self.path / CELLS / cell_file(result.cell), write_cell(result))


class Store:
    """One result directory: `open` it to read, or write within `writing`.

    Attributes:
        path: The directory.
        suite: The suite it belongs to.
        manifest: Content of its ``manifest.json`` but for the rows.
        entries: What the manifest says of every cell, by key.
        record: The entry of the present run, within `writing`.
    """

    def __init__(
        self, path: Path, suite: Suite, manifest: dict[str, Any], entries: Iterable[Stored] = ()
    ) -> None:
        self.path = path
        self.suite = suite
        self.manifest = manifest
        self.entries = {entry.cell.key: entry for entry in entries}
        self.record: dict[str, Any] = {}
        self.sink = Sink(path, "")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Opens an existing result directory.

        Raises:
            ResultError: If there is none, or its manifest is damaged.
        """
        folder = Path(path)
        file = folder / MANIFEST
        if not folder.is_dir():
            raise ResultError(f"{folder}: no such result directory (dpb run makes one)")
        try:
            refuse_links(*(folder / name for name in OURS), *(folder / CELLS).glob("*"))
            manifest = stored.read_json(read_regular(file, MOST_MANIFEST))
        except FileNotFoundError:
            raise ResultError(f"{folder} is not a result directory: it has no {MANIFEST}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise ResultError(f"{file} is damaged ({error}); dpb run writes it afresh") from error
        version = manifest.get("manifest") if isinstance(manifest, dict) else None
        if version != MANIFEST_VERSION:
            raise ResultError(
                f"{file} is damaged or of another version: expected manifest version "
                f"{MANIFEST_VERSION}, found {version!r:.100}"
            )
        try:
            manifest = stored.checked(stored.MANIFEST, manifest)
            suite = parse_suite(manifest["suite_text"], f"{file}: suite_text")
            entries = from_rows(manifest.pop("rows"))
            if manifest["protocol"] != suite.protocol:
                raise ValueError("suite and protocol disagree")
        except (ValueError, SuiteError) as error:
            raise ResultError(f"{file} is damaged ({error!s:.500})") from error
        return cls(folder, suite, manifest, entries)

    @classmethod
    @contextlib.contextmanager
    def writing(
        cls,
        path: str | os.PathLike[str],
        suite: Suite,
        suite_text: str | None = None,
        run: dict[str, Any] | None = None,
    ) -> Iterator[Store]:
        """Holds a directory while a run writes; makes it if there is none.

        The run is recorded in the manifest; `Store.record` may be added to. At the end, cells
        are compacted into one table. Without `run`, nothing is written but what `add` writes.

        Args:
            path: The directory.
            suite: The suite.
            suite_text: Its YAML; what the manifest holds stays if it is not given.
            run: What to record, None for a change that is no run.

        Raises:
            ResultError: If it holds results of another suite or other things, another run holds
                it, or it cannot be written.
        """
        folder = Path(path)
        cls._existing(folder, suite, mend=False)
        make_folder(folder)
        refuse_links(*(folder / name for name in OURS), *(folder / CELLS).glob("*"))
        with locked(folder, LOCK, OWNER):
            store = cls._existing(folder, suite, mend=True)
            if store is not None and suite_text is None:
                suite, suite_text = store.suite, store.manifest["suite_text"]
            elif store is None:
                now = origin.now()
                fresh = {"runs": [], "audits": {}, "stated": {}, "created": now, "updated": now}
                store = cls(folder, suite, fresh)
            store.manifest |= {
                "manifest": MANIFEST_VERSION,
                "suite": suite.name,
                "protocol": suite.protocol,
                "suite_text": suite_text or suite.to_yaml(),
                "algorithm": ALGORITHM_VERSION,
            }
            store.suite = suite
            remove_temporaries(folder)
            with store._recording(run):
                yield store

    @classmethod
    def _existing(cls, folder: Path, suite: Suite, *, mend: bool) -> Store | None:
        """What a directory holds, None if nothing; with `mend`, a damaged manifest goes aside."""
        if folder.exists() and not folder.is_dir():
            raise ResultError(f"{folder} is a file; results need a directory")
        if (folder / MANIFEST).exists():
            try:
                old = cls.open(folder)
            except ResultError as error:
                if mend:
                    aside = set_aside(folder / ASIDE, folder / MANIFEST)
                    warn(f"{error}; moved to {aside} and written afresh")
                return None
            if old.manifest["protocol"] != suite.protocol:
                raise ResultError(
                    f"{folder} holds results of {_named(old.suite)}, not of {_named(suite)}: "
                    "give another directory"
                )
            return old
        here = [p.name for p in folder.iterdir()] if folder.exists() else []
        others = sorted(p for p in here if p not in OURS and not p.endswith(TEMPORARY))
        if others:
            raise ResultError(
                f"{folder} is not a result directory (it has no {MANIFEST}) and not empty "
                f"({', '.join(others[:3])}): give another directory"
            )
        return None

    @contextlib.contextmanager
    def _recording(self, run: dict[str, Any] | None) -> Iterator[None]:
        self.sink = Sink(self.path, uuid.uuid4().hex)
        owner = f"{self.sink.token} process {os.getpid()} on {socket.gethostname()}"
        write_file(self.path / OWNER, owner.encode(), durable=False)
        for earlier in self.manifest["runs"]:
            if earlier.get("status") == "running":
                earlier["status"] = "killed"
        self.record = {
            **(run or {}),
            "started": origin.now(),
            "status": "running",
            "versions": origin.versions(),
            "revision": origin.revision(),
            "machine": origin.describe_machine(),
        }
        if run is not None:
            self.manifest["runs"].append(self.record)
            self.save()
        try:
            yield
            self.sink.check()
            self._compact()
        except BaseException as error:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            self.record |= {"status": status, "ended": origin.now()}
            if run is not None:
                with contextlib.suppress(ResultError):
                    self.sink.check()
                    self.save()
            raise
        (self.path / OWNER).unlink(missing_ok=True)

    def save(self) -> None:
        """Writes the manifest.

        Raises:
            ResultError: If it cannot be written.
        """
        self.manifest["updated"] = origin.now()
        ordered = sorted(self.entries.values(), key=lambda entry: _place(entry.cell))
        head = json.dumps(self.manifest, indent=2, allow_nan=False).removesuffix("\n}")
        # A row per line: readable, and small enough to be compared by eye.
        rows = ",\n".join(json.dumps(row, allow_nan=False) for row in to_rows(ordered))
        write_file(self.path / MANIFEST, f'{head},\n  "rows": [\n{rows}\n]}}\n'.encode())

    def _compact(self) -> None:
        """Moves the cells into the table; the manifest's rename is what commits it."""
        self.record |= {"status": "finished", "ended": origin.now()}
        if self._cell_files():
            self.replace(self.check()[0])
        elif self.record in self.manifest["runs"]:
            self.save()
        if (self.path / CELLS).is_dir():
            shutil.rmtree(self.path / CELLS, ignore_errors=True)

    def add(self, results: Sequence[CellResult]) -> None:
        """Writes results and what is in the table already as one table, all or nothing.

        Raises:
            ResultError: If they cannot be written; what stood there stands still.
        """
        if results:
            every = {result.cell.key: result for result in (*self.check()[0], *results)}
            self.replace(every.values())

    def confirm(self, keys: Sequence[str]) -> None:
        """Records that cells were computed again here, with the same numbers."""
        for key in keys:
            self.entries[key] = replace(self.entries[key], provenance=RECOMPUTED)
        self.save()

    def replace(self, results: Iterable[CellResult]) -> None:
        """Writes results as the table, instead of what was there."""
        ordered = sorted(results, key=lambda result: _place(result.cell))
        write_file(self.path / TABLE, table_bytes(ordered))
        self.entries = {result.cell.key: Stored.of(result) for result in ordered}
        self.save()

    def _cell_files(self) -> list[Path]:
        return sorted((self.path / CELLS).glob("*/*.parquet"))

    def _table(self) -> tuple[list[CellResult], list[DamagedResult]]:
        """The results of the table, and what is wrong with the others."""
        entries = list(self.entries.values())
        try:
            return read_table(self.path / TABLE, entries) if entries else ([], [])
        except FileNotFoundError:
            return [], [DamagedResult(f"{self.path / TABLE} is gone")]

    def results(self) -> list[CellResult]:
        """Reads all results.

        Raises:
            ResultError: If something is damaged or belongs to another suite.
        """
        found, damaged = self.check()
        if damaged:
            mend = "running the suite again sets it aside and computes it afresh"
            raise ResultError(f"{damaged[0]}; {mend}") from damaged[0]
        return found

    def check(self) -> tuple[list[CellResult], list[ResultError]]:
        """All sound results, and what is wrong with the others."""
        read, damaged = self._table()
        found = {result.cell.key: result for result in read}
        problems: list[ResultError] = list(damaged)
        for path in self._cell_files():
            try:
                result = read_cell(path)
                if result.cell.protocol != self.manifest["protocol"]:
                    raise ResultError(f"{path} belongs to another suite than {_named(self.suite)}")
                found.setdefault(result.cell.key, result)
            except FileNotFoundError:  # compacted meanwhile
                continue
            except ResultError as error:
                problems.append(error)
        return list(found.values()), problems

    def prepare(self, cells: Sequence[Cell]) -> list[Cell]:
        """Returns the cells that are still to be computed.

        What is damaged, or of an older version of the code, is set aside with a warning.

        Raises:
            ResultError: If the directory holds a row of the same task, label and budget
                that was computed with other parameters.
        """
        wanted = {cell.row: cell.identity for cell in cells}
        present, damaged = self._table()
        if damaged:
            aside = set_aside(self.path / ASIDE, self.path / TABLE, copy=True)
            warn(f"{damaged[0]} ({len(damaged)} in all); copied to {aside}")
        for path in self._cell_files():
            try:
                present.append(read_cell(path))
            except DamagedResult as error:
                warn(f"{error}; moved to {set_aside(self.path / ASIDE, path)}")
        kept = {}
        for result in present:
            cell = result.cell
            if (identity := wanted.get(cell.row, cell.identity)) == cell.identity:
                kept[cell.key] = result
            else:
                self._outdated_or_refuse(cell, identity)
                path = self.path / CELLS / cell_file(cell)
                write_file(path, write_cell(result))
                warn(
                    f"{cell}: computed by another version of the code; moved to "
                    f"{set_aside(self.path / ASIDE, path)}"
                )
        self.entries = {key: entry for key, entry in self.entries.items() if key in kept}
        return [cell for cell in cells if cell.key not in kept]

    def _outdated_or_refuse(self, cell: Cell, wanted: dict[str, Any]) -> None:
        old = cell.identity
        changed = [name for name in old if old[name] != wanted.get(name)]
        own = [k for k in old["agent"] if old["agent"][k] != wanted["agent"].get(k)]
        if set(changed) <= {"algorithm", "agent"} and set(own) <= {"source"}:
            return
        if changed == ["agent"]:
            raise ResultError(
                f"{self.path} holds {cell} with other {', '.join(own)} "
                f"({old['agent']} instead of {wanted['agent']}): give another label or directory"
            )
        raise ResultError(
            f"{self.path} holds {cell} with another {', '.join(changed)}: give another directory"
        )


def _place(cell: Cell) -> tuple[Any, ...]:
    return *cell.row, cell.start, cell.stop, cell.key


def _named(suite: Suite) -> str:
    return f"suite {suite.name!r} (protocol {suite.protocol[:8]})"
