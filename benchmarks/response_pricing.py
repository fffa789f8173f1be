"""Regret of response-pricing and one-pass-pricing with local messages, with right and wrong laws.

``python benchmarks/response_pricing.py --replicates 12`` plays all worlds, stores the regret of
every replicate in docs/results/response-pricing.json, and writes the table of
docs/agents/one-pass-pricing.md. ``--only WORLD`` plays one again; without ``--replicates`` the page
is written from what is stored. A test compares the page with what is stored, and the digests of the
agents with the code of today.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from marked import put, table
from paper_pages import code

import dpb_gym

REPOSITORY = Path(__file__).parents[1]
STORED = REPOSITORY / "docs/results/response-pricing.json"
PAGE = REPOSITORY / "docs/agents/one-pass-pricing.md"
AGENTS = ("one-pass-pricing", "response-pricing")
RHOS = (0.02, 0.1, 1.0)
# no replicate from here on was used to choose a constant of the agent
FIRST_SEED = 4_000
SAMPLE = 512
STANDARD = {"dim": 5, "zeta": 8.0, "theta": [-0.3, -0.3, -0.3, -0.3, 0.8]}
SHOP = {"dim": 5, "zeta": 8.0, "theta": [0.3, -0.2, 0.2, 0.7, 1.6]}
# 97.5% points of Student's t, by degrees of freedom
STUDENT = {11: 2.201, 15: 2.131, 19: 2.093, 23: 2.069}


def correlated(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return customers whose features share most of their variance."""
    common = 0.8 * rng.standard_normal((n, 1)) + 0.6 * rng.standard_normal((n, 4))
    return np.clip(0.5 * common, -1.0, 1.0)


def small(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return customers with uniform features of at most 0.2."""
    return 0.4 * rng.random((n, 4)) - 0.2


def shop(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return customers of normal features, of which the last is 1."""
    features = np.clip(0.4 * rng.standard_normal((n, 4)), -1.0, 1.0)
    features[:, -1] = 1.0
    return features


# title, horizon, problem, customers (None: uniform), and whether the agent gets a sample of them
WORLDS: dict[str, tuple[str, int, dict[str, Any], Any, bool]] = {
    "standard": ("pricing-standard; uniform, right", 30_000, STANDARD, None, False),
    "easy": ("pricing-easy; uniform, right", 10_000, {"dim": 3, "zeta": 4.0}, None, False),
    "correlated": ("correlated features; sample", 10_000, STANDARD, correlated, True),
    "correlated-wrong": (
        "correlated features; uniform, wrong",
        10_000,
        STANDARD,
        correlated,
        False,
    ),
    "small": ("small features; sample", 10_000, STANDARD, small, True),
    "small-wrong": ("small features; uniform, wrong", 10_000, STANDARD, small, False),
    "shop": ("intercept dominates; sample", 10_000, SHOP, shop, True),
}


def measured(world: str, replicates: int) -> dict[str, list[float]]:
    """Return the final regret of every agent and budget, by replicate."""
    _, horizon, problem, customers, sampled = WORLDS[world]
    parameters: dict[str, Any] = {}
    kwargs = dict(problem)
    if customers is not None:
        kwargs["customers"] = customers(np.random.default_rng(41), horizon).astype(np.float32)
    if sampled:
        # other customers of the same law
        parameters["features"] = customers(np.random.default_rng(42), SAMPLE).tolist()
    agents: dict[str, Any] = {"random": "random"}
    for rho in RHOS:
        budget = f"rho={rho:g}@local"
        agents[f"one-pass-pricing {rho:g}"] = ("one-pass-pricing", budget)
        agents[f"response-pricing {rho:g}"] = ("response-pricing", budget, parameters)
    result = dpb_gym.evaluate(
        "DPB/Pricing-v0",
        agents,
        horizon,
        replicates,
        env_kwargs=kwargs,
        seed=FIRST_SEED,
        progress=False,
        workers=1,
    )
    return {name: [float(f"{v:.5g}") for v in result.final_regret(name)] for name in result.labels}


def half_width(values: list[float]) -> float:
    """Return the 95% half-width of a mean."""
    n = len(values)
    return STUDENT[n - 1] * float(np.std(values, ddof=1)) / math.sqrt(n)


def shown(values: list[float]) -> str:
    """Return mean and 95% half-width."""
    mean = float(np.mean(values))
    digits = 0 if mean >= 100 else 1
    return f"{mean:,.{digits}f} ± {half_width(values):,.{digits}f}"


def page(worlds: dict[str, dict[str, list[float]]]) -> str:
    """Return the table: a row per world and budget."""
    rows = [["customers; law", "rho", *AGENTS, "paired difference", "random"]]
    for name, (title, *_) in WORLDS.items():
        if name not in worlds:
            continue
        regrets = worlds[name]
        for rho in RHOS:
            before, after = (regrets[f"{agent} {rho:g}"] for agent in AGENTS)
            gap = [b - a for a, b in zip(before, after)]
            cells = [shown(before), shown(after), shown(gap), f"{np.mean(regrets['random']):,.0f}"]
            rows.append([title, f"{rho:g}", *cells])
    return table(rows)


def main() -> None:
    """Play what is asked for, and write the page from what is stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--replicates", type=int, choices=[n + 1 for n in STUDENT])
    parser.add_argument("--only", choices=list(WORLDS))
    options = parser.parse_args()
    data: dict[str, Any] = {"agents": {}, "worlds": {}}
    if STORED.exists():
        data = json.loads(STORED.read_text("utf-8"))
    for world in WORLDS if options.replicates else ():
        if options.only in (None, world):
            data["worlds"][world] = measured(world, options.replicates)
            data["agents"] = {name: code(name) for name in AGENTS}
            STORED.write_text(json.dumps(data).replace("], ", "],\n") + "\n", encoding="utf-8")
    put(PAGE, "law", page(data["worlds"]))


if __name__ == "__main__":
    main()
