"""Observation modes: a flat float32 box, or a dictionary of named arrays."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from dpb_gym import validation
from dpb_gym.problems.base import Array, Context, Problem
from dpb_gym.problems.kinds import kind_of

OBS_MODES = ("flat", "dict")


class Observations:
    """Turns contexts into observations, for a whole batch at once.

    ``"flat"``: the features in C order, followed by the revenues for assortments.
    ``"dict"``: ``features`` (assortment ``(N, d)``, pricing ``(d - 1,)``, recommendation
    ``(n_candidates, d)``), ``revenues`` ``(N,)`` for assortments, ``user`` ``(1,)``
    where users are identified, and the bits ``available`` where not everything can always be
    offered (flat observations leave the user and these bits out, ``info`` has the bits).

    Attributes:
        space: Gymnasium space of a single observation.
    """

    def __init__(self, problem: Problem, obs_mode: str = "flat") -> None:
        self.mode = validation.choice("obs_mode", obs_mode, OBS_MODES)
        info = problem.info
        kind = kind_of(info.kind)
        shape = kind.feature_shape(info)
        bound = np.float32(problem.feature_bound)
        parts: dict[str, Any] = {"features": gymnasium.spaces.Box(-bound, bound, shape, np.float32)}
        if kind.revenues:
            least, most = info.reward_range
            # Revenues that are all 0 would make an empty box.
            ends = np.float32(least), np.float32(most if least < most else 1.0)
            parts["revenues"] = gymnasium.spaces.Box(*ends, shape[:1], np.float32)
        self._user = info.max_interactions is not None
        self.space: gymnasium.Space[Any]
        if self.mode == "dict":
            if self._user:
                parts["user"] = gymnasium.spaces.Box(0, problem.horizon, (1,), np.int64)
            if info.masked:
                parts["available"] = gymnasium.spaces.MultiBinary(shape[0])
            self.space = gymnasium.spaces.Dict(parts)
        else:
            low = np.concatenate([box.low.ravel() for box in parts.values()])
            high = np.concatenate([box.high.ravel() for box in parts.values()])
            self.space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def encode(self, context: Context) -> Array | dict[str, Array]:
        """Returns fresh arrays with leading axis B."""
        if self.mode == "flat":
            flat = context.features.reshape(len(context.features), -1)
            if context.revenues is None:
                return flat.copy()
            return np.concatenate([flat, context.revenues], axis=1)
        named = {"features": context.features.copy()}
        if context.revenues is not None:
            named["revenues"] = context.revenues.copy()
        if self._user:
            assert context.users is not None
            named["user"] = context.users.astype(np.int64)[:, None]
        if context.available is not None:
            named["available"] = context.available.astype(np.int8)
        return named


def lane(observation: Array | dict[str, Array], i: int) -> Any:
    """Returns one replicate's observation."""
    if isinstance(observation, dict):
        return {name: value[i].copy() for name, value in observation.items()}
    return observation[i].copy()
