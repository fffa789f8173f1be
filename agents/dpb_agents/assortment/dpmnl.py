"""DPMNL: the private multinomial-logit bandit of Cho & Sun, sound by default.

arXiv:2410.22488.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from dpb_agents.assortment.choice_records import ChoiceMLE, EntrywiseGram
from dpb_agents.assortment.mnl_policy import ChoiceReleasers, MNLPolicy
from dpb_agents.common.parameters import choice, inside, integer
from dpb_gym import portable
from dpb_gym.errors import BudgetError
from dpb_gym.privacy import (
    Curator,
    ObjectivePerturbation,
    PSDBall,
    RunningSum,
    gaussian_sigma,
    objective_cs,
)
from dpb_gym.privacy.releasers.correlated_noise import make_mechanism
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.registry import register_agent

CALIBRATIONS = ("verified", "zcdp", "paper", "as-run")
registered = partial(
    register_agent,
    supports=["assortment"],
    protects=("joint", "user-round"),
    budget="required",
    needs_horizon=True,
)
MECHANISMS = ("binary-tree", "blt", "sqrt-toeplitz")


@registered("dpmnl")
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
            (the printed budget is exceeded for K > 1); ``"as-run"``: the paper's experiment,
            the same on features that nobody clips, so that no guarantee remains (A8, A16).
    """

    # one MLE with all of its share, on enough records to be driven far
    audit_params: ClassVar[dict[str, Any]] = {"explore": 256, "max_updates": 1}
    audit_horizon = 264
    retired: ClassVar[dict[str, str]] = {
        "kappa": "it is 1, scale is the multiplier of the width",
        "samples": "they are Oh & Iyengar's formula, which ts-mnl lets you change",
    }
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "explore": [20, 200],
        "max_updates": [2, 5],
        "growth": [2.0, 32.0],
    }

    explore: int = 200
    max_updates: int = integer(5, 1)
    share: float = inside(0.9)
    scale: float = 1e-4
    rule: str = "ucb"
    mechanism: str = choice("binary-tree", MECHANISMS)
    every: int = integer(1, 1)
    calibration: str = choice("verified", CALIBRATIONS)

    def releasers(self, problem: ProblemInfo, curator: Curator) -> ChoiceReleasers:
        assert problem.capacity is not None
        T, K, d = problem.longest, problem.capacity, problem.dim
        if curator.private and not self._clips:
            curator.disclose("features outside the unit ball (erratum A8)")
        estimator, gram = self._estimator(curator, T, K, d), self._gram(curator, T, K, d)
        bound = self._noise_bound(gram, T, d)
        return ChoiceReleasers(
            estimator=estimator,
            gram=gram,
            shift=2 * bound if curator.private else 1.0,
            floor=bound,
            max_updates=self.max_updates if curator.private else None,
            width=Width.of(estimator.plan, bound, T, K, d, self._printed),
            clip=self._clips,
        )

    @property
    def _printed(self) -> bool:
        return self.calibration in ("paper", "as-run")

    @property
    def _clips(self) -> bool:
        return self.calibration != "as-run"

    def _estimator(self, curator: Curator, T: int, K: int, d: int) -> ChoiceMLE:
        D, paper = self.max_updates, None
        if self._printed and curator.budget is not None:
            if curator.budget.rho is None:
                raise BudgetError("the printed calibration takes a zCDP budget, 'rho=1' say")
            curator.as_printed("CS, Theorem 1")
            rho = self.share * curator.budget.rho / D
            paper = objective_cs(rho, dim=d, rank=min(d, K - 1), records=T)
        return ChoiceMLE(
            curator,
            K,
            d,
            T,
            clip=self._clips,
            calls=D,
            calibration=paper or ("verified" if self._printed else self.calibration),
            share=self.share,
        )

    def _gram(self, curator: Curator, T: int, K: int, d: int) -> RunningSum | EntrywiseGram:
        made = self._continual(T)
        if not (self._printed and curator.budget is not None):
            return curator.running_sum(symmetric=d, clip=PSDBall(float(K)), **made)
        # Lemma S5 takes sqrt(2 K) for the sensitivity sqrt(2) K of the bound (erratum A1)
        rho = (1 - self.share) * (curator.budget.rho or 0.0)
        gain = make_mechanism(self.mechanism, T // made["every"]).gain
        sigma = gaussian_sigma(rho * K, math.sqrt(2.0) * K * gain)
        clip = float(K) if self._clips else None
        return EntrywiseGram(curator, d, K, clip=clip, sigma=sigma, **made)

    def _continual(self, T: int) -> dict[str, Any]:
        """What every running sum of the Gram matrix is made with."""
        return {
            "mechanism": self.mechanism,
            "every": min(self.every, T),
            "share": 1 - self.share,
            "what": "Gram matrix of the offered items",
        }

    def _noise_bound(self, gram: RunningSum | EntrywiseGram, T: int, d: int) -> float:
        """lambda: bounds the operator norm of the Gram matrix's noise."""
        if self._printed:
            return gram.sigma * math.sqrt(gram.steps.bit_length()) * _lemma_s6(d, T)
        # isometric noise of standard deviation s: the norm's mean is at most s sqrt(2 d), and
        # it is 1-Lipschitz; 1/T^2 per round
        return gram.noise_std_max * (math.sqrt(2 * d) + math.sqrt(4 * portable.log(T)))


@dataclass(frozen=True)
class Width:
    """alpha_t of CS, Lemma S10, in round t + `ahead`; made `of` the plan's own ridge and noise."""

    d: int
    fixed: float
    shifted: float
    ahead: int = 0

    @classmethod
    def of(
        cls, mle: ObjectivePerturbation | None, bound: float, T: int, K: int, d: int, printed: bool
    ) -> Width:
        """The lemma prints the ridge without the 1 / sqrt(K) that its proof gives (erratum A17)."""
        ridge, sigma = (mle.ridge, mle.sigma) if mle is not None else (1.0, 0.0)
        noise = sigma * math.sqrt(4 * d * portable.log(T) / K)
        return cls(d, ridge / (1.0 if printed else math.sqrt(K)) + noise, math.sqrt(3 * bound))

    def __call__(self, t: int) -> float:
        t += self.ahead
        statistical = math.sqrt(0.5 * self.d * portable.log1p(t / self.d) + portable.log(t))
        return statistical + self.fixed + self.shifted


def _lemma_s6(d: int, T: int) -> float:
    """The factor of CS, Lemma S6; terms in log d vanish at d = 1."""
    factor = 2 * math.sqrt(d) + 2 * math.sqrt(4 * portable.log(T))
    if d > 1:
        log = portable.log(d)
        ratio = portable.power(log / d, 1 / 3)
        factor += 2 * portable.power(d, 1 / 6) * portable.power(log, 1 / 3)
        factor += 6 * (1 + ratio) * math.sqrt(log) / math.sqrt(portable.log1p(ratio))
    return factor
