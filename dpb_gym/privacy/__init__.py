"""Guarantees, accounting, the curator and its releasers; independent of bandits.

Names are imported lazily, on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.privacy.account import Account as Account
    from dpb_gym.privacy.account import SessionCharges as SessionCharges
    from dpb_gym.privacy.budget import Budget as Budget
    from dpb_gym.privacy.calibration import calibrate_scale as calibrate_scale
    from dpb_gym.privacy.calibration import equivalent_rho as equivalent_rho
    from dpb_gym.privacy.calibration import gaussian_sigma as gaussian_sigma
    from dpb_gym.privacy.calibration import textbook_epsilon as textbook_epsilon
    from dpb_gym.privacy.calibration import textbook_rho as textbook_rho
    from dpb_gym.privacy.certificate import Certificate as Certificate
    from dpb_gym.privacy.composition import Composition as Composition
    from dpb_gym.privacy.curator import Curator as Curator
    from dpb_gym.privacy.events import ApproxEvent as ApproxEvent
    from dpb_gym.privacy.events import Event as Event
    from dpb_gym.privacy.events import GaussianEvent as GaussianEvent
    from dpb_gym.privacy.events import LaplaceEvent as LaplaceEvent
    from dpb_gym.privacy.events import PoissonGaussianEvent as PoissonGaussianEvent
    from dpb_gym.privacy.events import PureEvent as PureEvent
    from dpb_gym.privacy.events import RandomizedResponseEvent as RandomizedResponseEvent
    from dpb_gym.privacy.events import SelectionEvent as SelectionEvent
    from dpb_gym.privacy.events import ShuffledBitsEvent as ShuffledBitsEvent
    from dpb_gym.privacy.events import ZCDPEvent as ZCDPEvent
    from dpb_gym.privacy.guarantee import Guarantee as Guarantee
    from dpb_gym.privacy.ledger import Ledger as Ledger
    from dpb_gym.privacy.noise import NoiseSource as NoiseSource
    from dpb_gym.privacy.noise import SystemNoise as SystemNoise
    from dpb_gym.privacy.objective_perturbation import (
        ObjectivePerturbation as ObjectivePerturbation,
    )
    from dpb_gym.privacy.objective_perturbation import (
        PerturbedObjectiveEvent as PerturbedObjectiveEvent,
    )
    from dpb_gym.privacy.objective_perturbation import objective_plan as objective_plan
    from dpb_gym.privacy.printed_calibrations import amplified_sigma_ru as amplified_sigma_ru
    from dpb_gym.privacy.printed_calibrations import objective_cs as objective_cs
    from dpb_gym.privacy.printed_calibrations import objective_cs_approx as objective_cs_approx
    from dpb_gym.privacy.printed_calibrations import objective_csw as objective_csw
    from dpb_gym.privacy.releasers.contributions import ContributionCap as ContributionCap
    from dpb_gym.privacy.releasers.contributions import LifetimeClip as LifetimeClip
    from dpb_gym.privacy.releasers.messages import CapMessage as CapMessage
    from dpb_gym.privacy.releasers.messages import GaussianMessage as GaussianMessage
    from dpb_gym.privacy.releasers.messages import SignMessage as SignMessage
    from dpb_gym.privacy.releasers.minimiser import LossMinimiser as LossMinimiser
    from dpb_gym.privacy.releasers.minimiser import Minimiser as Minimiser
    from dpb_gym.privacy.releasers.named_sums import AggregatedSum as AggregatedSum
    from dpb_gym.privacy.releasers.named_sums import BatchSum as BatchSum
    from dpb_gym.privacy.releasers.named_sums import DisjointSum as DisjointSum
    from dpb_gym.privacy.releasers.named_sums import LocalSum as LocalSum
    from dpb_gym.privacy.releasers.named_sums import RunningSum as RunningSum
    from dpb_gym.privacy.releasers.named_sums import ShuffledBatches as ShuffledBatches
    from dpb_gym.privacy.releasers.named_sums import ShuffledSum as ShuffledSum
    from dpb_gym.privacy.releasers.named_sums import UserSum as UserSum
    from dpb_gym.privacy.releasers.named_sums import WeightedSum as WeightedSum
    from dpb_gym.privacy.releasers.record_bounds import Ball as Ball
    from dpb_gym.privacy.releasers.record_bounds import NonNegativeBall as NonNegativeBall
    from dpb_gym.privacy.releasers.record_bounds import PSDBall as PSDBall
    from dpb_gym.privacy.releasers.record_bounds import RecordShape as RecordShape
    from dpb_gym.privacy.releasers.record_bounds import Segment as Segment
    from dpb_gym.privacy.releasers.release_schedule import ReleaseModel as ReleaseModel
    from dpb_gym.privacy.releasers.release_schedule import Schedule as Schedule
    from dpb_gym.privacy.releasers.releaser import Releaser as Releaser
    from dpb_gym.privacy.releasers.secure_aggregation import SecureAggregator as SecureAggregator
    from dpb_gym.privacy.releasers.secure_aggregation import (
        SimulatedAggregator as SimulatedAggregator,
    )
    from dpb_gym.privacy.releasers.sums import Sum as Sum
    from dpb_gym.privacy.shuffler import CountingShuffler as CountingShuffler
    from dpb_gym.privacy.shuffler import Shuffler as Shuffler

__all__, __getattr__, __dir__ = lazy_names(__name__)
