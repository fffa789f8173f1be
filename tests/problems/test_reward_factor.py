"""A condition that scales rewards: rewards, oracle and regret, batch by batch and per replicate."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_gym import make_problem
from dpb_gym.errors import ParameterError
from dpb_gym.problems.conditions import CONDITIONS, ROUND_CONDITIONS
from dpb_gym.problems.conditions.condition import Condition

SMALL = {
    "DPB/Assortment-v0": {"horizon": 24, "n_items": 6, "capacity": 3, "dim": 3},
    "DPB/Pricing-v0": {"horizon": 24, "dim": 3},
    "DPB/Recommendation-v0": {"horizon": 24, "dim": 4, "n_arms": 12},
}


class Sale(Condition):
    """Rewards are halved in every `value`-th round, and by a factor per replicate."""

    name = "sale"

    def __init__(self, problem, value):
        self.every = value

    def hidden(self, drawn, hidden):
        return {"level": np.array(drawn.uniform(0.5, 1.0))}

    def round(self, round_, hidden, drawn, t):
        return round_.hiding(sale=hidden["level"] * np.where(t % self.every, 1.0, 0.5))

    def reward_factor(self, round_):
        return round_.secret["sale"]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for known in (CONDITIONS, ROUND_CONDITIONS):
        monkeypatch.setitem(known, "sale", Sale)


def played(problem, seeds):
    """Return factor, reward, expected reward, oracle's value and regret, ``(T, 5, B)``."""
    instance, act = problem.instance(seeds), np.random.default_rng(0)
    rows = []
    for t in range(problem.horizon):
        if t:
            instance.advance()
        best = instance.oracle()[1]
        action = act.permutation(3) if problem.kind == "assortment" else act.random()
        action = act.integers(3) if problem.kind == "recommendation" else action
        outcome = instance.respond(np.repeat(np.array(action)[None], len(seeds), axis=0))
        factor = instance.round().secret.get("sale", np.ones(len(seeds)))
        rows.append([factor, outcome.feedback.reward, outcome.expected, best, outcome.regret])
    return np.array(rows)


@pytest.mark.parametrize("more", [{}, {"types": 2}], ids=["alone", "with types"])
@pytest.mark.parametrize("env_id", SMALL)
def test_rewards_and_regret_are_those_without_the_condition_times_the_factor(env_id, more):
    seeds = [3, 4, 5]
    plain = played(make_problem(env_id, **SMALL[env_id], **more), seeds)
    scaled = played(make_problem(env_id, **SMALL[env_id], **more, sale=4), seeds)
    factor = scaled[:, 0]
    assert len(np.unique(factor)) == 6 and plain[:, 1].any()
    for i in (1, 2, 3):
        np.testing.assert_array_equal(scaled[:, i], plain[:, i] * factor)
    np.testing.assert_allclose(scaled[:, 4], plain[:, 4] * factor, rtol=1e-12, atol=1e-12)
    for i, seed in enumerate(seeds):
        alone = played(make_problem(env_id, **SMALL[env_id], **more, sale=4), [seed])
        np.testing.assert_array_equal(alone[..., 0], scaled[..., i])


def test_evaluation_counts_scaled_rewards():
    env_id = "DPB/Recommendation-v0"
    options = {"horizon": 24, "replicates": 2, "checkpoints": "all"}
    kwargs = {"dim": 4, "n_arms": 12}
    plain, scaled = (
        dpb_gym.evaluate(env_id, ["random"], env_kwargs=kwargs | more, **options)
        for more in ({}, {"sale": 4})
    )
    factor = played(make_problem(env_id, horizon=24, **kwargs, sale=4), [0, 1])[:, 0].T
    for curve in ("regret", "reward"):
        each, halved = (
            np.diff(getattr(result.rows[0], curve), prepend=0.0) for result in (plain, scaled)
        )
        np.testing.assert_allclose(halved, each * factor, atol=1e-9)


def test_stock_is_rejected():
    with pytest.raises(ParameterError, match="sale makes no sense with stock"):
        make_problem("DPB/Pricing-v0", **SMALL["DPB/Pricing-v0"], sale=4, stock=5)
