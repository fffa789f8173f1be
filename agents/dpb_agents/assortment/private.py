"""The private maximum-likelihood releaser of the multinomial logit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpb_agents import kernels as zoo
from dpb_agents.assortment.records import ChoiceRecords
from dpb_agents.common.private_mle import PrivateEstimator

if TYPE_CHECKING:
    from dpb_gym.privacy import Ledger, NoiseSource
    from dpb_gym.privacy.objective import ObjectivePerturbation

Array = NDArray[Any]

GRADIENT_BOUND = 2.0  # ||x|| <= 1, outside option (CS, section S.1.3)
CURVATURE = 1.0  # trace of a record's Hessian, the covariance of vectors in the ball (A3)


class PrivateMLE(PrivateEstimator):
    """Objective perturbation of the multinomial logit, released replicate by replicate.

    Features are moved into the unit ball before they are stored, so the bounds that `plan`
    assumes hold for every record (erratum A8). All `updates` releases are charged when the
    releaser is made and their noise is drawn then, because replicates ask at times of their
    own.

    Args:
        plan: Ridge, noise, tolerance and cost of one release.
        updates: Largest number of releases per replicate.
        replicates: Number of replicates B.
        slots: Largest size of a slate, K.
        horizon: Largest number of records per replicate.
        noise: Source of the noise; the releaser spawns its own stream from it.
        ledger: Charged here, once, for all releases.

    Raises:
        BudgetExceeded: If the ledger refuses.
    """

    def __init__(
        self,
        plan: ObjectivePerturbation,
        updates: int,
        replicates: int,
        slots: int,
        horizon: int,
        noise: NoiseSource,
        ledger: Ledger,
    ) -> None:
        super().__init__(plan, updates, replicates, noise, ledger)
        self.records = ChoiceRecords(replicates, slots, plan.dim, horizon, clip=True)

    def add(self, features: Array, slates: Array, choice: Array) -> None:
        """Clips and stores one record per replicate; see `Estimator.add`."""
        self.records.add(features, slates, choice)

    def _fit(self, due: Array, lanes: Array) -> None:
        records = self.records
        zoo.choices.newton(
            records.x,
            records.offered,
            records.chosen,
            records.count,
            due,
            self.plan.ridge,
            self._linear,
            0.0,
            self.plan.tolerance,
            self._minimiser,
            self._curvature,
            np.zeros(len(due), np.int64),
            self._norm,
        )
