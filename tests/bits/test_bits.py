"""The same bits on every processor: small cells replayed under other BLAS, libm and code.

OPENBLAS_CORETYPE chooses the BLAS kernels of a processor, GLIBC_TUNABLES hides instructions
from libm, NPY_DISABLE_CPU_FEATURES from NumPy's own loops, NUMBA_CPU_NAME from the compiler.
With ``DPB_BITS=all`` every agent plays under every variant (ten minutes).
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ALL = os.environ.get("DPB_BITS") == "all"
NO_FMA = "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX2_Usable,-FMA_Usable,-AVX512F,-AVX512VL"
OLD_LIBM = {"GLIBC_TUNABLES": NO_FMA}
OLD_NUMPY = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"}
OLD = {"OPENBLAS_CORETYPE": "Prescott", **OLD_LIBM, **OLD_NUMPY}
VARIANTS = {
    "old": OLD,
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    **({} if not ALL else {name: {"OPENBLAS_CORETYPE": name} for name in ("Haswell", "Zen")}),
    **({} if not ALL else {"libm": OLD_LIBM, "numpy": OLD_NUMPY}),
}


def play(*arguments: str, **variables: str) -> dict[str, str]:
    """Return digests of the cells, played in a separate process."""
    command = [sys.executable, str(HERE / "cells.py"), *arguments]
    if ALL and "--agents" not in arguments:
        command += ["--agents", "all"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    digests: dict[str, str] = json.loads(run.stdout)
    return digests


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """Digests of this machine with default settings."""
    digests = play()
    assert len(digests) > 25
    return digests


def test_pinned_bits_are_unchanged(reference):
    """A change of bits must be declared: update the algorithm's version and `pinned.json`."""
    pinned = json.loads((HERE / "pinned.json").read_text())
    assert {k for k in pinned if reference[k] != pinned[k]} == set() and len(pinned) > 25


@pytest.mark.parametrize("name", VARIANTS)
def test_bits_do_not_depend_on_processor_and_libraries(name, reference):
    digests = play(**VARIANTS[name])
    assert {k for k in reference if digests[k] != reference[k]} == set()


def test_bits_do_not_depend_on_blocks_and_workers(reference):
    digests = play("--workers", "2")
    assert {k for k in reference if digests[k] != reference[k]} == set()


def test_bits_do_not_depend_on_compiler_flags(reference, tmp_path):
    """Compile for a processor without FMA and AVX; a sample, as all kernels are recompiled."""
    some = () if ALL else ("--agents", "dpmnl,lin-ucb", "--tasks", "assortment,recommendation")
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    digests = play(*some, NUMBA_CACHE_DIR=str(tmp_path), **generic)
    assert {k for k in digests if digests[k] != reference[k]} == set() and len(digests) > 1


SAMPLE = "assortment,pricing,recommendation"


def test_compiled_kernels_equal_python():
    """Run without compilation, by the interpreter's arithmetic."""
    sample = ("--tasks", SAMPLE, "--horizon", "12")
    sample += ("--agents", "ucb-mnl,one-pass-pricing,lin-ucb,local-lin-ucb")
    digests = play(*sample, NUMBA_DISABLE_JIT="1")
    assert digests == play(*sample) and len(digests) > 4


FORBIDDEN = {
    "math": {"exp", "log", "log1p", "expm1", "pow", "sin", "cos", "tanh", "erf", "erfc", "lgamma"},
    "np": {"exp", "log", "log1p", "expm1", "power", "sin", "cos", "tanh", "dot", "matmul"},
}
# Not on a path from a cell to its numbers: audits, Stable-Baselines3, real data's features
# (stored in single precision), the table of BLTs, what a page says of a fit, fits with the noise
# of the operating system.
ELSEWHERE = (
    "agents/dpb_agents/plans.py",  # checks of isolated runs, which compute no result
    "dpb_gym/envs/sb3.py",
    "dpb_gym/kinds/price_doubts.py",
    "dpb_gym/privacy/accounting.py",
    "dpb_gym/privacy/events.py",
    "dpb_gym/privacy/private_factors.py",
    "dpb_gym/privacy/objective_perturbation.py",
    "dpb_gym/problems/endogeneity.py",
    "dpb_gym/problems/fitting.py",
    "dpb_gym/problems/released_fit.py",
    "dpb_gym/problems/log_likelihood.py",
    "dpb_gym/problems/logged_figures.py",
    "dpb_gym/problems/neighbours.py",
    "dpb_gym/problems/separation.py",
    "dpb_gym/problems/price_curve.py",
    "dpb_gym/problems/price_form.py",
    "dpb_gym/problems/item_features.py",
)


def test_result_paths_call_no_blas_and_no_libm():
    packages = ("agents/dpb_agents", *(f"dpb_gym/{r}" for r in ("problems", "envs", "feedback")))
    packages += (
        "dpb_gym/kinds",
        "dpb_gym/privacy",
        "dpb_gym/kernels",
        "dpb_gym/streams.py",
        "dpb_gym/local_privacy.py",
    )
    files = [
        p
        for package in packages
        for p in ([ROOT / package] if package.endswith("py") else (ROOT / package).rglob("*.py"))
    ]
    violations = []
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(ELSEWHERE):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            home, _, function = called.rpartition(".")
            product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
            if (
                product
                or function in FORBIDDEN.get(home, ())
                or called.startswith(("np.linalg", "scipy."))
                or function == "standard_normal"
            ):
                violations.append(f"{name}:{node.lineno} {called or '@'}")
    assert violations == []
    assert len(files) > 100
