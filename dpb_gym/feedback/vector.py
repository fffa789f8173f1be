"""The vector twins of `dpb_gym.feedback.wrappers`: lane i equals a single wrapped environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorWrapper

from dpb_gym import validation
from dpb_gym.feedback.channel import ResponseChannel
from dpb_gym.feedback.features import GaussianContexts, GaussianStatistics
from dpb_gym.feedback.infos import Infos, gather, has, put, without
from dpb_gym.feedback.lanes import ORACLE_KEYS, RESPONSE_KEYS, LaneNoise, Layered, below, core_of
from dpb_gym.feedback.mechanisms import LocalMechanism, ResponseMechanism
from dpb_gym.feedback.recode import ContextRecoder, chosen_features, first_lane, private_space
from dpb_gym.feedback.wrappers import check_statistics
from dpb_gym.problems.base import Array, Feedback


class _Vector(VectorWrapper, Layered):
    """What the vector wrappers share.

    Attributes:
        truth: As for the single wrappers, arrays ``(B,)``; lanes that did not play hold 0.
    """

    def __init__(self, env: Any, mechanism: LocalMechanism) -> None:
        self._core = core_of(env, vector=True)
        super().__init__(env)
        self._mode: AutoresetMode = env.unwrapped.autoreset_mode
        self.mechanism = mechanism
        self.event = mechanism.event
        self._noise = LaneNoise(mechanism.numbers, mechanism.width, self.check_layers(env))
        self._ended = np.zeros(self.num_envs, bool)
        self.truth: dict[str, Array] = {}

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Infos]:
        observation, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        lanes = self._restarted(options)
        self._noise.follow(self._core.instance, lanes)
        self._ended[lanes] = False
        self.truth = {}
        return observation, infos

    def _restarted(self, options: dict[str, Any] | None) -> list[int]:
        mask = (options or {}).get("reset_mask")
        found: list[int] = np.flatnonzero(
            np.ones(self.num_envs, bool) if mask is None else mask
        ).tolist()
        return found

    def _before(self, actions: Any) -> tuple[Array, Array]:
        """Lanes that will play, and the decoded actions (idle elsewhere)."""
        resetting = self._ended
        if self._mode is not AutoresetMode.NEXT_STEP:
            resetting = np.zeros_like(self._ended)
        return ~resetting, self.env.unwrapped.decode_actions(actions, resetting)  # type: ignore[attr-defined]

    def _after(self, terminations: Array, truncations: Array) -> None:
        self._ended = np.asarray(terminations | truncations)
        if self._mode is AutoresetMode.SAME_STEP:
            self._ended = np.zeros_like(self._ended)
        self._noise.follow(self._core.instance)

    def _strip(self, infos: Infos, hidden: dict[str, Array]) -> Infos:
        """Moves what agents must not see from `infos` to `truth`."""
        self.truth = {**below(self.env), **hidden}
        for key in ORACLE_KEYS:
            if has(infos, key):
                self.truth[key] = gather(infos, key, self.num_envs)
        return without(infos, ORACLE_KEYS)


class VectorPrivateResponse(_Vector):
    """Vector twin of `PrivateResponse`; same arguments and errors."""

    covers = ("response",)

    def __init__(self, env: Any, mechanism: ResponseMechanism, debias: bool = False) -> None:
        self.debias = validation.flag("debias", debias)
        super().__init__(env, mechanism)
        self._channel = ResponseChannel(mechanism, self._core.problem.info)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        if self._core.instance is None:
            return self.env.step(actions)
        played, decoded = self._before(actions)
        revenues = self._core.instance.context().revenues
        revenues = None if revenues is None else revenues.copy()
        observation, rewards, terminations, truncations, infos = self.env.step(actions)
        if not played.any():
            self._after(terminations, truncations)
            return observation, np.zeros(self.num_envs), terminations, truncations, infos
        numbers = self._noise.draw(played)
        hidden = {"reward": np.array(rewards, dtype=np.float64)}
        known = {k: gather(infos, k, self.num_envs) for k in RESPONSE_KEYS if has(infos, k)}
        hidden |= known
        extra = dict(known)
        if has(infos, "observed"):
            extra["observed"] = gather(infos, "observed", self.num_envs).astype(bool)
        sent, estimate = self._channel.send(
            revenues, decoded, Feedback(hidden["reward"], **extra), numbers
        )
        infos = without(self._strip(infos, hidden), RESPONSE_KEYS)
        for key in RESPONSE_KEYS:
            message = getattr(sent, key)
            if message is not None:
                put(infos, key, message, played)
        received = np.where(played, estimate if self.debias else sent.reward, 0.0)
        self._after(terminations, truncations)
        return observation, received, terminations, truncations, infos


class VectorPrivateContexts(_Vector):
    """Vector twin of `PrivateContexts`; same arguments and errors."""

    covers = ("context",)

    def __init__(self, env: Any, mechanism: GaussianContexts) -> None:
        super().__init__(env, mechanism)
        self._recoder = ContextRecoder(self._core, mechanism, self._noise)
        bound = mechanism.bound
        self.single_observation_space = private_space(
            env.single_observation_space, self._core, bound
        )
        self.observation_space = private_space(env.observation_space, self._core, bound)
        self._last: Any = None

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Infos]:
        _, infos = super().reset(seed=seed, options=options)
        self._last = self._recoder.batch(self._restarted(options))
        return _copied(self._last), infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        _, rewards, terminations, truncations, infos = self.env.step(actions)
        infos = self._strip(infos, {})
        if "final_obs" in infos:
            infos["final_obs"] = self._final(infos["final_obs"], infos["_final_obs"])
        self._after(terminations, truncations)
        self._last = self._recoder.batch()
        return _copied(self._last), rewards, terminations, truncations, infos

    def _final(self, given: Array, ended: Array) -> Array:
        """The ended lanes' last observations: what was shown of their last customer."""
        shown = given.copy()
        for i in np.flatnonzero(ended):
            shown[i] = first_lane(self._last, int(i))
        return shown


class VectorPrivateStatistics(_Vector):
    """Vector twin of `PrivateStatistics`; ``infos["gram"]`` is ``(B, d, d)``."""

    covers = ("response", "context")

    def __init__(self, env: Any, mechanism: GaussianStatistics) -> None:
        super().__init__(env, mechanism)
        check_statistics(self._core.problem.info, mechanism)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        if self._core.instance is None:
            return self.env.step(actions)
        played, decoded = self._before(actions)
        features = chosen_features(self._core, decoded)
        observation, rewards, terminations, truncations, infos = self.env.step(actions)
        truth = np.array(rewards, dtype=np.float64)
        gram, response = self.mechanism.privatise(  # type: ignore[attr-defined]
            features, truth, self._noise.draw(played)
        )
        if has(infos, "observed"):
            seen = gather(infos, "observed", self.num_envs).astype(np.float64)
            gram, response = seen[:, None, None] * gram, seen[:, None] * response
        infos = self._strip(infos, {"reward": truth})
        put(infos, "gram", gram, played)
        put(infos, "response", response, played)
        self._after(terminations, truncations)
        return observation, np.zeros(self.num_envs), terminations, truncations, infos


def _copied(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {name: value.copy() for name, value in observation.items()}
    return observation.copy()
