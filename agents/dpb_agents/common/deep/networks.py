"""What the deep agents share: their networks, what these see, and how they begin."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.parameters import Configured, positive
from dpb_gym import kernels, portable, validation
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams


class DeepAgent(Configured):
    """Small fully connected networks, every replicate its own, trained by Adam.

    Lists are read item by item: the same network on every item or candidate. Revenues are an
    input unless they are all equal; rewards are divided by the largest.

    Args:
        learning_rate: Learning rate of Adam, > 0.
        net_arch: Widths of the hidden layers.
    """

    learning_rate: float = positive(3e-3)
    net_arch: Sequence[int] = (32,)

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = self.net_arch
        if isinstance(widths, (str, bytes)) or not isinstance(widths, Sequence):
            raise ParameterError(f"net_arch must be a sequence of widths, got {widths!r}")
        self.net_arch = [validation.integer("net_arch", width, 1) for width in widths]

    @abstractmethod
    def _initial(self, rng: np.random.Generator) -> Array:
        """The first weights of one replicate."""

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._problem = problem
        bounds = [abs(b) for b in problem.reward_range if math.isfinite(b) and b]
        self._scale = max(bounds, default=1.0)
        priced = problem.kind == "pricing"
        self._shows_revenues = problem.kind == "assortment" and not problem.equal_revenues
        self._inputs = problem.dim - 1 if priced else problem.dim + self._shows_revenues
        self._items: int = 1 if priced else problem.n_items or problem.n_candidates or 0
        # Training takes numbers when it is due, so they are not those of the decisions.
        self._training = [rng.spawn(1)[0] for rng in streams.agent]
        weights = np.array([self._initial(rng) for rng in self._training], np.float32)
        self._weights, self._moments = weights, np.zeros_like(weights[:, None].repeat(2, axis=1))
        self._steps = np.zeros(streams.replicates, np.int64)
        self._seen = np.zeros(streams.replicates, np.int64)
        self._lanes = np.arange(streams.replicates)
        self._everywhere = np.ones(streams.replicates, bool)

    def _widths(self, outputs: int) -> Array:
        return np.array([self._inputs, *self.net_arch, outputs])

    def _rows(self, context: Context) -> Array:
        """What the network sees of every item, ``(B, N, d)`` float32."""
        features = context.features
        if features.ndim == 2:
            return features[:, None]
        if self._shows_revenues:
            assert context.revenues is not None
            revenues = context.revenues / np.float32(self._scale)
            features = np.concatenate([features, revenues[..., None]], axis=-1)
        return features

    def _offered(self, context: Context) -> Array:
        if context.available is not None:
            return context.available
        return np.ones((len(context.features), self._items), bool)

    def _run(self, widths: Array, relu: bool, rows: Array) -> Array:
        """Outputs of the first network among the weights, ``(B, m, widths[-1])``."""
        out = np.empty((*rows.shape[:2], widths[-1]), np.float32)
        zoo.networks.run(self._weights, widths, relu, np.ascontiguousarray(rows), out)
        return out

    def _observed(self, feedback: Feedback) -> Array:
        return self._everywhere if feedback.observed is None else feedback.observed


def uniform_layers(rng: np.random.Generator, widths: Array) -> Array:
    """Weights and biases uniform on +-1 / sqrt(inputs), as PyTorch's linear layers begin."""
    layers = [
        (2.0 * rng.random((fan + 1) * out) - 1.0) / math.sqrt(fan)
        for fan, out in pairwise(widths.tolist())
    ]
    return np.concatenate(layers)


def orthogonal_layers(rng: np.random.Generator, widths: Array, gain: float) -> Array:
    """Random orthonormal matrices times sqrt(2), the last times `gain`; biases 0.

    As Stable-Baselines3's on-policy networks begin (Saxe et al. 2014).
    """
    layers = []
    for fan, out in pairwise(widths.tolist()):
        frame = portable.normals(rng, (max(fan, out), min(fan, out)))
        kernels.linalg.orthonormalise(frame)
        matrix = frame if fan >= out else frame.T
        layers.extend((math.sqrt(2.0) * matrix.ravel(), np.zeros(out)))
    layers[-2] *= gain / math.sqrt(2.0)
    return np.concatenate(layers)
