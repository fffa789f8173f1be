"""Tune the agents of the arena on every task and at every budget, at equal cost.

    python benchmarks/tune_tracks.py [--task NAME] [--agent NAME] [--out DIR]
    python benchmarks/tune_tracks.py --publish [--out DIR]

Every agent has a space of values in agents/recipes/spaces.yaml. On every task and at every budget
it gets ``--points`` random points of it, its defaults among them, on one tuning replicate. The
best third of them gets three replicates, and the best ninth nine. The point of least regret is
chosen. While one of its numbers is at an end of the space, rivals of our agents and agents without
privacy go on outside of it, on nine replicates (`tune(widen=True)`); ours do not.
Tasks are played for at most ``--rounds`` rounds. Results are cells in DIR/TASK/AGENT, so that an
interrupted run resumes. Each agent's choices and the cost of tuning are written to
DIR/TASK/recipes/AGENT.yaml and printed as rows of a table. ``--publish`` joins them to
agents/recipes/TRACK/AGENT.yaml and writes the suite's tuned rows. Recipes of agents that DIR lacks
on a whole track are kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

from dpb_gym.planning.tuning import Tuning, choose_points, read_grid, tune
from dpb_gym.registry import agent_spec, shortcoming
from dpb_gym.report.comparison_groups import TUNED_SUFFIX
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.running.plan import task_info
from dpb_gym.suites.recipes import write_recipe
from dpb_gym.suites.spec import Task
from dpb_gym.suites.suite import Suite, load_suite

SUITE = "dpb-bench-v1"
HOME = Path(__file__).parents[1]
SUITE_FILE = HOME / f"dpb_gym/suites/{SUITE}.yaml"
RECIPES = HOME / "agents/recipes"
SPACES: dict[str, dict[str, list[Any]]] = yaml.safe_load((RECIPES / "spaces.yaml").read_text())
POINTS, HALVING, ROUNDS = 24, 3, 30_000


def played(suite: Suite, task: Task, name: str) -> bool:
    """Return whether an agent of the suite is tuned on a task."""
    rows = [agent for agent in suite.agents if agent.name == name]
    supported = not shortcoming(agent_spec(name), task_info(task))
    return supported and any(agent.left_out(task) is None for agent in rows)


def choices(tuning: Tuning) -> list[dict[str, Any]]:
    """Return the best point of every budget, as in a recipe."""
    (recipe,) = tuning.recipes
    rows = []
    for choice in recipe.choices:
        row = {"budget": choice.budget, "parameters": dict(choice.best.params)}
        rows.append(row | {"regret": choice.best.rounded, "replicates": choice.best.replicates})
    return rows


def tune_one(suite: Suite, task: Task, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tune an agent on a task at its budgets, and write its choices and their cost."""
    out = options.out / task.name
    spec = agent_spec(name)
    grid = suite.tracks[task.track or ""].budgets
    private = spec.budget == "required" or any(
        agent.name == name and agent.budgets is not None for agent in suite.agents
    )
    tuning = tune(
        task.env,
        [name],
        suite.grid(grid) if private and grid is not None else [],
        horizon=min(task.horizon, options.rounds),
        env_kwargs=task.env_kwargs,
        grids={name: SPACES[name]},
        points=options.points,
        replicates=1,
        halving=HALVING,
        widen=spec.standing != "ours",
        out=out / name,
        workers=1,
        progress=False,
    )
    results = ResultDirectory.open(tuning.folder).results()
    timings = [result.timing for result in results if result.timing is not None]
    data = {
        "rounds": tuning.options["horizon"],
        "points": len(choose_points(spec, read_grid(spec, SPACES[name]), {}, options.points)),
        "seeds": list(tuning.seeds),
        "choices": choices(tuning),
        "cost": {
            "agent_rounds": sum(timing.rounds for timing in timings),
            "seconds": round(sum(timing.seconds for timing in timings), 1),
        },
    }
    path = out / "recipes" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_recipe(path, data, f"{name} on {task.name}: the best of {options.points} points.")
    return data


def joined(out: Path, suite: Suite, track: str, name: str) -> dict[str, Any] | None:
    """Return the recipe of an agent on a track, None if no task of the track has one."""
    recipes = {}
    for task in suite.tasks:
        path = out / task.name / "recipes" / f"{name}.yaml"
        if task.track == track and path.exists():
            recipes[task.name] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not recipes:
        return None
    best = [{"task": t, **row} for t, data in recipes.items() for row in data["choices"]]
    last = next(iter(recipes.values()))
    cost = {k: sum(data["cost"][k] for data in recipes.values()) for k in last["cost"]}
    return {
        "agent": name,
        "tuned_on": {
            "suite": suite.name,
            "tasks": {task: data["rounds"] for task, data in recipes.items()},
            **{key: last[key] for key in ("points", "seeds")},
            "grid": SPACES[name],
        },
        "best_per_budget": best,
        "cost": cost,
    }


def publish(out: Path, suite: Suite) -> None:
    """Write the recipes of `out` to agents/recipes and their points to the suite's tuned rows."""
    rows = []
    for name in SPACES:
        points: dict[str, dict[str, Any]] = {}
        for track in suite.tracks:
            path = RECIPES / track / f"{name}.yaml"
            if recipe := joined(out, suite, track, name):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_recipe(path, recipe, f"{name}: the best points by task and budget.")
            elif path.exists():
                recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
            else:
                continue
            for row in recipe["best_per_budget"]:
                if row["parameters"]:  # the row of the defaults counts for both rulings
                    points.setdefault(row["task"], {})[row["budget"]] = row["parameters"]
        if points:
            label = next(agent.label for agent in suite.agents if agent.name == name)
            rows.append({"name": name, "label": label + TUNED_SUFFIX, "points": points})
    before, mark, rest = SUITE_FILE.read_text(encoding="utf-8").partition("  # Tuned:")
    line, _, _ = rest.partition("\n")
    text = "\n".join(f"  - {json.dumps(row)}" for row in rows)
    SUITE_FILE.write_text(f"{before}{mark}{line}\n{text}\n", encoding="utf-8")


def main() -> None:
    """Tune the selected agents and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    suite = load_suite(SUITE)
    parser.add_argument("--agent", action="append", choices=list(SPACES))
    parser.add_argument("--task", action="append", choices=[task.name for task in suite.tasks])
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=Path("results/tuned"))
    parser.add_argument("--publish", action="store_true")
    options = parser.parse_args()
    if options.publish:
        return publish(options.out, suite)
    for task in suite.tasks:
        for name in options.agent or SPACES:
            if task.name in (options.task or [task.name]) and played(suite, task, name):
                data = tune_one(suite, task, name, options)
                points = "; ".join(f"{c['budget']}: {c['parameters']}" for c in data["choices"])
                print(f"{task.name} | {name} | {points} | {data['cost']['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
