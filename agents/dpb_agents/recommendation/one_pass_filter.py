"""The exact posterior of theta given noisy weighted sums of rewards whose features are public."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class RewardFilter:
    """Kalman filter of (theta, weighted reward sum), release after release.

    A reward is r = <phi, theta> + e, Var e = `spread`; what is released is the weighted sum
    S = sum b_j sum_t r_t z_t plus noise. The filter knows the public sums of z phi' and z z' of
    every batch, so it is the posterior mean of theta for Gaussian rewards, whatever z is and
    however the information is spread over batches and directions.

    Args:
        replicates: Number of replicates B.
        prior: Prior variances of theta, ``(n,)``.
        width: Length m of z.
        spread: Variance of a reward around its mean.
        independent: Whether every release has noise of its own. If not (continual sums),
            only the newest release is used, as if it were the first.

    Attributes:
        gram: Sum of z phi' since the last release ``(B, m, n)``; add to it.
        own: Sum of z z' since the last release ``(B, m, m)``; add to it.
    """

    def __init__(
        self, replicates: int, prior: Array, width: int, spread: float, *, independent: bool
    ) -> None:
        n = len(prior)
        self._prior, self._spread, self._independent = prior, spread, independent
        self.gram = np.zeros((replicates, width, n))
        self.own = np.zeros((replicates, width, width))
        self._mean = np.empty((replicates, n + width))
        self._covariance = np.empty((replicates, n + width, n + width))
        self._reset()

    def _reset(self) -> None:
        self._mean[:] = 0.0
        self._covariance[:] = 0.0
        n = len(self._prior)
        self._covariance[:, range(n), range(n)] = self._prior

    def take(self, release: Array, weight: float, noise_std: float) -> Array:
        """Takes the release that closes a batch; returns the posterior mean ``(B, n)``.

        Args:
            release: ``(B, m)``.
            weight: Of the batch's records, b_j.
            noise_std: Standard deviation of the release's noise, > 0.
        """
        from dpb_gym.kernels import one_pass_linear

        if not self._independent:
            self._reset()
        one_pass_linear.filter_predict(
            self._mean, self._covariance, self.gram, self.own, weight, self._spread
        )
        one_pass_linear.filter_update(self._mean, self._covariance, release, noise_std**2)
        if self._independent:
            self.gram[:] = 0.0
            self.own[:] = 0.0
        return self._mean[:, : len(self._prior)].copy()
