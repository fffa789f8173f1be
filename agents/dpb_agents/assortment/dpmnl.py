"""DPMNL: the private multinomial-logit bandit of Cho & Sun, sound by default."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpb_agents.assortment.policy import Curator, MNLPolicy
from dpb_agents.assortment.private import CURVATURE, GRADIENT_BOUND, PrivateMLE
from dpb_gym import validation
from dpb_gym.agent import register_agent
from dpb_gym.errors import BudgetError
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget, ContinualSum, Event, Ledger, NoiseSource
    from dpb_gym.privacy.objective import ObjectivePerturbation

CALIBRATIONS = ("verified", "zcdp", "paper")
MECHANISMS = ("binary-tree", "blt", "sqrt-toeplitz")


@dataclass(frozen=True)
class Plan:
    """What DPMNL spends: the MLE's calibration and zCDP of the Gram sum."""

    mle: ObjectivePerturbation
    gram_rho: float


@register_agent("dpmnl", supports=["assortment"], budget="required", partial_feedback=False)
class DPMNL(MNLPolicy):
    """DPMNL: private MLE and private Gram matrix under UCB-MNL's policy (Cho & Sun).

    The estimator is objective perturbation, asked at most `max_updates` times; V is a continual
    sum of x x' over the offered items, shifted by 2 lambda. Both clip features to the unit
    ball; the policy uses the current customer's features as they are. The guarantee is joint
    zCDP (or the (epsilon, delta) that was asked for) per user-round, replace-one; it is the
    whole budget from the first round on.

    Args:
        explore: Rounds of uniformly random sets, T0 (not given in the paper, erratum A11).
        max_updates: Most releases of the MLE, D_MLE (erratum A5).
        share: Part of the budget that goes to the MLE.
        scale: c, multiplier of the paper's confidence width.
        rule: ``"ucb"`` (the paper), ``"greedy"`` or ``"ts"``.
        mechanism: Continual sum: ``"binary-tree"`` (the paper), ``"blt"`` or
            ``"sqrt-toeplitz"``.
        every: Rounds between releases of the Gram matrix.
        calibration: ``"verified"``: objective perturbation by the order-limited bound, Gram
            sensitivity sqrt(2) K (erratum A1), lambda from the actual noise (A10);
            ``"zcdp"``: the same with CS's Theorem 1 as corrected by errata A2-A4;
            ``"paper"``: CS's constants literally, with the guarantee that they really give
            (the printed budget is exceeded for K > 1). Its noise is symmetrised
            isometrically, so off the diagonal its variance is half of the printed one.
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
        mechanism: str = "binary-tree",
        every: int = 1,
        calibration: str = "verified",
        kappa: float = 1.0,
        growth: float = 2.0,
        samples: int | None = None,
    ) -> None:
        super().__init__(rule, explore, scale, growth, samples)
        self.max_updates = validation.integer("max_updates", max_updates, 1)
        self.share = validation.real("share", share, 0.0, 1.0, open_low=True, open_high=True)
        self.mechanism = validation.choice("mechanism", mechanism, MECHANISMS)
        self.every = validation.integer("every", every, 1)
        self.calibration = validation.choice("calibration", calibration, CALIBRATIONS)
        self.kappa = validation.real("kappa", kappa, 0.0, open_low=True)

    def curator(
        self, problem: ProblemInfo, streams: AgentStreams, budget: Budget | None
    ) -> Curator:
        from dpb_gym.privacy import Ledger, NoiseSource

        assert problem.capacity is not None
        if budget is None:
            raise BudgetError("dpmnl is private and needs a budget, e.g. Budget.zcdp(1.0)")
        T, K, d, B = problem.horizon, problem.capacity, problem.dim, streams.replicates
        plan = self._plan(T, K, d, budget)
        # the paper's constants cost more than they claim, so they get a ledger without bound
        ledger = Ledger(None if self.calibration == "paper" else budget)
        noise = NoiseSource(streams.noise)
        gram = self._gram(plan.gram_rho, T, K, d, B, noise, ledger)
        estimator = PrivateMLE(plan.mle, self.max_updates, B, K, T, noise, ledger)
        self.guarantee = ledger.guarantee
        bound = self._noise_bound(gram, T, d)
        return Curator(
            estimator=estimator,
            gram=gram,
            shift=2 * bound,
            floor=bound,
            max_updates=self.max_updates,
            width=_Width(plan.mle, bound, T, K, d, self.kappa),
            clip=True,
        )

    def _plan(self, T: int, K: int, d: int, budget: Budget) -> Plan:
        from dpb_gym.privacy import GaussianEvent, calibrate_objective, fit_rho, objective_cs

        D = self.max_updates
        if self.calibration == "paper":
            if budget.rho is None:
                raise BudgetError("calibration='paper' takes a zCDP budget, Budget.zcdp(rho)")
            mle = objective_cs(self.share * budget.rho / D, dim=d, rank=min(d, K - 1), records=T)
            return Plan(mle, (1 - self.share) * budget.rho)

        def plan(rho: float) -> Plan:
            mle = calibrate_objective(
                self.share * rho,
                dim=d,
                gradient_bound=GRADIENT_BOUND,
                curvature=CURVATURE,
                calls=D,
                records=T,
                method=self.calibration,
            )
            return Plan(mle, (1 - self.share) * rho)

        def events(rho: float) -> list[Event]:
            made = plan(rho)
            gram = GaussianEvent(math.sqrt(0.5 / made.gram_rho), 1.0)
            return [gram, *[made.mle.event] * D]

        return plan(fit_rho(budget, events))

    def _gram(
        self, rho: float, T: int, K: int, d: int, B: int, noise: NoiseSource, ledger: Ledger
    ) -> ContinualSum:
        from dpb_gym.privacy import ContinualSum, PSDBall

        # Lemma S5 takes sqrt(2 K) for the sensitivity sqrt(2) K of the bound (erratum A1)
        paper = self.calibration == "paper"
        return ContinualSum(
            self.mechanism,
            horizon=T,
            symmetric=d,
            replicates=B,
            clip=PSDBall(float(K)),
            rho=rho * K if paper else rho,
            every=min(self.every, T),
            noise=noise,
            ledger=ledger,
            what="Gram matrix of the offered items",
        )

    def _noise_bound(self, gram: ContinualSum, T: int, d: int) -> float:
        """lambda: bounds the operator norm of the Gram matrix's noise."""
        if self.calibration == "paper":
            return gram.noise_std_max * _lemma_s6(d, T)
        # isometric noise of standard deviation s: the norm's mean is at most s sqrt(2 d), and
        # it is 1-Lipschitz; 1/T^2 per round
        return gram.noise_std_max * (math.sqrt(2 * d) + math.sqrt(4 * math.log(T)))


class _Width:
    """alpha_t of CS, Lemma S10, with the plan's own ridge and noise."""

    def __init__(
        self, mle: ObjectivePerturbation, bound: float, T: int, K: int, d: int, kappa: float
    ) -> None:
        self.d, self.kappa = d, kappa
        self.fixed = mle.ridge / math.sqrt(K) + mle.sigma * math.sqrt(4 * d * math.log(T) / K)
        self.shifted = math.sqrt(3 * bound)

    def __call__(self, t: int) -> float:
        statistical = math.sqrt(0.5 * self.d * math.log1p(t / self.d) + math.log(t))
        return (statistical + self.fixed) / self.kappa + self.shifted


def _lemma_s6(d: int, T: int) -> float:
    """The factor of CS, Lemma S6; terms in log d vanish at d = 1."""
    factor = 2 * math.sqrt(d) + 2 * math.sqrt(4 * math.log(T))
    if d > 1:
        log = math.log(d)
        ratio = (log / d) ** (1 / 3)
        factor += 2 * d ** (1 / 6) * log ** (1 / 3)
        factor += 6 * (1 + ratio) * math.sqrt(log) / math.sqrt(math.log1p(ratio))
    return factor
