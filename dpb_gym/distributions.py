"""Chi-squared and Student's t distributions of single numbers.

SciPy has them, too; importing it takes longer than reading a small log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

_STEPS = 100_000
_EXACT = 1e-16
_LARGE = 40.0  # argument from which on ratios of gamma functions have their asymptotic series
_ROOT_PI = math.sqrt(math.pi)


def chi_squared_tail(freedom: float, x: float) -> float:
    """Return P(X > x) of a chi-squared distribution.

    Args:
        freedom: Degrees of freedom, positive.
        x: Any number.
    """
    a = 0.5 * freedom
    half = 0.5 * x
    if not half > 0.0:
        return 1.0 if half <= 0.0 else half
    if math.isinf(half):
        return 0.0
    front = math.exp(a * math.log(half) - half - math.lgamma(a))
    if half < a + 1.0:
        term = total = 1.0 / a
        k = a
        while abs(term) > _EXACT * total:
            k += 1.0
            term *= half / k
            total += term
        return 1.0 - front * total

    def terms() -> Iterator[tuple[float, float]]:
        yield 1.0, half + 1.0 - a
        for i in range(1, _STEPS):
            yield i * (a - i), half + 2.0 * i + 1.0 - a

    return front * _fraction(terms())


def student_quantile(freedom: float, probability: float) -> float:
    """Return the quantile of Student's t distribution.

    Args:
        freedom: Degrees of freedom; NaN is returned unless they are positive.
        probability: In [0.5, 1).
    """
    if not freedom > 0.0:
        return math.nan
    tail = 1.0 - probability
    if tail >= 0.5:
        return 0.0
    # Newton's method for the logarithm of the tail, which is concave, from the left
    t = 0.0
    for _ in range(200):
        beyond = _student_tail(freedom, t)
        step = beyond * math.log(beyond / tail) / _student_density(freedom, t)
        t += step
        if abs(step) <= 1e-15 * abs(t):
            break
    return t


def _student_density(freedom: float, t: float) -> float:
    scale = _gamma_ratio(0.5 * freedom) / (math.sqrt(freedom) * _ROOT_PI)
    return scale * math.exp(-0.5 * (freedom + 1.0) * math.log1p(t * t / freedom))


def _student_tail(freedom: float, t: float) -> float:
    """Return P(T > t) for t >= 0, by the incomplete beta function."""
    square = t * t
    a = 0.5 * freedom
    x = square / (freedom + square)
    # x^(1/2) (1 - x)^a / B(a, 1/2)
    front = math.sqrt(x) * math.exp(-a * math.log1p(square / freedom)) * _gamma_ratio(a) / _ROOT_PI
    if x < 1.5 / (a + 2.5):
        return 0.5 - front * _fraction(_beta_terms(0.5, a, x))
    return 0.5 * front / a * _fraction(_beta_terms(a, 0.5, 1.0 - x))


def _beta_terms(a: float, b: float, x: float) -> Iterator[tuple[float, float]]:
    """Return numerators and denominators of the continued fraction of the incomplete beta."""
    yield 1.0, 1.0
    for m in range(_STEPS):
        if m:
            yield m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)), 1.0
        yield -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)), 1.0


def _gamma_ratio(a: float) -> float:
    """Return Gamma(a + 1/2) / Gamma(a)."""
    if a < _LARGE:
        return _gamma_ratio(a + 1.0) * a / (a + 0.5)
    w = 1.0 / (a * a)
    series = -1 / 8 + w * (1 / 192 + w * (-1 / 640 + w * (17 / 14336 + w * (-31 / 18432))))
    return math.sqrt(a) * math.exp(series / a)


def _fraction(terms: Iterator[tuple[float, float]]) -> float:
    """Return the value of a continued fraction a1 / (b1 + a2 / (b2 + ...)), by Lentz's method."""
    tiny = 1e-300
    value = tiny
    c = tiny
    d = 0.0
    for numerator, denominator in terms:
        d = 1.0 / (denominator + numerator * d or tiny)
        c = denominator + numerator / c or tiny
        value *= c * d
        if abs(c * d - 1.0) < _EXACT:
            break
    return value
