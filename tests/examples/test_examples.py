"""The examples run, and are as short as the documentation says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {
    "train_sb3.py": "stable_baselines3",
    "split_session.py": "opendp",
}
SMALL = {
    "audit_your_agent.py": ["--runs", "300"],
    "gallery.py": ["--horizon", "200", "--replicates", "3"],
    "local_privacy.py": ["--horizon", "500", "--replicates", "2"],
    "private_vs_nonprivate.py": ["--horizon", "500", "--replicates", "3"],
    "split_session.py": ["60"],
    "train_sb3.py": ["--timesteps", "512"],  # tests/sb3 checks its output
}


@pytest.mark.parametrize("script", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_example_runs(script, tmp_path, forks):
    if script in NEEDS:
        pytest.importorskip(NEEDS[script], reason=f"{script} needs {NEEDS[script]}")
    done = forks.run(EXAMPLES / script, *SMALL.get(script, []), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
    if check := CHECKS.get(script):
        check(done.stdout, tmp_path)


def check_verdicts(out, folder):
    honest, careless, peeking = (part.split("\n")[1] for part in out.split("--- ")[1:])
    assert honest.endswith(": PASS") and "noise: FAIL" in out
    assert careless.endswith(": FAIL") and peeking.endswith(": READS RAW DATA")


def check_cost_of_privacy(out, folder):
    assert (folder / "private_vs_nonprivate.png").read_bytes().startswith(b"\x89PNG")
    assert sum("the cost of privacy" in line for line in out.splitlines()) == 4


def check_the_agent_gets_no_regret(out, folder):
    assert "local DP eps=2 per reward" in out
    line = next(line for line in out.splitlines() if line.startswith("the agent gets"))
    assert "regret" not in line.split("only the harness has")[0]


def check_gallery(out, folder):
    for name in ("curves", "frontier", "paired"):
        assert (folder / "gallery" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert r"\begin{tabular}" in out


def check_report_and_picture(out, folder):
    assert "you lose" in out and "its customers are not protected" in out
    assert any(p.read_bytes().startswith(b"\x89PNG") for p in folder.glob("*.png"))


def check_all_three_processes_work(out, folder):
    assert "server: shuffle zCDP rho=" in out and "not protected from the operator" in out
    assert int(re.search(r"server: received (\d+) batches", out)[1]) > 1
    assert "customers: 0." in out


CHECKS = {
    "split_session.py": check_all_three_processes_work,
    "my_assortment.py": check_report_and_picture,
    "my_prices.py": check_report_and_picture,
    "my_ratings.py": check_report_and_picture,
    "gallery.py": check_gallery,
    "audit_your_agent.py": check_verdicts,
    "local_privacy.py": check_the_agent_gets_no_regret,
    "private_vs_nonprivate.py": check_cost_of_privacy,
}


def lines_of(script, name):
    source = (EXAMPLES / script).read_text()
    node = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return [line for line in source.splitlines()[first - 1 : node.end_lineno] if line.strip()]


def test_a_new_agent_takes_at_most_15_lines():
    assert len(lines_of("new_agent.py", "EpsilonGreedy")) <= 15


@pytest.mark.parametrize("script", ["my_prices.py", "my_assortment.py", "my_ratings.py"])
def test_from_raw_file_to_picture_in_at_most_8_lines_of_code(script):
    lines = (EXAMPLES / script).read_text().splitlines()
    assert lines[0].startswith('"""') and lines[0].endswith('"""')
    assert sum(bool(line.strip()) for line in lines[1:]) <= 8


def test_a_new_environment_takes_at_most_60_lines():
    assert len((EXAMPLES / "new_environment.py").read_text().splitlines()) <= 60
