"""The fast agents against the plain ones, record by record and release by release."""

from __future__ import annotations

import numpy as np
import pytest
from reference_mnl import OnePassMNL
from reference_pricing import TWINS, OnePassPricing

import dpb_gym
from dpb_gym.privacy import Budget, gaussian_sigma
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

ROUNDS = 400


def compare(name, kwargs, budget, make, record, action_of=None, alike=None):
    """Plays the fast agent; the plain one sees the same customers, actions and releases."""
    problem = dpb_gym.make_problem(horizon=ROUNDS, **kwargs)
    seeds = [3, 4]
    agent = make_agent(name)
    agent.set_up(problem.info, AgentStreams(seeds), budget)
    plain = [make(agent, problem) for _ in seeds]
    instance, learned, far = problem.instance(seeds), 0, 0
    learn = agent.learn

    def both(estimate, late):
        nonlocal learned, far
        learned += 1
        learn(estimate, late)
        far += late is not None and (np.linalg.norm(agent.theta, axis=1) > 2.5 * agent._size).any()
        for b, reference in enumerate(plain):
            parts = [c and (c.sums[b], c.std, c.uneven) for c in (estimate, late)]
            reference.learn(*parts[0], parts[1])
            np.testing.assert_allclose(agent.theta[b], reference.theta, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(agent.covariance[b], reference.V, rtol=1e-7, atol=1e-12)

    agent.learn = both
    for t in range(ROUNDS):
        context = instance.context()
        action = agent.act(context)
        if action_of is not None:
            for b, reference in enumerate(plain):
                action_of(agent, reference, context, action, b)
        feedback = instance.respond(action).feedback
        if alike is not None:
            action = alike(agent, context, action)
        expected = [record(r, context, action, feedback, b) for b, r in enumerate(plain)]
        agent.observe(context, action if alike is None else action[0], feedback)
        np.testing.assert_allclose(agent.rows, expected, rtol=1e-6, atol=1e-7)
        if t < ROUNDS - 1:
            instance.advance()
    assert learned > 8
    return far


@pytest.mark.parametrize(("rho", "theta"), [(None, 1), (0.05, 1), (2.0, 1), (2.0, 12), (None, 12)])
def test_assortment(rho, theta):
    def record(reference, context, action, feedback, b):
        items = context.features[b, action[b]].astype(float)
        return reference.record(items, feedback.choice[b])

    offers = 0

    def offer(agent, reference, context, action, b):
        nonlocal offers
        if agent.rounds < 3.0 * agent.first_release:
            items, block = context.features[b].astype(float), agent._normals
            drawn = agent.root[b] @ block._block[block._next - 1, b].T
            normals = np.linalg.solve(reference.root, drawn).T
            assert action[b].tolist() == reference.offer(items, 4, normals)
            offers += 1

    budget = None if rho is None else Budget.zcdp(rho)
    kwargs = {"env_id": "DPB/Assortment-v0", "n_items": 30, "dim": 3, "capacity": 4}
    if theta > 1:  # unforeseen
        kwargs["theta"] = theta * np.array([0.6, 0.0, -0.8])
    far = compare(
        "one-pass-mnl", kwargs, budget, lambda a, p: OnePassMNL(3, rho is not None), record, offer
    )
    assert (far > 0) == (theta > 1)
    assert offers >= 6


@pytest.mark.parametrize(("rho", "theta"), [(None, 1), (0.05, 1), (2.0, 1), (9.0, 9), (None, 6)])
def test_pricing(rho, theta):
    def record(reference, context, action, feedback, b):
        x = context.features[b].astype(float)
        return reference.record(x, [prices[b] for prices in action], feedback.demand[b])

    def alike(agent, context, action):
        """The price posted, and those that the agent will draw again."""
        draw = type(agent).act
        twins = [] if rho is None else [draw(agent, context) for _ in range(TWINS)]
        prices = [action, *twins]
        agent.act = lambda seen: twins.pop(0) if twins else draw(agent, seen)
        return prices

    def price(agent, reference, context, action, b):
        x = context.features[b].astype(float)
        drawn = agent._drawn[b] - reference.theta
        normals = np.linalg.lstsq(reference.root, drawn, rcond=None)[0]
        best = reference.price(x, normals)
        assert action[b] == pytest.approx(best, abs=1e-4)

    kwargs = {"env_id": "DPB/Pricing-v0"}
    if theta > 1:  # unforeseen
        kwargs["theta"] = theta * np.array([-0.5, 0.5, 0.7])
    sigma = 0.0 if rho is None else gaussian_sigma(rho, 1.0)
    budget = None if rho is None else Budget.zcdp(rho)
    far = compare(
        "one-pass-pricing",
        kwargs,
        budget,
        lambda a, p: OnePassPricing(3, 4.0, ROUNDS, sigma),
        record,
        price,
        alike,
    )
    assert (far > 0) == (theta > 1)


@pytest.mark.parametrize("rho", [1e-7, 3e-6, 1e-4, 2e-4, 3e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("horizon", [100, 3000, 10**6])
def test_hopeless_budgets(rho, horizon):
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=horizon)
    agent = make_agent("one-pass-pricing")
    agent.set_up(problem.info, AgentStreams([3]), Budget.zcdp(rho))
    reference = OnePassPricing(3, 4.0, horizon, gaussian_sigma(rho, 1.0))
    context = problem.instance([3]).context()
    price = agent.act(context)[0]
    assert reference.hopeless == (price < 1.0)
    normals = agent._normals._block[0, 0]
    assert price == pytest.approx(reference.price(context.features[0], normals))
