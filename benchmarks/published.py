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
from collections.abc import Iterable, Sequence
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
from dpb_gym.report.comparison_groups import Group, amount, budget_order, short
from dpb_gym.report.leaderboard_data import (
    DEFAULTS,
    OUTCOMES,
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


TITLES = {DEFAULTS: "Default parameters", TUNED: "Tuned parameters"}
TRUSTED = {
    "curator": "a server",
    "aggregator": "secure aggregation",
    "shuffler": "a shuffler",
    "local": "nobody",
}


UNITS = {"reward": "single response", "user-round": "whole visit"}


def headline(data: LeaderboardData, rulings: Sequence[str] = RULINGS) -> str:
    """Return the counts for each trust model and ruling, and what they mean."""
    only_server = " Only agents that a server may serve are tuned." if TUNED in rulings else ""
    lines = [
        "| who is trusted with the data | parameters | comparisons | ours better | undecided "
        "| ours worse | not compared |",
        "|---|---|---|---|---|---|---|",
    ]
    for ruling, trusted in itertools.product(rulings, TRUSTED):
        count = data.tally(ruling, trusted)
        cells = [TRUSTED[trusted], "default" if ruling == DEFAULTS else "tuned", count["all"]]
        cells += [f"{count['ahead']} ({count['holm']})", *(count[name] for name in OUTCOMES[1:])]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(
        [
            "A comparison is a task, what is protected and a budget. Our best agent is better than "
            "the best other agent if the 95% interval of the paired difference of their regrets is "
            "above zero. It is undecided if the interval contains zero. In brackets are "
            "differences that also hold after Holm's correction. A comparison in which only we or "
            "only others have a result is not compared. A result that needs less trust or a "
            f"smaller budget counts, too. {by_unit(data)}{only_server}",
            "",
            *lines,
        ]
    )


def by_unit(data: LeaderboardData) -> str:
    """Return, where nobody is trusted, the counts with default parameters by protected unit."""
    counts: dict[str, Counter[str]] = {}
    for c in data.comparisons:
        if (c.ruling, c.trust) == (DEFAULTS, "local") and c.outcome != "not compared":
            counts.setdefault(c.unit, Counter())[c.outcome] += 1
    texts = [
        f"{count['ahead']} of {count.total()} if a {UNITS.get(unit, unit)} is protected"
        for unit, count in sorted(counts.items())
    ]
    return f"If nobody is trusted, ours is better in {' and '.join(texts)}." if texts else ""


def index(data: LeaderboardData) -> str:
    """Return the tables of docs/leaderboard/index.md, by ruling, trust model, track and unit."""
    parts = (part for ruling in RULINGS for part in (f"## {TITLES[ruling]}", _tables(data, ruling)))
    return "\n\n".join([headline(data), *parts])


def as_asked(row: Row, comparison: RulingComparison) -> str:
    """Return the budget of a row that answers with a smaller budget or less trust, or nothing."""
    same = row.budget is not None and row.budget.amount == comparison.budget
    where = "" if same else f" {short(row.budget.amount)}"  # type: ignore[union-attr]
    less = "" if row.trust_model == comparison.trust else f" {row.trust_model}"
    return f" (at{where}{less})" if where or less else ""


def _tables(data: LeaderboardData, ruling: str) -> str:
    rows = {task.task: {row.key: row for row in task.rows} for task in data.tasks}
    mine = [c for c in data.comparisons if c.outcome != "not compared" and c.ruling == ruling]
    sources = {one.name: one.standing for one in data.origins}
    texts = []
    for trusted, track in itertools.product(TRUSTED, data.tracks):
        tables: dict[Group, list[str]] = {}
        names: dict[Group, str] = {}
        comparisons = [c for c in mine if c.task in track.tasks and c.trust == trusted]
        places = {c: budget_order(c.budget) for c in comparisons}
        for c in sorted(comparisons, key=lambda c: (track.tasks.index(c.task), places[c])):
            ours, other = rows[c.task][c.first], rows[c.task][str(c.second)]
            group = Group(c.notion, c.unit)
            lines = tables.setdefault(group, [])
            names[group] = base_label(ours.agent)
            name = "" if any(line.startswith(f"| {c.task} |") for line in lines) else c.task
            regret = formatted(other.regret).partition(" ")[0]
            lines.append(
                f"| {name} | {short(c.budget)} "  # type: ignore[arg-type]
                f"| {formatted(ours.regret)}{as_asked(ours, c)} "
                f"| {other.agent} {regret}{as_asked(other, c)} ({sources[other.name]}) "
                f"| {formatted(gain(c))}{mark(c)} |"
            )
        for group, lines in tables.items():
            head = f"| task | budget | {names[group]} | best other (source) | gain, paired |"
            rule = "|---|---|---|---|---|"
            texts += [f"### {track.title}: {group.label}", "\n".join([head, rule, *lines])]
    if ruling == TUNED:
        for track in data.tracks:
            members = (task for task in data.tasks if task.task in track.tasks)
            best = [f"{task.task}: {_without_privacy(task)}" for task in members]
            texts.append(f"{track.title}, best agents without privacy: {'; '.join(best)}.")
    return "\n\n".join(texts)


def gain(comparison: RulingComparison) -> Interval:
    """Return the gain of a comparison that has one."""
    assert comparison.gain is not None
    return comparison.gain


def mark(comparison: RulingComparison) -> str:
    """Return the mark of a gain: none after Holm, and one for each weaker outcome."""
    if comparison.outcome == "ahead":
        return "" if comparison.survives else HOLM
    return UNDECIDED if comparison.outcome == "undecided" else BEHIND


def losses(data: LeaderboardData) -> str:
    """Return the tables of docs/where-ours-loses.md: every comparison that is not a clear lead."""
    rows = {task.task: {row.key: row for row in task.rows} for task in data.tasks}
    parts: list[str] = []
    verdicts = {"ahead": "better, not after Holm", "undecided": "undecided", "behind": "worse"}
    for ruling in RULINGS:
        known = [c for c in data.comparisons if c.outcome != "not compared" and c.ruling == ruling]
        weak = [c for c in known if mark(c)]
        lines = [
            "| task | trusted | ours | best other | gain, paired | ours is |",
            "|---" * 6 + "|",
        ]
        for c in sorted(weak, key=lambda c: gain(c).mean):
            cells = c.task, c.trust, c.first, str(c.second), formatted(gain(c)), verdicts[c.outcome]
            lines.append(f"| {' | '.join(cells)} |")
        parts += [f"### {TITLES[ruling]}", "\n".join(lines)]
    standings = {one.name: one.standing for one in data.origins}
    texts = []
    for trusted, title in TRUSTED.items():
        mine = (c for c in data.comparisons if (c.ruling, c.trust) == (DEFAULTS, trusted))
        rivals = Counter(
            standings[rows[c.task][str(c.second)].name] for c in mine if c.outcome != "not compared"
        )
        counts = [f"{count} {name!r}" for name, count in rivals.most_common()]
        texts.append(f"{title}: {', '.join(counts)}")
    parts.append(
        f"Sources of the best rivals with default parameters, by who is trusted: "
        f"{'; '.join(texts)}. `dpb show AGENT` explains these words."
    )
    parts += ["### Not better than random choice", like_random(data)]
    return "\n\n".join([*parts, "### Not compared", uncompared(data), replicates(data)])


def like_random(data: LeaderboardData) -> str:
    """Return the rows of our agents with defaults that are not significantly below random choice.

    Random choice is a row of the task, with its mean over the same customers.
    """
    ours = data.ours
    lines = [
        "Our rows with default parameters whose 95% interval is not below the mean of random "
        "choice:",
        "",
        "| task | agent | budget | regret | random |",
        "|---|---|---|---|---|",
    ]
    for task in data.tasks:
        chance = next(row.regret.mean for row in task.rows if row.name == "random")
        rows = [row for row in task.rows if row.name in ours and row.ruling == DEFAULTS]
        for row in sorted(rows, key=lambda row: (row.name, budget_order(row.budget))):
            if row.private and row.regret.high >= chance:
                cells = task.task, row.agent, row.budget, formatted(row.regret), f"{chance:,.0f}"
                lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def uncompared(data: LeaderboardData) -> str:
    """Return the tasks on which only we or only others have a row, for each trust model."""
    lines = [
        "With default parameters, the comparisons that only one side can answer, with the number "
        "of budgets:",
        "",
        "| who is trusted | only others have a result | only we have a result |",
        "|---|---|---|",
    ]
    for trusted, title in TRUSTED.items():
        sides: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
        for c in data.comparisons:
            if (c.ruling, c.trust, c.outcome) == (DEFAULTS, trusted, "not compared"):
                sides[c.ours][f"{c.task} ({c.unit})"] += 1
        texts = [
            ", ".join(f"{name} {count}" for name, count in sides[side].items()) or "none"
            for side in (False, True)
        ]
        lines.append(f"| {title} | {' | '.join(texts)} |")
    return "\n".join(lines)


def replicates(data: LeaderboardData) -> str:
    """Return the number of replicates of the tasks as a sentence."""
    counts = Counter(task.replicates for task in data.tasks)
    usual, _ = counts.most_common(1)[0]
    fewer = {n: [t.task for t in data.tasks if t.replicates == n] for n in counts if n != usual}
    others = "; ".join(f"{n} on {', '.join(tasks)}" for n, tasks in fewer.items())
    return f"Replicates: {usual} on each task" + (f"; {others}." if others else ".")


def _without_privacy(task: TaskResult) -> str:
    exact = [row for row in task.rows if not row.private and row.budget is None]
    best = trust.best_row(task)
    chance = next((f"{row.regret.mean:,.0f}" for row in exact if row.name == "random"), "–")
    return f"{best.agent} {formatted(best.regret).partition(' ')[0]}, random {chance}"


MIDDLE = ("rho=0.1", "eps=1,delta=1e-5")
"""Budgets of the README's table."""


def readme(data: LeaderboardData) -> str:
    """Return the README's counts and its table: three numbers per problem, at one budget."""
    lines = [
        "| problem, budget | agent of the paper, tuned if that is better | ours, default "
        "parameters | best without privacy |",
        "|---|---|---|---|",
    ]
    for task in data.tasks:
        if task.task in README:
            paper, ours, _ = README[task.task]
            rows = [
                next(row for row in agent_rows if str(row.budget) in MIDDLE)
                for agent_rows in (better(task, paper), trust.of_trust(task, ours, "curator"))
            ]
            cells = [f"{formatted(r.regret)} (`{r.name}`)" for r in (*rows, trust.best_row(task))]
            budget = short(rows[0].budget)  # type: ignore[arg-type]
            lines.append(f"| {task.problem}, {budget} | {' | '.join(cells)} |")
    return "\n".join(
        [
            headline(data, [DEFAULTS]),
            "",
            "Counts with tuned parameters are on [the leaderboard](docs/leaderboard/index.md). "
            "Mean regret with the half-width of its 95% interval on the standard task of each "
            "problem, where a server is trusted ([other trust models](docs/trust.md)):",
            "",
            *lines,
        ]
    )


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
                by_budget = {
                    row.budget: row for row in rows if (row.name, row.ruling) == (name, ruling)
                }
                cells = [formatted(by_budget[b].regret) if b in by_budget else "–" for b in budgets]
                lines += [[f"`{name}`", label, *cells]] if by_budget else []
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


MOST_VALUES = 8
"""Most values of an agent's parameters in the table of tuned ones."""


def tuning(recipes: Path, tracks: Iterable[str]) -> str:
    """Return the table of the parameters tuned for the arena and their cost, from the recipes."""
    lines = [
        "| agent | choices | values other than the defaults | agent rounds | seconds |",
        "|---|---|---|---|---|",
    ]
    by_agent: dict[str, list[dict[str, Any]]] = {}
    for track in tracks:
        for path in sorted((recipes / track).glob("*.yaml")):
            recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
            by_agent.setdefault(recipe["agent"], []).append(recipe)
    total = Counter[str]()
    for name, own in by_agent.items():
        chosen = [row["parameters"] for recipe in own for row in recipe["best_per_budget"]]
        times = Counter(f"{key}={value}" for params in chosen for key, value in params.items())
        common = [f"{text} ({count})" for text, count in times.most_common(MOST_VALUES)]
        more = [f"{len(times) - len(common)} others"] if len(times) > len(common) else []
        values = ", ".join(common + more) or "none"
        cost = sum((Counter(recipe["cost"]) for recipe in own), Counter[str]())
        total += cost
        spent = f"{cost['agent_rounds'] / 1e6:.1f} M | {cost['seconds']:.0f}"
        lines.append(f"| `{name}` | {len(chosen)} | {values} | {spent} |")
    tasks: dict[str, int] = {}
    for recipe in itertools.chain(*by_agent.values()):
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
            f"Rows with defaults and a trusted curator take {alone:.0f} core-minutes, all rows "
            f"{total:.0f}.",
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
    put(options.repository / "docs/trust.md", "limits", trust.limit_table(data))
    put(options.repository / "docs/trust.md", "messages", trust.messages())
    put(options.repository / "docs/trust.md", "local-messages", trust.local_losses())
    trust.save_picture(data, pictures / "trust.svg")
    recipes, tracks = options.repository / "agents/recipes", [track.track for track in data.tracks]
    put(arena, "tuned", tuning(recipes, tracks))
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
