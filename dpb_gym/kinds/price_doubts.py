"""Doubts about the prices of a log: whether they vary."""

from __future__ import annotations

import numpy as np

from dpb_gym.problems.base import Array


def price_doubts(features: Array, price: Array) -> list[str]:
    """Return warnings on prices that hardly vary.

    Args:
        features: ``(n, k)``.
        price: ``(n,)``.
    """
    doubts = []
    known = np.column_stack([np.ones(len(price)), features])
    rest = price - known @ np.linalg.lstsq(known, price, rcond=None)[0]
    share = 1.0 - float(rest.var() / max(price.var(), 1e-300))
    if share > 0.9:
        doubts.append(
            f"lack of variation: the features determine {share:.0%} of the prices' variance, so "
            "their effects can hardly be separated"
        )
    if rest.std() < 0.02 * price.mean():
        doubts.append(
            f"lack of variation: prices vary by {rest.std() / price.mean():.1%} for like customers"
        )
    if (few := len(np.unique(price))) < 4:
        doubts.append(f"lack of variation: the table has only {few} prices")
    return doubts
