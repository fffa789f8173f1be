from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import dpb_gym
from dpb_gym.agent import Agent, SingleAgent
from dpb_gym.errors import AgentError, BudgetError, ParameterError, UnknownNameError
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec
from dpb_gym.running.api import plan_task
from dpb_gym.suites.code_digest import code_hash
from dpb_gym.suites.spec import AgentRun
from dpb_gym.validation import slug

RHO = Budget.zcdp(1.0)
KIND = "recommendation"


class Mine(SingleAgent):
    """First candidate."""

    def __init__(self, place: int = 0) -> None:
        self.place = place

    def act(self, context: Any) -> int:
        return self.place


def runs_of(agents: Any, budgets: Any = None) -> Sequence[AgentRun]:
    return plan_task("DPB/Recommendation-v0", agents, budgets=budgets)[1].runs


def titles(agents: Any, budgets: Any = None) -> list[tuple[str, str, str, dict[str, Any]]]:
    entries = runs_of(agents, budgets)
    return [(e.label, e.name, Budget.text(e.budget), dict(e.params)) for e in entries]


def test_every_documented_form() -> None:
    default = dict(agent_spec("adaprivate-ts").params)
    assert titles("random") == [("random", "random", "none", {})]
    assert titles(["random", "oracle"]) == [
        ("random", "random", "none", {}),
        ("oracle", "oracle", "none", {}),
    ]
    assert titles({"A": ("adaprivate-ts", RHO)}) == [("A", "adaprivate-ts", "rho=1", default)]
    assert titles({"A": ("adaprivate-ts", RHO, {"batch": 7})}) == [
        ("A", "adaprivate-ts", "rho=1", {**default, "batch": 7})
    ]
    assert titles({"A": ("random",)}) == [("A", "random", "none", {})]
    assert titles({"A": ("random", None, None)}) == [("A", "random", "none", {})]
    assert titles({"A": agent_spec("random")}) == [("A", "random", "none", {})]
    assert titles({"A": Mine}) == [("A", "mine", "none", {})]
    assert titles([Mine]) == [("mine", "mine", "none", {})]
    assert titles({"A": (Mine, None, {"place": 2})}) == [("A", "mine", "none", {"place": 2})]
    (entry,) = runs_of({"A": lambda: Mine(3)})
    assert (entry.label, entry.name) == ("A", "a")
    assert entry.entry_point.startswith("factory:")


def test_private_agents_without_a_budget_take_the_grid() -> None:
    grid = [Budget.zcdp(1.0), Budget.approx(1.0, 1e-5)]
    rows = [row[:3] for row in titles({"R": "random", "A": "adaprivate-ts"}, grid)]
    assert rows == [
        ("R", "random", "none"),
        ("A", "adaprivate-ts", "rho=1"),
        ("A", "adaprivate-ts", "eps=1,delta=1e-5"),
    ]
    own = titles({"A": ("adaprivate-ts", Budget.zcdp(2.0))}, grid)
    assert [row[2] for row in own] == ["rho=2"]
    assert [row[2] for row in titles({"A": "adaprivate-ts"}, RHO)] == ["rho=1"]


def test_a_class_registered_once_is_found_and_twice_is_ambiguous() -> None:
    @dpb_gym.register_agent("entries-test-once", supports=[KIND], place=1)
    class Once(Mine):
        pass

    @dpb_gym.register_agent("entries-test-b", supports=[KIND])
    @dpb_gym.register_agent("entries-test-a", supports=[KIND])
    class Twice(Mine):
        pass

    assert titles({"A": Once}) == [("A", "entries-test-once", "none", {"place": 1})]
    with pytest.raises(AgentError, match="entries-test-a, entries-test-b"):
        runs_of([Twice])


@pytest.mark.parametrize("value", ["random", Mine, lambda: Mine(1), (Mine, None, {"place": 1})])
def test_each_entry_makes_fresh_agents(value: Any) -> None:
    (entry,) = runs_of({"A": value})
    first, second = entry.spec.make(), entry.spec.make()
    assert isinstance(first, Agent) and isinstance(second, Agent) and first is not second


@pytest.mark.parametrize(
    ("agents", "error", "words"),
    [
        ({}, ParameterError, "at least one"),
        ([], ParameterError, "at least one"),
        ("lin-tss", UnknownNameError, "did you mean 'lin-ts'"),
        (3, ParameterError, "registered name"),
        (None, ParameterError, "registered name"),
        ({"A": 3}, ParameterError, "registered name"),
        ({"": "random"}, ParameterError, "label"),
        ({"a\nb": "random"}, ParameterError, "label"),
        ({3: "random"}, ParameterError, "label"),
        ({"A": ("random", 1.0)}, BudgetError, "rho=0.5"),
        ({"A": ("random", "roh=1")}, BudgetError, "rho=0.5"),
        ({"a\u200bb": "random"}, ParameterError, "label"),
        ({"LinTS": "lin-ts", "lints": "lin-ts"}, ParameterError, "given twice: LinTS, lints"),
        ({"A": ("random", None, [1])}, ParameterError, "map names to values"),
        ({"A": ("random", None, {1: 2})}, ParameterError, "map names to values"),
        ({"A": ("random", None, {}, 4)}, ParameterError, "registered name"),
        ({"A": ()}, ParameterError, "registered name"),
        ({"A": Mine()}, ParameterError, "class Mine"),
        ({"A": int}, ParameterError, "registered name"),
        (["random", "random"], ParameterError, "given twice: random"),
    ],
)
def test_everything_else_is_refused(agents: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        dpb_gym.evaluate("DPB/Recommendation-v0", agents, horizon=5, replicates=1)


def test_bad_budgets_are_refused() -> None:
    with pytest.raises(BudgetError, match=r"rho=0\.5"):
        runs_of("adaprivate-ts", [1.0])


def test_unknown_parameters_and_bad_makers_are_refused_when_made() -> None:
    (entry,) = runs_of({"A": (Mine, None, {"plaice": 1})})
    with pytest.raises(
        ParameterError,
        match=r"unexpected keyword argument 'plaice' \(did you mean 'place'\?\); it takes place",
    ):
        entry.spec.make()
    (entry,) = runs_of({"A": lambda: 3})
    with pytest.raises(AgentError, match="made a int"):
        entry.spec.make()


@pytest.mark.slow
def test_edited_code_is_another_source(tmp_path: Any, monkeypatch: Any) -> None:
    import importlib
    import sys

    monkeypatch.syspath_prepend(str(tmp_path))
    text = "import dpb_gym\nclass Own(dpb_gym.SingleAgent):\n    place = {}\n"
    codes = []
    for place in (0, 0, 1):
        (tmp_path / "own_agent.py").write_text(text.format(place))
        sys.modules.pop("own_agent", None)
        importlib.invalidate_caches()
        (run,) = runs_of(importlib.import_module("own_agent").Own)
        codes.append(run.code)
    assert codes[0] == codes[1] != codes[2]
    sys.modules.pop("own_agent")


@pytest.mark.slow
def test_a_version_of_the_class_counts_too() -> None:
    class Versioned(Mine):
        version = "2.1"

    class Later(Mine):
        version = "2.2"

    assert code_hash(Versioned) != code_hash(Later)
    assert len({code_hash(c) for c in (_without_a_file("1"), _without_a_file("2"))}) == 2


def _without_a_file(place: str) -> Any:
    """A class as ``python -c`` makes it: there is no source to read."""
    scope: dict[str, Any] = {"__name__": "nowhere", "SingleAgent": SingleAgent}
    exec(f"class C(SingleAgent):\n    def act(self, context): return context.f{place}", scope)
    return scope["C"]


def test_budgets_are_for_every_agent_that_can_take_one() -> None:
    agents = {
        "R": "random",
        "O": "one-pass-linear",
        "A": "adaprivate-ts",
        "N": ("one-pass-linear", "none"),
    }
    rows = [row[:3:2] for row in titles(agents, ["rho=1", "none"])]
    assert rows == [("R", "none"), ("O", "rho=1"), ("O", "none"), ("A", "rho=1"), ("N", "none")]
    assert [row[2] for row in titles({"A": ("adaprivate-ts", "rho=2")}, "rho=1")] == ["rho=2"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("DP-MNL (rho=1)", "dp-mnl-rho-1"), ("ÄÖ", "x"), ("--a  b--", "a-b"), ("UCB", "ucb")],
)
def test_slugs_are_safe_file_names(text: str, expected: str) -> None:
    assert slug(text) == expected
