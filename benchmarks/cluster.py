"""Overhead of a local dask cluster; its results must have the same bytes as in one process.

    python benchmarks/cluster.py [--workers 1 2 4 8] [--suite smoke] [--replicates 8]

Runs a suite in this process, then on clusters with the given numbers of workers, each into its own
folder. Prints wall time and the total processor time of workers and client, without the start of
workers. `overhead` is the additional time per cell, including the loading of the library and its
kernels with a worker's first job.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import distributed
import psutil

from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.suite import load_suite


def used(processes: list[psutil.Process]) -> float:
    """Return the processor seconds of processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def main() -> None:
    """Run the suite in each setting and print one line per setting."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--suite", default="smoke")
    parser.add_argument("--replicates", type=int, default=8)
    options = parser.parse_args()
    suite = load_suite(options.suite)
    plans = plan_suite(suite)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        run_plan(suite, plans, Path(folder) / "warm", replicates=1, workers=1)

        def timed(count: int, processes: list[psutil.Process], **where: str) -> tuple[float, bytes]:
            start, before = time.monotonic(), used(processes)
            out = Path(folder) / str(count)
            report = run_plan(suite, plans, out, replicates=options.replicates, workers=1, **where)
            seconds = used(processes) - before
            line = {"workers": count, "cells": report.computed}
            line |= {"wall": round(time.monotonic() - start, 1), "processor": round(seconds, 1)}
            if count:
                line["overhead_ms_a_cell"] = round(1000 * (seconds - alone) / report.computed, 1)
                line["same_bytes"] = (out / "result.parquet").read_bytes() == table
            print(json.dumps(line), flush=True)
            return seconds, (out / "result.parquet").read_bytes()

        here = psutil.Process()
        alone, table = timed(0, [here])
        for count in options.workers:
            with distributed.LocalCluster(
                n_workers=count, threads_per_worker=1, dashboard_address=None, silence_logs=50
            ) as cluster:
                every = [here, *(psutil.Process(w.pid) for w in cluster.workers.values())]
                timed(count, every, backend="dask", scheduler=cluster.scheduler_address)


if __name__ == "__main__":
    main()
