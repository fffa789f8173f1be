"""AdaPrivate-TS in plain NumPy, for one customer stream: an independent edition to test against.

Riyazat & Ukwatta, "AdaPrivate-TS: Private Thompson Sampling for Contextual Bandits with Privacy
Amplification", arXiv:2606.21757, Algorithm 1. Comments give the paper's line and equation numbers
and its symbols. Labels like R1 are rows of docs/errata.md. Tests compare the agent `adaprivate-ts`
with it.
"""

from __future__ import annotations

import math

import numpy as np

import dpb_gym
from dpb_gym import portable
from dpb_gym.privacy import equivalent_rho, gaussian_sigma, textbook_rho


class AdaPrivateTSOracle(dpb_gym.SingleAgent):
    """AdaPrivate-TS (Riyazat & Ukwatta) in plain NumPy.

    It is `adaprivate-ts` with ``intercept=0``, ``gamma=None`` and ``window=None``, and needs
    feedback in every round.

    Args:
        ridge: lambda, > 0.
        batch: B, rounds between two releases, >= 1.
        centre: Subtract the middle of the rewards' range (R9).
        prior_mean: theta_0, ``(d,)``. None: the mean of `ProblemInfo.prior`, or zeros.
        v: v_1, width of the first batch's draws, >= 0. None: the width of section 4.2.
        decay: gamma, factor of the width from batch to batch, in (0, 1].
        calibration: ``"verified"``: noise of the exact Gaussian mechanism; ``"paper"``: Eq. 2.8.
    """

    protects = ("central", "reward")

    def __init__(
        self,
        ridge=1.0,
        batch=300,
        centre=False,
        prior_mean=None,
        v=1.0,
        decay=1.0,
        calibration="verified",
    ):
        self.ridge, self.B, self.centre, self.theta_0 = ridge, batch, centre, prior_mean
        self.v, self.decay, self.calibration = v, decay, calibration

    def begin(self):
        """Lines 1 to 3."""
        problem, d = self.problem, self.problem.dim
        low, high = problem.reward_range
        self.shift = (low + high) / 2 if self.centre else 0.0
        # Lines 1 and 2. Two rewards of a round differ by at most Delta_2 = high - low. By default
        # the curator computes the least sigma of the budget; Eq. 2.8 is larger, but valid (R1).
        sigma = None
        if self.calibration == "paper":
            budget, rho = self.curator.budget, equivalent_rho(self.curator.budget)
            if budget.epsilon is not None:
                rho = textbook_rho(budget.epsilon, budget.delta)  # Eq. 2.8
            sigma = gaussian_sigma(rho, high - low)  # Eq. 2.6, rounded up
            self.curator.as_printed("RU, Eq. 2.8 and 3.6")
        # b grows by one noisy batch at a time, and so does its noise (line 15, R5).
        self.sums = self.curator.batch_sum(
            d, reward=(low - self.shift, high - self.shift), sigma=sigma, cumulative=True
        )
        # Line 3. A prior of known precision P counts like s^2 P more of A, s = (high - low) / 2.
        prior, self.A = problem.prior, self.ridge * np.eye(d)
        if prior is not None and self.theta_0 is None:
            self.theta_0 = prior.centre
            if prior.precision is not None:
                self.A += ((high - low) / 2) ** 2 * np.array(prior.precision)
        theta_0 = np.zeros(d) if self.theta_0 is None else np.asarray(self.theta_0, float)
        self.b_0 = self.b = self.A @ theta_0
        self.count, self.k = 0, 1

    def act(self, context):
        """Return the candidate of the largest score, line 9; candidates are compared unclipped."""
        return int(self.scores(context.features.astype(float)).argmax())

    def scores(self, x):
        """Return <x, theta> of candidates for a draw theta, lines 7 to 9."""
        d = self.problem.dim
        if self.v is None:  # section 4.2, with lambda_0 = 1 / d as on the unit sphere
            self.v = 1 + self.sums.sigma / (d * math.sqrt(1 / d))
        v_k = self.v * self.decay ** (self.k - 1)  # line 16, section 3.3
        L_A = np.linalg.cholesky(self.A)  # line 7
        # Line 8: a draw from N(A^-1 b, v_k^2 A^-1), Eq. 2.9
        xi = portable.normals(self.rng, d)
        theta = np.linalg.solve(L_A.T, np.linalg.solve(L_A, self.b) + v_k * xi)
        return x @ theta

    def observe(self, context, action, feedback):
        """Lines 10 to 17; the raw reward goes to the curator's sums only."""
        x = context.features[action].astype(float)
        x = x / max(1.0, np.linalg.norm(x))  # line 5
        self.A = self.A + np.outer(x, x)  # line 11
        self.sums.add(feedback.reward - self.shift, along=x)  # line 12
        self.count += 1  # line 13
        if self.count == self.B:  # lines 14 to 16
            self.b = self.b_0 + self.sums.release()
            self.count, self.k = 0, self.k + 1
