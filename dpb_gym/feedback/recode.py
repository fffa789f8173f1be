"""Features on their way out: noisy observations, and what was recommended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from dpb_gym import kernels
from dpb_gym.errors import ParameterError
from dpb_gym.feedback.features import GaussianContexts
from dpb_gym.feedback.lanes import LaneNoise
from dpb_gym.problems.base import Array


class ContextRecoder:
    """Encodes observations from noisy features, one draw of noise per customer.

    Args:
        core: The environment's batch core.
        mechanism: What makes features private.
        noise: Its random numbers.

    Raises:
        ParameterError: If the mechanism does not fit the problem's features.
    """

    def __init__(self, core: Any, mechanism: GaussianContexts, noise: LaneNoise) -> None:
        info = core.problem.info
        vectors = {"assortment": info.n_items, "recommendation": info.n_candidates}
        wanted = (vectors.get(info.kind, 1), info.dim - (info.kind == "pricing"))
        if not isinstance(mechanism, GaussianContexts) or (
            (mechanism.vectors, mechanism.dim) != wanted
        ):
            raise ParameterError(
                f"this problem needs GaussianContexts with vectors={wanted[0]}, "
                f"dim={wanted[1]}, got {mechanism!r}"
            )
        self._core, self._mechanism, self._noise = core, mechanism, noise
        self._shown: list[tuple[int, int, int]] = []
        self._features: Array

    def batch(self, restarted: Sequence[int] = ()) -> Any:
        """The current observation of all lanes; new noise only for new customers."""
        instance = self._core.instance
        self._noise.follow(instance, restarted)
        context = instance.context()
        now = list(zip(instance.seeds, instance.episodes, instance.t.tolist()))
        if len(self._shown) != len(now):
            self._shown = [(-1, -1, -1)] * len(now)
            self._features = np.zeros(context.features.shape, np.float32)
        fresh = np.array(
            [i in restarted or a != b for i, (a, b) in enumerate(zip(now, self._shown))]
        )
        if fresh.any():
            noisy = self._mechanism.privatise(context.features, self._noise.draw(fresh))
            self._features[fresh] = noisy[fresh]
            self._shown = now
        return self._core.observations.encode(context._replace(features=self._features))

    def single(self, restarted: Sequence[int] = ()) -> Any:
        """The current observation of the only lane."""
        return first_lane(self.batch(restarted))


def first_lane(observation: Any, i: int = 0) -> Any:
    """One lane of a batch observation, copied."""
    if isinstance(observation, dict):
        return {name: value[i].copy() for name, value in observation.items()}
    return observation[i].copy()


def private_space(space: Any, core: Any, bound: float) -> Any:
    """The space of observations whose features are at most `bound` in absolute value."""
    top = np.float32(bound)
    if isinstance(space, gymnasium.spaces.Dict):
        features = space["features"]
        assert isinstance(features, gymnasium.spaces.Box)
        named = {**space.spaces}
        named["features"] = gymnasium.spaces.Box(-top, top, features.shape, np.float32)
        return gymnasium.spaces.Dict(named)
    info = core.problem.info
    tail = info.n_items if info.kind == "assortment" else 0
    low, high = space.low.copy(), space.high.copy()
    end = low.shape[-1] - tail
    low[..., :end], high[..., :end] = -top, top
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


def chosen_features(core: Any, action: Array) -> Array:
    """Features of the recommended candidates, ``(B, d)``, clipped to the unit ball.

    Raises:
        ParameterError: If a candidate does not exist.
    """
    features = core.instance.context().features
    out = np.empty((len(features), features.shape[2]))
    bad = kernels.linear_bandit.take(features, action, np.ones(len(features), np.bool_), out)
    if bad:
        raise ParameterError(f"candidate {action[bad - 1]} of replicate {bad - 1} does not exist")
    return out
