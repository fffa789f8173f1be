"""Suites, the lockstep runner, stored results, metrics, and `evaluate`.

Loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.evaluation.api import evaluate as evaluate
    from dpb_gym.evaluation.result import Result as Result
    from dpb_gym.evaluation.runner import run_block as run_block
    from dpb_gym.evaluation.store import Store as Store
    from dpb_gym.evaluation.suite import Suite as Suite
    from dpb_gym.evaluation.suite import load_suite as load_suite
    from dpb_gym.evaluation.suite import suite_names as suite_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
