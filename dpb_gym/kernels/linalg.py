"""Small dense linear algebra, one symmetric matrix per replicate.

Arrays lead with the replicate axis; functions ending in ``_one`` work on the matrix of a
single replicate and are what other kernels call. Sums run in index order and no BLAS is
involved, so a replicate's bits do not depend on the batch. Matrices are symmetric; both
triangles are read and written unless stated otherwise. Outputs are the last arguments and
may not overlap inputs except where a function says that it works in place.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import inline, jit, vectorised
from dpb_gym.kernels.elementary import log

MAX_SWEEPS = 60
# Relative to the largest entry: smaller off-diagonal entries change no eigenvalue by 1 ulp.
NEGLIGIBLE = 2.0**-60


@jit
def cholesky_one(matrix, lower):
    """Lower factor L with L L' = matrix, zeros above; False if not positive definite.

    Reads the lower triangle. `lower` may be `matrix` itself.
    """
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i):
            s = matrix[i, j]
            for k in range(j):
                s -= lower[i, k] * lower[j, k]
            lower[i, j] = s / lower[j, j]
        s = matrix[i, i]
        for k in range(i):
            s -= lower[i, k] * lower[i, k]
        if not (s > 0.0 and s < np.inf):
            return False
        lower[i, i] = np.sqrt(s)
        lower[i, i + 1 :] = 0.0
    return True


@jit
def cholesky_shifted_one(matrix, shift, lower):
    """`cholesky_one` of matrix + shift I."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i):
            lower[i, j] = matrix[i, j]
        lower[i, i] = matrix[i, i] + shift
    return cholesky_one(lower, lower)


@jit
def solve_lower_one(lower, rhs, out):
    """out = L^-1 rhs; `out` may be `rhs`."""
    d = lower.shape[0]
    for i in range(d):
        s = rhs[i]
        for k in range(i):
            s -= lower[i, k] * out[k]
        out[i] = s / lower[i, i]


@jit
def solve_upper_one(lower, rhs, out):
    """out = L'^-1 rhs; `out` may be `rhs`."""
    d = lower.shape[0]
    for i in range(d):
        out[i] = rhs[i]
    for i in range(d - 1, -1, -1):
        x = out[i] / lower[i, i]
        out[i] = x
        for k in range(i):
            out[k] -= lower[i, k] * x


@jit
def solve_cholesky_one(lower, rhs, out):
    """out = (L L')^-1 rhs; `out` may be `rhs`."""
    solve_lower_one(lower, rhs, out)
    solve_upper_one(lower, out, out)


@vectorised
def inverse_cholesky_one(lower, out):
    """out = (L L')^-1, exactly symmetric."""
    d = lower.shape[0]
    # `solve_cholesky_one` of all unit vectors at once, in the same order of operations
    for i in range(d):
        out[i] = 0.0
        out[i, i] = 1.0
        for k in range(i):
            x = lower[i, k]
            for j in range(k + 1):
                out[i, j] -= x * out[k, j]
        x = lower[i, i]
        for j in range(i + 1):
            out[i, j] /= x
    for i in range(d - 1, -1, -1):
        x = lower[i, i]
        for j in range(d):
            out[i, j] /= x
        for k in range(i):
            x = lower[i, k]
            for j in range(d):
                out[k, j] -= x * out[i, j]
    for i in range(d):
        for j in range(i):
            out[i, j] = 0.5 * (out[i, j] + out[j, i])
            out[j, i] = out[i, j]


@jit
def logdet_cholesky_one(lower):
    """log det(L L')."""
    s = 0.0
    for i in range(lower.shape[0]):
        s += log(lower[i, i])
    return 2.0 * s


@inline
def copy_one(source, out):
    """out[:n] = source, of length n; assigned to a slice, numba takes 2 s for texts of errors."""
    for k in range(source.shape[0]):
        out[k] = source[k]


@inline
def multiply_one(matrix, vector, out):
    """out = matrix vector for a symmetric matrix."""
    d = matrix.shape[0]
    out[:] = 0.0
    # Row by row, which is contiguous and lets the inner loop use vector instructions;
    # four rows at a time, which loads and stores `out` a quarter as often.
    n = d - d % 4
    for i in range(0, n, 4):
        x0 = vector[i]
        x1 = vector[i + 1]
        x2 = vector[i + 2]
        x3 = vector[i + 3]
        for j in range(d):
            out[j] += (x0 * matrix[i, j] + x1 * matrix[i + 1, j]) + (
                x2 * matrix[i + 2, j] + x3 * matrix[i + 3, j]
            )
    for i in range(n, d):
        x = vector[i]
        for j in range(d):
            out[j] += x * matrix[i, j]


@inline
def dot_one(left, right):
    """<left, right>, summed in four interleaved parts in a fixed order."""
    d = left.shape[0]
    a = 0.0
    b = 0.0
    c = 0.0
    e = 0.0
    n = d - d % 4
    for i in range(0, n, 4):
        a += left[i] * right[i]
        b += left[i + 1] * right[i + 1]
        c += left[i + 2] * right[i + 2]
        e += left[i + 3] * right[i + 3]
    for i in range(n, d):
        a += left[i] * right[i]
    return (a + b) + (c + e)


@inline
def quadratic_form_one(matrix, vector, scratch):
    """vector' matrix vector for a symmetric matrix; `scratch` of length d is overwritten."""
    multiply_one(matrix, vector, scratch)
    return dot_one(vector, scratch)


@inline
def sherman_morrison_one(inverse, vector, weight, scratch):
    """inverse <- (inverse^-1 + weight v v')^-1 in place, for weight >= 0.

    Returns:
        1 + weight v' inverse v, by which the determinant of the matrix grows.
    """
    growth = 1.0 + weight * quadratic_form_one(inverse, vector, scratch)
    # With the root inside, entries (i, j) and (j, i) change by the same product.
    root = np.sqrt(weight / growth)
    d = inverse.shape[0]
    for i in range(d):
        scratch[i] *= root
    for i in range(d):
        w = scratch[i]
        for j in range(d):
            inverse[i, j] -= w * scratch[j]
    return growth


@jit
def cholesky(matrices, lower):
    """Lower factors of each matrix ``(B, d, d)``; may work in place.

    Returns:
        0, or 1 + the first replicate whose matrix is not positive definite (NaN included).
    """
    for b in range(matrices.shape[0]):
        if not cholesky_one(matrices[b], lower[b]):
            return b + 1
    return 0


@jit
def solve(matrices, rhs, out):
    """out[b] = matrices[b]^-1 rhs[b] for positive definite matrices.

    Returns:
        0, or 1 + the first replicate whose matrix is not positive definite.
    """
    B, d = rhs.shape
    lower = np.empty((d, d))
    for b in range(B):
        if not cholesky_one(matrices[b], lower):
            return b + 1
        solve_cholesky_one(lower, rhs[b], out[b])
    return 0


@jit
def inverse(matrices, out):
    """out[b] = matrices[b]^-1, exactly symmetric, for positive definite matrices.

    Returns:
        0, or 1 + the first replicate whose matrix is not positive definite.
    """
    d = matrices.shape[1]
    lower = np.empty((d, d))
    for b in range(matrices.shape[0]):
        if not cholesky_one(matrices[b], lower):
            return b + 1
        inverse_cholesky_one(lower, out[b])
    return 0


@jit
def multiply(matrices, vectors, out):
    """out[b] = matrices[b] vectors[b] for symmetric matrices."""
    for b in range(matrices.shape[0]):
        multiply_one(matrices[b], vectors[b], out[b])


@jit
def sherman_morrison(inverses, vectors, weights, growth):
    """Rank-one updates (matrix + weight v v') of inverses ``(B, d, d)``, in place.

    Args:
        inverses: Inverses of positive definite matrices, updated in place.
        vectors: ``(B, d)``.
        weights: ``(B,)``, >= 0; a weight of 0 leaves the replicate unchanged.
        growth: Output ``(B,)``: factor by which the determinant of the matrix grew.
    """
    B, d = vectors.shape
    scratch = np.empty(d)
    for b in range(B):
        growth[b] = sherman_morrison_one(inverses[b], vectors[b], weights[b], scratch)


@vectorised
def cholesky_update_one(upper, vector, weight, scratch):
    """Factor R of R'R + weight v v', in place by Givens rotations, for a weight >= 0.

    R is the transpose of a lower factor, so that a rotation changes contiguous entries.
    `scratch` of length d is overwritten.
    """
    d = vector.shape[0]
    root = np.sqrt(weight)
    for k in range(d):
        scratch[k] = vector[k] * root
    for k in range(d):
        diagonal = upper[k, k]
        r = np.sqrt(diagonal * diagonal + scratch[k] * scratch[k])
        c = r / diagonal
        s = scratch[k] / diagonal
        upper[k, k] = r
        row = upper[k, k + 1 :]
        rest = scratch[k + 1 :]
        for i in range(d - k - 1):
            row[i] = (row[i] + s * rest[i]) / c
            rest[i] = c * rest[i] - s * row[i]


@jit
def cholesky_update(upper, vectors, weights):
    """`cholesky_update_one` of every replicate, for weights ``(B,)``."""
    B, d = vectors.shape
    scratch = np.empty(d)
    for b in range(B):
        cholesky_update_one(upper[b], vectors[b], weights[b], scratch)


@jit
def _diagonalise(a, v):
    """Diagonalise symmetric `a` in place by cyclic Jacobi rotations; rotate the rows of `v`, too.

    `v` may have no columns.
    """
    d = a.shape[0]
    wanted = v.shape[1] > 0
    largest = 0.0
    for i in range(d):
        for j in range(d):
            largest = max(largest, abs(a[i, j]))
    row = np.empty(d)
    for _ in range(MAX_SWEEPS):
        rotated = False
        for p in range(d - 1):
            # Only the lower triangle changes, and row p is copied: few entries are not contiguous.
            for k in range(d):
                row[k] = a[max(p, k), min(p, k)]
            for q in range(p + 1, d):
                entry = row[q]
                other = a[q]
                if abs(entry) <= NEGLIGIBLE * largest:
                    continue
                rotated = True
                slant = 0.5 * (other[q] - row[p]) / entry
                t = 1.0 / (abs(slant) + np.sqrt(slant * slant + 1.0))
                if slant < 0.0:
                    t = -t
                c = 1.0 / np.sqrt(t * t + 1.0)
                s = t * c
                low = row[p] - t * entry
                high = other[q] + t * entry
                for k in range(q):
                    x = row[k]
                    y = other[k]
                    row[k], other[k] = c * x - s * y, s * x + c * y
                for k in range(q + 1, d):
                    x = row[k]
                    y = a[k, q]
                    row[k], a[k, q] = c * x - s * y, s * x + c * y
                if wanted:
                    for k in range(d):
                        x = v[p, k]
                        y = v[q, k]
                        v[p, k], v[q, k] = c * x - s * y, s * x + c * y
                row[p], row[q], other[q] = low, 0.0, high
            for k in range(d):
                a[max(p, k), min(p, k)] = row[k]
        if not rotated:
            break


@jit
def _mirror(matrix, out):
    """Copy the lower triangle to both triangles; return False if an entry is not finite."""
    finite = True
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            out[i, j] = out[j, i] = matrix[i, j]
            finite = finite and np.isfinite(matrix[i, j])
    return finite


@jit
def _ascending(a):
    """Order of the diagonal's entries; equal ones stay in order."""
    order = np.empty(a.shape[0], np.int64)
    for i in range(a.shape[0]):
        j = i
        while j > 0 and a[i, i] < a[order[j - 1], order[j - 1]]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    return order


@jit
def eigh_one(matrix, values, vectors):
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix, by cyclic Jacobi.

    Reads the lower triangle. Column i of `vectors` belongs to values[i]; its entry of largest
    magnitude (the first such) is positive. All NaN where an entry is not finite.
    """
    d = matrix.shape[0]
    a = np.empty((d, d))
    v = np.eye(d)
    if not _mirror(matrix, a):
        values[:] = np.nan
        vectors[:] = np.nan
        return
    _diagonalise(a, v)
    order = _ascending(a)
    for i in range(d):
        values[i], row = a[order[i], order[i]], v[order[i]]
        largest = 0
        for j in range(d):
            if abs(row[j]) > abs(row[largest]):
                largest = j
        for j in range(d):
            vectors[j, i] = row[j] if row[largest] > 0.0 else -row[j]


@jit
def eigh(matrices):
    """Eigenvalues ``(B, d)`` and eigenvectors ``(B, d, d)``; see `eigh_one`."""
    B, d, _ = matrices.shape
    values = np.empty((B, d))
    vectors = np.empty((B, d, d))
    for b in range(B):
        eigh_one(matrices[b], values[b], vectors[b])
    return values, vectors


@jit
def eigvalsh(matrices):
    """Ascending eigenvalues ``(B, d)`` of symmetric matrices, as `eigh` has them."""
    B, d, _ = matrices.shape
    values = np.full((B, d), np.nan)
    a = np.empty((d, d))
    none = np.empty((d, 0))
    for b in range(B):
        if _mirror(matrices[b], a):
            _diagonalise(a, none)
            order = _ascending(a)
            for i in range(d):
                values[b, i] = a[order[i], order[i]]
    return values


@jit
def compose(values, vectors):
    """sum_i values[b, i] v v' over the columns v of vectors[b], ``(B, d, d)``."""
    B, d = values.shape
    out = np.zeros((B, d, d))
    for b in range(B):
        for i in range(d):
            for j in range(d):
                weighted = values[b, i] * vectors[b, j, i]
                for k in range(j + 1):
                    out[b, j, k] += weighted * vectors[b, k, i]
        for j in range(d):
            for k in range(j):
                out[b, k, j] = out[b, j, k]
    return out


@jit
def orthonormalise(columns):
    """Make the columns of ``(d, r)``, r <= d, orthonormal in place, by Gram-Schmidt done twice.

    Each becomes its part outside the span of those before it, normalised: of independent
    normal columns, a uniformly random frame.
    """
    for j in range(columns.shape[1]):
        column = columns[:, j]
        for _ in range(2):
            for k in range(j):
                column -= (columns[:, k] * column).sum() * columns[:, k]
            column /= np.sqrt((column * column).sum())
