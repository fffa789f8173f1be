"""Single steps through ``gymnasium.make``, against CartPole-v1 in the same run.

    python benchmarks/steps.py [--quick]

Prints the median over interleaved repeats of each id's steps/s relative to CartPole's, and exits
with 1 if one is below its floor.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

# Before NumPy is imported: every side of a ratio runs on one core.
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


def stepper(env_id, kwargs):
    """A function that plays `count` random steps and returns steps per second."""
    if env_id.startswith("DPB/"):
        kwargs = {"horizon": HORIZON, **kwargs}
    env = gymnasium.make(env_id, **kwargs)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(256)]

    def run(count):
        start = time.perf_counter()
        for i in range(count):
            _, _, terminated, truncated, _ = env.step(actions[i & 255])
            if terminated or truncated:
                env.reset()
        return count / (time.perf_counter() - start)

    run(1000)
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps and repeats")
    options = parser.parse_args()
    steps, repeats = (4000, 7) if options.quick else (20_000, 15)
    sides = {env_id: stepper(env_id, kwargs) for env_id, (kwargs, _) in CASES.items()}
    rates = {env_id: [] for env_id in sides}
    for _ in range(repeats):
        for env_id, run in sides.items():
            rates[env_id].append(run(steps))
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
