"""Scripts of `benchmarks` print their arguments for ``--help`` instead of running."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = [
    path
    for path in sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
    if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_explains_its_arguments_and_does_not_run(
    script: Path, tmp_path: Path, forks: Any
) -> None:
    done = forks.run(script, "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    usage = done.stdout.partition("\n")[0]
    assert usage.startswith("usage: ") and script.name in usage, done.stdout[:500]
    title = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split("\n")[0]
    assert "".join(title.split()) in "".join(done.stdout.split())
    assert not list(tmp_path.iterdir())
