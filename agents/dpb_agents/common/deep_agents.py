"""Deep agents: PPO, DQN and SAC with small networks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import Configured, integer, positive, real
from dpb_gym import kernels, portable, validation
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


class DeepAgent(Configured):
    """Base of the deep agents: a small fully connected network per replicate, trained by Adam.

    The same network is applied to every item or candidate. Revenues are an input unless they are
    all equal. Rewards are divided by the largest.

    Args:
        learning_rate: Learning rate of Adam, > 0.
        net_arch: Widths of the hidden layers.
    """

    learning_rate: float = positive(3e-3)
    net_arch: Sequence[int] = (32,)

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = self.net_arch
        if isinstance(widths, (str, bytes)) or not isinstance(widths, Sequence):
            raise ParameterError(f"net_arch must be a sequence of widths, got {widths!r}")
        self.net_arch = [validation.integer("net_arch", width, 1) for width in widths]

    @abstractmethod
    def _initial(self, rng: np.random.Generator) -> Array:
        """Return the initial weights of one replicate."""

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._problem = problem
        bounds = [abs(b) for b in problem.reward_range if math.isfinite(b) and b]
        self._scale = max(bounds, default=1.0)
        priced = problem.kind == "pricing"
        self._shows_revenues = problem.kind == "assortment" and not problem.equal_revenues
        self._inputs = problem.dim - 1 if priced else problem.dim + self._shows_revenues
        self._items: int = 1 if priced else problem.n_items or problem.n_candidates or 0
        # Training draws irregularly, so it needs generators separate from those of decisions.
        self._training = [rng.spawn(1)[0] for rng in streams.agent]
        weights = np.array([self._initial(rng) for rng in self._training], np.float32)
        self._weights, self._moments = weights, np.zeros_like(weights[:, None].repeat(2, axis=1))
        self._steps = np.zeros(streams.replicates, np.int64)
        self._seen = np.zeros(streams.replicates, np.int64)
        self._lanes = np.arange(streams.replicates)
        self._everywhere = np.ones(streams.replicates, bool)

    def _widths(self, outputs: int) -> Array:
        return np.array([self._inputs, *self.net_arch, outputs])

    def _rows(self, context: Context) -> Array:
        """Return the network's inputs for every item, ``(B, N, d)`` float32."""
        features = context.features
        if features.ndim == 2:
            return features[:, None]
        if self._shows_revenues:
            assert context.revenues is not None
            revenues = context.revenues / np.float32(self._scale)
            features = np.concatenate([features, revenues[..., None]], axis=-1)
        return features

    def _offered(self, context: Context) -> Array:
        if context.available is not None:
            return context.available
        return np.ones((len(context.features), self._items), bool)

    def _run(self, widths: Array, relu: bool, rows: Array) -> Array:
        """Return the outputs of the first network in the weights, ``(B, m, widths[-1])``."""
        out = np.empty((*rows.shape[:2], widths[-1]), np.float32)
        agent_kernels.networks.run(self._weights, widths, relu, np.ascontiguousarray(rows), out)
        return out

    def _observed(self, feedback: Feedback) -> Array:
        return self._everywhere if feedback.observed is None else feedback.observed


def uniform_layers(rng: np.random.Generator, widths: Array) -> Array:
    """Return weights and biases uniform on +-1 / sqrt(inputs), PyTorch's initialisation."""
    layers = [
        (2.0 * rng.random((fan + 1) * out) - 1.0) / math.sqrt(fan)
        for fan, out in pairwise(widths.tolist())
    ]
    return np.concatenate(layers)


def orthogonal_layers(rng: np.random.Generator, widths: Array, gain: float) -> Array:
    """Return random orthonormal matrices times sqrt(2), the last times `gain`; biases 0.

    This is the initialisation of Stable-Baselines3's on-policy networks (Saxe et al. 2014).
    """
    layers = []
    for fan, out in pairwise(widths.tolist()):
        frame = portable.normals(rng, (max(fan, out), min(fan, out)))
        kernels.linalg.orthonormalise(frame)
        matrix = frame if fan >= out else frame.T
        layers.extend((math.sqrt(2.0) * matrix.ravel(), np.zeros(out)))
    layers[-2] *= gain / math.sqrt(2.0)
    return np.concatenate(layers)


@register_agent("ppo", supports=("assortment", "pricing", "recommendation"), delayed_feedback=False)
class PPO(DeepAgent):
    """Proximal policy optimisation as in Stable-Baselines3, with a smaller network.

    Schulman et al. 2017, arXiv:1707.06347.

    After every `n_steps` observed rounds actor and critic are trained on these: clipped ratios
    (0.2), advantages normalised in each mini-batch, gradient norms clipped at 0.5. The discount
    is 0, because actions do not influence later rounds.

    Prices are drawn from a Gaussian on [-1, 1], clipped and rescaled to [0, 1]. For assortments
    and recommendations the network scores every item, and the slate is drawn from the scores
    without replacement (Plackett-Luce), which for one candidate is the softmax. Slates contain K
    items if so many are available.

    Args:
        n_steps: Observed rounds between two trainings, at least 2.
        batch_size: Mini-batch size in 2..n_steps.
        n_epochs: Passes over the rounds at each training.
        log_std_init: Logarithm of the initial standard deviation of prices on [-1, 1].
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "learning_rate": [3e-4, 1e-3, 3e-3, 1e-2],
        "n_steps": [64, 256],
    }

    n_steps: int = integer(64, 2)
    batch_size: int = 32
    n_epochs: int = integer(10, 1)
    log_std_init: float = real(-0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.batch_size = validation.integer("batch_size", self.batch_size, 2, self.n_steps)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        super().begin(problem, streams, curator)
        B, N, n = streams.replicates, self._items, self.n_steps
        places = {"assortment": problem.capacity, "recommendation": 1}.get(problem.kind, 0)
        self._contexts = np.zeros((B, n, N, self._inputs), np.float32)
        self._offers = np.ones((B, n, N), bool)
        self._slates = np.zeros((B, n, places), np.int64)
        self._bids, self._rewards = np.zeros((B, n)), np.zeros((B, n))
        self._draws = streams.uniforms(N) if places else streams.normals()

    def _initial(self, rng: np.random.Generator) -> Array:
        actor, critic = (orthogonal_layers(rng, self._widths(1), gain) for gain in (0.01, 1.0))
        return np.concatenate([actor, critic, [self.log_std_init]])

    def act(self, context: Context) -> Array:
        rows, now = self._rows(context), (self._lanes, self._seen)
        scores = self._run(self._widths(1), False, rows)[..., 0]
        self._contexts[now] = rows
        if not self._slates.shape[2]:
            spread = portable.each(portable.exp, self._weights[:, -1])
            bids = scores[:, 0] + spread * self._draws.next()
            self._bids[now] = bids
            return 0.5 * (np.clip(bids, -1.0, 1.0) + 1.0)
        slates = np.empty((len(rows), self._slates.shape[2]), np.int64)
        offered = self._offered(context)
        agent_kernels.ppo.draw(scores, offered, self._draws.next(), slates)
        self._offers[now], self._slates[now] = offered, slates
        return slates if self._problem.kind == "assortment" else slates[:, 0]

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        self._rewards[self._lanes, self._seen] = feedback.reward / self._scale
        self._seen += self._observed(feedback)
        due = self._seen == self.n_steps
        if not due.any():
            return
        orders = np.zeros((len(due), self.n_epochs, self.n_steps), np.int64)
        for b in np.flatnonzero(due):
            orders[b] = [self._training[b].permutation(self.n_steps) for _ in orders[b]]
        rounds = self._contexts, self._offers, self._slates, self._bids, self._rewards
        state = self._weights, self._moments, self._steps, self._widths(1)
        agent_kernels.ppo.train(*state, rounds, due, orders, self.batch_size, self.learning_rate)
        self._seen[due] = 0


class OffPolicy(DeepAgent):
    """Base of agents with a replay buffer: `gradient_steps` steps every `train_freq` rounds.

    Actions are random in the first `learning_starts` observed rounds. The discount is 0, because
    actions do not influence later rounds: targets are rewards, without target networks.

    Args:
        buffer_size: Maximum number of rounds in the replay buffer.
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
        """Train the replicates in the mask `due` on mini-batches of the rounds."""

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        super().begin(problem, streams, curator)
        size = streams.replicates, min(self.buffer_size, problem.longest)
        self._remembered = np.zeros((*size, self._inputs), np.float32)
        self._played, self._rewards = np.zeros(size), np.zeros(size)

    def _remember(self, inputs: Array, played: Array, feedback: Feedback) -> None:
        """Store inputs ``(B, d)`` and actions ``(B,)`` in the replay buffer; train where due."""
        size, due = self._played.shape[1], np.empty(len(played), bool)
        store, now = (self._remembered, self._played, self._rewards), feedback.reward / self._scale
        observed, times = self._observed(feedback), (self.learning_starts, self.train_freq)
        if agent_kernels.off_policy.remember(
            *store, self._seen, (inputs, played, now), observed, *times, due
        ):
            picks = np.zeros((len(due), self.gradient_steps, self.batch_size), np.int64)
            for b in np.flatnonzero(due):
                many = min(int(self._seen[b]), size)
                picks[b] = self._training[b].integers(many, size=picks.shape[1:])
            self._train(store, due, picks)


@register_agent("dqn", supports=("pricing", "recommendation"), needs_horizon=True)
class DQN(OffPolicy):
    """Deep Q-learning as in Stable-Baselines3, with a smaller network.

    Mnih et al. 2013, arXiv:1312.5602.

    Exploration is epsilon-greedy, with epsilon decreasing linearly over the first `exploration` of
    the horizon. Values are fitted by the Huber loss, with gradient norms clipped at 10. In
    recommendation the network is applied to every candidate; in pricing it has one output for each
    of `n_prices` prices from 0 to 1. Assortments are not supported: Q-learning enumerates actions,
    and there are N choose K of them.

    Args:
        exploration: Share of the horizon over which epsilon decreases from 1, in (0, 1].
        final_epsilon: Final epsilon, in [0, 1].
        n_prices: Number of prices, at least 2.
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
        agent_kernels.off_policy.train_values(*state, widths, rounds, due, picks, rate)


@register_agent("sac", supports=("pricing",))
class SAC(OffPolicy):
    """Soft actor-critic as in Stable-Baselines3, with a smaller network.

    Haarnoja et al. 2018, arXiv:1801.01290.

    Pricing only, the problem with continuous actions: prices are a squashed Gaussian on [-1, 1],
    rescaled to [0, 1]. There are two critics, and the entropy coefficient is learnt, starting at
    `entropy`.

    Args:
        entropy: Initial entropy coefficient, > 0.
        target_entropy: Target entropy of the policy on [-1, 1].
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
        agent_kernels.off_policy.squash(outputs, normals, actions)
        return np.where(self._seen < self.learning_starts, uniforms, 0.5 * (actions + 1.0))

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        self._remember(context.features, 2.0 * action - 1.0, feedback)

    def _train(self, rounds: tuple[Array, ...], due: Array, picks: Array) -> None:
        normals = np.zeros(picks.shape)
        for b in np.flatnonzero(due):
            portable.fill_normals(self._training[b], normals[b])
        state = self._weights, self._moments, self._steps
        widths, rate = self._widths(2), self.learning_rate
        agent_kernels.off_policy.train_actor(
            *state, widths, rounds, due, picks, normals, self.target_entropy, rate
        )
