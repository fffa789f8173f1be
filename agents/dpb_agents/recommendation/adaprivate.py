"""The AdaPrivate family (RU): linear policies on noisy reward sums of disjoint batches.

RU, Algorithm 1: b grows by the noisy sum of one batch of rewards at a time, A = ridge I + sum x x'
is public and exact. Every reward is in one batch, so the batches compose in parallel. The last,
partial batch is never used. The noise of the batches adds up in b (erratum R5). arXiv:2606.21757.

The sums protect the **reward** of one round, or all rewards of one user (section 6.1, corrected);
an adversary may see all recommendations. Contexts, recommended items and, in rejection replay, the
accepted rounds count as public and are **not** protected (erratum R15), because A is exact.
"""

from __future__ import annotations

import math
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

from dpb_agents.recommendation.ridge_agents import (
    CENTRED,
    SUPPORTS,
    WIDTHS,
    LinearPlan,
    LinTS,
    LinUCB,
    central,
)
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.parameters import choice, integer, optional_positive, real
from dpb_gym.play import Plan
from dpb_gym.privacy import (
    Budget,
    ContributionCap,
    Curator,
    amplified_sigma_ru,
    equivalent_rho,
    gaussian_sigma,
    textbook_rho,
)
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent

CALIBRATIONS = ("verified", "paper")
for_users = partial(
    register_agent, supports=SUPPORTS, protects=("central", "user-rewards"), budget="required"
)


def noisy_batches(
    curator: Curator, plan: LinearPlan, calibration: str, sampling: float = 1.0
) -> Plan:
    """Return the plan of noisy sums of disjoint batches of rewards (RU, Algorithm 1).

    Args:
        curator: Creates the releaser.
        plan: Numbers of the linear policy.
        calibration: ``"verified"``: sigma of the exact Gaussian mechanism, or of the exactly
            accounted Poisson-sampled one. ``"paper"``: RU, Eq. 2.8 (valid, erratum R1) or, with
            sampling, Eq. 3.6 (no upper bound, erratum R2). The guarantee states the true cost.
        sampling: Probability with which a reward enters the sums.
    """
    sigma = None
    if calibration == "paper" and curator.budget is not None:
        # Printed noise may cost more than the budget: the ledger then states the true cost.
        curator.as_printed("RU, Eq. 2.8 and 3.6")
        sigma = printed_sigma(curator.budget, plan.reward, sampling)
    sums = curator.batch_sum(
        plan.dim, reward=plan.reward, sigma=sigma, sampling=sampling, cumulative=True
    )
    return Plan(sums, directed=True)


def printed_sigma(budget: Budget, reward: tuple[float, float], sampling: float) -> float:
    """Return RU's noise of a batch: Eq. 2.8, or with sampling Eq. 3.6.

    Eq. 2.8, ``range / sqrt(2 rho)`` with ``rho = (sqrt(eps + l) - sqrt(l))^2``,
    ``l = log(1/delta)``, is valid and not tight (erratum R1). Eq. 3.6 is no upper bound (erratum
    R2).

    Raises:
        BudgetError: If Eq. 3.6 is given a zCDP budget.
        ParameterError: If Eq. 3.6 has no solution.
    """
    width = reward[1] - reward[0]
    if budget.epsilon is None or budget.delta is None:
        if sampling < 1:
            raise BudgetError(
                "calibration='paper' with sampling takes an (epsilon, delta) budget: Eq. 3.6 "
                "solves for epsilon"
            )
        return gaussian_sigma(equivalent_rho(budget), width)
    if sampling < 1:
        return amplified_sigma_ru(budget.epsilon, budget.delta, sampling).sigma * width
    return gaussian_sigma(textbook_rho(budget.epsilon, budget.delta), width)


def user_batches(
    problem: ProblemInfo,
    curator: Curator,
    plan: LinearPlan,
    max_rounds_per_user: int | None,
    clip: float | None,
    calibration: str,
) -> Plan:
    """Return the plan of noisy batch sums that protect all rewards of one user.

    Contexts, recommendations and user ids are public. Only the first k rounds of a user count. The
    sums c_1, c_2, ... of a user's rewards in all batches are clipped to
    ``sum_j ||c_j||^2 <= C^2``, C = `clip` sqrt(k) h, with h the largest absolute reward after
    centring. The sensitivity is then 2C (erratum R10). If 2C exceeds k times the rewards' range,
    nothing is clipped and that is the sensitivity.

    Args:
        problem: Public facts.
        curator: Creates the releaser.
        plan: Numbers of the linear policy.
        max_rounds_per_user: k; None: the number that the problem declares.
        clip: See above; None: group privacy, rho / k^2 per reward.
        calibration: ``"verified"``: noise for the sensitivity. ``"paper"``: rho of RU, Eq. 2.8, and
            with `clip` noise for C alone (section 6.1, erratum R10). The guarantee states the true
            cost. RU clip each batch alone, which is the same where all rounds of a user are in one
            batch.

    Raises:
        ParameterError: If the problem declares no k.
    """
    k = max_rounds_per_user or problem.max_interactions or problem.person_uses
    if k is None:
        raise ParameterError(
            "max_rounds_per_user, the most rounds of a user that may be learnt from, is needed: "
            "this problem declares none"
        )
    cap = ContributionCap(k, curator.replicates)
    low, high = plan.reward
    unit = None
    if calibration == "paper" and curator.budget is not None:
        curator.as_printed("RU, Eq. 2.8 and section 6.1")
        # Noise per unit of sensitivity.
        unit = printed_sigma(curator.budget, (0.0, 1.0), 1.0)
    if clip is not None:
        # k of the largest rewards in k batches have squared sums of k h^2: at clip = 1 none is cut.
        radius = clip * math.sqrt(k) * max(abs(low), abs(high))
        # Points of the ball differ by at most 2 C; k unclipped rewards may differ by less.
        if unit is not None or 2.0 * radius < k * (high - low):
            sums = curator.user_sum(
                plan.dim, radius=radius, reward=plan.reward, cumulative=True,
                sigma=None if unit is None else unit * radius,
            )  # fmt: skip
            return Plan(sums, directed=True, users=True, cap=cap)
    sums = curator.batch_sum(
        plan.dim, reward=plan.reward, limit=k, cumulative=True,
        sigma=None if unit is None else unit * k * (high - low),
    )  # fmt: skip
    return Plan(sums, directed=True, users=True, cap=cap)


@central("adaprivate-ucb")
class AdaPrivateUCB(LinUCB):
    """AdaPrivate-UCB: LinUCB on noisy reward sums of disjoint batches.

    RU, Algorithm 1. The other parameters are those of `LinUCB`.

    Args:
        calibration: ``"verified"``: sigma of the exact Gaussian mechanism. ``"paper"``: RU, Eq. 2.8
            (valid, erratum R1). The guarantee states the true cost.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {"alpha": WIDTHS, **CENTRED}

    batch: int = 300
    calibration: str = choice("verified", CALIBRATIONS)

    def sums(self, problem: ProblemInfo, curator: Curator, plan: LinearPlan) -> Plan:
        return noisy_batches(curator, plan, self.calibration)


@central("adaprivate-ts")
@central(
    "adaprivate-adaptive",
    summary="AdaPrivate-TS whose draws narrow with every batch (RU, section 3.3).",
    v=1.5,
    decay=0.95,
)
class AdaPrivateTS(LinTS):
    """AdaPrivate-TS: Thompson sampling on noisy reward sums of disjoint batches.

    RU, Algorithm 1. In ``adaprivate-adaptive`` (section 3.3) the width of the draw falls by
    `decay` per batch. The other parameters are those of `LinTS`.

    Args:
        v: See `LinTS`. None: ``1 + sigma / (d sqrt(lambda_0))`` (RU, section 4.2), where sigma
            is the noise of one batch and lambda_0 = 1/d as on the unit sphere.
        decay: See `LinTS`; RU take 0.95 with v = 1.5.
        calibration: ``"verified"``: sigma of the exact Gaussian mechanism. ``"paper"``: RU, Eq. 2.8
            (valid, erratum R1). The guarantee states the true cost.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "adaprivate-ts": {"v": WIDTHS, **CENTRED},
        "adaprivate-adaptive": {"v": [0.1, 0.4, 1.5, 6.0], **CENTRED},
    }
    retired: ClassVar[dict[str, str]] = {"sampling": "it belongs to adaprivate-amp"}

    batch: int = 300
    v: float = 1.0
    calibration: str = choice("verified", CALIBRATIONS)
    sampling = 1.0

    def __post_init__(self) -> None:
        # The checks of parameters need a number; `width` replaces it when the noise is known.
        self._tuned = self.v is None
        self.v = 0.0 if self.v is None else self.v
        super().__post_init__()

    def width(self, dim: int, sums: Any) -> float:
        if not self._tuned:
            return self.v
        # The noisy sum is divided by q, and its noise with it.
        sigma = float(sums.sigma) / self.sampling
        return 1.0 + sigma / (dim * math.sqrt(1.0 / dim))

    def sums(self, problem: ProblemInfo, curator: Curator, plan: LinearPlan) -> Plan:
        return noisy_batches(curator, plan, self.calibration, self.sampling)


@central("adaprivate-amp", sampling=0.5)
class AdaPrivateAmp(AdaPrivateTS):
    """AdaPrivate-TS on a secret random half of the rewards (RU, section 3.2).

    See `AdaPrivateTS`.

    Args:
        sampling: q, in (0, 1]: each reward enters the sums with probability q.

    Raises:
        ParameterError: If Eq. 3.6 has no solution.
        BudgetError: If Eq. 3.6 is to be solved for a zCDP budget.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {"v": WIDTHS, **CENTRED}
    retired: ClassVar[dict[str, str]] = {"window": "AdaPrivate without sampling forgets"}

    window: int | None = field(default=None, init=False)
    sampling: float = real(1.0, 0.0, 1.0, open_low=True)


RETIRED = {"window": "the contributions of a user are capped for good, so nothing is forgotten"}


@for_users("adaprivate-user-ucb")
class AdaPrivateUserUCB(LinUCB):
    """AdaPrivate-UCB for all rewards of a user: capped rounds, noisy sums.

    The other parameters are those of `LinUCB`.

    Args:
        max_rounds_per_user: See `user_batches`.
        clip: See `user_batches`.
        calibration: See `user_batches`.

    Raises:
        ParameterError: If a parameter is out of range, or the problem identifies no users.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {"alpha": WIDTHS, **CENTRED}
    retired: ClassVar[dict[str, str]] = RETIRED

    batch: int = 300
    window: int | None = field(default=None, init=False)
    max_rounds_per_user: int | None = integer(None, 1)
    clip: float | None = optional_positive(1.0)
    calibration: str = choice("verified", CALIBRATIONS)

    def sums(self, problem: ProblemInfo, curator: Curator, plan: LinearPlan) -> Plan:
        return user_batches(
            problem, curator, plan, self.max_rounds_per_user, self.clip, self.calibration
        )


@for_users("adaprivate-user-ts")
class AdaPrivateUserTS(LinTS):
    """AdaPrivate-TS for all rewards of a user: capped rounds, noisy sums.

    The other parameters are those of `LinTS`.

    Args:
        max_rounds_per_user: See `user_batches`.
        clip: See `user_batches`.
        calibration: See `user_batches`.

    Raises:
        ParameterError: If a parameter is out of range, or the problem identifies no users.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {"v": WIDTHS, **CENTRED}
    retired: ClassVar[dict[str, str]] = RETIRED

    batch: int = 300
    window: int | None = field(default=None, init=False)
    max_rounds_per_user: int | None = integer(None, 1)
    clip: float | None = optional_positive(1.0)
    calibration: str = choice("verified", CALIBRATIONS)

    def sums(self, problem: ProblemInfo, curator: Curator, plan: LinearPlan) -> Plan:
        return user_batches(
            problem, curator, plan, self.max_rounds_per_user, self.clip, self.calibration
        )
