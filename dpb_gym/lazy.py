"""Code that is loaded on first use: parts of packages, and plug-ins."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
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


def lazy_names(
    package: str, *own: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the ``__all__``, ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    The names, and where they are, are what its ``__init__`` imports of its own submodules under
    ``if TYPE_CHECKING:``.

    Args:
        package: The package's ``__name__``.
        own: Names that are there at once.
    """
    home_of: dict[str, str] = {}
    for node in ast.parse(Path(str(sys.modules[package].__file__)).read_text("utf-8")).body:
        for line in node.body if isinstance(node, ast.If) else ():
            if isinstance(line, ast.ImportFrom):
                home_of |= {alias.name: str(line.module) for alias in line.names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return sorted((*own, *home_of)), load, listing


def submodules(package: str) -> Callable[[str], ModuleType]:
    """Makes the ``__getattr__`` of a package that imports its submodules when they are used."""

    def load(name: str) -> ModuleType:
        path = f"{package}.{name}"
        if name.startswith("_") or importlib.util.find_spec(path) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(path)

    return load


@lru_cache
def _plugins(group: str) -> list[tuple[bool, EntryPoint]]:
    """The entry points of a group, and whether they are this package's own; those come first."""
    points = [(p.dist is not None and p.dist.name == OURS, p) for p in entry_points(group=group)]
    return sorted(points, key=lambda item: not item[0])


def load_plugins(group: str, *, own: bool = False) -> None:
    """Loads what packages add under an entry-point group, each once; warns of a broken one.

    Args:
        group: Entry-point group.
        own: Only what this package brings.
    """
    for ours, point in _plugins(group):
        if point in _loaded or (own and not ours):
            continue
        _loaded.add(point)
        try:
            point.load()
        except (Exception, SystemExit) as error:  # one plug-in must not take the others down
            what = group.rpartition(".")[2]
            text = f"could not load the {what} of {point.value} ({point.name}): {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)
