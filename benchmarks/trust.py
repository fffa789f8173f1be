"""Measure one policy under four trust models, for docs/trust.md and its picture.

  python benchmarks/trust.py measure FILE   # about 12 minutes of processor time; resumes
  python benchmarks/trust.py write FILE     # table and picture from the file

A number is the mean final regret of 4 replicates over that of the best non-private agent on the
same customers, T = 10,000, default environments and parameters.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from marked import put

import dpb_gym

SEED, REPLICATES, HORIZON = 31_000, 4, 10_000
RHOS = ("rho=0.02", "rho=0.1", "rho=0.5", "rho=1")
EPSILONS = tuple(f"eps={e},delta=1e-5" for e in (0.5, 1, 2, 5))
TRUSTS = ("curator", "aggregator", "shuffler", "local")
# problem: environment, our agent, other non-private agents
PROBLEMS = {
    "pricing": ("DPB/Pricing-v0", "one-pass-pricing", ("ts-pricing",)),
    "assortment": ("DPB/Assortment-v0", "one-pass-mnl", ("ts-mnl",)),
    "recommendation, user-round": (
        "DPB/Recommendation-v0", "one-pass-linear-joint", ("lin-ts", "one-pass-linear"),
    ),
    "recommendation, reward": ("DPB/Recommendation-v0", "one-pass-linear", ("lin-ts",)),
}  # fmt: skip
PAGE = Path(__file__).parents[1] / "docs" / "trust.md"
PICTURE = PAGE.parent / "_static" / "trust.svg"


def budgets() -> list[str]:
    """Return the texts of all budgets."""
    return [f"{amount}@{trust}" for amount in (*RHOS, *EPSILONS) for trust in TRUSTS]


def skipped(problem: str, budget: str) -> bool:
    """Return whether a row is left out, to save time: many coordinates, discrete noise."""
    wide = problem.startswith("recommendation") and ("shuffler" in budget or "aggregator" in budget)
    middle = budget.startswith("eps") and ("shuffler" in budget or "aggregator" in budget)
    return middle or (wide and not budget.startswith(("rho=0.1@agg", "rho=1@agg")))


def regret(env: str, agent: str, budget: str) -> list[float]:
    """Return the final regret of every replicate."""
    result = dpb_gym.evaluate(
        env, {"agent": (agent, budget)}, horizon=HORIZON, replicates=REPLICATES, seed=SEED,
        workers=1, progress=False,
    )  # fmt: skip
    return [round(float(x), 3) for x in result.final_regret("agent")]


def measure(path: Path) -> None:
    """Add all numbers that the file lacks."""
    found = json.loads(path.read_text()) if path.exists() else {}
    for problem, (env, agent, others) in PROBLEMS.items():
        for name, budget in [(n, "none") for n in (agent, *others)] + [
            (agent, b) for b in budgets() if not skipped(problem, b)
        ]:
            key = f"{problem}|{name}|{budget}"
            if key not in found:
                found[key] = regret(env, name, budget)
                path.write_text(json.dumps(found, indent=1) + "\n")
                print(key, found[key], flush=True)


def multiples(found: dict[str, list[float]]) -> dict[tuple[str, str, str], float]:
    """Return the multiple of the best non-private regret by problem, trust model and amount."""
    best: dict[str, float] = {}
    means = {tuple(key.split("|")): sum(row) / len(row) for key, row in found.items()}
    for (problem, _, budget), mean in means.items():
        if budget == "none":
            best[problem] = min(mean, best.get(problem, mean))
    return {
        (problem, *budget.split("@")[::-1]): mean / best[problem]  # type: ignore[misc]
        for (problem, _, budget), mean in means.items()
        if budget != "none"
    }


def write(path: Path) -> None:
    """Write the table and the picture of the page."""
    import matplotlib.pyplot as plt

    found = multiples(json.loads(path.read_text()))
    heads = [*RHOS, *(e.split(",")[0] for e in EPSILONS)]
    lines = ["| problem | trusted | " + " | ".join(heads) + " |", "|---|---" + "|---" * 8 + "|"]
    for problem in PROBLEMS:
        for trust in TRUSTS:
            row = [found.get((problem, trust, amount)) for amount in (*RHOS, *EPSILONS)]
            if any(row):
                cells = ("-" if x is None else f"{x:.1f}" if x < 99.95 else f"{x:.0f}" for x in row)
                lines.append(f"| {problem} | {trust} | " + " | ".join(cells) + " |")
    put(PAGE, "trust", "\n".join(lines))
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), sharey=True)
    for place, problem in zip(axes, PROBLEMS):
        for trust, marker in zip(TRUSTS, "osD^"):
            row = [(b, found.get((problem, trust, b))) for b in RHOS]
            points = [(float(b[4:]), x) for b, x in row if x is not None]
            if points:
                place.plot(*zip(*points), marker=marker, label=trust)
        place.set(title=problem, xscale="log", yscale="log", xlabel="rho")
        place.set_xticks([float(b[4:]) for b in RHOS], [b[4:] for b in RHOS], minor=False)
        place.minorticks_off()
        place.axhline(1.0, color="grey", linewidth=0.8)
    axes[0].set_ylabel("regret over the best non-private")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("measure", "write"):
        raise SystemExit(__doc__)
    (measure if sys.argv[1] == "measure" else write)(Path(sys.argv[2]))
