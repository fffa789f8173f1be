"""Tune every agent of the arena on every track with equal effort.

    python benchmarks/tune_tracks.py [--track NAME] [--agent NAME] [--replicates 4] [--out DIR]

Every agent plays its grid of eight points, including its defaults, at all budgets of the track, on
the tuning seeds and on the track's tasks (all, or each ``--task``) for at most ``--rounds``
rounds. The best point has the least regret relative to the best at each budget, averaged over
tasks and budgets. It is written to DIR/TRACK/recipes/AGENT.yaml with the best per budget and the
cost of tuning, and printed as a table. Results are cells in DIR, so that an interrupted run
resumes. ``--publish`` only copies DIR's recipes to agents/recipes and writes the suite's tuned rows
from them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from dpb_gym.planning.tuning import TUNING_SEEDS, Point, Tuning, choose_points, read_grid, tune
from dpb_gym.privacy import Budget
from dpb_gym.registry import AgentSpec, agent_spec, shortcoming
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.running.plan import task_info
from dpb_gym.suites.recipes import load_recipe, write_recipe
from dpb_gym.suites.spec import Task, canonical
from dpb_gym.suites.suite import Suite, load_suite

SUITE = "dpb-bench-v1"
TUNED = " (tuned)"
HOME = Path(__file__).parents[1]
SUITE_FILE = HOME / f"dpb_gym/suites/{SUITE}.yaml"
RECIPES = HOME / "agents/recipes"


def tunable(suite: Suite, track: str) -> list[AgentSpec]:
    """Return the suite's agents that have a grid and support the track."""
    info = task_info(next(task for task in suite.tasks if task.track == track))
    specs = [agent_spec(name) for name in dict.fromkeys(agent.name for agent in suite.agents)]
    return [
        spec
        for spec in specs
        if getattr(spec.maker, "tuning_grid", None) and not shortcoming(spec, info)
    ]


def played(suite: Suite, track: str, name: str, selected: list[str] | None) -> list[Task]:
    """Return the tasks of a track on which an agent is tuned."""
    rows = [agent for agent in suite.agents if agent.name == name]
    return [
        task
        for task in suite.tasks
        if task.track == track
        and task.name in (selected or [task.name])
        and any(agent.left_out(task) is None for agent in rows)
    ]


def best_of(tunings: list[Tuning]) -> tuple[dict[str, Any], dict[str, dict[str, Any]], float]:
    """Return the best point, the best per budget, and the defaults' regret relative to the best.

    Regrets are relative to the best at their task and budget.
    """
    shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    known: dict[str, Point] = {}
    for tuning in tunings:
        for choice in tuning.recipes[0].choices:
            least = max(choice.best.regret, 1e-12)
            for point in choice.points:
                key = canonical(dict(point.params))
                known[key] = point
                shares[key][choice.budget].append(point.regret / least)
    wanted = {b: len(v) for b, v in max(shares.values(), key=lambda s: len(s)).items()}
    whole = {k: s for k, s in shares.items() if {b: len(v) for b, v in s.items()} == wanted}

    def mean(key: str, budgets: Any) -> float:
        values = [value for budget in budgets for value in whole[key][budget]]
        return sum(values) / len(values)

    best = min(whole, key=lambda key: mean(key, wanted))
    each = {b: dict(known[min(whole, key=lambda key: mean(key, [b]))].params) for b in wanted}
    default = mean("{}", wanted) / mean(best, wanted) if "{}" in whole else float("nan")
    return dict(known[best].params), each, default


def tune_one(
    spec: AgentSpec, suite: Suite, track: str, options: argparse.Namespace
) -> tuple[dict[str, Any], float, int, float]:
    """Tune one agent on one track and write its recipe.

    Returns:
        The best point, the relative regret of the defaults, agent rounds and seconds.
    """
    grid = suite.tracks[track].budgets
    budgets = [] if grid is None or spec.budget == "never" else list(suite.grid(grid))
    tasks = played(suite, track, spec.name, options.task)
    tunings = []
    for task in tasks:
        tunings.append(
            tune(
                task.env,
                [spec.name],
                budgets,
                horizon=min(task.horizon, options.rounds),
                env_kwargs=task.env_kwargs,
                replicates=options.replicates,
                points=None,
                out=options.out / track / task.name,
                workers=options.workers,
                progress=False,
            )
        )
    best, each, default = best_of(tunings)
    timings = [
        result.timing
        for tuning in tunings
        for result in ResultDirectory.open(tuning.folder).results()
        if result.cell.agent.name == spec.name and result.timing is not None
    ]
    rounds = sum(timing.rounds for timing in timings)
    seconds = sum(timing.seconds for timing in timings)
    seeds = [TUNING_SEEDS.start, TUNING_SEEDS.start + options.replicates - 1]
    points = len(choose_points(spec, read_grid(spec), {}, None))
    data = {
        "agent": spec.name,
        "parameters": {**spec.defaults, **best},
        "tuned_on": {
            "suite": suite.name,
            "track": track,
            "tasks": {task.name: min(task.horizon, options.rounds) for task in tasks},
            "budgets": [Budget.text(budget) for budget in budgets] or ["none"],
            "seeds": seeds,
            "points": points,
            "grid": {key: list(values) for key, values in read_grid(spec).items()},
        },
        "best_per_budget": [{"budget": b, "parameters": p} for b, p in each.items()],
        "defaults_relative_to_best": round(default, 3),
        "cost": {"agent_rounds": rounds, "seconds": round(seconds, 1)},
    }
    path = options.out / track / "recipes" / f"{spec.name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_recipe(path, data, f"{spec.name} on the track {track}: the best of {points} points.")
    return best, default, rounds, seconds


def publish(out: Path, suite: Suite) -> None:
    """Copy the recipes in `out` to agents/recipes and write the tuned rows of the suite's file."""
    rows: dict[str, list[str]] = {}
    for track in suite.tracks:
        for path in sorted((out / track / "recipes").glob("*.yaml")):
            copy = RECIPES / track / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            name, params = load_recipe(path)
            spec = agent_spec(name)
            usual = spec.defaults  # recipes have lists instead of tuples
            chosen = {k: v for k, v in params.items() if canonical(v) != canonical(usual[k])}
            places = {track, *(task.name for task in suite.tasks if task.track == track)}
            for listed in suite.agents:
                if listed.name != name or listed.label.endswith(TUNED) or not chosen:
                    continue  # if the defaults are best, their row is the tuned one
                row = listed.model_dump(mode="json", exclude_defaults=True, exclude={"exclude"})
                row |= {"label": listed.label + TUNED, "params": chosen, "tasks": [track]}
                if left := {k: v for k, v in listed.exclude.items() if k in places}:
                    row["exclude"] = left
                text = yaml.safe_dump(row, default_flow_style=True, width=10_000, sort_keys=False)
                rows.setdefault(name, []).append(f"  - {text.strip()}")
    before, mark, rest = SUITE_FILE.read_text(encoding="utf-8").partition("  # Tuned:")
    line, _, _ = rest.partition("\n")
    text = "\n".join(line for found in rows.values() for line in found)
    SUITE_FILE.write_text(f"{before}{mark}{line}\n{text}\n", encoding="utf-8")


def main() -> None:
    """Tune the selected agents and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    suite = load_suite(SUITE)
    parser.add_argument("--track", choices=list(suite.tracks))
    parser.add_argument("--agent", action="append")
    parser.add_argument("--replicates", type=int, default=4)
    parser.add_argument("--task", action="append")
    parser.add_argument("--rounds", type=int, default=30_000)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path, default=Path("results/tuned"))
    parser.add_argument("--publish", action="store_true")
    options = parser.parse_args()
    if options.publish:
        return publish(options.out, suite)
    print(
        "| track | agent | best point | defaults / best | agent rounds | seconds |\n"
        + "|---" * 6
        + "|"
    )
    for track in [options.track] if options.track else suite.tracks:
        for spec in tunable(suite, track):
            if options.agent and spec.name not in options.agent:
                continue
            if not played(suite, track, spec.name, options.task):
                continue
            best, default, rounds, seconds = tune_one(spec, suite, track, options)
            text = ", ".join(f"{key}={value}" for key, value in best.items()) or "defaults"
            cost = f"{default:.2f} | {rounds:,} | {seconds:.0f}"
            print(f"| {track} | {spec.name} | {text} | {cost} |", flush=True)
    print("a second run prints the same from stored results", file=sys.stderr)


if __name__ == "__main__":
    main()
