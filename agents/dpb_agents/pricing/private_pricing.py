"""Private pricing: the anticipating private policy of Chen, Simchi-Levi & Wang, Algorithms 1 to 3.

arXiv:2009.12920. Comments have the paper's line numbers and symbols, for B replicates at once.
Labels like P1 are rows of docs/errata.md. The raw records and the solver of Algorithm 3 are in
`demand_records.py` and `private_demand_mle.py`, the printed constants in `paper_constants.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.assortment.choice_records import EntrywiseGram
from dpb_agents.common.literal import literal_forms
from dpb_agents.common.parameters import choice, inside, integer, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_agents.pricing import paper_constants
from dpb_agents.pricing.demand_records import MODELS, ExactMLE, recorded
from dpb_agents.pricing.paper_constants import Demand
from dpb_agents.pricing.private_demand_mle import PrivateMLE
from dpb_gym import kernels, portable
from dpb_gym.agent import unsuitable
from dpb_gym.errors import BudgetError, HorizonExceeded
from dpb_gym.privacy import Curator, PSDBall, RunningSum, gaussian_sigma, objective_csw
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

# By printed calibration: how B2 is read, where T0 to D_inf come from, and whether releases compose.
PRINTED = {
    "paper": ("literal", "section-7", True),
    "paper-curvature": ("curvature", "section-7", True),
    "paper-uncomposed": ("curvature", "section-7", False),
    "paper-general": ("literal", "general", True),
    "paper-stochastic": ("literal", "stochastic", True),
}
LITERAL = {
    "algorithm-2": "the Gram noise has the diagonal's variance off the diagonal, too, not half of "
    "it as isometric noise has",
    "lemma-6": "prices maximise p min{1, p f + bonus} as Lemma 6 prints it, not p f + bonus as in "
    "line 10",
    "lemma-6-revenue": "prices maximise p min{1, f + bonus}, as the sentence before Lemma 6 says",
}
"""Printed forms from which ``calibration="paper"`` departs, by the name that `literal` takes."""
MECHANISMS = ("binary-tree", "blt", "sqrt-toeplitz")
GROWTH = 1.6  # factor of det V per dimension between two updates, calibration "verified"
EXPLORE = 10
EXACT_RIDGE = 1.0  # ridge of the exact fit, and shift of the exact V
STEPS = 1000  # releases of the Gram matrix over the horizon, calibration "verified"
SEARCH_TOLERANCE = 1e-7  # distance of a price's upper bound from the largest one


@dataclass(frozen=True)
class DemandSubroutines:
    """The private subroutines, and the constants that Algorithm 1 uses with them.

    Attributes:
        estimator: PrivateMLE, releases theta.
        gram: PrivateCov, releases the running sum of phi phi'.
        shift: rho of Lambda = released Gram matrix + rho I, > 0.
        max_updates: D_inf, largest number of releases of theta per replicate; None for no limit.
    """

    estimator: PrivateMLE | ExactMLE
    gram: RunningSum | EntrywiseGram
    shift: float
    max_updates: int | None = None


@register_agent(
    "private-pricing",
    supports=["pricing"],
    protects=("anticipating", "user-round"),
    budget="required",
    needs_horizon=True,
)
class PrivatePricing(WarmStart):
    """Private pricing (CSW, Algorithms 1-3): private MLE and private Gram matrix.

    T0 random prices; then the price of largest p f(<phi, theta>) + gamma ||phi||_{V^-1}, with
    theta by objective perturbation over ``||theta|| <= 2`` and V a continual sum of phi phi'
    plus a shift. Both are updated when det V has grown enough, at most D_inf times. The guarantee
    is anticipating DP per user-round, replace-one. It is charged before the first round.

    Where noise leaves V indefinite, determinants are compared with their signs, as printed. The
    bonus then uses V with its eigenvalues raised to half the shift, which is post-processing; the
    paper leaves the bonus undefined.

    Args:
        calibration: ``"verified"``: zCDP, or its exact conversion for (epsilon, delta)
            budgets; Gram sensitivity sqrt(2) (erratum P1), replace-one objective
            perturbation (P2), a shift of the size of the Gram noise, apart from the MLE's
            ridge. ``"paper"``: the printed constants with B2 = K G and T0, rho, gamma and D_inf
            of section 7. It takes an (epsilon, delta) budget, of which `share` is (epsilon_2,
            delta_2), and its guarantee is the true cost. Variants of ``"paper"``:
            ``"paper-curvature"`` has B2 = zeta^2 / 4 (erratum P5); ``"paper-general"`` has the
            parameters of Theorem 1 (any oblivious customers), ``"paper-stochastic"`` those of
            Theorem 2; ``"paper-uncomposed"`` is ``"paper-curvature"`` with the whole budget for
            every release and with rho unchanged. Its curves look like the paper's, and it is
            **not private as claimed**: the guarantee states its cost.
        share: Part of the budget that goes to the MLE: 0.5 (printed) or 0.8.
        explore: Random prices at the start, T0; by default as printed, or 10.
        gamma: Width of the bonus, >= 0; by default as printed, or 0.
        max_updates: Largest number of MLE releases, D_inf; by default as printed, or the number
            that det V allows for ||phi||^2 = 1/4.
        growth: Factor by which det V must grow between two updates: 2 (printed) or 1.6^d.
        mechanism: Continual sum, ``"binary-tree"``, ``"blt"`` or ``"sqrt-toeplitz"``; by
            default the paper's tree (printed, and with system noise) or ``"blt"``.
        every: Rounds between two releases of the Gram matrix; by default 1 (printed) or a
            thousandth of the horizon.
        demand_bound: B_Y for Gaussian demand, > 0: the releasers clip demand to
            [-B_Y, B_Y]. Logistic demand lies in [0, 1].
        literal: With a printed calibration: names of `LITERAL`, printed forms to use where it
            departs from print.
    """

    # A single MLE with its whole share shows the most, on enough records to move theta far.
    audit_params: ClassVar[dict[str, Any]] = {"explore": 512, "max_updates": 1}
    audit_horizon = 1024
    retired: ClassVar[dict[str, str]] = {
        "constants": "calibration='paper' is 'literal', 'paper-curvature' is 'curvature'",
        "parameters": "calibration='paper' is 'section-7', 'paper-general' and "
        "'paper-stochastic' are the theorems'",
        "composition": "calibration='paper-uncomposed' is composition=False",
    }
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "share": [None, 0.9],
        "explore": [None, 100],
        "growth": [None, 10.0],
    }

    calibration: str = choice("verified", ("verified", *PRINTED))
    share: float = inside(None)
    explore: int = integer(None, 0)
    gamma: float = real(None, 0.0)
    max_updates: int | None = integer(None, 1)
    growth: float = real(None, 1.0, open_low=True)
    mechanism: str = choice(None, MECHANISMS)
    every: int | None = integer(None, 1)
    demand_bound: float = positive(3.0)
    literal: Any = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        paper = self.calibration in PRINTED
        self.literal = literal_forms(self.literal, LITERAL, paper)
        # The other defaults depend on the problem, so `releasers` sets them.
        self._explore, self._gamma, self._growth = self.explore, self.gamma, self.growth
        self.share = self.share or (0.5 if paper else 0.8)
        if paper:
            self.mechanism = self.mechanism or "binary-tree"

    # -------------------------------------------------------------- Algorithm 1

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        """Lines 1 to 4: the inputs, the private subroutines, and T0 random prices."""
        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable(type(self).__name__, problem, "pricing", "demand")
        B = streams.replicates
        d = problem.dim
        self._model = MODELS.index(problem.demand)
        self._zeta = 1.0 if problem.zeta is None else problem.zeta
        self._releasers = self.releasers(problem, curator)
        self._releasers.estimator.centre = prior = self.prior(problem).centre
        explore = min(self.explore, problem.longest)
        self._start = np.stack([rng.random(explore) for rng in streams.agent])
        self._rounds = 0
        self._finished = False
        self._theta = np.tile(prior, (B, 1))
        self._updates = np.zeros(B, np.int64)  # D_MLE
        self._value = np.zeros(B)
        self._phi = np.zeros((B, d))
        self._ones = np.ones(B)
        self._due = np.zeros(B, bool)
        # Lambda^p, frozen between updates: its inverse, and sign and logarithm of |det|.
        self._inverse = np.zeros((B, d, d))
        self._sign = np.ones(B)
        self._logdet = np.zeros(B)
        self._freeze(np.ones(B, bool), np.zeros((B, d, d)))

    @property
    def updates(self) -> Array:
        """How often theta was released, ``(B,)``."""
        return self._updates.copy()

    def act(self, context: Context) -> Array:
        """Lines 4 and 10: a random price, then that of the largest upper bound."""
        if self._rounds < self._start.shape[1]:
            return self._start[:, self._rounds].copy()
        price = np.empty(len(self._theta))
        x = context.features
        model = (self._model, self._zeta)
        if self.gamma == 0:
            kernels.demand_models.best_prices(x, self._theta, *model, price, self._value)
            return price
        known = (x, self._theta, self._inverse, *model, self.gamma)
        if any(form.startswith("lemma-6") for form in self.literal):
            squared = "lemma-6" in self.literal
            kernels.price_search.lemma_6_prices(*known, squared, price, self._value)
        else:
            kernels.price_search.optimistic_prices(*known, SEARCH_TOLERANCE, price, self._value)
        return price

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        """Lines 6 to 9: raw records go to the two private subroutines only."""
        known = self._releasers
        if self._finished:  # nothing will be released again
            self._rounds += 1
            if self._rounds > self._horizon:
                raise HorizonExceeded(f"this agent began with a horizon of {self._horizon} rounds")
            return
        features, price, demand = recorded(context, action, feedback)
        known.estimator.add(features, price, demand)
        agent_kernels.demand.demand_vectors(features, price, self._phi)
        known.gram.add(self._ones, self._phi)
        self._rounds += 1
        if self._rounds < self._start.shape[1] or self._rounds % self._every:
            return

        gram = known.gram.value  # line 6
        rise = portable.log(self.growth)
        last = (self._sign, self._logdet)
        agent_kernels.demand.grown(gram, known.shift, rise, *last, self._due)  # line 7
        if known.max_updates is not None:
            self._due &= self._updates < known.max_updates
        if not self._due.any():
            return
        due = self._due
        self._theta[due] = known.estimator.release(due)[due]  # line 8
        self._updates += due
        self._freeze(due, gram)
        if known.max_updates is not None:
            self._finished = bool((self._updates >= known.max_updates).all())

    def _freeze(self, due: Array, gram: Array) -> None:
        """Store Lambda^p where `due`, until the next update."""
        shift = self._releasers.shift
        information = gram[due]
        diagonal = np.arange(gram.shape[1])
        information[:, diagonal, diagonal] += shift
        sign = np.empty(len(information))
        logdet = np.empty(len(information))
        agent_kernels.demand.signed_logdet(information, sign, logdet)
        self._sign[due] = sign
        self._logdet[due] = logdet
        # Noise may leave Lambda^p indefinite: eigenvalues are raised to half of rho.
        values, vectors = kernels.linalg.eigh(information)
        weights = 1.0 / np.maximum(values, 0.5 * shift)
        self._inverse[due] = kernels.linalg.compose(weights, vectors)

    # -------------------------------------------------------------- Algorithms 2 and 3

    def releasers(self, problem: ProblemInfo, curator: Curator) -> DemandSubroutines:
        """Return the private subroutines, calibrated."""
        assert problem.demand is not None
        T = problem.longest
        d = problem.dim
        demand = Demand.of(problem.demand, problem.zeta, self.demand_bound)
        paper = self.calibration in PRINTED
        if self._growth is None:
            self.growth = 2.0 if paper else portable.power(GROWTH, d)
        self._every = min(self.every or (1 if paper else math.ceil(T / STEPS)), T)
        self._horizon = T
        if paper and curator.private:
            return self._printed(T, d, demand, curator)
        return self._sound(T, d, demand, curator)

    def _play(self, explore: int, gamma: float) -> None:
        self.explore = explore if self._explore is None else self._explore
        self.gamma = gamma if self._gamma is None else self._gamma

    def _printed(self, T: int, d: int, demand: Demand, curator: Curator) -> DemandSubroutines:
        budget = curator.budget
        if budget is None or budget.epsilon is None or budget.delta is None:
            raise BudgetError(f"calibration={self.calibration!r} takes an (epsilon, delta) budget")
        curator.as_printed("CSW, Algorithms 1-3")
        constants, parameters, composition = PRINTED[self.calibration]
        rest = 1 - self.share
        gram = (rest * budget.epsilon, rest * budget.delta)
        mle = (self.share * budget.epsilon, self.share * budget.delta)
        updates = self.max_updates or paper_constants.most_updates(parameters, d, T)
        calls = paper_constants.calls(demand, constants, composition, updates, T, gram, mle)
        choice = paper_constants.choose(parameters, demand, d, T, gram[0], calls.nu)
        # Without composition rho is unchanged: the ridge 2 B2 / epsilon is not forced.
        forced = calls.curvature_constant
        if not composition:
            forced = min(forced, 0.5 * choice.ridge * calls.epsilon)
        perturbation = objective_csw(
            calls.epsilon,
            calls.delta,
            dim=d,
            gradient_constant=calls.gradient_constant,
            curvature_constant=forced,
            gradient_bound=demand.gradient_bound,
            curvature=demand.curvature,
            ridge=choice.ridge,
            records=T,
        )
        self._play(choice.explore, choice.gamma)
        sums = self._gram(curator, d, sigma=calls.gram_sigma)
        estimator = PrivateMLE(curator, d, T, demand, calls=updates, calibration=perturbation)
        return DemandSubroutines(estimator, sums, choice.ridge, updates)

    def _sound(self, T: int, d: int, demand: Demand, curator: Curator) -> DemandSubroutines:
        self._play(EXPLORE, 0.0)
        gram = self._gram(curator, d, share=1 - self.share)
        if not curator.private:
            estimator = ExactMLE(curator.replicates, d, T, demand.kind, demand.zeta, EXACT_RIDGE)
            return DemandSubroutines(estimator, gram, EXACT_RIDGE)
        # The operator norm of isometric noise of standard deviation s has mean at most s sqrt(2 d)
        # and is s-Lipschitz. The shift bounds the mean of the largest norm over all releases.
        sigma = gaussian_sigma((1 - self.share) * curator.most_rho, gram.sensitivity * gram.gain)
        std = sigma * math.sqrt(float(gram.variances.max()))
        shift = max(10.0, std * (math.sqrt(d) + math.sqrt(portable.log(gram.steps))) / math.sqrt(2))
        # The number that det V allows if ||phi||^2 averages at most 1/4, evenly over directions.
        room = d * portable.log1p(T / (4 * d * shift)) / portable.log(self.growth)
        updates = self.max_updates or math.ceil(room)
        private = PrivateMLE(curator, d, T, demand, calls=updates, share=self.share)
        return DemandSubroutines(private, gram, shift, updates)

    def _gram(self, curator: Curator, d: int, **noise: Any) -> RunningSum | EntrywiseGram:
        """Return PrivateCov (Algorithm 2); phi phi' moves by at most sqrt(2) (P1)."""
        made = {"mechanism": self.mechanism, "every": self._every, "what": "Gram matrix of phi"}
        if "algorithm-2" in self.literal:
            return EntrywiseGram(curator, d, 1, clip=1.0, **made, **noise)
        return curator.running_sum(symmetric=d, clip=PSDBall(1.0), **made, **noise)
