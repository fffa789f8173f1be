"""Small vectors and matrices for agents' functions: new arrays, sums in a fixed order.

Every function compares the shapes of its arguments first and raises IndexError where they do not
fit. So none reads outside of its arrays, although none is compiled with bounds checks.
"""

from __future__ import annotations

import numpy as np

from dpb_gym import kernels
from dpb_gym.kernels.deferred import shape_checked

ROOT2 = np.sqrt(2.0)


@shape_checked
def exp(x):
    """e^x, with the same bits on every machine."""
    return kernels.elementary.exp(x)


@shape_checked
def log(x):
    """Natural logarithm, with the same bits on every machine."""
    return kernels.elementary.log(x)


@shape_checked
def sigmoid(x):
    """1 / (1 + e^-x), with the same bits on every machine."""
    return kernels.elementary.sigmoid(x)


@shape_checked
def normal_cdf(x):
    """Distribution function of the standard normal law, with the same bits on every machine."""
    return kernels.elementary.normal_cdf(x)


@shape_checked
def power(x, y):
    """x^y, with the same bits on every machine."""
    return kernels.elementary.power(x, np.float64(y))


@shape_checked
def _same(m, n):
    if m != n:
        raise IndexError("shapes differ")


@shape_checked
def dot(a, b):
    """<a, b>, in index order."""
    _same(a.shape[0], b.shape[0])
    s = 0.0
    for j in range(a.shape[0]):
        s += a[j] * b[j]
    return s


@shape_checked
def inner(a, b):
    """<a, b>, in the order of `linalg.dot_one`."""
    _same(a.shape[0], b.shape[0])
    return kernels.linalg.dot_one(a, b)


@shape_checked
def squared_norm(v):
    """||v||^2, in index order."""
    s = 0.0
    for j in range(v.shape[0]):
        s += v[j] * v[j]
    return s


@shape_checked
def times(M, v):
    """M v of a symmetric matrix, in the order of `linalg.multiply_one`."""
    _same(M.shape[0], M.shape[1])
    _same(M.shape[0], v.shape[0])
    out = np.empty(v.shape[0])
    kernels.linalg.multiply_one(M, v, out)
    return out


@shape_checked
def product(M, v):
    """M v, row by row."""
    _same(M.shape[1], v.shape[0])
    out = np.empty(M.shape[0])
    for i in range(M.shape[0]):
        s = 0.0
        for j in range(M.shape[1]):
            s += M[i, j] * v[j]
        out[i] = s
    return out


@shape_checked
def quadratic(M, v):
    """v' M v."""
    _same(M.shape[0], v.shape[0])
    _same(M.shape[1], v.shape[0])
    s = 0.0
    for j in range(v.shape[0]):
        for k in range(v.shape[0]):
            s += v[j] * M[j, k] * v[k]
    return s


@shape_checked
def distance(M, v, w):
    """(v - w)' M (v - w) of a symmetric matrix."""
    d = v.shape[0]
    _same(M.shape[0], d)
    _same(M.shape[1], d)
    _same(w.shape[0], d)
    s = 0.0
    for j in range(d):
        r = 0.0
        for k in range(d):
            r += M[j, k] * (v[k] - w[k])
        s += r * (v[j] - w[j])
    return s


@shape_checked
def upper_bounds(x, theta, M, alpha):
    """<x_k, theta> + alpha ||x_k||_M of every row; M symmetric."""
    d = x.shape[1]
    _same(M.shape[0], d)
    _same(M.shape[1], d)
    _same(theta.shape[0], d)
    out = np.empty(x.shape[0])
    kernels.feature_rows.upper_bounds(x, theta, M, alpha, np.empty(d), out)
    return out


@shape_checked
def dots(x, v):
    """<x_k, v> of every row, in the order of `linalg.dot_one`."""
    _same(x.shape[1], v.shape[0])
    out = np.empty(x.shape[0])
    for k in range(x.shape[0]):
        out[k] = kernels.linalg.dot_one(x[k], v)
    return out


@shape_checked
def squares(M):
    """Squared Frobenius norm."""
    s = 0.0
    for i in range(M.shape[0]):
        for j in range(M.shape[1]):
            s += M[i, j] ** 2
    return s


@shape_checked
def squared(v, k, w):
    """|v + k w|^2."""
    _same(v.shape[0], w.shape[0])
    s = 0.0
    for j in range(v.shape[0]):
        s += (v[j] + k * w[j]) ** 2
    return s


@shape_checked
def add(v, k, w):
    """v += k w."""
    _same(v.shape[0], w.shape[0])
    for j in range(v.shape[0]):
        v[j] += k * w[j]


@shape_checked
def add_outer(M, k, v):
    """M += k v v'."""
    _same(M.shape[0], v.shape[0])
    _same(M.shape[1], v.shape[0])
    for i in range(v.shape[0]):
        for j in range(v.shape[0]):
            M[i, j] += k * (v[i] * v[j])


@shape_checked
def add_products(M, k, v, w):
    """M += (k v) w'."""
    _same(M.shape[0], v.shape[0])
    _same(M.shape[1], w.shape[0])
    for i in range(v.shape[0]):
        left = k * v[i]
        for j in range(w.shape[0]):
            M[i, j] += left * w[j]


@shape_checked
def scaled(k, v):
    """k v."""
    out = np.empty(v.shape[0])
    for j in range(v.shape[0]):
        out[j] = k * v[j]
    return out


@shape_checked
def moved(v, M, z):
    """v + M z."""
    d = v.shape[0]
    _same(M.shape[0], d)
    _same(M.shape[1], d)
    _same(z.shape[0], d)
    out = np.empty(d)
    for i in range(d):
        entry = v[i]
        for j in range(d):
            entry += M[i, j] * z[j]
        out[i] = entry
    return out


@shape_checked
def copy_to(v, out):
    """out[:] = v."""
    _same(v.shape[0], out.shape[0])
    for i in range(out.shape[0]):
        out[i] = v[i]


@shape_checked
def put_sum(v, w, out):
    """out[:] = v + w."""
    _same(v.shape[0], out.shape[0])
    _same(w.shape[0], out.shape[0])
    for i in range(out.shape[0]):
        out[i] = v[i] + w[i]


@shape_checked
def copy_matrix(M, out):
    """out[:, :] = M."""
    _same(M.shape[0], out.shape[0])
    _same(M.shape[1], out.shape[1])
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = M[i, j]


@shape_checked
def transposed(M):
    """M' as a new array."""
    out = np.empty((M.shape[1], M.shape[0]))
    for i in range(M.shape[0]):
        for j in range(M.shape[1]):
            out[j, i] = M[i, j]
    return out


@shape_checked
def with_constant(x, constant):
    """Rows (x, constant) / sqrt(1 + constant^2), which are in the unit ball if x is."""
    m, d = x.shape
    scale = 1.0 / np.sqrt(1.0 + constant * constant)
    out = np.empty((m, d + 1))
    for k in range(m):
        for j in range(d):
            out[k, j] = x[k, j] * scale
        out[k, d] = constant * scale
    return out


@shape_checked
def clipped(x):
    """x / max(1, ||x||)."""
    out = np.empty(x.shape[0])
    kernels.feature_rows.clip_one(x, out)
    return out


@shape_checked
def clip_factor(x):
    """1 / max(1, ||x||), exactly 1 for unit vectors that were rounded to single precision."""
    s = kernels.feature_rows.squared_norm(x)
    return 1.0 / np.sqrt(s) if s > 1.0 + 1e-6 else 1.0


@shape_checked
def grow_inverse(inverse, v):
    """inverse <- (inverse^-1 + v v')^-1, in place. Return 1 + v' inverse v."""
    _same(inverse.shape[0], inverse.shape[1])
    _same(inverse.shape[0], v.shape[0])
    scratch = kernels.scratch.vector(v.shape[0])
    return kernels.linalg.sherman_morrison_one(inverse, v, 1.0, scratch)


@shape_checked
def grow_inverse_clipped(inverse, x):
    """`grow_inverse` by x / max(1, ||x||), for which no array is allocated."""
    d = x.shape[0]
    _same(inverse.shape[0], d)
    _same(inverse.shape[1], d)
    scratch = kernels.scratch.vector(2 * d)
    kernels.feature_rows.clip_one(x, scratch[:d])
    return kernels.linalg.sherman_morrison_one(inverse, scratch[:d], 1.0, scratch[d:])


@shape_checked
def grow_factor(upper, v):
    """R <- the factor of R'R + v v', in place."""
    _same(upper.shape[0], upper.shape[1])
    _same(upper.shape[0], v.shape[0])
    scratch = kernels.scratch.vector(v.shape[0])
    kernels.linalg.cholesky_update_one(upper, v, 1.0, scratch)


@shape_checked
def sampled(upper, b, width, z):
    """R^-1 (R'^-1 b + width z): a draw from N(A^-1 b, width^2 A^-1) with A = R'R."""
    d = b.shape[0]
    _same(upper.shape[0], d)
    _same(upper.shape[1], d)
    _same(z.shape[0], d)
    theta = np.empty(d)
    kernels.linalg.solve_lower_one(upper.T, b, theta)
    for j in range(d):
        theta[j] += width * z[j]
    kernels.linalg.solve_upper_one(upper.T, theta, theta)
    return theta


@shape_checked
def eigh(M):
    """Ascending eigenvalues, and eigenvectors as columns."""
    _same(M.shape[0], M.shape[1])
    values = np.empty(M.shape[0])
    vectors = np.empty(M.shape)
    kernels.linalg.eigh_one(M, values, vectors)
    return values, vectors


@shape_checked
def cholesky(M):
    """L with L L' = M, of a positive definite matrix."""
    _same(M.shape[0], M.shape[1])
    lower = np.zeros(M.shape)
    kernels.linalg.cholesky_one(M, lower)
    return lower


@shape_checked
def signed_logdet(M):
    """Sign and logarithm of |det M|, by elimination with pivoting."""
    _same(M.shape[0], M.shape[1])
    return kernels.determinants.signed_logdet_one(M, np.empty(M.shape))


@shape_checked
def inverse(M):
    """M^-1 of a positive definite matrix, exactly symmetric."""
    _same(M.shape[0], M.shape[1])
    lower = np.zeros(M.shape)
    kernels.linalg.cholesky_one(M, lower)
    out = np.empty(M.shape)
    kernels.linalg.inverse_cholesky_one(lower, out)
    return out


@shape_checked
def definite(M):
    """Whether a symmetric matrix is positive definite, by Cholesky."""
    _same(M.shape[0], M.shape[1])
    return kernels.linalg.cholesky_one(M, np.empty(M.shape))


@shape_checked
def solved(M, v):
    """M^-1 v of a positive definite matrix; NaN for another one."""
    _same(M.shape[0], M.shape[1])
    _same(M.shape[0], v.shape[0])
    lower = np.empty(M.shape)
    out = np.full(v.shape[0], np.nan)
    if kernels.linalg.cholesky_one(M, lower):
        kernels.linalg.solve_cholesky_one(lower, v, out)
    return out


@shape_checked
def matmul(left, right):
    """Product of two matrices, row by row."""
    _same(left.shape[1], right.shape[0])
    out = np.zeros((left.shape[0], right.shape[1]))
    for i in range(left.shape[0]):
        for k in range(left.shape[1]):
            for j in range(right.shape[1]):
                out[i, j] += left[i, k] * right[k, j]
    return out


@shape_checked
def compose(E, values):
    """E diag(values) E'."""
    d = values.shape[0]
    _same(E.shape[0], d)
    _same(E.shape[1], d)
    out = np.zeros((d, d))
    for i in range(d):
        for j in range(d):
            for k in range(d):
                out[i, j] += E[i, k] * values[k] * E[j, k]
    return out


@shape_checked
def spectral(values, E):
    """E diag(values) E', exactly symmetric, in the order of `linalg.compose`."""
    d = values.shape[0]
    _same(E.shape[0], d)
    _same(E.shape[1], d)
    out = np.zeros((d, d))
    for i in range(d):
        for j in range(d):
            weighted = values[i] * E[j, i]
            for k in range(j + 1):
                out[j, k] += weighted * E[k, i]
    for j in range(d):
        for k in range(j):
            out[k, j] = out[j, k]
    return out


@shape_checked
def operator_norm(M):
    """Largest absolute eigenvalue of a symmetric matrix, rounded up."""
    d = M.shape[0]
    _same(M.shape[1], d)
    values = eigenvalues(M)
    largest = 0.0
    for i in range(d):
        largest = max(largest, abs(values[i]))
    return largest * (1.0 + 1e-9)


@shape_checked
def eigenvalues(M):
    """Ascending eigenvalues of a symmetric matrix."""
    d = M.shape[0]
    _same(M.shape[1], d)
    one = np.empty((1, d, d))
    for j in range(d):
        for k in range(d):
            one[0, j, k] = M[j, k]
    return kernels.linalg.eigvalsh(one)[0]


@shape_checked
def between(outer, inner):
    """outer inner outer for symmetric matrices, exactly symmetric."""
    d = outer.shape[0]
    _same(outer.shape[1], d)
    _same(inner.shape[0], d)
    _same(inner.shape[1], d)
    product = np.empty((d, d))
    out = np.empty((d, d))
    for j in range(d):
        kernels.linalg.multiply_one(inner, outer[j], product[j])
    for j in range(d):
        for k in range(j + 1):
            out[j, k] = kernels.linalg.dot_one(product[j], outer[k])
            out[k, j] = out[j, k]
    return out


@shape_checked
def shifted_inverse(M, shift):
    """V^-1 and log det V of V = M + shift I, M symmetric, shift > 0.

    Eigenvalues of V below half the shift are raised to that.
    """
    d = M.shape[0]
    _same(M.shape[1], d)
    lower = np.empty((d, d))
    out = np.empty((d, d))
    if kernels.linalg.cholesky_shifted_one(M, 0.5 * shift, lower):
        kernels.linalg.cholesky_shifted_one(M, shift, lower)
        kernels.linalg.inverse_cholesky_one(lower, out)
        return out, kernels.linalg.logdet_cholesky_one(lower)
    values = np.empty(d)
    E = np.empty((d, d))
    kernels.linalg.eigh_one(M, values, E)
    logdet = 0.0
    for i in range(d):
        value = max(values[i] + shift, 0.5 * shift)
        logdet += kernels.elementary.log(value)
        values[i] = 1.0 / value
    return spectral(values, E), logdet


@shape_checked
def mean_row(p, x):
    """Sum over i of p_i x_i."""
    _same(p.shape[0], x.shape[0])
    out = np.zeros(x.shape[1])
    for j in range(x.shape[1]):
        for i in range(p.shape[0]):
            out[j] += p[i] * x[i, j]
    return out


@shape_checked
def softmax(scores, scale):
    """Choice probabilities of utilities scores / scale."""
    _same(scores.shape[0] > 0, True)
    top = scores[0]
    for i in range(1, scores.shape[0]):
        top = max(top, scores[i])
    p = np.empty(scores.shape[0])
    total = 0.0
    for i in range(p.shape[0]):
        p[i] = kernels.elementary.exp((scores[i] - top) / scale)
        total += p[i]
    for i in range(p.shape[0]):
        p[i] /= total
    return p


@shape_checked
def any_nonzero(M):
    """Whether a matrix has an entry other than 0."""
    for i in range(M.shape[0]):
        for j in range(M.shape[1]):
            if M[i, j] != 0.0:
                return True
    return False


@shape_checked
def positive_mean(values):
    """Mean of the positive parts."""
    s = 0.0
    for i in range(values.shape[0]):
        s += max(values[i], 0.0)
    return s / values.shape[0]


@shape_checked
def largest(scores, u):
    """Index of the largest score; of m equal ones number floor(u m), for u uniform on [0, 1)."""
    _same(scores.shape[0] > 0, True)
    best = 0
    top = scores[0]
    count = 1
    for k in range(1, scores.shape[0]):
        # selections, because a processor cannot predict branches on scores
        above = scores[k] > top
        count = 1 if above else count + (scores[k] == top)
        best = k if above else best
        top = scores[k] if above else top
    if count == 1:
        return best
    left = min(int(u * count), count - 1)
    for k in range(best, scores.shape[0]):
        if scores[k] == scores[best]:
            if left == 0:
                return k
            left -= 1
    return best
