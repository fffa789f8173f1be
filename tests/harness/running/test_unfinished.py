"""Saved states of unfinished jobs: resumed runs equal uninterrupted ones, whatever ended them."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym import state
from dpb_gym.cli import run
from dpb_gym.errors import ResultError
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import agent_specs, check_supported
from dpb_gym.results.parquet import write_cell
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.storage import Storage, storage_of
from dpb_gym.running import unfinished
from dpb_gym.running.api import plan_task
from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import Job, make_jobs
from dpb_gym.running.runner import run_block
from dpb_gym.running.unfinished import JobState, state_file

pytestmark = pytest.mark.usefixtures("few_points")
# Random numbers are drawn in blocks of 512 rounds at most, so that a resumed run draws again.
HORIZON, REPLICATES = 540, 2
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "slates": ("DPB/Assortment-v0", {"n_items": 6, "capacity": 2, "dim": 2}),
    "stock": ("DPB/Assortment-v0", {"n_items": 4, "capacity": 2, "dim": 2, "stock": 40}),
    "a stock of one product": ("DPB/Pricing-v0", {"dim": 2, "stock": 90}),
    "prices": ("DPB/Pricing-v0", {"dim": 2}),
    "late prices": ("DPB/Pricing-v0", {"dim": 2, "delay": "geometric=5"}),
    "candidates": ("DPB/Recommendation-v0", {"dim": 3, "n_candidates": 4}),
    "arms": ("DPB/MultiArmed-v0", {"n_arms": 5}),
    "users": (
        "DPB/Recommendation-v0",
        {"dim": 3, "interactions_per_user": 2, "delay": "fixed=7"},
    ),
    "drift": ("DPB/Recommendation-v0", {"dim": 3, "drift": "walk"}),
}


class Stopped(BaseException):
    """Ends a block as a signal does."""


def stop(*_: Any) -> None:
    raise Stopped


OFF_POLICY = {
    "net_arch": (8,), "batch_size": 4, "learning_starts": 4, "train_freq": 30, "gradient_steps": 2,
}  # fmt: skip
DEEP: dict[str, dict[str, Any]] = {
    "ppo": {"net_arch": (8,), "n_steps": 64, "batch_size": 32, "n_epochs": 1},
    "dqn": OFF_POLICY,
    "sac": OFF_POLICY,
}
"""Agents of Stable-Baselines3 with small networks, trained before and after they continue."""


@functools.cache
def agents(world: str, deep: bool = False) -> tuple[tuple[str, Any], ...]:
    """Every agent of this project that plays a world, with a budget if it can have one.

    Args:
        world: Name of the world.
        deep: Whether these are the agents of Stable-Baselines3, or all others.
    """
    env_id, kwargs = WORLDS[world]
    problem = dpb_gym.make_problem(env_id, horizon=HORIZON, **kwargs)
    players = []
    for name, spec in agent_specs().items():
        if (name in DEEP) != deep:
            continue
        budget = None if spec.budget == "never" else "rho=20"
        try:
            check_supported(spec, problem.info, budget is not None)
            spec.make().set_up  # noqa: B018 (needs a package that may be missing)
        except dpb_gym.errors.DPBError:
            continue
        if spec.entry_point.startswith("dpb_agents"):
            players.append((name, budget))
    return tuple(players)


def shared_out(world: str) -> dict[str, Any]:
    """Return the agents that play this world in `make test`, each of which plays one world."""
    worlds: dict[str, list[str]] = {}
    for each in WORLDS:
        for name, _ in agents(each):
            worlds.setdefault(name, []).append(each)
    chosen = {name: own[i % len(own)] for i, (name, own) in enumerate(sorted(worlds.items()))}
    return {name: budget for name, budget in agents(world) if chosen[name] == world}


def job(world: str, names: dict[str, Any] | None = None) -> Job:
    env_id, kwargs = WORLDS[world]
    chosen = dict(agents(world)) if names is None else names
    suite, plan = plan_task(
        env_id, {name: (name, budget, DEEP.get(name, {})) for name, budget in chosen.items()},
        HORIZON, REPLICATES, checkpoints=[40, 130, 200, HORIZON], env_kwargs=kwargs,
    )  # fmt: skip
    (made,) = make_jobs(suite, [plan])
    return made


def bits(result: Any) -> bytes:
    return write_cell(replace(result, timing=None))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Storage]:
    place = storage_of(tmp_path / "out")
    with place.held():
        yield place


# Deep agents train for seconds: `make test` runs the world in which all three can play.
DEEP_WORLDS = [
    pytest.param(world, True, marks=() if world == "prices" else pytest.mark.long)
    for world in WORLDS
]


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_every_agent_continues_in_a_world(world: str, place: Storage) -> None:
    continues(world, shared_out(world), place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "deep"),
    [*(pytest.param(world, False, marks=pytest.mark.long) for world in WORLDS), *DEEP_WORLDS],
)
def test_every_agent_continues_in_every_world(world: str, deep: bool, place: Storage) -> None:
    if deep:
        pytest.importorskip("stable_baselines3", reason="needs the extra [sb3]")
    continues(world, dict(agents(world, deep)), place)


def continues(world: str, chosen: dict[str, Any], place: Storage) -> None:
    """Stop a job of these agents in round 200, and compare what continues with a whole run."""
    cells = job(world, chosen).cells
    problem = job(world).task.problem()
    whole = run_block(problem, cells)
    states = JobState(place, cells[0], 0.0)
    seen: list[tuple[str, int]] = []

    def late(checkpoint: Any) -> None:
        if checkpoint.round == 200:
            stop()

    with pytest.raises(Stopped):
        run_block(problem, cells, notify=late, states=states)
    again = JobState(place, cells[0], 0.0)
    assert 0 < again.saved["round"] <= 200
    failed = {one.cell.key for one in whole if not hasattr(one, "regret")}
    kept = again.of(cells)
    keys = {cell.key for cell in kept}
    assert keys and keys | failed == {cell.key for cell in cells}

    def note(checkpoint: Any) -> None:
        seen.append((checkpoint.agent, checkpoint.round))

    resumed = run_block(problem, kept, notify=note, states=again)
    expected = [one for one in whole if one.cell.key in keys]
    assert [bits(one) for one in resumed] == [bits(one) for one in expected]
    rounds = {agent: [t for who, t in seen if who == agent] for agent, _ in seen}
    assert all(reached == [40, 130, 200, HORIZON] for reached in rounds.values())


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_a_restored_instance_is_the_saved_one(world: str) -> None:
    problem = job(world, {"random": None}).task.problem()
    kind, rng = kind_of(problem.kind), np.random.default_rng(0)
    saved, restored = problem.instance([3, 4]), problem.instance([3, 4])

    def action() -> Any:
        return kind.random(problem.info, rng.random((2, *kind.action_shape(problem.info))))

    for _ in range(150):
        saved.respond(np.array([saved.best_action(), action()][int(rng.integers(2))]))
        saved.advance()
    last = saved.best_action()
    saved.respond(last)
    restored.restore(state.loads(state.dumps(saved.saved())))
    for _ in range(HORIZON - 151):
        np.testing.assert_equal(plain(saved, last), plain(restored, last))
        saved.advance()
        restored.advance()
        last = saved.best_action()


def plain(instance: Any, action: Any) -> list[Any]:
    outcome = instance.respond(action)
    return [*instance.context(), *instance.oracle(), *outcome.feedback, *outcome[1:], instance.left]


@pytest.mark.slow
def test_some_of_the_agents_continue_as_well(place: Storage) -> None:
    cells = job("late prices").cells
    problem = job("late prices").task.problem()
    whole = run_block(problem, cells[1::2])
    states = JobState(place, cells[0], 0.0)
    with pytest.raises(Stopped):
        run_block(
            problem, cells, notify=lambda c: stop() if c.round == 200 else None, states=states
        )
    resumed = run_block(problem, cells[1::2], states=JobState(place, cells[0], 0.0))
    assert [bits(one) for one in resumed] == [bits(one) for one in whole]


def test_a_short_job_writes_nothing(place: Storage) -> None:
    cells = job("prices", {"random": None}).cells
    states = JobState(place, cells[0], unfinished.SAVE_SECONDS)
    run_block(job("prices").task.problem(), cells, states=states)
    assert place.unfinished() == []


@pytest.mark.parametrize("damage", ["cut", "changed", "versions", "empty", "customers"])
def test_an_unusable_state_begins_again(
    damage: str, place: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = job("prices", {"random": None, "glm-ucb-pricing": None}).cells
    problem = job("prices").task.problem()
    whole = run_block(problem, cells)
    with pytest.raises(Stopped):
        run_block(
            problem, cells, notify=lambda c: stop() if c.round == 200 else None,
            states=JobState(place, cells[0], 0.0),
        )  # fmt: skip
    file = Path(place.at(state_file(cells[0])))
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[:-1])
    elif damage == "changed":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "versions":
        monkeypatch.setattr(unfinished.provenance, "versions", lambda: {"python": "2.7"})
    with pytest.warns(RuntimeWarning, match="begins again"):
        states = JobState(place, cells[0], 0.0)
        if damage == "customers":
            states.saved["customers"]["hidden"] = {}
        resumed = run_block(problem, cells, states=states)
    assert [bits(one) for one in resumed] == [bits(one) for one in whole]


def test_an_agent_that_cannot_be_saved_begins_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "SAVE_SECONDS", 0.0)

    class Opaque(dpb_gym.SingleAgent):
        def begin(self) -> None:
            self.secret = iter(range(9))

        def act(self, context: Any) -> float:
            return 0.5

    chosen = {"opaque": Opaque, "random": "random"}
    suite, plan = plan_task("DPB/Pricing-v0", chosen, HORIZON, 2, checkpoints=[200, HORIZON])
    run_plan(suite, [plan], tmp_path / "whole", workers=1)

    def late(checkpoint: Any) -> None:
        if checkpoint.round == 200:
            raise_interrupt()

    def raise_interrupt() -> None:
        raise KeyboardInterrupt

    with (
        pytest.warns(RuntimeWarning, match="last saved state of") as said,
        pytest.raises(KeyboardInterrupt),
    ):
        run_plan(suite, [plan], tmp_path / "out", workers=1, callbacks=[late])
    assert any("opaque: begins again if it is" in str(one.message) for one in said)
    assert len(list((tmp_path / "out/unfinished").iterdir())) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = run_plan(suite, [plan], tmp_path / "out", workers=1)
    assert report.computed == 2 and not (tmp_path / "out/unfinished").exists()
    assert cells_of(tmp_path / "out") == cells_of(tmp_path / "whole")


def test_without_a_directory_nothing_is_said_to_be_kept() -> None:
    def end(checkpoint: Any) -> None:
        raise KeyboardInterrupt

    with (
        pytest.warns(RuntimeWarning, match="Nothing is kept: this run has no result directory"),
        pytest.raises(KeyboardInterrupt),
    ):
        dpb_gym.evaluate("DPB/Pricing-v0", "random", 50, 2, callbacks=[end], progress=False)


SUITE = """
name: slow-v0
replicates: 4
block: 2
checkpoints: 5
tasks:
  - {name: a, env: DPB/Pricing-v0, env_kwargs: {dim: 3, delay: geometric=3}, horizon: 4000}
agents: [random, oracle, glm-ucb-pricing]
"""
PROGRAM = """
from dpb_gym.running import unfinished
unfinished.SAVE_SECONDS = 0.05
from dpb_gym.cli import main
main()
"""
# The cluster belongs to the process group, so that one signal ends scheduler and workers too.
ON_DASK = """
import sys
import distributed
from dpb_gym.running import unfinished
unfinished.SAVE_SECONDS = 0.05
from dpb_gym.cli import main
with distributed.LocalCluster(
    n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
) as cluster:
    sys.argv += ["--backend", "dask", "--scheduler", cluster.scheduler_address]
    main()
"""


def cells_of(folder: Path) -> dict[str, bytes]:
    try:
        finished, damaged = ResultDirectory.open(folder).check()
    except ResultError:
        return {}
    assert not damaged
    return {one.cell.key: bits(one) for one in finished}


def words_of(folder: Path, out: str, workers: int | str) -> list[str]:
    """Write the suite, and return the words of a command that runs it."""
    (folder / "slow.yaml").write_text(SUITE)
    words = ["run", str(folder / "slow.yaml"), "--out", str(folder / out), "--quiet"]
    return words if workers == "dask" else [*words, "--workers", str(workers)]


def start(folder: Path, out: str, workers: int | str) -> subprocess.Popen[str]:
    """Start the run with a number of workers, or on a cluster of two for "dask"."""
    program = ON_DASK if workers == "dask" else PROGRAM
    return subprocess.Popen(
        [sys.executable, "-c", program, *words_of(folder, out, workers)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    assert run(words_of(folder, "out", 1)) == 0
    return cells_of(folder / "out")


# A start takes seconds: `make test` has a signal that is handled, and one that is not, and goes on
# in its own process.
SHORT = [(signal.SIGINT, 1), (signal.SIGKILL, 2)]
ENDS = [
    pytest.param(*end, marks=() if end in SHORT else pytest.mark.long)
    for end in product((signal.SIGKILL, signal.SIGTERM, signal.SIGINT), (1, 2, "dask"))
]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
@pytest.mark.parametrize(("number", "workers"), ENDS)
def test_a_killed_cell_continues(
    number: int, workers: int | str, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """The run ends before any cell is finished; the next one does not begin at round 1."""
    if workers == "dask":
        pytest.importorskip("distributed", reason="needs the extra [dask]")
    process = start(tmp_path, "out", workers)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        states = list((tmp_path / "out/unfinished").glob("*.state"))
        if len(states) == (1 if workers == 1 else 2):
            break
        time.sleep(0.002)
    assert process.poll() is None and states
    # Ctrl-C in a terminal does not reach a cluster, which is elsewhere.
    if number == signal.SIGTERM or (number == signal.SIGINT and workers == "dask"):
        process.send_signal(number)
    else:
        os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=60)
    if number != signal.SIGKILL:
        assert process.returncode == 130, errors
        assert "the last saved state of" in errors and "resume with: dpb run" in errors
    assert cells_of(tmp_path / "out").keys() < whole.keys()
    left = list((tmp_path / "out/unfinished").glob("*.state"))
    assert left
    if (number, workers) in SHORT:
        assert run(words_of(tmp_path, "out", 1)) == 0
    else:
        process = start(tmp_path, "out", workers)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert cells_of(tmp_path / "out") == whole
    assert not (tmp_path / "out/unfinished").exists()


def test_the_clock_limits_how_many_rounds_are_played_at_once(place: Storage) -> None:
    states = JobState(place, job("prices").cells[0], 30.0)
    # 7.5 s of rounds that take 0.5 s each
    assert states.most(128, 64.0) == 15
    assert states.most(1, 100.0) == 1
    assert states.most(128, 0.0) > np.iinfo(np.int32).max
