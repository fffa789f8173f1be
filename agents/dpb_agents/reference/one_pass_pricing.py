"""One-pass private Newton for pricing: one customer stream, plain NumPy.

The symbols are those of docs/one-pass.md. `one-pass-pricing` is the same algorithm for many
replicates at once, with compiled kernels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import expit, ndtr, wrightomega

from dpb_gym import SingleAgent, portable
from dpb_gym.privacy import Schedule
from dpb_gym.problems.base import Array, Context, Feedback
from dpb_gym.problems.prior import Prior
from dpb_gym.problems.rounds import LONGEST
from dpb_gym.registry import register_agent

LEAST_EVENNESS = 0.3
FIRST_PART = 0.1
EXACT_RELEASES = 5
RARE, WIDE = 0.15, 2.5
SIZES, OTHERS = np.array([1.0, 1.6, 2.5, 4.0, 8.0]), 0.0025
TWINS, BET, HOPELESS = 3, 2.0, 0.25


@register_agent(
    "reference-one-pass-pricing",
    supports=["pricing"],
    protects=("anticipating", "user-round"),
    partial_feedback=False,
    delayed_feedback=False,
)
class ReferenceOnePassPricing(SingleAgent):
    """One-pass private Newton for pricing in plain NumPy, for one customer stream.

    Args:
        prior_mean: Prior mean m of theta; None: that of the problem, or 0.
        norm: Prior size r of theta - m.
        clip: U, norm of a response, in units of the largest possible one.
        bound: B, norm of a curvature, in units of the largest possible one.
        disperse: k, size of the draw around theta, in units of the posterior.
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
        norm: float = 0.85,
        clip: float = 0.3,
        bound: float = 0.2,
        disperse: float = 0.1,
        first: float = 2.4,
        ratio: float = 1.1,
        decay: float = 1.25,
        anytime: bool = False,
        window: int | None = None,
    ) -> None:
        self.prior_mean, self.norm, self.clip, self.bound = prior_mean, norm, clip, bound
        self.disperse, self.window, self.anytime = disperse, window, anytime
        self.first, self.ratio, self.decay = first, ratio, decay

    def begin(self) -> None:
        info, private, d, r = self.problem, self.curator.private, self.problem.dim, self.norm
        horizon = LONGEST if self.anytime else info.longest
        prior = info.prior if self.prior_mean is None else Prior(self.prior_mean)
        prior = (prior or Prior(np.zeros(d))).fitting(d)
        self.m = np.array(prior.mean)
        self.logistic = info.demand == "logistic"
        self.zeta = (info.zeta or 1.0) if self.logistic else 1.0
        self.outcomes = (0.0, 1.0) if self.logistic else (-3.0, 3.0)
        steepest = self.zeta**2 / 4 if self.logistic else 1.0
        self.U, self.B = self.clip * (self.zeta if self.logistic else 3.0), self.bound * steepest
        h = steepest / (4 * d)  # typical eigenvalue of H_t

        # The part q of the budget that pays for u.
        self.q = 2 * self.U / (2 * self.U + r * self.B * math.sqrt(1 + 1 / d))
        self.a, self.b = 1.0, 1.0  # factors of H and u in a row
        if private:
            self.a, self.b = math.sqrt((1 - self.q) / 2) / self.B, math.sqrt(self.q) / (2 * self.U)
        noise = math.sqrt(1 / self.b**2 + (1 + 1 / d) / 2 * (r / self.a) ** 2)

        # Prior of theta - m: N(0, r^2 / d I) for each size r, or N(0, P^-1).
        self.beliefs, self.sizes = np.array([1 - 4 * OTHERS] + [OTHERS] * 4), r * SIZES
        self.rare = RARE if self.logistic and self.disperse else 0.0
        self.V, self.P = self.beliefs @ self.sizes**2 / d * np.eye(d), None
        if prior.precision is not None:
            self.P = np.array(prior.precision) + d / r**2 * np.eye(d)
            self.V = np.linalg.inv(self.P)
        self.theta, self.root, self.weak = self.m.copy(), np.zeros((d, d)), np.zeros(d)

        def schedule(sigma: float) -> Schedule:
            if not private:
                often = Schedule.geometric(horizon, d, self.ratio ** (1 / EXACT_RELEASES), 0.0)
                return Schedule.unweighted(often.ends)
            t_0 = sigma * noise / h
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
        # Blind prices: until the first release (Gaussian demand), or always if that comes too late.
        self.blind = self.ends[0]
        if self.logistic:
            self.blind = horizon if private and self.ends[0] > HOPELESS * horizon else 0
        if self.m.any():
            self.blind = 0
        self.twins = TWINS if self.logistic and private else 0

    def act(self, context: Context) -> float:
        z = np.empty(len(self.theta))
        portable.fill_normals(self.rng, z)
        if self.rounds < self.blind:
            return float(np.exp(-ndtr(z[0])) if self.twins else ndtr(z[0]))
        x, drawn = context.features.astype(float), self.theta + self.root @ z
        price = self.best_price(x, drawn)
        if self.logistic and self.disperse:
            safe = self.best_price(x, self.theta)
            cost = self.revenue(x, safe, self.theta) - self.revenue(x, price, self.theta)
            gain = self.revenue(x, price, drawn) - self.revenue(x, safe, drawn)
            price = safe if cost > BET * gain else price
        return price

    def phi(self, x: Array, price: float) -> Array:
        return np.append(x, -price) / math.sqrt(len(self.theta))

    def revenue(self, x: Array, price: float, theta: Array) -> float:
        return float(price * expit(self.zeta * self.phi(x, price) @ theta))

    def best_price(self, x: Array, theta: Array) -> float:
        """Return the price in [0, 1] of largest expected revenue."""
        a, slope = self.phi(x, 0.0) @ theta, theta[-1] / math.sqrt(len(theta))
        if slope <= 0.0:
            return 1.0 if self.logistic or a > slope else 0.0
        if self.logistic:  # (1 + W(exp(zeta a - 1))) / (zeta slope)
            best = (1 + wrightomega(self.zeta * a - 1)) / (self.zeta * slope)
        else:
            best = a / (2 * slope)
        return float(min(1.0, max(0.0, best)))

    def observe(self, context: Context, action: float, feedback: Feedback) -> None:
        prices = [action, *(self.act(context) for _ in range(self.twins))]
        self.sums.add(self.row(context.features.astype(float), prices, feedback.demand))
        self.rounds += 1
        if self.rounds in self.ends:
            self.learn()

    def row(self, x: Array, prices: list[float], y: Any) -> Array:
        """Return the weighted (H_t, u_t) of a sale at the first of prices that are drawn alike."""
        vectors = np.array([self.phi(x, p) for p in prices])
        mean, slope = np.array([self.link(phi) for phi in vectors]).T
        phi, f, h = vectors[0], mean[0], slope[0]
        gap = np.zeros(len(phi))  # m D^2 of m prices is on average their sum of squares
        gap[-1] = phi[-1] - vectors[:, -1].mean()
        g = len(prices) * slope.min()
        along, w = self.weak @ phi, self.weak
        H = h * np.outer(phi, phi) + g * np.outer(gap, gap)
        if w.any():
            H += h * along**2 * np.outer(w, w) / (w @ w)
        score = self.zeta * (phi + along * w + (g / h if h > 0 else 0.0) * gap)
        low, high = (H @ self.theta + (y - f) * score for y in self.outcomes)
        u = H @ self.theta + (np.clip(y, *self.outcomes) - f) * score
        weight = 1.0
        if self.curator.private:
            load = (1 - self.q) * (H**2).sum() / self.B**2
            load += self.q * max(low @ low, high @ high) / self.U**2
            weight = 1 / math.sqrt(load) if load > 0 else 1.0
        return np.concatenate([self.a * weight * isometric_half(H), self.b * weight * u])

    def link(self, phi: Array) -> tuple[float, float]:
        """Return the expected demand and h, the factor of phi phi' in the curvature."""
        s = phi @ self.theta
        if not self.logistic:
            return s, 1.0
        c = math.sqrt(1 + math.pi / 8 * self.zeta**2 * phi @ self.V @ phi)
        f = expit(self.zeta * s / c)
        return f, self.zeta**2 * f * (1 - f) / c

    def learn(self) -> None:
        """Update theta, V, the root of V and the weak direction after a release."""
        k = self.ends.index(self.rounds)
        if self.curator.private or self.window is not None or k % EXACT_RELEASES == 0:
            self.releases.append((self.rounds, self.sums.value))
        old = 0 if self.window is None else self.released_by(self.rounds - self.window)
        early = self.released_by(FIRST_PART * self.rounds)
        found = self.posterior(*self.combined(k, old))
        if early > old and found[3] > self.norm:
            found = self.posterior(*self.combined(k, early))
        self.theta, self.V, self.root, _, self.weak = found

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

    def posterior(self, row: Array, std: float, spread: float) -> tuple[Array, ...]:
        """Return mean, covariance and root of theta, its likeliest size and the weak direction."""
        d, noise = len(self.theta), (std / self.b) ** 2
        H, left = even_out(symmetric(row[:-d] / self.a, d), std / self.a)
        values, E = np.linalg.eigh(H)
        h, weak = np.maximum(values, 0.0), np.zeros(d)
        if self.curator.private and self.rare:
            weak = weak_direction(values, E, left)
        z = E.T @ (row[-d:] / self.b) - h * (E.T @ self.m)  # h t + error, t = E'(theta - m)
        missed = left * (1 + 1 / d) / 2  # of the error in H theta, per unit of |theta|^2
        if self.P is not None:
            error = spread * h + noise + missed * (d * d / np.trace(self.P) + self.m @ self.m)
            g = np.divide(h, error, out=np.zeros(d), where=h > 0)
            V = np.linalg.inv(self.P + (E * g * h) @ E.T)
            return (
                self.m + V @ E @ (g * z),
                V,
                self.disperse * np.linalg.cholesky(V),
                self.norm,
                weak,
            )
        few = (h < self.rare * min(h.mean(), H[-1, -1])) & (d * E[-1] ** 2 > 1)
        squares = self.sizes[:, None] ** 2
        error = spread * h + noise + missed * (squares + self.m @ self.m)  # per size and direction
        prior = np.where(few, np.maximum(squares, (WIDE * self.norm) ** 2), squares) / d
        total = prior * h**2 + error
        known = total > 0  # without noise nothing is known where h = 0
        total[~known] = 1.0
        logs = np.log(self.beliefs) - 0.5 * (np.log(total) + z**2 / total).sum(axis=1)
        weights, means = softmax(logs), prior * h * z / total
        mean = weights @ means
        local = np.diag(weights @ np.where(known, prior * error / total, prior))
        local += ((means - mean).T * weights) @ (means - mean)
        deviation = np.sqrt(np.diag(local))
        whole = np.clip(deviation * math.sqrt(d) / self.norm, self.disperse, 1.0)
        root = (E * deviation * np.where(few, whole, self.disperse)) @ E.T
        size = self.sizes[weights.argmax()]
        return self.m + E @ mean, E @ local @ E.T, root, size, weak


def weak_direction(values: Array, E: Array, left: float) -> Array:
    """Return sqrt(k) v: in the direction v of least information records count 1 + k times."""
    h, v, error = values[0], E[:, 0], left * (len(values) - 1) / 2
    if h <= 0 or h**2 <= error or len(v) * v[-1] ** 2 <= 1:
        return np.zeros(len(values))
    mean = np.maximum(values, 0.0).mean()
    return math.sqrt((math.sqrt(mean / h) - 1) * (1 - error / h**2)) * v


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
