"""Write docs/outside.md and docs/outside.md from stored results.

    python benchmarks/other_pages.py [--outside FOLDER] [--home results/home-ground-v0]

FOLDER has a file WORLD.json per world, the output of ``dpb outside WORLD ... --json``. The rows are
stored in docs/results/outside with digests of the code of our agents, the compacted result of the
suite in docs/results/home-ground-v0. Without options the pages are written from what is stored.
Tests compare the pages with what is stored, and the digests with the code of today. rekey.py
writes the digests again, for code that ``dpb verify`` has confirmed to give the same numbers.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from marked import put
from paper_pages import code
from published import DEFAULTS, as_asked, formatted, gain, mark

from dpb_gym import Result
from dpb_gym.outside import WORLDS
from dpb_gym.report.comparison_groups import Group, short
from dpb_gym.report.leaderboard_data import LeaderboardData

DOCS = Path(__file__).parents[1] / "docs"
TRUSTED = {"local": 0, "shuffle": 1, "aggregator": 1, "central": 2, "joint": 2}
"""Trust models by how much they trust; published arrays of the authors state none."""
OUTSIDE, HOME = DOCS / "results" / "outside", DOCS / "results" / "home-ground-v0"


def store(folder: Path) -> None:
    """Store the rows of every world in a folder."""
    OUTSIDE.mkdir(parents=True, exist_ok=True)
    for file in sorted(folder.glob("*.json")):
        rows = json.loads(file.read_text(encoding="utf-8"))
        rows = rows["rows"] if isinstance(rows, dict) else rows  # stored before
        ours = sorted({row["agent"].partition("@")[0] for row in rows if row["by"] == "us"})
        data = {"agents": {name: code(name) for name in ours}, "rows": rows}
        text = json.dumps(data, indent=1) + "\n"
        (OUTSIDE / file.name).write_text(text, encoding="utf-8")


def store_home(folder: Path) -> None:
    """Store the result of the home ground and the digests of its agents' code."""
    HOME.mkdir(parents=True, exist_ok=True)
    for name in ("result.parquet", "manifest.json"):
        if folder != HOME:
            shutil.copyfile(folder / name, HOME / name)
    names = {result.cell.agent.name for result in Result.load(HOME).cells}
    text = json.dumps({name: code(name) for name in sorted(names)}, indent=1)
    HOME.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


def worlds() -> dict[str, dict[str, Any]]:
    """Return what is stored by the names of worlds."""
    files = {name: OUTSIDE / f"{name}.json" for name in WORLDS}
    return {
        name: json.loads(file.read_text(encoding="utf-8"))
        for name, file in files.items()
        if file.exists()
    }


def leads(by_world: dict[str, dict[str, Any]]) -> str:
    """Return a table with our best agent and the authors' best by setting and trust model.

    An agent of ours is compared with those of the authors that trust the same parties or fewer.
    """
    lines, ratios, settings = [], [], dict[tuple[str, str], float]()
    for world, data in by_world.items():
        for setting in dict.fromkeys(row["setting"] for row in data["rows"]):
            here = [row for row in data["rows"] if row["setting"] == setting]
            for trust in dict.fromkeys(row["trust"] for row in here if row["by"] == "us"):
                ours = [row for row in here if row["by"] == "us" and row["trust"] == trust]
                others = [
                    row
                    for row in here
                    if row["by"] == "authors" and TRUSTED.get(row["trust"], 2) <= TRUSTED[trust]
                ]
                best, other = (min(rows, key=lambda row: row["regret"]) for rows in (ours, others))
                ratios.append(other["regret"] / best["regret"])
                place = world, setting
                settings[place] = max(ratios[-1], settings.get(place, 0.0))
                true = "unbounded" if other["true"] is None else f"{other['true']:.3g}"
                cells = [world, setting, trust, f"{other['agent']} {other['regret']:,.0f}", true]
                cells += [f"`{best['agent']}` {best['regret']:,.0f}", f"{best['true']:.3g}"]
                lines.append((ratios[-1], f"| {' | '.join(cells)} | {ratios[-1]:.2f} |"))
    twice, ahead = sum(ratio >= 2 for ratio in ratios), sum(ratio > 1 for ratio in ratios)
    head = (
        f"In {twice} of {len(ratios)} comparisons our best agent has at most half of the regret "
        f"of the authors' best, in {ahead - twice} less by a smaller factor, in "
        f"{len(ratios) - ahead} more. It has at most half under some trust model in "
        f"{sum(ratio >= 2 for ratio in settings.values())} of {len(settings)} settings."
    )
    titles = "world, setting, trust, authors' best, its true epsilon, ours, true epsilon, ratio"
    table = [f"| {titles.replace(', ', ' | ')} |"]
    rows = [line for _, line in sorted(lines, reverse=True)]
    return "\n".join([head, "", *table, "|---|---|---|---|---|---|---|---|", *rows])


def outside(by_world: dict[str, dict[str, Any]]) -> str:
    """Return one table per world."""
    texts = []
    for world, data in by_world.items():
        rows = data["rows"]
        texts += [
            f"### {world}",
            "",
            f"`{WORLDS[world][0]}`, {rows[0]['rounds']:,} rounds, "
            f"{max(row['runs'] for row in rows)} runs:",
            "",
            "| setting | agent | by | trust | stated epsilon | true epsilon | regret |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            true = "unbounded" if row["true"] is None else f"{row['true']:.3g}"
            spread = "" if row["sd"] is None else f" ± {row['sd']:,.0f}"
            name = f"`{row['agent']}`" if row["by"] == "us" else row["agent"]
            cells = [row["setting"], name, row["by"], row["trust"], f"{row['stated']:g}", true]
            texts.append(f"| {' | '.join(cells)} | {row['regret']:,.0f}{spread} |")
        texts.append("")
    return "\n".join(texts).rstrip()


def home(data: LeaderboardData) -> str:
    """Return the comparisons of our agents with the best others on every task."""
    rows = {task.task: {row.key: row for row in task.rows} for task in data.tasks}
    places = list(rows)
    asked = [c for c in data.comparisons if c.trust == "curator" and c.ruling == DEFAULTS]
    compared = [c for c in asked if c.outcome != "not compared"]
    lines = []
    for c in sorted(compared, key=lambda c: places.index(c.task)):
        ours, other = rows[c.task][c.first], rows[c.task][str(c.second)]
        budget, group = short(c.budget), Group(c.notion, c.unit)  # type: ignore[arg-type]
        own = f"{ours.agent} {formatted(ours.regret)}{as_asked(ours, c)}"
        cells = [c.task, group.label, budget, own]
        cells.append(f"{other.agent} {formatted(other.regret)}{as_asked(other, c)}")
        lines.append(f"| {' | '.join(cells)} | {formatted(gain(c))}{mark(c)} |")
    count = data.tally(DEFAULTS, "curator")
    head = (
        f"In {len(compared)} comparisons our agents are better in {count['ahead']} "
        f"({count['holm']} after Holm's correction) and worse in {count['behind']}. "
        f"In {count['undecided']} the interval contains zero."
    )
    if alone := count["not compared"]:
        head += f" {alone} are not compared, because only we or only others have a row."
    table = ["| task | guarantee | budget | ours | best other | gain, paired |"]
    return "\n".join([head, "", *table, "|---|---|---|---|---|---|", *lines])


def main() -> None:
    """Store the given results and write both pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--outside", type=Path)
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    if options.outside is not None:
        store(options.outside)
    if options.home is not None:
        store_home(options.home)
    put(DOCS / "outside.md", "worlds", outside(worlds()))
    put(DOCS / "outside.md", "leads", leads(worlds()))
    put(DOCS / "outside.md", "home", home(Result.load(HOME).to_leaderboard()))


if __name__ == "__main__":
    main()
