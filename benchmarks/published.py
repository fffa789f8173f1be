"""Publishes a result of the arena: its page, the tables and pictures of README and docs.

    python benchmarks/published.py [results/dpb-bench-v1] [--repository .]

The compacted result and its page go to docs/leaderboard; the tables there, the README's table of
agents, its pictures (frontier.png; page.png, the page in headless Chromium; a twin of each for dark
themes) and its badges are written from them. A test compares the tables with the result.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import yaml

from dpb_gym import Result, report
from dpb_gym.registry import agent_spec
from dpb_gym.report.comparison_groups import Group, budget_order, contests, group_of, short
from dpb_gym.report.leaderboard_data import Interval, LeaderboardData, Row, TaskResult
from dpb_gym.results import metrics

TUNED = " (tuned)"
OURS = ("one-pass-mnl", "one-pass-pricing", "one-pass-linear", "one-pass-linear-joint")
# Of the README: the paper's agent, ours, and the baseline without privacy, at the papers' sizes.
README = {
    "assortment-standard": ("dpmnl", "one-pass-mnl", "greedy-mnl"),
    "pricing-standard": ("private-pricing", "one-pass-pricing", "greedy-pricing"),
    "recommendation-standard": ("adaprivate-ucb", "one-pass-linear", "lin-greedy"),
}
UNDECIDED, BEHIND = r" \*", r" \*\*"
DARK = np.array([13, 17, 23]) / 255
"""Ground of the dark pictures, GitHub's."""


def darken(path: Path) -> None:
    """Writes a twin for dark themes: lightness turned over, hues kept."""
    light = 1.0 - matplotlib.image.imread(path)[..., :3]
    turned = light.max(-1, keepdims=True) + light.min(-1, keepdims=True) - light
    twin = DARK + (1.0 - DARK) * turned
    matplotlib.image.imsave(path.with_name(f"{path.stem}-dark.png"), np.clip(twin, 0.0, 1.0))


def photograph(page: Path, out: Path) -> None:
    """Takes pictures of the first screen of a page, in both themes."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no chromium: page.png stays as it is")
        return
    for suffix, theme in (("", "1"), ("-dark", "0")):
        picture = out / f"page{suffix}.png"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += ["--window-size=1280,700", "--virtual-time-budget=5000"]
        options += [f"--blink-settings=preferredColorScheme={theme}", f"--screenshot={picture}"]
        subprocess.run([chromium, *options, page.as_uri()], check=True, capture_output=True)


@dataclass(frozen=True)
class Duel:
    """Our agent against the best other of the same guarantee and budget, on one task.

    Attributes:
        ours: Our row, tuned.
        other: The row of least regret among all others, default or tuned.
        gain: By how much its regret exceeds ours on the same customers.
    """

    ours: Row
    other: Row
    gain: Interval

    @property
    def mark(self) -> str:
        """Empty if we are clearly ahead, ``*`` if undecided, ``**`` if clearly behind."""
        return "" if self.gain.low > 0 else BEHIND if self.gain.high < 0 else UNDECIDED


def tuned(task: TaskResult, name: str, *, private: bool = True) -> list[Row]:
    """The tuned rows of an agent by budget; its defaults where they are the best point."""
    return _last(task, name, private, lambda row: row.agent.endswith(TUNED))


def kindest(task: TaskResult, name: str) -> list[Row]:
    """The better of an agent's default and tuned rows at each budget."""
    return _last(task, name, True, lambda row: -row.regret.mean)


def _last(task: TaskResult, name: str, private: bool, order: Callable[[Row], float]) -> list[Row]:
    """Of an agent's rows the last by `order` at each budget."""
    rows = [row for row in task.rows if row.name == name and row.private == private]
    found = {row.budget: row for row in sorted(rows, key=order)}
    return [found[budget] for budget in sorted(found, key=budget_order)]


def duels(task: TaskResult) -> dict[Group, list[Duel]]:
    """Our tuned agents on a task against the best of the others, by what is promised."""
    found: dict[Group, list[Duel]] = {}
    fields = contests(task.rows)
    for ours in (row for name in OURS for row in tuned(task, name)):
        others = [r for r in fields[group_of(ours), ours.budget] if r.name != ours.name]
        if others:
            gain = metrics.interval(metrics.differences(others[0].finals, ours.finals))
            found.setdefault(group_of(ours), []).append(Duel(ours, others[0], gain))
    return found


def said(value: Interval) -> str:
    """Mean and half-width of an interval, to one decimal below 100."""
    half = (value.high - value.low) / 2
    return " ± ".join(f"{part:,.{0 if abs(part) >= 100 else 1}f}" for part in (value.mean, half))


def index(data: LeaderboardData) -> str:
    """The tables of docs/leaderboard/index.md, one per track and guarantee."""
    count: Counter[str] = Counter()
    texts = []
    for track in data.tracks:
        tasks = [task for task in data.tasks if task.task in track.tasks]
        tables: dict[Group, list[str]] = {}
        for task in tasks:
            for group, rows in duels(task).items():
                lines = tables.setdefault(group, [])
                for place, duel in enumerate(rows):
                    count[duel.mark] += 1
                    other = said(duel.other.regret).partition(" ")[0]
                    lines.append(
                        f"| {'' if place else task.task} | {short(duel.ours.budget)} | "  # type: ignore[arg-type]
                        f"{said(duel.ours.regret)} | {duel.other.agent} {other} | "
                        f"{said(duel.gain)}{duel.mark} |"
                    )
        for group, lines in tables.items():
            ours = next(row for task in tasks for row in [d.ours for d in duels(task)[group]])
            texts += [
                f"### {track.title}: {group.label}",
                "",
                f"| task | budget | {ours.agent.removesuffix(TUNED)} | best other | gain, paired |",
                "|---|---|---|---|---|",
                *lines,
                "",
            ]
        best = [f"{task.task}: {_without_privacy(task)}" for task in tasks]
        texts += [f"Without privacy, the best: {'; '.join(best)}.", ""]
    total = sum(count.values())
    summary = (
        f"Of {total} comparisons our agents are ahead in {count['']}, undecided in "
        f"{count[UNDECIDED]}, behind in {count[BEHIND]}."
    )
    return "\n".join([summary, "", *texts]).rstrip()


def _without_privacy(task: TaskResult) -> str:
    exact = [row for row in task.rows if not row.private and row.budget is None]
    best = min((r for r in exact if not r.reference), key=lambda row: row.regret.mean)
    chance = next((f"{row.regret.mean:,.0f}" for row in exact if row.name == "random"), "–")
    return f"{best.agent} {said(best.regret).partition(' ')[0]}, random {chance}"


def readme(data: LeaderboardData) -> str:
    """The README's table of agents."""
    lines = [
        "Regret: mean ± half of its 95% interval. All are tuned alike, on other seeds; the paper's "
        "agent has the better of its tuned and its default parameters at each budget.",
        "",
        "| task | protected | paper's agent | ours | without privacy |",
        "|---|---|---|---|---|",
    ]
    for task in data.tasks:
        if task.task in README:
            paper, ours, exact = README[task.task]
            rows = tuned(task, ours)
            scale = "rho" if rows[0].budget.rho is not None else "eps (delta = 1e-5)"  # type: ignore[union-attr]
            limits = " / ".join(f"{row.budget.limit:g}" for row in rows)  # type: ignore[union-attr]
            shown = [_cell(paper, kindest(task, paper)), _cell(ours, rows)]
            shown.append(_cell(exact, tuned(task, exact, private=False)))
            texts = [task.task, f"{rows[0].unit}; {scale} = {limits}", *shown]
            lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def _cell(name: str, rows: list[Row]) -> str:
    return f"`{name}` " + " / ".join(said(row.regret) for row in rows)


def frontier(data: LeaderboardData) -> LeaderboardData:
    """What the README's picture shows: three agents on three tasks, under short labels."""
    tasks = []
    for task in data.tasks:
        if task.task in README:
            paper, ours, exact = README[task.task]
            rows = [
                replace(row, agent=label)
                for label, found in (
                    ("one-pass (ours)", tuned(task, ours)),
                    (paper, kindest(task, paper)),
                    (exact, tuned(task, exact, private=False)),
                )
                for row in found
            ]
            tasks.append(replace(task, task=task.problem, rows=tuple(rows), track=""))
    return replace(data, title="What privacy costs", tasks=tuple(tasks), tracks=())


def tuning(recipes: Path, tracks: Iterable[str]) -> str:
    """What was tuned for the arena, with what it cost, from the recipes per track."""
    lines = [
        "| track | agent | best of eight points | defaults / best | agent rounds | seconds |",
        "|---|---|---|---|---|---|",
    ]
    rounds = seconds = 0.0
    for track in tracks:
        for place, path in enumerate(sorted((recipes / track).glob("*.yaml"))):
            recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
            known = agent_spec(recipe["agent"]).defaults
            best = {k: v for k, v in recipe["parameters"].items() if v != known[k]}
            said = ", ".join(f"{key}={value}" for key, value in best.items()) or "defaults"
            cost = recipe["cost"]
            rounds, seconds = rounds + cost["agent_rounds"], seconds + cost["seconds"]
            lines.append(
                f"| {'' if place else track} | `{recipe['agent']}` | {said} | "
                f"{recipe['defaults_relative_to_best']:.2f} | {cost['agent_rounds'] / 1e6:.1f} M | "
                f"{cost['seconds']:.0f} |"
            )
    head = (
        f"In all {rounds / 1e6:,.0f} million agent rounds, {seconds / 60:,.0f} minutes of a core."
    )
    return "\n".join([head, "", *lines])


def put(path: Path, name: str, text: str) -> None:
    """Replaces what stands between the two comments of this name."""
    before, mark, rest = path.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not (mark and end):
        raise SystemExit(f"{path}: no place for {name!r}")
    path.write_text(f"{before}{mark}{text}\n{end}{after}", encoding="utf-8")


def badges(project: dict[str, Any]) -> dict[str, str]:
    """Left and right text of each badge, from the project's metadata."""
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    return {
        "python": f"Python|{pythons[0]} to {pythons[-1]}",
        "licence": f"licence|{project['license']}",
        "typed": "types|mypy --strict",
    }


def badge(text: str) -> str:
    """A badge as SVG, legible on light and dark grounds."""
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
    asked = parser.parse_args()
    folder, pictures = asked.repository / "docs/leaderboard", asked.repository / "docs/_static"
    kept = folder / asked.result.name
    if kept.resolve() != asked.result.resolve():
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for name in ("result.parquet", "manifest.json"):
            shutil.copyfile(asked.result / name, kept / name)
    data = Result.load(kept).to_leaderboard()
    page = report.html(data, folder / f"{asked.result.name}.html")
    put(folder / "index.md", "tables", index(data))
    put(asked.repository / "README.md", "agents", readme(data))
    recipes, tracks = asked.repository / "agents/recipes", [track.track for track in data.tracks]
    put(asked.repository / "docs/tuning.md", "tuned", tuning(recipes, tracks))
    report.plot_frontier(frontier(data), pictures / "frontier.png")
    darken(pictures / "frontier.png")
    photograph(page.resolve(), pictures.resolve())
    text = (asked.repository / "pyproject.toml").read_text(encoding="utf-8")
    for name, words in badges(tomllib.loads(text)["project"]).items():
        (pictures / f"badge-{name}.svg").write_text(badge(words), encoding="utf-8")


if __name__ == "__main__":
    main()
