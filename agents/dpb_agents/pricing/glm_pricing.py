"""Pricing by maximum likelihood on exact records: greedy, GLM-UCB and Thompson sampling.

`act` and `observe` of the first two are in `price_policy.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dpb_agents.common.parameters import positive
from dpb_agents.pricing.demand_records import ExactMLE
from dpb_agents.pricing.price_policy import DemandReleasers, GLMPolicy
from dpb_gym import kernels
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


class ExactGLM(GLMPolicy):
    """The pricing policy on exact maximum likelihood.

    Args:
        ridge: Weight of ``||theta||^2 / 2`` in the likelihood and shift of V, > 0.
    """

    ridge: float = positive(1.0)

    def uses_gram(self) -> bool:
        """Return whether the policy uses V."""
        return self.rule == "ucb"

    def releasers(self, problem: ProblemInfo, curator: Curator) -> DemandReleasers:
        T, d, B = problem.longest, problem.dim, curator.replicates
        assert problem.demand is not None
        estimator = ExactMLE(B, d, T, problem.demand, problem.zeta, self.ridge)
        gram = curator.running_sum(symmetric=d) if self.uses_gram() else None
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

    ``glm-ucb-pricing`` is CSW's Algorithm 1 on exact releases, hence private pricing without
    noise.

    Args:
        rule: ``"greedy"`` or ``"ucb"``; see `GLMPolicy`.
        explore: Random prices at the start (CSW: 10).
        gamma: Width of the bonus of ``ucb``, >= 0 (CSW: 1).
        growth: Factor of rounds (greedy) or of det V (ucb; CSW: 2) between two fits, > 1.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "greedy-pricing": {"explore": [0, 10], "growth": [1.1, 1.25], "ridge": [1.0, 4.0]},
        "glm-ucb-pricing": {"explore": [0, 10], "gamma": [0.1, 1.0], "ridge": [1.0, 4.0]},
    }

    rule: str = "greedy"
    gamma: float = 1.0


@register_agent("ts-pricing", supports=["pricing"])
class ThompsonPricing(ExactGLM):
    """Thompson sampling: the best price under a normal draw around the estimate.

    theta~ is normal with mean theta and covariance ``scale^2 V^-1``. V is ridge I plus the sum of
    phi phi' at the last update, which comes when det V has grown by `growth`. This is TS-GLM
    (Abeille & Lazaric 2017, arXiv:1611.06534) with lazy updates. A scale of 1/2 is the
    sub-Gaussian constant of 0-1 demand over the steepest slope of the link, zeta/4 = 1 at zeta = 4.

    Args:
        scale: Width of the draw, > 0; by default sub-Gaussian constant over steepest slope.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "scale": [None, 0.1],
        "explore": [0, 10],
        "ridge": [1.0, 4.0],
    }

    scale: float | None = positive(None)
    growth: float = 1.5

    def uses_gram(self) -> bool:
        return True

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        d = problem.dim
        self._root = np.zeros((streams.replicates, d, d))
        super().begin(problem, streams, curator)
        logistic = problem.demand == "logistic"
        self._scale = self.scale or (0.5 / (self._zeta / 4) if logistic else 1.0)
        # Created after the random start, because both draw from the replicate's one generator.
        self._normals = streams.normals(d)

    def act(self, context: Context) -> Array:
        if self._rounds < self._start.shape[1]:
            return super().act(context)
        normals = self._normals.next()
        draw = self._theta.copy()
        for k in range(draw.shape[1]):
            draw += self._scale * normals[:, k, None] * self._root[:, :, k]
        price = np.empty(len(draw))
        kernels.demand_models.best_prices(
            context.features, draw, self._model, self._zeta, price, self._value
        )
        return price

    def _freeze(self, due: Array, gram: Array) -> None:
        super()._freeze(due, gram)
        root = np.empty_like(self._inverse)
        kernels.linalg.cholesky(self._inverse, root)
        self._root[due] = root[due]
