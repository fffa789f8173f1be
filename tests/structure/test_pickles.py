"""No package reads pickles, which run code of their author."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    file
    for folder in ("dpb_gym", "agents/dpb_agents", "envs_data/dpb_data")
    for file in (ROOT / folder).rglob("*.py")
]
READERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle"}
CALLS = {"read_pickle", "load_module", "unsafe_load", "full_load"}
WORDS = re.compile(rf"\b({'|'.join(READERS | CALLS)}|allow_pickle|load)\b")
"""One of these words is in every text that `reads` refuses."""


def dotted(function: ast.expr) -> str:
    """Return the name of what is called with its dots; unparsing every call takes seconds."""
    if isinstance(function, ast.Attribute):
        return f"{dotted(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def reads(text: str) -> list[str]:
    """Return the ways in which code may read pickles."""
    ways: list[str] = []
    if not WORDS.search(text):  # most files, whose syntax trees take seconds
        return ways
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(alias.name for alias in node.names)]
        ways += [name for name in names if name.partition(".")[0] in READERS]
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        options = {
            option.arg: ast.unparse(option.value)
            for option in node.keywords
            if option.arg == "allow_pickle"
        }
        if options.get("allow_pickle", "False") != "False":
            ways.append(f"{called}(allow_pickle=...)")
        if called in ("np.load", "numpy.load") and "allow_pickle" not in options:
            ways.append(f"{called} without allow_pickle=False")
        if called in ("joblib.load", "torch.load", "yaml.load") or called.split(".")[-1] in CALLS:
            ways.append(called)
        if called.endswith("import_module") and node.args:
            name = ast.unparse(node.args[0]).strip("'")
            ways += [name] if name.partition(".")[0] in READERS else []
    return ways


@pytest.mark.parametrize(
    "text",
    [
        "import pickle", "from pickle import loads", "import os, dill", "import pickle as p",
        "np.load(file)", "np.load(file, allow_pickle=True)", "np.load(file, allow_pickle=flag)",
        "pd.read_pickle(file)", "joblib.load(file)", "importlib.import_module('pickle')",
        "torch.load(file)", "yaml.unsafe_load(text)",
    ],
)  # fmt: skip
def test_the_check_finds_readers(text: str) -> None:
    assert reads(text)
    assert not reads("np.load(file, allow_pickle=False); state.loads(data); json.loads(text)")


def test_no_package_reads_pickles() -> None:
    assert len(FILES) > 250
    by_file = {str(file.relative_to(ROOT)): reads(file.read_text("utf-8")) for file in FILES}
    readers = {name: ways for name, ways in by_file.items() if ways}
    assert not readers
