"""Private pricing in plain NumPy, for one customer stream: an independent edition to test against.

Chen, Simchi-Levi & Wang, "Privacy-Preserving Dynamic Personalized Pricing with Demand Learning",
arXiv:2009.12920, Algorithms 1 to 3. Comments give the paper's line numbers and its symbols. Labels
like P1 are rows of docs/errata.md, where a printed formula was corrected. The agent
`private-pricing` computes the same for many replicates at once, with compiled kernels.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.special import expit, wrightomega

import dpb_gym
from dpb_gym.privacy import LossMinimiser, PSDBall, gaussian_sigma

RADIUS = 2.0  # Algorithm 3 minimises over ||theta|| <= 2
IN_BALL = 1.0 - 1e-6  # norm of a clipped phi, which is below 1 in single precision too
SLACK = 100.0  # factor of the solver's tolerance and of the output noise that covers it


class PrivateDemandMLE(LossMinimiser):
    """Algorithm 3: argmin over ||theta|| <= 2 of loss + rho / 2 ||theta||^2 + w' theta.

    The loss is sum_t - log p(y_t | phi_t, theta). The ridge rho and the noise w follow
    docs/privacy.md instead of line 2 (P2, P3). The constraint costs no privacy: it is the limit of
    growing convex penalties.

    Args:
        curator: Curator whose budget it uses.
        dim: d.
        model: ``"logistic"`` or ``"gaussian"``.
        zeta: Scale of the logistic link.
        bound: B_Y, Gaussian demand is clipped to [-B_Y, B_Y].
        **options: Further parameters of `LossMinimiser`.
    """

    enforces = True

    def __init__(self, curator, dim, *, model, zeta, bound, **options):
        self.logistic, self.zeta = model == "logistic", zeta
        self.range = (0.0, 1.0) if self.logistic else (-bound, bound)
        # largest gradient norm and Hessian trace for ||phi|| <= 1 and ||theta|| <= 2 (P5)
        super().__init__(
            curator,
            dim,
            gradient_bound=zeta if self.logistic else bound + RADIUS,
            curvature=zeta**2 / 4 if self.logistic else 1.0,
            **options,
        )

    def add(self, x, price, y):
        """Store one record in single precision, with phi in the unit ball and y in its range."""
        row = np.append(x, -price)
        norm = math.sqrt((row.astype(np.float32).astype(float) ** 2).sum() / len(row))
        row = (row * (IN_BALL / norm if norm > 1.0 else 1.0)).astype(np.float32)
        phi = row.astype(float) / math.sqrt(len(row))
        super().add(phi[None], np.float32(np.clip([y], *self.range)))

    def loss(self, theta, phi, y):
        """Return value, gradient and Hessian of the loss."""
        y = y.astype(float)
        z = phi @ theta
        if self.logistic:
            s = self.zeta * z
            f = expit(s)
            value = np.logaddexp(0.0, s).sum() - y @ s
            slope, bend = self.zeta * (f - y), self.zeta**2 * f * (1.0 - f)
        else:
            slope, bend = z - y, np.ones(len(y))
            value = 0.5 * slope @ slope
        return value, phi.T @ slope, (phi.T * bend) @ phi

    def _calibrated(self, rho):
        plan = super()._calibrated(rho)
        return replace(plan, tolerance=SLACK * plan.tolerance, output_std=SLACK * plan.output_std)

    def minimise(self, due, linear, ridge, tolerance):
        """Return the constrained minimiser, which on the sphere is that of a larger ridge."""

        def size(ridge):
            nonlocal theta, norm
            theta, norm = super(PrivateDemandMLE, self).minimise(due, linear, ridge, tolerance)
            return np.linalg.norm(theta)

        theta = norm = None
        if size(ridge) > RADIUS:
            low, high = ridge, 2 * ridge
            while size(high) > RADIUS:
                low, high = high, 2 * high
            while low < (middle := 0.5 * (low + high)) < high:
                low, high = (middle, high) if size(middle) > RADIUS else (low, middle)
            size(high)  # the shorter end of the bracket, which has the width of a rounding error
        return theta, norm


def best_price(theta, x, model, zeta):
    """Return argmax over p in [0, 1] of p f(phi(x, p)' theta), in closed form."""
    d = len(theta)
    a, b = x @ theta[:-1] / math.sqrt(d), theta[-1] / math.sqrt(d)  # phi' theta = a - b p
    if model == "logistic":
        if zeta * b <= 0.0:
            return 1.0
        p = (1.0 + wrightomega(zeta * a - 1.0)) / (zeta * b)
    else:
        p = a / (2.0 * b) if b > 0.0 else float(a > b)
    return min(1.0, max(0.0, p))


def optimistic_price(theta, x, model, zeta, gamma, inverse):
    """Return argmax of p f(phi' theta) + gamma ||phi||_{Lambda^-1}, to about 1e-9, on finer grids.

    Every maximiser of this is one of min{1, .} of it, which line 10 prints.
    """
    low, high = 0.0, 1.0
    for _ in range(4):
        p = np.linspace(low, high, 1001)
        phi = np.column_stack([np.tile(x, (len(p), 1)), -p]) / math.sqrt(len(theta))
        f = expit(zeta * (phi @ theta)) if model == "logistic" else phi @ theta
        value = p * f + gamma * np.sqrt((phi @ inverse * phi).sum(axis=1))
        best, step = p[value.argmax()], p[1] - p[0]
        low, high = max(0.0, best - step), min(1.0, best + step)
    return best


class ReferencePrivatePricing(dpb_gym.SingleAgent):
    """Private pricing (Chen et al.) in plain NumPy.

    It is `private-pricing` with ``calibration="verified"`` and no prior.

    Args:
        share: Part of the budget that goes to PrivateMLE, in (0, 1).
        explore: T0, random prices at the start, >= 0.
        gamma: Width of the bonus, >= 0.
        max_updates: D_inf, largest number of private MLEs, >= 1; default: as det Lambda may grow.
        growth: Factor of det Lambda between two MLEs, > 1; default 1.6^d, 2 in the paper.
        mechanism: PrivateCov: ``"binary-tree"`` (Algorithm 2), ``"blt"`` or ``"sqrt-toeplitz"``; by
            default ``"blt"``, or with system noise the tree.
        every: Rounds between two releases of the Gram matrix, >= 1; default T / 1000.
        demand_bound: B_Y, Gaussian demand is clipped to [-B_Y, B_Y], > 0.
    """

    protects = ("anticipating", "user-round")

    def __init__(
        self,
        share=0.8,
        explore=10,
        gamma=0.0,
        max_updates=None,
        growth=None,
        mechanism=None,
        every=None,
        demand_bound=3.0,
    ):
        self.share, self.T0, self.gamma, self.D_inf = share, explore, gamma, max_updates
        self.growth, self.mechanism, self.every, self.B_Y = growth, mechanism, every, demand_bound

    def begin(self):
        """Algorithm 1, lines 1 to 4: the inputs, and the private subroutines."""
        problem = self.problem
        T, d = problem.longest, problem.dim
        self.zeta = 1.0 if problem.zeta is None or problem.demand != "logistic" else problem.zeta
        self.factor = 1.6**d if self.growth is None else self.growth
        self.interval = min(self.every or math.ceil(T / 1000), T)
        # Algorithm 2. phi phi' has Frobenius norm at most 1, hence sensitivity sqrt(2) (P1).
        self.private_cov = self.curator.running_sum(
            symmetric=d,
            clip=PSDBall(1.0),
            mechanism=self.mechanism,
            every=self.interval,
            share=1 - self.share,
            what="Gram matrix of phi",
        )
        # rho of Lambda = Sigma + rho I is not the ridge of the MLE: it is the mean of the largest
        # operator norm of all releases' noise, of standard deviation s on the diagonal.
        cov = self.private_cov
        sigma = gaussian_sigma((1 - self.share) * self.curator.most_rho, cov.sensitivity * cov.gain)
        s = sigma * math.sqrt(cov.variances.max())
        self.rho = max(10.0, s * (math.sqrt(d) + math.sqrt(math.log(cov.steps))) / math.sqrt(2))
        # what det Lambda allows where ||phi||^2 averages 1/4, evenly over the directions
        allowed = d * math.log1p(T / (4 * d * self.rho)) / math.log(self.factor)
        self.most = self.D_inf or math.ceil(allowed)
        self.private_mle = PrivateDemandMLE(
            self.curator,
            d,
            model=problem.demand,
            zeta=self.zeta,
            bound=self.B_Y,
            calls=self.most,
            records=T,
            share=self.share,
        )
        self.theta, self.calls, self.n = np.zeros(d), 0, 0  # line 3: D_MLE = 0
        self.Lambda = self.rho * np.eye(d)
        self.start = self.rng.random(min(self.T0, T))  # line 4

    def act(self, context):
        """Line 4, then line 10: a random price, then the best one under theta and its bonus."""
        if self.n < len(self.start):
            return self.start[self.n]
        x, model = context.features.astype(float), self.problem.demand
        if self.gamma == 0.0:
            return best_price(self.theta, x, model, self.zeta)
        # Noise may leave Lambda indefinite: eigenvalues are raised to half of rho.
        values, vectors = np.linalg.eigh(self.Lambda)
        inverse = (vectors / np.maximum(values, 0.5 * self.rho)) @ vectors.T
        return optimistic_price(self.theta, x, model, self.zeta, self.gamma, inverse)

    def observe(self, context, action, feedback):
        """Lines 6 to 9: the raw records go to the two private subroutines only."""
        self.n += 1
        if self.calls >= self.most:
            return  # nothing will be released again
        x = context.features.astype(float)
        phi = np.append(x, -action) / math.sqrt(len(self.theta))
        self.private_mle.add(x, action, feedback.demand)
        self.private_cov.add(1.0, along=phi)
        if self.n < len(self.start) or self.n % self.interval:
            return
        Lambda = self.private_cov.value + self.rho * np.eye(len(phi))  # line 6
        if np.linalg.det(Lambda) > self.factor * np.linalg.det(self.Lambda):  # line 7
            theta = self.private_mle.release()[0]  # line 8
            self.theta = theta * min(1.0, RADIUS / np.linalg.norm(theta))
            self.Lambda, self.calls = Lambda, self.calls + 1
