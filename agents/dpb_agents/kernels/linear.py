"""Releases of sums of rewards; replicates are computed one by one."""

from __future__ import annotations

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.linalg import multiply_one


@jit
def release(sums, normals, cursor, due, sigma, inverse, norm, keep, out):
    """Write inverse[b] sums[b] + sigma norm[b] z where `due`, and advance the cursors there.

    Args:
        sums: Exact sums of the open segments ``(B, d)``; emptied where due, unless `keep`.
        normals: Independent standard normals ``(B, n, d)``.
        cursor: Next unused row of `normals`, ``(B,)``.
        due: ``(B,)`` bool.
        sigma: Noise scale.
        inverse: ``(B, d, d)``, symmetric.
        norm: ``(B,)``.
        keep: Whether segments stay open.
        out: ``(B, d)``.
    """
    B, d = sums.shape
    for b in range(B):
        if not due[b]:
            continue
        multiply_one(inverse[b], sums[b], out[b])
        for j in range(d):
            out[b, j] += sigma * norm[b] * normals[b, cursor[b], j]
            if not keep:
                sums[b, j] = 0.0
        # A normal is used once, whatever other replicates do, so releases have independent noise.
        cursor[b] += 1
