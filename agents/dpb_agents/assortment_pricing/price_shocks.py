"""Agents that offer what is best under an estimate, with random changes of the prices.

Prices that follow from the features alone do not show how demand changes with the price. Random
changes do, at a cost of the order of their square (Nambiar, Simchi-Levi & Wang 2019). They shrink
as t^(-1/4), so that both their cost and the error of the estimate add up to about sqrt(T).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import integer, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_gym import kernels, portable
from dpb_gym.agent import unsuitable
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams, BlockDraws, fill_uniforms

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator

KIND = "assortment-pricing"


class PriceShocks(WarmStart):
    """Random offers first, then the best offers under theta with randomly changed prices.

    A subclass sets `theta` in `begin` and in `learn`.

    Args:
        explore: Rounds of random offers.
        shock: Change of a price in the first round after them, in units of the highest price.

    Attributes:
        centre: Prior mean of theta ``(d,)``, to which estimates are pulled.
        theta: Estimate ``(B, d)``.
        known: Whether theta is more than noise ``(B,)``; random offers go on where it is not.
        rounds: Records per replicate so far.
    """

    explore: int = integer(100, 0)
    shock: float = real(0.2, 0.0, 1.0)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != KIND or problem.n_items is None or problem.capacity is None:
            raise unsuitable(self.class_name, problem, KIND, "n_items", "capacity")
        B = streams.replicates
        N = problem.n_items
        d = problem.dim
        self._problem = problem
        self._range = problem.price_range or (0.0, 1.0)
        # A number per item and round: for its random offer, or for the sign of its price change.
        self._uniforms = BlockDraws(streams.agent, (N,), fill_uniforms)
        self._prices = np.zeros((B, N))
        self._values = np.zeros(B)
        self._phi = np.zeros((B, problem.capacity, d), np.float32)
        self._count = np.zeros(B, np.int64)
        self._position = np.zeros(B, np.int64)
        self.centre = self.prior(problem).centre
        self.theta = np.tile(self.centre, (B, 1))
        self.known = np.ones(B, np.bool_)
        self.rounds = 0

    def act(self, context: Context) -> Array:
        # Drawn in every round, so that the numbers of a round do not depend on earlier offers.
        uniforms = self._uniforms.next()
        available = context.available
        random = kind_of(KIND).random(self._problem, uniforms, available)
        if context.t <= self.explore or not self.known.any():
            return random
        if available is None:
            available = np.ones(self._prices.shape, np.bool_)
        K = self._problem.capacity
        kernels.priced_choices.best_offers(
            context.features, self.theta, available, K, *self._range, self._prices, self._values
        )
        size = self.shock * portable.power(self.explore / context.t, 0.25)
        offers = np.empty_like(self._prices)
        agent_kernels.offers.shocked(self._prices, uniforms, size, *self._range, offers)
        return np.where(self.known[:, None], offers, random)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        assert feedback.choice is not None
        offers = action
        if feedback.observed is not None:  # an empty offer is a record of nothing
            offers = np.where(feedback.observed[:, None], action, -1.0)
        agent_kernels.offers.offered_rows(
            context.features, offers, feedback.choice, self._phi, self._count, self._position
        )
        self.rounds += 1
        self.learn()

    @abstractmethod
    def learn(self) -> None:
        """Use the record of the round: ``_phi``, ``_count`` and ``_position``."""


@register_agent("mle-offers", supports=[KIND])
class MLEOffers(PriceShocks):
    """Maximum likelihood on all choices, then the best offers with random price changes.

    The estimate is renewed at rounds that grow by `growth`.

    Args:
        ridge: Weight of ``||theta - centre||^2 / 2`` in the loss.
        growth: Factor between two rounds of estimation, > 1.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "explore": [50, 100],
        "shock": [0.1, 0.2],
        "ridge": [0.1, 1.0],
    }

    ridge: float = positive(0.1)
    growth: float = real(1.2, 1.0, open_low=True)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        super().begin(problem, streams, curator)
        self._next = max(1, self.explore)
        self._new: list[tuple[Array, ...]] = []
        self._stored: tuple[Array, ...] = ()

    def learn(self) -> None:
        self._new.append((self._phi.copy(), self._count.copy(), self._position.copy()))
        if self.rounds < self._next:
            return
        # O(log T) fits, each of which reads all records.
        self._next = math.ceil(self.growth * self.rounds)
        stored = tuple(np.stack(part, axis=1) for part in zip(*self._new))
        if self._stored:
            both = zip(self._stored, stored)
            stored = tuple(np.concatenate(parts, axis=1) for parts in both)
        self._stored = stored
        self._new = []
        phi, count, position = stored
        B, d = self.theta.shape
        first = np.zeros(B, np.int64)
        due = np.ones(B, np.bool_)

        def losses(*arguments: Array) -> None:
            kernels.mnl.add_choices(phi, count, position, first, self.rounds, *arguments)

        kernels.newton.minimise(
            losses, due, self.theta, np.empty(B), np.empty((B, d, d)), ridge=self.ridge,
            # ridge / 2 |theta - m|^2 without its constant.
            linear=np.tile(-self.ridge * self.centre, (B, 1)), decrement=1e-6,
        )  # fmt: skip


@register_agent(
    "one-pass-offers", supports=[KIND], protects=("joint", "user-round"), needs_horizon=True
)
class OnePassOffers(PriceShocks):
    """Noisy sums of curvature and response, each choice once, then offers with price changes.

    Every choice enters one running sum as its curvature H_t and its response H_t theta_t + score,
    at the released theta of its round. theta solves the released sums, with a shift of the
    curvature by the size of its noise; while that is larger than the mean curvature, random offers
    go on. Without a budget the sums are exact, and this is an online
    Newton method. The guarantee is joint zCDP (or the given (epsilon, delta)) per user-round.

    Args:
        norm: Expected size of theta: weight of the curvature relative to the response in a record.
        ridge: Least shift of the curvature.
        every: Rounds between two releases.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "explore": [100, 300],
        "shock": [0.1, 0.2],
        "norm": [2.0, 4.0],
    }

    norm: float = positive(4.0)
    ridge: float = positive(0.1)
    every: int = integer(20, 1)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        super().begin(problem, streams, curator)
        B, d = self.theta.shape
        self._private = curator.private
        # At least one release within the horizon.
        self._every = min(self.every, problem.longest)
        width = d * (d + 1) // 2 + d
        self._sums = curator.running_sum(
            width,
            every=self._every,
            sensitivity=1.0,
            clip=0.5 if curator.private else None,  # no row is longer, so none is clipped
            what="running sums of curvature and response",
        )
        self._rows = np.zeros((B, width))
        self._curvature = np.zeros((B, d, d))

    def learn(self) -> None:
        agent_kernels.offers.newton_rows(
            self._phi, self._count, self._position, self.theta, self.norm, self._private, self._rows
        )
        self._sums.add(self._rows)
        if self.rounds % self._every:
            return
        d = self.theta.shape[1]
        sums = self._sums.value
        agent_kernels.offers.unpack(sums, 1.0 / self.norm, self._curvature)
        # the largest eigenvalue of a symmetric matrix of such noise is about sqrt(2 d) deviations
        noise = self._sums.noise_std / self.norm * math.sqrt(2.0 * d)
        values, vectors = kernels.linalg.eigh(self._curvature)
        self.known = values.mean(axis=1) > noise
        # Negative eigenvalues are noise. The shift keeps theta short where noise hides the
        # curvature.
        shifted = np.maximum(values, 0.0) + max(self.ridge, noise)
        rest = sums[:, -d:].copy()
        centre = np.tile(self.centre, (len(rest), 1))
        moved = np.empty_like(rest)
        # Solved for theta - centre, so that the shift pulls to the prior mean and not to 0.
        kernels.linalg.multiply(self._curvature, centre, moved)
        inverse = kernels.linalg.compose(1.0 / shifted, vectors)
        kernels.linalg.multiply(inverse, rest - moved, self.theta)
        self.theta += self.centre
