"""Check the cost model: forecasts of time and bytes of a larger run from a smaller one.

    python benchmarks/cost_model.py [--suite core-v0] [--replicates 4] [--factor 4] [--rounds 1e9]

Runs the suite's tasks twice on one core, with few and with `factor` times as many replicates,
and prints the ratio of measurement to the forecast of `dpb cost`, with the extrapolation to
`--rounds` agent rounds. A ratio of 1 is a perfect forecast.

    python benchmarks/cost_model.py --dry 10000 50000

instead compares `dpb run --dry-run` with runs of pricing agents at these horizons, each in a
separate process: processor time (less that of a run of 100 rounds), size of the table, peak
memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dpb_gym.planning.costs import costs
from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.suite import load_suite

AGENTS = "run --env DPB/Pricing-v0 --agent greedy-pricing --agent private-pricing --budget rho=1"
REPLICATES = "20"


def command(horizon: int, *words: str) -> tuple[float, int, Any]:
    """Return the processor seconds, peak bytes and JSON of one command."""
    start = [sys.executable, "-c", "from dpb_gym.cli import main; main()"]
    options = ["--horizon", str(horizon), "--replicates", REPLICATES, "--workers", "1", "--json"]
    process = subprocess.Popen(
        [*start, *AGENTS.split(), *options, *words], stdout=subprocess.PIPE, text=True
    )
    printed = process.stdout.read() if process.stdout is not None else ""
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, json.loads(printed)


def dry(horizons: list[int]) -> None:
    """Print forecast and measurement of every horizon."""
    with tempfile.TemporaryDirectory() as folder:
        command(100, "--out", f"{folder}/warm", "--quiet")  # compiles the kernels
        base, _, _ = command(100, "--out", f"{folder}/base", "--quiet")
        for horizon in horizons:
            forecast = command(horizon, "--dry-run")[2]["total"]
            out = Path(folder) / str(horizon)
            seconds, memory, _ = command(horizon, "--out", str(out), "--quiet")
            figures = seconds - base, (out / "result.parquet").stat().st_size, memory
            for name, measured in zip(("seconds", "bytes", "memory"), figures):
                expected = forecast[name]
                ratio = round(measured / expected, 2)
                print(
                    f"{horizon} {name}: {expected:.4g} forecast, {measured:.4g} measured, {ratio}"
                )


def main() -> None:
    """Run both sizes and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", default="smoke")
    parser.add_argument("--replicates", type=int, default=4)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--rounds", type=float, default=1e9)
    parser.add_argument("--dry", type=int, nargs="+", metavar="HORIZON")
    options = parser.parse_args()
    if options.dry:
        dry(options.dry)
        return
    suite = load_suite(options.suite)
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for name, replicates in (
            ("warm", 1),  # compiles the kernels
            ("small", options.replicates),
            ("large", options.factor * options.replicates),
        ):
            out = Path(folder) / name
            run_plan(suite, plan_suite(suite), out, replicates=replicates, workers=1)
            runs.append(costs(out))
    _, small, large = runs
    seconds, size = small.at(large.rounds)
    far = large.at(options.rounds)
    print(
        json.dumps(
            {
                "suite": options.suite,
                "rounds": [small.rounds, large.rounds],
                "rounds_per_second_and_core": [round(c.rounds / c.seconds) for c in (small, large)],
                "time_measured_over_forecast": round(large.seconds / seconds, 3),
                "bytes_measured_over_forecast": round(large.bytes / size, 3),
                f"core_hours_at_{options.rounds:g}_rounds": round(far[0] / 3600, 2),
                f"gigabytes_at_{options.rounds:g}_rounds": round(far[1] / 1e9, 3),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
