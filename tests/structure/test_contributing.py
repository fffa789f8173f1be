"""Commands, files and examples of CONTRIBUTING.md and of the workflow files exist and work."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from dpb_gym.cli.app import app
from dpb_gym.papers import Figure, load_figures

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PARTS = dict(part.partition("\n")[::2] for part in re.split(r"^#{2,3} ", TEXT, flags=re.M))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def check_command(line):
    """Fail unless the make target, or the dpb command with its options, exists."""
    words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "x", line))
    if words[0] == "xargs":
        words = words[words.index("FILE") + 1 :]
    assert words[0] in ("make", "dpb", "python", "pre-commit", "cp", "git"), line
    if words[0] == "make":
        targets = {word for word in words[1:] if "=" not in word}
        assert targets and targets <= TARGETS, line
    elif words[0] == "dpb":
        command = get_command(app).commands[words[1]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
    elif words[0] == "python" and words[1] != "-m":
        assert (ROOT / words[1]).exists(), line


def code(title, language):
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", PARTS[title], re.M | re.S)
    return block


def test_commands_of_the_text_exist():
    lines = re.findall(r"`((?:make|dpb|python) [^`]+)`", TEXT)
    assert len(lines) > 8
    for line in lines:
        check_command(line)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_commands_of_workflows_exist(path):
    # YAML 1.1 reads the key `on` as true.
    workflow = yaml.safe_load(path.read_text())
    assert True in workflow and workflow["permissions"] and workflow["jobs"]
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            for line in step.get("run", "").replace("\\\n", " ").splitlines():
                check_command(line)


def test_ci_runs_every_python_that_the_project_names():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    named = re.findall(r'Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert jobs["test"]["strategy"]["matrix"]["python"] == named


def test_hooks_and_issue_forms_are_valid():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    for hook in hooks:
        check_command(hook["entry"])
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert form["name"] and form["description"]
        assert all(part["type"] and part["attributes"] for part in form["body"])


def test_make_has_the_targets_of_the_benchmark_of_a_clone():
    targets = re.findall(r'\[\*make, "(.+?)"\]', (ROOT / "benchmarks/speed.py").read_text())
    assert len(targets) == 3
    for target in targets:
        command = ["make", "-n", "VENV=.venv", target]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


@pytest.mark.slow
def test_the_table_of_sizes_lists_every_package(import_benchmark):
    structure = import_benchmark("structure")
    table = TEXT.partition("<!-- structure -->")[2].partition("<!-- /structure -->")[0]
    listed = set(re.findall(r"^\| (\S+) \| [\d,]+ \| [\d,]+ \|$", table, re.M))
    packages = {name for name, path in structure.sources() if path.suffix == ".py"}
    assert listed == {*packages, "all"}


def test_changes_need_few_files_and_lines():
    rows = re.findall(r"^\| an? [^|]+ \| (.+) \| (\d+) \| \d+ \|$", PARTS["Size of a change"], re.M)
    assert len(rows) == 6
    for cell, read in rows:
        files = re.findall(r"`([\w/.-]+/[\w.-]+)`", cell)
        assert files and len(files) <= 3 and int(read) <= 600
        assert all((ROOT / file).is_file() for file in files), cell


def test_the_lengths_of_the_examples_are_right():
    stated = dict(re.findall(r"^\| an? (\w+)[^|]*\|.*\| (\d+) \|$", PARTS["Adding to it"], re.M))
    counted = {
        "agent": "examples/new_agent.py",
        "environment": "examples/new_environment.py",
        "kind": "examples/new_kind.py",
    }
    lines = {k: len((ROOT / path).read_text().splitlines()) for k, path in counted.items()}
    for what, title in (("releaser", "A releaser"), ("data", "A data set")):
        nodes = ast.parse(code(title, "python")).body
        (node,) = (n for n in nodes if re.match(r"class|register", ast.unparse(n)))
        lines[what] = node.end_lineno - node.lineno + 1
    lines["figure"] = len(code("A figure", "yaml").splitlines())
    nodes = ast.walk(ast.parse((ROOT / "tests/report/test_columns.py").read_text()))
    calls = (node for node in nodes if isinstance(node, ast.Call))
    call = next(node for node in calls if ast.unparse(node.func) == "ResultColumn")
    lines["column"] = call.end_lineno - call.lineno + 1
    assert {what: int(count) for what, count in stated.items()} == lines


def test_the_example_of_a_figure_is_valid(tmp_path):
    path = tmp_path / "fig.yaml"
    path.write_text(code("A figure", "yaml"))
    (figure,) = load_figures(str(path))
    assert isinstance(figure, Figure) and figure.claims[0].expect == "below"
