"""The snippets of docs/privacy.md and of the docstrings run and print their output."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import json
import pkgutil
import re
from pathlib import Path

import gymnasium
import pytest
import yaml

import dpb_gym.privacy
from dpb_gym.cli import main
from dpb_gym.envs.registration import ENVIRONMENTS, REVEALS
from dpb_gym.suites.suite import load_suite

GUARANTEES = Path(__file__).parents[2] / "docs" / "guarantees.md"
PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
RECIPES = Path(__file__).parents[2] / "agents" / "recipes"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
MODULES = [
    info.name for info in pkgutil.walk_packages(dpb_gym.privacy.__path__, "dpb_gym.privacy.")
]


def test_the_page_runs_and_prints_its_output() -> None:
    namespace: dict[str, object] = {}
    blocks = BLOCK.findall(PAGE.read_text())
    assert sum(kind == "python" for kind, _ in blocks) >= 8
    printed = ""
    for kind, body in blocks:
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(body, str(PAGE), "exec"), namespace)
            printed = out.getvalue()
        elif kind == "text":
            assert printed == body


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_some_docstrings_have_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        test
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
        if test.examples
    ]
    assert len(examples) >= 5


OURS = [entry for entry in ENVIRONMENTS.values() if entry.id.startswith("DPB/")]


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.id)
def test_every_environment_lists_its_public_data(entry, capsys, monkeypatch) -> None:
    assert entry.reveals, f"{entry.id}: say in its catalogue entry what it tells of people's data"
    named = GUARANTEES.read_text().partition("**Data behind an environment.**")[2]
    named = named.partition("customers are simulated.")[0]
    assert (f"`{entry.id}`" in named) == (entry.reveals != REVEALS["simulated"])
    monkeypatch.setattr("sys.argv", ["dpb", "show", entry.id, "--json"])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code in (0, None)
    assert json.loads(capsys.readouterr().out)["reveals"] == entry.reveals


def test_public_data_of_replays_is_documented() -> None:
    env = gymnasium.make("DPB/MovieLensReplay-v0", horizon=20)
    problem = env.unwrapped.core.problem
    env.reset(seed=0)
    info = env.step(0)[4]
    ratings = set(problem._rewards.ravel().tolist())
    assert {info["expected_reward"], info["oracle_reward"]} <= ratings
    assert problem.info.person_uses and problem.info.rating_uses and problem.info.n_arms


def test_recipes_are_tuned_on_the_data_that_the_page_names() -> None:
    """On ratings of people, on a model of a log of people, or on simulated customers."""
    page = " ".join(GUARANTEES.read_text().split())
    kinds = {
        "ratings": "The recipes of `movielens` and `jester` are tuned on raw ratings",
        "searches": "those of `expedia` on a model that was fitted",
        "simulated": "Recipes of `assortment`, `pricing` and `recommendation` are tuned",
    }
    assert all(text in page for text in kinds.values())
    tasks = {task.name: task for task in load_suite("dpb-bench-v1").tasks}
    seen = set()
    for path in RECIPES.glob("*/*.yaml"):
        tuned_on = yaml.safe_load(path.read_text())["tuned_on"]
        assert min(tuned_on["seeds"]) >= 1_000_000
        for name in tuned_on["tasks"]:
            kind = next(k for k, v in REVEALS.items() if v == ENVIRONMENTS[tasks[name].env].reveals)
            assert f"`{path.parent.name}`" in kinds[kind], path
            seen.add(kind)
    assert seen == set(kinds)


def test_public_data_of_logs_and_plugins_is_documented() -> None:
    made = dpb_gym.from_log("synthetic-loans", "pricing", features=["term", "score"])
    assert "fitted" in ENVIRONMENTS[made].reveals
    assert "and of logs" in GUARANTEES.read_text()
