"""What a user reads when something goes wrong: her own line, the flag, the missing fact."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_gym
import dpb_gym.errors
from dpb_gym.errors import ActionError, AgentError
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.registry import agent_spec
from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.streams import AgentStreams
from dpb_gym.suites.suite import parse_suite

ENV = "DPB/Recommendation-v0"
SMALL: dict[str, Any] = {"horizon": 20, "replicates": 3, "env_kwargs": {"dim": 3, "n_arms": 12}}

SCRIPT = """
    import sys
    import dpb_gym.errors

    class Mine(dpb_gym.SingleAgent):
        def act(self, context):
            return self.choose(context)

        def choose(self, context):
            return {}["my own line"] if context.t == 4 else 0

    try:
        agents = {"mine": Mine} if sys.argv[1] == "alone" else {"mine": Mine, "other": "random"}
        dpb_gym.evaluate("DPB/Recommendation-v0", agents, horizon=20, replicates=2,
                         workers=int(sys.argv[2]))
    except dpb_gym.errors.AgentError as error:
        print("raised", error)
"""


@pytest.mark.parametrize(("company", "workers"), [("alone", 1), ("beside", 1), ("alone", 2)])
def test_a_crash_shows_the_line_of_the_agents_author(
    company: str, workers: int, tmp_path: Path, forks: Any
) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        textwrap.dedent(SCRIPT).replace("import dpb_gym\n", "import dpb_gym.errors\n")
    )
    done = forks.run(script, company, str(workers), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout if company == "alone" else done.stderr
    number = 1 + script.read_text().splitlines().index(
        '        return {}["my own line"] if context.t == 4 else 0'
    )
    assert "KeyError: 'my own line'" in said and "in round 4 (act)" in said
    assert f'[mine.py, line {number}: return {{}}["my own line"] if context.t == 4 else 0]' in said
    assert ("raised" in done.stdout) == (company == "alone")


def test_the_replicate_at_fault_travels_with_the_error() -> None:
    class Outside(dpb_gym.Agent):
        def begin(self, problem: Any, streams: Any, curator: Any) -> None:
            self.replicates = streams.replicates

        def act(self, context: Any) -> Any:
            actions = np.zeros(self.replicates, np.int64)
            actions[1] = 99 * (context.t == 5)
            return actions

        def observe(self, context: Any, action: Any, feedback: Any) -> None:
            pass

    with pytest.warns(RuntimeWarning):
        result = dpb_gym.evaluate(ENV, {"a": "random", "outside": Outside}, seed=10, **SMALL)
    (failure,) = result.failures
    assert failure.seed == 11 and "candidate 99 of seed 11" in failure.message
    assert ActionError("x").replicate is None and ActionError("x").at(2).replicate == 2


def test_a_missing_budget_names_the_flag_and_the_argument() -> None:
    with pytest.raises(AgentError, match=r"--budget rho=1.*budgets=\['rho=1'\]"):
        dpb_gym.evaluate(ENV, "dgs-lin-ucb", **SMALL)


def test_a_missing_fact_of_the_problem_is_named() -> None:
    agent = agent_spec("fixed-price").make()
    problem = ProblemInfo("pricing", 10, 2, (0.0, 1.0))
    with pytest.raises(AgentError, match="must know demand of a pricing problem"):
        agent.set_up(problem, AgentStreams([0]), None)
    other = ProblemInfo("recommendation", 10, 2, (0.0, 1.0))
    with pytest.raises(AgentError, match="plays pricing problems, not recommendation"):
        agent.set_up(other, AgentStreams([0]), None)


AGENT = """
import dpb_gym

@dpb_gym.register_agent("errors-test-edited", supports=["pricing"])
class Edited(dpb_gym.SingleAgent):
    def act(self, context):
        return {price}
"""
SUITE = """
name: edited-v0
replicates: 2
tasks: [{name: prices, env: DPB/Pricing-v0, horizon: 10}]
agents: [random, errors-test-edited]
"""


def test_edited_code_never_joins_old_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    rewards = []
    for price, computed in ((0.25, 2), (0.25, 0), (0.75, 1)):
        (tmp_path / "errors_test_edited.py").write_text(AGENT.format(price=price))
        code = (
            "import errors_test_edited, sys\nfrom dpb_gym.cli import run\n"
            f"sys.exit(run(['run', {str(tmp_path / 's.yaml')!r}, '--out', "
            f"{str(tmp_path / 'out')!r}, '--workers', '1', '--quiet']))"
        )
        (tmp_path / "s.yaml").write_text(SUITE)
        done = subprocess.run(
            [sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": _path(tmp_path)},
        )  # fmt: skip
        assert f"{computed} cells computed" in done.stdout, done.stdout
        result = dpb_gym.Result.load(tmp_path / "out")
        rewards.append(result.final_reward("errors-test-edited").tolist())
    assert rewards[0] == rewards[1] != rewards[2]
    assert "computed by another version of the code" in done.stderr
    assert len(list((tmp_path / "out" / "set-aside").iterdir())) == 1


def _path(folder: Path) -> str:
    return os.pathsep.join([str(folder), *sys.path])


def test_a_suite_that_cannot_run_says_so_before_it_starts(tmp_path: Path) -> None:
    text = SUITE.replace("errors-test-edited", "{name: fixed-price, params: {prices: -3}}")
    suite = parse_suite(text, "x")
    with pytest.raises(dpb_gym.errors.ParameterError):
        run_plan(suite, plan_suite(suite), tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()
