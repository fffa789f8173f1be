"""What every feedback wrapper is: one layer over B lanes, of which a single environment is one.

Nothing that depends on protected data leaves a layer but the message. What the harness needs to
keep the score, the true reward and the oracle's numbers, moves from ``info`` to the attribute
`truth`; agents have no business there. Noise comes from the replicate's own stream for local
privacy, so a single environment and a lane of a vector one with the same seed send the same
messages, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorWrapper

from dpb_gym import kernels, portable
from dpb_gym.envs.core import lane
from dpb_gym.errors import ParameterError, shown
from dpb_gym.feedback.mechanisms import NORMAL, LocalMechanism
from dpb_gym.privacy import Composition, Guarantee
from dpb_gym.problems.base import Array, Feedback, ProblemInfo
from dpb_gym.problems.delay import Tray
from dpb_gym.problems.kinds import kind_of
from dpb_gym.streams import Stream, generator

Infos = dict[str, Any]
Rows = dict[str, Array]
ORACLE_KEYS = ("expected_reward", "oracle_reward", "regret")
FEEDBACK_KEYS = ("choice", "demand", "answer", "observed")
# Stock, whose differences are responses, and what `RecordEpisodeStatistics` beneath adds up.
RAW = ("left", "episode")


def noise_generator(
    seed: int, mechanism: LocalMechanism, episode: int = 0, layer: int = 0, key: str = ""
) -> np.random.Generator:
    """Generator of the local noise of one replicate.

    Args:
        seed: Seed of the replicate.
        mechanism: What a message is: two budgets must not share their noise.
        episode: Number of the episode inside an environment; the harness uses 0.
        layer: Number of feedback wrappers beneath; every layer needs noise of its own.
        key: Whose agent learns from it, in the harness.
    """
    configuration = f"{mechanism.event}{key}"
    return generator(seed, Stream.LOCAL_PRIVACY, episode, configuration).spawn(layer + 1)[layer]


class Layer:
    """One feedback wrapper; `SingleLayer` and `VectorLayer` are its two shells.

    Attributes:
        covers: What it makes private: ``"response"``, ``"context"``.
        withheld: Keys of ``info`` that a message replaces.
        mechanism: What a message is.
        truth: What was taken out of the last step: ``reward``, ``choice`` or ``demand``,
            ``expected_reward``, ``oracle_reward``, ``regret``; in vector environments arrays
            ``(B,)``, 0 in lanes that did not play. For the harness only.
    """

    covers: ClassVar[tuple[str, ...]] = ()
    withheld: ClassVar[tuple[str, ...]] = ()
    mechanism: LocalMechanism
    truth: dict[str, Any]
    env: Any

    def _wrap(self, env: Any, **arguments: Any) -> None:
        """Makes the Gymnasium wrapper; `arguments` are the constructor's, by name."""
        raise NotImplementedError

    def _set_up(self, core: Any, lanes: int) -> None:
        self._core, self._lanes = core, lanes
        self.metadata = {**self.env.metadata, "render_modes": []}
        self.truth = {}
        self._names: list[tuple[int, int]] = [(-1, -1)] * lanes
        self._generators: list[np.random.Generator] = [np.random.default_rng()] * lanes
        beneath = layers(self.env)
        self._layer = len(beneath)
        self._tray = Tray(kind_of(core.problem.kind).nothing)
        for other in beneath:
            both = [part for part in self.covers if part in other.covers]
            if both:
                raise ParameterError(
                    f"{type(other).__name__} beneath already covers the {' and '.join(both)}; "
                    f"{type(self).__name__} cannot be put on top of it"
                )
        self._fit(core.problem.info)

    def _fit(self, info: ProblemInfo) -> None:
        """Raises `ParameterError` unless the mechanism fits the problem."""
        raise NotImplementedError

    def _follow(self, restarted: Sequence[int] = ()) -> None:
        """Opens the lanes whose replicate or episode is new, or that were restarted."""
        instance = self._core.instance
        for i, name in enumerate(zip(instance.seeds, instance.episodes)):
            if i in restarted or name != self._names[i]:
                self._names[i] = name
                self._open(i, *name)

    def _open(self, i: int, seed: int, episode: int) -> None:
        """Starts an episode in lane i."""
        self._generators[i] = noise_generator(seed, self.mechanism, episode, self._layer)

    def _draw(self, lanes: Array) -> Array:
        """The mechanism's numbers ``(B, width)``; rows outside the mask draw nothing and are 0."""
        out = np.zeros((self._lanes, self.mechanism.width))
        for i in np.flatnonzero(lanes):
            if self.mechanism.numbers == NORMAL:
                portable.fill_normals(self._generators[i], out[i])
            else:
                self._generators[i].random(out=out[i])
        return out

    def _look(self, decoded: Array) -> Rows:
        """What a message needs of the current round, before the environment moves on."""
        return {}

    def _deliver(self, seen: Rows, feedback: Feedback, played: Array) -> tuple[Array, Rows]:
        """Rewards and messages about the response that arrives, and the round it belongs to."""
        mailbox = self._core.mailbox
        if mailbox is not None:
            seen, arrived = mailbox.swap(self._tray, seen), mailbox.arrived
            both = arrived if feedback.observed is None else arrived & feedback.observed
            feedback = feedback._replace(observed=both)
        return self._send(seen, feedback, played)

    def _exchange(
        self, seen: Rows, rewards: Array, known: Rows, played: Array
    ) -> tuple[Array, Rows]:
        """Rewards and messages of one round; what they replace goes to `truth`."""
        below = layers(self.env)
        self.truth = dict(below[0].truth) if below else {}
        if "response" in self.covers:
            self.truth["reward"] = rewards
        self.truth |= {k: v for k, v in known.items() if k in ORACLE_KEYS + self.withheld}
        if not played.any():
            return rewards, {}
        response = {k: v for k, v in known.items() if k in FEEDBACK_KEYS}
        return self._deliver(seen, Feedback(rewards, **response), played)

    def _send(self, seen: Rows, feedback: Feedback, played: Array) -> tuple[Array, Rows]:
        """Rewards ``(B,)`` and messages by key that arrive instead of the truth."""
        return feedback.reward, {}

    def _show(self) -> Any:
        """The batch observation that arrives; None leaves the environment's own."""
        return None

    def render(self) -> Any:
        """Nothing: pictures show the raw response. ``env.unwrapped`` draws them.

        Raises:
            ParameterError: Always, but None without a render mode.
        """
        if self.env.render_mode is None:
            return None
        raise ParameterError("a picture would show the raw response: render env.unwrapped instead")

    @property
    def guarantee(self) -> Guarantee:
        """What all layers together promise for one user-round.

        Private responses alone protect the response, contexts and actions being public
        (unit ``"reward"``); together with private contexts the whole user-round. Private
        contexts alone promise nothing: the raw response depends on the context.
        """
        stack = layers(self)
        events = [layer.mechanism.event for layer in reversed(stack)]
        covered = {part for layer in stack for part in layer.covers}
        if "response" not in covered:
            return Guarantee.none("local", "user-round")
        unit = "user-round" if "context" in covered else "reward"
        return Guarantee("local", unit, "replace-one", Composition.of(*events))


class ChosenLayer(Layer):
    """A layer whose messages are of the features x of the recommended candidates."""

    def _fit(self, info: ProblemInfo) -> None:
        if info.kind != "recommendation":
            raise ParameterError(f"sums of r x exist for recommendation, not for {info.kind}")

    def _look(self, decoded: Array) -> Rows:
        """Features ``(B, d)``, clipped to the unit ball."""
        features = self._core.instance.context().features
        out = np.empty((len(features), features.shape[2]))
        kernels.recommendation.take(features, decoded, np.ones(len(features), np.bool_), out)
        return {"chosen": out}

    @staticmethod
    def _chosen(seen: Rows, feedback: Feedback) -> Array:
        """The features, 0 where nothing was observed."""
        if feedback.observed is None:
            return seen["chosen"]
        return seen["chosen"] * feedback.observed[:, None]


class SingleLayer(Layer, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A layer with one lane over a single environment."""

    def _wrap(self, env: Any, **arguments: Any) -> None:
        core = core_of(env, gymnasium.Env)
        gymnasium.Wrapper.__init__(self, env)
        self._set_up(core, 1)
        RecordConstructorArgs.__init__(self, **arguments)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._follow([0])
        self.truth = {}
        return self._shown(observation), info

    def _shown(self, observation: Any) -> Any:
        shown = self._show()
        return observation if shown is None else lane(shown, 0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._core.instance is None:
            return self.env.step(action)  # type: ignore[no-any-return]
        seen = self._look(self._core.actions.decode(action))
        observation, reward, terminated, truncated, info = self.env.step(action)
        known = {k: np.array([info[k]]) for k in ORACLE_KEYS + FEEDBACK_KEYS if k in info}
        rewards = np.array([reward], np.float64)
        received, messages = self._exchange(seen, rewards, known, np.ones(1, bool))
        own = {k for k in known if k in ORACLE_KEYS + self.withheld}
        own |= {"reward"} if "response" in self.covers else set()
        self.truth = {k: _only(v) if k in own else v for k, v in self.truth.items()}
        kept = {k: v for k, v in info.items() if k not in ORACLE_KEYS + RAW + self.withheld}
        for key, message in messages.items():
            kept[key] = _only(message)
        return self._shown(observation), float(received[0]), terminated, truncated, kept


def _only(rows: Array) -> Any:
    """The one lane of ``(1, ...)``."""
    return rows[0].item() if rows.ndim == 1 else rows[0]


class VectorLayer(Layer, VectorWrapper):
    """A layer over a vector environment: lane i equals a single wrapped environment."""

    def _wrap(self, env: Any, **arguments: Any) -> None:
        core = core_of(env, gymnasium.vector.VectorEnv)
        VectorWrapper.__init__(self, env)
        self._set_up(core, self.num_envs)
        self._mode: AutoresetMode = env.unwrapped.autoreset_mode
        self._ended = np.zeros(self.num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Infos]:
        observation, infos = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self._follow(np.flatnonzero(mask).tolist())
        self._ended = self._ended & ~mask
        self.truth = {}
        return self._shown(observation), infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        if self._core.instance is None:
            return self.env.step(actions)  # type: ignore[no-any-return]
        played, lanes = ~self._ended, self.num_envs
        seen = self._look(self.env.unwrapped.decode_actions(actions, self._ended))
        observation, rewards, terminations, truncations, infos = self.env.step(actions)
        gathered = {k: _gather(infos, k, lanes) for k in ORACLE_KEYS + FEEDBACK_KEYS}
        known = {k: v for k, v in gathered.items() if v is not None}
        rewards = np.array(rewards, np.float64)
        received, messages = self._exchange(seen, rewards, known, played)
        received = np.where(played, received, 0.0)
        infos = _without(infos, ORACLE_KEYS + RAW + self.withheld)
        for key, message in messages.items():
            _put(infos, key, message, played)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._ended = np.asarray(terminations | truncations)
        self._follow()
        return self._shown(observation), received, terminations, truncations, infos

    def _shown(self, observation: Any) -> Any:
        shown = self._show()
        return observation if shown is None else shown


def core_of(env: Any, base: type) -> Any:
    """The batch core of a DPB environment, from which wrappers read the current round.

    Args:
        env: An environment, wrapped or not.
        base: ``gymnasium.Env`` or ``gymnasium.vector.VectorEnv``, which it must be.

    Raises:
        ParameterError: If it is another kind of environment.
    """
    other = gymnasium.vector.VectorEnv if base is gymnasium.Env else gymnasium.Env
    if isinstance(env, other):
        twin = "with" if base is gymnasium.Env else "without"
        raise ParameterError(
            f"{shown(env)} needs the twin of this wrapper {twin} Vector in its name"
        )
    core = getattr(getattr(env, "unwrapped", None), "core", None)
    if core is None or not hasattr(core, "problem"):
        raise ParameterError(
            f"private feedback wraps dpb-gym's environments, single or vector; got {shown(env)}"
        )
    return core


def layers(env: Any) -> list[Layer]:
    """Feedback wrappers from `env` downwards."""
    found = []
    while env is not None:
        if isinstance(env, Layer):
            found.append(env)
        env = env.__dict__.get("env")
    return found


# Infos of vector environments are arrays with masks; what autoreset ended lies in final_info.


def _gather(infos: Infos, key: str, lanes: int) -> Array | None:
    """Values of the round just played, wherever autoreset put them; None if there are none."""
    final, kept = infos.get("final_info", {}), infos.get(key)
    if key not in final:
        return kept if kept is None else np.array(kept)
    other = np.zeros(lanes, np.asarray(final[key]).dtype) if kept is None else kept
    return np.where(final[f"_{key}"], final[key], other)


def _without(infos: Infos, keys: Sequence[str]) -> Infos:
    """A copy without some keys, final_info included."""
    dropped = {name for key in keys for name in (key, f"_{key}")}
    kept = {k: v for k, v in infos.items() if k not in dropped}
    if "final_info" in kept:
        kept["final_info"] = _without(kept["final_info"], keys)
    return kept


def _put(infos: Infos, key: str, values: Array, played: Array) -> None:
    """Stores the values of the lanes that played, in final_info for lanes restarted at once."""
    final = infos.get("final_info")
    ended = np.zeros(len(played), bool) if final is None else np.asarray(infos["_final_info"])
    for home, mask in ((final, played & ended), (infos, played & ~ended)):
        if home is not None and mask.any():
            kept = mask.reshape(len(mask), *(1,) * (values.ndim - 1))
            home[key] = np.where(kept, values, np.zeros((), values.dtype))
            home[f"_{key}"] = mask
