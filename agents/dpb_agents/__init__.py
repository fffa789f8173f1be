"""The built-in agents, by problem; importing the package registers all of them.

It is loaded through the entry-point group ``dpb_gym.agents``, like a third-party package.
"""

from __future__ import annotations

import importlib
import pkgutil


def _register_all() -> None:
    for module in pkgutil.walk_packages(__path__, prefix=f"{__name__}."):
        if module.name.split(".")[1] != "kernels":
            importlib.import_module(module.name)


_register_all()
