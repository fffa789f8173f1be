"""Several coming rounds of all replicates as arrays, for agents that play them at once."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dpb_gym import kernels
from dpb_gym.errors import ActionError
from dpb_gym.problems.rounds import Array, Context


class Stretch:
    """Consecutive rounds of B replicates, as an agent that plays them at once receives them.

    Arrays lead with round and replicate, ``(n, B, ...)``.

    Args:
        context: Contexts; `t` is the first round.
        reward: Reward of every candidate, ``(n, B, m)``. Only that of the chosen one may be used:
            `dpb_gym.exchange.verification` plays round by round, where no other is known.
        observed: Whether feedback is returned for a candidate, ``(n, B, m)``; None: always.
    """

    def __init__(self, context: Context, reward: Array, observed: Array | None = None) -> None:
        self.context, self.reward, self._partly = context, reward, observed
        for part in (*context[1:], reward):
            if part is not None:
                part.flags.writeable = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rounds n and replicates B."""
        n, replicates, _ = self.reward.shape
        return n, replicates

    @cached_property
    def observed(self) -> Array:
        """Whether feedback is returned for a candidate, ``(n, B, m)``."""
        return np.ones(self.reward.shape, bool) if self._partly is None else self._partly


class JudgedStretch(Stretch):
    """A stretch with the expected rewards, which agents do not receive.

    Args:
        context: See `Stretch`.
        reward: See `Stretch`.
        observed: See `Stretch`.
        expected: Expected reward of every candidate, ``(n, B, m)``.
        best: Largest expected reward, ``(n, B)``.
    """

    def __init__(
        self,
        context: Context,
        reward: Array,
        observed: Array | None = None,
        *,
        expected: Array,
        best: Array,
    ) -> None:
        super().__init__(context, reward, observed)
        self.expected, self.best = expected, best

    @cached_property
    def visible(self) -> Stretch:
        """The part that agents receive."""
        return Stretch(self.context, self.reward, self._partly)

    def answer(self, actions: Array, agent: str) -> tuple[Array, Array | None, Array]:
        """Return expected rewards, where feedback was returned, and rewards, each ``(n, B)``.

        Args:
            actions: Candidates ``(n, B)``.
            agent: Name of the agent that chose them.

        Raises:
            ActionError: If there is no such candidate.
        """
        n, m = self.shape, self.reward.shape[2]
        expected, reward = np.empty((2, *n))
        if actions.shape != n or kernels.linear_rewards.pick(
            self.reward, self.expected, actions, reward, expected
        ):
            raise ActionError(
                f"{agent}.play must return candidates in 0..{m - 1} of shape {n}, got shape "
                f"{actions.shape} and values in [{actions.min()}, {actions.max()}]"
            )
        if self._partly is None:
            return expected, None, reward
        return expected, np.take_along_axis(self._partly, actions[..., None], 2)[..., 0], reward
