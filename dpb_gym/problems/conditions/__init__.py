"""Conditions of the real world, on top of any problem; see docs/conditions.md."""

from __future__ import annotations

from dpb_gym.problems.conditions.conditioned import (
    CONDITIONS,
    Conditioned,
    applicable,
    with_conditions,
)

__all__ = ["CONDITIONS", "Conditioned", "applicable", "with_conditions"]
