"""Measure the regret of privately tuned agents relative to freely tuned ones.

Both tune on the same customers. Free tuning runs every point of the grid at the full budget and
chooses by raw regret. Private tuning runs at `cost_of_run` and chooses by noisy rewards. Selections
are simulated from two runs of every point. The chosen points are evaluated at the full budget.

``python benchmarks/private_tuning.py AGENT ...`` stores the ratios of agents in
docs/results/private-tuning.json with digests of their code, and writes the table of docs/arena.md.
Without agents the page is written from what is stored. A test compares both.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from marked import put
from paper_pages import code

import dpb_gym
from dpb_gym.planning.private_tuning import COUNTING, RUNS, cost_of_run
from dpb_gym.planning.tuning import TUNING_SEEDS, choose_points, read_grid
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec

REPOSITORY = Path(__file__).parents[1]
STORED = REPOSITORY / "docs/results/private-tuning.json"
ENVS = {
    "private-pricing": "DPB/Pricing-v0",
    "one-pass-pricing": "DPB/Pricing-v0",
    "adaprivate-ts": "DPB/Recommendation-v0",
}
HORIZON, REPLICATES, SELECTIONS = 4000, 20, 4000


def means(name, env, points, budget, seed):
    """Return the mean reward and regret of every point, ``(points,)`` each."""
    agents = {str(i): (name, budget, point) for i, point in enumerate(points)}
    how = {"horizon": HORIZON, "replicates": REPLICATES, "workers": 1}
    run = dpb_gym.evaluate(env, agents, seed=seed, **how)
    pairs = [(run.final_reward(a).mean(), run.final_regret(a).mean()) for a in agents]
    return np.array(pairs).T


def measured(name: str) -> dict[str, list[float]]:
    """Return the ratios of private tuning, a random point and the defaults, by epsilon."""
    spec, env, rng = agent_spec(name), ENVS[name], np.random.default_rng(0)
    points, by_epsilon = choose_points(spec, read_grid(spec), {}, None), {}
    low, high = dpb_gym.make_problem(env, horizon=HORIZON).info.reward_range
    for epsilon in (1, 4):
        budget = Budget.approx(float(epsilon), 1e-5)
        rho = cost_of_run(budget, RUNS)
        regrets = means(name, env, points, budget, 0)[1]
        free = regrets[means(name, env, points, budget, TUNING_SEEDS.start)[1].argmin()]
        # another budget has other noise
        parts = [Budget.zcdp((1 - COUNTING) * rho * (1 - 1e-6 * k)) for k in range(2)]
        rewards = np.array([means(name, env, points, b, TUNING_SEEDS.start)[0] for b in parts])
        std = (high - low) / np.sqrt(2 * COUNTING * rho * REPLICATES)
        chosen = []
        for runs in rng.geometric(1 / RUNS, SELECTIONS):
            at = rng.integers(len(points), size=runs)
            scores = rewards[rng.integers(2, size=runs), at] + std * rng.normal(size=runs)
            chosen.append(regrets[at[scores.argmax()]])
        ratios = np.array([np.mean(chosen), regrets.mean(), regrets[0]]) / free
        by_epsilon[str(epsilon)] = [round(float(ratio), 3) for ratio in ratios]
        print(name, epsilon, by_epsilon[str(epsilon)], flush=True)
    return by_epsilon


def table(data: dict[str, Any]) -> str:
    """Return the stored ratios, a row per agent."""
    lines = [
        "| agent, environment | epsilon 1: private, a random point, defaults | epsilon 4 |",
        "|---|---|---|",
    ]
    for name in ENVS:
        cells = (", ".join(f"{value:.2f}" for value in data[name][e]) for e in ("1", "4"))
        lines.append(f"| `{name}`, `{ENVS[name]}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure the given agents and write the page from what is stored."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="measure this agent again")
    options = parser.parse_args()
    data = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    for name in options.agents:
        data[name] = {**measured(name), "code": code(name)}
        STORED.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    put(REPOSITORY / "docs/arena.md", "private", table(data))


if __name__ == "__main__":
    main()
