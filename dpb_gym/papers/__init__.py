"""Reproduction of papers' figures: suites and claims as data, verdicts computed.

A figure is a YAML file whose keys are documented in `Figure`. Claims compare quantities: functions
registered with `quantity`. Other packages may add both (see `figure_files`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.papers.claims import Claim as Claim
    from dpb_gym.papers.claims import FigureTable as FigureTable
    from dpb_gym.papers.claims import Quantity as Quantity
    from dpb_gym.papers.curves import Curve as Curve
    from dpb_gym.papers.figure_result import FigureResult as FigureResult
    from dpb_gym.papers.figure_spec import Figure as Figure
    from dpb_gym.papers.figure_spec import figure_files as figure_files
    from dpb_gym.papers.figure_spec import load_figures as load_figures
    from dpb_gym.papers.pairing import Measured as Measured
    from dpb_gym.papers.quantities import QUANTITIES as QUANTITIES
    from dpb_gym.papers.quantities import quantity as quantity
    from dpb_gym.papers.reproduction import Reproduction as Reproduction
    from dpb_gym.papers.reproduction import forecast_figures as forecast_figures
    from dpb_gym.papers.reproduction import reproduce as reproduce
    from dpb_gym.papers.theorems import Bounds as Bounds
    from dpb_gym.papers.theorems import bounds as bounds
    from dpb_gym.papers.verdicts import Judgement as Judgement
    from dpb_gym.papers.verdicts import PairedComparison as PairedComparison
    from dpb_gym.papers.verdicts import judge as judge
    from dpb_gym.papers.verdicts import verdict as verdict

__all__, __getattr__, __dir__ = lazy_names(__name__)
