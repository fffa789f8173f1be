"""Stable-Baselines3 on the native vector environments (needs the ``[sb3]`` extra).

Stable-Baselines3 takes single Gymnasium environments as they are, but not Gymnasium's
vector environments. `make_sb3_vec` gives it one of ours, stepped as one batch:

    >>> from dpb_gym.envs.sb3 import make_sb3_vec
    >>> venv = make_sb3_vec("DPB/Pricing-v0", num_envs=8, horizon=500)
    >>> venv.action_space
    Box(-1.0, 1.0, (1,), float32)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from dpb_gym.errors import ActionError, MissingExtraError, ParameterError
from dpb_gym.problems.base import Array

try:
    from stable_baselines3.common.vec_env import VecEnv, VecMonitor
except ImportError as error:
    raise MissingExtraError(
        "dpb_gym.envs.sb3 needs Stable-Baselines3: pip install dpb-gym[sb3]"
    ) from error


class SB3VecEnv(VecEnv):  # type: ignore[misc, unused-ignore]
    """A Gymnasium `VectorEnv` as a Stable-Baselines3 `VecEnv`.

    Episodes restart within the step that ends them; that step's info then holds
    ``terminal_observation``, and every info holds ``TimeLimit.truncated``, so that
    algorithms bootstrap at the horizon, which is a truncation. Infos are fresh
    dictionaries of Python scalars, one per environment.

    The environments are lanes of one object. `get_attr` and `env_method` ask that object
    once and repeat its answer, and `set_attr` cannot single out some lanes.

    Args:
        vector_env: The vector environment, made with same-step autoreset.
        rescale_actions: Show a bounded `Box` action space as [-1, 1] in every coordinate
            and map actions back linearly. A fresh Gaussian policy is centred at 0: on
            prices in [0, 1] half of its actions would be clipped to a price of 0.

    Raises:
        ParameterError: If `vector_env` is not a `VectorEnv` or autoresets otherwise.
    """

    def __init__(self, vector_env: VectorEnv[Any, Any, Any], rescale_actions: bool = True) -> None:
        if not isinstance(vector_env, VectorEnv):
            raise ParameterError(
                f"vector_env must be a gymnasium.vector.VectorEnv, got {type(vector_env).__name__}"
            )
        mode = vector_env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            raise ParameterError(
                "Stable-Baselines3 resets an environment in the step that ends its episode: "
                f"make the vector environment with autoreset_mode='SameStep', got {mode!r}"
            )
        self.vector_env = vector_env
        space = vector_env.single_action_space
        self._box: gymnasium.spaces.Box | None = None
        if rescale_actions and isinstance(space, gymnasium.spaces.Box) and space.is_bounded():
            self._box = space
            space = gymnasium.spaces.Box(-1.0, 1.0, space.shape, np.float32)
        self._actions: Any = None
        super().__init__(vector_env.num_envs, vector_env.single_observation_space, space)

    def reset(self) -> Any:
        """Starts an episode in every lane and returns the observations.

        Seeds of `seed` and options of `set_options` are used once. Without a seed each
        lane goes on to the next episode of its last one.
        """
        seeded = any(seed is not None for seed in self._seeds)
        if any(options != self._options[0] for options in self._options):
            raise ParameterError("set_options must give every environment the same options")
        # Gymnasium annotates an int, but documents and takes one seed per lane.
        seeds: Any = list(self._seeds) if seeded else None
        observations, infos = self.vector_env.reset(seed=seeds, options=self._options[0] or None)
        self.reset_infos = _rows(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: Any) -> None:
        """Keeps the actions of the next `step_wait`."""
        self._actions = self._unscaled(np.asarray(actions))

    def _unscaled(self, actions: Array) -> Array:
        """Actions in the vector environment's space and dtype."""
        if self._box is None:
            dtype = self.vector_env.single_action_space.dtype
            # Bernoulli policies give the bits of a MultiBinary space as floats.
            cast = actions.astype(dtype) if actions.dtype.kind in "biuf" else actions
            return cast if np.array_equal(cast, actions) else actions
        wanted = (self.num_envs, *self._box.shape)
        if actions.shape != wanted or actions.dtype.kind not in "iuf":
            raise ActionError(
                f"actions must be numbers of shape {wanted}, got {actions.dtype} {actions.shape}"
            )
        if not ((actions >= -1.0) & (actions <= 1.0)).all():
            raise ActionError("actions must lie in [-1, 1], got NaN or a number outside")
        low, high = self._box.low, self._box.high
        mapped = low + 0.5 * (actions.astype(np.float64) + 1.0) * (high - low)
        return np.clip(mapped.astype(self._box.dtype), low, high)

    def step_wait(self) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        """Plays one round in every lane.

        Returns:
            Observations (after the restart where an episode ended), rewards as float32,
            whether the episode ended, and infos.

        Raises:
            ActionError: If an action has a wrong shape, dtype or range; nothing is played.
        """
        observations, rewards, terminated, truncated, infos = self.vector_env.step(self._actions)
        dones = np.asarray(terminated) | np.asarray(truncated)
        final_observations = infos.pop("final_obs", None)
        final_infos = _rows(infos.pop("final_info", {}), self.num_envs)
        rows = _rows(infos, self.num_envs)
        for i in np.flatnonzero(dones).tolist():
            assert final_observations is not None
            self.reset_infos[i] = rows[i]
            rows[i] = {**final_infos[i], "terminal_observation": final_observations[i]}
        for i, row in enumerate(rows):
            row["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
        return observations, np.asarray(rewards, np.float32), dones, rows

    def close(self) -> None:
        """Closes the vector environment."""
        self.vector_env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Returns the vector environment's attribute once per selected environment.

        Raises:
            AttributeError: If neither the vector environment nor one it wraps has it.
        """
        value = getattr(self._holder(attr_name), attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets an attribute of the vector environment, shared by all lanes.

        Raises:
            ParameterError: If only some environments are selected.
        """
        if set(self._get_indices(indices)) != set(range(self.num_envs)):
            raise ParameterError("set_attr cannot select environments: they share one object")
        try:
            holder = self._holder(attr_name)
        except AttributeError:
            holder = self.vector_env
        setattr(holder, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of the vector environment once; see `get_attr`."""
        method = getattr(self._holder(method_name), method_name)
        result = method(*method_args, **method_kwargs)
        return [result for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Whether the vector environment is wrapped in the given vector wrapper."""
        wrapped = any(isinstance(layer, wrapper_class) for layer in self._layers()[:-1])
        return [wrapped for _ in self._get_indices(indices)]

    def _layers(self) -> list[VectorEnv[Any, Any, Any]]:
        layers = [self.vector_env]
        while isinstance(layers[-1], VectorWrapper):
            layers.append(layers[-1].env)
        return layers

    def _holder(self, name: str) -> VectorEnv[Any, Any, Any]:
        for layer in self._layers():
            if hasattr(layer, name):
                return layer
        raise AttributeError(f"{self.vector_env!r} has no attribute {name!r}")


def _rows(infos: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Splits Gymnasium's dictionary of arrays into one dictionary per environment."""
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, values in infos.items():
        if f"_{key}" not in infos:  # the masks themselves
            continue
        present = infos[f"_{key}"].tolist()
        if isinstance(values, dict):
            column: Sequence[Any] = _rows(values, count)
        else:
            column = values.tolist() if values.ndim == 1 else [value.copy() for value in values]
        for row, held, value in zip(rows, present, column):
            if held:
                row[key] = value
    return rows


def make_sb3_vec(
    env_id: str, num_envs: int = 1, *, rescale_actions: bool = True, **kwargs: Any
) -> VecMonitor:
    """Makes one of our environments for Stable-Baselines3, natively vectorised.

    For a single environment, ``gymnasium.make`` does as well; then wrap a `Box` of prices
    in ``gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))``. Episodes are
    monitored, so that Stable-Baselines3 prints their mean reward.

    Args:
        env_id: Environment id, e.g. ``"DPB/Pricing-v0"``.
        num_envs: Number of lanes.
        rescale_actions: See `SB3VecEnv`.
        **kwargs: Parameters of the environment.

    Raises:
        UnknownNameError: If the id is not ours.
        ParameterError: If a parameter is unknown or out of range.
    """
    from dpb_gym.envs.catalogue import environment

    made = gymnasium.make_vec(
        environment(env_id).id,
        num_envs=num_envs,
        autoreset_mode=AutoresetMode.SAME_STEP,
        **kwargs,
    )
    return VecMonitor(SB3VecEnv(made, rescale_actions=rescale_actions))
