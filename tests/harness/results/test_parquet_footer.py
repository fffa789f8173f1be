"""What a Parquet file claims, without Arrow."""

from __future__ import annotations

import io
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym.results.parquet import claimed


def file_of(rows: int, points: int, per_group: int) -> bytes:
    lists = [np.arange(points, dtype=np.float64)] * rows
    table = pa.table({"cell": ["a"] * rows, "regret": pa.array(lists, pa.list_(pa.float64()))})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=per_group)
    return buffer.getvalue()


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 40), points=st.integers(1, 30), per_group=st.integers(1, 40))
def test_the_footer_is_read_as_arrow_reads_it(rows: int, points: int, per_group: int) -> None:
    content = file_of(rows, points, per_group)
    read = pq.ParquetFile(io.BytesIO(content)).metadata
    groups = [read.row_group(k) for k in range(read.num_row_groups)]
    values = max(g.column(k).num_values for g in groups for k in range(g.num_columns))
    assert claimed(content) == (read.num_rows, values)


def test_alias_bombs_are_counted_in_values() -> None:
    assert claimed(file_of(1, 100_000, 1)) == (1, 100_000)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(position=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_altered_footers_raise_one_type(position: float, value: int) -> None:
    content = bytearray(file_of(3, 4, 2))
    size = int.from_bytes(content[-8:-4], "little")
    content[-8 - size + int(position * (size + 8))] = value
    with suppress(ValueError):
        rows, values = claimed(bytes(content))
        assert rows >= 0 and isinstance(values, int)


def test_a_list_that_claims_more_values_than_the_file_has_bytes() -> None:
    flags = b"\x19\xf1" + b"\x80" * 5 + b"\x01\x00"  # field 1, 2^35 booleans
    with pytest.raises(ValueError, match="ends early"):
        claimed(flags + len(flags).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\x00" * 20, b"\xff" * 30 + b"PAR1"])
def test_what_has_no_footer(content: bytes) -> None:
    with pytest.raises(ValueError, match="footer"):
        claimed(content)
