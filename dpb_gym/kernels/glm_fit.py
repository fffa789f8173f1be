"""Maximum likelihood for priced demand: features phi(x, p), Newton's method, folding."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.linalg import cholesky_one, dot_one, solve_cholesky_one
from dpb_gym.kernels.pricing import LOGISTIC

MAX_STEPS = 200
MAX_HALVINGS = 60


@jit
def fold(features, price, demand, unit, n, model, zeta, theta, curvature, linear):
    """Replaces n records' losses by their second-order expansions at theta.

    Up to a constant these are <g, t> + 1/2 t' H t with H the Hessian and
    g the gradient at theta minus H theta: added to `curvature` and `linear`.

    Args:
        features: See `newton`.
        price: The same.
        demand: The same.
        unit: The same.
        n: The same.
        model: The same.
        zeta: The same.
        theta: Where to expand, ``(B, d)``.
        curvature: In and out, ``(B, d, d)``.
        linear: In and out, ``(B, d)``.
    """
    B, d = theta.shape
    gradient, hessian, phi = np.empty(d), np.empty((d, d)), np.empty(d)
    for b in range(B):
        for j in range(d):
            gradient[j] = 0.0
            for k in range(d):
                hessian[j, k] = 0.0
        _accumulate(
            features[b],
            price[b],
            demand[b],
            unit,
            n,
            model,
            zeta,
            theta[b],
            gradient,
            hessian,
            phi,
        )
        for j in range(d):
            for k in range(j):
                hessian[k, j] = hessian[j, k]
        for j in range(d):
            linear[b, j] += gradient[j] - dot_one(hessian[j], theta[b])
            for k in range(d):
                curvature[b, j, k] += hessian[j, k]


@jit
def grams(features, price, out):
    """out[b] = phi phi' with phi = [x; -p] / sqrt(d).

    Args:
        features: x, ``(B, d - 1)``.
        price: p, ``(B,)``.
        out: Output ``(B, d, d)``.
    """
    B, m = features.shape
    phi = np.empty(m + 1)
    root = np.sqrt(m + 1.0)
    for b in range(B):
        for k in range(m):
            phi[k] = features[b, k] / root
        phi[m] = -price[b] / root
        for j in range(m + 1):
            for k in range(m + 1):
                out[b, j, k] = phi[j] * phi[k]


@jit
def _accumulate(features, price, demand, unit, n, model, zeta, theta, gradient, hessian, phi):
    """Adds gradient and lower-triangle Hessian of n records' losses; returns their sum."""
    m = features.shape[1]
    root = np.sqrt(m + 1.0)
    total = 0.0
    for i in range(n):
        for k in range(m):
            phi[k] = features[i, k] / root
        phi[m] = -price[i] / root
        y = demand[i] / unit
        z = 0.0
        for k in range(m + 1):
            z += phi[k] * theta[k]
        if model == LOGISTIC:
            s = zeta * z
            e = np.exp(-abs(s))
            f = 1.0 / (1.0 + e) if s >= 0.0 else e / (1.0 + e)
            total += max(s, 0.0) + np.log1p(e) - y * s
            g = zeta * (f - y)
            h = zeta * zeta * f * (1.0 - f)
        else:
            g = z - y
            total += 0.5 * g * g
            h = 1.0
        for j in range(m + 1):
            gradient[j] += g * phi[j]
            w = h * phi[j]
            for k in range(j + 1):
                hessian[j, k] += w * phi[k]
    return total


@jit
def _objective(
    features,
    price,
    demand,
    unit,
    n,
    model,
    zeta,
    ridge,
    curvature,
    linear,
    theta,
    gradient,
    hessian,
    phi,
):
    d = theta.shape[0]
    fixed = 0.0
    for j in range(d):
        bent = ridge * theta[j]
        for k in range(d):
            hessian[j, k] = curvature[j, k]
            bent += curvature[j, k] * theta[k]
        hessian[j, j] += ridge
        gradient[j] = linear[j] + bent
        fixed += theta[j] * (linear[j] + 0.5 * bent)
    value = _accumulate(
        features, price, demand, unit, n, model, zeta, theta, gradient, hessian, phi
    )
    return value + fixed


@jit
def newton(
    features,
    price,
    demand,
    unit,
    n,
    due,
    model,
    zeta,
    ridge,
    curvature,
    linear,
    tolerance,
    theta,
    norm,
):
    """Minimises sum of losses + a fixed quadratic by damped Newton steps.

    The quadratic is ridge/2 ||theta||^2 + 1/2 theta' C theta + <linear, theta>.

    The losses are the negative log-likelihoods of `kernels.pricing.loss_terms`. A step is
    halved until the objective falls enough (Armijo); the objective is strongly convex, so
    this converges from any start. Stops once half the squared Newton decrement, which
    bounds the excess over the minimum to first order, is at most `tolerance`, after one
    more undamped step.

    Args:
        features: x of the records, ``(B, capacity, d - 1)``.
        price: ``(B, capacity)``.
        demand: ``(B, capacity)``, times `unit`.
        unit: 1, or the integer that stands for a demand of 1.
        n: Number of records, <= capacity.
        due: ``(B,)``: which replicates to fit; the others are left alone.
        model: `pricing.LOGISTIC` or `pricing.GAUSSIAN`.
        zeta: Link scale of the logistic model.
        ridge: > 0.
        curvature: C, symmetric, positive semidefinite, ``(B, d, d)``.
        linear: ``(B, d)``.
        tolerance: Of the objective before the last step, >= 0; no step is taken that would
            not lower the objective, so 0 runs until rounding stops it.
        theta: In: start; out: minimiser, ``(B, d)``.
        norm: Output ``(B,)``: norm of the gradient before the last step.

    Returns:
        Largest number of passes over a replicate's records.
    """
    B, d = theta.shape
    gradient, trial_gradient = np.empty(d), np.empty(d)
    hessian, trial_hessian = np.empty((d, d)), np.empty((d, d))
    factor = np.empty((d, d))
    step, trial, phi = np.empty(d), np.empty(d), np.empty(d)
    most = 0
    for b in range(B):
        if not due[b]:
            continue
        data = (features[b], price[b], demand[b], unit, n, model, zeta, ridge, curvature[b])
        point = theta[b]
        value = _objective(*data, linear[b], point, gradient, hessian, phi)
        passes = 1
        for _ in range(MAX_STEPS):
            norm[b] = np.sqrt(dot_one(gradient, gradient))
            if not cholesky_one(hessian, factor):
                break
            solve_cholesky_one(factor, gradient, step)
            decrement = dot_one(gradient, step)
            if 0.5 * decrement <= tolerance:
                for k in range(d):
                    point[k] -= step[k]
                break
            scale = 1.0
            accepted = False
            for _ in range(MAX_HALVINGS):
                for k in range(d):
                    trial[k] = point[k] - scale * step[k]
                trial_value = _objective(
                    *data, linear[b], trial, trial_gradient, trial_hessian, phi
                )
                passes += 1
                if trial_value <= value - 1e-4 * scale * decrement:
                    accepted = True
                    break
                if decrement <= 1e-13 * abs(value):
                    break  # the objective no longer resolves such a step
                scale *= 0.5
            if not accepted:
                break
            value = trial_value
            for k in range(d):
                point[k] = trial[k]
                gradient[k] = trial_gradient[k]
                for j in range(d):
                    hessian[k, j] = trial_hessian[k, j]
        most = max(most, passes)
    return most
