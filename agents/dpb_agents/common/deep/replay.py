"""Deep Q-learning and soft actor-critic."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.deep.networks import DeepAgent, uniform_layers
from dpb_agents.common.parameters import integer, positive, real
from dpb_gym import kernels, portable
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


class OffPolicy(DeepAgent):
    """Learns from remembered rounds: every `train_freq` observed ones, `gradient_steps` steps.

    The first `learning_starts` observed rounds play at random. The discount is 0, as an action
    does not change what follows: targets are rewards, and no target networks are needed.

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

    buffer_size: int = integer(10_000, 1)
    batch_size: int = integer(64, 1)
    learning_starts: int = integer(50, 1)
    train_freq: int = integer(8, 1)
    gradient_steps: int = integer(4, 1)

    @abstractmethod
    def _train(self, rounds: tuple[Array, ...], due: Array, picks: Array) -> None:
        """Trains the replicates that are due on mini-batches of the rounds."""

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        super().begin(problem, streams, curator)
        size = streams.replicates, min(self.buffer_size, problem.longest)
        self._remembered = np.empty((*size, self._inputs), np.float32)
        self._played, self._rewards = np.empty(size), np.empty(size)

    def _remember(self, inputs: Array, played: Array, feedback: Feedback) -> None:
        """Takes what the network saw ``(B, d)`` and played ``(B,)``; trains if it is time."""
        size, due = self._played.shape[1], np.empty(len(played), bool)
        store, now = (self._remembered, self._played, self._rewards), feedback.reward / self._scale
        observed, times = self._observed(feedback), (self.learning_starts, self.train_freq)
        if zoo.replay.remember(*store, self._seen, (inputs, played, now), observed, *times, due):
            picks = np.zeros((len(due), self.gradient_steps, self.batch_size), np.int64)
            for b in np.flatnonzero(due):
                many = min(int(self._seen[b]), size)
                picks[b] = self._training[b].integers(many, size=picks.shape[1:])
            self._train(store, due, picks)


@register_agent("dqn", supports=("pricing", "recommendation"), needs_horizon=True)
class DQN(OffPolicy):
    """Deep Q-learning, with Stable-Baselines3's defaults.

    Mnih et al. 2013, arXiv:1312.5602.

    Plays epsilon-greedily, epsilon falling linearly over the first `exploration` of the horizon.
    Values are fitted by Huber's loss, gradients shortened to 10. Recommendation has one network
    for every candidate; pricing one value for each of `n_prices` prices from 0 to 1. Assortments
    are not supported: Q-learning enumerates actions, and there are N choose K of them.

    Args:
        exploration: Share of the horizon over which epsilon falls from 1, in (0, 1].
        final_epsilon: Last epsilon, in [0, 1].
        n_prices: Prices, at least 2.
    """

    exploration: float = real(0.05, 0.0, 1.0, open_low=True)
    final_epsilon: float = real(0.01, 0.0, 1.0)
    n_prices: int = integer(21, 2)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._layers = 1 if problem.kind == "recommendation" else self.n_prices
        super().begin(problem, streams, curator)
        self._draws = streams.uniforms(2)

    def _initial(self, rng: np.random.Generator) -> Array:
        return uniform_layers(rng, self._widths(self._layers))

    def act(self, context: Context) -> Array:
        coin, where = self._draws.next().T
        values = self._run(self._widths(self._layers), True, self._rows(context))
        progress = self._seen / (self.exploration * self._problem.longest)
        epsilon = np.maximum(1.0 - progress * (1.0 - self.final_epsilon), self.final_epsilon)
        random = (self._seen < self.learning_starts) | (coin < epsilon)
        if self._layers == 1:
            kind = kind_of(self._problem.kind)
            values = np.where(self._offered(context), values[..., 0], -np.inf)
            drawn = kind.random(self._problem, where, context.available)
            return np.where(random, drawn, values.argmax(axis=1))
        drawn = np.minimum((where * self.n_prices).astype(np.int64), self.n_prices - 1)
        return np.where(random, drawn, values[:, 0].argmax(axis=1)) / (self.n_prices - 1)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        rows = self._rows(context)
        if self._layers == 1:
            self._remember(rows[self._lanes, action], np.zeros(len(rows)), feedback)
        else:
            self._remember(rows[:, 0], np.rint(action * (self.n_prices - 1)), feedback)

    def _train(self, rounds: tuple[Array, ...], due: Array, picks: Array) -> None:
        widths, rate = self._widths(self._layers), self.learning_rate
        state = self._weights, self._moments, self._steps
        zoo.replay.train_values(*state, widths, rounds, due, picks, rate)


@register_agent("sac", supports=("pricing",))
class SAC(OffPolicy):
    """Soft actor-critic, with Stable-Baselines3's defaults.

    Haarnoja et al. 2018, arXiv:1801.01290.

    Pricing only, the problem with continuous actions: prices are the interval [-1, 1] of a
    squashed Gaussian, moved to [0, 1]. There are two critics, and the entropy coefficient is
    learnt from `entropy` on.

    Args:
        entropy: First entropy coefficient, > 0.
        target_entropy: Entropy of the policy on [-1, 1] to which the coefficient steers.
    """

    entropy: float = positive(0.1)
    target_entropy: float = real(-2.0)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        super().begin(problem, streams, curator)
        self._draws = streams.uniforms()

    def _initial(self, rng: np.random.Generator) -> Array:
        critic = self._widths(1)
        critic[0] += 1
        layers = [uniform_layers(rng, widths) for widths in (self._widths(2), critic, critic)]
        return np.concatenate([*layers, [portable.log(self.entropy)]])

    def act(self, context: Context) -> Array:
        uniforms = self._draws.next()
        normals, actions = np.empty((2, len(uniforms)))
        kernels.elementary.normals_of(uniforms, normals)
        outputs = self._run(self._widths(2), True, self._rows(context))[:, 0]
        zoo.replay.squash(outputs, normals, actions)
        return np.where(self._seen < self.learning_starts, uniforms, 0.5 * (actions + 1.0))

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        self._remember(context.features, 2.0 * action - 1.0, feedback)

    def _train(self, rounds: tuple[Array, ...], due: Array, picks: Array) -> None:
        normals = np.zeros(picks.shape)
        for b in np.flatnonzero(due):
            portable.fill_normals(self._training[b], normals[b])
        state = self._weights, self._moments, self._steps
        widths, rate = self._widths(2), self.learning_rate
        zoo.replay.train_actor(
            *state, widths, rounds, due, picks, normals, self.target_entropy, rate
        )
