"""Locally private gradients: what a customer sends, what the server does with it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

import dpb_gym
from dpb_agents.common.local_sgd import Descent, gradient, largest_gradient
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

CASES = {
    "local-glm-sgd": ("DPB/Recommendation-v0", {"dim": 4}),
    "local-pricing": ("DPB/Pricing-v0", {"dim": 4}),
    "local-pricing-gaussian": ("DPB/Pricing-v0", {"dim": 4, "demand": "gaussian"}),
}
SEEDS = range(6)


def begun(case, budget, horizon=40, **params):
    env_id, kwargs = CASES[case]
    problem = dpb_gym.make_problem(env_id, horizon=horizon, **kwargs)
    agent = make_agent(case.removesuffix("-gaussian"), **params)
    agent.set_up(problem.info, AgentStreams(SEEDS), budget)
    return agent, problem


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def kernel(vectors, response, theta, logistic, scale=1.0):
    """The gradients, and their largest norms."""
    c = Descent(logistic, scale, 1.0, 1.0, np.zeros(vectors.shape[1]))
    reach = np.array([largest_gradient(c, at) for at in theta])
    units = [gradient(c, at, v, float(y)) for at, v, y in zip(theta, vectors, response)]
    return reach[:, None] * np.array(units), reach


@pytest.mark.parametrize("logistic", [True, False])
def test_no_customer_has_a_larger_gradient_than_is_allowed(logistic):
    """Adversarial records at any theta: the norm stays within `reach`, and attains it; two
    opposite ones are twice that apart."""
    rng = np.random.default_rng(2)
    n, d = 20_000, 3
    vectors = rng.normal(size=(n, d))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    theta = rng.normal(size=(n, d)) * rng.choice([0.0, 0.3, 3.0], size=(n, 1))
    worst = theta[: n // 2] / np.maximum(np.linalg.norm(theta[: n // 2], axis=1), 1e-9)[:, None]
    vectors[: n // 2] = np.where(np.abs(worst).max(axis=1, keepdims=True) > 0, worst, vectors[:1])
    response = rng.choice([-9.0, 0.0, 1.0, 9.0], size=n)
    gradient, reach = kernel(vectors, response, theta, logistic, 2.0)
    norms = np.linalg.norm(gradient, axis=1)
    assert (norms <= reach * (1 + 1e-12)).all()
    far = np.linalg.norm(theta, axis=1) > 0.5
    assert (norms / reach)[far].max() > 0.999 and (norms / reach)[~far].max() > 0.999
    clipped = np.clip(response, 0, 1) if logistic else np.clip(response, -3, 3)
    z = (vectors * theta).sum(axis=1)
    mean = sigmoid(2.0 * z) if logistic else z
    np.testing.assert_allclose(gradient, (mean - clipped)[:, None] * vectors, atol=1e-13)
    away, same = np.zeros((2, d)), np.zeros((2, d))
    away[0, 0], away[1, 0] = 1.0, -1.0
    pair, most = kernel(away, np.full(2, 5.0), same, logistic)
    assert np.linalg.norm(pair[0] - pair[1]) == pytest.approx(2.0 * most[0])


def messages(agent, gradients):
    """2000 messages with the same gradients."""
    sent = []
    for _ in range(2000):
        agent.plan.sums.add(gradients)
        sent.append(agent.plan.sums.release())
    return np.array(sent)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rho", [0.1, 2.0])
def test_messages_carry_the_noise_that_is_charged(case, rho):
    """sigma = 2 / sqrt(2 rho) in units of the largest gradient; the ledger says the same."""
    agent, _ = begun(case, Budget.zcdp(rho))
    gradients = np.zeros((len(SEEDS), 4))
    gradients[:, 0] = 0.5
    sent = messages(agent, gradients)
    sigma = 2.0 / math.sqrt(2.0 * rho)
    assert sent.std(axis=(0, 1)) == pytest.approx(np.full(4, sigma), rel=0.05)
    assert sent.mean(axis=(0, 1)) == pytest.approx([0.5, 0, 0, 0], abs=5 * sigma / 110)
    longer = messages(agent, 9.0 * gradients)
    assert longer.mean(axis=(0, 1))[0] == pytest.approx(1.0, abs=5 * sigma / 110), "clipped"
    promise = agent.curator.guarantee
    assert (promise.notion, promise.unit) == ("local", "user-round")
    assert promise.rho == pytest.approx(rho) and len(agent.curator.ledger.entries) == 1


@pytest.mark.parametrize("case", CASES)
def test_the_server_moves_against_the_gradient(case):
    """With next to no noise: the same rounds by plain NumPy."""
    params = {"curvature": 0.5, "size": 0.7}
    agent, problem = begun(case, Budget.zcdp(1e12), **params)
    info, d = problem.info, 4
    logistic = info.demand != "gaussian"
    zeta = info.zeta or 1.0
    h = 0.5 * (0.25 * zeta if logistic else 1.0) / d
    theta = np.zeros((len(SEEDS), d))
    instance = problem.instance(list(SEEDS))
    start = (math.sqrt(2e-12) * (0.5 if logistic else 3.0) / (0.7 * h)) ** 2
    for t in range(1, 41):
        context = locked(instance.context())
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        x = context.features.astype(float)
        if info.kind == "pricing":
            v, y = np.column_stack([x, -action]) / math.sqrt(d), feedback.demand
        else:
            v, y = x[np.arange(len(SEEDS)), action], feedback.reward
            v = v / np.maximum(1.0, np.linalg.norm(v, axis=1))[:, None]
        z = (v * theta).sum(axis=1)
        gap = sigmoid(zeta * z) - y if logistic else z - np.clip(y, -3, 3)
        theta = theta - gap[:, None] * v / (h * (t + start))
        length = np.linalg.norm(theta, axis=1, keepdims=True)
        theta = theta * np.minimum(1.0, 4 * 0.7 * math.sqrt(d) / np.maximum(length, 1e-300))
        agent.observe(context, action, feedback)
        np.testing.assert_allclose(agent.state.theta, theta, atol=2e-4)
        theta = agent.state.theta.copy()
        if t < 40:
            instance.advance()


def test_prices_are_random_first_and_renewed_by_epochs():
    agent, problem = begun("local-pricing", Budget.zcdp(5.0), horizon=400, explore=20, growth=1.5)
    instance, epochs, prices = problem.instance(list(SEEDS)), [], []
    for t in range(1, 401):
        context = locked(instance.context())
        prices.append(agent.act(context))
        before = agent.state.epoch.copy()
        agent.observe(context, prices[-1], instance.respond(prices[-1]).feedback)
        if (agent.state.epoch != before).any():
            np.testing.assert_array_equal(agent.state.epoch, agent.state.theta)
            epochs.append(t)
        if t < 400:
            instance.advance()
    start = np.array(prices[:20])
    assert 0.35 < start.mean() < 0.65 and start.std() > 0.2
    assert len(epochs) < 20
    assert all(later >= 1.5 * t for t, later in pairwise(epochs))


def test_messages_are_sent_where_nothing_was_observed():
    problem = dpb_gym.make_problem("DPB/MovieLensReplay-v0", dim=3, protocol="replay", horizon=30)
    agent = make_agent("local-glm-sgd")
    agent.set_up(problem.info, AgentStreams(range(30)), Budget.zcdp(1.0))
    instance = problem.instance(range(30))
    context = locked(instance.context())
    action = agent.act(context)
    feedback = instance.respond(action).feedback
    assert not feedback.observed.all()
    agent.observe(context, action, feedback)
    assert (agent.state.theta != 0).all()


@pytest.mark.parametrize(
    "bad", [{"curvature": 0.0}, {"size": -1.0}, {"explore": -1}, {"growth": 1.0}]
)
def test_bad_parameters_are_refused(bad):
    with pytest.raises(ParameterError):
        make_agent("local-pricing", **bad)


@pytest.mark.parametrize("case", CASES)
def test_a_budget_is_needed(case):
    with pytest.raises(AgentError, match="budget"):
        begun(case, None)
