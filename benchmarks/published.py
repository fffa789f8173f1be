"""Publish a result of the arena: its page, and the tables and pictures of README and docs.

    python benchmarks/published.py [results/dpb-bench-v1] [--repository .]

The compacted result and its page go to docs/leaderboard. From them the script writes the tables
there, the README's table of agents, its pictures (frontier.png, and page.png from headless
Chromium, each also for dark themes) and its badges. A test compares the tables with the result.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasheet
import matplotlib.image
import numpy as np
import trust
import yaml
from marked import put, replaced

from dpb_gym import Result, report
from dpb_gym.privacy import Budget
from dpb_gym.report.comparison_groups import Group, amount, budget_order, group_of, short
from dpb_gym.report.leaderboard_data import (
    DEFAULTS,
    RULINGS,
    TUNED,
    Interval,
    LeaderboardData,
    Row,
    RulingComparison,
    TaskResult,
)
from dpb_gym.report.tables import base_label
from dpb_gym.results.cell_result import CellResult
from dpb_gym.results.result_directory import ResultDirectory

OURS = ("one-pass-mnl", "one-pass-pricing", "one-pass-linear", "one-pass-linear-joint")
# Agents of the README's table: the paper's, ours, and the non-private baseline.
README = {
    "assortment-standard": ("dpmnl", "one-pass-mnl", "greedy-mnl"),
    "pricing-standard": ("private-pricing", "one-pass-pricing", "greedy-pricing"),
    "recommendation-standard": ("adaprivate-ucb", "one-pass-linear", "lin-greedy"),
}
HOLM, UNDECIDED, BEHIND = " (H)", r" \*", r" \*\*"
DARK = np.array([13, 17, 23]) / 255
"""Background color of GitHub's dark theme."""


def darken(path: Path) -> None:
    """Write a version for dark themes, with inverted lightness and the same hues."""
    negative = 1.0 - matplotlib.image.imread(path)[..., :3]
    inverted = negative.max(-1, keepdims=True) + negative.min(-1, keepdims=True) - negative
    dark = DARK + (1.0 - DARK) * inverted
    matplotlib.image.imsave(path.with_name(f"{path.stem}-dark.png"), np.clip(dark, 0.0, 1.0))


def save_screenshots(page: Path, out: Path) -> None:
    """Save the first screen of a page as pictures, in both themes."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no chromium found: page.png is not updated")
        return
    for suffix, theme in (("", "1"), ("-dark", "0")):
        picture = out / f"page{suffix}.png"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += ["--window-size=1280,1080", "--virtual-time-budget=5000"]
        options += [f"--blink-settings=preferredColorScheme={theme}", f"--screenshot={picture}"]
        subprocess.run([chromium, *options, page.as_uri()], check=True, capture_output=True)


def better(task: TaskResult, name: str) -> list[Row]:
    """Return the better of an agent's default and tuned rows at each budget."""
    rows = [row for row in task.rows if row.name == name and row.private]
    by_budget = {row.budget: row for row in sorted(rows, key=lambda row: -row.regret.mean)}
    return [by_budget[budget] for budget in sorted(by_budget, key=budget_order)]


def formatted(value: Interval) -> str:
    """Return mean and half-width of an interval, with one decimal below 100."""
    half = (value.high - value.low) / 2
    return " ± ".join(f"{part:,.{0 if abs(part) >= 100 else 1}f}" for part in (value.mean, half))


def headline(data: LeaderboardData) -> str:
    """Return the counts of both rulings as one paragraph."""
    own, tuned = data.tally(DEFAULTS), data.tally(TUNED)
    return (
        "**Self-tuning ruling**: every agent has its defaults, the same for all tasks and budgets. "
        "This project's agents have less regret than the best other agent in "
        f"**{own['ahead']} of {own['all']}** comparisons at equal privacy ({own['holm']} after "
        f"Holm's correction). They are undecided in {own['undecided']} and behind in "
        f"{own['behind']}. **Tuned ruling**: agents with a trusted curator are tuned per task "
        f"and budget, at equal cost. This project's agents are ahead in {tuned['ahead']} of "
        f"{tuned['all']} ({tuned['holm']} after Holm's correction), undecided in "
        f"{tuned['undecided']} and behind in {tuned['behind']}."
    )


def index(data: LeaderboardData) -> str:
    """Return the tables of docs/leaderboard/index.md, by ruling, track and guarantee."""
    titles = {DEFAULTS: "Defaults (self-tuning)", TUNED: "Tuned"}
    parts = (part for ruling in RULINGS for part in (f"## {titles[ruling]}", _tables(data, ruling)))
    return "\n\n".join([headline(data), *parts])


def _tables(data: LeaderboardData, ruling: str) -> str:
    rows = {task.task: {row.key: row for row in task.rows} for task in data.tasks}
    mine = [c for c in data.comparisons if c.ours and c.ruling == ruling]
    sources = {one.name: one.standing for one in data.origins}
    texts = []
    for track in data.tracks:
        tables: dict[Group, list[str]] = {}
        names: dict[Group, str] = {}
        found = [c for c in mine if c.task in track.tasks]
        places = {c: budget_order(rows[c.task][c.first].budget) for c in found}
        for c in sorted(found, key=lambda c: (track.tasks.index(c.task), places[c])):
            ours, other = rows[c.task][c.first], rows[c.task][c.second]
            lines = tables.setdefault(group_of(ours), [])
            names[group_of(ours)] = base_label(ours.agent)
            name = "" if any(line.startswith(f"| {c.task} |") for line in lines) else c.task
            regret = formatted(other.regret).partition(" ")[0]
            lines.append(
                f"| {name} | {short(ours.budget)} | {formatted(ours.regret)} | "  # type: ignore[arg-type]
                f"{other.agent} {regret} ({sources[other.name]}) | {formatted(c.gain)}{mark(c)} |"
            )
        for group, lines in tables.items():
            head = f"| task | budget | {names[group]} | best other (source) | gain, paired |"
            rule = "|---|---|---|---|---|"
            texts += [f"### {track.title}: {group.label}", "\n".join([head, rule, *lines])]
        if ruling == TUNED:
            members = (task for task in data.tasks if task.task in track.tasks)
            best = [f"{task.task}: {_without_privacy(task)}" for task in members]
            texts.append(f"Best non-private agents: {'; '.join(best)}.")
    return "\n\n".join(texts)


def mark(comparison: RulingComparison) -> str:
    """Return the mark of a gain: none after Holm, and one for each weaker outcome."""
    if comparison.outcome == "ahead":
        return "" if comparison.survives else HOLM
    return UNDECIDED if comparison.outcome == "undecided" else BEHIND


def losses(data: LeaderboardData) -> str:
    """Return the tables of docs/where-ours-loses.md: every comparison that is not a clear lead."""
    rows = {task.task: {row.key: row for row in task.rows} for task in data.tasks}
    parts: list[str] = []
    for ruling in RULINGS:
        weak = [c for c in data.comparisons if c.ours and c.ruling == ruling and mark(c)]
        lines = ["| task | ours | best other | gain, paired | verdict |", "|---|---|---|---|---|"]
        for c in sorted(weak, key=lambda c: c.gain.mean):
            verdict = "not after Holm" if c.outcome == "ahead" else c.outcome
            cells = c.task, c.first, c.second, formatted(c.gain), verdict
            lines.append(f"| {' | '.join(cells)} |")
        title = "With defaults (self-tuning)" if ruling == DEFAULTS else "Tuned"
        parts += [f"### {title}", "\n".join(lines)]
    standings = {one.name: one.standing for one in data.origins}
    rivals = Counter(standings[rows[c.task][c.second].name] for c in data.comparisons
                     if c.ours and c.ruling == TUNED)  # fmt: skip
    counts = [f"{count} {name!r}" for name, count in rivals.most_common()]
    parts.append(
        f"By source, the best rivals of the {rivals.total()} tuned comparisons are "
        f"{', '.join(counts)}. `dpb show AGENT` explains these words."
    )
    own = {row.name for task in rows.values() for row in task.values()} & set(OURS)
    private = [(task, row) for task, each in rows.items() for row in each.values() if row.private]
    ours = {group_of(row) for _, row in private if row.name in own}
    others = sorted({group_of(row) for _, row in private} - ours, key=lambda group: group.rank)
    absent = ", ".join(group.label for group in others)
    if absent:
        parts.append(f"Our agents did not take part, and lead nothing, under: {absent}.")
    parts.append(uncompared(private))
    return "\n\n".join(parts)


def uncompared(rows: Iterable[tuple[str, Row]]) -> str:
    """Return per notion how many groups have one of our agents and another one, as a list.

    Args:
        rows: Private rows with their tasks.
    """
    groups: dict[str, dict[tuple[str, ...], set[bool]]] = {}
    for task, row in rows:
        limit = str(row.budget).partition("@")[0]
        found = groups.setdefault(str(row.notion), {})
        found.setdefault((task, str(row.unit), limit), set()).add(row.name in OURS)
    lines = ["A group is a task, a unit and a budget. Wins are counted where a group has both:", ""]
    for notion, found in sorted(groups.items()):
        counts = Counter(map(frozenset, found.values()))
        both, others, own = (counts[frozenset(s)] for s in ((True, False), (False,), (True,)))
        lines.append(
            f"- {notion}: {len(found)} groups. Ours and another agent were compared in {both}; "
            f"{others} groups hold other agents only, and {own} hold ours only."
        )
    return "\n".join(lines)


def _without_privacy(task: TaskResult) -> str:
    exact = [row for row in task.rows if not row.private and row.budget is None]
    best = min((r for r in exact if not r.reference), key=lambda row: row.regret.mean)
    chance = next((f"{row.regret.mean:,.0f}" for row in exact if row.name == "random"), "–")
    return f"{best.agent} {formatted(best.regret).partition(' ')[0]}, random {chance}"


def readme(data: LeaderboardData) -> str:
    """Return the README's table of agents. Its local column needs rows with local messages."""
    found = [(task, *README[task.task]) for task in data.tasks if task.task in README]
    local = any(trust.of_trust(task, ours, "local") for task, _, ours, _ in found)
    titles = [
        "task: regret (± 95%) at each budget",
        "paper's agent, the better of tuned and defaults",
    ]
    titles += ["ours, defaults"]
    titles += ["without a trusted party: ours, defaults, local messages"] if local else []
    titles += ["no privacy, defaults"]
    lines = [headline(data), "", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for task, paper, ours, exact in found:
        rows = trust.of_trust(task, ours, "curator")
        scale = "rho" if rows[0].budget.rho is not None else "eps (delta = 1e-5)"  # type: ignore[union-attr]
        limits = " / ".join(f"{row.budget.limit:g}" for row in rows)  # type: ignore[union-attr]
        shown = [_cell(paper, better(task, paper)), _cell(ours, rows)]
        if local:
            shown.append(_cell(ours, trust.of_trust(task, ours, "local")))
        shown.append(_cell(exact, trust.of_trust(task, exact, "")))
        lines.append(f"| {' | '.join([f'{task.problem}, {scale} = {limits}', *shown])} |")
    return "\n".join(lines)


def _cell(name: str, rows: list[Row]) -> str:
    """Return the regrets of an agent's rows, or a dash."""
    return "–" if not rows else f"`{name}` " + " / ".join(formatted(row.regret) for row in rows)


def on_pages(page: str, data: LeaderboardData) -> str:
    """Return a page with every block ``<!-- board TASK: AGENT; AGENT -->`` written again.

    A block has the agents' mean regret by budget, with defaults and with tuned parameters if these
    differ. Budgets that name a trust model are left out.
    """
    tasks = {task.task: task for task in data.tasks}

    def table(words: str, _: str) -> str:
        place, _, names = words.partition(":")
        listed = [name.strip() for name in names.split(";")]
        named = [row for row in tasks[place].rows if row.private and row.name in listed]
        rows = [row for row in named if row.budget == amount(row.budget)]
        budgets = sorted({row.budget for row in rows}, key=budget_order)
        titles = ["agent", "parameters", *(short(budget) for budget in budgets if budget)]
        lines = [titles, ["---"] * len(titles)]
        for ruling, label in ((DEFAULTS, "defaults"), (TUNED, "tuned")):
            for name in listed:
                found = {
                    row.budget: row for row in rows if (row.name, row.ruling) == (name, ruling)
                }
                cells = [formatted(found[b].regret) if b in found else "–" for b in budgets]
                lines += [[f"`{name}`", label, *cells]] if found else []
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    return replaced(page, "board", table)


def frontier(data: LeaderboardData) -> LeaderboardData:
    """Return the data of the README's picture: three agents on three tasks, with short labels."""
    tasks = []
    for task in data.tasks:
        if task.task in README:
            paper, ours, exact = README[task.task]
            rows = [
                replace(row, agent=label)
                for label, shown in (
                    ("one-pass (ours)", trust.of_trust(task, ours, "curator")),
                    (paper, better(task, paper)),
                    (exact, trust.of_trust(task, exact, "")),
                )
                for row in shown
            ]
            tasks.append(replace(task, task=task.problem, rows=tuple(rows), track=""))
    return replace(data, title="What privacy costs", tasks=tuple(tasks), tracks=())


def tuning(recipes: Path, tracks: Iterable[str]) -> str:
    """Return the table of the parameters tuned for the arena and their cost, from the recipes."""
    lines = [
        "| agent | choices | values other than the defaults | agent rounds | seconds |",
        "|---|---|---|---|---|",
    ]
    found: dict[str, list[dict[str, Any]]] = {}
    for track in tracks:
        for path in sorted((recipes / track).glob("*.yaml")):
            recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
            found.setdefault(recipe["agent"], []).append(recipe)
    total = Counter[str]()
    for name, own in found.items():
        chosen = [row["parameters"] for recipe in own for row in recipe["best_per_budget"]]
        times = Counter(f"{key}={value}" for params in chosen for key, value in params.items())
        values = ", ".join(f"{text} ({count})" for text, count in times.most_common()) or "none"
        cost = sum((Counter(recipe["cost"]) for recipe in own), Counter[str]())
        total += cost
        spent = f"{cost['agent_rounds'] / 1e6:.1f} M | {cost['seconds']:.0f}"
        lines.append(f"| `{name}` | {len(chosen)} | {values} | {spent} |")
    tasks: dict[str, int] = {}
    for recipe in itertools.chain(*found.values()):
        tasks |= recipe["tuned_on"]["tasks"]
    head = (
        f"Total: {total['agent_rounds'] / 1e6:,.0f} million agent rounds, "
        f"{total['seconds'] / 60:,.0f} minutes on one core. Rounds: "
        f"{', '.join(f'{task} {rounds:,}' for task, rounds in sorted(tasks.items()))}."
    )
    return "\n".join([head, "", *lines])


def cost(data: LeaderboardData, results: Iterable[CellResult]) -> str:
    """Return rows, agent rounds and core-minutes of the rows of each ruling.

    Budgets that name a trust model are counted apart.
    """
    place = {
        (task.task, row.agent, Budget.text(row.budget)): (
            row.ruling if row.budget == amount(row.budget) else "trust"
        )
        for task in data.tasks
        for row in task.rows
    }
    rows, rounds, minutes = Counter(place.values()), Counter[str](), Counter[str]()
    shared = 0.0
    for result in results:
        if result.timing is not None:
            ruling, timing = place[result.cell.row], result.timing
            rounds[ruling] += timing.rounds
            minutes[ruling] += (timing.agent_seconds + timing.response_seconds) / 60
            shared += timing.environment_seconds / timing.companions / 60
    titles = {
        DEFAULTS: "defaults",
        TUNED: "tuned parameters",
        "trust": "defaults, [other trust models](trust.md)",
    }
    lines = ["| rows with | rows | agent rounds | core-minutes |", "|---|---|---|---|"]
    for ruling in titles:
        cells = f"{rows[ruling]:,} | {rounds[ruling] / 1e6:,.0f} M | {minutes[ruling]:.1f}"
        lines.append(f"| {titles[ruling]} | {cells} |")
    alone, total = minutes[DEFAULTS] + shared, minutes.total() + shared
    return "\n".join(
        [
            *lines,
            f"| customers, shared by all rows | | | {shared:.1f} |",
            "",
            f"The self-tuning ruling takes {alone:.0f} core-minutes, all rows {total:.0f}.",
        ]
    )


def badges(project: dict[str, Any]) -> dict[str, str]:
    """Return the left and right text of each badge, from the project's metadata."""
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    return {
        "python": f"Python|{pythons[0]} to {pythons[-1]}",
        "licence": f"licence|{project['license']}",
        "typed": "types|mypy --strict",
    }


def badge(text: str) -> str:
    """Return a badge as SVG, legible on light and dark backgrounds."""
    left, right = text.split("|")
    first, second = 7 * len(left) + 12, 7 * len(right) + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="20" role="img" '
        f'aria-label="{left}: {right}"><rect width="{first}" height="20" fill="#444c56"/>'
        f'<rect x="{first}" width="{second}" height="20" fill="#1a6b4a"/><g fill="#fff" '
        'text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{first / 2}" y="14">{left}</text>'
        f'<text x="{first + second / 2}" y="14">{right}</text></g></svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("result", nargs="?", type=Path, default=Path("results/dpb-bench-v1"))
    parser.add_argument("--repository", type=Path, default=Path())
    options = parser.parse_args()
    folder, pictures = options.repository / "docs/leaderboard", options.repository / "docs/_static"
    published = folder / options.result.name
    if published.resolve() != options.result.resolve():
        shutil.rmtree(published, ignore_errors=True)
        published.mkdir(parents=True)
        for name in ("result.parquet", "manifest.json"):
            shutil.copyfile(options.result / name, published / name)
    data = Result.load(published).to_leaderboard()
    page = report.html(data, folder / f"{options.result.name}.html")
    datasheet.write(published, options.repository)
    put(folder / "index.md", "tables", index(data))
    arena = options.repository / "docs/arena.md"
    put(arena, "cost", cost(data, ResultDirectory.open(published).results()))
    put(options.repository / "docs/index.md", "headline", headline(data))
    put(options.repository / "docs/where-ours-loses.md", "losses", losses(data))
    put(options.repository / "README.md", "agents", readme(data))
    put(options.repository / "docs/trust.md", "trust", trust.table(data))
    put(options.repository / "docs/trust.md", "aims", trust.aims(data))
    put(options.repository / "docs/trust.md", "messages", trust.messages())
    put(options.repository / "docs/trust.md", "local-messages", trust.local_losses())
    trust.save_picture(data, pictures / "trust.svg")
    recipes, tracks = options.repository / "agents/recipes", [track.track for track in data.tracks]
    put(options.repository / "docs/tuning.md", "tuned", tuning(recipes, tracks))
    for path in sorted((options.repository / "docs").rglob("*.md")):
        if "<!-- board " in (text := path.read_text(encoding="utf-8")):
            path.write_text(on_pages(text, data), encoding="utf-8")
    report.plot_frontier(frontier(data), pictures / "frontier.png")
    darken(pictures / "frontier.png")
    save_screenshots(page.resolve(), pictures.resolve())
    text = (options.repository / "pyproject.toml").read_text(encoding="utf-8")
    for name, words in badges(tomllib.loads(text)["project"]).items():
        (pictures / f"badge-{name}.svg").write_text(badge(words), encoding="utf-8")


if __name__ == "__main__":
    main()
