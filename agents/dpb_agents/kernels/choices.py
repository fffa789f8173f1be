"""Choice records of the multinomial logit: storage, Gram matrices, and fits by Newton's method.

The replicate axis comes first.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.mnl import add_choices
from dpb_gym.kernels.newton import minimise, step

UNIT = 1.0 - 2.0**-22  # norm of clipped rows, which is below 1 in float32 too


@jit
def _clip_factor(row, clip):
    """Return the factor that scales a feature row into the unit ball, 1 without `clip`."""
    if not clip:
        return 1.0
    s = 0.0
    for k in range(row.shape[0]):
        # In double precision: in single precision the sum of squares may round below the bound.
        s += np.float64(row[k]) * np.float64(row[k])
    if s <= UNIT * UNIT:
        return 1.0
    factor = UNIT / np.sqrt(s)
    return factor


@jit
def offered_rows(features, slates, clip, rows):
    """Write the features of the offered items to `rows`, ``(B, K, d)``, 0 for empty places.

    `clip` scales each row into the unit ball.
    """
    B, K = slates.shape
    for b in range(B):
        for a in range(K):
            if slates[b, a] < 0:
                rows[b, a] = 0.0
                continue
            row = features[b, slates[b, a]]
            factor = _clip_factor(row, clip)
            for k in range(row.shape[0]):
                rows[b, a, k] = row[k] * factor


@jit
def store(features, slates, choice, clip, at, x, offered, chosen):
    """Store one record per replicate at position `at`.

    Args:
        features: ``(B, N, d)``.
        slates: ``(B, K)`` without repeated items; -1 leaves a place empty.
        choice: ``(B,)`` position in the slate, -1 for no purchase.
        clip: Whether to scale every feature row into the unit ball.
        at: Position in the store.
        x: Output ``(B, capacity, K, d)``: features of the offered items, without gaps.
        offered: Output ``(B, capacity)``: number of offered items.
        chosen: Output ``(B, capacity)``: index of the bought one, -1 for none.

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
                # As stored: a number that is too large for single precision becomes infinite.
                finite = finite and np.isfinite(x[b, at, n, k])
            if choice[b] == a:
                chosen[b, at] = n
            n += 1
        offered[b, at] = n
    return finite


def newton(
    records, due, ridge, linear, curvature, decrement, precision, theta, hessian, seen, norm
):
    """Minimise the sum of losses and a quadratic function; see `minimise`.

    The first step of a warm start reads new records only: where `seen` > 0, theta must be the
    minimiser over the first `seen` records, without a `curvature`, and `hessian` their curvature
    near it.

    Args:
        records: x, offered and chosen as written by `store`, and their number n.
        hessian: In and out, ``(B, d, d)``: lower triangle of the records' curvature.
        seen: In and out, ``(B,)``: number of records in theta and hessian; 0 = cold start.
    """
    x, offered, chosen, n = records

    def losses(first, which, point, *terms):
        add_choices(x, offered, chosen, first, n, which, point, *terms)

    warm = due & (seen > 0)
    if warm.any():
        loss = np.zeros(len(due))
        gradient = np.zeros_like(theta)
        # theta minimises the loss of the old records, so their gradient and that of the quadratic
        # add up to 0: the step needs the gradients of the new records only.
        losses(seen, warm, theta, loss, gradient, hessian)
        step(hessian, ridge, gradient, warm, theta)
    minimise(
        partial(losses, np.zeros_like(seen)),
        due,
        theta,
        norm,
        hessian,
        ridge=ridge,
        linear=linear,
        curvature=curvature,
        decrement=decrement,
        precision=precision,
    )
    seen[due] = n
