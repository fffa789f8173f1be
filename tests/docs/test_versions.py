"""Versions of the documentation on the branch of the site."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def versions(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_ext")
    yield importlib.import_module("versions")
    sys.modules.pop("versions")


def identity():
    """Return the author and committer that the release workflow gives to git, which has none."""
    workflow = yaml.safe_load((DOCS.parent / ".github/workflows/release.yml").read_text())
    (step,) = [s for s in workflow["jobs"]["site"]["steps"] if "versions.py" in s.get("run", "")]
    return step["env"]


def show(repository, path):
    command = ["git", "show", f"site:{path}"]
    return subprocess.run(
        command, cwd=repository, capture_output=True, text=True, check=True
    ).stdout


def test_a_release_keeps_older_versions_and_leaves_the_checkout(versions, tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name, value in identity().items():
        monkeypatch.setenv(name, value)
    subprocess.run(["git", "init", "-q", "-b", "main"], check=True)
    for version, text in (("0.9.0", "old"), ("0.10.0", "new")):
        built = tmp_path / version
        (built / "pages").mkdir(parents=True)
        (built / "pages" / "index.html").write_text(text)
        if version == "0.9.0":
            (built / "dropped.html").write_text("only in the old version")
        releases = versions.commit(built, "site", version)
    assert releases == ["0.10.0", "0.9.0"] == json.loads(show(repository, "versions.json"))
    assert (
        show(repository, "pages/index.html") == show(repository, "0.10.0/pages/index.html") == "new"
    )
    assert show(repository, "0.9.0/pages/index.html") == "old"
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "site"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "dropped.html" not in listed and "0.9.0/dropped.html" in listed
    status = ["git", "status", "--porcelain"]
    assert subprocess.run(status, capture_output=True, text=True, check=True).stdout == ""
    assert list(repository.iterdir()) == [repository / ".git"]
