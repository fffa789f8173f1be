"""What one condition may change of a problem, and how its value is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array, Field, Hidden, Problem, ProblemInfo, Round


class Condition:
    """One condition of one problem; the methods leave everything as it is.

    Args:
        problem: The problem it is laid on.
        value: What the user wrote, never None: None switches a condition off.

    Attributes:
        name: The keyword argument.
        stretch: Factor by which features may grow.
        excludes: Conditions that make no sense beside it, and why.
        senseless: Why it makes no sense for problems of a kind, ``""`` where it does, under ``""``
            for all other kinds.

    Raises:
        ParameterError: If the value is none of those allowed, or the problem has no use for it.
    """

    name: ClassVar[str]
    excludes: ClassVar[dict[str, str]] = {}
    senseless: ClassVar[dict[str, str]] = {}
    stretch: float = 1.0

    def __init__(self, problem: Problem, value: Any) -> None:
        raise NotImplementedError

    @classmethod
    def refused(cls, kind: str) -> str:
        """Why it makes no sense for problems of the kind, empty if it does."""
        return cls.senseless.get(kind, cls.senseless.get("", ""))

    def info(self, info: ProblemInfo) -> ProblemInfo:
        """What agents may know, the condition included."""
        return info

    def hidden(self, drawn: Any, hidden: Hidden) -> Hidden:
        """More of what is fixed for one replicate, drawn by the generator `drawn` after
        everything else; unbatched arrays."""
        return {}

    def fields(self) -> dict[str, Field]:
        """More numbers for each round."""
        return {}

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        """The round with what the condition adds to its context and its secrets."""
        return round_

    def truth(self, hidden: Hidden, round_: Round) -> Hidden:
        """The hidden state as it is in this round."""
        return hidden

    def worlds(self, hidden: Hidden) -> list[Hidden]:
        """Equally likely hidden states of the customer, none for the one that is given."""
        return []

    def customer(self, hidden: Hidden, round_: Round) -> Hidden:
        """The hidden state by which this round's customer answers."""
        return hidden

    def check(self, round_: Round, action: Array) -> None:
        """Refuses actions that cannot be played in this round.

        Raises:
            ActionError: If there is one.
        """


def needs_theta(name: str, hidden: Hidden) -> Array:
    """theta of one replicate.

    Raises:
        ParameterError: If the problem has none.
    """
    if "theta" not in hidden:
        raise ParameterError(f"{name} needs a problem with a parameter theta: this one has none")
    return hidden["theta"]
