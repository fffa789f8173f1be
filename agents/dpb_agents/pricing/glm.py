"""Pricing by maximum likelihood on exact records: greedy and optimistic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_agents.pricing.policy import GLMPolicy, Releasers
from dpb_agents.pricing.records import ExactMLE
from dpb_gym import validation
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.registry import register_agent

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator


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
class GLMPricing(GLMPolicy):
    """Maximum-likelihood pricing without privacy: greedy, or optimistic (GLM-UCB).

    ``glm-ucb-pricing`` is CSW's Algorithm 1 on exact releases: what private pricing
    would be without noise.

    Args:
        rule: ``"greedy"`` or ``"ucb"``; see `GLMPolicy`.
        explore: Random prices at the start (CSW: 10).
        gamma: Width of the bonus of ``ucb``, >= 0 (CSW: 1).
        growth: Factor between two fits, > 1: of rounds (greedy) or of det V (ucb; CSW: 2).
        ridge: Weight of ``||theta||^2 / 2`` in the likelihood and shift of V, > 0.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self,
        rule: str = "greedy",
        explore: int = 10,
        gamma: float = 1.0,
        growth: float = 2.0,
        ridge: float = 1.0,
    ) -> None:
        super().__init__(rule, explore, gamma, growth)
        self.ridge = validation.real("ridge", ridge, 0.0, open_low=True)

    def releasers(self, problem: ProblemInfo, curator: Curator) -> Releasers:
        B, d, T = curator.replicates, problem.dim, problem.horizon
        assert problem.demand is not None
        gram = curator.running_sum(symmetric=d) if self.rule == "ucb" else None
        estimator = ExactMLE(B, d, T, problem.demand, problem.zeta, self.ridge)
        return Releasers(estimator, gram, self.ridge)
