"""Draws of the candidates of a recommendation, and the features of drawn candidates."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit

FEW = 64
"""Up to so many candidates a search through all swaps is faster than a table of them."""


@jit
def _table(m):
    """Return an empty table of the swaps of m draws: positions and what stands there."""
    size = m
    if m > FEW:
        size = 1
        # a load below one half keeps the probes short
        while size < 2 * m:
            size *= 2
    return np.empty(size, np.int64), np.empty(size, np.int64)


@jit
def _place(swapped, position):
    """Return the entry of a position in the table, or the free one where it belongs."""
    last = swapped.shape[0] - 1
    # Fibonacci hashing spreads consecutive positions
    at = (position * 2654435761 >> 7) & last
    while swapped[at] >= 0 and swapped[at] != position:
        at = (at + 1) & last
    return at


@jit
def _shuffle(uniforms, pool, out, held):
    """`_draw_distinct` by a partial Fisher-Yates shuffle of all indices, which fit into `held`."""
    for j in range(pool):
        held[j] = j
    for k in range(out.shape[0]):
        j = k + min(int(uniforms[k] * (pool - k)), pool - k - 1)
        out[k] = held[j]
        held[j] = held[k]


@jit
def _draw_distinct(uniforms, pool, out, swapped, held):
    """Draw distinct uniform indices of range(pool), one per uniform.

    A partial Fisher-Yates shuffle. In a pool that is larger than the table it stores only its
    swaps, so the cost does not depend on the size of the pool. Many draws look their swaps up in an
    open-addressing table, so that the cost is linear in their number.

    Args:
        uniforms: ``(m,)`` in [0, 1).
        pool: Number of indices, at least m.
        out: Output ``(m,)``.
        swapped: Positions of the table, see `_table`.
        held: What stands at these positions.
    """
    if pool <= held.shape[0]:
        # a tenth of the time of looking swaps up
        _shuffle(uniforms, pool, out, held)
        return
    m = out.shape[0]
    many = m > FEW
    if many:
        swapped[:] = -1
    for k in range(m):
        j = k + min(int(uniforms[k] * (pool - k)), pool - k - 1)
        at_j = j
        at_k = k
        if many:
            own = _place(swapped, k)
            if swapped[own] >= 0:
                at_k = held[own]
            place = _place(swapped, j)
            if swapped[place] >= 0:
                at_j = held[place]
        else:
            place = k
            for i in range(k):
                if swapped[i] == j:
                    at_j = held[i]
                if swapped[i] == k:
                    at_k = held[i]
        out[k] = at_j
        swapped[place] = j
        held[place] = at_k


@jit
def draw_candidates(uniforms, pool, out):
    """Draw distinct uniform indices per row: out ``(n, m)`` from uniforms ``(n, m)``."""
    n, m = uniforms.shape
    swapped, held = _table(m)
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
    swapped, held = _table(m)
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
    most = used = row = 0
    for u in range(counts.shape[0]):
        most = max(most, offsets[u + 1] - offsets[u])
    order = np.empty(most, np.int64)
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
def gather(tables, index, out):
    """out[b, k] = tables[b mod n, index[b, k]], for rows of float32 features in n tables."""
    B, m = index.shape
    for b in range(B):
        own = tables[b % tables.shape[0]]
        for k in range(m):
            row = own[index[b, k]]
            copy = out[b, k]
            for j in range(row.shape[0]):
                copy[j] = row[j]
