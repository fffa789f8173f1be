"""Non-private multinomial-logit agents: greedy, UCB-MNL and TS-MNL.

They are `dpmnl` with exact releases: maximum likelihood on the records, and their Gram matrix.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.assortment.choice_records import ChoiceMLE, offered
from dpb_agents.assortment.optimistic_slates import DesignMatrix, SlateChoice
from dpb_agents.common.parameters import integer, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_gym import portable
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


class ExactMNL(WarmStart):
    """The multinomial-logit policy on exact releases: maximum likelihood and Gram sum.

    Rounds 1..explore offer uniformly random sets of K items. Afterwards round t offers the best
    assortment under optimistic utilities, see `SlateChoice`. theta is updated after the random
    start and then whenever det V has grown by the factor `growth` since its last update, so
    O(d log T) times.

    Args:
        explore: Rounds of uniformly random sets, T0.
        growth: Factor by which det V must grow between two updates, > 1.
        ridge: Weight of ``||theta||^2 / 2`` in the loss, and the shift of V.
        constant: Last feature of every item, >= 0, whose coefficient times it is the level that all
            utilities have in common. 0: there is none.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "scale": [0.02, 0.05, 0.1, 0.2],
        "growth": [1.3, 2.0],
    }

    rule: ClassVar[str] = "greedy"
    scale: float = real(0.0, 0.0, init=False)
    samples: int | None = integer(None, 1, init=False)
    kappa: float = positive(1.0, init=False)
    explore: int = integer(0, 0)
    growth: float = real(2.0, 1.0, open_low=True)
    ridge: float = positive(1.0)
    constant: float = real(0.0, 0.0)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        prior = self.prior(problem).centre
        if self.constant:
            # The problem's prior has no coefficient for the constant.
            prior = np.append(prior, 0.0)
            problem = replace(problem, dim=problem.dim + 1, prior=None)
        self._slates = SlateChoice(problem, streams, self.rule, self.samples, type(self).__name__)
        assert problem.capacity is not None
        B = streams.replicates
        K = problem.capacity
        d = problem.dim
        self._estimator = ChoiceMLE(curator, K, d, problem.longest, ridge=self.ridge)
        self._gram = curator.running_sum(symmetric=d)
        self._estimator.centre = prior
        self._theta = np.tile(prior, (B, 1))
        # Exact sums are positive semidefinite: with the shift no eigenvalue has to be raised.
        self._V = DesignMatrix(B, d, shift=self.ridge, floor=0.0)
        self._reference = self._V.logdet.copy()
        self._updates = np.zeros(B, np.int64)
        self._rows = np.zeros((B, K, d))
        self._ones = np.ones(B)

    @property
    def updates(self) -> Array:
        """Number of updates of theta, ``(B,)``."""
        return self._updates.copy()

    def width(self, t: int) -> float:
        """Return sqrt(2 d log(1 + t/d) + 2 log t) / (2 kappa) (Oh & Iyengar 2021)."""
        d = self._theta.shape[1]
        square = 2 * d * portable.log1p(t / d) + 2 * portable.log(t)
        return math.sqrt(square) / (2 * self.kappa)

    def _features(self, context: Context) -> Context:
        """Return the context with the constant as last feature, if there is one."""
        if not self.constant:
            return context
        x = context.features
        assert x is not None
        column = np.full((*x.shape[:-1], 1), self.constant, x.dtype)
        return context._replace(features=np.concatenate([x, column], axis=-1))

    def act(self, context: Context) -> Array:
        context = self._features(context)
        if context.t <= self.explore:
            return self._slates.random(context)
        width = self.scale * self.width(context.t)
        return self._slates.best(context, self._theta, self._V.root, width)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        assert feedback.choice is not None
        context = self._features(context)
        slates = offered(action, feedback)
        self._estimator.add(context.features, slates, feedback.choice)
        # Unclipped: nothing here needs a bound, and clipping would bias the estimate.
        agent_kernels.choices.offered_rows(context.features, slates, False, self._rows)
        self._gram.add(self._ones, self._rows)
        # Random slates use neither theta nor V.
        if context.t < self.explore:
            return

        self._V.update(self._gram.value)
        logdet = self._V.logdet
        due = logdet > self._reference + portable.log(self.growth)
        # The first fit uses the random rounds at once, even if det V has grown by less.
        if context.t == self.explore:
            due[:] = True
        if due.any():
            self._theta[due] = self._estimator.release(due)[due]
            self._updates += due
            self._reference[due] = logdet[due]


@register_agent("ucb-mnl", supports=["assortment"])
class UCBMNL(ExactMNL):
    """UCB-MNL: maximum likelihood plus an ellipsoidal bonus (Oh & Iyengar 2021).

    The estimate is updated whenever det V has doubled, not every round. The bonus is scaled
    down, since the theoretical width explores far too much. arXiv:2103.13929.

    Args:
        explore: Rounds of uniformly random sets.
        scale: Multiplier of the confidence width.
        kappa: Curvature constant of the width (acts as another multiplier, 1 / kappa).
    """

    rule: ClassVar[str] = "ucb"
    scale: float = 0.2
    kappa: float = 1.0


@register_agent("ts-mnl", supports=["assortment"])
class TSMNL(ExactMNL):
    """TS-MNL: Thompson sampling with optimistic draws (Oh & Iyengar 2019).

    https://papers.neurips.cc/paper/2019/hash/36d7534290610d9b7e9abed244dd2f28-Abstract.html

    Args:
        scale: Multiplier of the standard deviation of the draws.
        kappa: Curvature constant of that deviation.
        samples: Draws per round; each item gets its largest utility among them. The default is
            the number that makes this optimistic with constant probability; 1 is plain Thompson
            sampling.
    """

    rule: ClassVar[str] = "ts"
    scale: float = 0.1
    kappa: float = 1.0
    samples: int | None = None


@register_agent("greedy-mnl", supports=["assortment"])
class GreedyMNL(ExactMNL):
    """Greedy MNL: random start, then the best assortment under maximum likelihood."""

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "explore": [5, 20],
        "ridge": [0.3, 1.0],
        "growth": [1.3, 2.0],
    }

    # Without a bonus nothing but these rounds explores.
    explore: int = 5
