"""The (epsilon, delta) benchmark of Cho & Sun: DPMNL by classical composition."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpb_agents.assortment.dpmnl import DPMNL, Plan, _Width
from dpb_agents.assortment.policy import Curator
from dpb_agents.assortment.private import CURVATURE, GRADIENT_BOUND
from dpb_gym import validation
from dpb_gym.agent import register_agent
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget, ContinualSum, Ledger, NoiseSource
    from dpb_gym.privacy.objective import ObjectivePerturbation

CALIBRATIONS = ("verified", "paper")
CONVERSIONS = ("correct", "paper")
SIGMAS = ("theorem-5", "algorithm-4")


@dataclass(frozen=True)
class Split:
    """How the benchmark divides (epsilon, delta).

    Attributes:
        mle_epsilon: epsilon_1, of all private MLEs together.
        call_epsilon: epsilon of one of them.
        call_delta: delta of one of them.
        gram_epsilon: epsilon_2, of the Gram sum.
        gram_delta: delta_2.
    """

    mle_epsilon: float
    call_epsilon: float
    call_delta: float
    gram_epsilon: float
    gram_delta: float


@register_agent("dpmnl-approx", supports=["assortment"], budget="required", partial_feedback=False)
class DPMNLApprox(DPMNL):
    """The benchmark of Cho & Sun: DPMNL with (epsilon, delta) releases (section S.3).

    The policy is DPMNL's. The private MLE (Algorithm 4) is calibrated call by call, and the
    calls are put together by advanced composition; the Gram sum (Algorithm 5) follows Shariff
    & Sheffet (2018). Both waste much of what they are given, which is the paper's point: the
    guarantee reported is the true cost of the noise, usually far below what was asked for.

    A zCDP budget is turned into (epsilon, delta) with delta = 1/T^2 by `conversion`. At the
    correct one the verified agent keeps both promises, (epsilon, delta) and rho: where the
    first leaves the ridge too small for the second, the ridge is raised. At the paper's
    conversion the guarantee is for (epsilon, delta) only, and says so (erratum A7).

    Args:
        explore: Rounds of uniformly random sets, T0.
        max_updates: Most releases of the MLE, D_MLE.
        share: Part of epsilon that goes to the MLE; delta is halved (not given in the paper).
        scale: c, multiplier of the paper's confidence width.
        rule: ``"ucb"`` (the paper), ``"greedy"`` or ``"ts"``.
        every: Rounds between releases of the Gram matrix.
        calibration: ``"verified"``: the ridge that Theorem 5's proof needs (errata A3, A9),
            advanced composition that holds for every epsilon, Gram noise for sensitivity
            sqrt(2) K (A1); the accountant must confirm (epsilon, delta), or the agent refuses.
            ``"paper"``: the printed constants, with the guarantee that they really give.
        conversion: ``"correct"``: epsilon = rho + 2 sqrt(rho log(1/delta)); ``"paper"``:
            epsilon = rho + 4 rho log T, as in section 5.1.
        sigma: With ``calibration="paper"``: the MLE's noise as in ``"theorem-5"``, or twice
            that, as ``"algorithm-4"`` prints it.
        kappa: Curvature constant of the confidence width.
        growth: Factor by which det V must grow between two updates.
        samples: Draws per round of rule ``"ts"``; by Oh & Iyengar's formula by default.
    """

    def __init__(
        self,
        explore: int = 200,
        max_updates: int = 5,
        share: float = 0.9,
        scale: float = 1e-4,
        rule: str = "ucb",
        every: int = 1,
        calibration: str = "verified",
        conversion: str = "correct",
        sigma: str = "theorem-5",
        kappa: float = 1.0,
        growth: float = 2.0,
        samples: int | None = None,
    ) -> None:
        validation.choice("calibration", calibration, CALIBRATIONS)
        super().__init__(
            explore=explore,
            max_updates=max_updates,
            share=share,
            scale=scale,
            rule=rule,
            mechanism="binary-tree",
            every=every,
            calibration=calibration,
            kappa=kappa,
            growth=growth,
            samples=samples,
        )
        self.conversion = validation.choice("conversion", conversion, CONVERSIONS)
        self.sigma = validation.choice("sigma", sigma, SIGMAS)
        if sigma != "theorem-5" and calibration != "paper":
            raise ParameterError("sigma='algorithm-4' is a printed constant: calibration='paper'")

    def curator(
        self, problem: ProblemInfo, streams: AgentStreams, budget: Budget | None
    ) -> Curator:
        if budget is None:
            raise BudgetError(
                "dpmnl-approx is private and needs a budget, e.g. Budget.approx(1.0, 1e-5)"
            )
        assert problem.capacity is not None
        T, K, d = problem.horizon, problem.capacity, problem.dim
        asked = converted(budget, T, self.conversion)
        both = self.calibration == "verified" and self.conversion == "correct"
        self._rho = budget.rho if both else None
        curator = super().curator(problem, streams, asked)
        if self.calibration != "paper":
            return curator
        mle = self._plan(T, K, d, asked).mle
        printed = 4 * min(d, K - 1) / (self._split(asked).mle_epsilon * math.sqrt(K))
        return replace(
            curator, width=_PrintedWidth(mle, curator.floor, T, K, d, self.kappa, printed)
        )

    def _split(self, budget: Budget) -> Split:
        assert budget.epsilon is not None and budget.delta is not None
        epsilon, delta, calls = self.share * budget.epsilon, budget.delta / 2, self.max_updates
        if self.calibration == "paper":
            # Lemma S19, also where its condition epsilon < 1 is not met
            one = epsilon / math.sqrt(8 * calls * math.log(1 / delta))
        else:
            one = advanced_composition(epsilon, calls, delta / 2)
        return Split(epsilon, one, delta / (2 * calls), budget.epsilon - epsilon, delta)

    def _plan(self, T: int, K: int, d: int, budget: Budget) -> Plan:
        from dpb_gym.privacy import objective_cs_approx

        split = self._split(budget)
        paper = self.calibration == "paper"
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
        # sqrt(32 m K) log(4/delta) / epsilon, symmetrised as (N + N')/sqrt 2: diagonal sqrt 2
        m = 1 + math.ceil(math.log2(T))
        noise = math.sqrt(32 * m * K) * math.log(4 / split.gram_delta) / split.gram_epsilon
        noise *= math.sqrt(2) * (1.0 if paper else math.sqrt(K))
        if self._rho is not None:
            # a record enters bit_length(T) nodes of the tree at distance sqrt(2) K
            left = self._rho - T.bit_length() * (K / noise) ** 2
            mle = calibrated(self._eigenvalue(calibrated, left))
        return Plan(mle, 1 / noise**2)

    def _eigenvalue(
        self, calibrated: Callable[[float], ObjectivePerturbation], rho: float
    ) -> float:
        """Smallest eigenvalue, hence ridge, at which all MLEs together are rho-zCDP."""

        def fits(value: float) -> bool:
            return self.max_updates * calibrated(value).rho <= rho * (1 - 1e-9)

        low = high = CURVATURE
        while not fits(high):
            low, high = high, 2 * high
            if high > 1e12:
                raise BudgetError(
                    f"the classical calibration leaves rho={rho:.3g} for {self.max_updates} MLEs, "
                    "less than their noise costs: give Budget.approx or fewer max_updates"
                )
        while high - low > 1e-6 * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    def _gram(
        self, rho: float, T: int, K: int, d: int, B: int, noise: NoiseSource, ledger: Ledger
    ) -> ContinualSum:
        from dpb_gym.privacy import ContinualSum, PSDBall

        return ContinualSum(
            self.mechanism,
            horizon=T,
            symmetric=d,
            replicates=B,
            clip=PSDBall(float(K)),
            sigma=rho**-0.5,
            every=min(self.every, T),
            noise=noise,
            ledger=ledger,
            what="Gram matrix of the offered items",
        )


def converted(budget: Budget, horizon: int, conversion: str) -> Budget:
    """The (epsilon, delta) budget of the benchmark; one given as such is returned as it is."""
    from dpb_gym.privacy import Budget, textbook_epsilon

    if budget.rho is None:
        return budget
    delta = horizon**-2.0
    if conversion == "paper":
        return Budget.approx(budget.rho + 4 * budget.rho * math.log(horizon), delta)
    return Budget.approx(textbook_epsilon(budget.rho, delta), delta)


def advanced_composition(epsilon: float, calls: int, slack: float) -> float:
    """Largest epsilon of each of `calls` mechanisms that compose to `epsilon`.

    Basic or advanced composition (Dwork & Roth 2014, Theorem 3.20), whichever allows more;
    unlike the inverse that Lemma S19 prints it holds for every epsilon.

    Args:
        epsilon: Of all calls together.
        calls: Their number.
        slack: delta that advanced composition adds to the calls' own.
    """
    basic = epsilon / calls

    def total(one: float) -> float:
        return one * math.sqrt(2 * calls * math.log(1 / slack)) + calls * one * math.expm1(one)

    low, high = basic, max(2 * basic, 1.0)
    if total(basic) > epsilon:
        return basic
    while total(high) <= epsilon:
        high *= 2
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if total(middle) <= epsilon else (low, middle)
    return low


class _PrintedWidth(_Width):
    """alpha-tilde of section S.3.3, with its printed term for the ridge."""

    def __init__(
        self,
        mle: ObjectivePerturbation,
        bound: float,
        T: int,
        K: int,
        d: int,
        kappa: float,
        printed: float,
    ) -> None:
        super().__init__(mle, bound, T, K, d, kappa)
        self.fixed += printed - mle.ridge / math.sqrt(K)

    def __call__(self, t: int) -> float:
        return super().__call__(t + 1)
