"""Doubts about the prices of a log: whether they vary, and whether they follow demand."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpb_gym.problems.base import Array

_SEEN = 50  # past customers that a price may follow


def price_rows(data: Any) -> tuple[Array, Array, Array]:
    """Return features ``(m, k)``, price and share of purchases ``(m,)`` of the rows of a table.

    Customers who were counted in one row have no order among themselves.
    """
    if data.people is None:
        return data.features, data.price, data.bought
    columns = np.column_stack([data.people, data.price, data.features])
    first = np.append(True, (np.diff(columns, axis=0) != 0).any(axis=1))
    starts = np.flatnonzero(first)
    sizes = np.diff(np.append(starts, len(first)))
    share = np.add.reduceat(data.bought, starts) / sizes
    return data.features[starts], data.price[starts], share


def price_doubts(features: Array, price: Array, bought: Array) -> list[str]:
    """Return warnings on prices that hardly vary, or that follow demand.

    Args:
        features: ``(n, k)``.
        price: ``(n,)``, in the order of the log.
        bought: ``(n,)``, 0 or 1, or the share of purchases.
    """
    found = []
    known = np.column_stack([np.ones(len(price)), features])
    rest = price - known @ np.linalg.lstsq(known, price, rcond=None)[0]
    share = 1.0 - float(rest.var() / max(price.var(), 1e-300))
    if share > 0.9:
        found.append(
            f"lack of variation: the features determine {share:.0%} of the prices' variance, so "
            "their effects can hardly be separated"
        )
    if rest.std() < 0.02 * price.mean():
        found.append(
            f"lack of variation: prices vary by {rest.std() / price.mean():.1%} for like customers"
        )
    if (few := len(np.unique(price))) < 4:
        found.append(f"lack of variation: the table has only {few} prices")
    if len(price) > 4 * _SEEN:
        demand = np.convolve(bought - bought.mean(), np.ones(_SEEN) / _SEEN)[: len(price) - 1]
        before, after = demand[_SEEN - 1 :], rest[_SEEN:]
        follows = float(np.corrcoef(before, after)[0, 1]) if after.std() > 0 else 0.0
        if abs(follows) > 4.0 * np.sqrt(_SEEN / len(after)):
            way = "rise" if follows > 0 else "fall"
            found.append(
                f"endogenous prices: they {way} after customers bought (correlation "
                f"{follows:+.2f} with the last {_SEEN} purchases), so the effect of the price is "
                "biased: give what they were set by as features"
            )
    return found
