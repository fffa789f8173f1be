"""Privacy guarantee of an agent: notion, unit, relation, and the curve of its privacy loss."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dpb_gym import state
from dpb_gym.errors import BudgetError
from dpb_gym.privacy.budget import REPORT_DELTA
from dpb_gym.privacy.composition import Composition

_ROUNDED_UP = decimal.Context(prec=6, rounding=decimal.ROUND_CEILING)
# From strongest to weakest: each implies the later ones, but see `implies`.
NOTIONS = ("local", "shuffle", "aggregate", "central", "joint", "anticipating")
UNITS = ("user-round", "reward", "user", "user-rewards")
RELATIONS = ("replace-one", "add-remove")
# Units that a guarantee for the key's unit also protects.
CONTAINED = {
    "user": UNITS,
    "user-rewards": ("user-rewards", "reward"),
    "user-round": ("user-round", "reward"),
    "reward": ("reward",),
}
# Units that leave contexts and actions public.
RESPONSES = ("reward", "user-rewards")
# Units of a single round.
ROUNDS = ("reward", "user-round")
# Data that a guarantee for the unit treats as public, besides `ProblemInfo`.
PUBLIC = {
    "user-round": "nothing of the round",
    "reward": "contexts, actions, which rounds were observed",
    "user": "whose round is whose",
    "user-rewards": "contexts, actions, whose round is whose, which rounds were observed",
}
# Notions in which no party is trusted with a raw record.
UNTRUSTED = ("local", "shuffle", "aggregate")
# No mechanism hides an action from the operator who delivers it.
OPERATOR = (
    "not protected from the operator of the service: what it sees itself, such as the price, the "
    "slate or the purchase of a customer"
)
# A session that decides has the data that it should not need.
ON_SERVER = (
    "the messages are made where the decisions are: that process and its operator are trusted with "
    "contexts and responses"
)


def _above(loss: float) -> str:
    """Return a pure epsilon with six digits, rounded up."""
    # bounds of the arithmetic are a few times 1e-16 above a budget, which stays as it was given
    exact = loss * (1.0 - 1e-9)
    return f"{float(_ROUNDED_UP.create_decimal_from_float(exact)):.6g}"


def implies(notion: str, other: str, unit: str) -> bool:
    """Return whether a guarantee in one notion is one in another, for the same unit.

    A customer's device computes the action from the context. So the whole transcript, which the
    central notion protects, follows from messages only if contexts are public.
    """
    if other == "central" and notion in UNTRUSTED and unit not in RESPONSES:
        return False
    return NOTIONS.index(notion) <= NOTIONS.index(other)


def weakest(notions: Iterable[str], unit: str) -> str:
    """Return the strongest notion that all of some notions imply for a unit."""
    each = tuple(notions)
    return next(n for n in NOTIONS if all(implies(notion, n, unit) for notion in each))


@state.register
@dataclass(frozen=True)
class Guarantee:
    """Privacy guarantee of one agent, immutable and printable in one line.

    Attributes:
        notion: What the attacker sees. ``"joint"``: every output but the target user's own (CS,
            Definition 2); ``"anticipating"``: the outputs after the target's round (CSW,
            Definition 2); ``"central"``: the whole transcript; ``"aggregate"``: the sums of each
            batch's messages; ``"shuffle"``: the shuffled bits of each batch; ``"local"``: the
            messages of each user. A joint guarantee includes an anticipating one, not the reverse.
        unit: What is protected. ``"user-round"``: context and response of one round;
            ``"reward"``: the response of one round, contexts and actions public;
            ``"user"``: all rounds of one user; ``"user-rewards"``: the responses of all rounds
            of one user, with contexts, actions and the users of the rounds public.
        relation: ``"replace-one"`` (one unit exchanged, horizon known) or ``"add-remove"``.
        curve: Composition of accounting events, or `None` for a non-private agent.
        basis: ``"computed"``: from the releasers of a curator. ``"declared"``, if need be
            with the number: cost computed by the caller (`Curator.charge`), or resting on a number
            that no releaser enforces. ``"as printed (...)"``: true cost of a paper's printed
            noise, not bounded by the budget. ``"disclosed (...)"``: why there is no guarantee.
        inherited: Part of the curve that an earlier release cost (`Curator.inherit`), or None.
        uses: For replayed real ratings: the largest number of rounds that offer one rating, and
            of rounds of one person. Otherwise None.
        asked: delta of the budget, at which the text states epsilon; None: `REPORT_DELTA`. It is
            no part of the guarantee and is not compared or stored.
        provisos: Clauses on what the problem leaves outside the guarantee, and on numbers that an
            agent's author declares; not compared or stored.

    Example:
        >>> from dpb_gym.privacy import Composition, GaussianEvent
        >>> g = Guarantee("joint", "user-round", curve=Composition.of(GaussianEvent(2.0, 1.0)))
        >>> g.rho, round(g.epsilon(1e-5), 4)
        (0.125, 1.9931)
    """

    notion: str
    unit: str
    relation: str = "replace-one"
    curve: Composition | None = None
    basis: str = "computed"
    uses: tuple[int, int] | None = None
    inherited: Composition | None = None
    asked: float | None = field(default=None, compare=False)
    provisos: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name, known in (("notion", NOTIONS), ("unit", UNITS), ("relation", RELATIONS)):
            if (value := getattr(self, name)) not in known:
                raise BudgetError(f"{name} must be one of {', '.join(known)}; got {value!r}")
        if self.curve is not None and not isinstance(self.curve, Composition):
            raise BudgetError(f"curve must be a Composition or None; got {self.curve!r}")
        uses = (1, 1) if self.uses is None else self.uses
        if len(uses) != 2 or not all(type(n) is int and 1 <= n <= 10**12 for n in uses):
            raise BudgetError(f"uses must be two positive integers, got {self.uses!r}")

    @classmethod
    def none(cls, notion: str = "central", unit: str = "user-round") -> Guarantee:
        """Return the guarantee object of a non-private agent."""
        return cls(notion, unit, "replace-one", None)

    def covers(self, notion: str, unit: str, relation: str) -> bool:
        """Return whether this guarantee implies one with the given notion, unit and relation."""
        weaker = implies(self.notion, notion, unit)
        return weaker and unit in CONTAINED[self.unit] and relation == self.relation

    def delivered(self, on_devices: bool) -> Guarantee:
        """Return the guarantee for real customers, who get their actions from an operator.

        Args:
            on_devices: Whether the customers' devices make the messages. In the notions without a
                trusted curator the guarantee has the clause `OPERATOR`, and otherwise `ON_SERVER`.
        """
        if self.notion not in UNTRUSTED:
            return self
        clauses = (OPERATOR,) if on_devices else (ON_SERVER, OPERATOR)
        return replace(self, provisos=(*self.provisos, *clauses))

    @property
    def private(self) -> bool:
        """Whether there is a guarantee."""
        return self.curve is not None

    @property
    def rho(self) -> float | None:
        """zCDP parameter, at every Renyi order; `None` if not zCDP."""
        return self.curve.zcdp if self.curve is not None else None

    def epsilon(self, delta: float) -> float:
        """Return the smallest known epsilon at `delta` in [0, 1); infinite for a non-private agent.

        Raises:
            BudgetError: If delta is outside [0, 1).
        """
        from dpb_gym.privacy import accounting

        return math.inf if self.curve is None else accounting.epsilon(self.curve, delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest known delta at `epsilon` >= 0; 1 for a non-private agent.

        Raises:
            BudgetError: If epsilon is negative or not finite.
        """
        from dpb_gym.privacy import accounting

        return 1.0 if self.curve is None else accounting.delta(self.curve, epsilon)

    def data_level(self, delta: float = REPORT_DELTA) -> dict[str, float]:
        """Return epsilon at `delta` per ``"rating"`` and per ``"person"`` of replayed ratings.

        A rating or person in k rounds is protected as a group of k. Epsilon is infinite if no bound
        is known. The result is empty if the environment replays no ratings.
        """
        if self.curve is None or self.uses is None:
            return {}
        whole, epsilons = self.unit in ("user", "user-rewards"), {}
        for what, uses in zip(("rating", "person"), self.uses):
            grouped = self.curve.group(1 if whole else uses)
            epsilons[what] = replace(self, curve=grouped).epsilon(delta)
        return epsilons

    def describe(self, delta: float | None = None) -> str:
        """Return one line with epsilon at `delta`, also per rating and person of real data.

        Args:
            delta: None: `asked`, or `REPORT_DELTA`.
        """
        if delta is None:
            delta = REPORT_DELTA if self.asked is None else self.asked
        if self.curve is None:
            return "non-private"
        line = self._per_unit(self.curve, delta)
        if self.inherited is not None:
            rho, alone = self.inherited.zcdp, replace(self, curve=self.inherited)
            cost = f"eps={alone.epsilon(delta):.4g}" if rho is None else f"rho={rho:.4g}"
            line += f"; {cost} of it for the prior"
        for (what, epsilon), uses in zip(self.data_level(delta).items(), self.uses or ()):
            line += f"; per {what} (<= {uses} round{'s' * (uses > 1)}): eps={epsilon:.4g}"
        if "declared" in self.basis:
            line += f"; {self.basis}"
        return "; ".join([line, *self.provisos])

    def _per_unit(self, curve: Composition, delta: float) -> str:
        where = f"per {self.unit} ({self.relation})"
        if math.isfinite(curve.pure):
            return f"{self.notion} DP eps={_above(curve.pure)} {where}"
        loss = f"eps={self.epsilon(delta):.4g} at delta={delta:g}"
        if self.rho is None:
            return f"{self.notion} DP {loss} {where}"
        return f"{self.notion} zCDP rho={self.rho:.4g} {where}; {loss}"

    def __str__(self) -> str:
        return self.describe()

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as plain JSON values; inverse of `from_dict`."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        for name in ("curve", "inherited"):
            values[name] = None if values[name] is None else values[name].to_dict()
        values["uses"] = None if self.uses is None else list(self.uses)
        if self.inherited is None:
            del values["inherited"]
        return values

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Guarantee:
        """Return the guarantee of a `to_dict` value.

        Raises:
            BudgetError: If a field is missing, unknown or invalid.
        """
        try:
            names = ("notion", "unit", "relation", "basis")
            arguments: dict[str, Any] = {name: data[name] for name in names}
            for name, part in (("curve", data["curve"]), ("inherited", data.get("inherited"))):
                arguments[name] = None if part is None else Composition.from_dict(part)
            uses = data.get("uses")
            return cls(**arguments, uses=None if uses is None else tuple(uses))
        except (KeyError, TypeError) as error:
            raise BudgetError(
                f"a guarantee has notion, unit, relation and curve: {error!r}"
            ) from error
