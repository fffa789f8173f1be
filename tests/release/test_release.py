"""What a release publishes: the packaged README, one version everywhere, pinned actions."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import dpb_gym

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def test_the_packaged_readme_has_no_relative_address(scripts):
    hooks = importlib.import_module("hatch_build")
    text = hooks.absolute((ROOT / "README.md").read_text(), URLS)
    matches = re.findall(r'\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"', text)
    targets = [a or b for a, b in matches]
    assert len(targets) > 30
    assert [t for t in targets if not t.startswith(("https://", "#"))] == []
    site = URLS["Documentation"]
    assert f"{site}_static/frontier.png" in targets and f"{site}where-ours-loses.html" in targets
    assert f"{URLS['Source']}/blob/main/CONTRIBUTING.md" in targets
    # Every address on the site is a page or picture of the documentation.
    for target in (t.removeprefix(site) for t in targets if t.startswith(site)):
        page = target.partition("#")[0].replace(".html", ".md")
        assert (ROOT / "docs" / page).exists(), target


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path):
    uses = re.findall(r"uses: (\S+)", path.read_text())
    assert uses and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in uses)


def test_the_release_publishes_without_a_stored_token():
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"} and "secrets" not in str(workflow)
    publish = workflow["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"] == "release"
    assert set(publish["needs"]) == {"files", "compiled"}
    assert workflow[True] == {"push": {"tags": ["v*"]}}


def test_a_tag_of_another_version_or_without_a_dated_changelog_fails(
    scripts, tmp_path, monkeypatch
):
    check = importlib.import_module("release_check")
    for name in check.PLACES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    monkeypatch.setattr(check, "ROOT", tmp_path)
    tag, changes = f"v{dpb_gym.__version__}", tmp_path / "CHANGELOG.md"
    changes.write_text(f"# Changes\n\n## [{dpb_gym.__version__}] - 2026-01-02\n")
    assert check.problems(tag) == []
    assert len(check.problems("v9.9.9")) == len(check.PLACES)
    changes.write_text(f"## [{dpb_gym.__version__}] - unreleased\n")
    assert check.problems(tag) == [f"CHANGELOG.md has no released version, the tag is {tag}"]


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "dpb_gym", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["dpb-gym", dpb_gym.__version__]


def test_the_conda_recipe_has_the_dependencies_of_the_package():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == dpb_gym.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {d.replace(">=", " >=") for d in project["dependencies"]}
    dependencies = {
        d.replace("matplotlib-base", "matplotlib") for d in recipe["requirements"]["run"]
    }
    assert dependencies == wanted | {f"python {project['requires-python']}"}
    assert recipe["about"]["license"] == project["license"]
