"""AdaPrivate-UCB in plain NumPy, for one customer stream: an independent edition to test against.

The UCB agent that Riyazat & Ukwatta compare AdaPrivate-TS with (arXiv:2606.21757): Algorithm 1
with an upper confidence bound in place of lines 7 to 9. The other lines are in
`adaprivate_ts_oracle.py`. Tests compare the agent `adaprivate-ucb` with it.
"""

from __future__ import annotations

import numpy as np

from tests.agents.reference.adaprivate_ts_oracle import AdaPrivateTSOracle


class AdaPrivateUCBOracle(AdaPrivateTSOracle):
    """AdaPrivate-UCB in plain NumPy.

    It is `adaprivate-ucb` with ``intercept=0``, ``gamma=None`` and ``window=None``, and needs
    feedback in every round.

    Args:
        ridge: lambda, > 0.
        batch: B, rounds between two releases, >= 1.
        centre: Subtract the middle of the rewards' range (R9).
        prior_mean: theta_0, ``(d,)``. None: the mean of `ProblemInfo.prior`, or zeros.
        alpha: Width of the bonus, >= 0.
        calibration: ``"verified"``: noise of the exact Gaussian mechanism; ``"paper"``: Eq. 2.8.
    """

    def __init__(
        self,
        ridge=1.0,
        batch=300,
        centre=False,
        prior_mean=None,
        alpha=1.0,
        calibration="verified",
    ):
        super().__init__(ridge, batch, centre, prior_mean, calibration=calibration)
        self.alpha = alpha

    def act(self, context):
        """Return the candidate of the largest bound. Of equal arms each has the same chance."""
        scores = self.scores(context.features.astype(float))
        if not self.problem.fixed_arms:
            return int(scores.argmax())
        best = np.flatnonzero(scores == scores.max())
        return int(best[int(self.rng.random() * len(best))])

    def scores(self, x):
        """Return <x, theta> + alpha ||x||_{A^-1} of candidates, theta = A^-1 b."""
        norm = np.sqrt((x * np.linalg.solve(self.A, x.T).T).sum(axis=1))  # ||x||_{A^-1}
        return x @ np.linalg.solve(self.A, self.b) + self.alpha * norm
