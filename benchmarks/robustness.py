"""Our agents on problems without tuning: designs, norms, sizes and horizons.

``python benchmarks/robustness.py`` plays the cases that docs/results/robustness.json lacks, and
writes the tables of docs/agents/robustness.md from it. ``--case`` plays one case again, with the
code of today. Seeds are used for nothing else.

In a case our agent is compared with the best non-private agent, of all of `FREE` with default and
with tuned parameters. The best is chosen on the same seeds, which favours it.

``--long`` plays the cases with a tail for `LONG` rounds and writes a table of them.
``--behind`` plays the cases at `LITTLE` budgets with other agents that use no features, stores that
in docs/results/behind.json, and prints where ours has significantly more regret than one of them.
``--suite`` writes the table of docs/conditions.md and draws docs/_static/robustness.png from what
``measured.py`` stored of the suite robustness-v0.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import marked
import measured
import numpy as np
from numpy.typing import NDArray
from paper_pages import code
from scipy.special import stdtrit

import dpb_gym

REPOSITORY = Path(__file__).parents[1]
STORED = REPOSITORY / "docs/results/robustness.json"
SEED, REPLICATES = 2_500_000, 32
BUDGETS = ["rho=0.1", "rho=1", "rho=2.56", "rho=100", "none"]
JUDGED = {"rho=1": 1.5, "rho=0.1": 2.5}
LONG, REPEATS = 100_000, 8
TAILED: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "pricing: norm of theta 3, d = 50, zeta = 16": {"one-pass-pricing": ("one-pass-pricing", {})},
    "pricing: intercept": {"one-pass-pricing": ("one-pass-pricing", {})},
    "recommendation: features correlated": {
        "one-pass-linear-joint": ("one-pass-linear-joint", {}),
        "one-pass-linear-joint, length=3": ("one-pass-linear-joint", {"length": 3.0}),
    },
}
BEHIND = REPOSITORY / "docs/results/behind.json"
BEHIND_SEED, BEHIND_REPLICATES = 2_700_000, 6
LITTLE = ["rho=0.02", "rho=1", "rho=0.02@local", "rho=1@local"]
FACTORS = {"random": 1.0, "blind-price": 1.0, "private-single-action": 2.0}
"""Agents without features, and how many times their regret ours may have."""
ALTERNATE = [18.0, -18.0, 18.0, -18.0, 18.0]
# Non-private competitors: defaults, and good points of their grids for the arena's tasks.
FREE: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "assortment": {
        "greedy-mnl": ("greedy-mnl", {}),
        "ucb-mnl": ("ucb-mnl", {}),
        "ucb-mnl, tuned": ("ucb-mnl", {"scale": 0.05}),
    },
    "pricing": {
        "greedy-pricing": ("greedy-pricing", {}),
        "greedy-pricing, tuned": ("greedy-pricing", {"explore": 0, "ridge": 4.0}),
        "glm-ucb-pricing": ("glm-ucb-pricing", {}),
        "glm-ucb-pricing, tuned": (
            "glm-ucb-pricing",
            {"explore": 0, "gamma": 0.1, "growth": 1.5, "ridge": 4.0},
        ),
    },
    "recommendation": {
        "lin-greedy": ("lin-greedy", {}),
        "lin-ucb": ("lin-ucb", {}),
        "lin-ucb, tuned": ("lin-ucb", {"alpha": 0.1, "centre": True}),
    },
}


class Case(NamedTuple):
    """A problem of the grid.

    Attributes:
        env: Environment.
        kwargs: Its parameters, without features of `rows`.
        ours: Names of our agents.
        design: Design of `rows` and the shape of a round's features, or None.
        horizon: Rounds.
    """

    env: str
    kwargs: dict[str, Any]
    ours: tuple[str, ...]
    design: tuple[str, tuple[int, ...]] | None = None
    horizon: int = 10_000

    @property
    def track(self) -> str:
        name = self.env.partition("/")[2].partition("-")[0].lower()
        return "recommendation" if name == "multiarmed" else name


def rows(design: str, horizon: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return features ``(horizon, *shape)`` of a design that the environments do not have."""
    rng = np.random.default_rng(20)
    d = shape[-1]
    x = rng.standard_normal((horizon, *shape), np.float32)
    if design == "correlated":
        x = np.sqrt(0.1) * x + np.sqrt(0.9) * x[..., :1]
    elif design == "scales":
        x *= np.logspace(0, -2, d, dtype=np.float32)
    elif design == "heavy":
        x = rng.standard_t(2.0, (horizon, *shape)).astype(np.float32)
    elif design == "fixed":
        x[:] = x[0]
    elif design == "constants":  # of all items but one, as in choices of heating systems
        x[..., : shape[0] - 1] = np.eye(shape[0])[:, 1:]
    elif design == "intercept":
        x = np.clip(0.5 * x, -1.0, 1.0)
        x[..., -1] = 1.0
    return np.asarray(x, np.float32)


def theta(norm: float, dim: int) -> list[float]:
    """Return a parameter of a given norm for which demand decreases with the price."""
    direction = np.where(np.arange(dim) % 2 == 0, 1.0, -0.6)
    direction[-1] = 2.0
    return [float(v) for v in norm * direction / np.linalg.norm(direction)]


def cases() -> dict[str, Case]:
    """Return the grid."""
    grid: dict[str, Case] = {}

    def add(name: str, kwargs: dict[str, Any], design: Any = None, **options: Any) -> None:
        grid[f"{track}: {name}"] = Case(env, base | kwargs, ours, design, **options)

    track, env, ours = "assortment", "DPB/Assortment-v0", ("one-pass-mnl",)
    base: dict[str, Any] = {"n_items": 100, "capacity": 10, "dim": 5}
    small = {"n_items": 20, "capacity": 4}
    add("as it is", {})
    for design in ("correlated", "scales", "heavy"):
        add(f"features {design}, N = 20", small, (design, (20, 5)))
    add("fixed catalogue, N = 20", small, ("fixed", (20, 5)))
    add("constants of items, N = 5", {"n_items": 5, "capacity": 1, "dim": 6}
        | {"theta": [1.0, -0.5, 0.5, -1.0, -1.0, 0.5]}, ("constants", (5, 6)))  # fmt: skip
    add("d = 11, K = 5", {"dim": 11, "capacity": 5})
    add("norm of theta 3", {"theta": theta(3.0, 5)})
    add("N = 5, T = 1,000", {"n_items": 5, "capacity": 2}, horizon=1000)
    add("uneven revenues", {"revenues": "random"})
    track, env, ours = "pricing", "DPB/Pricing-v0", ("one-pass-pricing",)
    base = {"dim": 5}
    add("d = 3", {"dim": 3})
    add("d = 4", {"dim": 4})
    add("d = 10, zeta = 16", {"dim": 10, "zeta": 16.0, "theta": [-0.25] * 9 + [0.66]})
    add("zeta = 30", {"zeta": 30.0})
    add("norm of theta 3", {"theta": theta(3.0, 5)})
    add("norm of theta 3, d = 50, zeta = 16", {"dim": 50, "zeta": 16.0, "theta": theta(3.0, 50)})
    add("drifting customers", {"customers": "drifting"})
    add("intercept", {"theta": theta(1.0, 5)}, ("intercept", (4,)))
    track, env, both = "recommendation", "DPB/Recommendation-v0", "one-pass-linear"
    ours = (both, f"{both}-joint")
    base = {"dim": 10}
    for design in ("correlated", "scales", "heavy"):
        add(f"features {design}", {}, (design, (5, 10)))
    base, env = {}, "DPB/MultiArmed-v0"
    add("ten arms", {"n_arms": 10})
    env, ours = "DPB/Recommendation-v0", (both,)
    add("100 fixed arms", {"dim": 5, "n_arms": 100, "n_candidates": 100})
    ours = ("one-pass-sparse-joint",)
    add("five of 400 coordinates", {"dim": 400, "n_arms": 1000, "n_candidates": 3}
        | {"theta": ALTERNATE + [0.0] * 395})  # fmt: skip
    return grid


def play(
    case: Case,
    replicates: int = REPLICATES,
    budgets: list[str] = BUDGETS,
    ours: dict[str, tuple[str, dict[str, Any]]] | None = None,
) -> dict[str, list[list[float]]]:
    """Return the regret at a tenth, nine tenths and all of the rounds, per agent and budget."""
    ours = {name: (name, {}) for name in case.ours} if ours is None else ours
    kwargs, T = dict(case.kwargs), case.horizon
    if case.design is not None:
        name = "customers" if case.track == "pricing" else "contexts"
        kwargs[name] = rows(case.design[0], T, case.design[1])
    agents: dict[str, Any] = {
        name: (agent, None, own) for name, (agent, own) in (ours | FREE[case.track]).items()
    }
    if case.env == "DPB/MultiArmed-v0":
        agents |= {"ucb": "ucb", "dp-se": "dp-se"}
    result = dpb_gym.evaluate(
        case.env,
        agents | {"random": "random"},
        horizon=T,
        replicates=replicates,
        seed=SEED,
        checkpoints=[T // 10, T - T // 10, T],
        env_kwargs=kwargs,
        budgets=budgets,
        progress=False,
    )
    regrets: dict[str, list[list[float]]] = {}
    for row in result.records():
        curves = regrets.setdefault(
            f"{row['agent']} {row['budget']}", [[] for _ in range(replicates)]
        )
        curves[row["replicate"]].append(float(f"{row['regret']:.5g}"))
    return regrets


class BlindPrice(dpb_gym.SingleAgent):
    """Prices exp(-U), U uniform: the best law of a price for unknown demand."""

    def act(self, context: Any) -> float:
        return float(np.exp(-self.rng.random()))

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        pass


def play_behind(case: Case) -> dict[str, list[float]]:
    """Return the final regrets of ours and of agents without features, per agent and budget."""
    kwargs = dict(case.kwargs)
    if case.design is not None:
        name = "customers" if case.track == "pricing" else "contexts"
        kwargs[name] = rows(case.design[0], case.horizon, case.design[1])
    agents: dict[str, Any] = {name: (name, None) for name in case.ours}
    agents |= {"private-single-action": "private-single-action", "random": "random"}
    if case.track == "pricing":
        agents["blind-price"] = "blind-price"
    result = dpb_gym.evaluate(
        case.env,
        agents,
        horizon=case.horizon,
        replicates=BEHIND_REPLICATES,
        seed=BEHIND_SEED,
        checkpoints=[case.horizon],
        env_kwargs=kwargs,
        budgets=LITTLE,
        progress=False,
    )
    regrets: dict[str, dict[int, float]] = {}
    for row in result.records():
        key = f"{row['agent']} {row['budget']}"
        regrets.setdefault(key, {})[row["replicate"]] = float(f"{row['regret']:.5g}")
    return {key: [values[i] for i in sorted(values)] for key, values in regrets.items()}


def behind(played: dict[str, dict[str, list[float]]]) -> list[list[str]]:
    """Return a row for every cell in which ours has significantly more regret than it may have.

    The difference is paired over replicates, and its 95% interval is above 0.
    """
    lines = [["case", "ours", "budget", "regret", "other", "its regret", "factor"]]
    grid = cases()
    for name, numbers in played.items():
        case = grid[name]
        for agent, budget in ((agent, budget) for agent in case.ours for budget in LITTLE):
            if f"{agent} {budget}" not in numbers:
                continue  # it needs a trusted curator
            ours = np.array(numbers[f"{agent} {budget}"])
            for other, factor in FACTORS.items():
                private = other == "private-single-action"
                key = f"{other} {budget if private else 'none'}"
                if key not in numbers or (private and case.horizon < 5000):
                    continue
                theirs = np.array(numbers[key])
                difference = ours - factor * theirs
                if difference.mean() > half_width(difference):
                    ratio = f"{ours.mean() / max(theirs.mean(), 1e-12):.2f}"
                    texts = f"{ours.mean():.4g}", other, f"{theirs.mean():.4g}", ratio
                    lines.append([name, f"`{agent}`", budget, *texts])
    return lines


def main_behind(part: str | None) -> None:
    """Play the cases that are not stored, or those whose name contains `part`, and print."""
    dpb_gym.register_agent("blind-price", supports=["pricing"])(BlindPrice)
    played = json.loads(BEHIND.read_text(encoding="utf-8")) if BEHIND.exists() else {}
    for name, case in cases().items():
        if name not in played if part is None else part in name:
            played[name] = play_behind(case)
            text = json.dumps(played, separators=(",", ":")).replace("},", "},\n")
            BEHIND.write_text(text + "\n", encoding="utf-8")
            print(name, flush=True)
    print(marked.table(behind(played)))


def half_width(values: NDArray[np.float64]) -> float:
    """Return the half-width of the 95% interval of a mean."""
    n = len(values)
    return float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n))


def paired_ratio(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ratio of the means of paired values, and the half-width of its 95% interval."""
    least = max(float(b.mean()), 1e-12)
    ratio = float(a.mean()) / least
    return ratio, half_width(a - ratio * b) / least


def late_share(curves: NDArray[np.float64]) -> tuple[float, float]:
    """Return the regret of the last tenth over that of the first, and its 95% half-width."""
    return paired_ratio(curves[:, 2] - curves[:, 1], curves[:, 0])


class Cell(NamedTuple):
    """Our agent at a budget against the best non-private one.

    Attributes:
        ratio: Of the regrets.
        half: Half-width of its paired 95% interval.
        tail: Regret of the last tenth of the rounds over that of the first, 0 if the last has less
            than a thousandth of random choice's.
        rounds: Difference of the regrets in rounds of random play.
        ahead: ``"ours"``, ``"theirs"``, or ``"-"`` if the paired difference is not significant.
    """

    ratio: float
    half: float
    tail: float
    rounds: float
    ahead: str


def cell(ours: NDArray[np.float64], best: NDArray[np.float64], chance: float, T: int) -> Cell:
    """Return the comparison; `chance` is the regret of random choice."""
    a, b = ours[:, -1], best[:, -1]
    ratio, half = paired_ratio(a, b)
    last = float((ours[:, 2] - ours[:, 1]).mean())
    tail = late_share(ours)[0] if last > 0.001 * chance else 0.0
    sure = abs(float((a - b).mean())) > half_width(a - b)
    ahead = ("ours" if a.mean() < b.mean() else "theirs") if sure else "-"
    return Cell(ratio, half, tail, float((a - b).mean()) / (chance / T), ahead)


def table(played: dict[str, dict[str, list[list[float]]]]) -> str:
    """Return the counts and the rows of the page."""
    grid, lines = cases(), []
    counts = {budget: [0, 0, 0, 0, 0] for budget in JUDGED}
    for name, curves in played.items():
        case, numbers = grid[name], {key: np.array(value) for key, value in curves.items()}
        chance = float(numbers["random none"][:, -1].mean())
        free = [*FREE[case.track], *(["ucb"] if "ucb none" in numbers else [])]
        best = min(free, key=lambda key: numbers[f"{key} none"][:, -1].mean())
        theirs = numbers[f"{best} none"]
        for agent in case.ours:
            cells = {
                budget: cell(numbers[f"{agent} {budget}"], theirs, chance, case.horizon)
                for budget in BUDGETS
            }
            texts = []
            for budget, most in JUDGED.items():
                c, count = cells[budget], counts[budget]
                if budget == "rho=1" or case.track != "recommendation":
                    within = c.ratio <= most
                    count[0] += 1
                    count[1] += within
                    count[2] += not within and cells["rho=100"].ratio <= most
                    count[3] += c.tail > 0.1
                    count[4] += c.rounds <= 0.01 * case.horizon
                tail = f", tail {c.tail:.2f}" if c.tail > 0.1 else ""
                texts.append(f"{c.ratio:.2f} ± {c.half:.2f}{tail}")
                texts += [f"{c.rounds:.3g}", c.ahead]
            texts += [f"{cells[budget].ratio:.2f}" for budget in BUDGETS[2:]]
            mean = f"{theirs[:, -1].mean():.3g} ({best})"
            lines.append(f"| {name} | `{agent}` | {mean} | {chance:.3g} | {' | '.join(texts)} |")
    heads = []
    for budget, (cells_, within, noise, tails, cheap) in counts.items():
        heads.append(
            f"At {budget.replace('=', ' = ')}, {within} of {cells_} cells are within "
            f"{JUDGED[budget]} times the best non-private agent's regret. {noise} more are within "
            f"it at rho = 100, so that noise explains them. {tails} of all have a tail. In {cheap} "
            "the difference is at most 1% of the rounds in random play."
        )
    head = (
        "| case | ours | best non-private | random | rho 1 | rounds | ahead | rho 0.1 | rounds | "
    )
    head += "ahead | rho 2.56 | rho 100 | exact |"
    return "\n".join([*heads, "", head, "|---" * 13 + "|", *lines])


def long_table(short: dict[str, Any], long: dict[str, Any]) -> str:
    """Return the tails of the cases `TAILED` at rho = 1, of `LONG` rounds and of the grid's."""
    rows_ = [["case", "agent", "rounds", "regret", "tail", "best non-private", "regret", "tail"]]
    for name, agent in ((name, agent) for name, agents in TAILED.items() for agent in agents):
        for played, T in ((short, cases()[name].horizon), (long, LONG)):
            if f"{agent} rho=1" not in played[name]:
                continue
            numbers = {key: np.array(value) for key, value in played[name].items()}
            free = FREE[cases()[name].track]
            best = min(free, key=lambda key: numbers[f"{key} none"][:, -1].mean())
            ours, theirs = (
                [f"{curves[:, -1].mean():.3g}", "{:.2f} ± {:.2f}".format(*late_share(curves))]
                for curves in (numbers[f"{agent} rho=1"], numbers[f"{best} none"])
            )
            rows_.append([name, f"`{agent}`", f"{T:,}", *ours, best, *theirs])
    return marked.table(rows_)


def shares() -> list[list[str]]:
    """Return mean regret in percent of random choice, a row per condition; * is private."""
    final: dict[tuple[str, str], list[float]] = {}
    for task, agent, budget, mean, _ in measured.read("robustness-v0")["cells"]:
        name = agent + " *" * (budget != "none")
        final.setdefault((task, name), []).append(float(mean))
    percents = {
        (task.partition("-")[2], name): f"{100 * values[0] / final[task, 'Random'][0]:.0f}"
        for (task, name), values in final.items()
        if name not in ("Random", "Oracle")
    }
    names = list(dict.fromkeys(name for _, name in percents))
    conditions = dict.fromkeys(condition for condition, _ in percents)
    rows = [[one, *(percents.get((one, name), "") for name in names)] for one in conditions]
    return [["condition", *names], *rows]


def ruled(rows: list[list[str]]) -> str:
    """Return the rows of `shares` as a table in Markdown."""
    return marked.table(rows).replace("*", "\\*")


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


def save(played: dict[str, Any], long: dict[str, Any], agents: dict[str, str]) -> None:
    """Store results in the order of the grid, and digests of our agents' code."""
    ordered = {name: played[name] for name in cases() if name in played}
    stored = {"agents": agents, "cases": ordered, "long": long}
    text = json.dumps(stored, separators=(",", ":"))
    STORED.write_text(text.replace("},", "},\n") + "\n", encoding="utf-8")


def main() -> None:
    """Play the missing cases and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--case", help="play the cases whose name contains this again")
    parser.add_argument("--long", action="store_true", help="play the cases with a tail")
    parser.add_argument("--suite", action="store_true", help="write what measured.py stored")
    parser.add_argument("--behind", action="store_true", help="compare with no features")
    options = parser.parse_args()
    if options.behind:
        main_behind(options.case)
        return
    if options.suite:
        percents = shares()
        marked.put(REPOSITORY / "docs/conditions.md", "robustness", ruled(percents))
        draw(percents, REPOSITORY / "docs/_static/robustness.png")
        return
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    played, long, agents = (stored.get(key, {}) for key in ("cases", "long", "agents"))
    for name, case in cases().items():
        again = options.case is not None and options.case in name
        if again or (options.case is None and name not in played):
            played[name] = play(case)
            agents |= {agent: code(agent) for agent in case.ours}
            save(played, long, agents)
            print(name, flush=True)
    for name in TAILED if options.long else ():
        case = cases()[name]._replace(horizon=LONG)
        long[name] = play(case, REPEATS, ["rho=1", "none"], TAILED[name])
        save(played, long, agents)
        print(name, flush=True)
    marked.put(REPOSITORY / "docs/agents/robustness.md", "grid", table(played))
    marked.put(REPOSITORY / "docs/agents/robustness.md", "long", long_table(played, long))
    marked.put(
        REPOSITORY / "docs/where-ours-loses.md", "within", table(played).partition("\n\n")[0]
    )


if __name__ == "__main__":
    main()
