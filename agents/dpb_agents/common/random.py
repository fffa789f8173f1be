"""Uniformly random actions."""

from __future__ import annotations

import numpy as np

from dpb_agents import kernels as zoo
from dpb_gym.agent import Agent, register_agent
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams


@register_agent("random", supports=["assortment", "pricing", "recommendation"])
class RandomPolicy(Agent):
    """Uniformly random slates of K items, prices or candidates; learns nothing.

    The yardstick of normalised scores (random = 0).
    """

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._problem = problem
        shape: tuple[int, ...] = ()
        if problem.kind == "assortment":
            assert problem.capacity is not None and problem.n_items is not None
            shape = (min(problem.capacity, problem.n_items),)
        self._uniforms = streams.uniforms(*shape)

    def act(self, context: Context) -> Array:
        problem, uniforms = self._problem, self._uniforms.next()
        if problem.kind == "pricing":
            return uniforms.copy()
        if problem.kind == "recommendation":
            assert problem.n_candidates is not None
            # A uniform is below 1 - 2^-53, but its product with m may round up to m.
            index = (uniforms * problem.n_candidates).astype(np.int64)
            return np.minimum(index, problem.n_candidates - 1)
        slates = np.empty(uniforms.shape, np.int64)
        zoo.slates.random_slates(uniforms, problem.n_items, slates)
        return slates

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        pass
