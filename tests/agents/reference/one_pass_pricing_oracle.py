"""One-pass private Newton for pricing in plain NumPy, for one customer stream.

docs/one-pass.md derives every formula, and the symbols here are those of that page. Tests compare
the agent `one-pass-pricing` with it.

With phi = [x; -p] / sqrt(d), a customer x buys at price p with probability
sigmoid(zeta <phi, theta>); Gaussian demand has the mean <phi, theta>. Sale t enters a running sum
once, as a curvature H_t and a response u_t with E u_t = H_t theta. theta is computed from noisy
releases of that sum alone.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, ndtr, softmax, wrightomega
from scipy.stats import norm

import dpb_gym
from dpb_gym import portable
from dpb_gym.privacy import ReleaseModel, Schedule
from tests.agents.reference.one_pass_mnl_oracle import even_out, isometric_half, symmetric

CONSTANT = 0.2  # first feature of every customer, whose coefficient is the intercept
LONGER = 3.5  # prior deviation of that coefficient, in units of another's
FIRST_PART = 0.1  # left out where theta is unexpectedly long or has an intercept
RATIO = 1.1  # factor between the rounds of two releases
EXACT_RELEASES = 5  # exact sums cost nothing: so many times as many releases
SIZES = np.array([1.0, 1.6, 2.5, 4.0, 8.0])  # candidate prior sizes of theta, in units of `norm`
OTHERS = 0.0025  # prior probability of each size but the first: 1% in all
RARE = 0.15  # a direction is rare if it has less than this part of the mean information
WIDE = 2.5  # least prior size in rare directions, in units of `norm`
TWINS = 3  # prices drawn again for each record, which separate intercept and slope
BET = 2.0  # a draw is a bad bet if its price costs more than so many times what it gains
HOPELESS = 0.25  # a budget is hopeless if the first release is after this part of the rounds
GAUSSIAN_RANGE = (-3.0, 3.0)  # means within [-1, 1] and two standard deviations beyond


class OnePassPricingOracle(dpb_gym.SingleAgent):
    """`one-pass-pricing` by another derivation: matrices, and one replicate.

    It is `one-pass-pricing` with ``anytime=False``, ``window=None`` and no prior.

    Args:
        norm: Prior size r of theta, > 0.
        clip: U, norm of a response, in units of the largest possible one, > 0.
        bound: B, norm of a curvature, in units of the largest possible one, > 0.
        disperse: k, size of the draw around theta, in units of the posterior, >= 0.
        first: Round of the first release, in units of t_0, > 0.
        decay: Power of t with which the noise of a release grows, >= 0.
        level: Prior probability of an intercept, in [0, 1).
    """

    protects = ("anticipating", "user-round")

    def __init__(
        self,
        norm=0.85,
        clip=0.3,
        bound=0.2,
        disperse=0.1,
        first=2.4,
        decay=1.25,
        level=0.005,
    ):
        self.norm, self.clip, self.bound, self.disperse = norm, clip, bound, disperse
        self.first, self.decay, self.level = first, decay, level

    def begin(self):
        """Create the prior, the schedule of releases and the noisy sum."""
        info, private, d, r = self.problem, self.curator.private, self.problem.dim, self.norm
        self.logistic = info.demand == "logistic"
        self.zeta = (info.zeta or 1.0) if self.logistic else 1.0
        self.outcomes = (0.0, 1.0) if self.logistic else GAUSSIAN_RANGE
        # largest slope of demand, and largest norm of a response
        steepest, largest = (self.zeta**2 / 4, self.zeta) if self.logistic else (1.0, 3.0)
        self.U, self.B = self.clip * largest, self.bound * steepest
        h = steepest / (4 * d)  # typical eigenvalue of H_t

        # q is the part of the budget that pays for u. a H and b u enter the sum, so that replacing
        # a record moves it by at most 1. Unit noise in the sum is noise of standard deviation
        # `noise` in a coordinate of u - H theta.
        # theta_0 is the coefficient of the constant, if there may be an intercept, and 0 until an
        # intercept is likelier than none.
        k = int(self.level > 0)
        D = d + k
        self.q = 2 * self.U / (2 * self.U + r * self.B * math.sqrt(1 + 1 / D))
        a, b = math.sqrt((1 - self.q) / 2) / self.B, math.sqrt(self.q) / (2 * self.U)
        self.a, self.b = (a, b) if private else (1.0, 1.0)
        noise = math.sqrt(1 / self.b**2 + (1 + 1 / D) / 2 * (r / self.a) ** 2)

        # The prior of theta is N(0, size^2 / d I) with an unknown size. The policy acts on the mean
        # theta, the covariance V, the root of draws theta + root z, and the weak direction.
        self.sizes = r * SIZES
        self.beliefs = np.array([1 - 4 * OTHERS] + [OTHERS] * 4)
        self.rare = RARE if self.logistic and self.disperse else 0.0
        self.theta, self.V = np.zeros(D), self.beliefs @ self.sizes**2 / d * np.eye(D)
        self.V[:k] = 0.0
        self.root, self.weak = np.zeros((D, D)), np.zeros(D)

        def schedule(sigma):
            """Return the release rounds for noise sigma in the sum; at t_0 noise equals signal."""
            if not private:
                often = RATIO ** (1 / EXACT_RELEASES)
                return Schedule.unweighted(Schedule.geometric(info.longest, d, often, 0.0).ends)
            t_0 = sigma * noise / h
            return Schedule.geometric(info.longest, self.first * t_0, RATIO, self.decay)

        self.sums = self.curator.weighted_sum(
            D * (D + 1) // 2 + D,
            schedule=schedule,
            sensitivity=1.0,
            # batches of messages are planned from it
            model=ReleaseModel(info.longest, noise, h, 1 / h, r**2 / d, False, linear=False),
            clip=2.0 if private else None,
            what="running sums of curvature and response",
        )
        # public weights of releases 0..k in the best estimate of the sum
        best_weights = self.sums.schedule.best_weights
        self.plan = best_weights(self.sums.sigma * noise, h) if private else None
        self.t, self.ends, self.releases = 0, list(self.sums.schedule.ends), []
        # Prices are blind until the first release (Gaussian demand) or for a hopeless budget.
        self.blind = self.ends[0]
        if self.logistic:
            hopeless = private and self.ends[0] > HOPELESS * info.longest
            self.blind = info.longest if hopeless else 0
        self.cautious = self.logistic and private and self.curator.trust != "curator"
        self.twins = TWINS if self.logistic and private else 0

    def act(self, context):
        """Return the best price for theta plus a draw, or a blind price."""
        z = portable.normals(self.rng, len(self.theta))
        x, drawn = context.features.astype(float), self.theta + self.root @ z
        # exp(-U) has the least worst-case regret
        if self.t < self.blind or (self.cautious and self.in_doubt(x)):
            return float(np.exp(-ndtr(z[0])) if self.twins else ndtr(z[0]))
        price = self.best_price(x, drawn)
        if self.logistic and self.disperse:
            safe = self.best_price(x, self.theta)
            cost = self.revenue(x, safe, self.theta) - self.revenue(x, price, self.theta)
            gain = self.revenue(x, price, drawn) - self.revenue(x, safe, drawn)
            price = safe if cost > BET * gain else price
        return price

    def in_doubt(self, x):
        """Return whether the gain over blind prices is below its posterior standard deviation.

        theta's only error is in the price's coefficient, and a small one.
        """
        price = self.best_price(x, self.theta)

        def gain(last):
            theta = np.append(self.theta[:-1], last)
            blind = [self.revenue(x, math.exp(-u), theta) for u in (0.125, 0.375, 0.625, 0.875)]
            return self.revenue(x, price, theta) - np.mean(blind)

        step, last = 1e-6, self.theta[-1]
        derivative = (gain(last + step) - gain(last - step)) / (2 * step)
        return gain(last) < abs(derivative) * math.sqrt(self.V[-1, -1])

    def phi(self, x, price):
        """Return [x; -p] / sqrt(d), with the constant before x if there may be an intercept."""
        constant = [CONSTANT] * int(self.level > 0)
        return np.concatenate([constant, x, [-price]]) / math.sqrt(self.problem.dim)

    def revenue(self, x, price, theta):
        """Return the expected revenue under logistic demand."""
        return price * expit(self.zeta * self.phi(x, price) @ theta)

    def best_price(self, x, theta):
        """Return the price in [0, 1] of largest expected revenue."""
        a, slope = self.phi(x, 0.0) @ theta, theta[-1] / math.sqrt(self.problem.dim)
        if slope <= 0.0:
            return 1.0 if self.logistic or a > slope else 0.0
        if self.logistic:  # (1 + W(exp(zeta a - 1))) / (zeta slope)
            best = (1 + wrightomega(self.zeta * a - 1)) / (self.zeta * slope)
        else:
            best = a / (2 * slope)
        return float(min(1.0, max(0.0, best)))

    def observe(self, context, action, feedback):
        """Add the weighted record of the sale to the sum, and learn after a release."""
        prices = [action, *(self.act(context) for _ in range(self.twins))]
        self.sums.add(self.row(context.features.astype(float), prices, feedback.demand))
        self.t += 1
        if self.t in self.ends:
            self.learn()

    def row(self, x, prices, y):
        """Return the weighted (H_t, u_t) of demand y at the first of prices drawn alike."""
        vectors = np.array([self.phi(x, p) for p in prices])
        mean, slope = np.array([self.link(phi) for phi in vectors]).T
        phi, f, h = vectors[0], mean[0], slope[0]
        # D, gap of phi's last coordinate to the mean of m prices. m D^2 is on average over which
        # of them is posted the sum of the m squares.
        D = np.zeros(len(phi))
        D[-1] = phi[-1] - vectors[:, -1].mean()
        g = len(prices) * slope.min()
        H = h * np.outer(phi, phi) + g * np.outer(D, D)
        # The weak direction counts more; `weak` is sqrt(k) v.
        along, v = self.weak @ phi, self.weak
        if v.any():
            H += h * along**2 * np.outer(v, v) / (v @ v)
        score = self.zeta * (phi + along * v + (g / h if h > 0 else 0.0) * D)
        low, high = (H @ self.theta + (y - f) * score for y in self.outcomes)
        u = H @ self.theta + (np.clip(y, *self.outcomes) - f) * score
        w = 1.0
        if self.curator.private:  # w uses the whole sensitivity and does not depend on the outcome
            load = (1 - self.q) * (H**2).sum() / self.B**2
            load += self.q * max(low @ low, high @ high) / self.U**2
            w = 1 / math.sqrt(load) if load > 0 else 1.0
        return np.concatenate([self.a * w * isometric_half(H), self.b * w * u])

    def link(self, phi):
        """Return expected demand, averaged over V, and h, the factor of phi phi' in H."""
        s = phi @ self.theta
        if not self.logistic:
            return s, 1.0
        c = math.sqrt(1 + math.pi / 8 * self.zeta**2 * phi @ self.V @ phi)
        f = expit(self.zeta * s / c)
        return f, self.zeta**2 * f * (1 - f) / c

    def learn(self):
        """Update theta, V, the root and the weak direction after release k."""
        k = self.ends.index(self.t)
        if self.curator.private or k % EXACT_RELEASES == 0:
            self.releases.append((self.t, self.sums.value))
        early = sum(end <= FIRST_PART * self.t for end, _ in self.releases)
        if self.level > 0:
            belief, odds = self.model_with_intercept(*self.estimate(k, early))
            if (1 - self.level) * odds <= self.level:
                self.theta, self.V, self.root, self.weak = belief
                return
        posterior = self.model(*self.estimate(k, 0))
        # Records taken at a theta that was far too short mislead: the link is flat there.
        if early and posterior[3] > self.norm:  # the prior gives such sizes 1% in all
            posterior = self.model(*self.estimate(k, early))
        self.theta, self.V, self.root, _, self.weak = posterior

    def estimate(self, k, without):
        """Return the sum from releases 0..k less the first `without`, its noise and spread."""
        if self.plan is None:
            return self.sums.value - (self.releases[without - 1][1] if without else 0.0), 0.0, 1.0
        alpha = self.plan.weights[k] - (self.plan.weights[without - 1] if without else 0.0)
        std = self.sums.sigma * np.linalg.norm(alpha / self.sums.schedule.scales)
        row = sum(weight * release for weight, (_, release) in zip(alpha, self.releases))
        return row, std, self.plan.uneven[k]

    def equations(self, row, std):
        """Return H, evened out, the error left in its entries, u and the variance of its noise."""
        D = len(self.theta)
        H, left = even_out(symmetric(row[:-D] / self.a, D), std / self.a)
        return H, left, row[-D:] / self.b, (std / self.b) ** 2

    def model_with_intercept(self, row, std, spread):
        """Return mean, covariance, root and weak direction, and P(u | no intercept) / P(u | one).

        By covariances: u = H theta + e is normal under each size.
        """
        D, d = len(self.theta), self.problem.dim
        H, left, u, noise = self.equations(row, std)
        values, E = np.linalg.eigh(H)
        # Without noise nothing is known where there is no curvature.
        known = (values > 1e-12 * values.max()) | (noise + left > 0)
        h = np.maximum(values[known], 0.0)
        A, z = h[:, None] * E[:, known].T, E[:, known].T @ u
        scale = np.append(LONGER**2, np.ones(D - 1))
        weights, before, means, covariances = [], [], [], []
        for size, belief in zip(self.sizes, self.beliefs):
            prior = np.diag(size**2 / d * scale)
            error = noise + left * (1 + 1 / D) / 2 * np.trace(prior)
            total = A @ prior @ A.T + np.diag(spread * h + error)
            misfit = np.linalg.slogdet(total)[1] + z @ np.linalg.solve(total, z)
            weights.append(math.log(belief) - 0.5 * misfit)
            before.append(belief * norm.pdf(0.0, 0.0, math.sqrt(prior[0, 0])))
            gain = np.linalg.solve(total, A @ prior).T
            means.append(gain @ z)
            covariances.append(prior - gain @ A @ prior)
        weights, means, covariances = softmax(weights), np.array(means), np.array(covariances)
        mean = weights @ means
        V = np.tensordot(weights, covariances, 1) + ((means - mean).T * weights) @ (means - mean)
        after = weights @ norm.pdf(0.0, means[:, 0], np.sqrt(covariances[:, 0, 0]))
        spreads, axes = np.linalg.eigh(V)
        root = (axes * np.sqrt(spreads) * self.disperse) @ axes.T
        weak = weak_direction(values, E, left) if self.twins and self.rare else np.zeros(D)
        return (mean, V, root, weak), after / sum(before)

    def model(self, row, std, spread):
        """Return mean, covariance and root of theta without an intercept, its likeliest size and
        the weak direction.
        """
        H, _, u, noise = self.equations(row, 0.0)
        k = int(self.level > 0)
        H, left = even_out(H[k:, k:], std / self.a)
        u, noise = u[k:], (std / self.b) ** 2
        n, d = len(u), self.problem.dim
        # In the eigenbasis E of H: z_i = h_i t_i + error_i, with t = E' theta.
        values, E = np.linalg.eigh(H)
        h, z = np.maximum(values, 0.0), E.T @ u
        weak = weak_direction(values, E, left) if self.twins and self.rare else np.zeros(n)
        few = (h < self.rare * min(h.mean(), H[-1, -1])) & (n * E[-1] ** 2 > 1)
        # Variances of the error for each size: of responses, of noise in u and of noise in H.
        squares = self.sizes[:, None] ** 2 / d
        error = spread * h + noise + left * (n + 1) / 2 * squares
        prior = np.where(few, np.maximum(squares, (WIDE * self.norm) ** 2 / d), squares)
        total = prior * h**2 + error
        known = total > 0  # without noise nothing is known where h = 0
        total = np.where(known, total, 1.0)
        # Each size counts by its belief times the likelihood of z.
        weights = softmax(np.log(self.beliefs) - 0.5 * (np.log(total) + z**2 / total).sum(axis=1))
        means, variances = prior * h * z / total, np.where(known, prior * error / total, prior)
        mean = weights @ means
        local = np.diag(weights @ variances) + ((means - mean).T * weights) @ (means - mean)
        # Draws are whole in rare directions of prior size, and k times the posterior elsewhere.
        deviation = np.sqrt(np.diag(local))
        whole = np.clip(deviation * math.sqrt(d) / self.norm, self.disperse, 1.0)
        root = (E * deviation * np.where(few, whole, self.disperse)) @ E.T
        parts = E @ mean, E @ local @ E.T, root
        mean, V, root = (np.pad(part, [(k, 0)] * part.ndim) for part in parts)
        return mean, V, root, self.sizes[weights.argmax()], np.pad(weak, (k, 0))


def weak_direction(values, E, left):
    """Return sqrt(k) v: in the direction v of least information records count 1 + k times."""
    h, v, error = values[0], E[:, 0], left * (len(values) - 1) / 2
    if h <= 0 or h**2 <= error or len(v) * v[-1] ** 2 <= 1:
        return np.zeros(len(values))
    mean = np.maximum(values, 0.0).mean()
    return math.sqrt((math.sqrt(mean / h) - 1) * (1 - error / h**2)) * v
