"""Small budgets: one-pass-pricing never loses to random prices, nor to a bad price 1."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpb_gym import make_agent, make_problem
from dpb_gym.customer_rounds import locked
from dpb_gym.privacy import Budget
from dpb_gym.streams import AgentStreams

T = 4000
EPSILONS = (0.005, 0.02, 0.05, 0.1, 0.5, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [3, 5])
def test_never_worse_than_random_prices(dim):
    """Budgets (2 eps, 2 / T^2) from hopeless to ample, paired with the controls.

    Price 1 is nearly best at d = 5 (average regret 0.0010), which nobody can know whom a budget
    teaches nothing; at d = 3 it loses 0.0201.
    """
    seeds = range(500, 532)
    problem = make_problem("DPB/Pricing-v0", horizon=T, dim=dim)
    instance = problem.instance(seeds)
    budgets = [Budget.approx(2 * epsilon, 2 / T**2) for epsilon in EPSILONS]
    agents = [make_agent("random"), make_agent("fixed-price", price=1.0)]
    agents += [make_agent("one-pass-pricing") for _ in budgets]
    for agent, budget in zip(agents, [None, None, *budgets]):
        agent.set_up(problem.info, AgentStreams(seeds), budget)
    regret = np.zeros((len(agents), len(seeds)))
    for t in range(T):
        context = locked(instance.context())
        for i, agent in enumerate(agents):
            price = agent.act(context)
            outcome = instance.respond(price)
            regret[i] += outcome.regret
            agent.observe(context, price, outcome.feedback)
        if t < T - 1:
            instance.advance()
    chance, one = regret[:2]
    for own in regret[2:]:
        gap = own - (chance if dim == 5 else np.minimum(chance, one))
        assert gap.mean() < -3.0 * gap.std(ddof=1) / math.sqrt(len(gap))
    means = regret.mean(axis=1)
    # a hopeless budget plays the law of least regret throughout, an ample one does much better
    assert means[2] < 0.5 * means[0]
    assert means[-1] < 0.6 * means[1]
