"""Reproduction of the papers' figures: suites and claims as data, verdicts computed.

Loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.papers.claims import Claim
    from dpb_gym.papers.engine import FigureResult, Reproduction, reproduce
    from dpb_gym.papers.figure import Figure
    from dpb_gym.papers.loading import load_figures, targets
    from dpb_gym.papers.verdicts import Comparison, Judgement, judge

_HOMES = {
    "engine": ("FigureResult", "Reproduction", "reproduce"),
    "claims": ("Claim",),
    "figure": ("Figure",),
    "loading": ("load_figures", "targets"),
    "verdicts": ("Comparison", "Judgement", "judge"),
}

__all__ = [
    "Claim",
    "Comparison",
    "Figure",
    "FigureResult",
    "Judgement",
    "Reproduction",
    "judge",
    "load_figures",
    "reproduce",
    "targets",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
