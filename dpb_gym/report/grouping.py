"""Which rows may be compared, in which order, and what their budgets say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dpb_gym.report.model import NO_BUDGET, Row, TaskResult

REFERENCES = frozenset({"oracle", "random"})
"""Registered names that mark the ends of the scale and are not contestants."""

COMPARISON_NOTE = "Agents are compared only within the same notion and unit of privacy."

NOTIONS: dict[str, str] = {
    "joint": (
        "Joint: everything the system shows to the other customers together reveals little about "
        "one customer; that customer's own offer may depend on it."
    ),
    "anticipating": (
        "Anticipating: everything the system shows after a customer has left reveals little about "
        "that customer. Joint implies anticipating, never the other way."
    ),
    "central": (
        "Central: the whole transcript, every action included, reveals little about the protected "
        "record; a trusted curator sees the raw data."
    ),
    "local": (
        "Local: each report is randomised before it leaves the customer; nobody, the operator "
        "included, sees the raw data."
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

_BUDGET = re.compile(r"\s*([^\W\d]\w*)\s*=\s*([0-9][0-9.]*(?:[eE][+-]?[0-9]+)?)\s*[,;]?\s*(.*)")


@dataclass(frozen=True)
class Group:
    """Agents that protect the same thing in the same sense.

    Attributes:
        notion: Protected output, None for non-private agents.
        unit: Protected unit, None for non-private agents.
    """

    notion: str | None
    unit: str | None

    @property
    def slug(self) -> str:
        """Names the group in links, e.g. ``"joint/user-round"``."""
        return f"{self.notion}/{self.unit}" if self.notion else "non-private"

    @property
    def label(self) -> str:
        """Names the group for readers, e.g. ``"joint, per user-round"``."""
        return f"{self.notion}, per {self.unit}" if self.notion else "non-private"

    @property
    def explanation(self) -> str:
        """Says what the guarantee promises."""
        if self.notion is None or self.unit is None:
            return "No promise: the agent learns from raw records."
        known = (NOTIONS.get(self.notion), UNITS.get(self.unit))
        return " ".join(text for text in known if text)


@dataclass(frozen=True, order=True)
class BudgetScale:
    """A budget read as a number on a scale.

    Attributes:
        kind: The scale, e.g. ``"rho"`` or ``"eps (delta=1e-5)"``; budgets of different kinds are
            never put on one axis.
        value: Position on it, positive.
    """

    kind: str
    value: float


def group_of(row: Row) -> Group:
    """Returns the group that `row` is compared in."""
    return Group(row.notion, row.unit)


def rank(group: Group) -> tuple[bool, int, str, int, str]:
    """Sort key of groups: known notions and units in order, non-private last."""
    notions, units = list(NOTIONS), list(UNITS)
    notion, unit = group.notion or "", group.unit or ""
    return (
        group.notion is None,
        notions.index(notion) if notion in NOTIONS else len(notions),
        notion,
        units.index(unit) if unit in UNITS else len(units),
        unit,
    )


def groups(rows: Iterable[Row]) -> list[tuple[Group, list[Row]]]:
    """Splits rows by (notion, unit), non-private last, each group sorted by mean regret."""
    found: dict[Group, list[Row]] = {}
    for row in rows:
        found.setdefault(group_of(row), []).append(row)
    return [
        (group, sorted(found[group], key=lambda row: (row.regret.mean, row.key)))
        for group in sorted(found, key=rank)
    ]


def budget_scale(budget: str) -> BudgetScale | None:
    """Reads ``"rho=1"`` or ``"eps=1,delta=1e-5"``; None if it is no positive number.

    >>> budget_scale("rho=0.5")
    BudgetScale(kind='rho', value=0.5)
    >>> budget_scale("eps=1,delta=1e-5")
    BudgetScale(kind='eps (delta=1e-5)', value=1.0)
    """
    match = _BUDGET.fullmatch(budget)
    if match is None:
        return None
    name, number, rest = match.groups()
    try:
        value = float(number)
    except ValueError:
        return None
    if not 0 < value < float("inf"):
        return None
    return BudgetScale(f"{name} ({rest.strip()})" if rest.strip() else name, value)


def budget_order(budget: str) -> tuple[int, str, float, str]:
    """Sort key of budgets: by scale and number, unreadable ones next, ``"none"`` last."""
    scale = budget_scale(budget)
    if scale is not None:
        return (0, scale.kind, scale.value, budget)
    return (2 if budget == NO_BUDGET else 1, "", 0.0, budget)


def best_keys(task: TaskResult) -> frozenset[str]:
    """Returns the row of lowest mean regret at each (notion, unit, budget) with a contest.

    References are no contestants, and a row alone at its guarantee and budget has won nothing.
    """
    contests: dict[tuple[Group, str], list[Row]] = {}
    for row in task.rows:
        if row.name not in REFERENCES:
            contests.setdefault((group_of(row), row.budget), []).append(row)
    return frozenset(
        min(rows, key=lambda row: (row.regret.mean, row.key)).key
        for rows in contests.values()
        if len(rows) > 1
    )


def display(row: Row) -> str:
    """Names a row on a curve: its label, and its budget unless the label says it already."""
    return (
        row.agent
        if row.budget in (NO_BUDGET, *_words(row.agent))
        else (f"{row.agent} {row.budget}")
    )


def _words(label: str) -> list[str]:
    return [word.strip("()[],;") for word in label.split()]


def strength(task: TaskResult) -> dict[str, float]:
    """Drawing strength in (0, 1] per row key: the weaker the budget of an agent, the fainter.

    An agent's largest budget is drawn at full strength, so that one colour serves the agent.
    """
    result: dict[str, float] = {}
    for row in task.rows:
        family = sorted((r.budget for r in task.rows if r.agent == row.agent), key=budget_order)
        below = len(family) - 1 - family.index(row.budget)
        result[row.key] = 1.0 - 0.6 * below / max(2, len(family) - 1)
    return result


def stroke(row: Row) -> str:
    """Line style of a row: solid with a guarantee, dashed without, dotted for the oracle."""
    if row.private:
        return "solid"
    return "dotted" if row.name == "oracle" else "dashed"
