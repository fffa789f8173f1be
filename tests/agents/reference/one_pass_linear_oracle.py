"""One-pass linear in plain NumPy, for one customer stream.

docs/agents/one-pass-linear.md derives every formula. Tests compare the agent `one-pass-linear`
with it.

A reward r in a range of length w around c has E r = c + m(u), m(u) = w (sigmoid(4 u / w) - 1/2), of
the linear predictor u = <x, theta> + level + <xbar, gamma>; xbar is the mean of the round's
candidates. Contexts and actions are public. What is released is sum (r - c) v, v a public unit
vector, so one reward moves the sum by at most w. Either the sum has normal noise, or r - c is
replaced by one of two opposite numbers, of mean r - c, and sums of batches are released.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

import dpb_gym
from dpb_gym import portable
from dpb_gym.privacy import ReleaseModel, Schedule


def release_rounds(T, first, ratio):
    """Return the rounds of the releases, which grow by `ratio`; none at the end of round T."""
    ends = [min(T, max(1, round(first)))]
    while ends[-1] < T:
        ends.append(min(T, max(ends[-1] + 1, round(ends[-1] * ratio))))
    return np.array(ends[:-1] or ends)


def best_schedule(ends, T, noise, spread, prior):
    """Return the schedule that minimises a model of the greedy policy's regret.

    Release i is sum_{j <= i} b_j (batch j) + N(0, sigma^2 / a_i^2). Releases 1..k determine a
    coordinate of theta up to the variance v_k = noise^2 / P_k + spread / t_k,
    P_k = sum_{i <= k} q_i^2, q_i = a_i sum_{j <= i} b_j n_j, and a greedy policy then earns about
    rho_k = (prior / (prior + v_k))^(1/2). Every record costs the same if
    b_j^2 = 1 / sum_{i >= j} a_i^2, and the sum of the rho_k over all rounds is stationary if
    a_i = q_i sum_{k >= i} d rho_k / d P_k.
    """
    sizes, rounds = np.diff(ends, prepend=0), np.maximum(np.diff(ends, append=T), 1)
    a = ends[0] / ends
    for _ in range(100):  # six digits of the model's regret
        b = 1 / np.sqrt(np.cumsum(a[::-1] ** 2)[::-1])
        q = a * np.cumsum(b * sizes)
        P = np.cumsum(q**2)
        variance = noise**2 / P + spread / ends
        rho = np.sqrt(prior / (prior + variance))
        slope = rho / (prior + variance) * (noise / P) ** 2 * rounds
        a = np.cumsum(slope[::-1])[::-1] * q
        a = np.maximum(a / a.max(), 1e-6)
    return Schedule(ends, 1 / np.sqrt(np.cumsum(a[::-1] ** 2)[::-1]), a)


class OnePassLinearOracle(dpb_gym.SingleAgent):
    """`one-pass-linear` by another derivation: matrices, and one replicate.

    It is `one-pass-linear` with ``link="logistic"``, ``anytime=False``,
    ``max_rounds_per_user=None`` and no `ProblemInfo.prior`.

    Args:
        norm: Prior size of theta - `prior_mean`, in units of w / 2, > 0.
        intercept: b, value of the constant feature in v, > 0.
        first: Round of the first release, in units of the round at which the noise is as large as
            the prior's theta.
        ratio: Factor between two releases' rounds, > 1.
        effect: Prior size of gamma, in units of theta's, if all of xbar is the customer's, >= 0.
        prior_mean: Mean of theta, ``(d,)``. None: zeros.
    """

    protects = ("central", "reward")

    def __init__(
        self, norm=1.0, intercept=0.15, first=0.07, ratio=1.1, effect=4.0, prior_mean=None
    ):
        self.norm, self.intercept, self.first, self.ratio = norm, intercept, first, ratio
        self.effect, self.prior_mean = effect, prior_mean

    def begin(self):
        """Declare the releases, and set theta to its prior."""
        problem, d = self.problem, self.problem.dim
        low, high = problem.reward_range
        self.d, self.c, self.w = d, (low + high) / 2, high - low
        self.variance = (self.norm * self.w / 2) ** 2 / d  # of a coordinate of theta, |x| = 1
        self.theta = np.zeros(d + 1)  # the last entry is the level
        if self.prior_mean is not None:
            self.theta[:d] = self.prior_mean
        self.repeated, self.L = 0.0, math.sqrt(self.variance) * np.eye(d)
        self.n, self.sum_xbar, self.sum_xbar2, self.sum_x2 = 0, np.zeros(d), 0.0, 0.0
        self.open()

    def open(self):
        """Make the releaser, and the normal distribution of t = (theta, level, gamma, S)."""
        d, p = self.d, self.d + 1
        spread = (self.w / 2) ** 2 * d
        model = ReleaseModel(
            self.problem.longest, 1.0, 1 / d, spread, self.variance, binary=self.problem.binary
        )
        self.sums = self.curator.weighted_sum(
            p,
            reward=(-self.w / 2, self.w / 2),
            schedule=lambda sigma: self.schedule(sigma, unit_noise=1.0),
            model=model,
            what="running reward sums",
        )
        self.m = np.concatenate([self.theta, np.zeros(d + p)])
        self.C = np.zeros((d + 2 * p, d + 2 * p))
        self.G, self.K, self.o = np.zeros((p, d + p)), np.zeros((p, p)), np.zeros(p)

    def schedule(self, sigma, unit_noise):
        """Return the schedule for noise of standard deviation `sigma`; 0 is exact."""
        d, T = self.d, self.problem.longest
        if sigma == 0:
            return Schedule.unweighted(release_rounds(T, d, self.ratio))
        noise = sigma * unit_noise * d  # a round measures 1 / d of a coordinate of theta
        first = max(d, self.first * noise / math.sqrt(self.variance))
        ends = release_rounds(T, first, self.ratio)
        return best_schedule(ends, T, noise, (self.w / 2) ** 2 * d, self.variance)

    def act(self, context):
        """Return the best for a draw of theta, as far as rounds repeat candidates, else for theta.

        The longest of equals is played. Of n equally long fixed arms it is number floor(u n) for a
        uniform u.
        """
        x, d = context.features.astype(float), self.d
        z = portable.normals(self.rng, d)
        scores, squares = x @ (self.theta[:d] + self.repeated * (self.L @ z)), (x**2).sum(axis=1)
        best = scores == scores.max()
        # a longer x says more
        equal = np.flatnonzero(best & (squares * (1 + 1e-6) >= squares[best].max()))
        # where all rounds offer the same arms, the lowest number is no better than the others
        u = ndtr(z[0]) if self.problem.fixed_arms else 0.0
        return int(equal[int(u * len(equal))])

    def direction(self, x, action):
        """Return z, whose direction v has."""
        return x[action]

    def record(self, context, action):
        """Return phi = (x, 1, xbar) and v = [z / |z|; b] / sqrt(1 + b^2), 0 if z = 0."""
        x = context.features.astype(float)
        phi = np.concatenate([x[action], [1.0], x.mean(axis=0)])
        z = self.direction(x, action)
        if not z.any():
            return phi, np.zeros(self.d + 1)
        v = np.append(z / np.linalg.norm(z), self.intercept)
        return phi, v / math.sqrt(1 + self.intercept**2)

    def observe(self, context, action, feedback):
        """Count the public part of the round; the raw reward goes to the curator's sums only."""
        x, d = context.features.astype(float), self.d
        phi, v = self.record(context, action)
        # m Var(xbar) / Var(x) is 0 for the same candidates in all rounds, 1 for independent ones.
        self.n, self.sum_xbar = self.n + 1, self.sum_xbar + phi[d + 1 :]
        self.sum_xbar2 += (phi[d + 1 :] ** 2).sum()
        self.sum_x2 += (x**2).sum() / len(x)
        self.likeness = 1.0
        if self.n > 1:
            centre = ((self.sum_xbar / self.n) ** 2).sum()
            between = max(0.0, self.sum_xbar2 / self.n - centre) * self.n / (self.n - 1)
            self.likeness = len(x) * between / max(self.sum_x2 / self.n - centre, 1e-9)
        self.repeated = max(0.0, 1 - self.likeness) ** 2
        self.sums.add(feedback.reward - self.c, along=v)
        # m(u) is about m(u_0) + W (u - u_0), u_0 = <phi, t>, and Var r = (w / 2)^2 W.
        u = phi @ self.m[: 2 * d + 1]
        p = 1 / (1 + math.exp(-4 * u / self.w))
        W = 4 * p * (1 - p)
        self.G += W * np.outer(v, phi)
        self.K += W * np.outer(v, v)
        self.o += (self.w * (p - 0.5) - W * u) * v
        self.update()

    def update(self):
        """Condition t on a new release, if there is one: a step of the Kalman filter."""
        k = self.sums.releases - 1
        ends = self.sums.schedule.ends
        if k < 0 or self.sums.rounds != ends[k]:
            return
        d, n, b = self.d, 2 * self.d + 1, float(self.sums.schedule.weights[k])
        if k == 0:
            q = self.sum_x2 / self.n if self.sum_x2 > 0 else 1.0  # mean |x|^2
            gamma = self.effect * (1 - 1 / max(1.0, self.likeness))
            variances = np.repeat([1 / q, 1, gamma**2 / q], [d, 1, d])
            self.C[:n, :n] = np.diag(self.variance * variances)
        # The batch adds b sum (r - c) v to S.
        F = np.eye(len(self.m))
        if not self.sums.schedule.carry:  # a release is about its own batch
            F[n:, n:] = 0.0
        F[n:, :n] = b * self.G
        self.m = F @ self.m
        self.m[n:] += b * self.o
        self.C = F @ self.C @ F.T
        # a random sign adds to the variance of a reward
        self.C[n:, n:] += b**2 * ((self.w / 2) ** 2 + self.sums.record_std**2) * self.K
        # The release is S + N(0, noise^2); exact sums count as all but exact.
        noise = max(self.sums.noise_std, 1e-3 * self.w)
        gain = np.linalg.solve(self.C[n:, n:] + noise**2 * np.eye(d + 1), self.C[n:]).T
        self.m = self.m + gain @ (self.sums.value - self.m[n:])
        self.C = self.C - gain @ self.C[n:]
        self.C = (self.C + self.C.T) / 2
        self.theta = self.m[: d + 1]
        # The covariance of theta given the level, which all candidates share.
        given = self.C[:d, :d] - np.outer(self.C[:d, d], self.C[:d, d]) / self.C[d, d]
        self.L = np.linalg.cholesky(given)
        self.G, self.K, self.o = np.zeros_like(self.G), np.zeros_like(self.K), np.zeros(d + 1)
