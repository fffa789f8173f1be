"""Draws the picture of the README: regret against budget, ours, the papers', without privacy.

    python benchmarks/readme_picture.py [--replicates 20] [--out docs/_static/frontier.png]

The three problems at the papers' sizes, T = 10,000. A white ground reads in both themes.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import dpb_gym
from dpb_gym import report

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=10_000)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("docs/_static/frontier.png"))
    asked = parser.parse_args()
    tasks = []
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
    data = replace(result.to_leaderboard(), title="What privacy costs", tasks=tuple(tasks))
    report.plot_frontier(data, asked.out)
    print(f"written to {asked.out}")


if __name__ == "__main__":
    main()
