"""Speed of the harness, as ratios measured in one run.

    python benchmarks/speed.py [--quick] [--peer NAME=PYTHON ...] [--json FILE]

Every figure is the median over repeats of interleaved measurements on one core, so that
a busy machine slows both sides of a ratio alike. Peers are timed in environments of their
own, e.g. ``--peer river=/path/to/python`` (see peer_linucb.py).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Before NumPy is imported: every side of a ratio runs on one core.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

from dpb_gym import make_agent, make_problem  # noqa: E402
from dpb_gym.streams import AgentStreams, Stream, generator  # noqa: E402

HERE = Path(__file__).parent


class Lockstep:
    """One agent in the lockstep loop, advanced in slices so that measurements interleave."""

    def __init__(self, env_id, agent, replicates, horizon, **kwargs):
        self.problem = make_problem(env_id, horizon=horizon, **kwargs)
        self.replicates = replicates
        seeds = range(replicates)
        self.instance = self.problem.instance(seeds)
        self.agent = make_agent(agent)
        self.agent.set_up(self.problem.info, AgentStreams(seeds))
        self.regret = np.zeros(replicates)

    def run(self, rounds):
        """Plays `rounds` rounds and returns replicate-rounds per second."""
        start = time.perf_counter()
        for _ in range(rounds):
            context = self.instance.context()
            action = self.agent.act(context)
            outcome = self.instance.respond(action)
            self.regret += outcome.regret
            self.agent.observe(context, action, outcome.feedback)
            self.instance.advance()
        return rounds * self.replicates / (time.perf_counter() - start)


def drawing(replicates, numbers, rounds):
    """Rounds/s of drawing the same float32 normals, in the same blocks, and nothing else."""
    rngs = [generator(i, Stream.FEATURES) for i in range(replicates)]
    out = np.empty((16, numbers), np.float32)

    def run():
        start = time.perf_counter()
        for _ in range(rounds // 16):
            for rng in rngs:
                rng.standard_normal(out=out, dtype=np.float32)
        return rounds // 16 * 16 * replicates / (time.perf_counter() - start)

    return run


def alternate(sides, repeats):
    """Median of each side over interleaved repeats, and medians of the paired ratios."""
    rates = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            rates[name].append(side())
    return rates


def ratio(rates, a, b):
    return statistics.median(x / y for x, y in zip(rates[a], rates[b]))


def report(rows, name, value, target, unit="x"):
    rows.append({"figure": name, "value": value, "target": target, "unit": unit})
    print(f"{name:<74}{value:>10.3g} {unit:<9} target {target}", flush=True)


def import_seconds(code, repeats):
    def once(snippet):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", snippet], check=True, capture_output=True)
        return time.perf_counter() - start

    once(code[0]), once(code[1])
    return statistics.median(once(code[1]) - once(code[0]) for _ in range(repeats))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    scale, repeats = (1, 3) if args.quick else (8, 7)
    rows: list[dict] = []

    size = {"n_items": 100, "dim": 5, "capacity": 10}
    horizon = 160 * scale * (repeats + 2)
    lanes = {
        name: Lockstep("DPB/Assortment-v0", name, 64, horizon, **size)
        for name in ("random", "ucb-mnl", "ts-mnl", "greedy-mnl")
    }
    sides = {name: (lambda lane=lane: lane.run(160 * scale)) for name, lane in lanes.items()}
    sides["normals"] = drawing(64, 500, 160 * scale)
    for side in sides.values():
        side()
    rates = alternate(sides, repeats)
    for name in ("random", "ucb-mnl", "ts-mnl", "greedy-mnl"):
        report(
            rows, f"{name}, N=100 d=5 K=10, B=64", statistics.median(rates[name]), "-", "rounds/s"
        )
    report(
        rows,
        "random policy / drawing the same normals alone",
        ratio(rates, "random", "normals"),
        ">= 0.5",
    )
    report(rows, "ucb-mnl / random policy", ratio(rates, "ucb-mnl", "random"), ">= 0.33")

    horizon = 800 * scale * (repeats + 2)
    for env_id, names in (
        ("DPB/Recommendation-v0", ("random", "lin-greedy", "lin-ucb", "lin-ts")),
        ("DPB/Pricing-v0", ("random", "greedy-pricing", "glm-ucb-pricing", "fixed-price")),
    ):
        lanes = {name: Lockstep(env_id, name, 64, horizon) for name in names}
        sides = {name: (lambda lane=lane: lane.run(800 * scale)) for name, lane in lanes.items()}
        for side in sides.values():
            side()
        rates = alternate(sides, repeats)
        for name in names:
            label = f"{name}, {env_id}, B=64"
            report(rows, label, statistics.median(rates[name]), "-", "rounds/s")
        if "lin-ucb" in names:
            ours = statistics.median(rates["lin-ucb"])

    for peer in args.peer:
        name, _, python = peer.partition("=")
        pairs = []
        lane = Lockstep("DPB/Recommendation-v0", "lin-ucb", 64, 100_000)
        lane.run(200)
        for _ in range(3):
            mine = lane.run(400 * scale)
            command = [python, "-W", "ignore", str(HERE / "peer_linucb.py"), name]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            pairs.append((mine, float(done.stdout)))
        report(rows, f"{name} LinUCB", statistics.median(b for _, b in pairs), "-", "rounds/s")
        quotient = statistics.median(a / b for a, b in pairs)
        report(rows, f"lin-ucb (B=64) / {name}'s LinUCB", quotient, ">= 30")

    late = 100_000 if not args.quick else 20_000
    for env_id, agent in (
        ("DPB/Recommendation-v0", "lin-ucb"),
        ("DPB/Pricing-v0", "greedy-pricing"),
        ("DPB/Assortment-v0", "ucb-mnl"),
    ):
        kwargs = {"n_items": 20, "capacity": 4, "dim": 5} if "Assortment" in env_id else {}
        old = Lockstep(env_id, agent, 16, late + 20_000, **kwargs)
        old.run(late)
        costs = []
        for _ in range(repeats):
            young = Lockstep(env_id, agent, 16, late + 20_000, **kwargs)
            young.run(1000)
            costs.append(young.run(2000) / old.run(2000))
        report(
            rows,
            f"{agent}: cost per round at t={late:,} / at t=1,000",
            statistics.median(costs),
            "<= 1.2",
        )

    ours = ("import gymnasium", "import gymnasium, dpb_gym")
    report(rows, "import dpb_gym beyond import gymnasium", import_seconds(ours, 9), "<= 0.15", "s")
    helped = ("pass", "import sys; sys.argv=['dpb','--help']; from dpb_gym.cli import main; main()")
    report(rows, "dpb --help beyond starting Python", import_seconds(helped, 9), "<= 0.5", "s")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
