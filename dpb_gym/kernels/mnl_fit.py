"""Learning the multinomial-logit parameter: choice records, Gram matrices, Newton's method.

Arrays lead with the replicate axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym.kernels._jit import jit

Array = NDArray[Any]

UNIT = 1.0 - 2.0**-22  # a row scaled to this length is inside the ball in float32 too


@jit
def cholesky(a: Array, shift: float, out: Array) -> bool:
    """Lower Cholesky factor of a + shift I; False if that is not positive definite."""
    d = a.shape[0]
    for i in range(d):
        for j in range(i + 1):
            s = a[i, j]
            if i == j:
                s += shift
            for k in range(j):
                s -= out[i, k] * out[j, k]
            if i == j:
                if not s > 0.0:
                    return False
                out[i, i] = np.sqrt(s)
            else:
                out[i, j] = s / out[j, j]
    return True


@jit
def _clip_factor(row: Array, clip: bool) -> float:
    """What to multiply a feature row with so that it lies in the unit ball."""
    if not clip:
        return 1.0
    s = 0.0
    for k in range(row.shape[0]):
        s += np.float64(row[k]) * np.float64(row[k])
    if s <= UNIT * UNIT:
        return 1.0
    factor: float = UNIT / np.sqrt(s)
    return factor


@jit
def slate_grams(features: Array, slates: Array, clip: bool, grams: Array) -> None:
    """grams[b] = sum of x x' over the slate; `clip` moves each x into the unit ball."""
    B, K = slates.shape
    d = features.shape[2]
    x = np.empty(d)
    for b in range(B):
        for i in range(d):
            for j in range(d):
                grams[b, i, j] = 0.0
        for a in range(K):
            if slates[b, a] < 0:
                continue
            row = features[b, slates[b, a]]
            factor = _clip_factor(row, clip)
            for k in range(d):
                x[k] = row[k] * factor
            for i in range(d):
                for j in range(i + 1):
                    grams[b, i, j] += x[i] * x[j]
        for i in range(d):
            for j in range(i):
                grams[b, j, i] = grams[b, i, j]


@jit
def store(
    features: Array,
    slates: Array,
    choice: Array,
    clip: bool,
    at: int,
    x: Array,
    offered: Array,
    chosen: Array,
) -> bool:
    """Writes one record per replicate at position `at`.

    Args:
        features: ``(B, N, d)``.
        slates: ``(B, K)`` without repeated items; -1 leaves a place empty.
        choice: ``(B,)`` position in the slate, -1 for no purchase.
        clip: Whether to move every feature row into the unit ball.
        at: Position.
        x: Output ``(B, capacity, K, d)``: features of the offered items, without gaps.
        offered: Output ``(B, capacity)``: how many were offered.
        chosen: Output ``(B, capacity)``: which of them was bought, -1 for none.

    Returns:
        Whether all stored features are finite.
    """
    B, K = slates.shape
    d = features.shape[2]
    finite = True
    for b in range(B):
        n = 0
        chosen[b, at] = -1
        for a in range(K):
            if slates[b, a] < 0:
                continue
            row = features[b, slates[b, a]]
            factor = _clip_factor(row, clip)
            for k in range(d):
                x[b, at, n, k] = row[k] * factor
                finite = finite and np.isfinite(x[b, at, n, k])
            if choice[b] == a:
                chosen[b, at] = n
            n += 1
        offered[b, at] = n
    return finite


@jit
def _accumulate(
    x: Array,
    offered: Array,
    chosen: Array,
    start: int,
    stop: int,
    theta: Array,
    gradient: Array,
    hessian: Array,
    p: Array,
    mean: Array,
) -> float:
    """Adds loss, gradient and lower Hessian of records start..stop-1 at theta."""
    d = theta.shape[0]
    loss = 0.0
    for r in range(start, stop):
        n = offered[r]
        if n == 0:
            continue
        top = 0.0
        for a in range(n):
            s = 0.0
            for k in range(d):
                s += x[r, a, k] * theta[k]
            p[a] = s
            if s > top:
                top = s
        bought = chosen[r]
        if bought >= 0:
            loss -= p[bought]
        total = np.exp(-top)
        for a in range(n):
            p[a] = np.exp(p[a] - top)
            total += p[a]
        loss += top + np.log(total)
        for k in range(d):
            mean[k] = 0.0
        for a in range(n):
            w = p[a] / total
            for j in range(d):
                wx = w * x[r, a, j]
                mean[j] += wx
                for k in range(j + 1):
                    hessian[j, k] += wx * x[r, a, k]
        for j in range(d):
            gradient[j] += mean[j]
            for k in range(j + 1):
                hessian[j, k] -= mean[j] * mean[k]
        if bought >= 0:
            for k in range(d):
                gradient[k] -= x[r, bought, k]
    return loss


@jit
def _solve(factor: Array, rhs: Array, out: Array) -> None:
    """out = (L L')^-1 rhs."""
    d = rhs.shape[0]
    for i in range(d):
        s = rhs[i]
        for k in range(i):
            s -= factor[i, k] * out[k]
        out[i] = s / factor[i, i]
    for i in range(d - 1, -1, -1):
        s = out[i]
        for k in range(i + 1, d):
            s -= factor[k, i] * out[k]
        out[i] = s / factor[i, i]


@jit
def newton(
    x: Array,
    offered: Array,
    chosen: Array,
    n: int,
    due: Array,
    ridge: float,
    linear: Array,
    tolerance: float,
    precision: float,
    theta: Array,
    hessian: Array,
    seen: Array,
    norm: Array,
) -> int:
    """Minimises sum of losses + ridge/2 ||theta||^2 + <linear, theta> by damped Newton steps.

    A warm start costs a pass over the new records only: where `seen` > 0, theta must be
    the minimiser over the first `seen` records and `hessian` their curvature near it, so
    the first step needs nothing else. Every later step is a full pass, halved until the
    objective falls enough (Armijo); the objective is strongly convex, so this converges
    from anywhere.

    Args:
        x, offered, chosen: Records as `store` writes them.
        n: Number of records.
        due: ``(B,)``: which replicates to fit.
        ridge: Positive.
        linear: ``(B, d)``.
        tolerance: Stop after a step whose squared Newton decrement was at most this.
        precision: If positive, stop instead once the gradient's norm is at most this, or
            is within 1000 times this and no longer falls.
        theta: In and out, ``(B, d)``.
        hessian: In and out, ``(B, d, d)``: lower triangle of the records' curvature.
        seen: In and out, ``(B,)``: records that theta and hessian cover; 0 = cold start.
        norm: Output ``(B,)``: norm of the gradient at the last point evaluated.

    Returns:
        Number of full passes over all replicates.
    """
    B, d = theta.shape
    p = np.empty(x.shape[2])
    mean = np.empty(d)
    gradient = np.empty(d)
    factor = np.empty((d, d))
    step = np.empty(d)
    point = np.empty(d)
    passes = 0
    for b in range(B):
        if not due[b]:
            continue
        H = hessian[b]
        if seen[b] > 0:
            for k in range(d):
                gradient[k] = 0.0
            _accumulate(x[b], offered[b], chosen[b], seen[b], n, theta[b], gradient, H, p, mean)
            if cholesky(H, ridge, factor):
                _solve(factor, gradient, step)
                for k in range(d):
                    theta[b, k] -= step[k]
        for k in range(d):
            point[k] = theta[b, k]
            step[k] = 0.0
        best = np.inf
        norm[b] = np.inf
        scale = 1.0
        slope = 0.0
        for _ in range(200):
            for j in range(d):
                gradient[j] = linear[b, j] + ridge * point[j]
                for k in range(d):
                    H[j, k] = 0.0
            value = _accumulate(x[b], offered[b], chosen[b], 0, n, point, gradient, H, p, mean)
            for k in range(d):
                value += (linear[b, k] + 0.5 * ridge * point[k]) * point[k]
            passes += 1
            square = 0.0
            for k in range(d):
                square += gradient[k] * gradient[k]
            length = np.sqrt(square)
            # near the minimum values no longer tell, gradients still do
            falls = value <= best - 1e-4 * scale * slope or length <= 0.9 * norm[b]
            if not falls and scale > 1e-12:
                if precision > 0.0 and norm[b] <= 1e3 * precision:
                    break
                scale *= 0.5
                for k in range(d):
                    point[k] = theta[b, k] - scale * step[k]
                continue
            best = value
            norm[b] = length
            for k in range(d):
                theta[b, k] = point[k]
            if precision > 0.0 and length <= precision:
                break
            if not cholesky(H, ridge, factor):
                break
            _solve(factor, gradient, step)
            slope = 0.0
            for k in range(d):
                slope += gradient[k] * step[k]
            scale = 1.0
            for k in range(d):
                point[k] = theta[b, k] - step[k]
            if precision <= 0.0 and slope <= tolerance:
                for k in range(d):
                    theta[b, k] = point[k]
                break
        seen[b] = n
    return passes
