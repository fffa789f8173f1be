"""Table and picture of our agents under four trust models, from a result of the arena.

`published.py` writes them to docs/trust.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpb_gym.report.comparison_groups import budget_order
from dpb_gym.report.leaderboard_data import DEFAULTS, LeaderboardData, Row, TaskResult

TRUSTS = ("curator", "aggregator", "shuffler", "local")
# our agent and task by title
PROBLEMS = {
    "pricing": ("pricing-standard", "one-pass-pricing"),
    "assortment": ("assortment-standard", "one-pass-mnl"),
    "recommendation, user-round": ("recommendation-standard", "one-pass-linear-joint"),
    "recommendation, reward": ("recommendation-standard", "one-pass-linear"),
}


def of_trust(task: TaskResult, name: str, trust: str) -> list[Row]:
    """Return the default rows of an agent under a trust model, by budget."""
    rows = [
        row
        for row in task.rows
        if row.name == name and row.trust_model == trust and row.ruling == DEFAULTS
    ]
    return sorted(rows, key=lambda row: budget_order(row.budget))


def best(task: TaskResult) -> float:
    """Return the least mean regret of a non-private agent with its defaults."""
    rows = (row for row in task.rows if not row.private and not row.reference)
    return min(row.regret.mean for row in rows if row.ruling == DEFAULTS)


def lines(data: LeaderboardData) -> Iterator[tuple[str, str, float, list[Row]]]:
    """Yield title, trust model, best non-private regret and rows of every line of the table."""
    tasks = {task.task: task for task in data.tasks}
    for title, (name, agent) in PROBLEMS.items():
        for trust in TRUSTS:
            rows = of_trust(tasks[name], agent, trust) if name in tasks else []
            if rows:
                yield title, trust, best(tasks[name]), rows


def table(data: LeaderboardData) -> str:
    """Return regret and its multiple of the best non-private agent's, with 95% intervals."""
    found = [
        "| problem | trusted | rho = 0.02, eps = 0.5 | 0.1, 1 | 0.5, 2 | 1, 5 |",
        "|---|---|---|---|---|---|",
    ]
    for title, trust, least, rows in lines(data):
        cells = []
        for row in rows:
            mean, half = row.regret.mean, (row.regret.high - row.regret.low) / 2
            cells.append(f"{mean:,.3g} ± {half:.2g} ({mean / least:.3g})")
        found.append(f"| {title} | {trust} | {' | '.join(cells)} |")
    return "\n".join(found)


def save_picture(data: LeaderboardData, path: Path) -> None:
    """Save the picture of regret against budget, a line per trust model."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(PROBLEMS), figsize=(13, 3.2), sharey=True)
    places = dict(zip(PROBLEMS, axes))
    for title, trust, least, rows in lines(data):
        points = [(row.budget.limit, row.regret.mean / least) for row in rows if row.budget]
        places[title].plot(*zip(*points), marker="osD^"[TRUSTS.index(trust)], label=trust)
        places[title].set_xticks([x for x, _ in points], [f"{x:g}" for x, _ in points])
        places[title].set_xlabel("rho" if rows[0].budget and rows[0].budget.rho else "epsilon")
    for title, place in places.items():
        place.set(title=title, xscale="log", yscale="log")
        place.minorticks_off()
        place.axhline(1.0, color="grey", linewidth=0.8)
    axes[0].set_ylabel("regret over the best non-private")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
