"""The examples run, and are as short as promised."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {"train_sb3.py": "stable_baselines3"}


@pytest.mark.parametrize("script", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_example_runs(script, tmp_path):
    if script in NEEDS:
        pytest.importorskip(NEEDS[script], reason=f"{script} needs {NEEDS[script]}")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()


def lines_of(script, name):
    source = (EXAMPLES / script).read_text()
    node = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return [line for line in source.splitlines()[first - 1 : node.end_lineno] if line.strip()]


def test_a_new_agent_takes_at_most_15_lines():
    assert len(lines_of("new_agent.py", "EpsilonGreedy")) <= 15


def test_a_new_environment_takes_at_most_60_lines():
    assert len((EXAMPLES / "new_environment.py").read_text().splitlines()) <= 60
