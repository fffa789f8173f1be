"""Constants of private pricing as printed (CSW, Algorithms 1-3, Theorems 1-2, section 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpb_gym import portable
from dpb_gym.errors import AgentError

RADIUS = 2.0
"""Algorithm 3 minimises over ||theta|| <= 2."""


@dataclass(frozen=True)
class Demand:
    """Public facts about a demand model, which the analysis uses.

    Attributes:
        kind: ``"logistic"`` or ``"gaussian"``.
        zeta: Link scale (1 for Gaussian demand).
        low: Smallest demand; releasers clip to [low, high].
        high: Largest demand.
        G: Bound of zeta, 1/G <= zeta <= G (assumption 4).
        K: Bound of the slope of the mean, 1/K <= f'(z) <= K for |z| <= 2 (assumption 3).
        gradient_bound: True bound of a record's gradient norm, at most B1.
        curvature: True bound of the trace of a record's Hessian.
    """

    kind: str
    zeta: float
    low: float
    high: float
    G: float
    K: float
    gradient_bound: float
    curvature: float

    @classmethod
    def of(cls, kind: str, zeta: float | None, bound: float) -> Demand:
        """Return the facts of logistic demand in {0, 1}, or of Gaussian demand in [-bound, bound].

        Gaussian losses have bounded gradients on ||theta|| <= 2 only, of norm bound + 2.

        Raises:
            AgentError: If logistic demand is so steep that its slope at |z| = 2 is not a number
                above 0, so that K would be infinite.
        """
        if kind == "gaussian":
            return cls(kind, 1.0, -bound, bound, 1.0, 1.0, bound + RADIUS, 1.0)
        scale = 1.0 if zeta is None else zeta
        # Demand at the end of |z| <= 2, where its slope is least.
        tail = 1.0 / (1.0 + portable.exp(RADIUS * scale))
        if not 0.0 < tail < 1.0:
            raise AgentError(
                f"private pricing needs a demand whose slope is above 0 where |z| <= {RADIUS:g}; "
                f"with zeta = {scale:g} it is 0 in floating point: scale prices and features"
            )
        # Assumption 3 has one constant for f' and 1 / f', assumption 4 one for zeta and 1 / zeta.
        steepest = scale / 4
        flattest = scale * tail * (1.0 - tail)
        K = max(1.0, steepest, 1.0 / flattest)
        G = max(scale, 1.0 / scale)
        # |y - f| <= 1 bounds the gradient by zeta, and f (1 - f) <= 1/4 the Hessian's trace by
        # zeta^2 / 4.
        return cls(kind, scale, 0.0, 1.0, G, K, scale, scale * scale / 4)


@dataclass(frozen=True)
class Calls:
    """Privacy parameters of one release, and the noise that follows from them.

    Attributes:
        gram_sigma: Noise of a node of Algorithm 2.
        epsilon: epsilon of one call of Algorithm 3.
        delta: delta of one call of Algorithm 3.
        gradient_constant: B1 of Algorithm 3.
        curvature_constant: B2 of Algorithm 3.
        nu: Standard deviation of the linear term of Algorithm 3.
    """

    gram_sigma: float
    epsilon: float
    delta: float
    gradient_constant: float
    curvature_constant: float
    nu: float


@dataclass(frozen=True)
class Choice:
    """Parameters of Algorithm 1.

    Attributes:
        explore: T0.
        ridge: rho, ridge and shift.
        gamma: Width of the bonus.
    """

    explore: int
    ridge: float
    gamma: float


def most_updates(parameters: str, d: int, T: int) -> int:
    """Return D_inf: ceil(d log2 T) in section 7, ceil(d log1.5 T) in the theorems."""
    base = 2.0 if parameters == "section-7" else 1.5
    return math.ceil(d * portable.log(T) / portable.log(base))


def calls(
    demand: Demand,
    constants: str,
    composition: bool,
    updates: int,
    T: int,
    gram: tuple[float, float],
    mle: tuple[float, float],
) -> Calls:
    """Return noise scales for (epsilon, delta) of the Gram matrix and of all MLEs together.

    Args:
        demand: The demand model.
        constants: ``"literal"``: B2 = K G with K of assumption 3; ``"curvature"``: B2 = zeta^2/4,
            the true curvature (erratum P5).
        composition: Whether the parameters are divided between the releases, as in the paper;
            otherwise every release gets all of them.
        updates: D_inf.
        T: Horizon.
        gram: epsilon_1 and delta_1.
        mle: epsilon_2 and delta_2.
    """
    epsilon_1, delta_1 = gram
    epsilon_2, delta_2 = mle
    if composition:
        # Levels of the tree, ceil(log2 T).
        m = max(1, (T - 1).bit_length())
        # delta is divided first: the logarithm in epsilon has the divided one.
        delta_1 /= 2 * m
        epsilon_1 /= 2 * m * portable.log(1 / delta_1)
        # Advanced composition of D_inf calls.
        delta_2 /= 2 * updates
        epsilon_2 /= 2 * math.sqrt(2 * updates * portable.log(1 / delta_2))
    B1 = (max(abs(demand.low), abs(demand.high)) + 1) * demand.G
    B2 = demand.K * demand.G if constants == "literal" else demand.curvature
    return Calls(
        # The classical Gaussian mechanism at sensitivity 1, as printed (erratum P1: sqrt(2)).
        gram_sigma=math.sqrt(2 * portable.log(1.25 / delta_1)) / epsilon_1,
        epsilon=epsilon_2,
        delta=delta_2,
        gradient_constant=B1,
        curvature_constant=B2,
        nu=B1 * math.sqrt(8 * portable.log(2 / delta_2) + 4 * epsilon_2) / epsilon_2,
    )


def choose(parameters: str, demand: Demand, d: int, T: int, epsilon_1: float, nu: float) -> Choice:
    """Return the parameters of section 7, Theorem 1 (general) or Theorem 2 (stochastic contexts).

    s, the sub-Gaussian constant of the demand, is 1 in both examples of the paper.
    """
    if parameters == "section-7":
        return Choice(explore=10, ridge=10.0, gamma=1.0)
    K = demand.K
    G = demand.G
    s = 1.0
    log = portable.log(T)
    # The theorems differ in the power of G.
    power = 2 if parameters == "general" else 1
    ridge = max(
        d * math.sqrt(d) * portable.power(log, 5.0) / epsilon_1,
        5 * nu * math.sqrt(5 * d * log),
        2 + 48 * s * s * portable.power(G, power) * K * d * log,
    )
    if parameters == "general":
        width = (math.sqrt(3) * s * K + math.sqrt(5) * G * nu) * math.sqrt(d * log)
        return Choice(0, ridge, K * (width + (2 * G + 3) * math.sqrt(ridge)))
    root = math.ceil((2 * G + 3) * ridge / math.sqrt(5 * d * log) + nu * G)
    explore = min(T, math.ceil(32 * root**2 * portable.power(portable.log(d * T), 2.0)))
    return Choice(explore, ridge, 4 * s * K * K * math.sqrt(d * log))
