"""A trusted curator as a wrapper: noisy sums of r x, batch after batch (RU, Algorithm 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import BudgetError, shown
from dpb_gym.feedback.layers import (
    ChosenLayer,
    Rows,
    SingleLayer,
    VectorLayer,
)
from dpb_gym.privacy import BatchSum, Budget, Curator, Guarantee, Ledger, NoiseSource
from dpb_gym.problems.base import Array, Feedback, ProblemInfo
from dpb_gym.streams import Stream, generator

PROTECTS = ("central", "reward")


class _Curated(ChosenLayer):
    # It sees responses and contexts raw; no other layer goes beneath or on top.
    covers = ("response", "context")

    def __init__(self, env: Any, budget: Budget | str, batch: int = 300) -> None:
        given = Budget.parse(budget)
        if given is None:
            raise BudgetError(f"a central curator needs a budget, got {shown(budget)}")
        self._budget, self._batch = given, validation.integer("batch", batch, 1)
        self._wrap(env, budget=given, batch=batch)

    def _fit(self, info: ProblemInfo) -> None:
        super()._fit(info)
        self._sums = [self._sum(0, 0) for _ in range(self._lanes)]
        self._rounds = np.zeros(self._lanes, np.int64)

    def _sum(self, seed: int, episode: int) -> BatchSum:
        info = self._core.problem.info
        key = f"central curator, {self._budget}, batches of {self._batch}"
        noise = NoiseSource([generator(seed, Stream.LOCAL_PRIVACY, episode, key)])
        curator = Curator(self._budget, PROTECTS, noise=noise, horizon=info.longest)
        made = BatchSum(curator, info.dim, reward=info.reward_range)
        curator.seal()
        return made

    def _open(self, i: int, seed: int, episode: int) -> None:
        self._sums[i] = self._sum(seed, episode)
        self._rounds[i] = 0

    @property
    def ledgers(self) -> list[Ledger]:
        """The ledger of the current episode, one per lane."""
        return [sums.curator.ledger for sums in self._sums]

    def _send(self, seen: Rows, feedback: Feedback, played: Array) -> tuple[Array, Rows]:
        chosen = self._chosen(seen, feedback)
        response, released = np.zeros_like(chosen), np.zeros(self._lanes, bool)
        for i in np.flatnonzero(played):
            self._sums[i].add(feedback.reward[i : i + 1], chosen[i : i + 1])
            self._rounds[i] += 1
            released[i] = self._rounds[i] % self._batch == 0
            if released[i]:
                response[i] = self._sums[i].release()[0]
        return np.zeros(self._lanes), {"response": response, "released": released}

    @property
    def guarantee(self) -> Guarantee:
        """Central, for the reward of one round: contexts and actions count as public."""
        return self.ledgers[0].guarantee


class CentralCurator(_Curated, SingleLayer):
    """Agents see rewards only through noisy sums of r x over batches of rounds.

    Any agent that needs no more of the rewards than the sum of r x is private behind it.
    After every `batch` rounds ``info["released"]`` is True and ``info["response"]`` ``(d,)``
    is the batch's sum plus noise; in other rounds it is zero. Features x, clipped to the unit
    ball, are public: agents keep their own sum of x x'. The reward is always 0; the truth is in
    the attribute `truth`, for the harness. The rounds after the last full batch are never
    released. Every reward is in one batch, so the batches cost what one of them does.

    Args:
        env: A dpb-gym recommendation environment.
        budget: What one episode may spend, e.g. ``"rho=0.5"``.
        batch: Rounds between releases.

    Attributes:
        ledgers: The ledger of the current episode, one per lane.

    Raises:
        ParameterError: If the environment is no recommendation or a parameter is out of range.
        BudgetError: If the budget is none.
    """


class VectorCentralCurator(_Curated, VectorLayer):
    """Vector twin of `CentralCurator`: every lane has a curator and a budget of its own."""
