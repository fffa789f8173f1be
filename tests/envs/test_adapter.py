"""Third-party Gymnasium environments in the harness, and errors for unsuitable ones."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import dpb_gym
from dpb_gym.envs.gym_env import BanditEnv
from dpb_gym.envs.registration import ENVIRONMENTS, environment
from dpb_gym.errors import AgentError, DPBError, HorizonExceeded, ParameterError


class Shop(gym.Env):
    """Environment of five products with two features each, written without this package."""

    def __init__(self, slope=0.5, fault=None):
        features = gym.spaces.Box(0.0, 1.0, (5, 2), np.float32)
        self.observation_space = gym.spaces.Dict({"features": features})
        self.action_space = gym.spaces.Discrete(5)
        if fault == "space":
            self.action_space = gym.spaces.Box(0.0, 1.0, (5,))
        self.slope, self.fault = slope, fault
        self.lock = (i for i in ()) if fault == "copy" else None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._customer(), {}

    def _customer(self):
        self.x = self.np_random.random((5, 2)).astype(np.float32)
        return {"features": self.x}

    def step(self, action):
        chances = self.slope * self.x.astype(float) @ np.array([0.2, 0.9])
        reward = float(self.np_random.random() < chances[action])
        best = chances.max() if self.fault != "oracle" else chances.min()
        info = {"expected_reward": chances[action], "oracle_reward": best}
        if self.fault in info:
            del info[self.fault]
        if self.fault == "text":
            info["oracle_reward"] = "high"
        if self.fault == "greedy":
            self.np_random.random(action)
        return self._customer(), reward, False, self.fault == "short", info


class Native(BanditEnv):
    """Wrap a dpb-gym environment so that only its Gymnasium interface is visible."""

    def __init__(self, ours, **kwargs):
        super().__init__(ours, horizon=40, **kwargs)


def register(name, cls, **kwargs):
    env_id = f"Theirs/{name}-v0"
    if env_id not in gym.registry:
        gym.register(env_id, cls, max_episode_steps=40, kwargs=kwargs)
    return env_id


@pytest.mark.slow
def test_agents_run_on_third_party_environments():
    env_id = register("Shop", Shop)
    dpb_gym.register_environment(env_id, kind="recommendation", summary="A shop", slope=0.9)
    result = dpb_gym.evaluate(
        env_id, agents=["lin-ucb", "random"], horizon=300, replicates=3, progress=False
    )
    learner, chance = (result.final_regret(a).mean() for a in ("lin-ucb", "random"))
    assert learner < 0.5 * chance
    assert environment(env_id).make_problem().info.n_candidates == 5
    again = dpb_gym.evaluate(env_id, agents=["random"], horizon=300, replicates=3, progress=False)
    np.testing.assert_array_equal(again.final_regret("random"), result.final_regret("random"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "kind", "agents", "kwargs"),
    [
        ("DPB/Pricing-v0", "pricing", ["greedy-pricing", "random"], {"zeta": 4.0}),
        ("DPB/Recommendation-v0", "recommendation", ["lin-ts", "random"], {}),
        (
            "DPB/Assortment-v0",
            "assortment",
            ["ucb-mnl", "random"],
            {"n_items": 6, "capacity": 2, "dim": 2, "revenues": "random"},
        ),
    ],
)
def test_adapted_environments_give_the_same_numbers(ours, kind, agents, kwargs):
    """Compare dpb-gym environments with the same environments through the adapter."""
    shape = {k: v for k, v in kwargs.items() if k != "zeta"}
    env_id = register(f"Ours{kind}", Native, ours=ours, **shape)
    dpb_gym.register_environment(env_id, kind=kind, **{k: kwargs[k] for k in kwargs if k == "zeta"})
    run = {"agents": agents, "horizon": 40, "replicates": 3, "progress": False}
    theirs = dpb_gym.evaluate(env_id, **run)
    native = dpb_gym.evaluate(ours, env_kwargs=shape, **run)
    for agent in agents:
        ours, others = native.final_regret(agent), theirs.final_regret(agent)
        # a price on a float32 space is rounded
        np.testing.assert_allclose(ours, others, rtol=1e-6 if kind == "pricing" else 0.0)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("expected_reward", "no info\\['expected_reward'\\]"),
        ("oracle_reward", "no info\\['oracle_reward'\\]"),
        ("text", "oracle_reward.* finite number"),
        ("oracle", "exceeds oracle_reward"),
        ("short", "ended its episode in round 1 of 40"),
        ("copy", "cannot be copied"),
        ("space", "no action space of recommendation"),
    ],
)
def test_a_broken_contract_is_named_when_it_is_registered(fault, message):
    env_id = register(f"Broken{fault.replace('_', '')}", Shop, fault=fault)
    with pytest.raises(ParameterError, match=message):
        dpb_gym.register_environment(env_id, kind="recommendation")
    assert env_id not in ENVIRONMENTS


def test_contexts_that_depend_on_actions_are_rejected():
    env_id = register("Greedy", Shop, fault="greedy")
    dpb_gym.register_environment(env_id, kind="recommendation")
    with pytest.raises(AgentError, match="no bandit"):
        dpb_gym.evaluate(env_id, agents=["random"], horizon=20, replicates=1, progress=False)


def test_information_conditions_apply_to_adapted_environments():
    env_id = register("Late", Shop)
    dpb_gym.register_environment(env_id, kind="recommendation", slope=0.9)
    problem = dpb_gym.make_problem(env_id, horizon=20, delay=3, unknown_horizon=True)
    assert (problem.info.delay, problem.info.horizon, problem.horizon) == ("fixed=3", None, 20)
    regret = [
        dpb_gym.evaluate(env_id, agents=["lin-ucb"], horizon=20, replicates=2, env_kwargs=kwargs)
        .final_regret("lin-ucb")
        .sum()
        for kwargs in ({}, {"delay": 0}, {"delay": 20})
    ]
    assert regret[0] == regret[1] < regret[2]


def test_unavailable_values_raise_errors():
    env_id = register("Shop", Shop)
    dpb_gym.register_environment(env_id, kind="recommendation", summary="A shop", slope=0.9)
    with pytest.raises(AgentError, match="not the action"):
        dpb_gym.evaluate(env_id, agents=["oracle"], horizon=20, replicates=1, progress=False)
    with pytest.raises(DPBError, match="only its steps are known"):
        dpb_gym.audit("adaprivate-ucb", "rho=1", env_id=env_id, runs=60, horizon=8)
    with pytest.raises(ParameterError, match="is registered with Gymnasium"):
        dpb_gym.register_environment("Theirs/Nowhere-v0", kind="pricing")
    with pytest.raises(ParameterError, match="no action space of pricing"):
        dpb_gym.register_environment(register("Priced", Shop), kind="pricing")


def test_an_adapted_environment_ends_after_its_horizon():
    env_id = register("Ending", Shop)
    dpb_gym.register_environment(env_id, kind="recommendation", summary="A shop")
    instance = dpb_gym.make_problem(env_id, horizon=3).instance([0])
    for _ in range(2):
        instance.respond(np.array([0]))
        instance.advance()
    instance.respond(np.array([0]))
    with pytest.raises(HorizonExceeded, match="horizon of 3 rounds"):
        instance.advance()
