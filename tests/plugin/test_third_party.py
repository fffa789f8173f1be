"""Third-party packages are found through entry points; broken ones do not affect others."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dpb_gym import cli

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
        "told = [spec.entry_point, spec.summary, r.final_regret('dummy-first').tolist()]\n"
        "print(json.dumps(told))"
    )
    entry_point, summary, regret = json.loads(run(installed, code).stdout)
    assert entry_point == "dpb_dummy:First"
    assert summary.startswith("Always the first candidate")
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


SUITE = """
name: tiny-v0
replicates: 2
checkpoints: 3
tracks:
  all: {title: Everything}
tasks:
  - name: prices
    track: all
    env: DPB/Pricing-v0
    horizon: 20
    normalisation: {random: 1.0, oracle: 5.0}
  - name: items
    track: all
    env: DPB/Recommendation-v0
    env_kwargs: {dim: 2, n_arms: 8}
    horizon: 30
    normalisation: {random: 10.0, oracle: 20.0}
agents: [random]
"""


def dpb(folder, *commands):
    """Run commands in one process with `folder` on the path; returns what each prints."""
    code = (
        "import sys\nfrom dpb_gym import cli\n"
        f"for command in {list(commands)!r}:\n"
        "    status = cli.run(command)\n"
        "    print(chr(30), end='')\n"
        "    if status: sys.exit(status)"
    )
    return run(folder, code).stdout.split(chr(30))[:-1]


def test_one_command_adds_the_agent_to_the_leaderboard(installed, tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text(SUITE)
    suite, board, published, page, archive = (
        str(tmp_path / name) for name in ("tiny.yaml", "board", "published", "page.html", "x.zip")
    )
    quiet = ["--workers", "1", "--quiet"]
    assert cli.run(["run", suite, "--out", board, *quiet]) == 0
    shutil.copytree(board, published)

    # One command of a user who has installed the package; then checks, and an archive.
    of_it = ["--agent", "dummy-first"]
    _, shown, checked, info = dpb(
        installed,
        ["run", suite, "--agents", "dummy-first", "--out", board, "--html", page, *quiet],
        ["leaderboard", board, "--json"],
        ["verify", board, *of_it, "--sample", "9", "--json"],
        ["submit", board, *of_it, "--out", archive, "--json"],
    )
    assert "dummy-first" in Path(page).read_text()
    shown = json.loads(shown)
    rows = {(t["task"], r["agent"]) for t in shown["tasks"] for r in t["rows"]}
    assert {("prices", "dummy-first"), ("items", "dummy-first"), ("items", "random")} <= rows
    (track,) = shown["tracks"]
    assert {row["agent"] for row in track["rows"]} == {"random", "dummy-first"}
    checked = json.loads(checked)
    assert checked["ok"] and len(checked["again"]) == 2
    source = json.loads(info)["agent"]
    assert (source["package"], source["package_version"]) == ("dpb-dummy", "1.0")
    code = (DUMMY / "dpb_dummy" / "__init__.py").read_bytes()
    assert source["sha256"] == hashlib.sha256(code).hexdigest()

    # The publisher of the leaderboard, this process, does not have the package ...
    capsys.readouterr()
    said, shown, checked = (
        (cli.run(words), capsys.readouterr().out)
        for words in (
            ["import", archive, "--into", published],
            ["leaderboard", published, "--json"],
            ["verify", published, "--sample", "9", "--json"],
        )
    )
    assert (said[0], shown[0], checked[0]) == (0, 0, 1)
    said, shown, checked = said[1], shown[1], checked[1]
    assert "2 cells of dummy-first added" in said
    assert "dummy-first" in {row["agent"] for row in json.loads(shown)["tracks"][0]["rows"]}
    checked = json.loads(checked)
    assert not checked["ok"] and len(checked["again"]) == 2
    assert (checked["rows"], checked["confirmed"], len(checked["unavailable"])) == (4, 2, 2)
    assert all("is not installed here" in line for line in checked["unavailable"])
    # ... and users who have it reproduce the numbers bit for bit.
    checked, shown = dpb(
        installed,
        ["verify", published, *of_it, "--sample", "9", "--json"],
        ["leaderboard", published, "--json"],
    )
    checked = json.loads(checked)
    assert checked["ok"] and len(checked["again"]) == 2 and not checked["unavailable"]
    assert "recomputed here" in shown and "stated by" not in shown


def test_without_the_package_the_name_is_unknown():
    code = (
        "import dpb_gym\n"
        "try:\n    dpb_gym.make_agent('dummy-first')\n"
        "except dpb_gym.errors.UnknownNameError as e:\n    print(e)"
    )
    assert "unknown agent 'dummy-first'" in run("", "import dpb_gym.errors\n" + code).stdout


TAKES_A_NAME = """
import dpb_gym
@dpb_gym.register_agent("lin-ucb", supports=["recommendation"])
class Mine(dpb_gym.SingleAgent):
    "boom"
"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise RuntimeError('boom')", "boom"),
        ("raise SystemExit('boom')", "boom"),
        (TAKES_A_NAME, "'lin-ucb' is already registered by dpb_agents"),
    ],
)
def test_a_broken_plugin_warns_and_others_load(tmp_path, source, said):
    (tmp_path / "dpb_broken.py").write_text(source + "\n")
    info = tmp_path / "dpb_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dpb-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dpb_gym.agents]\nbroken = dpb_broken\n")
    code = "import dpb_gym; print(dpb_gym.agent_specs()['lin-ucb'].entry_point)"
    done = run(tmp_path, code)
    assert done.stdout.strip().startswith("dpb_agents.")
    assert "could not load the agents of dpb_broken" in done.stderr and said in done.stderr


def test_built_in_names_are_reserved(tmp_path):
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(tmp_path, TAKES_A_NAME)
    assert "AgentError: agent 'lin-ucb' is already registered by dpb_agents" in failed.value.stderr


KIND = """
import warnings
import gymnasium as gym
import numpy as np
import dpb_gym, dpb_dummy
from gymnasium.utils.env_checker import check_env
from dpb_gym.feedback import PrivateResponse, RandomizedResponse

if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make("Dummy/Search-v0", horizon=5).unwrapped)
    one = gym.make("Dummy/Search-v0", horizon=50, render_mode="ansi")
    many = gym.make_vec("Dummy/Search-v0", num_envs=2, horizon=50)
    one.reset(seed=4), many.reset(seed=4), many.action_space.seed(4)
    clicks = set()
    for _ in range(50):
        action = many.action_space.sample()
        seen, all_seen = one.step(action[0]), many.step(action)
        assert np.array_equal(seen[0], all_seen[0][0]) and seen[1] == all_seen[1][0]
        assert seen[4]["choice"] == all_seen[4]["choice"][0]
        clicks.add(seen[4]["choice"])
    assert clicks == {-1, 0, 1, 2} and "vector 0" in one.render()

    private = PrivateResponse(gym.make("Dummy/Search-v0"), RandomizedResponse(1.0, 4))
    private.reset(seed=0)
    assert private.step([0, 1, 2])[4]["choice"] in clicks

    agents = ["dummy-ranker", "random", "oracle"]
    result = {}
    for workers in (1, 2):
        r = dpb_gym.evaluate("Dummy/Search-v0", agents=agents, horizon=400, replicates=4,
                             workers=workers, progress=False)
        result[workers] = {a: r.final_regret(a) for a in agents}
    assert all(np.array_equal(result[1][a], result[2][a]) for a in agents)
    learned, chance, best = (result[1][a].mean() for a in agents)
    assert best == 0.0 < learned < 0.5 * chance, (best, learned, chance)
    try:
        dpb_gym.evaluate("Dummy/Search-v0", agents=["lin-ucb"], horizon=9)
    except dpb_gym.errors.AgentError as error:
        assert "ranking" in str(error)
    try:
        dpb_gym.register_agent("nobody", supports=["rankings"])
    except dpb_gym.errors.AgentError as error:
        assert "ranking" in str(error)
    print("played", sorted(s.name for s in dpb_gym.agent_specs().values()
                           if "ranking" in s.supports))
"""


def test_a_new_kind_of_problem_needs_no_change_of_the_library(installed, tmp_path):
    """Environments, rendering, private feedback, baselines and workers all use the kind."""
    script = tmp_path / "kind.py"
    script.write_text(KIND)
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "played ['dummy-ranker', 'oracle', 'random']"
