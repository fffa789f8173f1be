"""Reproduction of papers' figures: suites and claims as data, verdicts computed.

A figure is a YAML file (`Figure` names every key); a quantity that claims compare is a function
registered with `quantity`; a package adds both (see `figure_files`).
"""

from dpb_gym.papers.claims import Claim, FigureTable, Quantity
from dpb_gym.papers.curves import Curve
from dpb_gym.papers.engine import Reproduction, reproduce
from dpb_gym.papers.figure import Figure, figure_files, load_figures, targets
from dpb_gym.papers.pairing import Measured
from dpb_gym.papers.quantities import QUANTITIES, quantity
from dpb_gym.papers.results import FigureResult
from dpb_gym.papers.verdicts import Judgement, PairedComparison, judge, verdict

__all__ = [
    "QUANTITIES",
    "Claim",
    "Curve",
    "Figure",
    "FigureResult",
    "FigureTable",
    "Judgement",
    "Measured",
    "PairedComparison",
    "Quantity",
    "Reproduction",
    "figure_files",
    "judge",
    "load_figures",
    "quantity",
    "reproduce",
    "targets",
    "verdict",
]
