"""What the private maximum-likelihood estimators of all models share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpb_gym.errors import BudgetExceeded, ParameterError
from dpb_gym.problems.base import Array

if TYPE_CHECKING:
    from dpb_gym.privacy import Ledger, NoiseSource
    from dpb_gym.privacy.objective import ObjectivePerturbation


class PrivateEstimator(ABC):
    """Objective perturbation on stored records, released replicate by replicate.

    All `updates` releases are charged when the releaser is made and their noise is drawn then,
    because replicates ask at times of their own. A subclass stores records and minimises.

    Args:
        plan: Ridge, noise, tolerance and cost of one release.
        updates: Largest number of releases per replicate.
        replicates: Number of replicates B.
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
        noise: NoiseSource,
        ledger: Ledger,
    ) -> None:
        self.plan = plan
        self.updates = updates
        ledger.charge(replace(plan.event, count=updates), what=f"{updates} private MLEs")
        self._draws = noise.spawn().normal((updates, 2, plan.dim))
        self._calls = np.zeros(replicates, np.int64)
        self._released = np.zeros((replicates, plan.dim))
        self._minimiser = np.zeros((replicates, plan.dim))
        self._linear = np.zeros((replicates, plan.dim))
        self._curvature = np.zeros((replicates, plan.dim, plan.dim))
        self._norm = np.zeros(replicates)

    @abstractmethod
    def _fit(self, due: Array, lanes: Array) -> None:
        """Puts the perturbed minimisers of `lanes` (where `due`) into ``_minimiser``, and the
        norms of the gradients that are left into ``_norm``."""

    def _finish(self, found: Array) -> Array:
        """What is made of the noisy minimisers before they leave: post-processing."""
        return found

    def release(self, due: Array) -> Array:
        """Private estimates ``(B, d)``, renewed where `due`.

        Raises:
            BudgetExceeded: If a replicate has used all its releases; nothing is released.
            ParameterError: If the minimiser misses the tolerance; nothing is released.
        """
        if (self._calls[due] >= self.updates).any():
            raise BudgetExceeded(f"all {self.updates} private MLEs of a replicate are used up")
        lanes = np.flatnonzero(due)
        draws = self._draws[lanes, self._calls[lanes]]
        self._linear[lanes] = self.plan.sigma * draws[:, 0]
        self._fit(due, lanes)
        if not (self._norm[lanes] <= self.plan.tolerance).all():
            raise ParameterError(
                f"Newton's method stopped at gradient norm {self._norm[lanes].max():.3g}, above "
                f"the tolerance {self.plan.tolerance:.3g}; nothing was released"
            )
        self._calls[lanes] += 1
        found = self._minimiser[lanes] + self.plan.output_std * draws[:, 1]
        self._released[lanes] = self._finish(found)
        return self._released.copy()
