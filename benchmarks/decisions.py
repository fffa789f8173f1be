"""Slowest decision of a served agent in a fresh process with an empty cache of kernels.

    python benchmarks/decisions.py [--decisions 2000] [AGENT ...]

Each agent is served in its own process: private if it takes a budget, otherwise non-private. The
time of `serve` contains compilation. A decision contains learning from the response before it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

AGENTS = ("one-pass-pricing", "one-pass-mnl", "one-pass-linear", "adaprivate-ts", "glm-ucb-pricing")


def measure(name: str, decisions: int) -> dict[str, float]:
    """Return seconds of `serve`, of decisions, and of compilation after `serve`."""
    import numpy as np

    import dpb_gym
    from dpb_gym.kernel_cache import spent
    from dpb_gym.registry import agent_spec

    envs = {"pricing": "DPB/Pricing-v0", "assortment": "DPB/Assortment-v0"}
    spec = agent_spec(name)
    env_id = "DPB/MultiArmed-v0" if spec.fixed_arms else "DPB/Recommendation-v0"
    env_id = envs.get(spec.supports[0], env_id)
    users = {} if spec.supports[0] in envs else {"interactions_per_user": 1}
    info = dpb_gym.make_problem(env_id, horizon=max(decisions, 10_000), **users).info
    budget = None if spec.budget == "never" else "eps=5,delta=1e-5"
    rng, seconds = np.random.default_rng(0), []
    start = time.perf_counter()
    session = dpb_gym.serve(name, budget, info, noise="seeded", seed=0)
    served = time.perf_counter() - start
    before = spent.wall
    for _ in range(decisions):
        if info.kind == "assortment":
            features = rng.random((info.n_items, info.dim)) / info.dim
        elif info.kind == "pricing":
            features = rng.random(info.dim - 1) / info.dim
        else:
            features = rng.random((info.n_candidates, info.dim)) / info.dim
        revenues = None if info.equal_revenues is not False else rng.random(info.n_items)
        given = {} if revenues is None else {"revenues": revenues}
        if info.max_interactions is not None:
            given["user"] = session.decisions
        if info.n_arms:
            given["arms"] = rng.permutation(info.n_arms)[: info.n_candidates]
        start = time.perf_counter()
        decision, action = session.decide(features, **given)
        seconds.append(time.perf_counter() - start)
        if info.kind == "assortment":
            response = action[0] if rng.random() < 0.5 else None
        else:
            response = int(rng.random() < 0.5)
        session.observe(decision, response)
    order = sorted(seconds)
    return {"serve": served, "worst": order[-1], "second": order[-2],
            "median": order[decisions // 2], "late": spent.wall - before,
            "at": seconds.index(order[-1]) + 1}  # fmt: skip


def fresh(name: str, count: int) -> dict[str, float]:
    """Return `measure` of a process with an empty cache of kernels."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--here", name, f"--decisions={count}"]
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        done = subprocess.run(command, check=True, capture_output=True, env=environment)
    times: dict[str, float] = json.loads(done.stdout)
    return times


def main() -> None:
    """Measure every agent in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="*", default=AGENTS)
    parser.add_argument("--decisions", type=int, default=2000)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(measure(args.agents[0], args.decisions)))
        return
    print(f"{'agent':<24}{'serve':>9}{'median':>11}{'worst':>11}  of {args.decisions:,} decisions")
    for name in args.agents:
        times = fresh(name, args.decisions)
        print(
            f"{name:<24}{times['serve']:>7.1f} s{1e3 * times['median']:>8.2f} ms"
            f"{1e3 * times['worst']:>8.2f} ms  decision {times['at']:,}, "
            f"{times['late']:.1f} s of compilation after serve()",
            flush=True,
        )


if __name__ == "__main__":
    main()
