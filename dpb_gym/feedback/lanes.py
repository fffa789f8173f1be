"""What single and vector wrappers share: access to the batch core, and noise by lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.feedback.mechanisms import NORMAL
from dpb_gym.privacy import Composition, Event, Guarantee
from dpb_gym.problems.base import Array
from dpb_gym.problems.instance import Instance
from dpb_gym.streams import Stream, generator

ORACLE_KEYS = ("expected_reward", "oracle_reward", "regret")
RESPONSE_KEYS = ("choice", "demand")


def noise_generator(seed: int, episode: int = 0, layer: int = 0) -> np.random.Generator:
    """Generator of the local noise of one replicate.

    Args:
        seed: Seed of the replicate.
        episode: Number of the episode inside an environment; the harness uses 0.
        layer: Number of feedback wrappers beneath; every layer needs noise of its own.
    """
    return generator(seed, Stream.LOCAL_PRIVACY, episode).spawn(layer + 1)[layer]


class LaneNoise:
    """Random numbers for the messages of B lanes that restart one by one.

    Args:
        numbers: ``"uniform"`` or ``"normal"``.
        width: Numbers per message.
        layer: See `noise_generator`.
    """

    def __init__(self, numbers: str, width: int, layer: int) -> None:
        self.numbers, self.width, self.layer = numbers, width, layer
        self._generators: list[np.random.Generator | None] = []
        self._names: list[tuple[int, int]] = []

    def follow(self, instance: Instance, restarted: Sequence[int] = ()) -> None:
        """Starts the streams of lanes whose replicate or episode is new, or was restarted."""
        if len(self._generators) != instance.replicates:
            self._generators = [None] * instance.replicates
            self._names = [(-1, -1)] * instance.replicates
        names = list(zip(instance.seeds, instance.episodes))
        for i, name in enumerate(names):
            if i in restarted or name != self._names[i]:
                self._names[i] = name
                self._generators[i] = noise_generator(*name, self.layer)

    def draw(self, lanes: Array) -> Array:
        """Numbers ``(B, width)``; rows outside the mask `lanes` are 0 and draw nothing."""
        out = np.zeros((len(self._generators), self.width))
        for i in np.flatnonzero(lanes):
            rng = self._generators[i]
            assert rng is not None
            if self.numbers == NORMAL:
                rng.standard_normal(out=out[i])
            else:
                rng.random(out=out[i])
        return out


def core_of(env: Any, vector: bool) -> Any:
    """The batch core of a DPB environment, from which wrappers read the current round.

    Args:
        env: An environment, wrapped or not.
        vector: Whether it must be a vector environment.

    Raises:
        ParameterError: If it is another kind of environment.
    """
    if isinstance(env, gymnasium.Env if vector else gymnasium.vector.VectorEnv):
        twin = "without Vector in its name" if vector else "with Vector in its name"
        raise ParameterError(f"{env} needs the twin of this wrapper {twin}")
    core = getattr(env.unwrapped, "core", None)
    if core is None or not hasattr(core, "problem"):
        raise ParameterError(
            f"private feedback wraps dpb-gym's environments, single or vector; got {env}"
        )
    return core


class Layered:
    """Bookkeeping of stacked feedback wrappers: what each one covers.

    Attributes:
        covers: What a wrapper makes private: ``"response"``, ``"context"``.
    """

    covers: tuple[str, ...] = ()
    event: Event
    truth: dict[str, Any]
    env: Any

    def check_layers(self, env: Any) -> int:
        """Returns how many feedback wrappers lie beneath.

        Raises:
            ParameterError: If one of them covers the same data already.
        """
        below = layers(env)
        for other in below:
            both = [part for part in self.covers if part in other.covers]
            if both:
                raise ParameterError(
                    f"{type(other).__name__} beneath already covers the {' and '.join(both)}; "
                    f"{type(self).__name__} cannot be put on top of it"
                )
        return len(below)

    @property
    def guarantee(self) -> Guarantee:
        """What all layers together promise for one user-round.

        Private responses alone protect the response, contexts and actions being public
        (unit ``"reward"``); together with private contexts the whole user-round. Private
        contexts alone promise nothing: the raw response depends on the context.
        """
        stack = [self, *layers(self.env)]
        events = [layer.event for layer in reversed(stack)]
        covered = {part for layer in stack for part in layer.covers}
        if "response" not in covered:
            return Guarantee.none("local", "user-round")
        unit = "user-round" if "context" in covered else "reward"
        return Guarantee("local", unit, "replace-one", Composition.of(*events))


def layers(env: Any) -> list[Layered]:
    """Feedback wrappers from `env` downwards."""
    found = []
    while env is not None:
        if isinstance(env, Layered):
            found.append(env)
        env = env.__dict__.get("env")
    return found


def below(env: Any) -> dict[str, Any]:
    """The `truth` of the next feedback wrapper beneath, empty if there is none."""
    found = layers(env)
    return dict(found[0].truth) if found else {}
