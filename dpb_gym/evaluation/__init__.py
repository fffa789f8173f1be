"""Suites, the lockstep runner, stored results, metrics, and `evaluate`.

Loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.evaluation.api import evaluate
    from dpb_gym.evaluation.result import Result
    from dpb_gym.evaluation.runner import run_block
    from dpb_gym.evaluation.store import Store
    from dpb_gym.evaluation.suite import Suite, load_suite, suite_names

_HOMES = {
    "api": ("evaluate",),
    "result": ("Result",),
    "runner": ("run_block",),
    "store": ("Store",),
    "suite": ("Suite", "load_suite", "suite_names"),
}

__all__ = [
    "Result",
    "Store",
    "Suite",
    "evaluate",
    "load_suite",
    "run_block",
    "suite_names",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
