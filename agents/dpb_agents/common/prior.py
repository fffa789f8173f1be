"""Warm starts: a public prior mean of theta, for every agent that estimates one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.problems.base import Array


@dataclass(eq=False, kw_only=True)
class WarmStart(Agent):
    """An agent whose regularisation pulls theta to a public point instead of to 0.

    What is known beforehand, from older data that nobody protects or from another market, costs no
    privacy (the theta_0 of RU, section 4.2). A penalty of ``ridge / 2 ||theta - m||^2`` is one of
    ``ridge / 2 ||theta||^2`` with the public vector ``ridge m`` added to the right-hand side, so
    sensitivities do not change.

    Args:
        prior_mean: Public prior mean of theta, ``(d,)``, in units of theta; None for 0.

    Raises:
        ParameterError: If it is not a vector, or not as long as theta when the agent begins.
    """

    prior_mean: Any = None

    def __post_init__(self) -> None:
        if self.prior_mean is not None:
            self.prior_mean = validation.array("prior_mean", self.prior_mean, (None,))

    def prior(self, dim: int) -> Array:
        """The prior mean of a theta of length `dim`."""
        if self.prior_mean is None:
            return np.zeros(dim)
        return validation.array("prior_mean", self.prior_mean, (dim,))
