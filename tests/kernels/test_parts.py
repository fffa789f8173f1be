"""Kernels that compiled code calls: linked into their callers, and cached as LLVM code."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from llvmlite import binding
from numba import config

from dpb_gym.kernels import _parts
from dpb_gym.kernels._jit import checked

inner: Any = None


def element(x: Any, i: Any) -> Any:
    return x[i]


def sum_of_two(x: Any, i: Any, j: Any) -> Any:
    return inner(x, i) + inner(x, j)


def difference_of_two(x: Any, i: Any, j: Any) -> Any:
    return inner(x, i) - inner(x, j)


def long(x: Any, i: Any) -> Any:
    """A function that LLVM does not inline where it is called twice."""
    total = x[i] * x[i - 1] * x[i - 2] * x[i - 3] * x[i - 4] * x[i - 5] * x[i - 6] * x[i - 7]
    total += x[i] / x[i - 1] + x[i - 2] / x[i - 3] + x[i - 4] / x[i - 5] + x[i - 6] / x[i - 7]
    total += x[i] - x[i - 1] - x[i - 2] - x[i - 3] - x[i - 4] - x[i - 5] - x[i - 6] - x[i - 7]
    return total


@pytest.fixture
def callee(tmp_path, monkeypatch):
    """A function that makes the kernel `inner` again, as another process does."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))

    def make(function=element):
        kernel = checked(function)
        monkeypatch.setitem(globals(), "inner", kernel)
        return kernel

    return make


def factorial(n: Any) -> Any:
    return n * inner(n - 1) if n > 1 else 1


def binomial(n: Any, k: Any) -> Any:
    return inner(n) // (inner(k) * inner(n - k))


@pytest.mark.parametrize("called_first", [True, False])
def test_a_function_may_call_itself(callee, called_first):
    """As a kernel, as the part of another one, and loaded in another process."""
    for _ in range(2):
        kernel = callee(factorial)
        if called_first:
            assert kernel(10) == 3_628_800
        assert checked(binomial)(6, 2) == 15
        assert kernel(5) == 120


def test_a_part_is_loaded_for_another_caller(callee):
    x = np.array([1.0, 2.0])
    first = callee()
    assert checked(sum_of_two)(x, 0, 1) == 3.0
    assert first.part_overloads and not first.overloads
    second = callee()
    assert checked(difference_of_two)(x, 0, 1) == -1.0
    assert sum(_parts._parts[second].stats.cache_hits.values()) == 1
    assert second(x, 0) == 1.0


def test_bounds_are_checked_in_parts(callee):
    x = np.array([1.0, 2.0])
    for caller in (sum_of_two, difference_of_two):
        callee()  # compiled for the first caller, loaded for the second one
        with pytest.raises(IndexError):
            checked(caller)(x, 0, 2)


def test_a_part_is_a_function_of_its_caller_alone(callee):
    callee(long)
    kernel = checked(sum_of_two)
    assert kernel(np.ones(8), 0, 1) == -2.0
    [compiled] = kernel.overloads.values()
    own = [f for f in compiled.library._final_module.functions if not f.is_declaration]
    exported = [f.name for f in own if f.linkage != binding.Linkage.internal]
    assert any("long" in f.name for f in own)
    assert exported
    assert not any("long" in name for name in exported)


def test_python_cannot_call_a_part(callee):
    part = _parts._parts[callee()]
    with pytest.raises(TypeError, match="called by compiled code only"):
        part(np.array([1.0]), 0)


KERNEL = """
import numpy as np
from dpb_gym.kernels import linalg
matrix = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
inverses = np.empty((1, 3, 3))
linalg.inverse(matrix[None], inverses)
"""
"""Calls a kernel that calls others."""
LATER = f"""
import sys
import numba
numba.__version__ = "99.1.0"
from numba.core.registry import CPUDispatcher
{KERNEL}
assert type(linalg.cholesky_one) is CPUDispatcher
assert "dpb_gym.kernels._parts" not in sys.modules
print(inverses.tolist())
"""


@pytest.mark.slow
def test_later_versions_of_numba_compile_the_same_kernels_without_parts(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", LATER]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    here: dict[str, Any] = {}
    exec(KERNEL, here)
    assert done.stdout.strip() == str(here["inverses"].tolist())
