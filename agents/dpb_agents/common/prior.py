"""Warm starts: what is known of theta before the first round, for every agent that estimates it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpb_agents.common.parameters import Configured
from dpb_gym import validation
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.problems.prior import Prior


class WarmStart(Configured):
    """An agent whose regularisation pulls theta to a known point instead of to 0.

    What is known beforehand, from older data that nobody protects or from another market, costs no
    privacy (the theta_0 of RU, section 4.2); what comes from a private release costs what that
    did. A penalty of ``ridge / 2 ||theta - m||^2`` is one of ``ridge / 2 ||theta||^2`` with the
    known vector ``ridge m`` added to the right-hand side, so sensitivities do not change.

    Args:
        prior_mean: Public prior mean of theta, ``(d,)``, in units of theta, instead of what the
            problem tells (`ProblemInfo.prior`); zeros: nothing is known. None: what it tells.

    Raises:
        ParameterError: If it is not a vector, or not as long as theta when the agent begins.
    """

    prior_mean: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior_mean is not None:
            self.prior_mean = validation.array("prior_mean", self.prior_mean, (None,))

    def set_up(self, problem: ProblemInfo, *streams: Any, **options: Any) -> None:
        """As if the problem told the prior mean; see `Agent.set_up`."""
        if self.prior_mean is not None:
            mean = validation.array("prior_mean", self.prior_mean, (problem.dim,))
            problem = replace(problem, prior=Prior(tuple(mean.tolist())))
        super().set_up(problem, *streams, **options)

    def prior(self, problem: ProblemInfo) -> Prior:
        """What is known of theta; a mean of 0 where that is nothing."""
        return (problem.prior or Prior((0.0,) * problem.dim)).fitting(problem.dim)
