"""A third party's package is installed and found; a broken one takes nothing down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DUMMY = Path(__file__).with_name("dummy")


def run(folder, code):
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "dummy"
    source.mkdir()
    for file in DUMMY.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            copy = source / file.relative_to(DUMMY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(file.read_text())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation"]
    command += ["--no-deps", "--no-index", "--target", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder


def test_the_agent_is_listed_made_and_runs(installed):
    code = (
        "import json, dpb_gym\n"
        "spec = dpb_gym.agent_spec('dummy-first')\n"
        "r = dpb_gym.evaluate('DPB/Recommendation-v0', agents=['dummy-first', 'random'],"
        " horizon=50, replicates=2, progress=False)\n"
        "print(json.dumps([json.loads(spec.to_json()), r.final_regret('dummy-first').tolist()]))"
    )
    spec, regret = json.loads(run(installed, code).stdout)
    assert spec["entry_point"] == "dpb_dummy:First"
    assert spec["summary"].startswith("Always the first candidate")
    assert len(regret) == 2 and min(regret) > 0


def test_the_agent_runs_in_worker_processes(installed):
    code = (
        "import dpb_gym\n"
        "if __name__ == '__main__':\n"
        "    r = dpb_gym.evaluate('DPB/Pricing-v0', agents=['dummy-first'], horizon=50,"
        " replicates=4, workers=2, progress=False)\n"
        "    print(len(r.final_regret('dummy-first')))"
    )
    assert run(installed, code).stdout.strip() == "4"


def test_without_the_package_the_name_is_unknown():
    code = (
        "import dpb_gym\n"
        "try:\n    dpb_gym.make_agent('dummy-first')\n"
        "except dpb_gym.errors.UnknownNameError as e:\n    print(e)"
    )
    assert "unknown agent 'dummy-first'" in run("", "import dpb_gym.errors\n" + code).stdout


def test_a_broken_plugin_warns_and_harms_nobody(tmp_path):
    (tmp_path / "dpb_broken.py").write_text("raise RuntimeError('boom')\n")
    info = tmp_path / "dpb_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dpb-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dpb_gym.agents]\nbroken = dpb_broken\n")
    code = "import dpb_gym; print('random' in dpb_gym.agent_specs())"
    done = run(tmp_path, code)
    assert done.stdout.strip() == "True"
    assert "could not load the agents of dpb_broken" in done.stderr and "boom" in done.stderr
