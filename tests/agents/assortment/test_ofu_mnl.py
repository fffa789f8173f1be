"""OFU-MNL+ against dense algebra: its step, its matrix, its width and its assortments."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

import dpb_gym
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams


def begin(seeds=(3, 4), **params):
    problem = dpb_gym.make_problem(
        "DPB/Assortment-v0", horizon=50, n_items=7, capacity=3, dim=3, revenues="random"
    )
    agent = make_agent("ofu-mnl-plus", **params)
    agent.set_up(problem.info, AgentStreams(seeds))
    return agent, problem.instance(seeds)


def law(x, w):
    odds = np.exp(x @ w)
    return odds / (1.0 + odds.sum())


def covariance(x, w):
    """Hessian of the loss: the covariance of the bought item's features."""
    p = law(x, w)
    rows, chances = np.vstack([x, 0 * x[:1]]), np.append(p, 1.0 - p.sum())
    centred = rows - chances @ rows
    return (centred * chances[:, None]).T @ centred


@pytest.mark.parametrize("norm", [None, 0.05])
def test_estimate_and_matrix_are_those_of_the_paper(norm):
    """Every step minimises its objective over the ball; H adds the Hessians at the new points."""
    agent, instance = begin(norm=norm, ridge=2.0, prior_mean=[0.1, 0.0, -0.1])
    centre, radius = np.array([0.1, 0.0, -0.1]), norm or np.sqrt(3)
    H, w, on_the_edge = 2.0 * np.eye(3), centre.copy(), 0
    eta = radius + 1.0 + np.log(4) / 2
    for _ in range(40):
        context = locked(instance.context())
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        items = action[0][action[0] >= 0]
        x = context.features[0][items].astype(float)
        bought = np.zeros(3)
        if feedback.choice[0] >= 0:
            bought = context.features[0][action[0, feedback.choice[0]]].astype(float)
        gradient = law(x, w) @ x - bought
        metric = H + eta * covariance(x, w)

        def objective(v, w=w, gradient=gradient, metric=metric):
            return gradient @ v + (v - w) @ metric @ (v - w) / (2 * eta)

        ball = {"type": "ineq", "fun": lambda v: radius**2 - (v - centre) @ (v - centre)}
        best = minimize(objective, centre, constraints=[ball], options={"ftol": 1e-14})
        agent.observe(context, action, feedback)
        w = agent._w[0].copy()
        np.testing.assert_allclose(w, best.x, atol=2e-5)
        on_the_edge += np.linalg.norm(w - centre) > radius * (1 - 1e-6)
        H += covariance(x, w)
        np.testing.assert_allclose(np.linalg.inv(agent._inverse[0]), H, rtol=1e-8)
        instance.advance()
    assert (on_the_edge > 5) == (norm is not None)


def test_assortments_are_the_best_under_optimistic_utilities():
    agent, instance = begin(scale=0.05)
    sizes = set()
    for _ in range(30):
        context = locked(instance.context())
        action = agent.act(context)
        for b in range(2):
            x = context.features[b].astype(float)
            bonus = np.sqrt(((x @ np.linalg.inv(np.linalg.inv(agent._inverse[b]))) * x).sum(1))
            utility = x @ agent._w[b] + 0.05 * agent.width(context.t) * bonus

            def worth(items, b=b, utility=utility, context=context):
                odds = np.exp(utility[list(items)])
                return odds @ context.revenues[b][list(items)] / (1.0 + odds.sum())

            chosen = [int(i) for i in action[b] if i >= 0]
            sizes.add(len(chosen))
            every = [s for k in (1, 2, 3) for s in combinations(range(7), k)]
            assert worth(chosen) >= max(map(worth, every)) - 1e-9
        agent.observe(context, action, instance.respond(action).feedback)
        instance.advance()
    assert len(sizes) > 1


def test_the_width_is_the_printed_one():
    """At d = 3, K = 3, norm 1, ridge 2, delta .01, t = 100."""
    agent, _ = begin(norm=1.0, ridge=2.0, delta=0.01)
    eta = 2 + np.log(4) / 2
    level = np.log(2 * np.sqrt(201) / 0.01)
    inner = (3 * np.log(401) + 3) * (17 * 2 / 16 + 2 * np.sqrt(2) * level + 16 * level**2)
    inner += 2 + np.sqrt(6) * 7 / 6 * eta * 3 * np.log(1 + 101 / 4)
    assert agent.width(100) == pytest.approx(np.sqrt(2 * eta * inner + 8), rel=1e-12)


def test_bad_parameters_and_problems():
    for wrong in ({"scale": -1}, {"ridge": 0}, {"norm": 0}, {"delta": 1.0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            make_agent("ofu-mnl-plus", **wrong)
    pricing = dpb_gym.make_problem("DPB/Pricing-v0").info
    with pytest.raises(AgentError, match="assortment"):
        make_agent("ofu-mnl-plus").set_up(pricing, AgentStreams([0]))
