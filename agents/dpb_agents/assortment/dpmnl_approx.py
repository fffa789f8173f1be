"""The (epsilon, delta) benchmark of Cho & Sun: DPMNL with classical composition.

arXiv:2410.22488, section S.3. Algorithm 1 is in `dpmnl.py`; this file has the calibration of
Algorithms 4 and 5, which replace Algorithms 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dpb_agents.assortment.choice_records import CURVATURE, GRADIENT_BOUND, ChoiceMLE, EntrywiseGram
from dpb_agents.assortment.dpmnl import DPMNL, LITERAL, ChoiceReleasers, registered
from dpb_agents.common.parameters import choice
from dpb_gym import portable
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy import (
    Budget,
    Curator,
    ObjectivePerturbation,
    PSDBall,
    RunningSum,
    objective_cs_approx,
    textbook_epsilon,
)
from dpb_gym.problems.base import ProblemInfo

CALIBRATIONS = ("verified", "paper", "as-run")
CONVERSIONS = ("correct", "paper")
SIGMAS = ("theorem-5", "algorithm-4")
LITERAL_APPROX = {
    "epsilon-mle": "epsilon_mle in the ridge term of alpha-tilde is that of one call, as in "
    "sigma_mle, not that of all calls",
    "lambda-tilde": "lambda-tilde has the m of Algorithm 5, not that of Lemma S6",
    "line-15": LITERAL["line-15"],
}
"""Printed forms from which ``calibration="paper"`` departs, by the name that `literal` takes."""


@dataclass(frozen=True)
class Split:
    """Division of (epsilon, delta) between the private MLEs and the Gram sum.

    Attributes:
        mle_epsilon: epsilon_1, for all private MLEs together.
        call_epsilon: epsilon of one private MLE.
        call_delta: delta of one private MLE.
        gram_epsilon: epsilon_2, for the Gram sum.
        gram_delta: delta_2, for the Gram sum.
    """

    mle_epsilon: float
    call_epsilon: float
    call_delta: float
    gram_epsilon: float
    gram_delta: float


@registered("dpmnl-approx")
class DPMNLApprox(DPMNL):
    """The benchmark of Cho & Sun: DPMNL with (epsilon, delta) releases (section S.3).

    The policy is that of DPMNL. Each private MLE (Algorithm 4) is calibrated separately, and
    advanced composition adds their costs. The Gram sum (Algorithm 5) follows Shariff & Sheffet
    (2018). Both use less privacy than they are given, which is the paper's point. The reported
    guarantee is the true cost of the noise, usually far below the budget.

    `conversion` turns a zCDP budget into (epsilon, delta) with delta = 1/T^2. With the correct
    conversion the verified agent satisfies both (epsilon, delta) and rho: the ridge is raised
    where (epsilon, delta) leaves it too small for rho. With the paper's conversion the guarantee
    holds for (epsilon, delta) only, and is stated so (erratum A7).

    Args:
        share: Part of epsilon that goes to the MLE; delta is halved (not given in the paper).
        calibration: ``"verified"``: the ridge that Theorem 5's proof needs (errata A3, A9),
            advanced composition that holds for every epsilon, Gram noise for sensitivity
            sqrt(2) K (A1); the accountant must confirm (epsilon, delta), or the agent refuses.
            ``"paper"``: the printed constants, with the guarantee that they imply;
            ``"as-run"``: see `DPMNL`.
        literal: See `DPMNL`; names of `LITERAL_APPROX`.
        conversion: ``"correct"``: epsilon = rho + 2 sqrt(rho log(1/delta)); ``"paper"``:
            epsilon = rho + 4 rho log T, as in section 5.1.
        sigma: With ``calibration="paper"``: noise of the MLE as in ``"theorem-5"``, or twice as
            large, as in ``"algorithm-4"``.
        levels: Number m of levels in the noise of the Gram sum: 1 + ceil(log2 T) as in
            ``"algorithm-5"``, or floor(log2 T) + 1 as in ``"lemma-s6"`` (erratum A17).
    """

    # The Gram sum is too noisy to show anything: nearly all of epsilon goes to one MLE.
    audit_params: ClassVar[dict[str, Any]] = {"explore": 256, "max_updates": 1, "share": 0.97}
    audit_horizon = 264

    retired: ClassVar[dict[str, str]] = {
        **DPMNL.retired,
        "every": "the Gram matrix is released in every round",
        "rule": "the benchmark is optimistic, as 'ucb'",
    }
    printed_forms: ClassVar[dict[str, str]] = LITERAL_APPROX

    mechanism: str = field(default="binary-tree", init=False)
    every: int = field(default=1, init=False)
    rule: str = field(default="ucb", init=False)
    calibration: str = choice("verified", CALIBRATIONS)
    conversion: str = choice("correct", CONVERSIONS)
    sigma: str = choice("theorem-5", SIGMAS)
    levels: str = choice("algorithm-5", ("algorithm-5", "lemma-s6"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma != "theorem-5" and not self._printed:
            raise ParameterError("sigma='algorithm-4' is a printed constant: calibration='paper'")

    def releasers(self, problem: ProblemInfo, curator: Curator) -> ChoiceReleasers:
        if curator.budget is None:
            return super().releasers(problem, curator)
        T = problem.longest
        self._asked = converted(curator.budget, T, self.conversion)
        # Only this pair of options promises the zCDP budget as well.
        both = self.calibration == "verified" and self.conversion == "correct"
        self._rho = curator.budget.rho if both else None
        if self._printed or (curator.budget.rho is not None and not both):
            curator.as_printed("CS, section S.3")
        made = super().releasers(problem, curator)
        if not self._printed:
            return made
        mle = made.estimator.plan
        K = problem.capacity
        d = problem.dim
        assert mle is not None and K is not None
        split = self._split(self._asked)
        one = "epsilon-mle" in self.literal
        epsilon = split.call_epsilon if one else split.mle_epsilon
        # alpha-tilde of section S.3.3, with its printed term for the ridge
        width = self._alpha(mle, made.floor, T, K, d, root=True)
        printed = 4 * min(d, K - 1) / (epsilon * math.sqrt(K))
        fixed = width.fixed + (printed - mle.ridge / math.sqrt(K))
        return replace(made, width=replace(width, fixed=fixed, ahead=1))

    def _private_mle(self, curator: Curator, T: int, K: int, d: int) -> ChoiceMLE:
        if curator.budget is None:
            return super()._private_mle(curator, T, K, d)
        mle = self._mle(T, K, d)
        options = {"calls": self.max_updates, "calibration": mle, "share": self.share}
        return ChoiceMLE(curator, K, d, T, clip=self._clips, **options)

    def _private_cov(self, curator: Curator, T: int, K: int, d: int) -> RunningSum:
        return curator.running_sum(
            symmetric=d,
            clip=PSDBall(float(K)) if self._clips else None,
            sensitivity=None if self._clips else math.sqrt(2.0) * K,
            sigma=self._gram_sigma(T, K) if curator.private else None,
            **self._continual(T),
        )

    def _lambda(self, gram: RunningSum | EntrywiseGram, T: int, d: int) -> float:
        bound = super()._lambda(gram, T, d)
        if "lambda-tilde" in self.literal:
            bound *= math.sqrt((1 + (T - 1).bit_length()) / gram.steps.bit_length())
        # The printed lambda-tilde is that of one of the two symmetrised matrices.
        return bound / (math.sqrt(2) if self._printed else 1.0)

    def _split(self, budget: Budget) -> Split:
        assert budget.epsilon is not None and budget.delta is not None
        epsilon = self.share * budget.epsilon
        # The other half is for the Gram sum.
        delta = budget.delta / 2
        calls = self.max_updates
        if self._printed:
            # Lemma S19, even where its condition epsilon < 1 does not hold.
            one = epsilon / math.sqrt(8 * calls * portable.log(1 / delta))
        else:
            # Half of the calls' delta is the slack of the composition, the rest is theirs.
            one = advanced_composition(epsilon, calls, delta / 2)
        return Split(epsilon, one, delta / (2 * calls), budget.epsilon - epsilon, delta)

    def _gram_sigma(self, T: int, K: int) -> float:
        """Return the noise of the Gram sum's nodes, sqrt(32 m K) log(4/delta) / epsilon.

        The factor sqrt(2) is that of the diagonal of the symmetrised noise (N + N') / sqrt(2).
        """
        split = self._split(self._asked)
        m = T.bit_length() if self.levels == "lemma-s6" else 1 + (T - 1).bit_length()
        noise = math.sqrt(32 * m * K) * portable.log(4 / split.gram_delta) / split.gram_epsilon
        return noise * math.sqrt(2) * (1.0 if self._printed else math.sqrt(K))

    def _mle(self, T: int, K: int, d: int) -> ObjectivePerturbation:
        split = self._split(self._asked)
        paper = self._printed
        if paper and K == 1:
            raise ParameterError(
                "the printed rank min(d, K-1) is 0 at K=1 and leaves no ridge (erratum A2); the "
                "rank with an outside option is min(d, K)"
            )

        def calibrated(eigenvalue: float) -> ObjectivePerturbation:
            return objective_cs_approx(
                split.call_epsilon,
                split.call_delta,
                dim=d,
                rank=min(d, K - 1) if paper else 1,
                gradient_bound=GRADIENT_BOUND,
                eigenvalue=eigenvalue,
                curvature=CURVATURE,
                records=T,
                corrected=not paper,
            )

        mle = calibrated(4.0 if paper else CURVATURE)
        if self.sigma == "algorithm-4":
            event = replace(mle.event, sigma=2 * mle.sigma)
            mle = replace(mle, sigma=2 * mle.sigma, event=event)
        if self._rho is not None:
            # A record enters bit_length(T) nodes of the tree, and moves each by sqrt(2) K.
            sigma = self._gram_sigma(T, K)
            left = self._rho - T.bit_length() * K * K / (sigma * sigma)
            # A larger ridge costs less privacy at the same noise.
            mle = calibrated(self._eigenvalue(calibrated, left))
        return mle

    def _eigenvalue(
        self, calibrated: Callable[[float], ObjectivePerturbation], rho: float
    ) -> float:
        """Return the smallest eigenvalue, hence ridge, for which all MLEs together are rho-zCDP."""

        def fits(value: float) -> bool:
            return self.max_updates * calibrated(value).event.zcdp <= rho * (1 - 1e-9)

        low = high = CURVATURE
        # The cost falls as the ridge grows: double it until it fits, then bisect.
        while not fits(high):
            low = high
            high = 2 * high
            if high > 1e12:
                raise BudgetError(
                    f"the classical calibration leaves rho={rho:.3g} for {self.max_updates} MLEs, "
                    "less than their noise costs: give Budget.approx or fewer max_updates"
                )
        while high - low > 1e-6 * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high


def converted(budget: Budget, horizon: int, conversion: str) -> Budget:
    """Return the (epsilon, delta) budget of the benchmark; such a budget is returned unchanged."""
    if budget.rho is None:
        return budget
    delta = 1.0 / (horizon * horizon)
    if conversion == "paper":
        return Budget.approx(budget.rho + 4 * budget.rho * portable.log(horizon), delta)
    return Budget.approx(textbook_epsilon(budget.rho, delta), delta)


def advanced_composition(epsilon: float, calls: int, slack: float) -> float:
    """Return the largest epsilon of each of `calls` mechanisms that compose to `epsilon`.

    The better of basic and advanced composition (Dwork & Roth 2014, Theorem 3.20). It holds for
    every epsilon, unlike the inverse printed in Lemma S19.

    Args:
        epsilon: Of all calls together.
        calls: Number of calls.
        slack: delta that advanced composition adds to those of the calls.
    """
    basic = epsilon / calls

    def total(one: float) -> float:
        root = math.sqrt(2 * calls * portable.log(1 / slack))
        return one * root + calls * one * portable.expm1(one)

    low = basic
    high = max(2 * basic, 1.0)
    # Few calls: basic composition allows more for each.
    if total(basic) > epsilon:
        return basic
    while total(high) <= epsilon:
        high *= 2
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if total(middle) <= epsilon else (low, middle)
    # The end that satisfies the bound.
    return low
