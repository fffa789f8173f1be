"""Proximal policy optimisation."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.deep.networks import DeepAgent, orthogonal_layers
from dpb_agents.common.parameters import integer, real
from dpb_gym import portable, validation
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


@register_agent("ppo", supports=("assortment", "pricing", "recommendation"), delayed_feedback=False)
class PPO(DeepAgent):
    """Proximal policy optimisation, with Stable-Baselines3's defaults.

    Schulman et al. 2017, arXiv:1707.06347.

    After every `n_steps` observed rounds actor and critic are trained on these: clipped ratios
    (0.2), advantages normalised in each mini-batch, gradients shortened to 0.5. The discount is
    0, as an action does not change what follows.

    Prices are drawn from a Gaussian on [-1, 1], clipped and moved to [0, 1]. For assortments and
    recommendations the network scores every item, and the slate is drawn from the scores without
    replacement (Plackett-Luce), which for one candidate is the softmax. Slates hold K items where
    so many are on offer.

    Args:
        n_steps: Observed rounds between two trainings, at least 2.
        batch_size: Mini-batch size in 2..n_steps.
        n_epochs: Passes over the rounds at each training.
        log_std_init: Logarithm of the first standard deviation of prices on [-1, 1].
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
        self._contexts = np.empty((B, n, N, self._inputs), np.float32)
        self._offers = np.ones((B, n, N), bool)
        self._slates = np.empty((B, n, places), np.int64)
        self._bids, self._rewards = np.empty((B, n)), np.empty((B, n))
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
        zoo.ppo.draw(scores, offered, self._draws.next(), slates)
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
        zoo.ppo.train(*state, rounds, due, orders, self.batch_size, self.learning_rate)
        self._seen[due] = 0
