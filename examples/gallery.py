# %% [markdown]
# # A gallery of results
#
# All plots of one evaluation: curves, regret against budget, paired differences, a LaTeX table.
# Run it cell by cell in an editor, or as a script:
#
#     python examples/gallery.py --out gallery

# %%
from __future__ import annotations

import argparse
from pathlib import Path

import dpb_gym

parser = argparse.ArgumentParser(description="A gallery of results")
parser.add_argument("--horizon", type=int, default=3_000)
parser.add_argument("--replicates", type=int, default=16)
parser.add_argument("--out", type=Path, default=Path("gallery"))
options, _ = parser.parse_known_args()  # ignore arguments of a notebook

# %%
result = dpb_gym.evaluate(
    "DPB/Assortment-v0",
    agents={
        "One-pass MNL": "one-pass-mnl",
        "DPMNL": "dpmnl",
        "UCB-MNL": "ucb-mnl",
        "Greedy MNL": "greedy-mnl",
        "random": "random",
    },
    budgets=["rho=0.1", "rho=0.5", "rho=1", "none"],
    horizon=options.horizon,
    replicates=options.replicates,
    seed=0,
    env_kwargs={"n_items": 30, "capacity": 4, "dim": 3},
)

# %% [markdown]
# Every function returns a figure, which a notebook shows. A path also writes it.

# %%
result.plot(options.out / "curves.png", agents=["One-pass MNL", "DPMNL", "UCB-MNL", "Greedy MNL"])
result.plot_frontier(options.out / "frontier.png")
result.plot_paired(
    options.out / "paired.png", against="UCB-MNL", agents=["One-pass MNL", "Greedy MNL"]
)
print(result.to_latex())
