"""Checks the cost model: a small run foretells a larger one, in time and in bytes.

    python benchmarks/cost_model.py [--suite core-v0] [--replicates 4] [--factor 4] [--rounds 1e9]

Runs the suite's tasks twice on one core, with few and with `factor` times as many replicates,
and prints the ratio of what was measured to what `dpb cost` foretold, with the extrapolation to
`--rounds` agent rounds. A ratio of 1 is a perfect forecast.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from dpb_gym.evaluation.costs import costs
from dpb_gym.evaluation.plan import plan_suite
from dpb_gym.evaluation.run import run_plan
from dpb_gym.evaluation.suite import load_suite


def main() -> None:
    """Runs both sizes and prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", default="smoke")
    parser.add_argument("--replicates", type=int, default=4)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--rounds", type=float, default=1e9)
    options = parser.parse_args()
    suite = load_suite(options.suite)
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for name, replicates in (
            ("warm", 1),  # compiles the kernels
            ("small", options.replicates),
            ("large", options.factor * options.replicates),
        ):
            out = Path(folder) / name
            run_plan(suite, plan_suite(suite), out, replicates=replicates, workers=1)
            found.append(costs(out))
    _, small, large = found
    seconds, size = small.at(large.rounds)
    far = large.at(options.rounds)
    print(
        json.dumps(
            {
                "suite": options.suite,
                "rounds": [small.rounds, large.rounds],
                "rounds_per_second_and_core": [round(c.rounds / c.seconds) for c in (small, large)],
                "time_measured_over_foretold": round(large.seconds / seconds, 3),
                "bytes_measured_over_foretold": round(large.bytes / size, 3),
                f"core_hours_at_{options.rounds:g}_rounds": round(far[0] / 3600, 2),
                f"gigabytes_at_{options.rounds:g}_rounds": round(far[1] / 1e9, 3),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
