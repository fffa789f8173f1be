"""Suites, the lockstep runner, stored results, metrics, and `evaluate`.

Loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpb_gym.evaluation.api import evaluate
    from dpb_gym.evaluation.queries import query
    from dpb_gym.evaluation.result import Result
    from dpb_gym.evaluation.runner import run_block
    from dpb_gym.evaluation.store import Store
    from dpb_gym.evaluation.suite import Suite, load_suite, suite_names

_HOME_OF = {
    "Result": "result",
    "Store": "store",
    "Suite": "suite",
    "evaluate": "api",
    "load_suite": "suite",
    "query": "queries",
    "run_block": "runner",
    "suite_names": "suite",
}

__all__ = [
    "Result",
    "Store",
    "Suite",
    "evaluate",
    "load_suite",
    "query",
    "run_block",
    "suite_names",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
