"""``dpb audit``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dpb_gym.cli.listing import complete
from dpb_gym.cli.options import BUDGET, Json, read_budgets, read_settings, setting
from dpb_gym.cli.output import print_json, print_text


def audit(
    agent: Annotated[
        str, typer.Argument(help="A registered agent.", autocompletion=complete("agents"))
    ],
    budget: Annotated[
        str | None, typer.Option(metavar=BUDGET, help="Budget; rho=0.5 by default.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs in each of the two worlds.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of customers and agents.")] = 0,
    env: Annotated[
        str | None, typer.Option(help="Environment id; a small one of its kind by default.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        setting("Parameter of the agent; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Run an agent on two neighbouring worlds and bound its privacy loss from below.

    Exit status 1 if the claim is refuted. Audit where there is something to see, rho 0.5 to 2.

    Example: dpb audit adaprivate-ts --budget rho=0.5 --runs 2000
    """
    from dpb_gym.evaluation import audit as audits
    from dpb_gym.evaluation.audits import AUDIT_BUDGET
    from dpb_gym.registry import agent_spec

    private = agent_spec(agent).budget != "never"
    (asked,) = read_budgets([budget]) if budget is not None else [AUDIT_BUDGET if private else None]
    print(f"auditing {agent}: 2 x {runs} runs ...", file=sys.stderr, flush=True)
    report = audits.audit(
        agent, asked, runs, params=read_settings(set_ or ()), env_id=env, seed=seed
    )
    if json:
        print_json(report.to_dict())
    else:
        print_text(str(report))
    if report.verdict == "FAIL":
        raise typer.Exit(1)
