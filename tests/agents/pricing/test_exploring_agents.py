"""Forced exploration, Thompson sampling and the best fixed price."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit
from scipy.stats import norm

from dpb_gym import make_agent, make_problem, portable
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.streams import AgentStreams, Stream, generator

NAMES = ("explore-commit-pricing", "mle-cycle-pricing", "cils-pricing", "ts-pricing")


def greedy(theta, x):
    """Best price of one customer by a fine grid."""
    grid = np.linspace(0, 1, 20_001)
    z = (x.astype(float) @ theta[:-1] - grid * theta[-1]) / math.sqrt(len(theta))
    return grid[(grid * expit(4 * z)).argmax()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("demand", ["logistic", "gaussian"])
def test_bits_do_not_depend_on_the_batch(play, name, demand):
    full = play(name, range(6), 300, demand=demand)
    for seeds in ([0], [2, 3, 4]):
        part = play(name, seeds, 300, demand=demand)
        np.testing.assert_array_equal(part.prices, full.prices[:, seeds])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("env", [{}, {"dim": 2, "customers": "two-type"}])
def test_they_beat_random(play, name, env):
    seeds = range(400, 412)
    gap = play("random", seeds, 3000, **env).regret - play(name, seeds, 3000, **env).regret
    assert gap.mean() > 4 * gap.std(ddof=1) / math.sqrt(len(gap))


def test_explore_then_commit(play):
    run = play("explore-commit-pricing", [3, 4], 500)
    start = math.ceil(math.sqrt(3 * 500))
    for b, seed in enumerate((3, 4)):
        own = generator(seed, Stream.AGENT).random(start)
        np.testing.assert_array_equal(run.prices[:start, b], own)
    assert (run.agent.updates == 1).all() and run.agent.curator.guarantee is None
    theta = run.agent.state.theta
    for t in (start, 300, 499):
        for b in range(2):
            assert run.prices[t, b] == pytest.approx(greedy(theta[b], run.features[t, b]), abs=1e-4)


def test_private_explore_then_commit_spends_its_budget_on_one_release():
    problem = make_problem("DPB/Pricing-v0", horizon=1000)
    agent = make_agent("explore-commit-pricing", explore=200)
    instance = problem.instance([0, 1])
    agent.set_up(problem.info, AgentStreams([0, 1]), Budget.zcdp(0.4))
    assert agent.curator.guarantee.notion == "anticipating"
    assert agent.curator.guarantee.rho == pytest.approx(0.4, rel=1e-6)
    for t in range(1000):
        context = locked(instance.context())
        price = agent.act(context)
        agent.observe(context, price, instance.respond(price).feedback)
        if t < 999:
            instance.advance()
    assert agent.plan.sums.estimator.records.count == 200  # later customers are not looked at
    assert (agent.updates == 1).all()
    again = make_agent("explore-commit-pricing")
    again.set_up(problem.info, AgentStreams([0]), None)
    assert again.curator.guarantee is None and again.known.explore == math.ceil(math.sqrt(3000))


@pytest.mark.parametrize(("tests", "counts"), [("sqrt", (4, 6, 8, 12)), ("dim", (3, 3, 3, 3))])
def test_mle_cycles_by_hand(play, tests, counts):
    """Episodes of 16, 32, 64, 128 rounds, each begun with its random prices and one fit."""
    run = play("mle-cycle-pricing", [7], 240, {"tests": tests})
    own = generator(7, Stream.AGENT).random(sum(counts))
    start, used = 0, 0
    for episode, count in enumerate(counts):
        part = run.prices[start : start + count, 0]
        np.testing.assert_array_equal(part, own[used : used + count])
        start, used = start + 16 * 2**episode, used + count
    assert run.agent.updates[0] == 4
    theta = run.agent.state.theta[0]
    assert run.prices[-1, 0] == pytest.approx(greedy(theta, run.features[-1, 0]), abs=1e-4)


def test_controlled_variance_prices_keep_their_distance(play):
    run = play("cils-pricing", range(3), 400, {"width": 0.4})
    free = play("cils-pricing", range(3), 400, {"width": 0.0})
    plain = play("greedy-pricing", range(3), 400)
    np.testing.assert_array_equal(free.prices, plain.prices)
    for t in range(10, 400):
        mean = run.prices[:t].mean(axis=0)
        least = 0.4 * (t + 1) ** -0.25
        assert (np.abs(run.prices[t] - mean) >= least - 1e-12).all()
    assert ((run.prices >= 0) & (run.prices <= 1)).all()


def test_thompson_draws_from_the_normal_it_states(play):
    """Prices of the last rounds against draws recomputed from the replicate's generator."""
    T = 200
    run = play("ts-pricing", [5], T, {"growth": 1e9, "explore": 20, "scale": 0.3})
    assert (run.agent.updates == 1).all()
    theta = run.agent.state.theta[0]
    phi = np.column_stack([run.features[:20, 0].astype(float), -run.prices[:20, 0]]) / math.sqrt(3)
    covariance = np.linalg.inv(np.eye(3) + phi.T @ phi)
    # the random prices at the start are normal, too
    normals = portable.normals(generator(5, Stream.AGENT), (T, 3))
    np.testing.assert_allclose(run.prices[:20, 0], norm.cdf(normals[:20, 0]), rtol=1e-12)
    root = np.linalg.cholesky(covariance)
    for t in (20, 77, 199):
        draw = theta + 0.3 * root @ normals[t]
        price = 1.0 if draw[-1] <= 0 else greedy(draw, run.features[t, 0])
        assert run.prices[t, 0] == pytest.approx(price, abs=1e-4)


@pytest.mark.parametrize("demand", ["logistic", "gaussian"])
def test_best_fixed_price_against_scipy(demand):
    problem = make_problem("DPB/Pricing-v0", horizon=300, demand=demand)
    instance = problem.instance([1, 2])
    agent = make_agent("best-fixed-price")
    agent.attach(instance)
    agent.set_up(problem.info, AgentStreams([1, 2]))
    rows = []
    for t in range(300):
        rows.append(instance.context().features.astype(float))
        np.testing.assert_array_equal(agent.act(instance.context()), agent.price)
        if t < 299:
            instance.advance()
    x = np.array(rows)
    theta = instance.hidden["theta"]
    for b in range(2):

        def loss(p, b=b):
            z = (x[:, b] @ theta[b, :-1] - p * theta[b, -1]) / math.sqrt(3)
            return -p * (expit(4 * z) if demand == "logistic" else z).mean()

        grid = np.linspace(0, 1, 201)
        at = grid[np.argmin([loss(p) for p in grid])]
        best = minimize_scalar(
            loss, bounds=(max(0, at - 0.01), min(1, at + 0.01)), method="bounded"
        )
        assert loss(agent.price[b]) <= best.fun + 1e-7
    assert instance.t[0] == 300  # looking ahead did not move the environment


def test_best_fixed_price_is_a_baseline(play):
    problem = make_problem("DPB/Pricing-v0", horizon=20)
    with pytest.raises(AgentError, match="must be attached"):
        make_agent("best-fixed-price").set_up(problem.info, AgentStreams([0]))
    other = make_problem("DPB/Recommendation-v0", horizon=20)
    with pytest.raises(AgentError, match="plays pricing problems"):
        make_agent("best-fixed-price").set_up(other.info, AgentStreams([0]))


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("explore-commit-pricing", {"explore": -1}),
        ("explore-commit-pricing", {"ridge": 0.0}),
        ("explore-commit-pricing", {"demand_bound": 0.0}),
        ("mle-cycle-pricing", {"first": 1}),
        ("mle-cycle-pricing", {"tests": "log"}),
        ("cils-pricing", {"width": -0.1}),
        ("cils-pricing", {"growth": 1.0}),
        ("ts-pricing", {"scale": 0.0}),
        ("ts-pricing", {"ridge": math.nan}),
        ("best-fixed-price", {"n_prices": 2}),
        ("best-fixed-price", {"sample": 0}),
    ],
)
def test_bad_parameters_are_named(name, params):
    with pytest.raises(ParameterError, match=next(iter(params))):
        make_agent(name, **params)


@pytest.mark.parametrize("name", ["greedy-pricing", "glm-ucb-pricing"])
def test_a_constant_of_the_agent_equals_one_among_the_features(name):
    rounds, seeds = 150, [3, 4]
    customers = np.random.default_rng(2).uniform(-1, 1, (rounds, 3)).astype(np.float32)
    customers[:, 2] = 0.8
    kwargs = {"dim": 4, "customers": customers, "theta": [0.4, -0.3, 0.5, 1.0]}
    problem = make_problem("DPB/Pricing-v0", horizon=rounds, **kwargs)
    whole = make_agent(name)
    own = make_agent(name, constant=np.float32(0.8).item(), prior_mean=[0.0, 0.0, 0.0])
    whole.set_up(problem.info, AgentStreams(seeds))
    own.set_up(replace(problem.info, dim=3), AgentStreams(seeds))
    instance, prices = problem.instance(seeds), []
    for t in range(rounds):
        context = locked(instance.context())
        shown = context._replace(features=context.features[..., :2])
        prices.append(whole.act(context))
        np.testing.assert_array_equal(own.act(shown), prices[-1])
        feedback = instance.respond(prices[-1]).feedback
        whole.observe(context, prices[-1], feedback)
        own.observe(shown, prices[-1], feedback)
        if t < rounds - 1:
            instance.advance()
    assert np.std(prices[50:]) > 0.01
