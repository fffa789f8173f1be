"""Linear-contextual recommendation: candidate draws and outcomes."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import inline, jit, vectorised
from dpb_gym.kernels.contexts import clipped_row
from dpb_gym.kernels.elementary import normal_cdf, normal_density, normal_of, sigmoid
from dpb_gym.kernels.linalg import dot_one

LOGISTIC, LINEAR, GAUSSIAN = 0, 1, 2


@jit
def _draw_distinct(uniforms, pool, out, swapped, held):
    """Draw distinct uniform indices of range(pool), one per uniform.

    A partial Fisher-Yates shuffle that stores only its swaps, so the cost does not depend on the
    size of the pool.
    """
    m = out.shape[0]
    for k in range(m):
        j = k + min(int(uniforms[k] * (pool - k)), pool - k - 1)
        at_j = j
        at_k = k
        for i in range(k):
            if swapped[i] == j:
                at_j = held[i]
            if swapped[i] == k:
                at_k = held[i]
        out[k] = at_j
        swapped[k] = j
        held[k] = at_k


@jit
def draw_candidates(uniforms, pool, out):
    """Draw distinct uniform indices per row: out ``(n, m)`` from uniforms ``(n, m)``."""
    n, m = uniforms.shape
    swapped = np.empty(m, np.int64)
    held = np.empty(m, np.int64)
    for i in range(n):
        _draw_distinct(uniforms[i], pool, out[i], swapped, held)


@jit
def draw_rated(uniforms, offsets, users, positions, logged):
    """Draw a user per replicate, distinct ratings of that user, and the logged one of them.

    Args:
        uniforms: ``(B, m + 2)``: user, logged candidate, then m candidates.
        offsets: ``(n_users + 1,)``: the ratings of user u are offsets[u]..offsets[u+1]-1.
        users: Output ``(B,)``.
        positions: Output ``(B, m)`` rating indices.
        logged: Output ``(B,)`` in 0..m-1.
    """
    B, m = positions.shape
    n_users = offsets.shape[0] - 1
    swapped = np.empty(m, np.int64)
    held = np.empty(m, np.int64)
    for b in range(B):
        u = min(int(uniforms[b, 0] * n_users), n_users - 1)
        users[b] = u
        logged[b] = min(int(uniforms[b, 1] * m), m - 1)
        pool = offsets[u + 1] - offsets[u]
        _draw_distinct(uniforms[b, 2:], pool, positions[b], swapped, held)
        for k in range(m):
            positions[b, k] += offsets[u]


@jit
def split_ratings(uniforms, offsets, counts, users, positions):
    """Split each user's ratings into random groups of m, no rating twice.

    Args:
        uniforms: ``(n * m,)``.
        offsets: ``(n_users + 1,)``: the ratings of user u are offsets[u]..offsets[u+1]-1.
        counts: ``(n_users,)`` groups of each user, at most the user's ratings divided by m; their
            sum is n.
        users: Output ``(n,)``, ascending.
        positions: Output ``(n, m)`` rating indices.
    """
    m = positions.shape[1]
    order = np.empty(np.max(offsets[1:] - offsets[:-1]), np.int64)
    used = row = 0
    for u in range(counts.shape[0]):
        size = offsets[u + 1] - offsets[u]
        for i in range(size):
            order[i] = offsets[u] + i
        for i in range(counts[u] * m):
            j = i + min(int(uniforms[used] * (size - i)), size - i - 1)
            order[i], order[j] = order[j], order[i]
            used += 1
            positions[row, i % m] = order[i]
            if i % m == m - 1:
                users[row] = u
                row += 1


@jit
def gather(table, index, out):
    """out[b, k] = table[b, index[b, k]] for float32 feature rows; a single table is broadcast."""
    B, m = index.shape
    for b in range(B):
        own = table[b if table.shape[0] > 1 else 0]
        for k in range(m):
            row, copy = own[index[b, k]], out[b, k]
            for j in range(row.shape[0]):
                copy[j] = row[j]


@jit
def gather_rounds(table, index, out):
    """`gather` of several rounds, ``(n, B, m)``."""
    for t in range(index.shape[0]):
        gather(table, index[t], out[t])


@jit
def take(features, action, observed, out, weight):
    """out[b] = weight[b] times the chosen candidate, clipped to the unit ball; 0 if not observed.

    Returns 0, or 1 + the first replicate whose action is out of range.
    """
    B, m, d = features.shape
    for b in range(B):
        if action[b] < 0 or action[b] >= m:
            return b + 1
        if observed[b]:
            weight[b] = clipped_row(features, b, action[b], out[b])
        else:
            for j in range(d):
                out[b, j] = 0.0
    return 0


@vectorised
def statistics(vectors, rewards, sigma, normals, out):
    """Compute noisy x x' and r x of one candidate per replicate, x clipped to the unit ball.

    The matrix gets GOE noise, with standard deviation sigma / sqrt(2) off the diagonal.

    Args:
        vectors: x, ``(B, 1, d)``.
        rewards: r, ``(B,)``.
        sigma: Noise scale.
        normals: Standard normals, as many as `out` has numbers.
        out: Output ``(B, d (d + 1) / 2 + d)``: upper triangle of x x' row by row, then r x.
    """
    B, _, d = vectors.shape
    x, root2 = np.empty(d), np.sqrt(2.0)
    for b in range(B):
        clipped_row(vectors, b, 0, x)
        first = 0
        for i in range(d):
            left, rest = x[i], x[i:]
            row, noise = out[b, first : first + d - i], normals[b, first : first + d - i]
            for j in range(d - i):
                row[j] = (left * rest[j] * root2 + sigma * noise[j]) / root2
            row[0] = left * left + sigma * noise[0]
            first += d - i
        row, noise = out[b, first:], normals[b, first:]
        for j in range(d):
            row[j] = rewards[b] * x[j] + sigma * noise[j]


@jit
def unfold(rows, matrices, vectors):
    """Convert sums of `statistics` to symmetric matrices ``(B, d, d)`` and vectors ``(B, d)``."""
    B, d = vectors.shape
    for b in range(B):
        at = 0
        for i in range(d):
            for j in range(i, d):
                matrices[b, i, j] = matrices[b, j, i] = rows[b, at]
                at += 1
        for i in range(d):
            vectors[b, i] = rows[b, at + i]


@jit
def project_block(coefficients, basis, first, out):
    """Compute unit vectors in a block of columns of an orthonormal basis.

    out[b, k] is the normalised
    sum_j coefficients[b, k, j] basis[b, :, (first[b] + j) mod d].
    """
    B, m, r = coefficients.shape
    d = basis.shape[1]
    for b in range(B):
        for k in range(m):
            s2 = 0.0
            for i in range(d):
                s = 0.0
                for j in range(r):
                    s += np.float64(coefficients[b, k, j]) * basis[b, i, (first[b] + j) % d]
                out[b, k, i] = s
                s2 += s * s
            if s2 > 0.0:
                for i in range(d):
                    out[b, k, i] = out[b, k, i] / np.sqrt(s2)


@jit
def _clipped_normal_mean(mean, sd):
    """Return E[min(1, max(0, mean + sd Z))], Z standard normal."""
    low, high = -mean / sd, (1.0 - mean) / sd
    inside = normal_cdf(high) - normal_cdf(low)
    return mean * inside + sd * (normal_density(low) - normal_density(high)) + normal_cdf(-high)


@jit
def mean_reward(score, model, sd):
    """Return the expected reward of an arm of score <x, theta>."""
    if model == LOGISTIC:
        return sigmoid(score)
    mean = 0.5 + 0.25 * score
    if model == LINEAR:
        return min(1.0, max(0.0, mean))
    return _clipped_normal_mean(mean, sd)


@jit
def best_arms(features, theta, model, sd, arm, value):
    """Find the candidate of largest expected reward (lowest index among equal scores).

    Every reward model increases with the score, so scores are compared.
    """
    B, m, _ = features.shape
    for b in range(B):
        arm[b] = 0
        best = dot_one(features[b, 0], theta[b])
        for k in range(1, m):
            score = dot_one(features[b, k], theta[b])
            if score > best:
                arm[b] = k
                best = score
        value[b] = mean_reward(best, model, sd)


@inline
def _drawn_reward(score, expected, model, sd, uniform):
    """Reward of an arm of score <x, theta> and that expectation."""
    if model == GAUSSIAN:
        return min(1.0, max(0.0, 0.5 + 0.25 * score + sd * normal_of(uniform)))
    return 1.0 if uniform < expected else 0.0


@jit
def outcome(features, theta, arm, model, sd, uniform, reward, expected):
    """Compute reward and expected reward; return 0, or 1 + the first replicate out of range."""
    B, m, _ = features.shape
    for b in range(B):
        if arm[b] < 0 or arm[b] >= m:
            return b + 1
        score = dot_one(features[b, arm[b]], theta[b])
        expected[b] = mean_reward(score, model, sd)
        reward[b] = _drawn_reward(score, expected[b], model, sd, uniform[b])
    return 0


@jit
def outcomes(features, theta, model, sd, uniform, reward, expected, best):
    """`outcome` of every candidate, and `best_arms`' value, for several rounds.

    Args:
        features: ``(n, B, m, d)``.
        theta: ``(B, d)``.
        model: `LOGISTIC`, `LINEAR` or `GAUSSIAN`.
        sd: Standard deviation of Gaussian rewards.
        uniform: ``(n, B)``.
        reward: Output ``(n, B, m)``.
        expected: Output ``(n, B, m)``.
        best: Output ``(n, B)``.
    """
    n, B, m, _ = features.shape
    for t in range(n):
        for b in range(B):
            top, at = 0.0, 0
            for k in range(m):
                score = dot_one(features[t, b, k], theta[b])
                mean = mean_reward(score, model, sd)
                expected[t, b, k] = mean
                reward[t, b, k] = _drawn_reward(score, mean, model, sd, uniform[t, b])
                if k == 0 or score > top:
                    top, at = score, k
            best[t, b] = expected[t, b, at]


@jit
def pick(rewards, means, action, reward, expected):
    """Entries of the chosen candidates: tables ``(n, B, m)``, actions and outputs ``(n, B)``.

    Returns:
        Whether an action is out of range.
    """
    n, B, m = rewards.shape
    for t in range(n):
        for b in range(B):
            k = action[t, b]
            if k < 0 or k >= m:
                return True
            reward[t, b] = rewards[t, b, k]
            expected[t, b] = means[t, b, k]
    return False
