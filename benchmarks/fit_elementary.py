"""Print the coefficients of `dpb_gym.kernels.elementary`: python benchmarks/fit_elementary.py.

Rational interpolation at Chebyshev nodes in 60 digits, which is within a small factor of the
best approximation. Needs mpmath.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mpmath import mp, mpf

mp.dps = 60


def ndtri(p: mpf) -> mpf:
    """Return the standard normal quantile, by Newton's method on the logarithm of the tail."""
    x = -mp.sqrt(-2 * mp.log(p)) if p < mpf("0.1") else (p - mpf("0.5")) * 2
    for _ in range(200):
        tail, density = mp.ncdf(x), mp.npdf(x)
        step = (mp.log(tail) - mp.log(p)) * tail / density
        x -= step
        if abs(step) < mpf(10) ** -50:
            break
    return x


def rational(
    f: Callable[[mpf], mpf], low: str, high: str, degree: int, anchor: str
) -> tuple[list[mpf], list[mpf]]:
    """Return the coefficients of p / q with q(0) = 1 that interpolate f, in increasing powers.

    Nodes are Chebyshev's in log(x - anchor).
    """
    n = 2 * degree + 1
    start, stop = (mp.log(mpf(end) - mpf(anchor)) for end in (low, high))
    angles = (mp.pi * (2 * i + 1) / (2 * n) for i in range(n))
    system, right = mp.matrix(n, n), mp.matrix(n, 1)
    for i, angle in enumerate(angles):
        x = mpf(anchor) + mp.exp((start + stop + (stop - start) * mp.cos(angle)) / 2)
        right[i] = f(x)
        for k in range(degree + 1):
            system[i, k] = x**k
        for k in range(1, degree + 1):
            system[i, degree + k] = -right[i] * x**k
    solution = list(mp.lu_solve(system, right))
    return solution[: degree + 1], [mpf(1), *solution[degree + 1 :]]


def polynomial(f: Callable[[mpf], mpf], degree: int) -> list[mpf]:
    """Return the coefficients of the interpolant of f at Chebyshev's nodes in [-1, 1]."""
    nodes = [mp.cos(mp.pi * (2 * i + 1) / (2 * degree + 2)) for i in range(degree + 1)]
    system = mp.matrix([[x**k for k in range(degree + 1)] for x in nodes])
    return list(mp.lu_solve(system, mp.matrix([f(x) for x in nodes])))


def show(name: str, coefficients: list[mpf]) -> None:
    """Print one tuple of doubles."""
    print(f"{name} = (")
    for value in coefficients:
        print(f"    {float(value)!r},")
    print(")")


def tables() -> list[tuple[str, list[mpf]]]:
    """Return names and coefficients."""

    def central(r: mpf) -> mpf:
        q = mp.sqrt(mpf("0.180625") - r)
        return ndtri(mpf("0.5") + q) / q if q > 1e-20 else mp.sqrt(2 * mp.pi)

    def tail(r: mpf) -> mpf:
        return -ndtri(mp.exp(-(r**2)))

    def scaled(t: mpf) -> mpf:
        x = 2 * (1 + t) / (1 - t)
        if x < 1000:
            return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)
        series = 1 - 1 / (2 * x**2) + 3 / (4 * x**4) - 15 / (8 * x**6)
        return 2 / mp.sqrt(mp.pi) * (1 + 1 / (2 * x)) * series

    named = [("ERFCX", polynomial(scaled, 26))]
    for name, f, low, high, anchor in (
        ("CENTRE", central, "0", "0.180625", "-0.0694"),
        ("TAIL", tail, "1.609", "6.2", "1"),
    ):
        top, bottom = rational(f, low, high, 7, anchor)
        named += [(f"{name}_TOP", top), (f"{name}_BOTTOM", bottom)]
    return named


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    for table in tables():
        show(*table)
