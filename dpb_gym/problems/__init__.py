"""The mathematics of each problem, free of Gymnasium: contexts, responses, expected
reward, best action, loss gradient and Hessian, with a leading replicate axis."""

from __future__ import annotations

from dpb_gym.problems.base import Context, Feedback, Outcome, Problem, ProblemInfo
from dpb_gym.problems.instance import Instance

__all__ = ["Context", "Feedback", "Instance", "Outcome", "Problem", "ProblemInfo"]
