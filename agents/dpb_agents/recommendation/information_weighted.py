"""Information-weighted regression for private linear bandits.

After arXiv:2502.13115.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.recommendation.rivals.joint import isometric_noise_norm, joint
from dpb_agents.recommendation.rivals.linear_rival import (
    LinearRival,
    doubling,
    optimistic,
    record_reward,
    shrunk,
)
from dpb_gym.kernels.vectors import (
    add,
    between,
    copy_matrix,
    copy_to,
    eigh,
    inner,
    spectral,
    times,
)
from dpb_gym.parameters import flag, integer, real
from dpb_gym.play import Functions, Plan, jit
from dpb_gym.privacy import Curator, PSDBall
from dpb_gym.problems.rounds import ProblemInfo

LEAST = 0.5  # lower bound of eigenvalues, as a share of the regularisation


class Known(NamedTuple):
    """Public constants.

    Attributes:
        alpha: Factor of the confidence width.
        ridge: lambda.
        mean: Prior mean of theta, ``(d,)``.
        informed: Whether it is not 0.
        shift: Subtracted from rewards.
        low: Lowest shifted reward.
        high: Highest shifted reward.
        half: Half the width of the rewards' range.
        noisy: Whether sums carry noise.
        weight: Factor of gamma.
        scale: Multiple of the bound of the norm of A's noise that is added to A.
        norm: That bound, for one episode.
        sigma: Standard deviation of the noise of u, for one episode.
        length: Rounds of the first episode.
        stretch: Rounds per observed one.
    """

    alpha: float
    ridge: float
    mean: Any
    informed: bool
    shift: float
    low: float
    high: float
    half: float
    noisy: bool
    weight: float
    scale: float
    norm: float
    sigma: float
    length: int
    stretch: int


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: V^-1 sum r x, ``(d,)``.
        V: V^-1, ``(d, d)``.
        width: Width of the bonus, ``(1,)``.
        pull: ridge m, or the pull of the prior mean in units of the sums, ``(d,)``.
        root: W^(1/2), ``(d, d)``.
        size: ||W||, ``(1,)``.
        gamma: gamma of the episode, ``(1,)``.
        bound: R = ||W|| / (1 + gamma ||W||), ``(1,)``.
        A: Sum of all W^(-1/2) A W^(-1/2), ``(d, d)``.
        u: Sum of all W^-1 u, ``(d,)``.
        squares: Sum of R^2 over the episodes, ``(1,)``.
    """

    theta: Any
    V: Any
    width: Any
    pull: Any
    root: Any
    size: Any
    gamma: Any
    bound: Any
    A: Any
    u: Any
    squares: Any


@jit
def act(c, s, t, x, z):
    """Candidate of the largest <x, theta> + width ||x||_{V^-1}."""
    if c.informed:
        return optimistic(x, shrunk(s.theta, s.V, 1.0, s.pull), s.V, s.width[0], z)
    return optimistic(x, s.theta, s.V, s.width[0], z)


@jit
def record(c, s, t, x, k, reward, z):
    """w (W^(1/2) x)(W^(1/2) x)' and w r W x, in units of R, with w = 1 / (1 + gamma ||W x||)."""
    r, v = record_reward(c, x, k, reward)
    r = min(max(r, c.low), c.high)
    scaled = times(s.root, v)
    y = times(s.root, scaled)
    # v / (1 + gamma v) grows with v, and ||W x|| <= ||W||: in units of R a record is at most 1.
    w = 1.0 / ((1.0 + s.gamma[0] * math.sqrt(inner(y, y))) * s.bound[0])
    for j in range(y.shape[0]):
        y[j] = w * r * y[j]
    return w, scaled, y


@jit
def learn(c, s, released, t):
    """V, theta and W <- those of the noisy sums of all episodes."""
    n = t / c.stretch
    d = s.theta.shape[0]
    R = s.bound[0]
    roots, frame = eigh(s.root)
    # Episodes have different W. Their sums are added after W is taken out of them.
    back = spectral(1.0 / roots, frame)
    A = np.zeros((d, d))
    u = np.zeros(d)
    for j in range(d):
        u[j] = R * released.second[j]
        for k in range(d):
            A[j, k] = R * released.sum[j, k]
    A = between(back, A)
    for j in range(d):
        for k in range(d):
            s.A[j, k] += A[j, k]
    add(s.u, 1.0, times(back, times(back, u)))
    # An episode's noise has the scale of its R, and episodes have independent noise.
    s.squares[0] += R * R
    noise = math.sqrt(s.squares[0])
    shift = c.scale * c.norm * noise
    # The shift pulls to the prior mean like the ridge, in the metric W^-1 in which it is added.
    copy_to(times(spectral(shift / (roots * roots) + c.ridge, frame), c.mean), s.pull)
    reweigh(c, s, shift, n)
    copy_to(times(s.V, s.u), s.theta)
    s.width[0] = c.alpha * (c.half + c.sigma * noise / math.sqrt(n))
    # the next episode is as long as all before it and the first
    weigh(c, s, t + c.length)


@jit
def reweigh(c, s, shift, n):
    """V = A + shift W^-1 + ridge I, and the next W = (V / n)^(-1/2).

    In units of W^(-1/2), eigenvalues of V are at least half of shift + ridge.
    """
    d = s.theta.shape[0]
    roots, frame = eigh(s.root)
    # On the scale of W noise is alike in all directions, so that one floor fits all eigenvalues.
    scaled = between(s.root, s.A)
    lift = spectral(shift + c.ridge * roots * roots, frame)
    for j in range(d):
        for k in range(d):
            scaled[j, k] += lift[j, k]
    values, vectors = eigh(scaled)
    for j in range(d):
        values[j] = 1.0 / max(values[j], LEAST * (shift + c.ridge))
    copy_matrix(between(s.root, spectral(values, vectors)), s.V)
    values, vectors = eigh(s.V)
    for j in range(d):
        # W^(1/2) = (V / n)^(-1/4), and these are eigenvalues of V^-1.
        values[j] = math.sqrt(math.sqrt(n * max(values[j], 0.0)))
    copy_matrix(spectral(values, vectors), s.root)
    # Eigenvalues ascend.
    s.size[0] = values[d - 1] * values[d - 1]


@jit
def weigh(c, s, length):
    """Set gamma and R of an episode of so many rounds."""
    s.gamma[0] = c.weight * c.sigma / (c.half * math.sqrt(length / c.stretch))
    s.bound[0] = s.size[0] / (1.0 + s.gamma[0] * s.size[0])


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

    functions = Functions(act, record, learn)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "shift": [1.0, 3.0],
        "length": [100, 400],
        "alpha": [0.0, 0.2],
    }

    alpha: float = real(0.2, 0.0)
    centre: bool = flag(True)
    length: int = integer(100, 1)
    weight: float = real(1.0, 0.0)
    shift: float = real(1.0, 0.0)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        facts = self.facts(problem)
        largest = max(abs(facts.low), abs(facts.high))
        # Records are in units of R, so none is longer than the bounds of these sums.
        sums = curator.batch_sum(
            symmetric=facts.dim, clip=PSDBall(1.0), what="information-weighted sums of x x'"
        )
        second = curator.batch_sum(facts.dim, clip=largest, what="information-weighted sums of r x")
        first = self.length * facts.stretch
        return self.planned(problem, sums, second=second, ends=doubling(first, facts.horizon))

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        facts = self.facts(problem)
        first, second = sums
        d = facts.dim
        known = Known(
            alpha=self.alpha,
            ridge=self.ridge,
            mean=facts.mean,
            informed=bool(facts.mean.any()),
            shift=facts.shift,
            low=facts.low,
            high=facts.high,
            half=facts.half,
            noisy=first.sigma > 0.0,
            weight=self.weight,
            scale=self.shift,
            norm=isometric_noise_norm(float(first.sigma), d, facts.horizon),
            sigma=float(second.sigma),
            length=self.length * facts.stretch,
            stretch=facts.stretch,
        )
        # W = sqrt(d) I, the fixed point for even records without noise
        state = State(
            theta=np.zeros(d),
            V=np.eye(d) / self.ridge,
            width=np.full(1, self.alpha),
            pull=self.ridge * facts.mean,
            root=math.sqrt(math.sqrt(d)) * np.eye(d),
            size=np.full(1, math.sqrt(d)),
            gamma=np.zeros(1),
            bound=np.zeros(1),
            A=np.zeros((d, d)),
            u=np.zeros(d),
            squares=np.zeros(1),
        )
        weigh(known, state, known.length)
        return known, state
