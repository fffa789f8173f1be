"""Power of audits: how often too little noise is detected, and how often correct noise passes.

    python benchmarks/audit_power.py [--audits N] [--runs N] [--agents N] [--json FILE]
    python benchmarks/audit_power.py --table [--runs N]
    python benchmarks/audit_power.py --published [--runs N] [--only TEXT] [--write docs/audit.md]

Each row audits one mechanism repeatedly with independent noise, whose variance is multiplied by 1,
1/2 and 1/10 without changing the claim. The last rows audit an agent end to end, with scaled noise
in its releaser. Times are for one audit of 2 x `runs` runs on one core. ``--table`` instead prints
tables of one audit of every mechanism and of every private agent of the registry. ``--published``
audits them for the table of docs/audit.md, at rho = 0.5; with ``--runs 20000`` bounds are near the
claims.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

# Before NumPy is imported: one core.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from marked import block, put  # noqa: E402
from mechanism_audits import mechanism_audits  # noqa: E402
from message_audits import message_audits  # noqa: E402
from objective_audits import audit_objective, hostile_choices  # noqa: E402
from paper_pages import code  # noqa: E402

from dpb_gym import Budget, agent_specs, make_agent  # noqa: E402
from dpb_gym.audits import (  # noqa: E402
    AuditReport,
    audit,
    audit_outputs,
    audit_records,
    audit_sum,
)
from dpb_gym.audits.worlds import Pair, World  # noqa: E402
from dpb_gym.privacy import (  # noqa: E402
    Composition,
    Curator,
    GaussianEvent,
    Guarantee,
    PSDBall,
    objective_plan,
)
from dpb_gym.privacy.releasers.releaser import behind  # noqa: E402
from dpb_gym.suites.code_digest import code_hash  # noqa: E402

VARIANCES = (1.0, 0.5, 0.1)
RHOS = (0.5, 2.0)
DEPLOYMENT = 1000


def opposite_signs(dim: int) -> Pair:
    """Return a pair that moves all coordinates equally far, half of them against the others.

    The sums of all coordinates are about the same, so that the target decides their order.
    """
    ones = np.full(dim, dim**-0.5, np.float32)
    turned = ones * np.where(np.arange(dim) < dim // 2, 1.0, -1.0).astype(np.float32)
    both = (World(np.tile(x, (3, 1)), r) for x, r in ((turned, 1.0), (turned, 0.0)))
    other = World(np.tile(ones, (3, 1)), 1.0)
    return Pair("half of the coordinates against the others", *both, (other,))


def opposite_corners(dim: int) -> Pair:
    """Return a pair that does not buy, of corners with the first feature in common; all others buy.

    The others move theta to where not to buy is unlikely for both.
    """
    one = np.ones(dim - 1, np.float32)
    other = np.concatenate([one[:1], -one[1:]])
    neither, both = ([World(x, response) for x in (one, other)] for response in (0.0, 1.0))
    return Pair(
        "corners with one feature in common do not buy, all others do", *neither, tuple(both)
    )


CORNERS = {"env_kwargs": {"dim": 4}, "pair": opposite_corners(4)}
SPARSE = {"env_kwargs": {"dim": 8}, "params": {"spread": 1.0}, "pair": opposite_signs(8)}
# In these environments two records are as far apart as the claim allows, or nearly. Where the slope
# of demand is small, a record of curvature and response has nearly no curvature. In many dimensions
# the constant and the price are a small part of a record, and the rest can be opposite.
ATTAINED: dict[str, dict[str, Any]] = {
    "one-pass-pricing": {"env_kwargs": {"dim": 4, "zeta": 0.01}},
    "resolving-pricing": {"env_kwargs": {"dim": 4, "zeta": 0.01}},
    "local-pricing": {"env_kwargs": {"dim": 32}},
    # few points of the law are faster, and records and noise do not depend on them
    "response-pricing": {"params": {"features": [[0.125 * k - 1.0] for k in range(17)]}},
    "fliphat": {"env_kwargs": {"dim": 4}, "params": {"spread": 1.0}, "pair": opposite_signs(4)},
    "explore-commit-pricing": CORNERS,
    "private-pricing": CORNERS,
    "one-pass-sparse": SPARSE,
    "one-pass-sparse-joint": SPARSE,
}
AGENTS = audit_records.PUBLISHED
E1, E2 = np.array([1.0, 0.0]), np.array([0.0, 1.0])
Audit = Callable[[float, float, int, int], AuditReport]


def gaussian_claim(rho: float) -> Guarantee:
    event = GaussianEvent(math.sqrt(0.5 / rho))
    return Guarantee("joint", "user-round", curve=Composition.of(event))


def vectors(rho: float, variance: float, runs: int, seed: int) -> AuditReport:
    """Gaussian sum of vectors, exact likelihood ratio."""
    return audit_sum(
        lambda curator: curator.batch_sum(2, clip=1.0, sensitivity=2.0 * math.sqrt(variance)),
        E1,
        -E1,
        Budget.zcdp(rho),
        runs=runs,
        seed=seed,
    )


def tree(rho: float, variance: float, runs: int, seed: int) -> AuditReport:
    """Binary tree over Gram matrices, 16 releases, exact likelihood ratio."""
    return audit_sum(
        lambda curator: curator.running_sum(
            symmetric=2,
            clip=PSDBall(4.0),
            sensitivity=4.0 * math.sqrt(2.0 * variance),
            mechanism="binary-tree",
        ),
        4 * np.outer(E1, E1),
        4 * np.outer(E2, E2),
        Budget.zcdp(rho),
        rounds=16,
        runs=runs,
        seed=seed,
    )


def outputs(rho: float, variance: float, runs: int, seed: int) -> AuditReport:
    """Twenty numbers of which one differs, fitted linear discriminant."""
    rng = np.random.default_rng(seed)
    worlds = rng.normal(size=(2, runs, 20)) * math.sqrt(variance * 0.5 / rho)
    worlds[1, :, 0] += 1.0
    return audit_outputs(worlds[0], worlds[1], gaussian_claim(rho))


def objective(rho: float, variance: float, runs: int, seed: int) -> AuditReport:
    """Objective perturbation on adversarial choices; the zCDP claim is less tight."""
    plan = objective_plan(rho, dim=2, gradient_bound=2.0, curvature=1.0, records=200_001)
    claimed = Guarantee("joint", "user-round", curve=Composition.of(plan.event))
    scaled = replace(plan, sigma=plan.sigma * math.sqrt(variance))
    return audit_objective(scaled, hostile_choices(), claimed=claimed, runs=runs, seed=seed)


def adaprivate(rho: float, variance: float, runs: int, seed: int) -> AuditReport:
    """adaprivate-ucb end to end, batches of 8, 32 rounds."""

    def agent() -> object:
        made = make_agent("adaprivate-ucb", batch=8)
        begin = made.begin

        def tampered(problem: Any, streams: Any, curator: Curator) -> None:
            begin(problem, streams, curator)
            curator.seal()
            behind(made.releaser)._sigma *= math.sqrt(variance)  # type: ignore[attr-defined]

        made.begin = tampered  # type: ignore[method-assign]
        return made

    return audit(
        agent,
        Budget.zcdp(rho),
        runs,
        env_id="DPB/Recommendation-v0",
        env_kwargs={"dim": 2, "n_arms": 12, "n_candidates": 3},
        horizon=32,
        seed=seed,
    )


def measure(name: str, one: Audit, audits: int, runs: int) -> dict[str, object]:
    """Return the share of audits with verdict FAIL, by rho and variance."""
    row: dict[str, object] = {"mechanism": name, "audits": audits}
    start = time.perf_counter()
    for rho in RHOS:
        for variance in VARIANCES:
            failed = [one(rho, variance, runs, seed).verdict == "FAIL" for seed in range(audits)]
            row[f"{rho:g}/{variance:g}"] = float(np.mean(failed))
    cells = audits * len(RHOS) * len(VARIANCES)
    row["seconds"] = (time.perf_counter() - start) / cells
    return row


AGENT_VARIANTS: dict[str, list[dict[str, object]]] = {
    # one estimate instead of several, and nearly the whole budget on either releaser
    "dpmnl": [{}, {"max_updates": 1}, {"max_updates": 1, "share": 0.1, "explore": 8}],
}


def primary(report: AuditReport) -> str:
    """Return claim and bound in mu, in a pure epsilon, or else where the bound is the most of it.

    All bounds hold jointly, so the largest share of a claim is a bound of the same confidence.
    """
    known = [c for c in report.comparisons if c.claim]
    first = [c for c in known if c.quantity == "mu" or c.delta == 0.0]
    best = first[0] if first else max(known, key=lambda c: c.bound / c.claim)
    name = best.quantity if not best.delta else f"eps({best.delta:g})"
    return f"{name} {best.claim:.3g} | {best.bound:.2f}"


def print_tables(runs: int) -> None:
    """Print Markdown tables of one audit per mechanism and agent, at both values of rho."""
    for title, audits in (("mechanism", mechanism_audits), ("local mechanism", message_audits)):
        rows = [audits(rho) for rho in RHOS]
        print_header(title)
        for name in rows[0]:
            reports = [row[name](runs=runs) for row in rows]
            print_row(name, reports, "")
    print_header("agent", "worlds, and their distance |")
    for name in private_agents():
        for params in AGENT_VARIANTS.get(name, [{}]):
            reports = [audit(name, Budget.zcdp(rho), runs, params=params) for rho in RHOS]
            shown = ", ".join(f"{key}={value}" for key, value in params.items())
            details = reports[1].details
            print_row(
                f"`{name}`" + (f" ({shown})" if shown else ""),
                reports,
                f" {details['worlds']}; {details['boundary']} |",
            )


def private_agents() -> list[str]:
    """Return the names of the private agents."""
    return [
        name
        for name, spec in agent_specs().items()
        if spec.budget != "never" and not spec.uses_oracle
    ]


def published_rows(runs: int, only: str) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return a row of docs/audit.md per private agent, audited at rho = 0.5, and its record."""
    rows, records = {}, {}
    for name in [name for name in private_agents() if only in name]:
        start = time.process_time()

        def say(line: str, name: str = name, start: float = start) -> None:
            seconds = time.process_time() - start
            print(f"{name}, {seconds:.0f} s: {line}", file=sys.stderr, flush=True)

        report = audit(
            name,
            Budget.zcdp(0.5),
            runs,
            deployment=DEPLOYMENT,
            say=say,
            **ATTAINED.get(name, {}),
        )
        claim, bound = primary(report).split(" | ")
        share = float(bound) / float(claim.split()[1])
        target = report.details["rounds"].partition("target in round ")[2]
        worlds, seconds = report.details["worlds"], time.process_time() - start
        rows[name] = (
            f"| `{name}` | {claim} | {bound} | {share:.2f} | {report.verdict} | {report.control} | "
            f"{runs:,} | {worlds} | {target} | {seconds:.0f} s |"
        )
        records[name] = record_of(name, report.verdict, report.control, runs)
        print(rows[name], flush=True)
    return rows, records


def record_of(name: str, verdict: str, control: str | None, runs: int) -> dict[str, Any]:
    """Return the stored record of an audit: digests of the code, audited claim and verdict."""
    spec = agent_specs()[name]
    return {
        "code": code(name), "source": code_hash(spec.maker), "claim": list(spec.protects or ()),
        "verdict": verdict, "control": control, "runs": runs,
    }  # fmt: skip


def write_rows(page: Path, rows: dict[str, str], records: dict[str, dict[str, Any]]) -> None:
    """Write these rows to the page and their records to the package, and keep those of others.

    Digests of the agents' code are stored, which a test compares with the code of today.
    """
    stored = json.loads(AGENTS.read_text(encoding="utf-8")) | records
    AGENTS.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    old = block(page.read_text(encoding="utf-8"), "audits").splitlines()[2:]
    rows = {line.split("`")[1]: line for line in old} | rows
    heads = (
        "agent", "claim", "bound", "of the claim", "verdict", "a third of the noise", "runs",
        "target", "round", "time",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    put(page, "audits", "\n".join([*lines, *(rows[name] for name in sorted(rows))]))


def print_header(title: str, more: str = "") -> None:
    bounds = " | ".join(f"claim at rho {rho:g} | bound" for rho in RHOS)
    print(f"\n| {title} | {bounds} | verdict | {more}".rstrip())
    print("|---" * (6 + bool(more)) + "|")


def print_row(name: str, reports: list[AuditReport], more: str) -> None:
    verdicts = "/".join(dict.fromkeys(report.verdict for report in reports))
    if reports[0].control is not None:
        verdicts += f", {reports[0].control} with a third of the noise"
    values = " | ".join(primary(report) for report in reports)
    print(f"| {name} | {values} | {verdicts} |{more}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--audits", type=int, default=200, help="audits per cell")
    parser.add_argument("--agents", type=int, default=50, help="audits per cell, end to end")
    parser.add_argument("--runs", type=int, default=2000, help="runs in each world")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--table", action="store_true", help="print tables of one audit each")
    parser.add_argument(
        "--published", action="store_true", help="print a row of every private agent"
    )
    parser.add_argument("--only", default="", help="agents of --published whose name contains this")
    parser.add_argument("--write", type=Path, help="replace the rows of --published on this page")
    options = parser.parse_args()
    if options.published:
        rows, records = published_rows(options.runs, options.only)
        if options.write:
            write_rows(options.write, rows, records)
        return
    if options.table:
        print_tables(options.runs)
        return
    few = max(1, options.agents)
    cells = [
        ("Gaussian sum, exact ratio", vectors, options.audits),
        ("binary tree, exact ratio", tree, options.audits),
        ("20 numbers, discriminant", outputs, options.audits),
        ("objective perturbation", objective, max(1, few // 5)),
        ("adaprivate-ucb, end to end", adaprivate, few),
    ]
    vectors(1.0, 1.0, 100, 0)  # compile
    columns = [f"{rho:g}/{variance:g}" for rho in RHOS for variance in VARIANCES]
    print("Share of audits with verdict FAIL, by rho / factor on the noise variance")
    print(f"{'mechanism':28s}{'audits':>7s}" + "".join(f"{c:>9s}" for c in columns) + "   s/audit")
    rows = []
    for name, one, audits in cells:
        row = measure(name, one, audits, options.runs)
        rows.append(row)
        shares = "".join(f"{100 * float(row[c]):8.1f}%" for c in columns)  # type: ignore[arg-type]
        print(f"{name:28s}{audits:7d}{shares}{float(row['seconds']):10.2f}", flush=True)  # type: ignore[arg-type]
    start = time.perf_counter()
    report = audit("dpmnl", Budget.zcdp(0.5), options.runs)
    seconds = time.perf_counter() - start
    print(f"dpmnl end to end, 2 x {report.runs} runs, {report.details['rounds']}: {seconds:.1f} s")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
