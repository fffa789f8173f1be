"""Warm starts: base of agents with a public prior of theta."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpb_agents.common.parameters import Configured
from dpb_gym import validation
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.problems.prior import Prior


class WarmStart(Configured):
    """Agent that shrinks theta towards a public prior mean instead of 0.

    A prior mean from public data costs no privacy (theta_0 in RU, section 4.2). One from a private
    release has the guarantee of that release. The penalty ``ridge / 2 ||theta - m||^2`` is
    ``ridge / 2 ||theta||^2`` with the public vector ``ridge m`` added to the right-hand side, so
    sensitivities do not change.

    Args:
        prior_mean: Public prior mean of theta, ``(d,)``. It replaces `ProblemInfo.prior`; zeros
            give a cold start. None: use `ProblemInfo.prior`.

    Raises:
        ParameterError: If `prior_mean` is not a vector of theta's dimension.
    """

    prior_mean: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior_mean is not None:
            self.prior_mean = validation.array("prior_mean", self.prior_mean, (None,))

    def set_up(self, problem: ProblemInfo, *streams: Any, **options: Any) -> None:
        """Set up with `prior_mean` as the prior of the problem; see `Agent.set_up`."""
        if self.prior_mean is not None:
            mean = validation.array("prior_mean", self.prior_mean, (problem.dim,))
            problem = replace(problem, prior=Prior(tuple(mean.tolist())))
        super().set_up(problem, *streams, **options)

    def prior(self, problem: ProblemInfo) -> Prior:
        """Return the prior of theta; without one a prior of mean 0 and no precision."""
        return (problem.prior or Prior((0.0,) * problem.dim)).fitting(problem.dim)
