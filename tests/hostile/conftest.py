"""A small leaderboard and a submission to it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from dpb_gym.exchange.archive import submit
from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.suite import parse_suite

sys.path.insert(0, str(Path(__file__).parent))

from hostile_lists import SUITE


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    suite = parse_suite(SUITE, "hostile")
    folder = tmp_path_factory.mktemp("hostile") / "all"
    run_plan(suite, plan_suite(suite), folder, workers=1)
    return folder


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    suite = parse_suite(SUITE, "hostile")
    folder = tmp_path_factory.mktemp("hostile") / "ours"
    run_plan(suite, plan_suite(suite, ["random"]), folder, workers=1)
    return folder


@pytest.fixture(scope="session")
def archive(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "private.zip"
    submit(finished, "private-pricing", path)
    return path


@pytest.fixture
def copy(tmp_path: Path) -> Any:
    """Return a function that copies a result directory."""

    def make(folder: Path) -> Path:
        target = tmp_path / "board"
        if target.is_symlink():
            target.unlink()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
        return target

    return make
