"""Running agents on tasks: `evaluate`, plans, the lockstep runner, workers, callbacks and progress.

Agents, suites or tasks become a plan, a plan becomes jobs (one block of replicates of one task),
and the runner plays each job's agents on the same customers, here, on several cores or a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.running.api import evaluate as evaluate
    from dpb_gym.running.runner import run_block as run_block

__all__, __getattr__, __dir__ = lazy_names(__name__)
