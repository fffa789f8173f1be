"""Change one place of the code at a time and see whether its tests notice.

``python benchmarks/mutants.py`` draws 60 places of `dpb_gym` and `dpb_agents` by a stored seed: a
comparison, an operator, a number, a truth value. It changes one of them in a copy of the
repository, runs the tests of its module there, and writes ``benchmarks/mutants.json``. A run that
was stopped continues with the places that are not in the file. ``--lines FILE:LINE ...`` examines
all places of these lines instead.

The tests of a module are at most five files: those of its name, then those that name most of its
functions. A mutant that they do not kill may be killed by another file, or compute the same.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_suffix(".json")
PACKAGES = ("dpb_gym", "agents")
LIMIT = 240.0
"""Seconds for the tests of one mutant; a mutant that needs more counts as killed."""

TIME = "time limit"
MOST_FILES = 5
COPIED = ("dpb_gym", "agents", "envs_data", "tests", "examples", "docs", "benchmarks")
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}


@dataclass(frozen=True)
class Place:
    """A part of a line that can be changed.

    Attributes:
        path: File, relative to the repository.
        line: Its line, from 1.
        start: Position of the first character in the line.
        old: Text now.
        new: Text of the mutant.
        function: Function or class that contains it.
    """

    path: str
    line: int
    start: int
    old: str
    new: str
    function: str

    def change(self, root: Path) -> None:
        """Change the file below a root."""
        file = root / self.path
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        text = lines[self.line - 1]
        assert text[self.start :].startswith(self.old), (self, text)
        lines[self.line - 1] = text[: self.start] + self.new + text[self.start + len(self.old) :]
        file.write_text("".join(lines), encoding="utf-8")


class Finder(ast.NodeVisitor):
    """Collect the places of a file, without those of types, messages and decorators."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        # columns of a syntax tree count bytes
        self.lines = [line.encode() for line in text.splitlines()]
        self.places: list[Place] = []
        self.names: list[str] = []
        self.visit(ast.parse(text))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.names.append(node.name)
        for child in node.body:
            self.visit(child)
        self.names.pop()

    def visit_AsyncFunctionDef(self, node: Any) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_FunctionDef(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Skip what a message contains."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip assertions, most of which are for the type checker."""

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators):
            self._between(left, operator, right)
            left = right
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._between(node.left, node.op, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:]):
            self._between(left, node.op, right)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node.lineno, node.col_offset, "not ", "")
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip texts."""

    def visit_Constant(self, node: ast.Constant) -> None:
        text = self.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
        value = node.value
        if isinstance(value, bool):
            self._add(node.lineno, node.col_offset, text, str(not value))
        elif isinstance(value, int):
            self._add(node.lineno, node.col_offset, text, str(value + 1))
        elif isinstance(value, float):
            self._add(node.lineno, node.col_offset, text, repr(2 * value if value else 1.0))

    def _between(self, left: ast.expr, operator: ast.AST, right: ast.expr) -> None:
        """Add an operator that stands alone between two operands in one line."""
        if type(operator) not in SWAPS or left.end_lineno != right.lineno:
            return
        old, new = SWAPS[type(operator)]
        start = left.end_col_offset or 0
        gap = self.lines[right.lineno - 1][start : right.col_offset].decode()
        if match := re.search(rf"(?<![\w*/=<>!]){re.escape(old)}(?![\w*/=<>])", gap):
            self._add(right.lineno, start + match.start(), old, new)

    def _add(self, line: int, column: int, old: str, new: str) -> None:
        start = len(self.lines[line - 1][:column].decode())
        function = ".".join(self.names)
        self.places.append(Place(self.path, line, start, old, new, function))


def places() -> Iterator[Place]:
    """Yield every place of the packages."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            candidates = Finder(name, path.read_text(encoding="utf-8")).places
            yield from (place for place in candidates if place.function)


def test_files(place: Place) -> list[str]:
    """Return at most `MOST_FILES` test files of a module, the nearest first."""
    module = Path(place.path)
    dotted = ".".join(module.with_suffix("").parts).removeprefix("agents.")
    text = (ROOT / module).read_text(encoding="utf-8")
    names = [
        n.name for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.ClassDef))
    ]
    public = [name for name in names if not name.startswith("_")]
    own = place.function.split(".")
    ranks: list[tuple[int, int, str]] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        test = path.read_text(encoding="utf-8")
        words = set(re.findall(r"\w+", test))
        mirror = path.stem == f"test_{module.stem.lstrip('_')}"
        imports = dotted in test or (
            f"from {dotted.rpartition('.')[0]} import" in test and module.stem in words
        )
        shared = sum(name in words for name in public)
        rank = 100 * mirror + 20 * imports + 10 * sum(name in words for name in own) + shared
        rank += 5 * (module.parts[1] in path.parts)
        if rank >= 5:
            ranks.append((-rank, path.stat().st_size, path.relative_to(ROOT).as_posix()))
    files = [name for _, _, name in sorted(ranks)[:MOST_FILES]]
    if module.parts[0] == "agents" and len(files) < MOST_FILES:
        files.append("tests/agents/test_protocol.py")
    return files


def first_failure(copy: Path, tests: list[str]) -> str | None:
    """Return the first test that fails in a copy of the repository, or None."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(copy / part) for part in ("", "agents", "envs_data")),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    options = ["-q", "-x", "-m", "not long", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return TIME
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed[1] if failed else done.stdout.strip()[-300:]


def examine(place: Place, copy: Path) -> dict[str, Any]:
    """Return a row: the place, the test files, and whether one of them fails."""
    files = test_files(place)
    source = (ROOT / place.path).read_text(encoding="utf-8")
    place.change(copy)
    try:
        by = first_failure(copy, files) if files else None
    finally:
        (copy / place.path).write_text(source, encoding="utf-8")
    if by and "::" in by and first_failure(copy, [by]):
        raise SystemExit(f"{by} also fails without a change")
    row = {name: getattr(place, name) for name in ("path", "line", "function", "old", "new")}
    line = source.splitlines()[place.line - 1].strip()
    return {**row, "text": line, "files": files, "killed": by is not None, "by": by}


KINDS = (
    {"<", "<=", ">", ">=", "==", "!="},
    {"+", "-", "*", "/"},
    {"is", "is not", "in", "not in", "and", "or", "not "},
)
"""Kinds of changes; the fourth is constants. As many of each are drawn, as zeros are everywhere."""


def draw(seed: int, count: int) -> list[Place]:
    """Return distinct places in turn of each kind, the same for the same seed and code."""
    groups: list[list[Place]] = [[] for _ in range(4)]
    for place in places():
        groups[next((i for i, kind in enumerate(KINDS) if place.old in kind), 3)].append(place)
    random_ = random.Random(seed)
    drawn = [random_.sample(group, -(-count // 4)) for group in groups]
    return [place for turn in zip(*drawn) for place in turn][:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=51)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--most", type=int, default=60, help="places to examine in this call")
    parser.add_argument("--lines", nargs="*", default=[], metavar="FILE:LINE")
    parser.add_argument("--store", type=Path, default=STORED)
    options = parser.parse_args()
    drawn = draw(options.seed, options.count)
    if options.lines:
        drawn = [place for place in places() if f"{place.path}:{place.line}" in options.lines]
    store: dict[str, Any] = {"seed": options.seed, "count": options.count, "mutants": []}
    if options.store.exists() and not options.lines:
        earlier = json.loads(options.store.read_text(encoding="utf-8"))
        store = earlier if earlier["seed"] == options.seed else store
    keys = ("path", "line", "old", "text")
    done = {tuple(row[key] for key in keys) for row in store["mutants"]}
    with tempfile.TemporaryDirectory(prefix="dpb-mutants-") as folder:
        copy = Path(folder) / "copy"
        ignored = shutil.ignore_patterns("__pycache__", "_build")
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        for path in [*ROOT.glob("*.*"), ROOT / "Makefile", ROOT / "LICENSE"]:
            if path.is_file():
                shutil.copy(path, copy / path.name)
        examined = 0
        for place in drawn:
            text = (ROOT / place.path).read_text(encoding="utf-8").splitlines()[place.line - 1]
            if (place.path, place.line, place.old, text.strip()) in done:
                continue
            if examined == options.most:
                break
            row = examine(place, copy)
            examined += 1
            store["mutants"].append(row)
            verdict = "killed  " if row["killed"] else "SURVIVED"
            change = f"{place.path}:{place.line} {place.old} -> {place.new}"
            print(verdict, change, row["by"] or row["files"], flush=True)
            if not options.lines:
                options.store.write_text(json.dumps(store, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(row['killed'] for row in store['mutants'])} of {len(store['mutants'])} killed")


if __name__ == "__main__":
    main()
