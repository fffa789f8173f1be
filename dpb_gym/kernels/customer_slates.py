"""Slates of one customer under the multinomial logit, for agents' functions."""

from __future__ import annotations

import numpy as np

from dpb_gym import kernels
from dpb_gym.kernels.deferred import shape_checked


@shape_checked
def _check(x, r, theta):
    if x.shape[0] != r.shape[0] or x.shape[1] != theta.shape[0]:
        raise IndexError("shapes differ")


@shape_checked
def utilities(x, theta):
    """<x_i, theta> of every item."""
    N, d = x.shape
    if d != theta.shape[0]:
        raise IndexError("shapes differ")
    u = np.zeros(N)
    columns = np.empty((d, N))
    for i in range(N):
        for k in range(d):
            columns[k, i] = x[i, k]
    kernels.slates._add_products(theta, d, columns, u)
    return u


@shape_checked
def all_offered(r):
    """Whether every item can be offered."""
    offered = True
    for i in range(r.shape[0]):
        offered = offered and r[i] > -np.inf
    return offered


@shape_checked
def best_slate(u, r, K, equal, exactly):
    """Slate of the largest revenue under utilities u: ascending items, padded with -1.

    Args:
        u: Utilities ``(N,)``.
        r: Revenues ``(N,)``, -inf for items that cannot be offered.
        K: Capacity.
        equal: Whether all revenues are equal, so that the K largest utilities are best.
        exactly: Whether slates must hold K items.
    """
    if u.shape[0] != r.shape[0] or K < 0:
        raise IndexError("shapes differ")
    slate = np.empty(K, np.int64)
    kernels.slates.best_slate(np.arange(u.shape[0]), u, r, equal, exactly, 0.0, slate)
    return slate


@shape_checked
def expected_slate(x, r, theta, root, z, K, exactly):
    """Slate of large mean revenue over draws theta + root z, built greedily.

    See `dpb_gym.kernels.slates.expected_slates`.
    """
    _check(x, r, theta)
    N, d = x.shape
    if root.shape[0] != d or root.shape[1] != d or z.shape[1] != d or K < 0:
        raise IndexError("shapes differ")
    slates = np.empty((1, K), np.int64)
    kernels.slates.expected_slates(
        x.reshape((1, N, d)),
        r.reshape((1, N)),
        exactly,
        theta.reshape((1, d)),
        root.reshape((1, d, d)),
        z.reshape((1, z.shape[0], d)),
        slates,
    )
    return slates[0]


@shape_checked
def slate_revenue(slate, u, r):
    """Expected revenue of a slate under utilities u."""
    count = 0
    for a in range(slate.shape[0]):
        item = slate[a]
        if item < 0:
            break
        if item >= u.shape[0] or item >= r.shape[0]:
            raise IndexError("no such item")
        count += 1
    return kernels.mnl.revenue_of(slate, count, u, r)


@shape_checked
def alternatives(x, slate):
    """Features of the offered items in the order of the slate, and zeros for no purchase."""
    n = 1
    d = x.shape[1]
    for a in range(slate.shape[0]):
        n += slate[a] >= 0
    out = np.zeros((n, d))
    row = 0
    for a in range(slate.shape[0]):
        item = slate[a]
        if item >= x.shape[0]:
            raise IndexError("no such item")
        if item >= 0:
            for j in range(d):
                out[row, j] = x[item, j]
            row += 1
    return out


@shape_checked
def chosen_row(slate, choice):
    """Row of `alternatives` that was chosen, given the position in the slate or -1."""
    n = 0
    row = -1
    for a in range(slate.shape[0]):
        if slate[a] >= 0:
            if a == choice:
                row = n
            n += 1
    return row if row >= 0 else n
