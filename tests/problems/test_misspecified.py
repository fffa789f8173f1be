"""Misspecification: expected rewards, best actions and responses against plain formulas."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm

from dpb_gym import make_problem
from dpb_gym.errors import ParameterError

SMALL = {
    "DPB/Assortment-v0": {
        "horizon": 30,
        "n_items": 6,
        "capacity": 3,
        "dim": 3,
        "revenues": "random",
    },
    "DPB/Pricing-v0": {"horizon": 30, "dim": 3},
    "DPB/Recommendation-v0": {"horizon": 30, "dim": 4, "n_arms": 12},
}


def small(env_id, **more):
    return make_problem(env_id, **{**SMALL[env_id], **more})


def played(problem, lanes=4, seed=0):
    """Instances in the middle of their horizon."""
    instance = problem.instance(range(seed, seed + lanes))
    for _ in range(7):
        instance.advance()
    return instance


def everything(problem):
    """Return all slates or candidates, or a fine grid of prices."""
    info = problem.info
    if problem.kind == "pricing":
        return np.linspace(0, 1, 4001)
    if problem.kind == "recommendation":
        return np.arange(info.n_candidates)
    K = info.capacity
    sizes = range(K if info.exactly else 0, K + 1)
    return np.array(
        [(*c, *[-1] * (K - k)) for k in sizes for c in combinations(range(info.n_items), k)]
    )


def values(instance):
    """Return the expected reward of every action in every replicate."""
    lanes = instance.replicates
    return np.array(
        [
            instance.respond(np.repeat([a], lanes, axis=0)).expected
            for a in everything(instance.problem)
        ]
    )


CASES = [
    ("DPB/Assortment-v0", {"types": 3}),
    ("DPB/Assortment-v0", {"choice": "nested", "exactly": True}),
    ("DPB/Assortment-v0", {"choice": "nested", "types": {"count": 2, "spread": 2.0}}),
    ("DPB/Pricing-v0", {"types": {"count": 4, "spread": 3.0}, "zeta": 12.0}),
    ("DPB/Pricing-v0", {"demand": "probit"}),
    ("DPB/Pricing-v0", {"demand": "exponential"}),
    ("DPB/Pricing-v0", {"intercept": 0.4}),
    ("DPB/Recommendation-v0", {"types": 5, "intercept": -1.0}),
    ("DPB/Recommendation-v0", {"features": "correlated", "contamination": 0.5}),
]


@pytest.mark.parametrize(("env_id", "more"), CASES, ids=str)
def test_the_oracle_is_the_best_of_all_actions(env_id, more):
    instance = played(small(env_id, **more), lanes=30)
    best, value = instance.oracle()
    largest = values(instance).max(axis=0)
    tolerance = 1e-5 if env_id == "DPB/Pricing-v0" else 1e-12
    assert (value >= largest - 1e-12).all()
    np.testing.assert_allclose(value, largest, rtol=tolerance)
    np.testing.assert_allclose(instance.respond(best).expected, value, rtol=1e-12)
    assert (instance.respond(best).regret < 1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "more"), CASES, ids=str)
def test_realised_rewards_have_the_expected_mean(env_id, more):
    more = {k: v for k, v in more.items() if k != "contamination"}
    instance = played(small(env_id, **more), lanes=2000)
    action = np.repeat(everything(instance.problem)[3:4], 2000, axis=0)
    if env_id == "DPB/Pricing-v0":
        action = np.full(2000, 0.6)
    outcome = instance.respond(action)
    gap = outcome.feedback.reward - outcome.expected
    assert abs(gap.mean()) < 4.5 * gap.std() / np.sqrt(2000)
    assert outcome.feedback.reward.std() > 0


@pytest.mark.parametrize("env_id", SMALL)
def test_types_mix_the_plain_problem(env_id):
    problem, plain = small(env_id, types={"count": 3, "spread": 0.7}), small(env_id)
    instance = played(problem)
    hidden, round_ = instance.hidden, instance.round()
    offsets = hidden["types"]
    np.testing.assert_allclose(offsets.sum(axis=1), 0, atol=1e-12)
    size = np.linalg.norm(offsets, axis=2) / np.linalg.norm(hidden["theta"], axis=1)[:, None]
    assert 0.1 < size.mean() < 1.5
    action = np.repeat(everything(problem)[2:3], 4, axis=0)
    worlds = [{**hidden, "theta": hidden["theta"] + offsets[:, c]} for c in range(3)]
    each = [plain.respond(world, round_, action) for world in worlds]
    outcome = instance.respond(action)
    np.testing.assert_allclose(outcome.expected, np.mean([e for _, e in each], axis=0), rtol=1e-13)
    for lane, kind in enumerate(round_.secret["type"]):
        assert outcome.feedback.reward[lane] == each[kind][0].reward[lane]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "mean"),
    [("DPB/Assortment-v0", 3 / 4), ("DPB/Pricing-v0", 0.5), ("DPB/Recommendation-v0", 0.5)],
)
def test_contaminated_customers_respond_at_random_and_regret_uses_the_truth(env_id, mean):
    more = {"revenues": "equal"} if env_id == "DPB/Assortment-v0" else {}
    dirty = played(small(env_id, contamination=0.25, **more), lanes=4000)
    clean = played(small(env_id, **more), lanes=4000)
    action = {
        "A": np.repeat([[0, 1, 2]], 4000, axis=0),
        "P": np.ones(4000),
        "R": np.zeros(4000, int),
    }
    soiled, pure = dirty.respond(action[env_id[4]]), clean.respond(action[env_id[4]])
    np.testing.assert_array_equal(soiled.expected, pure.expected)
    np.testing.assert_array_equal(soiled.regret, pure.regret)
    tossed = dirty.round().secret["contaminated"]
    assert tossed.mean() == pytest.approx(0.25, abs=0.02)
    assert soiled.feedback.reward[tossed].mean() == pytest.approx(mean, abs=0.05)
    np.testing.assert_array_equal(soiled.feedback.reward[~tossed], pure.feedback.reward[~tossed])


def nested_probabilities(utility, nests, dissimilarity):
    each = np.exp(utility / dissimilarity)
    inclusive = {n: each[nests == n].sum() for n in set(nests)}
    weight = {n: total**dissimilarity for n, total in inclusive.items()}
    whole = 1.0 + sum(weight.values())
    return np.array([weight[n] / whole * e / inclusive[n] for e, n in zip(each, nests)])


@pytest.mark.slow
@pytest.mark.parametrize("dissimilarity", [0.1, 0.5, 0.9, 1.0])
def test_nested_logit(dissimilarity):
    choice = {"kind": "nested", "nests": 2, "dissimilarity": dissimilarity}
    problem = small("DPB/Assortment-v0", choice=choice, capacity=4)
    instance = played(problem, lanes=5000)
    slates = np.repeat([[4, 1, -1, 2]], 5000, axis=0)
    one = problem.instance([3])
    slate, context = np.array([[4, 1, -1, 2]]), one.context()
    items = [4, 1, 2]
    utility = context.features[0, items].astype(float) @ one.hidden["theta"][0]
    p = nested_probabilities(utility, np.array(items) % 2, dissimilarity)
    assert one.respond(slate).expected == pytest.approx(p @ context.revenues[0, items], rel=1e-12)
    # the same customers in every lane, other uniforms
    same = np.repeat(context.features, 5000, axis=0)
    round_ = instance.round()
    round_ = round_._replace(
        context=round_.context._replace(features=same), uniform=(np.arange(5000) + 0.5) / 5000
    )
    hidden = {"theta": np.repeat(one.hidden["theta"], 5000, axis=0)}
    feedback, _ = problem.respond(hidden, round_, slates)
    for place, share in zip((0, 1, 3), p):
        assert (feedback.choice == place).mean() == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize(
    ("demand", "link"), [("probit", norm.cdf), ("exponential", lambda z: np.exp(np.minimum(z, 0)))]
)
def test_demands_that_are_no_glm(demand, link):
    problem = small("DPB/Pricing-v0", demand=demand, zeta=3.0)
    assert (problem.info.demand, problem.info.zeta) == ("logistic", 3.0)
    instance = played(problem, lanes=50)
    theta, x = instance.hidden["theta"], instance.context().features
    price = np.linspace(0, 1, 50)
    z = ((x * theta[:, :-1]).sum(axis=1) - price * theta[:, -1]) / np.sqrt(3)
    np.testing.assert_allclose(instance.respond(price).expected, price * link(3.0 * z), rtol=1e-9)


@pytest.mark.slow
def test_features_and_intercept():
    env_id = "DPB/Recommendation-v0"
    wide = {"dim": 3, "fresh": True, "n_candidates": 5, "n_arms": 100}
    plain, action = played(small(env_id, **wide), lanes=4000), np.zeros(4000, int)
    x, theta = plain.context().features, plain.hidden["theta"]
    correlated = played(small(env_id, features={"kind": "correlated", "rho": 0.6}, **wide), 4000)
    second = np.einsum("bmi,bmj->ij", *[correlated.context().features.astype(float)] * 2) / 20_000
    np.testing.assert_allclose(3 * second, 0.4 * np.eye(3) + 0.6, atol=0.03)
    heavy = played(small(env_id, features={"kind": "heavy-tailed", "freedom": 2}, **wide), 4000)
    ratio = heavy.context().features / x
    np.testing.assert_allclose(ratio, ratio[..., :1].repeat(3, axis=2), rtol=1e-5)
    # half a chi-square of two degrees of freedom is exponential
    assert np.mean(ratio[..., 0] > 4) == pytest.approx(1 - np.exp(-1 / 16), rel=0.15)
    scaled = played(
        small(env_id, features={"kind": "scaled", "low": 0.1, "high": 10.0}, **wide), 4000
    )
    np.testing.assert_allclose(scaled.context().features, x * [0.1, 1.0, 10.0], rtol=1e-5)
    np.testing.assert_array_equal(scaled.respond(action).expected, plain.respond(action).expected)
    assert scaled.problem.feature_bound == pytest.approx(10.0 * plain.problem.feature_bound)
    moved = played(small(env_id, intercept=-0.7, **wide), lanes=4000)
    np.testing.assert_array_equal(moved.context().features, x)
    score = (x[:, 0].astype(float) * theta).sum(axis=1) - 0.7
    np.testing.assert_allclose(moved.respond(action).expected, 1 / (1 + np.exp(-score)), rtol=1e-5)


@pytest.mark.parametrize(
    ("env_id", "more", "message"),
    [
        (
            "DPB/Assortment-v0",
            {"types": 2, "n_items": 100, "capacity": 10},
            "at most 20000 are allowed",
        ),
        (
            "DPB/Assortment-v0",
            {"choice": "nested", "n_items": 40, "capacity": 8},
            "trying them all",
        ),
        ("DPB/Assortment-v0", {"choice": "probit"}, "choice must be one of 'mnl', 'nested'"),
        ("DPB/Assortment-v0", {"choice": {"kind": "nested", "nests": 7}}, "an integer in 1..6"),
        ("DPB/Pricing-v0", {"types": 1}, "types: count must be an integer in 2..100"),
        ("DPB/Pricing-v0", {"types": "many"}, "in 2..100, got 'many'"),
        ("DPB/Pricing-v0", {"types": "3,spread"}, "'spread' must be 'parameter=number'"),
        ("DPB/Pricing-v0", {"types": {"number": 3}}, "types takes count, spread, got 'number'"),
        ("DPB/Pricing-v0", {"contamination": 1.5}, "contamination must be a finite number in (0.0"),
        ("DPB/Pricing-v0", {"features": "wild"}, "must be one of 'correlated', 'heavy-tailed'"),
        ("DPB/Pricing-v0", {"features": {"kind": "correlated", "rho": 2}}, "features: rho must be"),
        ("DPB/Pricing-v0", {"intercept": 0.5, "theta": [0, 0, 1]}, "not zero on the features"),
    ],
)
def test_invalid_values_are_rejected(env_id, more, message):
    with pytest.raises(ParameterError, match=re.escape(message)):
        small(env_id, **more)
