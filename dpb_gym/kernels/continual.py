"""Kernels of the private sums: intake of raw records, and noise that is correlated in time.

Arrays: B replicates, rows of W numbers (symmetric matrices as isometric rows, off-diagonal
entries times sqrt(2)). Each replicate is handled on its own, in a fixed order.
"""

from __future__ import annotations

import math

import numpy as np

from dpb_gym.kernels._jit import inline, jit
from dpb_gym.kernels.linalg import cholesky_shifted_one, dot_one

OK = 0
NOT_FINITE = 1
NOT_SYMMETRIC = 2
NOT_PSD = 3
SYMMETRY_TOLERANCE = 1e-9
PSD_TOLERANCE = 1e-12
ROUNDING = 1e-12
COUNTED = 1e-6
TINY = 1e-280  # squares below it lose digits, or are 0


@inline
def _shrink(row, radius):
    """Return the factor that clips a row to the ball, and whether it exceeds rounding."""
    largest = 0.0
    squares = 0.0
    slack = ROUNDING - 2.0**-51 * (row.shape[0] + 4)  # minus the error of sums of squares
    inside = radius * radius * (1.0 + 2.0 * slack)  # unreliable for a huge or tiny radius
    if radius == math.inf or (TINY < inside < math.inf and dot_one(row, row) <= inside):
        return 1.0, False
    for w in range(row.shape[0]):
        largest = max(largest, abs(row[w]))
    if largest == 0.0:
        return 1.0, False
    for w in range(row.shape[0]):
        part = row[w] / largest
        squares += part * part
    norm = largest * math.sqrt(squares)
    if norm <= radius * (1.0 + ROUNDING):
        return 1.0, False
    # two divisions, as the norm itself may overflow; 0 for a subnormal, inaccurate factor
    scale = radius / largest / math.sqrt(squares)
    return (scale if scale > 3e-308 else 0.0), norm > radius * (1.0 + COUNTED)


@jit
def add_clipped(rows, radius, grid, pending, clipped):
    """Add rows (B, W), scaled down to norm `radius`, to `pending`; counts the scaled ones.

    Rows that exceed the radius by single-precision rounding only are scaled but not counted.

    With ``grid > 0`` each row is rounded to multiples of it after clipping. Nothing is added
    unless every number is finite.
    """
    batch, width = rows.shape
    for b in range(batch):
        for w in range(width):
            if not math.isfinite(rows[b, w]):
                return NOT_FINITE
    for b in range(batch):
        scale, beyond = _shrink(rows[b], radius)
        clipped[b] += beyond
        for w in range(width):
            value = rows[b, w] * scale
            if grid > 0.0:
                value = math.floor(value / grid + 0.5) * grid
            pending[b, w] += value
    return OK


@jit
def pack_symmetric(matrices, psd, shift, rows):
    """Write symmetric matrices (B, d, d) as isometric rows (B, d (d + 1) / 2).

    Checks that all numbers are finite, that the matrices are symmetric and, with `psd`, that
    adding `shift` to the diagonal makes them positive definite (by Cholesky).
    """
    batch = matrices.shape[0]
    side = matrices.shape[1]
    root2 = math.sqrt(2.0)
    factor = np.empty((side, side))
    for b in range(batch):
        largest = 0.0
        gap = 0.0
        column = 0
        for i in range(side):
            for j in range(side):
                if not math.isfinite(matrices[b, i, j]):
                    return NOT_FINITE
                largest = max(largest, abs(matrices[b, i, j]))
        for i in range(side):
            rows[b, column] = matrices[b, i, i]
            column += 1
            for j in range(i + 1, side):
                gap = max(gap, abs(matrices[b, i, j] - matrices[b, j, i]))
                rows[b, column] = root2 * matrices[b, j, i]  # the triangle that is factored
                column += 1
        if gap > SYMMETRY_TOLERANCE * largest:
            return NOT_SYMMETRIC
        if psd and not cholesky_shifted_one(matrices[b], shift, factor):
            return NOT_PSD
    return OK


@jit
def add_squares(values, vectors, psd, radius, grid, pending, clipped):
    """Add records ``value * sum_k v v'`` to `pending` as `add_clipped` of `pack_symmetric` does.

    Such a matrix is symmetric, positive semidefinite unless its value is negative, and its norm is
    at most |value| sum_k ||v||^2, so records within the ball by this bound are not checked again.

    Args:
        values: ``(B,)``.
        vectors: v, ``(B, K, d)``.
        psd: Whether values must not be negative.
        radius: See `add_clipped`.
        grid: See `add_clipped`.
        pending: Isometric rows ``(B, d (d + 1) / 2)``, in place.
        clipped: See `add_clipped`.
    """
    batch, many, side = vectors.shape
    root2 = math.sqrt(2.0)
    width = pending.shape[1]
    sizes = np.empty(batch)
    line = np.empty(side)
    row = np.empty((1, width))
    for b in range(batch):
        sizes[b] = 0.0
        for k in range(many):
            for i in range(side):
                sizes[b] += vectors[b, k, i] * vectors[b, k, i]
        sizes[b] *= abs(values[b])
        if not math.isfinite(sizes[b]):
            return NOT_FINITE
        if psd and values[b] < 0.0:
            return NOT_PSD
    # minus the rounding difference of the two norms
    inside = radius * (1.0 + ROUNDING - 2.0**-51 * (width + many * side))
    usual = grid == 0.0 and radius > 1e-100  # squares that underflow to 0 are within the radius
    for b in range(batch):
        plain = usual and sizes[b] <= inside and abs(values[b]) < 1e200
        out = pending[b] if plain else row[0]
        if not plain:
            row[:] = 0.0
        column = 0
        for i in range(side):
            n = side - i
            part = out[column : column + n]
            x = values[b] * vectors[b, 0, i]
            rest = vectors[b, 0, i:]
            for j in range(n):
                line[j] = x * rest[j]
            for k in range(1, many):
                x = values[b] * vectors[b, k, i]
                rest = vectors[b, k, i:]
                for j in range(n):
                    line[j] += x * rest[j]
            part[0] += line[0]
            for j in range(1, n):
                part[j] += root2 * line[j]
            column += n
        if not plain:
            add_clipped(row, radius, grid, pending[b : b + 1], clipped[b : b + 1])
    return OK


@jit
def add_squares_rounds(values, vectors, psd, radius, grid, pending, clipped):
    """`add_squares` of several rounds, one after another: values ``(n, B)``."""
    for t in range(values.shape[0]):
        status = add_squares(values[t], vectors[t], psd, radius, grid, pending, clipped)
        if status != OK:
            return status
    return OK


@jit
def add_scaled(values, directions, low, high, longest, radius, grid, pending, clipped):
    """`add_clipped` of ``value * direction``, values clipped to a range, directions to a norm."""
    batch, width = directions.shape
    rows = np.empty((batch, width))
    for b in range(batch):
        if not math.isfinite(values[b]):
            return NOT_FINITE
        for w in range(width):
            if not math.isfinite(directions[b, w]):
                return NOT_FINITE
    for b in range(batch):
        value = min(max(values[b], low), high)
        scale, beyond = _shrink(directions[b], longest)
        clipped[b] += beyond or value != values[b]
        for w in range(width):
            rows[b, w] = value * (directions[b, w] * scale)
    return add_clipped(rows, radius, grid, pending, clipped)


@jit
def add_clipped_rounds(rows, radius, grid, pending, clipped):
    """`add_clipped` of several rounds, one after another: rows ``(n, B, W)``."""
    for t in range(rows.shape[0]):
        status = add_clipped(rows[t], radius, grid, pending, clipped)
        if status != OK:
            return status
    return OK


@inline
def add_scaled_one(value, direction, low, high, longest, row, pending):
    """`add_scaled` of one record to `pending` ``(W,)``, with neither radius nor grid.

    `row` of length W is overwritten. Returns the status and whether anything was clipped.
    """
    width = direction.shape[0]
    finite = math.isfinite(value)
    for w in range(width):
        finite = finite and math.isfinite(direction[w])
    clipped = min(max(value, low), high)
    scale, beyond = _shrink(direction, longest)
    for w in range(width):
        row[w] = clipped * (direction[w] * scale)
        finite = finite and math.isfinite(row[w])
    if not finite:
        return NOT_FINITE, False
    for w in range(width):
        pending[w] += row[w]
    return OK, beyond or clipped != value


@jit
def add_scaled_rounds(values, directions, low, high, longest, radius, grid, pending, clipped):
    """`add_scaled` of several rounds, one after another: values ``(n, B)``."""
    for t in range(values.shape[0]):
        status = add_scaled(
            values[t], directions[t], low, high, longest, radius, grid, pending, clipped
        )
        if status != OK:
            return status
    return OK


@jit
def blt_step(normals, theta, omega, buffers, noise):
    """One step of the buffered linear Toeplitz noise.

    Args:
        normals: Independent standard normals of the step (B, W).
        theta: Decay of each buffer, (k,).
        omega: Weight of each buffer, (k,).
        buffers: State (B, k, W).
        noise: Running noise (B, W).
    """
    batch, count, width = buffers.shape
    fresh = np.empty(width)
    for b in range(batch):
        for w in range(width):
            fresh[w] = normals[b, w]
        for i in range(count):
            weight = omega[i]
            for w in range(width):
                fresh[w] -= weight * buffers[b, i, w]
        for i in range(count):
            decay = theta[i]
            for w in range(width):
                buffers[b, i, w] = decay * buffers[b, i, w] + fresh[w]
        for w in range(width):
            noise[b, w] += fresh[w]


@jit
def blt_impulse(theta, omega, steps):
    """Return the impulse response (n,): the noise if the first normal is 1 and all others 0."""
    normals = np.ones((1, 1))
    buffers = np.zeros((1, theta.shape[0], 1))
    noise = np.zeros((1, 1))
    out = np.empty(steps)
    for k in range(steps):
        blt_step(normals, theta, omega, buffers, noise)
        normals[0, 0], out[k] = 0.0, noise[0, 0]
    return out


@jit
def tree_step(normals, step, prefix, noise):
    """One step of the binary tree's noise.

    Step t completes one node, of the level of t's lowest set bit; the release at t sums the
    nodes of t's set bits. ``prefix[l]`` keeps that sum as of the last step whose lowest set
    bit was l, so the sum over the higher bits need not be formed again.

    Args:
        normals: Independent standard normals of the step (B, W).
        step: t, from 1.
        prefix: State (levels, B, W).
        noise: Noise of the release at t, (B, W), overwritten.
    """
    level = 0
    while (step >> level) & 1 == 0:
        level += 1
    rest = step & (step - 1)
    above = -1
    if rest > 0:
        above = level + 1
        while (rest >> above) & 1 == 0:
            above += 1
    batch, width = noise.shape
    for b in range(batch):
        for w in range(width):
            value = normals[b, w]
            if above >= 0:
                value += prefix[above, b, w]
            prefix[level, b, w] = value
            noise[b, w] = value


@jit
def emit_symmetric(total, noise, sigma, out):
    """Write ``total + sigma * noise`` as symmetric matrices (B, d, d)."""
    batch = out.shape[0]
    side = out.shape[1]
    root2 = math.sqrt(2.0)
    for b in range(batch):
        column = 0
        for i in range(side):
            out[b, i, i] = total[b, column] + sigma * noise[b, column]
            column += 1
            for j in range(i + 1, side):
                value = (total[b, column] + sigma * noise[b, column]) / root2
                out[b, i, j] = value
                out[b, j, i] = value
                column += 1
