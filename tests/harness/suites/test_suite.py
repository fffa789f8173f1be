from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dpb_gym.errors import DataError, SuiteError, UnknownNameError
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec, agent_specs, shortcoming
from dpb_gym.running.plan import make_jobs, plan_suite, task_info
from dpb_gym.suites.schema import parse_yaml
from dpb_gym.suites.spec import Task
from dpb_gym.suites.suite import SEED_SPAN, Suite, load_suite, parse_suite, suite_names

GOOD: dict[str, Any] = {
    "name": "t-v0",
    "replicates": 3,
    "tasks": [{"name": "a", "env": "DPB/Pricing-v0", "horizon": 10}],
    "agents": ["random"],
}


def with_(changes: dict[str, Any]) -> str:
    return yaml.safe_dump({**GOOD, **changes})


def task(**changes: Any) -> dict[str, Any]:
    return {"tasks": [{**GOOD["tasks"][0], **changes}]}


@pytest.mark.parametrize("name", suite_names())
def test_shipped_suites_are_valid_complete_and_named_like_their_files(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    assert suite.title and suite.description
    plans = plan_suite(suite)
    # A task without its data runs no agent and names the source of the data.
    missing = [plan for plan in plans if plan.missing]
    assert all("DPB_DATA" in plan.missing and not plan.runs for plan in missing)
    plans = [plan for plan in plans if not plan.missing]
    for plan in plans:
        assert {"random", "oracle"} <= {run.name for run in plan.runs}
        assert len(plan.runs) >= 4
        assert plan.task.normalisation is not None
        assert plan.task.description
        # parameters that a problem refuses would stop the run; only data may be absent
        try:
            plan.task.problem()
        except DataError as error:
            assert "Download it with" in str(error)
    used = {run.name for plan in plans for run in plan.runs}
    absent = {a.name for a in suite.agents if a.needs and find_spec(a.needs) is None}
    assert used | absent == {agent.name for agent in suite.agents}
    assert used <= set(agent_specs())


def test_a_suite_survives_being_written(suite: Suite) -> None:
    again = parse_suite(suite.to_yaml(), "again")
    assert again == suite and again.protocol == suite.protocol


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nmae": 1}, ["nmae", "unknown key"]),
        ({"replicates": 0}, ["replicates", "greater than or equal to 1", "got 0"]),
        ({"replicates": "3"}, ["replicates", "integer"]),
        ({"replicates": 2.5}, ["replicates", "integer"]),
        ({"replicates": True}, ["replicates"]),
        ({"name": "Bad Name"}, ["name", "pattern"]),
        ({"seed": -1}, ["seed"]),
        ({"tasks": []}, ["tasks", "at least 1"]),
        (task(horizon=1), ["tasks.0.horizon", "greater than or equal to 2"]),
        (task(env="DPB/Pricng-v0"), ["tasks.0.env", "did you mean 'DPB/Pricing-v0'"]),
        (task(horizont=5), ["tasks.0.horizont", "unknown key"]),
        (task(env_kwargs={"horizon": 5}), ["tasks.0.env_kwargs", "beside env_kwargs"]),
        (task(normalisation={"random": 2, "oracle": 1}), ["normalisation", "exceed"]),
        (task(normalisation={"random": 2}), ["tasks.0.normalisation.oracle", "missing"]),
        (task(normalisation={"random": float("nan"), "oracle": 1}), ["normalisation.random"]),
        ({"tasks": GOOD["tasks"] * 2}, ["task given twice: a"]),
        ({"checkpoints": "sometimes"}, ["checkpoints"]),
        ({"checkpoints": [5, 11]}, ["checkpoints", "1..10"]),
        ({"checkpoints": 0}, ["checkpoints"]),
        ({"block": 0}, ["block"]),
        ({"tuning_seed": 5}, ["seed=0 and tuning_seed=5", "apart"]),
        ({"seed": SEED_SPAN}, ["seed", "tuning_seed", "apart"]),
        ({"budgets": {"g": [{"rho": 1}]}}, ["budgets.g.0", "a budget is 'rho=0.5'"]),
        (
            {"budgets": {"g": [{"epsilon": 1, "delta": 1e-5}]}},
            ["budgets.g.0", "'eps=1,delta=1e-5'"],
        ),
        ({"budgets": {"g": ["eps=1"]}}, ["budgets.g.0", "needs its delta"]),
        ({"budgets": {"g": ["rho=-1"]}}, ["budgets.g.0", "rho"]),
        ({"agents": [{"name": "random", "tasks": ["b"]}]}, ["agents.0.tasks", "unknown task 'b'"]),
        ({"agents": [{"name": "adaprivate-ts", "budgets": "h"}]}, ["agents.0.budgets", "'h'"]),
        ({"agents": [{"label": "x"}]}, ["agents.0.name", "missing"]),
        ({"agents": [3]}, ["agents.0"]),
    ],
)
def test_mistakes_are_named_with_their_key(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SuiteError) as caught:
        parse_suite(with_(changes), "my.yaml")
    message = str(caught.value)
    assert message.startswith("my.yaml: ") and "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "line 2, column 1: did not find expected node content"),
        ("a: " + "[" * 101 + "]" * 101, "100 levels"),
        ("[" * 300_000, "100 levels"),
        ("\n".join(" " * i + "a:" for i in range(1000)), "100 levels"),
        ("- a\n- b", "mapping"),
        ("", "mapping"),
        ("a: 1\nb: {c: 1,\n d: 2\ne: 3", "from line 2 on"),
        ("name: a\nname: b", "'name' appears twice"),
        ("tasks: [{name: a, name: b}]", "'name' appears twice"),
        ("!!python/object:os.system {}", "YAML"),
        ("a: \x01", "YAML"),
    ],
)
def test_what_is_not_a_yaml_mapping_is_refused(text: str, words: str) -> None:
    with pytest.raises(SuiteError, match=words):
        parse_suite(text, "my.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tasks": [{"name": "a", "env": "DPB/Pricing-v0", "horizon": "500"}]},
            "tasks.0.horizon: input should be a valid integer, got '500'",
        ),
        ({"strength": 1, "stretch": 2}, "strength: unknown key; stretch: unknown key"),
        (
            {"agents": [{"name": "one-pass-pricing", "budgets": 5}]},
            "agents.0.budgets: input should be a list, got 5",
        ),
        (
            {"agents": [{"name": "one-pass-pricing", "budgets": ["rho=abc"]}]},
            "agents.0.budgets.0: a budget is",
        ),
    ],
)
def test_a_wrong_value_has_one_message(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SuiteError) as error:
        parse_suite(with_(changes), "my.yaml")
    assert str(error.value).startswith(f"my.yaml: {message}")
    assert str(error.value).count("budgets") == ("budgets" in message)
    assert "tuple" not in str(error.value).lower()


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_suite(text, "fuzz")
    except SuiteError as error:
        assert str(error).startswith("fuzz: ")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*GOOD, "budgets", "env", "horizon"]), inner, max_size=4
            )
        ),
        max_leaves=8,
    ),
    st.sampled_from([*GOOD, "budgets", "checkpoints", "seed", "block"]),
)
def test_any_value_under_any_key_is_read_or_refused(value: Any, key: str) -> None:
    try:
        suite = parse_suite(with_({key: value}), "fuzz")
    except SuiteError:
        return
    assert suite.replicates >= 1


def test_numbers_without_a_point_are_numbers() -> None:
    assert parse_yaml("[1e-5, 1E5, -2e+3, 1e5x, '1e5']") == [1e-5, 1e5, -2e3, "1e5x", "1e5"]


def test_files_and_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(with_({}), encoding="utf-8")
    assert load_suite(str(path)).name == "t-v0"
    with pytest.raises(SuiteError, match="cannot read"):
        load_suite(str(tmp_path / "none.yaml"))
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(SuiteError, match="cannot read"):
        load_suite(str(path))
    with pytest.raises(UnknownNameError, match="did you mean 'smoke'"):
        load_suite("smok")


def test_the_protocol_is_what_makes_results_comparable() -> None:
    base = parse_suite(with_({}), "a").protocol
    same = [{"agents": ["oracle"]}, {"replicates": 9}, {"block": 2}, {"title": "x"},
            task(description="words")]  # fmt: skip
    other = [{"name": "u-v0"}, {"seed": 10 * SEED_SPAN}, {"checkpoints": 3}, task(horizon=11),
             task(env_kwargs={"dim": 4}), task(name="b")]  # fmt: skip
    assert all(parse_suite(with_(c), "a").protocol == base for c in same)
    assert len({parse_suite(with_(c), "a").protocol for c in other} | {base}) == len(other) + 1


def test_agents_are_skipped_where_they_do_not_fit(suite: Suite) -> None:
    offers, items = plan_suite(suite)
    assert [run.title for run in offers.runs] == ["random", "Oracle"]
    assert offers.skipped == {"Private": "supports recommendation, not assortment"}
    assert [run.title for run in items.runs] == [
        "random",
        "Oracle",
        "Private (eps=1,delta=1e-5)",
        "Private (eps=5,delta=1e-5)",
    ]
    assert not items.skipped


def test_agents_may_be_chosen_and_added(suite: Suite) -> None:
    (chosen,) = plan_suite(suite, agents=["Oracle", "lin-ts"], tasks=["items"])
    assert [run.label for run in chosen.runs] == ["Oracle", "lin-ts"]
    (added,) = plan_suite(suite, agents=["adaprivate-ucb"], tasks=["items"])
    assert [str(run.budget) for run in added.runs] == [
        "eps=1,delta=1e-5",
        "eps=5,delta=1e-5",
    ]
    with pytest.raises(UnknownNameError, match="did you mean 'Oracle'"):
        plan_suite(suite, agents=["Oracel"])
    with pytest.raises(UnknownNameError, match="did you mean 'items'"):
        plan_suite(suite, tasks=["itmes"])


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ({"name": "lin-tss"}, "did you mean 'lin-ts'"),
        ({"name": "random", "budgets": ["rho=1"]}, "takes no budget"),
        ({"name": "adaprivate-ts"}, "give budgets"),
    ],
)
def test_agents_that_cannot_run_are_suite_errors(agent: dict[str, Any], words: str) -> None:
    suite = parse_suite(with_({"agents": [agent]}), "a")
    with pytest.raises(SuiteError, match=words):
        plan_suite(suite)


def test_one_label_twice_on_a_task_is_refused() -> None:
    agents = [{"name": "random", "label": "A"}, {"name": "oracle", "label": "A"}]
    with pytest.raises(SuiteError, match="given twice: A"):
        plan_suite(parse_suite(with_({"agents": agents}), "a"))


def test_jobs_cover_every_replicate_once(suite: Suite) -> None:
    for replicates in (None, 1, 4, 9):
        jobs = make_jobs(suite, plan_suite(suite), replicates)
        covered: dict[tuple[str, str, str], list[int]] = {}
        for job in jobs:
            for cell in job.cells:
                covered.setdefault(cell.row, []).extend(cell.replicates)
        assert len(covered) == 6
        assert all(indices == list(range(replicates or 5)) for indices in covered.values())
        assert len({cell.key for job in jobs for cell in job.cells}) == sum(
            len(job.cells) for job in jobs
        )


def test_the_longest_jobs_come_first_and_tasks_take_turns(suite: Suite) -> None:
    def order(told: Suite) -> list[tuple[str, int]]:
        jobs = make_jobs(told, plan_suite(told))
        return [(job.task.name, job.cells[0].start) for job in jobs]

    turns = [(name, start) for start in (0, 2, 4) for name in ("offers", "items")]
    assert order(suite) == sorted(turns)  # "items" are longer
    even = parse_suite(suite.to_yaml().replace("horizon: 40", "horizon: 60"), "even")
    assert order(even) == turns


ARENA: dict[str, Any] = {
    "name": "arena-v0",
    "replicates": 6,
    "block": 4,
    "budgets": {"reward": ["eps=1,delta=1e-5"], "wide": ["rho=1", "rho=2"]},
    "tracks": {"one": {"title": "One", "budgets": "wide"}, "two": {"title": "Two",
               "budgets": "reward"}},
    "tasks": [
        {"name": "a", "track": "one", "env": "DPB/Assortment-v0", "horizon": 10, "replicates": 3,
         "block": 2},
        {"name": "b", "track": "two", "env": "DPB/Recommendation-v0", "horizon": 10},
        {"name": "c", "track": "two", "env": "DPB/Recommendation-v0", "horizon": 20},
    ],
    "agents": ["random", "dpmnl", "adaprivate-ts", {"name": "one-pass-linear", "budgets": "track"}],
}  # fmt: skip


def arena(**changes: Any) -> Suite:
    return parse_suite(yaml.safe_dump({**ARENA, **changes}), "arena")


def titles(suite: Suite, **chosen: Any) -> list[list[str]]:
    return [[run.title for run in plan.runs] for plan in plan_suite(suite, **chosen)]


def test_a_track_brings_its_own_budgets() -> None:
    private = ["adaprivate-ts (eps=1,delta=1e-5)", "one-pass-linear (eps=1,delta=1e-5)"]
    assert titles(arena()) == [
        ["random", "dpmnl (rho=1)", "dpmnl (rho=2)"],
        ["random", *private],
        ["random", *private],
    ]
    assert arena().protocol == arena(tracks={"one": {"title": "Other"}, "two": {"title": "T"}},
                                     budgets={**ARENA["budgets"], "default": ["rho=1"]},
                                     ).protocol  # fmt: skip


def test_a_third_party_agent_takes_every_budget_of_the_track() -> None:
    labels = titles(arena(), agents=["adaprivate-ucb", "one-pass-mnl", "lin-ucb"])
    assert labels[0] == ["one-pass-mnl", "one-pass-mnl (rho=1)", "one-pass-mnl (rho=2)"]
    assert labels[1] == labels[2] == ["adaprivate-ucb (eps=1,delta=1e-5)", "lin-ucb"]


def test_tasks_may_have_sizes_of_their_own() -> None:
    suite = arena()
    blocks: dict[str, list[list[int]]] = {}
    for job in make_jobs(suite, plan_suite(suite)):
        blocks.setdefault(job.task.name, []).append(list(job.cells[0].replicates))
    assert blocks == {
        "a": [[0, 1], [2]],
        "b": [[0, 1, 2, 3], [4, 5]],
        "c": [[0, 1, 2, 3], [4, 5]],
    }
    jobs = make_jobs(suite, plan_suite(suite), replicates=2)
    assert {tuple(job.cells[0].replicates) for job in jobs} == {(0, 1)}


def test_agents_are_left_out_with_the_reason() -> None:
    agents = [
        {"name": "random", "exclude": {"two": "too dull", "a": "too long"}},
        {"name": "lin-ucb", "tasks": ["two"], "exclude": {"c": "no time"}},
        {"name": "lin-ts", "needs": "no_such_module_here"},
        {"name": "oracle"},
    ]
    plans = plan_suite(arena(agents=agents))
    assert titles(arena(agents=agents)) == [["oracle"], ["lin-ucb", "oracle"], ["oracle"]]
    assert plans[0].skipped["random"] == "too long"
    assert plans[2].skipped == {
        "random": "too dull",
        "lin-ucb": "no time",
        "lin-ts": "needs the module no_such_module_here, which is not installed",
    }


def test_tasks_without_their_data_are_left_out_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DPB_DATA", str(tmp_path))
    monkeypatch.setenv("DPB_CACHE", str(tmp_path))
    tasks = [dict(task) for task in ARENA["tasks"]]
    tasks[1]["requires"], tasks[2]["requires"] = "ml-latest-small", "some/file.csv"
    suite = arena(tasks=tasks)
    plans = plan_suite(suite)
    assert [bool(plan.runs) for plan in plans] == [True, False, False]
    assert "dpb data fetch ml-latest-small" in plans[1].missing
    assert "some/file.csv" in plans[2].missing
    assert {job.task.name for job in make_jobs(suite, plans)} == {"a"}
    with pytest.raises(DataError, match="task 'b'"):
        plan_suite(suite, tasks=["b"])
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "file.csv").write_text("x")
    assert [bool(plan.runs) for plan in plan_suite(suite)] == [True, False, True]
    tasks[1]["requires"] = "synthetic-jester"
    assert not plan_suite(arena(tasks=tasks))[1].missing


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tracks": {"one": {"title": "One"}}}, "unknown track 'two'"),
        ({"tracks": {**ARENA["tracks"], "a": {"title": "A"}}}, "a task has this name"),
        ({"tracks": {"one": {"title": "One", "budgets": "no"}, "two": {"title": "T"}}},
         "unknown budget grid 'no'"),
        ({"agents": [{"name": "random", "exclude": {"z": "why"}}]}, "unknown task 'z'"),
        ({"agents": [{"name": "random", "exclude": {"a": ""}}]}, "exclude"),
        ({"agents": [{"name": "random", "needs": "os; import"}]}, "needs"),
        ({"agents": [{"name": "lin-ucb", "points": {"one": {}}}]}, "unknown task 'one'"),
        ({"agents": [{"name": "lin-ucb", "points": {"a": {"rho": {}}}}]}, "a budget is"),
        ({"agents": [{"name": "lin-ucb", "points": {"a": {}}, "tasks": ["a"]}]}, "no others"),
        ({"budgets": {**ARENA["budgets"], "track": ["rho=1"]}}, "stands for the grids"),
        ({"tracks": {"one": {"title": "One"}, "two": {"title": "T"}}}, "needs a grid called"),
    ],
)  # fmt: skip
def test_tracks_and_reasons_must_fit(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SuiteError, match=words):
        arena(**changes)


def test_points_run_at_their_tasks_and_budgets_only() -> None:
    points = {"b": {"rho=1": {"v": 0.5}, "rho=2": {"v": 2.0, "batch": 7}}}
    agent = {"name": "adaprivate-ts", "params": {"batch": 5}, "points": points}
    plans = {plan.task.name: plan for plan in plan_suite(arena(agents=[agent]))}
    params = {str(run.budget): run.params for run in plans["b"].runs}
    assert params == {"rho=1": {"v": 0.5, "batch": 5}, "rho=2": {"v": 2.0, "batch": 7}}
    assert not plans["c"].runs
    assert plans["c"].skipped == {"adaprivate-ts": "not listed for this task"}


def test_the_smoke_suite_has_the_non_private_version_of_our_agents() -> None:
    """Without them private agents would seem to be ahead of all non-private ones."""
    agents = load_suite("smoke").agents
    private = {agent.name for agent in agents if agent.budgets}
    ours = {name for name in private if agent_spec(name).standing == "ours"}
    exact = {agent.name for agent in agents if not agent.budgets}
    assert len(ours) == 3 and ours <= exact and "lin-greedy" in exact


def test_the_arena_has_our_agents_under_every_trust_model_on_all_tasks_of_their_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A comparison in which only the others have a row would be counted nowhere."""
    monkeypatch.setattr(Task, "missing_data", lambda task: "")
    suite = load_suite("dpb-bench-v1")
    ours = {agent.name for agent in suite.agents if agent_spec(agent.name).standing == "ours"}
    assert len(ours) == 4
    for plan in plan_suite(suite):
        track = suite.tracks[plan.task.track or ""]
        amounts = {Budget.parse(budget) for budget in suite.grid(track.budgets or ())}
        playing = {run.name for run in plan.runs} & ours
        assert playing == {
            name for name in ours if not shortcoming(agent_spec(name), task_info(plan.task))
        }
        assert playing
        for name in playing:
            budgets = {run.budget for run in plan.runs if run.name == name and run.budget}
            for trust in ("curator", "aggregator", "shuffler", "local"):
                under = {budget.amount for budget in budgets if budget.trust == trust}
                assert under == amounts, (plan.task.name, name, trust)


def test_tasks_of_the_arena_have_equal_replicates() -> None:
    suite = load_suite("dpb-bench-v1")
    assert suite.replicates == 20
    assert all(task.replicates is None for task in suite.tasks)
    for task in suite.tasks:  # the blocks of stored results stay the suite's own
        assert (task.replicates or suite.replicates) % (task.block or suite.block) == 0
