"""Time of a decision and its response: a session, a service, HTTP, and LinUCB as in OBP.

    python benchmarks/service_speed.py [--customers 3000] [--http] [--write]

The problem has five arms and 20 features. Times are of the processor, and the smallest of several
runs. The loop of five ridge regressions does what `LinUCB` of Open Bandit Pipeline 0.5.7 does for
one customer. With ``--http`` a server and its client run at the same time, and need an idle core
each. ``--write`` puts the table into docs/service.md.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml

ARMS, FEATURES = 5, 3
PAGE = Path(__file__).parents[1] / "docs" / "service.md"
CONFIG = {
    "agent": "lin-ucb",
    "budget": "none",
    "problem": {
        "kind": "recommendation",
        "horizon": 10_000_000,
        "reward_range": [0, 1],
        "actions": [f"arm {n}" for n in range(ARMS)],
        "features": {f"feature {n}": [0, 1] for n in range(FEATURES)},
    },
}


class Ridges:
    """One ridge regression per arm, with the operations of OBP's `LinUCB`."""

    def __init__(self, dim: int) -> None:
        self.inverse = np.concatenate([np.identity(dim)] * ARMS).reshape(ARMS, dim, dim)
        self.b = np.zeros((dim, ARMS))

    def decide(self, context: np.ndarray) -> int:
        theta = np.concatenate(
            [self.inverse[n] @ self.b[:, n][:, np.newaxis] for n in range(ARMS)], axis=1
        )
        width = np.concatenate(
            [np.sqrt(context @ self.inverse[n] @ context.T) for n in range(ARMS)], axis=1
        )
        scores = (context @ theta + width).flatten()
        return int(scores.argsort()[::-1][0])

    def observe(self, action: int, reward: float, context: np.ndarray) -> None:
        inverse = self.inverse[action]
        change = inverse @ context.T @ context @ inverse
        self.inverse[action] = inverse - change / (1 + context @ inverse @ context.T)[0][0]
        self.b[:, action] += reward * context.flatten()


def smallest(play: Callable[[], None], customers: int, runs: int = 7) -> float:
    """Return microseconds of the processor per customer, the smallest of several runs."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        play()
        times.append(1e6 * (time.process_time() - start) / customers)
    return min(times)


def in_process(customers: int, folder: Path) -> dict[str, float]:
    """Return microseconds per decision and response."""
    from dpb_gym.service import DecisionService, ServiceSettings

    rng = np.random.default_rng(0)
    values = rng.random((customers, FEATURES))
    contexts = rng.normal(size=(customers, 1, ARMS * (1 + FEATURES)))
    contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)
    rows = [{"features": {f"feature {n}": float(x) for n, x in enumerate(row)}} for row in values]
    (folder / "shop.yaml").write_text(yaml.safe_dump(CONFIG))
    service = DecisionService(ServiceSettings.read(folder / "shop.yaml"))
    ridges = Ridges(contexts.shape[2])
    arguments = [service.bodies.decide(row)[0] for row in rows]

    def peer() -> None:
        for context in contexts:
            action = ridges.decide(context)
            ridges.observe(action, float(action == 1), context)

    def session() -> None:
        for given in arguments:
            number, action = service.session.decide(**given)
            service.session.observe(number, float(action == 1))

    def served() -> None:
        for row in rows:
            (answer,) = service.decide(row)
            response = float(answer["action"] == "arm 1")
            service.observe({"decision": answer["decision"], "response": response})

    plays = {"five ridge regressions": peer, "session": session, "service, with journal": served}
    answer = {name: smallest(play, customers) for name, play in plays.items()}
    service.close()
    return answer


def over_http(customers: int, folder: Path) -> dict[str, float]:
    """Return milliseconds: median and 99% of requests, and processor of the server per request."""
    import http.client

    command = [sys.executable, "-m", "dpb_gym", "serve", str(folder / "shop.yaml"), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    port = 0
    for line in server.stderr:
        if reply := re.search(r"http://[\d.]+:(\d+)", line):
            port = int(reply[1])
            break
    client = http.client.HTTPConnection("127.0.0.1", port)
    seconds = []

    def post(path: str, body: object) -> bytes:
        start = time.perf_counter()
        client.request("POST", path, json.dumps(body))
        content = client.getresponse().read()
        seconds.append(time.perf_counter() - start)
        return content

    rng = np.random.default_rng(0)
    used = 0.0
    for number in range(customers + 200):
        if number == 200:
            seconds.clear()
            used = processor(server.pid)
        row = {f"feature {n}": float(x) for n, x in enumerate(rng.random(FEATURES))}
        reply = json.loads(post("/decide", {"features": row}))
        post("/observe", {"decision": reply["decision"], "response": number % 2})
    used = processor(server.pid) - used
    server.terminate()
    server.communicate()
    order = sorted(seconds)
    return {
        "median": 1e3 * order[len(order) // 2],
        "99%": 1e3 * order[int(0.99 * len(order))],
        "processor": 1e3 * used / len(order),
    }


def processor(process: int) -> float:
    """Return the seconds of the processor that a process has used (Linux)."""
    import os

    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--customers", type=int, default=3000)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = in_process(args.customers, folder)
        first = costs["five ridge regressions"]
        lines = ["| decide and observe | processor | of the loop |", "|---|---|---|"]
        lines += [f"| {k} | {v:.0f} µs | {v / first:.2f} |" for k, v in costs.items()]
        if args.http:
            times = over_http(args.customers, folder)
            lines += [
                "",
                f"Over HTTP, with each answer on the disk, the median request takes "
                f"{times['median']:.1f} ms and 99% take at most {times['99%']:.1f} ms. The server "
                f"uses {times['processor']:.2f} ms of the processor per request.",
            ]
    table = "\n".join(lines)
    print(table)
    if args.write:
        start, end = "<!-- service speed -->", "<!-- /service speed -->"
        before, _, rest = PAGE.read_text().partition(start)
        PAGE.write_text(f"{before}{start}\n{table}\n{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    main()
