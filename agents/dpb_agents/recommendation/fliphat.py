"""FLIPHAT: sparse linear bandits by private iterative hard thresholding in episodes.

After arXiv:2405.14038.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.recommendation.ridge_agents import SUPPORTS
from dpb_agents.recommendation.rivals.linear_rival import LinearRival, doubling, record_reward
from dpb_gym import portable, validation
from dpb_gym.errors import ParameterError
from dpb_gym.kernels.vectors import copy_to, dots, largest
from dpb_gym.parameters import flag, integer, positive
from dpb_gym.play import Functions, Plan, jit
from dpb_gym.play.player import Player
from dpb_gym.privacy import Curator, Releaser, ZCDPEvent
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.registry import register_agent


class Kept(NamedTuple):
    """The release of one run of noisy iterative hard thresholding.

    Attributes:
        points: Iterates before each step, ``(B, M, d)``.
        order: Selected coordinates, in order of selection, ``(B, M, s)``.
        values: Their noisy values, ``(B, M, s)``.
        step: eta / n.
        xi: Scale of the noise of the selection.
        zeta: Scale of the noise of their values.
    """

    points: Array
    order: Array
    values: Array
    step: float
    xi: float
    zeta: float


class Peeling(Releaser):
    """Sparse least squares of disjoint episodes: noisy iterative hard thresholding.

    theta_{m+1} = P_C(peel(v)), v = theta_m - (eta / n) sum (<x, theta_m> - y) x, M times; peel
    keeps the s coordinates of largest |v_j| + xi G_j, G standard Gumbel, with values v_j + zeta
    Z_j, Z standard normal; P_C scales into ``||theta||_1 <= C``.

    Neighbours differ in one record (x, y) (**replace-one**). x is clipped to the unit ball, its
    coordinates to [-x_max, x_max], and y to [-R, R], and ``||theta_m||_1 <= C``. So every
    coordinate of v moves by at most lambda = 2 (eta / n) x_max (R + x_max C), and s of them
    together by Lambda = min(sqrt(s), 1 / x_max) lambda. Peeling is s exponential mechanisms (Durfee
    & Rogers 2019) of bounded range 2 lambda / xi, each of zCDP (lambda / xi)^2 / 2 (Cesar & Rogers
    2021), and a Gaussian one of (Lambda / zeta)^2 / 2. M steps spend rho, half on either, with
    xi = lambda sqrt(M s / rho) and zeta = Lambda sqrt(M / rho). A record is in one episode, so
    all episodes together cost as much as one. System noise is continuous, in double precision.

    Args:
        curator: Provides budget and noise.
        dim: d.
        sparsity: s, at most d.
        x_max: Bound of a feature's size.
        bound: R.
        radius: C.
        start: First iterate of every episode, ``(d,)``; scaled into the l1 ball.

    Attributes:
        kept: The newest release; None before the first.
    """

    def __init__(
        self,
        curator: Curator,
        dim: int,
        *,
        sparsity: int,
        x_max: float,
        bound: float,
        radius: float,
        start: Array,
    ) -> None:
        B = curator.replicates
        self.dim = dim
        self.shape = RecordShape(dim)
        self.sparsity = validation.integer("sparsity", sparsity, 1, dim)
        # a negative bound would cancel the others in the sensitivity
        self.radius = validation.real("radius", radius, 0.0, open_low=True)
        self.x_max = validation.real("x_max", x_max, 0.0, open_low=True)
        self.bound = validation.real("bound", bound, 0.0)
        # The sensitivity assumes ||theta||_1 <= C for the first iterate as well.
        self.start = start * min(1.0, radius / max(float(np.abs(start).sum()), 1e-300))
        self.kept: Kept | None = None
        self._gram, self._response = np.zeros((B, dim, dim)), np.zeros((B, dim))
        self._sigma = 0.0
        super().__init__(curator, share=None, what="sparse estimates of episodes by peeling")

    def cost(self, rho: float) -> ZCDPEvent:
        return ZCDPEvent(rho)

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        self._noise = noise
        self._sigma = 0.0 if rho is None else 1.0 / math.sqrt(rho)

    def sensitivity(self, step: float) -> float:
        """Return lambda, the sensitivity of a coordinate of v at a step of `step` = eta / n."""
        return 2.0 * step * self.x_max * (self.bound + self.x_max * self.radius)

    def add_rounds(self, rewards: Array, features: Array) -> None:
        """Add the records of several rounds, ``(n, B)`` and ``(n, B, d)``."""
        for values, vectors in zip(rewards, features):
            self.add(values, vectors)

    def add(self, rewards: Array, features: Array) -> None:
        """Add one record per replicate: y ``(B,)``, and x ``(B, d)``, all 0 for none.

        Raises:
            ParameterError: If a number is not finite; nothing changes.
        """
        if not (np.isfinite(features).all() and np.isfinite(rewards).all()):
            raise ParameterError("features and rewards must be finite, got NaN or infinity")
        self.ready()
        y = np.clip(rewards, -self.bound, self.bound)
        agent_kernels.sparse.add(features, y, self.x_max, self._gram, self._response)

    def release(self, step: float, steps: int) -> Array:
        """End the episode, discard its records, and return theta_M ``(B, d)``.

        Args:
            step: eta / n, public.
            steps: M, public.

        Raises:
            ParameterError: If they are out of range; nothing is released.
        """
        validation.real("step", step, 0.0)
        validation.integer("steps", steps, 1)
        self.ready()
        (B, d), s = self._response.shape, self.sparsity
        # rho is divided among M steps, and in each between selection and values.
        per_step = self._sigma * math.sqrt(steps) * self.sensitivity(step)
        xi = per_step * math.sqrt(s)
        zeta = per_step * min(math.sqrt(s), 1.0 / self.x_max)
        gumbels = np.zeros((B, steps, d))
        normals = np.zeros((B, steps, s))
        if xi:
            gumbels = self._noise.gumbel((steps, d))
            normals = self._noise.normal((steps, s))
        theta = np.tile(self.start, (B, 1))
        points = np.empty((B, steps, d))
        order = np.empty((B, steps, s), np.int64)
        kept = points, order, np.empty((B, steps, s))
        sums = self._gram, self._response
        agent_kernels.sparse.thresholded(
            *sums, step, xi, zeta, gumbels, normals, self.radius, theta, *kept
        )
        # The records are discarded, so that episodes compose in parallel.
        self._gram[:] = 0.0
        self._response[:] = 0.0
        self.kept = Kept(*kept, step, xi, zeta)
        return theta

    def log_density(self, kept: Kept) -> Array:
        """Return the log-density of a release given the open episode, up to a constant."""
        out = np.empty(len(self._response))
        seen = kept.step, kept.xi, kept.zeta, kept.points, kept.order, kept.values
        agent_kernels.sparse.log_density(self._gram, self._response, *seen, out)
        return out


class Known(NamedTuple):
    """Public constants.

    Attributes:
        shift: Subtracted from rewards.
        noisy: Whether releases carry noise.
    """

    shift: float
    noisy: bool


class State(NamedTuple):
    """State of one replicate: the newest estimate theta, ``(d,)``."""

    theta: Any


@jit
def act(c, s, t, x, z):
    """Candidate of the largest <x, theta>."""
    return largest(dots(x, s.theta), z[0, 0] if z.shape[0] > 0 else 0.0)


@jit
def record(c, s, t, x, k, reward, z):
    """r and x."""
    return record_reward(c, x, k, reward)


@jit
def learn(c, s, released, t):
    """theta <- the estimate of the episode."""
    copy_to(released.sum, s.theta)


class FLIPHATPlayer(Player):
    """Player whose releases are noisy descents, with public steps that depend on the episode."""

    def _release(self, due: Array | None = None) -> Array:
        own: Any = self.algorithm
        stretch = own.facts(self.problem).stretch
        # an episode is as long as all before it and the first
        n = (self.rounds + own.length * stretch) / (2 * stretch)
        steps = math.ceil(own.steps * portable.log1p(n))
        return np.asarray(self.plan.sums.release(own.step * self.problem.dim / n, steps))


@register_agent("fliphat", supports=SUPPORTS, protects=("joint", "user-round"))
class FLIPHAT(LinearRival):
    """Forgetful iterative private hard thresholding (Chakraborty, Roy & Basu 2024).

    After the abstract and the published code. Episodes of doubling length play the largest
    <x, theta>. At the end of an episode theta is estimated from its own records by sparse least
    squares (`Peeling`) with M = ceil(M_0 log(1 + n)) steps, and the records are discarded.

    Departures: the noise covers a replaced record (erratum J1) and is calibrated for zCDP, Gumbel
    for the selection and Gaussian for the values, where the paper has Laplace. Iterates are scaled
    into the l1 ball, because projection onto a ball that is too small drops coordinates. Features
    are clipped to the unit ball and to x_max per coordinate. Rewards are centred. eta = `step` d
    suits features that are spread over d coordinates.

    The guarantee is joint privacy of one **user-round**, replace-one, with the sensitivity and
    noise of `Peeling`. Features of a user affect other users' rounds through releases only.

    Args:
        prior_mean: See `LinearRival`: the first iterate of every episode.
        centre: Subtract the middle of the reward's range (erratum R9).
        sparsity: s, the number of nonzero coordinates of theta; at most d are used.
        length: Rounds of the first episode. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        steps: M_0, > 0.
        step: Length of a step, eta / d, > 0.
        spread: x_max in units of 1 / sqrt(d), > 0; 1 at most.
        radius: C, the bound of ||theta||_1 in units of the reward, > 0.
    """

    functions = Functions(act, record, learn)
    player: ClassVar[Any] = FLIPHATPlayer
    # all coordinates are selected, so the one that the target moves is among them
    audit_params: ClassVar[dict[str, Any]] = {"sparsity": 2, "radius": 0.01, "length": 16}
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "sparsity": [5, 10],
        "steps": [0.1, 0.2],
        "length": [100, 400],
    }

    alpha: float = field(init=False, default=0.0, repr=False)
    ridge: float = field(init=False, default=1.0, repr=False)
    centre: bool = flag(True)
    sparsity: int = integer(5, 1)
    length: int = integer(100, 1)
    steps: float = positive(0.2)
    step: float = positive(0.5)
    spread: float = positive(2.0)
    radius: float = positive(1.0)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        facts = self.facts(problem)
        sums = Peeling(
            curator,
            facts.dim,
            sparsity=min(self.sparsity, facts.dim),
            # The ball bounds a coordinate by 1 anyway.
            x_max=min(1.0, self.spread / math.sqrt(facts.dim)),
            bound=max(abs(facts.low), abs(facts.high)),
            radius=self.radius,
            start=facts.mean,
        )
        # Records per episode are as planned where one in n_candidates rounds is observed.
        first = self.length * facts.stretch
        return self.planned(problem, sums, ends=doubling(first, facts.horizon))

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        facts = self.facts(problem)
        return Known(facts.shift, sums.curator.private), State(facts.mean)
