"""Growth of the cost of privacy with the horizon, the budget and the dimension.

``python benchmarks/growth.py --replicates 12`` plays all agents, stores the excess of every
replicate in docs/results/growth.json, and writes the tables and the picture of
docs/where-ours-loses.md.
``--only AGENT`` plays one again; without ``--replicates`` the page is written from what is stored.
A test compares the digests of the agents with the code of today.

The excess of an agent is the paired difference between its regret and that of its non-private
version on the same customers. An exponent is the least-squares slope of log mean excess on the
logarithm of T, rho or d, with a 95% t-interval from the jackknife over replicates.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from marked import put
from numpy.typing import NDArray
from paper_pages import code

import dpb_gym
from dpb_gym.papers.pairing import interval, leave_one_out
from dpb_gym.report.figure_layout import scale_axes
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.palette import shade

REPOSITORY = Path(__file__).parents[1]
STORED = REPOSITORY / "docs/results/growth.json"
HORIZONS = (2_500, 5_000, 10_000, 20_000, 40_000)
RHOS = (0.0125, 0.05, 0.2, 0.8)
MIDDLE_T, MIDDLE_RHO = 10_000, 0.05
FIRST_SEED = 5_000


@dataclass(frozen=True)
class Case:
    """An agent, its non-private version, and the exponents of its paper's regret bound.

    Attributes:
        agent: Registered name.
        exact: Agent without a budget: itself, or the same policy with exact releases.
        env: Environment.
        dims: Dimensions; the middle one is used when T or rho varies.
        theorem: Exponents in T, rho and d, as printed; logarithms count as 0.
    """

    agent: str
    exact: str
    env: str
    dims: tuple[int, ...]
    theorem: tuple[float, float, float]


ASSORTMENT = ("DPB/Assortment-v0", (3, 5, 8, 12), (0.5, -1.0, 2.5))
PRICING = ("DPB/Pricing-v0", (2, 3, 4, 6), (0.5, -0.5, 1.5))
RECOMMENDATION = ("DPB/Recommendation-v0", (10, 20, 40), (0.0, -0.5, 0.5))
CASES = (
    Case("one-pass-mnl", "one-pass-mnl", *ASSORTMENT),
    Case("dpmnl", "ucb-mnl", *ASSORTMENT),
    Case("one-pass-pricing", "one-pass-pricing", *PRICING),
    Case("private-pricing", "greedy-pricing", *PRICING),
    Case("one-pass-linear", "one-pass-linear", *RECOMMENDATION),
    Case("adaprivate-ts", "lin-ts", *RECOMMENDATION),
)


def excess(case: Case, horizon: int, rho: float, dim: int, replicates: int) -> NDArray[np.float64]:
    """Return the agent's regret minus that of its non-private version, per replicate ``(R,)``."""
    result = dpb_gym.evaluate(
        case.env,
        {"private": (case.agent, f"rho={rho!r}"), "exact": (case.exact, None)},
        horizon=horizon,
        replicates=replicates,
        seed=FIRST_SEED,
        checkpoints=[horizon],
        env_kwargs={"dim": dim},
        progress=False,
    )
    return np.asarray(result.final_regret("private") - result.final_regret("exact"))


def exponent(along: tuple[float, ...], samples: list[NDArray[np.float64]]) -> Interval | None:
    """Return the slope of log mean excess on log `along`, None if a mean is not positive."""
    means = np.array([leave_one_out(sample) for sample in samples])
    if (means <= 0).any():
        return None
    x = np.log(along) - np.log(along).mean()
    return interval(x @ np.log(means) / (x @ x), len(samples[0]))


def measured(case: Case, replicates: int) -> dict[str, tuple[tuple[float, ...], list[Any]]]:
    """Return the excess along T, rho and d, with the other two fixed."""
    middle = case.dims[len(case.dims) // 2 - (len(case.dims) % 2 == 0)]
    points: dict[str, list[tuple[int, float, int]]] = {
        "T": [(T, MIDDLE_RHO, middle) for T in HORIZONS],
        "rho": [(MIDDLE_T, rho, middle) for rho in RHOS],
        "d": [(MIDDLE_T, MIDDLE_RHO, d) for d in case.dims],
    }
    along = {"T": HORIZONS, "rho": RHOS, "d": case.dims}
    curves = {}
    for name, places in points.items():
        print(f"{case.agent}: {name}", file=sys.stderr, flush=True)
        curves[name] = (along[name], [excess(case, *place, replicates) for place in places])
    return curves


def draw(path: str, all_found: dict[str, dict[str, Any]]) -> None:
    """Draw excess with 95% intervals, one panel per variable and environment."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    figure = Figure(figsize=(9.5, 7.5), layout="constrained")
    grid = figure.subplots(3, 3, squeeze=False)
    for row in range(3):
        for place, case in enumerate(CASES[2 * row : 2 * row + 2]):
            for axes, (name, (along, excesses)) in zip(
                grid[row], all_found.get(case.agent, {}).items()
            ):
                samples = [np.asarray(sample) for sample in excesses]
                ends = [interval(leave_one_out(sample), len(sample)) for sample in samples]
                shown = [(a, e) for a, e in zip(along, ends) if e.mean > 0]
                # Clip at a hundredth of the mean, as a logarithmic axis has no zero.
                below = [min(e.mean - e.low, 0.99 * e.mean) for _, e in shown]
                axes.errorbar(
                    [a for a, _ in shown],
                    [e.mean for _, e in shown],
                    (below, [e.high - e.mean for _, e in shown]),
                    marker="os"[place],
                    ms=4,
                    label=case.agent,
                    color=shade(place)[0],
                )
                axes.set_xlabel(name)
                scale_axes(axes, True, True)
                axes.xaxis.set_major_locator(FixedLocator(along))
                axes.xaxis.set_minor_locator(NullLocator())
        grid[row][0].set_ylabel(f"excess regret\n{CASES[2 * row].env}", fontsize=8)
        grid[row][0].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=110)


def table(curves: dict[str, dict[str, Any]]) -> str:
    """Return the exponents, and the excess at every point, as tables of the page."""
    lines = ["| agent | exponent in T | bound | in rho | bound | in d | bound |", "|---" * 7 + "|"]
    points = ["| agent | non-private version | along | mean excess |", "|---" * 4 + "|"]
    for case in (case for case in CASES if case.agent in curves):
        cells = []
        for (name, (along, values)), theorem in zip(curves[case.agent].items(), case.theorem):
            samples = [np.asarray(sample) for sample in values]
            slope = exponent(tuple(along), samples)
            text = "–" if slope is None else f"{slope.mean:.2f} ± {slope.high - slope.mean:.2f}"
            cells += [text, f"{theorem:g}"]
            ends = [interval(leave_one_out(sample), len(sample)) for sample in samples]
            each = [f"{a:g}: {e.mean:.3g} ± {e.high - e.mean:.3g}" for a, e in zip(along, ends)]
            exact = "itself" if case.exact == case.agent else f"`{case.exact}`"
            points.append(f"| `{case.agent}` | {exact} | {name} | {'; '.join(each)} |")
        lines.append(f"| `{case.agent}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *points])


def main() -> None:
    """Play what is asked for, and write the page and the picture from what is stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--replicates", type=int, help="play again")
    parser.add_argument("--only", choices=[case.agent for case in CASES])
    options = parser.parse_args()
    data = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {"agents": {}, "cases": {}}
    for case in CASES if options.replicates else ():
        if options.only in (None, case.agent):
            played = measured(case, options.replicates)
            data["cases"][case.agent] = {
                name: [along, [[float(f"{v:.5g}") for v in sample] for sample in samples]]
                for name, (along, samples) in played.items()
            }
            data["agents"] |= {name: code(name) for name in (case.agent, case.exact)}
    STORED.write_text(json.dumps(data).replace("]], ", "]],\n") + "\n", encoding="utf-8")
    put(REPOSITORY / "docs/where-ours-loses.md", "growth", table(data["cases"]))
    draw(str(REPOSITORY / "docs/_static/growth.png"), data["cases"])


if __name__ == "__main__":
    main()
