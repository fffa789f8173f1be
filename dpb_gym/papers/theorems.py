"""Privacy parameters and regret bounds of the papers' theorems, at given T, d and budgets.

The formulas are those that the papers print. Beside them are the numbers that exact accounting of
the same releases gives, with the sensitivities of the errata. No bound of regret is ours.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpb_gym import validation
from dpb_gym.errors import unknown_name
from dpb_gym.privacy import (
    Budget,
    Composition,
    GaussianEvent,
    Guarantee,
    PoissonGaussianEvent,
    amplified_sigma_ru,
    calibrate_scale,
    objective_plan,
    textbook_rho,
)

LONGEST = 10**30
"""Largest horizon of a calculation."""

WIDEST = 10**6
"""Largest dimension and capacity of a calculation."""

LARGEST_POWER = 300.0
"""Horizons up to 10 to this power are searched for the first that a bound is below."""


@dataclass(frozen=True)
class TheoremNumber:
    """One number of a paper.

    Attributes:
        statement: Where the paper states it.
        quantity: What it is.
        printed: Its value by the paper's formula.
        sound: Its value by exact accounting with the true sensitivity; None where there is none.
    """

    statement: str
    quantity: str
    printed: float
    sound: float | None = None


@dataclass(frozen=True)
class Vacuous:
    """The horizons at which a bound of the regret says nothing.

    Attributes:
        statement: The bound.
        power: log10 of the smallest horizon from which on the bound is at most T; infinite if it
            exceeds T up to 10^300. Regret of T rounds is at most T.
        condition: log10 of the smallest horizon that the theorem allows; None without a condition.
    """

    statement: str
    power: float
    condition: float | None = None


@dataclass(frozen=True)
class Bounds:
    """Numbers of one paper.

    Attributes:
        paper: Name of the paper.
        parameters: All parameters used.
        lines: The numbers.
        vacuous: The horizons at which its bounds of the regret say nothing.
    """

    paper: str
    parameters: dict[str, float]
    lines: tuple[TheoremNumber, ...]
    vacuous: tuple[Vacuous, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences on the horizons at which the bounds say nothing."""
        sentences = []
        for limit in self.vacuous:
            where = (
                "up to T = 10^300" if math.isinf(limit.power) else f"below T = 10^{limit.power:.1f}"
            )
            sentences.append(f"{limit.statement} is vacuous {where}: its bound exceeds T.")
            if limit.condition is not None:
                sentences.append(f"{limit.statement} needs T >= 10^{limit.condition:.1f}.")
        return tuple(sentences)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain JSON values; powers that are infinite are None."""
        limits = [
            {
                "statement": limit.statement,
                "power": None if math.isinf(limit.power) else limit.power,
                "condition": limit.condition,
            }
            for limit in self.vacuous
        ]
        lines = [vars(line) for line in self.lines]
        return {
            "paper": self.paper,
            "parameters": self.parameters,
            "lines": lines,
            "vacuous": limits,
        }


def bounds(paper: str, **parameters: Any) -> Bounds:
    """Return the numbers of a paper's theorems.

    Args:
        paper: ``"private-assortment"``, ``"private-pricing"`` or ``"adaprivate-ts"``.
        **parameters: Parameters of `assortment`, `pricing` or `recommendation`.

    Raises:
        UnknownNameError: If the paper or a parameter is unknown.
        ParameterError: If a value is out of range.

    Example:
        >>> limits = bounds("private-pricing", dim=3)
        >>> [round(limit.condition) for limit in limits.vacuous if limit.condition]
        [35]
    """
    if paper not in PAPERS:
        raise unknown_name("paper", paper, PAPERS)
    compute = PAPERS[paper]
    known = inspect.signature(compute).parameters
    for name in parameters:
        if name not in known:
            raise unknown_name(f"parameter of {paper}", name, known)
    return compute(**parameters)


def assortment(
    horizon: int = 10_000,
    dim: int = 5,
    capacity: int = 10,
    rho: float = 1.0,
    share: float = 0.9,
    calls: int | None = None,
    kappa: float | None = None,
    sigma_0: float | None = None,
    q: float = 0.5,
) -> Bounds:
    """Return the numbers of Cho & Sun, Theorems 1 to 4.

    Args:
        horizon: T, 2 to 10^30.
        dim: d, 2 to 10^6: the printed shift of the Gram matrix is undefined at 1.
        capacity: K, 2 to 10^6: the printed rank of the Hessian is 0 at 1.
        rho: zCDP budget, 1e-9 to 1000.
        share: Part of the budget for the estimates, 0.001 to 0.999.
        calls: D_MLE; ceil(d log2(K T)) by default, the doublings of the determinant.
        kappa: kappa of Assumption 2, 1e-9 to 1/4; the largest possible by default, (1 + K)^-2.
        sigma_0: sigma_0 of Assumption 1, 1e-9 to 1; the largest possible by default, 1/d.
        q: Part of a release's budget for the noise, 0.001 to 0.999.

    The constants C1 and C2 of T0 are not given; they count as 0.
    """
    T = validation.integer("horizon", horizon, 2, LONGEST)
    d = validation.integer("dim", dim, 2, WIDEST)
    K = validation.integer("capacity", capacity, 2, WIDEST)
    total = validation.real("rho", rho, 1e-9, 1e3)
    part = validation.real("share", share, 1e-3, 0.999)
    half = validation.real("q", q, 1e-3, 0.999)
    most = validation.optional(validation.integer, "calls", calls, 1)
    spread = (1.0 + K) ** -2 if kappa is None else kappa
    spread = validation.real("kappa", spread, 1e-9, 0.25)
    design = 1.0 / d if sigma_0 is None else sigma_0
    design = validation.real("sigma_0", design, 1e-9, 1.0)
    rho_1 = part * total
    rho_2 = (1.0 - part) * total

    def releases(t: float) -> int:
        return most or math.ceil(d * math.log2(K * t))

    def levels(t: float) -> int:
        return math.floor(math.log2(t)) + 1

    def plan(t: float) -> tuple[float, float]:
        """Return Delta and sigma of Algorithm 2, with eta = 4 and L = 2."""
        each = rho_1 / releases(t)
        ridge = 4.0 / math.expm1((1.0 - half) * each / min(d, K - 1))
        return ridge, 2.0 * (math.sqrt(d + 2 * half * each) + math.sqrt(d)) / (half * each)

    def shift(t: float) -> float:
        """Return lambda of Lemma S6."""
        ratio = math.cbrt(math.log(d) / d)
        norm = 2 * math.sqrt(d) + 2 * math.pow(d, 1 / 6) * math.cbrt(math.log(d))
        norm += 6 * (1 + ratio) * math.sqrt(math.log(d)) / math.sqrt(math.log1p(ratio))
        return math.sqrt(K / rho_2) * levels(t) * (norm + 2 * math.sqrt(4 * math.log(t)))

    def error(t: float) -> float:
        """Return the bound of Lemma S9 before division by kappa."""
        ridge, sigma = plan(t)
        first = math.sqrt(d / 2 * math.log1p(t / d) + math.log(t))
        return first + ridge + 2 * sigma * math.sqrt(d * math.log(t) / K)

    def pilot(t: float) -> float:
        return 2 * max((error(t) / spread) ** 2, K) / (K * design)

    def later(t: float) -> float:
        width = error(t) / spread + math.sqrt(3 * shift(t))
        potential = math.log((d * shift(t) + t * K) / (d * shift(t) + d * K))
        # The logarithm is negative for T < d, where T0 exceeds T.
        return 2 * width * math.sqrt(2 * d * t * max(0.0, potential))

    ridge, sigma = plan(T)
    ours = objective_plan(rho_1, dim=d, gradient_bound=2.0, curvature=1.0, calls=releases(T))
    gram = K * math.sqrt(levels(T) / rho_2)
    root = 2 * math.sqrt(d) + 2 * math.sqrt(2 * math.log(T))
    lines = (
        TheoremNumber("Algorithm 1", "D_MLE, largest number of estimates", releases(T)),
        TheoremNumber("Theorem 1", "Delta, ridge of an estimate", ridge, ours.ridge),
        TheoremNumber("Theorem 1", "sigma of an estimate", sigma, ours.sigma),
        TheoremNumber(
            "Lemma S5", "sensitivity of the Gram matrix", math.sqrt(2 * K), math.sqrt(2) * K
        ),
        TheoremNumber(
            "Algorithm 3",
            "sigma^2 of a node",
            K * (1 + math.ceil(math.log2(T))) / rho_2,
            gram**2,
        ),
        TheoremNumber(
            "Lemma S6", "shift 2 lambda", 2 * shift(T), gram * math.sqrt(levels(T)) * root
        ),
        TheoremNumber("Theorem 4", "T0 with C1 = C2 = 0", pilot(T)),
        TheoremNumber("Theorem 4", "bound after T0", later(T)),
    )
    used = {
        "horizon": T, "dim": d, "capacity": K, "rho": total, "share": part,
        "calls": releases(T), "kappa": spread, "sigma_0": design, "q": half,
    }  # fmt: skip
    limit = Vacuous("Theorem 4", least_power(lambda t: pilot(t) + later(t)))
    return Bounds("private-assortment", used, lines, (limit,))


def pricing(
    horizon: int = 100_000,
    dim: int = 3,
    zeta: float = 4.0,
    epsilon: float = 1.0,
    delta: float | None = None,
    s: float = 1.0,
    kappa: float | None = None,
) -> Bounds:
    """Return the numbers of Chen, Simchi-Levi & Wang, Algorithms 1 to 3 and Theorems 1 and 2.

    Args:
        horizon: T, 2 to 10^30.
        dim: d, 1 to 10^6.
        zeta: Scale of logistic demand, 0.01 to 20.
        epsilon: epsilon of the Gram matrix and of the estimates, each, 0.0001 to 100.
        delta: delta of each, 1e-60 to 1/2; 1/T^2 by default.
        s: Sub-Gaussian constant of the demand, 1/2 to 100; 1 in Example 2.
        kappa: kappa_x of Assumption 1, 1e-9 to 1/d; that of Section 7 by default, 1 / (3 d).
    """
    T = validation.integer("horizon", horizon, 2, LONGEST)
    d = validation.integer("dim", dim, 1, WIDEST)
    scale = validation.real("zeta", zeta, 0.01, 20.0)
    each = validation.real("epsilon", epsilon, 1e-4, 100.0)
    tail = validation.optional(validation.real, "delta", delta, 1e-60, 0.5)
    deviation = validation.real("s", s, 0.5, 100.0)
    design = 1.0 / (3 * d) if kappa is None else kappa
    design = validation.real("kappa", design, 1e-9, 1.0 / d)
    slope = scale * math.exp(-2 * scale) / (1 + math.exp(-2 * scale)) ** 2
    K = max(1.0, scale / 4, 1 / slope)
    G = max(scale, 1 / scale)

    def log_delta(t: float) -> float:
        return 2 * math.log(t) if tail is None else -math.log(tail)

    def one_call(t: float, base: float = 1.5) -> tuple[int, float, float]:
        """Return D_inf, epsilon' of Algorithm 1 and nu of Algorithm 3."""
        most = math.ceil(d * math.log(t) / math.log(base))
        log = log_delta(t) + math.log(2 * most)
        own = each / (2 * math.sqrt(2 * most * log))
        return most, own, 2 * G * math.sqrt(8 * (math.log(2) + log) + 4 * own) / own

    def ridge(t: float, power: int) -> float:
        log = math.log(t)
        nu = one_call(t)[2]
        least = 2 + 48 * deviation**2 * math.pow(G, power) * K * d * log
        return max(math.pow(d, 1.5) * log**5 / each, 5 * nu * math.sqrt(5 * d * log), least)

    def general(t: float) -> float:
        log = math.log(t)
        nu = one_call(t)[2]
        noise = (math.sqrt(3) * deviation * K + math.sqrt(5) * G * nu) * math.sqrt(d * log)
        gamma = K * (noise + (2 * G + 3) * math.sqrt(ridge(t, 2)))
        return 2 * gamma * math.sqrt(4.6 * d * t * log)

    def pilot(t: float) -> float:
        root = (2 * G + 3) * ridge(t, 1) / math.sqrt(5 * d * math.log(t)) + one_call(t)[2] * G
        return 32 * math.ceil(root) ** 2 * math.log(d * t) ** 2

    def stochastic(t: float) -> float:
        gamma = 4 * deviation * K**2 * math.sqrt(d * math.log(t))
        return pilot(t) + 2 * gamma * math.sqrt(4.6 * d * t * math.log(t))

    m = max(1, math.ceil(math.log2(T)))
    log = log_delta(T) + math.log(2 * m)
    node = math.sqrt(2 * (math.log(1.25) + log)) * 2 * m * log / each
    tolerated = math.exp(-log_delta(T))
    budget = Budget.approx(each, tolerated)
    gram = calibrate_scale(budget, lambda x: [GaussianEvent(x, math.sqrt(2), count=m)])
    most, own, nu = one_call(T, 2.0)
    ours = objective_plan(
        textbook_rho(each, tolerated),
        dim=d,
        gradient_bound=scale,
        curvature=scale**2 / 4,
        calls=most,
    )
    lines = (
        TheoremNumber("Algorithm 2", "sensitivity of the Gram matrix", 1.0, math.sqrt(2)),
        TheoremNumber("Algorithm 2", "sigma of a node", node, gram),
        TheoremNumber("Algorithm 1", "D_inf of Section 7, largest number of estimates", most),
        TheoremNumber("Algorithm 1", "epsilon of an estimate", own),
        TheoremNumber("Algorithm 3", "B1, bound of a gradient", 2 * G, scale),
        TheoremNumber("Algorithm 3", "B2, bound of a Hessian", K * G, scale**2 / 4),
        TheoremNumber(
            "Algorithm 3", "ridge of an estimate", max(10.0, 2 * K * G / own), ours.ridge
        ),
        TheoremNumber("Algorithm 3", "sigma of an estimate", nu, ours.sigma),
        TheoremNumber("Theorem 1", "bound of the regret", general(T)),
        TheoremNumber("Theorem 2", "T0", pilot(T)),
        TheoremNumber("Theorem 2", "bound of the regret", stochastic(T)),
    )
    used = {
        "horizon": T, "dim": d, "zeta": scale, "epsilon": each,
        "delta": tolerated, "s": deviation, "kappa": design,
    }  # fmt: skip
    limits = (
        Vacuous("Theorem 1", least_power(general)),
        Vacuous("Theorem 2", least_power(stochastic), design**-2 / math.log(10)),
    )
    return Bounds("private-pricing", used, lines, limits)


def recommendation(
    horizon: int = 10_000,
    dim: int = 20,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    batch: int = 300,
    q: float = 0.3,
    lambda_0: float | None = None,
    failure: float = 0.05,
) -> Bounds:
    """Return the numbers of Riyazat & Ukwatta, Eq. 2.8 and 3.6 and the explicit part of Theorem 7.

    Args:
        horizon: T, 2 to 10^30.
        dim: d, 1 to 10^6.
        epsilon: epsilon, 0.0001 to 100; Eq. 3.6 has no noise for epsilon below log(1/delta) / 63.
        delta: delta, 1e-60 to 1/2.
        batch: B, 1 to T.
        q: Probability with which a reward is sampled, 0.001 to 0.999.
        lambda_0: lambda_0 of Assumption 2, 1e-9 to 1/d; the largest possible by default, 1/d.
        failure: Probability delta_r with which the bound may fail, 1e-9 to 1/2.

    The constants of the first term of Theorem 7 are not given. The second is Eq. 3.18.
    """
    T = validation.integer("horizon", horizon, 2, LONGEST)
    d = validation.integer("dim", dim, 1, WIDEST)
    promised = validation.real("epsilon", epsilon, 1e-4, 100.0)
    tolerated = validation.real("delta", delta, 1e-60, 0.5)
    budget = Budget.approx(promised, tolerated)
    B = validation.integer("batch", batch, 1, T)
    rate = validation.real("q", q, 1e-3, 0.999)
    design = 1.0 / d if lambda_0 is None else lambda_0
    design = validation.real("lambda_0", design, 1e-9, 1.0 / d)
    fails = validation.real("failure", failure, 1e-9, 0.5)
    sigma = 1 / math.sqrt(2 * textbook_rho(promised, tolerated))

    batches = T // B
    factor = 1 + math.sqrt(2 * math.log(2 * batches / fails) / d)
    first = 2 * sigma * math.sqrt(d) * factor / design  # cost of the first batch
    added = 2 * math.sqrt(batches) - 1  # bounds the sum of 1 / sqrt(k), as 1 + log K that of 1 / k
    sampled = amplified_sigma_ru(promised, tolerated, rate)
    true = Guarantee("central", "reward", curve=Composition.of(sampled)).epsilon(tolerated)
    lines = (
        TheoremNumber("Eq. 2.8", "sigma of a batch", sigma, calibrate_scale(budget, _plain)),
        TheoremNumber(
            "Eq. 3.6",
            "sigma of a sampled batch",
            sampled.sigma,
            calibrate_scale(budget, lambda x: [PoissonGaussianEvent(rate, x)]),
        ),
        TheoremNumber("Eq. 3.6", "epsilon of that noise", promised, true),
        TheoremNumber("Eq. 3.18", "bound of the cost of privacy", first * (1 + math.log(batches))),
        TheoremNumber("Eq. 3.18", "the same with the noise that line 15 adds up", first * added),
    )
    used = {
        "horizon": T, "dim": d, "epsilon": promised, "delta": tolerated, "batch": B,
        "q": rate, "lambda_0": design, "failure": fails,
    }  # fmt: skip
    return Bounds("adaprivate-ts", used, lines, ())


def _plain(scale: float) -> list[GaussianEvent]:
    return [GaussianEvent(scale)]


PAPERS: Mapping[str, Callable[..., Bounds]] = {
    "private-assortment": assortment,
    "private-pricing": pricing,
    "adaprivate-ts": recommendation,
}


def least_power(bound: Callable[[float], float]) -> float:
    """Return log10 of the smallest horizon from which on a bound of the regret is at most T.

    Horizons 10, 10^1.1, ..., 10^300 are tried, then the step is halved. Infinite if the bound
    exceeds the last of them.
    """

    def vacuous(power: float) -> bool:
        horizon: float = 10.0**power
        return bound(horizon) > horizon

    low = 1.0
    high = LARGEST_POWER
    if vacuous(high):
        return math.inf
    steps = [1 + k / 10 for k in range(round(10 * (LARGEST_POWER - 1)) + 1)]
    above = [power for power in steps if vacuous(power)]
    if not above:
        return low
    low = above[-1]
    high = low + 0.1
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if vacuous(middle) else (low, middle)
    return high
