"""Our agents on problems without tuning: designs, norms, sizes and horizons, at several budgets.

``python benchmarks/robustness.py`` prints the tables of docs/agents/robustness.md, from tuning
seeds. Cases are stored in ``--out`` (results/robustness), so that an interrupted run resumes.
``--track``, ``--case`` and ``--replicates`` select parts; ``--long`` adds cases of a million
rounds, a thousand items or fifty dimensions.

Failures: `random`: worse than random choice by more than the paired 95% interval. `tail`: the last
tenth of the rounds has more than a tenth of the first's regret, and more than a thousandth of that
of random choice. `twice`: at rho = 1 more than twice the regret of the best non-private agent, and
whether that is within the paired interval.

``--suite RESULT`` uses a result of the suite robustness-v0, of all tasks or a few. It updates their
cells in the table of docs/conditions.md and draws docs/_static/robustness.png from it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from marked import block, put
from numpy.typing import NDArray
from scipy.special import stdtrit

import dpb_gym

SEED = 1_500_000
BUDGETS = ["rho=0.005", "rho=0.02", "rho=1", "rho=5", "none"]
JUDGED = "rho=1"
ENVIRONMENTS = {
    "assortment": "DPB/Assortment-v0",
    "pricing": "DPB/Pricing-v0",
    "recommendation": "DPB/Recommendation-v0",
}
OURS = {
    "assortment": ["one-pass-mnl"],
    "pricing": ["one-pass-pricing"],
    "recommendation": ["one-pass-linear", "one-pass-linear-joint"],
}
# Non-private competitors, at a good point of their grids for the arena's tasks.
FREE: dict[str, dict[str, dict[str, Any]]] = {
    "assortment": {"greedy-mnl": {}, "ucb-mnl": {"scale": 0.05}},
    "pricing": {
        "greedy-pricing": {"explore": 0, "ridge": 4.0},
        "glm-ucb-pricing": {"explore": 0, "gamma": 0.1, "growth": 1.5, "ridge": 4.0},
    },
    "recommendation": {"lin-greedy": {}, "lin-ucb": {"alpha": 0.1, "centre": True}},
}
BASE: dict[str, dict[str, Any]] = {
    "assortment": {"horizon": 10_000, "n_items": 100, "capacity": 10, "dim": 5},
    "pricing": {"horizon": 10_000, "dim": 5},
    "recommendation": {"horizon": 10_000, "dim": 10},
}


def rows(track: str, design: str, horizon: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return features ``(horizon, *shape)`` of a design that the environments do not have."""
    rng = np.random.default_rng(20)
    d = shape[-1]
    x = rng.standard_normal((horizon, *shape), np.float32)
    if design == "correlated":
        x = np.sqrt(0.1) * x + np.sqrt(0.9) * x[..., :1]
    elif design == "rank 2":
        x = x[..., :2] @ rng.standard_normal((2, d), np.float32)
    elif design == "scales":
        x *= np.logspace(0, -2, d, dtype=np.float32)
    elif design == "heavy":
        x = rng.standard_t(2.0, (horizon, *shape)).astype(np.float32)
    if track == "pricing":  # customers are in a box
        return np.asarray(np.clip(0.5 * x, -1.0, 1.0), np.float32)
    return x


def theta(track: str, norm: float, dim: int) -> list[float]:
    """Return a parameter of a given norm for which demand decreases with the price."""
    direction = np.where(np.arange(dim) % 2 == 0, 1.0, -0.6)
    if track == "pricing":
        direction[-1] = 2.0
    return [float(v) for v in norm * direction / np.linalg.norm(direction)]


def cases(track: str, long: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return names and environment parameters of a track's cases."""
    base = BASE[track]
    yield "as it is", base
    width = base["dim"] - (track == "pricing")
    shape = {"assortment": (100, width), "pricing": (width,), "recommendation": (5, width)}[track]
    name = "customers" if track == "pricing" else "contexts"
    for design in ("correlated", "rank 2", "scales", "heavy"):
        if track != "assortment" or long:  # a hundred items of ten thousand rounds are 20 MB
            yield f"features {design}", base | {name: (design, base["horizon"], shape)}
    if track == "assortment" and not long:
        for design in ("correlated", "rank 2", "scales", "heavy"):
            small = base | {"n_items": 20, "capacity": 4}
            yield f"features {design}, N = 20", small | {name: (design, 10_000, (20, width))}
    for norm in (0.3, 1.0, 3.0, 10.0):
        yield f"norm of theta {norm:g}", base | {"theta": theta(track, norm, base["dim"])}
    yield "d = 2", base | {"dim": 2}
    yield "T = 1,000", base | {"horizon": 1000}
    if track == "assortment":
        yield "K = 1", base | {"capacity": 1}
        yield "K = N / 2", base | {"capacity": 50}
        yield "N = 5", base | {"n_items": 5, "capacity": 2}
        yield "uneven revenues", base | {"revenues": "random"}
    if track == "pricing":
        yield "zeta = 30", base | {"zeta": 30.0}
        yield "drifting customers", base | {"customers": "drifting"}
        yield "switched customers", base | {"customers": "switched"}
    if track == "recommendation":
        yield "two candidates", base | {"n_candidates": 2}
        yield "switched candidates", base | {"contexts": "switched", "fresh": True}
    if not long:
        return
    yield "d = 50", base | {"dim": 50} | ({"zeta": 16.0} if track == "pricing" else {})
    yield "T = 1,000,000", base | {"horizon": 1_000_000}
    if track == "assortment":
        yield "N = 1,000", base | {"n_items": 1000}


def play(track: str, parameters: dict[str, Any], replicates: int) -> dict[str, list[list[float]]]:
    """Return the regret at a tenth, nine tenths and all of the rounds, per agent and budget."""
    kwargs = dict(parameters)
    for name in ("customers", "contexts"):
        if isinstance(kwargs.get(name), tuple):
            kwargs[name] = rows(track, *kwargs[name])
    T = kwargs.pop("horizon")
    agents: dict[str, Any] = {name: name for name in OURS[track]}
    agents |= {name: (name, None, own) for name, own in FREE[track].items()}
    result = dpb_gym.evaluate(
        ENVIRONMENTS[track],
        agents | {"random": "random"},
        horizon=T,
        replicates=replicates,
        seed=SEED,
        checkpoints=[T // 10, T - T // 10, T],
        env_kwargs=kwargs,
        budgets=BUDGETS,
        progress=False,
    )
    found: dict[str, list[list[float]]] = {}
    for row in result.records():
        curves = found.setdefault(
            f"{row['agent']} {row['budget']}", [[] for _ in range(replicates)]
        )
        curves[row["replicate"]].append(row["regret"])
    return found


def beyond(difference: NDArray[np.float64]) -> bool:
    """Return whether a paired difference is above 0 by more than its 95% interval."""
    n = len(difference)
    half = stdtrit(n - 1, 0.975) * difference.std(ddof=1) / np.sqrt(n)
    return bool(difference.mean() > half)


def tail(curve: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean regret of the last tenth, relative to the first tenth and absolute."""
    last = float((curve[:, 2] - curve[:, 1]).mean())
    return last / max(float(curve[:, 0].mean()), 1e-12), last


def line(track: str, agent: str, case: str, found: dict[str, list[list[float]]]) -> str:
    """Return one row of a table."""
    curves = {key: np.array(value) for key, value in found.items()}
    random = curves["random none"][:, -1]
    free = {name: curves[f"{name} none"][:, -1] for name in FREE[track]}
    best = min(free, key=lambda name: free[name].mean())
    cells, misses = [], []
    for budget in BUDGETS:
        curve = curves[f"{agent} {budget}"]
        total = curve[:, -1]
        cells.append(f"{total.mean():.3g}")
        if beyond(total - random):
            misses.append(f"random at {budget}")
        ratio, last = tail(curve)
        if ratio > 0.1 and last > 0.001 * random.mean():
            misses.append(f"tail {ratio:.2f} at {budget}")
        if budget == JUDGED and total.mean() > 2.0 * free[best].mean():
            sure = "" if beyond(total - 2.0 * free[best]) else " (within the interval)"
            misses.append(f"twice: {total.mean() / free[best].mean():.2g}{sure}")
    late = tail(curves[f"{best} none"])[0]
    theirs = f"{best}, tail {'> 100' if late > 100 else f'{late:.2f}'}"
    yard = f"{free[best].mean():.3g} ({theirs}) | {random.mean():.3g}"
    return f"| {case} | {' | '.join(cells)} | {yard} | {'; '.join(misses) or '-'} |"


def shares(result: dpb_gym.Result) -> dict[tuple[str, str], float]:
    """Return mean regret in percent of random choice, by condition and agent; * is private."""
    final: dict[tuple[str, str], list[float]] = {}
    for row in result.records():
        if row["round"] == 2000:
            name = row["agent"] + " *" * (row["budget"] != "none")
            final.setdefault((row["task"], name), []).append(row["regret"])
    return {
        (task.partition("-")[2], name): 100.0
        * float(np.mean(values) / np.mean(final[task, "Random"]))
        for (task, name), values in final.items()
        if name not in ("Random", "Oracle")
    }


def renewed(page: Path, found: dict[tuple[str, str], float]) -> list[list[str]]:
    """Return the page's table with these cells; new rows and columns come last."""
    text = block(page.read_text(encoding="utf-8"), "robustness")
    lines = text.replace("\\*", "*").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line]
    names, table = rows[0][1:], {row[0]: row[1:] for row in rows[2:]}
    names += [name for name in dict.fromkeys(name for _, name in found) if name not in names]
    for (condition, name), value in found.items():
        row = table.setdefault(condition, [])
        row += [""] * (len(names) - len(row))
        row[names.index(name)] = f"{value:.0f}"
    filled = [[name, *row, *[""] * (len(names) - len(row))] for name, row in table.items()]
    return [["condition", *names], *filled]


def draw(table: list[list[str]], picture: Path) -> None:
    """Draw a heat map of the table."""
    from matplotlib.figure import Figure

    agents, conditions = table[0][1:], [row[0] for row in table[1:]]
    values = np.array([[float(cell or "nan") for cell in row[1:]] for row in table[1:]])
    figure = Figure(figsize=(7.2, 0.27 * len(conditions) + 1.7), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(np.sqrt(np.minimum(values, 100.0)), cmap="Blues", vmin=0, vmax=14, aspect="auto")
    for i, row in enumerate(table[1:]):
        for j, number in enumerate(row[1:]):
            axes.text(j, i, number, ha="center", va="center", fontsize=7.5)
    axes.set_xticks(range(len(agents)), agents, rotation=38, ha="left", fontsize=7.5)
    axes.set_yticks(range(len(conditions)), conditions, fontsize=8)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("regret in percent of random play's; * private", fontsize=8)
    figure.savefig(picture, dpi=200, metadata={"Software": None})


def show_suite(folder: Path, repository: Path) -> None:
    """Write the regret under each condition, as a table and as a picture."""
    page = repository / "docs/conditions.md"
    table = renewed(page, shares(dpb_gym.Result.load(folder)))
    ruled = [table[0], ["---"] * len(table[0]), *table[1:]]
    text = "\n".join(f"| {' | '.join(row)} |" for row in ruled)
    put(page, "robustness", text.replace("*", "\\*"))
    draw(table, repository / "docs/_static/robustness.png")


def main() -> None:
    """Play the missing cases and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", default="results/robustness", type=Path)
    parser.add_argument("--track", choices=list(OURS))
    parser.add_argument("--case")
    parser.add_argument("--replicates", type=int, default=8)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--suite", type=Path)
    parser.add_argument("--repository", type=Path, default=Path())
    options = parser.parse_args()
    if options.suite is not None:
        show_suite(options.suite, options.repository)
        return
    for track, ours in OURS.items():
        if options.track not in (None, track):
            continue
        found: dict[str, Any] = {}
        for case, parameters in cases(track, options.long):
            if options.case not in (None, case):
                continue
            folder = options.out / f"{options.replicates}"
            path = folder / f"{track} {case}.json".replace(" ", "-").replace("/", "-").replace(
                ",", ""
            )
            if not path.exists():
                print(f"{track}: {case}", file=sys.stderr, flush=True)
                played = play(track, parameters, options.replicates)
                folder.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(played), encoding="utf-8")
            found[case] = json.loads(path.read_text(encoding="utf-8"))
        for agent in ours:
            print(f"\n`{agent}`, {options.replicates} replicates\n")
            print(f"| case | {' | '.join(BUDGETS)} | best non-private | random | misses |")
            print("|---" * (len(BUDGETS) + 4) + "|")
            for case, curves in found.items():
                print(line(track, agent, case, curves))


if __name__ == "__main__":
    main()
