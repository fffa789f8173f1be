"""Measure the effect of a constant or parameter of a one-pass agent on its regret.

    python benchmarks/constants.py one-pass-pricing TWINS=0 RARE=0,disperse=0

plays the agent with each override in place of its own constants, on tuning seeds, and prints
the ratio of the mean regrets with its standard error, one line per case and budget. An override
names module constants or constructor parameters; several that are joined by commas apply together.

    python benchmarks/constants.py one-pass-pricing --checkout DIRECTORY

compares with the agent of another revision, of which DIRECTORY is a checkout. So do constants that
compiled functions contain, with a checkout in which they have another value.

    python benchmarks/constants.py one-pass-pricing --store

measures the overrides of `SHOWN`, stores the ratios in docs/results/constants.json with a digest of
the agent's code, and writes the table of docs/one-pass.md. A test compares both.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from marked import put
from paper_pages import code

import dpb_gym
from dpb_gym.kernels.deferred import Deferred
from dpb_gym.privacy import Budget
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

MODULES = [
    "kernels.curvature",
    "assortment.one_pass_mnl",
    "pricing.one_pass_pricing",
    "recommendation.one_pass_linear",
    "recommendation.one_pass_linear_joint",
]
REPOSITORY = Path(__file__).parents[1]
STORED = REPOSITORY / "docs/results/constants.json"
# Overrides, cases and budgets of the table of docs/one-pass.md.
SHOWN = {
    "one-pass-mnl": (
        ("UNSURE=1", "DRAWS=16", "EXACT_RELEASES=1"),
        ("easy", "standard"),
        ("rho=0.1", "none"),
    ),
    "one-pass-pricing": (
        (
            "TWINS=1",
            "LEAST_EVENNESS=0",
            "WIDE=1.4",
            "WIDE=4",
            "level=0",
            "level=0.02",
            "CONSTANT=0.4",
        ),
        ("easy", "intercept", "hidden level", "norm 3"),
        ("rho=0.1", "rho=1"),
    ),
}
FIRST_SEED = 1_007_000  # within the arena's tuning seeds
BUDGETS = ["rho=0.02", "rho=0.1", "rho=0.5", "rho=1", "none"]
LINEAR: dict[str, tuple[int, dict[str, Any]]] = {
    "easy": (10_000, {"dim": 10, "n_arms": 50, "n_candidates": 5}),
    "standard": (10_000, {"dim": 20, "n_arms": 100, "n_candidates": 5}),
    "hard": (20_000, {"dim": 50, "n_arms": 200, "n_candidates": 5}),
    "ten arms": (10_000, {"n_arms": 10}),
    "K = 100": (20_000, {"dim": 5, "n_arms": 100, "n_candidates": 100}),
}
CASES: dict[str, dict[str, tuple[int, dict[str, Any]]]] = {
    "one-pass-linear": LINEAR,
    "one-pass-linear-joint": LINEAR,
    "one-pass-mnl": {
        "easy": (10_000, {"n_items": 20, "capacity": 4, "dim": 3, "context_norm": "clip"}),
        "standard": (10_000, {"n_items": 100, "capacity": 10, "dim": 5, "context_norm": "clip"}),
        "hard": (
            30_000,
            {
                "n_items": 200,
                "capacity": 10,
                "dim": 10,
                "context_norm": "clip",
                "revenues": "random",
            },
        ),
        "uneven": (10_000, {"n_items": 30, "capacity": 4, "dim": 4, "revenues": "random"}),
        "d = 11": (10_000, {"n_items": 100, "capacity": 5, "dim": 11, "context_norm": "clip"}),
        "N = 5": (1_000, {"n_items": 5, "capacity": 2, "dim": 3}),
        "norm 3": (
            10_000,
            {"n_items": 100, "capacity": 10, "dim": 5, "theta": [1.8, 0.0, -2.4, 0.0, 0.0]},
        ),
    },
    "one-pass-pricing": {
        "easy": (10_000, {"dim": 3, "zeta": 4.0}),
        "standard": (
            30_000,
            {"dim": 5, "zeta": 8.0, "theta": [-0.3, -0.3, -0.3, -0.3, 0.8]},
        ),
        "hard": (30_000, {"dim": 10, "zeta": 16.0, "theta": [-0.25] * 9 + [0.66]}),
        "intercept": (10_000, {}),
        "hidden level": (10_000, {"dim": 4, "zeta": 6.0, "intercept": -0.3}),
        "norm 3": (10_000, {"dim": 5, "zeta": 4.0, "theta": [-1.1, 1.1, -1.1, 1.1, 2.0]}),
        "d = 5": (10_000, {"dim": 5, "zeta": 4.0}),
        "Gaussian": (10_000, {"dim": 3, "demand": "gaussian"}),
    },
}


def make_problem(agent: str, case: str, longest: int) -> Any:
    """Return the problem of a case, at most `longest` rounds long."""
    horizon, kwargs = CASES[agent][case]
    horizon = min(horizon, longest)
    if case == "intercept":  # a shop of logit 1 + .5 x1 - .3 x2 - 3 p, where price 1 is the worst
        features = np.random.default_rng(5).uniform(-1, 1, (horizon, 2))
        customers = np.column_stack([np.ones(horizon), features])
        kwargs = {"dim": 4, "customers": customers, "theta": [0.5, 0.25, -0.15, 1.5]}
    env = {"one-pass-pricing": "DPB/Pricing-v0", "one-pass-mnl": "DPB/Assortment-v0"}.get(
        agent, "DPB/MultiArmed-v0" if case == "ten arms" else "DPB/Recommendation-v0"
    )
    return dpb_gym.make_problem(env, horizon=horizon, **kwargs)


def compiled_with(module: Any, name: str) -> str | None:
    """Return the name of a compiled function of a module that contains a constant, if any."""
    for function in vars(module).values():
        if isinstance(function, Deferred) and name in function.py_func.__code__.co_names:
            return function.py_func.__name__
    return None


@contextmanager
def overridden(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Set module constants for the time of the context and yield the constructor parameters."""
    before, parameters = [], {}
    # another revision may have other modules, which are imported only if something is overridden
    modules = [importlib.import_module(f"dpb_agents.{name}") for name in MODULES if values]
    for name, value in values.items():
        owners = [module for module in modules if name in vars(module)]
        for module in owners:
            if frozen := compiled_with(module, name):
                raise SystemExit(f"{name} is compiled into {frozen}; use --checkout")
        for module in owners:
            before.append((module, name, vars(module)[name]))
            setattr(module, name, value)
        if not owners:
            parameters[name] = value
    try:
        yield parameters
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def regret(name: str, problem: Any, budget: str, seeds: range, values: dict[str, Any]) -> Any:
    """Return the final regret of every replicate."""
    with overridden(values) as parameters:
        agent = make_agent(name, **parameters)
        agent.set_up(
            problem.info,
            AgentStreams(seeds),
            None if budget == "none" else Budget.parse(budget),
        )
        instance, total = problem.instance(seeds), np.zeros(len(seeds))
        for t in range(problem.horizon):
            if t:
                instance.advance()
            context = instance.context()
            action = agent.act(context)
            outcome = instance.respond(action)
            agent.observe(context, action, outcome.feedback)
            total += outcome.regret
    return total


def regret_of_checkout(directory: str, arguments: list[str]) -> Any:
    """Return the final regret of every replicate, played by the code in `directory`."""
    parts = [os.path.join(directory, part) for part in ("", "agents", "envs_data")]
    ran = subprocess.run(
        [sys.executable, __file__, *arguments, "--json"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(parts)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return np.array(json.loads(ran.stdout))


def parsed(text: str) -> dict[str, Any]:
    """Return the values of an override by their names."""
    parts = (part.split("=") for part in text.split(","))
    return {name: ast.literal_eval(value) for name, value in parts}


def compared(other: Any, own: Any) -> tuple[float, float]:
    """Return the ratio of mean regrets and its standard error, paired by replicates."""
    ratio = other.mean() / own.mean()
    error = (other - ratio * own).std(ddof=1) / np.sqrt(len(own)) / own.mean()
    return float(ratio), float(error)


def store(agent: str, replicates: int, longest: int) -> None:
    """Measure and store the shown overrides of an agent."""
    data = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    overrides, cases, budgets = SHOWN[agent]
    seeds, cells = range(FIRST_SEED, FIRST_SEED + replicates), []
    for case in cases:
        problem = make_problem(agent, case, longest)
        for budget in budgets:
            own = regret(agent, problem, budget, seeds, {})
            for text in overrides:
                other = regret(agent, problem, budget, seeds, parsed(text))
                ratio_and_error = [round(value, 3) for value in compared(other, own)]
                cells.append([text, case, budget, *ratio_and_error])
                print(*cells[-1], flush=True)
    data[agent] = {"code": code(agent), "replicates": replicates, "cells": cells}
    STORED.write_text(json.dumps(data).replace("], [", "],\n[") + "\n", encoding="utf-8")


def table(data: dict[str, Any]) -> str:
    """Return the stored ratios of all agents, a row per override."""
    lines = []
    for agent, entry in data.items():
        _, cases, budgets = SHOWN[agent]
        places = [(case, budget) for case in cases for budget in budgets]
        titles = [f"{case}, {budget.replace('none', 'no budget')}" for case, budget in places]
        lines += ["", f"| {agent} | {' | '.join(titles)} |"]
        lines.append("|---" * (len(places) + 1) + "|")
        rows: dict[str, dict[tuple[str, str], str]] = {}
        for text, case, budget, ratio, error in entry["cells"]:
            rows.setdefault(text, {})[case, budget] = f"{ratio:.2f} ± {error:.2f}"
        for text, row in rows.items():
            lines.append(f"| `{text}` | {' | '.join(row[place] for place in places)} |")
    return "\n".join(lines).strip("\n")


def main(arguments: list[str]) -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("agent", choices=CASES)
    parser.add_argument("overrides", nargs="*", metavar="NAME=VALUE[,NAME=VALUE...]")
    parser.add_argument("--checkout", help="directory of another revision to compare with")
    parser.add_argument("--json", action="store_true", help="print the regrets of one case only")
    parser.add_argument("--cases", default="", help="separated by commas (default: all)")
    parser.add_argument("--budgets", default=",".join(BUDGETS))
    parser.add_argument("--replicates", type=int, default=16)
    parser.add_argument("--longest", type=int, default=30_000, help="most rounds of a case")
    parser.add_argument("--store", action="store_true", help="measure the table of the page")
    asked = parser.parse_args(arguments)
    if asked.store:
        store(asked.agent, asked.replicates, asked.longest)
        page = table(json.loads(STORED.read_text("utf-8")))
        put(REPOSITORY / "docs/one-pass.md", "constants", page)
        return
    overrides = {text: parsed(text) for text in asked.overrides}
    seeds = range(FIRST_SEED, FIRST_SEED + asked.replicates)
    ratios: dict[str, list[float]] = {}
    for case in asked.cases.split(",") if asked.cases else CASES[asked.agent]:
        problem = make_problem(asked.agent, case, asked.longest)
        for budget in asked.budgets.split(","):
            own = regret(asked.agent, problem, budget, seeds, {})
            if asked.json:
                print(json.dumps(own.tolist()))
                return
            line = f"{case:<10}{budget:<9}{own.mean():9.2f}"
            others = {
                text: regret(asked.agent, problem, budget, seeds, values)
                for text, values in overrides.items()
            }
            if asked.checkout:
                cell = ["--cases", case, "--budgets", budget, "--longest", str(asked.longest)]
                cell += ["--replicates", str(asked.replicates)]
                others[asked.checkout] = regret_of_checkout(asked.checkout, [asked.agent, *cell])
            for text, other in others.items():
                ratio, error = compared(other, own)
                ratios.setdefault(text, []).append(ratio)
                line += f"  {ratio:.3f} ± {error:.3f}"
            print(line, flush=True)
    for text, values in ratios.items():
        print(f"{text}: {np.exp(np.mean(np.log(values))):.3f} on average")


if __name__ == "__main__":
    main(sys.argv[1:])
