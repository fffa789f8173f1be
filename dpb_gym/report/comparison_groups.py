"""Groups of rows that are compared, their descriptions, and the order and scale of budgets."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dpb_gym.privacy.budget import Budget
from dpb_gym.report.leaderboard_data import Entry, Row, TrackRow
from dpb_gym.report.number_format import tick

COMPARISON_NOTE = "Agents are compared only within the same notion and unit of privacy."

NOTIONS: dict[str, str] = {
    "joint": (
        "Joint: everything the system shows to the other customers together reveals little about "
        "one customer; that customer's own offer may depend on it."
    ),
    "anticipating": (
        "Anticipating: everything the system shows after a customer has left reveals little about "
        "that customer. It is weaker: a joint guarantee includes it, but not the reverse."
    ),
    "central": (
        "Central: the whole transcript, every action included, reveals little about the protected "
        "record; a trusted curator sees the raw data."
    ),
    "aggregate": (
        "Aggregate: each customer sends a masked message, and a secure aggregator reveals only "
        "noisy sums of batches. The sums reveal little about one customer."
    ),
    "shuffle": (
        "Shuffle: each customer sends randomised messages, and a trusted shuffler removes their "
        "senders. The shuffled messages of a batch reveal little about one customer."
    ),
    "local": (
        "Local: each report is randomised before it leaves the customer. The operator does not see "
        "the raw data."
    ),
}
UNITS: dict[str, str] = {
    "user-round": "Per user-round: one customer's context and response of one round.",
    "reward": "Per reward: the response of one round; contexts are public.",
    "user": "Per user: all rounds of one customer, up to a declared number of them.",
    "user-rewards": (
        "Per user's rewards: the responses of all rounds of one customer, up to a declared number "
        "of them; contexts are public."
    ),
}

STANDINGS = {
    "ours": "construct of this project: its own agent",
    "paper": "published algorithm of a paper that this project reproduces",
    "checked": "published algorithm, checked against the authors' code",
    "published": "published algorithm",
    "abstract": "after the abstract of a paper",
    "construct": "construct of this project, after a name or an idea in the literature",
}
"""How an agent relates to its source, by the key of `AgentSpec.standing`."""


@dataclass(frozen=True)
class Group:
    """Agents with the same notion and unit of privacy.

    Attributes:
        notion: Protected output, None for non-private agents.
        unit: Protected unit, None for non-private agents.
    """

    notion: str | None
    unit: str | None

    @property
    def slug(self) -> str:
        """Name in links, e.g. ``"joint/user-round"``."""
        return f"{self.notion}/{self.unit}" if self.notion else "non-private"

    @property
    def label(self) -> str:
        """Name for readers, e.g. ``"joint, per user-round"``."""
        return f"{self.notion}, per {self.unit}" if self.notion else "non-private"

    @property
    def explanation(self) -> str:
        """Explanation of the guarantee."""
        if self.notion is None or self.unit is None:
            return "No promise: the agent learns from raw records."
        return f"{NOTIONS.get(self.notion, '')} {UNITS.get(self.unit, '')}".strip()

    @property
    def rank(self) -> tuple[bool, int, str, int, str]:
        """Sort key: known notions and units in order, non-private last."""
        notion, unit = self.notion or "", self.unit or ""
        known = [*NOTIONS, notion].index(notion), [*UNITS, unit].index(unit)
        return (self.notion is None, known[0], notion, known[1], unit)


def group_of(row: Entry) -> Group:
    """Return the group that `row` is compared in."""
    return Group(row.notion, row.unit)


def scale_of(budget: Budget) -> str:
    """Return the scale of a budget's number; different scales never share an axis."""
    return "rho" if budget.rho is not None else f"eps (delta={tick(budget.delta or 0.0)})"


def budget_order(budget: Budget | None) -> tuple[bool, str, float, str]:
    """Return the sort key of a budget: by scale, number and trust model, no budget last."""
    if budget is None:
        return (True, "", 0.0, "")
    return (False, scale_of(budget), budget.limit, budget.trust)


@functools.lru_cache(maxsize=1024)
def amount(budget: Budget | None) -> Budget | None:
    """Return the budget that rows are compared at: without its trust model, which is a group."""
    return None if budget is None else budget.amount


def short(budget: Budget) -> str:
    """Return a budget's text without the delta of its scale: ``"eps=1"``."""
    where = "" if budget.trust == "curator" else f"@{budget.trust}"
    return f"{'rho' if budget.rho is not None else 'eps'}={budget.limit:g}{where}"


_Rows = TypeVar("_Rows", bound=Row | TrackRow)


def contests(rows: Iterable[_Rows]) -> dict[tuple[Group, Budget | None], list[_Rows]]:
    """Return the ranked rows by group and budget, best first.

    References and rows that are only stated by a sender are left out.
    """
    found: dict[tuple[Group, Budget | None], list[_Rows]] = {}
    for row in sorted(rows, key=lambda row: (row.loss.mean, row.key)):
        if not row.reference and not row.stated:
            found.setdefault((group_of(row), amount(row.budget)), []).append(row)
    return found


def second(rivals: Sequence[_Rows]) -> _Rows | None:
    """Return the row that the first of a contest is compared with: the best of another agent.

    If all rows are of one agent, with several sets of parameters, it is the second row.
    """
    others = [row for row in rivals[1:] if row.name != rivals[0].name]
    return next(iter(others or rivals[1:]), None)


def verdict_class(verdict: str) -> str:
    """Return ``"pass"``, ``"fail"`` or ``"open"`` for an audit's verdict, empty without one."""
    word = verdict.lower()
    if word.startswith(("pass", "ok", "consistent")):
        return "pass"
    return "fail" if word.startswith(("fail", "violat", "refut", "reads")) else word and "open"
