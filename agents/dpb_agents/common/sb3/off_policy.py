"""Deep Q-learning and soft actor-critic from Stable-Baselines3."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np

from dpb_agents.common.sb3.networks import candidate_values
from dpb_agents.common.sb3.shell import PRICES, Learner, SB3Agent, prices
from dpb_gym import validation
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.registry import register_agent


@dataclass(eq=False, kw_only=True)
class OffPolicy(SB3Agent):
    """Learns from a replay buffer: every `train_freq` observed rounds, `gradient_steps` steps.

    Args:
        buffer_size: Rounds remembered.
        batch_size: Rounds per gradient step.
        learning_starts: Observed rounds before the first training.
        train_freq: Observed rounds between two trainings.
        gradient_steps: Gradient steps of one training.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "learning_rate": [3e-4, 1e-3, 3e-3, 1e-2],
        "gradient_steps": [4, 16],
    }

    buffer_size: int = 10_000
    batch_size: int = 64
    learning_starts: int = 50
    train_freq: int = 8
    gradient_steps: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.buffer_size = validation.integer("buffer_size", self.buffer_size, 1)
        self.batch_size = validation.integer("batch_size", self.batch_size, 1)
        self.learning_starts = validation.integer("learning_starts", self.learning_starts, 1)
        self.train_freq = validation.integer("train_freq", self.train_freq, 1)
        self.gradient_steps = validation.integer("gradient_steps", self.gradient_steps, 1)

    @property
    def _shared(self) -> dict[str, Any]:
        return {
            "env": None,
            "learning_rate": self.learning_rate,
            "buffer_size": self.buffer_size,
            "learning_starts": self.learning_starts,
            "batch_size": self.batch_size,
            "gamma": self.gamma,
            "train_freq": self.train_freq,
            "gradient_steps": self.gradient_steps,
            "policy_kwargs": {"net_arch": self.net_arch},
            "device": "cpu",
            "_init_setup_model": False,
        }


@register_agent(
    "sb3-dqn", supports=("pricing", "recommendation"), delayed_feedback=False, needs_horizon=True
)
@dataclass(eq=False, kw_only=True)
class SB3DQN(OffPolicy):
    """Deep Q-learning (Stable-Baselines3 `DQN`), one model per replicate.

    arXiv:1312.5602.

    The first `learning_starts` observed rounds play at random; then the model trains every
    `train_freq` observed rounds and plays epsilon-greedily, epsilon falling linearly over
    the first `exploration` of the horizon. With ``gamma=0`` the values are a regression of
    the reward. Recommendation uses one network on every candidate; pricing the stock
    ``MlpPolicy`` with one value for each of `n_prices` prices from 0 to 1. Assortments are
    not supported: Q-learning enumerates actions, and there are N choose K of them.

    Bit-exactness as for `sb3-ppo`.

    Args:
        exploration: Share of the horizon over which epsilon falls from 1, in (0, 1].
        final_epsilon: Last epsilon, in [0, 1].
        n_prices: Prices, at least 2.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    name = "sb3-dqn"

    exploration: float = 0.05
    final_epsilon: float = 0.01
    n_prices: int = 21

    def __post_init__(self) -> None:
        super().__post_init__()
        self.exploration = validation.real("exploration", self.exploration, 0.0, 1.0, open_low=True)
        self.final_epsilon = validation.real("final_epsilon", self.final_epsilon, 0.0, 1.0)
        self.n_prices = validation.integer("n_prices", self.n_prices, 2)

    def action_space(self, problem: ProblemInfo) -> gymnasium.Space[Any]:
        count = self.n_prices if problem.kind == "pricing" else problem.n_candidates
        assert count is not None
        return gymnasium.spaces.Discrete(count)

    def learner(
        self, seed: int, observations: gymnasium.spaces.Box, actions: gymnasium.Space[Any]
    ) -> Learner:
        from stable_baselines3 import DQN

        model = DQN(
            "MlpPolicy" if self._kind == "pricing" else candidate_values(),
            target_update_interval=max(1, 10 * self.train_freq),
            exploration_fraction=self.exploration,
            exploration_final_eps=self.final_epsilon,
            **self._shared,
        )
        return _QLearner(model, seed, observations, actions, self._horizon)

    def play(self, actions: Array) -> Array:
        if self._kind == "pricing":
            return actions.astype(np.float64) / (self.n_prices - 1)
        return actions.astype(np.int64)


@register_agent("sb3-sac", supports=("pricing",), delayed_feedback=False, needs_horizon=True)
@dataclass(eq=False, kw_only=True)
class SB3SAC(OffPolicy):
    """Soft actor-critic (Stable-Baselines3 `SAC`), one model per replicate.

    arXiv:1801.01290.

    Pricing only, the problem with continuous actions: prices are the interval [-1, 1] of
    the squashed Gaussian, rescaled to [0, 1]. The first `learning_starts` observed rounds
    ask uniform prices; then the model trains every `train_freq` observed rounds. The
    entropy coefficient is learnt from `entropy` on.

    Bit-exactness as for `sb3-ppo`.

    Args:
        entropy: First entropy coefficient, > 0.
        target_entropy: Entropy of the policy on [-1, 1] to which the coefficient steers.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    name = "sb3-sac"

    entropy: float = 0.1
    target_entropy: float = -2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.entropy = validation.real("entropy", self.entropy, 0.0, open_low=True)
        self.target_entropy = validation.real("target_entropy", self.target_entropy)

    def action_space(self, problem: ProblemInfo) -> gymnasium.Space[Any]:
        return PRICES

    def learner(
        self, seed: int, observations: gymnasium.spaces.Box, actions: gymnasium.Space[Any]
    ) -> Learner:
        from stable_baselines3 import SAC

        model = SAC(
            "MlpPolicy",
            ent_coef=f"auto_{self.entropy}",
            target_entropy=self.target_entropy,
            **self._shared,
        )
        return _ActorCritic(model, seed, observations, actions, self._horizon)

    def play(self, actions: Array) -> Array:
        return prices(actions)


class _Replaying(Learner):
    """Fills the replay buffer and trains on it.

    A round enters the buffer when the next context is there: it is the one that follows.
    """

    def __init__(
        self,
        model: Any,
        seed: int,
        observations: gymnasium.spaces.Box,
        actions: gymnasium.Space[Any],
        horizon: int,
    ) -> None:
        super().__init__(model, seed, observations, actions)
        self._horizon = horizon
        self._rounds = 0
        self._pending: tuple[Array, Array] | None = None
        self._reward: float | None = None

    @abstractmethod
    def uniform(self) -> Array:
        """An action at random."""

    @abstractmethod
    def choose(self, observation: Array) -> Array:
        """The model's action for ``(1, width)``, exploration included."""

    def act(self, observation: Array) -> Array:
        import torch

        model = self.model
        with self.own_random_states():
            if self._reward is not None:
                assert self._pending is not None
                before, action = self._pending
                reward, done = np.array([self._reward], np.float32), np.zeros(1, np.float32)
                model.replay_buffer.add(before, observation, action, reward, done, [{}])
                self._reward = None
                self._train()
            with torch.no_grad():
                if model.replay_buffer.size() < model.learning_starts:
                    action = self.uniform()
                else:
                    action = self.choose(observation)
        self._pending = observation, action
        return action

    def _train(self) -> None:
        import torch

        model = self.model
        self._rounds += 1
        model._current_progress_remaining = 1.0 - self._rounds / self._horizon
        model._on_step()
        if self._rounds >= model.learning_starts and self._rounds % model.train_freq.frequency == 0:
            with torch.enable_grad():
                model.train(model.gradient_steps, model.batch_size)
            model.policy.set_training_mode(False)

    def record(self, reward: float) -> None:
        self._reward = reward


class _QLearner(_Replaying):
    def uniform(self) -> Array:
        import torch

        drawn: Array = torch.randint(int(self.model.action_space.n), (1,)).numpy()
        return drawn

    def choose(self, observation: Array) -> Array:
        import torch

        if float(torch.rand(())) < self.model.exploration_rate:
            return self.uniform()
        # A copy in torch's own memory: the bits of a matrix product may depend on alignment.
        chosen: Array = self.model.q_net(torch.tensor(observation)).argmax(dim=1).numpy()
        return chosen


class _ActorCritic(_Replaying):
    def uniform(self) -> Array:
        import torch

        drawn: Array = (2.0 * torch.rand((1, 1)) - 1.0).numpy()
        return drawn

    def choose(self, observation: Array) -> Array:
        import torch

        chosen: Array = self.model.actor(torch.tensor(observation)).numpy()
        return chosen
