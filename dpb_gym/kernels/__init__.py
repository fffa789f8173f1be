"""Hot loops, compiled by numba on first use; each has a plain NumPy twin.

The submodules import numba, so they are loaded only when one of them is first used:
``from dpb_gym import kernels`` costs nothing, ``kernels.mnl.outcome(...)`` compiles.
No kernel uses fast-math or threads, and every kernel handles replicates one by one:
what it computes for one replicate does not depend on the others.
`dpb_gym.kernels.reference` holds the twins that the tests compare against.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = [
    "contexts",
    "continual",
    "contributions",
    "demand_records",
    "elementary",
    "glm_fit",
    "linalg",
    "linear_bandit",
    "linear_rivals",
    "mnl",
    "mnl_fit",
    "mnl_slates",
    "one_pass",
    "one_pass_linear",
    "price_search",
    "pricing",
    "recommendation",
    "reference",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
