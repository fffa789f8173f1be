"""Test"""
from typing import Any, NamedTuple
import numpy as np
from dpb_gym.kernels.vectors import clip_factor, clipped, grow_inverse, largest, put_sum, times, upper_bounds
from dpb_gym.parameters import positive, real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.registry import register_agent


class Known(NamedTuple):
    alpha: float
    pull: Any


class State(NamedTuple):
    inverse: Any
    b: Any


@jit
def act(c, s, t, x, z):
    theta = times(s.inverse, s.b)
    return largest(upper_bounds(x, theta, s.inverse, c.alpha), z[0, 0])


@jit
def see(c, s, t, x, k):
    grow_inverse(s.inverse, clipped(x[k]))


@jit
def record(c, s, t, x, k, reward, z):
    return reward * clip_factor(x[k]), clipped(x[k])


@jit
def learn(c, s, released, t):
    put_sum(c.pull, released.sum, s.b)


@register_agent("lin-ucb2", supports=["recommendation"])
class LinUCB2(Algorithm):
    """LinUCB."""

    functions = Functions(act, record, learn, see)
    State = State
    alpha: float = real(1.0, 0.0)
    ridge: float = positive(1.0)

    def plan(self, problem, curator):
        sums = curator.batch_sum(problem.dim, reward=problem.reward_range, cumulative=True)
        return Plan(sums, directed=True, draws=1, dim=1, law="uniforms")

    def start(self, problem, sums):
        d = problem.dim
        return Known(self.alpha, np.zeros(d)), State(np.eye(d) / self.ridge, np.zeros(d))
