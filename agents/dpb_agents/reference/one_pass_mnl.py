"""One-pass private Newton for assortment: one customer stream, plain NumPy.

The symbols are those of docs/one-pass.md. `one-pass-mnl` is the same algorithm for many
replicates at once, with compiled kernels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpb_gym import SingleAgent, portable
from dpb_gym.privacy import Schedule
from dpb_gym.problems.base import Array, Context, Feedback
from dpb_gym.problems.prior import Prior
from dpb_gym.problems.rounds import LONGEST
from dpb_gym.registry import register_agent

DEVIATIONS = np.linspace(-2.5, 2.5, 11)  # nodes of the prior of log |theta|
LEAST_EVENNESS = 0.3
FIRST_PART, UNEXPECTED = 0.1, 0.05
EXACT_RELEASES = 5
DRAWS, UNSURE = 64, 3.0


@register_agent(
    "reference-one-pass-mnl",
    supports=["assortment"],
    protects=("joint", "user-round"),
    partial_feedback=False,
    delayed_feedback=False,
)
class ReferenceOnePassMNL(SingleAgent):
    """One-pass private Newton for assortment in plain NumPy, for one customer stream.

    Args:
        prior_mean: Prior mean m of theta; None: that of the problem, or 0.
        norm: Median of the prior size of theta - m.
        cut: tau and U: norm at which scores are cut.
        bound: B, norm of a curvature, in units of `cut`.
        share: q, part of the budget that pays for the response.
        first: Round of the first release, in units of t_0.
        ratio: Factor between the rounds of two releases.
        decay: Power of t with which the noise of a release grows.
        anytime: Plan for every horizon instead of T.
        window: Rounds that theta remembers at least; None: all.
    """

    def __init__(
        self,
        *,
        prior_mean: Any = None,
        norm: float = 2.0,
        cut: float = 0.5,
        bound: float = 0.35,
        share: float = 0.85,
        first: float = 1.0,
        ratio: float = 1.1,
        decay: float = 1.25,
        anytime: bool = False,
        window: int | None = None,
    ) -> None:
        self.prior_mean, self.norm, self.share, self.window = prior_mean, norm, share, window
        self.tau, self.U, self.B = cut, cut, bound * cut
        self.first, self.ratio, self.decay, self.anytime = first, ratio, decay, anytime

    def begin(self) -> None:
        info, private, d = self.problem, self.curator.private, self.problem.dim
        prior = info.prior if self.prior_mean is None else Prior(self.prior_mean)
        prior = (prior or Prior(np.zeros(d))).fitting(d)
        self.m = np.array(prior.mean)
        # Prior of theta - m: N(0, r^2 / d I) for each size r, or N(0, P^-1).
        self.beliefs = softmax(-0.5 * DEVIATIONS**2)
        self.sizes = self.norm * np.exp(0.5 * DEVIATIONS)
        # Larger sizes than this one have a prior probability of at most UNEXPECTED in all.
        self.largest = self.sizes[self.beliefs[::-1].cumsum()[::-1] > UNEXPECTED].max()
        self.V, self.P = self.beliefs @ self.sizes**2 / d * np.eye(d), None
        if prior.precision is not None:
            self.P = np.array(prior.precision) + d / self.norm**2 * np.eye(d)
            self.V = np.linalg.inv(self.P)
        self.theta, self.root = self.m.copy(), np.linalg.cholesky(self.V)

        # Factors a and b of H and u in a row, and the noise in a coordinate of u - H theta.
        self.a, self.b = 1.0, 1.0
        if private:
            self.a = math.sqrt((1 - self.share) / 2) / self.B
            self.b = math.sqrt(self.share) / (2 * self.U)
        noise = math.sqrt(1 / self.b**2 + (1 + 1 / d) / 2 * (self.norm / self.a) ** 2)
        h = self.tau / d  # typical eigenvalue of H_t
        self.equal = bool(info.equal_revenues) and info.reward_range[1] > 0

        def schedule(sigma: float) -> Schedule:
            horizon = LONGEST if self.anytime else info.longest
            if not private:
                often = Schedule.geometric(horizon, 1, self.ratio ** (1 / EXACT_RELEASES), 0.0)
                return Schedule.unweighted(often.ends)
            t_0 = sigma * noise / (h * self.norm)
            return Schedule.geometric(horizon, self.first * t_0, self.ratio, self.decay)

        self.sums = self.curator.weighted_sum(
            d * (d + 1) // 2 + d,
            schedule=schedule,
            sensitivity=1.0,
            clip=2.0 if private else None,
            what="running sums of curvature and response",
        )
        if private:
            self.plan = self.sums.schedule.best_weights(self.sums.sigma * noise, h)
        self.rounds, self.ends, self.releases = 0, list(self.sums.schedule.ends), []
        self.unsure = UNSURE * max(d, self.ends[0]) if self.equal else 0.0

    def act(self, context: Context) -> Array:
        x, K = context.features.astype(float), self.problem.capacity
        exactly = bool(self.problem.exactly)
        if self.rounds >= self.unsure:
            return best_slate(x @ self.theta, context.offered_revenues, K, exactly)
        z = np.empty((DRAWS, len(self.theta)))
        portable.fill_normals(self.rng, z)
        return expected_slate(
            x @ (self.theta + z @ self.root.T).T, context.offered_revenues, K, exactly
        )

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        self.sums.add(self.row(context.features[action].astype(float), feedback.choice))
        self.rounds += 1
        if self.rounds in self.ends:
            self.learn()

    def row(self, items: Array, chosen: Any) -> Array:
        """Return the weighted (H_t, u_t) of one choice; `chosen` is -1 for the outside option."""
        x = np.vstack([items, np.zeros(len(self.theta))])
        p = softmax(x @ self.theta)
        c = self.link_scale(p, x)
        p = softmax(x @ self.theta / c)
        s = x - p @ x
        v = s
        if self.curator.private:
            v = s * (self.tau / np.maximum(np.linalg.norm(s, axis=1), self.tau))[:, None]
        H = (v * p[:, None]).T @ s / c
        u = H @ self.theta + v - p @ v  # one row per outcome
        if self.curator.private:
            load = (1 - self.share) * (H**2).sum() / self.B**2
            load += self.share * (u**2).sum(axis=1).max() / self.U**2
            w = 1 / math.sqrt(load) if load > 0 else 1.0
        else:
            w = 1 / self.link_scale(softmax(0 * p), x)
        return np.concatenate([self.a * w * isometric_half(H), self.b * w * u[chosen]])

    def link_scale(self, p: Array, x: Array) -> float:
        """Return c: by how much the uncertainty of theta flattens the link."""
        s = x - p @ x
        return math.sqrt(1 + math.pi / 4 * p @ np.einsum("ij,jk,ik->i", s, self.V, s))

    def learn(self) -> None:
        """Update theta, V and the root of V after a release."""
        k = self.ends.index(self.rounds)
        if self.curator.private or self.window is not None or k % EXACT_RELEASES == 0:
            self.releases.append((self.rounds, self.sums.value))
        old = 0 if self.window is None else self.released_by(self.rounds - self.window)
        early = self.released_by(FIRST_PART * self.rounds)
        theta, V, root, size = self.posterior(*self.combined(k, old))
        if early > old and size > self.largest:
            theta, V, root, _ = self.posterior(*self.combined(k, early))
        self.theta, self.V, self.root = theta, V, root

    def released_by(self, t: float) -> int:
        """Return the number of releases in the first t rounds."""
        return sum(end <= t for end, _ in self.releases)

    def combined(self, k: int, without: int) -> tuple[Array, float, float]:
        """Return sums H and u in one row, the noise in a coordinate, and the mean squared weight.

        Records of the first `without` releases are left out.
        """
        if not self.curator.private:
            start = self.releases[without - 1][1] if without else 0.0
            return self.sums.value - start, 0.0, 1.0
        alpha = self.plan.weights[k] - (self.plan.weights[without - 1] if without else 0.0)
        std = self.sums.sigma * np.linalg.norm(alpha / self.sums.schedule.scales)
        sums = sum(weight * release for weight, (_, release) in zip(alpha, self.releases))
        return sums, float(std), self.plan.uneven[k]

    def posterior(self, row: Array, std: float, spread: float) -> tuple[Array, Array, Array, Any]:
        """Return mean, covariance and exploring root of theta, and its likeliest size."""
        d, noise = len(self.theta), (std / self.b) ** 2
        H, left = even_out(symmetric(row[:-d] / self.a, d), std / self.a)
        h, E = np.linalg.eigh(H)
        h = np.maximum(h, 0.0)
        z = E.T @ (row[-d:] / self.b) - h * (E.T @ self.m)  # h t + error, t = E'(theta - m)
        missed = left * (1 + 1 / d) / 2  # of the error in H theta, per unit of |theta|^2
        if self.P is not None:
            error = spread * h + noise + missed * (d * d / np.trace(self.P) + self.m @ self.m)
            g = np.divide(h, error, out=np.zeros(d), where=h > 0)
            V = np.linalg.inv(self.P + (E * g * h) @ E.T)
            return self.m + V @ E @ (g * z), V, np.linalg.cholesky(V), self.norm
        squares = self.sizes[:, None] ** 2
        error = spread * h + noise + missed * (squares + self.m @ self.m)  # per size and direction
        prior = squares / d * np.ones(d)
        total = prior * h**2 + error
        known = total > 0  # without noise nothing is known where h = 0
        total[~known] = 1.0
        logs = np.log(self.beliefs) - 0.5 * (np.log(total) + z**2 / total).sum(axis=1)
        weights, means = softmax(logs), prior * h * z / total
        mean = weights @ means
        local = np.diag(weights @ np.where(known, prior * error / total, prior))
        local += ((means - mean).T * weights) @ (means - mean)
        root = (E * np.sqrt(np.diag(local))) @ E.T
        return self.m + E @ mean, E @ local @ E.T, root, self.sizes[weights.argmax()]


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def isometric_half(H: Array) -> Array:
    """Return the upper triangle, off-diagonal entries times sqrt(2): the norm is Frobenius'."""
    return (H * np.where(np.eye(len(H)), 1.0, math.sqrt(2.0)))[np.triu_indices(len(H))]


def symmetric(half: Array, d: int) -> Array:
    """Return the matrix of an isometric half."""
    H = np.zeros((d, d))
    H[np.triu_indices(d)] = half
    return (H + H.T) / np.where(np.eye(d), 2.0, math.sqrt(2.0))


def even_out(H: Array, noise: float) -> tuple[Array, float]:
    """Return H shrunk towards isotropy, and the variance of the error left in an entry."""
    if noise == 0.0:
        return H, 0.0
    d = len(H)
    mu = max(0.0, np.trace(H) / d)
    D = H - mu * np.eye(d)
    own = max((D**2).sum() / (d * (d + 1) / 2) - noise**2, (LEAST_EVENNESS * mu) ** 2)
    w = own / (own + noise**2)
    return mu * np.eye(d) + w * D, w * noise**2


def best_slate(utility: Array, revenue: Array, K: Any, exactly: bool) -> Array:
    """Return the items of largest expected revenue, at most K (Dinkelbach's iteration)."""
    top = max(0.0, utility.max())
    v, outside, value = np.exp(utility - top), math.exp(-top), 0.0
    while True:
        gain = np.where(revenue > -np.inf, v * (revenue - value), -np.inf)
        order = np.argsort(-gain, kind="stable")[:K]
        chosen = order[gain[order] > (-np.inf if exactly else 0.0)]
        better = v[chosen] @ revenue[chosen] / (outside + v[chosen].sum())
        if better <= value:
            return np.sort(chosen)
        value = better


def expected_slate(utility: Array, revenue: Array, K: Any, exactly: bool) -> Array:
    """Return items added one by one for the largest mean revenue over draws, ``(N, draws)``."""
    v, reached, chosen = np.exp(np.minimum(utility, 300.0)), 0.0, list[int]()
    while len(chosen) < K:
        sold, earned = v[chosen].sum(axis=0), revenue[chosen] @ v[chosen]
        value = ((earned + revenue[:, None] * v) / (1 + sold + v)).sum(axis=1)
        value[chosen] = -np.inf
        i = int(value.argmax())
        if value[i] == -np.inf or (value[i] < reached and not exactly):
            break
        reached = value[i]
        chosen.append(i)
    return np.sort(np.array(chosen, dtype=np.int64))
