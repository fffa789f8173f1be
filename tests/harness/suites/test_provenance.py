"""Provenance: the command that is stored with a result."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from dpb_gym import validation
from dpb_gym.cli import run
from dpb_gym.suites import provenance

WORDS = [
    b"results/plain",
    b"two words",
    b"it's",
    b"ma\xdf",  # Latin-1, no UTF-8
    "Münster".encode(),
    b"bell\x07 and back\\slash",
    "right\u202eleft".encode(),
    b"",
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash reads the command here")
def test_a_shell_reads_the_command_as_it_was_typed(monkeypatch):
    words = [os.fsdecode(word) for word in WORDS]
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/python", "/usr/bin/dpb", "run", *words])
    command = provenance.command_line()
    validation.text("command", command)
    command.encode()
    assert command.startswith("dpb run results/plain 'two words'")
    shown = f"printf '%s\\0' {command.removeprefix('dpb run ')}"
    read = subprocess.run(["bash", "-c", shown], capture_output=True, check=True).stdout
    assert read.split(b"\0")[:-1] == WORDS


def test_results_in_a_folder_whose_name_is_no_text(tmp_path, monkeypatch, capsys):
    folder = os.fsdecode(bytes(tmp_path) + b"/ma\xdf")
    play = ["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--horizon", "50"]
    words = [*play, "--replicates", "2", "--workers", "1", "--quiet", "--out", folder]
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/python", "/usr/bin/dpb", *words])
    assert run(words) == 0
    assert run(["leaderboard", folder]) == 0
    os.rename(folder, tmp_path / "plain")
    assert run(["leaderboard", str(tmp_path / "plain")]) == 0
    shown = capsys.readouterr().out
    shown.encode()
    assert "ma\\xdf" in shown


def test_a_stored_command_has_no_folder_of_the_machine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = ["run", "smoke", "--out", str(tmp_path / "results" / "x"), "--html=/home/me/a b/p.html"]
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/python", "/usr/bin/dpb", *words])
    assert provenance.command_line() == "dpb run smoke --out results/x --html=p.html"
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/python", "/home/me/study.py", "/data/in"])
    assert provenance.command_line() == "python study.py in"


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (
            "dpb run dpb-bench-v1 --out /tmp/w/res/arena --workers 2",
            "dpb run dpb-bench-v1 --out results/dpb-bench-v1",
        ),
        (
            "dpb run dpb-bench-v1 --workers=2 --quiet --backend dask --scheduler tcp://10.0.0.1:1 "
            "--tasks pricing-easy --html '/home/me/a b.html' --log tensorboard=/home/me/tb",
            "dpb run dpb-bench-v1 --tasks pricing-easy",
        ),
        (
            "dpb run '/home/me/my suites/own.yaml' --out $'/tmp/ma\\xdf'",
            "dpb run own.yaml --out results/dpb-bench-v1",
        ),
        (
            "dpb run --env DPB/Pricing-v0 --agent random",
            "dpb run --env DPB/Pricing-v0 --agent random",
        ),
        ("python /home/me/study.py --in=/data/x", "python study.py --in=x"),
        ("", ""),
    ],
)
def test_a_shown_command_is_one_that_a_reader_can_type(stored, shown):
    assert provenance.shown_command(stored, "dpb-bench-v1") == shown
