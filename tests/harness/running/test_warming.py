"""`dpb warm` compiles all kernels that an agent needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PROGRAM = """
import dpb_gym
from dpb_gym.cli import run
from dpb_gym.kernel_cache import spent

run(["warm", "one-pass-pricing", "--workers", "1", "--quiet"])
before = spent.wall
run(["warm", "one-pass-pricing", "--workers", "1", "--quiet"])
for agent, replicates in (("one-pass-pricing", 1), (("one-pass-pricing", "rho=1"), 3)):
    dpb_gym.evaluate("DPB/Pricing-v0", [agent], 700, replicates, env_kwargs={"dim": 6})
print(spent.wall - before)
"""


def test_nothing_is_compiled_or_loaded_after_warming(forks: Any, tmp_path: Path) -> None:
    done = forks.run(PROGRAM, cwd=tmp_path)
    *_, said, seconds = done.stdout.splitlines()
    assert said == "nothing to do: all kernels are compiled" and seconds == "0.0", done.stderr
