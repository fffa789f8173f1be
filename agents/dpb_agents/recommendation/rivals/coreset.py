"""CoreSet-Elimination-DP: phased elimination of arms."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import choice, integer
from dpb_agents.recommendation.linear import central
from dpb_agents.recommendation.rivals.linear_rival import COMPOSITIONS, LinearRival, RewardSums
from dpb_gym import kernels, portable
from dpb_gym.privacy import Curator, Segment
from dpb_gym.problems.availability import among_available
from dpb_gym.problems.base import Array, Context, ProblemInfo


@central("coreset-elimination")
class CoresetElimination(LinearRival):
    """Phased elimination on one noisy estimate per phase, after RU, Table 6 [construct].

    RU cites no central algorithm of this name. Phases double in length. In a phase the agent
    plays the offered, still active candidate of largest ||x|| in the metric of the phase's own
    Gram matrix V, or, if none is active, the largest <x, theta>. At the end theta = V^-1
    (sum r x + noise), from the phase's own rounds, and arms whose upper bound is below the
    largest lower bound are dropped; half-width ``alpha (range/2 ||x||_{V^-1} +
    sigma ||V^-1 x||) sqrt(2 log(2 n K T))`` for n arms and K phases. Arms of a fixed pool are
    dropped for good; with fresh arms every round's candidates are compared with each other.

    Sensitivity of a phase's sum: the reward's range. RU divides the budget by the number of phases,
    although the phases are disjoint. The ledger composes the releases in parallel, so with
    ``composition="sequential"`` the guarantee is 1 / K of the budget. Central, for the **reward**
    of one round, replace-one.

    Args:
        alpha: Factor of the confidence width, >= 0.
        length: Rounds of the first phase. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        composition: ``"sequential"``: the phases share the budget, as in the paper;
            ``"parallel"``: each phase spends all of it.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "composition": ["sequential", "parallel"],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    alpha: float = 0.1
    length: int = integer(100, 1)
    composition: str = choice("sequential", COMPOSITIONS)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        first, T = self.length * self._stretch, self._horizon
        phases = math.ceil(math.log2(T / first + 1))
        split = phases if self.composition == "sequential" else 1
        self.releaser = RewardSums(
            curator, self._theta.shape[1], bound, "reward sum of a phase", split=split
        )
        B, d = self._theta.shape
        assert problem.n_candidates is not None
        n = problem.n_arms or problem.n_candidates
        log = math.sqrt(2.0 * portable.log(2.0 * n * phases * T))
        self._spread = self.alpha * self._half * log
        self._noise = self.alpha * self.releaser.sigma * log
        self._grown = self._grams(1)
        self._start = self._inverse[0].copy()
        self._phase = self._next = first
        self._estimated = False
        self._pool = problem.n_arms is not None
        size = n if self._pool else 0
        self._table = np.zeros((B, size, d), np.float32)
        self._seen = np.zeros((B, size), bool)
        self._active = np.ones((B, size), bool)

    @among_available
    def act(self, context: Context) -> Array:
        B, m, _ = context.features.shape
        if self._pool:
            assert context.arms is not None
            agent_kernels.linear.remember(context.features, context.arms, self._table, self._seen)
            active = np.take_along_axis(self._active, context.arms, axis=1)
        else:
            active = np.ones((B, m), bool)
            if self._estimated:
                self._eliminate(context.features, active)
        action = np.empty(B, np.int64)
        agent_kernels.linear.choose_widest(
            context.features, active, self._estimate(), self._grown[0][0], action
        )
        return action

    def _eliminate(self, features: Array, active: Array) -> None:
        agent_kernels.linear.eliminate(
            features, self._estimate(), self._inverse, self._spread, self._noise, active
        )

    play = LinearRival.play

    def _play(self, rounds: tuple[Array, ...], arms: Array | None, *out: Array) -> int:
        pool = np.empty((*out[-1].shape, 0), np.int64) if arms is None else arms
        pool = pool, self._active, self._seen, self._table
        bounds = self._estimate(), self._inverse, self._spread, self._noise, self._estimated
        return int(agent_kernels.linear.play_widest(rounds, pool, bounds, self._grown, *out))

    def _learn(self, reward: Array, chosen: Array) -> None:
        self.releaser.add_rounds(reward, chosen)
        if self._rounds < self._next:
            return
        self._inverse[:] = self._grown[0][0]
        self._grown[0][:] = self._start
        kernels.linalg.multiply(self._inverse, self.releaser.release(self._all), self._theta)
        self._estimated = True
        if self._pool:
            # arms never offered are not compared and not dropped
            left = self._active & self._seen
            self._eliminate(self._table, left)
            self._active = left | ~self._seen
        self._phase *= 2
        self._next += self._phase
