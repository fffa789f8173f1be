"""Multinomial-logit choice with an outside option: assortments and outcomes.

Arrays lead with the replicate axis. A slate is a row of K item indices in which -1 and
repeated items count for nothing. Weights are computed relative to the largest utility
(or to the outside option's 0), so utilities up to 700 in magnitude are safe.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit


@jit
def utilities(features, theta, out):
    """out[b, i] = <features[b, i], theta[b]>, summed in index order."""
    B, N, d = features.shape
    for b in range(B):
        for i in range(N):
            s = 0.0
            for k in range(d):
                s += features[b, i, k] * theta[b, k]
            out[b, i] = s


@jit
def top_indices(scores, K, floor, picked, values):
    """Fills `picked` with the at most K indices of largest score above `floor`.

    Ties go to the lower index. Returns how many were picked; `picked` ends in
    ascending index order, padded with -1. `values` is scratch of length K.
    """
    n = 0
    for i in range(scores.shape[0]):
        s = scores[i]
        if not s > floor:
            continue
        if n == K:
            if not s > values[n - 1]:
                continue
            j = n - 1
        else:
            j = n
            n += 1
        while j > 0 and s > values[j - 1]:
            values[j] = values[j - 1]
            picked[j] = picked[j - 1]
            j -= 1
        values[j] = s
        picked[j] = i
    for a in range(1, n):
        x = picked[a]
        j = a
        while j > 0 and picked[j - 1] > x:
            picked[j] = picked[j - 1]
            j -= 1
        picked[j] = x
    for a in range(n, K):
        picked[a] = -1
    return n


@jit
def _revenue_of(picked, n, utility, revenues):
    """Expected revenue of the first n items of `picked` (ascending indices)."""
    top = 0.0
    for a in range(n):
        if utility[picked[a]] > top:
            top = utility[picked[a]]
    denominator = np.exp(-top)
    numerator = 0.0
    for a in range(n):
        v = np.exp(utility[picked[a]] - top)
        denominator += v
        numerator += v * revenues[picked[a]]
    return numerator / denominator


@jit
def _equal_and_positive(revenues):
    for i in range(1, revenues.shape[0]):
        if revenues[i] != revenues[0]:
            return False
    return revenues[0] > 0.0


@jit
def best_slates(utility, revenues, K, slates, values):
    """Exact best assortments of at most K items, by Dinkelbach's iteration on the value.

    For a value z the best set is the at most K items of largest positive
    exp(u_i) (r_i - z); z <- revenue of that set increases until the set is optimal
    (Dinkelbach 1967). Equal revenues make this the K largest utilities.

    Args:
        utility: ``(B, N)``.
        revenues: ``(B, N)``, non-negative.
        K: Capacity.
        slates: Output ``(B, K)``, ascending items, padded with -1.
        values: Output ``(B,)`` expected revenues.
    """
    B, N = utility.shape
    scratch = np.empty(K)
    trial = np.empty(K, np.int64)
    scores = np.empty(N)
    weight = np.empty(N)
    for b in range(B):
        if _equal_and_positive(revenues[b]):
            n = top_indices(utility[b], K, -np.inf, slates[b], scratch)
            values[b] = _revenue_of(slates[b], n, utility[b], revenues[b])
            continue
        top = -np.inf
        for i in range(N):
            if utility[b, i] > top:
                top = utility[b, i]
        for i in range(N):
            weight[i] = np.exp(utility[b, i] - top)
        z = 0.0
        for a in range(K):
            slates[b, a] = -1
        values[b] = 0.0
        while True:
            for i in range(N):
                scores[i] = weight[i] * (revenues[b, i] - z)
            n = top_indices(scores, K, 0.0, trial, scratch)
            if n == 0:
                break
            value = _revenue_of(trial, n, utility[b], revenues[b])
            if not value > z:
                break
            z = value
            values[b] = value
            for a in range(K):
                slates[b, a] = trial[a]


@jit
def outcome(features, theta, revenues, slates, uniform, choice, reward, expected):
    """Choice, realised reward and expected reward of each replicate's slate.

    The customer's choice inverts the distribution function over the items in ascending
    index order, outside option last, at `uniform`: equal sets give equal choices
    however they are listed.

    Args:
        features: ``(B, N, d)``.
        theta: ``(B, d)``.
        revenues: ``(B, N)``.
        slates: ``(B, K)`` items; -1 and repeats count for nothing.
        uniform: ``(B,)`` on [0, 1).
        choice: Output ``(B,)``: position in the slate of the bought item, or -1.
        reward: Output ``(B,)``: revenue of the bought item, or 0.
        expected: Output ``(B,)``: expected revenue of the slate.

    Returns:
        0, or 1 + the first replicate whose slate holds an index outside -1..N-1.
    """
    B, K = slates.shape
    N = features.shape[1]
    d = features.shape[2]
    items = np.empty(K, np.int64)
    place = np.empty(K, np.int64)
    u = np.empty(K)
    for b in range(B):
        n = 0
        for k in range(K):
            item = slates[b, k]
            if item < -1 or item >= N:
                return b + 1
            if item == -1:
                continue
            j = n
            while j > 0 and items[j - 1] > item:
                j -= 1
            if j > 0 and items[j - 1] == item:
                continue
            for a in range(n, j, -1):
                items[a] = items[a - 1]
                place[a] = place[a - 1]
            items[j] = item
            place[j] = k
            n += 1
        top = 0.0
        for a in range(n):
            s = 0.0
            for k in range(d):
                s += features[b, items[a], k] * theta[b, k]
            u[a] = s
            if s > top:
                top = s
        outside = np.exp(-top)
        denominator = outside
        numerator = 0.0
        for a in range(n):
            v = np.exp(u[a] - top)
            u[a] = v
            denominator += v
            numerator += v * revenues[b, items[a]]
        expected[b] = numerator / denominator
        choice[b] = -1
        reward[b] = 0.0
        target = uniform[b] * denominator
        cumulative = 0.0
        for a in range(n):
            cumulative += u[a]
            if target < cumulative:
                choice[b] = place[a]
                reward[b] = revenues[b, items[a]]
                break
    return 0


@jit
def loss_terms(features, theta, slates, choice, loss, gradient, hessian):
    """Negative log-likelihood, gradient and Hessian of one choice per replicate.

    With p the choice probabilities at theta, xbar = sum_i p_i x_i: the gradient is
    xbar - x_choice (x_choice = 0 if nothing was bought), the Hessian
    sum_i p_i x_i x_i' - xbar xbar'. Slates must not repeat items.
    """
    B, K = slates.shape
    d = features.shape[2]
    p = np.empty(K)
    for b in range(B):
        top = 0.0
        for k in range(K):
            if slates[b, k] < 0:
                continue
            s = 0.0
            for j in range(d):
                s += features[b, slates[b, k], j] * theta[b, j]
            p[k] = s
            if s > top:
                top = s
        denominator = np.exp(-top)
        chosen = 0.0
        for k in range(K):
            if slates[b, k] < 0:
                continue
            if k == choice[b]:
                chosen = p[k]
            p[k] = np.exp(p[k] - top)
            denominator += p[k]
        loss[b] = top + np.log(denominator) - chosen
        for j in range(d):
            gradient[b, j] = 0.0
            for i in range(d):
                hessian[b, j, i] = 0.0
        for k in range(K):
            if slates[b, k] < 0:
                continue
            w = p[k] / denominator
            for j in range(d):
                xj = features[b, slates[b, k], j]
                gradient[b, j] += w * xj
                for i in range(j + 1):
                    hessian[b, j, i] += w * xj * features[b, slates[b, k], i]
        for j in range(d):
            for i in range(j + 1):
                hessian[b, j, i] -= gradient[b, j] * gradient[b, i]
                hessian[b, i, j] = hessian[b, j, i]
        if choice[b] >= 0:
            for j in range(d):
                gradient[b, j] -= features[b, slates[b, choice[b]], j]


@jit
def random_slates(uniforms, N, slates):
    """Uniformly random K-subsets by a partial Fisher-Yates shuffle of N items.

    Args:
        uniforms: ``(B, K)`` on [0, 1).
        N: Number of items.
        slates: Output ``(B, K)``, ascending.
    """
    B, K = slates.shape
    pool = np.arange(N)
    swapped = np.empty(K, np.int64)
    for b in range(B):
        for k in range(K):
            j = k + min(int(uniforms[b, k] * (N - k)), N - k - 1)
            swapped[k] = j
            pool[k], pool[j] = pool[j], pool[k]
        for k in range(K):
            slates[b, k] = pool[k]
        for k in range(K - 1, -1, -1):
            j = swapped[k]
            pool[k], pool[j] = pool[j], pool[k]
        for a in range(1, K):
            x = slates[b, a]
            j = a
            while j > 0 and slates[b, j - 1] > x:
                slates[b, j] = slates[b, j - 1]
                j -= 1
            slates[b, j] = x
