"""Multinomial-logit choice with an outside option: assortments and outcomes.

Arrays lead with the replicate axis. A slate is a row of K item indices in which -1 and
repeated items count for nothing. Weights are computed relative to the largest utility
(or to the outside option's 0), so utilities up to 700 in magnitude are safe.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import exp, log

LARGEST = 2**63 - 1


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
def top_indices(scores, K, floor, picked, keys):
    """Fill `picked` with the at most K indices of the largest scores above `floor`.

    Ties go to the lower index. Returns how many were picked; `picked` ends in
    ascending index order, padded with -1. `keys` is scratch of the scores' length, int64.
    """
    # Integers in the scores' order, whose maxima are vectorised without branches.
    for i in range(scores.shape[0]):
        bits = np.float64(scores[i] + 0.0).view(np.int64)
        keys[i] = bits ^ ((bits >> 63) & LARGEST) if scores[i] > floor else -LARGEST
    least = LARGEST
    above = 0
    for _ in range(K):
        top = -LARGEST
        reached = 0
        for i in range(keys.shape[0]):
            top = max(top, keys[i] if keys[i] < least else -LARGEST)
            reached += keys[i] >= least
        if reached >= K or top == -LARGEST:
            break
        least = top
        above = reached
    n = 0
    equal = K - above
    for a in range(K):
        picked[a] = -1
    for i in range(keys.shape[0]):
        if keys[i] >= least:
            if keys[i] == least:
                if equal == 0:
                    continue
                equal -= 1
            picked[n] = i
            n += 1
    return n


@jit
def revenue_of(picked, n, utility, revenues):
    """Return the expected revenue of the first n items of `picked` (ascending indices)."""
    top = 0.0
    for a in range(n):
        if utility[picked[a]] > top:
            top = utility[picked[a]]
    denominator = exp(-top)
    numerator = 0.0
    for a in range(n):
        v = exp(utility[picked[a]] - top)
        denominator += v
        numerator += v * revenues[picked[a]]
    return numerator / denominator


@jit
def _same(scores, floor, picked):
    """Return whether `picked` holds the K strictly largest scores, all above `floor`."""
    least = np.inf
    reached = 0
    for a in range(picked.shape[0]):
        least = min(least, scores[picked[a]]) if picked[a] >= 0 else -np.inf
    for i in range(scores.shape[0]):
        reached += scores[i] >= least
    return least > floor and reached == picked.shape[0]


@jit
def _equal_and_positive(revenues):
    for i in range(1, revenues.shape[0]):
        if revenues[i] != revenues[0]:
            return False
    return revenues[0] > 0.0


@jit
def best_slate_one(utility, revenues, K, exactly, start, slate):
    """Compute the best assortment of items by Dinkelbach's iteration; return its revenue.

    For a value z the best set is the at most K items of largest positive
    exp(u_i) (r_i - z), or the K items of largest such score; z <- revenue of that set
    increases until the set is optimal (Dinkelbach 1967).

    Args:
        utility: ``(N,)``.
        revenues: ``(N,)``, -inf for items that cannot be offered.
        K: Capacity.
        exactly: Whether sets must hold K items.
        start: First z, at least 0; ignored if `exactly`. The first step may decrease z. With 0 the
            set is the best one. Otherwise it is if its revenue is at least `start`.
        slate: Output ``(K,)``, ascending items, padded with -1.
    """
    N = utility.shape[0]
    keys = np.empty(N, np.int64)
    trial = np.empty(K, np.int64)
    scores = np.empty(N)
    weight = np.empty(N)
    top = -np.inf
    for i in range(N):
        if utility[i] > top:
            top = utility[i]
    for i in range(N):
        weight[i] = exp(utility[i] - top)
    z = start
    floor = 0.0
    best = 0.0
    for a in range(K):
        slate[a] = -1
    if exactly:
        n = top_indices(revenues, K, -np.inf, slate, keys)
        best = revenue_of(slate, n, utility, revenues)
        z = best
        floor = -np.inf
    while True:
        for i in range(N):
            scores[i] = weight[i] * (revenues[i] - z)
        if _same(scores, floor, slate):
            return best
        n = top_indices(scores, K, floor, trial, keys)
        if n == 0:
            return best
        value = revenue_of(trial, n, utility, revenues)
        if not value > best:
            return best
        z = best = value
        for a in range(K):
            slate[a] = trial[a]


@jit
def best_slates(utility, revenues, K, exactly, slates, values):
    """Compute exact best assortments of at most or exactly K items; see `best_slate_one`.

    Equal revenues make this the K largest utilities.

    Args:
        utility: ``(B, N)``.
        revenues: ``(B, N)``, -inf for items that cannot be offered.
        K: Capacity.
        exactly: Whether sets must hold K items.
        slates: Output ``(B, K)``, ascending items, padded with -1.
        values: Output ``(B,)`` expected revenues.
    """
    B, N = utility.shape
    keys = np.empty(N, np.int64)
    for b in range(B):
        if _equal_and_positive(revenues[b]):
            n = top_indices(utility[b], K, -np.inf, slates[b], keys)
            values[b] = revenue_of(slates[b], n, utility[b], revenues[b])
        else:
            values[b] = best_slate_one(utility[b], revenues[b], K, exactly, 0.0, slates[b])


@jit
def _share_nests(u, items, n, nests, dissimilarity):
    """Convert utilities to those of a multinomial logit with the nested logit's probabilities.

    With lambda the dissimilarity and I the sum of exp(u_i / lambda) over a nest, item i is bought
    with probability proportional to exp(u_i / lambda) I^(lambda - 1) (McFadden 1978).
    """
    for a in range(n):
        u[a] /= dissimilarity
    shift = np.empty(n)
    for a in range(n):
        top = u[a]
        for c in range(n):
            if items[c] % nests == items[a] % nests:
                top = max(top, u[c])
        total = 0.0
        for c in range(n):
            if items[c] % nests == items[a] % nests:
                total += exp(u[c] - top)
        shift[a] = (dissimilarity - 1.0) * (top + log(total))
    for a in range(n):
        u[a] += shift[a]


@jit
def _distinct(slate, N, items, place):
    """Write a slate's distinct items, ascending, and their first places; return their number.

    Returns -1 if an item is outside -1..N-1.
    """
    n = 0
    for k in range(slate.shape[0]):
        item = slate[k]
        if item < -1 or item >= N:
            return -1
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
    return n


@jit
def outcome(
    features, theta, revenues, slates, nests, dissimilarity, uniform, choice, reward, expected
):
    """Compute choice, realised reward and expected reward of each replicate's slate.

    The customer's choice inverts the distribution function over the items in ascending
    index order, outside option last, at `uniform`: equal sets give equal choices
    however they are listed.

    Args:
        features: ``(B, N, d)``.
        theta: ``(B, d)``.
        revenues: ``(B, N)``.
        slates: ``(B, K)`` items; -1 and repeats count for nothing.
        nests: Number of nests, item i in nest i mod nests; read if dissimilarity is below 1.
        dissimilarity: In (0, 1]; 1 is the multinomial logit.
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
        n = _distinct(slates[b], N, items, place)
        if n < 0:
            return b + 1
        top = 0.0
        for a in range(n):
            s = 0.0
            for k in range(d):
                s += features[b, items[a], k] * theta[b, k]
            u[a] = s
        if dissimilarity < 1.0:
            _share_nests(u, items, n, nests, dissimilarity)
        for a in range(n):
            if u[a] > top:
                top = u[a]
        outside = exp(-top)
        denominator = outside
        numerator = 0.0
        for a in range(n):
            v = exp(u[a] - top)
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
def add_choices_one(x, offered, chosen, first, n, theta, gradient, hessian, p, mean):
    """Add gradient and lower Hessian of the choices' negative log-likelihoods at theta.

    With p the choice probabilities, xbar = sum_i p_i x_i: the gradient is xbar - x_chosen
    (x_chosen = 0 if nothing was bought), the Hessian sum_i p_i x_i x_i' - xbar xbar'. With
    ||x|| <= 1 one choice's gradient has norm at most 2, its Hessian's trace is at most 1 (errata
    A2, A3).

    Args:
        x: ``(records, K, d)``; the first rows of a record are the offered items' features.
        offered: How many were offered, ``(records,)``.
        chosen: Which of them was bought, or -1, ``(records,)``.
        first: First record to include.
        n: One more than the last record.
        theta: ``(d,)``.
        gradient: ``(d,)``, in place.
        hessian: ``(d, d)``, in place.
        p: Scratch ``(K,)``.
        mean: Scratch ``(d,)``.

    Returns:
        The negative log-likelihood.
    """
    d = theta.shape[0]
    loss = 0.0
    rows = np.empty((4, d))
    shares = np.empty(4)
    x0 = rows[0]
    x1 = rows[1]
    x2 = rows[2]
    x3 = rows[3]
    for r in range(first, n):
        many = offered[r]
        bought = chosen[r]
        if many == 0:
            continue
        top = 0.0
        for a in range(many):
            s = 0.0
            for k in range(d):
                s += x[r, a, k] * theta[k]
            p[a] = s
            top = max(top, s)
        if bought >= 0:
            loss -= p[bought]
            for k in range(d):
                gradient[k] -= x[r, bought, k]
        total = exp(-top)
        for a in range(many):
            p[a] = exp(p[a] - top)
            total += p[a]
        loss += top + log(total)
        mean[:] = 0.0
        # four items at a time, added in order to every entry
        for first_item in range(0, many, 4):
            for i in range(4):
                a = first_item + i
                if a < many:
                    shares[i] = p[a] / total
                    for k in range(d):
                        rows[i, k] = x[r, a, k]
                else:
                    shares[i], rows[i] = 0.0, 0.0
            for j in range(d):
                w0 = shares[0] * x0[j]
                w1 = shares[1] * x1[j]
                w2 = shares[2] * x2[j]
                w3 = shares[3] * x3[j]
                mean[j] = mean[j] + w0 + w1 + w2 + w3
                row = hessian[j]
                for k in range(j + 1):
                    row[k] = row[k] + w0 * x0[k] + w1 * x1[k] + w2 * x2[k] + w3 * x3[k]
        for j in range(d):
            gradient[j] += mean[j]
            for k in range(j + 1):
                hessian[j, k] -= mean[j] * mean[k]
    return loss


@jit
def add_responses_one(x, offered, chosen, first, n, theta, gradient, hessian):
    """`add_choices_one` of records of at most one item, with the same bits.

    A logarithm and an exponential per record; no items of zeros are added.
    """
    d = theta.shape[0]
    loss = 0.0
    row = np.empty(d)
    mean = np.empty(d)
    for r in range(first, n):
        if offered[r] == 0:
            continue
        s = 0.0
        for k in range(d):
            row[k] = x[r, 0, k]
            s += row[k] * theta[k]
        if chosen[r] >= 0:
            loss -= s
            for k in range(d):
                gradient[k] -= row[k]
        top = max(0.0, s)
        # one of exp(s - top) and exp(-top) is exp(0)
        other = exp(-abs(s))
        total = 1.0 + other
        loss += top + log(total)
        share = (1.0 if s > 0.0 else other) / total
        for j in range(d):
            mean[j] = share * row[j]
            gradient[j] += mean[j]
        for j in range(d):
            own = hessian[j]
            for k in range(j + 1):
                own[k] = (own[k] + mean[j] * row[k]) - mean[j] * mean[k]
    return loss


@jit
def add_choices(x, offered, chosen, first, n, due, theta, loss, gradient, hessian):
    """Add `add_choices_one` of every replicate, an objective of `newton.minimise`.

    Args:
        x: ``(B, records, K, d)``.
        offered: ``(B, records)``.
        chosen: ``(B, records)``.
        first: ``(B,)``.
        n: One more than the last record to include.
        due: Mask ``(B,)`` of the replicates to include.
        theta: ``(B, d)``.
        loss: ``(B,)``, in place.
        gradient: ``(B, d)``, in place.
        hessian: ``(B, d, d)``, in place; the lower triangle.
    """
    p = np.empty(x.shape[2])
    mean = np.empty(theta.shape[1])
    for b in range(theta.shape[0]):
        if due[b] and x.shape[2] == 1:
            terms_one = (theta[b], gradient[b], hessian[b])
            loss[b] += add_responses_one(x[b], offered[b], chosen[b], first[b], n, *terms_one)
        elif due[b]:
            terms = (theta[b], gradient[b], hessian[b], p, mean)
            loss[b] += add_choices_one(x[b], offered[b], chosen[b], first[b], n, *terms)
