"""one-pass-pricing (logistic demand) for one replicate, to be read with docs/one-pass.md."""

from __future__ import annotations

import math

import numpy as np
from reference_mnl import LEVER, UNFORESEEN, even_out, full, isometric_half, posterior
from scipy.optimize import minimize_scalar

CLIP, BOUND, DISPERSE, RARE, LARGEST_WEIGHT = 0.3, 0.2, 0.1, 0.15, 4.0
TWINS, BOOST, FIRST, HOPELESS, BET, CLOSE = 3, 4.0, 2.4, 0.25, 2.0, {"xatol": 1e-10}
SIZES, OTHERS, RELUCTANCE, LARGEST = np.array([1.0, 1.6, 2.5, 4.0, 8.0]), 0.0075, 20, 0.85


def sigmoid(s):
    return 1 / (1 + math.exp(-s))


def weak_direction(H, left):
    """sqrt(k) v: along v, of least information, records count 1 + k times as much."""
    d = len(H)
    values, vectors = np.linalg.eigh(H)
    h, v, error = values[0], vectors[:, 0], left * (d - 1) / 2
    if h <= 0 or h**2 <= error or v[-1] ** 2 <= LEVER:
        return np.zeros(d)
    level = np.maximum(values, 0).mean()
    return math.sqrt((math.sqrt(level / h) - 1) * (1 - error / h**2)) * v


class OnePassPricing:
    """Takes records and combined releases; prices are best for a draw around theta."""

    def __init__(self, d, zeta, horizon, sigma):
        """`sigma` is the noise of one release of sensitivity 1; 0 without a budget."""
        self.d, self.zeta, self.private = d, zeta, sigma > 0
        self.U, self.B = CLIP * zeta, BOUND * zeta**2 / 4
        widening, rate = self.B * math.sqrt(1 + 1 / d), zeta**2 / 4 / (4 * d)
        even = sigma * (2 * self.U + widening) / rate  # t_0 of a theta of size 1
        r = (
            min(LARGEST, max(0.2, (horizon / (even * math.sqrt(d))) ** 0.4 / 7))
            if sigma
            else LARGEST
        )
        self.r, self.sizes = r, r * SIZES
        others = OTHERS * (r / LARGEST) ** RELUCTANCE
        self.beliefs = np.array([1 - 4 * others] + [others] * 4)
        self.q = 2 * self.U / (2 * self.U + r * widening)
        self.theta, self.V = np.zeros(d), np.eye(d) * (self.beliefs @ self.sizes**2) / d
        self.V[-1, -1] += self.beliefs @ np.maximum(0, LARGEST**2 - self.sizes**2) / d
        self.root, self.weak = np.zeros((d, d)), np.zeros(d)
        self.factors = (1.0, 1.0)
        if self.private:
            self.factors = math.sqrt((1 - self.q) / 2) / self.B, math.sqrt(self.q) / (2 * self.U)
        a, b = self.factors
        first = FIRST * sigma * math.sqrt(1 / b**2 + (1 + 1 / d) / 2 * (r / a) ** 2) / rate
        self.hopeless = self.private and round(max(10, first)) > HOPELESS * horizon

    def phi(self, x, price):
        return np.append(x, -price) / math.sqrt(self.d)

    def price(self, x, normals):
        """Best for theta + root z, or for theta if that is a bad bet; hopeless: of least regret."""
        if self.hopeless:
            return math.exp(-(1 + math.erf(normals[0] / math.sqrt(2))) / 2)
        drawn = self.theta + self.root @ normals

        def worth(p, theta):
            return p * sigmoid(self.zeta * self.phi(x, p) @ theta)

        def best(theta):
            inner = minimize_scalar(lambda p: -worth(p, theta), bounds=(0, 1), options=CLOSE).x
            return max([1.0, 0.0, inner], key=lambda p: worth(p, theta))

        p, known = best(drawn), best(self.theta)
        cost = worth(known, self.theta) - worth(p, self.theta)
        return known if cost > BET * (worth(p, drawn) - worth(known, drawn)) else p

    def record(self, x, prices, demand):
        """The row of one sale at the first price; the others were drawn like it."""
        features, zeta = [self.phi(x, p) for p in prices], self.zeta
        links = []
        for phi in features:
            c = math.sqrt(1 + math.pi / 8 * zeta**2 * phi @ self.V @ phi)
            f = sigmoid(zeta * phi @ self.theta / c)
            links.append((f, zeta**2 * f * (1 - f) / c))
        phi, f, h = features[0], *links[0]
        gap = np.zeros(self.d)
        gap[-1] = phi[-1] - np.mean([other[-1] for other in features])
        least = BOOST * min(slope for _, slope in links)
        more, length = (self.weak @ phi) * self.weak, max(np.linalg.norm(self.weak), 1e-300)
        H = h * (np.outer(phi, phi) + np.outer(more, more) / length / length)
        H += least * np.outer(gap, gap)
        score = zeta * (phi + more + least / h * gap)
        u = [H @ self.theta + (y - f) * score for y in (0.0, 1.0)]
        load = (1 - self.q) * (H**2).sum() / self.B**2
        load += self.q * max(v @ v for v in u) / self.U**2
        w = min(LARGEST_WEIGHT, 1 / math.sqrt(load)) if self.private else 1.0
        a, b = self.factors
        return np.concatenate([a * w * isometric_half(H), b * w * u[int(demand)]])

    def learn(self, sums, std, spread, late=None):
        """From combined sums whose every coordinate has noise `std`; `late`: without early ones."""
        a, b = self.factors
        H, left = even_out(full(sums[: -self.d] / a, self.d), std / a)
        if self.private:
            self.weak = weak_direction(H, left)
        self.theta, self.V, self.root, size = posterior(
            H,
            sums[-self.d :] / b,
            self.sizes,
            self.beliefs,
            spread,
            (std / b) ** 2,
            left,
            rare=RARE,
            wide=min(6 * self.r, 2.5 * LARGEST),
            lead=LARGEST,
            calm=DISPERSE,
        )
        larger = size > self.r or not self.private
        if late and larger and np.linalg.norm(self.theta) > UNFORESEEN * self.r:
            self.learn(*late)
