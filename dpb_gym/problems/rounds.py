"""The parts of a round: contexts, feedback, outcomes, and the numbers drawn for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dpb_gym.problems.prior import Prior
from dpb_gym.streams import Stream

Array = NDArray[Any]
Hidden = dict[str, Array]
Fill = Callable[[Generator, int, Hidden, Array], None]
LONGEST = 10**9
"""What an agent that is not told the horizon plans for."""


@dataclass(frozen=True)
class ProblemInfo:
    """What an agent may know of a problem before the first round; never theta.

    Attributes:
        kind: Name of the problem's `Kind`, e.g. ``"pricing"``.
        horizon: Number of rounds T; None: not told.
        dim: Dimension d of the unknown parameter and of a feature vector.
        reward_range: Lowest and highest reward of one round.
        n_items: Assortment: number of items N.
        capacity: Assortment: most items in a slate, K.
        exactly: Assortment: whether a slate must hold K items, not fewer.
        masked: Whether only some items or candidates are on offer, `Context.available`.
        stock: Units of each item that can be sold over the season (pricing: of the one product);
            None: nothing runs out.
        equal_revenues: Assortment: whether every item always earns the same.
        demand: Pricing: ``"logistic"`` or ``"gaussian"``.
        zeta: Pricing: link scale.
        n_candidates: Recommendation: candidates offered each round.
        n_arms: Recommendation: size of the fixed pool, None if arms are fresh.
        max_interactions: Rounds of one user at most, None if users are not identified.
        partial_feedback: Whether some rounds return no feedback (rejection replay).
        delay: When responses arrive, as text (see `dpb_gym.problems.delay.Delay`); None: at once.
        rating_uses: Replay of real ratings: rounds at most in which one rating is offered.
        person_uses: Real data: rounds at most of one person.
        prior: What is known of theta before the first round; None: nothing.
    """

    kind: str
    horizon: int | None
    dim: int
    reward_range: tuple[float, float]
    n_items: int | None = None
    capacity: int | None = None
    exactly: bool | None = None
    masked: bool | None = None
    stock: tuple[int, ...] | None = None
    equal_revenues: bool | None = None
    demand: str | None = None
    zeta: float | None = None
    n_candidates: int | None = None
    n_arms: int | None = None
    max_interactions: int | None = None
    partial_feedback: bool = False
    delay: str | None = None
    rating_uses: int | None = None
    person_uses: int | None = None
    prior: Prior | None = None

    @property
    def longest(self) -> int:
        """Rounds at most: the horizon, or 10^9 where it is not told."""
        return LONGEST if self.horizon is None else self.horizon

    @property
    def fixed_arms(self) -> bool:
        """Whether every round offers all arms of one pool (a multi-armed bandit)."""
        return self.n_arms is not None and self.n_arms == self.n_candidates and not self.masked

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields that are set, ready for JSON."""
        told = asdict(replace(self, prior=None))
        told["prior"] = None if self.prior is None else self.prior.to_dict()
        return {k: v for k, v in told.items() if v is not None}


class Context(NamedTuple):
    """What a policy sees of the current customers, B replicates at once.

    Attributes:
        t: Round, counted from 1; in lockstep the same for all replicates.
        features: float32. Assortment ``(B, N, d)``; pricing ``(B, d - 1)``;
            recommendation ``(B, n_candidates, d)``.
        revenues: Assortment only: float32 ``(B, N)``.
        arms: Recommendation only: pool indices ``(B, n_candidates)``, -1 when fresh.
        users: User ids ``(B,)`` where users are identified, else None.
        available: Which items or candidates can be offered, bool ``(B, N)``; None if all can.
    """

    t: int
    features: Array
    revenues: Array | None = None
    arms: Array | None = None
    users: Array | None = None
    available: Array | None = None

    @property
    def offered_revenues(self) -> Array:
        """The revenues, -inf where an item cannot be offered: what optimisers maximise."""
        assert self.revenues is not None
        if self.available is None:
            return self.revenues
        return np.where(self.available, self.revenues, np.float32(-np.inf))

    @classmethod
    def join(cls, t: int, contexts: Sequence[Context]) -> Context:
        """Contexts below each other, without the parts that one of them lacks."""
        parts: list[Any] = [
            None if any(p is None for p in part) else np.concatenate(part)
            for part in zip(*(context[1:] for context in contexts))
        ]
        return cls(t, *parts)

    def each(self, change: Callable[[Array], Array]) -> Context:
        """The context with every array changed."""
        t, *parts = self
        return Context(t, *[None if part is None else change(part) for part in parts])  # type: ignore[arg-type]


class Feedback(NamedTuple):
    """The raw response of the current customers: private data.

    Attributes:
        reward: ``(B,)`` realised revenue or reward.
        choice: Assortment: position in the offered slate, -1 for no purchase ``(B,)``.
        demand: Pricing: realised demand ``(B,)``.
        observed: False where the round returned nothing (rejection replay, delayed
            feedback); None means that every replicate was observed.
        answer: Kinds of other packages: what came back besides the reward ``(B, ...)``.
    """

    reward: Array
    choice: Array | None = None
    demand: Array | None = None
    observed: Array | None = None
    answer: Array | None = None


class Round(NamedTuple):
    """One round as the environment knows it; agents see `context` only."""

    context: Context
    uniform: Array
    secret: dict[str, Array]

    def each(self, change: Callable[[Array], Array]) -> Round:
        """The round with every array changed."""
        secret = {name: change(value) for name, value in self.secret.items()}
        return Round(self.context.each(change), change(self.uniform), secret)

    def showing(self, **parts: Any) -> Round:
        """The round with other parts of its context."""
        return self._replace(context=self.context._replace(**parts))

    def hiding(self, **secrets: Array) -> Round:
        """The round with more secrets."""
        return self._replace(secret={**self.secret, **secrets})


class Outcome(NamedTuple):
    """Feedback with the expected reward and the pseudo-regret of the action, ``(B,)``."""

    feedback: Feedback
    expected: Array
    regret: Array


def uniform(rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
    """Fills a field with uniforms on [0, 1)."""
    rng.random(out=out, dtype=out.dtype)


def signed(rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
    """Fills a field with uniforms on [-1, 1)."""
    rng.random(out=out, dtype=out.dtype)
    out *= 2.0
    out -= 1.0


@dataclass(frozen=True)
class Field:
    """Numbers that one replicate needs each round, from a stream of their own.

    Attributes:
        shape: Shape in one round.
        dtype: NumPy dtype of the stored block.
        stream: The stream they come from.
        fill: ``fill(generator, start, hidden, out)`` writes rounds start+1,
            start+2, ... into ``out[0], out[1], ...``; consumes a fixed count of
            numbers per round, in round order; uniforms by default.
    """

    shape: tuple[int, ...]
    dtype: type
    stream: Stream
    fill: Fill = uniform
