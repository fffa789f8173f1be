"""DPMNL, the private multinomial-logit bandit of Cho & Sun (arXiv:2410.22488), Algorithms 1 to 3.

Comments have the paper's line numbers and symbols, for B replicates at once. Labels like A5 are
rows of docs/errata.md. The raw records and the solver of Algorithm 2 are in `choice_records.py`.
The argmax of line 13 and V are in `optimistic_slates.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.assortment.choice_records import ChoiceMLE, EntrywiseGram, offered
from dpb_agents.assortment.optimistic_slates import RULES, DesignMatrix, SlateChoice
from dpb_agents.common.literal import literal_forms
from dpb_agents.common.parameters import choice, inside, integer, real
from dpb_agents.common.prior import WarmStart
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
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

CALIBRATIONS = ("verified", "zcdp", "paper", "as-run")
MECHANISMS = ("binary-tree", "blt", "sqrt-toeplitz")
LITERAL = {
    "algorithm-3": "sigma_Cov has 1 + ceil(log2 T) levels, not the tree's floor(log2 T) + 1",
    "lemma-s10": "log t is outside the root of alpha_t, not inside it as in the proof (S10)",
    "line-15": "det V_t is compared with det V_{t-1}, not with that of the last update (A6)",
}
"""Printed forms from which ``calibration="paper"`` departs, by the name that `literal` takes."""
registered = partial(
    register_agent,
    supports=["assortment"],
    protects=("joint", "user-round"),
    budget="required",
    needs_horizon=True,
)


@dataclass(frozen=True)
class ChoiceReleasers:
    """The private subroutines, and the constants that Algorithm 1 uses with them.

    Attributes:
        estimator: PrivateMLE, releases theta.
        gram: PrivateCov, releases the running sum of x x' over the offered items.
        shift: V = released Gram matrix + shift I; 2 lambda in the paper.
        floor: lambda; eigenvalues of V below it are raised to it.
        max_updates: D, largest number of releases of theta per replicate; None for no limit.
        width: alpha_t by t: multiplier of ||x||_{V^-1}, before scaling.
        clip: Whether features are clipped to the unit ball before they enter the Gram matrix.
    """

    estimator: ChoiceMLE
    gram: RunningSum | EntrywiseGram
    shift: float
    floor: float
    max_updates: int | None
    width: Callable[[int], float]
    clip: bool


@registered("dpmnl")
class DPMNL(WarmStart):
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
        growth: Factor by which det V must grow between two updates, > 1; 2 in the paper.
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
        literal: With a printed calibration: names of `LITERAL`, printed forms to use where it
            departs from print.
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

    printed_forms: ClassVar[dict[str, str]] = LITERAL
    explore: int = integer(200, 0)
    max_updates: int = integer(5, 1)
    share: float = inside(0.9)
    scale: float = real(1e-4, 0.0)
    growth: float = real(2.0, 1.0, open_low=True)
    rule: str = choice("ucb", RULES)
    mechanism: str = choice("binary-tree", MECHANISMS)
    every: int = integer(1, 1)
    calibration: str = choice("verified", CALIBRATIONS)
    literal: Any = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.literal = literal_forms(self.literal, self.printed_forms, self._printed)

    # -------------------------------------------------------------- Algorithm 1

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        """Line 1: the inputs and the private subroutines."""
        self._slates = SlateChoice(problem, streams, self.rule, None, type(self).__name__)
        assert problem.capacity is not None
        B = streams.replicates
        K = problem.capacity
        d = problem.dim
        self._releasers = known = self.releasers(problem, curator)
        known.estimator.centre = prior = self.prior(problem).centre
        self._theta = np.tile(prior, (B, 1))
        self._V = DesignMatrix(B, d, known.shift, known.floor)
        self._reference = self._V.logdet.copy()
        self._updates = np.zeros(B, np.int64)
        self._rows = np.zeros((B, K, d))
        self._ones = np.ones(B)

    @property
    def updates(self) -> Array:
        """Number of updates of theta, ``(B,)``."""
        return self._updates.copy()

    def act(self, context: Context) -> Array:
        """Lines 3 to 5: a random set. Lines 11 to 13: the best under optimistic utilities."""
        if context.t <= self.explore:
            return self._slates.random(context)
        width = self.scale * self._releasers.width(context.t)  # c alpha_t, line 12
        return self._slates.best(context, self._theta, self._V.root, width)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        """Lines 6 to 8 and 14 to 19: raw records go to the two private subroutines only."""
        known = self._releasers
        assert feedback.choice is not None
        slates = offered(action, feedback)
        known.estimator.add(context.features, slates, feedback.choice)
        agent_kernels.choices.offered_rows(context.features, slates, known.clip, self._rows)
        known.gram.add(self._ones, self._rows)
        if context.t < self.explore:
            return

        self._V.update(known.gram.value)  # lines 8 and 14
        logdet = self._V.logdet
        due = logdet > self._reference + portable.log(self.growth)  # line 15, with A6
        if "line-15" in self.literal:
            self._reference[:] = logdet
        if context.t == self.explore:
            due[:] = True  # line 8
        if known.max_updates is not None:
            due &= self._updates < known.max_updates
        if due.any():
            self._theta[due] = known.estimator.release(due)[due]  # line 16
            self._updates += due
            self._reference[due] = logdet[due]

    # -------------------------------------------------------------- Algorithms 2 and 3

    def releasers(self, problem: ProblemInfo, curator: Curator) -> ChoiceReleasers:
        """Return the private subroutines, calibrated."""
        assert problem.capacity is not None
        T = problem.longest
        K = problem.capacity
        d = problem.dim
        if curator.private and not self._clips:
            curator.disclose("features outside the unit ball (erratum A8)")
        estimator = self._private_mle(curator, T, K, d)
        gram = self._private_cov(curator, T, K, d)
        bound = self._lambda(gram, T, d)
        return ChoiceReleasers(
            estimator=estimator,
            gram=gram,
            shift=2 * bound if curator.private else 1.0,
            floor=bound,
            max_updates=self.max_updates if curator.private else None,
            # Lemma S10 prints Delta without the factor 1 / sqrt(K) of its proof (A17).
            width=self._alpha(estimator.plan, bound, T, K, d, root=not self._printed),
            clip=self._clips,
        )

    @property
    def _printed(self) -> bool:
        return self.calibration in ("paper", "as-run")

    @property
    def _clips(self) -> bool:
        return self.calibration != "as-run"

    def _private_mle(self, curator: Curator, T: int, K: int, d: int) -> ChoiceMLE:
        """Return PrivateMLE (Algorithm 2), of which each call gets rho_1 / D_MLE (A5)."""
        D = self.max_updates
        calibration: str | ObjectivePerturbation = self.calibration
        if self._printed:
            calibration = "verified"
        if self._printed and curator.budget is not None:
            if curator.budget.rho is None:
                raise BudgetError("the printed calibration takes a zCDP budget, 'rho=1' say")
            curator.as_printed("CS, Theorem 1")
            rho = self.share * curator.budget.rho / D
            calibration = objective_cs(rho, dim=d, rank=min(d, K - 1), records=T)
        options = {"calls": D, "calibration": calibration, "share": self.share}
        return ChoiceMLE(curator, K, d, T, clip=self._clips, **options)

    def _private_cov(self, curator: Curator, T: int, K: int, d: int) -> RunningSum | EntrywiseGram:
        """Return PrivateCov (Algorithm 3), with rho_2."""
        made = self._continual(T)
        if not (self._printed and curator.budget is not None):
            return curator.running_sum(symmetric=d, clip=PSDBall(float(K)), **made)
        # Lemma S5 has the sensitivity sqrt(2 K), and the true one is sqrt(2) K (A1).
        rho = (1 - self.share) * (curator.budget.rho or 0.0)
        gain = make_mechanism(self.mechanism, T // made["every"]).gain
        sigma = gaussian_sigma(rho * K, math.sqrt(2.0) * K * gain)
        if "algorithm-3" in self.literal:
            sigma = math.sqrt(K * (1 + (T - 1).bit_length()) / rho)
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

    def _lambda(self, gram: RunningSum | EntrywiseGram, T: int, d: int) -> float:
        """Return lambda, the bound of the operator norm of the Gram matrix's noise."""
        if self._printed:
            m = gram.steps.bit_length()
            sigma = gram.sigma
            if "algorithm-3" in self.literal:  # Lemma S6 has a sigma with its own m
                sigma *= math.sqrt(m / (1 + (T - 1).bit_length()))
            return sigma * math.sqrt(m) * _lemma_s6(d, T)
        # The norm of isometric noise of standard deviation s has mean at most s sqrt(2 d) and is
        # s-Lipschitz: the bound fails with probability at most 1/T^2 per round.
        return gram.noise_std_max * (math.sqrt(2 * d) + math.sqrt(4 * portable.log(T)))

    def _alpha(
        self, mle: ObjectivePerturbation | None, bound: float, T: int, K: int, d: int, root: bool
    ) -> Width:
        """Return alpha_t for PrivateMLE's own Delta and sigma_MLE; `root`: divide by sqrt(K)."""
        Delta, sigma = (mle.ridge, mle.sigma) if mle is not None else (1.0, 0.0)
        noise = sigma * math.sqrt(4 * d * portable.log(T) / K)
        fixed = Delta / (math.sqrt(K) if root else 1.0) + noise
        outside = "lemma-s10" in self.literal
        return Width(d, fixed, math.sqrt(3 * bound), outside=outside)


@dataclass(frozen=True)
class Width:
    """Confidence width alpha_t of CS, Lemma S10, evaluated in round t + `ahead`.

    kappa, a lower bound of the model's curvature that the paper does not give, is 1.
    """

    d: int
    fixed: float
    shifted: float
    ahead: int = 0
    outside: bool = False

    def __call__(self, t: int) -> float:
        t += self.ahead
        log = portable.log(t)
        dimension = 0.5 * self.d * portable.log1p(t / self.d)
        statistical = math.sqrt(dimension) + log if self.outside else math.sqrt(dimension + log)
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
