"""Base class of the conditions of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array, Field, Hidden, Problem, ProblemInfo, Round
from dpb_gym.problems.kinds import kind_of


class Condition:
    """Base class of conditions; by default the methods change nothing.

    Args:
        problem: The problem without the condition.
        value: Value of the keyword argument, never None: None switches a condition off.

    Attributes:
        name: The keyword argument.
        stretch: Upper bound on the factor by which features grow.
        excludes: Conditions that cannot be combined with this one, and why.

    Raises:
        ParameterError: If the value is not allowed or the problem cannot have the condition.
    """

    name: ClassVar[str]
    excludes: ClassVar[dict[str, str]] = {}
    stretch: float = 1.0

    def __init__(self, problem: Problem, value: Any) -> None:
        raise NotImplementedError

    @classmethod
    def refused(cls, kind: str) -> str:
        """Return the reason why the condition does not apply to a kind, or "" if it does."""
        return kind_of(kind).refuses.get(cls.name, "")

    def info(self, info: ProblemInfo) -> ProblemInfo:
        """Return the `ProblemInfo` with the condition."""
        return info

    def hidden(self, drawn: Any, hidden: Hidden) -> Hidden:
        """Return additional hidden state of one replicate, as unbatched arrays.

        Args:
            drawn: Generator, used after the problem has drawn its own state.
            hidden: The state so far.
        """
        return {}

    def fields(self) -> dict[str, Field]:
        """Return the layouts of additional per-round numbers."""
        return {}

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        """Return the round with the condition's changes to its context and its secrets."""
        return round_

    def truth(self, hidden: Hidden, round_: Round) -> Hidden:
        """Return the hidden state of this round."""
        return hidden

    def worlds(self, hidden: Hidden) -> list[Hidden]:
        """Return equally likely hidden states of the customer; empty means `hidden` alone."""
        return []

    def customer(self, hidden: Hidden, round_: Round) -> Hidden:
        """Return the hidden state that determines the response of this round's customer."""
        return hidden

    def reward_factor(self, round_: Round) -> Array | float:
        """Return the factor ``(B,)`` of this round's rewards, > 0; it cannot be used with stock.

        The factor does not depend on the action, so it does not change the best action. A condition
        with factors above 1 also widens ``reward_range`` in `info`, and sets `binary` to None.
        """
        return 1.0

    def check(self, round_: Round, action: Array) -> None:
        """Reject actions that cannot be played in this round.

        Raises:
            ActionError: If an action cannot be played.
        """


def needs_theta(name: str, hidden: Hidden) -> Array:
    """Return theta of one replicate.

    Raises:
        ParameterError: If the problem has no theta.
    """
    if "theta" not in hidden:
        raise ParameterError(f"{name} needs a problem with a parameter theta: this one has none")
    return hidden["theta"]
