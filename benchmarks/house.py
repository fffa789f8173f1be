"""The house in numbers: lines per room, how long a way is, what stands twice.

``python benchmarks/house.py`` prints a table in Markdown; ``--write FILE`` puts it between the
marks ``<!-- house -->`` and ``<!-- /house -->`` of a file. Functions are those of the package and
the zoo; comprehensions and lambdas count to the function that holds them. A function is crossed
by a budget if it is called with it (as `Budget` or as text) as an argument.
"""

from __future__ import annotations

import ast
import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
BUDGET = {
    "problems": 2.0, "envs": 1.2, "feedback": 1.2, "kernels": 2.0, "privacy": 3.7,
    "suites": 1.0, "audits": 1.6, "results": 1.8, "running": 1.2, "exchange": 0.6,
    "planning": 0.8, "offline": 1.3, "papers": 1.7, "report": 2.6, "cli": 1.1,
    "(files)": 1.0, "zoo": 8.2, "data": 2.6,
}  # fmt: skip
"""Thousand lines per room, as designed."""

HOUSES = {"dpb_gym": "", "agents": "zoo", "envs_data": "data"}
SUFFIXES = (".py", ".j2", ".js", ".css")


def rooms() -> dict[str, int]:
    """Lines per room, code and templates."""
    lines: Counter[str] = Counter()
    for house, name in HOUSES.items():
        for path in sorted((ROOT / house).rglob("*")):
            if path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                parts = path.relative_to(ROOT / house).parts
                room = name or (parts[0] if len(parts) > 1 else "(files)")
                lines[room] += len(path.read_text(encoding="utf-8").splitlines())
    return dict(lines)


def functions() -> Iterator[tuple[int, int, str]]:
    """Length of every function, with and without its docstring, and its name."""
    for house in HOUSES:
        for path in sorted((ROOT / house).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    last = node.end_lineno or node.lineno
                    said, head = ast.get_docstring(node), node.body[0]
                    told = (head.end_lineno or 0) - head.lineno + 1 if said else 0
                    length = last - node.lineno + 1
                    yield length, length - told, f"{path.relative_to(ROOT)}:{node.name}"


def doubled() -> dict[str, int]:
    """Names of classes that are defined more than once."""
    names: Counter[str] = Counter()
    for house in HOUSES:
        for path in sorted((ROOT / house).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names.update(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return {name: count for name, count in sorted(names.items()) if count > 1}


def circles(package: str = "dpb_gym", *, types: bool = False) -> list[str]:
    """Groups of modules of a package that import each other, at once, on demand, or for types."""
    import grimp

    graph = grimp.build_graph(package, exclude_type_checking_imports=not types, cache_dir=None)
    edges = {m: {n for n in graph.find_modules_directly_imported_by(m)} for m in graph.modules}
    found: list[str] = []
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
                found.append(", ".join(sorted(group)))

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return found


def watched(action: Callable[[], Any], seen: Callable[[FrameType], bool]) -> list[str]:
    """Distinct functions of ours that are called and for which `seen` says so, in order.

    Stops counting at the first `act` of an agent.
    """
    found: dict[str, None] = {}
    done = False

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal done
        code = frame.f_code
        own = any(f"/{house}/" in code.co_filename for house in HOUSES)
        if event != "call" or done or not own or "<" in code.co_qualname.split(".")[-1]:
            return
        done = code.co_name == "act"
        if not done and seen(frame):
            place = Path(code.co_filename).relative_to(ROOT)
            found.setdefault(f"{place}:{code.co_qualname}")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(found)


def until_act() -> list[str]:
    """The functions between `evaluate` and the first `act`, of a second call."""
    import dpb_gym

    def call() -> None:
        dpb_gym.evaluate("DPB/Pricing-v0", {"Random": "random"}, horizon=20, replicates=2)

    call()
    return watched(call, lambda frame: True)


def crossed_by_a_budget() -> list[str]:
    """The functions that a budget crosses between the command line and the first `act`."""
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

        return watched(call, holds)


def table(way: list[str], crossed: list[str]) -> str:
    """The numbers in Markdown."""
    lines = rooms()
    found = ["| room | lines | designed |", "|---|---|---|"]
    for room, planned in BUDGET.items():
        found.append(f"| {room} | {lines.get(room, 0):,} | {1000 * planned:,.0f} |")
    found.append(f"| all | {sum(lines.values()):,} | 34,000 |")
    rows = [
        ("functions of ours until the first `act`", len(way), 60),
        ("functions crossed by a budget, from the command line", len(crossed), 8),
        ("import circles", len(circles()), 0),
        ("the same, imports for types counted", len(circles(types=True)), "-"),
        ("class names defined twice", len(doubled()), 0),
        ("functions over 60 lines", sum(length > 60 for length, _, _ in functions()), "-"),
        ("the same, docstrings not counted", sum(code > 60 for _, code, _ in functions()), 0),
    ]
    found += ["", "| what | measured | designed |", "|---|---|---|"]
    found += [f"| {what} | {measured} | {planned} |" for what, measured, planned in rows]
    return "\n".join(found)


def main() -> None:
    """Prints or writes the table."""
    way, crossed = until_act(), crossed_by_a_budget()
    shown = table(way, crossed)
    if "--write" in sys.argv:
        path = Path(sys.argv[sys.argv.index("--write") + 1])
        before, mark, rest = path.read_text(encoding="utf-8").partition("<!-- house -->")
        _, end, after = rest.partition("<!-- /house -->")
        path.write_text(f"{before}{mark}\n\n{shown}\n\n{end}{after}", encoding="utf-8")
    else:
        print(shown)
    if "--details" in sys.argv:
        print("\nUntil the first act:", *way, sep="\n  ")
        print("\nCrossed by a budget:", *crossed, sep="\n  ")
        print("\nCircles, also for types:", *circles(types=True), sep="\n  ")
        print("\nTwice:", *(f"{name} x{count}" for name, count in doubled().items()), sep="\n  ")
        longest = sorted(functions(), key=lambda one: one[1], reverse=True)[:20]
        print("\nLongest:", *(f"{code:4d} of {n} {name}" for n, code, name in longest), sep="\n  ")


if __name__ == "__main__":
    main()
