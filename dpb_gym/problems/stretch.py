"""Several coming rounds of all replicates as arrays, for agents that play them at once."""

from __future__ import annotations

from dataclasses import dataclass
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
        self.context, self.reward, self.partly = context, reward, observed
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
        return np.ones(self.reward.shape, bool) if self.partly is None else self.partly

    def answered(self, actions: Array, part: slice = slice(None)) -> Array:
        """Return whether feedback is returned for the actions of rounds in `part`, ``(n, B)``."""
        if self.partly is None:
            return np.ones(actions.shape, bool)
        answered: Array = np.take_along_axis(self.partly[part], actions[..., None], 2)[..., 0]
        return answered


@dataclass(frozen=True, eq=False)
class JudgedStretch:
    """A stretch with the expected rewards, which agents do not receive.

    Attributes:
        visible: The part that agents receive.
        expected: Expected reward of every candidate, ``(n, B, m)``.
        best: Largest expected reward, ``(n, B)``.
    """

    visible: Stretch
    expected: Array
    best: Array

    def view(self) -> Stretch:
        """Return the part that agents receive."""
        return self.visible

    def outcome(
        self, view: Stretch, actions: Array, agent: str
    ) -> tuple[Array, Array | None, Array]:
        """Return expected rewards, where feedback was returned, and rewards, each ``(n, B)``.

        Args:
            view: As returned by `view`.
            actions: Candidates ``(n, B)``.
            agent: Name of the agent that chose them.

        Raises:
            ActionError: If there is no such candidate.
        """
        rewards = self.visible.reward
        *n, m = rewards.shape
        expected, reward = np.empty((2, *n))
        if actions.shape != (*n,) or kernels.linear_rewards.pick(
            rewards, self.expected, actions, reward, expected
        ):
            raise ActionError(
                f"{agent}.play must return candidates in 0..{m - 1} of shape {(*n,)}, got shape "
                f"{actions.shape} and values in [{actions.min()}, {actions.max()}]"
            )
        partly = self.visible.partly is not None
        return expected, self.visible.answered(actions) if partly else None, reward
