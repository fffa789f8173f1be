"""Switch the rules of the one-pass agents off, one at a time, and measure what each brings.

    python benchmarks/ablation.py

plays every agent as it is and without each rule of `RULES`, in the worlds of `worlds` and at
`BUDGETS`, on the same seeds. It writes docs/results/ablation.json as results come, plays only what
is missing there, and writes the tables of docs/one-pass.md. ``--agent`` limits the agents and
``--write`` only writes the tables. A test compares them with the stored results.

Agents have no options for their rules. A fresh process sets module constants, functions or
parameters before anything is compiled, and has a cache directory of its own: compiled functions
contain the constants. Seeds are used for nothing else.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import marked
import numpy as np
from numba.core import config
from numpy.typing import NDArray
from paper_pages import code
from robustness import Case, cases, half_width, rows, theta

import dpb_gym
from dpb_agents.assortment import one_pass_mnl
from dpb_agents.kernels import curvature
from dpb_agents.pricing import one_pass_pricing
from dpb_agents.recommendation import one_pass_linear, one_pass_linear_joint
from dpb_gym.kernels.customer_candidates import best_candidate
from dpb_gym.kernels.vectors import exp, normal_cdf, sigmoid
from dpb_gym.play import jit
from dpb_gym.suites.suite import load_suite

numba_config: Any = config
REPOSITORY = Path(__file__).parents[1]
STORED = REPOSITORY / "docs/results/ablation.json"
PAGE = REPOSITORY / "docs/one-pass.md"
FIRST_SEED, BLOCK, BLOCKS = 8000, 8, 3
HORIZON = 5_000
BUDGETS = ["rho=0.1", "rho=1"]
WHOLE = "whole"
"""Name of the agent with all of its rules."""
LEAST = 0.03
"""Share of the regret that a rule should bring somewhere, and not cost elsewhere."""

# Originals that the functions below call. Names of modules are set to those functions instead.
explored_price = one_pass_pricing.explored_price
safe_bet = one_pass_pricing.safe_bet
scaled_learn = one_pass_mnl.learn_from
shrunken_curvature = one_pass_linear_joint.shrunken_curvature
size_mixture = curvature.size_mixture


@jit
def unit_scale(c, s, p, x):
    """Scale of the link of choices where theta counts as known."""
    return 1.0


@jit
def plain_learn(c, s, estimated, t):
    """`learn_from` of one-pass-mnl as after the rounds in which theta is unsure."""
    return scaled_learn(c, s, estimated, int(c.unsure) + 1)


@jit
def plain_demand(c, s, phi):
    """`demand` of one-pass-pricing where theta counts as known."""
    m = 0.0
    for j in range(phi.shape[0]):
        m += phi[j] * s.theta[j]
    if not c.logistic:
        return m, m, 1.0
    f = sigmoid(c.zeta * m)
    return m, f, c.zeta * c.zeta * f * (1.0 - f)


@jit
def blind_act(c, s, t, x, z):
    """`act` of one-pass-pricing that draws blind prices as it does with twins."""
    if t <= c.blind:
        u = normal_cdf(z[0, 0])
        return exp(-u) if c.logistic and c.private else u
    return explored_price(c, s, x, z[0], safe_bet(c, s, x))


@jit
def common_sizes(H, u, centre, sizes, beliefs, spread, noise, left, rare, wide):
    """`size_mixture` without rare directions."""
    return size_mixture(H, u, centre, sizes, beliefs, spread, noise, left, 0.0, wide)


@jit
def no_direction(H, left):
    """No weak direction."""
    return np.zeros(H.shape[0])


@jit
def greedy_act(c, s, t, x, z):
    """`act` of one-pass-linear without draws."""
    u = normal_cdf(z[0, 0]) if c.ties else 0.0
    return best_candidate(x, s.theta[: x.shape[1]], u)


@jit
def first_of_equals(z):
    """0 in place of a uniform number: the first of equal candidates."""
    return 0.0


@jit
def nothing_shared(m, d, alone, together):
    """0: no part of the candidates counts as shared."""
    return 0.0


@jit
def noisy_curvature(half, n, share, noise, intercept):
    """`shrunken_curvature` as for sums without noise."""
    return shrunken_curvature(half, n, share, 0.0, intercept)


MNL = "dpb_agents.assortment.one_pass_mnl"
PRICING = "dpb_agents.pricing.one_pass_pricing"
LINEAR = "dpb_agents.recommendation.one_pass_linear"
JOINT = "dpb_agents.recommendation.one_pass_linear_joint"
CURVATURE = "dpb_agents.kernels.curvature"
NEVER = float("inf")
PRICING_FUNCTIONS = one_pass_pricing.OnePassPricing.functions
EVEN = {f"{CURVATURE} LEAST_EVENNESS": 1e9}
ALL_ROUNDS = {f"{CURVATURE} FIRST_PART": 0.0}
# What is set to switch a rule off: attributes of modules, or parameters of the constructor.
RULES: dict[str, dict[str, dict[str, Any]]] = {
    "one-pass-mnl": {
        "draws while unsure": {f"{MNL} UNSURE": 0.0},
        "their smaller variance": {f"{MNL} learn_from": plain_learn},
        "rare directions": {f"{MNL} RARE": 0.0},
        "rejected draws": {f"{MNL} BET": NEVER},
        "unexpected sizes": ALL_ROUNDS,
        "evenness": EVEN,
        "averaged link": {f"{MNL} link_scale": unit_scale},
        "learnt size": {f"{MNL} DEVIATIONS": np.zeros(1)},
        "level": {"level": 0.0},
    },
    "one-pass-pricing": {
        "small draws": {"disperse": 1e-9},
        "rare directions": {f"{CURVATURE} size_mixture": common_sizes},
        "rejected draws": {f"{PRICING} BET": NEVER},
        "prices drawn alike": {
            f"{PRICING} TWINS": 0,
            f"{PRICING} OnePassPricing.functions": PRICING_FUNCTIONS._replace(act=blind_act),
        },
        "weak direction": {f"{CURVATURE} weak_direction": no_direction},
        "unexpected sizes": ALL_ROUNDS,
        "evenness": EVEN,
        "averaged link": {f"{PRICING} demand": plain_demand},
        "larger sizes": {f"{PRICING} OTHERS": 1e-300},
        "blind prices": {f"{PRICING} HOPELESS": NEVER},
        "level": {"level": 0.0},
    },
    "one-pass-linear": {
        "logistic link": {"link": "identity"},
        "taste": {"effect": 0.0},
        "level": {"intercept": 1e-9},
        "draws for repeated candidates": {
            f"{LINEAR} OnePassLinear.functions": one_pass_linear.FUNCTIONS._replace(act=greedy_act)
        },
        "ties at random": {f"{LINEAR} normal_cdf": first_of_equals},
        "longest of equals": {"dpb_gym.kernels.customer_candidates ROUNDING": NEVER},
    },
    "one-pass-linear-joint": {
        "shared part": {
            f"{LINEAR} shared_part": nothing_shared,
            f"{JOINT} shared_part": nothing_shared,
        },
        "learnt length": {f"{JOINT} SHARE": 0.0},
        "shrunken curvature": {f"{JOINT} shrunken_curvature": noisy_curvature},
    },
}
GRID = {
    "assortment": (
        "features scales, N = 20",
        "fixed catalogue, N = 20",
        "constants of items, N = 5",
        "N = 5, T = 1,000",
    ),
    "pricing": ("zeta = 30", "norm of theta 3", "drifting customers", "intercept"),
    "recommendation": ("features correlated", "features scales", "ten arms"),
}
"""Cases of `robustness.py`, at most `HORIZON` rounds long."""


def track_of(agent: str) -> str:
    """Return the kind of an agent."""
    return {"one-pass-mnl": "assortment", "one-pass-pricing": "pricing"}.get(
        agent, "recommendation"
    )


def worlds(agent: str) -> dict[str, tuple[str, dict[str, Any], int]]:
    """Return environment, parameters and rounds of every world in which an agent plays."""
    track = track_of(agent)
    places: dict[str, tuple[str, dict[str, Any], int]] = {}
    for task in load_suite("dpb-bench-v1").tasks:
        if task.track == track:
            places[task.name.partition("-")[2]] = task.env, dict(task.env_kwargs), HORIZON
        elif task.name == "jester-likes" and track == "recommendation":
            places[task.name] = task.env, dict(task.env_kwargs), HORIZON
    for name in GRID[track]:
        case = cases()[f"{track}: {name}"]
        places[name] = case.env, with_features(case), min(case.horizon, HORIZON)
    env = f"DPB/{track.capitalize()}-v0"
    rng = np.random.default_rng(21)
    if track == "assortment":
        kwargs = {"n_items": 50, "capacity": 5, "dim": 5, "intercept": -2.0}
        places["hidden level"] = env, kwargs, HORIZON
        uneven = {"n_items": 30, "capacity": 4, "dim": 5, "revenues": "random"}
        for norm in (3.0, 6.0, 10.0):
            kwargs = uneven | {"theta": theta(norm, 5)}
            places[f"norm of theta {norm:.0f}, uneven revenues"] = env, kwargs, HORIZON
    elif track == "pricing":
        kwargs = {"dim": 4, "zeta": 6.0, "intercept": -0.3}
        places["hidden intercept"] = env, kwargs, HORIZON
        small = rng.uniform(-0.1, 0.1, (HORIZON, 4))
        places["small features"] = env, {"dim": 5, "customers": small}, HORIZON
        places["easy, T = 200"] = *places["easy"][:2], 200
        # A shop of logit 1 + .5 x1 - .3 x2 - 3 p, as in constants.py. Price 1 is the worst.
        x = np.column_stack([np.ones(2 * HORIZON), rng.uniform(-1.0, 1.0, (2 * HORIZON, 2))])
        kwargs = {"dim": 4, "customers": x, "theta": [0.5, 0.25, -0.15, 1.5]}
        places["shop with an intercept"] = env, kwargs, 2 * HORIZON
    else:
        places["rare clicks"] = env, {"dim": 10, "intercept": -2.0}, HORIZON
        x = rng.standard_normal((HORIZON, 5, 10)) + 2.0 * rng.standard_normal((HORIZON, 1, 10))
        places["features in common"] = env, {"dim": 10, "contexts": 0.3 * x}, HORIZON
    return places


def with_features(case: Case) -> dict[str, Any]:
    """Return the parameters of a case with the features of its design."""
    if case.design is None:
        return dict(case.kwargs)
    name = "customers" if case.track == "pricing" else "contexts"
    design, shape = case.design
    return case.kwargs | {name: rows(design, case.horizon, shape)[:HORIZON]}


def target(name: str) -> tuple[Any, str]:
    """Return an owner and its attribute for "module attribute" or "module class.attribute".

    Raises:
        AttributeError: If there is no such attribute.
    """
    module, _, path = name.partition(" ")
    owner: Any = importlib.import_module(module)
    *parents, attribute = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    getattr(owner, attribute)
    return owner, attribute


def switch_off(settings: dict[str, Any]) -> dict[str, Any]:
    """Set attributes of modules for the rest of the process and return the parameters."""
    parameters = {}
    for name, value in settings.items():
        if " " in name:
            setattr(*target(name), value)
        else:
            parameters[name] = value
    return parameters


def play(agent: str, rule: str, missing: list[tuple[str, int]], out: TextIO) -> None:
    """Play blocks of replicates without a rule and write a line of JSON for each.

    Args:
        agent: Registered name.
        rule: Name of the rule, or `WHOLE`.
        missing: Worlds and numbers of blocks.
        out: Open file.
    """
    parameters = switch_off({} if rule == WHOLE else RULES[agent][rule])
    places = worlds(agent)
    for world, block in missing:
        env, kwargs, horizon = places[world]
        result = dpb_gym.evaluate(
            env,
            {"ours": (agent, None, parameters)},
            horizon=horizon,
            replicates=BLOCK,
            seed=FIRST_SEED + block * BLOCK,
            checkpoints=[horizon],
            env_kwargs=kwargs,
            budgets=BUDGETS,
            workers=1,
            progress=False,
        )
        regrets: dict[str, list[float]] = {budget: [0.0] * BLOCK for budget in BUDGETS}
        for row in result.records():
            regrets[row["budget"]][row["replicate"]] = float(f"{row['regret']:.5g}")
        print(json.dumps([world, regrets]), file=out, flush=True)


def process(
    agent: str, rule: str, missing: list[tuple[str, int]], kernels: Path
) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Yield worlds and regrets from `play` in a forked process with a cache directory of its own.

    Nothing is compiled before the fork, so compiled functions contain what the rule sets.
    """
    directory = kernels / agent / rule.replace(" ", "-")
    if numba_config.CACHE_DIR and not directory.exists():
        # Functions that the rule does not reach are loaded from the copy.
        shutil.copytree(numba_config.CACHE_DIR, directory, copy_function=os.link)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        numba_config.CACHE_DIR = str(directory)
        status = 1
        try:
            with os.fdopen(writer, "w") as out:
                play(agent, rule, missing, out)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as lines:
        for line in lines:
            yield json.loads(line)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit(f"{agent} without {rule} failed")


def measure(data: dict[str, Any], agent: str, blocks: int, kernels: Path) -> None:
    """Play what is missing of an agent, block by block, and store it as it comes."""
    digest = code(agent)
    if data.get(agent, {}).get("code") != digest:
        data[agent] = {"code": digest, "regrets": {}}
    stored = data[agent]["regrets"]
    for block in range(blocks):
        for rule in [WHOLE, *RULES[agent]]:
            missing = [
                (world, block)
                for world in worlds(agent)
                if len(stored.get(world, {}).get(rule, {}).get(BUDGETS[0], [])) <= block * BLOCK
            ]
            if not missing:
                continue
            for world, regrets in process(agent, rule, missing, kernels):
                cell = stored.setdefault(world, {}).setdefault(rule, {})
                for budget, values in regrets.items():
                    cell.setdefault(budget, []).extend(values)
                save(data)
            print(agent, block, rule, flush=True)


def save(data: dict[str, Any]) -> None:
    """Write the stored results, a line per world and rule, in one step."""
    ordered = {agent: data[agent] for agent in RULES if agent in data}
    text = json.dumps(ordered, separators=(",", ":")).replace("]},", "]},\n") + "\n"
    new = STORED.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(STORED)


class Effect(NamedTuple):
    """What a rule brings in a world at a budget.

    Attributes:
        world: Name.
        budget: Budget.
        change: Increase of the mean regret without the rule, relative to that with it.
        half: Half-width of its paired 95% interval.
    """

    world: str
    budget: str
    change: float
    half: float

    @property
    def brings(self) -> bool:
        return self.change >= LEAST and self.change > self.half

    @property
    def costs(self) -> bool:
        return self.change <= -LEAST and -self.change > self.half

    @property
    def text(self) -> str:
        return f"{100 * self.change:+.0f} ± {100 * self.half:.0f}% ({self.world}, {self.budget})"


def effects(regrets: dict[str, Any], rule: str) -> list[Effect]:
    """Return the effects of a rule in all worlds and at all budgets.

    Args:
        regrets: Of replicates, by world, rule and budget.
        rule: Name of the rule.
    """
    cells = []
    for world, by_rule in regrets.items():
        for budget in BUDGETS:
            change = relative_change(by_rule, rule, budget)
            cells.append(Effect(world, budget, float(change.mean()), half_width(change)))
    return cells


def relative_change(by_rule: dict[str, Any], rule: str, budget: str) -> NDArray[np.float64]:
    """Return the paired differences of regrets without a rule, in units of the mean with it."""
    own = np.array(by_rule[WHOLE][budget])
    change: NDArray[np.float64] = (np.array(by_rule[rule][budget]) - own) / own.mean()
    return change


def average(regrets: dict[str, Any], rule: str) -> tuple[float, float]:
    """Return the mean change over all cells and the half-width of its paired 95% interval."""
    changes = [
        relative_change(by_rule, rule, budget) for by_rule in regrets.values() for budget in BUDGETS
    ]
    # Replicates of different worlds share their seeds.
    values = np.mean(changes, axis=0)
    return float(values.mean()), half_width(values)


def summary(regrets: dict[str, Any], rules: Iterable[str]) -> str:
    """Return a table of where rules bring and cost most."""
    lines = [["rule", "mean", "brings most", "costs most", "brings", "costs", "verdict"]]
    for rule in rules:
        cells = effects(regrets, rule)
        mean, half = average(regrets, rule)
        gains = sorted((cell for cell in cells if cell.brings), key=lambda cell: -cell.change)
        losses = sorted((cell for cell in cells if cell.costs), key=lambda cell: cell.change)
        lines.append(
            [
                rule,
                f"{100 * mean:+.1f} ± {100 * half:.1f}%",
                gains[0].text if gains else "-",
                losses[0].text if losses else "-",
                f"{len(gains)} of {len(cells)}",
                f"{len(losses)} of {len(cells)}",
                verdict(bool(gains), bool(losses)),
            ]
        )
    return marked.table(lines)


def verdict(brings: bool, costs: bool) -> str:
    """Return what follows for a rule."""
    if brings:
        return "both" if costs else "stays"
    return "costs" if costs else "none shown"


def matrix(regrets: dict[str, Any], rules: Iterable[str]) -> str:
    """Return a table of changes in percent, a column per world, at both budgets."""
    lines = [["rule", *regrets]]
    own = []
    for by_rule in regrets.values():
        means = [np.mean(by_rule[WHOLE][budget]) for budget in BUDGETS]
        own.append(" / ".join(f"{mean:.3g}" for mean in means))
    lines.append(["regret with all", *own])
    for rule in rules:
        texts: dict[str, list[str]] = {}
        for cell in effects(regrets, rule):
            text = f"{100 * cell.change:+.0f}"
            sure = cell.brings or cell.costs
            texts.setdefault(cell.world, []).append(f"**{text}**" if sure else text)
        lines.append([rule, *(" / ".join(pair) for pair in texts.values())])
    return marked.table(lines)


def table(data: dict[str, Any]) -> str:
    """Return the tables of all agents."""
    parts = []
    for agent, entry in data.items():
        regrets = entry["regrets"]
        replicates = {
            len(values)
            for by_rule in regrets.values()
            for by_budget in by_rule.values()
            for values in by_budget.values()
        }
        (number,) = replicates
        parts.append(f"**{agent}**, {number} replicates:")
        parts += [summary(regrets, RULES[agent]), matrix(regrets, RULES[agent])]
    return "\n\n".join(parts)


def main() -> None:
    """Play what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--agent", choices=RULES, help="play this agent only")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="of 8 replicates each")
    parser.add_argument("--kernels", type=Path, help="directory of compiled kernels to keep")
    parser.add_argument("--write", action="store_true", help="write the page only")
    options = parser.parse_args()
    data = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    if not options.write:
        with tempfile.TemporaryDirectory() as folder:
            for agent in RULES if options.agent is None else (options.agent,):
                measure(data, agent, options.blocks, options.kernels or Path(folder))
    marked.put(PAGE, "ablation", table(data))


if __name__ == "__main__":
    main()
