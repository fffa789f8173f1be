"""Per-user clipping and budgets of user-level privacy."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit

# So that rounding never exceeds the budget.
_SHRINK = 1.0 - 1e-12


@jit
def close_batch(users, rows, order, spent, radius, squared, out, clipped):
    """Add every user's clipped sum of the batch to out and charges the users' budgets.

    Args:
        users: Ids ``(n, B)``.
        rows: Records ``(n, B, w)``.
        order: Stable argsort of users along axis 0.
        spent: Norms of earlier batches' sums, or their squares, summed ``(B, U)``; updated.
        radius: Lifetime budget of a user: sum of norms, or root of the sum of squared norms.
        squared: Whether squared norms are summed.
        out: Output ``(B, w)``.
        clipped: Number of sums that were clipped ``(B,)``, updated.
    """
    n, B, w = rows.shape
    whole = radius * radius if squared else radius
    total = np.empty(w)
    for b in range(B):
        i = 0
        while i < n:
            user = users[order[i, b], b]
            total[:] = 0.0
            while i < n and users[order[i, b], b] == user:
                for j in range(w):
                    total[j] += rows[order[i, b], b, j]
                i += 1
            square = 0.0
            for j in range(w):
                square += total[j] * total[j]
            if square == 0.0:
                continue
            cost = square if squared else np.sqrt(square)
            room = max(0.0, whole - spent[b, user])
            if cost <= room:
                spent[b, user] += cost
                factor = 1.0
            else:
                spent[b, user] = whole
                factor = _SHRINK * (np.sqrt(room / cost) if squared else room / cost)
                clipped[b] += 1
            for j in range(w):
                out[b, j] += factor * total[j]
