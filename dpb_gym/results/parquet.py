"""Results as Parquet: one row per cell and replicate, with curves and final values.

A table does not depend on time or machine: recomputing its cells gives the same bytes. The digest
of each cell is in the manifest, or in the file of a single cell, so that damage is detected.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.results.cell_result import CellResult, Timing
from dpb_gym.results.storage import DamagedResult
from dpb_gym.suites.schema import canonical
from dpb_gym.suites.spec import Cell
from dpb_gym.validation import array, slug

TEXTS = ("cell", "task", "agent", "budget")
FINALS = ("final_regret", "final_reward")
CURVES = ("regret", "reward")
PER_REPLICATE, PER_ROUND = (*TEXTS, "replicate", "seed", *FINALS), ("rounds", *CURVES)
COLUMNS = (*PER_REPLICATE, *PER_ROUND)
ABOUT = "dpb"
MOST_BYTES, SPARE_ROWS = 1 << 28, 100_000
"""Limits: bytes of a table, and rows that its footer may claim."""


# Types of values in Parquet's footer, see `claimed`.
INTEGERS, BINARY, LISTS, STRUCT = (4, 5, 6), 8, (9, 10), 12
BYTES = {1: 1, 2: 1, 3: 1, 7: 8}
"""Sizes of the other types."""
DEEPEST = 16


def to_rows(results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """Return results without numbers as JSON values, grouped by leaderboard row."""
    rows: dict[str, dict[str, Any]] = {}
    for result in results:
        row = {"cell": result.cell.identity, "guarantee": result.guarantee}
        entry = rows.setdefault(canonical(row), {**row, "blocks": []})
        entry["blocks"].append(
            {
                "start": result.cell.start,
                "stop": result.cell.stop,
                "sha256": result.digest,
                "timing": None if result.timing is None else asdict(result.timing),
                "provenance": result.provenance,
            }
            | ({"recorded": result.recorded} if result.recorded else {})
        )
    return list(rows.values())


def from_rows(rows: Any) -> list[CellResult]:
    """Return every `CellResult.entry`; inverse of `to_rows`.

    Raises:
        ValueError: If the rows are not those of `to_rows`.
    """
    try:
        return [entry for row in rows for entry in _entries(row)]
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a list of rows ({error!r:.300})") from None


def _entries(row: Mapping[str, Any]) -> Iterator[CellResult]:
    """Yield the entries of a row, whose cells share task and agent."""
    guarantee, blocks = row["guarantee"], row["blocks"]
    if not (guarantee is None or isinstance(guarantee, dict)):
        raise TypeError("a guarantee is an object or null")
    shared = Cell.read(json.dumps({**row["cell"], "start": 0, "stop": 1}))
    for block in blocks:
        start, stop, digest, provenance = (
            block[name] for name in ("start", "stop", "sha256", "provenance")
        )
        if not (isinstance(digest, str) and isinstance(provenance, str)):
            raise TypeError("digest and provenance are text")
        cell, recorded = shared.block(start, stop), block.get("recorded", {})
        if recorded:
            array("recorded", list(recorded.values()), (None, len(cell.replicates)))
        yield CellResult(
            cell,
            guarantee=guarantee,
            timing=_timing(block["timing"]),
            provenance=provenance,
            stated=digest,
            recorded=recorded,
        )


def _timing(given: Any) -> Timing | None:
    """Return a timing, None if it is empty or invalid."""
    if given is None:
        return None
    timing = Timing(**given)
    numbers = [float(value) for value in vars(timing).values()]
    sound = all(math.isfinite(value) and value >= 0 for value in numbers) and timing.companions >= 1
    return timing if sound and timing.seconds > 0 else None


def cell_file(cell: Cell) -> str:
    """Return the path of a single cell's file below the folder of cells, unique by the key."""
    task, label, budget = cell.row
    said = "" if cell.agent.budget is None else f"-{slug(budget)[:40]}"
    name = f"{slug(label)[:60]}{said}-r{cell.start:04d}-{cell.stop - 1:04d}-{cell.key[:16]}.parquet"
    return f"{slug(task)}/{name}"


def to_table(results: Sequence[CellResult]) -> Any:
    """Return the Arrow table of some results."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for result in results:
        cell = result.cell
        shape = (len(cell.replicates), len(cell.checkpoints))
        if result.regret.shape != shape or result.reward.shape != shape:
            raise ResultError(
                f"{cell}: expected arrays of shape {shape}, got {result.regret.shape} and "
                f"{result.reward.shape}"
            )
        columns["rounds"] += [np.asarray(cell.checkpoints)] * shape[0]
        columns["regret"] += list(result.regret)
        columns["reward"] += list(result.reward)
        for name, values in _per_replicate(result).items():
            columns[name] += values
    return pa.table(columns, schema=_schema())


def _per_replicate(result: CellResult) -> dict[str, list[Any]]:
    """Return the columns of a result that hold one value per replicate."""
    cell, finals = result.cell, (result.regret[:, -1].tolist(), result.reward[:, -1].tolist())
    texts = ([text] * len(cell.replicates) for text in (cell.key, *cell.row))
    return dict(zip(PER_REPLICATE, (*texts, [*cell.replicates], [*cell.seeds], *finals)))


def _schema() -> Any:
    """Return the Arrow schema of a table."""
    import pyarrow as pa

    types = {"replicate": pa.int32(), "seed": pa.int64()}
    types |= {name: pa.float64() for name in FINALS}
    types["rounds"] = pa.list_(pa.field("element", pa.int64()))
    types |= {name: pa.list_(pa.field("element", pa.float64())) for name in CURVES}
    return pa.schema([(name, types.get(name, pa.string())) for name in COLUMNS])


def table_bytes(results: Sequence[CellResult], about: Any = None) -> bytes:
    """Return the Parquet file of some results, one row group per task.

    Args:
        results: The results.
        about: JSON value for the file's metadata.
    """
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    options: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": [*TEXTS, "rounds.list.element"],
        "column_encoding": {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in CURVES},
        "write_statistics": False,
        "write_page_checksum": True,
        "store_schema": False,
    }
    with pq.ParquetWriter(buffer, _schema(), **options) as writer:
        for _, group in groupby(results, key=lambda result: result.cell.task.name):
            writer.write_table(to_table(list(group)))
        if about is not None:
            writer.add_key_value_metadata({ABOUT: canonical(about)})
    return buffer.getvalue()


def read_table(
    content: bytes, where: str, entries: Sequence[CellResult]
) -> tuple[list[CellResult], list[DamagedResult]]:
    """Read the results of some entries from a table and check all of it.

    Args:
        content: The whole file.
        where: Its name, for messages.
        entries: The results to read, without numbers; see `CellResult.entry`. The table may
            contain other rows, for instance after a killed run.

    Returns:
        The results, and an error for every damaged entry.
    """
    wanted = {entry.cell.key: entry for entry in entries}
    intact: list[CellResult] = []
    damaged: list[DamagedResult] = []
    try:
        file = _open(content, where, entries)
    except DamagedResult as error:
        return [], [error]
    for number in range(file.num_row_groups):
        try:
            for item in _results(where, file.read_row_group(number), wanted):
                (intact if isinstance(item, CellResult) else damaged).append(item)  # type: ignore
        except MemoryError:
            raise
        except Exception:  # the reader may raise anything on damaged files
            continue
    gone = "its rows are damaged or gone"
    damaged += [DamagedResult(f"{where}: {entry.cell}: {gone}") for entry in wanted.values()]
    return intact, damaged


def _results(
    where: str, table: Any, wanted: dict[str, CellResult]
) -> Iterator[CellResult | DamagedResult]:
    """Return the results of one row group and remove them from `wanted`."""
    texts = table.select(PER_REPLICATE).to_pydict()
    lists = [table.column(name).combine_chunks() for name in PER_ROUND]
    lengths = np.array([column.value_lengths().to_pylist() for column in lists], np.float64)
    # Arrow's own conversions to NumPy import pandas.
    numbers = [np.from_dlpack(column.flatten()) for column in lists]
    ends = np.nan_to_num(lengths).cumsum(axis=1).astype(np.int64)
    stop = 0
    for key, group in groupby(texts["cell"]):
        start, stop = stop, stop + len(list(group))
        entry = wanted.get(key)
        if entry is None:
            continue
        cell = entry.cell
        shape = (len(cell.replicates), len(cell.checkpoints))
        problem = "the content does not have the digest that it was written with"
        if stop - start == shape[0] and (lengths[:, start:stop] == shape[1]).all():
            size = shape[0] * shape[1]
            rounds, regret, reward = (
                values[end - size : end].reshape(shape).copy()
                for values, end in zip(numbers, ends[:, stop - 1])
            )
            complete = replace(entry, regret=regret, reward=reward, stated="")
            if complete.digest == entry.stated:
                rows = {name: values[start:stop] for name, values in texts.items()}
                same = rows == _per_replicate(complete) and (rounds == cell.checkpoints).all()
                problem = "" if same else "content and specification disagree"
        del wanted[key]
        yield DamagedResult(f"{where}: {cell}: {problem}") if problem else complete


def write_cell(result: CellResult) -> bytes:
    """Return the file of a single cell, including its specification."""
    return table_bytes([result], to_rows([result]))


def read_cell(content: bytes, where: str) -> CellResult:
    """Read the file of a single cell and check all of it.

    Args:
        content: The whole file.
        where: Its path.

    Raises:
        DamagedResult: If it is truncated, altered, or misnamed.
    """
    raw = _open(content, where).metadata.metadata or {}
    try:
        (entry,) = from_rows(json.loads(raw[ABOUT.encode()]))
    except (KeyError, ValueError) as error:
        raise DamagedResult(f"{where}: its metadata are damaged ({error!r:.300})") from error
    intact, damaged = read_table(content, where, [entry])
    if damaged:
        raise damaged[0]
    if Path(where).name != Path(cell_file(entry.cell)).name:
        raise DamagedResult(f"{where}: holds another cell ({entry.cell}); it was renamed or copied")
    return intact[0]


def _open(content: bytes, where: str, entries: Sequence[CellResult] = ()) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sizes = [(len(e.cell.replicates), len(e.cell.checkpoints)) for e in entries]
    most_rows = max(sum(rows for rows, _ in sizes), SPARE_ROWS)
    most_values = max(sum(rows * points for rows, points in sizes), 100 * SPARE_ROWS)
    try:
        rows, values = claimed(content)
        if rows > most_rows or values > most_values:
            raise ValueError(f"it claims {rows:,} rows where {most_rows:,} are the most")
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        if not file.schema_arrow.equals(_schema()):
            raise ValueError(f"expected the columns {', '.join(COLUMNS)}")
        return file
    except Exception as error:  # the reader may raise anything on a damaged footer
        first = str(error).strip().split("\n")[0]
        raise DamagedResult(f"{where}: not a readable table of results ({first})") from error


def claimed(content: bytes) -> tuple[int, int]:
    """Return the rows of a Parquet file and the largest number of values in a column chunk.

    Both come from the footer, a struct in Thrift's compact protocol. PyArrow 26.0.1 cannot replace
    this reader. Of 2,000 altered footers, reading the file raised a Python exception for every bad
    one, with and without thrift limits. But the number of values needs `RowGroupMetaData.column`,
    which ended the process (SIGABRT) for 5 of them: "Definition level histogram size mismatch".
    Without that number a valid file of 868 bytes takes 1.6 GB to read, limits set.

    Raises:
        ValueError: If the footer cannot be read.
    """
    size = int.from_bytes(content[-8:-4], "little")
    if content[-4:] != b"PAR1" or not 0 < size <= len(content) - 8:
        raise ValueError("no Parquet footer")
    try:
        file = _Compact(content[-8 - size : -8]).struct(0)
    except (IndexError, KeyError, OverflowError):
        raise ValueError("the footer ends early, or holds a value of an unknown type") from None
    groups = [group for groups in _all(file, 4, list) for group in groups]
    rows = sum(max(0, count) for group in groups for count in _all(group, 3, int))
    columns = [one for group in groups for columns in _all(group, 1, list) for one in columns]
    metas = [meta for column in columns for meta in _all(column, 3, list)]
    return rows, max((count for meta in metas for count in _all(meta, 5, int)), default=0)


def _all(struct: Any, field: int, kind: type) -> list[Any]:
    """Values of a field, which an altered footer may hold more than once."""
    pairs = struct if isinstance(struct, list) else []
    matches = [pair[1] for pair in pairs if isinstance(pair, tuple) and pair[0] == field]
    return [value for value in matches if isinstance(value, kind)]


class _Compact(io.BytesIO):
    """Reads numbers, lists and structs; goes past everything else.

    Raises IndexError at the end of the content, and ValueError where it makes no sense.
    """

    def byte(self) -> int:
        return self.read(1)[0]

    def number(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            one = self.byte()
            value |= (one & 0x7F) << shift
            if one < 0x80:
                return value
        raise ValueError("an integer of more than 64 bits in the footer")

    def signed(self) -> int:
        value = self.number()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int) -> list[tuple[int, Any]]:
        """Pairs of a field's number and its value."""
        pairs, last = [], 0
        while head := self.byte():
            last = last + (head >> 4) if head >> 4 else self.signed()
            kind = head & 15
            pairs.append((last, None if kind in (1, 2) else self.value(kind, depth + 1)))
        return pairs

    def value(self, kind: int, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError("the footer is nested too deeply")
        if kind in INTEGERS:
            return self.signed()
        if kind in LISTS:
            head = self.byte()
            count = head >> 4 if head >> 4 < 15 else self.number()
            return [self.value(head & 15, depth + 1) for _ in range(count)]
        if kind == STRUCT:
            return self.struct(depth)
        size = self.number() if kind == BINARY else BYTES[kind]
        if len(self.read(size)) < size:
            raise IndexError
        return None
