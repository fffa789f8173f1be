from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dpb_gym.agent import agent_specs
from dpb_gym.errors import SuiteError, UnknownNameError
from dpb_gym.evaluation.planning import make_jobs, plan_suite
from dpb_gym.evaluation.suite import SEED_SPAN, Suite, load_suite, parse_suite, suite_names
from dpb_gym.evaluation.yamlfile import parse_yaml

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
    for plan in plans:
        assert {"random", "oracle"} <= {entry.spec.name for entry in plan.entries}
        assert len(plan.entries) >= 4
        assert plan.task.normalisation is not None
        assert plan.task.description
    used = {entry.spec.name for plan in plans for entry in plan.entries}
    assert used == {agent.name for agent in suite.agents}
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
        ({"budgets": {"g": [{"rho": 1, "epsilon": 1}]}}, ["budgets.g.0", "either rho or"]),
        ({"budgets": {"g": [{"epsilon": 1}]}}, ["budgets.g.0", "epsilon and delta"]),
        ({"budgets": {"g": [{"rho": -1}]}}, ["budgets.g.0", "rho"]),
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
        ("a: [", "line 1"),
        ("- a\n- b", "mapping"),
        ("", "mapping"),
        ("name: a\nname: b", "'name' appears twice"),
        ("tasks: [{name: a, name: b}]", "'name' appears twice"),
        ("!!python/object:os.system {}", "YAML"),
        ("a: \x01", "YAML"),
    ],
)
def test_what_is_not_a_yaml_mapping_is_refused(text: str, words: str) -> None:
    with pytest.raises(SuiteError, match=words):
        parse_suite(text, "my.yaml")


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
    assert [entry.title for entry in offers.entries] == ["random", "Oracle"]
    assert offers.skipped == {"Private": "supports recommendation"}
    assert [entry.title for entry in items.entries] == [
        "random",
        "Oracle",
        "Private (eps=1, delta=1e-05)",
        "Private (eps=5, delta=1e-05)",
    ]
    assert not items.skipped


def test_agents_may_be_chosen_and_added(suite: Suite) -> None:
    (chosen,) = plan_suite(suite, agents=["Oracle", "lin-ts"], tasks=["items"])
    assert [entry.label for entry in chosen.entries] == ["Oracle", "lin-ts"]
    (added,) = plan_suite(suite, agents=["adaprivate-ucb"], tasks=["items"])
    assert [entry.budget_label for entry in added.entries] == [
        "eps=1, delta=1e-05",
        "eps=5, delta=1e-05",
    ]
    with pytest.raises(UnknownNameError, match="did you mean 'Oracle'"):
        plan_suite(suite, agents=["Oracel"])
    with pytest.raises(UnknownNameError, match="did you mean 'items'"):
        plan_suite(suite, tasks=["itmes"])


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ({"name": "lin-tss"}, "did you mean 'lin-ts'"),
        ({"name": "random", "budgets": [{"rho": 1}]}, "takes no budget"),
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
                key = (cell.task, cell.agent, cell.budget)
                covered.setdefault(key, []).extend(cell.replicates)
        assert len(covered) == 6
        assert all(found == list(range(replicates or 5)) for found in covered.values())
        assert len({cell.key for job in jobs for cell in job.cells}) == sum(
            len(job.cells) for job in jobs
        )
