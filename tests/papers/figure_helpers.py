"""Made-up figures and results for the tests of reproduction."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpb_gym.papers.claims import Claim
from dpb_gym.papers.curves import Curve
from dpb_gym.privacy import Budget
from dpb_gym.results.row_result import RowResult
from dpb_gym.suites.spec import AgentRun, Cell, Task

FIGURE: dict[str, Any] = {
    "paper": "made-up",
    "figure": "fig1",
    "title": "A figure",
    "suite": {
        "name": "made-up-fig1",
        "replicates": 4,
        "block": 2,
        "checkpoints": 10,
        "tasks": [
            {
                "name": norm,
                "env": "DPB/Assortment-v0",
                "horizon": 60,
                "env_kwargs": {"context_norm": norm, "n_items": 8, "capacity": 2, "dim": 2},
            }
            for norm in ("raw", "clip")
        ],
        "agents": [
            {"name": "greedy-mnl", "label": "Greedy 5", "params": {"explore": 5}},
            {"name": "greedy-mnl", "label": "Greedy 40", "params": {"explore": 40}},
            {"name": "random", "label": "Random"},
        ],
    },
    "axes": {"agent": "agent.name", "explore": "agent.explore", "contexts": "task.context_norm"},
    "variants": ["contexts"],
    "drawing": {"columns": "contexts", "lines": ["agent", "explore"]},
    "quick": {"horizon": 20, "replicates": 2, "params": {"explore": 3}},
    "claims": [
        {
            "id": "below-random",
            "text": "Greedy is below random.",
            "quantity": "final-regret",
            "where": {"agent": "greedy-mnl"},
            "than": {"agent": "random"},
            "expect": "below",
        }
    ],
}


def claim(**changes: Any) -> Claim:
    """A claim; by default that the regret falls along rho."""
    base = {"id": "a-claim", "text": "A claim.", "quantity": "final-regret"}
    if not {"than", "value", "printed"} & set(changes):
        base |= {"along": "rho", "expect": "falls"}
    return Claim.model_validate({**base, **changes})


def cell_of(horizon: int, budget: Any = None, **agent: Any) -> Cell:
    """A cell of an agent ``x`` on a made-up task."""
    run = {"label": "x", "name": "x", "entry_point": "m:X", "budget": budget, **agent}
    return Cell(
        suite="s", protocol="p", task=Task(name="a-task", env="DPB/Pricing-v0", horizon=horizon),
        agent=AgentRun(**run), checkpoints=(horizon,), seed=0, start=0, stop=1,
    )  # fmt: skip


def curve(
    regret: Any,
    *,
    horizon: int = 100,
    reward: Any = None,
    guarantee: dict[str, Any] | None = None,
    budget: Budget | None = None,
    replicates: Any = None,
    **axes: Any,
) -> Curve:
    """A curve with the given final regrets ``(n,)``, or whole curves ``(n, C)``."""
    values = np.asarray(regret, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    count, points = values.shape
    series = RowResult(
        task="a-task",
        agent=str(axes),
        budget="none" if budget is None else "some",
        cell=cell_of(horizon, budget),
        replicates=np.arange(count) if replicates is None else np.asarray(replicates),
        rounds=np.linspace(0, horizon, points + 1)[1:].astype(int),
        regret=values,
        reward=np.zeros_like(values) if reward is None else np.reshape(reward, (count, -1)),
        guarantee=guarantee,
        rounds_per_second=None,
        trust="computed here",
    )
    return Curve(series, axes)
