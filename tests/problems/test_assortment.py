"""Assortment: best sets by brute force, choice probabilities, losses."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy_kernels
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym import kernels
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.problems.assortment import DESIGNS, AssortmentProblem
from dpb_gym.problems.base import Context
from dpb_gym.problems.kinds import kind_of


def brute_force(utility, revenues, capacity, exactly=False):
    offered = np.flatnonzero(np.isfinite(revenues))
    return max(
        numpy_kernels.mnl_revenue(utility, revenues, np.array(items, int))
        for size in range(capacity if exactly else 0, capacity + 1)
        for items in combinations(offered, size)
    )


def best(utility, revenues, capacity, exactly=False):
    slates, values = np.empty((1, capacity), np.int64), np.empty(1)
    kernels.mnl.best_slates(
        utility[None], np.asarray(revenues, np.float32)[None], capacity, exactly, slates, values
    )
    return slates[0], values[0]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_best_assortment_equals_brute_force(data):
    n = data.draw(st.integers(1, 8))
    capacity = data.draw(st.integers(1, n))
    # Coarse grids make ties between items, revenues and assortments common.
    utility = np.array(data.draw(st.lists(st.integers(-6, 6), min_size=n, max_size=n))) / 2.0
    revenues = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), min_size=n, max_size=n)),
        np.float32,
    )
    slate, value = best(utility, revenues, capacity)
    assert value == pytest.approx(brute_force(utility, revenues, capacity), rel=1e-12, abs=1e-300)
    assert value == pytest.approx(numpy_kernels.mnl_revenue(utility, revenues, slate), rel=1e-12)
    offered = slate[slate >= 0]
    assert len(set(offered)) == len(offered) and (np.diff(offered) > 0).all()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_best_assortment_exactly_k_signed_and_masked_equals_brute_force(data):
    n = data.draw(st.integers(1, 8))
    capacity = data.draw(st.integers(1, n))
    utility = np.array(data.draw(st.lists(st.integers(-6, 6), min_size=n, max_size=n))) / 2.0
    worth = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0])
    revenues = np.array(data.draw(st.lists(worth, min_size=n, max_size=n)), np.float32)
    hidden = data.draw(st.lists(st.integers(0, n - 1), max_size=n - capacity))
    revenues[hidden] = -np.inf
    exactly = data.draw(st.booleans())
    slate, value = best(utility, revenues, capacity, exactly)
    assert value == pytest.approx(brute_force(utility, revenues, capacity, exactly), rel=1e-12)
    offered = slate[slate >= 0]
    assert not set(offered) & set(hidden)
    assert len(offered) == capacity or not exactly
    assert value == pytest.approx(numpy_kernels.mnl_revenue(utility, revenues, offered), rel=1e-12)


def test_short_slates_are_rejected_and_revenues_may_be_negative():
    problem = AssortmentProblem(9, 5, 3, revenues="signed", exactly=True)
    assert problem.info.reward_range == (-1.0, 1.0) and problem.info.exactly
    instance = problem.instance(range(50))
    assert (instance.context().revenues < 0).mean() == pytest.approx(0.5, abs=0.1)
    slates, values = instance.oracle()
    assert (values < 0).any()  # every set of three loses
    assert (instance.respond(slates).regret == 0).all()
    for slate in ([0, 1, -1], [0, 1, 1]):
        action = np.array([[0, 1, 2]] * 49 + [slate])
        with pytest.raises(ActionError, match="of replicate 49 must hold exactly 3 different"):
            instance.respond(action)
    fixed = AssortmentProblem(9, 3, 2, revenues=[-0.5, -0.5, -0.5]).info
    assert fixed.reward_range == (-0.5, 0.0) and fixed.equal_revenues


@pytest.mark.slow
def test_best_assortment_of_twelve_items():
    rng = np.random.default_rng(3)
    for capacity in (1, 4, 12):
        for _ in range(10):
            utility, revenues = rng.normal(-1, 2, 12), rng.random(12).astype(np.float32)
            assert best(utility, revenues, capacity)[1] == pytest.approx(
                brute_force(utility, revenues, capacity), rel=1e-12
            )


@pytest.mark.parametrize("scale", [700.0, -700.0])
@pytest.mark.parametrize("revenues", [np.ones(6), np.linspace(0.1, 1.0, 6)])
def test_extreme_utilities_stay_finite(scale, revenues):
    utility = scale * np.linspace(0.2, 1.0, 6)
    value = best(utility, revenues, 3)[1]
    assert np.isfinite(value) and value >= 0
    expected = brute_force(utility, revenues.astype(np.float32), 3)
    assert value == pytest.approx(expected, rel=1e-10, abs=1e-320)


def test_equal_revenues_offer_the_top_utilities():
    utility = np.random.default_rng(0).normal(size=50)
    slate, _ = best(utility, np.full(50, 0.3), 7)
    assert set(slate) == set(np.argsort(-utility)[:7])


def test_items_without_revenue_are_not_offered():
    slate, value = best(np.array([3.0, 1.0]), np.zeros(2), 2)
    assert (slate == -1).all() and value == 0.0


def test_choice_frequencies_are_the_probabilities():
    problem = AssortmentProblem(n_items=6, capacity=4, dim=3, context_norm="clip")
    rng = np.random.default_rng(1)
    features = rng.normal(size=(1, 6, 3)).astype(np.float32)
    theta = rng.normal(size=(1, 3))
    slate = np.array([[4, 1, 4, 0]])
    grid = 20_001
    uniform = (np.arange(grid) + 0.5) / grid
    choice, reward, expected = np.empty(grid, int), np.empty(grid), np.empty(grid)
    bad = kernels.mnl.outcome(
        np.repeat(features, grid, 0),
        np.repeat(theta, grid, 0),
        np.ones((grid, 6), np.float32),
        np.repeat(slate, grid, 0),
        1,
        1.0,
        uniform,
        choice,
        reward,
        expected,
    )
    assert bad == 0
    utility = features[0].astype(float) @ theta[0]
    p = numpy_kernels.mnl_probabilities(utility[[4, 1, 0]])
    for position, probability in zip((0, 1, 3), p):
        assert (choice == position).mean() == pytest.approx(probability, abs=2 / grid)
    assert not (choice == 2).any(), "a repeated item counts once"
    assert expected[0] == pytest.approx(p.sum(), rel=1e-12)
    assert reward.mean() == pytest.approx(p.sum(), abs=2 / grid)
    for u in (0.0, 0.3, 0.6, 0.99):
        position = numpy_kernels.mnl_choice(utility, slate[0], u)
        assert choice[int(u * grid)] == position
    assert problem.capacity == 4


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(5)), st.floats(0, 1, exclude_max=True))
def test_equal_sets_give_equal_outcomes(order, uniform):
    rng = np.random.default_rng(5)
    problem = AssortmentProblem(n_items=8, capacity=5, dim=2, horizon=5)
    features = rng.normal(size=(1, 8, 2)).astype(np.float32)
    revenues = rng.random((1, 8)).astype(np.float32)
    hidden = {"theta": rng.normal(size=(1, 2))}
    items = np.array([1, 3, 4, 6, 7])
    round_ = _round(Context(1, features, revenues=revenues), uniform)
    base, expected = problem.respond(hidden, round_, items[None])
    moved = items[list(order)]
    other, same = problem.respond(hidden, round_, moved[None])
    assert same[0] == expected[0] and other.reward[0] == base.reward[0]
    if base.choice[0] >= 0:
        assert moved[other.choice[0]] == items[base.choice[0]]


def _round(context, uniform):
    from dpb_gym.problems.base import Round

    return Round(context, np.array([uniform]), {})


@pytest.mark.slow
def test_loss_matches_finite_differences_and_bounds():
    rng = np.random.default_rng(2)
    B, n, d, K = 6, 9, 4, 3
    features = rng.normal(size=(B, n, d)).astype(np.float32)
    kernels.feature_rows.normalise(features.reshape(-1, d), kernels.feature_rows.CLIP)
    slates = np.stack([rng.choice(n, K, replace=False) for _ in range(B)])
    slates[0, 1] = -1
    choice = np.array([0, -1, 2, 1, 0, -1])
    theta = rng.normal(size=(B, d)) * 2
    x, offered = np.zeros((B, 1, K, d), np.float32), np.full((B, 1), K)
    for b, slate in enumerate(slates):
        offered[b] = (slate >= 0).sum()
        x[b, 0, : offered[b, 0]] = features[b, slate[slate >= 0]]
    bought = np.where(slates[:, 1] < 0, choice.clip(max=1), choice).astype(np.int64)[:, None]

    def losses(at):
        loss, gradient, hessian = np.zeros(B), np.zeros((B, d)), np.zeros((B, d, d))
        records = x, offered, bought, np.zeros(B, np.int64), 1, np.ones(B, bool)
        kernels.mnl.add_choices(*records, at, loss, gradient, hessian)
        return loss, gradient, hessian

    loss, gradient, hessian = losses(theta)
    step = 1e-5
    for k in range(d):
        e = np.zeros(d)
        e[k] = step
        above, below = losses(theta + e), losses(theta - e)
        slope, curve = ((up - down) / (2 * step) for up, down in zip(above[:2], below[:2]))
        np.testing.assert_allclose(gradient[:, k], slope, atol=1e-8)
        np.testing.assert_allclose(hessian[:, k, : k + 1], curve[:, : k + 1], atol=1e-8)
    for b in range(B):
        offered = slates[b][slates[b] >= 0]
        p = numpy_kernels.mnl_probabilities(features[b, offered].astype(float) @ theta[b])
        bought = slates[b, choice[b]] if choice[b] >= 0 else None
        like = p[list(offered).index(bought)] if bought is not None else 1 - p.sum()
        assert loss[b] == pytest.approx(-np.log(like), rel=1e-10)
    assert (np.linalg.norm(gradient, axis=1) <= 2 + 1e-6).all()
    assert (np.trace(hessian, axis1=1, axis2=2) <= 1 + 1e-6).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.data())
def test_random_slates_are_distinct_and_uniform_in_range(n, seed, data):
    k = data.draw(st.integers(1, n))
    uniforms = np.random.default_rng(seed).random((20, k))
    slates = kind_of("assortment").random(AssortmentProblem(5, n, k).info, uniforms)
    assert ((slates >= 0) & (slates < n)).all()
    assert (np.diff(slates, axis=1) > 0).all()


def test_random_slates_hit_every_subset_equally():
    uniforms = np.random.default_rng(0).random((60_000, 2))
    slates = kind_of("assortment").random(AssortmentProblem(5, 5, 2).info, uniforms)
    counts = np.unique(slates, axis=0, return_counts=True)[1]
    assert len(counts) == 10
    assert ((counts - 6000.0) ** 2 / 6000.0).sum() < 35  # chi-square, 9 df, p about 6e-5


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("norm", ["raw", "clip", "scale"])
def test_features_respect_design_norm_and_bound(design, norm):
    problem = AssortmentProblem(
        horizon=40, n_items=30, capacity=3, dim=4, design=design, context_norm=norm
    )
    instance = problem.instance([5, 6])
    for _ in range(39):
        features = instance.context().features
        assert features.dtype == np.float32
        assert np.abs(features).max() <= problem.feature_bound
        if norm == "clip":
            assert np.linalg.norm(features.astype(float), axis=2).max() <= 1 + 1e-6
        instance.advance()
    if design == "low-rank":
        assert np.linalg.matrix_rank(features[0].astype(float), tol=1e-4) == 2
    if design == "sphere" and norm == "raw":
        np.testing.assert_allclose(np.linalg.norm(features, axis=2), 1, atol=1e-6)


def test_gaussian_features_have_the_right_moments():
    problem = AssortmentProblem(horizon=200, n_items=100, capacity=1, dim=5)
    instance = problem.instance([0])
    rows = []
    for _ in range(199):
        rows.append(instance.context().features[0].copy())
        instance.advance()
    rows = np.concatenate(rows).astype(float)
    np.testing.assert_allclose(rows.mean(0), 0, atol=0.04)
    np.testing.assert_allclose(np.cov(rows.T), np.eye(5), atol=0.05)


def test_fixed_and_random_revenues():
    fixed = AssortmentProblem(n_items=3, capacity=2, revenues=[0.2, 1.5, 0.0])
    assert fixed.info.reward_range == (0.0, 1.5) and not fixed.info.equal_revenues
    np.testing.assert_allclose(fixed.instance([0]).context().revenues[0], [0.2, 1.5, 0.0])
    drawn = AssortmentProblem(n_items=3, capacity=2, revenues="random", horizon=5).instance([0])
    first = drawn.context().revenues.copy()
    drawn.advance()
    assert (first != drawn.context().revenues).all()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"capacity": 0},
        {"capacity": 101},
        {"n_items": 0},
        {"horizon": 1},
        {"horizon": 10.5},
        {"horizon": True},
        {"dim": 0},
        {"context_norm": "unit"},
        {"design": "cauchy"},
        {"rank": 2},
        {"design": "low-rank", "rank": 9},
        {"revenues": "cheap"},
        {"revenues": [1.0]},
        {"revenues": [-1.5] * 100},
        {"revenues": [-0.5] + [2.0] * 99},
        {"exactly": 1},
        {"revenues": [np.nan] * 100},
        {"theta": [np.inf] * 5},
        {"theta": [0.0] * 4},
    ],
)
def test_bad_parameters(kwargs):
    with pytest.raises(ParameterError) as error:
        AssortmentProblem(**kwargs)
    assert len(str(error.value)) > 20


@pytest.mark.parametrize(
    "action",
    [
        np.zeros((2, 3), int),
        np.zeros((1, 2), int),
        np.zeros((1, 3)),
        [[0, 1, 5]],
        [[0, 1, -2]],
        [["a", "b", "c"]],
        [[True, False, True]],
    ],
)
def test_bad_actions(action):
    instance = AssortmentProblem(n_items=5, capacity=3, horizon=4).instance([0])
    with pytest.raises(ActionError):
        instance.respond(action)


def test_an_empty_slate_earns_nothing():
    instance = AssortmentProblem(n_items=5, capacity=3, horizon=4).instance([0, 1])
    outcome = instance.respond(np.full((2, 3), -1))
    assert (outcome.expected == 0).all() and (outcome.feedback.choice == -1).all()
    assert (outcome.regret > 0).all()
