"""Version, changelog, citation, licence and pins are consistent."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from datetime import date
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dpb_gym
from dpb_gym.papers import figure_files

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *(r for extra in PROJECT["optional-dependencies"].values() for r in extra),
]
README = (ROOT / "README.md").read_text()
# Types of authors and of the file, from the schema of the Citation File Format 1.2.0.
PERSON = {"family-names", "given-names", "name-particle", "name-suffix", "affiliation", "orcid"}
ENTITY = {"name", "website", "email", "orcid", "alias"}
KEYS = {
    *("abstract", "authors", "cff-version", "date-released", "doi", "keywords", "license"),
    *("message", "references", "repository-code", "title", "type", "url", "version"),
}


def pins(name):
    versions = {}
    for line in (ROOT / name).read_text().splitlines():
        if line and not line.startswith("#"):
            package, _, version = line.partition("==")
            versions[canonicalize_name(package)] = version.strip()
    return versions


def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_the_citation_file_has_the_required_fields():
    cff = citation()
    assert {"cff-version", "message", "title", "authors"} <= set(cff) <= KEYS
    assert cff["cff-version"] == "1.2.0"
    assert cff["type"] in {"software", "dataset"}
    assert all(isinstance(cff[k], str) and cff[k] for k in ("message", "title", "abstract"))
    for author in cff["authors"]:
        assert set(author) <= PERSON or ("name" in author and set(author) <= ENTITY), author
    for reference in cff["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)
    papers = {k: v for k, v in PROJECT["urls"].items() if k.startswith("Paper: ")}
    cited = {r["doi"].removeprefix("10.48550/arXiv.") for r in cff["references"]}
    assert cited == {url.removeprefix("https://arxiv.org/abs/") for url in papers.values()}


def test_versions_agree():
    """The version is defined in the package only; hatch reads it there."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert PROJECT["dynamic"] == ["version", "readme"] and "version" not in PROJECT
    source = (ROOT / tables["tool"]["hatch"]["version"]["path"]).read_text()
    assert f'__version__ = "{dpb_gym.__version__}"\n' in source
    assert dpb_gym.__version__ == citation()["version"]
    assert PROJECT["license"] == citation()["license"]
    assert PROJECT["urls"].get("Source") == citation().get("repository-code")


def test_the_metadata_list_the_reproduced_papers():
    """Every paper with figures has an address, which the agents' sources mention."""
    papers = {name.partition("/")[0] for name in figure_files()}
    urls = {k: v for k, v in PROJECT["urls"].items() if k.startswith("Paper: ")}
    assert {k.removeprefix("Paper: ").lower().replace(" ", "-") for k in urls} == papers
    sources = "".join(p.read_text() for p in (ROOT / "agents/dpb_agents").rglob("*.py"))
    for url in urls.values():
        assert f"arXiv:{url.removeprefix('https://arxiv.org/abs/')}" in sources


def test_the_readme_is_short_and_its_pictures_exist():
    text = README
    assert len(text.splitlines()) <= 130
    pictures = re.findall(r'(?:!\[[^\]]*\]\(|src(?:set)?=")([^)"]+)', text)
    assert {"docs/_static/frontier.png", "docs/_static/page-dark.png"} <= set(pictures)
    assert all((ROOT / path).stat().st_size > 300 for path in pictures)
    table = text.partition("<!-- agents -->")[2].partition("<!-- /agents -->")[0]
    counts, regrets = re.findall(r"(?:^\|.*\n)+", table, re.M)
    assert counts.count("\n| ") == 4 and regrets.count("\n| ") == 3
    assert regrets.count("±") == 9


def test_the_first_screen_has_the_two_commands(import_benchmark):
    """The first 40 lines say what each prints and takes; `.ci/run` calls the second."""
    speed = import_benchmark("speed")
    table = speed.readme(json.loads(speed.STORED.read_text("utf-8")))
    screen = "\n".join(README.splitlines()[:40])
    assert f"<!-- commands -->\n{table}\n<!-- /commands -->" in screen
    assert "| `make leaderboard` |" in table and "| `make test` |" in table
    ci = (ROOT / ".ci/run").read_text().splitlines()
    assert "make test" in ci


@pytest.mark.parametrize(
    ("target", "words"), [("leaderboard", "dpb run smoke"), ("test", "pytest -n 2")]
)
def test_both_commands_include_all_set_up(target, words, tmp_path):
    """With an empty environment each of them makes one, installs, and then does its work."""
    command = ["make", "-n", f"VENV={tmp_path}/venv", target]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    steps = ["-m venv", "pip install", words]
    places = [done.stdout.index(step) for step in steps]
    assert places == sorted(places)


def test_the_environment_of_the_tests_has_every_extra():
    """Tests without their extra are skipped, so `make test` needs all extras."""
    (installed,) = re.findall(r"INSTALL\) '\.\[(test,.*docs)\]'", (ROOT / "Makefile").read_text())
    extras = PROJECT["optional-dependencies"]
    chosen = {Requirement(r).name for extra in installed.split(",") for r in extras[extra]}
    for extra in extras.keys() - {"lint"}:
        assert {Requirement(r).name for r in extras[extra]} <= chosen, extra
    assert f"'.[{installed}]'" in README


def test_badges_match_the_metadata(import_benchmark):
    script = import_benchmark("published")
    for name, text in script.badges(PROJECT).items():
        assert (ROOT / f"docs/_static/badge-{name}.svg").read_text() == script.badge(text)
        assert f"![{text.replace('|', ': ' if name != 'python' else ' ')}]" in README


def test_the_changelog_starts_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    heads = re.findall(r"^## \[(.+?)\](?: - (.+))?$", text, re.M)
    versions = [head for head, _ in heads if head != "Unreleased"]
    assert versions[0] == dpb_gym.__version__
    assert len(set(versions)) == len(versions)
    for _, day in heads:
        assert day in ("", "unreleased") or date.fromisoformat(day)
    kinds = set(re.findall(r"^### (.+)$", text, re.M))
    kinds -= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert kinds <= {"Known limitations"}


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_constraints_pin_every_dependency_within_its_bounds(requirement):
    wanted = Requirement(requirement)
    pinned = pins("constraints.txt").get(canonicalize_name(wanted.name))
    assert pinned is not None, f"{wanted.name} has no pin in constraints.txt"
    assert wanted.specifier.contains(pinned, prereleases=True)


@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_the_lowest_versions_are_the_lower_bounds(requirement):
    wanted = Requirement(requirement)
    (bound,) = wanted.specifier
    assert bound.operator == ">=", f"{wanted.name} needs one lower bound and no other"
    lowest = pins("constraints-lowest.txt")[canonicalize_name(wanted.name)]
    parts = len(bound.version.split("."))
    assert lowest.split(".")[:parts] == bound.version.split(".")


def test_python_classifiers_satisfy_requires_python():
    allowed = Requirement(f"python{PROJECT['requires-python']}").specifier
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert named and all(allowed.contains(version) for version in named)
