"""Tuning: the points, the choice, the seeds, and the recipe."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import dpb_gym
from dpb_gym import cli
from dpb_gym.cli.app import app
from dpb_gym.errors import AgentError, MissingExtraError, ParameterError, UnknownNameError
from dpb_gym.planning.grid_ends import beyond
from dpb_gym.planning.tuning import TUNING_SEEDS, check_seeds, choose_points, read_grid, tune
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec
from dpb_gym.suites.recipes import load_recipe
from dpb_gym.suites.suite import SEED_SPAN, Suite

ENV = "DPB/Recommendation-v0"
SMALL: dict[str, Any] = {
    "horizon": 40,
    "env_kwargs": {"dim": 3, "n_arms": 8, "n_candidates": 3},
    "replicates": 3,
    "workers": 1,
    "progress": False,
}
BUDGETS = [Budget.approx(1.0, 1e-5), Budget.approx(5.0, 1e-5)]


@pytest.fixture
def tuned(tmp_path: Path) -> Any:
    grids = {"adaprivate-ts": {"v": [0.1, 1], "batch": [5, 20]}, "lin-ucb": {"alpha": [0.0, 3.0]}}
    return tune(ENV, ["adaprivate-ts", "lin-ucb"], BUDGETS, grids=grids, out=tmp_path, **SMALL)


def test_the_best_point_by_brute_force(tuned: Any) -> None:
    """Every point against the public evaluation on the same seeds."""
    private, plain = tuned.recipes
    assert [choice.budget for choice in private.choices] == [str(b) for b in BUDGETS]
    for budget, choice in zip(BUDGETS, private.choices):
        entries = {
            f"{v} {batch}": ("adaprivate-ts", budget, {"v": v, "batch": batch})
            for v, batch in [(1.0, 300), *itertools.product((0.1, 1.0), (5, 20))]
        }
        result = dpb_gym.evaluate(
            ENV, entries, horizon=40, replicates=3, seed=TUNING_SEEDS.start,
            env_kwargs=SMALL["env_kwargs"], progress=False,
        )  # fmt: skip
        means = {label: result.final_regret(label).mean() for label in entries}
        best = min(means, key=means.__getitem__)
        params = {"v": 1.0, "batch": 300, **choice.best.params}
        assert f"{params['v']} {params['batch']}" == best
        assert choice.best.regret == pytest.approx(means[best])
        assert choice.default is not None
        assert choice.default.regret == pytest.approx(means["1.0 300"])
        assert [p.regret for p in choice.points] == sorted(p.regret for p in choice.points)
        spread = result.final_regret(best).std(ddof=1) / np.sqrt(3)
        assert choice.best.error == pytest.approx(spread)
    assert plain.choices[0].budget == "none" and plain.points == 3


def test_the_recipe_says_what_was_measured_and_runs(tuned: Any) -> None:
    for recipe in tuned.recipes:
        data = yaml.safe_load(recipe.path.read_text())
        assert data["agent"] == recipe.agent
        assert data["parameters"] == dict(recipe.parameters)
        assert data["tuned_on"]["environment"] == ENV
        assert data["tuned_on"]["options"] == {"horizon": 40, **SMALL["env_kwargs"]}
        assert data["tuned_on"]["seeds"] == [1_000_000, 1_000_002]
        assert len(data["best_per_budget"]) == len(recipe.choices)
        name, params = load_recipe(recipe.path)
        agent_spec(name, **params).make()
    stored = yaml.safe_load(tuned.recipes[0].path.read_text())["tuned_on"]
    assert stored["budgets"] == ["eps=1,delta=1e-5", "eps=5,delta=1e-5"]
    assert set(stored["grid"]) == {"v", "batch"}


def test_one_set_for_all_budgets_is_best_relative_to_each(tuned: Any) -> None:
    recipe = tuned.recipes[0]
    totals: dict[str, list[float]] = {}
    for choice in recipe.choices:
        for point in choice.points:
            totals.setdefault(json.dumps(dict(point.params), sort_keys=True), []).append(
                point.regret / choice.best.regret
            )
    best = min(totals, key=lambda key: sum(totals[key]))
    expected = {"v": 1.0, "batch": 300, **json.loads(best)}
    assert {key: recipe.parameters[key] for key in expected} == expected


def test_a_second_run_computes_nothing_and_agrees(tuned: Any, tmp_path: Path) -> None:
    grids = {recipe.agent: recipe.grid for recipe in tuned.recipes}
    again = tune(ENV, list(grids), BUDGETS, grids=grids, out=tmp_path, **SMALL)
    assert tuned.rounds == (2 * 5 + 3) * 3 * 40 and again.rounds == 0
    assert repr(again.recipes) == repr(tuned.recipes)
    wider = {"lin-ucb": {"alpha": [0.0, 3.0, 0.3]}}
    more = tune(ENV, ["lin-ucb"], grids=wider, out=tmp_path, **SMALL)
    assert more.rounds == 3 * 40


@pytest.mark.slow
def test_successive_halving_by_brute_force(tmp_path: Path) -> None:
    """The best third at each budget gets three times the replicates; the survivors are compared."""
    grids = {"adaprivate-ts": {"v": [0.1, 0.3, 1.0, 3.0], "batch": [5, 20]}}
    how = {**SMALL, "replicates": 1, "grids": grids, "halving": 3, "out": tmp_path}
    done = tune(ENV, ["adaprivate-ts"], BUDGETS, **how)
    assert done.rounds == 2 * (9 + 3 * 2) * 40 and done.seeds == (1_000_000, 1_000_002)
    survivors = []
    for budget, choice in zip(BUDGETS, done.recipes[0].choices):
        entries = {json.dumps(p.params): ("adaprivate-ts", budget, p.params) for p in choice.points}
        result = dpb_gym.evaluate(
            ENV, entries, horizon=40, replicates=3, seed=TUNING_SEEDS.start,
            env_kwargs=SMALL["env_kwargs"], progress=False,
        )  # fmt: skip
        finals = {label: result.final_regret(label) for label in entries}
        kept = sorted(finals, key=lambda label: finals[label][0])[:3]
        last = {json.dumps(p.params): p for p in choice.points if p.replicates == 3}
        assert set(last) == set(kept) and len(choice.points) == 9
        assert json.dumps(choice.best.params) == min(kept, key=lambda label: finals[label].mean())
        for point in choice.points:
            own = finals[json.dumps(point.params)]
            assert point.regret == pytest.approx(own[: point.replicates].mean())
            assert point.first == pytest.approx(own[0])
        survivors.append(set(kept))
    again = tune(ENV, ["adaprivate-ts"], BUDGETS, **how)
    assert again.rounds == 0 and repr(again.recipes) == repr(done.recipes)
    assert survivors[0] != survivors[1], "the budgets are halved apart"


@pytest.mark.parametrize(
    ("values", "value", "after"),
    [
        ([1.0, 10.0, 100.0], 100.0, [1000.0]),
        ([0.3, 1.0, 3.0], 0.3, [0.09]),
        ([0.3, 1.0, 3.0], 1.0, []),
        ([0.75, 0.9], 0.9, [0.96]),
        ([100, 300, 1000], 1000, [3333]),
        ([1, 100], 1, []),
        ([None, 10.0], 10.0, [20.0, 5.0]),
        ([0.0, 0.3], 0.0, []),
        ([0.0, 0.3], 0.3, [0.6]),
        ([False, True], True, []),
        (["blt", None], "blt", []),
    ],
)
def test_what_lies_beyond_a_grid(values: list[Any], value: Any, after: list[float]) -> None:
    assert beyond(values, value) == after


@pytest.mark.slow
def test_a_widened_search_ends_between_values_that_are_worse(tmp_path: Path) -> None:
    """Each number of the best point has tried neighbours, or its agent refuses the next."""
    grids = {"adaprivate-ts": {"v": [1.0, 3.0], "ridge": [1.0, 10.0], "centre": [False, True]}}
    how = {**SMALL, "replicates": 1, "halving": 3, "grids": grids, "out": tmp_path}
    how["params"] = {"adaprivate-ts": {"batch": 5}}
    narrow = tune(ENV, ["adaprivate-ts"], BUDGETS, **how)
    wide = tune(ENV, ["adaprivate-ts"], BUDGETS, widen=True, **how)
    moved = 0
    for before, choice in zip(narrow.recipes[0].choices, wide.recipes[0].choices):
        full = [{"v": 1.0, "ridge": 1.0, "centre": False, **p.params} for p in choice.points]
        last = [p for p, point in zip(full, choice.points) if point.replicates == 3]
        best, *others = last
        assert choice.best.regret == min(p.regret for p in choice.points if p.replicates == 3)
        moved += choice.best.regret < before.best.regret
        for key in ("v", "ridge"):
            near = [p[key] for p in others if {**p, key: best[key]} == best]
            assert best[key] in grids["adaprivate-ts"][key] or min(near) < best[key] < max(near)
            values = [*grids["adaprivate-ts"][key], *near]
            assert min(values) < best[key] < max(values)
    assert moved, "the least regret lies outside of this grid"
    assert tune(ENV, ["adaprivate-ts"], BUDGETS, widen=True, **how).rounds == 0


def test_a_value_that_an_agent_refuses_is_not_tried(tmp_path: Path) -> None:
    grids = {"adaprivate-amp": {"sampling": [0.5, 1.0]}}
    how = {**SMALL, "replicates": 1, "grids": grids, "out": tmp_path}
    done = tune(ENV, ["adaprivate-amp"], BUDGETS, widen=True, **how)
    assert not done.failures
    tried = {p.params.get("sampling") for c in done.recipes[0].choices for p in c.points}
    assert max(value for value in tried if value is not None) <= 1.0


def test_the_last_seed_of_halving_is_a_tuning_seed(tmp_path: Path) -> None:
    how = {"replicates": 1, "halving": 2, "points": 3, "seed": 1_999_999, "out": tmp_path}
    with pytest.raises(ParameterError, match=r"got 1999999\.\.2000000"):
        tune(ENV, ["lin-ucb"], grids={"lin-ucb": {"alpha": [1, 2, 3]}}, **how)
    with pytest.raises(ParameterError, match="halving"):
        tune(ENV, ["lin-ucb"], **{**how, "halving": 1})


def test_recipes_have_points_by_budget_and_task(tuned: Any, tmp_path: Path) -> None:
    recipe = tuned.recipes[0]
    for budget, choice in zip(BUDGETS, recipe.choices):
        _, params = load_recipe(recipe.path, budget=budget)
        usual = agent_spec("adaprivate-ts").defaults
        assert {**usual, **params} == {**usual, **choice.best.params}
    with pytest.raises(ParameterError, match=r"no such point; .*eps=1,delta=1e-5"):
        load_recipe(recipe.path, budget="rho=1")
    path = tmp_path / "points.yaml"
    path.write_text(
        "agent: lin-ucb\nbest_per_budget:\n- {task: a, budget: none, parameters: {alpha: 0.3}}\n"
    )
    assert load_recipe(path, "none", "a") == ("lin-ucb", {"alpha": 0.3})
    other = tmp_path / "defaults.yaml"  # the best alpha without a budget is the default
    other.write_text(
        "agent: lin-ucb\nparameters: {alpha: 3.0, ridge: 2.0}\ntuned_on: {grid: {alpha: [1, 3]}}\n"
        "best_per_budget: [{budget: none, parameters: {}}]\n"
    )
    assert load_recipe(other)[1] == {"alpha": 3.0, "ridge": 2.0}
    assert load_recipe(other, "none")[1] == {"ridge": 2.0}
    for place in ((None, None), ("none", None), ("none", "b"), ("rho=1", "a")):
        with pytest.raises(ParameterError, match="task='a', budget='none'"):
            load_recipe(path, *place)


# ------------------------------------------------------------------ seeds


def test_tuning_seeds_are_those_that_suites_keep_for_tuning() -> None:
    fields = Suite.model_fields
    assert TUNING_SEEDS.start == fields["tuning_seed"].default
    assert TUNING_SEEDS.stop == fields["normalisation_seed"].default
    assert fields["seed"].default + SEED_SPAN <= TUNING_SEEDS.start


@pytest.mark.parametrize(
    ("first", "count"), [(0, 1), (999_999, 2), (999_999, 1), (1_999_999, 2), (2_000_000, 1)]
)
def test_evaluation_seeds_are_refused(first: int, count: int) -> None:
    with pytest.raises(ParameterError, match=r"seeds 1000000\.\.1999999 only"):
        check_seeds(first, count)
    with pytest.raises(ParameterError, match="tuned on the customers"):
        tune(ENV, ["lin-ucb"], grids={"lin-ucb": {"alpha": [1]}}, seed=first, replicates=count)


@pytest.mark.parametrize(("first", "count"), [(1_000_000, 1), (1_000_000, 1_000_000)])
def test_tuning_seeds_are_accepted(first: int, count: int) -> None:
    assert check_seeds(first, count) is None


# ------------------------------------------------------------------ points

grids = st.dictionaries(
    st.sampled_from(["alpha", "intercept", "ridge", "batch"]),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(grids, st.one_of(st.none(), st.integers(1, 40)))
def test_points(grid: dict[str, list[int]], cap: int | None) -> None:
    """All combinations once, the defaults first, never more than the cap."""
    spec = agent_spec("lin-ucb")
    defaults = {"alpha": 1.0, "intercept": 0.0, "ridge": 1.0, "batch": 1}
    read = read_grid(spec, grid)
    points = choose_points(spec, read, {}, cap)
    full = [tuple(sorted({**defaults, **point}.items())) for point in points]
    assert points[0] == {} and len(set(full)) == len(full)
    every = {
        tuple(sorted({**defaults, **dict(zip(grid, values))}.items()))
        for values in itertools.product(*grid.values())
    } | {tuple(sorted(defaults.items()))}
    assert set(full) <= every
    assert len(full) == (len(every) if cap is None else min(cap, len(every)))
    assert choose_points(spec, read, {}, cap) == points


def test_grids_of_classes(monkeypatch: Any) -> None:
    cls: Any = agent_spec("lin-ucb").maker
    monkeypatch.setattr(cls, "tuning_grid", {"alpha": [1, 2]}, raising=False)
    assert read_grid(agent_spec("lin-ucb")) == {"alpha": (1.0, 2.0)}
    named = {"lin-greedy": {"ridge": [2.0]}}
    monkeypatch.setattr(cls, "tuning_grid", named, raising=False)
    assert read_grid(agent_spec("lin-greedy")) == {"ridge": (2.0,)}
    with pytest.raises(ParameterError, match="nothing to tune"):
        read_grid(agent_spec("lin-ucb"))
    assert read_grid(agent_spec("lin-ts"), {"v": [3.0]}) == {"v": (3.0,)}


def test_registered_grids_are_valid() -> None:
    """Whatever a registered class offers for tuning, the class takes."""
    for spec in dpb_gym.agent_specs().values():
        if not getattr(spec.maker, "tuning_grid", None):
            continue
        try:
            grid = read_grid(spec)
        except ParameterError as error:  # a shared class may have grids for some names only
            assert "nothing to tune" in str(error)
            continue
        for key, values in grid.items():
            for value in values:
                with suppress(MissingExtraError):
                    spec.make(**{key: value})


# ------------------------------------------------------------------ what is refused


def test_bad_input(tmp_path: Path) -> None:
    common = {**SMALL, "out": tmp_path}
    with pytest.raises(ParameterError, match="nothing to tune"):
        tune(ENV, ["random"], **common)
    with pytest.raises(UnknownNameError, match="lin-ucb"):
        tune(ENV, ["lin-ucbb"], **common)
    with pytest.raises(ParameterError, match="at least one agent"):
        tune(ENV, [], **common)
    with pytest.raises(AgentError, match="is private"):
        tune(ENV, ["adaprivate-ts"], grids={"adaprivate-ts": {"v": [1.0]}}, **common)
    with pytest.raises(ParameterError, match="not among"):
        tune(ENV, ["lin-ucb"], grids={"lin-ts": {"v": [1.0]}}, **common)
    with pytest.raises(ParameterError, match="a list of values for 'alpha'"):
        tune(ENV, ["lin-ucb"], grids={"lin-ucb": {"alpha": 1.0}}, **common)  # type: ignore[dict-item]
    with pytest.raises(ParameterError, match="unexpected keyword argument 'beta'"):
        tune(ENV, ["lin-ucb"], grids={"lin-ucb": {"beta": [1.0]}}, **common)
    with pytest.raises(ParameterError, match="fixed and varied"):
        tune(ENV, ["lin-ucb"], grids={"lin-ucb": {"alpha": [1.0]}},
             params={"lin-ucb": {"alpha": 2.0}}, **common)  # fmt: skip
    with pytest.raises(AgentError, match="supports recommendation"):
        tune("DPB/Pricing-v0", ["lin-ucb"], grids={"lin-ucb": {"alpha": [1.0]}}, out=tmp_path)


def test_points_that_fail_are_not_chosen(monkeypatch: Any, tmp_path: Path) -> None:
    from dpb_agents.recommendation.ridge_agents import LinUCB

    plan = LinUCB.plan

    def fragile(self: Any, *arguments: Any) -> Any:
        if self.alpha == 0.5:
            raise AgentError("told to fail")
        return plan(self, *arguments)

    monkeypatch.setattr(LinUCB, "plan", fragile)
    done = tune(ENV, ["lin-ucb"], grids={"lin-ucb": {"alpha": [0.5, 2.0]}}, out=tmp_path, **SMALL)
    assert len(done.failures) == 1 and "told to fail" in done.failures[0]
    tried = [point.params for point in done.recipes[0].choices[0].points]
    assert {"alpha": 0.5} not in tried and len(tried) == 2
    with pytest.raises(AgentError, match="every point"):
        tune(
            ENV, ["lin-ucb"], grids={"lin-ucb": {"ridge": [1.0]}},
            params={"lin-ucb": {"alpha": 0.5}}, out=tmp_path / "other", **SMALL,
        )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["agent: lin-ucb\n", "agent: 3\nparameters: {}\n", "[]\n", "agent: [\n",
     "agent: lin-ucb\nparameters: {beta: 1}\n"],
)  # fmt: skip
def test_what_is_no_recipe(text: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ParameterError):
        load_recipe(path)


# ------------------------------------------------------------------ the command


def test_the_command(capfd: Any, tmp_path: Path) -> None:
    words = ["tune", "lin-ucb", "adaprivate-ts", "--env", ENV, "--horizon", "30", "--set", "dim=3"]
    words += ["--set", "adaprivate-ts.batch=7", "--grid", "lin-ucb.alpha=[0.1, 2]"]
    words += ["--grid", "adaprivate-ts.v=[0.5, 1, 2, 4]", "--points", "2", "--budget", "rho=0.5"]
    words += ["--replicates", "2", "--workers", "1", "--out", str(tmp_path / "out"), "--quiet"]
    assert cli.run(words) == 0
    printed = capfd.readouterr().out
    assert "adaprivate-ts" in printed and "rho=0.5" in printed and "tuning seeds 1000000" in printed
    assert cli.run([*words, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert [agent["points"] for agent in report["recipes"]] == [2, 2]
    assert report["recipes"][1]["parameters"]["batch"] == 7
    assert report["recipes"][0]["choices"][0]["points"][0]["replicates"] == 2
    assert (tmp_path / "out/recipes/adaprivate-ts.yaml").exists()
    assert cli.run([*words, "--recipes", str(tmp_path / "mine")]) == 0
    assert (tmp_path / "mine/lin-ucb.yaml").exists()
    assert cli.run([*words, "--points", "3", "--halving", "2", "--json"]) == 0
    report = json.loads(capfd.readouterr().out.partition("{")[2].join(["{", ""]))
    assert report["recipes"][0]["choices"][0]["points"][0]["replicates"] == 4


def test_help_has_an_example() -> None:
    done = CliRunner().invoke(app, ["tune", "--help"], prog_name="dpb")
    assert done.exit_code == 0 and "Example: dpb tune " in done.output


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--budget", "zcdp 1"], "a budget is 'rho=0.5'"),
        (["--budget", "rho=x"], "not a number"),
        (["--budget", "delta=1"], "a budget is"),
        (["--budget", "rho=-1"], "rho"),
        (["--grid", "alpha=[1]"], "say whose"),
        (["--grid", "random.alpha=[1]"], "not among"),
        (["--seed", "5"], "tuned on the customers"),
        (["--set", "horizn=5"], "unexpected keyword argument 'horizn'"),
    ],
)
def test_bad_options_are_one_line(extra: list[str], message: str, capfd: Any) -> None:
    words = ["tune", "lin-ucb", "lin-ts", "--env", ENV, "--horizon", "10", "--replicates", "1"]
    grids = ["--grid", "lin-ucb.alpha=[1]", "--grid", "lin-ts.v=[1]"]
    assert cli.run([*words, *grids, *extra]) == 2
    error = capfd.readouterr().err
    assert message in error and error.count("\n") == 1
