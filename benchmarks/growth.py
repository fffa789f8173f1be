"""Growth of the cost of privacy with the horizon, the budget and the dimension.

``python benchmarks/growth.py`` prints the tables of docs/growth.md in Markdown; ``--plot FILE``
draws them; ``--replicates N`` and ``--only AGENT`` reduce the work. The excess of an agent is the
paired difference between its regret and that of its non-private version on the same customers. An
exponent is the least-squares slope of log mean excess on the logarithm of T, rho or d, with a 95%
t-interval from the jackknife over replicates.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpb_gym
from dpb_gym.papers.pairing import interval, leave_one_out
from dpb_gym.report.figure_layout import scale_axes
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.palette import shade

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
    return interval(x @ np.log(means) / (x @ x))


def measured(case: Case, replicates: int) -> dict[str, tuple[tuple[float, ...], list[Any]]]:
    """Return the excess along T, rho and d, with the other two fixed."""
    middle = case.dims[len(case.dims) // 2 - (len(case.dims) % 2 == 0)]
    points: dict[str, list[tuple[int, float, int]]] = {
        "T": [(T, MIDDLE_RHO, middle) for T in HORIZONS],
        "rho": [(MIDDLE_T, rho, middle) for rho in RHOS],
        "d": [(MIDDLE_T, MIDDLE_RHO, d) for d in case.dims],
    }
    along = {"T": HORIZONS, "rho": RHOS, "d": case.dims}
    found = {}
    for name, places in points.items():
        print(f"{case.agent}: {name}", file=sys.stderr, flush=True)
        found[name] = (along[name], [excess(case, *place, replicates) for place in places])
    return found


def draw(path: str, all_found: dict[str, dict[str, Any]]) -> None:
    """Draw excess with 95% intervals, one panel per variable and environment."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    figure = Figure(figsize=(9.5, 7.5), layout="constrained")
    grid = figure.subplots(3, 3, squeeze=False)
    for row in range(3):
        for place, case in enumerate(CASES[2 * row : 2 * row + 2]):
            for axes, (name, (along, found)) in zip(
                grid[row], all_found.get(case.agent, {}).items()
            ):
                ends = [interval(leave_one_out(sample)) for sample in found]
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


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--only", choices=[case.agent for case in CASES])
    parser.add_argument("--plot", metavar="FILE")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in (None, case.agent)]
    found = {case.agent: measured(case, options.replicates) for case in cases}
    print("| agent | exponent in T | theorem | in rho | theorem | in d | theorem |")
    print("|---|---|---|---|---|---|---|")
    for case in cases:
        cells = []
        for (along, values), theorem in zip(found[case.agent].values(), case.theorem):
            slope = exponent(along, values)
            text = "-" if slope is None else f"{slope.mean:.2f} ± {slope.high - slope.mean:.2f}"
            cells += [text, f"{theorem:g}"]
        print(f"| `{case.agent}` | {' | '.join(cells)} |")
    for case in cases:
        print(f"\n`{case.agent}` over `{case.exact}`, mean excess with its 95% interval:\n")
        for name, (along, values) in found[case.agent].items():
            ends = [interval(leave_one_out(sample)) for sample in values]
            each = [f"{e.mean:.3g} ± {e.high - e.mean:.2g} at {a:g}" for a, e in zip(along, ends)]
            print(f"- {name}: {'; '.join(each)}")
    if options.plot:
        draw(options.plot, found)


if __name__ == "__main__":
    main()
