"""Kernels of the one-pass agents: one round's curvature and response, shrunken estimates.

Arrays lead with the replicate axis; every replicate is handled on its own, in a fixed order.
A record's row is its symmetric curvature matrix as an isometric half (upper triangle row by
row, off-diagonal entries times sqrt(2)) times one weight, followed by its response vector
times another.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import sigmoid
from dpb_gym.kernels.pricing import LOGISTIC

ROOT2 = np.sqrt(2.0)


@jit
def into_ball(vector, radius):
    """Scales a vector down to norm `radius` in place; returns whether it was longer."""
    s = 0.0
    for j in range(vector.shape[0]):
        s += vector[j] * vector[j]
    if s > radius * radius:
        factor = radius / np.sqrt(s)
        for j in range(vector.shape[0]):
            vector[j] *= factor
        return True
    return False


@jit
def choice_rows(features, slates, choice, theta, radius, curvature_weight, weight, rows, clipped):
    """Rows of one multinomial-logit choice per replicate, linearised at theta.

    Features x are moved into the unit ball. With p the choice probabilities at theta and
    xbar = sum p_i x_i, the curvature is H = sum p_i x_i x_i' - xbar xbar', the response
    u = H theta + x_choice - xbar (x_choice = 0 if nothing was bought), moved into the ball of
    the given radius.

    Args:
        features: ``(B, N, d)``.
        slates: ``(B, K)`` distinct items; -1 leaves a place empty.
        choice: ``(B,)``: position in the slate, or -1.
        theta: ``(B, d)``.
        radius: Norm bound U of the response.
        curvature_weight: Multiplies the curvature's half.
        weight: Multiplies the response.
        rows: Output ``(B, d (d + 1) / 2 + d)``.
        clipped: ``(B,)``, counts responses that were moved.
    """
    B, K = slates.shape
    d = theta.shape[1]
    x = np.empty((K, d))
    p = np.empty(K)
    mean = np.empty(d)
    response = np.empty(d)
    h = np.empty((d, d))
    for b in range(B):
        n = 0
        bought = -1
        top = 0.0
        for k in range(K):
            item = slates[b, k]
            if item < 0:
                continue
            if k == choice[b]:
                bought = n
            for j in range(d):
                x[n, j] = features[b, item, j]
            into_ball(x[n], 1.0)
            s = 0.0
            for j in range(d):
                s += x[n, j] * theta[b, j]
            p[n] = s
            top = max(top, s)
            n += 1
        total = np.exp(-top)
        for i in range(n):
            p[i] = np.exp(p[i] - top)
            total += p[i]
        for j in range(d):
            mean[j] = 0.0
            for k in range(j, d):
                h[j, k] = 0.0
        for i in range(n):
            w = p[i] / total
            for j in range(d):
                wx = w * x[i, j]
                mean[j] += wx
                for k in range(j, d):
                    h[j, k] += wx * x[i, k]
        column = 0
        for j in range(d):
            for k in range(j, d):
                h[j, k] -= mean[j] * mean[k]
                h[k, j] = h[j, k]
                rows[b, column] = curvature_weight * (h[j, k] if j == k else ROOT2 * h[j, k])
                column += 1
        for j in range(d):
            s = -mean[j]
            if bought >= 0:
                s += x[bought, j]
            for k in range(d):
                s += h[j, k] * theta[b, k]
            response[j] = s
        if into_ball(response, radius):
            clipped[b] += 1
        for j in range(d):
            rows[b, column + j] = weight * response[j]


@jit
def demand_rows(
    features,
    price,
    demand,
    theta,
    model,
    zeta,
    low,
    high,
    bound,
    radius,
    curvature_weight,
    weight,
    rows,
    clipped,
):
    """Rows of one demand per replicate, linearised at theta.

    phi = [x; -p] / sqrt(d) is moved into the unit ball, y is the demand moved into
    [low, high]. Logistic: with s = zeta <phi, theta> and f the sigmoid, the curvature is
    H = zeta^2 f'(s) phi phi', the response u = H theta + zeta (y - f(s)) phi. Gaussian:
    H = phi phi', u = y phi. A record whose H exceeds its bound, or whose u might for some
    demand, has both scaled down by the same factor: a weight that does not depend on the
    demand leaves the estimating equation unbiased.

    Args:
        features: ``(B, d - 1)``.
        price: ``(B,)``.
        demand: ``(B,)``.
        theta: ``(B, d)``.
        model: 0 logistic, 1 Gaussian.
        zeta: Link scale of the logistic model.
        low: Least demand that counts.
        high: Largest demand that counts.
        bound: Largest Frobenius norm of the curvature.
        radius: Norm bound U of the response.
        curvature_weight: Multiplies the curvature's half.
        weight: Multiplies the response.
        rows: Output ``(B, d (d + 1) / 2 + d)``.
        clipped: ``(B,)``, counts demands that were moved and records that were scaled down.
    """
    B, d = theta.shape
    root = np.sqrt(np.float64(d))
    phi = np.empty(d)
    response = np.empty(d)
    for b in range(B):
        for j in range(d - 1):
            phi[j] = features[b, j] / root
        phi[d - 1] = -price[b] / root
        into_ball(phi, 1.0)
        y = min(max(demand[b], low), high) if demand[b] == demand[b] else demand[b]
        if model == LOGISTIC:
            s = 0.0
            for j in range(d):
                s += phi[j] * theta[b, j]
            s *= zeta
            f = sigmoid(s)
            h = f * (1.0 - f)
            u = zeta * (h * s + y - f)
            most = zeta * max(abs(h * s + 1.0 - f), abs(h * s - f))
            h *= zeta * zeta
        else:
            h = 1.0
            u = y
            most = max(abs(low), abs(high))
        square = 0.0
        for j in range(d):
            square += phi[j] * phi[j]
        share = 1.0
        if h * square > bound:
            share = bound / (h * square)
        if most * np.sqrt(square) * share > radius:
            share = radius / (most * np.sqrt(square))
        h *= share
        u *= share
        for j in range(d):
            response[j] = u * phi[j]
        # rounding must not exceed the bound either
        into_ball(response, radius)
        if share < 1.0 or y != demand[b]:
            clipped[b] += 1
        column = 0
        for j in range(d):
            hp = curvature_weight * h * phi[j]
            rows[b, column] = hp * phi[j]
            column += 1
            for k in range(j + 1, d):
                rows[b, column] = ROOT2 * hp * phi[k]
                column += 1
        for j in range(d):
            rows[b, column + j] = weight * response[j]


@jit
def unpack(rows, factor, out):
    """Symmetric matrices ``(B, d, d)``: `factor` times the halves that begin `rows`."""
    d = out.shape[1]
    for b in range(out.shape[0]):
        column = 0
        for j in range(d):
            out[b, j, j] = factor * rows[b, column]
            column += 1
            for k in range(j + 1, d):
                value = factor * rows[b, column] / ROOT2
                out[b, j, k] = value
                out[b, k, j] = value
                column += 1


@jit
def flatten(matrices, noise, evenness):
    """Shrinks noisy symmetric matrices ``(B, d, d)`` towards isotropic ones, in place.

    With mu = trace / d (negative ones count as 0), a matrix M becomes mu I + w (M - mu I),
    w = v / (v + noise^2), v = (evenness mu)^2: the posterior mean if M's deviation from mu I
    has prior variance v per coordinate of its isometric half, and its noise noise^2.
    """
    B, d, _ = matrices.shape
    if noise == 0.0:
        return
    for b in range(B):
        level = 0.0
        for j in range(d):
            level += matrices[b, j, j]
        level = max(0.0, level / d)
        own = (evenness * level) ** 2
        w = own / (own + noise * noise)
        for j in range(d):
            for k in range(d):
                matrices[b, j, k] *= w
            matrices[b, j, j] += (1.0 - w) * level


@jit
def shrink(values, vectors, response, prior, spread, noise, radius, out):
    """Posterior means in the eigenbasis of the information, moved into a ball.

    In the direction of eigenvalue h (negative ones count as 0), u = h t + e with
    t ~ N(0, prior) and e ~ N(0, spread h + noise): the mean of t is
    prior h u / (prior h^2 + spread h + noise).

    Args:
        values: ``(B, d)`` eigenvalues.
        vectors: ``(B, d, d)`` eigenvectors, in columns.
        response: u, ``(B, d)``.
        prior: Prior variance.
        spread: Variance of the responses themselves per unit of information.
        noise: Variance of the noise.
        radius: Largest norm of the result.
        out: Output ``(B, d)``.
    """
    B, d = response.shape
    for b in range(B):
        for j in range(d):
            out[b, j] = 0.0
        for i in range(d):
            h = values[b, i]
            if not h > 0.0:
                continue
            u = 0.0
            for j in range(d):
                u += vectors[b, j, i] * response[b, j]
            t = prior * h * u / (prior * h * h + spread * h + noise)
            for j in range(d):
                out[b, j] += t * vectors[b, j, i]
        into_ball(out[b], radius)
