"""Rows made from cells: joined blocks, weakest guarantees, scores, notes."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpb_gym import cli
from dpb_gym.errors import ResultError
from dpb_gym.privacy import Budget, Composition, GaussianEvent, Guarantee
from dpb_gym.registry import agent_spec
from dpb_gym.results import leaderboard, metrics
from dpb_gym.results.cell_result import CellResult, Timing
from dpb_gym.results.result import Result
from dpb_gym.results.row_audits import RowAudits
from dpb_gym.results.row_result import collect, describe_guarantee
from dpb_gym.suites import recipes
from dpb_gym.suites.code_digest import papers
from dpb_gym.suites.recipes import effort, write_recipe
from dpb_gym.suites.spec import AgentRun, Cell, Task
from dpb_gym.suites.suite import Suite, Track

ROUNDS = (5, 40)


def promise(rho: float) -> dict[str, Any]:
    event = GaussianEvent(sigma=(1 / (2 * rho)) ** 0.5, sensitivity=1.0)
    return Guarantee("joint", "user-round", curve=Composition.of(event)).to_dict()


def cell_of(suite: Suite, task: Task, label: str, name: str, start: int, stop: int) -> Cell:
    return Cell(
        suite=suite.name, protocol=suite.protocol, task=task, seed=suite.seed,
        agent=AgentRun(spec=agent_spec(name), label=label), checkpoints=ROUNDS,
        start=start, stop=stop,
    )  # fmt: skip


def block(
    suite: Suite, label: str, start: int, stop: int, shift: float = 0.0, **fields: Any
) -> CellResult:
    name = fields.pop("name", "random")
    cell = cell_of(suite, suite.tasks[0], label, name, start, stop)
    budget = Budget.parse(fields.pop("budget", None))
    cell = cell.model_copy(update={"agent": cell.agent.model_copy(update={"budget": budget})})
    regret = np.array([[0.5 * r, 2.0 * r + shift] for r in range(start, stop)])
    return CellResult(cell, regret, 10.0 + regret, **fields)


def board(suite: Suite, results: list[CellResult]) -> Any:
    return Result(suite, results, created="2024-02-29").to_leaderboard()


def test_blocks_are_joined_in_replicate_order(suite: Suite) -> None:
    (series,) = collect([block(suite, "A", 2, 4), block(suite, "A", 0, 2), block(suite, "A", 4, 5)])
    assert series.replicates.tolist() == [0, 1, 2, 3, 4]
    assert series.regret[:, 1].tolist() == [0, 2, 4, 6, 8]
    assert series.reward[:, 0].tolist() == [10, 10.5, 11, 11.5, 12]
    assert series.final_regret == {0: 0, 1: 2, 2: 4, 3: 6, 4: 8}


def test_a_replicate_that_occurs_twice_counts_once(suite: Suite) -> None:
    (series,) = collect([block(suite, "A", 0, 4), block(suite, "A", 2, 6)])
    assert series.replicates.tolist() == [0, 1, 2, 3, 4, 5]
    assert series.final_regret[3] == 6


def test_rows_of_different_parameters_cannot_be_joined(suite: Suite) -> None:
    with pytest.raises(ResultError, match="different parameters"):
        collect([block(suite, "A", 0, 2), block(suite, "A", 2, 4, name="oracle")])


def test_speed_is_all_rounds_over_all_seconds(suite: Suite) -> None:
    timings = [Timing(100, 1.0, 0.5, 1.0, 2), Timing(300, 2.0, 1.0, 0.0, 1)]
    blocks = [block(suite, "A", 2 * i, 2 * i + 2, timing=t) for i, t in enumerate(timings)]
    (series,) = collect([*blocks, block(suite, "A", 4, 5)])
    assert series.rounds_per_second == pytest.approx(400 / (2.0 + 3.0))


def test_the_weakest_guarantee_of_the_blocks_is_reported(suite: Suite) -> None:
    strong, weak = promise(0.1), promise(2.0)
    a, b = block(suite, "A", 0, 2, guarantee=strong), block(suite, "A", 2, 4, guarantee=weak)
    (series,) = collect([a, b])
    assert series.guarantee == weak
    (series,) = collect([a, block(suite, "A", 2, 4)])
    assert series.guarantee is None


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_a_row_has_the_relation_of_its_guarantee(suite: Suite, relation: str) -> None:
    guarantee = {**promise(0.1), "relation": relation}
    rows = [block(suite, "A", 0, 2, name="lin-ts", budget="rho=0.1", guarantee=guarantee)]
    ((row,),) = (task.rows for task in board(suite, rows).tasks)
    assert row.relation == relation and f"({relation})" in row.guarantee


def test_scores_use_the_frozen_constants(suite: Suite) -> None:
    rivals = [block(suite, "A", 0, 5, name="lin-ts"), block(suite, "B", 0, 5, 7.0, name="lin-ts")]
    (task,) = board(suite, rivals).tasks
    a, b = task.rows
    # The suite's constants are random 10 and oracle 30.
    expected = metrics.interval(1.0 - 2.0 * np.arange(5) / 20.0)
    assert a.score is not None and vars(a.score) == pytest.approx(vars(expected))
    assert b.score is not None and b.score.mean == pytest.approx(a.score.mean - 7.0 / 20.0)
    assert vars(task.normalisation) == {"random": 10.0, "oracle": 30.0}


def test_the_best_row_has_its_lead(suite: Suite) -> None:
    shifts = {"D": 30.0, "A": 0.0, "C": 9.0, "B": 2.0}
    results = [block(suite, k, 0, 8, shift, name="lin-ts") for k, shift in shifts.items()]
    results.append(block(suite, "Oracle", 0, 8, -9.0, name="oracle"))
    rows = {row.agent: row for row in board(suite, results).tasks[0].rows}
    assert list(rows) == [*shifts, "Oracle"]
    assert rows["Oracle"].lead is None
    # Every replicate of B is two above that of A.
    assert rows["A"].lead == metrics.Interval(2.0, 2.0, 2.0)
    assert [rows[k].lead for k in "BCD"] == [None] * 3
    few = [block(suite, k, 0, 7, shift, name="lin-ts") for k, shift in shifts.items()]
    assert {row.lead for row in board(suite, few).tasks[0].rows} == {None}


def test_an_agent_s_other_parameters_are_no_rival_of_its_lead(suite: Suite) -> None:
    """Otherwise an agent shown with defaults and tuned could never lead clearly."""
    rows = [("A", 0.0, "lin-ts"), ("A (tuned)", 1.0, "lin-ts"), ("B", 5.0, "lin-ucb")]
    results = [block(suite, label, 0, 8, shift, name=name) for label, shift, name in rows]
    best = next(row for row in board(suite, results).tasks[0].rows if row.agent == "A")
    assert best.lead == metrics.Interval(5.0, 5.0, 5.0)


def test_private_rows_have_their_cost_relative_to_the_non_private_version(suite: Suite) -> None:
    def rows(count: int) -> dict[str, Any]:
        private = {"name": "one-pass-linear", "guarantee": promise(0.5)}
        results = [
            block(suite, "A", 0, count, 5.0, budget="rho=0.5", **private),
            block(suite, "A", 0, count, 2.0, name="one-pass-linear"),
            block(suite, "B", 0, count, 4.0, budget="rho=0.5", **private),
        ]
        return {row.key: row.excess for row in board(suite, results).tasks[0].rows}

    none = {"A": None, "B (rho=0.5)": None}
    assert rows(8) == {"A (rho=0.5)": metrics.Interval(3.0, 3.0, 3.0), **none}
    assert rows(7) == {"A (rho=0.5)": None, **none}


def test_incomplete_rows_are_noted(suite: Suite) -> None:
    data = board(suite, [block(suite, "A", 0, 5), block(suite, "B", 0, 2)])
    assert data.notes == ("Incomplete: B on offers has 2 of 5 replicates.",)
    assert [row.replicates for row in data.tasks[0].rows] == [5, 2]
    assert data.tasks[0].replicates == 5


def test_rows_state_provenance_and_tuning(suite: Suite) -> None:
    basis = "declared (sums: sensitivity 0.5); as printed (some paper)"
    declared = {**promise(0.5), "basis": basis}
    results = [
        block(suite, "A", 0, 2, name="one-pass-linear", guarantee=declared),
        block(suite, "B", 0, 1, name="lin-ts", provenance="recomputed here"),
        block(suite, "B", 1, 2, name="lin-ts", provenance="stated by Eve"),
        block(suite, "B", 2, 3, name="lin-ts"),
        block(suite, "C", 0, 2, name="lin-ts", provenance="recomputed here"),
    ]
    results.append(block(suite, "D", 0, 2, name="best-fixed-price"))
    a, b, c, d = board(suite, results).tasks[0].rows
    assert (a.reference, d.reference) == (False, True)
    assert (a.accounting, b.accounting) == (basis, "computed")
    assert [row.trust for row in (a, b, c)] == ["computed here", "stated by Eve", "recomputed here"]
    assert re.fullmatch(r"tuned on \d+ seeds", a.tuning) and b.tuning == "default parameters"
    assert effort("zcdp-episodic", {"alpha": 0.1, "ridge": 100.0, "centre": True}).startswith(
        "best of 8 points on"
    )
    assert effort("zcdp-episodic", {"alpha": 0.2}) == effort("nobody", {}) == ""


def test_a_recipe_of_the_track_comes_first_and_says_what_it_cost(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dpb_agents

    recipe = {
        "agent": "lin-ts", "parameters": {"v": 0.3}, "tuned_on": {"seeds": [5, 8], "points": 8},
        "cost": {"agent_rounds": 1_200_000, "seconds": 35.2},
    }  # fmt: skip
    (tmp_path / "recipes" / "offers").mkdir(parents=True)
    monkeypatch.setattr(dpb_agents, "__path__", [str(tmp_path), *dpb_agents.__path__])

    def store() -> None:
        write_recipe(tmp_path / "recipes" / "offers" / "lin-ts.yaml", recipe, "x")
        recipes._read.cache_clear()
        recipes._recipes.cache_clear()

    store()
    said = "best of 8 points on 4 seeds (1,200,000 agent rounds, 35 s)"
    assert effort("lin-ts", {"v": 0.3}, "offers") == said
    assert effort("lin-ts", {"v": 0.3}) == effort("lin-ts", {"v": 0.3}, "other") == ""
    assert effort("lin-ts", {"v": 0.4}, "offers") == ""
    del recipe["parameters"]
    points = {"x": {"v": 0.3}, "y": {"v": 2}, "z": {}}
    recipe["best_per_budget"] = [
        {"task": task, "budget": "none", "parameters": own} for task, own in points.items()
    ]
    store()
    assert effort("lin-ts", {"v": 0.3}, "offers", "x") == said
    assert effort("lin-ts", {}, "offers", "z") == said
    assert effort("lin-ts", {"v": 0.3}, "offers", "z") == ""
    assert effort("lin-ts", {"v": 0.3}, "offers", "y") == ""
    assert effort("lin-ts", {"v": 0.3}, "offers", "x", "rho=1") == ""
    assert effort("lin-ts", {}, "offers") == "default parameters"
    recipe["best_per_budget"][0]["task"] = suite.tasks[0].name
    store()
    one = suite.tasks[0].model_copy(update={"track": "offers"})
    tracked = suite.model_copy(
        update={"tasks": (one,), "tracks": {"offers": Track(title="Offers")}}
    )
    tuned = block(tracked, "A", 0, 2, name="lin-ts")
    agent = tuned.cell.agent.model_copy(update={"params": {"v": 0.3}, "source": "abc"})
    tuned = replace(tuned, cell=tuned.cell.model_copy(update={"agent": agent}))
    plain = block(tracked, "B", 0, 2, name="lin-ts")
    a, b = board(tracked, [tuned, plain]).tasks[0].rows
    assert (a.tuning, a.source) == (said, "abc") and b.tuning != said


def test_a_leaderboard_has_the_origins_of_its_agents(suite: Suite) -> None:
    origins = {o.name: o for o in board(suite, [block(suite, "A", 0, 2, name="dpmnl")]).origins}
    assert origins["dpmnl"].code.endswith("dpb_agents/assortment/dpmnl.py")
    assert origins["dpmnl"].papers == ("https://arxiv.org/abs/2410.22488",)
    assert origins["dpmnl"].page == "_generated/agents/dpmnl.html"
    unknown = block(suite, "A", 0, 2)
    agent = unknown.cell.agent.model_copy(update={"name": "not-here"})
    unknown = replace(unknown, cell=unknown.cell.model_copy(update={"agent": agent}))
    assert board(suite, [unknown]).origins == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("After arXiv:2009.12920, see arXiv 2410.22488.", ["arxiv.org/abs/2009.12920",
         "arxiv.org/abs/2410.22488"]),
        ("(doi:10.1145/2827872).", ["doi.org/10.1145/2827872"]),
        ("<https://doi.org/10.1145/28> twice doi:10.1145/28", ["doi.org/10.1145/28"]),
        ("At https://example.org/a_b-c.html.", ["example.org/a_b-c.html"]),
        ("http://example.org, javascript:alert(1), arXiv:1", []),
    ],
)  # fmt: skip
def test_papers_are_found_in_docstrings(text: str, expected: list[str]) -> None:
    assert list(papers(type("X", (), {"__doc__": text, "__module__": "nowhere"}))) == [
        f"https://{address}" for address in expected
    ]


def test_guarantees_in_words() -> None:
    assert describe_guarantee(None) == ("non-private", None, None)
    assert describe_guarantee(Guarantee.none().to_dict()) == ("non-private", None, None)
    text, notion, unit = describe_guarantee(promise(0.5))
    assert (notion, unit) == ("joint", "user-round") and "rho=0.5" in text


def test_a_row_with_stock_is_between_worlds_of_equal_stock(suite: Suite) -> None:
    task = suite.tasks[0]
    sold = task.model_copy(update={"env_kwargs": {**task.env_kwargs, "stock": 5}})
    for of, stated in ((task, False), (sold, True)):
        row = leaderboard._row(
            of, collect([block(suite, "A", 0, 2, guarantee=promise(0.5))])[0], RowAudits({}), {}
        )
        assert ("same items are sold out" in row.guarantee) == stated


@pytest.mark.parametrize(
    ("env", "stated"),
    [
        ("Log/Pricing-Loans-f0562d4d-v0", True),
        ("Log/Recommendation-Log-0123abcd-v0", True),
        ("DPB/Pricing-v0", False),
    ],
)
def test_a_row_of_a_log_leaves_out_the_log(suite: Suite, env: str, stated: bool) -> None:
    task = suite.tasks[0].model_copy(update={"env": env})
    for guarantee in (promise(0.5), None):
        rows = collect([block(suite, "A", 0, 2, guarantee=guarantee)])
        row = leaderboard._row(task, rows[0], RowAudits({}), {})
        assert ("apart from the log" in row.guarantee) == (stated and guarantee is not None)


def test_a_row_states_epsilon_at_the_delta_of_its_budget(suite: Suite) -> None:
    costs = {}
    for label, budget in (("A", "eps=9,delta=1e-6"), ("B", "eps=9,delta=0.001"), ("C", "rho=0.5")):
        costs[label] = block(suite, label, 0, 1, budget=budget, guarantee=promise(0.5))
    texts = [row.guarantee for row in board(suite, list(costs.values())).tasks[0].rows]
    assert [text.split("at delta=")[1].split(";")[0] for text in texts] == [
        "1e-06",
        "0.001",
        "1e-05",
    ]


def track_board(shifts: dict[str, list[Any]], replicates: tuple[int, int] = (4, 2)) -> Any:
    """A leaderboard of two tasks in a track; `shifts` holds a regret per label and task."""
    tasks = [
        {"name": f"t{k}", "track": "both", "env": "DPB/Pricing-v0", "horizon": 40,
         "normalisation": {"random": 10.0, "oracle": 30.0 + 20.0 * k}}
        for k in range(2)
    ]  # fmt: skip
    suite = Suite.model_validate(
        {"name": "t-v0", "replicates": 4, "tasks": tuple(tasks),
         "tracks": {"both": {"title": "Both tasks", "description": "Two of them."}}}
    )  # fmt: skip
    results = []
    for label, regrets in shifts.items():
        for k, regret in enumerate(regrets):
            if regret is None:
                continue
            stop = replicates[k]
            name = "oracle" if label == "Oracle" else "lin-ts"
            cell = cell_of(suite, suite.tasks[k], label, name, 0, stop)
            values = np.array([[0.0, regret + r] for r in range(stop)])
            results.append(CellResult(cell, values, 100.0 - values))
    return Result(suite, results, created="2024-02-29").to_leaderboard()


def test_tracks_average_tasks_with_equal_weight() -> None:
    data = track_board({"A": [2.0, 8.0], "B": [4.0, 4.0], "Oracle": [0.0, 0.0], "C": [1.0]})
    (track,) = data.tracks
    assert (track.title, track.tasks) == ("Both tasks", ("t0", "t1"))
    assert [task.track for task in data.tasks] == ["both", "both"]
    rows = {row.agent: row for row in track.rows}
    # Replicates 0..3 add 1.5 on average on t0 (unit 20), replicates 0, 1 add 0.5 on t1 (unit 40).
    first, second = 1 - (2.0 + 1.5) / 20, 1 - (8.0 + 0.5) / 40
    assert rows["A"].score.mean == pytest.approx((first + second) / 2)
    assert rows["A"].score.low < rows["A"].score.mean < rows["A"].score.high
    assert rows["A"].tasks == ("t0", "t1") and rows["C"].tasks == ("t0",)


def test_tracks_compare_with_the_best_complete_other_row() -> None:
    data = track_board({"A": [2.0, 8.0], "B": [4.0, 4.0], "Oracle": [0.0, 0.0], "C": [1.0]})
    ahead = {row.agent: row.ahead for row in data.tracks[0].rows}
    # A wins t0 and loses t1 against B, replicate by replicate; C misses a task.
    assert ahead == {"A": 0.5, "B": 0.5, "C": None, "Oracle": None}
    assert track_board({"A": [2.0, 8.0]}).tracks[0].rows[0].ahead is None


def test_a_tuned_row_of_a_track_has_the_defaults_where_they_are_best() -> None:
    tuned, partial = "A (tuned)", "B (tuned)"
    data = track_board({"A": [2.0, 8.0], tuned: [1.0], "B": [4.0], partial: [3.0]})
    rows = {row.agent: row for row in data.tracks[0].rows}
    alone = track_board({"C": [1.0, 8.0]}).tracks[0].rows[0]
    assert rows[tuned].tasks == ("t0", "t1") and rows[tuned].score == alone.score
    assert rows[partial].tasks == ("t0",) and rows["A"].score.mean < rows[tuned].score.mean
    later = track_board({"A": [2.0, 8.0], tuned: [None, 7.0]}).tracks[0].rows
    assert {row.agent: row.tasks for row in later} == {"A": ("t0", "t1"), tuned: ("t0", "t1")}


def test_a_task_without_constants_counts_in_no_track(suite: Suite) -> None:
    assert board(suite, [block(suite, "A", 0, 5)]).tracks == ()


TRACKED = """
name: tracked-v0
replicates: 2
checkpoints: 3
tracks:
  all: {title: Everything}
tasks:
  - name: items
    track: all
    env: DPB/Recommendation-v0
    env_kwargs: {dim: 2, n_arms: 8}
    horizon: 30
    normalisation: {random: 10.0, oracle: 20.0}
agents:
  - random
  - {name: adaprivate-ucb, budgets: ["rho=1", "eps=1,delta=1e-5"]}
  - {name: one-pass-linear, budgets: ["rho=1@local"]}
"""


def test_a_board_loads_no_compiler_and_no_pandas(tmp_path):
    (tmp_path / "tracked.yaml").write_text(TRACKED)
    folder = tmp_path / "out"
    words = ["run", str(tmp_path / "tracked.yaml"), "--out", str(folder), "--quiet"]
    assert cli.run([*words, "--workers", "1"]) == 0
    heavy = ["pandas", "scipy.stats", "numba", "dp_accounting", "matplotlib"]
    code = (
        "import sys\nfrom dpb_gym.cli import run\n"
        f"assert run(['leaderboard', {str(folder)!r}]) == 0\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "[]"
