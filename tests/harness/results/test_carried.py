"""Rows of a stored result are kept for new code if one replicate of each is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

from dpb_gym.cli.app import app
from dpb_gym.registry import agent_spec
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.suites.spec import AgentRun

SUITE = """
name: kept
title: Rows that are kept
seed: 0
tuning_seed: 1000000
normalisation_seed: 2000000
replicates: 4
block: 2
checkpoints: log
budgets: {default: [rho=0.5, rho=5]}
tasks:
  - {name: prices, env: DPB/Pricing-v0, env_kwargs: {dim: 3}, horizon: 40}
agents:
  - {name: random, label: Random}
  - {name: greedy-pricing, label: Greedy}
  - {name: one-pass-pricing, label: Private, budgets: default}
"""


def run(suite: Path, out: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(suite), "--out", str(out), "--workers", "1"])
    assert done.exit_code == 0, done.output


def test_a_row_of_other_numbers_is_dropped_and_run_again(
    tmp_path: Path,
    import_benchmark: Callable[[str], ModuleType],
    capsys: pytest.CaptureFixture[str],
) -> None:
    suite, old, new = tmp_path / "kept.yaml", tmp_path / "old", tmp_path / "new"
    suite.write_text(SUITE)
    run(suite, old)
    carried = import_benchmark("carried")
    assert carried.unchanged(old, str(suite), "prices") == {"Random", "Greedy", "Private"}
    assert capsys.readouterr().out == "prices: 0 rows played, other numbers: none\n"
    true = {r.cell.key: r for r in ResultDirectory.open(old).results()}
    # stored by other code, but for random: digests differ, and of one row the last bit of a number
    with ResultDirectory.writing(old, ResultDirectory.open(old).suite) as store:
        changed = []
        for result in store.results():
            agent = result.cell.agent
            if agent.label != "Random":
                agent = agent.model_copy(update={"source": "0" * 32})
            regret = result.regret.copy()
            if str(agent.budget) == "rho=5" and result.cell.start == 0:
                regret[0, -1] = np.nextafter(regret[0, -1], np.inf)
            cell = result.cell.model_copy(update={"agent": agent})
            changed.append(replace(result, cell=cell, regret=regret))
        store.replace(changed)
        for name in ("greedy-pricing", "one-pass-pricing"):
            store.manifest["audits"][f'["{name}", {{}}, "pricing"]'] = {"code": "old"}
        store.save()
    carried.unchanged(old, str(suite), "prices")
    assert capsys.readouterr().out == "prices: 3 rows played, other numbers: ['Private']\n"
    assert carried.carry_over(old, new, str(suite), workers=1) == (4, 8)
    kept = {r.cell.key: r for r in ResultDirectory.open(new).results()}
    assert {r.cell.agent.label for r in kept.values()} == {"Random", "Greedy"}
    assert kept.keys() < true.keys()
    audits = ResultDirectory.open(new).manifest["audits"]
    assert audits['["one-pass-pricing", {}, "pricing"]'] == {"code": "old"}
    today = AgentRun(spec=agent_spec("greedy-pricing")).code
    assert audits['["greedy-pricing", {}, "pricing"]'] == {"code": today}
    run(suite, new)
    again = {r.cell.key: r.digest for r in ResultDirectory.open(new).results()}
    assert again == {key: r.digest for key, r in true.items()}
