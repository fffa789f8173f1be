"""Neighbouring worlds that differ in one customer, or in all rounds of one user."""

from __future__ import annotations

import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.kinds import KINDS, kind_of
from dpb_gym.problems.neighbours import AuditForm, reward_range
from dpb_gym.problems.neighbours import Pair as Pair
from dpb_gym.problems.neighbours import World as World
from dpb_gym.problems.neighbours import bought as bought


def audit_form(kind: str) -> AuditForm:
    """Return what an audit needs to know of a kind.

    Raises:
        ParameterError: If the kind has no adversarial customers.
    """
    form = kind_of(kind).audit
    if form is None:
        known = [name for name in KINDS if kind_of(name).audit is not None]
        raise ParameterError(f"audits know worlds of {', '.join(known)}, not of {kind}")
    return form


def pairs_for(problem: ProblemInfo, unit: str, partial: bool = False) -> list[Pair]:
    """Return adversarial pairs of customers; an audit uses the one with the largest effect.

    Args:
        problem: Description of the problem.
        unit: Unit of the claim.
        partial: Whether a round may have no feedback.

    Raises:
        ParameterError: If the kind of the problem has no adversarial customers.
    """
    form = audit_form(problem.kind)
    if unit in ("reward", "user-rewards"):
        return form.response_pairs(problem)
    return [*form.pairs(problem), *(form.partial_pairs(problem) if partial else ())]


def response_range(problem: ProblemInfo) -> tuple[float, float]:
    """Return the extreme responses of a problem; ten standard deviations if unbounded."""
    form = kind_of(problem.kind).audit
    return reward_range(problem) if form is None else form.response_range(problem)


def answer(world: World, problem: ProblemInfo, context: Context, action: Array) -> Feedback:
    """Return the target's response to every replicate's action."""
    return audit_form(problem.kind).answer(world, problem, context, action)


def check_pair(pair: Pair, shape: tuple[int, ...]) -> None:
    """Raise `ParameterError` unless the worlds' features have the problem's shape."""
    for world in (pair.first, pair.second, *pair.others):
        if world.features is not None and np.shape(world.features) != shape:
            raise ParameterError(
                f"features of a world must have shape {shape}, got {np.shape(world.features)}"
            )
