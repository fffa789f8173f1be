"""Measure a suite's normalisation constants: mean rewards of the random policy and the oracle.

``python benchmarks/normalise.py SUITE`` prints, for each task, a ``normalisation``
entry to paste into the suite. The seeds are the suite's normalisation seeds, which no
evaluation uses.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from dpb_gym.errors import AgentError, DPBError
from dpb_gym.results.cell_result import CellResult, Failure
from dpb_gym.running.api import plan_task
from dpb_gym.running.execution import execute
from dpb_gym.running.plan import make_jobs
from dpb_gym.suites.spec import Task
from dpb_gym.suites.suite import load_suite

REFERENCES = ("random", "oracle")


def measure(task: Task, first_seed: int, replicates: int, block: int = 50) -> dict[str, float]:
    """Return the mean cumulative reward of the random policy and the oracle at the horizon.

    Args:
        task: The task.
        first_seed: Seed of the first replicate.
        replicates: Number of replicates.
        block: Replicates that run together.

    Returns:
        ``random`` and ``oracle``, and their standard errors ``random_se``, ``oracle_se``.

    Raises:
        AgentError: If one of the two agents fails.
    """
    suite, plan = plan_task(
        task.env, REFERENCES, task.horizon, replicates, first_seed, 1, task.env_kwargs, block=block
    )
    outcomes = execute(make_jobs(suite, [plan]), None, workers=1)
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            raise AgentError(outcome.message)
    constants = {}
    results = [outcome for outcome in outcomes if isinstance(outcome, CellResult)]
    for name in REFERENCES:
        rewards = np.concatenate([r.reward[:, -1] for r in results if r.cell.agent.name == name])
        constants[name] = float(np.mean(rewards))
        spread = float(np.std(rewards, ddof=1)) if len(rewards) > 1 else 0.0
        constants[f"{name}_se"] = spread / len(rewards) ** 0.5
    return constants


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the constants of every task of a suite."""
    program = "python benchmarks/normalise.py"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("suite", help="name of a suite, or a .yaml file")
    parser.add_argument("--replicates", type=int, default=400)
    chosen = parser.parse_args(arguments)
    try:
        suite = load_suite(chosen.suite)
        for task in suite.tasks:
            constants = measure(task, suite.normalisation_seed, chosen.replicates)
            print(
                f"{task.name}: normalisation: {{random: {constants['random']:.2f}, "
                f"oracle: {constants['oracle']:.2f}}}  # standard errors "
                f"{constants['random_se']:.2f}, {constants['oracle_se']:.2f}; "
                f"{chosen.replicates} replicates",
                flush=True,
            )
    except DPBError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
