"""The wheel and the sdist are complete, and the installed wheel runs the smoke suite."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from dpb_gym import agent_specs
from dpb_gym.papers import figure_files
from dpb_gym.suites.suite import suite_names

ROOT = Path(__file__).parents[2]


def call(*command, cwd, **environment):
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def build(target, source, folder, **environment):
    command = sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder
    call(*command, cwd=source, **environment)
    (made,) = folder.iterdir()
    return made


CALL = """
import numpy as np
from dpb_gym.kernel_cache import compilations
from dpb_gym.kernels import linalg

x = np.linspace(0.1, 1.0, 37)
with compilations(None) as found:
    print(linalg.dot_one(x, x).hex(), found.count)
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Return a folder with one kernel compiled for every processor of this architecture."""
    folder = tmp_path_factory.mktemp("kernels")
    sys.path.insert(0, str(ROOT))
    variables = importlib.import_module("hatch_build").portable(folder)
    call(sys.executable, "-c", CALL, cwd=ROOT, **variables)
    return folder


@pytest.fixture(scope="module")
def wheel(kernels, tmp_path_factory):
    """Return the wheel that DPB_WHEEL names, or one with a single compiled kernel."""
    if given := os.environ.get("DPB_WHEEL"):
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("wheel")
    return build("wheel", ROOT, folder, DPB_KERNELS=str(kernels))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


def files_of(folder, inside):
    """Return the names in the wheel of a folder's files."""
    paths = {p.relative_to(ROOT / folder) for p in (ROOT / folder).rglob("*") if p.is_file()}
    kept = {p for p in paths if "__pycache__" not in p.parts and p.suffix not in COMPILED}
    return {f"{inside}/{p.as_posix()}" for p in kept}


COMPILED = {".pyc", ".nbc", ".nbi"}


def test_the_wheel_holds_every_file_of_the_packages(wheel):
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    expected = files_of("dpb_gym", "dpb_gym") | files_of("envs_data/dpb_data", "dpb_data")
    expected |= files_of("agents/dpb_agents", "dpb_agents")
    expected |= files_of("agents/recipes", "dpb_agents/recipes")
    compiled = {n for n in names if n.startswith("dpb_gym/kernels/compiled/")}
    assert names - compiled == expected
    assert {Path(n).suffix for n in compiled} == {".nbi", ".nbc"}
    assert "py3-none-any" not in wheel.name
    assert {f"{package}/py.typed" for package in ("dpb_gym", "dpb_agents", "dpb_data")} <= names


def test_the_metadata_match_the_project(wheel):
    archive = zipfile.ZipFile(wheel)
    info = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(info).decode())
    assert metadata["Name"] == "dpb-gym" and metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert info.replace("METADATA", "licenses/LICENSE") in archive.namelist()
    points = archive.read(info.replace("METADATA", "entry_points.txt")).decode()
    assert "dpb = dpb_gym.cli:main" in points and "[dpb_gym.agents]" in points


def test_the_sdist_makes_the_same_wheel(kernels, wheel, sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        # extractall's argument `filter` needs Python 3.11.4
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        archive.extractall(tmp_path)
    (source,) = tmp_path.iterdir()
    for name in ("LICENSE", "CHANGELOG.md", "CITATION.cff", "constraints.txt", "tests", "docs"):
        assert (source / name).exists(), name
    made = build("wheel", source, tmp_path / "again", DPB_KERNELS=str(kernels))
    assert made.name == wheel.name
    again = zipfile.ZipFile(made)
    first = zipfile.ZipFile(wheel)
    assert sorted(again.namelist()) == sorted(first.namelist())
    assert all(again.read(n) == first.read(n) for n in first.namelist())


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return a virtual environment with the wheel and this one's dependencies."""
    home = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    call(*command, "--no-deps", "--no-index", wheel, cwd=home)
    site = Path(call(python, "-c", _SITE, cwd=home).strip())
    # Python does not read .pth files of a path in a .pth file, so editable installs are hidden.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


_SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def test_the_installed_package_finds_its_own_files(installed, tmp_path):
    code = (
        "import dpb_gym, dpb_agents, dpb_data, json\n"
        "from importlib.resources import files\n"
        "from dpb_gym.papers import figure_files\n"
        "from dpb_gym.suites.suite import suite_names, load_suite\n"
        "recipes = [f.name for f in files('dpb_agents').joinpath('recipes').iterdir()]\n"
        "pages = [f.name for f in files('dpb_gym.report').joinpath('templates').iterdir()]\n"
        "[load_suite(name) for name in suite_names()]\n"
        "print(json.dumps([dpb_gym.__file__, dpb_agents.__file__, dpb_data.__file__, recipes,"
        " pages, sorted(dpb_gym.agent_specs()), list(suite_names()), list(figure_files())]))"
    )
    out = call(installed / "bin" / "python", "-c", code, cwd=tmp_path, PYTHONPATH="")
    *homes, recipes, pages, agents, suites, papers = json.loads(out)
    assert all(Path(home).is_relative_to(installed) for home in homes)
    assert set(recipes) >= {p.name for p in (ROOT / "agents/recipes").glob("*.yaml")}
    assert pages
    assert set(agents) >= {n for n, s in agent_specs().items() if s.entry_point.startswith("dpb_a")}
    assert suites == list(suite_names()) and papers == list(figure_files())


def test_kernels_of_the_wheel_are_not_compiled(installed, tmp_path):
    """Only another processor compiles them, and gets the same bits."""
    python = installed / "bin" / "python"
    cache = {"PYTHONPATH": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    loaded = call(python, "-c", CALL, cwd=tmp_path, **cache).split()
    old = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    compiled = call(python, "-c", CALL, cwd=tmp_path, **cache, **old).split()
    assert loaded[0] == compiled[0] and int(loaded[1]) == 0 < int(compiled[1])


@pytest.mark.slow
def test_the_installed_package_runs_the_smoke_suite(installed, tmp_path):
    """A few agents only if kernels are compiled; tests/docs runs the whole suite."""
    dpb = [installed / "bin" / "python", installed / "bin" / "dpb"]
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")} if "DPB_WHEEL" in os.environ else {}
    few = "--replicates", "2", "--tasks", "pricing,movielens-synthetic"
    few += "--agents", "random,fixed-price,adaprivate-ts"
    call(
        *dpb,
        "run",
        "smoke",
        *(() if cache else few),
        "--out",
        "r",
        cwd=tmp_path,
        PYTHONPATH="",
        **cache,
    )
    assert not list((tmp_path / "cache").rglob("*.nbc"))
    call(*dpb, "leaderboard", "r", "--html", "l.html", "--plot", "p.png", cwd=tmp_path)
    call(*dpb, "verify", "r", "--sample", "1", cwd=tmp_path)
    page = (tmp_path / "l.html").read_text()
    assert (cache or "AdaPrivate-TS" in page) and "movielens-synthetic" in page
    assert (tmp_path / "p.png").stat().st_size > 10_000
