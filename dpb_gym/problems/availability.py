"""Availability of items and candidates, also for agents that do not handle it themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dpb_gym.errors import ActionError
from dpb_gym.problems.rounds import Array, Context


def check_offered(context: Context, action: Array) -> None:
    """Reject slates and candidates that are not available.

    Raises:
        ActionError: If an action offers one; the message names item, replicate and round.
    """
    available = context.available
    if available is None:
        return
    offered = action.reshape(len(action), -1)
    inside = (offered >= 0) & (offered < available.shape[1])  # the problem rejects the others
    bad = inside & ~np.take_along_axis(available, np.where(inside, offered, 0), axis=1)
    if bad.any():
        i = int(bad.any(axis=1).argmax())
        what = "item" if action.ndim == 2 else "candidate"
        raise ActionError(
            f"{what} {int(offered[i][bad[i]][0])} of replicate {i} is not available in round "
            f"{context.t}; context.available is the mask of those that are"
        ).at(i)


def stand_ins(context: Context) -> tuple[Context, Array | None]:
    """Replace unavailable items by available ones, in rotation.

    The best item by any rule on features, revenues or arms is then available. Where nothing is
    available, the context is unchanged: any action is valid.

    Returns:
        The context, and the original index of every entry ``(B, N)``; None if all are available.
    """
    available = context.available
    # a count of one row takes a third of the time of `all`
    if available is None or np.count_nonzero(available) == available.size:
        return context, None
    available = available | ~available.any(axis=1, keepdims=True)
    own = np.arange(available.shape[1])
    order = np.argsort(~available, axis=1, kind="stable")
    turn = (own + context.t) % available.sum(axis=1, keepdims=True)
    index = np.where(available, own, np.take_along_axis(order, turn, axis=1))
    arms = context.arms
    revenues = context.revenues
    shown = context._replace(
        features=np.take_along_axis(context.features, index[..., None], axis=1),
        arms=None if arms is None else np.take_along_axis(arms, index, axis=1),
        revenues=None if revenues is None else np.take_along_axis(revenues, index, axis=1),
    )
    return shown, index


def original_actions(action: Array, index: Array | None) -> Array:
    """Map actions on stand-ins back to original indices; -1 stays an empty place."""
    if index is None:
        return action
    rows = action.reshape(len(action), -1)
    chosen = np.take_along_axis(index, np.maximum(rows, 0), axis=1)
    return np.where(rows < 0, rows, chosen).reshape(action.shape)


def original_probabilities(shares: Array, index: Array | None) -> Array:
    """Map probabilities ``(B, N)`` of stand-ins back to the original items."""
    if index is None:
        return shares
    probabilities = np.zeros_like(shares)
    np.add.at(probabilities, (np.arange(len(shares))[:, None], index), shares)
    return probabilities


def among_available(act: Callable[[Any, Context], Array]) -> Callable[[Any, Context], Array]:
    """Decorate ``act`` of an agent on B replicates to choose among available items only."""

    @functools.wraps(act)
    def choose(agent: Any, context: Context) -> Array:
        if context.available is None:
            return act(agent, context)
        shown, index = stand_ins(context)
        return original_actions(act(agent, shown), index)

    return choose
