"""One action for all customers, chosen from private sums: a baseline without features.

An action is one of K cells: a price of a grid, a candidate, or in assortments an item of a slate.
The unknown of a cell is its mean demand, its mean reward, or its attraction exp(u_i). It has a
normal prior, and records of disjoint batches are released with noise of a known size, so that the
posterior is normal as well. In a batch the agent plays the best actions of `DRAWS` draws from the
posterior in turn (Thompson sampling). So the numbers of plays follow from the releases alone.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_gym import portable
from dpb_gym.agent import unsuitable
from dpb_gym.errors import AgentError
from dpb_gym.kernels.customer_slates import all_offered, best_slate
from dpb_gym.kernels.vectors import cholesky, inverse, largest, log
from dpb_gym.parameters import integer, positive
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import ContributionCap, Curator, NonNegativeBall, ReleaseModel, Schedule
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent

# Draws per batch, at least: a cell that is best with probability 1/64 is played.
DRAWS = 64
# Mean prior plays per item in the first draws of an assortment.
PLAYS = 4
# Lowest price of the grid, for which each demand loses at most a tenth of its revenue.
LEAST_PRICE = 0.1
PRICES = 12
# Correlation length of the demand in log price.
LENGTH = 0.7
# Part of a prior variance that neighbours do not share.
OWN = 0.02
# Gaussian demand is clipped to two deviations beyond its means, which are within [-1, 1].
GAUSSIAN_RANGE = (-3.0, 3.0)
# A slate of unequal revenues is learnt for at most this part of the rounds.
LEARNING = 0.25
# Exact sums get noise of this size relative to the range, so that matrices stay invertible.
FLOOR = 1e-3
# Attractions depend on each other through the share of sales, which is solved by iteration.
STEPS = 3


class Known(NamedTuple):
    """Public constants.

    Attributes:
        prices: Grid of prices; empty for other problems, ``(K,)``.
        middle: Subtracted from responses.
        floor: Least standard deviation of noise.
        spread: Variance of a response.
        mean: Prior mean of the cells, ``(K,)``.
        precision: Prior precision, ``(K, K)``.
        normals: Constant standard normals of the draws, ``(M, K)``.
        capacity: Largest number of items; 0 for other problems.
        exactly: Whether a slate has that many items.
        equal: Whether all revenues are equal.
        learning: Last round of an assortment whose records are learnt from.
    """

    prices: Any
    middle: float
    floor: float
    spread: float
    mean: Any
    precision: Any
    normals: Any
    capacity: int
    exactly: bool
    equal: bool
    learning: int


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        table: Scores of the cells in each of M draws, ``(M, K)``. Round t plays row t - 1 mod M.
        information: Precision of the releases about each cell, ``(K,)``.
        pull: The same times their estimate, ``(K,)``.
        seen: Rounds and records at the last release, ``(2,)``.
    """

    table: Any
    information: Any
    pull: Any
    seen: Any


@jit
def row_of(s, t):
    """Row of the table that round t plays."""
    return (t - 1) % s.table.shape[0]


@jit
def act_price(c, s, t, x, z):
    """Price of the row's largest score."""
    return c.prices[largest(s.table[row_of(s, t)], 0.0)]


@jit
def act_candidate(c, s, t, x, z):
    """Candidate of the row's largest score, in its place among those that are shown."""
    return min(largest(s.table[row_of(s, t)], 0.0), x.shape[0] - 1)


@jit
def act_arm(c, s, t, x, z):
    """Position of the arm of the row's largest score."""
    arm = largest(s.table[row_of(s, t)], 0.0)
    for k in range(x.shape[0]):
        if x[k] == arm:
            return k
    return 0


@jit
def act_slate(c, s, t, offer, z):
    """Slate of the row's largest attractions, or after learning that of the largest revenue."""
    u = s.table[row_of(s, t)].copy()
    equal = (c.equal or t <= c.learning) and all_offered(offer.revenues)
    return best_slate(u, offer.revenues, c.capacity, equal, c.exactly)


@jit
def cell(n, k):
    """Unit vector of a cell, ``(n,)``."""
    v = np.zeros(n)
    v[k] = 1.0
    return v


@jit
def record_price(c, s, t, x, price, y, z):
    """The demand, in the direction of its price."""
    g = 0
    for k in range(c.prices.shape[0]):
        if abs(c.prices[k] - price) < abs(c.prices[g] - price):
            g = k
    return y - c.middle, cell(c.prices.shape[0], g)


@jit
def record_candidate(c, s, t, x, k, y, z):
    """The reward, in the direction of its place."""
    return y - c.middle, cell(c.mean.shape[0], min(k, c.mean.shape[0] - 1))


@jit
def record_arm(c, s, t, x, k, y, z):
    """The reward, in the direction of its arm."""
    return y - c.middle, cell(c.mean.shape[0], x[k])


@jit
def record_slate(c, s, t, offer, slate, choice, z):
    """Unit vector of the item that was chosen, or 0."""
    n = c.mean.shape[0]
    if choice < 0:
        return np.zeros(n)
    return cell(n, slate[choice])


@jit
def posterior(c, information, pull):
    """Posterior mean and covariance of the cells."""
    n = c.mean.shape[0]
    A = c.precision.copy()
    b = np.zeros(n)
    for i in range(n):
        A[i, i] += information[i]
        b[i] = pull[i] - information[i] * c.mean[i]
    V = inverse(A)
    mean = np.zeros(n)
    for i in range(n):
        mean[i] = c.mean[i]
        for j in range(n):
            mean[i] += V[i, j] * b[j]
    return mean, V


@jit
def draw(c, s, mean, V):
    """Write draws from the posterior into the table."""
    n = mean.shape[0]
    root = cholesky(V)
    for r in range(s.table.shape[0]):
        for i in range(n):
            value = mean[i]
            for j in range(i + 1):
                value += root[i, j] * c.normals[r, j]
            s.table[r, i] = value


@jit
def plays(c, s, t):
    """Number of rounds since the last release in which each row was played, ``(M,)``."""
    M = s.table.shape[0]
    counts = np.zeros(M)
    first = int(s.seen[0])
    for r in range(M):
        counts[r] = (t - first) // M
    for i in range((t - first) % M):
        counts[(first + i) % M] += 1.0
    return counts


@jit
def learn(c, s, released, t):
    """Update the cells with the batch, and draw the actions of the next one."""
    n = c.mean.shape[0]
    counts = plays(c, s, t)
    # The part of rounds with a record, taken as equal for all cells.
    part = (released.records - s.seen[1]) / (t - s.seen[0])
    number = np.zeros(n)
    for r in range(counts.shape[0]):
        number[largest(s.table[r], 0.0)] += part * counts[r]
    for k in range(n):
        if number[k] > 0.0:
            add(c, s, released, k, number[k], c.spread, c.middle)
    mean, V = posterior(c, s.information, s.pull)
    draw(c, s, mean, V)
    for k in range(c.prices.shape[0]):
        for r in range(counts.shape[0]):
            # Cells of prices are demands, and the revenue decides.
            s.table[r, k] *= c.prices[k]
    s.seen[0] = t
    s.seen[1] = released.records


@jit
def add(c, s, released, k, number, spread, middle):
    """Add what a batch of so many plays tells about a cell."""
    noise = max(released.std, c.floor)
    # of a message the noise is in all coordinates, unless it is of the number alone
    variance = noise * noise + number * (spread + released.record_std**2)
    precision = number * number / variance
    s.information[k] += precision
    s.pull[k] += precision * (released.sum[k] / number + middle)


@jit
def learn_slate(c, s, released, t):
    """Update the attractions with the batch, and draw the slates of the next one.

    An item of attraction v in a slate of total attraction V is chosen with probability v / (1 + V),
    so the number of its choices over its exposures / (1 + V) estimates v.
    """
    n = c.mean.shape[0]
    M = s.table.shape[0]
    if t > c.learning:
        return
    counts = plays(c, s, t)
    part = (released.records - s.seen[1]) / (t - s.seen[0])
    offered = np.zeros(n)
    information = s.information.copy()
    pull = s.pull.copy()
    mean, V = posterior(c, information, pull)
    # While attractions are learnt slates are those of the largest draws, whatever the revenues.
    same = np.ones(n)
    for _ in range(STEPS):
        for k in range(n):
            offered[k] = 0.0
        for r in range(M):
            slate = best_slate(s.table[r].copy(), same, c.capacity, True, c.exactly)
            total = 1.0
            for a in range(c.capacity):
                if slate[a] >= 0:
                    total += max(mean[slate[a]], 0.0)
            for a in range(c.capacity):
                if slate[a] >= 0:
                    offered[slate[a]] += part * counts[r] / total
        for k in range(n):
            s.information[k] = information[k]
            s.pull[k] = pull[k]
            if offered[k] > 0.0:
                # A count of rare choices has a variance of about its mean.
                add(c, s, released, k, offered[k], max(mean[k], c.spread), 0.0)
        mean, V = posterior(c, s.information, s.pull)
    draw(c, s, mean, V)
    last = not c.equal and t == c.learning
    for r in range(M):
        for k in range(n):
            value = mean[k] if last else s.table[r, k]
            # Utilities are logs of attractions; a normal draw of an attraction may be negative.
            s.table[r, k] = log(max(value, 1e-6))
    s.seen[0] = t
    s.seen[1] = released.records


PRICE = Functions(act_price, record_price, learn)
CANDIDATE = Functions(act_candidate, record_candidate, learn)
ARM = Functions(act_arm, record_arm, learn)
SLATE = Functions(act_slate, record_slate, learn_slate)


class Cells(NamedTuple):
    """What is known of the cells of a problem before the first round.

    Attributes:
        functions: The algorithm.
        low: Least response that counts.
        high: Largest response that counts.
        spread: Variance of a response.
        rate: Plays of a cell per round.
        mean: Prior mean, ``(K,)``.
        covariance: Prior covariance, ``(K, K)``.
        prices: Grid of prices; empty for other problems.
    """

    functions: Functions
    low: float
    high: float
    spread: float
    rate: float
    mean: Any
    covariance: Any
    prices: Any


def exchangeable(n: int, mean: float, common: float, own: float) -> tuple[Any, Any]:
    """Return mean and covariance of n numbers with a common and an own standard deviation."""
    return np.full(n, mean), np.full((n, n), common**2) + own**2 * np.eye(n)


def price_cells(problem: ProblemInfo) -> Cells:
    """Return a geometric grid of prices, with a smooth prior of the demand at each."""
    lowest, highest = problem.price_range or (0.0, 1.0)
    lowest = max(lowest, LEAST_PRICE * highest)
    steps = np.arange(PRICES) / (PRICES - 1.0)
    logs = portable.log(lowest) + steps * (portable.log(highest) - portable.log(lowest))
    prices = portable.each(portable.exp, logs)
    prices[-1] = highest
    logistic = problem.demand == "logistic"
    roots = np.sqrt(prices / highest)
    mean = np.minimum(0.8, 0.3 / roots) if logistic else np.zeros(PRICES)
    size = np.minimum(0.4, 0.25 / roots) if logistic else np.full(PRICES, 0.6)
    apart = (logs[:, None] - logs) / LENGTH
    alike = portable.each(portable.exp, -0.5 * apart.ravel() ** 2).reshape(apart.shape)
    covariance = ((1.0 - OWN) * alike + OWN * np.eye(PRICES)) * np.outer(size, size)
    low, high = (0.0, 1.0) if logistic else GAUSSIAN_RANGE
    spread = 0.25 if logistic else 1.0
    return Cells(PRICE, low, high, spread, 1.0 / PRICES, mean, covariance, prices)


def candidate_cells(problem: ProblemInfo) -> Cells:
    """Return the arms, or the places of the candidates."""
    low, high = problem.reward_range
    if not (math.isfinite(low) and math.isfinite(high)):
        raise AgentError(f"rewards must be bounded, got the range [{low}, {high}]")
    n = int((problem.n_arms if problem.fixed_arms else problem.n_candidates) or 1)
    width = high - low
    mean, covariance = exchangeable(n, 0.5 * (low + high), 0.25 * width, 0.25 * width)
    functions = ARM if problem.fixed_arms else CANDIDATE
    return Cells(functions, low, high, 0.25 * width**2, 1.0 / n, mean, covariance, np.zeros(0))


def item_cells(problem: ProblemInfo) -> Cells:
    """Return the items, whose attractions have mean 1/2."""
    n = int(problem.n_items or 1)
    K = int(problem.capacity or 1)
    mean, covariance = exchangeable(n, 0.5, 0.5, 0.3)
    rate = K / n / (1.0 + 0.5 * K)
    return Cells(SLATE, 0.0, 1.0, 0.1, rate, mean, covariance, np.zeros(0))


CELLS = {"pricing": price_cells, "recommendation": candidate_cells, "assortment": item_cells}


@register_agent(
    "private-single-action",
    supports=["assortment", "pricing", "recommendation"],
    protects=("joint", "user-round"),
    delayed_feedback=False,
)
class PrivateSingleAction(Algorithm):
    """One action for all customers, learnt by Thompson sampling on private sums; no features.

    A baseline: a private agent that uses features should have less regret than this one. The
    action is a price of a geometric grid, an arm, or the place of a candidate where arms change;
    in assortments the K items of the largest attractions exp(u_i). If revenues differ, attractions
    are learnt from random slates first, and then the best slate for them is offered.

    The sums of disjoint batches are released with Gaussian noise, or with that of the budget's
    trust model. Means are independent of features, so cells have a normal prior and posterior,
    which knows the size of the noise. Actions of a batch are those of 64 draws from the posterior
    (probability matching, Thompson 1933, doi:10.1093/biomet/25.3-4.285), in turn. The numbers of
    plays are therefore known without a further release. Where items are not always available they
    are counted as if they were.

    Sensitivity: no action depends on the customer, except for the revenues and availability of
    items. Replacing a customer changes one record. In pricing and recommendation it is the
    response, less the middle of its range w, times the unit vector of the cell: two such records
    differ by at most w, even in other cells. In assortments it is the unit vector of the chosen
    item or 0: two of them differ by at most sqrt(2). Every record is in one batch, so that all
    releases together are one Gaussian mechanism.

    The guarantee is joint privacy of one round of a user, or of all with `max_rounds_per_user`,
    replace-one. Without a budget the sums are exact.

    Args:
        size: Factor of the prior standard deviations, > 0.
        max_rounds_per_user: k, the most rounds of a user that are learnt from, if all rounds of
            one user are protected; user ids are public. None: a single round is protected.

    Raises:
        AgentError: If rewards are not bounded.
    """

    functions = PRICE
    context_of_arms = ("arms",)
    tuning_grid: ClassVar[dict[str, Any]] = {"size": [0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0]}

    size: float = positive(1.0)
    max_rounds_per_user: int | None = integer(None, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.protects = ("joint", "user" if self.max_rounds_per_user else "user-round")

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind not in CELLS or (problem.kind == "pricing" and problem.demand is None):
            raise unsuitable("private-single-action", problem, *CELLS)
        self._cells(problem)

    def _cells(self, problem: ProblemInfo) -> Cells:
        cells = CELLS[problem.kind](problem)
        return cells._replace(covariance=cells.covariance * self.size**2)

    def functions_for(self, problem: ProblemInfo) -> Functions:
        return CELLS[problem.kind](problem).functions

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        cells = self._cells(problem)
        slates = problem.kind == "assortment"
        own = float(np.diag(cells.covariance).mean() - cells.covariance[0, -1])
        rate = cells.rate
        if problem.partial_feedback:
            rate /= problem.n_candidates or 1
        model = ReleaseModel(
            problem.longest, 1.0, rate, cells.spread / rate, own, problem.horizon is None
        )
        half = 0.5 * (cells.high - cells.low)
        k = self.max_rounds_per_user
        sums = curator.weighted_sum(
            len(cells.mean),
            schedule=partial(planned, model),
            model=model,
            limit=k,
            what="sums of choices per item" if slates else "sums of responses per action",
            **({"clip": NonNegativeBall(1.0)} if slates else {"reward": (-half, half)}),
        )
        cap = None if k is None else ContributionCap(k, curator.replicates)
        return Plan(sums, directed=not slates, users=k is not None, cap=cap)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        cells = self._cells(problem)
        K = len(cells.mean)
        capacity = int(problem.capacity or 0)
        draws = max(DRAWS, -(-PLAYS * K // max(capacity, 1)) if capacity else K)
        # the same for all: actions depend on the releases alone
        normals = portable.normals(np.random.default_rng(0), (draws, K))
        table = normals.copy()
        if len(cells.prices):
            # exp(-U) is the best law of a price without information
            blind = portable.each(portable.exp, -(np.arange(draws) + 0.5) / draws)
            order = np.random.default_rng(1).permutation(draws)
            wanted = blind[order] * cells.prices[-1]
            table = -np.abs(cells.prices - wanted[:, None])
        known = Known(
            prices=cells.prices,
            middle=0.0 if capacity else 0.5 * (cells.low + cells.high),
            floor=FLOOR * (cells.high - cells.low),
            spread=cells.spread,
            mean=cells.mean,
            precision=inverse(cells.covariance),
            normals=normals,
            capacity=capacity,
            exactly=bool(problem.exactly),
            equal=bool(problem.equal_revenues),
            learning=problem.longest if problem.equal_revenues else learning(sums, cells),
        )
        return known, State(table, np.zeros(K), np.zeros(K), np.zeros(2))


def planned(model: ReleaseModel, sigma: float) -> Schedule:
    """Return the best disjoint batches for the noise of a trusted curator."""
    return model.batches(sigma)


def learning(sums: Any, cells: Cells) -> int:
    """Return the release up to which slates of unequal revenues are learnt from.

    It is the first one after which the noise in an attraction is a quarter of its own prior
    deviation, within `LEARNING` of the rounds.
    """
    schedule = sums.schedule
    sizes = schedule.sizes * cells.rate
    noise = (sums.sigma / schedule.scales) ** 2 + sizes * cells.spread
    own = float(cells.covariance[0, 0] - cells.covariance[0, -1])
    enough = np.cumsum(sizes**2 / noise) * own >= 16.0
    ends = schedule.ends
    longest = int((ends <= LEARNING * ends[-1]).sum())
    first = int(enough.argmax()) if enough.any() else len(ends)
    return int(ends[max(0, min(first, longest - 1))])
