"""Vector environments for Stable-Baselines3 (needs the ``[sb3]`` extra).

Stable-Baselines3 accepts single environments without changes. `make_sb3_vec` returns several:

    >>> from dpb_gym.envs.sb3 import make_sb3_vec
    >>> venv = make_sb3_vec("DPB/Pricing-v0", num_envs=8, horizon=500)
    >>> venv.action_space
    Box(-1.0, 1.0, (1,), float32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from dpb_gym import validation
from dpb_gym.envs.registration import environment
from dpb_gym.errors import ActionError, MissingExtraError, ParameterError
from dpb_gym.problems.base import Array

try:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor
except ImportError as error:
    raise MissingExtraError(
        "dpb_gym.envs.sb3 needs Stable-Baselines3: pip install dpb-gym[sb3]"
    ) from error


class SB3VecEnv(DummyVecEnv):  # type: ignore[misc, unused-ignore]
    """Vector of environments whose bounded `Box` actions are rescaled to [-1, 1].

    An untrained Gaussian policy is centred at 0: on prices in [0, 1] half of its actions would be
    clipped to a price of 0. Other action spaces are unchanged.

    Args:
        env_fns: Functions that make the environments, as for `DummyVecEnv`.

    Raises:
        ParameterError: If it is a vector environment: Stable-Baselines3 steps single ones.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]]) -> None:
        if isinstance(env_fns, gymnasium.vector.VectorEnv):
            raise ParameterError(
                "SB3VecEnv takes functions that make single environments, no VectorEnv: see "
                "make_sb3_vec"
            )
        super().__init__(list(env_fns))
        self._box: gymnasium.spaces.Box | None = None
        space = self.action_space
        if isinstance(space, gymnasium.spaces.Box) and space.is_bounded():
            self._box = space
            self.action_space = gymnasium.spaces.Box(-1.0, 1.0, space.shape, np.float32)

    def step_async(self, actions: Array) -> None:
        """Store the actions of the next `step_wait`.

        Raises:
            ActionError: If rescaled actions have a wrong shape or lie outside [-1, 1].
        """
        if self._box is not None:
            wanted = (self.num_envs, *self._box.shape)
            actions = np.asarray(actions)
            if actions.shape != wanted or actions.dtype.kind not in "iuf":
                raise ActionError(
                    f"actions must be numbers of shape {wanted}, got {actions.dtype} "
                    f"{actions.shape}"
                )
            if not ((actions >= -1.0) & (actions <= 1.0)).all():
                raise ActionError("actions must lie in [-1, 1], got NaN or a number outside")
            low = self._box.low
            high = self._box.high
            mapped = low + 0.5 * (actions.astype(np.float64) + 1.0) * (high - low)
            actions = np.clip(mapped.astype(self._box.dtype), low, high)
        super().step_async(actions)


def make_sb3_vec(
    env_id: str, num_envs: int = 1, *, rescale_actions: bool = True, **kwargs: Any
) -> VecMonitor:
    """Return monitored environments, of which Stable-Baselines3 prints the mean reward.

    For a single environment, ``gymnasium.make`` is enough; then wrap a `Box` of prices
    in ``gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))``.

    Args:
        env_id: Environment id, e.g. ``"DPB/Pricing-v0"``.
        num_envs: Number of environments.
        rescale_actions: Whether to rescale bounded `Box` actions to [-1, 1], see `SB3VecEnv`.
        **kwargs: Parameters of the environment.

    Raises:
        UnknownNameError: If the id is not registered.
        ParameterError: If a parameter is unknown or out of range.
    """
    make = partial(gymnasium.make, environment(env_id).id, **kwargs)
    several: list[Any] = [make] * validation.integer("num_envs", num_envs, 1)
    return VecMonitor((SB3VecEnv if rescale_actions else DummyVecEnv)(several))
