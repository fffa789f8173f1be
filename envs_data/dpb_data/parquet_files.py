"""Columns of a Parquet file, within a limit that depends on its size.

Runs of equal values take almost no bytes in this format, so that a file of 2 kB can hold a hundred
million rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpb_gym.errors import DataError

SMALL = 512 << 20
MOST_RATIO = 200
"""Limits: bytes that any file may have unpacked, and bytes per byte of a larger one."""
OF_MEMORY = 16
"""Any file may also have this part of the machine's memory: reading takes five times its bytes."""
VALUE = 8
"""Bytes of a value at least, as each is converted to a number or a text."""
BATCH = 1 << 16
WIDEST = 64
"""Bytes of a value at most, if all have the same number."""


def columns_of(place: Path, names: Sequence[str]) -> Any:
    """Return columns as an Arrow table.

    Args:
        place: The file.
        names: Columns of the file.

    Raises:
        DataError: If the columns have more bytes than a file of this size should.
        pyarrow.ArrowException: If the file is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    meta = pq.read_metadata(place)
    schema = meta.schema.to_arrow_schema()
    kinds = {name: schema.field(name).type for name in names}
    for name, kind in kinds.items():
        if not _is_value(kind):
            raise DataError(f"{place}: expected {name} to be numbers or texts, found {kind}")
    texts = [name for name, kind in kinds.items() if _is_text(kind)]
    size = place.stat().st_size
    most = max(SMALL, _memory() // OF_MEMORY, MOST_RATIO * size)
    # long texts that differ would be unpacked before they are counted
    if sum(meta.row_group(k).total_byte_size for k in range(meta.num_row_groups)) > most:
        raise _too_large(place, size, meta.num_rows, most)
    batches = []
    read = 0
    # a page of a text can be repeated as often as there are rows: it is counted before it is copied
    with pq.ParquetFile(place, metadata=meta, read_dictionary=texts) as file:
        for batch in file.iter_batches(BATCH, columns=list(names)):
            columns = []
            for values in batch.columns:
                read += max(VALUE * len(values), _bytes_unpacked(values))
                if read > most:
                    raise _too_large(place, size, meta.num_rows, most)
                packed = pa.types.is_dictionary(values.type)
                columns.append(values.dictionary_decode() if packed else values)
            batches.append(pa.RecordBatch.from_arrays(columns, batch.schema.names))
    if not batches:
        return schema.empty_table().select(list(names))
    return pa.Table.from_batches(batches)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def _is_value(kind: Any) -> bool:
    """Return whether values of a type are single ones, whose size is small or counted."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    wide = pa.types.is_fixed_size_binary(kind) and kind.byte_width > WIDEST
    return not (wide or pa.types.is_nested(kind))


def _bytes_unpacked(values: Any) -> int:
    """Return the bytes of an array whose repeated values are written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(values.type) or not _is_text(values.type.value_type):
        return VALUE * len(values)
    lengths = pc.cast(pc.binary_length(values.dictionary), pa.int64())
    return int(pc.sum(lengths.take(values.indices)).as_py() or 0)


def _memory() -> int:
    """Return the bytes of this machine's memory, 0 if it does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def _too_large(place: Path, size: int, rows: int, most: int) -> DataError:
    return DataError(
        f"{place}: its {size:,} bytes unpack to {rows:,} rows, which have more than the {most:,} "
        "bytes that a file of this size may take on this machine. A table that is meant so can be "
        "given as a frame or as .csv"
    )
