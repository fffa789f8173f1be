"""Results that travel: one agent's shards as an archive, and back into a result directory."""

from __future__ import annotations

from dpb_gym.evaluation.exchange.merging import import_submission, remove_submission
from dpb_gym.evaluation.exchange.submission import submit

__all__ = ["import_submission", "remove_submission", "submit"]
