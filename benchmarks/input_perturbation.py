"""Regret of agents that learn from perturbed contexts (CS, Remark 3; CSW, section 4.2).

``python benchmarks/input_perturbation.py`` plays greedy agents whose customers add noise to all
their features (`GaussianContexts`, which alone protects the features, not the responses), and an
agent with the same budget for private sums. It stores docs/results/input-perturbation.json and
writes the block ``<!-- input-perturbation -->`` of docs/papers.md. ``--page`` only writes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from marked import put

import dpb_gym
from dpb_gym.feedback import GaussianContexts
from dpb_gym.privacy import Budget
from dpb_gym.registry import make_agent
from dpb_gym.results.metrics import interval
from dpb_gym.streams import AgentStreams

ROOT = Path(__file__).parents[1]
STORED = ROOT / "docs/results/input-perturbation.json"
PAGE = ROOT / "docs/papers.md"
HORIZON, REPLICATES = 2000, 12
BUDGETS = ("rho=1", "rho=100")
ITEMS = (20, 50, 100, 200)
KINDS: dict[str, tuple[str, str, str, tuple[int, ...]]] = {
    # environment, agent on perturbed contexts, agent with private sums, numbers of vectors
    "assortment": ("DPB/Assortment-v0", "greedy-mnl", "one-pass-mnl", ITEMS),
    "pricing": ("DPB/Pricing-v0", "greedy-pricing", "one-pass-pricing", (1,)),
}


def played(
    name: str, budget: str | None, noise: str | None, env_id: str, horizon: int, **env: Any
) -> list[float]:
    """Return the regret of every replicate over that of random actions.

    Args:
        name: Agent.
        budget: Budget of its releases; None for exact ones.
        noise: Budget of the perturbation of the contexts that it sees; None for raw contexts.
        env_id: Environment.
        horizon: Number of rounds.
        **env: Parameters of the environment.
    """
    problem = dpb_gym.make_problem(env_id, horizon=horizon, **env)
    seeds = list(range(REPLICATES))
    agents = {key: make_agent(key) for key in (name, "random")}
    for key, agent in agents.items():
        own = Budget.parse(budget) if budget and key == name else None
        agent.set_up(problem.info, AgentStreams(seeds, key), own)
    mechanism = None
    rng = np.random.default_rng(1)
    instance = problem.instance(seeds)
    regret = {key: np.zeros(REPLICATES) for key in agents}
    for t in range(horizon):
        context = instance.context()
        seen = context
        if noise is not None:
            features = context.features
            vectors = features.shape[1] if features.ndim == 3 else 1
            if mechanism is None:
                width = features.shape[-1]
                mechanism = GaussianContexts.for_budget(Budget.parse(noise), vectors, width)
            sent = mechanism.privatise(features, rng.normal(size=(REPLICATES, mechanism.width)))
            seen = context._replace(features=sent)
        for key, agent in agents.items():
            shown = seen if key == name else context
            action = np.array(agent.act(shown))
            outcome = instance.respond(action)
            with agent.curator.round(context.t):
                agent.observe(shown, action, outcome.feedback)
            regret[key] += outcome.regret
        if t < horizon - 1:
            instance.advance()
    return [float(x) for x in regret[name] / regret["random"]]


def measure(horizon: int = HORIZON) -> list[dict[str, Any]]:
    """Return mean and 95% interval of the relative regret of every case."""
    rows = []
    for kind, (env_id, exact, private, sizes) in KINDS.items():
        for size in sizes:
            env: dict[str, Any] = {}
            if kind == "assortment":
                env = {"n_items": size, "context_norm": "clip"}
            cases: list[tuple[str, str | None, str | None]] = [(exact, None, None)]
            cases += [(exact, None, budget) for budget in BUDGETS]
            cases += [(private, budget, None) for budget in BUDGETS]
            for name, budget, noise in cases:
                regret = interval(played(name, budget, noise, env_id, horizon, **env))
                row = {"kind": kind, "vectors": size, "agent": name, "budget": budget}
                row |= {"noise": noise, "mean": regret.mean, "low": regret.low, "high": regret.high}
                rows.append(row)
                print(row, file=sys.stderr)
    return rows


def table(data: dict[str, Any]) -> str:
    """Return the rows of the page: a line per agent, a column per number of vectors."""
    lines = [
        "| problem | agent | " + " | ".join(f"N = {size}" for size in ITEMS) + " |",
        "|---|---|" + "---|" * len(ITEMS),
    ]
    groups: dict[tuple[str, str], dict[int, str]] = {}
    for row in data["rows"]:
        how = "exact, raw contexts"
        if row["noise"]:
            how = f"exact, contexts perturbed at {row['noise']}"
        elif row["budget"]:
            how = f"private sums at {row['budget']}"
        place = groups.setdefault((row["kind"], f"`{row['agent']}`, {how}"), {})
        place[row["vectors"]] = f"{row['mean']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
    for (kind, agent), cells in groups.items():
        shown = [cells.get(size, "") for size in ITEMS]
        if kind == "pricing":
            kind, shown[0] = "pricing (one vector)", cells[1]
        lines.append(f"| {kind} | {agent} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, store, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--page", action="store_true", help="write the page from what is stored")
    if not parser.parse_args().page:
        data = {"horizon": HORIZON, "replicates": REPLICATES, "rows": measure()}
        STORED.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    put(PAGE, "input-perturbation", f"\n{table(json.loads(STORED.read_text()))}\n")


if __name__ == "__main__":
    main()
