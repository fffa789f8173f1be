"""Print the regret of privately tuned agents relative to freely tuned ones.

Both tune on the same customers. Free tuning runs every point of the grid at the full budget and
chooses by raw regret. Private tuning runs at `cost_of_run` and chooses by noisy rewards. Selections
are simulated from two runs of every point. The chosen points are evaluated at the full budget.

Example: python benchmarks/private_tuning.py private-pricing DPB/Pricing-v0
"""

from __future__ import annotations

import sys

import numpy as np

import dpb_gym
from dpb_gym.planning.private_tuning import COUNTING, RUNS, cost_of_run
from dpb_gym.planning.tuning import TUNING_SEEDS, choose_points, read_grid
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec

HORIZON, REPLICATES, SELECTIONS = 4000, 20, 4000


def means(name, env, points, budget, seed):
    """Return the mean reward and regret of every point, ``(points,)`` each."""
    agents = {str(i): (name, budget, point) for i, point in enumerate(points)}
    how = {"horizon": HORIZON, "replicates": REPLICATES, "workers": 1}
    run = dpb_gym.evaluate(env, agents, seed=seed, **how)
    found = [(run.final_reward(a).mean(), run.final_regret(a).mean()) for a in agents]
    return np.array(found).T


def main(name: str, env: str) -> None:
    """Print one line per budget."""
    spec, rng = agent_spec(name), np.random.default_rng(0)
    points = choose_points(spec, read_grid(spec), {}, None)
    low, high = dpb_gym.make_problem(env, horizon=HORIZON).info.reward_range
    for budget in (Budget.approx(1.0, 1e-5), Budget.approx(4.0, 1e-5)):
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
        print(f"{name} {env} {budget}: private {ratios[0]:.3f}, a random point {ratios[1]:.3f}, "
              f"defaults {ratios[2]:.3f} times the regret of free tuning")  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
