"""Convert compositions of events to (epsilon, delta); the only module that uses `dp_accounting`.

The result is the smallest of the applicable bounds:

* every event Gaussian: exact, through Gaussian differential privacy, ``mu^2 = sum mu_i^2``;
* a Renyi bound for every event: `dp_accounting.rdp` on dense orders (its default orders stop
  at 1024, which is loose for small rho), with the conversion of Canonne, Kamath & Steinke
  (2020), Proposition 12;
* a dominating pair for every event: `dp_accounting.pld`, pessimistic discretisation.

A mixture of events of the second and third kind splits delta between the two parts.

Units: an event's sensitivity is the distance between neighbouring values. `dp_accounting`'s
PLD under REPLACE_ONE takes the norm bound per record instead and doubles it. Its RDP takes a noise
multiplier over the distance. This module converts between them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import BudgetError
from dpb_gym.portable import bisect
from dpb_gym.privacy import events
from dpb_gym.privacy.composition import Composition
from dpb_gym.uncompiled import erfcx, exp, expm1, log, log1p, log_normal_cdf
from dpb_gym.validation import FloatArray

ORDERS: FloatArray = 1.0 + np.geomspace(1e-2, 1e5, 2000)
PLD_INTERVAL = 1e-4
_SPLITS = (0.01, 0.1, 0.5, 0.9, 0.99)
# Events that `_event_pld` supports; checked first, because composing may take hours.
WITH_PAIR = (
    events.GaussianEvent,
    events.LaplaceEvent,
    events.RandomizedResponseEvent,
    events.PureEvent,
    events.ApproxEvent,
    events.PoissonGaussianEvent,
)

LARGEST_LOSS = 100.0
"""Epsilon of a release up to which its privacy loss distribution, which grows with it, is built."""
LARGEST_TOTAL_LOSS = 1000.0
"""Epsilon of a composition up to which its distribution is built: 10^7 cells of the grid."""
MOST_RELEASES = 10**7
"""Releases up to which a distribution is composed, as `dp_accounting` can take a step for each."""


@functools.lru_cache(maxsize=4096)
def epsilon(composition: Composition, delta: float) -> float:
    """Return the smallest known epsilon such that the composition is (epsilon, delta)-private.

    Args:
        composition: Events that one record is charged with.
        delta: In [0, 1); 0 for pure differential privacy.

    Returns:
        Epsilon, infinite if there is none.
    """
    delta = validation.real("delta", delta, 0.0, 1.0, open_high=True, error=BudgetError)
    if delta == 0:
        return composition.pure
    return min(_epsilon(composition.events, delta), composition.pure)


@functools.lru_cache(maxsize=4096)
def delta(composition: Composition, epsilon_: float) -> float:
    """Return the smallest known delta such that the composition is (epsilon, delta)-private."""
    epsilon_ = validation.real("epsilon", epsilon_, 0.0, error=BudgetError)
    if composition.pure <= epsilon_:
        return 0.0
    events = composition.events
    mu = total_mu(events)
    if mu is not None:
        return gaussian_delta(mu, epsilon_)
    if len(events) == 1 and _single_sampled(events[0]):
        return _sampled_delta(events[0], epsilon_)  # type: ignore[arg-type]
    if _epsilon(events, 1e-300) <= epsilon_:
        return 1e-300
    return exp(bisect(lambda s: _epsilon(events, exp(s)) > epsilon_, -690.0, -1e-12)[1])


# ---------------------------------------------------------------- Gaussian, in closed form


def gaussian_delta(mu: float, epsilon_: float) -> float:
    """Return delta of mu-Gaussian DP at epsilon (Balle & Wang 2018, Theorem 8)."""
    if mu == 0:
        return 0.0
    near = mu / 2 - epsilon_ / mu
    far = -mu / 2 - epsilon_ / mu
    if near < 0:  # difference of Mills ratios: no cancellation in the tail
        ratio = math.sqrt(math.pi / 2) * (erfcx(-near / math.sqrt(2)) - erfcx(-far / math.sqrt(2)))
        return float(max(0.0, ratio * exp(-(near * near) / 2) / math.sqrt(2 * math.pi)))
    log_near = log_normal_cdf(near)
    return exp(log_near) * -expm1(epsilon_ + log_normal_cdf(far) - log_near)


@functools.lru_cache(maxsize=4096)
def gaussian_epsilon(mu: float, delta_: float) -> float:
    """Return epsilon of mu-Gaussian DP at delta, rounded up."""
    if mu == 0 or gaussian_delta(mu, 0.0) <= delta_:
        return 0.0
    # the conversion of zCDP with rho = mu^2 / 2 is an upper bound
    high = mu * mu / 2 + mu * math.sqrt(2 * log(1 / delta_)) + 1e-9
    return bisect(lambda e: gaussian_delta(mu, e) > delta_, 0.0, high)[1]


def gaussian_mu(epsilon_: float, delta_: float) -> float:
    """Return the largest mu whose Gaussian DP implies (epsilon, delta)-DP."""
    # delta grows in mu without a bound, so doubling ends
    high = 1.0
    while gaussian_delta(high, epsilon_) <= delta_:
        high *= 2
    low = high
    while gaussian_delta(low, epsilon_) > delta_:
        low /= 2
    return bisect(lambda mu: gaussian_delta(mu, epsilon_) <= delta_, low, high)[0]


# ---------------------------------------------------------------- any events


def total_mu(events: Sequence[events.Event]) -> float | None:
    """Return mu of the composition if every event is Gaussian, else None."""
    mus = [event.gaussian_mu for event in events if event.gaussian_mu is not None]
    return math.hypot(*mus) if len(mus) == len(events) else None


def _epsilon(events: Sequence[events.Event], delta_: float) -> float:
    # releases that do not depend on the data have no privacy loss distribution
    events = [event for event in events if event.zcdp != 0.0]
    mu = total_mu(events)
    if mu is not None:
        return gaussian_epsilon(mu, delta_)
    if len(events) == 1 and _single_sampled(events[0]):
        return _sampled_epsilon(events[0], delta_)  # type: ignore[arg-type]
    if len(events) == 1 and _single_response(events[0]):
        return _response_epsilon(events[0], delta_)  # type: ignore[arg-type]
    # divergences of releases on the same records add up at each order
    divergence = np.sum([event.rdp(ORDERS) for event in events], axis=0)
    candidates = [renyi_to_epsilon(divergence, delta_)]
    if all(isinstance(event, WITH_PAIR) for event in events):
        if _fits(events):
            candidates.append(float(_pld(tuple(events)).get_epsilon_for_delta(delta_)))
        else:  # as if nothing were sampled
            rho = sum(math.inf if event.zcdp is None else event.zcdp for event in events)
            candidates.append(renyi_to_epsilon(rho * ORDERS, delta_))
    renyi = [event for event in events if _has_renyi(event)]
    others = [event for event in events if not _has_renyi(event)]
    # the orders that suit one part may be infinite for the other: split delta between them
    if renyi and others:
        candidates += [
            _epsilon(renyi, share * delta_) + _epsilon(others, (1 - share) * delta_)
            for share in _SPLITS
        ]
    # exact bounds of single releases can beat the grid of the composition
    elif len(others) > 1 and any(_single_sampled(event) for event in others):
        candidates.append(sum(_epsilon([event], delta_ / len(others)) for event in others))
    return max(0.0, min(candidates))


def _loss(event: events.Event) -> float:
    """Return epsilon of one release of a pure event, 0 for others."""
    return float(getattr(event, "epsilon", 0.0))


def _fits(composed: Sequence[events.Event]) -> bool:
    """Return whether the grid of the privacy loss distribution takes bounded memory and time.

    Its size grows with the largest losses of one release and of all together. They are estimated
    by those of a normal loss. Without the limits an event of a file could need terabytes or years.
    """
    total = 0.0
    releases = 0
    variance = 0.0
    for event in composed:
        count = getattr(event, "count", 1)
        if not isinstance(event, events.GaussianEvent):  # whose count is in mu
            releases += count
        if isinstance(event, events.GaussianEvent | events.PoissonGaussianEvent):
            mu = min(event.sensitivity / event.sigma, 1e3)
            largest = 0.5 * mu * mu
            sampled = getattr(event, "q", 1.0) ** 2 * math.expm1(min(mu * mu, 100.0))
            variance += count * min(mu * mu, sampled)
        else:
            largest = _loss(event)
            variance += 2.0 * min(event.zcdp or 0.0, 1e300)
            total += count * largest if event.zcdp is None else 0.0
        if largest > LARGEST_LOSS:
            return False
    largest_total = total + 0.5 * variance + 10.0 * math.sqrt(variance)
    return releases <= MOST_RELEASES and largest_total <= LARGEST_TOTAL_LOSS


def _has_renyi(event: events.Event) -> bool:
    return bool(np.isfinite(event.rdp(np.array([1.0 + 1e-2]))).all())


def renyi_to_epsilon(divergence: FloatArray, delta_: float) -> float:
    """Return epsilon at delta > 0 of Renyi divergences (Canonne et al. 2020, Proposition 12).

    It has the same bits as `dp_accounting.rdp.compute_epsilon`, whose import takes a second.

    Args:
        divergence: At `ORDERS`; orders without a bound, which is not finite, are left out.
        delta_: In (0, 1).
    """
    finite = np.where(np.isfinite(divergence), divergence, math.inf)
    # Bretagnolle and Huber: two such close distributions differ by at most delta
    if delta_**2 + math.expm1(-float(finite.min())) > 0:  # delta <= sqrt(1 - exp(-KL))
        return 0.0
    plus, minus = _conversion(delta_)
    return max(0.0, float((finite + plus - minus).min()))


@functools.lru_cache(maxsize=64)
def _conversion(delta_: float) -> tuple[FloatArray, FloatArray]:
    """Return what the conversion adds and subtracts at each order, with the bits of `math`."""
    plus = [math.log1p(-1 / order) for order in ORDERS.tolist()]
    minus = [math.log(delta_ * order) / (order - 1) for order in ORDERS.tolist()]
    # the bound is numerically unstable near 1
    return np.where(ORDERS > 1.01, plus, math.inf), np.array(minus)


def _single_sampled(event: events.Event) -> bool:
    return isinstance(event, events.PoissonGaussianEvent) and event.count == 1


def _single_response(event: events.Event) -> bool:
    return isinstance(event, events.PureEvent | events.RandomizedResponseEvent) and event.count == 1


def _response_epsilon(event: events.RandomizedResponseEvent, delta_: float) -> float:
    """Return the exact epsilon at delta of one k-ary randomized response.

    The true answer has probability p, each other one p e^-eps0. The divergence at e <= eps0 is
    p - p e^(e - eps0), which is delta where e = log((1 - delta) e^eps0 - delta (k - 1)).
    """
    others = delta_ * (event.categories - 1) * exp(-event.epsilon)
    inside = -delta_ - others
    return max(0.0, event.epsilon + log1p(inside)) if inside > -1.0 else 0.0


def _sampled_epsilon(event: events.PoissonGaussianEvent, delta_: float) -> float:
    """Return the exact epsilon of one release.

    For the pair "zero-out" by advanced joint convexity (Balle, Barthe & Gaboardi 2018, Th. 2). With
    P = (1-q) N(0) + q N(a) and P' = (1-q) N(0) + q N(a'), the hockey-stick divergence at
    1 + q (e^eps - 1) is at most q times that of N(a) against a mixture of N(0) and N(a'),
    hence at most q times that of two Gaussians at distance `sensitivity`; attained by
    a' = 0.
    """
    # sampling only helps, so epsilon without it brackets the search
    mu = event.sensitivity / event.sigma
    if event.pair == "symmetric":
        high = gaussian_epsilon(mu, delta_)
        return bisect(lambda e: _symmetric_delta(event, e) > delta_, 0.0, high)[1]
    if delta_ >= event.q:
        return 0.0
    inner = gaussian_epsilon(mu, delta_ / event.q)
    return inner + log(event.q) if inner > 700 else log1p(event.q * expm1(inner))


def _sampled_delta(event: events.PoissonGaussianEvent, epsilon_: float) -> float:
    """Return the exact delta of one release; see `_sampled_epsilon`."""
    if event.pair == "symmetric":
        return _symmetric_delta(event, epsilon_)
    inner = epsilon_ - log(event.q) if epsilon_ > 700 else log1p(expm1(epsilon_) / event.q)
    return event.q * gaussian_delta(event.sensitivity / event.sigma, inner)


def _symmetric_delta(event: events.PoissonGaussianEvent, epsilon_: float) -> float:
    """Return the exact hockey-stick divergence of (1-q) N(0) + q N(u) from (1-q) N(0) + q N(-u).

    u is half the sensitivity over sigma. The likelihood ratio increases in x, so the worst set
    is x > x*, where w = e^(u x*) solves c w^2 - (1-q)(e^eps - 1) w - e^eps c = 0 with
    c = q e^(-u^2/2). The pair is the one that `dp_accounting` uses under REPLACE_ONE;
    docs/agents/adaprivate.md proves it worst for records on a common line.
    """
    q = event.q
    u = 0.5 * event.sensitivity / event.sigma
    if q == 1.0:
        return gaussian_delta(2.0 * u, epsilon_)
    # logarithms, because e^eps overflows for epsilon above 709
    log_c = log(q) - 0.5 * u * u
    log_b = -math.inf
    if epsilon_ > 0:
        log_b = log1p(-q) + epsilon_ + log(-expm1(-epsilon_))
    root = 0.5 * _log_sum(log(4.0) + epsilon_ + 2.0 * log_c, 2.0 * log_b)
    x = (_log_sum(root, log_b) - log(2.0) - log_c) / u
    above = (1 - q) * exp(log_normal_cdf(-x)) + q * exp(log_normal_cdf(u - x))
    below = (1 - q) * exp(epsilon_ + log_normal_cdf(-x)) + q * exp(
        epsilon_ + log_normal_cdf(-u - x)
    )
    # the margin bounds rounding errors
    return max(0.0, above - below) + 1e-13 * above


def _log_sum(x: float, y: float) -> float:
    """Return log(e^x + e^y)."""
    return x if y == -math.inf else max(x, y) + log1p(exp(-abs(x - y)))


@functools.lru_cache(maxsize=256)
def _pld(events: tuple[events.Event, ...]) -> Any:
    """Return the pessimistic privacy loss distribution of the composition of `events`."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    # pessimistic: losses are rounded up to the grid, so the bound holds
    total = pld.identity(value_discretization_interval=PLD_INTERVAL)
    for event in events:
        total = total.compose(_event_pld(event))
    return total


def _event_pld(event: events.Event) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    interval: dict[str, Any] = {"value_discretization_interval": PLD_INTERVAL}
    if isinstance(event, events.GaussianEvent):  # the count is inside mu
        return pld.from_gaussian_mechanism(1.0 / event.gaussian_mu, **interval)
    if isinstance(event, events.LaplaceEvent):
        one = pld.from_laplace_mechanism(event.scale, sensitivity=event.sensitivity, **interval)
    elif isinstance(event, events.RandomizedResponseEvent):
        uniform = event.categories / (exp(event.epsilon) + event.categories - 1)
        one = pld.from_randomized_response(uniform, event.categories, **interval)
    elif isinstance(event, (events.PureEvent, events.ApproxEvent)):
        losses = (event.epsilon, getattr(event, "delta", 0.0))
        one = pld.from_privacy_parameters(common.DifferentialPrivacyParameters(*losses), **interval)
    else:
        assert isinstance(event, events.PoissonGaussianEvent)
        # the pair of a zero-out event has a direction that may change between releases; the
        # symmetric pair with records of norm `sensitivity` covers both directions
        radius = event.sensitivity if event.pair == "zero-out" else event.sensitivity / 2
        one = pld.from_gaussian_mechanism(
            event.sigma,
            sensitivity=radius,
            sampling_prob=event.q,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
            **interval,
        )
    return one.self_compose(event.count)
