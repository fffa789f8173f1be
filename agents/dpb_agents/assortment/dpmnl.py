"""DPMNL: the private multinomial-logit bandit of Cho & Sun (arXiv:2410.22488).

This file has the parameters and the calibration. `act` and `observe` are in `mnl_policy.py`, the
records and their private MLE in `choice_records.py`. The whole algorithm in one file of plain NumPy
is `dpb_agents/reference/dpmnl.py`.
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
    """DPMNL: UCB-MNL with a private MLE and a private Gram matrix (Cho & Sun).

    The estimator is objective perturbation, released at most `max_updates` times. V is a
    continual sum of x x' over the offered items, shifted by 2 lambda. Both clip features to the
    unit ball; the policy uses the current customer's features unclipped. The guarantee is joint
    zCDP, or (epsilon, delta) for such a budget, per user-round and replace-one. The whole budget
    is charged before the first round.

    Args:
        explore: Rounds of uniformly random sets, T0 (not given in the paper, erratum A11).
        max_updates: Largest number of MLE releases, D_MLE (erratum A5).
        share: Part of the budget that goes to the MLE.
        scale: c, multiplier of the paper's confidence width.
        rule: ``"ucb"`` (the paper), ``"greedy"`` or ``"ts"``.
        mechanism: Continual sum: ``"binary-tree"`` (the paper), ``"blt"`` or
            ``"sqrt-toeplitz"``.
        every: Rounds between releases of the Gram matrix.
        calibration: ``"verified"``: objective perturbation by the order-limited bound, Gram
            sensitivity sqrt(2) K (erratum A1), lambda from the actual noise (A10);
            ``"zcdp"``: the same with CS's Theorem 1 as corrected by errata A2-A4;
            ``"paper"``: CS's constants as printed, with the guarantee that they imply (above
            the printed budget for K > 1); ``"as-run"``: the paper's experiment, the same on
            unclipped features, without any guarantee (A8, A16).
    """

    # A single MLE with its whole share shows the most, on enough records to move theta far.
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
        # Lemma S5 has the sensitivity sqrt(2 K), and the true one is sqrt(2) K (erratum A1).
        rho = (1 - self.share) * (curator.budget.rho or 0.0)
        gain = make_mechanism(self.mechanism, T // made["every"]).gain
        sigma = gaussian_sigma(rho * K, math.sqrt(2.0) * K * gain)
        clip = float(K) if self._clips else None
        return EntrywiseGram(curator, d, K, clip=clip, sigma=sigma, **made)

    def _continual(self, T: int) -> dict[str, Any]:
        """Return the options that all running sums of the Gram matrix share."""
        return {
            "mechanism": self.mechanism,
            "every": min(self.every, T),
            "share": 1 - self.share,
            "what": "Gram matrix of the offered items",
        }

    def _noise_bound(self, gram: RunningSum | EntrywiseGram, T: int, d: int) -> float:
        """Return lambda, the bound of the operator norm of the Gram matrix's noise."""
        if self._printed:
            return gram.sigma * math.sqrt(gram.steps.bit_length()) * _lemma_s6(d, T)
        # The norm of isometric noise of standard deviation s has mean at most s sqrt(2 d) and is
        # s-Lipschitz: the bound fails with probability at most 1/T^2 per round.
        return gram.noise_std_max * (math.sqrt(2 * d) + math.sqrt(4 * portable.log(T)))


@dataclass(frozen=True)
class Width:
    """Confidence width alpha_t of CS, Lemma S10, evaluated in round t + `ahead`."""

    d: int
    fixed: float
    shifted: float
    ahead: int = 0

    @classmethod
    def of(
        cls, mle: ObjectivePerturbation | None, bound: float, T: int, K: int, d: int, printed: bool
    ) -> Width:
        """Return the width for a plan's ridge and noise.

        The lemma prints the ridge without the factor 1 / sqrt(K) of its proof (erratum A17).
        """
        ridge, sigma = (mle.ridge, mle.sigma) if mle is not None else (1.0, 0.0)
        noise = sigma * math.sqrt(4 * d * portable.log(T) / K)
        return cls(d, ridge / (1.0 if printed else math.sqrt(K)) + noise, math.sqrt(3 * bound))

    def __call__(self, t: int) -> float:
        t += self.ahead
        statistical = math.sqrt(0.5 * self.d * portable.log1p(t / self.d) + portable.log(t))
        return statistical + self.fixed + self.shifted


def _lemma_s6(d: int, T: int) -> float:
    """Return the factor of CS, Lemma S6; terms in log d vanish at d = 1."""
    factor = 2 * math.sqrt(d) + 2 * math.sqrt(4 * portable.log(T))
    if d > 1:
        log = portable.log(d)
        ratio = portable.power(log / d, 1 / 3)
        factor += 2 * portable.power(d, 1 / 6) * portable.power(log, 1 / 3)
        factor += 6 * (1 + ratio) * math.sqrt(log) / math.sqrt(portable.log1p(ratio))
    return factor
