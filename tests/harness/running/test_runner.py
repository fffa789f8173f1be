"""The lockstep runner: bit-exact lanes, paired customers, failures that stay contained."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba.core.compiler_lock import global_compiler_lock

import dpb_gym
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Context, Feedback, Problem
from dpb_gym.registry import agent_spec
from dpb_gym.results.cell_result import CellResult, Failure
from dpb_gym.running.progress import Watch
from dpb_gym.running.runner import run_block
from dpb_gym.suites.spec import AgentRun, Cell, Task

HORIZON = 45
SEEDS = range(100, 108)
PROBLEMS: dict[str, dict[str, Any]] = {
    "DPB/Assortment-v0": {"n_items": 6, "capacity": 2, "dim": 2, "context_norm": "clip"},
    "DPB/Pricing-v0": {"dim": 3},
    "DPB/Recommendation-v0": {"dim": 3, "n_arms": 12},
    "DPB/MovieLensReplay-v0": {"dim": 4, "protocol": "replay"},
}
AGENTS: dict[str, list[tuple[str, Budget | None, dict[str, Any]]]] = {
    "DPB/Assortment-v0": [("ucb-mnl", None, {}), ("ts-mnl", None, {})],
    "DPB/Pricing-v0": [("glm-ucb-pricing", None, {}), ("fixed-price", None, {})],
    "DPB/Recommendation-v0": [
        ("lin-ts", None, {}),
        ("adaprivate-ts", Budget.approx(1.0, 1e-5), {"batch": 10}),
        ("adaprivate-ts", Budget.approx(5.0, 1e-5), {"batch": 10}),
    ],
    "DPB/MovieLensReplay-v0": [("lin-ucb", None, {}), ("lin-greedy", None, {})],
}


def problem(env_id: str, horizon: int = HORIZON) -> Problem:
    return dpb_gym.make_problem(env_id, horizon=horizon, **PROBLEMS[env_id])


def entries(env_id: str) -> list[AgentRun]:
    runs = [AgentRun(spec=agent_spec(name), label=name.title()) for name in ("random", "oracle")]
    for name, budget, params in AGENTS[env_id]:
        runs.append(AgentRun(spec=agent_spec(name).over(params), budget=budget))
    return runs


def play(
    env_id: str, runs: list[AgentRun], seeds: range, rounds: Any = (HORIZON,), report: Any = None
) -> list[CellResult | Failure]:
    """Run agents on a block of replicates, each as its own cell."""
    task = Task(name="t", env=env_id, env_kwargs=PROBLEMS[env_id], horizon=HORIZON)
    cells = [
        Cell(
            suite="s", protocol="p", task=task, agent=run, checkpoints=tuple(rounds), seed=0,
            start=seeds.start, stop=seeds.stop,
        )
        for run in runs
    ]  # fmt: skip
    return run_block(problem(env_id), cells, report)


@lru_cache
def alone(env_id: str, title: str, seed: int) -> tuple[bytes, bytes]:
    """Regret and reward of one entry on one replicate, run alone."""
    (entry,) = [e for e in entries(env_id) if e.title == title]
    (lane,) = play(env_id, [entry], range(seed, seed + 1), range(1, HORIZON + 1))
    assert isinstance(lane, CellResult)
    return lane.regret.tobytes(), lane.reward.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("env_id", PROBLEMS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_bits_do_not_depend_on_batch_or_other_agents(env_id: str, data: Any) -> None:
    everyone = entries(env_id)
    chosen = data.draw(
        st.lists(st.sampled_from(range(len(everyone))), min_size=1, unique=True), label="entries"
    )
    start = data.draw(st.sampled_from(SEEDS), label="start")
    seeds = range(start, data.draw(st.integers(start + 1, SEEDS.stop), label="stop"))
    lanes = play(env_id, [everyone[i] for i in chosen], seeds, range(1, HORIZON + 1))
    for lane in lanes:
        assert isinstance(lane, CellResult), lane
        for i, seed in enumerate(seeds):
            single = alone(env_id, lane.cell.agent.title, seed)
            assert (lane.regret[i].tobytes(), lane.reward[i].tobytes()) == single


@pytest.mark.parametrize("env_id", PROBLEMS)
def test_a_lane_equals_stepping_the_gymnasium_environment_by_hand(env_id: str) -> None:
    everyone = entries(env_id)
    lanes = play(env_id, everyone, SEEDS, range(1, HORIZON + 1))
    seed, row = SEEDS[3], 3
    for entry, lane in zip(everyone, lanes):
        if entry.spec.uses_oracle:
            continue
        assert isinstance(lane, CellResult)
        env = gym.make(env_id, horizon=HORIZON, obs_mode="dict", **PROBLEMS[env_id])
        shape = env.unwrapped.problem.info  # type: ignore[attr-defined]
        agent = entry.spec.make()
        agent.set_up(shape, entry.spec.streams([seed], entry.budget), entry.budget)
        observation, _ = env.reset(seed=seed)
        regret = reward = 0.0
        for t in range(1, HORIZON + 1):
            arrays = {k: np.asarray(v)[None] for k, v in observation.items()}
            known = {k: arrays[k] for k in ("features", "revenues", "arms") if k in arrays}
            context = Context(t, **known)
            action = agent.act(context)
            played = np.atleast_1d(action[0]) if shape.kind == "pricing" else action[0]
            observation, gained, _, _, info = env.unwrapped.step(played)
            feedback = Feedback(
                np.array([gained]),
                choice=np.array([info["choice"]]) if "choice" in info else None,
                demand=np.array([info["demand"]]) if "demand" in info else None,
                observed=np.array([info["observed"]]) if "observed" in info else None,
            )
            agent.observe(context, action, feedback)
            regret += info["regret"]
            reward += gained
            assert lane.regret[row, t - 1] == regret
            assert lane.reward[row, t - 1] == reward


@pytest.mark.parametrize("env_id", PROBLEMS)
def test_regret_never_falls_and_the_oracle_has_none(env_id: str) -> None:
    lanes = play(env_id, entries(env_id), SEEDS, range(1, HORIZON + 1))
    for lane in lanes:
        assert isinstance(lane, CellResult)
        assert (np.diff(lane.regret, axis=1) >= 0).all()
        if lane.cell.agent.label == "Oracle":
            assert (lane.regret == 0).all()
        elif lane.cell.agent.label == "Random":
            assert (lane.regret[:, -1] > 0).all()


@pytest.mark.parametrize("env_id", PROBLEMS)
def test_checkpoints_are_points_of_the_whole_curve(env_id: str, monkeypatch: Any) -> None:
    """Rounds played one by one, and in stretches that end where a block of customers does."""
    everyone, points = entries(env_id), [3, 17, HORIZON]
    whole = play(env_id, everyone, range(1, 3), range(1, HORIZON + 1))
    monkeypatch.setattr("dpb_gym.problems.base.block_rounds", lambda *_: 10)
    for one, some in zip(whole, play(env_id, everyone, range(1, 3), points)):
        assert isinstance(one, CellResult) and isinstance(some, CellResult)
        at = [point - 1 for point in points]
        np.testing.assert_array_equal(some.regret, one.regret[:, at])
        np.testing.assert_array_equal(some.reward, one.reward[:, at])


def test_guarantees_are_taken_from_private_agents_only() -> None:
    env_id = "DPB/Recommendation-v0"
    lanes = play(env_id, entries(env_id), range(1))
    guarantees = {
        lane.cell.agent.title: lane.guarantee for lane in lanes if isinstance(lane, CellResult)
    }
    assert guarantees["Random"] is None and guarantees["lin-ts"] is None
    promise = dpb_gym.Guarantee.from_dict(guarantees["adaprivate-ts (eps=1,delta=1e-5)"] or {})
    assert promise.private and promise.epsilon(1e-5) <= 1.0 + 1e-6


def test_time_and_progress_are_counted() -> None:
    env_id = "DPB/Assortment-v0"
    reports: list[int] = []
    everyone = entries(env_id)
    lanes = play(env_id, everyone, range(2), report=reports.append)
    assert reports[-1] == len(everyone) * 2 * HORIZON
    for lane in lanes:
        assert isinstance(lane, CellResult)
        timing = lane.timing
        assert timing.rounds == 2 * (HORIZON - 1) and timing.companions == len(everyone)
        shared = timing.environment_seconds / len(everyone)
        assert timing.seconds == timing.agent_seconds + timing.response_seconds + shared > shared


def test_the_remaining_time_does_not_contain_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("dpb_gym.running.progress.time", clock)
    watch = Watch([1000, 1000], tmp_path)
    first, second = watch.heartbeat(0), watch.heartbeat(1)
    told = []
    for seconds, report in (
        (20, lambda: second(10)),
        (1, lambda: second(29)),
        (90, lambda: first(0, 36, 60, "posterior")),
        (8, lambda: first(0, 37, 37, "")),
        (1, lambda: second(100)),
        (1, lambda: (first(1000), second(1000))),
    ):
        now += seconds
        report()
        told.append(watch.summary())
    assert told == [
        "  0%  0/2 jobs",
        "  1%  0/2 jobs",
        "  1%  0/2 jobs, compiling 37 of 60 kernels: posterior",
        "  1%  0/2 jobs",
        "  5%  0/2 jobs, 9 rounds/s, 3 min 31 s left",
        "100%  0/2 jobs, 181 rounds/s",
    ]


@pytest.mark.parametrize("busy", [1.0, 0.25])
def test_time_without_the_processor_is_not_counted(
    busy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()  # a second passes whenever somebody asks
    clocks = SimpleNamespace(
        perf_counter=lambda: float(next(ticks)), thread_time=lambda: busy * next(ticks)
    )
    env_id = "DPB/Pricing-v0"
    monkeypatch.setattr("dpb_gym.running.runner.time", clocks)
    still = SimpleNamespace(wall=0.0, processor=0.0)  # loading kernels takes no ticks
    monkeypatch.setattr("dpb_gym.running.runner.spent", still)
    (lane,) = play(env_id, entries(env_id)[:1], range(1))
    assert isinstance(lane, CellResult) and lane.timing is not None
    rounds = lane.timing.rounds
    assert lane.timing.agent_seconds == pytest.approx(2 * rounds * busy)
    assert lane.timing.response_seconds == pytest.approx(rounds * busy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "number", "method"),
    [("DPB/Pricing-v0", 0, "act"), ("DPB/MovieLensReplay-v0", 2, "play")],
)
def test_compilation_is_not_counted(
    env_id: str, number: int, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = entries(env_id)[number]
    kind = type(run.spec.make())
    usual, calls = getattr(kind, method), itertools.count()

    def compiling(*arguments: Any) -> Any:
        if next(calls) == 3:
            with global_compiler_lock:  # held while numba compiles and loads
                time.sleep(2.0)
        return usual(*arguments)

    monkeypatch.setattr(kind, method, compiling)
    (lane,) = play(env_id, [run], range(2), range(5, HORIZON + 1, 5))
    assert isinstance(lane, CellResult) and lane.timing is not None and next(calls) > 4
    assert 0 < lane.timing.seconds < 0.2


Make = Callable[..., AgentRun]


@pytest.mark.parametrize("stage", ["begin", "act", "observe"])
def test_an_agent_that_raises_fails_alone(stage: str, fixed_entry: Make) -> None:
    env_id = "DPB/Pricing-v0"
    good = entries(env_id)
    broken = fixed_entry("Broken", fail_at=stage)
    late = fixed_entry("Late", fail_at=stage, round=HORIZON)
    runs = [good[0], late, good[2], broken]
    first, other, second, failure = play(env_id, runs, range(5, 7), [5, HORIZON])
    assert isinstance(other, Failure) and other.round == (0 if stage == "begin" else HORIZON)
    assert isinstance(failure, Failure)
    assert failure.stage == stage and failure.round == (0 if stage == "begin" else 3)
    assert failure.seed is None
    for part in ("'Broken'", "RuntimeError", "told to fail", "seeds 5 to 6"):
        assert part in failure.message
    assert "told to fail" in failure.details and "Traceback" in failure.details
    for lane, entry in ((first, good[0]), (second, good[2])):
        assert isinstance(lane, CellResult)
        for i, seed in enumerate((5, 6)):
            (single,) = play(env_id, [entry], range(seed, seed + 1))
            assert isinstance(single, CellResult)
            assert lane.regret[i, -1].tobytes() == single.regret[0, -1].tobytes()


def _with(value: Any, row: int) -> Callable[[int], Any]:
    def action(replicates: int) -> Any:
        prices = np.full(replicates, 0.5)
        prices[row] = value
        return prices

    return action


@pytest.mark.parametrize(
    ("env_id", "action", "seed"),
    [
        ("DPB/Pricing-v0", _with(np.nan, 1), 6),
        ("DPB/Pricing-v0", _with(np.inf, 1), 6),
        ("DPB/Pricing-v0", _with(1.5, 2), 7),
        ("DPB/Pricing-v0", _with(-0.1, 0), 5),
        ("DPB/Pricing-v0", lambda B: np.full((B, 2), 0.5), None),
        ("DPB/Pricing-v0", lambda B: np.array(["a"] * B), None),
        ("DPB/Pricing-v0", lambda B: None, None),
        ("DPB/Assortment-v0", lambda B: np.full((B, 2), 6), 5),
        ("DPB/Assortment-v0", lambda B: np.full((B, 3), 0), None),
        ("DPB/Assortment-v0", lambda B: np.full((B, 2), 0.5), None),
        ("DPB/Recommendation-v0", lambda B: np.full(B, -1), 5),
        ("DPB/Recommendation-v0", lambda B: np.full(B, 5), 5),
        ("DPB/Recommendation-v0", lambda B: np.zeros(B), None),
        ("DPB/Recommendation-v0", lambda B: np.zeros(B + 1, np.int64), None),
    ],
)
def test_bad_actions_fail_their_agent_and_name_the_replicate(
    env_id: str, action: Any, seed: int | None, fixed_entry: Make
) -> None:
    outcomes = play(env_id, [fixed_entry(action=action), entries(env_id)[0]], range(5, 8))
    failure, lane = outcomes
    assert isinstance(failure, Failure) and isinstance(lane, CellResult)
    assert failure.stage == "action" and failure.round == 3
    assert failure.seed == seed
    assert "round 3" in failure.message
    if seed is not None:
        assert f"seed {seed}" in failure.message


def test_an_agent_cannot_change_the_customers_of_others(fixed_entry: Make) -> None:
    env_id = "DPB/Recommendation-v0"
    vandal = fixed_entry("Vandal", fail_at="write")
    outcomes = play(env_id, [vandal, entries(env_id)[2]], range(1), range(1, HORIZON + 1))
    assert isinstance(outcomes[0], Failure) and "read-only" in outcomes[0].message
    assert isinstance(outcomes[1], CellResult)
    assert outcomes[1].regret[0].tobytes() == alone(env_id, "lin-ts", 0)[0]


def test_an_agent_that_does_not_fit_fails_before_the_first_round() -> None:
    misfit = AgentRun(spec=agent_spec("lin-ts"), label="Misfit")
    (failure,) = play("DPB/Pricing-v0", [misfit], range(1))
    assert isinstance(failure, Failure) and failure.round == 0
    assert "supports recommendation, not pricing" in failure.message


def test_interruptions_are_not_swallowed(fixed_entry: Make) -> None:
    entry = fixed_entry(fail_at="act", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        play("DPB/Pricing-v0", [entry], range(1))


@pytest.mark.parametrize("rounds", [[], [10], [HORIZON, HORIZON], [0, HORIZON], [HORIZON + 1]])
def test_bad_checkpoints_are_refused(rounds: list[int]) -> None:
    env_id = "DPB/Pricing-v0"
    with pytest.raises(ValueError):
        play(env_id, entries(env_id)[:1], range(1), rounds)


def test_no_agents_and_no_replicates_are_rejected() -> None:
    env_id = "DPB/Pricing-v0"
    with pytest.raises(ParameterError, match="cell"):
        run_block(problem(env_id), [])
    with pytest.raises(ValueError, match="stop"):
        play(env_id, entries(env_id)[:1], range(0))
