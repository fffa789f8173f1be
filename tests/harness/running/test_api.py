"""`evaluate` and what it returns."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import (
    AgentError,
    BudgetError,
    DataError,
    DPBError,
    ParameterError,
    ResultError,
    UnknownNameError,
)
from dpb_gym.privacy import Budget
from dpb_gym.results import metrics
from dpb_gym.suites import spec
from dpb_gym.suites.suite import Suite

ENV = "DPB/Recommendation-v0"
SMALL: dict[str, Any] = {"dim": 3, "n_arms": 12}
GRID = [Budget.approx(1.0, 1e-5), Budget.approx(5.0, 1e-5)]


class Broken(dpb_gym.SingleAgent):
    """Breaks down in the second block."""

    def act(self, context: Any) -> int:
        if self.rng.bit_generator.seed_seq.entropy == 4 and context.t == 7:  # type: ignore[attr-defined]
            raise ZeroDivisionError("oops")
        return 0


@pytest.fixture(scope="module")
def result() -> dpb_gym.Result:
    agents = {
        "Random": "random",
        "Oracle": "oracle",
        "LinTS": "lin-ts",
        "Private": ("adaprivate-ts", None, {"batch": 20}),
    }
    return dpb_gym.evaluate(
        ENV, agents, horizon=120, replicates=6, seed=11, env_kwargs=SMALL, budgets=GRID
    )


def test_final_regret_is_in_replicate_order_and_that_of_single_runs(result: Any) -> None:
    regrets = result.final_regret("LinTS")
    assert regrets.shape == (6,)
    for i in range(6):
        single = dpb_gym.evaluate(
            ENV, {"x": "lin-ts"}, horizon=120, replicates=1, seed=11 + i, env_kwargs=SMALL
        )
        assert single.final_regret("x").tolist() == [regrets[i]]
        assert single.final_reward("x").tolist() == [result.final_reward("LinTS")[i]]


def test_records_are_the_whole_curve(result: Any) -> None:
    records = result.records()
    assert set(records[0]) == {
        "task", "agent", "budget", "rho", "epsilon", "delta", "replicate", "seed", "round",
        "regret", "reward",
    }  # fmt: skip
    rounds = sorted({r["round"] for r in records})
    assert rounds[-1] == 120 and len(records) == 5 * 6 * len(rounds)
    last = [r["regret"] for r in records if r["agent"] == "Random" and r["round"] == 120]
    assert last == result.final_regret("Random").tolist()
    assert {r["seed"] - r["replicate"] for r in records} == {11}
    json.dumps(records)


def test_budgets_are_distinguished(result: Any) -> None:
    with pytest.raises(ParameterError, match=r"several results.*eps=1"):
        result.final_regret("Private")
    first = result.final_regret("Private", GRID[0])
    assert first.tolist() == result.final_regret("Private", "eps=1,delta=1e-5").tolist()
    assert first.tolist() != result.final_regret("Private", GRID[1]).tolist()
    with pytest.raises(ParameterError, match="no result for"):
        result.final_regret("Private", Budget.zcdp(3.0))
    with pytest.raises(UnknownNameError, match="did you mean 'LinTS'"):
        result.final_regret("LinTs")


def test_the_leaderboard_says_what_the_records_say(result: Any) -> None:
    data = result.to_leaderboard()
    (task,) = data.tasks
    assert (task.env_id, task.problem, task.horizon, task.replicates) == (
        ENV, "recommendation", 120, 6
    )  # fmt: skip
    rows = {row.key: row for row in task.rows}
    assert len(rows) == 5
    lin = rows["LinTS"]
    regret = result.final_regret("LinTS")
    assert vars(lin.regret) == pytest.approx(vars(metrics.interval(regret, floor=0.0)))
    assert lin.iqm_regret == metrics.interval(regret, metrics.MIDDLE, floor=0.0)
    assert lin.reward.mean == pytest.approx(result.final_reward("LinTS").mean())
    assert lin.curve[-1][0] == 120 and lin.curve[-1][1] == pytest.approx(regret.mean())
    assert (lin.guarantee, lin.notion, lin.budget, lin.score) == ("non-private", None, None, None)
    assert lin.lead is None  # the oracle and random play mark the scale, they are no rivals
    beaten = np.mean(regret < result.final_regret("Random"))
    assert result.improvement("LinTS", "Random") == beaten
    assert result.improvement("Oracle", "LinTS") == 1.0
    assert result.improvement(("Private", GRID[0]), ("Private", GRID[0])) == 0.5
    private = rows["Private (eps=1,delta=1e-5)"]
    assert private.notion is not None and private.unit == "reward" and "eps=1" in private.guarantee
    assert private.params["batch"] == 20
    assert all(row.rounds_per_second and row.rounds_per_second > 0 for row in task.rows)


@pytest.mark.slow
def test_drawing_and_saving(result: Any, tmp_path: Path, capsys: Any) -> None:
    result.table()
    assert "LinTS" in capsys.readouterr().out
    result.plot(tmp_path / "regret.png", agents=["LinTS"])
    assert (tmp_path / "regret.png").stat().st_size > 1000
    assert result.plot_frontier().axes and result.plot_paired(against="LinTS").axes
    chosen = result.plot_paired(against="LinTS", agents=["Random"]).axes[0]
    labels = " ".join(text.get_text() for text in chosen.get_yticklabels())
    assert "Random" in labels and "Oracle" not in labels and "Private" not in labels
    with pytest.raises(UnknownNameError, match="agent label"):
        result.plot_paired(against="LinTS", agents=["none"])
    assert "LinTS" in result.to_csv() and "LinTS" in result.to_latex()
    assert "<table" in result._repr_html_() and "LinTS" in result._repr_html_()
    assert {record["rho"] for record in result.records()} == {None}
    assert {record["epsilon"] for record in result.records()} == {None, 1.0, 5.0}
    assert b"LinTS" in result.html(tmp_path / "page.html").read_bytes()
    path = result.save(tmp_path / "out")
    back = dpb_gym.Result.load(path)
    assert back.records() == result.records()
    assert back.guarantees() == result.guarantees()
    assert back.to_leaderboard().tasks == result.to_leaderboard().tasks
    before = {p: p.stat().st_mtime_ns for p in path.rglob("*.parquet")}
    result.save(path)
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*.parquet")} == before
    other = dpb_gym.evaluate(ENV, "random", horizon=60, replicates=1, env_kwargs=SMALL)
    with pytest.raises(ResultError, match="another directory"):
        other.save(path)
    more = dpb_gym.evaluate(
        ENV, {"UCB": "lin-ucb"}, horizon=120, replicates=6, seed=11, env_kwargs=SMALL
    )
    more.save(path)
    assert set(dpb_gym.Result.load(path).labels) == {"Random", "Oracle", "LinTS", "Private", "UCB"}


@pytest.mark.slow
def test_a_failing_agent_does_not_affect_others() -> None:
    run: dict[str, Any] = {"horizon": 20, "replicates": 6, "env_kwargs": SMALL, "workers": 2}
    with pytest.warns(RuntimeWarning, match=r"'bad' failed in round 7 \(act\).*oops") as caught:
        result = dpb_gym.evaluate(ENV, {"bad": _broken, "good": "lin-ts"}, **run)
    assert len(caught) == 1
    alone = dpb_gym.evaluate(ENV, {"good": "lin-ts"}, **run)
    assert result.final_regret("good").tolist() == alone.final_regret("good").tolist()
    assert result.labels == ["good"]
    with pytest.raises(AgentError, match="oops"):
        result.final_regret("bad")
    assert any("oops" in note for note in result.to_leaderboard().notes)
    with pytest.raises(AgentError, match="oops"):
        dpb_gym.evaluate(ENV, {"bad": Broken}, horizon=20, replicates=6, env_kwargs=SMALL)


def _broken() -> Any:
    # Test modules cannot be imported by workers; a function that defines its class can travel.
    import dpb_gym

    class Travels(dpb_gym.SingleAgent):
        def act(self, context: Any) -> int:
            if self.rng.bit_generator.seed_seq.entropy == 4 and context.t == 7:  # type: ignore[attr-defined]
                raise ZeroDivisionError("oops")
            return 0

    return Travels()


def test_defaults_and_checkpoints() -> None:
    result = dpb_gym.evaluate(
        "DPB/Pricing-v0", "random", replicates=2, env_kwargs={"horizon": 50}, checkpoints="all"
    )
    assert [r["round"] for r in result.records() if r["replicate"] == 0] == list(range(1, 51))
    assert result.suite.tasks[0].horizon == 50
    assert dpb_gym.evaluate("DPB/Pricing-v0", "random", 30, 1, checkpoints=[10, 20]).rows[
        0
    ].rounds.tolist() == [10, 20, 30]


def test_cells_are_named_when_they_are_kept(tmp_path: Path, monkeypatch: Any) -> None:
    agents = {"Random": "random", "UCB": "lin-ucb"}
    asked: dict[str, Any] = {"horizon": 30, "replicates": 2, "env_kwargs": SMALL}
    with monkeypatch.context() as patched:
        for owner, name in ((spec, "code_hash"), (spec.Task, "data_digest"), (spec, "canonical")):
            patched.setattr(owner, name, None)
        patched.setattr(Suite, "protocol", None)
        looked_at = dpb_gym.evaluate(ENV, agents, **asked)
        assert looked_at.final_regret("Random").shape == (2,)
    kept = dpb_gym.evaluate(ENV, agents, out=tmp_path / "kept", **asked)
    saved = dpb_gym.Result.load(looked_at.save(tmp_path / "saved"))
    assert [c.cell.key for c in saved.cells] == [c.cell.key for c in kept.cells]
    assert all(c.cell.protocol == kept.suite.protocol for c in saved.cells)


def test_what_cannot_be_stored_is_played_and_refused_when_it_is_kept(tmp_path: Path) -> None:
    class Theta:
        def __array__(self, *_: Any, **__: Any) -> Any:
            return np.array([0.6, 0.8])

    def go(theta: Any, out: Path | None = None, replicates: int = 2) -> Any:
        kwargs = {"dim": 2, "theta": theta}
        return dpb_gym.evaluate(
            "DPB/Pricing-v0", "random", 20, replicates, env_kwargs=kwargs, progress=False, out=out
        )

    played, given = go(Theta()), np.array([0.6, 0.8])
    kept = go(given)
    given[:] = 0.0
    np.testing.assert_array_equal(played.final_regret("random"), kept.final_regret("random"))
    assert len(go(Theta(), replicates=70).final_regret("random")) == 70  # in two blocks
    kept.save(tmp_path / "kept")
    assert dpb_gym.Result.load(tmp_path / "kept").suite.tasks[0].env_kwargs["theta"] == [0.6, 0.8]
    for keep in (lambda: played.save(tmp_path / "x"), lambda: go(Theta(), tmp_path / "y")):
        with pytest.raises(ParameterError, match="cannot be stored"):
            keep()


def test_progress_may_be_a_function() -> None:
    seen: list[tuple[int, int]] = []
    dpb_gym.evaluate("DPB/Pricing-v0", "random", 40, 3, progress=lambda *done: seen.append(done))
    assert seen[-1] == (120, 120)


def call(**changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "env_id": ENV, "agents": "random", "horizon": 20, "replicates": 1, "env_kwargs": SMALL
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return dpb_gym.evaluate(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"env_id": "DPB/Recomendation-v0"}, UnknownNameError, "did you mean"),
        ({"env_id": "CartPole-v1"}, UnknownNameError, "unknown environment"),
        ({"env_id": 3}, UnknownNameError, "unknown environment"),
        ({"agents": "lin-tss"}, UnknownNameError, "did you mean 'lin-ts'"),
        ({"agents": {}}, ParameterError, "at least one"),
        ({"agents": "ucb-mnl"}, AgentError, "supports assortment, not recommendation"),
        ({"agents": "adaprivate-ts"}, AgentError, "needs a budget: --budget rho=1"),
        ({"agents": {"a": ("lin-ts", Budget.zcdp(1.0))}}, AgentError, "takes no budget"),
        ({"agents": {"a": ("lin-ts", 1.0)}}, BudgetError, "rho=0.5"),
        (
            {"agents": {"a": ("lin-ts", None, {"alfa": 1})}},
            ParameterError,
            "unexpected keyword argument 'alfa'",
        ),
        ({"budgets": [1.0]}, BudgetError, "rho=0.5"),
        ({"horizon": 1}, ParameterError, "horizon"),
        ({"horizon": 2.5}, ParameterError, "horizon"),
        ({"horizon": float("nan")}, ParameterError, "horizon"),
        ({"env_kwargs": {"horizon": 10}}, ParameterError, "horizon once"),
        ({"replicates": 0}, ParameterError, "replicates must be an integer"),
        ({"replicates": -3}, ParameterError, "replicates"),
        ({"replicates": 1.5}, ParameterError, "replicates"),
        ({"replicates": True}, ParameterError, "replicates"),
        ({"seed": -1}, ParameterError, "seed"),
        ({"seed": 0.5}, ParameterError, "seed"),
        ({"checkpoints": "often"}, ParameterError, "checkpoints"),
        ({"checkpoints": [21]}, ParameterError, "1..20"),
        ({"checkpoints": 0}, ParameterError, "checkpoints"),
        ({"workers": 0}, ParameterError, "workers"),
        ({"env_kwargs": {"dims": 3}}, ParameterError, "unexpected keyword argument 'dims'"),
        ({"env_kwargs": {"dim": float("nan")}}, ParameterError, "dim must be an integer"),
        ({"env_kwargs": {"dim": 0}}, ParameterError, "dim"),
        ({"env_kwargs": {"n_arms": 3}}, ParameterError, "n_candidates"),
        (
            {"env_id": "DPB/Assortment-v0", "env_kwargs": {"n_items": 3, "capacity": 4}},
            ParameterError,
            "capacity must be an integer in 1..3",
        ),
        (
            {"env_id": "DPB/MovieLensReplay-v0", "env_kwargs": {"data": "ml-999"}},
            DPBError,
            "ml-999",
        ),
        (
            {"env_id": "DPB/MovieLensReplay-v0", "env_kwargs": {"data": "./no/such.csv"}},
            DataError,
            "no/such.csv",
        ),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        call(**changes)
    assert words in str(caught.value)


def test_loading_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no such"):
        dpb_gym.Result.load(tmp_path / "none")
    with pytest.raises(ResultError, match=r"manifest\.json"):
        dpb_gym.Result.load(tmp_path)
