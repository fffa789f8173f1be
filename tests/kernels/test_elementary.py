"""Elementary functions against long doubles and SciPy, and their behaviour at the edges."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import special, stats

from dpb_gym import portable, uncompiled
from dpb_gym.kernels import elementary

RNG = np.random.default_rng(12)
ANY = np.concatenate([RNG.uniform(-2, 2, 2000), RNG.uniform(-700, 700, 2000)])
POSITIVE = np.concatenate([RNG.uniform(0.4, 2.5, 2000), 10.0 ** RNG.uniform(-320, 300, 2000)])
SMALL = np.concatenate([RNG.uniform(-1, 2, 2000), 10.0 ** RNG.uniform(-300, 300, 1000)])
SMALL = np.concatenate([SMALL, -(10.0 ** RNG.uniform(-20, 0, 1000))])
TAILS = RNG.uniform(-37, 8, 2000)


def ulps(got: np.ndarray, expected: np.ndarray) -> float:
    return float((np.abs(got - expected) / np.spacing(np.abs(expected.astype(float)))).max())


@pytest.mark.parametrize(
    ("name", "x", "limit"),
    [
        ("exp", ANY, 1.0),
        ("expm1", ANY, 1.5),
        ("log", POSITIVE, 1.0),
        ("log1p", SMALL, 1.5),
        ("sin", RNG.uniform(-100, 100, 2000), 3.0),
    ],
)
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="needs a wider long double")
def test_against_long_doubles(name, x, limit):
    exact = getattr(np, name)(x.astype(np.longdouble))
    assert ulps(portable.each(getattr(elementary, name), x), exact) <= limit


@pytest.mark.parametrize(
    ("name", "oracle", "x"),
    [
        ("sigmoid", special.expit, RNG.uniform(-50, 50, 2000)),
        (
            "erfcx",
            special.erfcx,
            np.append(RNG.uniform(0, 5, 1000), 10.0 ** RNG.uniform(-5, 9, 99)),
        ),
        ("normal_density", stats.norm.pdf, TAILS),
        ("normal_cdf", special.ndtr, TAILS),
        ("log_normal_cdf", special.log_ndtr, TAILS),
    ],
)
def test_against_scipy(name, oracle, x):
    got = portable.each(getattr(elementary, name), x)
    np.testing.assert_allclose(
        got, oracle(x), rtol=3e-13 if name in ("normal_density", "normal_cdf") else 3e-14
    )


def test_power():
    for x, y in ((2.0, 0.5), (1e5, 0.75), (0.3, -2.5), (8.0, 1.0 / 3.0)):
        assert elementary.power(x, y) == pytest.approx(x**y, rel=1e-14)


def test_special_values():
    inf, nan = math.inf, math.nan
    for name, x, expected in (
        *(("exp", x, y) for x, y in ((-inf, 0.0), (inf, inf), (0.0, 1.0), (-746.0, 0.0))),
        *(("exp", x, y) for x, y in ((710.0, inf), (-745.1, 5e-324), (nan, nan))),
        *(("expm1", x, y) for x, y in ((-inf, -1.0), (inf, inf), (1e-320, 1e-320), (nan, nan))),
        *(("log", x, y) for x, y in ((0.0, -inf), (-0.0, -inf), (inf, inf), (1.0, 0.0))),
        *(("log", x, y) for x, y in ((-1.0, nan), (-inf, nan), (nan, nan))),
        *(("log1p", x, y) for x, y in ((-1.0, -inf), (inf, inf), (0.0, 0.0), (-2.0, nan))),
        *(("log1p", x, y) for x, y in ((1e-320, 1e-320), (nan, nan))),
        *(("sigmoid", x, y) for x, y in ((-inf, 0.0), (inf, 1.0), (0.0, 0.5), (nan, nan))),
        *(("normal_cdf", x, y) for x, y in ((-inf, 0.0), (inf, 1.0), (nan, nan))),
    ):
        got = getattr(elementary, name)(x)
        assert got == expected or (got != got and expected != expected), (name, x, got)


def test_compiled_functions_equal_python():
    """Compiled and uncompiled functions give the same bits."""
    edges = [0.0, -0.0, 1e-320, 1e308, -1e308, -1.0, math.inf, -math.inf, math.nan]
    domains = {"exp": ANY, "expm1": ANY, "log": POSITIVE, "log1p": SMALL}
    domains |= {"erfcx": 10.0 ** RNG.uniform(-9, 4, 500), "log_normal_cdf": TAILS}
    for name, x in domains.items():
        compiled, python = getattr(elementary, name), getattr(uncompiled, name)
        for v in (*x.tolist(), *(e for e in edges if name != "erfcx" or e >= 0.0)):
            one, other = compiled(v), python(v)
            assert one == other or (one != one and other != other), (name, v, one, other)


def test_python_functions_do_not_import_numba():
    code = (
        "import sys; from dpb_gym import uncompiled; uncompiled.log_normal_cdf(-2.0);"
        "print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_normals():
    """Symmetric, finite at both ends, in distribution, and one uniform each."""
    uniform = np.concatenate([RNG.random(2000), 2.0 ** -RNG.uniform(1, 53, 2000)])
    uniform = np.floor(uniform * 2.0**53) * 2.0**-53  # what a generator gives
    got = portable.each(elementary.normal_of, uniform)
    np.testing.assert_allclose(got, special.ndtri(uniform + 2.0**-54), rtol=1e-13, atol=1e-15)
    largest = 1.0 - 2.0**-53
    assert elementary.normal_of(largest) == -elementary.normal_of(0.0)
    assert 8.2 < elementary.normal_of(largest) < 8.3
    out = portable.normals(np.random.default_rng(5), (400, 500))
    assert stats.kstest(out.ravel(), "norm").pvalue > 0.001
    tail = np.abs(out) > 3.0
    assert abs(tail.mean() / (2 * special.ndtr(-3.0)) - 1) < 0.15
    rng, other = np.random.default_rng(5), np.random.default_rng(5)
    parts = np.empty((400, 500), np.float32)
    portable.fill_normals(rng, parts[:7])
    portable.fill_normals(rng, parts[7:])
    np.testing.assert_array_equal(parts, out.astype(np.float32))
    assert other.random(400 * 500)[0] == pytest.approx(special.ndtr(out[0, 0]))
    assert rng.random() == other.random()


def test_normals_in_arrays_equal_single_ones():
    uniform = np.append(np.random.default_rng(3).random(5000), [0.0, 1.0 - 2.0**-53, 0.075, 0.925])
    out = np.empty(len(uniform))
    elementary.normals_of(uniform, out)
    np.testing.assert_array_equal(out, portable.each(elementary.normal_of, uniform))
