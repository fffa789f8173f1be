"""A run on two hosts that share no disk: a network namespace stands for the second one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.storage import storage_of
from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.suite import Suite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (sys.platform.startswith("linux") and shutil.which("ip")), reason="needs Linux and ip"
    ),
]


@pytest.fixture
def hosts() -> Iterator[tuple[str, str, list[str]]]:
    """Addresses of this host and of another, and the words that start a command there."""
    number = os.getpid() % 200 + 20
    name, here, there = f"dpb{number}", f"10.213.{number}.1", f"10.213.{number}.2"
    steps = [
        f"netns add {name}",
        f"link add {name}a type veth peer name {name}b netns {name}",
        f"address add {here}/30 dev {name}a",
        f"link set {name}a up",
        f"-n {name} address add {there}/30 dev {name}b",
        f"-n {name} link set {name}b up",
        f"-n {name} link set lo up",
    ]
    try:
        for step in steps:
            done = subprocess.run(["ip", *step.split()], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"no network namespace here: {done.stderr.strip()}")
        # A separate mount namespace that hides what this host writes.
        yield here, there, ["ip", "netns", "exec", name, "unshare", "--mount"]
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_two_hosts_without_a_shared_disk(
    hosts: tuple[str, str, list[str]],
    suite: Suite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra [dask]")
    moto = pytest.importorskip("moto.server", reason="needs the extra [test-s3]")
    s3fs = pytest.importorskip("s3fs", reason="needs the extra [cloud]")
    here, there, elsewhere = hosts
    server = moto.ThreadedMotoServer(ip_address=here, port=0, verbose=False)
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{here}:{server.get_host_and_port()[1]}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("two-hosts")
    plans = plan_suite(suite)
    local, shared = tmp_path / "local", f"s3://two-hosts/{os.getpid()}"
    run_plan(suite, plans, local, workers=1)
    with distributed.LocalCluster(
        n_workers=0, host=here, dashboard_address=None, silence_logs=50
    ) as cluster:
        address = cluster.scheduler_address
        command = (
            f"mount -t tmpfs none {tmp_path} && exec {sys.executable} "
            f"-m distributed.cli.dask_worker {address} --no-nanny --no-dashboard --nthreads 1"
        )
        worker = subprocess.Popen(
            [*elsewhere, "sh", "-c", command], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            with distributed.Client(address, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=60)
                (at,) = client.scheduler_info()["workers"]
                unseen = client.submit(os.path.exists, str(local)).result()
            report = run_plan(suite, plans, shared, backend="dask", scheduler=address)
        finally:
            worker.terminate()
            worker.wait()
    assert there in at and not unseen
    assert report.computed == 18 and not report.failures
    both = [storage_of(path).read("result.parquet", 1 << 20) for path in (local, shared)]
    assert both[0] == both[1]
    assert len(ResultDirectory.open(shared).results()) == 18
    server.stop()
    s3fs.S3FileSystem.clear_instance_cache()
