"""Rounds of one customer: contexts and responses as arrays of one replicate.

Sessions (`dpb_gym.serving`) and devices (`dpb_gym.devices`) use them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import ParameterError, shown
from dpb_gym.privacy.releasers.contributions import MOST_USERS
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.delay import PLACEHOLDERS
from dpb_gym.problems.kinds import kind_of

_MOST = float(np.finfo(np.float32).max)


def context_of(
    info: ProblemInfo,
    t: int,
    features: Any,
    *,
    revenues: Any = None,
    arms: Any = None,
    user: Any = None,
    available: Any = None,
    identified: bool = False,
    counted: bool = False,
) -> Context:
    """Return the context of round t for the arguments of `Session.decide`.

    Args:
        info: The problem.
        t: Number of the round, from 1.
        features: See `Session.decide`, as the next four.
        revenues: See there.
        arms: See there.
        user: See there.
        available: See there.
        identified: Whether the customer's number is needed although the problem has no users.
        counted: Whether the agent counts the records of each user, in a table of bounded size.

    Raises:
        ParameterError: If a value has the wrong shape, is not finite or out of range.
    """
    kind = kind_of(info.kind)
    x = validation.array("features", features, kind.feature_shape(info), -_MOST, _MOST)
    item_revenues = None
    if kind.revenues:
        if revenues is None and info.equal_revenues:
            revenues = np.ones(info.n_items or 0)
        given = validation.array("revenues", revenues, (info.n_items,), *info.reward_range)
        item_revenues = given.astype(np.float32)[None]
    elif revenues is not None:
        raise ParameterError(f"a {info.kind} problem has no revenues")
    listed = None
    if info.n_candidates is not None:
        listed = _no_arms(info.n_candidates)
        if arms is not None:
            given = validation.array("arms", arms, listed.shape[1:], 0, (info.n_arms or 1) - 1)
            if (given % 1.0).any() or len(set(given.tolist())) < len(given):
                raise ParameterError(f"arms must be different integers, got {shown(arms)}")
            listed = given.astype(listed.dtype)[None]
    who = None
    if info.max_interactions is not None or identified:
        who = np.array([validation.integer("user", user, 0, MOST_USERS - 1 if counted else None)])
    mask = None
    if info.masked and available is None:
        mask = _all(len(x))
    elif info.masked:
        mask = validation.array("available", available, (len(x),), 0, 1)[None] > 0
    elif available is not None:
        raise ParameterError("all are available here; `available` needs ProblemInfo(masked=True)")
    return locked(Context(t, x.astype(np.float32)[None], item_revenues, listed, who, mask))


@functools.lru_cache(maxsize=100)
def _no_arms(count: int) -> Array:
    """Return the arms of `count` candidates that are of no pool."""
    arms = np.full((1, count), -1)
    arms.flags.writeable = False
    return arms


@functools.lru_cache(maxsize=100)
def _all(count: int) -> Array:
    """Return the mask of `count` items or candidates that are all available."""
    mask = np.ones((1, count), bool)
    mask.flags.writeable = False
    return mask


def shown_action(info: ProblemInfo, action: Array) -> Any:
    """Return an action ``(1, ...)`` as a session returns it; see `Session.decide`."""
    return kind_of(info.kind).shown(action[0])


def feedback_of(info: ProblemInfo, context: Context, action: Array, response: Any) -> Feedback:
    """Return the feedback for a response in the form of `Session.observe`.

    Raises:
        ParameterError: If the response is impossible.
    """
    return kind_of(info.kind).feedback(info, context, action, response)


def empty_round(info: ProblemInfo, now: Context, observed: bool) -> tuple[Context, Array, Feedback]:
    """Return a round of placeholders, with the shapes of the context `now`."""
    kind = kind_of(info.kind)
    fields = {k: v for k, v in now._asdict().items() if isinstance(v, np.ndarray)}
    blank: Any = {k: np.full_like(v, PLACEHOLDERS.get(k, 0)) for k, v in fields.items()}
    action = np.full((1, *kind.action_shape(info)), kind.nothing)
    names = [k for k in ("choice", "demand") if k == kind.response]
    absent: Any = {k: np.full(1, PLACEHOLDERS.get(k, 0.0)) for k in names}
    feedback = Feedback(np.zeros(1), observed=np.array([observed]), **absent)
    return locked(now._replace(**blank)), action, feedback


def message_round(info: ProblemInfo, t: int) -> tuple[Context, Array, Feedback]:
    """Return the round of placeholders that an agent observes for a device's message."""
    kind = kind_of(info.kind)
    x = np.zeros((1, *kind.feature_shape(info)), np.float32)
    revenues = np.zeros((1, info.n_items or 0)) if kind.revenues else None
    return empty_round(info, Context(t, x, revenues, None, None, None), True)


def locked(context: Context) -> Context:
    """Make the arrays read-only, as those of the harness, so that the same kernels are used."""
    for part in context[1:]:
        if isinstance(part, np.ndarray):
            part.setflags(write=False)
    return context
