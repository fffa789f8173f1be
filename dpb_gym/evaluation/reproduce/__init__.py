"""Reproduction of the papers' figures: suites and claims as data, verdicts computed.

Loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpb_gym.evaluation.reproduce.engine import FigureResult, Reproduction, reproduce
    from dpb_gym.evaluation.reproduce.figure import Claim, Figure, load_figures, targets
    from dpb_gym.evaluation.reproduce.verdicts import Comparison, Judgement, judge

_HOME_OF = {
    "Claim": "figure",
    "Comparison": "verdicts",
    "Figure": "figure",
    "FigureResult": "engine",
    "Judgement": "verdicts",
    "Reproduction": "engine",
    "judge": "verdicts",
    "load_figures": "figure",
    "reproduce": "engine",
    "targets": "figure",
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


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
