"""Damped Newton method for convex objectives of B replicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.linalg import cholesky_one, dot_one, solve_cholesky_one

Array = NDArray[Any]
Losses = Callable[[Array, Array, Array, Array, Array], None]

MAX_PASSES = 400
SHORTEST = 1e-12
ENOUGH = 1e-4  # Armijo's constant: share of the decrease predicted by the slope
RESOLVED = 1e-13  # relative changes of the objective below this are rounding errors


@jit
def _direction(hessian, curvature, ridge, gradient, factor, step):
    """Write Newton's step, to be subtracted; False if the Hessian is not positive definite."""
    d = len(gradient)
    for j in range(d):
        for k in range(j + 1):
            factor[j, k] = hessian[j, k] + curvature[j, k]
        factor[j, j] += ridge
    if not cholesky_one(factor, factor):
        return False
    solve_cholesky_one(factor, gradient, step)
    return True


@jit
def _advance(losses, terms, ends, state):
    """Accept or reject `point` by its losses, choose the next point, and reset the losses."""
    loss, gradient, hessian = losses
    curvature, ridge, linear = terms
    decrement, precision = ends
    best, least, scale, slope, step, point, theta, norm, active = state
    B, d = theta.shape
    factor = np.empty((d, d))
    some = False
    for b in range(B):
        if not active[b]:
            continue
        value = loss[b]
        for j in range(d):
            bent = ridge * point[b, j] + dot_one(curvature[b, j], point[b])
            value += point[b, j] * (linear[b, j] + 0.5 * bent)
            gradient[b, j] += linear[b, j] + bent
        length = np.sqrt(dot_one(gradient[b], gradient[b]))
        # Near the minimum values are dominated by rounding, gradients are not. The gradient must
        # fall below all earlier ones, since otherwise steps could cycle.
        falls = value <= best[b] - ENOUGH * scale[b] * slope[b] or length <= 0.9 * least[b]
        active[b] = False
        if falls:
            best[b], norm[b], scale[b] = value, length, 1.0
            least[b] = min(least[b], length)
            for k in range(d):
                theta[b, k] = point[b, k]
            if length <= precision:
                continue
            if not _direction(hessian[b], curvature[b], ridge, gradient[b], factor, step[b]):
                continue
            slope[b] = dot_one(gradient[b], step[b])
            if slope[b] <= decrement:
                for k in range(d):
                    theta[b, k] -= step[b, k]
                continue
        else:
            scale[b] *= 0.5
            # also where the very first value is NaN, when the slope is 0
            if scale[b] < SHORTEST or slope[b] <= RESOLVED * abs(best[b]):
                continue
        for k in range(d):
            point[b, k] = theta[b, k] - scale[b] * step[b, k]
        loss[b] = 0.0
        gradient[b] = 0.0
        hessian[b] = 0.0
        some = active[b] = True
    return some


def minimise(
    losses: Losses,
    due: Array,
    theta: Array,
    norm: Array,
    hessian: Array,
    *,
    ridge: float,
    linear: Array,
    curvature: Array | None = None,
    decrement: float = 0.0,
    precision: float = 0.0,
) -> None:
    """Minimise losses + ridge/2 ||theta||^2 + 1/2 theta' curvature theta + <linear, theta>.

    Newton steps are halved until the objective decreases enough (Armijo) or the gradient does.
    The objective is strongly convex, so this converges from any start. Results of a replicate
    do not depend on the others.

    Args:
        losses: ``losses(which, points, loss, gradient, hessian)`` adds the losses ``(B,)``,
            their gradients ``(B, d)`` and Hessians ``(B, d, d)``, of which the lower triangle
            is read, at points ``(B, d)``, for the replicates of the mask `which`.
        due: Mask ``(B,)`` of the replicates to fit; the others are unchanged.
        theta: Input: starting points; output: minimisers, ``(B, d)``.
        norm: Output ``(B,)``: norm of the gradient at the last point that was accepted. Where
            the Hessian is not positive definite or rounding ends the search, it is above
            `precision`.
        hessian: Output ``(B, d, d)``: the losses' Hessian at the last point evaluated.
        ridge: Positive.
        linear: ``(B, d)``.
        curvature: Symmetric ``(B, d, d)``; None for none.
        decrement: Stops after an undamped step, not evaluated, whose squared Newton decrement
            (about twice the excess over the minimum before it) is at most this.
        precision: Stops where the gradient's norm is at most this.
    """
    shape = theta.shape
    loss = np.zeros(shape[0])
    gradient = np.zeros(shape)
    step = np.zeros(shape)
    best = np.full(shape[0], np.inf)
    least = np.full(shape[0], np.inf)
    scale = np.ones(shape[0])
    slope = np.zeros(shape[0])
    bend = np.zeros((*shape, shape[1])) if curvature is None else curvature
    active = due.copy()
    point = theta.copy()
    norm[due] = np.inf
    hessian[due] = 0.0
    state = (best, least, scale, slope, step, point, theta, norm, active)
    ends = (decrement, precision)
    moving = bool(due.any())
    passes = 0
    while moving and passes < MAX_PASSES:
        losses(active, point, loss, gradient, hessian)
        moving = _advance((loss, gradient, hessian), (bend, ridge, linear), ends, state)
        passes += 1


@jit
def step(hessian, ridge, gradient, due, theta):
    """theta -= (hessian + ridge I)^-1 gradient where due, for lower triangles ``(B, d, d)``."""
    B, d = theta.shape
    factor = np.empty((d, d))
    move = np.empty(d)
    none = np.zeros((d, d))
    for b in range(B):
        if due[b] and _direction(hessian[b], none, ridge, gradient[b], factor, move):
            for k in range(d):
                theta[b, k] -= move[k]
