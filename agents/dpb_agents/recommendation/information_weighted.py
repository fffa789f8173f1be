"""Information-weighted regression for private linear bandits.

After arXiv:2502.13115.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import integer, real
from dpb_agents.recommendation.rivals.joint import isometric_noise_norm, joint
from dpb_agents.recommendation.rivals.linear_rival import LinearRival
from dpb_gym import kernels
from dpb_gym.privacy import BatchSum, Curator, PSDBall, Segment
from dpb_gym.problems.base import Array, ProblemInfo

LEAST = 0.5  # lower bound of eigenvalues, as a share of the regularisation


@joint("information-weighted")
class InformationWeighted(LinearRival):
    """Optimism on information-weighted regression (after Chen, Li, Rakhlin & Simchi-Levi 2025).

    After abstracts and summaries. Under joint privacy the relevant statistic of the covariates is
    the matrix W with E[W x x' W / (1 + gamma ||W x||)] + lambda W = I, instead of the covariance.
    Regression with the weights w(x) = 1 / (1 + gamma ||W x||), on the scale of W, attains the
    optimal rate. Here episodes double in length, and each of them

    1. releases A = sum w (W^(1/2) x)(W^(1/2) x)' and u = sum w r W x of its own rounds with noise,
       and theta = V^-1 W^-1 u with V = W^(-1/2) (A + shift I + ridge W) W^(-1/2);
    2. sets W = (V / n)^(-1/2) for the next one, a step of the fixed-point iteration;
    3. plays the largest <x, theta> + alpha (half + noise / sqrt n) ||x||_{V^-1}.

    gamma = `weight` times the noise of u over its sampling error. With many rewards all records
    have nearly the same weight. Departures: optimism instead of the paper's planner, which the
    summaries do not describe; Gaussian noise; one step of the iteration per episode.

    Joint privacy of one **user-round**, replace-one. W, gamma are public (earlier releases), and
    ||W x|| / (1 + gamma ||W x||) <= R = ||W|| / (1 + gamma ||W||). Records are released in units
    of R: the first is positive semidefinite of Frobenius norm at most 1 (sensitivity sqrt(2)), the
    second has norm at most max |r| (sensitivity 2 max |r|). Each round is in one episode, so the
    episodes compose in parallel; the two sums share the budget.

    Args:
        alpha: Factor of the confidence width, >= 0.
        ridge: lambda: added to V times the identity, > 0.
        centre: Subtract the middle of the reward's range (erratum R9).
        length: Rounds of the first episode. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        weight: Factor of gamma, >= 0; at 0 all records have the same weight.
        shift: Multiple of the bound on the operator norm of A's noise that is added to A, >= 0.
    """

    releaser: BatchSum = field(init=False, repr=False)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "shift": [1.0, 3.0],
        "length": [100, 400],
        "alpha": [0.0, 0.2],
    }

    alpha: float = 0.2
    centre: bool = True
    length: int = integer(100, 1)
    weight: float = real(1.0, 0.0)
    shift: float = real(1.0, 0.0)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        B, d = self._theta.shape
        self._low, self._high = bound.low, bound.high
        largest = max(abs(bound.low), abs(bound.high))
        what = "information-weighted sums of x x'"
        self.releaser = curator.batch_sum(symmetric=d, clip=PSDBall(1.0), what=what)
        self.response = curator.batch_sum(d, clip=largest, what="information-weighted sums of r x")
        self._root = np.tile(math.sqrt(math.sqrt(d)) * np.eye(d), (B, 1, 1))
        self._size = np.full(B, math.sqrt(d))
        self._total, self._summed = np.zeros((B, d, d)), np.zeros((B, d))
        self._noise, self._known = np.zeros(B), self._mean.copy()
        self._next = self._length = self.length * self._stretch

    def _learn(self, reward: Array, chosen: Array) -> None:
        if self._rounds - len(reward) == self._next - self._length:
            self._weigh()
        inside = np.minimum(np.maximum(reward, self._low), self._high)
        records = chosen, inside, self._root, self._gamma, self._bound
        weights, (scaled, response) = np.empty_like(reward), np.empty((2, *chosen.shape))
        agent_kernels.linear.records(*records, weights, scaled, response)
        self.releaser.add_rounds(weights, scaled)
        self.response.add_rounds(response)
        if self._rounds == self._next:
            self._update()
            self._length *= 2
            self._next += self._length

    def _weigh(self) -> None:
        """Set gamma and R of an episode."""
        n = self._length / self._stretch
        gamma = self.weight * self.response.sigma / (self._half * math.sqrt(n))
        self._gamma = np.full(len(self._size), gamma)
        self._bound = self._size / (1.0 + gamma * self._size)

    def _update(self) -> None:
        d, n, R = self._theta.shape[1], self._rounds / self._stretch, self._bound
        roots, frame = kernels.linalg.eigh(self._root)
        back = kernels.linalg.compose(1.0 / roots, frame)
        A, u = R[:, None, None] * self.releaser.release(), R[:, None] * self.response.release()
        self._total += agent_kernels.linear.between(back, A)
        self._summed += _multiplied(back, _multiplied(back, u))
        self._noise += R * R
        noise = np.sqrt(self._noise)
        norm = isometric_noise_norm(self.releaser.sigma, d, self._horizon)
        shift = (self.shift * norm * noise)[:, None]
        pull = kernels.linalg.compose(shift / (roots * roots) + self.ridge, frame)
        self._mean = _multiplied(pull, self._known)
        known = self._total, shift, self.ridge, n, self._root
        self._inverse, self._root, self._size = next_weights(*known)
        self._theta = _multiplied(self._inverse, self._summed)
        self._pull, self._informed = np.ones(len(R)), bool(self._mean.any())
        self._width = self.alpha * (self._half + self.response.sigma * noise / math.sqrt(n))


def next_weights(
    total: Array, shift: Array, ridge: float, rounds: float, root: Array
) -> tuple[Array, Array, Array]:
    """Return the inverse of V = total + shift W^-1 + ridge I, and the next W = (V / rounds)^(-1/2).

    In units of W^(-1/2), eigenvalues of V are at least half of shift + ridge.

    Args:
        total: Noisy sum ``(B, d, d)``.
        shift: ``(B, 1)``.
        ridge: > 0.
        rounds: Number of rounds in the sum.
        root: W^(1/2), ``(B, d, d)``.

    Returns:
        V^-1, the root of the next W, and the operator norm of that W, ``(B,)``.
    """
    roots, frame = kernels.linalg.eigh(root)
    scaled = agent_kernels.linear.between(root, total)
    scaled += kernels.linalg.compose(shift + ridge * roots * roots, frame)
    values, vectors = kernels.linalg.eigh(scaled)
    values = 1.0 / np.maximum(values, LEAST * (shift + ridge))
    inverse = agent_kernels.linear.between(root, kernels.linalg.compose(values, vectors))
    values, vectors = kernels.linalg.eigh(inverse)
    values = np.sqrt(np.sqrt(rounds * np.maximum(values, 0.0)))
    return inverse, kernels.linalg.compose(values, vectors), values[:, -1] * values[:, -1]


def _multiplied(matrices: Array, vectors: Array) -> Array:
    out = np.empty(matrices.shape[:2])
    kernels.linalg.multiply(matrices, vectors, out)
    return out
