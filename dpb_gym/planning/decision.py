"""The decision that advice begins with: one action or agent, its condition, and its gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpb_gym.problems.kinds import log_form
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.number_format import number

NEGLIGIBLE = 2.0
"""Percent of today's earnings: a possible gain below it does not justify collecting customers."""


@dataclass(frozen=True)
class Candidate:
    """A private agent that may be chosen.

    Attributes:
        budget: The budget as text.
        agent: Name of the agent.
        condition: What must hold for the budget's trust model, such as ``"if a curator may see all
            responses"``.
        over_fixed: Gain over the best single action, in percent of its earnings; None without one.
        over_today: Gain over what the log earned, in percent of that.
    """

    budget: str
    agent: str
    condition: str
    over_fixed: Interval | None
    over_today: Interval


@dataclass(frozen=True)
class Decision:
    """What to do.

    Attributes:
        kind: ``"agent"``, ``"fixed"``, ``"keep"`` or ``"collect"``.
        text: The decision with its condition, in one or two sentences.
        gain: Gain over what the log earned, in percent of that; None where nothing changes.
        action: The agent and its budget, or the single action.
    """

    kind: str
    text: str
    gain: Interval | None = None
    action: str = ""


def decide(
    kind: str, candidates: Sequence[Candidate], fixed: str, gain: Interval | None, horizon: int,
    thin: str, several: int = 1,
) -> Decision:  # fmt: skip
    """Return the decision.

    An agent is chosen if it is shown to earn more than the best single action and than today, at
    the first such budget. Otherwise the single action is, if it is shown to earn more than today;
    otherwise an agent that is. "Shown" means that the 95% interval is above 0. If nothing is
    shown, more customers are collected, unless no gain above `NEGLIGIBLE` is possible.

    Args:
        kind: Kind of the problem.
        candidates: Private agents, in the order of the budgets.
        fixed: The best single action in words, such as ``"always 5.29 EUR"``, or empty.
        gain: Its gain over what the log earned, in percent.
        horizon: Customers.
        thin: The sentence that says that the log is too thin, or empty.
        several: Rounds of one person, of which a guarantee per round protects each alone.
    """
    form = log_form(kind)
    person = ""
    if several > 1:
        person = (
            f" What one person does in up to {several:,} rounds together is protected less (see "
            "the notes)."
        )
    within = f"in the first {horizon:,} customers"
    for one in () if thin else candidates:
        better = one.over_fixed is None or one.over_fixed.low > 0.0
        if better and one.over_today.low > 0.0:
            return _run(one, within, fixed, person)
    if gain is not None and gain.low > 0.0 and fixed:
        what = fixed.removeprefix("always ")
        return Decision(
            "fixed",
            f"{form.act} {what} for every customer, if demand stays as in this table. It earns "
            f"{difference(gain)} than today. No agent at these budgets is shown to earn more, and "
            "a fixed choice needs no data of customers.",
            gain,
            fixed,
        )
    for one in () if thin else candidates:
        if one.over_today.low > 0.0:
            return _run(one, within, "", person)
    if thin:
        return Decision("collect", f"Collect more customers before you change anything. {thin}")
    possible = [c.over_today.high for c in candidates] + ([gain.high] if gain else [])
    if max(possible, default=0.0) <= NEGLIGIBLE:
        return Decision(
            "keep",
            f"Keep what you do today: nothing is shown to earn more, and no gain above "
            f"{NEGLIGIBLE:g}% is possible by this table.",
        )
    who = "an agent may earn more than today"
    if gain is not None and gain.high > NEGLIGIBLE:
        who = f"{fixed} would earn {difference(gain)} than today"
    return Decision(
        "collect", f"Collect more customers{form.collect} before you change anything: {who}, which "
        "does not decide it."
    )  # fmt: skip


def _run(one: Candidate, within: str, fixed: str, person: str) -> Decision:
    """Return the decision for an agent."""
    compared = [f"{difference(one.over_today)} than today"]
    if fixed and one.over_fixed is not None:
        compared.append(f"{difference(one.over_fixed)} than {fixed}")
    return Decision(
        "agent",
        f"Run {one.agent} at {one.budget}, {one.condition}. {within.capitalize()} it earns "
        f"{' and '.join(compared)}.{person}",
        one.over_today,
        f"{one.agent} at {one.budget}",
    )


def difference(percent: Interval) -> str:
    """Return a 95% interval of a gain in percent, such as ``"between 9.2% less and 1.5% more"``."""
    low = percent.low
    high = percent.high
    if f"{low:.1f}" == f"{high:.1f}":
        return f"about {number(abs(percent.mean), 2)}% {'less' if percent.mean < 0 else 'more'}"
    if low < 0.0 < high:
        return f"between {number(-low, 1)}% less and {number(high, 1)}% more"
    ends = sorted((abs(low), abs(high)))
    word = "less" if high <= 0.0 else "more"
    return f"between {number(ends[0], 1)}% and {number(ends[1], 1)}% {word}"
