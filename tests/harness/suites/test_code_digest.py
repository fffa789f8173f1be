"""The code of an agent: its module and the modules of its package that it imports."""

from __future__ import annotations

import copyreg
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dpb_gym
from dpb_gym.registry import spec_of
from dpb_gym.suites import code_digest as sources
from dpb_gym.suites.spec import AgentRun

FILES = {
    "__init__.py": "from keyed_shop.unrelated import NOTHING\n",
    "agents.py": """
        import dpb_gym
        import keyed_shop.named
        from keyed_shop.base import Base
        from . import kernels as fast
        from .tools import (
            one,  # a remark (in brackets
            two as second,
        )

        class Own(Base):
            def act(self, context):
                import keyed_shop.late as late
                return late.X + fast.loops.X + one + second.X + keyed_shop.named.X
    """,
    "base.py": """
        import dpb_gym
        from keyed_shop import unrelated, \\
            constants

        class Base(dpb_gym.SingleAgent):
            scale = constants.X
    """,
    "unrelated.py": "NOTHING = 0\n",
    "kernels/__init__.py": "import dpb_gym.lazy\n__getattr__ = dpb_gym.lazy.submodules(__name__)\n",
    "tools/__init__.py": "one = 0.0\n",
    **{f"{name}.py": "X = 0.0\n" for name in ("constants", "late", "named", "nobody")},
    **{f"{name}.py": "X = 0.1\n" for name in ("kernels/loops", "kernels/others", "tools/two")},
}
NEEDED = {
    "agents", "base", "constants", "late", "named", "unrelated", "kernels/__init__",
    "kernels/loops", "tools/__init__", "tools/two",
}  # fmt: skip


def fresh() -> None:
    """As a new process would find the package."""
    for name in [name for name in sys.modules if name.split(".")[0] == "keyed_shop"]:
        del sys.modules[name]
    sources._known.clear()
    for cached in (sources._read, sources._place):
        cached.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "keyed_shop"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("\n        ", "\n"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield folder
    fresh()


def own() -> Any:
    fresh()
    return importlib.import_module("keyed_shop.agents").Own


def key() -> str:
    return AgentRun(spec=spec_of(own(), "pricing")).code


@pytest.mark.slow
@pytest.mark.parametrize("name", [name.removesuffix(".py") for name in FILES])
def test_a_changed_helper_changes_the_key_and_nothing_else_does(shop: Path, name: str) -> None:
    before = key()
    assert key() == before
    with (shop / f"{name}.py").open("a") as file:
        file.write("# changed\n")
    assert (key() != before) == (name in NEEDED)


def test_what_a_changed_helper_computed_is_computed_again(shop: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"horizon": 20, "replicates": 2, "out": tmp_path / "out"}
    agent = {"Own": own()}
    first = dpb_gym.evaluate("DPB/Pricing-v0", agent, **asked).final_regret("Own")
    assert (dpb_gym.evaluate("DPB/Pricing-v0", agent, **asked).final_regret("Own") == first).all()
    (shop / "kernels/loops.py").write_text("X = 0.5\n")
    with pytest.warns(RuntimeWarning, match="computed by another version of the code"):
        again = dpb_gym.evaluate("DPB/Pricing-v0", {"Own": own()}, **asked)
    assert (again.final_regret("Own") != first).any()


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Return a function that makes a new module without a file, in which it runs a text."""

    def made(text: str = "") -> Any:
        module = ModuleType("cells")
        monkeypatch.setitem(sys.modules, "cells", module)
        exec(text, vars(module))
        return module

    return made


def noticed(digests: list[str]) -> None:
    """Check the digests of code, of changed code, and of the first code once more."""
    assert digests[0] != digests[1], "the change is noticed"
    assert digests[0] == digests[2], "and nothing else counts"


CELLS = {
    "class": """
class Mine(Base):
    def act(self, context):
        return helper(context.t > {limit})
""",
    "base": """
import dpb_gym
class Base(dpb_gym.SingleAgent):
    def observe(self, context, action, feedback):
        self.sums = {raw}
""",
    "helper": """
def helper(late, scale={scale}):
    return late * scale * BOUND
BOUND = {bound}
""",
}
SHOWN = {"limit": 10**9, "raw": "0.0", "scale": 2.0, "bound": 1.5}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"limit": 201}, False),
        ({"raw": "feedback.reward"}, False),
        ({"scale": 3.0}, False),
        ({"bound": 0.5}, False),
    ],
)
def test_code_of_a_notebook_counts_with_what_it_uses(
    notebook: Any, changes: dict[str, Any], same: bool
) -> None:
    module = notebook()
    digests = []
    for values in (SHOWN, SHOWN | changes):
        for name in ("base", "helper", "class"):  # cells that are run again
            exec(CELLS[name].format(**values), vars(module))
        digests.append(sources.code_hash(module.Mine))
    assert (digests[0] == digests[1]) == same


MAKING = """
import functools
import numba
import numpy as np
class Options:
    def __init__(self, value):
        self.value = value
class Slots:
    __slots__ = ("value",)
def plain(x):
    return x + {0}
def closed(value):
    return lambda: value
class Members:
    listed = [{0}]
    @functools.cached_property
    def cached(self):
        return {0}
    partial = functools.partialmethod(plain, {0})
slots = Slots()
slots.value = {0}
def maker(given={{"a": {0}}}):
    return used
"""
KINDS = {
    "list": "[0, {0}]",
    "nested": "([{{'a': ({0},)}}],)",
    "order": "[{0}, 3 - {0}]",
    "order of a tuple": "({0}, 3 - {0})",
    "key": "{{{0}: 0}}",
    "set": "{{0, {0}}}",
    "number of numpy": "np.float64({0})",
    "complex": "complex({0})",
    "array": "np.array([0.0, {0}])",
    "shape": "np.zeros(({0}, 3 - {0}))",
    "objects in an array": "np.array([None, {0}], object)",
    "instance": "Options([{0}])",
    "slots": "slots",
    "lambda": "lambda: {0}",
    "lambda in a dict": "{{'f': lambda: {0}}}",
    "closure": "closed([{0}])",
    "compiled": "numba.njit(plain)",
    "compiled ufunc": "numba.vectorize(plain)",
    "memory": "functools.lru_cache(plain)",
    "partial": "functools.partial(plain, {0})",
    "method": "Options({0}).__init__",
    "class attribute": "Members",
    "default": "maker",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_object_in_a_notebook_counts(notebook: Any, kind: str) -> None:
    digests = []
    for value in (1, 2, 1):
        module = notebook(MAKING.format(value))
        module.used = eval(KINDS[kind].format(value), vars(module))
        if kind != "default":
            module.maker.__defaults__ = ()
        digests.append(sources.code_hash(module.maker))
    noticed(digests)


UNKNOWN = {
    "lock": "__import__('threading').Lock()",
    "many": "[[float(n)] for n in range(120_000)]",
    "generator": "(n for n in ())",
    "array with attributes": "type('Own', (np.ndarray,), {})(2)",
    "list of numba": "numba.typed.List([1])",
    "own ufunc": "np.frompyfunc(plain, 1, 1)",
    "wrong reduction": "type('Own', (), {'__reduce__': lambda self: None})()",
    "set of functions": "{plain, closed}",
    "error": "type('Own', (), {'__reduce__': lambda self: 1 / 0})()",
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_nothing_is_known_of_code_with_what_python_cannot_take_apart(
    notebook: Any, kind: str
) -> None:
    module = notebook(MAKING.format(1))
    module.used = eval(UNKNOWN[kind], vars(module))
    assert len({sources.code_hash(module.maker) for _ in range(3)}) == 3


PAIRS = {
    "order of arguments": ("def act(self, a, b): return 1", "def act(self, b, a): return 1"),
    "keyword only": ("def act(self, a): return 1", "def act(self, *, a): return 1"),
    "member with underscores": ("__scale__ = 1", "__scale__ = 2"),
    "hook": (
        "def __init_subclass__(cls): cls.x = 1",
        "def __init_subclass__(cls): cls.x = 2",
    ),
    "names of two globals": ("def act(self): return one, two", "def act(self): return two, one"),
    "method of an object": ("act = {'a': 1}.get", "act = {'a': 2}.get"),
    "masked array": (
        "act = np.ma.array([1, 2], mask=[0, 1])",
        "act = np.ma.array([1, 2], mask=[1, 0])",
    ),
    "read-only mapping": ("act = MappingProxyType({'a': 1})", "act = MappingProxyType({'a': 2})"),
    "pattern": ("act = re.compile('a')", "act = re.compile('b')"),
    "named tuple": ("act = Pair(1)", "act = Pair(2)"),
    "options of a compiler": ("act = numba.njit(plain)", "act = numba.njit(plain, fastmath=True)"),
    "attribute of a function": ("act = with_(1)", "act = with_(2)"),
    "metaclass": ("__metaclass__ = Meta1", "__metaclass__ = Meta2"),
    "objects in an array": (
        "act = np.array([(1, [1])], 'i4,O')",
        "act = np.array([(1, [2])], 'i4,O')",
    ),
}
AROUND = """
import abc, re, numba, numpy as np
from numpy import exp
from types import MappingProxyType
from collections import namedtuple
import dpb_gym
Pair = namedtuple("Pair", "a")
result, exposed = None, {0}
one, two = 1, 2
def plain(x):
    return exp(x)
def with_(value):
    def function(): pass
    function.scale = value
    return function
class Meta1(type):
    def __call__(cls): return 1
class Meta2(type):
    def __call__(cls): return 2
class Base(dpb_gym.Agent, abc.ABC):
    def other(self, x):
        return self.result, x in {{'aa', 'bb', 'cc', 'dd'}}, plain
class maker(Base):
    {1}
"""


@pytest.mark.parametrize("kind", PAIRS)
def test_changes_of_a_class_in_a_notebook_count(notebook: Any, kind: str) -> None:
    digests = []
    for line in (*PAIRS[kind], PAIRS[kind][0]):
        module = notebook(AROUND.format(1, line))
        if "metaclass" in kind:
            module.maker = module.maker.__metaclass__("maker", (), {"__module__": "cells"})
        digests.append(sources.code_hash(module.maker))
        copyreg._slotnames(module.maker)  # as copies of objects do
        module.result = module.exposed = digests  # of these names are attributes only
        assert sources.code_hash(module.maker) == digests[-1]
    noticed(digests)


@pytest.mark.slow
def test_code_of_a_notebook_has_one_digest_in_all_processes() -> None:
    program = AROUND.format(1, "def act(self): return re.compile('a'), exp, np.random.normal")
    program += "from dpb_gym.suites.code_digest import code_hash\nprint(code_hash(maker))"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(3)
    }  # fmt: skip
    assert len(digests) == 1


def test_code_of_a_file_does_not_count_by_what_it_changes(shop: Path) -> None:
    """Such as a memory of results, with which each run would be one of other code."""
    with (shop / "agents.py").open("a") as file:
        file.write("\n        MEMORY = {}\n".replace("\n        ", "\n"))
        file.write("Own.observe = lambda self, *given: MEMORY.update(given)\n")
    agent = own()
    before = sources.code_hash(agent)
    sys.modules["keyed_shop.agents"].MEMORY["a"] = 1
    assert sources.code_hash(agent) == before


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("import keyed_shop.sub.noise", "sub/__init__.py"),
        ("import_module('keyed_shop.sub.noise')", "sub/noise.py"),
        ("import_module('.sub.noise', 'keyed_shop')", "sub/noise.py"),
        ("__import__('keyed_shop.sub.noise')", "sub/noise.py"),
        ("from keyed_shop import fast", f"fast{EXTENSION_SUFFIXES[0]}"),
    ],
)
def test_modules_that_are_imported_in_other_ways_count(shop: Path, line: str, file: str) -> None:
    (shop / "sub").mkdir()
    for name in ("sub/__init__.py", "sub/noise.py", f"fast{EXTENSION_SUFFIXES[0]}"):
        (shop / name).write_bytes(b"")
    with (shop / "base.py").open("a") as text:
        text.write(f"from importlib import import_module\ndef late():\n    {line}\n")
    with (shop / "base.py").open("a") as text:
        text.write(f"OTHERS = '.5', '..x', '.{'a' * 300}', 'keyed_shop.{'a' * 300}'\n")
    before = key()
    (shop / file).write_bytes(b"# changed")
    assert key() != before


class Proxy:
    """An object whose attributes can be read at times only, as of web frameworks."""

    @property
    def __class__(self) -> type:
        raise RuntimeError("not now")


def test_other_objects_that_code_uses_are_left_alone(notebook: Any) -> None:
    module = notebook("def maker():\n    return request, pair")
    vars(module).update(request=Proxy(), pair=(1.0, Proxy()))
    digest = sources.code_hash(module.maker)
    module.pair = (2.0, Proxy())
    assert sources.code_hash(module.maker) != digest


def test_reloaded_code_has_the_digest_of_a_new_process(shop: Path) -> None:
    """Tools such as autoreload change the functions of a class in place."""
    agent = own()
    before = sources.code_hash(agent)
    file = shop / "agents.py"
    file.write_text(file.read_text().replace("late.X +", "2 * late.X +"))
    assert sources.code_hash(agent) == before, "the old code runs until it is reloaded"
    new = importlib.reload(sys.modules["keyed_shop.agents"]).Own
    agent.act.__code__ = new.act.__code__
    reloaded = sources.code_hash(agent)
    assert reloaded != before
    assert sources.code_hash(own()) == reloaded


def test_code_that_changed_in_memory_only_is_not_that_of_the_file(shop: Path) -> None:
    agent = own()
    before = sources.code_hash(agent)
    act = agent.act
    agent.act = lambda self, context: 0
    assert sources.code_hash(agent) != before
    agent.act = act
    assert sources.code_hash(agent) != before, "it is not known to be the same again"


def test_every_import_of_the_zoo_counts() -> None:
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("dpb_agents", cache_dir=None)
    modules = {spec.maker.__module__ for spec in dpb_gym.agent_specs().values()}
    for module in sorted(name for name in modules if name.startswith("dpb_agents.")):
        helpers = {f"dpb_agents.{name}" for name in sources._helpers(module)}
        assert graph.find_upstream_modules(module) - {"dpb_agents", module} <= helpers
    helpers = set(sources._helpers("dpb_agents.recommendation.one_pass_linear"))
    # reached by attribute, by import
    assert {"kernels.linear_records", "recommendation.lifetime_weights"} <= helpers
    assert not {"kernels.curvature", "pricing.one_pass_pricing"} & helpers


def test_the_library_counts_by_its_algorithm_version() -> None:
    assert sources._helpers("dpb_gym.local_privacy") == {} == sources._helpers("dpb_gym")
    assert sources._helpers("__main__") == {}
