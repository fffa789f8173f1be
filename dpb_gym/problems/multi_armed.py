"""The multi-armed bandit, as a recommendation problem whose candidates never change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.problems.base import Array, Hidden
from dpb_gym.problems.recommendation import RecommendationProblem


class MultiArmedProblem(RecommendationProblem):
    """The same arms in every round, in the same order; arm i is the unit vector e_i.

    The features tell the arms apart and nothing else, so linear agents with d = n_arms and agents
    that ignore features meet on equal terms.

    Args:
        horizon: Rounds T, at least 2.
        n_arms: Number of arms, at least 1.
        reward: ``"linear"``: Bernoulli with mean 1/2 + theta_i / 4; ``"logistic"``: Bernoulli with
            mean sigmoid(theta_i); ``"gaussian"``: the linear mean plus N(0, noise_std^2), clipped
            to [0, 1].
        noise_std: Standard deviation for ``reward="gaussian"``, > 0.
        interactions_per_user: k: attach user ids; each user has k consecutive rounds.
        theta: Fixed parameter ``(n_arms,)``; otherwise Gaussian, normalised to norm 2.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self,
        horizon: int = 10_000,
        n_arms: int = 10,
        reward: str = "linear",
        noise_std: float = 0.1,
        interactions_per_user: int | None = None,
        theta: Any = None,
    ) -> None:
        n = validation.integer("n_arms", n_arms, 1)
        super().__init__(
            horizon,
            n,
            n,
            n,
            reward,
            noise_std,
            interactions_per_user=interactions_per_user,
            theta=theta,
        )

    def draw_hidden(self, rng: np.random.Generator) -> Hidden:
        return {**super().draw_hidden(rng), "arms": np.eye(self.n_arms, dtype=np.float32)}

    def draw_candidates(
        self, rng: np.random.Generator, start: int, hidden: Mapping[str, Array], out: Array
    ) -> None:
        out[:] = np.arange(self.n_arms)
