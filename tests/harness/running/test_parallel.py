"""The same bits on any number of processes and on a cluster."""

from __future__ import annotations

import _thread
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import MissingExtraError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.running import execution as run_module
from dpb_gym.running import unfinished
from dpb_gym.running.api import plan_task
from dpb_gym.running.execution import WorkerError, check_backend, run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.suite import Suite, parse_suite

AGENTS: dict[str, Any] = {
    "Random": "random",
    "LinTS": "lin-ts",
    "Private": ("adaprivate-ts", Budget.approx(1.0, 1e-5), {"batch": 20}),
}
RUN: dict[str, Any] = {
    "horizon": 80,
    "replicates": 5,
    "seed": 40,
    "env_kwargs": {"dim": 3, "n_arms": 12},
    "checkpoints": "all",
}


def shards(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in out.glob("result.parquet")}


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of the scheduler of a healthy cluster."""
    distributed = pytest.importorskip("distributed", reason="needs the extra [dask]")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as started:
        yield started.scheduler_address


Longer = tuple[Suite, dict[str, bytes]]


@pytest.fixture(scope="module")
def longer(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Longer:
    """A suite that takes a while, and its results from one process."""
    long = parse_suite(suite.to_yaml().replace("horizon: 60", "horizon: 2500"), "longer")
    folder = tmp_path_factory.mktemp("longer")
    run_plan(long, plan_suite(long), folder, workers=1)
    return long, shards(folder)


def test_worker_counts_change_nothing() -> None:
    one = dpb_gym.evaluate("DPB/Recommendation-v0", AGENTS, **RUN)
    many = dpb_gym.evaluate("DPB/Recommendation-v0", AGENTS, **RUN, workers=3)
    assert many.records() == one.records()
    assert many.guarantees() == one.guarantees()


def test_loky_writes_the_same_shards_as_one_process(
    suite: Suite, finished: Path, tmp_path: Path
) -> None:
    plans = plan_suite(suite)
    seen: list[tuple[int, int]] = []
    run_plan(suite, plans, tmp_path / "two", workers=2, show=lambda *done: seen.append(done))
    assert shards(tmp_path / "two") == shards(finished)
    total = 5 * (2 * 40 + 4 * 60)
    assert seen[-1] == (total, total)


@pytest.mark.slow
def test_dask_writes_the_same_shards_as_one_process(
    suite: Suite, finished: Path, cluster: str, tmp_path: Path
) -> None:
    plans = plan_suite(suite)
    run_plan(suite, plans, tmp_path / "dask", backend="dask", scheduler=cluster)
    assert shards(tmp_path / "dask") == shards(finished)


@pytest.mark.slow
def test_started_jobs_end_with_their_run(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs would take an hour: an interrupted run leaves the workers free."""
    import distributed

    # a job also ends when it saves its state and its run has left the directory
    monkeypatch.setattr(unfinished, "SAVE_SECONDS", 3600.0)
    suite, plan = plan_task("DPB/Pricing-v0", {"random": ("random", None)}, 10**9, 4, block=2)

    def active() -> int:
        with distributed.Client(cluster, set_as_default=False) as watcher:
            return sum(watcher.run(lambda dask_worker: len(dask_worker.active_threads)).values())

    def interrupt() -> None:
        while active() < 2:
            time.sleep(0.05)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    with (
        pytest.warns(RuntimeWarning, match="Finished results are kept: 0 of 2 cells"),
        pytest.raises(KeyboardInterrupt),
    ):
        run_plan(suite, [plan], tmp_path / "out", backend="dask", scheduler=cluster)
    deadline = time.monotonic() + 30
    while active() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not active()


def test_evaluate_on_a_cluster_gives_the_same_result(cluster: str) -> None:
    options: dict[str, Any] = {"agents": ["random", "oracle"], "horizon": 50, "replicates": 4}
    here = dpb_gym.evaluate("DPB/Pricing-v0", **options)
    there = dpb_gym.evaluate(
        "DPB/Pricing-v0", **options, workers=2, backend="dask", scheduler=cluster
    )
    np.testing.assert_array_equal(here.final_regret("random"), there.final_regret("random"))
    with pytest.raises(ParameterError, match="backend"):
        dpb_gym.evaluate("DPB/Pricing-v0", **options, backend="slurm")


@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
def test_a_killed_dask_worker_loses_nothing(longer: Longer, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra [dask]")
    long, whole = longer
    plans = plan_suite(long)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        victim = next(iter(cluster.workers.values())).pid

        def kill() -> None:
            while not list((tmp_path / "dask").glob("cells/*/*.parquet")):
                time.sleep(0.005)
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        address = cluster.scheduler_address
        report = run_plan(long, plans, tmp_path / "dask", backend="dask", scheduler=address)
        killer.join(timeout=10)
    assert report.computed == 18 and not report.failures
    assert shards(tmp_path / "dask") == whole


@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
def test_a_run_resumes_after_a_killed_client(longer: Longer, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra [dask]")
    long, whole = longer
    plans, out = plan_suite(long), tmp_path / "dask"
    (tmp_path / "longer.yaml").write_text(long.to_yaml())
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        address = cluster.scheduler_address
        words = ["run", str(tmp_path / "longer.yaml"), "--out", str(out), "--quiet"]
        program = "from dpb_gym.cli import main; main()"
        client = subprocess.Popen(
            [sys.executable, "-c", program, *words, "--backend", "dask", "--scheduler", address]
        )
        while not list(out.glob("cells/*/*.parquet")) and client.poll() is None:
            time.sleep(0.01)
        client.kill()
        assert client.wait() == -signal.SIGKILL
        report = run_plan(long, plans, out, backend="dask", scheduler=address)
        with distributed.Client(address, set_as_default=False) as watcher:
            assert not any(watcher.processing().values())
    assert 0 < report.computed < 18 and not report.failures
    assert shards(out) == whole


def test_a_cluster_without_workers_raises(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra [dask]")
    monkeypatch.setattr(run_module, "LOST_SECONDS", 2.0)
    monkeypatch.setattr(run_module, "SETTLED_SECONDS", 1.0)
    longer = parse_suite(suite.to_yaml().replace("horizon: 60", "horizon: 20000"), "longer")
    with distributed.LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as cluster:
        address = cluster.scheduler_address
        words = ["-m", "distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard"]
        worker = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=120)

        def lose() -> None:
            while not list((tmp_path / "out").glob("cells/*/*.parquet")):
                time.sleep(0.005)
            worker.kill()

        loser = threading.Thread(target=lose, daemon=True)
        loser.start()
        try:
            with pytest.raises(WorkerError, match=r"lost: it has no workers.*results are kept"):
                run_plan(
                    longer, plan_suite(longer), tmp_path / "out", backend="dask", scheduler=address
                )
        finally:
            worker.kill()
            worker.wait()
    assert list((tmp_path / "out").glob("cells/*/*.parquet"))


def test_workers_that_are_started_for_ever_are_a_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = itertools.count()
    # a clock of this module alone: other threads look at Python's, too
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), sleep=lambda _: None)
    monkeypatch.setattr(run_module, "time", clock)
    client, done = Mock(status="running"), Mock()
    done.next_batch.return_value = []
    looks = 0

    def look() -> dict[str, Any]:
        nonlocal looks
        looks += 1
        assert looks < 1000, "it waits for ever"
        return {"workers": {f"worker {looks // 8}": {}, f"other {looks // 12}": {}}}

    client.scheduler_info.side_effect = look
    with pytest.raises(WorkerError, match=r"no workers that stay, since 6\d s"):
        list(run_module._completed(client, done, 1))
    assert looks < 80
    # One that stays keeps the run alive, whatever becomes of the others.
    looks, future = 0, Mock()
    done.next_batch.side_effect = lambda block: [future] if looks > 300 else []
    client.scheduler_info.side_effect = lambda: look() | {"workers": {"steady": {}, str(looks): {}}}
    future.result.return_value = "outcome"
    assert list(run_module._completed(client, done, 1)) == ["outcome"]


def test_a_result_that_died_with_its_worker_is_waited_for() -> None:
    client, done, future = Mock(status="running"), Mock(), Mock()
    client.scheduler_info.return_value = {"workers": {"one": {}}}
    future.result.side_effect = [TimeoutError(), "outcome"]
    done.next_batch.side_effect = [[future], []]
    assert list(run_module._completed(client, done, 1)) == ["outcome"]
    assert all(call.kwargs["timeout"] > 0 for call in future.result.call_args_list)


def test_a_scheduler_that_went_away_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "LOST_SECONDS", 0.1)
    client, done = Mock(status="connecting"), Mock()
    done.next_batch.return_value = []
    with pytest.raises(WorkerError, match="does not answer"):
        list(run_module._completed(client, done, 1))
    client.scheduler_info.assert_not_called()


SCRIPT = """
    import sys
    import numpy as np
    import dpb_gym

    @dpb_gym.register_agent("script-agent", supports=["recommendation"])
    class Mine(dpb_gym.SingleAgent):
        def __init__(self, place=0):
            self.place = place
        def act(self, context):
            return (context.t + self.place) % len(context.features)

    class Plain(dpb_gym.Agent):
        def begin(self, problem, streams, curator):
            self.draws = streams.uniforms()
        def act(self, context):
            return (self.draws.next() * 5).astype(np.int64)
        def observe(self, context, action, feedback):
            pass

    result = dpb_gym.evaluate(
        "DPB/Recommendation-v0",
        {"a": "script-agent", "b": ("script-agent", None, {"place": 2}), "c": Plain,
         "d": lambda: Mine(1)},
        horizon=30, replicates=4, workers=int(sys.argv[1]),
    )
    print([(label, result.final_regret(label).tolist()) for label in "abcd"])
"""


def test_agents_of_a_script_run_in_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    outputs = []
    for workers in ("1", "2"):
        done = subprocess.run(
            [sys.executable, str(script), workers], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] and "'d'" in outputs[0]


KILLER = """
    import os, signal
    import dpb_gym

    class Killer(dpb_gym.SingleAgent):
        def act(self, context):
            if context.t == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return 0

    if __name__ == "__main__":
        from dpb_gym.running.execution import WorkerError
        try:
            dpb_gym.evaluate("DPB/Recommendation-v0", {"k": Killer}, horizon=30, replicates=4,
                             workers=2)
        except WorkerError as error:
            print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
def test_a_dying_worker_is_a_clear_error(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(KILLER))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "a worker process died" in done.stdout and "Nothing is kept" in done.stdout


@pytest.mark.slow
def test_an_unreachable_scheduler_is_a_clear_error(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra [dask]")

    def refuse(address: str, **_: Any) -> None:
        raise OSError(f"Timed out trying to connect to {address}")

    monkeypatch.setattr(distributed, "Client", refuse)
    with pytest.raises(WorkerError, match="cannot reach the dask scheduler at tcp://127"):
        run_plan(
            suite, plan_suite(suite), tmp_path / "o", backend="dask", scheduler="tcp://127.0.0.1:9"
        )


def test_workers_and_backends_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_backend(3) == 3
    assert check_backend(None) >= 1
    for bad in (0, -1, 1.5, True, "2"):
        with pytest.raises(ParameterError, match="workers"):
            check_backend(bad)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="'loky', 'dask'"):
        check_backend(1, "ray")
    with pytest.raises(ParameterError, match="scheduler"):
        check_backend(1, "loky", "tcp://x")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"dpb-gym\[dask\]"):
        check_backend(1, "dask", "tcp://x")
