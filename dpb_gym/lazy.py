"""Packages whose parts are loaded on first use, so that importing them costs nothing."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Args:
        package: The package's ``__name__``.
        homes: Names by the submodule (relative, dotted) that defines them.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return load, listing


def submodules(package: str) -> Callable[[str], ModuleType]:
    """Makes the ``__getattr__`` of a package that imports its submodules when they are used."""

    def load(name: str) -> ModuleType:
        path = f"{package}.{name}"
        if name.startswith("_") or importlib.util.find_spec(path) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(path)

    return load
