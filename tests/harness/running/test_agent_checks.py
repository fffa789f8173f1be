"""Agents of other packages are checked before `evaluate` and ``dpb run`` show their guarantee."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym.cli import main
from dpb_gym.errors import AgentError
from dpb_gym.registry import _REGISTRY, agent_spec, register_agent
from dpb_gym.running import agent_checks

ENV = "DPB/Recommendation-v0"


class Reader(dpb_gym.SingleAgent):
    """Greedy on raw sums, or on a private sum."""

    protects: Any = ("central", "reward")

    def __init__(self, raw: bool = True) -> None:
        self.raw = raw

    def begin(self) -> None:
        self.sums = self.curator.running_sum(self.problem.dim, reward=(0.0, 1.0))
        self.state = np.zeros(self.problem.dim)

    def act(self, context: Any) -> int:
        return int((context.features @ (self.state if self.raw else self.sums.value)).argmax())

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        x = context.features[action]
        self.state = self.state + feedback.reward * x
        self.sums.add(feedback.reward, along=x)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_checks, "_found", {})


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Titles of the agents that are checked; all pass."""
    seen: list[str] = []
    monkeypatch.setattr(agent_checks, "check_agent", lambda run, *_: seen.append(run.title))
    return seen


def evaluate(agents: Any, **options: Any) -> dpb_gym.Result:
    options = {"horizon": 40, "replicates": 2, "progress": False, **options}
    return dpb_gym.evaluate(ENV, agents, **options)


@pytest.mark.slow
def test_an_agent_that_reads_raw_data_has_no_row() -> None:
    with pytest.raises(AgentError, match=r"'mine \(rho=0.5\)' is refused .* it reads raw data"):
        evaluate({"mine": (Reader, "rho=0.5")})
    agents = {"mine": (Reader, "rho=0.5"), "plain": Reader, "fine": (Reader, "rho=0.5", {"raw": 0})}
    with pytest.warns(RuntimeWarning, match="'mine .* reads raw data: records reach the action"):
        result = evaluate(agents)
    assert result.labels == ["plain", "fine"]
    (failure,) = result.failures
    assert (failure.stage, failure.round, failure.seed) == ("check", 0, None)
    assert "AgentError" in failure.details
    with pytest.raises(AgentError, match="reads raw data"):
        result.final_regret("mine")
    notes = result.to_leaderboard().notes
    assert any(note.startswith("Failed") and "reads raw data" in note for note in notes)


@pytest.mark.slow
def test_numbers_of_the_others_do_not_change() -> None:
    fine = (Reader, "rho=0.5", {"raw": False})
    alone = evaluate({"fine": fine}).final_regret("fine")
    with pytest.warns(RuntimeWarning, match="reads raw data"):
        beside = evaluate({"mine": (Reader, "rho=0.5"), "fine": fine})
    assert (beside.final_regret("fine") == alone).all()


def test_an_agent_is_checked_once_per_code_parameters_task_and_budget(
    checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = (Reader, None, {"raw": False})
    evaluate({"mine": fine}, budgets=["rho=0.5", "rho=1"], replicates=3)
    assert checks == ["mine (rho=0.5)", "mine (rho=1)"]
    evaluate({"again": fine}, budgets="rho=0.5")
    assert len(checks) == 2
    evaluate({"other": (Reader, "rho=0.5", {"raw": True})})
    evaluate({"longer": fine}, budgets="rho=0.5", horizon=41)
    evaluate({"env": fine}, budgets="rho=0.5", env_kwargs={"dim": 4})
    monkeypatch.setattr(Reader, "act", lambda self, context: 0)  # as a reload changes it
    evaluate({"edited": fine}, budgets="rho=0.5")
    new = [title.partition(" ")[0] for title in checks[2:]]
    assert new == ["other", "longer", "env", "edited"]


def test_which_agents_are_checked(checks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate({"ours": ("adaprivate-ucb", "rho=0.5"), "plain": Reader, "random": "random"})
    assert checks == []
    evaluate({"function": (lambda: Reader(raw=False), "rho=0.5")})
    assert checks == ["function (rho=0.5)"]
    spec = agent_spec("adaprivate-ucb")
    monkeypatch.setitem(_REGISTRY, spec.name, spec)  # restored after the test
    register_agent(
        spec.name, supports=spec.supports, protects=("anticipating", "reward"), **spec.params
    )(spec.maker)
    evaluate({"ours": ("adaprivate-ucb", "rho=0.5")})
    assert checks[1:] == ["ours (rho=0.5)"]


@pytest.mark.slow
def test_isolated_agents_are_not_checked(checks: list[str]) -> None:
    evaluate({"mine": (Reader, "rho=0.5", {"raw": False})}, isolate=True, horizon=3, replicates=1)
    assert checks == []


def test_stored_cells_are_not_checked_again(checks: list[str], tmp_path: Path) -> None:
    fine = {"mine": (Reader, "rho=0.5", {"raw": False})}
    evaluate(fine, out=tmp_path / "out")
    agent_checks._found.clear()
    evaluate(fine, out=tmp_path / "out")
    assert len(checks) == 1
    evaluate(fine, out=tmp_path / "out", replicates=3)
    assert len(checks) == 2


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> str:
    name = "reads-raw-data"
    register_agent(name, supports=["recommendation"], protects=("central", "reward"))(Reader)
    monkeypatch.setitem(_REGISTRY, name, _REGISTRY[name])
    return name


def run(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["dpb", "run", "--env", ENV, *arguments])
    with pytest.raises(SystemExit) as done:
        main()
    return int(done.value.code or 0)


@pytest.mark.slow
def test_the_command_names_the_agent_and_fails(
    registered: str, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    given = ["--agent", registered, "--agent", "random", "--budget", "rho=0.5", "--horizon", "40"]
    given += ["--replicates", "2", "--workers", "1", "--out", str(tmp_path / "out")]
    assert run(*given, monkeypatch=monkeypatch) == 1
    shown = capsys.readouterr()
    assert "is refused with a budget: it reads raw data: records reach the action" in shown.err
    assert "1 of 2 cells failed" in shown.err and "rho=0.5 per reward" not in shown.out
    data = dpb_gym.Result.load(tmp_path / "out").to_leaderboard()
    assert [row.agent for row in data.tasks[0].rows] == ["random"]
    assert run(*given, "--set", f"{registered}.raw=false", monkeypatch=monkeypatch) == 0
    assert "not audited" in capsys.readouterr().out.lower()


@pytest.mark.slow
def test_progress_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("dpb_gym.progress_lines.LOG_SECONDS", (0.02, 0.02))
    fine = {"mine": (Reader, "rho=0.5", {"raw": False})}
    evaluate(fine, progress=True)
    assert "replay check: mine (rho=0.5): raw data: run" in capsys.readouterr().err
    agent_checks._found.clear()
    evaluate(fine, progress=False)
    evaluate(fine, progress=lambda *_: None)
    assert capsys.readouterr().err == ""


class Stretches(dpb_gym.Agent):
    """Greedy on private sums; `play` does the same, or reads raw rewards."""

    protects = ("central", "reward")

    def __init__(self, raw: bool = False) -> None:
        self.raw = raw

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.arms = problem.n_candidates
        self.sums = curator.batch_sum(self.arms, reward=(0.0, 1.0))
        self.theta = np.zeros((streams.replicates, self.arms))
        self.seen = 0
        self.stretches = True

    def act(self, context: Any) -> Any:
        return self.theta.argmax(axis=1)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.learn(action, feedback.reward)

    def learn(self, action: Any, reward: Any) -> None:
        self.sums.add(reward, along=np.eye(self.arms)[action])
        self.seen += 1
        if self.seen % 20 == 0:
            self.theta = self.sums.release()

    def play(self, rounds: Any) -> Any:
        action = np.empty(rounds.shape, np.int64)
        rows = np.arange(rounds.shape[1])
        for t in range(rounds.shape[0]):
            action[t] = self.theta.argmax(axis=1)
            if self.raw and t:
                action[t] = rounds.reward[t - 1].argmax(axis=1)
            along = np.eye(self.arms)[action[t]]
            self.sums.add_rounds(rounds.reward[t, rows, action[t]][None], along=along[None])
            self.seen += 1
            if self.seen % 20 == 0:
                self.theta = self.sums.release()
        return action


@pytest.mark.slow
def test_play_must_do_what_is_checked() -> None:
    run = functools.partial(dpb_gym.evaluate, "DPB/MultiArmed-v0", horizon=300, replicates=2)
    (cell,) = run({"it": (Stretches, "rho=0.5")}).cells
    assert cell.guarantee is not None
    with pytest.raises(AgentError, match="its play does not do what act and observe do"):
        run({"it": (Stretches, "rho=0.5", {"raw": True})})
    assert run({"it": (Stretches, None, {"raw": True})}).cells, "without a budget it may"


NOTEBOOK = """
import numpy as np, dpb_gym
OPTIONS = {"scale": 1.0}
class Own(dpb_gym.SingleAgent):
    protects = ("central", "reward")
    def begin(self):
        self.sums = self.curator.running_sum(self.problem.dim, reward=(0.0, 1.0))
    def act(self, context):
        return int((context.features @ self.sums.value).argmax())
    def observe(self, context, action, feedback):
        x = OPTIONS["scale"] * context.features[action]
        self.sums.add(feedback.reward, along=x)
"""


def test_a_result_is_of_the_code_that_was_checked(
    monkeypatch: pytest.MonkeyPatch, checks: list[str]
) -> None:
    """Objects of a notebook may change after a run, or by it."""
    cells = ModuleType("cells")
    monkeypatch.setitem(sys.modules, "cells", cells)
    exec(NOTEBOOK, vars(cells))
    codes = []
    for scale in (1.0, 0.5):
        cells.OPTIONS["scale"] = scale
        result = evaluate({"it": (cells.Own, "rho=1")})
        codes.append([cell.cell.agent.code for cell in result.cells])
        cells.OPTIONS["scale"] = 0.7
        assert [cell.cell.agent.code for cell in result.cells] == codes[-1]
    assert codes[0] != codes[1] and len(checks) == 2
