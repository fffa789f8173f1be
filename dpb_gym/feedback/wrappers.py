"""Gymnasium wrappers: the agent sees private messages instead of the truth.

The reward, the observation and ``info`` of a wrapped environment hold nothing that depends on
protected data but the message. What the harness needs to keep the score, the true reward and
the oracle's numbers, moves from ``info`` to the wrapper's attribute `truth`; agents have no
business there. Noise comes from the replicate's own stream for local privacy, so a single
environment and a lane of a vector one with the same seed send the same messages, bit for bit.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.feedback.channel import ResponseChannel
from dpb_gym.feedback.features import GaussianContexts, GaussianStatistics
from dpb_gym.feedback.lanes import (
    ORACLE_KEYS,
    RESPONSE_KEYS,
    LaneNoise,
    Layered,
    below,
    core_of,
)
from dpb_gym.feedback.mechanisms import LocalMechanism, ResponseMechanism
from dpb_gym.feedback.recode import ContextRecoder, chosen_features, private_space
from dpb_gym.problems.base import Feedback

_ONE = np.ones(1, bool)


class _Single(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs, Layered):
    """What the single wrappers share.

    Attributes:
        truth: What was taken out of the last step: ``reward``, ``choice`` or ``demand``,
            ``expected_reward``, ``oracle_reward``, ``regret``. For the harness only.
    """

    def __init__(self, env: Any, mechanism: LocalMechanism, **recorded: Any) -> None:
        RecordConstructorArgs.__init__(self, mechanism=mechanism, **recorded)
        self._core = core_of(env, vector=False)
        gymnasium.Wrapper.__init__(self, env)
        self.mechanism = mechanism
        self.event = mechanism.event
        layer = self.check_layers(env)
        self._noise = LaneNoise(mechanism.numbers, mechanism.width, layer)
        self.truth: dict[str, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._noise.follow(self._core.instance, [0])
        self.truth = {}
        return observation, info

    def _strip(self, info: dict[str, Any], hidden: dict[str, Any]) -> dict[str, Any]:
        """Moves what agents must not see from `info` to `truth`."""
        self.truth = {**below(self.env), **hidden}
        self.truth |= {key: info[key] for key in ORACLE_KEYS if key in info}
        return {key: value for key, value in info.items() if key not in ORACLE_KEYS}

    def _decode(self, action: Any) -> Any:
        return self._core.actions.decode(np.asarray(action)[None], 1)


class PrivateResponse(_Single):
    """The response of every round passes through a local mechanism.

    See `ResponseChannel` for what the message is in each kind of problem. The reward is
    computed from the message (``debias=True``: an unbiased estimate of the true reward);
    ``info["choice"]`` and ``info["demand"]`` are the message, or gone.

    Args:
        env: A dpb-gym environment.
        mechanism: `RandomizedResponse`, `GaussianResponse` or `LaplaceResponse`.
        debias: Whether the reward is the unbiased estimate.

    Raises:
        ParameterError: If the mechanism does not fit the problem.

    Example:
        >>> import gymnasium, dpb_gym
        >>> from dpb_gym.feedback import RandomizedResponse
        >>> env = gymnasium.make("DPB/Pricing-v0", horizon=10)
        >>> env = PrivateResponse(env, RandomizedResponse(epsilon=1.0))
        >>> str(env.guarantee)
        'local DP eps=1 per reward (replace-one)'
    """

    covers = ("response",)

    def __init__(self, env: Any, mechanism: ResponseMechanism, debias: bool = False) -> None:
        self.debias = validation.flag("debias", debias)
        super().__init__(env, mechanism, debias=debias)
        self._channel = ResponseChannel(mechanism, self._core.problem.info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._core.instance is None:
            return self.env.step(action)  # type: ignore[return-value]
        decoded = self._decode(action)
        revenues = self._core.instance.context().revenues
        revenues = None if revenues is None else revenues.copy()
        observation, reward, terminated, truncated, info = self.env.step(action)
        truth = {"reward": float(reward), **{k: info[k] for k in RESPONSE_KEYS if k in info}}
        feedback = Feedback(
            np.array([reward], dtype=np.float64),
            **{k: np.array([info[k]]) for k in (*RESPONSE_KEYS, "observed") if k in info},
        )
        sent, estimate = self._channel.send(revenues, decoded, feedback, self._noise.draw(_ONE))
        info = self._strip(info, truth)
        for key in RESPONSE_KEYS:
            message = getattr(sent, key)
            if message is not None:
                info[key] = message[0].item()
            else:
                info.pop(key, None)
        received = estimate if self.debias else sent.reward
        return observation, float(received[0]), terminated, truncated, info


class PrivateContexts(_Single):
    """Every customer's features arrive clipped and with Gaussian noise.

    One customer is shown once: an observation that repeats the last customer's repeats the
    same noisy one. Revenues and user ids stay as they are.

    Args:
        env: A dpb-gym environment.
        mechanism: `GaussianContexts` for the problem's number and length of features.

    Raises:
        ParameterError: If the mechanism does not fit the problem.
    """

    covers = ("context",)

    def __init__(self, env: Any, mechanism: GaussianContexts) -> None:
        super().__init__(env, mechanism)
        self._recoder = ContextRecoder(self._core, mechanism, self._noise)
        self.observation_space = private_space(env.observation_space, self._core, mechanism.bound)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        _, info = super().reset(seed=seed, options=options)
        return self._recoder.single([0]), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._recoder.single(), reward, terminated, truncated, self._strip(info, {})


class PrivateStatistics(_Single):
    """Each round's statistics x x' and r x arrive as one Gaussian message, in ``info``.

    ``info["gram"]`` ``(d, d)`` and ``info["response"]`` ``(d,)`` are the message; the reward is
    always 0. The observation shows the current customer's context, from which the action is
    chosen on the customer's side; what an agent keeps must come from the messages, or the
    guarantee is not its own. Recommendation only; a rejected replay round sends zeros.

    Args:
        env: A dpb-gym recommendation environment.
        mechanism: `GaussianStatistics` of the problem's dimension.

    Raises:
        ParameterError: If the mechanism does not fit the problem.
    """

    covers = ("response", "context")

    def __init__(self, env: Any, mechanism: GaussianStatistics) -> None:
        super().__init__(env, mechanism)
        check_statistics(self._core.problem.info, mechanism)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._core.instance is None:
            return self.env.step(action)  # type: ignore[return-value]
        features = chosen_features(self._core, self._decode(action))
        observation, reward, terminated, truncated, info = self.env.step(action)
        rewards = np.array([reward], dtype=np.float64)
        gram, response = self.mechanism.privatise(  # type: ignore[attr-defined]
            features, rewards, self._noise.draw(_ONE)
        )
        seen = float(info.get("observed", True))
        info = self._strip(info, {"reward": float(reward)})
        info["gram"], info["response"] = seen * gram[0], seen * response[0]
        return observation, 0.0, terminated, truncated, info


def check_statistics(info: Any, mechanism: GaussianStatistics) -> None:
    """Raises `ParameterError` unless the mechanism fits the problem."""
    if info.kind != "recommendation":
        raise ParameterError(f"statistics x x', r x exist for recommendation, not {info.kind}")
    if not isinstance(mechanism, GaussianStatistics) or mechanism.dim != info.dim:
        raise ParameterError(
            f"this problem needs GaussianStatistics with dim={info.dim}, got {mechanism!r}"
        )
