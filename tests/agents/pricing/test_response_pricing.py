"""Response pricing: sensitivity and noise of a message, the mean record, and what it learns."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import dpb_gym
from dpb_agents.pricing import response_pricing as pricing
from dpb_gym.errors import ParameterError
from dpb_gym.play import Released
from dpb_gym.privacy import Curator, NoiseSource
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.registry import make_agent

NO_NORMALS = np.zeros((0, 0))
THETA = np.array([-0.3, 0.4, 0.8])
DEMANDS = ("logistic", "gaussian")


def begun(budget="rho=2@local", demand="logistic", dim=3, horizon=2000, **params):
    """Return constants, state, releaser and curator of a problem."""
    info = dpb_gym.make_problem("DPB/Pricing-v0", horizon=horizon, dim=dim, demand=demand).info
    algorithm = pricing.ResponsePricing(**params)
    noise = NoiseSource.from_seed(0)
    curator = Curator(
        budget, ("anticipating", "user-round"), noise=noise, replicates=1, horizon=horizon
    )
    sums = algorithm.plan(info, curator).sums
    curator.seal()
    known, state = algorithm.start(info, sums)
    return known, state, sums, curator


def mean_of(known, phi, theta):
    """Return the mean scaled response, in NumPy."""
    m = phi @ theta
    if known.logistic:
        return 1.0 / (1.0 + np.exp(-known.zeta * m))
    return (m - known.low) / (known.high - known.low)


@pytest.mark.parametrize("demand", DEMANDS)
def test_two_records_differ_by_at_most_the_sensitivity(demand):
    """Search over customers, prices, responses and A: no two are farther apart than stated."""
    known, state, sums, curator = begun(demand=demand)
    rng = np.random.default_rng(0)
    farthest = 0.0
    for _ in range(30):
        state.A[:] = rng.normal(size=(3, 3)) * 10.0 ** rng.integers(-3, 4)
        state.theta[:] = rng.normal(size=3)
        customers = [*rng.uniform(-1, 1, (3, 2)), 1e6 * rng.normal(size=2), np.zeros(2)]
        customers += [-x for x in customers]
        rows = [
            pricing.record(known, state, 5, x, price, y, NO_NORMALS)
            for x, price, y in itertools.product(
                customers, (0.0, 0.3, 1.0), (-1e9, 0.0, 0.5, 1.0, 1e9)
            )
        ]
        assert max(np.linalg.norm(row) for row in rows) <= 0.5
        apart = [np.linalg.norm(a - b) for a, b in itertools.combinations(rows, 2)]
        farthest = max(farthest, *apart)
    assert farthest <= sums.sensitivity
    # the bound is attained, so the noise is not larger than needed
    assert farthest == pytest.approx(sums.sensitivity, rel=1e-9)
    assert sums.sensitivity == 1.0 and sums.basis == "computed"
    assert curator.releasers[0].clip.radius == 0.5


def test_a_device_adds_the_stated_noise_and_the_ledger_has_the_guarantee():
    rho = 0.37
    _, _, sums, curator = begun(f"rho={rho}@local")
    assert sums.sigma == pytest.approx(1.0 / math.sqrt(2.0 * rho))
    guarantee = curator.guarantee
    assert guarantee.rho == pytest.approx(rho)
    assert (guarantee.notion, guarantee.unit) == ("local", "user-round")
    assert guarantee.basis == "computed"
    device = behind(sums).device_mechanisms[0]
    source = NoiseSource.from_seed(4)
    # the message of a record of zeros is noise of this size in all coordinates
    drawn = np.array([device.of(np.zeros((1, 3)), source)[0] for _ in range(4000)])
    assert drawn.std(axis=0) == pytest.approx(np.full(3, sums.sigma), rel=0.05)


@pytest.mark.parametrize("demand", DEMANDS)
def test_the_mean_record_is_that_of_customers_of_the_law(demand):
    """Against records of both responses at every point, weighted by their probabilities."""
    known, state, _, _ = begun(demand=demand)
    state.A[:] = np.random.default_rng(1).normal(size=(3, 3))
    state.theta[:] = [0.1, -0.2, 0.6]
    pricing.copy_to(state.theta, state.thetas[0])
    pricing.copy_matrix(state.A, state.shapes[0])
    state.count[0] = 1
    known = known._replace(blind=False)
    features, directions = pricing.designs(known, state)
    g, J = pricing.mean_record(known, THETA, np.zeros((3, 3)), features[0], directions[0])
    records, derivatives = [], []
    for x in known.points:
        price = pricing.act(known, state, 10, x, NO_NORMALS)
        phi = np.append(x, -price) / math.sqrt(3.0)
        f = mean_of(known, phi, THETA)
        low, high = (
            pricing.record(known, state, 10, x, price, y, NO_NORMALS)
            for y in (known.low, known.high)
        )
        records.append((1.0 - f) * low + f * high)
        slope = known.zeta * f * (1.0 - f) if known.logistic else 1.0 / (known.high - known.low)
        derivatives.append(np.outer(high - low, slope * phi))
    np.testing.assert_allclose(g, np.mean(records, axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(J, np.mean(derivatives, axis=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("demand", DEMANDS)
def test_the_hessian_is_that_of_the_loss(demand):
    """Against second differences of the loss of prices for a wrong theta."""
    known, _, _, _ = begun(demand=demand)
    theta = np.array([-0.2, 0.25, 0.9])
    if not known.logistic:
        # prices inside of [0, 1] for every customer
        points = np.abs(known.points) * 0.5 + 0.3
        theta = np.array([0.5, 0.5, 0.9])
        known = known._replace(points=points)
    H = pricing.hessian(known, theta, np.zeros((3, 3)))

    def loss(other):
        total = 0.0
        for x in known.points:
            best, price = (pricing.own_price(known, each, x) for each in (theta, other))
            revenues = []
            for p in (best, price):
                phi = np.append(x, -p) / math.sqrt(3.0)
                mean = mean_of(known, phi, theta)
                if not known.logistic:
                    mean = known.low + mean * (known.high - known.low)
                revenues.append(p * mean)
            total += revenues[0] - revenues[1]
        return total / len(known.points)

    step = 1e-3
    for move in np.random.default_rng(2).normal(size=(3, 3)):
        second = (loss(theta + step * move) + loss(theta - step * move)) / (2.0 * step**2)
        assert move @ H @ move == pytest.approx(second, rel=0.02)


def learnt(known, state, theta, batches=25, size=20_000):
    """Return the state after batches whose sums are the expected ones for theta."""
    seen = 0
    for number in range(batches):
        pricing.copy_to(state.theta, state.thetas[number])
        pricing.copy_matrix(state.A, state.shapes[number])
        state.count[0] = number + 1
        features, directions = pricing.designs(known, state)
        g, _ = pricing.mean_record(
            known, theta, np.zeros((3, 3)), features[number], directions[number]
        )
        state.count[0] = number
        seen += size
        pricing.learn(
            known, state, Released(size * g, 0.0, 0.0, number, float(seen), np.zeros(0)), seen
        )
    return state


@pytest.mark.parametrize("demand", DEMANDS)
def test_theta_is_that_of_expected_sums(demand):
    theta = np.array([-0.3, 0.4, 0.8]) if demand == "logistic" else np.array([0.2, -0.3, 0.5])
    known, state, _, _ = begun("rho=50@local", demand)
    state = learnt(known, state, theta)
    np.testing.assert_allclose(state.theta, theta, atol=0.02)
    # the inverse of the prior precision plus the information of all batches
    features, directions = pricing.designs(known, state)
    precision = np.eye(3) * 3.0
    for e in range(state.count[0]):
        _, J = pricing.mean_record(known, state.theta, state.V, features[e], directions[e])
        n = state.records[e]
        precision += J.T @ J * n / (1.0 / 12.0)
    np.testing.assert_allclose(np.linalg.inv(state.V), precision, rtol=0.05, atol=1.0)


def test_the_chosen_size_has_the_largest_posterior_probability():
    """Of Gaussian demand, where sums are jointly normal with theta; densities by NumPy."""
    known, state, _, _ = begun("rho=50@local", "gaussian")
    known = known._replace(blind=False)
    rng = np.random.default_rng(6)
    chosen = []
    for _ in range(100):
        # from next to no information on, where the determinants of the posteriors differ
        records = np.array([1.0, 3.0]) * 10.0 ** rng.uniform(0.0, 2.5)
        theta = rng.normal(size=3) * 10.0 ** rng.uniform(-1.0, 1.0)
        for e in range(2):
            state.thetas[e] = rng.normal(size=3)
            state.shapes[e] = rng.normal(size=(3, 3))
        state.count[0] = 2
        state.records[:2] = records
        state.variances[:2] = 0.5 * records
        features, directions = pricing.designs(known, state)
        rows = [
            pricing.mean_record(known, np.zeros(3), np.zeros((3, 3)), features[e], directions[e])
            for e in range(2)
        ]
        base = np.concatenate([n * g for n, (g, _) in zip(records, rows)])
        slope = np.concatenate([n * J for n, (_, J) in zip(records, rows)])
        noise = np.repeat(0.5 * records, 3)
        sums = base + slope @ theta + np.sqrt(noise) * rng.normal(size=6)
        state.sums[:2] = sums.reshape(2, 3)
        pricing.fit(known, state)
        scores = []
        for r, size in enumerate(pricing.SIZES):
            covariance = np.diag(noise) + size**2 / 3.0 * slope @ slope.T
            away = sums - base
            score = -0.5 * np.linalg.slogdet(covariance)[1]
            score -= 0.5 * away @ np.linalg.solve(covariance, away)
            scores.append(score - pricing.LESS_LIKELY * (r > 0))
        chosen.append(int(np.argmax(scores)))
        np.testing.assert_array_equal(state.theta, state.means[chosen[-1]])
    assert {0, 2} <= set(chosen)


def test_the_prior_size_is_that_of_theta():
    for size, number in ((0.8, 0), (5.0, 2)):
        known, state, _, _ = begun("rho=50@local", norm=1.0)
        state = learnt(known, state, size * THETA / np.linalg.norm(THETA))
        means = [np.linalg.norm(mean - state.theta) for mean in state.means]
        assert means[number] == 0.0


def test_a_sample_is_the_law():
    rng = np.random.default_rng(3)
    sample = rng.uniform(-0.3, 0.1, (40, 2))
    known, _, _, _ = begun(features=sample.tolist())
    np.testing.assert_array_equal(known.points, sample)
    uniform, _, _, _ = begun()
    assert len(uniform.points) == pricing.POINTS
    # integrates a smooth function over the square with less error than a random sample
    value = np.exp(uniform.points.sum(axis=1)).mean()
    assert value == pytest.approx(math.sinh(1.0) ** 2, rel=0.01)


@pytest.mark.parametrize("features", ["gaussian", [[0.1]], [], [[0.1, float("nan")]]])
def test_a_law_that_is_none_is_refused(features):
    with pytest.raises(ParameterError, match="features"):
        begun(features=features)


def test_it_has_less_regret_than_one_pass_pricing_with_local_messages():
    """At the law that it assumes; seeds differ from those of the page."""
    agents = {name: (name, "rho=0.1@local") for name in ("response-pricing", "one-pass-pricing")}
    result = dpb_gym.evaluate("DPB/Pricing-v0", agents, 6000, 5, seed=77, progress=False, workers=1)
    ours, other = (result.final_regret(name) for name in agents)
    gap = ours - other
    assert gap.mean() < 0.0
    assert ours.mean() < 0.8 * other.mean()


def test_prices_before_the_first_release_do_not_depend_on_the_customer():
    known, state, _, _ = begun()
    prices = [
        pricing.act(known, state, t, np.random.default_rng(t).normal(size=2), NO_NORMALS)
        for t in range(1, 2001)
    ]
    # exp(-U) has the mean 1 - 1 / e
    assert np.mean(prices) == pytest.approx(1.0 - math.exp(-1.0), abs=1e-3)
    assert make_agent("response-pricing").protects == ("anticipating", "user-round")
