"""``examples/train_sb3.py`` runs and prints the documented output."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.sb3
pytest.importorskip("stable_baselines3", reason="needs the [sb3] extra")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_sb3.py"


def test_train_sb3(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE))["main"](["--timesteps", "4096"])
    printed = capsys.readouterr().out
    rows = re.findall(r"^(.+?) +mean regret per round (\S+) \+- (\S+)$", printed, re.MULTILINE)
    regret = {name: float(mean) for name, mean, _ in rows}
    error = {name: float(half) for name, _, half in rows}
    assert list(regret) == ["random", "PPO, untrained", "PPO, trained"]
    gap = regret["PPO, untrained"] - regret["PPO, trained"]
    assert gap > 2 * (error["PPO, untrained"] + error["PPO, trained"])
    assert regret["random"] - regret["PPO, trained"] > 2 * error["random"]
