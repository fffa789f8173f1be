"""Conversions between Arrow and NumPy. Arrow's own ones import pandas where it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPES = {"float64": "float64", "int64": "int64", "int32": "int32"}


def to_numpy(values: Any) -> NDArray[Any]:
    """Return an Arrow array as a NumPy array; missing values are NaN, None or NaT."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray) and values.num_chunks == 1:
        values = values.chunk(0)
    plain = isinstance(values, pa.Array) and not values.null_count
    if plain and pa.types.is_boolean(values.type):
        return np.array(np.from_dlpack(values.cast(pa.uint8())).view(np.bool_))
    if plain and (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return np.array(np.from_dlpack(values))
    if isinstance(values, pa.Array) and pa.types.is_string(values.type):
        coded = values.dictionary_encode(null_encoding="encode")
        texts = np.empty(len(coded.dictionary), object)
        texts[:] = coded.dictionary.to_pylist()
        return np.asarray(texts[np.from_dlpack(coded.indices)])
    if isinstance(values, pa.ChunkedArray):
        return np.asarray(values.to_numpy())
    return np.asarray(values.to_numpy(zero_copy_only=False))


def from_numpy(values: NDArray[Any]) -> Any:
    """Return an Arrow array of booleans or numbers without missing values."""
    import pyarrow as pa

    if values.dtype == np.bool_:
        bits = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])
    kind = _TYPES.get(str(values.dtype))
    if kind is None or not values.flags.c_contiguous:
        return pa.array(values)
    return pa.Array.from_buffers(getattr(pa, kind)(), len(values), [None, pa.py_buffer(values)])


def scalar(value: float, kind: str = "float64") -> Any:
    """Return an Arrow number of a type of NumPy."""
    return from_numpy(np.array([value], kind))[0]


def from_texts(texts: Sequence[str]) -> Any:
    """Return an Arrow array of texts."""
    import pyarrow as pa

    parts = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, parts)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.string(), len(parts), buffers)
