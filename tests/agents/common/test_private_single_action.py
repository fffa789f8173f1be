"""The private agent of one action: sensitivity, posterior, and what it learns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dpb_gym
from dpb_agents.common import private_single_action as single
from dpb_gym.play import Offer, Released
from dpb_gym.privacy import Curator, NoiseSource
from dpb_gym.registry import make_agent

PROBLEMS = {
    "pricing": ("DPB/Pricing-v0", {"dim": 4}),
    "gaussian": ("DPB/Pricing-v0", {"dim": 4, "demand": "gaussian"}),
    "places": ("DPB/Recommendation-v0", {"dim": 3, "n_candidates": 4}),
    "arms": ("DPB/MultiArmed-v0", {"n_arms": 4}),
    "equal": ("DPB/Assortment-v0", {"n_items": 6, "capacity": 2, "dim": 3}),
    "uneven": (
        "DPB/Assortment-v0",
        {"n_items": 6, "capacity": 2, "dim": 3, "revenues": "random"},
    ),
}
TRUSTS = ("", "@aggregator", "@shuffler", "@local")
NO_NORMALS = np.zeros((0, 0))


def begun(name, budget="rho=1", horizon=400, unit="user-round", **params):
    """Return the functions, constants, state and releaser of a problem."""
    env, kwargs = PROBLEMS[name]
    info = dpb_gym.make_problem(env, horizon=horizon, **kwargs).info
    algorithm = single.PrivateSingleAction(**params)
    noise = NoiseSource.from_seed(0)
    curator = Curator(budget, ("joint", unit), noise=noise, replicates=1, horizon=horizon)
    sums = algorithm.plan(info, curator).sums
    curator.seal()
    known, state = algorithm.start(info, sums)
    return algorithm.functions_for(info), known, state, sums


def records(name, functions, known, state, rng):
    """Return records of every action, with responses at and beyond the ends of their range."""
    rows = []
    n = len(known.mean)
    if known.capacity:
        x = rng.normal(size=(n, 3))
        offer = Offer(x, np.ones(n))
        for slate in itertools.combinations(range(n), known.capacity):
            chosen = [*range(known.capacity), -1]
            rows += [
                functions.record(known, state, 1, offer, np.array(slate), k, NO_NORMALS)
                for k in chosen
            ]
        return rows
    for k, y in itertools.product(range(n), (-50.0, 0.0, 0.5, 1.0, 50.0)):
        action = known.prices[k] if len(known.prices) else k
        x = np.arange(n) if name == "arms" else rng.normal(size=(n, 3))
        x = rng.normal(size=3) if len(known.prices) else x
        value, along = functions.record(known, state, 1, x, action, y, NO_NORMALS)
        rows.append((value, along))
    return rows


@pytest.mark.parametrize("name", PROBLEMS)
def test_two_records_differ_by_at_most_the_sensitivity(name):
    """Of all actions and responses, whatever the customer is; the largest distance is attained."""
    functions, known, state, sums = begun(name)
    rows = records(name, functions, known, state, np.random.default_rng(0))
    if not known.capacity:
        low, high = sums.clip.low, sums.clip.high
        rows = [np.clip(value, low, high) * along for value, along in rows]
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(rows, 2)]
    assert max(distances) == pytest.approx(sums.sensitivity, rel=1e-12)
    assert sums.basis == "computed"


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_numbers_of_plays_are_those_of_the_actions(name):
    _, _, state, _ = begun(name)
    rows = len(state.table)
    first, last = 7, 7 + 3 * rows + 5
    state.seen[0] = first
    counted = np.zeros(rows)
    for t in range(first + 1, last + 1):
        counted[single.row_of(state, t)] += 1
    np.testing.assert_array_equal(single.plays(None, state, last), counted)


@pytest.mark.parametrize("name", ["pricing", "gaussian", "places", "arms"])
def test_the_posterior_is_that_of_noisy_sums(name):
    """Against the law of (means, sums) jointly normal, conditioned with NumPy."""
    functions, known, state, _ = begun(name)
    n = len(known.mean)
    rng = np.random.default_rng(1)
    played = [np.argmax(state.table[single.row_of(state, t)]) for t in range(1, 91)]
    number = np.bincount(played, minlength=n).astype(float)
    sums = rng.normal(size=n) * 5.0
    std = 2.0
    functions.learn(known, state, Released(sums, std, 0.0, 0, 90.0, np.zeros(0)), 90)
    prior = np.linalg.inv(known.precision)
    design = np.diag(number)
    covariance = design @ prior @ design + np.diag(std**2 + number * known.spread)
    gain = prior @ design @ np.linalg.inv(covariance)
    mean = known.mean + gain @ (sums - design @ (known.mean - known.middle))
    V = prior - gain @ design @ prior
    # cells without a play have noise alone, and no weight
    got, got_V = single.posterior(known, state.information, state.pull)
    np.testing.assert_allclose(got, mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(got_V, V, rtol=1e-6, atol=1e-8)
    scale = known.prices if len(known.prices) else np.ones(n)
    draws = (got + known.normals @ np.linalg.cholesky(got_V).T) * scale
    np.testing.assert_allclose(state.table, draws, rtol=1e-6, atol=1e-8)


def test_attractions_are_those_of_the_logit():
    """From expected choices of many customers."""
    functions, known, state, _ = begun("equal", "rho=1e6", 10**6)
    v = np.array([0.1, 0.2, 0.4, 0.5, 0.7, 1.1])
    rows = len(state.table)
    for number in range(6):
        t = int(state.seen[0]) + 1000 * rows
        expected = np.zeros(6)
        for row in state.table:
            slate = np.argsort(-row)[:2]
            expected[slate] += 1000 * v[slate] / (1.0 + v[slate].sum())
        functions.learn(known, state, Released(expected, 0.0, 0.0, number, float(t), v), t)
    mean, _ = single.posterior(known, state.information, state.pull)
    np.testing.assert_allclose(mean[-2:], v[-2:], rtol=0.02)
    assert (np.argsort(-state.table, axis=1)[:, :2] >= 4).all()


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize(
    ("name", "horizon", "part"),
    [("pricing", 3000, 0.5), ("arms", 3000, 0.8), ("uneven", 3000, 0.8)],
)
def test_it_is_better_than_random_choice_where_one_action_is(name, horizon, part, trust):
    env, kwargs = PROBLEMS[name]
    agents = {"one": ("private-single-action", "rho=2" + trust), "random": "random"}
    result = dpb_gym.evaluate(
        env, agents, horizon, 8, env_kwargs=kwargs, seed=5, progress=False, workers=1
    )
    ours, chance = (result.final_regret(label).mean() for label in result.labels)
    assert ours < part * chance


def test_a_limit_per_user_multiplies_the_sensitivity():
    _, _, _, once = begun("places")
    _, _, _, thrice = begun("places", unit="user", max_rounds_per_user=3)
    assert thrice.sensitivity == pytest.approx(3.0 * once.sensitivity)
    assert make_agent("private-single-action", max_rounds_per_user=3).protects == ("joint", "user")
