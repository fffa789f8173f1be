"""One cell, one immutable Parquet file.

Nothing in a shard depends on the time or the machine: computing a cell again gives the
same bytes. It carries its configuration and the digest of its content, so that damage
shows without any other file.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.evaluation.outcome import CellResult
from dpb_gym.evaluation.plan import slug
from dpb_gym.evaluation.spec import Cell, canonical

COLUMNS = ("task", "agent", "budget", "replicate", "seed", "round", "regret", "reward")
_META = "dpb."
SCHEMA_VERSION = 2
"""Version of the shard format."""


class DamagedShard(ResultError):
    """A shard is truncated, altered, of another schema or misplaced."""


def shard_name(cell: Cell) -> str:
    """Path of a cell's shard below the shard folder: readable, and unique by the key."""
    first, last = cell.replicates[0], cell.replicates[-1]
    task, label, budget = cell.row
    budget = "" if cell.agent.budget is None else f"-{slug(budget)[:40]}"
    name = f"{slug(label)[:60]}{budget}-r{first:04d}-{last:04d}-{cell.key[:16]}.parquet"
    return f"{slug(task)}/{name}"


def shard_bytes(result: CellResult) -> bytes:
    """Returns the Parquet file of a cell: one row per replicate and checkpoint."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    cell = result.cell
    replicates, rounds = np.asarray(cell.replicates), np.asarray(cell.checkpoints)
    shape = (len(replicates), len(rounds))
    if result.regret.shape != shape or result.reward.shape != shape:
        raise ResultError(
            f"{cell}: expected arrays of shape {shape}, got {result.regret.shape} and "
            f"{result.reward.shape}"
        )
    size = shape[0] * shape[1]
    columns = [
        *(pa.array([text] * size, pa.string()) for text in cell.row),
        pa.array(np.repeat(replicates, shape[1]), pa.int32()),
        pa.array(np.repeat(np.asarray(cell.seeds), shape[1]), pa.int64()),
        pa.array(np.tile(rounds, shape[0]), pa.int64()),
        pa.array(np.ravel(result.regret), pa.float64()),
        pa.array(np.ravel(result.reward), pa.float64()),
    ]
    table = pa.table(columns, names=list(COLUMNS))
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        table.schema,
        compression="zstd",
        use_dictionary=list(COLUMNS[:6]),
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            {
                _META + "schema": str(SCHEMA_VERSION),
                _META + "cell": cell.text,
                _META + "guarantee": canonical(result.guarantee),
                _META + "sha256": result.digest,
            }
        )
    return buffer.getvalue()


def read_shard(path: Path) -> CellResult:
    """Reads a shard and checks all of it.

    Raises:
        DamagedShard: If it is truncated, altered, of another schema, or misnamed.
        FileNotFoundError: If there is none.
    """
    import pyarrow.parquet as pq

    try:
        with open(path, "rb") as file:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            raw = parquet.metadata.metadata
            table = parquet.read()
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged footer may raise anything inside the reader
        first = str(error).strip().split("\n")[0]
        raise DamagedShard(f"{path}: not a readable Parquet file ({first})") from error
    meta = _metadata(path, raw)
    try:
        cell = Cell.read(meta["cell"])
    except ValueError as error:
        raise DamagedShard(f"{path}: its metadata are damaged ({error})") from error
    if tuple(table.column_names) != COLUMNS:
        raise DamagedShard(f"{path}: columns must be {COLUMNS}, found {table.column_names}")
    try:
        shape = (len(cell.replicates), len(cell.checkpoints))
        result = CellResult(
            cell,
            _matrix(table, "regret", shape),
            _matrix(table, "reward", shape),
            meta["guarantee"],
        )
        expected = {k: {text} for k, text in zip(COLUMNS, cell.row)}
        labels = {k: set(table.column(k).unique().to_pylist()) for k in expected}
        grid = (
            _matrix(table, "replicate", shape) == np.asarray(cell.replicates)[:, None],
            _matrix(table, "seed", shape) == np.asarray(cell.seeds)[:, None],
            _matrix(table, "round", shape) == np.asarray(cell.checkpoints)[None, :],
        )
        whole = labels == expected and all(part.all() for part in grid)
        digest = result.digest
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DamagedShard(f"{path}: content and configuration disagree ({error})") from error
    if not whole or digest != meta["sha256"]:
        raise DamagedShard(f"{path}: the content does not have the digest that it was written with")
    if path.name != Path(shard_name(cell)).name:
        raise DamagedShard(f"{path}: holds another cell ({cell}); it was renamed or copied")
    return result


def _metadata(path: Path, raw: dict[bytes, bytes] | None) -> dict[str, Any]:
    pairs = {k.decode("latin-1"): v for k, v in (raw or {}).items()}
    found = {k: v.decode(errors="replace") for k, v in pairs.items() if k.startswith(_META)}
    schema = found.get(_META + "schema")
    if schema is None:
        raise DamagedShard(f"{path}: not a shard of dpb-gym (its metadata are missing)")
    if schema != str(SCHEMA_VERSION):
        raise DamagedShard(f"{path}: has schema version {schema}, expected {SCHEMA_VERSION}")
    try:
        guarantee = json.loads(found[_META + "guarantee"])
        own = {key: found[_META + key] for key in ("cell", "sha256")}
        return {**own, "guarantee": guarantee}
    except (KeyError, ValueError) as error:
        raise DamagedShard(f"{path}: its metadata are damaged ({error!r})") from error


def _matrix(table: Any, name: str, shape: tuple[int, int]) -> Any:
    return table.column(name).to_numpy().reshape(shape).copy()
