"""Draws the picture of the README: regret against budget, ours, the papers', without privacy.

    python benchmarks/readme_picture.py [--replicates 30] [--out docs/_static]

The three problems at the papers' sizes, T = 10,000. It writes frontier.png; page.png, the result
page in headless Chromium; a twin of each for dark themes; the README's table of
agents; and the badges, which say what pyproject.toml says. A minute.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np

import dpb_gym
from dpb_gym import report
from dpb_gym.report.model import Row, TaskResult

RHOS = ("rho=0.02", "rho=0.1", "rho=0.5", "rho=1")
EPSILONS = tuple(f"eps={e},delta=1e-5" for e in (0.5, 1, 2, 5))
# Environment, its size in the papers, agents, budgets.
PROBLEMS = {
    "assortment": (
        "DPB/Assortment-v0",
        {"n_items": 100, "capacity": 10, "dim": 5, "context_norm": "clip", "revenues": "equal"},
        {"one-pass (ours)": "one-pass-mnl", "DPMNL": "dpmnl", "Greedy MNL": "greedy-mnl"},
        RHOS,
    ),
    "pricing": (
        "DPB/Pricing-v0",
        {},
        {
            "one-pass (ours)": "one-pass-pricing",
            "Private pricing": "private-pricing",
            "Greedy pricing": "greedy-pricing",
        },
        RHOS,
    ),
    "recommendation": (
        "DPB/Recommendation-v0",
        {},
        {
            "one-pass (ours)": "one-pass-linear",
            "AdaPrivate-UCB": "adaprivate-ucb",
            "LinGreedy": "lin-greedy",
        },
        EPSILONS,
    ),
}


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


def row(name: str, task: TaskResult) -> str:
    """One line of the README's table: mean regret with the half-width of its 95% interval."""

    def said(line: Row) -> str:
        half = (line.regret.high - line.regret.low) / 2
        return f"{line.regret.mean:.3g} ± {half:.2g}"

    groups: dict[str, list[Row]] = {}
    for line in task.rows:
        groups.setdefault(line.name, []).append(line)
    texts, budgets = [], ""
    for agent in PROBLEMS[name][2].values():
        lines = sorted(groups[agent], key=lambda line: line.budget.limit if line.budget else 0.0)
        texts.append(f"`{agent}` {' / '.join(map(said, lines))}")
        if lines[0].budget is not None:
            scale = "rho" if lines[0].budget.rho is not None else "eps (delta = 1e-5)"
            limits = " / ".join(f"{line.budget.limit:g}" for line in lines if line.budget)
            budgets = f"{scale} = {limits}"
            unit = str(lines[0].guarantee).partition(" per ")[2].partition(" ")[0]
    ours, paper, exact = texts
    return f"| {name} | {unit}; {budgets} | {paper} | {ours} | {exact} |"


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=10_000)
    parser.add_argument("--replicates", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("docs/_static"))
    asked = parser.parse_args()
    tasks, rows = [], []
    for name, (env_id, env_kwargs, agents, budgets) in PROBLEMS.items():
        result = dpb_gym.evaluate(
            env_id,
            agents,
            horizon=asked.horizon,
            replicates=asked.replicates,
            budgets=budgets,
            env_kwargs=env_kwargs,
        )
        result.table()
        (task,) = result.to_leaderboard().tasks
        tasks.append(replace(task, task=name))
        rows.append(row(name, task))
    data = replace(result.to_leaderboard(), title="What privacy costs", tasks=tuple(tasks))
    report.plot_frontier(data, asked.out / "frontier.png")
    darken(asked.out / "frontier.png")
    with tempfile.TemporaryDirectory() as folder:
        photograph(report.html(data, Path(folder) / "page.html"), asked.out.resolve())
    path = Path("README.md")
    before, mark, rest = path.read_text(encoding="utf-8").partition("<!-- agents -->")
    _, end, after = rest.partition("<!-- /agents -->")
    head = f"Regret at T = {asked.horizon:,}: mean of {asked.replicates} replicates ± half of its"
    head += " 95% interval."
    lines = ["", head, "", "| problem | protected | paper's agent | ours | without privacy |"]
    text = "\n".join([*lines, "|---|---|---|---|---|", *rows, ""])
    path.write_text(f"{before}{mark}{text}{end}{after}", encoding="utf-8")
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, text in badges(project).items():
        (asked.out / f"badge-{name}.svg").write_text(badge(text), encoding="utf-8")
    print(f"written to {asked.out}")


if __name__ == "__main__":
    main()
