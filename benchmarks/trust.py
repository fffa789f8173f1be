"""Tables and picture of our agents under four trust models, from a result of the arena.

`published.py` writes them to docs/trust.md. As a script it prints the loss of a message of the
score alone on pricing-standard (`score_losses`), and the table of messages.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import local_limit
import numpy as np

import dpb_gym
from dpb_gym.privacy import Budget
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.registry import agent_spec
from dpb_gym.report.comparison_groups import budget_order
from dpb_gym.report.leaderboard_data import DEFAULTS, LeaderboardData, Row, TaskResult

Array = np.ndarray

TRUSTS = ("curator", "aggregator", "shuffler", "local")
# our agent and task by title
PROBLEMS = {
    "pricing": ("pricing-standard", "one-pass-pricing"),
    "assortment": ("assortment-standard", "one-pass-mnl"),
    "recommendation, user-round": ("recommendation-standard", "one-pass-linear-joint"),
    "recommendation, reward": ("recommendation-standard", "one-pass-linear"),
}
# Aims at each budget: multiples of the best non-private regret, or of the curator's. What local
# messages about assortments allow is in `limit_table` instead.
AIMS: dict[tuple[str, str], tuple[float, ...]] = {
    **{(title, "aggregator"): (1.5,) * 4 for title in PROBLEMS},
    **{(title, "shuffler"): (1.6,) * 4 for title in PROBLEMS},
    ("pricing", "local"): (40.0, 18.0, 8.0, 5.0),
    ("recommendation, user-round", "local"): (12.0, 9.0, 7.0, 5.0),
    ("recommendation, reward", "local"): (6.0, 4.5, 3.0, 2.0),
}


def of_trust(task: TaskResult, name: str, trust: str) -> list[Row]:
    """Return the default rows of an agent under a trust model, by budget."""
    rows = [
        row
        for row in task.rows
        if row.name == name and row.trust_model == trust and row.ruling == DEFAULTS
    ]
    return sorted(rows, key=lambda row: budget_order(row.budget))


def best_row(task: TaskResult) -> Row:
    """Return the row of least regret without privacy, with default or tuned parameters."""
    rows = (row for row in task.rows if not row.private and not row.reference and not row.stated)
    return min((row for row in rows if row.budget is None), key=lambda row: row.regret.mean)


def best(task: TaskResult) -> float:
    """Return the least mean regret of an agent without privacy."""
    return best_row(task).regret.mean


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
    table_lines = [
        "| problem | trusted | rho = 0.02, eps = 0.5 | 0.1, 1 | 0.5, 2 | 1, 5 |",
        "|---|---|---|---|---|---|",
    ]
    for title, trust, least, rows in lines(data):
        cells = []
        for row in rows:
            mean, half = row.regret.mean, (row.regret.high - row.regret.low) / 2
            digits, times = (0 if x >= 100 else 1 for x in (mean, mean / least))
            cells.append(f"{mean:,.{digits}f} ± {half:,.{digits}f} ({mean / least:.{times}f})")
        table_lines.append(f"| {title} | {trust} | {' | '.join(cells)} |")
    return "\n".join(table_lines)


def aims(data: LeaderboardData) -> str:
    """Return the aims beside what is measured; missed ones are bold."""
    table_lines = [
        "| problem | trusted | multiple of | aimed at | measured |",
        "|---|---|---|---|---|",
    ]
    curator: dict[str, list[float]] = {}
    for title, trust, least, rows in lines(data):
        regrets = [row.regret.mean for row in rows]
        if trust == "curator":
            curator[title] = regrets
            continue
        if (title, trust) not in AIMS:
            continue
        wanted, local = AIMS[title, trust], trust == "local"
        ratios = [r / (least if local else c) for r, c in zip(regrets, curator[title])]
        texts = [f"{x:.0f}" if x >= 20 else f"{x:.1f}" if local else f"{x:.2f}" for x in ratios]
        shown = [t if x <= aim else f"**{t}**" for t, x, aim in zip(texts, ratios, wanted)]
        base = "best non-private" if local else "curator"
        allowed = " / ".join(f"{aim:g}" for aim in (wanted if local else wanted[:1]))
        table_lines.append(f"| {title} | {trust} | {base} | {allowed} | {' / '.join(shown)} |")
    return "\n".join(table_lines)


def limit_table(data: LeaderboardData) -> str:
    """Return what is measured with local messages beside what no message can go below."""
    rows = ["| problem | regret, limit | regret, measured |", "|---|---|---|"]
    for title, trust, _, measured in lines(data):
        if trust == "local" and title in local_limit.CASES:
            texts = [f"{row.regret.mean:,.0f}" for row in measured]
            least = [f"{x:.0f}" if x >= 10 else f"{x:.1f}" for x in local_limit.limits(title)]
            rows.append(f"| {title} | {' / '.join(least)} | {' / '.join(texts)} |")
    return "\n".join(rows)


# Agents with devices, and the default environments that the sizes of messages are for.
DEVICES = {
    "one-pass-pricing": "DPB/Pricing-v0",
    "one-pass-mnl": "DPB/Assortment-v0",
    "one-pass-linear-joint": "DPB/Recommendation-v0",
}
BUDGETS = ("rho=0.02", "rho=0.1", "rho=0.5", "rho=1")
PURE_BUDGETS = ("eps=0.5,delta=1e-5", "eps=1,delta=1e-5", "eps=2,delta=1e-5", "eps=5,delta=1e-5")


def planned_sums(agent: str, budget: str, noise: str = "seeded") -> tuple[Any, Any]:
    """Return the sums and the guarantee of an agent on its default environment."""
    problem = dpb_gym.make_problem(DEVICES[agent]).info
    spec, parsed = agent_spec(agent), Budget.parse(budget)
    made = spec.make()
    made.set_up(problem, spec.streams([0]), parsed, noise=noise)
    sums = behind(made.curator.releasers[0])
    sums.ready()
    return sums, made.curator.guarantee


def messages() -> str:
    """Return the table of the sizes of a device's message."""
    table_lines = [
        "| agent | coordinates | aggregator: bytes | shuffler: bits | local: numbers |",
        "|---|---|---|---|---|",
    ]
    for agent in DEVICES:
        masked, bits, numbers = [], [], []
        for budget in (*BUDGETS, *PURE_BUDGETS):
            sums, _ = planned_sums(agent, f"{budget}@aggregator")
            width = sums.shape.width
            masked += [math.ceil(width * batch.bits / 8) for batch in sums.batches]
            sums, _ = planned_sums(agent, f"{budget}@shuffler")
            bits += [width * batch.each for batch in sums.batches]
            numbers.append(planned_sums(agent, f"{budget}@local")[0].message_width)
        sizes = " | ".join(map(span, (masked, bits, numbers)))
        table_lines.append(f"| `{agent}` | {width} | {sizes} |")
    return "\n".join(table_lines)


def local_losses() -> str:
    """Return the table of epsilon and delta of a local message, by budget and noise."""
    table_lines = ["| budget | message | delta | epsilon, device | simulation |"]
    table_lines.append("|---|---|---|---|---|")
    for budget in (*BUDGETS, *PURE_BUDGETS):
        epsilons = []
        for noise in ("system", "seeded"):
            sums, guarantee = planned_sums("one-pass-pricing", f"{budget}@local", noise)
            delta = 0.0 if math.isfinite(guarantee.curve.pure) else 1e-5
            assert guarantee.delta(guarantee.epsilon(delta)) <= delta
            epsilons.append(f"{guarantee.epsilon(delta):.6g}")
        kind = type(sums._mechanism).__name__
        cells = (f"`{budget}@local`", kind, f"{delta:g}", *epsilons)
        table_lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(table_lines)


def span(values: list[int]) -> str:
    """Return the least and the largest value, or the only one."""
    low, high = f"{min(values):,}", f"{max(values):,}"
    return low if low == high else f"{low} to {high}"


def save_picture(data: LeaderboardData, path: Path) -> None:
    """Save the picture of regret against budget, a line per trust model."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(PROBLEMS), figsize=(13, 3.2), sharey=True)
    places = dict(zip(PROBLEMS, axes))
    for title, trust, least, rows in lines(data):
        points = [(row.budget.limit, row.regret.mean / least) for row in rows if row.budget]
        places[title].plot(*zip(*points), marker="osD^"[TRUSTS.index(trust)], label=trust)
        if trust == "local" and title in local_limit.CASES:
            limit = [x / least for x in local_limit.limits(title)]
            budgets = [x for x, _ in points]
            places[title].plot(budgets, limit, "k:", label="limit of local messages")
        places[title].set_xticks([x for x, _ in points], [f"{x:g}" for x, _ in points])
        places[title].set_xlabel("rho" if rows[0].budget and rows[0].budget.rho else "epsilon")
    for title, place in places.items():
        place.set(title=title, xscale="log", yscale="log")
        place.minorticks_off()
        place.axhline(1.0, color="grey", linewidth=0.8)
    axes[0].set_ylabel("regret over the best non-private")
    axes[-1].legend(*axes[0].get_legend_handles_labels(), fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def score_losses(rhos: tuple[float, ...] = (0.02, 0.1, 0.5, 1.0)) -> list[float]:
    """Return the regret of pricing-standard that local messages of the score alone leave.

    The message of a customer is the score at the true theta times the factor of norm 1/2, plus
    N(0, 1 / (2 rho) I). After t of them theta has the covariance D^-2 / (2 rho t), D the mean
    derivative of a message. A price's loss is quadratic in the error, and at most that of random
    prices. At rho = 0.02 / 0.1 / 0.5 / 1 it is 975 / 547 / 180 / 105 (random prices: 977).
    `one-pass-pricing` has less, due to its prior.
    """
    task = local_limit.TASKS["pricing-standard"]
    x, theta = local_limit.contexts(task.name, 5, 3000)
    zeta = task.env_kwargs["zeta"]
    grid, d = np.linspace(0.0, 1.0, 2001), len(theta)

    def demand(theta: Array, price: Array) -> Array:
        known = x @ theta[:-1]
        return 1.0 / (1.0 + np.exp(-zeta * (known[:, None] - price * theta[-1]) / np.sqrt(d)))

    def best_price(theta: Array) -> Array:
        return grid[(grid * demand(theta, grid)).argmax(axis=1)]

    def revenue(price: Array) -> Array:
        return price * demand(theta, price[:, None])[:, 0]

    price, step, apart = best_price(theta), 0.05, 0.02
    moves = [best_price(theta + step * e) - best_price(theta - step * e) for e in np.eye(d)]
    slope = np.array(moves).T / (2.0 * step)
    bend = (2.0 * revenue(price) - revenue(price + apart) - revenue(price - apart)) / apart**2
    loss = (slope.T * np.maximum(bend, 0.0)) @ slope / (2 * len(x))
    phi, f = np.column_stack([x, -price]) / np.sqrt(d), demand(theta, price[:, None])[:, 0]
    factor = zeta * f * (1.0 - f) / (2.0 * np.maximum(f, 1.0 - f) * np.linalg.norm(phi, axis=1))
    inverse = np.linalg.inv((phi.T * factor) @ phi / len(x))
    at_first = float(np.trace(loss @ inverse @ inverse)) / 2.0
    rounds, chance = np.arange(1, task.horizon + 1), task.normalisation
    blind = (chance.oracle - chance.random) / task.horizon
    return [float(np.minimum(at_first / rho / rounds, blind).sum()) for rho in rhos]


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    print(*(f"{loss:.0f}" for loss in score_losses()), sep=" / ")
    print(messages(), local_losses(), sep="\n\n")
