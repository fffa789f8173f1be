"""Maximum likelihood for priced demand: features phi(x, p) and Newton's method."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.linalg import cholesky_one, dot_one, solve_cholesky_one
from dpb_gym.kernels.pricing import LOGISTIC, sigmoid

MAX_STEPS = 200
MAX_HALVINGS = 60


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
def _accumulate(
    features,
    price,
    demand,
    n,
    model,
    zeta,
    theta,
    gradient,
    hessian,
    phi,
):
    """Adds gradient and lower-triangle Hessian of n records' losses; returns their sum."""
    m = features.shape[1]
    root = np.sqrt(m + 1.0)
    total = 0.0
    for i in range(n):
        for k in range(m):
            phi[k] = features[i, k] / root
        phi[m] = -price[i] / root
        z = 0.0
        for k in range(m + 1):
            z += phi[k] * theta[k]
        if model == LOGISTIC:
            s = zeta * z
            f = sigmoid(s)
            total += max(s, 0.0) + np.log1p(np.exp(-abs(s))) - demand[i] * s
            g = zeta * (f - demand[i])
            h = zeta * zeta * f * (1.0 - f)
        else:
            g = z - demand[i]
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
    n,
    model,
    zeta,
    ridge,
    linear,
    theta,
    gradient,
    hessian,
    phi,
):
    d = theta.shape[0]
    for j in range(d):
        gradient[j] = linear[j] + ridge * theta[j]
        for k in range(d):
            hessian[j, k] = 0.0
        hessian[j, j] = ridge
    value = _accumulate(features, price, demand, n, model, zeta, theta, gradient, hessian, phi)
    return value + dot_one(linear, theta) + 0.5 * ridge * dot_one(theta, theta)


@jit
def newton(
    features,
    price,
    demand,
    n,
    due,
    model,
    zeta,
    ridge,
    linear,
    tolerance,
    theta,
    norm,
):
    """Minimises sum of losses + ridge/2 ||theta||^2 + <linear, theta> by damped Newton steps.

    The losses are the negative log-likelihoods of `kernels.pricing.loss_terms`. A step is
    halved until the objective falls enough (Armijo); the objective is strongly convex, so
    this converges from any start. Stops once half the squared Newton decrement, which
    bounds the excess over the minimum to first order, is at most `tolerance`, after one
    more undamped step.

    Args:
        features: x of the records, ``(B, capacity, d - 1)``.
        price: ``(B, capacity)``.
        demand: ``(B, capacity)``.
        n: Number of records, <= capacity.
        due: ``(B,)``: which replicates to fit; the others are left alone.
        model: `pricing.LOGISTIC` or `pricing.GAUSSIAN`.
        zeta: Link scale of the logistic model.
        ridge: > 0.
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
        data = (features[b], price[b], demand[b])
        point = theta[b]
        value = _objective(*data, n, model, zeta, ridge, linear[b], point, gradient, hessian, phi)
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
                    *data,
                    n,
                    model,
                    zeta,
                    ridge,
                    linear[b],
                    trial,
                    trial_gradient,
                    trial_hessian,
                    phi,
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
