"""Lazy imports of a package's names and submodules, and loading of plug-ins."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import threading
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

OURS = "dpb-gym"
AGENTS = "dpb_gym.agents"
_loaded: set[EntryPoint] = set()
_being_loaded = threading.local()
"""By thread: a plug-in's import may load plug-ins, and other threads wait for the import."""


def lazy_names(
    package: str, *own: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__all__``, ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Names and their modules are read from the imports under ``if TYPE_CHECKING:`` in the package's
    ``__init__``.

    Args:
        package: The package's ``__name__``.
        own: Names that ``__init__`` defines itself.
    """
    home_of: dict[str, str] = {}
    for node in ast.parse(Path(str(sys.modules[package].__file__)).read_text("utf-8")).body:
        for line in node.body if isinstance(node, ast.If) else ():
            if isinstance(line, ast.ImportFrom):
                home_of |= {alias.name: str(line.module) for alias in line.names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from dpb_gym.progress_lines import progress_lines

        with progress_lines(f"importing {package}.{name}"):
            value = getattr(importlib.import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return sorted((*own, *home_of)), load, listing


def submodules(package: str) -> Callable[[str], ModuleType]:
    """Return a package's ``__getattr__`` that imports submodules on first use."""

    def load(name: str) -> ModuleType:
        path = f"{package}.{name}"
        if name.startswith("_") or importlib.util.find_spec(path) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(path)

    return load


@lru_cache
def _plugins(group: str) -> list[tuple[bool, EntryPoint]]:
    """Return the entry points of a group, with a flag for this package's own, which come first."""
    points = [(p.dist is not None and p.dist.name == OURS, p) for p in entry_points(group=group)]
    return sorted(points, key=lambda item: not item[0])


def own_packages() -> set[str]:
    """Return the import packages of this distribution that have agents, and this one."""
    own = (point.module for ours, point in _plugins(AGENTS) if ours)
    return {__name__.partition(".")[0], *(module.partition(".")[0] for module in own)}


def of_this_distribution(value: Any) -> bool:
    """Return whether a class or function is one that a module of this distribution defines.

    Any class can state another module, but the module does not have it.
    """
    module = sys.modules.get(value.__module__)
    defined = getattr(module, value.__qualname__, None) is value
    return defined and value.__module__.partition(".")[0] in own_packages()


def load_plugins(group: str, *, own: bool = False) -> list[str]:
    """Load the plug-ins of an entry-point group, each once; warn about those that fail.

    Args:
        group: Entry-point group.
        own: Whether to load only this package's own.

    Returns:
        The modules of the plug-ins that are loaded.
    """
    begun: set[EntryPoint] = vars(_being_loaded).setdefault("points", set())
    for ours, point in _plugins(group):
        if point in _loaded or point in begun or (own and not ours):
            continue
        begun.add(point)
        try:
            point.load()
        except (Exception, SystemExit) as error:  # the other plug-ins must still load
            what = group.rpartition(".")[2]
            text = f"could not load the {what} of {point.value} ({point.name}): {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        finally:
            begun.remove(point)
            _loaded.add(point)
    return [point.module for _, point in _plugins(group) if point.module in sys.modules]
