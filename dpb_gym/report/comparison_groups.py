"""Groups of rows that are compared, their descriptions, and the order and scale of budgets."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dpb_gym.privacy import guarantee
from dpb_gym.privacy.budget import Budget
from dpb_gym.report.leaderboard_data import DEFAULTS, TUNED, Entry, Row, TrackRow
from dpb_gym.report.number_format import tick

TUNED_SUFFIX = " (tuned)"
"""End of the label of an agent with tuned parameters."""
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

TRUSTS: dict[str, tuple[str, ...]] = {
    "curator": ("central", "joint", "anticipating"),
    "aggregator": ("aggregate",),
    "shuffler": ("shuffle",),
    "local": ("local",),
}
"""Notions of each trust model, from the most trust to the least."""

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
    """Agents with the same notion, unit and neighbouring relation of privacy.

    Attributes:
        notion: Protected output, None for non-private agents.
        unit: Protected unit, None for non-private agents.
        relation: Neighbouring relation; the usual one is not part of the name.
    """

    notion: str | None
    unit: str | None
    relation: str = "replace-one"

    @property
    def slug(self) -> str:
        """Name in links, e.g. ``"joint/user-round"``."""
        return f"{self.notion}/{self.unit}{self._other('/')}" if self.notion else "non-private"

    @property
    def label(self) -> str:
        """Name for readers, e.g. ``"joint, per user-round"``."""
        named = f"{self.notion}, per {self.unit}{self._other(', ')}"
        return named if self.notion else "non-private"

    def _other(self, mark: str) -> str:
        return "" if self.relation == "replace-one" else f"{mark}{self.relation}"

    @property
    def explanation(self) -> str:
        """Explanation of the guarantee."""
        if self.notion is None or self.unit is None:
            return "No promise: the agent learns from raw records."
        return f"{NOTIONS.get(self.notion, '')} {UNITS.get(self.unit, '')}".strip()

    @property
    def rank(self) -> tuple[bool, int, str, int, str, str]:
        """Sort key: known notions and units in order, non-private last."""
        notion, unit = self.notion or "", self.unit or ""
        known = [*NOTIONS, notion].index(notion), [*UNITS, unit].index(unit)
        return (self.notion is None, known[0], notion, known[1], unit, self.relation)

    def implies(self, other: Group) -> bool:
        """Return whether a guarantee of this group is one of the other, at the same budget.

        Unit and relation must agree: how a guarantee of another unit or relation follows from this
        one depends on the mechanism.
        """
        if self == other or self.notion is None or other.notion is None or self.unit is None:
            return self == other
        if (self.unit, self.relation) != (other.unit, other.relation):
            return False
        known = self.notion in guarantee.NOTIONS and other.notion in guarantee.NOTIONS
        return known and guarantee.implies(self.notion, other.notion, self.unit)


def group_of(row: Entry) -> Group:
    """Return the group that `row` is compared in."""
    return Group(row.notion, row.unit, row.relation)


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
    groups: dict[tuple[Group, Budget | None], list[_Rows]] = {}
    for row in sorted(rows, key=lambda row: (row.loss.mean, row.key)):
        if not row.reference and not row.stated:
            groups.setdefault((group_of(row), amount(row.budget)), []).append(row)
    return groups


Question = tuple[Group, Budget]
"""What a reader asks for: a guarantee and the largest budget."""


def _satisfies(given: Question, asked: Question) -> bool:
    same_scale = scale_of(given[1]) == scale_of(asked[1])
    return same_scale and given[1].limit <= asked[1].limit and given[0].implies(asked[0])


def questions(rows: Iterable[_Rows]) -> Iterator[tuple[str, Question, list[_Rows]]]:
    """Yield trust model, guarantee and budget of each question, and the rows that answer it.

    A question is asked for each trust model and unit at each budget of a row. Under a trusted
    curator it is asked for each notion that a row has, without one for the strongest that follows
    from messages. An answer is a row whose guarantee implies the asked one: the same unit and
    relation, at least as strong a notion, and at most the budget on the same scale. Each label
    answers once, with its row of least loss. The answers are ordered by loss, and there is at least
    one. References and rows that are only stated by a sender do not answer.
    """
    given: dict[Question, list[_Rows]] = {}
    for (group, budget), ranked in contests(rows).items():
        if group.notion is not None and budget is not None:
            given[group, budget] = ranked
    kinds = {(group.unit, group.relation) for group, _ in given}
    for unit, relation in sorted(kinds, key=str):
        here = [key for key in given if (key[0].unit, key[0].relation) == (unit, relation)]
        budgets = sorted({budget for _, budget in here}, key=budget_order)
        usual = "central" if unit in guarantee.RESPONSES else "joint"
        for trust, notions in TRUSTS.items():
            held = [notion for notion in notions if any(g.notion == notion for g, _ in here)]
            for notion in held or ((usual,) if trust == "curator" else notions):
                for budget in budgets:
                    asked = Group(notion, unit, relation), budget
                    if answers := _answers(given, asked):
                        yield trust, asked, answers


def _answers(given: Mapping[Question, Sequence[_Rows]], asked: Question) -> list[_Rows]:
    best: dict[str, tuple[float, bool, str, _Rows]] = {}
    for key, rows in given.items():
        if _satisfies(key, asked):
            for row in rows:
                # At equal loss the row of the question's own guarantee is shown.
                answer = (row.loss.mean, key != asked, row.key, row)
                best[row.agent] = min(best.get(row.agent, answer), answer, key=lambda one: one[:3])
    return [answer[3] for answer in sorted(best.values(), key=lambda one: one[:3])]


def under(ruling: str, rows: Iterable[Row], ours: Collection[str]) -> list[Row]:
    """Return the rows that take part under a ruling.

    Under "default" there are defaults only. Under "tuned", at each budget an agent of this project
    has its tuned row if there is one, and another agent the better of its rows.

    Args:
        ruling: One of `RULINGS`.
        rows: Rows of one task.
        ours: Registered names of this project's agents.
    """
    if ruling == DEFAULTS:
        return [row for row in rows if row.ruling == DEFAULTS]
    best: dict[tuple[str, str, Budget | None], Row] = {}

    def place(row: Row) -> tuple[bool, float]:
        return (row.name in ours and row.ruling != TUNED, row.loss.mean)

    for row in rows:
        key = row.agent.removesuffix(TUNED_SUFFIX), row.name, row.budget
        best[key] = min(best.get(key, row), row, key=place)
    return list(best.values())


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
