"""Unknown horizon: anytime agents adapt, agents that need a horizon raise an error."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import dpb_gym
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.privacy import Budget, Curator, NoiseSource
from dpb_gym.problems.rounds import LONGEST
from dpb_gym.registry import agent_specs, make_agent
from dpb_gym.streams import AgentStreams

ENVS = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 12, "capacity": 3, "dim": 3}),
    "pricing": ("DPB/Pricing-v0", {}),
    "recommendation": ("DPB/Recommendation-v0", {"dim": 4, "interactions_per_user": 2}),
}
UNKNOWN = {"unknown_horizon": True}
BUDGET = Budget.zcdp(50.0)


DEEP = {"ppo", "dqn", "sac"}  # in tests/sb3
ONE_ACTION = {("private-single-action", "assortment"), ("private-single-action", "recommendation")}
"""Agents without features, where features change in every round so that no action is better."""


def agents_of(kind, needs):
    return [
        name
        for name, spec in agent_specs().items()
        if spec.entry_point.startswith("dpb_agents")
        and kind in spec.supports
        and spec.needs_horizon == needs
        and not spec.fixed_arms
        and not (name in DEEP and not needs)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENVS)
def test_agents_that_need_no_horizon_beat_random_without_it(kind):
    env, kwargs = ENVS[kind]
    agents = {
        name: (name, None if agent_specs()[name].budget == "never" else str(BUDGET))
        for name in agents_of(kind, False)
    }
    result = dpb_gym.evaluate(
        env, agents=agents, horizon=1000, replicates=2, env_kwargs={**kwargs, **UNKNOWN}
    )
    random = result.final_regret("random").sum()
    for name in agents:
        if name != "random" and (name, kind) not in ONE_ACTION:
            assert result.final_regret(name).sum() < 0.95 * random, name


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in ENVS for n in agents_of(k, True)])
def test_agents_that_need_a_horizon_are_rejected_with_alternatives(kind, name):
    env, kwargs = ENVS[kind]
    budget = None if agent_specs()[name].budget == "never" else str(BUDGET)
    with pytest.raises(AgentError, match=rf"{name}.*unknown_horizon=True.*one-pass-"):
        dpb_gym.evaluate(
            env,
            agents=[(name, budget)],
            horizon=20,
            replicates=1,
            env_kwargs={**kwargs, **UNKNOWN},
        )


@pytest.mark.parametrize(
    ("kind", "agent"),
    [
        ("assortment", "one-pass-mnl"),
        ("pricing", "one-pass-pricing"),
        ("recommendation", "one-pass-linear"),
    ],
)
def test_one_pass_agents_switch_to_their_anytime_form(kind, agent):
    """Without a horizon they equal `anytime`, bit for bit, and plan for 10^9 rounds."""
    env, kwargs = ENVS[kind]
    played = []
    for conditions, anytime in ((UNKNOWN, False), ({}, True)):
        problem = dpb_gym.make_problem(env, horizon=300, **kwargs, **conditions)
        assert problem.horizon == 300
        made, instance = make_agent(agent, anytime=anytime), problem.instance([3])
        made.set_up(problem.info, AgentStreams([3]), Budget.zcdp(5.0))
        actions = []
        for t in range(300):
            context = locked(instance.context())
            actions.append(np.array(made.act(context)))
            made.observe(context, actions[-1], instance.respond(actions[-1]).feedback)
            if t < 299:
                instance.advance()
        played.append(np.array(actions))
        assert made.curator.releasers[0].schedule.ends[-1] > LONGEST // 2
    assert (played[0] == played[1]).all()


def test_a_running_sum_without_end_costs_the_same_and_has_more_noise():
    """Sums of a curator without a horizon are planned for 10^9 records."""
    sigmas = []
    for horizon in (1000, LONGEST):
        curator = Curator("rho=0.5", noise=NoiseSource.from_seed(0), horizon=horizon)
        sums = curator.running_sum(2, reward=(0.0, 1.0))
        for _ in range(20):
            sums.add([1.0], along=np.eye(2)[:1])
        assert curator.guarantee.describe(1e-5).startswith("central zCDP rho=0.5")
        sigmas.append(sums.sigma)
        assert sums.noise_std > sums.sigma > 0
    assert 1.2 < sigmas[1] / sigmas[0] < 2.0


@pytest.mark.parametrize("env_id", [env for env, _ in ENVS.values()])
def test_episodes_still_end_at_the_horizon(env_id):
    told = gym.make(env_id, horizon=5)
    env = gym.make(env_id, horizon=5, **UNKNOWN)
    assert env.unwrapped.problem.info.horizon is None
    assert env.observation_space == told.observation_space
    env.reset(seed=0)
    env.action_space.seed(0)
    ends = [env.step(env.action_space.sample())[3] for _ in range(5)]
    assert ends == [False] * 4 + [True]


def test_invalid_values_are_rejected_and_false_has_no_effect():
    with pytest.raises(ParameterError, match="unknown_horizon"):
        dpb_gym.make_problem("DPB/Pricing-v0", horizon=5, unknown_horizon="yes")
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=5, unknown_horizon=False)
    assert problem.info.horizon == 5
