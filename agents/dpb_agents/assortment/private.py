"""The private maximum-likelihood releaser of the multinomial logit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpb_agents.assortment.records import ChoiceRecords
from dpb_gym import kernels
from dpb_gym.errors import BudgetExceeded, ParameterError

if TYPE_CHECKING:
    from dpb_gym.privacy import Ledger, NoiseSource
    from dpb_gym.privacy.objective import ObjectivePerturbation

Array = NDArray[Any]

GRADIENT_BOUND = 2.0  # ||x|| <= 1, outside option (CS, section S.1.3)
CURVATURE = 1.0  # trace of a record's Hessian, the covariance of vectors in the ball (A3)


class PrivateMLE:
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
        self.plan = plan
        self.updates = updates
        ledger.charge(replace(plan.event, count=updates), what=f"{updates} private MLEs")
        self.records = ChoiceRecords(replicates, slots, plan.dim, horizon, clip=True)
        self._draws = noise.spawn().normal((updates, 2, plan.dim))
        self._calls = np.zeros(replicates, np.int64)
        self._released = np.zeros((replicates, plan.dim))
        self._minimiser = np.zeros((replicates, plan.dim))
        self._linear = np.zeros((replicates, plan.dim))
        self._hessian = np.zeros((replicates, plan.dim, plan.dim))
        self._norm = np.zeros(replicates)

    def add(self, features: Array, slates: Array, choice: Array) -> None:
        """Clips and stores one record per replicate; see `Estimator.add`."""
        self.records.add(features, slates, choice)

    def release(self, due: Array) -> Array:
        """Private estimates ``(B, d)``, renewed where `due`.

        Raises:
            BudgetExceeded: If a replicate has used all its releases; nothing is released.
            ParameterError: If Newton's method misses the tolerance; nothing is released.
        """
        if (self._calls[due] >= self.updates).any():
            raise BudgetExceeded(f"all {self.updates} private MLEs of a replicate are used up")
        lanes = np.flatnonzero(due)
        draws = self._draws[lanes, self._calls[lanes]]
        self._linear[lanes] = self.plan.sigma * draws[:, 0]
        records = self.records
        kernels.mnl_fit.newton(
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
            self._hessian,
            np.zeros(len(due), np.int64),
            self._norm,
        )
        if not (self._norm[lanes] <= self.plan.tolerance).all():
            raise ParameterError(
                f"Newton's method stopped at gradient norm {self._norm[lanes].max():.3g}, above "
                f"the tolerance {self.plan.tolerance:.3g}; nothing was released"
            )
        self._calls[lanes] += 1
        self._released[lanes] = self._minimiser[lanes] + self.plan.output_std * draws[:, 1]
        return self._released.copy()
