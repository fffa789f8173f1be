"""Code size and structure: lines of code per package, length of call paths, duplicate names.

``python benchmarks/structure.py`` prints tables in Markdown. ``--write FILE`` writes them between
the marks ``<!-- structure -->`` and ``<!-- /structure -->`` of a file. ``--details`` lists what is
counted.

A line of code holds at least one token that is neither a comment nor part of a docstring. Templates
(HTML, JavaScript, CSS) are counted apart. Call paths count named functions of the three packages. A
function receives a budget if one of its arguments is the budget, as `Budget` or as text.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import io
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from marked import put

ROOT = Path(__file__).parents[1]
ROOTS = {"dpb_gym": "", "agents": "agents", "envs_data": "data"}
"""Folder of each import package, and the row that counts it ("": one row per subpackage)."""

TEMPLATES = (".j2", ".js", ".css")
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
          tokenize.ENCODING, tokenize.ENDMARKER}  # fmt: skip


def sources() -> Iterator[tuple[str, Path]]:
    """Yield the package and the path of every Python file and template."""
    for root, name in ROOTS.items():
        for path in sorted((ROOT / root).rglob("*")):
            if path.suffix in (".py", *TEMPLATES) and "__pycache__" not in path.parts:
                parts = path.relative_to(ROOT / root).parts
                yield name or (parts[0] if len(parts) > 1 else "(modules)"), path


def trees(folder: str = ".") -> Iterator[tuple[Path, ast.Module]]:
    """Yield the path and the syntax tree of every Python file below a folder."""
    for _, path in sources():
        if path.suffix == ".py" and path.is_relative_to(ROOT / folder):
            yield path, parsed(path)


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file, which several counts share."""
    return ast.parse(path.read_text(encoding="utf-8"))


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that bare strings take: docstrings, also of constants."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(source: str) -> int:
    """Return how many lines of a Python source hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(source)))


def sizes() -> tuple[dict[str, int], dict[str, int]]:
    """Return the lines of code and the lines of templates of each package."""
    code: Counter[str] = Counter()
    templates: Counter[str] = Counter()
    for package, path in sources():
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            code[package] += code_lines(text)
        else:
            templates[package] += len(text.splitlines())
    return dict(code), dict(templates)


def functions() -> Iterator[tuple[int, int, str]]:
    """Yield the length of every function, with and without its docstring, and its name."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = node.body[0]
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                docstring = (first.end_lineno or 0) - first.lineno + 1
                code = length - docstring if ast.get_docstring(node) else length
                yield length, code, f"{path.relative_to(ROOT)}:{node.name}"


def duplicate_classes() -> dict[str, int]:
    """Return the names of classes that are defined more than once, with their counts."""
    names: Counter[str] = Counter()
    for _, tree in trees():
        names.update(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return {name: count for name, count in sorted(names.items()) if count > 1}


def class_depths(folder: str) -> dict[str, int]:
    """Return how many classes of the three packages each class of a folder consists of.

    That is the length of the longest chain of bases, the class included. Classes of libraries and
    of Python do not count.
    """
    bases: dict[str, list[str]] = {}
    own: list[str] = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
                if path.is_relative_to(ROOT / folder):
                    own.append(node.name)

    def depth(name: str) -> int:
        return 1 + max((depth(base) for base in bases[name] if base in bases), default=0)

    return {name: depth(name) for name in own}


def comments(folder: str) -> float:
    """Return the comments per 100 lines of code of a folder."""
    count = 0
    code = 0
    for path, _ in trees(folder):
        text = path.read_text(encoding="utf-8")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        count += sum(token.type == tokenize.COMMENT for token in tokens)
        code += code_lines(text)
    return 100.0 * count / code


PACKAGES = ("dpb_gym", "agents", "envs_data")


def packed(folder: str) -> float:
    """Return the percentage of assignments of a folder that assign a tuple to a tuple."""
    assignments = []
    for _, tree in trees(folder):
        assignments += [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    pairs = [(node.targets[0], node.value) for node in assignments]
    tuples = sum(isinstance(each, ast.Tuple) and isinstance(of, ast.Tuple) for each, of in pairs)
    return 100.0 * tuples / len(assignments)


def cycles(package: str = "dpb_gym", *, types: bool = False, packages: bool = False) -> list[str]:
    """Return groups of modules that import each other: at import time, on demand, or for types.

    Args:
        package: The top-level package.
        types: Whether imports for type annotations count.
        packages: Whether to look at the packages below the top level instead of modules.
    """
    import grimp

    graph = grimp.build_graph(package, exclude_type_checking_imports=not types, cache_dir=None)
    edges = {m: {n for n in graph.find_modules_directly_imported_by(m)} for m in graph.modules}
    if packages:
        wide: dict[str, set[str]] = {}
        for module, imported in edges.items():
            own = ".".join(module.split(".")[:2])
            wide.setdefault(own, set()).update(".".join(m.split(".")[:2]) for m in imported)
        # the top-level module imports everything, and is imported for its version
        edges = {m: others - {m, package} for m, others in wide.items() if m != package}
    groups: list[str] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:  # Tarjan's strongly connected components
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(edges[module]):
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                groups.append(", ".join(sorted(group)))

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return groups


def traced(action: Callable[[], Any], counts: Callable[[FrameType], bool]) -> list[str]:
    """Return the distinct functions called by `action` for which `counts` is true, in order.

    Functions of the three packages only, and only those called before the first `act` of an agent.
    """
    called: dict[str, None] = {}
    done = False

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal done
        code = frame.f_code
        own = any(f"/{root}/" in code.co_filename for root in ROOTS)
        if event != "call" or done or not own or "<" in code.co_qualname.split(".")[-1]:
            return
        done = code.co_name == "act"
        if not done and counts(frame):
            place = Path(code.co_filename).relative_to(ROOT)
            called.setdefault(f"{place}:{code.co_qualname}")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(called)


def calls_before_act() -> list[str]:
    """Return the functions between `evaluate` and the first `act`, in a second call."""
    import dpb_gym

    def call() -> None:
        dpb_gym.evaluate("DPB/Pricing-v0", {"Random": "random"}, horizon=20, replicates=2)

    call()
    return traced(call, lambda frame: True)


def calls_with_budget() -> list[str]:
    """Return the functions that receive a budget between the command line and the first `act`."""
    from dpb_gym.cli import run
    from dpb_gym.privacy import Budget

    text = "rho=0.4375"
    budget = Budget.parse(text)

    def holds(frame: FrameType) -> bool:
        if "privacy/budget.py" in frame.f_code.co_filename and "parse" not in frame.f_code.co_name:
            return False
        count = frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
        names = frame.f_code.co_varnames[:count]
        values = [frame.f_locals.get(name) for name in names]
        flat = [v for one in values for v in (one if isinstance(one, (list, tuple)) else [one])]
        return any(isinstance(v, (Budget, str)) and v in (budget, text) for v in flat)

    with tempfile.TemporaryDirectory() as folder:
        words = ["run", "--env", "DPB/Pricing-v0", "--agent", "private-pricing", "--budget", text]
        words += ["--horizon", "50", "--replicates", "1", "--workers", "1", "--quiet", "--out"]

        def call() -> None:
            with contextlib.redirect_stdout(io.StringIO()):
                run([*words, folder + "/out"])

        return traced(call, holds)


def table(path: list[str], received: list[str]) -> str:
    """Return the measurements in Markdown."""
    code, templates = sizes()
    shown = ["| package | lines of code | lines of templates |", "|---|---|---|"]
    for package in code:
        shown.append(f"| {package} | {code[package]:,} | {templates.get(package, 0):,} |")
    shown.append(f"| all | {sum(code.values()):,} | {sum(templates.values()):,} |")
    rows = [
        ("functions called by `evaluate` before the first `act`", len(path), 60),
        ("functions that receive a budget, from the command line to the first `act`",
         len(received), 8),
        ("import cycles", len(cycles()), 0),
        ("import cycles, type annotations included", len(cycles(types=True)), ""),
        ("class names defined more than once", len(duplicate_classes()), 0),
        ("classes in the longest chain of bases in `dpb_gym/privacy`",
         max(class_depths("dpb_gym/privacy").values()), 2),
        *(
            (f"comments per 100 lines of code in `{folder}`", f"{comments(folder):.1f}",
             "(at least 5)")
            for folder in ("dpb_gym/privacy", "agents")
        ),
        *(
            (f"packed assignments in `{folder}`", f"{packed(folder):.1f}%", "3%")
            for folder in PACKAGES
        ),
        ("functions of more than 60 lines", sum(length > 60 for length, _, _ in functions()), ""),
        ("functions of more than 60 lines without the docstring",
         sum(code > 60 for _, code, _ in functions()), 0),
    ]  # fmt: skip
    shown += ["", "| quantity | measured | at most |", "|---|---|---|"]
    shown += [f"| {what} | {measured} | {limit} |" for what, measured, limit in rows]
    return "\n".join(shown)


def main() -> None:
    """Print the tables, or write them into a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE", help="file with the marks")
    parser.add_argument("--details", action="store_true", help="list what is counted")
    options = parser.parse_args()
    path, received = calls_before_act(), calls_with_budget()
    shown = table(path, received)
    if options.write:
        put(options.write, "structure", f"\n{shown}\n")
    else:
        print(shown)
    if options.details:
        print("\nCalled before the first act:", *path, sep="\n  ")
        print("\nCalled with the budget:", *received, sep="\n  ")
        print("\nCycles, type annotations included:", *cycles(types=True), sep="\n  ")
        print("\nDuplicates:", *(f"{n} x{k}" for n, k in duplicate_classes().items()), sep="\n  ")
        longest = sorted(functions(), key=lambda one: one[1], reverse=True)[:20]
        print("\nLongest:", *(f"{code:4d} of {n} {name}" for n, code, name in longest), sep="\n  ")


if __name__ == "__main__":
    main()
