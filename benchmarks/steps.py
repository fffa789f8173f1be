"""Speed of single steps of ``gymnasium.make``, relative to CartPole-v1 in the same run.

    python benchmarks/steps.py [--quick]
    python benchmarks/steps.py --before PATH

Prints the median over interleaved repeats of each id's steps/s relative to CartPole's, and exits
with 1 if one is below its floor.

``--before`` compares processor time per step, for one and 64 lanes, with an older revision checked
out at PATH, and of a problem wrapped in `Conditioned` without a condition with the same problem
alone. Processes alternate every few milliseconds; the result is the median of the paired ratios.
The exit status is 1 if one is above 1.03.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from functools import partial

# Use one core; must be set before NumPy is imported.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import gymnasium  # noqa: E402

import dpb_gym  # noqa: E402, F401

HORIZON = 1_000_000
CASES = {
    "CartPole-v1": ({}, 1.0),
    "DPB/Pricing-v0": ({}, 0.6),
    "DPB/Recommendation-v0": ({}, 0.6),
    "DPB/Assortment-v0": ({"n_items": 100, "dim": 5}, 0.3),
    "DPB/RecommendationHighDim-v0": ({}, 0.0),
    "DPB/MovieLensReplay-v0": ({"repeats": True}, 0.0),
}


CEILING, TURNS, LANES = 1.03, 300, 64
COMPARED = ("DPB/Assortment-v0", "DPB/Pricing-v0", "DPB/Recommendation-v0")


def serve(inside):
    """Play the number of steps of each line of standard input and print seconds per step."""
    if inside:
        put_inside()
    plays = {}
    for line in sys.stdin:
        env_id, lanes, count = line.split()
        if (env_id, lanes) not in plays:
            plays[env_id, lanes] = player(env_id, int(lanes))
        print(plays[env_id, lanes](int(count)), flush=True)


def put_inside():
    """Wrap every new problem in `Conditioned` without a condition."""
    from dpb_gym.envs.registration import Environment
    from dpb_gym.problems.conditions import Conditioned

    make = Environment.make_problem
    Environment.make_problem = lambda self, **kwargs: Conditioned(make(self, **kwargs), {})


def player(env_id, lanes=1):
    """Return a function that plays `count` random steps and returns processor seconds per step."""
    kwargs = CASES[env_id][0]
    if env_id.startswith("DPB/"):
        kwargs = {"horizon": HORIZON, **kwargs}
    make = gymnasium.make if lanes == 1 else partial(gymnasium.make_vec, num_envs=lanes)
    env = make(env_id, **kwargs)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(64)]

    def run(count):
        start = time.process_time()
        for i in range(count):
            _, _, terminated, truncated, _ = env.step(actions[i & 63])
            if lanes == 1 and (terminated or truncated):
                env.reset()
        return (time.process_time() - start) / count

    run(1000)
    return run


def started(path, *options):
    """Start a process that serves with the code at a path."""
    folders = [os.path.join(path, part) for part in ("", "agents", "envs_data")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, os.path.abspath(__file__), "--serve", *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, cwd=path, **pipes)


def ask(process, *words):
    print(*words, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def compare(before):
    """Print the paired ratios and return how many are above the ceiling."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    now, older, inside = started(here), started(before), started(here, "--inside")
    missed = 0
    for title, first, second in (
        ("the older revision", now, older),
        ("the problem alone, inside Conditioned", inside, now),
    ):
        for env_id in COMPARED:
            for lanes, count in ((1, 200), (LANES, 20)):
                ratios = []
                for turn in range(TURNS):
                    spent = {}
                    for process in (first, second) if turn % 2 else (second, first):
                        spent[process.pid] = ask(process, env_id, lanes, count)
                    ratios.append(spent[first.pid] / spent[second.pid])
                ratio, (low, _, high) = statistics.median(ratios), statistics.quantiles(ratios)
                missed += ratio > CEILING
                print(
                    f"{env_id:24s} {lanes:2d} lanes  {ratio:.3f} of {title} "
                    f"(quartiles {low:.3f} to {high:.3f})",
                    flush=True,
                )
    for process in (now, older, inside):
        process.stdin.close()
        process.wait()
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps and repeats")
    parser.add_argument("--before", help="where an older revision is checked out")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.inside)
    if options.before:
        return int(compare(os.path.abspath(options.before)) > 0)
    steps, repeats = (4000, 7) if options.quick else (20_000, 15)
    sides = {env_id: player(env_id) for env_id in CASES}
    rates = {env_id: [] for env_id in sides}
    for _ in range(repeats):
        for env_id, run in sides.items():
            rates[env_id].append(1.0 / run(steps))
    failed = False
    for env_id, (_, floor) in CASES.items():
        ratios = [a / b for a, b in zip(rates[env_id], rates["CartPole-v1"])]
        ratio = statistics.median(ratios)
        missed = ratio < floor
        failed |= missed
        print(
            f"{env_id:30s} {statistics.median(rates[env_id]):9,.0f} steps/s  {ratio:.2f} of "
            f"CartPole-v1's{f'  (floor {floor:g})' if floor else ''}{'  MISSED' if missed else ''}"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
