"""The ledger of one agent, which charges every release before its noise is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpb_gym import state
from dpb_gym.errors import BudgetError, BudgetExceeded, ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.calibration import cost_of
from dpb_gym.privacy.composition import Composition
from dpb_gym.privacy.events import Event
from dpb_gym.privacy.guarantee import Guarantee

TOLERANCE = 1e-9


@state.register
@dataclass(frozen=True)
class Charge:
    """One line of a ledger.

    Attributes:
        what: Name of the release.
        event: Its accounting event.
        earlier: Whether it was released before the agent began.
    """

    what: str
    event: Event
    earlier: bool = False


@state.register
@dataclass(eq=False, repr=False)
class Ledger:
    """Sum of an agent's charges; a charge beyond the budget is rejected.

    One ledger serves a batch of replicates with identical plans. They are separate data sets, so
    the cost is that of one. Charges always add up, because two releasers may see the same record.

    Args:
        budget: Upper bound; `None` for no bound.
        notion: See `Guarantee`.
        unit: See `Guarantee`.
        relation: See `Guarantee`.

    Attributes:
        entries: Every charge, in order.
        basis: See `Guarantee`.
        asked: delta of the budget, or None.

    Example:
        >>> from dpb_gym.privacy import Budget, GaussianEvent
        >>> ledger = Ledger(Budget.zcdp(0.5))
        >>> ledger.charge(GaussianEvent(sigma=2.0, sensitivity=1.0), what="sum of rewards")
        >>> ledger.spent, ledger.remaining
        (0.125, 0.375)
    """

    budget: Budget | None = None
    notion: str = "joint"
    unit: str = "user-round"
    relation: str = "replace-one"
    basis: str = field(default="computed", init=False)
    entries: list[Charge] = field(default_factory=list, init=False)
    disclosed: list[str] = field(default_factory=list, init=False)
    asked: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise BudgetError(f"budget must be a Budget or None; got {self.budget!r}")
        Guarantee(self.notion, self.unit, self.relation)  # validates the three names
        self.asked = None if self.budget is None else self.budget.delta

    def charge(
        self, event: Event, *, what: str, basis: str = "computed", earlier: bool = False
    ) -> None:
        """Charge a release or a whole plan of releases. Call it before noise is drawn.

        Args:
            event: The accounting event, its sensitivity that of this ledger's relation.
            what: Name of the release, for messages and the ledger's text.
            basis: What the cost rests on, see `Guarantee`.
            earlier: See `Charge`.

        Raises:
            BudgetExceeded: If the total would exceed the budget (by more than 1e-9 of it);
                the ledger is unchanged and nothing may be released.
            BudgetError: If the budget is zCDP and the event has no zCDP bound.
        """
        if not isinstance(event, Event):
            raise ParameterError(f"a charge needs an accounting event; got {event!r}")
        if self.budget is not None:
            # of everything together: costs in epsilon do not add up
            total = cost_of(Composition.of(*self.composition.events, event), self.budget.delta)
            if total > self.budget.limit * (1 + TOLERANCE):
                raise BudgetExceeded(
                    f"{what} would bring the cost to {total:.6g}, above the budget "
                    f"{self.budget}; spent so far: {self.spent:.6g}. Nothing was released"
                )
        # the weakest basis decides, and each one is listed once
        if basis not in ("computed", self.basis):
            self.basis = basis if self.basis == "computed" else f"{self.basis}; {basis}"
        self.entries.append(Charge(what, event, earlier))

    @property
    def charged(self) -> bool:
        """Whether the agent itself was charged; earlier releases do not count."""
        return not all(entry.earlier for entry in self.entries)

    def lift(self, why: str) -> None:
        """Remove the bound, to charge a paper's printed noise at its true cost."""
        self.budget = None
        printed = f"as printed ({why})"
        # what an earlier charge rests on stays
        self.basis = f"{self.basis}; {printed}" if "declared" in self.basis else printed

    def disclose(self, what: str) -> None:
        """Record that protected data are released without noise: no guarantee remains."""
        self.disclosed.append(what)

    @property
    def composition(self) -> Composition:
        """Composition of everything charged so far."""
        return Composition.of(*(entry.event for entry in self.entries))

    @property
    def inherited(self) -> Composition:
        """Composition of the releases before the agent began."""
        return Composition.of(*(entry.event for entry in self.entries if entry.earlier))

    @property
    def spent(self) -> float:
        """Cost so far in the budget's unit: rho, or epsilon at the budget's delta.

        Without a budget: rho, or NaN if some release has no zCDP bound.
        """
        if self.budget is not None:
            return cost_of(self.composition, self.budget.delta)
        rho = self.composition.zcdp
        return math.nan if rho is None else rho

    @property
    def remaining(self) -> float:
        """Rest of the budget; infinite without one."""
        return math.inf if self.budget is None else max(0.0, self.budget.limit - self.spent)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of everything charged; none without a charge or after a disclosure."""
        names = (self.notion, self.unit, self.relation)
        # no curve: after raw data were published a number would mislead
        if self.disclosed:
            return Guarantee(*names, basis=f"disclosed ({'; '.join(self.disclosed)})")
        curve = self.composition or None
        earlier = self.inherited or None
        return Guarantee(*names, curve, self.basis, inherited=earlier, asked=self.asked)

    def __repr__(self) -> str:
        bound = "no budget" if self.budget is None else str(self.budget)
        return f"Ledger({bound}; {self.guarantee})"
