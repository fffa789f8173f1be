"""Suites and what they consist of: tasks, agents with budgets, cells, and their identity.

A suite is a versioned YAML file. A cell is one agent at one budget on one task for one block of
replicates; its key is a digest of its specification, its data and its agent's code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.suites.suite import Suite as Suite
    from dpb_gym.suites.suite import load_suite as load_suite
    from dpb_gym.suites.suite import suite_names as suite_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
