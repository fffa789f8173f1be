"""Guarantees, accounting and releasers. Knows nothing of bandits.

Everything is loaded on first use, so importing this package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.privacy.budget import Budget
    from dpb_gym.privacy.calibration import (
        Release,
        calibrate,
        calibrate_scale,
        equivalent_rho,
        fit_rho,
        gaussian_sigma,
        textbook_epsilon,
        textbook_rho,
    )
    from dpb_gym.privacy.composition import Composition
    from dpb_gym.privacy.contributions import ContributionCap, LifetimeClip, UserClippedSum
    from dpb_gym.privacy.events import (
        ApproxEvent,
        Event,
        GaussianEvent,
        LaplaceEvent,
        PoissonGaussianEvent,
        PureEvent,
        RandomizedResponseEvent,
        ZCDPEvent,
    )
    from dpb_gym.privacy.guarantee import Guarantee
    from dpb_gym.privacy.ledger import Entry, Ledger
    from dpb_gym.privacy.noise import NoiseSource
    from dpb_gym.privacy.objective import (
        ObjectivePerturbation,
        PerturbedObjectiveEvent,
        calibrate_objective,
    )
    from dpb_gym.privacy.papers import (
        amplified_sigma_ru,
        objective_cs,
        objective_cs_approx,
        objective_csw,
    )
    from dpb_gym.privacy.releasers.base import Releaser
    from dpb_gym.privacy.releasers.bounds import Ball, Bound, PSDBall, Segment
    from dpb_gym.privacy.releasers.continual import ContinualSum
    from dpb_gym.privacy.releasers.exact import ExactSum
    from dpb_gym.privacy.releasers.gaussian import GaussianSum
    from dpb_gym.privacy.releasers.minimiser import ExactMinimiser, PerturbedMinimiser, minimise
    from dpb_gym.privacy.releasers.weighted import Combinations, Schedule, WeightedSum
    from dpb_gym.privacy.secure import SecureNoise

_HOMES = {
    "budget": ("Budget",),
    "calibration": (
        "Release",
        "calibrate",
        "calibrate_scale",
        "equivalent_rho",
        "fit_rho",
        "gaussian_sigma",
        "textbook_epsilon",
        "textbook_rho",
    ),
    "composition": ("Composition",),
    "contributions": ("ContributionCap", "LifetimeClip", "UserClippedSum"),
    "events": (
        "ApproxEvent",
        "Event",
        "GaussianEvent",
        "LaplaceEvent",
        "PoissonGaussianEvent",
        "PureEvent",
        "RandomizedResponseEvent",
        "ZCDPEvent",
    ),
    "guarantee": ("Guarantee",),
    "ledger": ("Entry", "Ledger"),
    "noise": ("NoiseSource",),
    "objective": ("ObjectivePerturbation", "PerturbedObjectiveEvent", "calibrate_objective"),
    "papers": ("amplified_sigma_ru", "objective_cs", "objective_cs_approx", "objective_csw"),
    "releasers.base": ("Releaser",),
    "releasers.bounds": ("Ball", "Bound", "PSDBall", "Segment"),
    "releasers.continual": ("ContinualSum",),
    "releasers.exact": ("ExactSum",),
    "releasers.gaussian": ("GaussianSum",),
    "releasers.weighted": ("Combinations", "Schedule", "WeightedSum"),
    "releasers.minimiser": ("ExactMinimiser", "PerturbedMinimiser", "minimise"),
    "secure": ("SecureNoise",),
}

__all__ = [
    "ApproxEvent",
    "Ball",
    "Bound",
    "Budget",
    "Combinations",
    "Composition",
    "ContinualSum",
    "ContributionCap",
    "Entry",
    "Event",
    "ExactMinimiser",
    "ExactSum",
    "GaussianEvent",
    "GaussianSum",
    "Guarantee",
    "LaplaceEvent",
    "Ledger",
    "LifetimeClip",
    "NoiseSource",
    "ObjectivePerturbation",
    "PSDBall",
    "PerturbedMinimiser",
    "PerturbedObjectiveEvent",
    "PoissonGaussianEvent",
    "PureEvent",
    "RandomizedResponseEvent",
    "Release",
    "Releaser",
    "Schedule",
    "SecureNoise",
    "Segment",
    "UserClippedSum",
    "WeightedSum",
    "ZCDPEvent",
    "amplified_sigma_ru",
    "calibrate",
    "calibrate_objective",
    "calibrate_scale",
    "equivalent_rho",
    "fit_rho",
    "gaussian_sigma",
    "minimise",
    "objective_cs",
    "objective_cs_approx",
    "objective_csw",
    "textbook_epsilon",
    "textbook_rho",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
