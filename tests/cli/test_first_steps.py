"""What a new user types first: help, version, completion, Ctrl-C, mistakes in file names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dpb_gym
from dpb_gym import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture
def call(capfd: Any) -> Any:
    def called(*words: str) -> tuple[int, str, str]:
        status = cli.run(list(words))
        return status, *capfd.readouterr()

    return called


@pytest.fixture
def completed(call: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the status and the words that Bash offers after a line."""

    def words_after(line: str) -> tuple[int, list[str]]:
        monkeypatch.setenv("_DPB_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - (not line.endswith(" "))))
        status, out, _ = call()
        return status, out.split()

    return words_after


def test_the_version_has_a_short_option(call: Any) -> None:
    assert call("-V") == call("--version") == (0, f"dpb-gym {dpb_gym.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["help"], ["--help"]),
        (["help", "run"], ["run", "--help"]),
        (["help", "data", "fetch"], ["data", "fetch", "--help"]),
    ],
)
def test_help_is_a_command(words: list[str], same: list[str], call: Any) -> None:
    shown = call(*words)
    assert shown == call(*same) and shown[0] == 0 and "Example: dpb" in shown[1]


def test_help_on_an_unknown_command_is_an_error(call: Any) -> None:
    status, out, err = call("help", "lst")
    assert (status, out) == (2, "") and "No such command 'lst'" in err


@pytest.fixture
def results(tmp_path: Path, capfd: Any) -> str:
    folder = str(tmp_path / "board")
    words = ["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--horizon", "20", "--quiet"]
    assert cli.run([*words, "--replicates", "2", "--workers", "1", "--out", folder]) == 0
    capfd.readouterr()
    return folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dpb list ", {"envs", "agents", "suites", "data"}),
        ("dpb audit lin-", {"lin-greedy", "lin-ts", "lin-ucb"}),
        ("dpb tune lin-t", {"lin-ts"}),
        ("dpb tune lin-ucb --env DPB/Pricing-", {"DPB/Pricing-v0"}),
        ("dpb warm lin-t", {"lin-ts"}),
        ("dpb audit lin-ucb --env DPB/Pricing-", {"DPB/Pricing-v0"}),
        ("dpb run smoke --agents lin-t", {"lin-ts"}),
        ("dpb run smoke --agents lin-ts,random,lin-u", {"lin-ts,random,lin-ucb"}),
        ("dpb run smoke --tasks pri", {"pricing"}),
        ("dpb run smoke --tasks pricing,rec", {"pricing,recommendation"}),
        ("dpb run smoke --tasks pricing,", {"pricing,assortment", "pricing,recommendation"}),
        ("dpb run none.yaml --tasks p", set()),
        ("dpb data fetch ml-1", {"ml-1m", "ml-10m", "ml-100k"}),
        ("dpb data path ml-latest-s", {"ml-latest-small"}),
        ("dpb data check ml-latest-s", {"ml-latest-small"}),
        ("dpb reproduce private-p", {"private-pricing"}),
        ("dpb reproduce private-assortment/fig4", {"private-assortment/fig4"}),
        ("dpb bounds private-p", {"private-pricing"}),
        ("dpb outside sp", {"sparse"}),
    ],
)
def test_names_are_completed(words: str, expected: set[str], completed: Any) -> None:
    status, offered = completed(words)
    assert status == 0 and expected <= set(offered)
    last = words.split(" ")[-1]
    assert all(each.startswith(last) for each in offered)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dpb sh", {"show"}),
        ("dpb show lin-", {"lin-greedy", "lin-ts", "lin-ucb"}),
        ("dpb run smo", {"smoke"}),
        ("dpb run --env DPB/Pricing-", {"DPB/Pricing-v0"}),
    ],
)
def test_no_other_names_are_offered(words: str, expected: set[str], completed: Any) -> None:
    status, offered = completed(words)
    assert status == 0 and set(offered) == expected


def test_tasks_of_a_result_directory_are_completed(results: str, completed: Any) -> None:
    assert completed(f"dpb leaderboard {results} --tasks p") == (0, ["pricing"])


@pytest.mark.parametrize("command", ["leaderboard", "cost", "cost-of-privacy", "advise"])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--plot", "x.jpg"), "must end in .png, .pdf, .svg, got 'x.jpg'"),
        (("--plot", "folder"), "must end in"),
        (("--plot", "folder.png"), "folder 'folder"),
        (("--html", "folder"), "folder 'folder"),
    ],
)
def test_output_files_are_checked_before_any_work(
    command: str, option: tuple[str, str], message: str, call: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "folder.png"):
        Path(name).mkdir()
    takes = cli_options(command)
    if option[0] not in takes:
        pytest.skip(f"{command} has no {option[0]}")
    # The source does not exist: a message about the output shows what was checked first.
    status, out, err = call(command, "no-such-source", *option)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1, err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "folder.png"]


def cli_options(command: str) -> set[str]:
    """Return the options of a command."""
    from typer.main import get_command

    from dpb_gym.cli.app import app

    group: Any = get_command(app)
    return {option for each in group.commands[command].params for option in each.opts}


@pytest.mark.parametrize("words", [("run", "smoke"), ("certify", "nowhere")])
def test_other_pages_are_checked_before_any_work(
    words: tuple[str, ...], call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    status, out, err = call(*words, "--html", "folder")
    assert (status, out) == (2, "") and "folder 'folder'" in err
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


INTERRUPTING = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


@pytest.mark.process
@pytest.mark.parametrize("module", ["numpy", "gymnasium", "typer", "dpb_gym_missing"])
@pytest.mark.parametrize("program", ["script", "module"])
def test_interruptions_while_starting_show_no_traceback(
    module: str, program: str, tmp_path: Path
) -> None:
    """A module that the program imports sends the signal; the last one is never imported."""
    (tmp_path / f"{module}.py").write_text(INTERRUPTING)
    script = tmp_path / "dpb"
    script.write_text("from dpb_gym.cli import main\nmain()\n")
    command = [str(script)] if program == "script" else ["-m", "dpb_gym"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *command, "--version"],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    if module == "dpb_gym_missing":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert (done.returncode, done.stderr) == (cli.INTERRUPTED, "dpb: interrupted\n")


@pytest.mark.process
def test_importing_the_package_elsewhere_leaves_interruptions_alone(tmp_path: Path) -> None:
    (tmp_path / "gymnasium.py").write_text(INTERRUPTING)
    program = "try:\n    import dpb_gym\nexcept KeyboardInterrupt:\n    print('raised')"
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("raised\n", 0)


@pytest.mark.parametrize("command", [("data", "fetch"), ("data", "path"), ("show",)])
def test_a_publisher_without_a_set_names_the_sets_and_their_terms(
    command: tuple[str, ...], call: Any
) -> None:
    status, out, err = call(*command, "movielens")
    assert (status, out) == (2, "")
    assert "dpb data fetch ml-latest-small" in err and "Research use only" in err
    assert "ml-1m" in err and err.count("\n") == 1


def test_fetching_tells_the_terms_first(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import dpb_data

    fetched = []
    monkeypatch.setattr(dpb_data, "fetch", lambda name: fetched.append(name) or "folder")
    status, out, err = call("data", "fetch", "ml-100k")
    assert (status, out, fetched) == (0, "folder\n", ["ml-100k"])
    assert err.startswith("dpb: note: terms of ml-100k: Research use only") and "grouplens" in err
