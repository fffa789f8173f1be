"""Conversions: published figures, closed forms, an independent accountant."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy import (
    ApproxEvent,
    Budget,
    Composition,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
    SelectionEvent,
    ZCDPEvent,
    accounting,
    calibrate_scale,
    equivalent_rho,
    gaussian_sigma,
    textbook_epsilon,
    textbook_rho,
)

DELTA = 1e-5
of = Composition.of


def sigma_of(rho: float) -> float:
    return (2 * rho) ** -0.5


def test_conversions_of_rho_0207() -> None:
    assert textbook_epsilon(0.0207, DELTA) == pytest.approx(0.9970, abs=1e-4)
    assert accounting.epsilon(of(ZCDPEvent(0.0207)), DELTA) == pytest.approx(0.8093, abs=5e-5)
    gaussian = of(GaussianEvent(sigma_of(0.0207)))
    assert accounting.epsilon(gaussian, DELTA) == pytest.approx(0.7393, abs=5e-5)


def test_inverse_conversions_at_epsilon_one() -> None:
    budget = Budget.approx(1.0, DELTA)
    assert textbook_rho(1.0, DELTA) == pytest.approx(0.02082, abs=5e-6)
    assert equivalent_rho(budget, gaussian=False) == pytest.approx(0.03056, abs=5e-6)
    assert equivalent_rho(budget) == pytest.approx(0.03593, abs=5e-6)


@pytest.mark.parametrize(
    ("epsilon", "loose", "exact"),
    [(0.5, 9.70, 7.03), (1.0, 4.90, 3.73), (2.0, 2.50, 1.99), (5.0, 1.055, 0.892)],
)
def test_one_shot_gaussian_scales(epsilon: float, loose: float, exact: float) -> None:
    """Erratum R1: the paper's sigma against the exact one."""
    assert sigma_of(textbook_rho(epsilon, DELTA)) == pytest.approx(loose, rel=2e-3)
    sigma = gaussian_sigma(equivalent_rho(Budget.approx(epsilon, DELTA)), 1.0)
    assert sigma == pytest.approx(exact, rel=2e-3)


def test_default_orders_would_be_loose() -> None:
    from dp_accounting.rdp import RdpAccountant, compute_epsilon

    rho = 1e-6
    orders = RdpAccountant()._orders
    coarse, _ = compute_epsilon(orders, [rho * a for a in orders], DELTA)
    assert accounting.epsilon(of(ZCDPEvent(rho)), DELTA) < 0.8 * coarse


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1e-12, 50.0),
    st.floats(1e-3, 3.0),
    st.floats(1e-300, 0.9),
    st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_renyi_conversion_has_the_bits_of_dp_accounting(
    scale: float, power: float, delta: float, mask: list[bool]
) -> None:
    from dp_accounting.rdp import compute_epsilon

    kept = np.resize([*mask, True], len(accounting.ORDERS))
    divergence = scale * accounting.ORDERS**power
    expected, _ = compute_epsilon(
        accounting.ORDERS[kept].tolist(), divergence[kept].tolist(), delta
    )
    assert accounting.renyi_to_epsilon(np.where(kept, divergence, np.inf), delta) == expected
    assert accounting.renyi_to_epsilon(np.full(len(kept), 1e-20), 1e-9) == 0.0
    unstable = np.where(accounting.ORDERS > 1.01, np.inf, 1.0)
    assert accounting.renyi_to_epsilon(unstable, 0.5) == math.inf


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 20), st.floats(1e-12, 0.3))
def test_gaussian_epsilon_inverts_delta(mu: float, delta: float) -> None:
    epsilon = accounting.gaussian_epsilon(mu, delta)
    assert accounting.gaussian_delta(mu, epsilon) <= delta
    if epsilon > 1e-6:
        assert accounting.gaussian_delta(mu, epsilon * (1 - 1e-9) - 1e-12) >= delta * (1 - 1e-6)


@pytest.mark.parametrize("mu", [0.05, 0.4, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0])
def test_gaussian_delta_is_the_hockey_stick_divergence(mu: float, epsilon: float) -> None:
    def gap(x: float) -> float:
        return max(0.0, stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x))

    crossing = epsilon / mu + mu / 2
    value, _ = integrate.quad(gap, crossing, max(crossing, mu) + 12, epsabs=1e-14, epsrel=1e-10)
    assert accounting.gaussian_delta(mu, epsilon) == pytest.approx(value, rel=1e-7, abs=1e-14)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.3, 20), st.floats(0.1, 3), st.integers(1, 50)),
        min_size=1,
        max_size=5,
    ),
    st.floats(1e-9, 1e-2),
)
def test_gaussian_compositions_add_in_mu_squared(
    parts: list[tuple[float, float, int]], delta: float
) -> None:
    events = [GaussianEvent(*part) for part in parts]
    mu = math.sqrt(sum(c * (s / sigma) ** 2 for sigma, s, c in parts))
    expected = accounting.gaussian_epsilon(mu, delta)
    assert accounting.epsilon(of(*events), delta) == pytest.approx(expected, rel=1e-9)
    as_zcdp = of(ZCDPEvent(mu**2 / 2))
    assert expected <= accounting.epsilon(as_zcdp, delta) * (1 + 1e-9)


@pytest.mark.slow
def test_gaussian_agrees_with_both_peer_accountants_under_replace_one() -> None:
    """Units: RDP takes sigma over the distance, PLD sigma over the norm bound."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    sigma, norm_bound = 3.0, 0.7
    ours = accounting.epsilon(of(GaussianEvent(sigma, 2 * norm_bound)), DELTA)
    relation = NeighboringRelation.REPLACE_ONE
    pld = PLDAccountant(relation).compose(GaussianDpEvent(sigma / norm_bound))
    assert pld.get_epsilon(DELTA) == pytest.approx(ours, rel=1e-3)
    rdp = RdpAccountant(accounting.ORDERS, relation)
    rdp.compose(GaussianDpEvent(sigma / (2 * norm_bound)))
    rho = (2 * norm_bound) ** 2 / (2 * sigma**2)
    assert rdp.get_epsilon(DELTA) == pytest.approx(
        accounting.epsilon(of(ZCDPEvent(rho)), DELTA), rel=1e-6
    )
    wrong = PLDAccountant(relation).compose(GaussianDpEvent(sigma / (2 * norm_bound)))
    assert wrong.get_epsilon(DELTA) > 1.9 * ours


@given(st.floats(0.01, 20.0), st.integers(2, 9), st.floats(1e-12, 0.5))
def test_one_response_is_accounted_exactly(epsilon_: float, categories: int, delta_: float) -> None:
    """The hockey-stick divergence of two rows of the mechanism's matrix is delta at epsilon."""
    other = 1.0 / (math.exp(epsilon_) + categories - 1.0)
    rows = np.full((2, categories), other)
    rows[0, 0] = rows[1, 1] = other * math.exp(epsilon_)
    event = RandomizedResponseEvent(epsilon_, categories)
    epsilon = accounting.epsilon(of(event), delta_)
    spent = np.maximum(rows[0] - math.exp(epsilon) * rows[1], 0.0).sum()
    assert spent <= delta_ + 1e-12
    assert epsilon == 0.0 or spent == pytest.approx(delta_, rel=1e-6, abs=1e-12)


def test_counts_of_randomized_response_compose() -> None:
    """`PLDAccountant` ignores the count of randomized response; ours does not."""
    from dp_accounting import NeighboringRelation, RandomizedResponseDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    uniform, k = 0.9, 4
    epsilon = math.log((uniform / k + 1 - uniform) / (uniform / k))
    peer = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    peer.compose(SelfComposedDpEvent(RandomizedResponseDpEvent(uniform, k), 10))
    assert peer.get_epsilon(DELTA) == pytest.approx(0.368, abs=5e-4)
    ours = accounting.epsilon(of(RandomizedResponseEvent(epsilon, k, count=10)), DELTA)
    assert ours == pytest.approx(3.279, abs=5e-4)
    one_by_one = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    for _ in range(10):
        one_by_one.compose(RandomizedResponseDpEvent(uniform, k))
    assert ours == pytest.approx(one_by_one.get_epsilon(DELTA), rel=1e-3)


def test_binary_randomized_response_composes_exactly() -> None:
    epsilon = 0.37
    ours = accounting.epsilon(of(RandomizedResponseEvent(epsilon, 2, count=10)), DELTA)
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    kept = stats.binom.pmf(np.arange(11), 10, p)
    lost = stats.binom.pmf(np.arange(11), 10, 1 - p)
    exact_delta = np.maximum(kept - math.exp(ours) * lost, 0).sum()
    assert exact_delta <= DELTA * (1 + 1e-6)
    assert np.maximum(kept - math.exp(ours - 0.01) * lost, 0).sum() > DELTA


@pytest.mark.parametrize("categories", [2, 3, 11])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_randomized_response_renyi_by_enumeration(categories: int, epsilon: float) -> None:
    total = math.exp(epsilon) + categories - 1
    p = np.full(categories, 1 / total)
    q = p.copy()
    p[0] = q[1] = math.exp(epsilon) / total
    orders = np.array([1.01, 1.5, 2.0, 7.3, 64.0])
    exact = [math.log(np.sum(p**a * q ** (1 - a))) / (a - 1) for a in orders]
    event = RandomizedResponseEvent(epsilon, categories)
    assert event.rdp(orders) == pytest.approx(exact, rel=1e-9)
    assert event.pure == pytest.approx(math.log((p / q).max()))
    assert (event.rdp(orders) <= event.zcdp * orders).all()


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_laplace_renyi_by_quadrature(scale: float) -> None:
    orders = np.array([1.1, 2.0, 5.0])
    for order, value in zip(orders, LaplaceEvent(scale).rdp(orders)):

        def integrand(x: float, a: float = order) -> float:
            return math.exp(
                a * stats.laplace.logpdf(x, 0, scale) + (1 - a) * stats.laplace.logpdf(x, 1, scale)
            )

        pieces = [(-60 * scale, 0), (0, 1), (1, 1 + 60 * scale)]
        total = sum(integrate.quad(integrand, *piece, limit=400)[0] for piece in pieces)
        assert value == pytest.approx(math.log(total) / (order - 1), rel=1e-6)


def equation_3_6(q: float, sigma: float, order: int) -> float:
    terms = [math.comb(order, j) * (2 * q * q) ** (j / 2) / sigma**j for j in range(2, order + 1)]
    return math.log1p(sum(terms)) / (order - 1)


@pytest.mark.slow
@pytest.mark.parametrize(("q", "sigma"), [(0.3, 0.343), (0.5, 0.572), (0.1, 2.0), (0.9, 1.0)])
def test_zero_out_poisson_gaussian_is_exact(q: float, sigma: float) -> None:
    """The closed form against quadrature of the mixture and against the peer's PLD."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    epsilon = accounting.epsilon(of(PoissonGaussianEvent(q, sigma)), DELTA)

    def gap(x: float) -> float:
        mixture = (1 - q) * stats.norm.pdf(x, 0, sigma) + q * stats.norm.pdf(x, 1, sigma)
        return max(0.0, mixture - math.exp(epsilon) * stats.norm.pdf(x, 0, sigma))

    value, _ = integrate.quad(gap, 0, 1 + 12 * sigma, points=[1.0], limit=500, epsabs=1e-13)
    assert value == pytest.approx(DELTA, rel=1e-5)
    peer = pld.from_gaussian_mechanism(sigma, sampling_prob=q)
    assert peer.get_epsilon_for_delta(DELTA) == pytest.approx(epsilon, rel=1e-3)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.05, 1.0),
    st.floats(0.3, 4.0),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.floats(0.0, 3.0),
)
def test_rewards_one_and_zero_are_the_worst_pair(
    q: float, sigma: float, reward: float, other: float, epsilon: float
) -> None:
    x = np.linspace(-10 * sigma, 1 + 10 * sigma, 20_001)

    def mixture(r: float) -> np.ndarray:
        return (1 - q) * stats.norm.pdf(x, 0, sigma) + q * stats.norm.pdf(x, r, sigma)

    gap = np.maximum(mixture(reward) - math.exp(epsilon) * mixture(other), 0)
    delta = np.trapezoid(gap, x)
    allowed = accounting.delta(of(PoissonGaussianEvent(q, sigma)), epsilon)
    assert delta <= allowed * (1 + 1e-5) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["zero-out", "symmetric"])
@given(st.floats(0.05, 1.0), st.floats(0.3, 4.0), st.floats(1e-9, 1e-3))
def test_delta_of_one_sampled_release_inverts_epsilon(
    pair: str, q: float, sigma: float, delta: float
) -> None:
    release = of(PoissonGaussianEvent(q, sigma, 1.0, pair=pair))
    epsilon = accounting.epsilon(release, delta)
    if epsilon > 1e-6:
        assert accounting.delta(release, epsilon) == pytest.approx(delta, rel=1e-6)
    # at 0 it is the total variation of the mixtures
    apart = 2 * stats.norm.cdf(0.5 / sigma) - 1
    assert accounting.delta(release, 0.0) == pytest.approx(q * apart, rel=1e-9)


def test_symmetric_poisson_gaussian_matches_replace_one_pld() -> None:
    """Without sampling (q = 1) the event is a plain Gaussian of the same distance."""
    plain = accounting.epsilon(of(GaussianEvent(2.0, 1.5)), DELTA)
    sampled = of(PoissonGaussianEvent(1.0, 2.0, 1.5, pair="symmetric"))
    assert accounting.epsilon(sampled, DELTA) == pytest.approx(plain, rel=1e-3)
    less = of(PoissonGaussianEvent(0.2, 2.0, 1.5, pair="symmetric"))
    assert accounting.epsilon(less, DELTA) < 0.6 * plain


def test_mixtures_split_delta_soundly() -> None:
    parts = [ZCDPEvent(0.01), ApproxEvent(0.3, 1e-7, count=2)]
    together = accounting.epsilon(of(*parts), DELTA)
    assert together > accounting.epsilon(of(parts[0]), DELTA)
    assert together > accounting.epsilon(of(parts[1]), DELTA)
    halves = sum(accounting.epsilon(of(part), DELTA / 2) for part in parts)
    assert together <= halves * (1 + 1e-9)


def test_composition_stops_early_without_a_dominating_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Composing the other events first would take unbounded memory for nothing."""
    monkeypatch.setattr(accounting, "_event_pld", lambda event: pytest.fail("composed"))
    both = of(GaussianEvent(sigma_of(0.3), count=100_000), ZCDPEvent(0.2))
    assert accounting.epsilon(both, DELTA) > accounting.epsilon(of(ZCDPEvent(0.2)), DELTA)


def test_approx_events_compose_better_than_basic_and_not_below_one() -> None:
    one = accounting.epsilon(of(ApproxEvent(0.1, 1e-8)), DELTA)
    many = accounting.epsilon(of(ApproxEvent(0.1, 1e-8, count=40)), DELTA)
    assert one < many < 40 * 0.1
    assert accounting.epsilon(of(ApproxEvent(0.1, 1e-3)), 1e-4) == math.inf


def test_pure_events() -> None:
    composed = of(PureEvent(0.5), PureEvent(0.5), RandomizedResponseEvent(1.0, 4))
    assert accounting.epsilon(composed, 0) == pytest.approx(2.0)
    assert accounting.epsilon(composed, DELTA) <= 2.0
    assert accounting.delta(composed, 2.0) == 0.0
    assert accounting.delta(composed, 1.0) > 0


@pytest.mark.parametrize("bad", [-1.0, 1.0, 2.0, math.nan, math.inf])
def test_bad_delta(bad: float) -> None:
    with pytest.raises(BudgetError, match="delta"):
        accounting.epsilon(of(GaussianEvent(1.0)), bad)


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.05, 10), st.floats(1e-10, 1e-3), st.lists(st.floats(0.1, 5), min_size=1, max_size=4)
)
def test_calibrated_gaussians_spend_the_budget(
    epsilon: float, delta: float, weights: list[float]
) -> None:
    budget = Budget.approx(epsilon, delta)
    rho = equivalent_rho(budget)
    events = [
        GaussianEvent(gaussian_sigma(rho * w / sum(weights), 1.0 + i, i + 1), 1.0 + i, i + 1)
        for i, w in enumerate(weights)
    ]
    spent = accounting.epsilon(of(*events), delta)
    assert epsilon * (1 - 1e-6) <= spent <= epsilon


@pytest.mark.parametrize("q", [0.1, 0.3, 0.7])
def test_calibrate_scale_spends_the_budget(q: float) -> None:
    budget = Budget.approx(1.0, DELTA)
    sigma = calibrate_scale(budget, lambda s: [PoissonGaussianEvent(q, s)])
    spent = accounting.epsilon(of(PoissonGaussianEvent(q, sigma)), DELTA)
    assert 1 - 1e-6 <= spent <= 1.0


def test_calibrate_scale_rejects_impossible_budgets() -> None:
    with pytest.raises(ParameterError, match="no noise scale"):
        calibrate_scale(Budget.zcdp(0.1), lambda s: [ZCDPEvent(1.0)])
    with pytest.raises(BudgetError, match="zCDP"):
        calibrate_scale(Budget.zcdp(0.1), lambda s: [ApproxEvent(0.1 / s, 1e-6)])


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys; from dpb_gym.privacy import Budget, Guarantee, Ledger;"
        "l = Ledger(Budget.zcdp(1.0)); l.guarantee;"
        "bad = [m for m in ('scipy', 'numba', 'dp_accounting', 'pandas') if m in sys.modules];"
        "print(','.join(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.08, 0.7, 20.0])
@pytest.mark.parametrize("runs", [1.5, 8.0, 100.0])
def test_selection_against_dp_accounting(rho: float, runs: float) -> None:
    """The best of a geometric number of runs; the peer searches its orders for lambda-hat."""
    from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    orders = (1.0 + np.geomspace(1e-3, 1e4, 800)).tolist()
    one = GaussianDpEvent(sigma_of(rho))
    peer = RdpAccountant(orders).compose(RepeatAndSelectDpEvent(one, runs, 1.0))
    event = SelectionEvent(rho, runs)
    rdp = event.rdp(np.array(orders))
    assert rdp == pytest.approx(np.array(peer._rdp), rel=2e-3, abs=1e-3)
    assert (rdp <= event.zcdp * np.array(orders) * (1 + 1e-12)).all()
    assert accounting.epsilon(of(event), DELTA) == pytest.approx(
        peer.get_epsilon(DELTA), rel=5e-3, abs=1e-3
    )
    assert accounting.epsilon(of(event), DELTA) >= accounting.epsilon(of(ZCDPEvent(rho)), DELTA)


@pytest.mark.parametrize(
    "event",
    [
        PoissonGaussianEvent(0.5, 1.0, count=10**6, pair="symmetric"),
        PoissonGaussianEvent(0.5, 1e-5, count=1000, pair="symmetric"),
        PoissonGaussianEvent(0.5, 1.0, count=2**53),
        ApproxEvent(50.0, 1e-9, count=10**6),
    ],
)
def test_an_event_of_a_file_cannot_exhaust_the_memory(event, monkeypatch):
    """Each of these would need a grid of 10^9 to 10^17 cells."""
    monkeypatch.setattr(accounting, "_pld", lambda events: pytest.fail("the grid is built"))
    epsilon = accounting.epsilon(Composition.of(event), 1e-6)
    if event.zcdp is None:
        assert epsilon == math.inf
    else:
        assert epsilon == pytest.approx(
            accounting.epsilon(Composition.of(ZCDPEvent(event.zcdp)), 1e-6)
        )


@pytest.mark.parametrize(
    "events",
    [
        [LaplaceEvent(1e10, count=2**53)],
        [RandomizedResponseEvent(1e-12, count=2**53)],
        [PureEvent(1e-12, count=2**53)],
        [ApproxEvent(1e-14, 1e-30, count=2**53)],
        [PoissonGaussianEvent(1e-12, 1.0, count=2**53)],
        [LaplaceEvent(1e8 + n, count=10**5) for n in range(101)],
    ],
)
def test_an_event_of_a_file_cannot_take_forever(events, monkeypatch):
    """A distribution of one cell is composed with itself by a loop over the count."""
    monkeypatch.setattr(accounting, "_pld", lambda events: pytest.fail("the grid is built"))
    epsilon = accounting.epsilon(Composition.of(*events), 1e-6)
    rho = Composition.of(*events).zcdp
    if rho is None:
        assert epsilon == math.inf
    else:
        assert epsilon <= accounting.epsilon(Composition.of(ZCDPEvent(rho)), 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_releases_that_lose_nothing_cost_nothing(delta):
    free = [GaussianEvent(2.0, 0.0), LaplaceEvent(2.0, 0.0), ZCDPEvent(0.0)]
    for event in free[:2]:
        assert accounting.epsilon(of(event), 1e-6) == 0.0
    assert accounting.epsilon(of(*free), 1e-6) == 0.0
    paid = LaplaceEvent(4.0)
    wanted = accounting.epsilon(of(paid), delta)
    assert accounting.epsilon(of(LaplaceEvent(2.0, 0.0), paid), delta) == wanted
    if delta:
        assert accounting.epsilon(of(*free, paid), delta) == wanted
        assert accounting.delta(of(*free, paid), wanted) <= delta * 1.01


@pytest.mark.slow
def test_a_large_but_bounded_composition_uses_its_distribution():
    event = PoissonGaussianEvent(0.1, 1.0, count=1000, pair="symmetric")
    without = accounting.epsilon(Composition.of(ZCDPEvent(event.zcdp)), 1e-6)
    assert accounting.epsilon(Composition.of(event), 1e-6) < 0.2 * without


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("scale", [0.7, 2.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_symmetric_divergence_equals_a_numerical_integral(q, scale, epsilon):
    """Integrate the positive part of the difference of the two mixtures of normal densities."""
    event = PoissonGaussianEvent(q, scale, sensitivity=1.0, pair="symmetric")
    u = 0.5 / scale

    def difference(x):
        rest = (1 - q) * stats.norm.pdf(x)
        return (
            rest
            + q * stats.norm.pdf(x - u)
            - math.exp(epsilon) * (rest + q * stats.norm.pdf(x + u))
        )

    grid = np.linspace(-12.0, 12.0, 400_001)
    expected = integrate.trapezoid(np.maximum(difference(grid), 0.0), grid)
    assert accounting._symmetric_delta(event, epsilon) == pytest.approx(
        expected, rel=1e-6, abs=1e-10
    )
