"""Sentences of `dpb_gym.advise` on the logs at hand, beside the truth that they are about.

``python benchmarks/advice.py`` runs the logs that docs/results/advice.json lacks, and writes the
tables and pictures of docs/own-data.md from it. Public logs lie below DPB_DATA. ``--log NAME`` runs
a log again, ``--coverage 200`` generates 200 logs and counts the intervals that hold the truth, and
``--forms 240`` does so for demand of other forms, without runs of agents. ``--files FOLDER`` reads
public files that are not part of this package.
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
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from advice_estimates import price_effect
from advice_truths import GENERATED, OTHER_FORMS, Truth, clicks, trips
from marked import put
from paper_pages import code

import dpb_data
import dpb_gym
from dpb_data import synthetic
from dpb_gym.envs.registration import ENVIRONMENTS, environment, register_environment
from dpb_gym.planning.advice import BASE, RANDOM, SINGLE, TODAY, Advice
from dpb_gym.planning.fixed_actions import FixedAction, best_fixed_action
from dpb_gym.problems.base import Feedback
from dpb_gym.problems.fitting import TWO_SIDED
from dpb_gym.problems.logged import LoggedPricing

REPOSITORY = Path(__file__).parents[1]
PAGE, STORED = REPOSITORY / "docs/own-data.md", REPOSITORY / "docs/results/advice.json"
SEED, OTHERS, DRAWS, ROUNDS = 10**7, 64, 64, 10_000
MOST_CUSTOMERS = 60_000  # of a run that checks how many customers a log needs
PUBLISHED = {
    "electricity": "-0.625 (mlogit)",
    "Train": "-0.00148 (mlogit)",
}
"""Estimates in the documentation of R's mlogit."""
PICTURES = {
    "Open Bandit, men": "advice-open-bandit.png",
    "Swissmetro": "advice-swissmetro.png",
    "ModeCanada": "advice-mode-canada.png",
    "synthetic-loans": "advice-loans.png",
}
CAR = {"outside": "car", "revenue": "cost", "capacity": 2}
ELECTRICITY = {"outside": 4, "revenue": "pf", "capacity": 1}
LOGS: dict[str, tuple[str, dict[str, Any]]] = {
    "Open Bandit, men": ("obd-men/random/men.csv.gz", {}),
    "Open Bandit, men, bts": ("obd-men/bts/men.csv.gz", {}),
    "Swissmetro": (
        "choice/swissmetro.csv.gz",
        {"outside": "CAR", "revenue": "CO", "capacity": 1, "currency": "CHF"},
    ),
    "ModeCanada": ("choice/ModeCanada.csv.gz", CAR | {"currency": "CAD"}),
    "electricity": ("choice/electricity.csv.gz", ELECTRICITY),
    "synthetic-loans": ("synthetic-loans", {}),
    "synthetic-mode-canada": ("synthetic-mode-canada", CAR),
    "synthetic-open-bandit": ("clicks.csv", {}),
    "synthetic-movielens": ("synthetic-movielens", {}),
}
FILES: dict[str, dict[str, Any]] = {
    "modechoice": {"case": "individual", "item": "mode", "chosen": "choice", "outside": 4,
                   "features": ["ttme", "gc"], "revenue": "gc", "capacity": 3},
    "Mode": {"outside": "car", "revenue": "cost", "capacity": 3},
    "Train": {"person": "id", "alternatives": {"choice1": "1", "choice2": "2"}, "outside": "2",
              "revenue": "price", "capacity": 1},
    "Catsup": {"person": "id", "outside": "hunts32", "revenue": "price", "capacity": 3},
    "Cracker": {"person": "id", "outside": "private", "revenue": "price", "capacity": 3},
    "Yogurt": {"person": "id", "outside": "weight", "revenue": "price", "capacity": 3},
    "Ketchup": {"person": "Ketchup.hid", "outside": "stb", "revenue": "price", "capacity": 3},
    "Tuna": {"person": "Tuna.hid", "outside": "pw", "revenue": "price", "capacity": 4},
    "Heating": {"outside": "hp", "features": ["ic", "oc"], "revenue": "ic", "capacity": 4},
    "HC": {"outside": "er", "revenue": "ich", "capacity": 3},
    "Car": {"outside": "6", "revenue": "price", "capacity": 5},
}  # fmt: skip
"""Public files by name: modechoice of statsmodels, the others of R's Ecdat (also in pydataset)."""
GENERATORS: dict[str, Any] = {
    "synthetic-loans": lambda: synthetic.loans(400_000),
    "synthetic-mode-canada": lambda: synthetic.mode_canada(60_000),
    "synthetic-open-bandit": lambda: synthetic.open_bandit(300_000)[0],
}
FIRST_FORM = 20_000  # seed that no choice of the fit was made with
ROUNDS_COVERED, COVERED = 1_000, "eps=4,delta=1e-6"
MANY = 80_000  # customers of a log whose fit stands for the truth
UNITS = {"pricing": "highest_price", "assortment": "revenue_unit"}
"""Attribute of a problem that is the earnings of a reward of 1."""


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
    percents = {}
    for label, row in rows.items():
        lost = 100.0 * (row.regret - base.regret)[:, -1] / base.reward[:, -1].mean()
        percents[label] = [float(lost.mean()), 2.0 * float(lost.std(ddof=1) / np.sqrt(len(lost)))]
    return percents


def known(name: str, advice: Advice) -> str:
    """Return the environment of the demand that generated a log, in the units of its advice."""
    source, settings = LOGS[name]
    problem = dpb_gym.make_problem(advice.log)
    roles = dpb_gym.advise(source, dry_run=True, **settings)
    own = {k: v for k, v in settings.items() if k != "currency"} | roles.columns
    bounds = problem.bounds  # type: ignore[attr-defined]
    return dpb_gym.from_log(GENERATORS[name](), roles.problem, bounds=bounds, **own)


def estimate(file: str, told: list[str], advice: Advice, truth: str) -> dict[str, Any] | None:
    """Return the effect of the price beside an independent estimate, or the best item's rate.

    None for ratings, which have neither.

    Args:
        file: The file or kind of log.
        told: Arguments that the user gives.
        advice: The advice.
        truth: What is known of the demand.
    """
    problem: Any = dpb_gym.make_problem(advice.log)
    key = "price" if problem.kind == "pricing" else getattr(problem, "revenue", "")
    effect = getattr(problem, "effects", {}).get(key)
    settings = environment(advice.log).defaults
    if effect is not None:
        independent = price_effect(
            settings["data"], settings.get("outside"), key, settings.get("log_scale", ())
        )
        ours = [effect.value, *effect.interval]
    elif (
        problem.kind == "recommendation" and getattr(settings["data"], "clicked", None) is not None
    ):
        fixed = best_fixed_action(problem)
        own = settings["data"].clicked[settings["data"].items == int(fixed.action)]
        independent = float(own.mean()), float(own.std() / np.sqrt(len(own)))
        ours = [fixed.earned.mean, fixed.earned.low, fixed.earned.high]
    else:
        return None
    return {
        "file": file, "told": told, "independent": list(independent),
        "published": PUBLISHED.get(file), "ours": ours,
        "sentence": advice.decision.text, "truth": truth,
    }  # fmt: skip


def run(name: str) -> dict[str, Any]:
    """Return the sentences on a log with their truths, and draw its picture."""
    source, settings = LOGS[name]
    advice = dpb_gym.advise(source, **settings)
    if name in PICTURES:
        advice.plot(REPOSITORY / "docs/_static" / PICTURES[name])
    run_again = [e for e in advice.earnings if e.label not in (SINGLE, RANDOM, TODAY)]
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
            world: {
                str(T): losses(log, some, T, **kwargs)[RANDOM]
                for T in (ROUNDS, count)
                if 0 < T <= MOST_CUSTOMERS
            }
            for world, (log, kwargs) in worlds.items()
        }
        rows.append({"sentence": advice.thin, "truths": truths, "customers": count})
    else:
        by_world = {w: losses(log, agents, ROUNDS, **kwargs) for w, (log, kwargs) in worlds.items()}
        private = [e for e in advice.earnings if e.label in agents.keys() - {BASE, RANDOM}]
        for e, sentence in zip(private, advice.sentences[1:]):
            truths = {world: lost[e.label] for world, lost in by_world.items()}
            said = [e.lost.low, e.lost.high]
            rows.append({"sentence": sentence, "interval": said, "truths": truths})
    told = sorted(key for key in settings if key != "currency")
    truth = "generated by this package" if name in GENERATORS else "unknown"
    names = sorted({agent if isinstance(agent, str) else agent[0] for agent in agents.values()})
    return {
        "command": command(name), "replicates": OTHERS, "rows": rows,
        "decision": advice.decision.text, "estimate": estimate(name, told, advice, truth),
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
    last = [truth[str(row["customers"])] for truth in row["truths"].values()
            if str(row["customers"]) in truth]  # fmt: skip
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
    lines += ["", f"{sum(map(is_right, rows))} of {len(rows)} sentences are right."]
    return "\n".join(lines)


def _truth(row: dict[str, Any], truth: Any) -> str:
    if "interval" in row:
        return f"{truth[0]:.2f}% ± {truth[1]:.2f}"
    return ", ".join(f"random loses {mean:.1f}% ± {error:.1f} in {int(T):,}"
                     for T, (mean, error) in truth.items())  # fmt: skip


def examples(data: dict[str, Any]) -> str:
    """Return command, decision, doubts, first cost and picture of the documented logs."""
    parts = []
    for name, picture in PICTURES.items():
        log = data["logs"][name]
        said = [log["decision"], *(f"Doubt: {doubt}." for doubt in log["doubts"])]
        said += [row["sentence"] for row in log["rows"][:1] if "interval" in row]
        parts += [f"**{name}**: `{log['command']}`", " ".join(said),
                  f"![Earnings on {name}](_static/{picture})"]  # fmt: skip
    return "\n\n".join(parts)


class World(LoggedPricing):
    """The customers of a log, who respond by the demand that generated it."""

    def __init__(self, truth: Truth, **settings: Any) -> None:
        columns = {k: v for k, v in truth.settings.items() if k not in ("log_scale",)}
        table = dpb_data.prices(truth.frame, **columns)
        self._truth, self._log_scale = truth, truth.settings.get("log_scale", ())
        super().__init__(table, log_scale=self._log_scale, **settings)
        self._names = table.feature_names

    def respond(self, hidden: Any, round_: Any, action: Any) -> tuple[Feedback, Any]:
        price = self.highest_price * np.clip(action, *self.info.price_range)
        x = {}
        for k, name in enumerate(self._names):
            low, high = self.bounds[name]
            logged = name in self._log_scale
            ends = np.log1p([low, high]) if logged else (low, high)
            value = ends[0] + (round_.context.features[:, k + 1] + 1) / 2 * (ends[1] - ends[0])
            x[name] = np.expm1(value) if logged else value
        chance = self._truth.demand(price, x)
        bought = (round_.uniform < chance).astype(float)
        share = price / self.highest_price
        return Feedback(share * bought, demand=bought), share * chance


def true_gain(truth: Truth, advice: Advice, seed: int) -> float:
    """Return a decision's true gain over the log's own actions, in percent of what those earn."""
    if advice.decision.kind == "fixed":
        return 100.0 * (true_fixed(truth, advice)[1] / truth.today - 1.0)
    problem: Any = dpb_gym.make_problem(advice.log)
    if truth.problem == "pricing":
        name = f"World/{truth.name.title().replace(' ', '')}-v0"
        ENVIRONMENTS.pop(name, None)  # of the log before of this kind
        gymnasium.registry.pop(name, None)
        register_environment(name, World, kind="pricing", summary="", reveals="", truth=truth)
    else:  # the demand is of the fitted form, so a long log of it has nearly the true coefficients
        long = (trips if truth.problem == "assortment" else clicks)(seed, MANY).frame
        reading = dpb_data.read(long, truth.problem, **truth.settings)
        name = dpb_gym.from_log(reading.table(), reading.problem, bounds=problem.bounds,
                                progress=False, **reading.settings)  # fmt: skip
    agent, _, budget = advice.decision.action.partition(" at ")
    result = dpb_gym.evaluate(name, {"run": (agent, budget)}, ROUNDS_COVERED, 32, SEED,
                              workers=1, progress=False)  # fmt: skip
    there: Any = dpb_gym.make_problem(name)
    unit = getattr(there, UNITS.get(truth.problem, ""), 1.0)
    earned = unit * float(result.rows[0].reward[:, -1].mean()) / ROUNDS_COVERED
    return 100.0 * (earned / truth.today - 1.0)


def true_fixed(truth: Truth, advice: Advice) -> tuple[FixedAction, float]:
    """Return the best single action of the advice, and what it truly earns per customer."""
    problem: Any = dpb_gym.make_problem(advice.log)
    fixed = best_fixed_action(problem)
    if truth.problem == "pricing":
        return fixed, truth.fixed(float(fixed.action) * problem.highest_price)
    items = [str(problem.item_ids[k]) for k in np.atleast_1d(fixed.action) if k >= 0]
    return fixed, truth.fixed(items if truth.problem == "assortment" else items[0])


def check(truth: Truth, seed: int) -> dict[str, Any]:
    """Return which intervals of the advice on a generated log hold its truth."""
    try:
        advice = dpb_gym.advise(
            truth.frame, truth.problem, budgets=COVERED, replicates=8, horizon=ROUNDS_COVERED,
            seed=1000 * seed, progress=False, **truth.settings,
        )  # fmt: skip
    except dpb_data.DataError as error:
        return {"kind": "refused", "why": str(error), "held": {}}
    fixed, earned = true_fixed(truth, advice)
    gain = 100.0 * (earned / truth.today - 1.0)
    problem: Any = dpb_gym.make_problem(advice.log)
    per = 10_000 * getattr(problem, UNITS.get(truth.problem, ""), 1.0)
    today = advice.earnings[-1].earned
    held = {
        "gain": fixed.gain.low <= gain <= fixed.gain.high,
        "earned": per * fixed.earned.low <= 10_000 * earned <= per * fixed.earned.high,
        "today": today.low <= 10_000 * truth.today <= today.high,
    }
    if truth.elasticity is not None:
        low, high = problem.effects["elasticity"].interval
        held["elasticity"] = low <= truth.elasticity <= high
    outcome: dict[str, Any] = {"kind": advice.decision.kind, "held": held}
    if advice.decision.gain is not None:
        interval = advice.decision.gain
        outcome["decided"] = [true_gain(truth, advice, seed), interval.low, interval.high]
    return outcome


def coverage(logs: int) -> dict[str, Any]:
    """Return how many intervals on generated logs hold the truth, by kind of log.

    A decision loses more than its interval says if its true gain is below the lower end.
    """
    kinds: dict[str, Any] = {}
    for generate in GENERATED:
        for seed in range(logs // len(GENERATED)):
            truth = generate(seed)
            outcome = check(truth, seed)
            own = kinds.setdefault(
                truth.name,
                {"logs": 0, "held": {}, "asked": {}, "kinds": {}, "below": 0, "worse": 0},
            )
            own["logs"] += 1
            own["kinds"][outcome["kind"]] = own["kinds"].get(outcome["kind"], 0) + 1
            for what, holds in outcome["held"].items():
                own["asked"][what] = own["asked"].get(what, 0) + 1
                own["held"][what] = own["held"].get(what, 0) + bool(holds)
            if "decided" in outcome:
                gain, low, _ = outcome["decided"]
                own["below"] += gain < low
                own["worse"] += gain < min(0.0, low)
            print(truth.name, seed, outcome, flush=True)
    return kinds


def forms(logs: int) -> dict[str, Any]:
    """Return how many intervals hold the truth of demand of other forms, by form.

    A fixed price is decided for if its gain is above 0 with the confidence of a decision.
    """
    counts = {}
    for generate in OTHER_FORMS:
        own: dict[str, Any] = {"logs": 0, "held": {}, "refused": 0, "fixed": 0, "below": 0,
                               "worse": 0}  # fmt: skip
        for seed in range(FIRST_FORM, FIRST_FORM + logs // len(OTHER_FORMS)):
            truth = generate(seed)
            own["logs"] += 1
            try:
                log = dpb_gym.from_log(truth.frame, "pricing", progress=False, **truth.settings)
            except dpb_data.DataError:
                own["refused"] += 1
                continue
            problem: Any = dpb_gym.make_problem(log)
            fixed = best_fixed_action(problem)
            earned = truth.fixed(float(fixed.action) * problem.highest_price)
            gain = 100.0 * (earned / truth.today - 1.0)
            mean, error = (problem.highest_price * x for x in problem.today)
            low, high = problem.effects["elasticity"].interval
            held = {
                "elasticity": low <= truth.elasticity <= high,
                "gain": fixed.gain.low <= gain <= fixed.gain.high,
                "earned": fixed.earned.low <= earned / problem.highest_price <= fixed.earned.high,
                "today": abs(mean - truth.today) <= TWO_SIDED * error,
            }
            for what, holds in held.items():
                own["held"][what] = own["held"].get(what, 0) + bool(holds)
            if fixed.decided.low > 0.0:
                own["fixed"] += 1
                own["below"] += bool(gain < fixed.decided.low)
                own["worse"] += bool(gain < 0.0)
        counts[truth.name] = own
        print(truth.name, own, flush=True)
    return counts


def other_forms(kinds: dict[str, Any]) -> str:
    """Return the table of `forms`, and its totals."""
    whats = ("elasticity", "gain", "earned", "today")
    lines = ["| demand | logs | elasticity | gain of a fixed price | its earnings | today | prices "
             "decided for |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, own in kinds.items():
        cells = " | ".join(str(own["held"].get(what, 0)) for what in whats)
        lines.append(f"| {name} | {own['logs'] - own['refused']} | {cells} | {own['fixed']} |")
    logs = sum(own["logs"] - own["refused"] for own in kinds.values())
    held = sum(sum(own["held"].values()) for own in kinds.values())
    fixed, worse, below = (
        sum(own[what] for own in kinds.values()) for what in ("fixed", "worse", "below")
    )
    refused = sum(own["refused"] for own in kinds.values())
    lines += ["", f"{held} of {4 * logs} intervals hold the truth ({held / (4 * logs):.0%}). Of "
              f"{fixed} prices, {worse} bring less than today, and {below} less than the lower end "
              f"of their interval. {refused} logs are refused."]  # fmt: skip
    return "\n".join(lines)


def public(folder: Path) -> list[dict[str, Any]]:
    """Return the estimates and sentences of the public files in a folder."""
    rows = []
    for name, settings in FILES.items():
        advice = dpb_gym.advise(
            folder / f"{name}.csv", budgets=COVERED, replicates=8, horizon=ROUNDS_COVERED,
            progress=False, **settings,
        )  # fmt: skip
        row = estimate(name, sorted(settings), advice, "unknown")
        assert row is not None
        rows.append(row)
        print(row, flush=True)
    return rows


def generated() -> list[dict[str, Any]]:
    """Return the estimates and sentences of one generated log of each kind."""
    rows = []
    for generate in GENERATED:
        truth = generate(100)
        advice = dpb_gym.advise(
            truth.frame, truth.problem, budgets=COVERED, replicates=8, horizon=ROUNDS_COVERED,
            progress=False, **truth.settings,
        )  # fmt: skip
        _, earned = true_fixed(truth, advice)
        gain = 100.0 * (earned / truth.today - 1.0)
        known = f"the fixed choice brings {gain:+.1f}%"
        if truth.elasticity is not None:
            low, high = dpb_gym.make_problem(advice.log).effects["elasticity"].interval  # type: ignore[attr-defined]
            known = f"elasticity {truth.elasticity:.2f} (ours {low:.2f} to {high:.2f}), {known}"
        told = sorted(truth.settings)
        row = estimate(truth.name, told, advice, known)
        rows.append(row or {"file": truth.name, "told": told, "independent": None,
                             "published": None, "ours": None, "truth": known,
                             "sentence": advice.decision.text})  # fmt: skip
    return rows


def estimates(data: dict[str, Any]) -> str:
    """Return the table of files with independent estimates, ours, sentences and truths."""
    lines = ["| file | independent estimate | ours | told | sentence | truth |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    logs = [log["estimate"] or {"file": name, "told": [], "independent": None, "ours": None,
                                "published": None, "sentence": log["decision"], "truth": "unknown"}
            for name, log in data["logs"].items()]  # fmt: skip
    for row in [*logs, *data["files"], *data["generated"]]:
        other, ours = "-", "-"
        if row["independent"]:
            other = f"{row['independent'][0]:.3g} ± {row['independent'][1]:.2g}"
            other += f"; {row['published']}" if row["published"] else ""
            ours = "{:.3g} ({:.3g} to {:.3g})".format(*row["ours"])
        told = ", ".join(f"`{key}`" for key in row["told"]) or "nothing"
        lines.append(
            f"| {row['file']} | {other} | {ours} | {told} | {row['sentence']} | {row['truth']} |"
        )
    return "\n".join(lines)


def covered(kinds: dict[str, Any]) -> str:
    """Return the table of `coverage`, and its totals."""
    whats = ("elasticity", "gain", "earned", "today")
    lines = ["| logs | elasticity | gain of a fixed choice | its earnings | today | decisions |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for name, own in kinds.items():
        cells = [f"{own['held'][w]} of {own['asked'][w]}" if w in own["asked"] else "-"
                 for w in whats]  # fmt: skip
        taken = ", ".join(f"{count} {kind}" for kind, count in sorted(own["kinds"].items()))
        lines.append(f"| {own['logs']} of {name} | {' | '.join(cells)} | {taken} |")
    held = sum(sum(own["held"].values()) for own in kinds.values())
    asked = sum(sum(own["asked"].values()) for own in kinds.values())
    logs = sum(own["logs"] for own in kinds.values())
    worse = sum(own["worse"] for own in kinds.values())
    decided = sum(
        own["kinds"].get(kind, 0) for own in kinds.values() for kind in ("fixed", "agent")
    )
    below = sum(own["below"] for own in kinds.values())
    lines += ["", f"On {logs} generated logs, {held} of {asked} intervals hold the truth "
              f"({held / asked:.0%}). Of {decided} decisions to change something, {worse} bring "
              f"less than today, and {below} less than the lower end of their "
              "interval."]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--log", choices=LOGS, action="append", default=[])
    parser.add_argument("--coverage", type=int, help="logs to generate")
    parser.add_argument("--generated", action="store_true", help="one log of each kind again")
    parser.add_argument("--forms", type=int, help="logs of other forms of demand to generate")
    parser.add_argument("--files", type=Path, help="folder of the public files in `FILES`")
    options = parser.parse_args()
    data = json.loads(STORED.read_text()) if STORED.exists() else {"logs": {}, "coverage": {}}
    if options.coverage:
        data["coverage"] = coverage(options.coverage)
    if options.files:
        data["files"] = public(options.files)
    if options.forms:
        data["forms"] = forms(options.forms)
    if options.generated or "generated" not in data:
        data["generated"] = generated()
    with tempfile.TemporaryDirectory() as folder:
        dpb_data.write_sample("synthetic-open-bandit", Path(folder) / "clicks.csv")
        os.chdir(folder)
        for name in options.log or [n for n in LOGS if n not in data["logs"]]:
            data["logs"][name] = run(name)
            STORED.write_text(json.dumps(data, indent=1) + "\n")
    data["logs"] = {name: data["logs"][name] for name in LOGS}
    STORED.write_text(json.dumps(data, indent=1) + "\n")
    put(PAGE, "truths", table(data))
    put(PAGE, "examples", examples(data))
    put(PAGE, "estimates", estimates(data))
    if "forms" in data:
        put(PAGE, "forms", other_forms(data["forms"]))
    if data["coverage"]:
        put(PAGE, "coverage", covered(data["coverage"]))


if __name__ == "__main__":
    main()
