"""Commands on results: leaderboard, verify, certify, submit, import, remove, audit and costs."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import typer
from rich.filesize import decimal
from typer import Argument, Option

import dpb_gym
from dpb_gym import audits, privacy, report
from dpb_gym.cli import options, table_questions
from dpb_gym.cli.completion import complete
from dpb_gym.errors import AgentError, ParameterError, ResultError
from dpb_gym.progress_lines import progress_lines


def leaderboard(
    directory: str = options.DIRECTORY,
    html: str | None = options.HTML,
    plot: str | None = options.PLOT,
    audit: bool = Option(
        False, "--audit", help="Audit every private agent first; reports are kept."
    ),
    runs: int = Option(2000, help="Runs in each world of an audit."),
    tasks: str | None = options.TASKS,
    json: bool = options.JSON,
) -> None:
    """Print the table of a result directory; write the page and the regret curves.

    Example: dpb leaderboard results/smoke --html leaderboard.html --plot regret.png
    """
    from dpb_gym.results.row_audits import audit_rows

    result = dpb_gym.Result.load(directory)
    for path in (html, plot):
        options.new_folder(path)
    chosen = options.names(tasks)
    if audit:
        rows = [row for row in result.rows if chosen is None or row.task in chosen]
        result.audits = audit_rows(directory, rows, runs, options.log)
        for kept in result.audits.values():
            if "error" in kept:
                options.log(f"not audited: {kept['error']}")
    data = result.to_leaderboard()
    if chosen is not None:
        data = data.of_tasks(chosen)
    if json:
        print(report.to_json(data))
    else:
        report.table(data, console=options.console())
    messages = sys.stderr if json else sys.stdout
    if html is not None:
        print(f"page written to {report.html(data, html)}", file=messages)
    if plot is not None:
        report.plot(data, plot)
        print(f"regret curves written to {plot}", file=messages)


def certify(
    directory: str = options.DIRECTORY,
    out: str = Option("certificate.json", help="The certificate, .json."),
    html: str | None = options.HTML,
    key: str | None = Option(
        None, metavar="KEYFILE", help="Sign with this private Ed25519 key, PEM. Extra: sign."
    ),
) -> None:
    """Write a certificate of the private rows of a result directory; dpb verify checks it.

    Rows that spent more than their budget, and rows that only their sender stated, are left out.

    Example: dpb certify results/smoke --out certificate.json --html certificate.html

    Signed: openssl genpkey -algorithm ed25519 -out key.pem; dpb certify results/smoke --key key.pem
    """
    from dpb_gym.privacy.certificate import contradictions

    result = dpb_gym.Result.load(directory)
    entries = []
    for row in result.rows:
        if row.guarantee is None or row.guarantee["curve"] is None:
            continue
        facts = _row_facts(result, row)
        name = f"{row.agent} ({row.budget}) on {row.task}"
        if row.trust.startswith("stated"):
            options.note(f"left out: {name} is {row.trust}, and was not computed here")
            continue
        if wrong := contradictions(facts):
            options.note(f"left out: {name}: {'; '.join(wrong)}")
            continue
        entries.append(facts)
    if not entries:
        raise ResultError(f"{directory} holds no private results that can be certified")
    certificate = privacy.Certificate.of(entries)
    if key is not None:
        certificate = certificate.sign(key)
    for path in filter(None, (out, html)):
        options.new_folder(path)
        certificate.save(path)
    print(f"certificate written to {out}; check it: dpb verify {shlex.quote(out)}")
    if certificate.signer is not None:
        print(f"signed by key {certificate.signer}")


def _row_facts(result: dpb_gym.Result, row: Any) -> dict[str, Any]:
    """Return the facts of a row, for a certificate."""
    from dpb_gym.results.row_audits import own_report

    agent = row.cell.agent
    task = row.cell.task
    audited = own_report(result.audits, agent, task.kind)
    return {
        "agent": agent.name, "parameters": agent.identity["params"], "budget": row.budget,
        "problem": task.identity, "guarantee": row.guarantee,
        "provisos": list(task.problem().info.provisos) if task.requires is None else [],
        "generator": "seeded", "lifetime": None,
        "audit": None if audited is None else audits.AuditReport.from_dict(audited).summary(),
        "code": {
            "entry_point": agent.entry_point, "digest": agent.code or None,
            "revision": result.revision,
        },
    }  # fmt: skip


def _verify_certificate(path: str, key: str | None, rerun: bool, json: bool) -> None:
    """Check a certificate, print what was found, and exit with status 1 at a difference."""
    dpb_gym.agent_specs()  # of other packages, which may define accounting events
    certificate = privacy.Certificate.load(path)
    wrong = certificate.check(key)
    stated = sum(entry["facts"]["audit"] is not None for entry in certificate.content["entries"])
    rerun = rerun and not wrong
    again = 0
    if rerun:
        differing, again = audits.check_audits(certificate, options.log)
        wrong += differing
    if json:
        checked = {"stated": stated, "recomputed": again}
        options.print_json({
            "ok": not wrong, "differences": wrong, "signer": certificate.signer, "audits": checked
        })  # fmt: skip
    else:
        # a file with differences has facts that nobody should read as a promise
        lines = [*wrong] or [str(certificate)]
        if stated and not rerun:
            lines.append("audit: not checked; dpb verify --audits runs it again")
        elif stated:
            lines.append(f"audit: {again} of {stated} run again with the same report")
        options.print_text("\n".join([*lines, f"recomputed, {len(wrong)} differences"]))
    if wrong:
        raise typer.Exit(1)


def verify(
    directory: str = Argument(
        metavar="DIR|FILE", help="Result directory, or the file of a certificate."
    ),
    sample: int = Option(3, help="Cells to compute again of each imported row, and of all others."),
    seed: int | None = Option(None, help="Chooses the sample; random by default."),
    agent: str | None = Option(None, help="Take the sample from this agent's cells alone."),
    isolate: bool | None = Option(
        None,
        "--isolate/--no-isolate",
        help="Run private agents without access to raw data; by default those of other packages.",
    ),
    key: str | None = Option(
        None, metavar="KEYFILE", help="Certificate: the public key that must have signed it, PEM."
    ),
    rerun: bool = Option(False, "--audits", help="Certificate: run its audits again."),
    json: bool = options.JSON,
) -> None:
    """Check all digests, and compute cells again, bit for bit; or check a certificate.

    Exit status 1 if something differs, or if a row is not confirmed.

    Example: dpb verify results/smoke --sample 5

    A certificate: dpb verify certificate.json --key public.pem --audits
    """
    if directory.endswith(".json") or Path(directory).is_file():
        _verify_certificate(directory, key, rerun, json)
        return
    if key is not None or rerun:
        raise ParameterError("--key and --audits are for a certificate, which is a file")
    from dpb_gym.exchange import verification

    outcome = verification.verify(directory, sample, seed, options.log, agent, isolate)
    if json:
        options.print_json({**vars(outcome), "ok": outcome.ok})
    else:
        messages = {
            "damaged": outcome.damaged,
            "differs": outcome.differing,
            "last digits": outcome.rounding,
            "cannot be computed again": outcome.impossible,
            "not computed again here": outcome.unavailable,
        }
        for what, lines in messages.items():
            for line in lines:
                print(f"{what}: {line}")
        same = len(outcome.again) - len(outcome.differing) - len(outcome.rounding)
        print(
            f"{outcome.cells - len(outcome.damaged)} of {outcome.cells} cells have the right "
            f"digest; {same} of {len(outcome.again)} cells computed again are the same bit for "
            f"bit; {outcome.confirmed} of {outcome.rows} rows confirmed"
        )
    if not outcome.ok:
        raise typer.Exit(1)


def submit(
    directory: str = options.DIRECTORY,
    agent: str = Option(help="Registered name, or label, of the agent."),
    out: str | None = Option(None, help="Archive, .zip; AGENT.zip by default."),
    by: str | None = Option(None, help="Who states the results; the agent's package by default."),
    json: bool = options.JSON,
) -> None:
    """Pack an agent's results, guarantee and source reference into one archive.

    Example: dpb submit results/dpb-bench-v1 --agent my-agent --out my-agent.zip
    """
    from dpb_gym.exchange import archive

    target = Path(out or f"{agent}.zip".replace("/", "-").replace(" ", "-"))
    info = archive.submit(directory, agent, target, by)
    if json:
        options.print_json({"path": str(target), **info})
        return
    source = info["agent"]
    rows = info["summary"]
    package = f"{source['package']} {source['package_version']}" if source["package"] else "-"
    count = f"{len(rows)} {'row' if len(rows) == 1 else 'rows'}"
    print(
        f"{target}: {count} of {source['name']} ({package}, {source['file']} "
        f"{source['sha256'][:12]}), {target.stat().st_size / 1024:,.0f} KiB"
    )
    if source["revision"] is None or source["revision"].endswith("-dirty"):
        options.note("the agent's file is not committed to git; others see its hash alone")
    partial = [row for row in rows if row["replicates"] < row["of"]]
    for row in partial[:5]:
        options.note(
            f"{row['agent']} ({row['budget']}) on {row['task']} has {row['replicates']} of "
            f"{row['of']} replicates; the leaderboard marks it incomplete"
        )
    if len(partial) > 5:
        options.note(f"so have {len(partial) - 5} rows more")
    print(f"Add it to a leaderboard: dpb import {shlex.quote(str(target))} --into DIR")


def import_(
    archive: str = Argument(metavar="FILE", help="What dpb submit wrote."),
    into: str = Option(metavar="DIR", help="Result directory to add it to."),
    json: bool = options.JSON,
) -> None:
    """Add a submission to a result directory: all of it or nothing.

    Example: dpb import my-agent.zip --into results/dpb-bench-v1
    """
    from dpb_gym.exchange import importing

    merge = importing.import_submission(archive, into)
    if json:
        options.print_json(merge)
        return
    before = f", {merge.present} were there already" if merge.present else ""
    print(
        f"{merge.path}: {merge.added} cells of {merge.agent} added{before}, "
        f"stated by {merge.sender}"
    )
    for difference in merge.differences:
        options.note(f"{difference}: numbers may differ in the last bits")
    check = f"dpb verify {shlex.quote(str(merge.path))} --agent {merge.agent}"
    print(f"They get no rank before they are computed again here: {check}")


def remove(
    directory: str = options.DIRECTORY,
    agent: str = Option(help="Label, or name, of an imported agent."),
    json: bool = options.JSON,
) -> None:
    """Remove an imported agent from a result directory; cells computed here stay.

    Example: dpb remove results/dpb-bench-v1 --agent my-agent
    """
    from dpb_gym.exchange import importing

    count = importing.remove_submission(directory, agent)
    if json:
        options.print_json({"path": directory, "agent": agent, "removed": count})
    else:
        print(f"{directory}: {count} imported cells of {agent} removed")


def audit(
    agent: str = Argument(help="A registered agent.", autocompletion=complete("agents")),
    budget: str | None = Option(None, metavar=options.BUDGET, help="Budget; rho=0.5 by default."),
    runs: int = Option(2000, help="Runs in each of the two worlds."),
    seed: int = Option(0, help="Seed of customers and agents."),
    env: str | None = Option(
        None,
        help="Environment id; a small one of its kind by default.",
        autocompletion=complete("envs"),
    ),
    deployment: int | None = Option(
        None, help="Rounds of the test for raw data; by default the environment's horizon."
    ),
    set_: list[str] = options.settings("Parameter of the agent"),
    json: bool = options.JSON,
) -> None:
    """Run an agent on two neighbouring worlds and bound its privacy loss from below.

    Exit status 1 if the claim is refuted or raw data are read. Audits have power at budgets of rho
    0.5 to 2. The verdict is kept on this machine, for rows of the same code.

    Example: dpb audit adaprivate-ts --budget rho=0.5 --runs 2000
    """
    from dpb_gym.audits.audit_records import remember
    from dpb_gym.envs.registration import environment
    from dpb_gym.results.row_audits import AUDIT_BUDGET
    from dpb_gym.suites.spec import AgentRun

    if dpb_gym.agent_spec(agent).budget == "never":
        raise AgentError(
            f"{agent!r} is not private: it claims nothing that an audit could refute. "
            "`dpb list agents` shows the private agents"
        )
    asked: Any = AUDIT_BUDGET
    if budget is not None:
        (asked,) = options.read_budgets([budget])
    start = time.perf_counter()

    def say(line: str) -> None:
        options.log(f"{agent}, {time.perf_counter() - start:.0f} s: {line}")

    params = options.read_settings(set_)
    audited = audits.audit(
        agent, asked, runs, params=params, env_id=env, seed=seed, deployment=deployment, say=say
    )
    spec = dpb_gym.agent_spec(agent, **params)
    kind = spec.supports[0] if env is None else environment(env).kind
    remember(audited, AgentRun(spec=spec), kind, on_disk=True)
    if json:
        options.print_json(audited.to_dict())
    else:
        options.print_text(str(audited))
    if audited.verdict in ("FAIL", "READS RAW DATA"):
        raise typer.Exit(1)


def cost(
    directory: str = options.DIRECTORY,
    rounds: float | None = Option(None, help="Agent rounds to extrapolate to, e.g. 1e9."),
    cores: int = Option(1, help="Cores to spread them over."),
    json: bool = options.JSON,
) -> None:
    """Print the computing time of each agent of a result directory, and that of a larger run.

    Example: dpb cost results/smoke --rounds 1e9 --cores 64
    """
    from dpb_gym.planning.costs import costs
    from dpb_gym.running.progress import duration

    measured = costs(directory)
    rounds = rounds or measured.rounds
    seconds, table = measured.at(rounds, cores)
    if json:
        rates = ("rounds_per_second", "bytes_per_cell")
        agents = [
            vars(row) | {name: getattr(row, name) for name in rates} for row in measured.agents
        ]
        total = {"rounds": rounds, "cores": cores, "seconds": seconds, "bytes": table}
        options.print_json({"agents": agents, "total": total})
        return
    options.print_table(
        ("task", "agent", "rounds", "rounds/s/core", "seconds", "cells", "bytes/cell"),
        [
            (
                row.task, row.agent, f"{row.rounds:,}", f"{row.rounds_per_second:,.0f}",
                f"{row.seconds:,.1f}", row.cells, f"{row.bytes_per_cell:,.0f}",
            )
            for row in measured.agents
        ],
    )  # fmt: skip
    many = "1 core" if cores == 1 else f"{cores} cores"
    print(
        f"{rounds:,.0f} agent rounds of this mix: {duration(seconds)} on {many}, "
        f"{decimal(int(table))} of tables"
    )


def _write_files(answer: Any, html: str | None, plot: str | None) -> None:
    for path, write in ((html, answer.to_html), (plot, answer.plot)):
        if path is not None:
            write(path)


def cost_of_privacy(
    source: str = Argument(metavar="FILE|ENV", help="A log, .csv or .parquet; or an environment."),
    problem: str | None = Option(
        None, metavar="pricing|assortment|recommendation", help="What the log is of."
    ),
    budget: list[str] = options.budgets(),
    set_: list[str] = options.settings(
        "A column of the log (price=rate, features=[term,score]), or a parameter of the environment"
    ),
    horizon: int | None = Option(None, help="Customers T."),
    replicates: int = Option(20, help="Replicates."),
    workers: int | None = options.WORKERS,
    html: str | None = options.HTML,
    plot: str | None = options.PLOT,
    json: bool = options.JSON,
) -> None:
    """Estimate the cost of privacy on a log or an environment, in percent of the revenue.

    Example: dpb cost-of-privacy loans.csv --problem pricing --set bought=sold --set features=[term]
    """
    with progress_lines("cost-of-privacy"):
        from dpb_gym.planning import privacy_cost

        estimate = privacy_cost.cost_of_privacy(
            source, options.read_budgets(budget) or privacy_cost.BUDGETS, problem,
            **options.read_settings(set_), horizon=horizon, replicates=replicates, workers=workers,
        )  # fmt: skip
        _write_files(estimate, html, plot)
    if json:
        options.print_json(
            {"sentences": estimate.sentences, "losses": estimate.records(), "notes": estimate.notes}
        )
    else:
        options.print_text(str(estimate))


def advise(
    source: str = Argument(metavar="FILE", help="A table: .csv, .xlsx, .parquet, JSON."),
    problem: str | None = Option(
        None, metavar="pricing|assortment|recommendation", help="What the table is of; guessed."
    ),
    budget: list[str] = options.budgets(),
    set_: list[str] = options.settings("A column of the table (price=rate), or how to read it"),
    horizon: int = Option(10_000, help="Customers T."),
    replicates: int | None = Option(None, help="Replicates; 32, or 16 for wide models."),
    currency: str | None = Option(None, help="Unit of prices; that of the column by default."),
    workers: int | None = Option(
        None, help="Processes; one per core by default, and one for short runs."
    ),
    dry_run: bool = Option(False, "--dry-run", help="Only show what the columns are read as."),
    html: str | None = options.HTML,
    plot: str | None = options.PLOT,
    json: bool = options.JSON,
) -> None:
    """Decide on a table: a fixed choice, a private agent, or more customers; and say what it costs.

    Exit status 3 if the table can be read in several ways: the questions name the options that
    decide. On a terminal they are asked.

    Example: dpb advise sales.xlsx --set price=fee --currency EUR --html sales.html
    """
    with progress_lines("advise"):
        import dpb_data
        from dpb_gym.planning import advice, privacy_cost

        asked: Any = options.read_budgets(budget) or privacy_cost.BUDGETS
        reading = dpb_data.read(source, problem, **options.read_settings(set_))
    if not dry_run:
        words = [word for text in set_ for word in ("--set", text)]
        words = ["dpb", "advise", source, *(["--problem", problem] if problem else []), *words]
        reading = table_questions.ask(reading, words)
    answer: Any
    with progress_lines("advise"):
        answer = advice.advise(
            reading, budgets=asked, horizon=horizon,
            replicates=replicates, currency=currency, workers=workers, dry_run=dry_run,
        )  # fmt: skip
        if not dry_run:
            _write_files(answer, html, plot)
    if dry_run:
        if json:
            options.print_json(table_questions.fields(reading))
        else:
            print(table_questions.dry_run(reading))
        if reading.questions:
            raise typer.Exit(options.QUESTIONS)
    elif json:
        texts = {key: getattr(answer, key) for key in ("warnings", "repairs", "notes")}
        texts |= {"facts": answer.facts, "decision": vars(answer.decision)}
        texts["curves"] = [vars(curve) for curve in answer.curves]
        options.print_json({"sentences": answer.sentences, "earnings": answer.records(), **texts})
    else:
        options.print_text(str(answer))
