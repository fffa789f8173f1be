"""`ppo`, `dqn` and `sac`: models of Stable-Baselines3 that learn while they play.

Stable-Baselines3's `learn` calls the step function of an environment, but here the harness calls
the agent. So `act` asks the model for an action, `observe` adds the round to the model's buffer,
and the model's `train` is called after as many rounds as in `learn`. A thread or generator that
runs `learn` would give the same, but no checkpoint can store its stack.

An action does not influence later rounds. So every round is an episode of one step, and the targets
of all three algorithms are rewards.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar

import gymnasium
import numpy as np

from dpb_gym import state, validation
from dpb_gym.agent import SingleAgent
from dpb_gym.errors import MissingExtraError, ParameterError, StateError, optional_module
from dpb_gym.parameters import check_parameters, integer, positive, real, with_parameters
from dpb_gym.problems.base import Array, Context, Feedback
from dpb_gym.registry import register_agent

ABSENT = -1e9
"""Score of an item that cannot be chosen. It is finite, as gradients of -inf are NaN."""


class DeepAgent(SingleAgent):
    """Base of the agents of Stable-Baselines3: one model with small networks, trained by Adam.

    Revenues are an input of the networks unless they are all equal. Rewards are divided by the
    largest. The model needs the extra ``sb3``.

    Args:
        learning_rate: Learning rate of Adam, > 0.
        net_arch: Widths of the hidden layers.

    Raises:
        MissingExtraError: If Stable-Baselines3 is not installed.
    """

    learning_rate: float = positive(3e-3)
    net_arch: Sequence[int] = (32,)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        with_parameters(cls)

    def __post_init__(self) -> None:
        check_parameters(self)
        widths = self.net_arch
        if isinstance(widths, (str, bytes)) or not isinstance(widths, Sequence):
            raise ParameterError(f"net_arch must be a sequence of widths, got {widths!r}")
        self.net_arch = [validation.integer("net_arch", width, 1) for width in widths]
        # Every agent is made before a run starts. The import itself takes seconds.
        if find_spec("stable_baselines3") is None:
            raise MissingExtraError(
                f"{type(self).__name__} needs stable_baselines3: pip install 'dpb-gym[sb3]'"
            )

    @abstractmethod
    def _make(self, library: Any, shared: dict[str, Any]) -> Any:
        """Return a new model of Stable-Baselines3, made with the shared arguments."""

    def begin(self) -> None:
        problem = self.problem
        bounds = [abs(b) for b in problem.reward_range if math.isfinite(b) and b]
        self._scale = max(bounds, default=1.0)
        self._shows_revenues = problem.kind == "assortment" and not problem.equal_revenues
        self._priced = problem.kind == "pricing"
        self._inputs = problem.dim - 1 if self._priced else problem.dim + self._shows_revenues
        self._items: int = 1 if self._priced else problem.n_items or problem.n_candidates or 0
        self._seen = 0
        self._model = self._new_model(self.rng)

    def _new_model(self, rng: np.random.Generator) -> Any:
        library = optional_module("stable_baselines3", type(self).__name__, "sb3")
        logger = optional_module("stable_baselines3.common.logger", type(self).__name__, "sb3")
        shared = {"learning_rate": self.learning_rate, "device": "cpu"}
        with seeded(rng):
            model = self._make(library, shared)
        model.set_logger(logger.Logger(None, []))
        return model

    def _rows(self, context: Context) -> Array:
        """Return the features of every item, ``(N, d)`` float32; one row for a price."""
        features = context.features.reshape(self._items, -1)
        if self._shows_revenues:
            assert context.revenues is not None
            revenues = (context.revenues / self._scale)[:, None]
            features = np.concatenate([features, revenues], axis=1)
        return features.astype(np.float32)

    def _offered(self, context: Context) -> Array:
        offered = context.available
        return np.ones(self._items, bool) if offered is None else offered.astype(bool)


with_parameters(DeepAgent)


class Spaces(gymnasium.Env[Any, Any]):
    """Environment that only has spaces, from which a model of Stable-Baselines3 is made."""

    def __init__(self, inputs: int, actions: gymnasium.Space[Any]) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (inputs,), np.float32)
        self.action_space = actions


PRICES = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
"""Prices from 0 to 1, rescaled: untrained policies of Stable-Baselines3 are centred at 0."""


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Seed the global generators that Stable-Baselines3 uses from one replicate's generator.

    Their states and the number of threads are restored afterwards. So a replicate does not depend
    on others of its batch, and the generators of the calling program are unchanged. Sums of one
    thread have the same bits on any number of processors.
    """
    torch = optional_module("torch", "a deep agent", "sb3")
    generator = torch.default_generator
    threads = torch.get_num_threads()
    before = generator.get_state(), np.random.get_state()  # noqa: NPY002
    seed = int(rng.integers(1 << 32))
    generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.set_num_threads(1)
    try:
        yield
    finally:
        generator.set_state(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_num_threads(threads)


@cache
def item_policy() -> Any:
    """Return a policy class for slates; it is made here, because PyTorch is optional.

    One network scores every item, another one values the mean item. Slates are drawn from the
    scores without replacement (Plackett-Luce), which for one item is the softmax. Observations
    have a row for each item: its features, and 1 if it can be chosen. A slate has -1 in the places
    for which too few items can be chosen.
    """
    torch = optional_module("torch", "a deep agent", "sb3")
    layers = optional_module("stable_baselines3.common.torch_layers", "a deep agent", "sb3")
    policies = optional_module("stable_baselines3.common.policies", "a deep agent", "sb3")

    def network(inputs: int, net_arch: list[int], gain: float) -> Any:
        stack = torch.nn.Sequential(*layers.create_mlp(inputs, 1, net_arch, torch.nn.Tanh))
        for layer in stack:
            policies.ActorCriticPolicy.init_weights(layer, math.sqrt(2.0))
        policies.ActorCriticPolicy.init_weights(stack[-1], gain)
        return stack

    class ItemPolicy(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(
            self, observations: Any, actions: Any, rate: Any, net_arch: list[int], use_sde: bool
        ) -> None:
            super().__init__()
            self.items, self.places = int(actions.nvec[0]), len(actions.nvec)
            inputs = observations.shape[0] // self.items - 1
            # the gains of Stable-Baselines3's own on-policy networks
            self.actor = network(inputs, net_arch, 0.01)
            self.critic = network(inputs, net_arch, 1.0)
            self.optimizer = torch.optim.Adam(self.parameters(), lr=rate(1.0), eps=1e-5)

        def set_training_mode(self, mode: bool) -> None:
            self.train(mode)

        def scores(self, observations: Any) -> tuple[Any, Any]:
            """Return the scores of all items, and the values of the observations."""
            rows = observations.reshape(len(observations), self.items, -1)
            features = rows[..., :-1]
            offered = rows[..., -1] > 0
            scores = self.actor(features).squeeze(-1).masked_fill(~offered, ABSENT)
            return scores, self.critic(features.mean(1))

        def forward(self, observations: Any) -> tuple[Any, Any, Any]:
            """Draw slates; return them, the values, and the slates' log-probabilities."""
            scores, values = self.scores(observations)
            # The order of scores with Gumbel noise is a Plackett-Luce order.
            noise = -torch.empty_like(scores).exponential_().log()
            top, slates = (scores + noise).topk(self.places)
            slates = slates.masked_fill(top < 0.5 * ABSENT, -1)
            return slates, values, self.log_probability(scores, slates)

        def evaluate_actions(self, observations: Any, slates: Any) -> tuple[Any, Any, None]:
            """Return values and log-probabilities; the entropy, which has no weight, is None."""
            scores, values = self.scores(observations)
            return values, self.log_probability(scores, slates.long()), None

        def log_probability(self, scores: Any, slates: Any) -> Any:
            filled = slates >= 0
            places = slates.clamp(min=0)
            taken = torch.nn.functional.one_hot(places, self.items) * filled.unsqueeze(-1)
            gone = (taken.cumsum(1) - taken).bool()
            left = scores.unsqueeze(1).masked_fill(gone, ABSENT).logsumexp(-1)
            return ((scores.gather(1, places) - left) * filled).sum(1)

    return ItemPolicy


@register_agent("ppo", supports=("assortment", "pricing", "recommendation"), delayed_feedback=False)
class PPO(DeepAgent):
    """Proximal policy optimisation of Stable-Baselines3, learning online (extra `sb3`).

    Schulman et al. 2017, arXiv:1707.06347.

    The model is trained after every `n_steps` observed rounds. Prices are drawn from a Gaussian on
    [-1, 1], clipped and rescaled to [0, 1]. For assortments and recommendations one network scores
    every item, and the slate is drawn from the scores; see `item_policy`. Slates contain K items if
    so many are available.

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

    def _make(self, library: Any, shared: dict[str, Any]) -> Any:
        policy: dict[str, Any] = {"net_arch": list(self.net_arch)}
        shared |= {"n_steps": self.n_steps, "batch_size": self.batch_size}
        shared |= {"n_epochs": self.n_epochs, "policy_kwargs": policy}
        if self._priced:
            policy["log_std_init"] = self.log_std_init
            return library.PPO("MlpPolicy", Spaces(self._inputs, PRICES), **shared)
        places = self.problem.capacity if self.problem.kind == "assortment" else 1
        slates = gymnasium.spaces.MultiDiscrete([self._items] * (places or 1))
        env = Spaces(self._items * (self._inputs + 1), slates)
        return library.PPO(item_policy(), env, **shared)

    def act(self, context: Context) -> Any:
        torch = optional_module("torch", "ppo", "sb3")
        rows = self._rows(context)
        if not self._priced:
            rows = np.concatenate([rows, self._offered(context)[:, None]], axis=1, dtype=np.float32)
        observation = torch.from_numpy(rows.reshape(1, -1))
        with seeded(self.rng), torch.no_grad():
            action, value, log_probability = self._model.policy(observation)
        self._played = [part.numpy() for part in (observation, action, value, log_probability)]
        if self._priced:
            return 0.5 * (float(np.clip(self._played[1][0, 0], -1.0, 1.0)) + 1.0)
        slate = self._played[1][0].astype(np.int64)
        return slate if self.problem.kind == "assortment" else int(slate[0])

    def observe(self, context: Context, action: Any, feedback: Feedback) -> None:
        torch = optional_module("torch", "ppo", "sb3")
        observation, played, value, log_probability = self._played
        reward = np.array([float(feedback.reward) / self._scale])
        buffer = self._model.rollout_buffer
        one = np.ones(1)
        parts = torch.from_numpy(value), torch.from_numpy(log_probability)
        buffer.add(observation, played, reward, one, *parts)
        self._seen += 1
        if buffer.full:
            buffer.compute_returns_and_advantage(torch.zeros(1), one)
            with seeded(self.rng):
                self._model.train()
            buffer.reset()


class OffPolicy(DeepAgent):
    """Base of agents with a replay buffer: `gradient_steps` steps every `train_freq` rounds.

    Actions are random in the first `learning_starts` observed rounds.

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

    def _new_model(self, rng: np.random.Generator) -> Any:
        # a larger buffer than rounds only takes memory
        self._size = min(self.buffer_size, self.problem.longest)
        return super()._new_model(rng)

    def _arguments(self) -> dict[str, Any]:
        return {"buffer_size": self._size, "policy_kwargs": {"net_arch": list(self.net_arch)}}

    def _remember(self, inputs: Array, played: Any, feedback: Feedback) -> None:
        """Add inputs ``(d,)`` with the action and its reward to the buffer; train if due."""
        reward = np.array([float(feedback.reward) / self._scale])
        rows = inputs[None]
        self._model.replay_buffer.add(rows, rows, np.array([[played]]), reward, np.ones(1), [{}])
        self._seen += 1
        if self._seen > self.learning_starts and self._seen % self.train_freq == 0:
            with seeded(self.rng):
                self._model.train(self.gradient_steps, self.batch_size)


@register_agent("dqn", supports=("pricing", "recommendation"), needs_horizon=True)
class DQN(OffPolicy):
    """Deep Q-learning of Stable-Baselines3, learning online (extra `sb3`).

    Mnih et al. 2013, arXiv:1312.5602.

    Exploration is epsilon-greedy, with epsilon decreasing linearly over the first `exploration` of
    the horizon. In recommendation the network is applied to every candidate; in pricing it has one
    output for each of `n_prices` prices from 0 to 1. Assortments are not supported: Q-learning
    enumerates actions, and there are N choose K of them.

    Args:
        exploration: Share of the horizon over which epsilon decreases from 1, in (0, 1].
        final_epsilon: Final epsilon, in [0, 1].
        n_prices: Number of prices, at least 2.
    """

    exploration: float = real(0.05, 0.0, 1.0, open_low=True)
    final_epsilon: float = real(0.01, 0.0, 1.0)
    n_prices: int = integer(21, 2)

    def _make(self, library: Any, shared: dict[str, Any]) -> Any:
        outputs = self.n_prices if self._priced else 1
        env = Spaces(self._inputs, gymnasium.spaces.Discrete(outputs))
        return library.DQN("MlpPolicy", env, **shared, **self._arguments())

    def act(self, context: Context) -> Any:
        coin = self.rng.random()
        progress = self._seen / (self.exploration * self.problem.longest)
        epsilon = max(1.0 - progress * (1.0 - self.final_epsilon), self.final_epsilon)
        explores = self._seen < self.learning_starts or coin < epsilon
        if self._priced:
            best = self.rng.integers(self.n_prices) if explores else self._values(context).argmax()
            return float(best) / (self.n_prices - 1)
        offered = np.flatnonzero(self._offered(context))
        if explores:
            return int(self.rng.choice(offered))
        return int(offered[self._values(context)[offered].argmax()])

    def _values(self, context: Context) -> Array:
        """Return the value of every price or candidate."""
        torch = optional_module("torch", "dqn", "sb3")
        with seeded(self.rng), torch.no_grad():
            values: Array = self._model.q_net(torch.from_numpy(self._rows(context))).numpy()
        return values.ravel()

    def observe(self, context: Context, action: Any, feedback: Feedback) -> None:
        rows = self._rows(context)
        if self._priced:
            self._remember(rows[0], int(np.rint(action * (self.n_prices - 1))), feedback)
        else:
            self._remember(rows[int(action)], 0, feedback)


@register_agent("sac", supports=("pricing",))
class SAC(OffPolicy):
    """Soft actor-critic of Stable-Baselines3, learning online (extra `sb3`).

    Haarnoja et al. 2018, arXiv:1801.01290.

    Pricing only, the problem with continuous actions: prices are a squashed Gaussian on [-1, 1],
    rescaled to [0, 1]. The entropy coefficient is learnt, starting at `entropy`.

    Args:
        entropy: Initial entropy coefficient, > 0.
        target_entropy: Target entropy of the policy on [-1, 1].
    """

    entropy: float = positive(0.1)
    target_entropy: float = real(-2.0)

    def _make(self, library: Any, shared: dict[str, Any]) -> Any:
        entropy = {"ent_coef": f"auto_{self.entropy}", "target_entropy": self.target_entropy}
        env = Spaces(self._inputs, PRICES)
        return library.SAC("MlpPolicy", env, **shared, **entropy, **self._arguments())

    def act(self, context: Context) -> float:
        if self._seen < self.learning_starts:
            return float(self.rng.random())
        with seeded(self.rng):
            action, _ = self._model.predict(self._rows(context))
        return 0.5 * (float(action[0, 0]) + 1.0)

    def observe(self, context: Context, action: Any, feedback: Feedback) -> None:
        self._remember(self._rows(context)[0], 2.0 * float(action) - 1.0, feedback)


def _written(agent: DeepAgent) -> dict[str, Any]:
    """Return the attributes of an agent, with the model as arrays."""
    attributes = dict(vars(agent))
    if "_model" in attributes:
        model = attributes.pop("_model")
        attributes["_saved"] = {
            "parameters": _plain(model.get_parameters()),
            "entropy": _plain(getattr(model, "log_ent_coef", None)),
            "buffer": _content(_buffer(model)),
        }
    return attributes


def _read(agent: DeepAgent, attributes: dict[str, Any]) -> None:
    saved = attributes.pop("_saved", None)
    state.set_attributes(agent, attributes)
    if saved is None:
        return
    torch = optional_module("torch", "a deep agent", "sb3")
    # Every number of the new model is replaced.
    model = agent._model = agent._new_model(np.random.default_rng(0))
    model.set_parameters(_tensors(saved["parameters"], torch), device="cpu")
    if saved["entropy"] is not None:
        model.log_ent_coef.data.copy_(torch.tensor(saved["entropy"]))
    buffer = _buffer(model)
    content = _content(buffer)
    for name, value in saved["buffer"].items():
        known = content.get(name)
        same = np.shape(value) == np.shape(known) and type(value) is type(known)
        if name not in content or not same or np.asarray(value).dtype != np.asarray(known).dtype:
            raise StateError(f"the buffer of {type(agent).__name__} has no such {name!r}")
        setattr(buffer, name, value)


def _buffer(model: Any) -> Any:
    return getattr(model, "replay_buffer", None) or model.rollout_buffer


def _content(buffer: Any) -> dict[str, Any]:
    """Return the arrays and counters of a buffer."""
    return {k: v for k, v in vars(buffer).items() if isinstance(v, (np.ndarray, int))}


def _plain(value: Any) -> Any:
    """Return nested parameters with arrays instead of tensors."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value.detach().numpy().copy() if hasattr(value, "detach") else value


def _tensors(value: Any, torch: Any) -> Any:
    """Return nested parameters with tensors instead of arrays."""
    if isinstance(value, dict):
        return {name: _tensors(each, torch) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_tensors(each, torch) for each in value)
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


for _kind in (PPO, DQN, SAC):
    state.register(_kind, out=_written, into=_read)
