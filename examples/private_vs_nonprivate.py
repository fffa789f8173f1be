# %% [markdown]
# # The cost of privacy
#
# Non-private agents, the private agent of a paper (AdaPrivate-UCB) and ours (one-pass private
# least squares) on the same customers of a linear bandit problem. Both private agents protect one
# reward of one round, and have more regret at smaller budgets. Run it cell by cell in an editor, or
# as a script:
#
#     python examples/private_vs_nonprivate.py --out private_vs_nonprivate.png

# %%
from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np

import dpb_gym

matplotlib.use("Agg")
import matplotlib.pyplot as plt

parser = argparse.ArgumentParser(description="The cost of privacy")
parser.add_argument("--horizon", type=int, default=5_000)
parser.add_argument("--replicates", type=int, default=16)
parser.add_argument("--out", type=Path, default=Path("private_vs_nonprivate.png"))
options, _ = parser.parse_known_args()  # ignore arguments of a notebook

# %% [markdown]
# A budget is (epsilon, delta). All agents have the same customers, so that differences are paired.

# %%
EPSILONS = (0.5, 1.0, 2.0, 5.0)
PRIVATE = {"One-pass (ours)": "one-pass-linear", "AdaPrivate-UCB": "adaprivate-ucb"}
FREE = {"LinUCB, not private": "lin-ucb", "LinGreedy, not private": "lin-greedy"}


def at(label: str, epsilon: float) -> str:
    """Return the label of a private agent at a budget."""
    return f"{label}, epsilon {epsilon:g}"


agents = {
    at(label, epsilon): (name, dpb_gym.Budget.approx(epsilon=epsilon, delta=1e-5))
    for label, name in PRIVATE.items()
    for epsilon in EPSILONS
}
result = dpb_gym.evaluate(
    "DPB/Recommendation-v0",
    agents={**agents, **FREE, "random": "random"},
    horizon=options.horizon,
    replicates=options.replicates,
    seed=0,
)
result.table()


# %% [markdown]
# The table shows the guarantee of each row. The cost of a budget is the regret minus that of the
# non-private greedy policy, paired over replicates.

# %%
free = result.final_regret("LinGreedy, not private")


def mean_and_half_width(values: np.ndarray) -> tuple[float, float]:
    """Return the mean over replicates and the half-width of its normal 95% interval."""
    return float(values.mean()), float(1.96 * values.std(ddof=1) / np.sqrt(len(values)))


for epsilon in EPSILONS:
    cost, half = mean_and_half_width(result.final_regret(at("One-pass (ours)", epsilon)) - free)
    print(f"epsilon {epsilon:g}: the cost of privacy is {cost:.0f} +- {half:.0f} of regret")

# %% [markdown]
# Left: mean regret over time at epsilon = 1. Right: final regret against epsilon, with intervals.

# %%
COLOURS = dict(zip([*PRIVATE, *FREE], ["#0072b2", "#d55e00", "#888888", "#222222"], strict=True))
figure, (curves, frontier) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
records = result.records()
for label, colour in COLOURS.items():
    shown = at(label, 1.0) if label in PRIVATE else label
    rows = [r for r in records if r["agent"] == shown]
    rounds = sorted({r["round"] for r in rows})
    means = [np.mean([r["regret"] for r in rows if r["round"] == t]) for t in rounds]
    style = "-" if label in PRIVATE else "--"
    curves.plot(rounds, means, style, color=colour, label=label)
    if label in FREE:
        frontier.axhline(result.final_regret(label).mean(), ls="--", color=colour)
        continue
    points = [mean_and_half_width(result.final_regret(at(label, e))) for e in EPSILONS]
    centres, halves = zip(*points, strict=True)
    frontier.errorbar(EPSILONS, centres, halves, fmt="o-", color=colour, capsize=3)
curves.set(title="Over time, epsilon = 1", xlabel="round", ylabel="regret")
frontier.set(title="Privacy against regret", xlabel="epsilon (delta = 1e-5)", xscale="log")
frontier.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
frontier.minorticks_off()
for axes in (curves, frontier):
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
curves.legend(frameon=False)
figure.savefig(options.out, dpi=150)
print(f"drew {options.out}")
