"""``dpb audit``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dpb_gym.cli.options import read_budgets, read_settings
from dpb_gym.cli.output import print_json, print_text


def audit(
    agent: str,
    budget: str | None,
    runs: int,
    seed: int,
    env: str | None,
    parameters: Sequence[str],
    as_json: bool,
) -> bool:
    """Audits a registered agent and prints the report; returns False if the claim is refuted."""
    from dpb_gym.evaluation.audit import audit as run
    from dpb_gym.evaluation.audits import AUDIT_BUDGET
    from dpb_gym.registry import agent_spec

    private = agent_spec(agent).budget != "never"
    (asked,) = read_budgets([budget]) if budget is not None else [AUDIT_BUDGET if private else None]
    print(f"auditing {agent}: 2 x {runs} runs ...", file=sys.stderr, flush=True)
    report = run(
        agent,
        asked,
        runs,
        params=read_settings(parameters),
        env_id=env,
        seed=seed,
    )
    if as_json:
        print_json(report.to_dict())
    else:
        print_text(str(report))
    return report.verdict != "FAIL"
