"""DPMNL in plain NumPy, for one customer stream: an independent edition to test against.

Cho & Sun, "Privacy-Preserving Dynamic Assortment Selection", arXiv:2410.22488, Algorithms 1 to 3.
Comments give the paper's line and equation numbers and its symbols. Labels like A5 are rows of
docs/errata.md, where a printed formula was corrected. The agent `dpmnl` computes the same for
many replicates at once, with compiled kernels.
"""

from __future__ import annotations

import math

import numpy as np

import dpb_gym
from dpb_gym.privacy import LossMinimiser, PSDBall
from tests.agents.reference.one_pass_mnl_oracle import best_assortment

L = 2.0  # bound of the gradient of one customer's loss, for ||x|| <= 1 (section S.1.3)
ETA = 1.0  # bound of the trace of its Hessian (A3; the paper bounds the eigenvalues by 4)
UNIT = 1.0 - 2.0**-22  # norm of clipped features, which is below 1 in single precision too


def clip_to_unit_ball(x):
    """Return the rows of `x`, those longer than 1 scaled down to norm 1."""
    norm = np.sqrt((x**2).sum(axis=1, keepdims=True))
    return x * (UNIT / np.maximum(norm, UNIT))


def random_assortment(items, K, uniforms):
    """Return K uniformly random items, by a partial Fisher-Yates shuffle."""
    items = items.copy()
    K = min(K, len(items))
    for k in range(K):
        j = k + min(int(uniforms[k] * (len(items) - k)), len(items) - k - 1)
        items[k], items[j] = items[j], items[k]
    return np.sort(items[:K])


class PrivateChoiceMLE(LossMinimiser):
    """Algorithm 2: argmin of the negative log-likelihood + Delta / 2 ||theta||^2 + b' theta."""

    enforces = True  # features are in the unit ball

    def loss(self, theta, x, y):
        """Return value, gradient and Hessian of - sum_n sum_i y_ni log p_n(i | S_n, theta).

        That is Algorithm 2, line 5.

        Args:
            theta: Parameters ``(d,)``.
            x: Features of the offered items of every round, ``(n, K, d)``; zeros in empty places.
            y: Feedback y_n of every round, ``(n, K)``: 1 for the item bought, NaN for empty places.
        """
        x = x.astype(float)
        u = np.where(np.isnan(y), -np.inf, x @ theta)
        y = np.nan_to_num(y)
        top = np.maximum(0.0, u.max(axis=1))
        e = np.exp(u - top[:, None])
        total = np.exp(-top) + e.sum(axis=1)  # the outside option has utility 0
        p = e / total[:, None]
        mean = (p[:, :, None] * x).sum(axis=1)
        rows, weights = x.reshape(-1, x.shape[2]), p.reshape(-1, 1)
        value = (top + np.log(total)).sum() - (y * (x @ theta)).sum()
        gradient = ((p - y)[:, :, None] * x).sum(axis=(0, 1))
        hessian = rows.T @ (weights * rows) - mean.T @ mean
        return value, gradient, hessian


class ReferenceDPMNL(dpb_gym.SingleAgent):
    """DPMNL (Cho & Sun) in plain NumPy.

    It is `dpmnl` with ``rule="ucb"``, ``calibration="verified"`` and no prior.

    Args:
        explore: T0, rounds of uniformly random sets, >= 0.
        max_updates: D_MLE, largest number of private MLEs, >= 1.
        share: rho_1 / (rho_1 + rho_2), part of the budget that goes to PrivateMLE, in (0, 1).
        scale: c, multiplier of the confidence width alpha_t, >= 0.
        growth: Factor by which det V must grow between two MLEs, > 1; 2 in the paper.
        mechanism: PrivateCov: ``"binary-tree"`` (Algorithm 3), ``"blt"`` or ``"sqrt-toeplitz"``.
        every: Rounds between releases of the Gram matrix, >= 1.
    """

    protects = ("joint", "user-round")

    def __init__(
        self,
        explore=200,
        max_updates=5,
        share=0.9,
        scale=1e-4,
        growth=2.0,
        mechanism="binary-tree",
        every=1,
    ):
        self.T0, self.D_MLE, self.share = explore, max_updates, share
        self.scale, self.growth, self.mechanism, self.every = scale, growth, mechanism, every

    def begin(self):
        """Algorithm 1, line 1: the inputs, and the private subroutines."""
        problem = self.problem
        self.T, self.K, self.d = problem.longest, problem.capacity, problem.dim
        # Algorithm 2: each of D_MLE calls gets rho_1 / D_MLE (A5). The releaser chooses Delta and
        # sigma_MLE by the bound in docs/privacy.md instead of Theorem 1 (A2-A4), and draws b.
        self.private_mle = PrivateChoiceMLE(
            self.curator,
            self.d,
            gradient_bound=L,
            curvature=ETA,
            calls=self.D_MLE,
            records=self.T,
            share=self.share,
        )
        # Algorithm 3: rho_2. The sum of x x' over K items of norm <= 1 is in the ball of Frobenius
        # norm K, hence of sensitivity sqrt(2) K (A1; Lemma S5 prints sqrt(2 K)).
        self.private_cov = self.curator.running_sum(
            symmetric=self.d,
            clip=PSDBall(float(self.K)),
            mechanism=self.mechanism,
            every=min(self.every, self.T),
            share=1 - self.share,
            what="Gram matrix of the offered items",
        )
        # lambda bounds the operator norm of the noise in V with probability 1 - 1/T^2 per round
        # (A10; Lemma S6 prints a larger one): for the symmetric noise of standard deviation s on
        # the diagonal and s / sqrt(2) off it, the mean norm is at most s sqrt(2 d).
        s = self.private_cov.noise_std_max
        self.lam = s * (math.sqrt(2 * self.d) + math.sqrt(4 * math.log(self.T)))
        self.uniforms, _ = self.rng.spawn(2)
        self.t, self.D = 0, 0
        self.theta = np.zeros(self.d)
        self.V = 2 * self.lam * np.eye(self.d)
        self.logdet_at_update = np.linalg.slogdet(self.V)[1]

    def act(self, context):
        """Lines 3 to 5 and 11 to 13: a random set in rounds 1 to T0, then an optimistic one."""
        if context.t <= self.T0:
            everything = np.ones(self.problem.n_items, bool)
            available = everything if context.available is None else context.available
            uniforms = self.uniforms.random(self.K)
            return random_assortment(np.flatnonzero(available), self.K, uniforms)
        x = context.features.astype(float)
        norm = np.sqrt((x * np.linalg.solve(self.V, x.T).T).sum(axis=1))  # ||x_ti||_{V^-1}
        z = x @ self.theta + self.scale * self.alpha(context.t) * norm  # line 12
        r = context.offered_revenues.astype(float)
        return best_assortment(z, r, self.K, bool(self.problem.exactly))  # line 13

    def alpha(self, t):
        """alpha_t of Lemma S10 with kappa = 1, at the private MLE's own Delta and sigma_MLE."""
        Delta, sigma = self.private_mle.plan.ridge, self.private_mle.plan.sigma
        statistical = math.sqrt(self.d / 2 * math.log1p(t / self.d) + math.log(t))
        regularisation = Delta / math.sqrt(self.K)  # the root is missing in print (A17)
        noise = sigma * math.sqrt(4 * self.d * math.log(self.T) / self.K)
        return statistical + regularisation + noise + math.sqrt(3 * self.lam)

    def observe(self, context, action, feedback):
        """Lines 6 to 8 and 14 to 19: the raw records go to the two private subroutines only."""
        self.t += 1
        x, y = np.zeros((self.K, self.d)), np.full(self.K, np.nan)
        x[: len(action)] = clip_to_unit_ball(context.features[action].astype(float))  # A8
        y[: len(action)] = 0.0
        if feedback.choice >= 0:
            y[feedback.choice] = 1.0
        self.private_mle.add(x[None].astype(np.float32), y[None])
        self.private_cov.add(1.0, along=x)
        if self.t < self.T0:
            return
        # Line 14. Noise beyond lambda, which is rare, could leave V without a positive
        # definite part: eigenvalues are raised to lambda.
        values, vectors = np.linalg.eigh(self.private_cov.value)
        values = np.maximum(values + 2 * self.lam, self.lam)
        self.V = (vectors * values) @ vectors.T
        logdet = np.log(values).sum()
        # Line 15: det V against its value at the last MLE (A6; the paper compares with V_{t-1}).
        grown = logdet > self.logdet_at_update + math.log(self.growth)
        if (grown or self.t == self.T0) and self.D < self.D_MLE:
            self.D, self.logdet_at_update = self.D + 1, logdet
            self.theta = self.private_mle.release()[0]  # lines 8 and 16
