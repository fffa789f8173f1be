"""AdaPrivate-UCB in plain NumPy, for one customer stream, to be read from top to bottom.

The UCB agent that Riyazat & Ukwatta compare AdaPrivate-TS with (arXiv:2606.21757): Algorithm 1
with an upper confidence bound in place of lines 7 to 9. Comments give the paper's line and
equation numbers and its symbols. Labels like R1 are rows of docs/errata.md. The agent
`adaprivate-ucb` computes the same for many replicates at once, with compiled kernels.
"""

from __future__ import annotations

import math

import numpy as np

import dpb_gym
from dpb_gym.agent import unsuitable
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import equivalent_rho, gaussian_sigma, textbook_rho


@dpb_gym.register_agent(
    "reference-adaprivate-ucb",
    supports=["recommendation"],
    protects=("central", "reward"),
    budget="required",
    partial_feedback=False,
)
class ReferenceAdaPrivateUCB(dpb_gym.SingleAgent):
    """AdaPrivate-UCB in plain NumPy, to read and to test `adaprivate-ucb` with.

    It is `adaprivate-ucb` with ``intercept=0``, ``gamma=None`` and ``window=None``, and needs
    feedback in every round.

    Args:
        ridge: lambda, > 0.
        batch: B, rounds between two releases, >= 1.
        centre: Subtract the middle of the rewards' range (R9).
        prior_mean: theta_0, ``(d,)``. None: the mean of `ProblemInfo.prior`, or zeros.
        alpha: Width of the bonus, >= 0.
        calibration: ``"verified"``: noise of the exact Gaussian mechanism; ``"paper"``: Eq. 2.8.

    Raises:
        ParameterError: If the rewards are not bounded.
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
        self.ridge, self.B, self.centre, self.theta_0 = ridge, batch, centre, prior_mean
        self.alpha, self.calibration = alpha, calibration

    def begin(self):
        """Lines 1 to 3."""
        problem, d = self.problem, self.problem.dim
        if problem.kind != "recommendation":
            raise unsuitable("reference-adaprivate-ucb", problem, "recommendation")
        low, high = problem.reward_range
        if not math.isfinite(high - low):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
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
        self.count = 0

    def act(self, context):
        """Play the largest <x, theta> + alpha ||x||_{A^-1}, theta = A^-1 b."""
        x = context.features.astype(float)
        theta = np.linalg.solve(self.A, self.b)
        norm = np.sqrt((x * np.linalg.solve(self.A, x.T).T).sum(axis=1))  # ||x||_{A^-1}
        scores = x @ theta + self.alpha * norm  # candidates are compared unclipped
        if context.available is not None and context.available.any():
            scores[~context.available] = -np.inf
        return int(scores.argmax())

    def observe(self, context, action, feedback):
        """Lines 10 to 17; the raw reward goes to the curator's sums only."""
        x = context.features[action].astype(float)
        x = x / max(1.0, np.linalg.norm(x))  # line 5
        self.A = self.A + np.outer(x, x)  # line 11
        self.sums.add(feedback.reward - self.shift, along=x)  # line 12
        self.count += 1  # line 13
        if self.count == self.B:  # lines 14 to 16
            self.b = self.b_0 + self.sums.release()
            self.count = 0
