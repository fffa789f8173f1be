"""Parts of the multinomial-logit agents: the choice of a slate, and the matrix V of its bonus."""

from __future__ import annotations

import math

import numpy as np

from dpb_gym import kernels, portable
from dpb_gym.agent import unsuitable
from dpb_gym.problems.base import Array, Context, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.streams import AgentStreams, BlockDraws, fill_uniforms

RULES = ("greedy", "ucb", "ts")


class SlateChoice:
    """Chooses slates for B replicates, for any revenues and any capacity.

    A slate is uniformly random, or the best one (exact, `dpb_gym.kernels.mnl.best_slates`) under
    optimistic utilities: ``<x, theta>`` (rule ``"greedy"``), ``<x, theta> + width ||x||_{V^-1}``
    (``"ucb"``), or the largest of M draws of ``<x, theta~>``, with theta~ normal of mean theta and
    covariance ``width^2 V^-1`` (``"ts"``).

    Args:
        problem: The problem.
        streams: Random streams of the replicates.
        rule: ``"greedy"``, ``"ucb"`` or ``"ts"``.
        samples: M, >= 1; None: `optimistic_samples`.
        name: Name of the agent, for errors.

    Raises:
        AgentError: If the problem is no assortment problem, or its sizes are unknown.
    """

    def __init__(
        self,
        problem: ProblemInfo,
        streams: AgentStreams,
        rule: str,
        samples: int | None,
        name: str,
    ) -> None:
        if problem.kind != "assortment" or problem.n_items is None or problem.capacity is None:
            raise unsuitable(name, problem, "assortment", "n_items", "capacity")
        B = streams.replicates
        K = problem.capacity
        self._problem = problem
        self._rule = rule
        self._capacity = K
        # Only for equal positive revenues are the K items of largest utility the best slate.
        self._equal = bool(problem.equal_revenues) and problem.reward_range[1] > 0.0
        # Uniforms and normals are drawn in blocks, so each kind needs its own generator.
        spawned = [generator.spawn(2) for generator in streams.agent]
        self._uniforms = BlockDraws([pair[0] for pair in spawned], (K,), fill_uniforms)
        if rule == "ts":
            shape = (samples or optimistic_samples(K), problem.dim)
            generators = [pair[1] for pair in spawned]
            self._normals = BlockDraws(generators, shape, portable.fill_normals)
        self._values = np.zeros(B)

    def random(self, context: Context) -> Array:
        """Return uniformly random slates of K items, ``(B, K)``."""
        kind = kind_of(self._problem.kind)
        slates: Array = kind.random(self._problem, self._uniforms.next(), context.available)
        return slates

    def best(self, context: Context, theta: Array, root: Array, width: float) -> Array:
        """Return the slates of largest revenue under optimistic utilities, ``(B, K)``.

        Args:
            context: The round's context.
            theta: ``(B, d)``.
            root: Inverse root of V, see `DesignMatrix`, ``(B, d, d)``.
            width: Multiplier of the bonus or of the draws' standard deviation; unused by
                ``"greedy"``.
        """
        slates = np.empty((len(theta), self._capacity), np.int64)
        known = (
            context.features,
            context.offered_revenues,
            # The shortcut for equal revenues does not read which items are available.
            self._equal and context.available is None,
            bool(self._problem.exactly),
            theta,
            root,
            0.0 if self._rule == "greedy" else width,
        )
        if self._rule == "ts":
            normals = self._normals.next()
            kernels.slates.sampled_slates(*known, normals, self._values, slates)
        else:
            kernels.slates.optimistic_slates(*known, self._values, slates)
        return slates


class DesignMatrix:
    """V = Gram matrix + shift I of B replicates, by its inverse root and its determinant.

    Args:
        replicates: B.
        dim: d.
        shift: > 0.
        floor: Smallest eigenvalue of V; smaller ones are raised to it.

    Attributes:
        root: R with R'R = V^-1, ``(B, d, d)``.
        logdet: Logarithm of det V, ``(B,)``.
    """

    def __init__(self, replicates: int, dim: int, shift: float, floor: float) -> None:
        self._shift = shift
        self._floor = floor
        # Where a Cholesky factor shows that V has no eigenvalue below the floor.
        self._ok = np.zeros(replicates, np.bool_)
        self.root = np.zeros((replicates, dim, dim))
        self.logdet = np.zeros(replicates)
        self.update(np.zeros((replicates, dim, dim)))

    def update(self, gram: Array) -> None:
        """Set V from a Gram matrix ``(B, d, d)``, whose small eigenvalues are raised in place."""
        shift = self._shift
        floor = self._floor
        state = (self.root, self.logdet, self._ok)
        kernels.slates.roots(gram, shift, floor, *state)
        # Eigenvalues are computed for the replicates that need them: they cost far more than a
        # factor.
        if self._ok.all():
            return
        values, vectors = kernels.linalg.eigh(gram[~self._ok])
        gram[~self._ok] = kernels.linalg.compose(np.maximum(values, floor - shift), vectors)
        # No floor this time: rounding can leave a raised eigenvalue slightly below it.
        kernels.slates.roots(gram, shift, 0.0, *state)


def optimistic_samples(capacity: int) -> int:
    """Return the number of samples whose best is optimistic with constant probability.

    It is ceil(1 - log K / log(1 - 1 / (4 sqrt(e pi)))) (Oh & Iyengar 2019).
    """
    miss = portable.log(1.0 - 1.0 / (4.0 * math.sqrt(math.e * math.pi)))
    return math.ceil(1.0 - portable.log(capacity) / miss)
