"""One-pass linear with private contexts in plain NumPy, for one customer stream.

docs/agents/one-pass-linear.md derives every formula. Tests compare the agent
`one-pass-linear-joint` with it.

A record is the vector v of the chosen candidate, |v| <= 1, and the centred reward s in
[-1/2, 1/2], in units of the range w: E s = <v, t>, t = sqrt(1 + b^2) / w [theta; level / b]. The
length l of a candidate is relative to those of its round, until a typical length is known: where it
is below 1 the slopes of v are multiplied by it, else s is divided by it. What is released is the
row (w_H half of v v', w_u s v, w_l q), with the mean log length q of the round's candidates in
[-1/2, 1/2], as long as it is not known. Two rows differ by at most 1, so that a whole round,
context and reward, is protected.
"""

from __future__ import annotations

import math

import numpy as np

from tests.agents.reference.one_pass_linear_oracle import OnePassLinearOracle


class OnePassLinearJointOracle(OnePassLinearOracle):
    """`one-pass-linear-joint` by another derivation: matrices, and one replicate.

    It is `one-pass-linear-joint` with ``anytime=False`` and ``max_rounds_per_user=None``. Where
    every round offers the same arms, contexts are public, and it is `OnePassLinearOracle` on the
    records of this agent.

    Args:
        norm: See `OnePassLinearOracle`.
        intercept: See `OnePassLinearOracle`.
        first: See `OnePassLinearOracle`.
        ratio: See `OnePassLinearOracle`.
        prior_mean: See `OnePassLinearOracle`; its length is learnt.
        curvature: w_H^2 / w_u^2, > 0.
        length: Typical length of a candidate, if it is public, else it is learnt.
    """

    protects = ("joint", "user-round")

    def __init__(
        self,
        norm=1.5,
        intercept=0.35,
        first=0.07,
        ratio=1.1,
        prior_mean=None,
        curvature=0.2,
        length=None,
    ):
        super().__init__(norm, intercept, first, ratio, effect=0.0, prior_mean=prior_mean)
        self.curvature, self.length = curvature, length

    def direction(self, x, action):
        """Return z of the chosen candidate."""
        return self.contrast(x)[action]

    def contrast(self, x):
        """Return all z = x - kappa xbar, without what the round's candidates share.

        kappa = (1 - (1 + 2 / d) s^2 / |xbar|^2)_+, at most 1 - 1 / m, shrinks xbar like James and
        Stein: s^2 is what |xbar|^2 is by chance, up to a relative variance of 2 / d.
        """
        xbar, m = x.mean(axis=0), len(x)
        if m == 1 or not xbar.any():
            return x
        s2 = ((x - xbar) ** 2).sum() / (m * (m - 1))
        kappa = 1 - (1 + 2 / self.d) * s2 / (xbar @ xbar)
        return x - min(max(kappa, 0.0), 1 - 1 / m) * xbar

    def open(self):
        """Make the releaser and the prior of t."""
        if self.problem.fixed_arms:
            super().open()
            return
        d, b, n = self.d, self.intercept, self.d + 1
        # |row - row'|^2 increases in |v| and |v'| given g = <v, v'>, so it is at most that of unit
        # vectors: <= 2 w_H^2 (1 - g^2) + w_u^2 (1 + |g|) / 2, largest at
        # |g| = 1 for w_H^2 <= w_u^2 / 8, else at |g| = w_u^2 / (8 w_H^2). The weights make it 1.
        h = self.curvature
        largest = 1.0 if h <= 1 / 8 else 2 * h + 1 / 2 + 1 / (32 * h)
        # |row - row'|^2 of the lengths is at most w_l^2.
        self.w_l = 0.0 if self.length else math.sqrt(0.02)
        largest /= 1 - self.w_l**2
        self.w_H, self.w_u = math.sqrt(h / largest), math.sqrt(1 / largest)
        # A prior mean belongs to x and t to x / |x|, so it counts times a factor that is uniform
        # in [0, 1], of mean 1/2 and variance 1/12.
        self.scale = np.append(np.ones(d), 1 / b) * math.sqrt(1 + b**2) / self.w
        self.t_0 = self.theta * self.scale / 2
        self.Sigma = self.variance * np.diag(self.scale**2) + np.outer(self.t_0, self.t_0) / 3
        # Noise of variance s^2 per entry of the half of H is one of s^2 `bent` per coordinate of
        # H t: (1 + 1 / n) / 2 of |t|^2.
        size = np.trace(self.Sigma[:d, :d]) + self.t_0 @ self.t_0
        self.bent = (1 + 1 / n) / 2 * size / self.w_H**2
        self.unit_noise = math.sqrt(1 / self.w_u**2 + self.bent)
        self.sums = self.curator.weighted_sum(
            n * (n + 1) // 2 + n + bool(self.w_l),
            sensitivity=1.0,
            clip=2.0 if self.curator.private else None,  # of no effect: rows have norm 1 at most
            schedule=lambda sigma: self.schedule(
                sigma, self.unit_noise * math.sqrt(1 + b**2) * self.w
            ),
            what="running sums of curvature and response",
        )
        self.releases, self.upper = [], np.triu_indices(n)
        self.root2 = np.where(self.upper[0] == self.upper[1], 1, math.sqrt(2))

    def observe(self, context, action, feedback):
        """Hand the round to the curator's sums."""
        if self.problem.fixed_arms:
            super().observe(context, action, feedback)
            return
        (_, v), q = self.record(context, action), 0.0
        s = min(max((feedback.reward - self.c) / self.w, -0.5), 0.5)
        if v.any():
            squares = (self.contrast(context.features.astype(float)) ** 2).sum(axis=1)
            relative = math.sqrt(squares[action]) / (self.length or math.sqrt(squares.mean()))
            if not self.length:  # those from 2^-8 to 2^8 differ in q
                squares = np.maximum(squares, np.finfo(float).tiny)
                q = (np.log2(squares) / 2 / 16).clip(-0.5, 0.5).mean()
            v[: self.d] *= min(1.0, relative)
            s /= max(1.0, relative)
        half = self.root2 * np.outer(v, v)[self.upper]
        row = np.concatenate([self.w_H * half, self.w_u * s * v, [self.w_l * q]])
        self.sums.add(row[: self.sums.shape.width])
        k, t = self.sums.releases - 1, self.sums.rounds
        if k >= 0 and t == self.sums.schedule.ends[k]:
            self.releases.append(self.sums.value)
            self.theta = self.posterior_mean(*self.combination(k, t)) / self.scale

    def combination(self, k, t):
        """Return the best estimate of the row's sum over t rounds, by generalised least squares.

        Also its noise per coordinate, and the mean squared weight of its records.
        """
        sums, sigma = self.sums, self.sums.sigma
        if sigma == 0:
            return self.releases[-1], 0.0, 1.0, t
        a, b = sums.schedule.scales[: k + 1], sums.schedule.weights[: k + 1]
        sizes = sums.schedule.sizes[: k + 1]
        exposure = np.tril(np.ones((k + 1, k + 1))) * b  # weight of batch j in release i
        covariance = 0.25 / self.d * (exposure * sizes) @ exposure.T
        covariance += np.diag((sigma * self.unit_noise / a) ** 2)
        alpha = np.linalg.solve(covariance, exposure @ sizes)
        alpha *= t / (alpha @ exposure @ sizes)
        noise = sigma * np.linalg.norm(alpha / a)
        uneven = (alpha @ exposure) ** 2 @ sizes / t
        return alpha @ np.array(self.releases), noise, uneven, t

    def posterior_mean(self, row, noise, uneven, t):
        """Return E[t | row]: the response u is H t + e, and the noise of H is shrunk first."""
        d, n, m = self.d, self.d + 1, (self.d + 1) * (self.d + 2) // 2
        if not self.length:
            # log2 of a length, with the variance of the noise and of q; a tenth is known enough
            log2_length = 16 * row[-1] / self.w_l / t
            variance = (16 * noise / self.w_l / t) ** 2 + 1 / t
            if variance <= 0.14**2 and abs(log2_length) <= 7:
                self.length = 2.0**log2_length
        u, s = row[m : m + n] / self.w_u, noise / self.w_H
        H = np.zeros((n, n))
        H[self.upper] = row[:m] / self.w_H / self.root2
        H = H + np.triu(H, 1).T
        # The constant's entry is known. The trace of the slopes' block is a share of the largest,
        # taken as uniform in [0, 1], of mean 1/2 and variance 1/12.
        most = t / (1 + self.intercept**2)
        level, c = t - most, H[d, :d]
        share = (np.trace(H[:d, :d]) / most - 0.5) / (1 + 12 * d * (s / most) ** 2) + 0.5
        trace = min(max(share, 1e-3), 1.0) * most
        # The cross term, shrunk by its expected noise d s^2 / 2; |c|^2 <= level trace.
        if c.any():
            factor = max(0.0, 1 - d * s**2 / 2 / (c @ c))
            c = min(factor, math.sqrt(level * trace / (c @ c))) * c
        # The Schur complement: its trace follows, its deviation D from even is shrunk likewise.
        cut = np.outer(c, c) / level
        even = (trace - np.trace(cut)) / d * np.eye(d)
        D = H[:d, :d] - cut
        D = D - np.trace(D) / d * np.eye(d)
        left = 0.0
        if D.any():
            left = max(0.0, 1 - (d * (d + 1) / 2 - 1) * s**2 / (D**2).sum())
        values, vectors = np.linalg.eigh(even + left * D)
        H = np.block([[vectors * values.clip(0) @ vectors.T + cut, c[:, None]], [c, level]])
        # Var e: the responses' own, the noise of u, and what is left of the noise of H, times t.
        e = max((noise / self.w_u) ** 2, 1e-6 * t) + left * noise**2 * self.bent
        covariance = H @ self.Sigma @ H + 0.25 * uneven * H + e * np.eye(n)
        return self.t_0 + self.Sigma @ H @ np.linalg.solve(covariance, u - H @ self.t_0)
