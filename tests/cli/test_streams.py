"""The C locale, closed streams, and letters that a locale cannot write."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dpb_gym import cli

pytestmark = pytest.mark.process
DPB = f"{sys.executable} -c 'from dpb_gym.cli import main; main()'"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("r\u00e4ume")
    out = folder / "ergebni\u00df"
    words = ["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--agent", "fixed-price"]
    assert (
        cli.run([*words, "--horizon", "50", "--replicates", "3", "--quiet", "--out", str(out)]) == 0
    )
    return out


@pytest.mark.parametrize(
    ("streams", "shown"),
    [("", True), (">&-", False), ("2>&-", True), (">&- 2>&- <&-", False)],
    ids=["c-locale", "no-stdout", "no-stderr", "none"],
)
def test_a_leaderboard_is_written_with_any_standard_streams(result, streams, shown):
    page = result.with_name("page.html")
    page.unlink(missing_ok=True)
    done = subprocess.run(
        f'{DPB} leaderboard "$RESULT" --html "$PAGE" {streams}',
        shell=True,
        env={
            **os.environ,
            "LC_ALL": "C",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONIOENCODING": "ascii",
            "RESULT": str(result),
            "PAGE": str(page),
        },
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert (b"Regret" in done.stdout) == shown and b"Traceback" not in done.stderr
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_full_disk_is_one_line_on_the_standard_error(result):
    done = subprocess.run(
        f'{DPB} leaderboard "$RESULT" > /dev/full',
        shell=True,
        env={**os.environ, "RESULT": str(result), "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "No space left" in done.stderr
    assert "Traceback" not in done.stderr
