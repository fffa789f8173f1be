"""The ledger of one agent: every release is charged before its noise is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpb_gym.errors import BudgetError, BudgetExceeded, ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.composition import Composition, merge, pruned
from dpb_gym.privacy.events import Event, event_from_dict
from dpb_gym.privacy.guarantee import Guarantee

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Entry:
    """One line of a ledger.

    Attributes:
        what: What was released, in words.
        event: Its accounting event.
        parallel: Name of the group of releases over disjoint records, or `None`.
        times: How often exactly this was charged.
    """

    what: str
    event: Event
    parallel: str | None
    times: int


class Ledger:
    """Adds up what an agent releases and refuses what would exceed its budget.

    One ledger serves a batch of replicates whose schedules of releases are identical: they are
    separate data sets, so the cost is that of one.

    Args:
        budget: Upper bound; `None` records without a bound.
        notion: See `Guarantee`.
        unit: See `Guarantee`.
        relation: See `Guarantee`.

    Example:
        >>> from dpb_gym.privacy import Budget, GaussianEvent
        >>> ledger = Ledger(Budget.zcdp(0.5))
        >>> ledger.charge(GaussianEvent(sigma=2.0, sensitivity=1.0), what="sum of rewards")
        >>> ledger.spent, ledger.remaining
        (0.125, 0.375)
    """

    def __init__(
        self,
        budget: Budget | None = None,
        notion: str = "joint",
        unit: str = "user-round",
        relation: str = "replace-one",
    ) -> None:
        if budget is not None and not isinstance(budget, Budget):
            raise BudgetError(f"budget must be a Budget or None; got {budget!r}")
        Guarantee(notion, unit, relation)  # validates the three names
        self.budget = budget
        self.notion, self.unit, self.relation = notion, unit, relation
        self.resumed = 0
        self._disclosed: list[str] = []
        self._entries: dict[tuple[str, Event, str | None], int] = {}
        self._sequence: tuple[Event, ...] = ()
        self._groups: dict[str, tuple[Event, ...]] = {}

    # -------------------------------------------------------------- charging

    def charge(self, event: Event, *, what: str, parallel: str | None = None) -> None:
        """Charges one release; must be called before its noise is drawn.

        Args:
            event: The accounting event, its sensitivity that of this ledger's relation.
            what: What is released, in words.
            parallel: Name of a group of releases over **disjoint** records. Such a group costs
                what its costliest member does.

        Raises:
            BudgetExceeded: If the total would exceed the budget (by more than 1e-9 of it);
                the ledger is unchanged and nothing may be released.
            BudgetError: If the budget is zCDP and the event has no zCDP bound.
        """
        if not isinstance(event, Event):
            raise ParameterError(f"a charge needs an accounting event; got {event!r}")
        key = (what, event, parallel)
        if parallel is not None and event in self._groups.get(parallel, ()):
            self._entries[key] = self._entries.get(key, 0) + 1
            return
        sequence, groups = self._sequence, self._groups
        if parallel is None:
            sequence = merge((*sequence, event))
        else:
            groups = {**groups, parallel: pruned((*groups.get(parallel, ()), event))}
        after = Composition(sequence, tuple(groups.values()))
        if self.budget is not None:
            total = self._cost(after)
            allowed = self.budget.rho if self.budget.kind == "zcdp" else self.budget.epsilon
            assert allowed is not None
            if total > allowed * (1 + TOLERANCE):
                raise BudgetExceeded(
                    f"{what} would bring the cost to {self._name()}={total:.6g}, above the "
                    f"budget {self.budget}; spent so far: {self.spent:.6g}. Nothing was released"
                )
        self._sequence, self._groups = sequence, groups
        self._entries[key] = self._entries.get(key, 0) + 1

    def disclose(self, what: str) -> None:
        """Records that protected data leave without noise: no guarantee remains.

        Raises:
            BudgetExceeded: If the ledger has a budget.
        """
        if self.budget is not None:
            raise BudgetExceeded(
                f"{what} would be released without noise, which no budget covers "
                f"({self.budget}); nothing was released"
            )
        self._disclosed.append(what)

    def _name(self) -> str:
        return "rho" if self.budget is not None and self.budget.kind == "zcdp" else "eps"

    def _cost(self, composition: Composition) -> float:
        if self.budget is not None and self.budget.kind == "approx":
            from dpb_gym.privacy import accounting

            assert self.budget.delta is not None
            return accounting.epsilon(composition, self.budget.delta)
        found = composition.zcdp
        if found is None:
            if self.budget is None:
                return math.nan
            raise BudgetError(
                "a zCDP budget can only be charged with releases that have a zCDP bound; "
                "use Budget.approx(epsilon, delta) for this mechanism"
            )
        return found[0]

    # -------------------------------------------------------------- reading

    @property
    def composition(self) -> Composition:
        """Everything charged so far."""
        return Composition(self._sequence, tuple(self._groups.values()))

    @property
    def spent(self) -> float:
        """Cost so far in the budget's currency: rho, or epsilon at the budget's delta.

        Without a budget: rho, or NaN if some release has no zCDP bound.
        """
        return self._cost(self.composition)

    @property
    def remaining(self) -> float:
        """What is left of the budget; infinite without one."""
        if self.budget is None:
            return math.inf
        allowed = self.budget.rho if self.budget.kind == "zcdp" else self.budget.epsilon
        assert allowed is not None
        return max(0.0, allowed - self.spent)

    @property
    def guarantee(self) -> Guarantee:
        """What was spent so far, as a guarantee.

        Without a budget and without a charge, or once anything was disclosed, there is none.
        """
        composition = self.composition
        if self._disclosed or (self.budget is None and not composition):
            return Guarantee(self.notion, self.unit, self.relation, None)
        return Guarantee(self.notion, self.unit, self.relation, composition)

    @property
    def entries(self) -> list[Entry]:
        """Every distinct charge with its multiplicity, in the order of first appearance."""
        return [
            Entry(what, event, group, times)
            for (what, event, group), times in self._entries.items()
        ]

    def __repr__(self) -> str:
        bound = "no budget" if self.budget is None else str(self.budget)
        return f"Ledger({bound}; {self.guarantee})"

    # -------------------------------------------------------------- checkpoints

    def resume(self, reuse: str | None = None) -> None:
        """Notes that the agent was loaded from a checkpoint.

        Args:
            reuse: Why what follows is not private (the same noise on a second
                continuation), or None for the one continuation that the budget covers.
        """
        self.resumed += 1
        if reuse is not None:
            self._disclosed.append(reuse)

    def state_dict(self) -> dict[str, Any]:
        """The whole ledger as plain JSON values, for a checkpoint."""
        return {
            "budget": None if self.budget is None else self.budget.to_dict(),
            "notion": self.notion,
            "unit": self.unit,
            "relation": self.relation,
            "resumed": self.resumed,
            "disclosed": list(self._disclosed),
            "entries": [
                {"what": w, "event": e.to_dict(), "parallel": g, "times": n}
                for (w, e, g), n in self._entries.items()
            ],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Ledger:
        """Rebuilds a ledger from `state_dict`: nothing that was spent comes back.

        Raises:
            BudgetError: If the state is damaged, or spends more than its own budget.
        """
        try:
            budget = None if state["budget"] is None else Budget.from_dict(state["budget"])
            ledger = cls(budget, state["notion"], state["unit"], state["relation"])
            for item in state["entries"]:
                event, group = event_from_dict(item["event"]), item["parallel"]
                times = int(item["times"])
                if times < 1:
                    raise BudgetError(f"a ledger entry was charged {times} times")
                for _ in range(times if group is None else 1):
                    ledger._restore(item["what"], event, group)
                ledger._entries[(item["what"], event, group)] = times
            ledger._disclosed = list(state["disclosed"])
            ledger.resumed = int(state["resumed"]) + 1
        except (KeyError, TypeError, AttributeError) as error:
            raise BudgetError(f"damaged ledger state: {error!r}") from error
        if ledger.budget is not None and ledger.remaining == 0:
            ledger._check_not_over()
        return ledger

    def _restore(self, what: str, event: Event, group: str | None) -> None:
        if group is None:
            self._sequence = merge((*self._sequence, event))
        else:
            self._groups[group] = pruned((*self._groups.get(group, ()), event))

    def _check_not_over(self) -> None:
        assert self.budget is not None
        allowed = self.budget.rho if self.budget.kind == "zcdp" else self.budget.epsilon
        assert allowed is not None
        if self.spent > allowed * (1 + TOLERANCE):
            raise BudgetError(f"ledger state spends {self.spent:.6g}, more than {self.budget}")
