"""Sentences of `dpb_gym.advise` on the logs at hand, beside the truth that they are about.

``python benchmarks/advice.py`` runs the logs that docs/results/advice.json lacks, and writes the
tables and pictures of docs/own-data.md from it. Public logs lie below DPB_DATA. ``--log NAME`` runs
a log again, ``--coverage 16`` generates 16 logs and counts the intervals that contain the truth.
Seeds are used for nothing else.

Truths are means over `OTHERS` other replicates with `DRAWS` draws of the coefficients, 16 of them
those of the advice. For generated logs they are also means for customers of the demand that
generated the log: its model is fitted to a hundred times as many rows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from marked import put
from paper_pages import code

import dpb_data
import dpb_gym
from dpb_data import synthetic
from dpb_gym.planning.advice import BASE, RANDOM, SINGLE, Advice

REPOSITORY = Path(__file__).parents[1]
PAGE, STORED = REPOSITORY / "docs/own-data.md", REPOSITORY / "docs/results/advice.json"
SEED, OTHERS, DRAWS, ROUNDS = 10**7, 64, 64, 10_000
PICTURES = {
    "Open Bandit, men": "advice-open-bandit.png",
    "Swissmetro": "advice-swissmetro.png",
    "ModeCanada": "advice-mode-canada.png",
    "synthetic-loans": "advice-loans.png",
}
CAR = {"outside": "car", "revenue": "cost", "capacity": 2}
LOGS: dict[str, tuple[str, dict[str, Any]]] = {
    "Open Bandit, men": ("obd-men/random/men.csv.gz", {}),
    "Open Bandit, men, bts": ("obd-men/bts/men.csv.gz", {}),
    "Swissmetro": (
        "choice/swissmetro.csv.gz",
        {"outside": "CAR", "revenue": "CO", "capacity": 1, "currency": "CHF"},
    ),
    "ModeCanada": ("choice/ModeCanada.csv.gz", CAR | {"currency": "CAD"}),
    "synthetic-loans": ("synthetic-loans", {}),
    "synthetic-mode-canada": ("synthetic-mode-canada", CAR),
    "synthetic-open-bandit": ("clicks.csv", {}),
    "synthetic-movielens": ("synthetic-movielens", {}),
}
GENERATORS: dict[str, Any] = {
    "synthetic-loans": lambda: synthetic.loans(400_000),
    "synthetic-mode-canada": lambda: synthetic.mode_canada(60_000),
    "synthetic-open-bandit": lambda: synthetic.open_bandit(300_000)[0],
}
QUOTES, COVERED = 2000, ("eps=1,delta=1e-6", "eps=4,delta=1e-6")
SETTINGS: dict[str, Any] = {
    "bounds": {"price": (0, 10), "age": (18, 80), "visits": (0, 12)},
    "features": ["age", "visits"], "horizon": QUOTES, "progress": False,
}  # fmt: skip


def command(name: str) -> str:
    """Return the command that prints the sentences of a log."""
    source, settings = LOGS[name]
    own = [f"--set {k}={v}" for k, v in settings.items() if k != "currency"]
    own += [f"--currency {settings['currency']}"] if "currency" in settings else []
    return " ".join(["dpb advise", source, *own])


def losses(log: str, agents: dict[str, Any], horizon: int, **kwargs: Any) -> dict[str, list[float]]:
    """Return each agent's loss in percent of what `BASE` earns, and two standard errors."""
    result = dpb_gym.evaluate(
        log, agents, horizon, OTHERS, SEED, [horizon], kwargs, workers=1, progress=False
    )
    rows = {row.agent: row for row in result.rows}
    base = rows.pop(BASE)
    found = {}
    for label, row in rows.items():
        lost = 100.0 * (row.regret - base.regret)[:, -1] / base.reward[:, -1].mean()
        found[label] = [float(lost.mean()), 2.0 * float(lost.std(ddof=1) / np.sqrt(len(lost)))]
    return found


def known(name: str, advice: Advice) -> str:
    """Return the environment of the demand that generated a log, in the units of its advice."""
    source, settings = LOGS[name]
    problem = dpb_gym.make_problem(advice.log)
    roles = dpb_gym.advise(source, dry_run=True, **settings)
    own = {k: v for k, v in settings.items() if k != "currency"} | roles.columns
    bounds = problem.bounds  # type: ignore[attr-defined]
    return dpb_gym.from_log(GENERATORS[name](), roles.problem, bounds=bounds, **own)


def run(name: str) -> dict[str, Any]:
    """Return the sentences on a log with their truths, and draw its picture."""
    source, settings = LOGS[name]
    advice = dpb_gym.advise(source, **settings)
    if name in PICTURES:
        advice.plot(REPOSITORY / "docs/_static" / PICTURES[name])
    run_again = [e for e in advice.earnings if e.label not in (SINGLE, RANDOM)]
    agents: dict[str, Any] = {e.label: (e.agent, e.label) for e in run_again[1:]}
    agents |= {BASE: (run_again[0].agent, None), RANDOM: RANDOM}
    modelled = hasattr(dpb_gym.make_problem(advice.log), "fit")
    fitted = {"draws": DRAWS, "part": "held-out"} if modelled else {}
    worlds: dict[str, tuple[str, dict[str, Any]]] = {"simulated": (advice.log, fitted)}
    if name in GENERATORS:
        worlds["generated"] = known(name, advice), {}
    rows = []
    if advice.thin:
        some = {label: agents[label] for label in (BASE, RANDOM)}
        (needed,) = re.findall("bout ([0-9,]+) such customers", advice.thin) or ["0"]
        count = int(needed.replace(",", ""))
        truths = {
            world: {str(T): losses(log, some, T, **kwargs)[RANDOM] for T in (ROUNDS, count) if T}
            for world, (log, kwargs) in worlds.items()
        }
        rows.append({"sentence": advice.thin, "truths": truths, "customers": count})
    else:
        found = {w: losses(log, agents, ROUNDS, **kwargs) for w, (log, kwargs) in worlds.items()}
        for e, sentence in zip(advice.earnings[1:], advice.sentences[:-2]):
            truths = {world: lost[e.label] for world, lost in found.items()}
            said = [e.lost.low, e.lost.high]
            rows.append({"sentence": sentence, "interval": said, "truths": truths})
    names = sorted({agent if isinstance(agent, str) else agent[0] for agent in agents.values()})
    return {
        "command": command(name), "replicates": OTHERS, "rows": rows,
        "doubts": list(advice.warnings),
        "agents": {agent: code(agent) for agent in names},
    }  # fmt: skip


def is_right(row: dict[str, Any]) -> bool:
    """Return whether the truths agree with a sentence.

    They lie in its interval, up to two standard errors of their own; or, for a log that is too
    thin, an agent beats random choices with as many customers as the sentence names.
    """
    if "interval" in row:
        low, high = row["interval"]
        return all(low - error <= mean <= high + error for mean, error in row["truths"].values())
    last = [found[str(row["customers"])] for found in row["truths"].values() if row["customers"]]
    return all(mean > error for mean, error in last)


def table(data: dict[str, Any]) -> str:
    """Return the rows of the page: log, sentence, truths, and whether they agree."""
    lines = ["| log | sentence | truth | right |", "|---|---|---|---|"]
    for name, log in data["logs"].items():
        for row in log["rows"]:
            said = "; ".join(f"{world}: {_truth(row, t)}" for world, t in row["truths"].items())
            lines.append(
                f"| {name} | {row['sentence']} | {said} | {'yes' if is_right(row) else 'no'} |"
            )
    rows = [row for log in data["logs"].values() for row in log["rows"]]
    count = data["coverage"]
    right = f"{sum(map(is_right, rows))} of {len(rows)} sentences are right."
    said = (
        f"{right} On {count['logs']} generated logs of {QUOTES:,} quotes, {count['contained']} of "
        f"{count['intervals']} intervals contain the true loss."
    )
    lines += ["", said]
    return "\n".join(lines)


def _truth(row: dict[str, Any], truth: Any) -> str:
    if "interval" in row:
        return f"{truth[0]:.2f}% ± {truth[1]:.2f}"
    return ", ".join(f"random loses {mean:.1f}% ± {error:.1f} in {int(T):,}"
                     for T, (mean, error) in truth.items())  # fmt: skip


def examples(data: dict[str, Any]) -> str:
    """Return command, first sentence, doubts and picture of the documented logs."""
    parts = []
    for name, picture in PICTURES.items():
        log = data["logs"][name]
        said = [log["rows"][0]["sentence"], *(f"Doubt: {doubt}." for doubt in log["doubts"])]
        parts += [f"**{name}**: `{log['command']}`", " ".join(said),
                  f"![Earnings on {name}](_static/{picture})"]  # fmt: skip
    return "\n\n".join(parts)


def quotes(count: int, seed: int) -> dict[str, Any]:
    """Return generated quotes; the utility of buying is linear in price, age and visits."""
    rng = np.random.default_rng(seed)
    price, age = rng.uniform(1, 10, count), rng.uniform(18, 80, count)
    visits = rng.integers(0, 13, count)
    utility = 1.5 - 0.55 * price + 0.03 * (age - 50) + 0.12 * visits
    bought = (rng.random(count) < 1 / (1 + np.exp(-utility))).astype(int)
    return {"price": price, "bought": bought, "age": age, "visits": visits}


@cache
def truth(base: str, agent: str, budget: str) -> float:
    """Return the loss in percent for customers of the demand of `quotes`."""
    log = dpb_gym.from_log(quotes(400_000, 10**6), "pricing", **SETTINGS)
    return losses(log, {BASE: (base, None), budget: (agent, budget)}, QUOTES)[budget][0]


def coverage(logs: int) -> dict[str, int]:
    """Return how many intervals on generated logs contain the truth."""
    contained = []
    for seed in range(logs):
        advice = dpb_gym.advise(
            quotes(QUOTES, seed), budgets=COVERED, replicates=32, seed=1000 * seed, **SETTINGS
        )
        for e in advice.earnings[1 : 1 + len(COVERED)]:
            mean = truth(advice.earnings[0].agent, e.agent, e.label)
            contained.append(e.lost.low <= mean <= e.lost.high)
            print(
                f"{seed} {e.label}: [{e.lost.low:.1f}, {e.lost.high:.1f}], {mean:.2f}", flush=True
            )
    return {"logs": logs, "intervals": len(contained), "contained": sum(contained)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--log", choices=LOGS, action="append", default=[])
    parser.add_argument("--coverage", type=int, help="logs to generate")
    options = parser.parse_args()
    data = json.loads(STORED.read_text()) if STORED.exists() else {"logs": {}, "coverage": {}}
    if options.coverage:
        data["coverage"] = coverage(options.coverage)
    with tempfile.TemporaryDirectory() as folder:
        dpb_data.write_sample("synthetic-open-bandit", Path(folder) / "clicks.csv")
        os.chdir(folder)
        for name in options.log or [n for n in LOGS if n not in data["logs"]]:
            data["logs"][name] = run(name)
            STORED.write_text(json.dumps(data, indent=1) + "\n")
    STORED.write_text(json.dumps(data, indent=1) + "\n")
    put(PAGE, "truths", table(data))
    put(PAGE, "examples", examples(data))


if __name__ == "__main__":
    main()
