"""Forged submissions and manifests are rejected or harmless; the leaderboard stays readable."""

from __future__ import annotations

import contextlib
import copy as copying
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_lists import SEED, TRIES, VALUES, chosen, in_time, places, put, refused, shown

from dpb_gym.exchange.archive import pack, unpack
from dpb_gym.exchange.importing import import_submission
from dpb_gym.exchange.verification import verify
from dpb_gym.results.cell_result import CellResult
from dpb_gym.results.parquet import from_rows, read_table, table_bytes


def opened(archive: Path) -> tuple[dict[str, Any], list[CellResult], bytes]:
    members = unpack(archive)
    info, table = json.loads(members["manifest.json"]), members["result.parquet"]
    results, _ = read_table(table, "t", from_rows(info["rows"]))
    return info, results, table


def honest(info: dict[str, Any], results: list[CellResult], table: bytes) -> bytes:
    """Return a table whose cells and digests match the changed rows, as a forger would."""
    with contextlib.suppress(Exception):
        entries = from_rows(info["rows"])
        results = [
            replace(result, cell=entry.cell, guarantee=entry.guarantee)
            for result, entry in zip(results, entries)
        ]
        table = table_bytes(results)
        blocks = [block for row in info["rows"] for block in row["blocks"]]
        for block, result in zip(blocks, results):
            block["sha256"] = result.digest
    return table


def forge(target: Path, info: dict[str, Any], table: bytes) -> Path:
    text = json.dumps(info).encode("utf-8", "surrogatepass")
    target.write_bytes(pack({"manifest.json": text, "result.parquet": table}))
    return target


def attempt(path: Path, board: Path) -> bool:
    """Import a forgery, check that the leaderboard is readable, return whether it was rejected."""
    rows = shown(board)
    gone = refused(lambda: import_submission(path, board))
    with in_time():
        assert shown(board) == rows if gone else shown(board) >= rows
    return gone


@pytest.mark.slow
def test_every_value_of_a_submission_may_be_forged(
    archive: Path, ours: Path, copy: Any, tmp_path: Path
) -> None:
    info, results, table = opened(archive)
    tries = [(at, value) for at in places(info) for value in VALUES]
    count, wrong = {True: 0, False: 0}, []
    for at, value in chosen(tries):
        lie = copying.deepcopy(info)
        put(lie, at, value)
        forged = honest(lie, results, table) if at[0] == "rows" else table
        try:
            count[attempt(forge(tmp_path / "f.zip", lie, forged), copy(ours))] += 1
        except Exception as error:
            wrong.append(f"{at} = {value!r:.60}: {error!r:.400}")
    assert not wrong, "\n".join(wrong)
    assert count[True] > count[False] > 0


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "nan": lambda a: np.full_like(a, np.nan),
    "one nan": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 1, np.nan, a),
    "infinite": lambda a: np.full_like(a, np.inf),
    "huge": lambda a: np.full_like(a, 1e308),
    "beyond earnings": lambda a: np.full_like(a, 1e16),
    "negative": lambda a: a - 1e6,
    "falling": lambda a: a[:, ::-1].copy() + np.arange(a.shape[1])[::-1],
    "zero": np.zeros_like,
    "tiny": lambda a: np.full_like(a, 5e-324),
    "minus zero": lambda a: -np.zeros_like(a),
    "short": lambda a: a[:1],
    "long": lambda a: np.concatenate([a, a]),
    "thin": lambda a: a[:, :1],
    "float32": lambda a: a.astype(np.float32).astype(float),
}


@pytest.mark.parametrize("change", NUMBERS)
def test_forged_curves(change: str, archive: Path, ours: Path, copy: Any, tmp_path: Path) -> None:
    info, results, _ = opened(archive)
    for name in ("regret", "reward"):
        lies = [replace(r, **{name: NUMBERS[change](getattr(r, name))}) for r in results]
        try:
            table = table_bytes(lies)
        except ValueError:
            continue
        for block, lie in zip((b for row in info["rows"] for b in row["blocks"]), lies):
            block["sha256"] = lie.digest
        board = copy(ours)
        gone = attempt(forge(tmp_path / "f.zip", info, table), board)
        if not gone:
            assert not verify(board, sample=9).ok


@pytest.mark.slow
def test_bytes_of_an_archive_may_be_anything(
    archive: Path, ours: Path, copy: Any, tmp_path: Path
) -> None:
    raw, rng, path = archive.read_bytes(), random.Random(SEED), tmp_path / "f.zip"
    for k in range(TRIES or 5000):
        content = bytearray(raw)
        if k % 3 == 0:
            del content[rng.randrange(len(raw)) :]
        for _ in range(rng.choice((1, 1, 8)) if k % 3 else 0):
            content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
        path.write_bytes(bytes(content))
        if refused(lambda: import_submission(path, tmp_path / "none")):
            assert not (tmp_path / "none" / "manifest.json").exists()
        else:  # some bytes of a zip have no meaning
            attempt(path, copy(ours))
            (tmp_path / "none").rename(tmp_path / f"taken-{k}")


@pytest.mark.slow
def test_every_value_of_a_manifest_may_be_damaged(finished: Path, copy: Any) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    tries = [(at, value) for at in places(manifest) for value in VALUES]
    lived, wrong = 0, []
    for at, value in chosen(tries):
        lie, board = copying.deepcopy(manifest), copy(finished)
        put(lie, at, value)
        (board / "manifest.json").write_text(json.dumps(lie), "utf-8", "surrogatepass")
        try:
            lived += not refused(lambda board=board: shown(board))
            refused(lambda board=board: verify(board, sample=1, seed=0))
        except Exception as error:
            wrong.append(f"{at} = {value!r:.60}: {error!r:.400}")
    assert not wrong, "\n".join(wrong)
    assert lived > len(chosen(tries)) / 4
