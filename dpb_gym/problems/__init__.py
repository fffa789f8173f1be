"""Problems, without Gymnasium: contexts, responses, expected rewards and best actions.

All arrays have a leading replicate axis.
"""

from __future__ import annotations

from dpb_gym.problems.base import Context, Feedback, Instance, Outcome, Problem, ProblemInfo
from dpb_gym.problems.kinds import Kind, kind_of, register_kind

__all__ = [
    "Context", "Feedback", "Instance", "Kind", "Outcome", "Problem", "ProblemInfo", "kind_of",
    "register_kind",
]  # fmt: skip
