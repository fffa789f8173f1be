"""The commands of the submission workflow work in a repository with a pull request."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dpb_gym import cli

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/submission.yml").read_text())
STEPS = {step.get("name"): step for step in WORKFLOW["jobs"]["verify"]["steps"]}
(CHECK,) = (step["run"] for name, step in STEPS.items() if name and name.startswith("Import"))
SUITE = """
name: tiny-v0
replicates: 2
block: 2
tasks:
  - {name: prices, env: DPB/Pricing-v0, horizon: 30}
"""


def git(*words, cwd):
    options = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *options, *words], cwd=cwd, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path, capsys):
    """Return a clone whose branch adds an archive to those of the main branch."""
    clone = tmp_path / "clone"
    (clone / "submissions").mkdir(parents=True)
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE)
    for agent, out in (
        ("random", clone / "docs/leaderboard/dpb-bench-v1"), ("ts-pricing", tmp_path / "mine"),
    ):  # fmt: skip
        words = ["run", str(suite), "--agents", agent, "--out", str(out), "--workers", "1"]
        assert cli.run([*words, "--quiet"]) == 0
    git("init", "-q", "-b", "main", cwd=clone)
    (clone / "submissions/old.zip").write_bytes(b"damaged, but it was there before")
    git("add", "-A", cwd=clone)
    git("commit", "-qm", "main", cwd=clone)
    git("update-ref", "refs/remotes/origin/main", "HEAD", cwd=clone)
    archive = clone / "submissions/ts.zip"
    words = ["submit", str(tmp_path / "mine"), "--agent", "ts-pricing", "--out", str(archive)]
    assert cli.run(words) == 0
    capsys.readouterr()
    return clone


def run(clone):
    git("add", "-A", cwd=clone)
    git("commit", "-qm", "results", cwd=clone)
    program = clone.parent / "bin/dpb"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c '
                       '"from dpb_gym.cli import main; main()" "$@"\n')  # fmt: skip
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GITHUB_BASE_REF": "main"}
    # The runner ends a step at the first command that fails.
    command = ["bash", "-eo", "pipefail", "-c", CHECK]
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)


def test_new_archives_are_imported_and_verified(clone):
    done = run(clone)
    assert done.returncode == 0, done.stderr
    assert "cells of ts-pricing added" in done.stdout and "rows confirmed" in done.stdout
    page = (clone / "board.html").read_text()
    assert "ts-pricing" in page and "random" in page


def test_altered_numbers_fail_the_workflow(clone):
    archive = clone / "submissions/ts.zip"
    with ZipFile(archive) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    table = pq.read_table(io.BytesIO(members["result.parquet"]))
    at = table.column_names.index("regret")
    halved = pa.array([[0.5 * v for v in row] for row in table["regret"].to_pylist()])
    better = table.set_column(at, table.field(at), halved.cast(table.field(at).type))
    pq.write_table(better, sink := io.BytesIO())
    members["result.parquet"] = sink.getvalue()
    with ZipFile(archive, "w") as packed:
        for name, data in members.items():
            packed.writestr(name, data)
    done = run(clone)
    assert done.returncode != 0 and "ts.zip: result.parquet" in done.stderr
    assert not (clone / "board.html").exists()


def test_the_workflow_has_no_secrets_and_reads_only():
    assert WORKFLOW["permissions"] == {"contents": "read"} and "secrets" not in str(WORKFLOW)
    assert list(WORKFLOW[True]) == ["pull_request"]  # not pull_request_target
