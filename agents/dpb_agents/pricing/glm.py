"""Pricing by maximum likelihood on exact records: greedy and optimistic."""

from __future__ import annotations

from typing import Any, ClassVar

from dpb_agents.common.parameters import positive
from dpb_agents.pricing.policy import DemandReleasers, GLMPolicy
from dpb_agents.pricing.records import ExactMLE
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.registry import register_agent


class ExactGLM(GLMPolicy):
    """The pricing policy on exact maximum likelihood.

    Args:
        ridge: Weight of ``||theta||^2 / 2`` in the likelihood and shift of V, > 0.
    """

    ridge: float = positive(1.0)

    def watches(self) -> bool:
        """Whether the policy reads V."""
        return self.rule == "ucb"

    def releasers(self, problem: ProblemInfo, curator: Curator) -> DemandReleasers:
        T, d, B = problem.longest, problem.dim, curator.replicates
        assert problem.demand is not None
        estimator = ExactMLE(B, d, T, problem.demand, problem.zeta, self.ridge)
        gram = curator.running_sum(symmetric=d) if self.watches() else None
        return DemandReleasers(estimator, gram, self.ridge)


@register_agent(
    "greedy-pricing",
    supports=["pricing"],
    summary="The best price under maximum likelihood, without privacy.",
    rule="greedy",
    growth=1.25,
)
@register_agent(
    "glm-ucb-pricing",
    supports=["pricing"],
    summary="GLM-UCB: maximum likelihood with an optimistic bonus, without privacy.",
    rule="ucb",
)
class GLMPricing(ExactGLM):
    """Maximum-likelihood pricing without privacy: greedy, or optimistic (GLM-UCB).

    ``glm-ucb-pricing`` is CSW's Algorithm 1 on exact releases: what private pricing
    would be without noise.

    Args:
        rule: ``"greedy"`` or ``"ucb"``; see `GLMPolicy`.
        explore: Random prices at the start (CSW: 10).
        gamma: Width of the bonus of ``ucb``, >= 0 (CSW: 1).
        growth: Factor between two fits, > 1: of rounds (greedy) or of det V (ucb; CSW: 2).
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "greedy-pricing": {"explore": [0, 10], "growth": [1.1, 1.25], "ridge": [1.0, 4.0]},
        "glm-ucb-pricing": {"explore": [0, 10], "gamma": [0.1, 1.0], "ridge": [1.0, 4.0]},
    }

    rule: str = "greedy"
    gamma: float = 1.0
