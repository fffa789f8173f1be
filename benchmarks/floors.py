"""Our default agents on logs and arms, beside random choice, one action for all, and dp-se.

``python benchmarks/floors.py`` plays the problems that docs/results/floors.json lacks, and writes a
table of docs/agents/robustness.md from it. ``--problem`` plays one again, with the code of today.
Public logs lie below DPB_DATA. Seeds are used for nothing else.

Coefficients of a log's model are drawn from their posterior, and the customers are held-out ones.
The single action is the best of the fitted model, which no agent knows.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import marked
import numpy as np
from advice import LOGS
from numpy.typing import NDArray
from paper_pages import code
from robustness import half_width

import dpb_data
import dpb_gym
from dpb_agents.multi_armed.dp_se import DPSE
from dpb_gym.planning.advice import DRAWS, _Constant
from dpb_gym.planning.fixed_actions import best_fixed_action
from dpb_gym.play.player import Player
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

REPOSITORY = Path(__file__).parents[1]
PAGE, STORED = REPOSITORY / "docs/agents/robustness.md", REPOSITORY / "docs/results/floors.json"
SEED, REPLICATES, FIRST, ROUNDS = 2_600_000, 16, 2_000, 10_000
BUDGETS = ["rho=0.02", "rho=0.1", "rho=1"]
SINGLE = "best single action"
OURS = {
    "pricing": ("one-pass-pricing",),
    "assortment": ("one-pass-mnl",),
    "recommendation": ("one-pass-linear", "one-pass-linear-joint"),
}
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "three arms": ("DPB/MultiArmed-v0", {"n_arms": 3}),
    "ten arms": ("DPB/MultiArmed-v0", {"n_arms": 10}),
    "100 fixed arms": (
        "DPB/Recommendation-v0",
        {"dim": 5, "n_arms": 100, "n_candidates": 100},
    ),
}


class PlacePlayer(Player):
    """Player whose arms are the places of the candidates."""

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        super().begin(replace(problem, n_arms=problem.n_candidates), streams, curator)

    def _contexts(self, context: Context, rounds: bool = False) -> tuple[Array, ...]:
        shape = context.features.shape[:-1]
        places = np.broadcast_to(np.arange(shape[-1]), shape)
        return super()._contexts(context._replace(arms=places), rounds)


@register_agent("dp-se-by-place", supports=["recommendation"], protects=("central", "reward"))
class ByPlace(DPSE):
    """DP-SE on the places of the candidates: in a log, place k holds item k in every round."""

    player = PlacePlayer


def play(name: str) -> dict[str, list[float]]:
    """Return the regret of the rounds after `FIRST`, per agent and budget."""
    settings: dict[str, Any] = {}
    if name in ARMS:
        env, settings = ARMS[name]
        kind, others = "recommendation", {"dp-se": ("dp-se",)}
    else:
        source, own = LOGS[name]
        roles = dpb_gym.advise(source, dry_run=True, progress=False, **own)
        own = {k: v for k, v in own.items() if k != "currency"} | roles.columns
        env = dpb_gym.from_log(source, roles.problem, progress=False, **own)
        problem = dpb_gym.make_problem(env, horizon=ROUNDS)
        kind, others = problem.info.kind, {}
        if hasattr(problem, "fit"):
            settings = {"draws": DRAWS, "part": "held-out"}
            action = best_fixed_action(problem).action
            others[SINGLE] = (lambda: _Constant(action), None)
            if kind == "recommendation":
                others["dp-se"] = ("dp-se-by-place",)
    result = dpb_gym.evaluate(
        env,
        {agent: agent for agent in OURS[kind]} | others | {"random": ("random", None)},
        ROUNDS,
        REPLICATES,
        SEED,
        [FIRST, ROUNDS],
        settings,
        BUDGETS,
        progress=False,
    )
    return {
        f"{row.agent} {row.budget}": [float(f"{last - first:.5g}") for first, last in row.regret]
        for row in result.rows
    }


def against(ours: NDArray[np.float64], other: NDArray[np.float64]) -> str:
    """Return the other's mean; ``**`` if our mean is significantly above, ``*`` if neither is."""
    gap = ours - other
    behind = "" if gap.mean() < -half_width(gap) else " \\*"
    return f"{other.mean():.3g}{' **' if gap.mean() > half_width(gap) else behind}"


def table(problems: dict[str, dict[str, list[float]]]) -> str:
    """Return the counts and the rows of the page."""
    rivals = ["random", SINGLE, "dp-se"]
    rows = [["problem", "agent", "budget", "regret", *rivals]]
    for name, regrets in problems.items():
        numbers = {key: np.array(value) for key, value in regrets.items()}
        ours = [key for key in numbers if key.startswith("one-pass")]
        for key in ours:
            agent, budget = key.split(" ")
            others = [numbers.get(f"{o} {b}") for o, b in
                      (("random", "none"), (SINGLE, "none"), ("dp-se", budget))]  # fmt: skip
            texts = ["–" if o is None else against(numbers[key], o) for o in others]
            rows.append([name, f"`{agent}`", budget, f"{numbers[key].mean():.3g}", *texts])
    counts = []
    for i, rival in enumerate(rivals):
        cells = [row[4 + i] for row in rows[1:] if row[4 + i] != "–"]
        behind = sum(cell.endswith("**") for cell in cells)
        counts.append(f"than {rival} in {behind} of {len(cells)}")
    said = f"Our agents have significantly more regret {', '.join(counts)} comparisons."
    return f"{said}\n\n{marked.table(rows)}"


def main() -> None:
    """Play the missing problems and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--problem", help="play the problems whose name contains this again")
    options = parser.parse_args()
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    problems, agents = stored.get("problems", {}), stored.get("agents", {})
    with tempfile.TemporaryDirectory() as folder:
        dpb_data.write_sample("synthetic-open-bandit", Path(folder) / "clicks.csv")
        os.chdir(folder)
        for name in (*LOGS, *ARMS):
            if name not in problems if options.problem is None else options.problem in name:
                problems[name] = play(name)
                agents |= {key.partition(" ")[0]: "" for key in problems[name] if "one-pass" in key}
                ordered = {key: problems[key] for key in (*LOGS, *ARMS) if key in problems}
                digests = {agent: code(agent) for agent in sorted(agents)}
                text = json.dumps({"agents": digests, "problems": ordered}, separators=(",", ":"))
                STORED.write_text(text.replace("},", "},\n") + "\n", encoding="utf-8")
                print(name, flush=True)
    marked.put(PAGE, "floors", table(problems))


if __name__ == "__main__":
    main()
