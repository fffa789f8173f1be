"""Proximal policy optimisation from Stable-Baselines3.

arXiv:1707.06347.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np

from dpb_agents.common.sb3.networks import slate_policy
from dpb_agents.common.sb3.shell import PRICES, Learner, SB3Agent, prices
from dpb_gym import validation
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.registry import register_agent


@register_agent(
    "sb3-ppo", supports=("assortment", "pricing", "recommendation"), delayed_feedback=False
)
@dataclass(eq=False, kw_only=True)
class SB3PPO(SB3Agent):
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
        n_epochs: Passes over the rounds at each training.
        log_std_init: Logarithm of the first standard deviation of prices on [-1, 1].

    Raises:
        ParameterError: If a parameter is out of range.
    """

    name = "sb3-ppo"
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "learning_rate": [3e-4, 1e-3, 3e-3, 1e-2],
        "n_steps": [64, 256],
    }

    n_steps: int = 64
    batch_size: int = 32
    n_epochs: int = 10
    log_std_init: float = -0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.n_steps = validation.integer("n_steps", self.n_steps, 2)
        self.batch_size = validation.integer("batch_size", self.batch_size, 2, self.n_steps)
        self.n_epochs = validation.integer("n_epochs", self.n_epochs, 1)
        self.log_std_init = validation.real("log_std_init", self.log_std_init)

    def action_space(self, problem: ProblemInfo) -> gymnasium.Space[Any]:
        if problem.kind == "pricing":
            return PRICES
        count = problem.n_items if problem.kind == "assortment" else problem.n_candidates
        places = problem.capacity if problem.kind == "assortment" else 1
        assert count is not None and places is not None
        return gymnasium.spaces.MultiDiscrete([count] * places)

    def learner(
        self, seed: int, observations: gymnasium.spaces.Box, actions: gymnasium.Space[Any]
    ) -> Learner:
        from stable_baselines3 import PPO

        policy: Any = "MlpPolicy"
        policy_kwargs: dict[str, Any] = {"net_arch": self.net_arch}
        if isinstance(actions, gymnasium.spaces.Box):
            policy_kwargs["log_std_init"] = self.log_std_init
        else:
            policy = slate_policy()
        model = PPO(
            policy,
            None,  # type: ignore[arg-type, unused-ignore]
            learning_rate=self.learning_rate,
            n_steps=self.n_steps,
            batch_size=self.batch_size,
            n_epochs=self.n_epochs,
            gamma=self.gamma,
            policy_kwargs=policy_kwargs,
            device="cpu",
            _init_setup_model=False,
        )
        return _OnPolicy(model, seed, observations, actions)

    def play(self, actions: Array) -> Array:
        if self._kind == "pricing":
            return prices(actions)
        slates = actions.astype(np.int64)
        return slates if self._kind == "assortment" else slates[:, 0]


class _OnPolicy(Learner):
    """Fills the rollout buffer and trains when it is full."""

    _pending: tuple[Any, ...] = ()

    def act(self, observation: Array) -> Array:
        import torch

        # A copy in torch's own memory: the bits of a matrix product may depend on alignment.
        tensor = torch.tensor(observation)
        model = self.model
        with self.own_random_states():
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
        observation, action, value, log_probability = self._pending
        self.model.rollout_buffer.add(
            observation, action, np.array([reward]), np.zeros(1), value, log_probability
        )
