"""Proximal policy optimisation from Stable-Baselines3, learning online."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent, register_agent
from dpb_gym.errors import MissingExtraError, ParameterError
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget


@register_agent("sb3-ppo", supports=("assortment", "pricing", "recommendation"))
class SB3PPO(Agent):
    """Proximal policy optimisation (Stable-Baselines3), one model per replicate.

    Every replicate owns a Stable-Baselines3 `PPO` model. `act` samples from its policy,
    `observe` fills its rollout buffer, and after every `n_steps` observed rounds the model
    trains before it acts again. Rounds are never terminal: where ``gamma`` is not 0, the
    return of the last one is bootstrapped with the value of the next context.

    Pricing uses the stock ``MlpPolicy`` on the features; prices are the interval [-1, 1]
    of its Gaussian, rescaled to [0, 1]. For assortment and recommendation a flat network
    would have to learn the same thing once per place in the list; instead one network
    encodes every item (or candidate), a linear layer scores it, and the slate is drawn
    from the scores without replacement (Plackett-Luce), which for one candidate is the
    softmax. Slates always hold K items. Revenues are an input unless they are all equal.

    Random numbers come from each replicate's own agent stream, and torch runs on one
    thread, so that a replicate does not depend on the batch; the global random states of
    torch and NumPy and torch's settings are left as they were found. Another torch release
    or another kind of processor may round differently, and then learns differently.

    Args:
        n_steps: Observed rounds between two trainings, at least 2.
        batch_size: Mini-batch size in 2..n_steps.
        learning_rate: Learning rate of Adam, > 0.
        net_arch: Widths of the hidden layers, of the policy and of the value network.
        n_epochs: Passes over the rounds at each training.
        gamma: Discount in [0, 1]; 0 because an action does not change what follows.
        log_std_init: Logarithm of the first standard deviation of prices on [-1, 1].

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self,
        n_steps: int = 64,
        batch_size: int = 32,
        learning_rate: float = 3e-3,
        net_arch: Sequence[int] = (32,),
        n_epochs: int = 10,
        gamma: float = 0.0,
        log_std_init: float = -0.5,
    ) -> None:
        self.n_steps = validation.integer("n_steps", n_steps, 2)
        self.batch_size = validation.integer("batch_size", batch_size, 2, self.n_steps)
        self.learning_rate = validation.real("learning_rate", learning_rate, 0.0, open_low=True)
        if isinstance(net_arch, (str, bytes)) or not isinstance(net_arch, Sequence):
            raise ParameterError(f"net_arch must be a sequence of widths, got {net_arch!r}")
        self.net_arch = [validation.integer("net_arch", width, 1) for width in net_arch]
        self.n_epochs = validation.integer("n_epochs", n_epochs, 1)
        self.gamma = validation.real("gamma", gamma, 0.0, 1.0)
        self.log_std_init = validation.real("log_std_init", log_std_init)
        self._learners: list[_Learner] = []

    def begin(
        self, problem: ProblemInfo, streams: AgentStreams, budget: Budget | None = None
    ) -> None:
        """Makes one fresh model per replicate.

        Raises:
            MissingExtraError: If Stable-Baselines3 is not installed.
        """
        try:
            import stable_baselines3  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(
                "agent 'sb3-ppo' needs Stable-Baselines3: pip install dpb-gym[sb3]"
            ) from error
        self._kind = problem.kind
        bounds = [abs(b) for b in problem.reward_range if np.isfinite(b) and b]
        self._scale = max(bounds, default=1.0)
        self._shows_revenues = problem.kind == "assortment" and not problem.equal_revenues
        if problem.kind == "pricing":
            width = problem.dim - 1
            action_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        else:
            count = problem.n_items if problem.kind == "assortment" else problem.n_candidates
            places = problem.capacity if problem.kind == "assortment" else 1
            assert count is not None and places is not None
            width = count * (problem.dim + self._shows_revenues)
            action_space = gymnasium.spaces.MultiDiscrete([count] * places)
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        with _settings_restored():
            self._learners = [
                _Learner(self, int(rng.integers(2**32)), observation_space, action_space)
                for rng in streams.agent
            ]

    def act(self, context: Context) -> Array:
        observations = self._observations(context)
        with _settings_restored():
            actions = np.concatenate(
                [learner.act(row[None]) for learner, row in zip(self._learners, observations)]
            )
        if self._kind == "pricing":
            prices: Array = 0.5 * (np.clip(actions[:, 0], -1.0, 1.0).astype(np.float64) + 1.0)
            return prices
        slates = actions.astype(np.int64)
        return slates if self._kind == "assortment" else slates[:, 0]

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


class _Learner:
    """The model and the random states of one replicate."""

    def __init__(
        self,
        agent: SB3PPO,
        seed: int,
        observation_space: gymnasium.spaces.Box,
        action_space: gymnasium.Space[Any],
    ) -> None:
        import torch
        from stable_baselines3 import PPO
        from stable_baselines3.common.logger import Logger

        policy: Any = "MlpPolicy"
        policy_kwargs: dict[str, Any] = {"net_arch": agent.net_arch}
        if isinstance(action_space, gymnasium.spaces.Box):
            policy_kwargs["log_std_init"] = agent.log_std_init
        else:
            policy = _slate_policy()
        self._states = (
            torch.Generator().manual_seed(seed).get_state(),
            np.random.RandomState(seed).get_state(),
        )
        # Without an environment the model is set up by hand, as its own `load` does.
        self.model: Any = PPO(
            policy,
            None,  # type: ignore[arg-type, unused-ignore]
            learning_rate=agent.learning_rate,
            n_steps=agent.n_steps,
            batch_size=agent.batch_size,
            n_epochs=agent.n_epochs,
            gamma=agent.gamma,
            policy_kwargs=policy_kwargs,
            device="cpu",
            _init_setup_model=False,
        )
        self.model.observation_space = observation_space
        self.model.action_space = action_space
        self.model.n_envs = 1
        self.model.set_logger(Logger(folder=None, output_formats=[]))
        with self._own_random_states():
            self.model._setup_model()
        self.model.policy.set_training_mode(False)
        self._pending: tuple[Any, ...] = ()

    @contextmanager
    def _own_random_states(self) -> Iterator[None]:
        import torch

        torch.set_rng_state(self._states[0])
        np.random.set_state(self._states[1])  # noqa: NPY002  (the rollout buffer shuffles with it)
        yield
        self._states = (torch.get_rng_state(), np.random.get_state())  # noqa: NPY002

    def act(self, observation: Array) -> Array:
        """Trains if a rollout is complete, then samples an action for ``(1, width)``."""
        import torch

        # A copy in torch's own memory: the bits of a matrix product may depend on alignment.
        tensor = torch.tensor(observation)
        model = self.model
        with self._own_random_states():
            if model.rollout_buffer.full:
                with torch.no_grad():
                    next_value = model.policy.predict_values(tensor)
                model.rollout_buffer.compute_returns_and_advantage(next_value, np.zeros(1, bool))
                with torch.enable_grad():
                    model.train()
                model.policy.set_training_mode(False)
                model.rollout_buffer.reset()
            with torch.no_grad():
                action, value, log_probability = model.policy(tensor)
        chosen: Array = action.numpy()
        self._pending = (observation, chosen, value, log_probability)
        return chosen

    def record(self, reward: float) -> None:
        """Adds the round just played to the rollout."""
        observation, action, value, log_probability = self._pending
        self.model.rollout_buffer.add(
            observation, action, np.array([reward]), np.zeros(1), value, log_probability
        )


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


@lru_cache(maxsize=1)
def _slate_policy() -> type:
    """Makes the policy class; inside a function because the zoo must load without torch."""
    import torch
    from stable_baselines3.common.distributions import CategoricalDistribution
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import nn

    class PlackettLuce(CategoricalDistribution):
        """Slates drawn one by one without replacement, by the softmax of what is left."""

        def __init__(self, count: int, places: int) -> None:
            super().__init__(count)
            self.places = places

        def proba_distribution_net(self, latent_dim: int) -> nn.Module:
            return nn.Linear(latent_dim, 1)

        def proba_distribution(self, action_logits: torch.Tensor) -> PlackettLuce:
            self.scores = action_logits.squeeze(-1)
            return self

        def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
            slates = actions.long()
            chosen = self.scores.gather(1, slates)
            taken = nn.functional.one_hot(slates, self.action_dim)
            gone = (taken.cumsum(1) - taken).bool()
            left = self.scores.unsqueeze(1).masked_fill(gone, -torch.inf)
            return (chosen - left.logsumexp(-1)).sum(-1)

        def entropy(self) -> Any:
            """No closed form; the algorithm then estimates it by the log-probability."""
            return None

        def sample(self) -> torch.Tensor:
            gumbel = -torch.empty_like(self.scores).exponential_().log()
            return (self.scores + gumbel).topk(self.places).indices

        def mode(self) -> torch.Tensor:
            return self.scores.topk(self.places).indices

    class ItemEncoder(nn.Module):
        """The same layers on every item: per-item codes for the actor, their mean (from
        layers of their own) for the critic."""

        def __init__(self, count: int, features: int, net_arch: list[int], activation: Any) -> None:
            super().__init__()
            self.shape = (-1, count, features // count)
            widths = [self.shape[-1], *net_arch]
            self.latent_dim_pi = self.latent_dim_vf = widths[-1]

            def layers() -> nn.Sequential:
                stack = nn.Sequential()
                for inner, outer in pairwise(widths):
                    stack.extend((nn.Linear(inner, outer), activation()))
                return stack

            self.actor, self.critic = layers(), layers()

        def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.forward_actor(features), self.forward_critic(features)

        def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
            codes: torch.Tensor = self.actor(features.reshape(self.shape))
            return codes

        def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
            mean: torch.Tensor = self.critic(features.reshape(self.shape)).mean(1)
            return mean

    class SlatePolicy(ActorCriticPolicy):
        """Actor-critic with one score per item and Plackett-Luce slates."""

        def _build(self, lr_schedule: Any) -> None:
            space: Any = self.action_space
            self.action_dist = PlackettLuce(int(space.nvec[0]), len(space.nvec))
            super()._build(lr_schedule)

        def _build_mlp_extractor(self) -> None:
            space: Any = self.action_space
            widths: Any = self.net_arch
            self.mlp_extractor: Any = ItemEncoder(
                int(space.nvec[0]), self.features_dim, widths, self.activation_fn
            )

    return SlatePolicy
