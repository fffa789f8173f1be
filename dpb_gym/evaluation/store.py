"""A directory of results: shards, timings and a manifest.

DIR/manifest.json     suite, versions, runs, guarantees, wall times
DIR/shards/TASK/*     one immutable Parquet file per cell
DIR/timings/TASK/*    where the time went, one JSON file per cell
DIR/set-aside/*       damaged or outdated shards, never read
DIR/.lock             held while a run is writing
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dpb_gym.errors import ResultError, SuiteError
from dpb_gym.evaluation import manifest as origin
from dpb_gym.evaluation.filesystem import (
    exclusive,
    remove_temporaries,
    unwritable,
    write_file,
    write_json,
)
from dpb_gym.evaluation.outcome import CellResult, Timing
from dpb_gym.evaluation.shards import DamagedShard, read_shard, shard_bytes, shard_name
from dpb_gym.evaluation.spec import ALGORITHM_VERSION, Cell
from dpb_gym.evaluation.suite import Suite, parse_suite
from dpb_gym.files import TEMPORARY

MANIFEST_VERSION = 1
OURS = (".lock", "shards", "timings", "set-aside")


class Store:
    """One result directory.

    Make it with `create` (to write) or `open` (to read).

    Attributes:
        path: The directory.
        suite: The suite it belongs to.
        manifest: Content of its ``manifest.json``.
    """

    def __init__(self, path: Path, suite: Suite, manifest: dict[str, Any]) -> None:
        self.path = path
        self.suite = suite
        self.manifest = manifest

    @classmethod
    def create(cls, path: str | os.PathLike[str], suite: Suite, suite_text: str) -> Store:
        """Opens a directory for results of a suite, and makes it if there is none.

        Args:
            path: The directory.
            suite: The suite.
            suite_text: Its YAML, kept in the manifest.

        Raises:
            ResultError: If it holds results of another suite or other things, or cannot
                be written.
        """
        folder = Path(path)
        runs: list[Any] = []
        created = origin.now()
        if folder.exists():
            old = cls._existing(folder, suite)
            if old is not None:
                runs, created = old.manifest["runs"], old.manifest["created"]
        content = {
            "manifest": MANIFEST_VERSION,
            "suite": suite.name,
            "protocol": suite.protocol,
            "suite_sha256": hashlib.sha256(suite_text.encode()).hexdigest(),
            "suite_text": suite_text,
            "algorithm": ALGORITHM_VERSION,
            "created": created,
            "updated": created,
            "guarantees": [],
            "runs": runs,
        }
        return cls(folder, suite, content)

    @classmethod
    def _existing(cls, folder: Path, suite: Suite) -> Store | None:
        if not folder.is_dir():
            raise ResultError(f"{folder} is a file; results need a directory")
        if (folder / "manifest.json").exists():
            try:
                old = cls.open(folder)
            except ResultError as error:
                aside = _set_aside(folder, folder / "manifest.json")
                _warn(f"{error}; moved to {aside} and written afresh")
                return None
            if old.manifest["protocol"] != suite.protocol:
                raise ResultError(
                    f"{folder} holds results of {old._describe()}, not of {cls._name(suite)}: "
                    "give another directory"
                )
            return old
        others = [p.name for p in folder.iterdir() if p.name not in OURS and p.suffix != TEMPORARY]
        if others:
            raise ResultError(
                f"{folder} is not a result directory (it has no manifest.json) and not empty "
                f"({', '.join(sorted(others)[:3])}): give another directory"
            )
        return None

    @staticmethod
    def _name(suite: Suite) -> str:
        return f"suite {suite.name!r} (protocol {suite.protocol[:8]})"

    def _describe(self) -> str:
        return f"suite {self.manifest['suite']!r} (protocol {self.manifest['protocol'][:8]})"

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Opens an existing result directory.

        Raises:
            ResultError: If there is none, or its manifest is damaged.
        """
        folder = Path(path)
        file = folder / "manifest.json"
        if not folder.is_dir():
            raise ResultError(f"{folder}: no such result directory (dpb run makes one)")
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ResultError(
                f"{folder} is not a result directory: it has no manifest.json"
            ) from None
        except (OSError, ValueError) as error:
            raise ResultError(f"{file} is damaged ({error}); dpb run writes it afresh") from error
        version = manifest.get("manifest") if isinstance(manifest, dict) else None
        if version != MANIFEST_VERSION:
            raise ResultError(
                f"{file} is damaged or of another version: expected manifest version "
                f"{MANIFEST_VERSION}, found {version!r}"
            )
        try:
            suite = parse_suite(manifest["suite_text"], f"{file}: suite_text")
            complete = manifest["protocol"] == suite.protocol and isinstance(manifest["runs"], list)
            manifest["created"], manifest["updated"], manifest["guarantees"]
        except (KeyError, TypeError, SuiteError) as error:
            raise ResultError(f"{file} is damaged ({error!r})") from error
        if not complete:
            raise ResultError(f"{file} is damaged: suite and protocol disagree")
        return cls(folder, suite, manifest)

    @contextlib.contextmanager
    def writing(self, run: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Holds the directory while a run writes, and records the run in the manifest.

        Args:
            run: What to record; may be added to until the end.

        Raises:
            ResultError: If another run holds the directory, or it cannot be written.
        """
        with exclusive(self.path):
            if (self.path / "manifest.json").exists():
                with contextlib.suppress(ResultError):
                    # Another run may have finished between opening and locking.
                    self.manifest["runs"] = Store.open(self.path).manifest["runs"]
            remove_temporaries(self.path)
            for earlier in self.manifest["runs"]:
                if earlier.get("status") == "running":
                    earlier["status"] = "killed"
            record = {
                **run,
                "started": origin.now(),
                "status": "running",
                "versions": origin.versions(),
                "revision": origin.revision(),
                "machine": origin.describe_machine(),
            }
            self.manifest["runs"].append(record)
            self._write_manifest()
            try:
                yield record
            except BaseException as error:
                interrupted = isinstance(error, KeyboardInterrupt)
                record["status"] = "interrupted" if interrupted else "failed"
                with contextlib.suppress(ResultError):
                    self._close(record)
                raise
            record["status"] = "finished"
            self._close(record)

    def _close(self, record: dict[str, Any]) -> None:
        record["ended"] = origin.now()
        self.manifest["guarantees"] = self._guarantees()
        self._write_manifest()

    def _write_manifest(self) -> None:
        self.manifest["updated"] = origin.now()
        write_json(self.path / "manifest.json", self.manifest)

    def _guarantees(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for result in self.results(strict=False):
            task, label, budget = result.cell.row
            row = {"task": task, "agent": label, "budget": budget, "guarantee": result.guarantee}
            found.setdefault(json.dumps(row, sort_keys=True), row)
        return list(found.values())

    def shard_path(self, cell: Cell) -> Path:
        """Where the shard of a cell is or will be."""
        return self.path / "shards" / shard_name(cell)

    def write(self, result: CellResult) -> Path:
        """Writes the shard of a finished cell, and its timing beside it.

        Raises:
            ResultError: If it cannot be written.
        """
        path = self.shard_path(result.cell)
        write_file(path, shard_bytes(result))
        if result.timing is not None:
            write_json(self._timing_path(path), asdict(result.timing), durable=False)
        return path

    def _timing_path(self, shard: Path) -> Path:
        relative = shard.relative_to(self.path / "shards")
        return self.path / "timings" / relative.with_suffix(".json")

    def timing(self, shard: Path) -> Timing | None:
        """The timing of a shard, None if there is none or it is damaged."""
        try:
            timing = Timing(**json.loads(self._timing_path(shard).read_text(encoding="utf-8")))
            return timing if timing.seconds > 0 else None
        except (OSError, ValueError, TypeError, ArithmeticError):
            return None

    def prepare(self, cells: Sequence[Cell]) -> list[Cell]:
        """Returns the cells that are still to be computed.

        Damaged shards, and shards of an older algorithm version, are set aside with a
        warning.

        Raises:
            ResultError: If the directory holds a row of the same task, label and budget
                that was computed with other parameters.
        """
        wanted = {c.row: c.identity for c in cells}
        keys = {cell.key for cell in cells}
        for path in self.shard_files():
            try:
                cell = read_shard(path).cell
            except DamagedShard as error:
                _warn(f"{error}; moved to {_set_aside(self.path, path)}")
                continue
            identity = wanted.get(cell.row)
            if cell.key in keys or identity is None or identity == cell.identity:
                continue
            self._replace_or_refuse(path, cell, identity)
        return [cell for cell in cells if not self.shard_path(cell).exists()]

    def _replace_or_refuse(self, path: Path, cell: Cell, wanted: dict[str, Any]) -> None:
        old = cell.identity
        changed = [name for name in old if old[name] != wanted.get(name)]
        agent_changed = [k for k in old["agent"] if old["agent"][k] != wanted["agent"].get(k)]
        outdated = set(changed) <= {"algorithm", "agent"} and set(agent_changed) <= {"source"}
        if outdated:
            aside = _set_aside(self.path, path)
            _warn(f"{cell}: computed by another version of the code; moved to {aside}")
            return
        if changed == ["agent"]:
            raise ResultError(
                f"{self.path} holds {cell} with other {', '.join(agent_changed)} "
                f"({old['agent']} instead of {wanted['agent']}): give another label or directory"
            )
        raise ResultError(
            f"{self.path} holds {cell} with another {', '.join(changed)}: give another directory"
        )

    def shard_files(self) -> list[Path]:
        """All shards, in order."""
        return sorted((self.path / "shards").glob("*/*.parquet"))

    def results(self, *, strict: bool = True) -> list[CellResult]:
        """Reads all shards, timings included.

        Args:
            strict: False leaves out damaged shards and shards of another protocol.

        Raises:
            ResultError: If a shard is damaged or belongs to another suite.
        """
        found = []
        for path in self.shard_files():
            try:
                result = read_shard(path)
                if result.cell.protocol != self.manifest["protocol"]:
                    raise ResultError(f"{path} belongs to another suite than {self._describe()}")
            except DamagedShard as error:
                if strict:
                    mend = "running the suite again sets it aside and computes it afresh"
                    raise ResultError(f"{error}; {mend}") from error
                continue
            except ResultError:
                if strict:
                    raise
                continue
            found.append(replace(result, timing=self.timing(path)))
        return found


def _set_aside(folder: Path, path: Path) -> Path:
    target = folder / "set-aside" / path.name
    number = 1
    while target.exists():
        number += 1
        target = folder / "set-aside" / f"{path.name}.{number}"
    try:
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)
