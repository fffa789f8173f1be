"""Elementary functions with the same bits on every machine.

A libm, NumPy's vector loops and compilers choose code by processor, which changes the last bit.
Here every function is a fixed sequence of additions, multiplications, divisions and square roots,
which IEEE 754 defines to the last bit. Errors are at most 1 ulp (`exp`, `log`, `log1p`, `expm1`)
or a few ulp (the others). Coefficients come from ``benchmarks/fit_elementary.py``.

Functions take and return one float. Python code calls them through `dpb_gym.portable`.
"""

from __future__ import annotations

import decimal
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING or __name__ == "dpb_gym.kernels.elementary":
    from dpb_gym.kernels._jit import inline, jit, vectorised
else:  # `dpb_gym.uncompiled` runs this file, too, and does not import numba

    def jit(function):
        return function

    inline = vectorised = jit

# In parts; multiples of all but the last by small integers are exact.
LN2 = (0.6931471803691238, 1.9082149292705877e-10)
HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
ROOT2 = math.sqrt(2.0)
ROOT_PI = math.sqrt(math.pi)
STEP = (LN2[0] / 64.0, LN2[1] / 64.0)
EXPM1 = tuple(1.0 / math.factorial(k + 2) for k in range(14))
LEAST = -37  # grid points are 1 + j / 128, j from here to 53
SIN = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(9))
COS = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(9))
ERFCX = (
    1.2769783815525286, -0.0927638265857448, -0.16603039761528926, 0.1640512800332955,
    -0.054220000992050155, -0.008034015077164825, 0.008722653876123063, 0.0012713388781666975,
    -0.001456813952819064, -0.0004543400070213104, 0.0002063672554900935, 0.00015103435873054077,
    -1.510055014697402e-06, -3.6404720139120156e-05, -1.3492120628345732e-05, 3.661467410486007e-06,
    5.221327995736825e-06, 1.5944441711460475e-06, -6.883411118543695e-07, -9.500039459796959e-07,
    -2.7684409428376166e-07, 2.369185588570434e-07, 1.7986347916002516e-07, -2.644971268139338e-08,
    -4.515927686002036e-08, 2.9115174912334345e-10, 4.752424040739112e-09,
)  # fmt: skip
CENTRE_TOP = (
    3.3871328727963665, 133.2298936558798, 1974.4549796908434, 13764.600562650594,
    46083.57178205281, 67591.26802814622, 33643.030423774275, 2529.2710029257064,
)  # fmt: skip
CENTRE_BOTTOM = (
    1.0, 42.339378030539244, 688.1108479835043, 5406.113084632693,
    21282.370801425513, 39482.06873642268, 28895.898739432756, 5264.847848662957,
)  # fmt: skip
TAIL_TOP = (
    -3.3814916181186403, -22.57923296177782, -25.80477121650687, -0.0426080694482051,
    44.06597645141857, 39.337123391122894, 9.147954027112426, 0.49745993894741364,
)  # fmt: skip
TAIL_BOTTOM = (
    1.0, 11.919790096398733, 31.581938325499223, 42.1621229115608,
    28.714040136342003, 6.473280398002139, 0.3516984345675685, 5.46808725663995e-07,
)  # fmt: skip


def _split(values: list[decimal.Decimal], bits: int) -> NDArray[np.float64]:
    """Return numbers rounded to `bits` binary places and, in a second row, the remainders."""
    high = [float(round(value * 2**bits)) / 2.0**bits for value in values]
    return np.array([high, [float(v - decimal.Decimal(h)) for v, h in zip(values, high)]])


with decimal.localcontext(prec=50):
    POWERS, POWERS_LOW = _split(
        [decimal.Decimal(2) ** (decimal.Decimal(j) / 64) for j in range(64)], 52
    )
    GRID = [1 + decimal.Decimal(j) / 128 for j in range(LEAST, 54)]
    LOGS, LOGS_LOW = _split([value.ln() for value in GRID], 32)
    INVERSES = np.array([float(1 / value) for value in GRID])


@inline
def _power_of_two(k):
    return np.int64((k + 1023) << 52).view(np.float64)


@jit
def _polynomial(coefficients, x):
    """Evaluate a polynomial, even and odd powers separately for instruction parallelism."""
    last = len(coefficients) - 1
    square = x * x
    one = coefficients[last]
    two = coefficients[last - 1]
    for k in range(last - 2, -1, -2):
        one = one * square + coefficients[k]
    for k in range(last - 3, -1, -2):
        two = two * square + coefficients[k]
    return one + x * two if last % 2 == 0 else one * x + two


@jit
def _reduced(x):
    """(k, t, u) with e^x = 2^k (t + u), t a power of 2^(1/64) and u small beside it."""
    n = np.floor(x * 92.33248261893513 + 0.5)
    r = (x - n * STEP[0]) - n * STEP[1]
    k = np.int64(n)
    j = k & 63
    s = r * r
    rest = r + s * ((0.5 + r * (1.0 / 6.0)) + s * (1.0 / 24.0 + r * (1.0 / 120.0)))
    return k >> 6, POWERS[j], POWERS_LOW[j] + POWERS[j] * rest


@jit
def exp(x):
    """e^x."""
    if not x < 709.782712893384:
        return x if x != x else np.inf
    if x < -745.2:
        return 0.0
    k, t, u = _reduced(x)
    if -1000 < k < 1000:
        return (t + u) * _power_of_two(k)
    edge = 1000 if k > 0 else -1000
    return (t + u) * _power_of_two(k - edge) * _power_of_two(edge)


@jit
def expm1(x):
    """e^x - 1."""
    if abs(x) < 0.35:
        return x + x * x * _polynomial(EXPM1, x)
    if not x < 40.0:
        return exp(x) - 1.0
    if x < -40.0:
        return -1.0
    k, t, u = _reduced(x)
    scale = _power_of_two(k)
    return (scale * t - 1.0) + scale * u


@inline
def log_of_sum(u, lost):
    """log(u + lost) for a positive normal u and |lost| below its rounding; without branches."""
    bits = np.float64(u).view(np.int64)
    k = (bits - 0x3FE6A09E667F3BCD) >> 52  # that of the root of 1/2, so that m is near 1
    m = np.int64(bits - (k << 52)).view(np.float64)
    # log m = log c + log(1 + r) with c on a grid of 1/128, where m - c is exact
    n = np.floor((m - 1.0) * 128.0 + 0.5)
    j = np.int64(n) - LEAST
    r = ((m - (1.0 + n * 0.0078125)) + lost * _power_of_two(-k)) * INVERSES[j]
    s = r * r
    rest = s * (
        (r * (1.0 / 3.0) - 0.5) + s * ((r * 0.2 - 0.25) + s * (r * (1.0 / 7.0) - 1.0 / 6.0))
    )
    high = k * LN2[0] + LOGS[j]
    total = high + r
    return total + (((high - total) + r) + (rest + (LOGS_LOW[j] + k * LN2[1])))


@jit
def log(x):
    """Natural logarithm; -inf at 0, NaN below."""
    if 2.2250738585072014e-308 <= x < np.inf:
        return log_of_sum(x, 0.0)
    if not 0.0 < x < np.inf:
        return -np.inf if x == 0.0 else x + (np.nan if x < 0.0 else 0.0)
    return log_of_sum(x * 18014398509481984.0, 0.0) - 54.0 * (LN2[0] + LN2[1])


@jit
def log1p(x):
    """log(1 + x)."""
    u = 1.0 + x
    if not 2.2250738585072014e-308 <= u < np.inf:
        return log(u)
    return log_of_sum(u, x - (u - 1.0) if x < 1.0 else 1.0 - (u - x))


@jit
def power(x, y):
    """x^y for x > 0, to a relative error of about 1e-16 (1 + |log(x^y)|)."""
    return exp(y * log(x))


@jit
def sigmoid(x):
    """1 / (1 + e^-x)."""
    if x >= 0.0:
        return 1.0 / (1.0 + exp(-x))
    e = exp(x)
    return e / (1.0 + e)


@jit
def sin(x):
    """Sine, for |x| < 1e5."""
    k = np.floor(x * 0.6366197723675814 + 0.5)
    r = ((x - k * HALF_PI[0]) - k * HALF_PI[1]) - k * HALF_PI[2]
    quarter = np.int64(k) & 3
    value = _polynomial(COS, r * r) if quarter & 1 else r * _polynomial(SIN, r * r)
    return -value if quarter & 2 else value


@jit
def _bell(x):
    """exp(-x^2 / 2), the square formed exactly to more than double precision."""
    if not abs(x) < 40.0:
        return 0.0 if x == x else x
    head = np.int64(np.float64(x).view(np.int64) & -0x8000000).view(np.float64)
    return exp(-0.5 * head * head) * exp(-0.5 * (x - head) * (x + head))


@jit
def erfcx(x):
    """exp(x^2) erfc(x) for x >= 0."""
    if x > 1e100:
        return 1.0 / (ROOT_PI * x)
    return _polynomial(ERFCX, (x - 2.0) / (x + 2.0)) / (1.0 + 2.0 * x)


@jit
def normal_density(x):
    """Density of a standard normal."""
    return _bell(x) / (ROOT2 * ROOT_PI)


@jit
def normal_cdf(x):
    """P[Z <= x] of a standard normal, precise in the lower tail."""
    if x > 0.0:
        return 1.0 - normal_cdf(-x)
    return 0.5 * erfcx(-x / ROOT2) * _bell(x)


@jit
def log_normal_cdf(x):
    """log P[Z <= x] of a standard normal, precise in both tails."""
    if x > -1.0:
        return log1p(-normal_cdf(-x))
    return log(0.5 * erfcx(-x / ROOT2)) - 0.5 * x * x


@inline
def _central(q):
    r = 0.180625 - q * q
    return q * _polynomial(CENTRE_TOP, r) / _polynomial(CENTRE_BOTTOM, r)


@inline
def _beyond(q):
    r = np.sqrt(-log_of_sum(0.5 - abs(q), 0.0))
    value = _polynomial(TAIL_TOP, r) / _polynomial(TAIL_BOTTOM, r)
    return value if q > 0.0 else -value


@jit
def normal_of(uniform):
    """Standard normal from a uniform multiple of 2^-53 in [0, 1), by inversion.

    Half a step is added, so that 0 and 1 do not occur and the result is symmetric; the
    largest magnitude is 8.3.
    """
    q = (uniform - 0.5) + 2.0**-54
    return _central(q) if abs(q) <= 0.425 else _beyond(q)


@vectorised
def normals_of(uniforms, out):
    """`normal_of` at every entry of one-dimensional arrays."""
    n = out.shape[0]
    for i in range(n):
        out[i] = _central((uniforms[i] - 0.5) + 2.0**-54)
    # the tails are collected, so that their loop is vectorised, too
    place = np.empty(n, np.int64)
    tail = np.empty(n)
    count = 0
    for i in range(n):
        place[count], tail[count] = i, (uniforms[i] - 0.5) + 2.0**-54
        count += abs(tail[count]) > 0.425
    for k in range(count):
        tail[k] = _beyond(tail[k])
    for k in range(count):
        out[place[k]] = tail[k]


@inline
def _exp_of_small(x):
    """e^x for |x| <= 1.1, by Taylor's series."""
    total = 1.0
    for k in range(20, 0, -1):
        total = 1.0 + total * x / k
    return total


@jit
def discrete_gaussians(normals, uniforms, places, std, out):
    """Try to turn each normal into a discrete Gaussian; see `NoiseSource.discrete_gaussian`.

    Args:
        normals: Standard normals ``(n,)``.
        uniforms: On [0, 1), ``(n,)``.
        places: Output: where `out` still has none, at the front.
        std: Scale, at least 8.
        out: Accepted integers are written to ``out[places]``.

    Returns:
        Number of places that are left.
    """
    most = (8.4 * std + 0.25) / (2.0 * std * std)  # largest exponent of an acceptance
    left = 0
    for i in range(len(normals)):
        x = std * normals[i]
        y = np.floor(x + 0.5)
        exponent = (x - y) * (x + y) / (2.0 * std * std) - most
        # e^x >= 1 + x decides nearly always
        if uniforms[i] < 1.0 + exponent or uniforms[i] < _exp_of_small(exponent):
            out[places[i]] = y
        else:
            places[left] = places[i]
            left += 1
    return left
