"""One-pass private Newton for assortment in plain NumPy, for one customer stream.

docs/one-pass.md derives every formula, and the symbols here are those of that page. Tests compare
the agent `one-pass-mnl` with it.

A customer chooses one of the offered items or the outside option of features 0, with
probabilities softmax(<x_i, theta>). Choice t enters a running sum once, as a curvature H_t and a
response u_t with E u_t = H_t theta. theta is computed from noisy releases of that sum alone.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import softmax
from scipy.stats import norm

import dpb_gym
from dpb_gym import portable
from dpb_gym.privacy import Schedule

# Nodes of the prior of log |theta|, in units of its standard deviation, which is 1/2.
DEVIATIONS = np.linspace(-2.5, 2.5, 11)
LEAST_EVENNESS = 0.3  # least deviation of sum H_t from isotropy, relative to its mean eigenvalue
FIRST_PART = 0.1  # part of the rounds that is left out where theta is unexpectedly long
UNEXPECTED = 0.05  # prior probability up to which a size, with larger ones, is unexpected
RATIO = 1.1  # factor between the rounds of two releases
EXACT_RELEASES = 5  # exact sums cost nothing: so many times as many releases
DRAWS = 64  # draws of theta for items of equal revenues: Monte Carlo error of 1/8 deviation
RARE, FEW, AMPLE = 0.1, 3.0, 10.0  # limits of the information in rare directions (docs/one-pass.md)
BET = 2.0  # a drawn assortment may cost so many times what it may gain
CONSTANT = 1.0  # first feature of every item, whose coefficient is the level
UNSURE = 3.0  # draws are used until 3 t_0, when theta is 3 standard deviations of its noise long


def best_assortment(z, r, K, exactly):
    """Return argmax_S R(S), R(S) = sum_S r_i exp(z_i) / (1 + sum_S exp(z_i)): equation (1).

    The maximum is the largest R for which sum_S exp(z_i) (r_i - R) can reach R, which Dinkelbach's
    iteration finds: for a given R the best S holds the K largest terms.

    Args:
        z: Utilities ``(N,)``.
        r: Revenues ``(N,)``, -inf for items that cannot be offered.
        K: Capacity.
        exactly: Whether S must hold K items; by default items of negative terms stay out.
    """

    def revenue(S):
        return (weight[S] * r[S]).sum() / (math.exp(-top) + weight[S].sum())

    top = max(0.0, z.max())
    weight = np.exp(z - top)
    S, R, floor = np.array([], int), 0.0, 0.0
    if exactly:
        S = np.argsort(-r, kind="stable")[:K]
        S = S[r[S] > -np.inf]
        R, floor = revenue(S), -np.inf
    while True:
        gain = weight * (r - R)
        better = np.argsort(-gain, kind="stable")[:K]
        better = better[gain[better] > floor]
        if not revenue(better) > R:
            return np.sort(S)
        S, R = better, revenue(better)


class OnePassMNLOracle(dpb_gym.SingleAgent):
    """`one-pass-mnl` by another derivation: matrices, and one replicate.

    It is `one-pass-mnl` with ``anytime=False``, ``window=None`` and no prior.

    Args:
        norm: Median of the prior size of theta, > 0.
        cut: tau, norm at which scores are cut, and U, norm of a response, > 0.
        bound: B, norm of a curvature, in units of `cut`, > 0.
        share: q, part of the budget that pays for the response, in (0, 1).
        first: Round of the first release, in units of t_0, > 0.
        decay: Power of t with which the noise of a release grows, >= 0.
        level: Prior probability of a level of all utilities, in [0, 1).
    """

    protects = ("joint", "user-round")

    def __init__(
        self,
        norm=2.0,
        cut=0.5,
        bound=0.35,
        share=0.85,
        first=1.0,
        decay=1.25,
        level=0.1,
    ):
        self.norm, self.tau, self.U, self.B, self.share = norm, cut, cut, bound * cut, share
        self.first, self.decay, self.level = first, decay, level

    def begin(self):
        """Create the prior, the schedule of releases and the noisy sum."""
        info, private, d = self.problem, self.curator.private, self.problem.dim
        # The prior of theta is N(0, r^2 / d I) with an unknown size r. theta_0 is the coefficient
        # of the constant, if there may be a level, and 0 until a level is likelier than none.
        k = int(self.level > 0)
        D = d + k
        self.beliefs = softmax(-0.5 * DEVIATIONS**2)
        self.sizes = self.norm * np.exp(0.5 * DEVIATIONS)
        tail = self.beliefs[::-1].cumsum()[::-1]  # probabilities of a size and of all larger ones
        self.largest_expected = self.sizes[tail > UNEXPECTED].max()
        # The policy acts on the mean theta and the covariance V; theta + root z is a draw.
        self.theta, self.V = np.zeros(D), self.beliefs @ self.sizes**2 / d * np.eye(D)
        self.V[:k] = 0.0
        self.root, self.rare = np.sqrt(self.V), np.zeros((D, D))

        # a H and b u enter the sum, so that replacing a record moves it by at most 1. Unit noise
        # in the sum is noise of standard deviation `noise` in a coordinate of u - H theta.
        self.a, self.b = 1.0, 1.0
        if private:
            self.a = math.sqrt((1 - self.share) / 2) / self.B
            self.b = math.sqrt(self.share) / (2 * self.U)
        noise = math.sqrt(1 / self.b**2 + (1 + 1 / D) / 2 * (self.norm / self.a) ** 2)
        h = self.tau / d  # typical eigenvalue of H_t

        def schedule(sigma):
            """Return the release rounds for noise sigma in the sum; at t_0 noise equals signal."""
            if not private:
                often = RATIO ** (1 / EXACT_RELEASES)
                return Schedule.unweighted(Schedule.geometric(info.longest, 1, often, 0.0).ends)
            t_0 = sigma * noise / (h * self.norm)
            return Schedule.geometric(info.longest, self.first * t_0, RATIO, self.decay)

        self.sums = self.curator.weighted_sum(
            D * (D + 1) // 2 + D,
            schedule=schedule,
            sensitivity=1.0,
            clip=2.0 if private else None,
            what="running sums of curvature and response",
        )
        # public weights of releases 0..k in the best estimate of the sum
        self.plan = self.sums.schedule.best_weights(self.sums.sigma * noise, h) if private else None
        self.t, self.ends, self.releases = 0, list(self.sums.schedule.ends), []
        # Revenues that differ make a greedy policy explore. Equal ones do not.
        equal = info.equal_revenues and info.reward_range[1] > 0
        self.unsure = UNSURE * max(d, self.ends[0]) if equal else 0.0

    def act(self, context):
        """Return the best assortment under theta, or under draws of theta while it is unknown."""
        x, r = self.items(context.features), context.offered_revenues
        K, exactly = self.problem.capacity, bool(self.problem.exactly)
        if self.t >= self.unsure:
            return self.offer(x, r, K, exactly)
        z = portable.normals(self.rng, (DRAWS, len(self.theta)))
        return greedy_assortment(x @ (self.theta + z @ self.root.T).T, r, K, exactly)

    def items(self, features):
        """Return the features with the constant before them, if there may be a level."""
        constant = np.full((len(features), int(self.level > 0)), CONSTANT)
        return np.hstack([constant, features.astype(float)])

    def offer(self, x, r, K, exactly):
        """Return the best assortment under theta or under a draw of it in rare directions."""
        z = portable.normals(self.rng, len(self.theta))
        u, drawn = x @ self.theta, x @ (self.theta + self.rare @ z)
        best, bet = best_assortment(u, r, K, exactly), best_assortment(drawn, r, K, exactly)
        cost = revenue_of(best, u, r) - revenue_of(bet, u, r)
        gain = revenue_of(bet, drawn, r) - revenue_of(best, drawn, r)
        return best if cost > BET * gain else bet

    def observe(self, context, action, feedback):
        """Add the weighted record of the choice to the sum, and learn after a release."""
        self.sums.add(self.row(self.items(context.features[action]), feedback.choice))
        self.t += 1
        if self.t in self.ends:
            self.learn()

    def row(self, items, chosen):
        """Return the weighted (H_t, u_t) of one choice; `chosen` is -1 for the outside option."""
        x = np.vstack([items, np.zeros(len(self.theta))])
        c = self.link_scale(softmax(x @ self.theta), x)
        p = softmax(x @ self.theta / c)
        s = x - p @ x
        v = s  # scores, which are cut radially if they are to be private
        if self.curator.private:
            v = s * (self.tau / np.maximum(np.linalg.norm(s, axis=1), self.tau))[:, None]
        H = (v * p[:, None]).T @ s / c
        u = H @ self.theta + v - p @ v  # one row per outcome
        if self.curator.private:  # w uses the whole sensitivity and does not depend on the outcome
            load = (1 - self.share) * (H**2).sum() / self.B**2
            load += self.share * (u**2).sum(axis=1).max() / self.U**2
            w = 1 / math.sqrt(load) if load > 0 else 1.0
        else:  # less weight while theta is unknown
            w = 1 / self.link_scale(softmax(np.zeros(len(x))), x)
        return np.concatenate([self.a * w * isometric_half(H), self.b * w * u[chosen]])

    def link_scale(self, p, x):
        """Return c: by how much the uncertainty V of theta flattens the link."""
        s = x - p @ x
        return math.sqrt(1 + math.pi / 4 * p @ np.einsum("ij,jk,ik->i", s, self.V, s))

    def learn(self):
        """Update theta, V and the root of V after release k."""
        k = self.ends.index(self.t)
        if self.curator.private or k % EXACT_RELEASES == 0:
            self.releases.append((self.t, self.sums.value))
        theta, V, root, size = self.posterior(*self.estimate(k, 0))
        # Records taken at a theta that was far too short mislead: the link is flat there.
        early = sum(end <= FIRST_PART * self.t for end, _ in self.releases)
        if early and size > self.largest_expected:
            theta, V, root, _ = self.posterior(*self.estimate(k, early))
        self.theta, self.V, self.root, self.rare = theta, V, root, np.zeros(V.shape)
        m = int(self.level > 0 and not V[0, 0])  # 1 if theta_0 is 0
        self.rare[m:, m:] = self.rare_root(theta[m:], V[m:, m:])

    def rare_root(self, theta, V):
        """Return V^(1/2) in directions in which records carry almost no information, else 0."""
        lam, E = np.linalg.eigh(V)
        prior = len(theta) / max(theta @ theta, self.norm**2)
        h = np.maximum(1 / lam - prior, 0.0)  # precision that comes from the records
        rare = (h < RARE * h.mean()) & (h < FEW * prior) & (h.mean() > AMPLE * prior)
        return (E * np.sqrt(rare * lam)) @ E.T

    def estimate(self, k, without):
        """Return the sum from releases 0..k less the first `without`, its noise and spread."""
        if self.plan is None:
            return self.sums.value - (self.releases[without - 1][1] if without else 0.0), 0.0, 1.0
        alpha = self.plan.weights[k] - (self.plan.weights[without - 1] if without else 0.0)
        std = self.sums.sigma * np.linalg.norm(alpha / self.sums.schedule.scales)
        row = sum(weight * release for weight, (_, release) in zip(alpha, self.releases))
        # Draws expect the variance tau^2 per curvature tau, of scores cut at distance 1.
        return row, std, (self.tau if self.t < self.unsure else 1.0) * self.plan.uneven[k]

    def posterior(self, row, std, spread):
        """Return mean, covariance and root of theta given noisy sums, and its likeliest size.

        The better of two models is chosen: theta_0 is the coefficient of a level, or 0.
        """
        D = len(self.theta)
        H, u = symmetric(row[:-D] / self.a, D), row[-D:] / self.b
        given = [std / self.a, spread, (std / self.b) ** 2, self.sizes**2 / self.problem.dim]
        mean, V, root, size, zero = posterior(H, u, *given, self.beliefs)
        if self.level > 0 and (1 - self.level) * math.exp(zero) > self.level:
            reduced = posterior(H[1:, 1:], u[1:], *given, self.beliefs)
            mean = np.append(0.0, reduced[0])
            V, root, size = np.pad(reduced[1], (1, 0)), np.pad(reduced[2], (1, 0)), reduced[3]
        return mean, V, root, self.sizes[size]


def posterior(H, u, std, spread, noise, variances, beliefs):
    """Return mean, covariance and root of theta, and the number of the likeliest variance.

    Also return the log density of theta_0 at 0, less that of the prior.
    """
    d = len(u)
    H, left = even_out(H, std)
    # In the eigenbasis E of H: z_i = h_i t_i + error_i, with t = E' theta.
    h, E = np.linalg.eigh(H)
    h, z = np.maximum(h, 0.0), E.T @ u
    # Variances of the error for each size: of responses, of noise in u and of noise in H.
    prior = variances[:, None]
    error = spread * h + noise + left * (d + 1) / 2 * prior
    total = prior * h**2 + error
    known = total > 0  # without noise nothing is known where h = 0
    total = np.where(known, total, 1.0)
    # Each size counts by its belief times the likelihood of z.
    weights = softmax(np.log(beliefs) - 0.5 * (np.log(total) + z**2 / total).sum(axis=1))
    means, own = prior * h * z / total, np.where(known, prior * error / total, prior)
    mean = weights @ means
    local = np.diag(weights @ own) + ((means - mean).T * weights) @ (means - mean)
    root = (E * np.sqrt(np.diag(local))) @ E.T
    after = weights @ norm.pdf(0.0, means @ E[0], np.sqrt(own @ E[0] ** 2))
    before = beliefs @ norm.pdf(0.0, 0.0, np.sqrt(variances))
    with np.errstate(divide="ignore"):
        zero = np.log(after / before)
    return E @ mean, E @ local @ E.T, root, weights.argmax(), zero


def isometric_half(H):
    """Return the upper triangle with off-diagonal entries times sqrt(2), which keeps |H|_F."""
    return (H * np.where(np.eye(len(H)), 1.0, math.sqrt(2.0)))[np.triu_indices(len(H))]


def symmetric(half, d):
    """Return the matrix of an isometric half."""
    H = np.zeros((d, d))
    H[np.triu_indices(d)] = half
    return (H + H.T) / np.where(np.eye(d), 2.0, math.sqrt(2.0))


def even_out(H, noise):
    """Return H shrunk towards mu I, mu = tr H / d, and the variance of the error in an entry."""
    if noise == 0.0:
        return H, 0.0
    d = len(H)
    mu = max(0.0, np.trace(H) / d)
    D = H - mu * np.eye(d)
    # the deviation's mean square less the noise's, at least (.3 mu)^2
    own = max((D**2).sum() / (d * (d + 1) / 2) - noise**2, (LEAST_EVENNESS * mu) ** 2)
    w = own / (own + noise**2)
    return mu * np.eye(d) + w * D, w * noise**2


def revenue_of(items, utility, revenue):
    """Return the expected revenue of offering these items."""
    v = np.exp(np.minimum(utility[items], 300.0))
    return v @ revenue[items] / (1 + v.sum())


def greedy_assortment(utility, revenue, K, exactly):
    """Return items added one by one for the largest mean revenue over draws, ``(N, draws)``."""
    v, reached, chosen = np.exp(np.minimum(utility, 300.0)), 0.0, []
    while len(chosen) < K:
        sold, earned = v[chosen].sum(axis=0), revenue[chosen] @ v[chosen]
        value = ((earned + revenue[:, None] * v) / (1 + sold + v)).sum(axis=1)
        value[chosen] = -np.inf
        i = int(value.argmax())
        if value[i] == -np.inf or (value[i] < reached and not exactly):
            break
        reached, chosen = value[i], [*chosen, i]
    return np.sort(np.array(chosen, dtype=np.int64))
