"""one-pass-mnl for one replicate, in plain NumPy, to be read with docs/one-pass.md."""

from __future__ import annotations

import math

import numpy as np

NORM, CUT, BOUND, SHARE = 2.0, 0.5, 0.35 * 0.5, 0.85
LEAST_EVENNESS, LARGEST_WEIGHT, LEVER, UNFORESEEN = 0.3, 4.0, 0.1, 2.5
DEVIATIONS = np.linspace(-2.5, 2.5, 11)
SIZES = NORM * np.exp(0.5 * DEVIATIONS)
BELIEFS = np.exp(-0.5 * DEVIATIONS**2) / np.exp(-0.5 * DEVIATIONS**2).sum()


def isometric_half(H):
    """Upper triangle row by row, off-diagonal entries times sqrt(2): the norm is Frobenius'."""
    return (H * np.where(np.eye(len(H)), 1.0, np.sqrt(2.0)))[np.triu_indices(len(H))]


def full(half, d):
    """The symmetric matrix of an isometric half."""
    H = np.zeros((d, d))
    H[np.triu_indices(d)] = half
    return (H + H.T) / np.sqrt(2.0) + np.diag(np.diag(H)) * (1.0 - np.sqrt(2.0))


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def even_out(H, noise):
    """The shape of a noisy H shrunk towards isotropy; the variance of the error that stays."""
    d = len(H)
    if noise == 0.0:
        return H, 0.0
    mu = max(0.0, np.trace(H) / d)
    D = H - mu * np.eye(d)
    own = max((D**2).sum() / (d * (d + 1) / 2) - noise**2, (LEAST_EVENNESS * mu) ** 2)
    w = own / (own + noise**2)
    return mu * np.eye(d) + w * D, w * noise**2


def posterior(H, u, sizes, beliefs, spread, noise, left, *, rare=0.0, wide=0.0, lead=0.0, calm):
    """Mean, covariance, exploring root, likeliest r: u = H theta + e in the eigenbasis of H."""
    d = len(u)
    h, E = np.linalg.eigh(H)
    h, z = np.maximum(h, 0.0), E.T @ u
    few = (h < rare * min(h.mean(), H[-1, -1])) & (E[-1] ** 2 > LEVER)
    logs, means, own = [], [], []
    for r, belief in zip(sizes, beliefs):
        more = max(0.0, lead**2 - r**2) / d
        prior = np.diag(np.where(few, max(wide, r), r) ** 2 / d) + more * np.outer(E[-1], E[-1])
        error = spread * h + noise + left * (1 + 1 / d) / 2 * (r**2 + more)
        total = h[:, None] * prior * h + np.diag(error)
        gain = np.linalg.solve(total, h[:, None] * prior).T
        logs.append(math.log(belief) - np.linalg.slogdet(total)[1] / 2)
        logs[-1] -= z @ np.linalg.solve(total, z) / 2
        means.append(gain @ z)
        own.append(prior - gain @ (h[:, None] * prior))
    weights, means = softmax(np.array(logs)), np.array(means)
    mean = weights @ means
    local = np.einsum("r,rij->ij", weights, own)
    local += np.einsum("r,ri,rj->ij", weights, means - mean, means - mean)
    sd = np.sqrt(np.diag(local))
    draw = np.where(few, np.clip(sd * math.sqrt(d) / sizes[0], calm, 1.0), calm)
    return E @ mean, E @ local @ E.T, E * draw * sd, sizes[weights.argmax()]


class OnePassMNL:
    """Takes records and combined releases; `theta` and `V` are what the policy knows."""

    def __init__(self, d, private):
        self.d, self.private = d, private
        self.theta, self.V = np.zeros(d), np.eye(d) * (BELIEFS @ SIZES**2) / d
        self.root = np.sqrt(self.V)
        shares = math.sqrt((1 - SHARE) / 2) / BOUND, math.sqrt(SHARE) / (2 * CUT)
        self.factors = shares if private else (1.0, 1.0)

    def offer(self, items, K, normals):
        """K items that sell with the largest mean probability over draws of theta, one by one."""
        attraction = np.exp(items @ (self.theta + normals @ self.root.T).T)
        chosen = []
        for _ in range(K):
            loss = (1.0 / (1.0 + attraction[chosen].sum(axis=0) + attraction)).mean(axis=1)
            loss[chosen] = np.inf
            chosen.append(int(loss.argmin()))
        return sorted(chosen)

    def flatter(self, p, x):
        """By how much theta's uncertainty flattens the link where choices have probabilities p."""
        s = x - p @ x
        return math.sqrt(1 + math.pi / 4 * p @ np.einsum("ij,jk,ik->i", s, self.V, s))

    def record(self, items, chosen):
        """The row of one choice: what enters the running sums. `chosen` is -1 for none."""
        x = np.vstack([items, np.zeros(self.d)])  # the last alternative buys nothing
        scores = x @ self.theta
        c = self.flatter(softmax(scores), x)
        p = softmax(scores / c)
        s = x - p @ x
        v = s * (CUT / np.maximum(np.linalg.norm(s, axis=1), CUT))[:, None] if self.private else s
        H = (v * p[:, None]).T @ s / c
        u = H @ self.theta + v - p @ v  # one row per outcome
        load = (1 - SHARE) * (H**2).sum() / BOUND**2 + SHARE * (u**2).sum(axis=1).max() / CUT**2
        exact = 1 / self.flatter(softmax(0 * scores), x)
        w = min(LARGEST_WEIGHT, 1 / math.sqrt(load)) if self.private else exact
        a, b = self.factors
        return np.concatenate([a * w * isometric_half(H), b * w * u[chosen]])

    def learn(self, sums, std, spread, late=None):
        """From combined sums whose every coordinate has noise `std`; `late`: without early ones."""
        a, b = self.factors
        H, left = even_out(full(sums[: -self.d] / a, self.d), std / a)
        known = sums[-self.d :] / b, SIZES, BELIEFS, spread, (std / b) ** 2, left
        self.theta, self.V, self.root, size = posterior(H, *known, calm=1.0)
        larger = size > NORM or not self.private
        if late and larger and np.linalg.norm(self.theta) > UNFORESEEN * NORM:
            self.learn(*late)
