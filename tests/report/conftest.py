"""Sample leaderboards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpb_gym.report.leaderboard_data import (
    Interval,
    LeaderboardData,
    Row,
    TaskResult,
    TrackResult,
    TrackRow,
)

CHECKPOINTS = np.unique(np.geomspace(1, 10_000, 40).round().astype(int))

# label, registered name, notion, unit, steepness of regret
AGENTS = {
    "assortment": [
        ("One-pass MNL", "one-pass-mnl", "joint", "user-round", 5.0),
        ("Noisy Newton", "noisy-newton", "joint", "user-round", 11.6),
        ("DPMNL", "dpmnl", "joint", "user-round", 149.0),
        ("UCB-MNL", "ucb-mnl", None, None, 8.5),
        ("TS-MNL", "ts-mnl", None, None, 6.1),
        ("Greedy MNL", "greedy-mnl", None, None, 3.3),
        ("Oracle", "oracle", None, None, 0.0),
        ("Random", "random", None, None, 417.0),
    ],
    "pricing": [
        ("One-pass pricing", "one-pass-pricing", "anticipating", "user-round", 60.0),
        ("Private pricing", "private-pricing", "anticipating", "user-round", 310.0),
        ("GLM-UCB", "glm-ucb-pricing", None, None, 95.0),
        ("Fixed price", "fixed-price", None, None, 820.0),
        ("Oracle", "oracle", None, None, 0.0),
        ("Random", "random", None, None, 1900.0),
    ],
    "recommendation": [
        ("AdaPrivate-TS", "adaprivate-ts", "central", "reward", 260.0),
        ("AdaPrivate-UCB", "adaprivate-ucb", "central", "reward", 330.0),
        ("JDP LinUCB", "jdp-lin-ucb", "joint", "user-round", 900.0),
        ("LinTS", "lin-ts", None, None, 210.0),
        ("LinUCB", "lin-ucb", None, None, 190.0),
        ("Oracle", "oracle", None, None, 0.0),
        ("Random", "random", None, None, 2600.0),
    ],
}
ENVS = {
    "assortment": "DPB/Assortment-v0",
    "pricing": "DPB/Pricing-v0",
    "recommendation": "DPB/Recommendation-v0",
}


def interval(rng: np.random.Generator, mean: float, spread: float = 0.06) -> Interval:
    low, high = rng.uniform(0.4, 1.0, size=2) * spread * abs(mean)
    return Interval(mean, mean - low, mean + high)


def make_row(rng: np.random.Generator, **fields: Any) -> Row:
    """A row with plausible numbers; `fields` override."""
    regret = fields.pop("regret", None) or interval(rng, float(rng.uniform(5, 500)))
    notion = fields.get("notion")
    exponent = rng.uniform(0.3, 0.7) if fields.get("name") != "random" else 1.0
    growth = (CHECKPOINTS / CHECKPOINTS[-1]) ** exponent
    curve = [
        (int(t), float(g * regret.mean), float(g * regret.low), float(g * regret.high))
        for t, g in zip(CHECKPOINTS, growth)
    ]
    values: dict[str, Any] = {
        "agent": "Agent",
        "name": "agent",
        "budget": "none",
        "guarantee": "non-private",
        "notion": None,
        "unit": None,
        "regret": regret,
        "iqm_regret": Interval(
            regret.mean * 0.97, *sorted((0.96 * regret.low, 0.98 * regret.high))
        ),
        "score": None,
        "reward": interval(rng, 5000 - regret.mean, 0.01),
        "rounds_per_second": float(rng.uniform(2e4, 9e5)),
        "curve": curve,
        "params": {"start": 200, "ridge": 0.5, "mechanism": "blt"} if notion else {},
        "audit": None,
        "replicates": 30,
        "finals": {k: float(rng.normal(regret.mean, 0.1 * abs(regret.mean))) for k in range(30)},
    }
    return Row(**(values | fields))


def make_task(
    problem: str = "assortment",
    *,
    seed: int = 0,
    task: str | None = None,
    budgets: Sequence[float] = (0.1, 0.5, 1.0),
    audits: bool = True,
) -> TaskResult:
    """A task like the ones that the papers show."""
    rng = np.random.default_rng(seed)
    random = max(level for *_, level in AGENTS[problem])
    rows = []
    for label, name, notion, unit, level in AGENTS[problem]:
        for rho in budgets if notion else (None,):
            regret = interval(rng, level * (1.0 if rho is None else rho**-0.45))
            fields: dict[str, Any] = {}
            if name == "oracle":
                fields["finals"] = dict.fromkeys(range(30), 0.0)
            if notion:
                eps = rho + 2 * float(np.sqrt(rho * np.log(1e5)))
                fields = {
                    "budget": f"rho={rho:g}",
                    "guarantee": f"{notion} zCDP rho={rho:g} per {unit} (replace-one); "
                    f"eps={eps:.2f} at delta=1e-05",
                }
                if audits:
                    broken = name == "dpmnl"
                    fields["audit"] = {
                        "claimed": eps,
                        "lower_bound": eps * (1.4 if broken else 0.3),
                        "verdict": "fail" if broken else "pass",
                    }
            score = interval(rng, 1 - regret.mean / random, 0.02) if name != "oracle" else None
            rows.append(
                make_row(
                    rng,
                    agent=label,
                    name=name,
                    notion=notion,
                    unit=unit,
                    regret=regret,
                    score=score or Interval(1, 1, 1),
                    **fields,
                )
            )
    return TaskResult(
        task=task or f"{problem}-clip",
        env_id=ENVS[problem],
        problem=problem,
        description=f"The {problem} problem at the size that the paper uses.",
        horizon=10_000,
        replicates=30,
        normalisation={"random": 5000.0 - random, "oracle": 5000.0},
        rows=tuple(rows),
    )


def make_data(tasks: Sequence[TaskResult] | None = None, **fields: Any) -> LeaderboardData:
    """A leaderboard of `tasks`, one per problem by default."""
    if tasks is None:
        tasks = [make_task(problem, seed=k) for k, problem in enumerate(AGENTS)]
    values: dict[str, Any] = {
        "title": "Private bandits, core suite",
        "suite": "core-v0",
        "created": "2026-02-03T10:20:30+00:00",
        "version": "0.1.0",
        "revision": "4d481cf0",
        "command": "dpb run core-v0 --workers 2 --out results/core",
        "tasks": tuple(tasks),
        "notes": ("Contexts are clipped to the unit ball.",),
    }
    return LeaderboardData(**(values | fields))


def make_crowd(rows: int = 30, tasks: int = 5, seed: int = 0) -> LeaderboardData:
    """Many rows with generated names on many tasks."""
    rng = np.random.default_rng(seed)
    problems = ["assortment", "pricing", "recommendation"]
    made = []
    for k in range(tasks):
        crowd = []
        for i in range(rows):
            private = i % 3 != 0
            crowd.append(
                make_row(
                    rng,
                    agent=f"Agent number {i:02d}",
                    name=f"agent-{i}",
                    budget=f"rho={2.0 ** -(i % 4):g}" if private else "none",
                    guarantee="joint zCDP" if private else "non-private",
                    notion="joint" if private else None,
                    unit="user-round" if private else None,
                    score=Interval(0.5, 0.4, 0.6) if i % 5 else None,
                )
            )
        made.append(
            TaskResult(
                task=f"track-{k}",
                env_id="DPB/Assortment-v0",
                problem=problems[k % 3],
                description="",
                horizon=10_000,
                replicates=30,
                normalisation=None,
                rows=tuple(crowd),
            )
        )
    return make_data(made)


def make_track(name: str, tasks: Sequence[TaskResult], title: str = "") -> TrackResult:
    """The track of some tasks, its scores the means of theirs."""
    rows: dict[str, list[Row]] = {}
    for task in tasks:
        for row in task.rows:
            rows.setdefault(row.key, []).append(row)
    return TrackResult(
        track=name,
        title=title or name.capitalize(),
        description=f"All of {name}.",
        tasks=tuple(task.task for task in tasks),
        rows=tuple(
            TrackRow(
                agent=mine[0].agent,
                name=mine[0].name,
                budget=mine[0].budget,
                notion=mine[0].notion,
                unit=mine[0].unit,
                score=Interval(
                    *(
                        float(np.mean([getattr(row.score, end) for row in mine]))
                        for end in ("mean", "low", "high")
                    )
                ),
                tasks=tuple(task.task for task in tasks if key in {r.key for r in task.rows}),
                ahead=0.5 if mine[0].notion else None,
                verdict="pass" if mine[0].audit else "",
            )
            for key, mine in rows.items()
        ),
    )


def make_arena(agents: int = 25, sizes: int = 5, budgets: int = 4, seed: int = 0) -> Any:
    """Three tracks of `sizes` tasks, `agents` private agents at every budget and some others."""
    rng = np.random.default_rng(seed)
    rhos = [0.02, 0.1, 0.5, 1.0, 2.0, 5.0][:budgets]
    tasks, tracks = [], []
    for problem in AGENTS:
        mine = []
        for size in range(sizes):
            rows = []
            for k in range(agents):
                private = k >= 6
                for rho in rhos if private else (None,):
                    level = (20 + 13 * k) * (1.0 if rho is None else (rho + 0.02) ** -0.3)
                    rows.append(
                        make_row(
                            rng,
                            agent=f"Agent {chr(65 + k)} of {problem}",
                            name=f"agent-{k}",
                            notion=("joint" if k % 3 else "central") if private else None,
                            unit=("user-round" if k % 3 else "reward") if private else None,
                            budget="none" if rho is None else f"rho={rho:g}",
                            guarantee="non-private"
                            if rho is None
                            else f"joint zCDP rho={rho:g} per user-round (replace-one)",
                            regret=interval(rng, level),
                            score=interval(rng, 1 - level / 2000, 0.02),
                            params={"mechanism": "blt", "bonus": 0.1, "exploration": 300},
                        )
                    )
            task = make_task(problem, seed=size, task=f"{problem}-size{size}")
            mine.append(replace(task, rows=tuple(rows), track=problem))
        tasks += mine
        tracks.append(make_track(problem, mine))
    return make_data(tasks, tracks=tuple(tracks))


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The factories of sample data."""
    return SimpleNamespace(
        interval=interval,
        row=make_row,
        task=make_task,
        data=make_data,
        crowd=make_crowd,
        track=make_track,
        arena=make_arena,
    )
