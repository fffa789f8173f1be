"""Recipes of the pricing agents: they load, play, and say what they were tuned on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from dpb_gym import make_agent, make_problem
from dpb_gym.customer_rounds import locked
from dpb_gym.privacy import Budget
from dpb_gym.streams import AgentStreams
from dpb_gym.suites.recipes import load_recipe

FOLDER = Path(__file__).parents[3] / "agents" / "recipes"
RECIPES = sorted(path.stem for path in FOLDER.glob("*-pricing.yaml"))
DEFAULTS = {"one-pass-pricing", "private-pricing"}  # their recipes state the classes' defaults


def prices(name, params, budget):
    problem = make_problem("DPB/Pricing-v0", horizon=400)
    seeds = range(700, 708)
    instance = problem.instance(seeds)
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams(seeds), budget)
    rows, regret = [], np.zeros(8)
    for t in range(400):
        context = locked(instance.context())
        rows.append(agent.act(context).copy())
        outcome = instance.respond(rows[-1])
        regret += outcome.regret
        agent.observe(context, rows[-1], outcome.feedback)
        if t < 399:
            instance.advance()
    return np.array(rows), regret.mean()


@pytest.mark.parametrize("name", RECIPES)
def test_recipe(name):
    agent, params = load_recipe(FOLDER / f"{name}.yaml")
    assert agent == name
    tuned = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())["tuned_on"]
    assert tuned["environment"] == "DPB/Pricing-v0" and min(tuned["seeds"]) >= 1_000_000
    budget = Budget.zcdp(20.0) if name in DEFAULTS else None
    own, regret = prices(name, params, budget)
    if name in DEFAULTS:
        np.testing.assert_array_equal(own, prices(name, {}, budget)[0])
    elif name != "explore-commit-pricing":  # tuned for a longer horizon than this
        assert regret < prices(name, {}, budget)[1]
