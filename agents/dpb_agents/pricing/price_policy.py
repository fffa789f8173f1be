"""The generalised-linear pricing policy: random start, then greedy or optimistic prices.

The non-private pricing agents that fit by maximum likelihood share it. They differ in the releasers
of theta and V. The policy of `private-pricing` is written out in its own module.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import choice, integer, real
from dpb_agents.common.prior import WarmStart
from dpb_agents.pricing.demand_records import MODELS, Estimator, recorded
from dpb_gym import kernels, portable
from dpb_gym.agent import unsuitable
from dpb_gym.privacy import Curator, RunningSum
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

RULES = ("greedy", "ucb")
SEARCH_TOLERANCE = 1e-7


@dataclass(frozen=True)
class DemandReleasers:
    """Releasers of theta and V, and the constants that the policy uses with them.

    Attributes:
        estimator: Releases theta.
        gram: Releases the running sum of phi phi'; None if the policy does not need it.
        shift: V = released Gram matrix + shift I, > 0.
    """

    estimator: Estimator
    gram: RunningSum | None
    shift: float


class GLMPolicy(WarmStart):
    """Base of the pricing agents that estimate theta: B replicates, either demand model.

    Rounds 1..explore offer uniformly random prices. Afterwards the offer is the price of
    largest p f(<phi, theta>) (rule ``"greedy"``; closed form) or of
    p f(<phi, theta>) + gamma ||phi||_{V^-1} (``"ucb"``; CSW, Algorithm 1, by a certified
    global search), phi = [x; -p] / sqrt(d). theta and V are updated after the random start and
    then

    * greedy: whenever the number of rounds has grown by the factor `growth`, a schedule that
      does not depend on data;
    * ucb: whenever det V has grown by the factor `growth`,

    so O(log T) or O(d log T) times. A subclass implements `releasers`.

    Args:
        explore: Random prices at the start.
        growth: Factor of rounds or of det V between two updates of theta, > 1; see above.
    """

    rule: str = choice("greedy", RULES, init=False)
    gamma: float = real(0.0, 0.0, init=False)
    explore: int = integer(10, 0)
    growth: float = real(2.0, 1.0, open_low=True)

    @abstractmethod
    def releasers(self, problem: ProblemInfo, curator: Curator) -> DemandReleasers:
        """Return the releasers for new replicates."""

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable(type(self).__name__, problem, "pricing", "demand")
        B, d = streams.replicates, problem.dim
        self._model = MODELS.index(problem.demand)
        self._zeta = 1.0 if problem.zeta is None else problem.zeta
        self._releasers = self.releasers(problem, curator)
        self._releasers.estimator.centre = known = self.prior(problem).centre
        explore = min(self.explore, problem.longest)
        self._start = np.stack([rng.random(explore) for rng in streams.agent])
        self._rounds = 0
        self._theta = np.tile(known, (B, 1))
        self._updates = np.zeros(B, np.int64)
        self._next = max(1, explore)
        self._value = np.empty(B)
        self._phi, self._ones = np.empty((B, d)), np.ones(B)
        self._inverse = np.empty((B, d, d))
        self._sign = np.ones(B)
        self._logdet = np.empty(B)
        self._due = np.zeros(B, bool)
        self._freeze(np.ones(B, bool), np.zeros((B, d, d)))

    @property
    def updates(self) -> Array:
        """How often theta was renewed, ``(B,)``."""
        return self._updates.copy()

    def act(self, context: Context) -> Array:
        if self._rounds < self._start.shape[1]:
            return self._start[:, self._rounds].copy()
        price = np.empty(len(self._theta))
        known = self._model, self._zeta
        if self.rule == "greedy":
            best = context.features, self._theta, *known
            kernels.demand_models.best_prices(*best, price, self._value)
        else:
            best = context.features, self._theta, self._inverse, *known
            search = self.gamma, SEARCH_TOLERANCE
            agent_kernels.prices.optimistic_prices(*best, *search, price, self._value)
        return price

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        known = self._releasers
        features, price, demand = recorded(context, action, feedback)
        known.estimator.add(features, price, demand)
        if known.gram is not None:
            agent_kernels.demand.demand_vectors(features, price, self._phi)
            known.gram.add(self._ones, self._phi)
        self._rounds += 1
        due = self._due_updates()
        if due is None:
            return
        if not due.any():
            return
        self._next = math.ceil(self.growth * self._rounds)
        self._theta[due] = known.estimator.release(due)[due]
        self._updates += due
        if known.gram is not None:
            self._freeze(due, known.gram.value)

    def _due_updates(self) -> Array | None:
        """Return the mask of replicates to update after this round, ``(B,)``; None for none."""
        begun, gram = self._rounds - self._start.shape[1], self._releasers.gram
        if gram is None:
            waits = self._rounds < self._next and begun != 0
            return None if waits else np.ones(len(self._theta), bool)
        if begun < 0 or not (self._grown(gram.value, self._due) or begun == 0):
            return None
        if begun == 0:
            self._due[:] = True
        return self._due

    def _grown(self, gram: Array, due: Array) -> bool:
        """Mark where det V, with its sign, exceeds `growth` times its value at the last update.

        Returns:
            Whether any replicate is marked.
        """
        rise = portable.log(self.growth)
        some: bool = agent_kernels.demand.grown(
            gram, self._releasers.shift, rise, self._sign, self._logdet, due
        )
        return some

    def _freeze(self, due: Array, gram: Array) -> None:
        """Store V's determinant and inverse where `due`, until the next update."""
        information = gram[due]
        diagonal = np.arange(gram.shape[1])
        information[:, diagonal, diagonal] += self._releasers.shift
        sign, logdet = np.empty(len(information)), np.empty(len(information))
        agent_kernels.demand.signed_logdet(information, sign, logdet)
        self._sign[due], self._logdet[due] = sign, logdet
        self._inverse[due] = self._inverted(information)

    def _inverted(self, information: Array) -> Array:
        """Return V^-1. V is positive definite where releases are exact."""
        inverse = np.empty_like(information)
        kernels.linalg.inverse(information, inverse)
        return inverse
