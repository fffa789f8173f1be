"""Cost of one step of the running sums, relative to drawing its normals.

Both sides run in one process and alternate, so the ratios are comparable across machines:

    python benchmarks/privacy_speed.py
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpb_gym.privacy import Curator, NoiseSource, PSDBall, RunningSum

LIMITS = {"blt": 3.0, "binary-tree": 4.0}


def seconds(function: Callable[[], None], steps: int) -> float:
    """Return the mean time of a call."""
    start = time.perf_counter()
    for _ in range(steps):
        function()
    return (time.perf_counter() - start) / steps


def drawing(replicates: int, width: int) -> Callable[[], None]:
    """Return the time of one step's normals, drawn in blocks of 100 steps per replicate."""
    generators = [np.random.default_rng(i) for i in range(replicates)]
    block = np.empty((replicates, 100, width))
    calls = 0

    def draw() -> None:
        nonlocal calls
        if calls % 100 == 0:
            for row, generator in zip(block, generators):
                generator.standard_normal(out=row)
        calls += 1

    return draw


def stepping(name: str, replicates: int, dim: int, release: bool) -> dict[str, Callable[[], None]]:
    """Return steps of 20 numbers: one vector, and a symmetric 5 x 5 matrix with a vector of 5."""
    width = dim * (dim + 3) // 2

    def make(width: int | None = None, **shape: Any) -> RunningSum:
        noise = NoiseSource.from_seed(1, replicates)
        curator = Curator("rho=1", ("joint", "user-round"), noise=noise, horizon=10**6)
        made: RunningSum = curator.running_sum(width, mechanism=name, **shape)
        return made

    rng = np.random.default_rng(0)
    flat = rng.normal(size=(replicates, width)) / 10
    vector = rng.normal(size=(replicates, dim)) / 10
    matrix = vector[:, :, None] * vector[:, None, :]
    one = make(width, clip=1.0)
    both = [make(symmetric=dim, clip=PSDBall(1.0)), make(dim, clip=1.0)]

    def vectors() -> None:
        one.add(flat)
        if release:
            _ = one.value

    def pair() -> None:
        for releaser, record in zip(both, (matrix, vector)):
            releaser.add(record)
            if release:
                _ = releaser.value

    return {f"{width} numbers": vectors, f"matrix {dim}x{dim} and vector {dim}": pair}


def main() -> None:
    """Print the median ratio over alternating rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=64)
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    width = options.dim * (options.dim + 3) // 2
    print(f"{options.replicates} replicates, {width} numbers each; time over drawing the normals")
    for name, limit in LIMITS.items():
        for release in (False, True):
            for label, step in stepping(name, options.replicates, options.dim, release).items():
                draw = drawing(options.replicates, width)
                seconds(step, 50), seconds(draw, 100)  # compile, warm caches
                ratios, last = [], 0.0
                for _ in range(options.rounds):
                    last = seconds(draw, options.steps)
                    ratios.append(seconds(step, options.steps) / last)
                what = "add and read" if release else "add"
                print(
                    f"{name:12s} {label:28s} {what:16s} ratio {statistics.median(ratios):5.2f} "
                    f"(limit {limit:g}; drawing {1e6 * last:.1f} us)"
                )


if __name__ == "__main__":
    main()
