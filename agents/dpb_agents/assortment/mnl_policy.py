"""The multinomial-logit policy: random start, then optimistic assortments.

The private agents `dpmnl` and `dpmnl-approx` and the non-private `ucb-mnl`, `ts-mnl` and
`greedy-mnl` share it. They differ in the releasers of theta and V.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.assortment.choice_records import ChoiceMLE, EntrywiseGram, offered
from dpb_agents.common.parameters import choice, integer, real
from dpb_agents.common.prior import WarmStart
from dpb_gym import kernels, portable
from dpb_gym.agent import unsuitable
from dpb_gym.privacy import Curator, RunningSum
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.streams import AgentStreams, BlockDraws, fill_uniforms

RULES = ("greedy", "ucb", "ts")


@dataclass(frozen=True)
class ChoiceReleasers:
    """Releasers of theta and V, and the constants that the policy uses with them.

    Attributes:
        estimator: Releases theta.
        gram: Releases the running sum of x x' over the offered items.
        shift: V = released Gram matrix + shift I.
        floor: Smallest eigenvalue of V; smaller ones are raised to it.
        max_updates: Largest number of releases of theta per replicate, None for no limit.
        width: ``width(t)``: multiplier of ||x||_{V^-1} in round t, before scaling.
        clip: Whether features are clipped to the unit ball before they enter the Gram matrix.
    """

    estimator: ChoiceMLE
    gram: RunningSum | EntrywiseGram
    shift: float
    floor: float
    max_updates: int | None
    width: Callable[[int], float]
    clip: bool


class MNLPolicy(WarmStart):
    """Base of the multinomial-logit agents: B replicates, any revenues, any capacity.

    Rounds 1..explore offer uniformly random sets of K items. Afterwards round t offers the
    best assortment (exact, `dpb_gym.kernels.mnl.best_slates`) under optimistic utilities:
    ``<x, theta>`` (rule ``"greedy"``), ``<x, theta> + scale width(t) ||x||_{V^-1}``
    (``"ucb"``), or the largest of M draws of ``<x, theta~>`` with theta~ normal of mean
    theta and covariance ``(scale width(t))^2 V^-1`` (``"ts"``). theta is updated after the
    random start and then whenever det V has grown by the factor `growth` since its last
    update (erratum A6), so O(d log T) times.

    A subclass implements `releasers`.

    Args:
        explore: Rounds of uniformly random sets, T0.
        growth: Factor by which det V must grow between two updates, > 1.
    """

    rule: str = choice("greedy", RULES, init=False)
    scale: float = real(0.0, 0.0, init=False)
    samples: int | None = integer(None, 1, init=False)
    explore: int = integer(0, 0)
    growth: float = real(2.0, 1.0, open_low=True)

    @abstractmethod
    def releasers(self, problem: ProblemInfo, curator: Curator) -> ChoiceReleasers:
        """Return the releasers for new replicates."""

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "assortment" or problem.n_items is None or problem.capacity is None:
            raise unsuitable(type(self).__name__, problem, "assortment", "n_items", "capacity")
        B, K, d = streams.replicates, problem.capacity, problem.dim
        self._problem, self._capacity = problem, K
        self._equal = bool(problem.equal_revenues) and problem.reward_range[1] > 0.0
        self._releasers = self.releasers(problem, curator)
        self._releasers.estimator.centre = known = self.prior(problem).centre
        # Uniforms and normals are drawn in blocks, so each kind needs its own generator.
        spawned = [generator.spawn(2) for generator in streams.agent]
        self._uniforms = BlockDraws([pair[0] for pair in spawned], (K,), fill_uniforms)
        if self.rule == "ts":
            count = self.samples or optimistic_samples(K)
            self._normals = BlockDraws(
                [pair[1] for pair in spawned], (count, d), portable.fill_normals
            )
        self._theta = np.tile(known, (B, 1))
        self._rows, self._ones = np.empty((B, K, d)), np.ones(B)
        self._root = np.zeros((B, d, d))
        self._logdet = np.zeros(B)
        self._ok = np.zeros(B, np.bool_)
        self._refresh(np.zeros((B, d, d)))
        self._updated_at = self._logdet.copy()
        self._updates = np.zeros(B, np.int64)
        self._rise = portable.log(self.growth)
        self._values = np.zeros(B)

    @property
    def updates(self) -> Array:
        """Number of updates of theta, ``(B,)``."""
        return self._updates.copy()

    def act(self, context: Context) -> Array:
        if context.t <= self.explore:
            kind = kind_of(self._problem.kind)
            return kind.random(self._problem, self._uniforms.next(), context.available)
        slates = np.empty((len(self._theta), self._capacity), np.int64)
        width = 0.0 if self.rule == "greedy" else self.scale * self._releasers.width(context.t)
        equal = self._equal and context.available is None
        exactly = bool(self._problem.exactly)
        known = (
            context.features,
            context.offered_revenues,
            equal,
            exactly,
            self._theta,
            self._root,
            width,
        )
        if self.rule == "ts":
            agent_kernels.slates.sampled_slates(*known, self._normals.next(), self._values, slates)
        else:
            agent_kernels.slates.optimistic_slates(*known, self._values, slates)
        return slates

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        known = self._releasers
        assert feedback.choice is not None
        slates = offered(action, feedback)
        known.estimator.add(context.features, slates, feedback.choice)
        agent_kernels.choices.offered_rows(context.features, slates, known.clip, self._rows)
        known.gram.add(self._ones, self._rows)
        if context.t < self.explore:
            return
        self._refresh(known.gram.value)
        due = self._logdet > self._updated_at + self._rise
        if context.t == self.explore:
            due[:] = True
        if known.max_updates is not None:
            due &= self._updates < known.max_updates
        if due.any():
            self._theta[due] = known.estimator.release(due)[due]
            self._updates += due
            self._updated_at[due] = self._logdet[due]

    def _refresh(self, gram: Array) -> None:
        """Compute root and log-determinant of V from a released Gram matrix."""
        shift, floor = self._releasers.shift, self._releasers.floor
        state = (self._root, self._logdet, self._ok)
        agent_kernels.slates.roots(gram, shift, floor, *state)
        if self._ok.all():
            return
        values, vectors = kernels.linalg.eigh(gram[~self._ok])
        gram[~self._ok] = kernels.linalg.compose(np.maximum(values, floor - shift), vectors)
        agent_kernels.slates.roots(gram, shift, 0.0, *state)


def optimistic_samples(capacity: int) -> int:
    """Return the number of samples whose best is optimistic with constant probability.

    It is ceil(1 - log K / log(1 - 1 / (4 sqrt(e pi)))) (Oh & Iyengar 2019).
    """
    miss = portable.log(1.0 - 1.0 / (4.0 * math.sqrt(math.e * math.pi)))
    return math.ceil(1.0 - portable.log(capacity) / miss)
