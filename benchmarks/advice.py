"""Advice against a known truth: how often its intervals contain what privacy costs.

``python benchmarks/advice.py 16`` generates logs of 2,000 quotes with a known demand, asks for
advice on each, and compares every interval of the loss with the truth: the mean over 96 replicates
of the same agents on customers of the same demand, whose model is fitted to 400,000 quotes.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

import dpb_gym

BUDGETS = ("eps=1,delta=1e-6", "eps=4,delta=1e-6")
ROUNDS, QUOTES, REPLICATES = 2000, 2000, 32
SETTINGS: dict[str, Any] = {
    "bounds": {"price": (0, 10), "age": (18, 80), "visits": (0, 12)},
    "features": ["age", "visits"], "horizon": ROUNDS, "progress": False,
}  # fmt: skip


def quotes(count: int, seed: int) -> dict[str, Any]:
    """Return generated quotes; the utility of buying is linear in price, age and visits."""
    rng = np.random.default_rng(seed)
    price, age = rng.uniform(1, 10, count), rng.uniform(18, 80, count)
    visits = rng.integers(0, 13, count)
    utility = 1.5 - 0.55 * price + 0.03 * (age - 50) + 0.12 * visits
    bought = (rng.random(count) < 1 / (1 + np.exp(-utility))).astype(int)
    return {"price": price, "bought": bought, "age": age, "visits": visits}


@cache
def truth(base: str, agent: str, budget: str) -> tuple[float, float]:
    """Return the loss in percent of the baseline's earnings, and its standard error."""
    known = dpb_gym.from_log(quotes(400_000, 10**6), "pricing", **SETTINGS)
    agents = {"base": (base, None), "private": (agent, budget)}
    result = dpb_gym.evaluate(known, agents, ROUNDS, 96, 10**7, workers=1)
    rows = {row.agent: row for row in result.rows}
    lost = (rows["private"].regret - rows["base"].regret)[:, -1]
    percent = 100.0 * lost / rows["base"].reward[:, -1].mean()
    return float(percent.mean()), float(percent.std(ddof=1) / np.sqrt(len(percent)))


def main(logs: int) -> None:
    contained = []
    for seed in range(logs):
        advice = dpb_gym.advise(
            quotes(QUOTES, seed),
            budgets=BUDGETS,
            replicates=REPLICATES,
            seed=1000 * seed,
            **SETTINGS,
        )
        for e in advice.earnings[1 : 1 + len(BUDGETS)]:
            mean, error = truth(advice.earnings[0].agent, e.agent, e.label)
            contained.append(e.lost.low <= mean <= e.lost.high)
            said = f"{e.lost.mean:.1f}% [{e.lost.low:.1f}, {e.lost.high:.1f}]"
            print(f"{seed} {e.label}: {said}, truth {mean:.2f} +- {2 * error:.2f}", flush=True)
    print(f"{sum(contained)} of {len(contained)} intervals contain the truth")


if __name__ == "__main__":
    main(int(sys.argv[1]))
