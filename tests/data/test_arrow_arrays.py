"""Conversions between Arrow and NumPy, which do not import pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from dpb_data.arrow_arrays import from_numpy, from_texts, scalar, to_numpy

ARRAYS = {
    "booleans": np.arange(11) % 3 == 0,
    "numbers": np.array([1.5, np.nan, -0.0]),
    "whole": np.array([3, -(2**40)]),
    "small": np.array([3, -4], np.int32),
    "none": np.array([], np.float64),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_survive_both_ways(name):
    values = ARRAYS[name]
    there = from_numpy(values)
    assert there.equals(pa.array(values, from_pandas=False)) or name == "numbers"
    back = to_numpy(pa.chunked_array([there[:1], there[1:]]))
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(to_numpy(there[1:]), values[1:])


def test_missing_values():
    assert np.isnan(to_numpy(pa.array([1, None]))[1])
    assert to_numpy(pa.array(["b", None, "ä", "b"])).tolist() == ["b", None, "ä", "b"]


def test_texts_and_scalars():
    assert from_texts(["", "né", "x"]).equals(pa.array(["", "né", "x"]))
    assert scalar(3, "int32").equals(pa.scalar(3, pa.int32()))


def test_reading_a_table_imports_neither_pandas_nor_scipy(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"2024-01-{i % 28 + 1:02d},{i % 3 + 1}.5,{'ab'[i % 2]},{rng.integers(2)}"
            for i in range(200)]  # fmt: skip
    (tmp_path / "t.csv").write_text("\n".join(["date,price,kind,bought", *rows]))
    code = (
        "import sys, dpb_data; dpb_data.read(sys.argv[1], person='none').table(); "
        "print([name for name in ('pandas', 'scipy.special') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t.csv")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
