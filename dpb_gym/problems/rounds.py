"""The parts of a round: contexts, feedback, outcomes, and the numbers drawn for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dpb_gym import state, validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems.prior import Prior
from dpb_gym.streams import Stream

Array = NDArray[Any]
Hidden = dict[str, Array]
Fill = Callable[[Generator, int, Hidden, Array], None]
LONGEST = 10**9
"""Horizon that agents plan for when the horizon is unknown."""


SOLD_OUT = "between worlds in which the same items are sold out at the same times"
LOG = "apart from the log"
FROM_LOG = (
    f"{LOG}: coefficients, zeta, counts, the quoted prices' range, undeclared bounds "
    "and features are raw"
)
RELEASED = LOG + ": features are raw, its model was released with {}"


LINK_SCALES = 1e-9, 1e9
"""Smallest and largest link scale zeta, beyond which formulas of agents divide by zero."""


@state.register
@dataclass(frozen=True)
class ProblemInfo:
    """Public facts of a problem, available to agents before the first round; never theta.

    Attributes:
        kind: Name of the problem's `Kind`, e.g. ``"pricing"``.
        horizon: Number of rounds T; None if unknown to agents.
        dim: Dimension d of the unknown parameter and of a feature vector.
        reward_range: Lowest and highest reward of one round.
        binary: Recommendation: whether every reward is one of the two ends of `reward_range`; None
            if that is not known.
        n_items: Assortment: number of items N.
        capacity: Assortment: largest number of items in a slate, K.
        exactly: Assortment: whether a slate must hold K items, not fewer.
        masked: Whether only some items or candidates are available, `Context.available`.
        stock: Units of each item that can be sold over the horizon (pricing: of the one product);
            None if unlimited.
        equal_revenues: Assortment: whether all items always have the same revenue.
        demand: Pricing: ``"logistic"`` or ``"gaussian"``.
        price_range: Chosen prices: lowest and highest price that can be played; others are played
            as the nearest of the two. None: all of [0, 1].
        zeta: Pricing: link scale, 1e-9 to 1e9.
        n_candidates: Recommendation: candidates offered each round.
        n_arms: Recommendation: size of the fixed pool, None if arms are new in every round.
        max_interactions: Maximum number of rounds per user, None if users are not identified.
        partial_feedback: Whether some rounds return no feedback (rejection replay).
        delay: Delay of responses, as text (see `dpb_gym.problems.delay.Delay`); None: no delay.
        rating_uses: Replay of real ratings: maximum number of rounds that offer one rating.
        person_uses: Real data: maximum number of rounds per person.
        log_release: Guarantee of the release of a log's model, as text; None: the model is raw.
        prior: Prior information on theta; None if there is none.
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
    price_range: tuple[float, float] | None = None
    zeta: float | None = None
    n_candidates: int | None = None
    n_arms: int | None = None
    max_interactions: int | None = None
    partial_feedback: bool = False
    delay: str | None = None
    rating_uses: int | None = None
    person_uses: int | None = None
    log_release: str | None = None
    prior: Prior | None = None
    binary: bool | None = None

    @property
    def longest(self) -> int:
        """Upper bound on the number of rounds: the horizon, or 10^9 if it is unknown."""
        return LONGEST if self.horizon is None else self.horizon

    @property
    def fixed_arms(self) -> bool:
        """Whether every round offers all arms of one pool (a multi-armed bandit)."""
        return self.n_arms is not None and self.n_arms == self.n_candidates and not self.masked

    @property
    def provisos(self) -> tuple[str, ...]:
        """Clauses that every guarantee on this problem needs; see `Guarantee.provisos`."""
        log = FROM_LOG if self.log_release is None else RELEASED.format(self.log_release)
        clauses = {SOLD_OUT: self.stock, log: self.person_uses}
        return tuple(clause for clause, cause in clauses.items() if cause is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are not None, as JSON values."""
        values = asdict(replace(self, prior=None))
        values["prior"] = None if self.prior is None else self.prior.to_dict()
        return {k: v for k, v in values.items() if v is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProblemInfo:
        """Return the facts of a `to_dict` value, in which infinite bounds of rewards may be None.

        Raises:
            ParameterError: If a field is unknown or missing, or a tuple or the prior is malformed.
        """
        known = {f.name: f.default for f in fields(cls)} | {"horizon": None}
        given = validation.settings("a problem", data, known)
        missing = [name for name, value in given.items() if value is MISSING]
        if missing:
            raise ParameterError(f"a problem needs {', '.join(missing)}")
        try:
            low, high = given["reward_range"]
        except (TypeError, ValueError):
            raise ParameterError(f"reward_range must be two numbers or null, got {data}") from None
        bounds = zip(("low", "high"), (low, high), (-math.inf, math.inf))
        given["reward_range"] = tuple(
            limit if bound in (None, limit) else validation.real(name, bound)
            for name, bound, limit in bounds
        )
        if given["stock"] is not None:
            stock = validation.numbers("stock", given["stock"])
            given["stock"] = tuple(int(units) for units in np.atleast_1d(stock))
        if given["prior"] is not None:
            given["prior"] = Prior.read(given["prior"])
        return cls(**given)


@state.register
class Context(NamedTuple):
    """Public context of the current customers, B replicates at once.

    Attributes:
        t: Round, counted from 1; in lockstep the same for all replicates.
        features: float32. Assortment ``(B, N, d)``, with prices ``(B, N, d / 2)``; pricing
            ``(B, d - 1)``; recommendation ``(B, n_candidates, d)``.
        revenues: Assortment only: float32 ``(B, N)``.
        arms: Recommendation only: pool indices ``(B, n_candidates)``, -1 when fresh.
        users: User ids ``(B,)`` where users are identified, else None.
        available: Mask of the items or candidates that can be offered, bool ``(B, N)``; None if
            all can.
    """

    t: int
    features: Array
    revenues: Array | None = None
    arms: Array | None = None
    users: Array | None = None
    available: Array | None = None

    @property
    def offered_revenues(self) -> Array:
        """Revenues ``(B, N)``, -inf where an item is not available; for optimisers."""
        assert self.revenues is not None
        if self.available is None:
            return self.revenues
        return np.where(self.available, self.revenues, np.float32(-np.inf))

    @classmethod
    def join(cls, t: int, contexts: Sequence[Context]) -> Context:
        """Concatenate contexts along the replicate axis, without parts that are None in any."""
        parts: list[Any] = [
            None if any(p is None for p in part) else np.concatenate(part)
            for part in zip(*(context[1:] for context in contexts))
        ]
        return cls(t, *parts)

    def each(self, change: Callable[[Array], Array]) -> Context:
        """Return the context with `change` applied to every array."""
        t, *parts = self
        return Context(t, *[None if part is None else change(part) for part in parts])  # type: ignore[arg-type]


@state.register
class Feedback(NamedTuple):
    """The raw response of the current customers: private data.

    Attributes:
        reward: ``(B,)`` realised revenue or reward.
        choice: Assortment: position in the offered slate, or with prices the item; -1 for no
            purchase ``(B,)``.
        demand: Pricing: realised demand ``(B,)``.
        observed: False where the round returned nothing (rejection replay, delayed
            feedback); None means that every replicate was observed.
        answer: Kinds of other packages: the response besides the reward ``(B, ...)``.
    """

    reward: Array
    choice: Array | None = None
    demand: Array | None = None
    observed: Array | None = None
    answer: Array | None = None

    def where(self, kept: Array) -> Feedback:
        """Return the feedback with no reward, demand or choice where the mask ``(B,)`` is False."""
        choice = self.choice
        demand = self.demand
        return self._replace(
            reward=np.where(kept, self.reward, 0.0),
            choice=None if choice is None else np.where(kept, choice, -1),
            demand=None if demand is None else np.where(kept, demand, 0.0),
        )


class Round(NamedTuple):
    """One round with its hidden parts; agents see `context` only."""

    context: Context
    uniform: Array
    secret: dict[str, Array]

    def each(self, change: Callable[[Array], Array]) -> Round:
        """Return the round with `change` applied to every array."""
        secret = {name: change(value) for name, value in self.secret.items()}
        return Round(self.context.each(change), change(self.uniform), secret)

    def showing(self, **parts: Any) -> Round:
        """Return the round with parts of its context replaced."""
        return self._replace(context=self.context._replace(**parts))

    def hiding(self, **secrets: Array) -> Round:
        """Return the round with additional secrets."""
        return self._replace(secret={**self.secret, **secrets})


class Outcome(NamedTuple):
    """Feedback with the expected reward and the pseudo-regret of the action, ``(B,)``."""

    feedback: Feedback
    expected: Array
    regret: Array


def uniform(rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
    """Fill a field with uniforms on [0, 1)."""
    rng.random(out=out, dtype=out.dtype)


def signed(rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
    """Fill a field with uniforms on [-1, 1)."""
    rng.random(out=out, dtype=out.dtype)
    out *= 2.0
    out -= 1.0


@dataclass(frozen=True)
class Field:
    """Random numbers that one replicate needs in each round, from a separate stream.

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
