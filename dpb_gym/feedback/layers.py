"""What every feedback wrapper is: one layer over B lanes, of which a single environment is one.

While it steps, a wrapper has the environment's core send messages instead of the truth, so that
nothing else that depends on protected data leaves the environment, for wrappers beneath either.
What the harness needs to keep the score, the true reward and the oracle's numbers, moves from
``info`` to the attribute `truth`; agents have no business there. Noise comes from the replicate's
own stream for local privacy, so a single environment and a lane of a vector one with the same seed
send the same messages, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorWrapper

from dpb_gym import kernels, portable
from dpb_gym.envs.core import only
from dpb_gym.errors import ParameterError, shown
from dpb_gym.feedback.local_mechanisms import NORMAL, LocalMechanism
from dpb_gym.privacy import Composition, Guarantee
from dpb_gym.problems.base import Array, Feedback, ProblemInfo
from dpb_gym.problems.delay import DelayBuffer
from dpb_gym.problems.kinds import kind_of
from dpb_gym.streams import Stream, generator

Rows = dict[str, Array]
ORACLE_KEYS = ("expected_reward", "oracle_reward", "regret")


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
    """

    covers: ClassVar[tuple[str, ...]] = ()
    withheld: ClassVar[tuple[str, ...]] = ()
    mechanism: LocalMechanism
    env: Any

    def _wrap(self, env: Any, **arguments: Any) -> None:
        """Makes the Gymnasium wrapper; `arguments` are the constructor's, by name."""
        raise NotImplementedError

    def _set_up(self, core: Any, lanes: int) -> None:
        self._core, self._lanes = core, lanes
        self.metadata = {**self.env.metadata, "render_modes": []}
        self._truth: dict[str, Array] = {}
        self._generators: list[np.random.Generator] = [np.random.default_rng()] * lanes
        beneath = layers(self.env)
        self._layer = len(beneath)
        self._delay_buffer = DelayBuffer(kind_of(core.problem.kind).nothing)
        for other in beneath:
            both = [part for part in self.covers if part in other.covers]
            if both:
                raise ParameterError(
                    f"{type(other).__name__} beneath already covers the {' and '.join(both)}; "
                    f"{type(self).__name__} cannot be put on top of it"
                )
        self._fit(core.problem.info)

    @property
    def truth(self) -> dict[str, Any]:
        """What was taken out of the last step: ``reward``, ``choice`` or ``demand``,
        ``expected_reward``, ``oracle_reward``, ``regret``; in vector environments arrays ``(B,)``,
        0 in lanes that did not play. For the harness only."""
        return self._truth

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Within it, the environment's core has this layer and those beneath change what leaves."""
        outermost = not self._core.layers
        if outermost:
            self._core.layers = tuple(reversed(layers(self)))
        try:
            yield
        finally:
            if outermost:
                self._core.layers = ()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Starts episodes; see the environment's own."""
        self._truth = {}
        with self._at_work():
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Plays one round; see the environment's own."""
        with self._at_work():
            return self.env.step(action)

    def _fit(self, info: ProblemInfo) -> None:
        """Raises `ParameterError` unless the mechanism fits the problem."""
        raise NotImplementedError

    def open(self, i: int, seed: int, episode: int) -> None:
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

    def exchange(
        self, action: Array, feedback: Feedback, infos: Rows, played: Array
    ) -> tuple[Feedback, Rows]:
        """Feedback and info of one round as they leave; what they replace goes to `truth`.

        With a delay, messages are about the response that arrives, and the round it belongs to.
        """
        below, hidden = layers(self.env), ORACLE_KEYS + self.withheld
        truth = {k: v for k, v in infos.items() if k in hidden}
        if "response" in self.covers:
            truth["reward"] = feedback.reward
        truth = {k: np.where(played, v.T, v.dtype.type(0)).T for k, v in truth.items()}
        self._truth = {**below[0]._truth, **truth} if below else truth
        seen, arrivals = self._look(action), self._core.arrivals
        if arrivals is not None:
            seen = arrivals.swap(self._delay_buffer, seen)
        rewards, messages = self._send(seen, feedback, played)
        kept = {k: v for k, v in infos.items() if k not in hidden}
        return feedback._replace(reward=rewards), kept | messages

    def _send(self, seen: Rows, feedback: Feedback, played: Array) -> tuple[Array, Rows]:
        """Rewards ``(B,)`` and messages by key that arrive instead of the truth."""
        return feedback.reward, {}

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
        everybody, weight = np.ones(len(features), np.bool_), np.empty(len(features))
        kernels.recommendation.take(features, decoded, everybody, out, weight)
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

    @property
    def truth(self) -> dict[str, Any]:
        """See `Layer`; numbers."""
        return {name: only(rows) for name, rows in self._truth.items()}


class VectorLayer(Layer, VectorWrapper):
    """A layer over a vector environment: lane i equals a single wrapped environment."""

    def _wrap(self, env: Any, **arguments: Any) -> None:
        core = core_of(env, gymnasium.vector.VectorEnv)
        VectorWrapper.__init__(self, env)
        self._set_up(core, self.num_envs)


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
