"""Online mirror descent for the multinomial logit, and optimistic slates under its estimate.

The replicate axis comes first. H is the matrix of the estimate's metric; its inverse is stored.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import exp
from dpb_gym.kernels.linalg import (
    cholesky_one,
    copy_one,
    dot_one,
    multiply_one,
    quadratic_form_one,
    sherman_morrison_one,
    solve_cholesky_one,
)
from dpb_gym.kernels.slates import WARY, best_slate, likely, reached, worthwhile

# An interval halved so often is shorter than the spacing of doubles in it.
HALVINGS = 60


@jit
def optimistic_slates(features, revenues, equal, exactly, theta, inverse, width, values, slates):
    """Compute the best slates under the utilities <x, theta> + width ||x||_{H^-1}.

    The other arguments are those of `dpb_gym.kernels.slates.optimistic_slates`.

    Args:
        inverse: H^-1, ``(B, d, d)``.
        width: Multiplier of the bonus.
    """
    B, N, d = features.shape
    x = np.empty(d)
    scratch = np.empty(d)
    items = np.empty(N, np.int64)
    utility = np.empty(N)
    for b in range(B):
        # With y the largest entry of x, <x, theta> is at most y ||theta||_1, and the bonus at most
        # y width sqrt(d trace H^-1). `likely` needs this bound.
        norm = 0.0
        trace = 0.0
        for k in range(d):
            norm += abs(theta[b, k])
            trace += inverse[b, k, k]
        norm += width * np.sqrt(d * trace)
        least = 0.0 if equal or exactly else likely(features[b], norm, values[b])
        # Items of less revenue than the best slate's value are in no best slate. The value is
        # guessed from the last round's, so that most items are skipped; a guess that is not reached
        # is lowered.
        while True:
            n = worthwhile(revenues[b], least == 0.0, least, items)
            for a in range(n):
                for k in range(d):
                    x[k] = features[b, items[a], k]
                square = quadratic_form_one(inverse[b], x, scratch)
                # Rounding of the rank-one updates of H^-1 can make a small square negative.
                utility[a] = dot_one(x, theta[b]) + width * np.sqrt(max(square, 0.0))
            given = items[:n], utility[:n], revenues[b], equal, exactly
            values[b] = best_slate(*given, least, slates[b])
            if reached(least, values[b]):
                break
            least = WARY * values[b]


@jit
def _gather(features, slate, x):
    """Copy the features of the offered items to the first rows of `x` and return their number."""
    n = 0
    for k in range(slate.shape[0]):
        if slate[k] >= 0:
            for j in range(x.shape[1]):
                x[n, j] = features[slate[k], j]
            n += 1
    return n


@jit
def _choice_law(x, n, theta, p, mean):
    """Compute choice probabilities p and the mean sum p x; return P[no purchase]."""
    # The outside option has utility 0. Subtracting the largest utility avoids overflow.
    top = 0.0
    for a in range(n):
        p[a] = dot_one(x[a], theta)
        top = max(top, p[a])
    total = exp(-top)
    outside = total
    for a in range(n):
        p[a] = exp(p[a] - top)
        total += p[a]
    mean[:] = 0.0
    for a in range(n):
        p[a] /= total
        for j in range(mean.shape[0]):
            mean[j] += p[a] * x[a, j]
    return outside / total


@jit
def _add_information(inverse, x, n, p, outside, mean, weight):
    """Update the inverse of a matrix to which ``weight G`` is added, G = sum p x x' - mean mean'.

    G is the covariance of the chosen feature vector (0 for no purchase), a sum of n + 1 squares.
    """
    v = np.empty(mean.shape[0])
    scratch = np.empty(mean.shape[0])
    for a in range(n):
        for j in range(mean.shape[0]):
            v[j] = x[a, j] - mean[j]
        sherman_morrison_one(inverse, v, weight * p[a], scratch)
    # The outside option has features 0, so its deviation from the mean is -mean.
    sherman_morrison_one(inverse, mean, weight * outside, scratch)


@jit
def _project(point, inverse, radius):
    """Project a point to norm at most `radius`, in the metric of the matrix.

    The projection is (I + mu inverse)^-1 point, with mu such that its norm is the radius.
    """
    d = point.shape[0]
    shifted = np.empty((d, d))
    lower = np.zeros((d, d))
    moved = np.empty(d)
    low = 0.0
    high = 1.0
    # The norm falls as mu grows. First mu grows until the point is inside, then it is bisected.
    for step in range(2 * HALVINGS):
        growing = step < HALVINGS
        mu = high if growing else 0.5 * (low + high)
        for i in range(d):
            for j in range(d):
                shifted[i, j] = mu * inverse[i, j]
            shifted[i, i] += 1.0
        cholesky_one(shifted, lower)
        solve_cholesky_one(lower, point, moved)
        outside = dot_one(moved, moved) > radius * radius
        if growing and outside:
            low = high
            high = 4.0 * high
        elif outside:
            low = mu
        else:
            high = mu
    for j in range(d):
        point[j] = moved[j]


@jit
def mirror_step(features, slates, choice, eta, centre, radius, theta, inverse):
    """Make one step of online mirror descent per replicate (Lee & Oh 2024, Algorithm 1).

    theta <- argmin over ||theta' - centre|| <= radius of <g, theta'> + ||theta' - theta||^2 /
    (2 eta) in the metric H + eta G(theta), g the gradient of the round's loss; then
    H <- H + G(theta), at the new theta.

    Args:
        features: ``(B, N, d)``.
        slates: ``(B, K)`` items, -1 for none; an empty slate changes nothing.
        choice: ``(B,)`` position in the slate of the bought item, -1 for none.
        eta: Step size, > 0.
        centre: ``(d,)``.
        radius: Radius of the ball of theta around the centre, > 0.
        theta: ``(B, d)``, changed in place.
        inverse: H^-1, ``(B, d, d)``, changed in place.
    """
    B, K = slates.shape
    d = theta.shape[1]
    x = np.empty((K, d))
    p = np.empty(K)
    mean = np.empty(d)
    gradient = np.empty(d)
    moved = np.empty(d)
    tilde = np.empty((d, d))
    for b in range(B):
        n = _gather(features[b], slates[b], x)
        if n == 0:
            continue
        outside = _choice_law(x, n, theta[b], p, mean)
        for j in range(d):
            # Gradient of the loss: expected features less those of the choice, which are 0 for
            # none.
            gradient[j] = mean[j]
            if choice[b] >= 0:
                gradient[j] -= features[b, slates[b, choice[b]], j]
        for j in range(d):
            # A copy, because the step's metric has G at the old theta and H is to get G at the new
            # one.
            copy_one(inverse[b, j], tilde[j])
        _add_information(tilde, x, n, p, outside, mean, eta)
        multiply_one(tilde, gradient, moved)
        for j in range(d):
            moved[j] = theta[b, j] - eta * moved[j] - centre[j]
        if dot_one(moved, moved) > radius * radius:
            _project(moved, tilde, radius)
        for j in range(d):
            theta[b, j] = centre[j] + moved[j]
        # H gets the Hessian at the new theta, as in Algorithm 1.
        outside = _choice_law(x, n, theta[b], p, mean)
        _add_information(inverse[b], x, n, p, outside, mean, 1.0)
