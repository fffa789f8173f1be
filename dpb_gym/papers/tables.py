"""Verdicts and curves as tables: on the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpb_gym.papers.curves import Curve
from dpb_gym.papers.figure import Figure
from dpb_gym.papers.numbers import fill
from dpb_gym.papers.verdicts import CONDITIONAL, FAILS, HOLDS, Judgement, name
from dpb_gym.report.model import Interval
from dpb_gym.report.numerals import number

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {HOLDS: "bold green", CONDITIONAL: "bold yellow", FAILS: "bold red"}


def interval(value: Interval) -> str:
    """A mean with its 95% interval."""
    if value.low == value.high:
        return number(value.mean)
    return f"{number(value.mean)} [{number(value.low)}, {number(value.high)}]"


def where(judgement: Judgement) -> str:
    """The verdict variant by variant, equal ones together."""
    groups: dict[str, list[str]] = {}
    for variant, verdict in judgement.variants.items():
        groups.setdefault(verdict, []).append(variant or "all")
    if len(groups) == 1:
        return "the same in every variant"
    return "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in groups.items())


def fewer(judgement: Judgement) -> str:
    """The verdicts with fewer replicates, in one line; empty without any."""
    return "; ".join(
        f"with the first {count} replicates: {smaller.verdict}"
        for count, smaller in judgement.samples.items()
    )


def details(judgement: Judgement) -> str:
    """What decides a claim: counts, variants, fewer replicates."""
    parts = [judgement.summary]
    if judgement.problem is None:
        parts.append(where(judgement))
    parts.append(fewer(judgement))
    return ". ".join(part[0].upper() + part[1:] for part in parts if part)


def p_text(value: float | None) -> str:
    """A p-value as papers print it."""
    if value is None:
        return ""
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def guarantees(curves: Sequence[Curve]) -> list[tuple[str, str, str, str]]:
    """Agent, budget asked for, tasks (blank for all), and true guarantee; equal ones once."""
    tasks: dict[tuple[str, str, str], list[str]] = {}
    everywhere: dict[tuple[str, str], set[str]] = {}
    for curve in curves:
        s = curve.series
        tasks.setdefault((s.agent, s.budget, curve.guarantee), []).append(s.task)
        everywhere.setdefault((s.agent, s.budget), set()).add(s.task)
    return [
        (agent, budget, "" if set(of) == everywhere[agent, budget] else ", ".join(of), guarantee)
        for (agent, budget, guarantee), of in tasks.items()
    ]


def print_figure(
    figure: Figure,
    judgements: Sequence[Judgement],
    curves: Sequence[Curve],
    console: Console | None = None,
) -> None:
    """Prints the verdicts and the true guarantees."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = console or Console(highlight=False)
    if console is None and not out.is_terminal:
        out = Console(highlight=False, width=160)
    out.print(Text(f"{figure.target}: {figure.title}", style="bold"))
    for note in figure.remarks:
        out.print(Text(note, style="yellow"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim", ratio=3)
    table.add_column("decided by", ratio=3)
    for judgement in judgements:
        verdict = Text(judgement.verdict, style=STYLES.get(judgement.verdict, "bold"))
        claim = Text(judgement.claim.text)
        if judgement.claim.by == "control":
            claim.append(" (our control)", style="dim")
        table.add_row(verdict, claim, Text(details(judgement)))
    out.print(table)
    for filled in (fill(one, curves) for one in figure.tables):
        numbers = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
        for column in filled.head:
            numbers.add_column(column, overflow="fold")
        for line in filled.lines:
            numbers.add_row(*(Text(cell) for cell in line))
        out.print(Text(filled.heading, style="bold"))
        out.print(numbers)
    known = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for column in ("agent", "asked for", "on", "true guarantee"):
        known.add_column(column, overflow="fold")
    for row in guarantees(curves):
        known.add_row(*(Text(cell) for cell in row))
    out.print(known)


def markdown(
    figure: Figure,
    judgements: Sequence[Judgement],
    curves: Sequence[Curve],
    facts: dict[str, str],
    picture: str,
) -> str:
    """The whole figure as a Markdown page.

    Args:
        figure: The figure.
        judgements: Its claims, decided.
        curves: Its curves.
        facts: What was run: replicates, command, versions.
        picture: Name of the picture beside the page.
    """
    parts = [f"# {figure.target}: {figure.title}", figure.description, *figure.remarks]
    parts.append(f"![{figure.title}]({picture})")
    parts.append("## Verdicts")
    rows = [
        (
            f"**{j.verdict}**",
            _claim(j),
            "; ".join(part for part in (j.summary, fewer(j)) if part),
            where(j) if j.problem is None else "",
        )
        for j in judgements
    ]
    parts.append(_table(("verdict", "claim", "decided by", "where"), rows))
    for filled in (fill(one, curves) for one in figure.tables):
        parts.append(f"## {filled.table.title}")
        parts.append(filled.legend)
        parts.append(_table(filled.head, filled.lines))
    parts.append("## Curves")
    rows4 = [
        (c.series.task, c.series.agent, c.series.budget, interval(c.final), c.guarantee)
        for c in curves
    ]
    parts.append(
        _table(("task", "agent", "asked for", "regret at T (95%)", "true guarantee"), rows4)
    )
    if figure.constants:
        parts.append("## Constants")
        parts.append("\n".join(f"- {line}" for line in figure.constants))
    parts.append("## Comparisons")
    for judgement in judgements:
        parts.append(f"### {judgement.claim.id}")
        parts.append(judgement.claim.text)
        parts.append(
            _table(
                (
                    "left",
                    "value",
                    "against",
                    "value",
                    "effect (for the claim if > 0)",
                    "paired t-test, p",
                    "outcome",
                ),
                [
                    (
                        ", ".join(x for x in (name(c.variant), c.left) if x),
                        interval(c.left_value),
                        c.right,
                        interval(c.right_value),
                        interval(c.effect),
                        p_text(c.p_value),
                        c.outcome,
                    )
                    for c in judgement.comparisons
                ],
            )
            if judgement.comparisons
            else judgement.summary
        )
    parts.append("## Run")
    parts.append("\n".join(f"- {key}: {value}" for key, value in facts.items()))
    return "\n\n".join(part for part in parts if part) + "\n"


def _claim(judgement: Judgement) -> str:
    claim = judgement.claim
    text = claim.text if claim.by == "paper" else f"{claim.text} *(our control)*"
    return f"{text} ({claim.source})" if claim.source else text


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
