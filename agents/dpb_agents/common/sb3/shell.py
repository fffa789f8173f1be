"""What all Stable-Baselines3 agents share: one model per replicate, its own random states."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.errors import MissingExtraError, ParameterError
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.offers import among_available
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator

PRICES = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


def check_net_arch(net_arch: Sequence[int]) -> list[int]:
    """Returns the widths of the hidden layers.

    Raises:
        ParameterError: If they are not a sequence of positive integers.
    """
    if isinstance(net_arch, (str, bytes)) or not isinstance(net_arch, Sequence):
        raise ParameterError(f"net_arch must be a sequence of widths, got {net_arch!r}")
    return [validation.integer("net_arch", width, 1) for width in net_arch]


@dataclass(eq=False, kw_only=True)
class SB3Agent(Agent):
    """One Stable-Baselines3 model per replicate, fed by hand, without an environment.

    Random numbers come from each replicate's own agent stream, and torch runs on one
    thread, so that a replicate does not depend on the batch; the global random states of
    torch and NumPy and torch's settings are left as they were found.

    Args:
        learning_rate: Learning rate of Adam, > 0.
        net_arch: Widths of the hidden layers, of policy (or actor) and values (or critics).
        gamma: Discount in [0, 1]; 0 because an action does not change what follows.
    """

    name: ClassVar[str]
    learning_rate: float = 3e-3
    net_arch: Sequence[int] = (32,)
    gamma: float = 0.0

    def __post_init__(self) -> None:
        self.learning_rate = validation.real(
            "learning_rate", self.learning_rate, 0.0, open_low=True
        )
        self.net_arch = check_net_arch(self.net_arch)
        self.gamma = validation.real("gamma", self.gamma, 0.0, 1.0)

    @abstractmethod
    def action_space(self, problem: ProblemInfo) -> gymnasium.Space[Any]:
        """The space in which the model acts."""

    @abstractmethod
    def learner(
        self, seed: int, observations: gymnasium.spaces.Box, actions: gymnasium.Space[Any]
    ) -> Learner:
        """Makes the model of one replicate."""

    @abstractmethod
    def play(self, actions: Array) -> Array:
        """Turns the models' actions ``(B, ...)`` into those of the problem."""

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        """Makes one fresh model per replicate.

        Raises:
            MissingExtraError: If Stable-Baselines3 is not installed.
        """
        try:
            import stable_baselines3  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(
                f"agent {self.name!r} needs Stable-Baselines3: pip install dpb-gym[sb3]"
            ) from error
        self._kind = problem.kind
        self._horizon = problem.longest
        bounds = [abs(b) for b in problem.reward_range if np.isfinite(b) and b]
        self._scale = max(bounds, default=1.0)
        self._shows_revenues = problem.kind == "assortment" and not problem.equal_revenues
        if problem.kind == "pricing":
            width = problem.dim - 1
        else:
            count = problem.n_items if problem.kind == "assortment" else problem.n_candidates
            assert count is not None
            width = count * (problem.dim + self._shows_revenues)
        observations = gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        actions = self.action_space(problem)
        with _settings_restored():
            self._learners = [
                self.learner(int(rng.integers(2**32)), observations, actions)
                for rng in streams.agent
            ]

    @among_available
    def act(self, context: Context) -> Array:
        observations = self._observations(context)
        with _settings_restored():
            actions = np.concatenate(
                [learner.act(row[None]) for learner, row in zip(self._learners, observations)]
            )
        return self.play(actions)

    def _observations(self, context: Context) -> Array:
        features = context.features
        if self._shows_revenues:
            assert context.revenues is not None
            revenues = context.revenues / np.float32(self._scale)
            features = np.concatenate([features, revenues[..., None]], axis=-1)
        return features.reshape(len(features), -1)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        for i, learner in enumerate(self._learners):
            if feedback.observed is None or feedback.observed[i]:
                learner.record(float(feedback.reward[i]) / self._scale)


def prices(actions: Array) -> Array:
    """Prices in [0, 1] of actions ``(B, 1)`` in [-1, 1]; others are clipped."""
    clipped: Array = np.clip(actions[:, 0], -1.0, 1.0).astype(np.float64)
    return 0.5 * (clipped + 1.0)


class Learner:
    """The model and the random states of one replicate."""

    def __init__(
        self,
        model: Any,
        seed: int,
        observations: gymnasium.spaces.Box,
        actions: gymnasium.Space[Any],
    ) -> None:
        import torch
        from stable_baselines3.common.logger import Logger

        self._states = (
            torch.Generator().manual_seed(seed).get_state(),
            np.random.RandomState(seed).get_state(),
        )
        # Without an environment the model is set up by hand, as its own `load` does.
        self.model = model
        self.model.observation_space = observations
        self.model.action_space = actions
        self.model.n_envs = 1
        self.model.set_logger(Logger(folder=None, output_formats=[]))
        with self.own_random_states():
            self.model._setup_model()
        self.model.policy.set_training_mode(False)

    @contextmanager
    def own_random_states(self) -> Iterator[None]:
        """This replicate's random states inside, kept for the next time."""
        import torch

        torch.set_rng_state(self._states[0])
        np.random.set_state(self._states[1])  # noqa: NPY002  (the buffers draw from it)
        yield
        self._states = (torch.get_rng_state(), np.random.get_state())  # noqa: NPY002

    @abstractmethod
    def act(self, observation: Array) -> Array:
        """Trains if it is time, then draws an action for ``(1, width)``."""

    @abstractmethod
    def record(self, reward: float) -> None:
        """Takes the reward of the round just played."""


@contextmanager
def _settings_restored() -> Iterator[None]:
    """One torch thread inside; the caller's threads and random states again outside."""
    import torch

    threads = torch.get_num_threads()
    states = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    if threads != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        if threads != 1:
            torch.set_num_threads(threads)
