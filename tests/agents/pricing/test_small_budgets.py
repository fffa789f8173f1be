"""Small budgets: one-pass-pricing never loses to what needs no budget at all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpb_gym import make_agent, make_problem
from dpb_gym.privacy import Budget
from dpb_gym.streams import AgentStreams

T = 4000
EPSILONS = (0.005, 0.02, 0.05, 0.1, 0.5, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [3, 5])
def test_never_worse_than_random_prices_and_price_one(dim):
    """Budgets (2 eps, 2 / T^2) from hopeless to ample, paired with the controls.

    Price 1 is nearly best at d = 5 (average regret 0.0010), so that any premature estimate
    costs; at d = 3 it loses 0.0201.
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
        context = instance.context()
        for i, agent in enumerate(agents):
            price = agent.act(context)
            outcome = instance.respond(price)
            regret[i] += outcome.regret
            agent.observe(context, price, outcome.feedback)
        if t < T - 1:
            instance.advance()
    controls = regret[:2]
    best = controls[controls.mean(axis=1).argmin()]
    means = []
    for own in regret[2:]:
        gap = own - best
        error = gap.std(ddof=1) / math.sqrt(len(gap))
        assert gap.mean() <= error + 1e-3 * best.mean()
        means.append(own.mean())
    # a hopeless budget plays price 1 throughout, an ample one does much better
    assert means[0] == pytest.approx(best.mean())
    assert means[-1] < 0.6 * best.mean()
