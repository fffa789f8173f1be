"""The ``dpb`` command: what it prints, its exit status, and never a traceback."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import dpb_gym
from dpb_gym import cli
from dpb_gym.cli.app import app, data
from dpb_gym.play.player import Player
from dpb_gym.registry import agent_specs

SUITE = """
name: tiny-v0
title: Tiny suite
replicates: 3
block: 2
checkpoints: 3
budgets:
  default: ["eps=1,delta=1e-5"]
tasks:
  - {name: items, env: DPB/Recommendation-v0, env_kwargs: {dim: 3, n_arms: 12}, horizon: 30}
  - {name: prices, env: DPB/Pricing-v0, horizon: 30}
agents:
  - {name: random, label: Random}
  - {name: lin-ts, label: LinTS}
  - {name: adaprivate-ts, label: Private, params: {batch: 10}}
"""


@pytest.fixture
def suite(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(SUITE)
    return str(path)


@pytest.fixture
def out(suite: str, tmp_path: Path, capfd: Any) -> str:
    folder = str(tmp_path / "out")
    assert cli.run(["run", suite, "--out", folder, "--workers", "1", "--quiet"]) == 0
    capfd.readouterr()
    return folder


class Call:
    """One command: exit status, output and errors."""

    def __init__(self, capfd: Any, *words: str) -> None:
        self.status = cli.run(list(words))
        self.out, self.err = capfd.readouterr()


@pytest.fixture
def dpb(capfd: Any) -> Any:
    return lambda *words: Call(capfd, *words)


COMMANDS = [
    "list", "show", "run", "leaderboard", "verify", "submit", "import", "remove", "cost",
    "cost-of-privacy", "tune", "reproduce", "bounds", "audit", "warm", "certify", "outside",
    "advise", "serve",
]  # fmt: skip
DATA_COMMANDS = ["list", "fetch", "path", "check"]


@pytest.mark.parametrize(
    "words", [[], ["data"], *[[c] for c in COMMANDS], *[["data", c] for c in DATA_COMMANDS]]
)
def test_every_command_has_help_with_an_example(words: list[str]) -> None:
    done = CliRunner().invoke(app, [*words, "--help"], prog_name="dpb")
    assert done.exit_code == 0
    assert f"Example: {' '.join(['dpb', *words])} " in done.output + " "


def test_the_commands_are_those_of_the_documentation(dpb: Any) -> None:
    assert [command.name for command in app.registered_commands] == COMMANDS
    assert [command.name for command in data.registered_commands] == DATA_COMMANDS
    text = dpb().out
    for command in [*COMMANDS, "data"]:
        assert f" {command} " in text
    assert dpb("--version").out == f"dpb-gym {dpb_gym.__version__}\n"


def test_a_pipe_is_as_wide_as_columns_says(dpb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for said, widest in (("90", 90), ("", 160)):
        monkeypatch.setenv("COLUMNS", said)
        lines = dpb("list", "agents").out.splitlines()
        assert widest - 20 < max(map(len, lines)) <= widest


def test_unknown_names_offer_close_ones_and_no_long_list(dpb: Any) -> None:
    message = dpb("show", "lin-ubc").err
    assert "did you mean 'lin-ucb'" in message and len(message) < 200
    assert "in all)" in dpb("show", "qqqqqq").err


def test_agents_have_summaries_and_parameters_of_their_own(dpb: Any) -> None:
    own = [s for s in agent_specs().values() if s.entry_point.startswith("dpb_agents.")]
    summaries = [spec.summary for spec in own]
    assert len(set(summaries)) == len(summaries)
    assert not any(re.search("[Ss]ee `", summary) for summary in summaries)
    shown = dpb("show", "adaprivate-ts").out
    assert "lambda, > 0." in shown and "RU, Eq. 2.8" in shown
    assert "See `" not in shown


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom dpb_gym.cli import run\nrun(['--help'])\n"
        "heavy = {'numba', 'duckdb', 'pyarrow', 'matplotlib', 'torch', 'dp_accounting', 'scipy',"
        " 'pandas', 'joblib', 'yaml', 'dpb_agents', 'dpb_gym.running', 'dpb_data',"
        " 'dpb_gym.privacy.certificate', 'msgspec'}\n"
        "found = sorted(heavy & set(sys.modules))\nprint(found, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("kind", "key", "expected"),
    [
        ("envs", "id", "DPB/Assortment-v0"),
        ("agents", "name", "lin-ts"),
        ("suites", "name", "smoke"),
        ("data", "name", "ml-latest-small"),
    ],
)
def test_listings_and_their_json(kind: str, key: str, expected: str, dpb: Any) -> None:
    table, listing = dpb("list", kind), dpb("list", kind, "--json")
    assert table.status == listing.status == 0
    names = [record[key] for record in json.loads(listing.out)]
    assert expected in names and expected in table.out
    for name in names:
        assert name in table.out


def test_a_check_as_json(dpb: Any) -> None:
    report = json.loads(dpb("data", "check", "synthetic-movielens", "--json").out)
    assert report["ok"] is True and report["counts"]["ratings"] == 12_000


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("DPB/Assortment-v0", ["n_items", "100", "context_norm", "obs_mode", "horizon"]),
        ("adaprivate-ts", ["recommendation", "required", "batch", "300"]),
        ("smoke", ["assortment", "Random", "skipped", "agents of other problems"]),
        ("synthetic-movielens", ["300 users"]),
        ("ml-latest-small", ["Redistribution".lower(), "ratings.csv"]),
    ],
)
def test_showing(name: str, words: list[str], dpb: Any) -> None:
    shown, as_json = dpb("show", name), dpb("show", name, "--json")
    assert shown.status == as_json.status == 0
    json.loads(as_json.out)
    for word in words:
        assert word in shown.out


# Other tests register agents when they are imported, which depends on the order of collection.
PRIVATE = [
    name
    for name, spec in agent_specs().items()
    if spec.budget != "never" and spec.entry_point.startswith("dpb_agents")
]


@pytest.mark.parametrize("name", PRIVATE)
def test_every_private_agent_shows_its_guarantee(name: str, dpb: Any) -> None:
    shown = dpb("show", name, "--budget", "eps=1,delta=1e-5", "--json")
    assert shown.status == 0, shown.err
    guarantees = {
        k[14:]: v for k, v in json.loads(shown.out).items() if k.startswith("guarantee for ")
    }
    assert guarantees
    for kind, line in guarantees.items():
        assert "(replace-one)" in line
        assert ("same items are sold out" in line) == (kind in ("assortment", "pricing"))
        given = re.search(r"eps=(\S+) (at delta=1e-05|per)", line)
        assert given is not None
        epsilon = float(given[1])
        if given[2] == "per":  # a pure epsilon, rounded up, of 1.0000137: this is (1, 1e-5)-DP
            pure = epsilon - 1e-5
            assert math.exp(pure) - math.exp(1.0) <= 1e-5 * (1.0 + math.exp(pure))
            epsilon = min(epsilon, 1.0)
        assert 0.0 < epsilon <= 1.0 and (
            "public: " in line or line.startswith(("local", "shuffle"))
        )


def test_environments_take_no_budget(dpb: Any) -> None:
    assert "is none" in dpb("show", "DPB/Pricing-v0", "--budget", "rho=1").err


def test_seeds_fit_into_results_and_next_steps_can_be_pasted(tmp_path: Path, dpb: Any) -> None:
    out = str(tmp_path / "my results")
    play = ("run", "--env", "DPB/Pricing-v0", "--agent", "random", "--horizon=9", "--workers=1")
    far = dpb(*play, "--seed", str(2**63), "--out", out)
    assert far.status == 2 and "seed: input should be less than" in far.err
    run = dpb(*play, "--replicates", "2", "--seed", str(10**17 - 1), "--out", out)
    assert run.status == 0 and f"Next: dpb leaderboard '{out}' --html" in run.out
    assert dpb("verify", out).status == 0


@pytest.mark.slow
def test_a_suite_from_run_to_verify(suite: str, tmp_path: Path, dpb: Any) -> None:
    out = str(tmp_path / "out")
    run = dpb("run", suite, "--out", out, "--workers", "1")
    assert run.status == 0 and "tiny-v0: 8 cells computed" in run.out
    assert "Regret [95%]" in run.out and "note:" not in run.err
    assert run.out.splitlines()[-1].startswith(f"Next: dpb leaderboard {out} --html")
    assert "8 were there already" in dpb("run", suite, "--out", out).out
    again = dpb("run", suite, "--out", out, "--json", "--html", str(tmp_path / "new/page.html"))
    assert f"note: creating the folder {tmp_path / 'new'}" in again.err
    done = json.loads(again.out)
    assert (done["cells"], done["computed"], done["failures"]) == (8, 0, [])
    assert {row["agent"] for row in done["rows"]} == {"Random", "LinTS", "Private"}
    page, plot = tmp_path / "page.html", tmp_path / "regret.svg"
    board = dpb("leaderboard", out, "--html", str(page), "--plot", str(plot))
    assert board.status == 0
    for word in ("LinTS", "Private", "non-private", str(page), str(plot)):
        assert word in board.out
    assert b"Private" in page.read_bytes() and plot.stat().st_size > 1000
    data = json.loads(dpb("leaderboard", out, "--json").out)
    regret = dpb_gym.Result.load(out).final_regret("LinTS").mean()
    (row,) = [r for t in data["tasks"] for r in t["rows"] if r["agent"] == "LinTS"]
    assert row["regret"]["mean"] == pytest.approx(regret)
    checked = dpb("verify", out, "--sample", "8")
    assert checked.status == 0 and "8 of 8 cells have the right digest" in checked.out
    assert "8 of 8 cells computed again are the same bit for bit" in checked.out
    assert json.loads(dpb("verify", out, "--json", "--sample", "1").out)["ok"] is True


def test_verify_fails_on_damage(out: str, dpb: Any) -> None:
    victim = next(Path(out).rglob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-10])
    checked = dpb("verify", out)
    assert checked.status == 1 and "damaged" in checked.out and victim.name in checked.out
    board = dpb("leaderboard", out, "--html", "new/page.html")
    assert board.status == 2 and "running the suite again" in board.err
    assert "creating" not in board.err


def test_the_board_may_be_restricted_to_tasks(out: str, tmp_path: Path, dpb: Any) -> None:
    every, page = dpb("leaderboard", out).out, tmp_path / "page.html"
    one = dpb("leaderboard", out, "--tasks", "items", "--html", str(page))
    assert one.status == 0 and "\nitems " in one.out and "\nprices " not in one.out
    assert "\nprices " in every
    assert b"prices" not in page.read_bytes()
    wrong = dpb("leaderboard", out, "--tasks", "itms")
    assert wrong.status == 2 and "did you mean 'items'?" in wrong.err
    assert "name at least one task" in dpb("leaderboard", out, "--tasks", "").err


def test_a_suite_may_be_restricted(suite: str, tmp_path: Path, dpb: Any) -> None:
    out = str(tmp_path / "out")
    run = dpb("run", suite, "--out", out, "--agents", "LinTS, lin-ucb", "--tasks", "items",
              "--replicates", "1", "--workers", "1")  # fmt: skip
    assert run.status == 0 and "2 cells computed" in run.out
    assert dpb_gym.Result.load(out).labels == ["LinTS", "lin-ucb"]


def test_ad_hoc_runs(tmp_path: Path, dpb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "--env", "DPB/Recommendation-v0", "--agent", "lin-ts", "--agent",
             "adaprivate-ts", "--budget", "eps=1", "--horizon", "40",
             "--replicates", "3", "--seed", "7", "--set", "dim=3", "--set", "n_arms=12",
             "--set", "adaprivate-ts.batch=10", "--workers", "1", "--quiet"]  # fmt: skip
    run = dpb(*words)
    assert run.status == 0 and "2 cells computed" in run.out
    (out,) = (tmp_path / "results").iterdir()
    assert out.name.startswith("recommendation-")
    same = dpb_gym.evaluate(
        "DPB/Recommendation-v0",
        {"lin-ts": "lin-ts",
         "adaprivate-ts": ("adaprivate-ts", dpb_gym.Budget.approx(1, 1e-5), {"batch": 10})},
        horizon=40, replicates=3, seed=7, env_kwargs={"dim": 3, "n_arms": 12},
    )  # fmt: skip
    assert dpb_gym.Result.load(out).records() == same.records()


def test_failures_are_named_and_exit_with_1(
    suite: str, tmp_path: Path, dpb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls: Any = dpb_gym.agent_spec("lin-ts").maker
    play = Player.play

    def broken(self: Any, rounds: Any) -> Any:
        if isinstance(self.algorithm, cls):
            raise RuntimeError("boom")
        return play(self, rounds)

    monkeypatch.setattr(Player, "play", broken)
    run = dpb("run", suite, "--out", str(tmp_path / "out"), "--workers", "1", "--quiet")
    assert run.status == 1
    assert "items: agent 'LinTS' failed in round 1 (play)" in run.err and "boom" in run.err
    assert "Traceback" not in run.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lst"], "No such command"),
        (["list"], "Missing argument"),
        (["list", "agent"], "did you mean 'agents'"),
        (["show", "lin-tss"], "did you mean 'lin-ts'"),
        (["show", "DPB/Pricng-v0"], "did you mean 'DPB/Pricing-v0'"),
        (["run"], "give either a suite"),
        (["run", "smok"], "did you mean 'smoke'"),
        (["run", "none.yaml"], "cannot read the suite"),
        (["run", "smoke", "--env", "DPB/Pricing-v0"], "give either a suite"),
        (["run", "smoke", "--budget", "rho=1"], "--budget belongs to a run with --env"),
        (["run", "smoke", "--set", "a=1"], "--set belongs to a run with --env"),
        (["run", "smoke", "--agents", "lin-tss"], "did you mean 'lin-ts'"),
        (["run", "smoke", "--tasks", "pricng"], "did you mean 'pricing'"),
        (["run", "smoke", "--replicates", "0"], "replicates must be an integer"),
        (["run", "smoke", "--replicates", "x"], "Invalid value for '--replicates'"),
        (["run", "smoke", "--workers", "0"], "workers must be an integer"),
        (["run", "smoke", "--backend", "ray"], "backend must be one of 'loky', 'dask'"),
        (["run", "smoke", "--backend", "dask"], "scheduler"),
        (["run", "smoke", "--foo"], "No such option"),
        (["run", "--env", "DPB/Pricing-v0"], "at least one --agent"),
        (["run", "--env", "DPB/Pricng-v0", "--agent", "random"], "did you mean"),
        (["run", "--env", "DPB/Pricing-v0", "--agent", "lin-ts"], "not pricing"),
        (
            ["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--budget", "rho=1"],
            "takes a budget",
        ),
        (["run", "--env", "DPB/Pricing-v0", "--rho", "1"], "does not exist, use --budget rho=1"),
        (["audit", "adaprivate-ts", "--epsilon=2"], "--budget eps=2,delta=1e-5"),
        (["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--horizon", "1"], "horizon"),
        (["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--set", "dim"], "KEY=VALUE"),
        (["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--set", "dim=["], "not a value"),
        (["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--set", "dims=3"], "'dims'"),
        (["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--set", "dim=.nan"], "dim"),
        (["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--set", "x.a=1"], "'x' is not"),
        (["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--set", "random.a=1"], "'a'"),
        (["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--agent", "random"], "twice"),
        (
            ["run", "--env", "DPB/Assortment-v0", "--agent", "random", "--set", "n_items=3",
             "--set", "capacity=4"],
            "capacity must be an integer in 1..3",
        ),
        (["run", "--env", "DPB/Recommendation-v0", "--agent", "adaprivate-ts"], "needs a budget"),
        (
            ["tune", "adaprivate-ts", "--env", "DPB/Recommendation-v0", "--budget", "rho"],
            "a budget is 'rho=0.5'",
        ),
        (
            ["run", "--env", "DPB/Pricing-v0", "--agent", "private-pricing", "--budget=rho=-1"],
            "rho",
        ),
        (["leaderboard", "nowhere"], "no such result directory"),
        (["verify", "nowhere"], "no such result directory"),
        (["data", "path", "ml-latest-smal"], "did you mean 'ml-latest-small'"),
        (["data", "check", "no/such/file.csv"], "no such file"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exits_with_2(
    words: list[str], message: str, dpb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = dpb(*words)
    assert done.status == 2, done.err
    assert done.err.startswith("dpb: error: ") and done.err.count("\n") == 1, done.err
    assert message in done.err
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(dpb: Any) -> None:
    assert "Traceback" in dpb("--debug", "show", "x").err
    assert "Traceback" in dpb("show", "x", "--debug").err
    assert "Traceback" not in dpb("show", "x").err


def test_results_of_another_suite_are_refused(out: str, dpb: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(SUITE.replace("horizon: 30", "horizon: 31"))
    done = dpb("run", str(other), "--out", out)
    assert done.status == 2 and "holds results of suite 'tiny-v0'" in done.err


def test_damage_is_a_warning_of_one_line(suite: str, out: str, dpb: Any) -> None:
    (Path(out) / "result.parquet").write_bytes(b"x")
    done = dpb("run", suite, "--out", out, "--workers", "1", "--quiet")
    assert done.status == 0 and "8 cells computed" in done.out
    assert done.err.startswith("dpb: warning: ") and done.err.count("\n") == 1


def test_unexpected_errors_have_no_traceback(dpb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpb_gym.cli import list_commands

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("bug")

    monkeypatch.setitem(list_commands.KINDS, "envs", broken)
    done = dpb("list", "envs")
    assert done.status == 1
    assert done.err == "dpb: error: unexpected ZeroDivisionError: bug (--debug shows where)\n"


def test_interruption_exits_with_130(dpb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpb_gym.cli import list_commands

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(list_commands.KINDS, "envs", interrupted)
    done = dpb("list", "envs")
    assert (done.status, done.err) == (130, "dpb: interrupted\n")


@pytest.mark.slow
def test_progress_goes_to_a_log_when_there_is_no_terminal(
    tmp_path: Path, dpb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym.running import progress, runner

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(progress, "ASKED_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.02)
    words = ["run", "--env", "DPB/Recommendation-v0", "--agent", "oful", "--horizon", "40000",
             "--replicates", "4", "--workers", "1"]  # fmt: skip
    lines = dpb(*words).err.splitlines()
    assert any("rounds/s" in line and "left" in line for line in lines)
    assert dpb(*words, "--out", str(tmp_path / "q"), "--quiet").err == ""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_is_bars_on_a_terminal(suite: str, tmp_path: Path) -> None:
    import pty

    slow = Path(suite).with_name("slow.yaml")
    slow.write_text(SUITE.replace("horizon: 30", "horizon: 2000"))
    reader, writer = pty.openpty()
    program = (
        "from dpb_gym.cli import main; from dpb_gym.running import progress; "
        "progress.ASKED_SECONDS = 0; progress.POLL_SECONDS = 0.02; main()"
    )
    words = ["run", str(slow), "--out", str(tmp_path / "out"), "--workers", "1"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stderr=writer, stdout=subprocess.PIPE
    ) as process:
        os.close(writer)
        shown = bytearray()
        with contextlib.suppress(OSError):  # the terminal closes with its last writer
            while chunk := os.read(reader, 65536):
                shown += chunk
        output = process.stdout.read() if process.stdout else b""
    os.close(reader)
    assert process.returncode == 0
    assert b"8 cells computed" in output
    text = shown.decode(errors="replace")
    assert "all jobs" in text and "rounds/s" in text and "%" in text
    assert "Traceback" not in text


def test_a_closed_pipe_is_quiet() -> None:
    program = "from dpb_gym.cli import main; main()"
    command = f'"{sys.executable}" -c "{program}" list agents --json | head -n 1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "[\n" and done.stderr == ""


def test_the_console_script_runs(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("dpb")
    if not program.exists():
        pytest.skip(f"the console script is not installed beside {sys.executable}")
    done = subprocess.run([program, "run", "smok"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "did you mean 'smoke'" in done.stderr
    done = subprocess.run([program, "list", "envs", "--json"], capture_output=True, check=True)
    assert len(json.loads(done.stdout)) >= 5


WORDS = st.sampled_from(
    ["list", "show", "leaderboard", "verify", "data", "path", "check", "run", "envs", "smoke",
     "--json", "--sample", "--env", "DPB/Pricing-v0", "--agent", "--budget", "--set", "a=b", "-1",
     "nan", "", "\x00", "--", "--seed", "--horizon", "--agents", "nobody", "--help"]
)  # fmt: skip


@pytest.mark.slow
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(words=st.lists(st.one_of(WORDS, st.text(max_size=6)), max_size=6))
def test_no_arguments_give_a_traceback(
    words: list[str], tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    from dpb_gym.running import execution as run

    # Whatever is valid need not be run.
    monkeypatch.setattr(run, "run_plan", _no_run)
    status = cli.run(words)
    _, err = capfd.readouterr()
    assert status in (0, 1, 2)
    assert "Traceback" not in err and "error: unexpected" not in err, err
    if status == 2 and "--debug" not in words:
        assert err.startswith("dpb: error: ")


def _no_run(*_: Any, **__: Any) -> Any:
    raise dpb_gym.errors.ParameterError("not run")  # type: ignore[attr-defined]


def test_a_narrow_list_of_agents_breaks_no_word(dpb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = set(dpb("list", "agents").out.split())
    monkeypatch.setenv("COLUMNS", "60")
    text = dpb("list", "agents").out
    assert max(map(len, text.splitlines())) <= 60
    known = words | {"problems:", "budget:", "summary:"}
    assert {w for w in text.split() if not {w, w.rstrip(";")} & known} == set()
