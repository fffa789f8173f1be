"""OFU-MNL+: optimistic slates with an estimate by online mirror descent."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.assortment.choice_records import offered
from dpb_agents.common.parameters import inside, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_gym import portable
from dpb_gym.agent import unsuitable
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


@register_agent("ofu-mnl-plus", supports=["assortment"])
class OFUMNLPlus(WarmStart):
    """OFU-MNL+: optimistic utilities around an online mirror descent estimate.

    Lee & Oh (2024, arXiv:2405.09831). Round t offers the best assortment under ``<x, w> + scale
    beta_t ||x||_{H^-1}``. The response moves w by one step of online mirror descent of size eta =
    norm + 1 + log(K + 1) / 2 in the metric H + eta G(w), within the ball of radius `norm` around
    the prior mean. Then the Hessian G(w) of the round's loss at the new w is added to H, which
    starts at ridge I. The cost of a round does not grow with t. The printed width is

    ``beta^2 = 2 eta [(3 log(1 + (K + 1) t) + 3) (17/16 ridge + 2 sqrt(ridge) l + 16 l^2) + 2
    + 7 sqrt(6) / 6 eta d log(1 + (t + 1) / (2 ridge))] + 4 ridge``, ``l = log(2 sqrt(1 + 2 t) /
    delta)``.

    Args:
        scale: Multiplier of the width, >= 0; 1 is the paper's.
        ridge: lambda, > 0; the paper has 84 sqrt(2) d eta.
        norm: Bound of ||w - prior mean||, > 0; None: sqrt(d). The paper has 1, with contexts in
            the unit ball.
        delta: Probability with which the confidence set may fail, in (0, 1).
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "scale": [0.001, 0.003, 0.01, 0.03],
        "ridge": [10.0, 100.0],
    }

    scale: float = real(0.003, 0.0)
    ridge: float = positive(100.0)
    norm: float | None = positive(None)
    delta: float = inside(0.01)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "assortment" or problem.n_items is None or problem.capacity is None:
            raise unsuitable(type(self).__name__, problem, "assortment", "n_items", "capacity")
        B, d, self._K = streams.replicates, problem.dim, problem.capacity
        self._exactly = bool(problem.exactly)
        self._radius = math.sqrt(d) if self.norm is None else self.norm
        self._eta = self._radius + 1.0 + 0.5 * portable.log(self._K + 1)
        self._centre = self.prior(problem).centre
        self._w = np.tile(self._centre, (B, 1))
        self._inverse = np.repeat((np.eye(d) / self.ridge)[None], B, axis=0)
        # Only for equal positive revenues are the K items of largest utility the best slate.
        self._equal = bool(problem.equal_revenues) and problem.reward_range[1] > 0.0
        # Value of the last best slate, from which the search guesses the next one.
        self._values = np.zeros(B)

    def width(self, t: int) -> float:
        """Return beta_t as printed."""
        K = self._K
        d = len(self._centre)
        eta = self._eta
        ridge = self.ridge
        # `first` and `third` are terms of the printed sum, whose second term is 2.
        level = portable.log(2.0 * math.sqrt(1.0 + 2.0 * t) / self.delta)
        first = 3.0 * portable.log(1.0 + (K + 1) * t) + 3.0
        first *= 17.0 / 16.0 * ridge + 2.0 * math.sqrt(ridge) * level + 16.0 * level * level
        third = 7.0 * math.sqrt(6.0) / 6.0 * eta * d * portable.log1p((t + 1) / (2.0 * ridge))
        return math.sqrt(2.0 * eta * (first + 2.0 + third) + 4.0 * ridge)

    def act(self, context: Context) -> Array:
        slates = np.empty((len(self._w), self._K), np.int64)
        agent_kernels.mirror.optimistic_slates(
            context.features,
            context.offered_revenues,
            # The shortcut for equal revenues does not read which items are available.
            self._equal and context.available is None,
            self._exactly,
            self._w,
            self._inverse,
            self.scale * self.width(context.t),
            self._values,
            slates,
        )
        return slates

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        assert feedback.choice is not None
        slates = offered(action, feedback)
        known = (self._centre, self._radius)
        agent_kernels.mirror.mirror_step(
            context.features, slates, feedback.choice, self._eta, *known, self._w, self._inverse
        )
