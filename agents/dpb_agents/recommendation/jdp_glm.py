"""Jointly private GLM-UCB for logistic rewards, with a rarely updated private MLE.

After arXiv:2602.00417.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import inside, integer, positive, real
from dpb_agents.pricing.paper_constants import Demand
from dpb_agents.pricing.private_demand_mle import PrivateMLE
from dpb_agents.recommendation.rivals.joint import isometric_noise_norm, joint
from dpb_agents.recommendation.rivals.linear_rival import LinearRival
from dpb_gym import kernels, portable
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import (
    Curator,
    ObjectivePerturbation,
    PSDBall,
    RunningSum,
    Segment,
    gaussian_sigma,
)
from dpb_gym.problems.base import Array, ProblemInfo

STEEPEST = 0.25  # largest slope mu'(z) of the logistic mean
SLACK = 100.0  # factor of the tolerance, see `RewardMLE`


class RewardMLE(PrivateMLE):
    """`PrivateMLE` of logistic rewards, where x is the phi = [features; -price] / sqrt(d).

    The tolerance and the output noise that covers it are larger by `SLACK`, at the same cost:
    rewards far from 1/2 move theta to the bound ||theta|| <= 2, where the search is less exact.
    """

    def _calibrated(self, rho: float) -> ObjectivePerturbation:
        plan = super()._calibrated(rho)
        return replace(plan, tolerance=SLACK * plan.tolerance, output_std=SLACK * plan.output_std)

    def minimise(
        self, due: Array, linear: Array, ridge: float, tolerance: float
    ) -> tuple[Array, Array]:
        return super().minimise(due, linear, ridge, tolerance / SLACK)

    def add(self, vectors: Array, rewards: Array) -> None:  # type: ignore[override]
        """Store one record per replicate: x ``(B, d)``, 0 for none, and r ``(B,)``."""
        root = math.sqrt(self.dim)
        super().add(root * vectors[:, :-1], -root * vectors[:, -1], rewards)


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

    releaser: RunningSum = field(init=False, repr=False)
    # a single estimate, which the records of an audit's target can change by much
    audit_params: ClassVar[dict[str, Any]] = {"updates": 1, "share": 0.5}
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "alpha": [0.0, 0.3],
        "growth": [1.0, 2.0],
        "shift": [0.3, 1.0],
    }

    alpha: float = 0.3
    centre: bool = field(init=False, default=False, repr=False)
    share: float = inside(0.8)
    updates: int | None = integer(None, 1)
    growth: float = positive(1.0)
    every: int = integer(10, 1)
    shift: float = real(1.0, 0.0)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        if (bound.low, bound.high) != (0.0, 1.0):
            raise ParameterError(
                f"logistic rewards lie in [0, 1], got the range [{bound.low}, {bound.high}]"
            )
        (B, d), T = self._theta.shape, self._horizon
        self._next = self._interval = min(self.every * self._stretch, T)
        self.releaser = curator.running_sum(
            symmetric=d,
            clip=PSDBall(STEEPEST),
            every=self._interval,
            share=1.0 - self.share,
            what="running sum of mu' x x'",
        )
        std = 0.0
        if curator.private:
            rho = (1.0 - self.share) * curator.most_rho
            sigma = gaussian_sigma(rho, self.releaser.sensitivity * self.releaser.gain)
            std = sigma * math.sqrt(float(self.releaser.variances.max()))
        self._lambda = self.ridge + self.shift * isometric_noise_norm(std, d, T)
        room = portable.log1p(STEEPEST * T / (self._stretch * d * self._lambda))
        likely = math.ceil(room / portable.log1p(self.growth)) if curator.private else T
        self._most = self.updates or max(1, likely)
        demand = Demand.of("logistic", 1.0, 1.0)
        self.mle = RewardMLE(curator, d, T, demand, calls=self._most, share=self.share)
        self.mle.centre = self._theta[:] = self.prior(problem).centre
        self._frozen = np.tile(self._lambda * np.eye(d), (B, 1, 1))
        self._inverse[:] = np.eye(d) / self._lambda
        self._due, self._informed = np.zeros(B, bool), False
        self._updates = np.zeros(B, np.int64)

    def _learn(self, reward: Array, chosen: Array) -> None:
        slopes = np.empty_like(reward)
        agent_kernels.linear.slopes(chosen, self._theta, slopes)
        self.releaser.add_rounds(slopes, chosen)
        for x, r in zip(chosen, reward):
            self.mle.add(x, r)
        if self._rounds < self._next:
            return
        self._next += self._interval
        if (self._updates == self._most).all():
            return
        H = self.releaser.value
        grown = agent_kernels.linear.outgrown(
            H, self._lambda, self._frozen, 1.0 + self.growth, self._due
        )
        due = self._due & (self._updates < self._most)
        if grown and due.any():
            self._theta[due] = self.mle.release(due)[due]
            self._updates += due
            self._freeze(H, due)

    def _freeze(self, H: Array, due: Array) -> None:
        """Set H_tau = H_t + lambda I, with eigenvalues of at least half of lambda."""
        values, vectors = kernels.linalg.eigh(H[due])
        values = np.maximum(values, -0.5 * self._lambda) + self._lambda
        self._frozen[due] = kernels.linalg.compose(values, vectors)
        self._inverse[due] = kernels.linalg.compose(1.0 / values, vectors)
