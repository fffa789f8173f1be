"""Jointly private GLM-UCB for logistic rewards, with a rarely updated private MLE.

After arXiv:2602.00417.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.pricing.paper_constants import Demand
from dpb_agents.pricing.private_demand_mle import PrivateMLE
from dpb_agents.recommendation.rivals.joint import isometric_noise_norm, joint
from dpb_agents.recommendation.rivals.linear_rival import LinearRival, RivalFacts, optimistic
from dpb_gym import portable
from dpb_gym.errors import ParameterError
from dpb_gym.kernels.vectors import (
    clipped,
    copy_matrix,
    copy_to,
    definite,
    eigh,
    exp,
    inner,
    spectral,
)
from dpb_gym.parameters import inside, integer, positive, real
from dpb_gym.play import Functions, Plan, jit
from dpb_gym.privacy import Curator, ObjectivePerturbation, PSDBall, gaussian_sigma
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.problems.rounds import Array, ProblemInfo

STEEPEST = 0.25  # largest slope mu'(z) of the logistic mean
SLACK = 100.0  # factor of the tolerance, see `RewardMLE`


class RewardMLE(PrivateMLE):
    """`PrivateMLE` of logistic rewards, where x is the phi = [features; -price] / sqrt(d).

    The tolerance and the output noise that covers it are larger by `SLACK`, at the same cost:
    rewards far from 1/2 move theta to the bound ||theta|| <= 2, where the search is less exact.
    """

    @property
    def shape(self) -> RecordShape:
        """Shape of a record [x; r]."""
        return RecordShape(self.dim + 1)

    def _calibrated(self, rho: float) -> ObjectivePerturbation:
        plan = super()._calibrated(rho)
        return replace(plan, tolerance=SLACK * plan.tolerance, output_std=SLACK * plan.output_std)

    def minimise(
        self, due: Array, linear: Array, ridge: float, tolerance: float
    ) -> tuple[Array, Array]:
        return super().minimise(due, linear, ridge, tolerance / SLACK)

    def add(self, records: Array) -> None:  # type: ignore[override]
        """Store one record [x; r] per replicate, ``(B, d + 1)``; x = 0 for none."""
        # `PrivateMLE` forms phi = [features; -price] / sqrt(d), which this undoes.
        root = math.sqrt(self.dim)
        vectors = records[:, :-1]
        super().add(root * vectors[:, :-1], -root * vectors[:, -1], records[:, -1])

    def add_rounds(self, records: Array) -> None:
        """Store the records of several rounds, ``(n, B, d + 1)``."""
        for rows in records:
            self.add(rows)


class Known(NamedTuple):
    """Public constants.

    Attributes:
        alpha: Width of the bonus.
        lift: lambda, which is added to H.
        factor: 1 + growth.
        updates: Most releases of theta.
    """

    alpha: float
    lift: float
    factor: float
    updates: int


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: Newest MLE, ``(d,)``.
        H: Newest noisy sum of mu' x x', ``(d, d)``.
        frozen: H_tau + lambda I, ``(d, d)``.
        inverse: Its inverse, ``(d, d)``.
        updates: Releases of theta so far, ``(1,)``.
        due: Whether theta is due, ``(1,)``.
    """

    theta: Any
    H: Any
    frozen: Any
    inverse: Any
    updates: Any
    due: Any


@jit
def act(c, s, t, x, z):
    """Candidate of the largest <x, theta> + alpha ||x||_{H_tau^-1}."""
    return optimistic(x, s.theta, s.inverse, c.alpha, z)


@jit
def record(c, s, t, x, k, reward, z):
    """mu'(<x, theta>) x x' for H, and [x; r] for the MLE."""
    v = clipped(x[k])
    d = v.shape[0]
    row = np.zeros(d + 1)
    for j in range(d):
        row[j] = v[j]
    row[d] = reward
    # mu' is even, and exp of a negative number cannot overflow.
    e = exp(-abs(inner(v, s.theta)))
    return e / ((1.0 + e) * (1.0 + e)), v, row


@jit
def learn(c, s, released, t):
    """H <- its release. theta is due if H + lambda I exceeds (1 + growth) H_tau somewhere."""
    d = s.theta.shape[0]
    s.due[0] = False
    # No further estimate is paid for, so H is not needed.
    if s.updates[0] == c.updates:
        return
    copy_matrix(released.sum, s.H)
    left = np.zeros((d, d))
    for j in range(d):
        for k in range(d):
            # Positive definite while H + lambda I has outgrown H_tau in no direction.
            left[j, k] = c.factor * s.frozen[j, k] - s.H[j, k]
        left[j, j] -= c.lift
    s.due[0] = not definite(left)


@jit
def due(c, s, t):
    """Whether H has outgrown H_tau."""
    return s.due[0]


@jit
def adopt(c, s, theta, t):
    """Take the MLE, and freeze H + lambda I, with eigenvalues of at least half of lambda."""
    copy_to(theta, s.theta)
    values, vectors = eigh(s.H)
    for i in range(values.shape[0]):
        # lambda bounds the noise with high probability only.
        values[i] = max(values[i], -0.5 * c.lift) + c.lift
    copy_matrix(spectral(values, vectors), s.frozen)
    for i in range(values.shape[0]):
        values[i] = 1.0 / values[i]
    copy_matrix(spectral(values, vectors), s.inverse)
    s.updates[0] += 1


@joint("jdp-glm-ucb", needs_horizon=True)
class JDPGLM(LinearRival):
    """Rarely switching GLM-UCB with a private MLE and a private design matrix (Sarmasarkar 2026).

    After the abstract and the published code of Algorithm 2. Rewards in [0, 1] have mean
    mu(<x, theta>), mu logistic.

    1. H_t = noisy running sum of mu'(<x, theta>) x x' + lambda I, with theta of each round.
    2. When H_t exceeds (1 + `growth`) H_tau in some direction, tau = t and theta is released: the
       MLE of all rewards so far over ||theta|| <= 2, by objective perturbation. Determinants are
       not compared, because noise makes them unreliable.
    3. The action is the largest <x, theta> + alpha ||x||_{H_tau^-1}.

    Departures: objective perturbation instead of noisy gradient descent, calibrated for zCDP at
    every order and certified to its tolerance. There is one design matrix and one estimate. The
    paper's warm-up has its own, which eliminates by intervals of half-width gamma sqrt(kappa)
    ||x||_{V^-1}. At ||theta|| = 2, d = 20 and T = 10,000 these fall below the largest gap, 4, only
    after some 46,000 rounds. The continual sum is a BLT instead of a tree. See erratum J2.

    The guarantee is joint privacy of one **user-round**, replace-one. A record mu' x x' is positive
    semidefinite of norm at most 1/4: sensitivity sqrt(2) / 4 times that of the mechanism. A
    record's loss has a gradient of norm at most 1, so sensitivity 2, and curvature of trace at most
    1/4. Every record may be in all `updates` MLEs, which are charged together (`PrivateMLE`).
    Switches depend on releases only.

    Args:
        alpha: Width of the bonus, >= 0.
        ridge: Added to H times the identity in addition, > 0.
        share: Part of the budget for the MLEs, in (0, 1).
        updates: Most releases of theta. None: as many as H causes if records are even over the
            directions; without a budget any number.
        growth: Growth of H in some direction that makes theta due, > 0.
        every: Rounds between releases of H. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        shift: Multiple of the bound on the operator norm of H's noise that is added to H, >= 0.

    Raises:
        ParameterError: If rewards are not in [0, 1] when the agent begins.
    """

    functions = Functions(act, record, learn, due=due, adopt=adopt)
    # a single estimate, which the records of an audit's target can change by much
    audit_params: ClassVar[dict[str, Any]] = {"updates": 1, "share": 0.5}
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "alpha": [0.0, 0.3],
        "growth": [1.0, 2.0],
        "shift": [0.3, 1.0],
    }

    alpha: float = real(0.3, 0.0)
    centre: bool = field(init=False, default=False, repr=False)
    share: float = inside(0.8)
    updates: int | None = integer(None, 1)
    growth: float = positive(1.0)
    every: int = integer(10, 1)
    shift: float = real(1.0, 0.0)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        facts = self.facts(problem)
        if facts.reward != (0.0, 1.0):
            raise ParameterError(
                f"logistic rewards lie in [0, 1], got the range [{facts.low}, {facts.high}]"
            )
        every = min(self.every * facts.stretch, facts.horizon)
        # H decides when theta is due, so the releases of theta depend on releases only.
        sums = curator.running_sum(
            symmetric=facts.dim,
            clip=PSDBall(STEEPEST),
            every=every,
            share=1.0 - self.share,
            what="running sum of mu' x x'",
        )
        mle = RewardMLE(
            curator,
            facts.dim,
            facts.horizon,
            Demand.of("logistic", 1.0, 1.0),
            calls=self.most(facts, self.lift(facts, sums), curator.private),
            share=self.share,
        )
        mle.centre = facts.mean
        return self.planned(problem, sums, second=mle, every=every, running=True)

    def lift(self, facts: RivalFacts, sums: Any) -> float:
        """Return lambda, which bounds the noise of H; known before the budget is calibrated."""
        std = 0.0
        curator = sums.curator
        if curator.private:
            rho = (1.0 - self.share) * curator.most_rho
            sigma = gaussian_sigma(rho, sums.sensitivity * sums.gain)
            std = sigma * math.sqrt(float(sums.variances.max()))
        return self.ridge + self.shift * isometric_noise_norm(std, facts.dim, facts.horizon)

    def most(self, facts: RivalFacts, lift: float, private: bool) -> int:
        """Return the most releases of theta."""
        # Even records of slope 1/4 add t / (4 d) to each eigenvalue. From lambda on each update
        # takes a factor 1 + growth of this.
        room = portable.log1p(STEEPEST * facts.horizon / (facts.stretch * facts.dim * lift))
        likely = math.ceil(room / portable.log1p(self.growth))
        return self.updates or max(1, likely if private else facts.horizon)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        facts = self.facts(problem)
        d = facts.dim
        gram, mle = sums
        lift = self.lift(facts, gram)
        known = Known(self.alpha, lift, 1.0 + self.growth, mle.max_calls)
        return known, State(
            theta=facts.mean,
            H=np.zeros((d, d)),
            frozen=lift * np.eye(d),
            inverse=np.eye(d) / lift,
            updates=np.zeros(1, np.int64),
            due=np.zeros(1, np.bool_),
        )
