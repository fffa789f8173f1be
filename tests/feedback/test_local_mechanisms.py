"""Local mechanisms: exact epsilon, noise distributions, unbiased estimates."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpb_gym import kernels
from dpb_gym.errors import ParameterError
from dpb_gym.feedback import (
    CapStatistics,
    GaussianContexts,
    GaussianResponse,
    GaussianStatistics,
    LaplaceResponse,
    RandomizedResponse,
)
from dpb_gym.feedback.context_mechanisms import statistics_sensitivity
from dpb_gym.privacy import Budget, Composition, Guarantee, RandomizedResponseEvent

EPSILONS = st.floats(1e-3, 20.0)
CATEGORIES = st.integers(2, 12)


def grid(n):
    """Return midpoints of n cells of [0, 1), on which probabilities are exact."""
    return (np.arange(n) + 0.5) / n


# ------------------------------------------------------------- randomized response


@given(EPSILONS, CATEGORIES)
def test_epsilon_of_randomized_response_is_exact(epsilon, k):
    table = RandomizedResponse(epsilon, k).transition()
    assert np.allclose(table.sum(axis=1), 1.0)
    ratios = [
        math.log(table[x, y] / table[other, y])
        for x, other, y in itertools.product(range(k), repeat=3)
    ]
    assert max(ratios) == pytest.approx(epsilon, rel=1e-9)


@given(st.sampled_from([0.1, 0.5, 1.0, 2.0]), st.integers(2, 5))
@settings(max_examples=20, deadline=None)
def test_messages_follow_the_transition_matrix(epsilon, k):
    """Enumerate the random numbers of a message and compare frequencies with the matrix."""
    mechanism = RandomizedResponse(epsilon, k)
    n = 400
    numbers = np.array(list(itertools.product(grid(n), grid(k - 1))))
    for truth in range(k):
        sent = mechanism.privatise(np.full(len(numbers), truth), numbers)
        share = np.bincount(sent, minlength=k) / len(numbers)
        assert np.abs(share - mechanism.transition()[truth]).max() <= 1.0 / n


@given(EPSILONS, CATEGORIES)
@settings(max_examples=30, deadline=None)
def test_the_event_is_dp_accountings(epsilon, k):
    """Against dp-accounting's own privacy loss distribution, message after message: its
    `count` argument ignores repetitions of randomized response, so they are composed."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    mechanism = RandomizedResponse(epsilon, k)
    uniform = k / (math.exp(epsilon) + k - 1)
    one = pld.from_randomized_response(uniform, k)
    assert one.get_epsilon_for_delta(0.0) == pytest.approx(epsilon, abs=2e-4)
    assert mechanism.guarantee.epsilon(0.0) == pytest.approx(epsilon, rel=1e-12)
    three = one.compose(one).compose(one)
    curve = Composition.of(mechanism.event, mechanism.event, mechanism.event)
    claimed = Guarantee("local", "reward", curve=curve)
    assert claimed.epsilon(0.0) == pytest.approx(3 * epsilon, rel=1e-12)
    assert claimed.epsilon(1e-3) == pytest.approx(three.get_epsilon_for_delta(1e-3), abs=1e-3)


def test_dp_accounting_ignores_count_for_randomized_response():
    """Ten messages through dp-accounting's `count` cost 0.4 where ten messages cost 3.3."""
    from dp_accounting import NeighboringRelation, RandomizedResponseDpEvent
    from dp_accounting.pld import PLDAccountant

    event = RandomizedResponseEvent(0.5, 2, count=10)
    ours = Guarantee("local", "reward", curve=Composition.of(event)).epsilon(1e-5)
    uniform = 2 / (math.exp(0.5) + 1)
    relation = NeighboringRelation.REPLACE_ONE
    trapped, looped = PLDAccountant(relation), PLDAccountant(relation)
    trapped.compose(RandomizedResponseDpEvent(uniform, 2), 10)
    for _ in range(10):
        looped.compose(RandomizedResponseDpEvent(uniform, 2))
    assert ours == pytest.approx(looped.get_epsilon(1e-5), abs=1e-3)
    assert trapped.get_epsilon(1e-5) < 0.7 * ours


@given(EPSILONS, CATEGORIES)
def test_one_hot_estimates_are_unbiased(epsilon, k):
    mechanism = RandomizedResponse(epsilon, k)
    mean = mechanism.transition() @ mechanism.estimate(np.arange(k))
    assert np.allclose(mean, np.eye(k), atol=1e-6)


@given(EPSILONS)
def test_binary_estimates_are_unbiased(epsilon):
    mechanism = RandomizedResponse(epsilon)
    assert np.allclose(mechanism.transition() @ mechanism.scalar([0, 1]), [0.0, 1.0], atol=1e-6)
    low, high = mechanism.bounds
    assert low < 0.0 and high > 1.0 and {low, high} == set(mechanism.scalar([0, 1]).tolist())


@pytest.mark.parametrize("bad", [[2], [-1], [0.5], [math.nan], ["a"], [[0]], 0])
def test_answers_outside_the_categories_are_rejected(bad):
    numbers = np.zeros((1, 2))
    with pytest.raises(ParameterError):
        RandomizedResponse(1.0).privatise(bad, numbers)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, "1", None])
def test_bad_parameters_are_rejected(bad):
    with pytest.raises(ParameterError):
        RandomizedResponse(bad)
    with pytest.raises(ParameterError):
        GaussianResponse(bad)
    with pytest.raises(ParameterError):
        LaplaceResponse(bad)
    with pytest.raises(ParameterError):
        GaussianContexts(bad, 1, 2)
    with pytest.raises(ParameterError):
        GaussianStatistics(bad, 2)


def test_numbers_of_a_wrong_shape_are_rejected():
    with pytest.raises(ParameterError, match="numbers"):
        RandomizedResponse(1.0).privatise([0, 1], np.zeros((1, 2)))
    with pytest.raises(ParameterError, match="two categories"):
        RandomizedResponse(1.0, 3).scalar([0])


# ------------------------------------------------------------- additive noise


@given(st.floats(-2.0, 3.0), st.floats(0.05, 5.0))
def test_laplace_noise_is_laplace(value, scale):
    mechanism = LaplaceResponse(scale)
    u = grid(2000)
    sent = mechanism.privatise(np.full(2000, value), u[:, None])
    expected = stats.laplace.ppf(u, loc=min(max(value, 0.0), 1.0), scale=scale)
    assert np.allclose(sent, expected, rtol=1e-9, atol=1e-9 * scale)


def test_laplace_noise_is_finite_at_both_ends():
    ends = np.array([[0.0], [1.0 - 2.0**-53]])
    sent = LaplaceResponse(1.0).privatise([0.5, 0.5], ends)
    assert np.isfinite(sent).all() and sent[0] < -35 and sent[1] > 35


@given(st.floats(-2.0, 3.0), st.floats(-3.0, 3.0), st.floats(0.05, 5.0))
def test_gaussian_noise_is_added_to_the_clipped_answer(value, z, sigma):
    sent = GaussianResponse(sigma).privatise([value], [[z]])
    assert sent[0] == min(max(value, 0.0), 1.0) + sigma * z


@given(st.floats(0.1, 3.0), st.floats(-1.0, 0.0), st.floats(0.5, 4.0))
def test_laplace_epsilon_is_exact(scale, low, width):
    """Compare epsilon with the largest log-density ratio over messages and answers on a grid."""
    mechanism = LaplaceResponse(scale, low, low + width)
    messages = np.linspace(low - 3, low + width + 3, 500)
    densities = [stats.laplace.logpdf(messages, loc=v, scale=scale) for v in (low, low + width)]
    worst = np.abs(densities[0] - densities[1]).max()
    assert worst == pytest.approx(mechanism.guarantee.epsilon(0.0), rel=1e-9)


@pytest.mark.slow
def test_gaussian_guarantee_is_dp_accountings():
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    mechanism = GaussianResponse(1.5, low=-1.0, high=2.0)
    accountant = PLDAccountant()
    accountant.compose(GaussianDpEvent(1.5 / 3.0))
    ours = mechanism.guarantee.epsilon(1e-5)
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "budget",
    [Budget.zcdp(0.3), Budget.zcdp(1e3), Budget.approx(2.0, 1e-5), Budget.approx(1e3, 1e-5)],
)
def test_mechanisms_spend_their_budget(budget):
    made = [
        RandomizedResponse.for_budget(budget, 4),
        GaussianResponse.for_budget(budget, -1.0, 1.0),
        LaplaceResponse.for_budget(budget, 0.0, 2.0),
        GaussianContexts.for_budget(budget, 3, 2),
        GaussianStatistics.for_budget(budget, 3),
        CapStatistics.for_budget(budget, 3),
    ]
    for mechanism in made:
        if budget.kind == "zcdp":
            spent, allowed = mechanism.guarantee.rho, budget.rho
        else:
            spent, allowed = mechanism.guarantee.epsilon(budget.delta), budget.epsilon
        assert allowed * (1 - 1e-5) <= spent <= allowed * (1 + 1e-9), mechanism


def test_infinite_answers_are_rejected():
    for mechanism in (GaussianResponse(1.0), LaplaceResponse(1.0)):
        with pytest.raises(ParameterError, match="finite"):
            mechanism.privatise([math.inf], [[0.5]])
    with pytest.raises(ParameterError, match="increasing"):
        GaussianResponse(1.0, low=1.0, high=1.0)


# ------------------------------------------------------------- contexts and statistics


def test_contexts_are_clipped_and_noised_one_by_one():
    rng = np.random.default_rng(0)
    mechanism = GaussianContexts(0.5, vectors=3, dim=2)
    features = rng.normal(size=(4, 3, 2)).astype(np.float32) * 2
    numbers = rng.normal(size=(4, 6))
    norm = np.linalg.norm(features, axis=2, keepdims=True)
    clipped = features / np.maximum(1.0, norm)
    expected = clipped + 0.5 * numbers.reshape(4, 3, 2)
    sent = mechanism.privatise(features, numbers)
    assert sent.dtype == np.float32 and np.allclose(sent, expected, atol=1e-6)
    assert mechanism.guarantee.rho == pytest.approx(3 * 2.0**2 / (2 * 0.25))
    with pytest.raises(ParameterError, match="shape"):
        mechanism.privatise(features[:, :2], numbers[:, :4])


def stacked(x, r):
    rows, columns = np.triu_indices(len(x))
    weights = np.where(rows == columns, 1.0, math.sqrt(2.0))
    return np.concatenate([np.outer(x, x)[rows, columns] * weights, r * x])


@pytest.mark.parametrize(
    ("low", "high", "squared"),
    [(0.0, 1.0, 4.5), (-0.5, 0.5, 2.53125), (-1.0, 1.0, 4.5), (0, 3, 36)],
)
def test_sensitivity_of_stacked_statistics(low, high, squared):
    assert statistics_sensitivity(low, high) ** 2 == pytest.approx(squared)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.5, 0.5), (-3.0, 0.1), (2.0, 3.0)])
def test_a_record_and_none_are_within_the_stacked_sensitivity(low, high):
    """A round without feedback (rejection replay) is the record of zeros."""
    for reward in (low, high):
        nothing = stacked(np.zeros(2), reward)
        distance = np.linalg.norm(stacked(np.array([0.6, 0.8]), reward) - nothing)
        assert not nothing.any() and distance <= statistics_sensitivity(low, high)


@pytest.mark.slow
@given(st.floats(-2.0, 1.0), st.floats(0.1, 3.0), st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_no_pair_exceeds_the_stacked_sensitivity(low, width, seed):
    """Random search plus hill climbing over pairs of records in the ball."""
    rng = np.random.default_rng(seed)
    high = low + width
    bound = statistics_sensitivity(low, high)

    def distance(p):
        (x, r), (y, s) = p
        return np.linalg.norm(stacked(x, r) - stacked(y, s))

    def record(x, r):
        return x / max(1.0, np.linalg.norm(x)), min(max(r, low), high)

    pairs = []
    for _ in range(4):
        best = [record(rng.normal(size=2) * 2, rng.uniform(low, high)) for _ in range(2)]
        step = 0.5
        for _ in range(250):
            moved = [
                record(x + step * rng.normal(size=2), r + step * rng.normal()) for x, r in best
            ]
            if distance(moved) > distance(best):
                best = moved
            else:
                step = max(0.99 * step, 1e-3)
        pairs.append(best)
    best = max(pairs, key=distance)
    assert distance(best) <= bound * (1 + 1e-9)
    assert distance(best) >= 0.5 * bound  # attained: see below


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.5, 0.5), (-1.0, 2.0)])
def test_the_stacked_sensitivity_is_attained(low, high):
    bound = statistics_sensitivity(low, high)
    angles = np.linspace(0.0, np.pi, 2001)
    pairs = [(r, s) for r in (low, high) for s in (low, high)]
    e1 = np.array([1.0, 0.0])
    distances = [
        np.linalg.norm(stacked(e1, r) - stacked(np.array([np.cos(a), np.sin(a)]), s))
        for a in angles
        for r, s in pairs
    ]
    assert max(distances) == pytest.approx(bound, rel=1e-6)


def test_statistics_have_goe_noise_and_are_unbiased():
    rng = np.random.default_rng(1)
    mechanism = GaussianStatistics(0.7, dim=3)
    x, r = np.array([0.6, 0.0, 0.8]), 0.5
    n = 40_000
    numbers = rng.standard_normal((n, mechanism.width))
    gram, response = mechanism.privatise(np.tile(x, (n, 1)), np.full(n, r), numbers)
    assert (gram == gram.transpose(0, 2, 1)).all()
    assert np.abs(gram.mean(axis=0) - np.outer(x, x)).max() < 0.02
    assert np.abs(response.mean(axis=0) - r * x).max() < 0.02
    std = gram.std(axis=0)
    assert np.allclose(np.diag(std), 0.7, rtol=0.03)
    assert np.allclose(std[np.triu_indices(3, 1)], 0.7 / math.sqrt(2), rtol=0.03)
    assert np.allclose(response.std(axis=0), 0.7, rtol=0.03)


def test_cap_statistics_are_unbiased_with_the_stated_noise():
    rng = np.random.default_rng(1)
    mechanism = CapStatistics(1.0, 3, -0.5, 0.5)
    x, r, n = np.array([0.6, 0.0, 0.8]), 0.5, 40_000
    numbers = rng.standard_normal((n, mechanism.width))
    gram, response = mechanism.privatise(np.tile(x, (n, 1)), np.full(n, r), numbers)
    noise = mechanism.sigma / math.sqrt(n)
    assert np.abs(gram.mean(axis=0) - np.outer(x, x)).max() < 5 * noise
    assert np.abs(response.mean(axis=0) - r * x).max() < 5 * noise
    assert gram[:, 1, 1].std() == pytest.approx(mechanism.sigma, rel=0.03)
    assert gram[:, 0, 1].std() == pytest.approx(mechanism.sigma / math.sqrt(2), rel=0.03)
    budget = Budget.approx(1.0, 1e-5)
    gaussian = GaussianStatistics.for_budget(budget, 3, -0.5, 0.5)
    cap = CapStatistics.for_budget(budget, 3, -0.5, 0.5)
    assert (cap.sigma / gaussian.sigma) ** 2 == pytest.approx(0.22, abs=0.01)


def test_no_record_is_longer_than_the_sphere_of_its_message():
    """A longer one would be sent as another direction than its own, and biased."""
    rng = np.random.default_rng(3)
    mechanism, rows = CapStatistics(1.0, 3, -2.0, 0.5), []
    mechanism._message = type(
        "Seen", (), {"from_normals": lambda self, r, n: rows.append(r) or n}
    )()
    x = rng.standard_normal((2000, 3)) * 5
    mechanism.rows(x, rng.uniform(-9, 9, 2000), np.zeros((2000, mechanism.width - 1)))
    lengths = np.linalg.norm(rows[0], axis=1)
    assert 0.99 * math.sqrt(5.0) < lengths.max() <= math.sqrt(5.0) * (1 + 1e-12)


def test_sums_of_rows_are_sums_of_messages():
    rng = np.random.default_rng(2)
    mechanism = GaussianStatistics(0.7, dim=3)
    x, r = rng.standard_normal((4, 3)), rng.random(4)
    numbers = rng.standard_normal((4, mechanism.width))
    rows = mechanism.rows(x, r, numbers)
    gram, response = np.empty((4, 3, 3)), np.empty((4, 3))
    kernels.regression_records.unfold(rows + rows, gram, response)
    messages = mechanism.privatise(x, r, numbers)
    assert np.array_equal(gram, 2 * messages[0]) and np.array_equal(response, 2 * messages[1])


def test_statistics_clip_long_features():
    mechanism = GaussianStatistics(1.0, dim=2)
    zeros = np.zeros((1, mechanism.width))
    gram, response = mechanism.privatise([[3.0, 4.0]], [7.0], zeros)
    assert np.allclose(gram[0], np.outer([0.6, 0.8], [0.6, 0.8]))
    assert np.allclose(response[0], [0.6, 0.8])
