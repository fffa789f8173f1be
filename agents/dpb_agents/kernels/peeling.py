"""Kernels of sparse one-pass sums: records, and the selection of coordinates.

The first axis of all arrays is the replicate. Replicates are computed one by one.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import exp, log
from dpb_gym.kernels.linalg import dot_one


@jit
def add(errors, scale, directions, bound, sums, counts):
    """Add y v to sums[b] and count |e| by octave, where v is not 0.

    y is e / scale, clipped to [-1, 1], and v a direction, clipped to the unit ball and the cube.
    Octave k of the counts has |e| <= 2^-k, and > 2^-(k + 1) unless it is the last.

    Args:
        errors: e, ``(B,)``.
        scale: ``(B,)``, > 0.
        directions: ``(B, n)``.
        bound: Half of the cube's side.
        sums: ``(B, n)``, in place.
        counts: ``(B, octaves)``, in place.
    """
    B, n = directions.shape
    for b in range(B):
        square = dot_one(directions[b], directions[b])
        # A direction of 0 is a round without a record: its error is not counted either.
        if square == 0.0:
            continue
        # The factor 1 / |v| of a long v goes to y, which is multiplied by v anyway.
        y = min(1.0, max(-1.0, errors[b] / scale[b])) / max(1.0, np.sqrt(square))
        for j in range(n):
            # The product is clipped, not v: it has the same bound, and fewer records are cut.
            sums[b, j] += min(bound, max(-bound, y * directions[b, j]))
        octave = 0
        edge = 0.5
        while octave < counts.shape[1] - 1 and abs(errors[b]) <= edge:
            octave += 1
            edge *= 0.5
        counts[b, octave] += 1.0


@jit
def select(sums, xi, gumbels, support, order):
    """Select the coordinates of the largest |sum| + xi G outside the support, and add them to it.

    The last coordinate, the constant, is never among them.

    Args:
        sums: ``(B, n)``.
        xi: Noise of the selection; 0 is exact.
        gumbels: G, standard Gumbel, ``(B, n)``.
        support: ``(B, n)``, in place.
        order: Output ``(B, picks)``: coordinates in order of selection, -1 where none is left.
    """
    B, n = sums.shape
    # The constant is in every support from the start, so it needs no selection.
    score = np.empty(n - 1)
    for b in range(B):
        for j in range(n - 1):
            score[j] = -np.inf if support[b, j] else abs(sums[b, j]) + xi * gumbels[b, j]
        # One draw of Gumbel noise ranks all coordinates: taking its largest values one by one has
        # the law of exponential mechanisms in sequence (Durfee & Rogers 2019).
        for k in range(order.shape[1]):
            best = np.argmax(score)
            order[b, k] = best if score[best] > -np.inf else -1
            if order[b, k] >= 0:
                support[b, best] = True
                score[best] = -np.inf


@jit
def log_density(sums, xi, support, order, out):
    """Add the log-density of a selection by `select` to `out`, given the sums.

    Args:
        sums: See `select`.
        xi: See `select`, > 0.
        support: See `select`, before the selection.
        order: See `select`.
        out: ``(B,)``, in place.
    """
    B, n = sums.shape
    left = np.empty(n - 1)
    for b in range(B):
        for j in range(n - 1):
            left[j] = -np.inf if support[b, j] else abs(sums[b, j]) / xi
        for best in order[b]:
            if best < 0:
                break
            # Without the largest exponent exp would overflow where the noise is small.
            highest = np.max(left)
            total = 0.0
            for j in range(n - 1):
                total += exp(left[j] - highest)
            out[b] += left[best] - highest - log(total)
            # A later pick is among the coordinates that are left, given the earlier ones.
            left[best] = -np.inf


@jit
def predict(features, action, centre, theta, directions, out):
    """Write <x, centre> + <v, theta> for the chosen candidates' features x, ``(B,)``."""
    B, n = directions.shape
    for b in range(B):
        out[b] = dot_one(directions[b], theta[b])
        for j in range(n - 1):
            out[b] += features[b, action[b], j] * centre[j]
