"""Rounds at which cumulative regret and reward are recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import ParameterError, shown

Checkpoints: TypeAlias = "str | int | Iterable[int]"

LOG_POINTS = 64
_ALLOWED = "'log', 'log:N', 'all', a number of checkpoints, or rounds in 1..horizon"


def resolve_checkpoints(checkpoints: Checkpoints, horizon: int) -> tuple[int, ...]:
    """Returns the increasing rounds to record; the last one is always the horizon.

    Args:
        checkpoints: ``"log"``: at most 64 log-spaced rounds from 1 on, ``"log:N"``: at most
            N of them, N at least 2; ``"all"``: every round; an integer n: at most n evenly
            spaced rounds; or explicit rounds.
        horizon: T, at least 1.

    Raises:
        ParameterError: If `checkpoints` is none of these or a round is outside 1..T.

    Example:
        >>> resolve_checkpoints(4, 1000)
        (250, 500, 750, 1000)
        >>> resolve_checkpoints([10, 100], 1000)
        (10, 100, 1000)
        >>> resolve_checkpoints("log:4", 1000)
        (1, 10, 100, 1000)
    """
    horizon = validation.integer("horizon", horizon, 1)
    if isinstance(checkpoints, str):
        if checkpoints == "all":
            return tuple(range(1, horizon + 1))
        match = re.fullmatch(r"log(?::([1-9][0-9]{0,5}))?", checkpoints)
        if match is None or match[1] == "1":
            raise ParameterError(f"checkpoints must be {_ALLOWED}, got {shown(checkpoints)}")
        points = LOG_POINTS if match[1] is None else int(match[1])
        spaced = np.rint(np.geomspace(1, horizon, points)).astype(np.int64)
    elif isinstance(checkpoints, (int, np.integer)):
        count = validation.integer("checkpoints", checkpoints, 1)
        spaced = np.linspace(0, horizon, min(count, horizon) + 1)[1:].astype(np.int64)
    else:
        try:
            rounds = list(checkpoints)
        except TypeError:
            raise ParameterError(
                f"checkpoints must be {_ALLOWED}, got {shown(checkpoints)}"
            ) from None
        for value in rounds:
            validation.integer("a checkpoint", value, 1, horizon)
        spaced = np.array([*rounds, horizon], dtype=np.int64)
    return tuple(int(t) for t in np.unique(np.append(spaced, horizon)))
