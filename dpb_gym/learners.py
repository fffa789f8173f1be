"""Models with `learn`, such as those of Stable-Baselines3, as agents that learn while they play."""

from __future__ import annotations

import inspect
import random
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from dpb_gym.agent import Agent
from dpb_gym.errors import AgentError
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams


class _Ended(Exception):
    """Raised in a model's thread to end its `learn`."""


class CustomerStream(gymnasium.Env[Any, Any]):
    """Environment of one replicate, whose customers come from the harness.

    Its steps wait in the model's thread until the harness has the next customer. There is one
    episode, which the horizon neither ends nor truncates.

    Args:
        inputs: Length of a flat observation.
        actions: Action space of the model.
    """

    def __init__(self, inputs: int, actions: gymnasium.Space[Any]) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (inputs,), np.float64)
        self.action_space = actions
        self.action: Any = None
        self.observation: Any = None
        self.reward = 0.0
        self.resume = threading.Semaphore(0)
        self.done = threading.Semaphore(0)
        self.error: BaseException | None = None
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Return the observation of the first customer."""
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Give the action to the harness and return its response, and the next customer."""
        self.action = action
        self.done.release()
        self.resume.acquire()
        if self.closed:
            raise _Ended
        return self.observation, self.reward, False, False, {}


class Learner(Agent):
    """Agent that plays what a model does while its `learn` runs, one model per replicate.

    The model sees flat observations. Bounded numbers, such as prices, are actions in [-1, 1]. Each
    model runs in a thread, and the threads take turns. They have their own states of the global
    generators of NumPy, PyTorch and `random`, so a replicate does not depend on its batch.

    Args:
        make_model: Function of an environment that returns a model with
            ``learn(total_timesteps)``.
    """

    def __init__(self, make_model: Callable[[gymnasium.Env[Any, Any]], Any]) -> None:
        self.make_model = make_model

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        from dpb_gym.envs.actions import mode_of
        from dpb_gym.envs.core import encode

        if problem.delay is not None or problem.partial_feedback:
            raise AgentError(
                "learn() of a model needs a response in every round, and here some are late or "
                "missing: give a trained model, or write a dpb_gym.SingleAgent"
            )
        self._encode = encode
        self._mode, _ = mode_of(problem)
        self._space: Any = self._mode.space
        self._rescale = (
            isinstance(self._space, gymnasium.spaces.Box) and self._space.is_bounded()
        )  # fmt: skip
        if self._rescale:
            self._space = gymnasium.spaces.Box(-1.0, 1.0, self._space.shape, np.float32)
        self._horizon = problem.horizon
        self._seeds = [int(rng.integers(1 << 32)) for rng in streams.agent]
        self._streams: list[CustomerStream] = []
        self._states: list[Any] = []

    def act(self, context: Context) -> Array:
        rows = self._encode(context, "flat")
        if not self._streams:
            self._start(rows.shape[1])  # type: ignore[union-attr]
        actions = [self._turn(i, row) for i, row in enumerate(rows)]
        stacked = np.asarray(actions).reshape(len(rows), *(self._mode.space.shape or ()))
        if self._rescale:
            box: Any = self._mode.space
            stacked = np.clip(
                box.low + 0.5 * (stacked + 1.0) * (box.high - box.low), box.low, box.high
            )
        return self._mode.decode(stacked, len(rows))

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        """Store the rewards, which the models get with the next customers."""
        for stream, reward in zip(self._streams, feedback.reward):
            stream.reward = float(reward)

    def _start(self, inputs: int) -> None:
        """Create the streams and their threads, which wait for their first turn."""
        for seed in self._seeds:
            stream = CustomerStream(inputs, self._space)
            arguments = (stream, self.make_model, self._horizon)
            threading.Thread(target=_learn, args=arguments, daemon=True).start()
            weakref.finalize(self, _close, stream)
            self._streams.append(stream)
            self._states.append(seed)

    def _turn(self, replicate: int, observation: Array) -> Any:
        """Return the action of a replicate's model, which learns from the round before first."""
        stream = self._streams[replicate]
        stream.observation = observation
        before = _generators()
        _restore(self._states[replicate])
        try:
            stream.resume.release()
            stream.done.acquire()
            self._states[replicate] = _generators()
        finally:
            _restore(before)
        if stream.error is not None:
            error = stream.error
            raise AgentError(f"learn() of the model failed: {type(error).__name__}: {error}").at(
                replicate
            ) from error
        return stream.action


def _learn(stream: CustomerStream, make_model: Callable[..., Any], horizon: int) -> None:
    """Run a model's `learn` for all rounds, in its thread."""
    try:
        stream.resume.acquire()
        if not stream.closed:
            make_model(stream).learn(total_timesteps=horizon)
            raise RuntimeError("it ended before the last customer")
    except _Ended:
        pass
    except BaseException as error:
        stream.error = error
    stream.done.release()


def _close(stream: CustomerStream) -> None:
    stream.closed = True
    stream.resume.release()


def _generators() -> tuple[Any, ...]:
    """Return the states of the global generators that models use."""
    torch = sys.modules.get("torch")
    own = torch.default_generator.get_state() if torch is not None else None
    return random.getstate(), np.random.get_state(), own  # noqa: NPY002


def _restore(states: Any) -> None:
    """Set the global generators to states, or seed them."""
    torch = sys.modules.get("torch")
    if isinstance(states, int):
        random.seed(states)
        np.random.seed(states)  # noqa: NPY002
        if torch is not None:
            torch.default_generator.manual_seed(states)
        return
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    if torch is not None and states[2] is not None:
        torch.default_generator.set_state(states[2])


def learner(make_model: Callable[[gymnasium.Env[Any, Any]], Any]) -> Callable[[], Learner]:
    """Return an agent for `dpb_gym.evaluate` from a function that makes a model with `learn`.

    The model learns from the first customer on, as the other agents do, so that its regret by round
    is a learning curve on the same customers. It is not private. Each round must have a response.

    Args:
        make_model: Function of an environment that returns the model, for example
            ``lambda env: PPO("MlpPolicy", env)``. Without a seed of its own the model has the
            replicate's.
    """

    def make() -> Learner:
        return Learner(make_model)

    make.__name__ = getattr(make_model, "__name__", "learner").strip("<>")
    make.version = _source(make_model)  # type: ignore[attr-defined]
    return make


def _source(function: Any) -> str:
    """Return the source of the function, which distinguishes stored results."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return repr(getattr(function, "__code__", function))
