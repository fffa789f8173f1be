"""Play small cells and print a digest of every agent's curves, as JSON.

  python tests/bits/cells.py [--tasks NAME,...] [--agents NAME,...|all] [--horizon T] [--workers W]

`test_bits.py` runs it in separate processes that emulate other processors as far as libraries
allow, and compares the digests with `pinned.json`. A declared change of bits updates that file:

    python tests/bits/cells.py > tests/bits/pinned.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import warnings

import numpy as np

import dpb_gym
from dpb_gym.registry import shortcoming

REPLICATES = 3
BUDGETS = ["rho=0.5", "eps=1,delta=1e-5"]
FEW = (
    "ucb-mnl,dpmnl,one-pass-mnl,ts-pricing,private-pricing,one-pass-pricing,"
    "lin-ucb,adaprivate-ts,one-pass-linear,local-lin-ucb,one-pass-offers"
)
DEEP = ("ppo", "dqn", "sac")
"""Agents of Stable-Baselines3: PyTorch selects code by the processor."""
TASKS = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 20, "capacity": 4, "dim": 4}),
    "revenues": ("DPB/Assortment-v0", {"n_items": 9, "capacity": 3, "revenues": "random"}),
    "offers": ("DPB/AssortmentPricing-v0", {"n_items": 9, "capacity": 3, "dim": 4}),
    "pricing": ("DPB/Pricing-v0", {"dim": 4}),
    "gaussian-demand": ("DPB/Pricing-v0", {"dim": 3, "demand": "gaussian"}),
    "recommendation": ("DPB/Recommendation-v0", {"dim": 5, "n_candidates": 8}),
    "gaussian-rewards": ("DPB/Recommendation-v0", {"dim": 4, "reward": "gaussian"}),
    "low-rank": ("DPB/RecommendationRankDeficient-v0", {}),
    "multi-armed": ("DPB/MultiArmed-v0", {}),
}


def digests(task: str, only: list[str], horizon: int, workers: int) -> dict[str, str]:
    """Return the first 16 digits of the SHA-256 of the curves, by task, agent and budget."""
    env_id, kwargs = TASKS[task]
    info = dpb_gym.make_problem(env_id, horizon=horizon, **kwargs).info
    known = [name for name, spec in dpb_gym.agent_specs().items() if not shortcoming(spec, info)]
    plain = [name for name in known if name not in DEEP]
    agents = [name for name in plain if not only or name in only]
    if not agents:
        return {}
    result = dpb_gym.evaluate(
        env_id,
        agents,
        horizon=horizon,
        replicates=REPLICATES,
        env_kwargs=kwargs,
        checkpoints=20,
        budgets=BUDGETS,
        workers=workers,
        progress=False,
    )
    curves: dict[str, list[float]] = {}
    for row in result.records():
        key = f"{task} {row['agent']} {row['budget']}"
        curves.setdefault(key, []).extend((row["regret"], row["reward"]))
    return {k: hashlib.sha256(np.array(v).tobytes()).hexdigest()[:16] for k, v in curves.items()}


def main() -> None:
    """Parse the command line and print the digests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--agents", default=FEW)
    parser.add_argument("--horizon", type=int, default=300)
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    only = [] if asked.agents == "all" else asked.agents.split(",")
    hashes: dict[str, str] = {}
    for name in asked.tasks.split(","):
        hashes |= digests(name, only, asked.horizon, asked.workers)
    print(json.dumps(hashes, indent=1))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # agents that cannot play a task are left out
        main()
