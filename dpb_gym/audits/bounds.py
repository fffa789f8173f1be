"""Lower bounds on privacy loss from the error rates of a distinguisher.

The false positive and false negative rates of any distinguisher bound the privacy of the mechanism
(Kairouz, Oh & Viswanath 2015; Dong, Roth & Su 2022). Upper confidence limits of both rates
therefore give lower confidence limits of the loss, which hold jointly.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.portable import bisect
from dpb_gym.validation import FloatArray

ORDERS: FloatArray = 1.0 + np.geomspace(1e-3, 1e4, 600)


def clopper_pearson_upper(errors: ArrayLike, trials: float, confidence: float) -> FloatArray:
    """Return the exact upper confidence limit of a rate (Clopper & Pearson 1934).

    Args:
        errors: Observed errors, 0..trials; real numbers interpolate.
        trials: Number of trials, > 0.
        confidence: One-sided confidence in (0, 1).

    Returns:
        The limits, of the shape of `errors`.
    """
    from scipy.special import betaincinv

    k = np.asarray(errors, dtype=np.float64)
    level = validation.real("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    if not trials > 0 or (k < 0).any() or (k > trials).any():
        raise ParameterError(f"errors must lie in 0..{trials}; got {errors!r}")
    inside = np.minimum(k, trials - 1e-9)
    return np.where(k >= trials, 1.0, betaincinv(inside + 1, trials - inside, level))


def mu_bound(fpr: ArrayLike, fnr: ArrayLike) -> FloatArray:
    """Return the mu of Gaussian DP that the error rates refute: Phi^-1(1-fpr) - Phi^-1(fnr)."""
    from scipy.special import ndtri

    fp, fn = _rates(fpr, fnr)
    with np.errstate(invalid="ignore"):
        bound = ndtri(1.0 - fp) - ndtri(fn)
    return np.where(np.isnan(bound), 0.0, np.maximum(bound, 0.0))


def epsilon_bound(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> FloatArray:
    """Return the epsilon at `delta` that the error rates refute, the larger of both sides."""
    fp, fn = _rates(fpr, fnr)
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.log(np.maximum(1.0 - delta - fn, 0.0)) - np.log(fp)
        far = np.log(np.maximum(1.0 - delta - fp, 0.0)) - np.log(fn)
    # fmax ignores NaN, which is log 0 - log 0
    bound: FloatArray = np.fmax(np.fmax(near, far), 0.0)
    return bound


def rho_bound(fpr: float, fnr: float) -> float:
    """Return the rho of zCDP that the error rates refute: max over orders a of D_a(two coins) / a.

    Args:
        fpr: False positive rate (or its upper limit).
        fnr: False negative rate (or its upper limit).
    """
    p = 1.0 - fnr
    q = fpr
    if p <= q:
        return 0.0
    a = ORDERS
    best = 0.0
    for one, other in ((p, q), (1.0 - q, 1.0 - p)):
        with np.errstate(divide="ignore"):
            logs = np.logaddexp(
                a * np.log(one) + (1 - a) * np.log(other),
                a * np.log1p(-one) + (1 - a) * np.log1p(-other),
            )
        ratio = logs / ((a - 1) * a)
        if np.isposinf(ratio).any():
            return math.inf
        best = max(best, float(np.nanmax(ratio)))
    return best


def gaussian_mu_bound(scores0: FloatArray, scores1: FloatArray, confidence: float) -> float:
    """Return the lower limit of the distance of two normal samples in standard deviations.

    Valid if the scores are normal with equal variance, as those of a Gaussian mechanism are:
    the two-sample t statistic is then noncentral t, and its noncentrality is mu times
    ``1 / sqrt(1/n0 + 1/n1)``.

    Args:
        scores0: Scores ``(n0,)`` in the first world.
        scores1: Scores ``(n1,)`` in the second world, larger on average.
        confidence: One-sided confidence in (0, 1).
    """
    from scipy.special import chdtri, nctdtrinc

    n0 = scores0.size
    n1 = scores1.size
    freedom = n0 + n1 - 2
    if freedom < 1:
        return 0.0
    squares = ((scores0 - scores0.mean()) ** 2).sum() + ((scores1 - scores1.mean()) ** 2).sum()
    pooled = math.sqrt(float(squares) / freedom)
    root = math.sqrt(1 / n0 + 1 / n1)
    difference = float(scores1.mean() - scores0.mean())
    if pooled == 0:
        return math.inf if difference > 0 else 0.0
    t = difference / (pooled * root)
    if t > 1e3:  # the numerator's noise no longer matters
        return t * root * math.sqrt(float(chdtri(freedom, confidence)) / freedom)
    return max(0.0, float(nctdtrinc(freedom, confidence, t))) * root if t > 0 else 0.0


Samples = tuple[FloatArray, FloatArray]
SCALES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
CLIPS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)


def divergence_bound(chosen: Samples, counted: Samples, confidence: float) -> float:
    """Return a lower confidence limit of the KL divergence of second from first world's scores.

    Donsker & Varadhan: ``KL >= E_1 f - log E_0 exp f`` for every bounded f; here f is the score,
    scaled and cut to an interval. As ``log x <= x/k - 1 + log k`` for every k > 0, the right side
    is at least the mean of ``z = f(s_1) - exp f(s_0) / k + 1 - log k`` over pairs of runs, one of
    each world. A mean of bounded numbers has a limit by betting (Waudby-Smith & Ramdas 2024):
    if it were m, ``prod (1 + stake (z_i - m))`` would be 1 on average, and so exceed 1/error with
    probability at most error. That holds for any finite sample.

    Args:
        chosen: Scores of both worlds that choose scale, interval, k and stake.
        counted: Scores that the limit is computed from, equally many of both worlds.
        confidence: In (0, 1).
    """
    level = validation.real("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    log = -math.log1p(-level)
    n = len(counted[0])
    spread = float(np.std(np.nan_to_num(np.concatenate(chosen), posinf=1e6, neginf=-1e6))) or 1.0
    best = 0.0
    bet = None
    for scale, clip in itertools.product((*SCALES, spread), CLIPS):  # the last: the score itself
        f, weights = _exponents(chosen, scale / spread, clip)
        k = float(weights.mean())
        variance = float(f.var() + (weights / k).var()) + 1e-12
        width = 2.0 * clip + (math.exp(clip) - math.exp(-clip)) / k
        stake = min(math.sqrt(2.0 * log / (n * variance)), 0.5 / width)
        promised = float(f.mean()) - math.log(k) - log / (n * stake) - 0.5 * stake * variance
        if promised > best:
            best = promised
            bet = (scale / spread, clip, k, stake)
    if bet is None:
        return 0.0
    scale, clip, k, stake = bet
    f, weights = _exponents(counted, scale, clip)
    z = f - weights / k + 1.0 - math.log(k)

    def won(mean: float) -> bool:
        return float(np.log1p(stake * (z - mean)).sum()) >= log

    high = float(z.mean())
    return bisect(won, 0.0, high)[0] if high > 0 and won(0.0) else 0.0


def _exponents(scores: Samples, scale: float, clip: float) -> Samples:
    """Return f of the second world's scores, and exp f of the first's."""
    zero, one = (np.clip(scale * part, -clip, clip) for part in scores)
    return one, np.exp(zero)


def _rates(fpr: ArrayLike, fnr: ArrayLike) -> tuple[FloatArray, FloatArray]:
    fp = np.asarray(fpr, dtype=np.float64)
    fn = np.asarray(fnr, dtype=np.float64)
    if not (np.isfinite(fp).all() and np.isfinite(fn).all()):
        raise ParameterError("error rates must be finite")
    return fp, fn
