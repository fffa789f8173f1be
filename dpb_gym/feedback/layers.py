"""Base classes of the feedback wrappers, for single (one lane) and vector environments (B lanes).

During a step, the environment's core returns messages instead of the true feedback. So nothing else
that depends on protected data leaves the environment, also with other wrappers in between. The true
reward and the oracle's values move from ``info`` to the attribute `truth`, for the harness only.
Noise comes from the replicate's stream for local privacy, so a single environment and a lane of a
vector environment with the same seed return the same messages, bit for bit.
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
    """Return the generator of the local noise of one replicate.

    Args:
        seed: Seed of the replicate.
        mechanism: The mechanism; part of the key, because two budgets must not share noise.
        episode: Number of the episode inside an environment; the harness uses 0.
        layer: Number of inner feedback wrappers; every layer needs separate noise.
        key: Key of the agent that learns from the messages, in the harness.
    """
    configuration = f"{mechanism.event}{key}"
    return generator(seed, Stream.LOCAL_PRIVACY, episode, configuration).spawn(layer + 1)[layer]


class Layer:
    """A feedback wrapper, base of `SingleLayer` and `VectorLayer`.

    Attributes:
        covers: Data that it privatises: ``"response"``, ``"context"``.
        withheld: Keys of ``info`` that a message replaces.
        mechanism: Mechanism of the messages.
    """

    covers: ClassVar[tuple[str, ...]] = ()
    withheld: ClassVar[tuple[str, ...]] = ()
    mechanism: LocalMechanism
    env: Any

    def _wrap(self, env: Any, **arguments: Any) -> None:
        """Initialise the Gymnasium wrapper; `arguments` are the constructor's, by name."""
        raise NotImplementedError

    def _set_up(self, core: Any, lanes: int) -> None:
        self._core, self._lanes = core, lanes
        self.metadata = {**self.env.metadata, "render_modes": []}
        self._truth: dict[str, Array] = {}
        self._generators: list[np.random.Generator] = [np.random.default_rng()] * lanes
        inner = layers(self.env)
        self._layer = len(inner)
        self._delay_buffer = DelayBuffer(kind_of(core.problem.kind).nothing)
        for other in inner:
            both = [part for part in self.covers if part in other.covers]
            if both:
                raise ParameterError(
                    f"{type(other).__name__} already covers the {' and '.join(both)}; "
                    f"{type(self).__name__} cannot wrap it"
                )
        self._fit(core.problem.info)

    @property
    def truth(self) -> dict[str, Any]:
        """True values withheld in the last step, for the harness only.

        Keys are ``reward``, ``choice`` or ``demand``, ``expected_reward``, ``oracle_reward`` and
        ``regret``. In vector environments values are arrays ``(B,)``, 0 in lanes that did not play.
        """
        return self._truth

    @contextmanager
    def _active(self) -> Iterator[None]:
        """Activate this layer and the inner ones in the environment's core for a step."""
        outermost = not self._core.layers
        if outermost:
            self._core.layers = tuple(reversed(layers(self)))
        try:
            yield
        finally:
            if outermost:
                self._core.layers = ()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Start episodes; see the environment's `reset`."""
        self._truth = {}
        with self._active():
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Play one round; see the environment's `step`."""
        with self._active():
            return self.env.step(action)

    def _fit(self, info: ProblemInfo) -> None:
        """Raise `ParameterError` unless the mechanism fits the problem."""
        raise NotImplementedError

    @property
    def provisos(self) -> tuple[str, ...]:
        """Clauses of the guarantee on what the messages leave as it is."""
        return ()

    def open(self, i: int, seed: int, episode: int) -> None:
        """Start an episode in lane i."""
        self._generators[i] = noise_generator(seed, self.mechanism, episode, self._layer)

    def _draw(self, lanes: Array) -> Array:
        """Draw the mechanism's numbers ``(B, width)``; rows outside the mask are 0, not drawn."""
        out = np.zeros((self._lanes, self.mechanism.width))
        for i in np.flatnonzero(lanes):
            if self.mechanism.numbers == NORMAL:
                portable.fill_normals(self._generators[i], out[i])
            else:
                self._generators[i].random(out=out[i])
        return out

    def _look(self, decoded: Array) -> Rows:
        """Return the data of the current round that messages need."""
        return {}

    def exchange(
        self, action: Array, feedback: Feedback, infos: Rows, played: Array
    ) -> tuple[Feedback, Rows]:
        """Return private feedback and info of one round; store the values they replace in `truth`.

        With a delay, messages are about the response that arrives and its round.
        """
        below = layers(self.env)
        hidden = ORACLE_KEYS + self.withheld
        truth = {k: v for k, v in infos.items() if k in hidden}
        if "response" in self.covers:
            truth["reward"] = feedback.reward
        truth = {k: np.where(played, v.T, v.dtype.type(0)).T for k, v in truth.items()}
        self._truth = {**below[0]._truth, **truth} if below else truth
        seen = self._look(action)
        arrivals = self._core.arrivals
        if arrivals is not None:
            seen = arrivals.swap(self._delay_buffer, seen)
        rewards, messages = self._send(seen, feedback, played)
        public = {k: v for k, v in infos.items() if k not in hidden}
        return feedback._replace(reward=rewards), public | messages

    def blank(self, infos: Rows) -> Rows:
        """Return the info of a reset: the keys of a step, with placeholders for its values."""
        hidden = ORACLE_KEYS + self.withheld
        return {k: v for k, v in infos.items() if k not in hidden} | self._nothing(infos)

    def _nothing(self, infos: Rows) -> Rows:
        """Return placeholders of the messages by key, given those of the environment."""
        return {}

    def _send(self, seen: Rows, feedback: Feedback, played: Array) -> tuple[Array, Rows]:
        """Return private rewards ``(B,)`` and messages by key."""
        return feedback.reward, {}

    def render(self) -> Any:
        """Raise an error, because pictures show the raw response; see ``env.unwrapped.render``.

        Raises:
            ParameterError: Always, except without a render mode (returns None).
        """
        if self.env.render_mode is None:
            return None
        raise ParameterError("a picture would show the raw response: render env.unwrapped instead")

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all layers together for one user-round.

        Private responses alone protect the response, contexts and actions being public
        (unit ``"reward"``); together with private contexts the whole user-round. Private
        contexts alone give no guarantee, because the raw response depends on the context.
        """
        stack = layers(self)
        events = [layer.mechanism.event for layer in reversed(stack)]
        covered = {part for layer in stack for part in layer.covers}
        if "response" not in covered:
            return Guarantee.none("local", "user-round")
        unit = "user-round" if "context" in covered else "reward"
        clauses = [clause for layer in stack for clause in layer.provisos]
        stated = [layer.mechanism.basis for layer in stack]
        declared = [basis for basis in dict.fromkeys(stated) if basis != "computed"]
        return Guarantee(
            "local",
            unit,
            "replace-one",
            Composition.of(*events),
            "; ".join(declared) or "computed",
            provisos=(*self._core.problem.info.provisos, *clauses),
        )


class ChosenLayer(Layer):
    """A layer whose messages are computed from the features x of the recommended candidates."""

    def _fit(self, info: ProblemInfo) -> None:
        if not kind_of(info.kind).one_candidate:
            raise ParameterError(f"sums of r x exist for recommendation, not for {info.kind}")

    def _look(self, decoded: Array) -> Rows:
        """Return the features of the chosen candidates ``(B, d)``, clipped to the unit ball."""
        features = self._core.instance.context().features
        out = np.empty((len(features), features.shape[2]))
        observed = np.ones(len(features), np.bool_)
        weight = np.empty(len(features))
        kernels.regression_records.take(features, decoded, observed, out, weight)
        return {"chosen": out}

    @staticmethod
    def _chosen(seen: Rows, feedback: Feedback) -> Array:
        """Return the features, 0 where nothing was observed."""
        if feedback.observed is None:
            return seen["chosen"]
        return seen["chosen"] * feedback.observed[:, None]


class SingleLayer(Layer, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A layer with one lane over a single environment."""

    def _wrap(self, env: Any, **arguments: Any) -> None:
        core = core_of(env, gymnasium.Env)
        gymnasium.Wrapper.__init__(self, env)
        self._set_up(core, 1)
        # The spec of the environment is JSON, so it has the mechanism's arguments.
        plain = {
            k: v.to_dict() if isinstance(v, LocalMechanism) else v for k, v in arguments.items()
        }
        RecordConstructorArgs.__init__(self, _disable_deepcopy=False, **plain)

    @property
    def truth(self) -> dict[str, Any]:
        """True values withheld in the last step, as numbers; see `Layer`."""
        return {name: only(rows) for name, rows in self._truth.items()}


class VectorLayer(Layer, VectorWrapper):
    """A layer over a vector environment: lane i equals a single wrapped environment."""

    def _wrap(self, env: Any, **arguments: Any) -> None:
        core = core_of(env, gymnasium.vector.VectorEnv)
        VectorWrapper.__init__(self, env)
        self._set_up(core, self.num_envs)


def core_of(env: Any, base: type) -> Any:
    """Return the core of a dpb-gym environment, from which wrappers read the current round.

    Args:
        env: An environment, wrapped or not.
        base: ``gymnasium.Env`` or ``gymnasium.vector.VectorEnv``, which it must be.

    Raises:
        ParameterError: If it is another kind of environment.
    """
    other = gymnasium.vector.VectorEnv if base is gymnasium.Env else gymnasium.Env
    if isinstance(env, other):
        version = "with" if base is gymnasium.Env else "without"
        raise ParameterError(
            f"{shown(env)} needs the version of this wrapper {version} Vector in its name"
        )
    core = getattr(getattr(env, "unwrapped", None), "core", None)
    if core is None or not hasattr(core, "problem"):
        raise ParameterError(
            f"private feedback wraps dpb-gym's environments, single or vector; got {shown(env)}"
        )
    return core


def layers(env: Any) -> list[Layer]:
    """Return the feedback wrappers of `env`, outermost first."""
    wrappers = []
    while env is not None:
        if isinstance(env, Layer):
            wrappers.append(env)
        env = env.__dict__.get("env")
    return wrappers
