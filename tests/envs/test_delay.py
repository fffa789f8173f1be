"""Delayed feedback in single and vector environments and in wrappers."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from dpb_gym.feedback import (
    CentralCurator,
    GaussianContexts,
    GaussianStatistics,
    PrivateContexts,
    PrivateResponse,
    PrivateStatistics,
    RandomizedResponse,
    VectorPrivateResponse,
    VectorPrivateStatistics,
)
from dpb_gym.problems.delay import Arrivals, Delay

DELAY = "geometric=4,lost=0.1"
ENVS = {
    "DPB/Assortment-v0": {"n_items": 8, "capacity": 3, "dim": 3},
    "DPB/Pricing-v0": {},
    "DPB/Recommendation-v0": {"dim": 4},
    "DPB/MovieLensReplay-v0": {"dim": 4, "protocol": "replay"},
}
CURRENT = ("t", "expected_reward", "oracle_reward", "regret")


def rollout(env, actions, seed=5):
    env.reset(seed=seed)
    return [env.step(action) for action in actions]


def actions_of(env, count):
    env.action_space.seed(0)
    return [env.action_space.sample() for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ENVS)
def test_feedback_belongs_to_its_origin(env_id):
    horizon = 80
    at_once = gym.make(env_id, horizon=horizon, **ENVS[env_id])
    late = gym.make(env_id, horizon=horizon, delay=DELAY, **ENVS[env_id])
    actions = actions_of(at_once, horizon)
    rollout(late, actions[:30])  # pending responses are dropped by the next reset
    now, then = rollout(at_once, actions), rollout(late, actions)
    arrivals = Arrivals(Delay.parse(DELAY), horizon, [5])
    arrived = 0
    for one, other in zip(now, then):
        arrivals.turn()
        info = other[4]
        assert info["origin"] == arrivals.origin[0] and info["arrived"] == (info["origin"] > 0)
        for key in CURRENT:
            assert info[key] == one[4][key]
        assert (one[0] == other[0]).all() and one[3] == other[3]
        if not info["arrived"]:
            assert other[1] == 0.0 and info.get("choice", -1) == -1
            assert not info.get("demand") and not info.get("observed")
            continue
        arrived += 1
        _, reward, _, _, was = now[info["origin"] - 1]
        assert other[1] == reward
        for key in ("choice", "demand", "observed"):
            assert info.get(key) == was.get(key)
    assert arrived > 50


@pytest.mark.parametrize("env_id", ENVS)
@pytest.mark.filterwarnings("ignore")
def test_the_checker_passes(env_id):
    check_env(gym.make(env_id, horizon=20, delay=DELAY, **ENVS[env_id]).unwrapped)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("env_id", ENVS)
def test_a_lane_equals_a_single_environment(env_id, mode):
    horizon, kwargs = 15, {"delay": DELAY, **ENVS[env_id]}
    lanes = gym.make_vec(env_id, num_envs=2, horizon=horizon, autoreset_mode=mode, **kwargs)
    single = gym.make(env_id, horizon=horizon, **kwargs)
    lanes.reset(seed=8)
    single.reset(seed=9)
    done = False
    for action in actions_of(single, 40):
        _, rewards, _, _, infos = lanes.step(np.stack([action, action]))
        if done and mode is AutoresetMode.NEXT_STEP:
            single.reset()
            assert rewards[1] == 0.0
            done = False
            continue
        if done:
            single.reset()
        _, reward, _, done, info = single.step(action)
        told = infos["final_info"] if done and "final_info" in infos else infos
        assert rewards[1] == reward
        assert {k: told[k][1] for k in info} == info


def exact(env):
    """A mechanism without noise."""
    info = env.unwrapped.problem.info
    return RandomizedResponse(epsilon=60.0, categories=1 + (info.capacity or 1))


@pytest.mark.parametrize("env_id", ["DPB/Assortment-v0", "DPB/Pricing-v0", "DPB/Recommendation-v0"])
def test_private_messages_are_about_the_response_that_arrives(env_id):
    kwargs = {"horizon": 40, "delay": DELAY, **ENVS[env_id]}
    raw, behind = gym.make(env_id, **kwargs), gym.make(env_id, **kwargs)
    if env_id == "DPB/Recommendation-v0":
        raw, behind = (gym.make(env_id, reward="logistic", **kwargs) for _ in range(2))
    private = PrivateResponse(behind, exact(behind))
    lanes = gym.make_vec(env_id, num_envs=2, **kwargs)
    lanes = VectorPrivateResponse(lanes, exact(lanes))
    lanes.reset(seed=4)
    actions = actions_of(raw, 40)
    for one, other in zip(rollout(raw, actions), rollout(private, actions)):
        assert np.isclose(one[1], other[1])
        for key in ("choice", "demand", "arrived", "origin"):
            assert one[4].get(key) == other[4].get(key)
        assert not {"regret", "expected_reward"} & set(other[4])
    for action, other in zip(actions, rollout(private, actions)):
        rewards, infos = lanes.step(np.stack([action, action]))[1::3]
        assert rewards[1] == other[1]
        for key in ("choice", "demand", "arrived", "origin"):
            if key in other[4]:
                assert infos[key][1] == other[4][key]


def test_statistics_are_those_of_the_origin():
    kwargs = {"horizon": 40, "delay": DELAY, **ENVS["DPB/Recommendation-v0"]}
    mechanism = GaussianStatistics(1e-9, 4, 0.0, 1.0)
    raw = gym.make("DPB/Recommendation-v0", obs_mode="dict", **kwargs)
    env = PrivateStatistics(gym.make("DPB/Recommendation-v0", **kwargs), mechanism)
    lanes = VectorPrivateStatistics(
        gym.make_vec("DPB/Recommendation-v0", num_envs=1, **kwargs), mechanism
    )
    actions = actions_of(raw, 40)
    observation, _ = raw.reset(seed=5)
    chosen = []
    lanes.reset(seed=5)
    for action, (_, _, _, _, info) in zip(actions, rollout(env, actions)):
        chosen.append(observation["features"][action].astype(float))
        observation, reward, *_ = raw.step(action)
        x = chosen[info["origin"] - 1] if info["arrived"] else np.zeros(4)
        x = x / max(1.0, np.linalg.norm(x))
        assert np.allclose(info["gram"], np.outer(x, x), atol=1e-6)
        assert np.allclose(info["response"], reward * x, atol=1e-6)
        infos = lanes.step(np.array([action]))[4]
        assert (infos["gram"][0] == info["gram"]).all()


def test_a_central_curator_sums_arrived_responses():
    kwargs = {"horizon": 30, "delay": 8, **ENVS["DPB/Recommendation-v0"]}
    env = CentralCurator(gym.make("DPB/Recommendation-v0", **kwargs), "rho=1e12", batch=10)
    raw = gym.make("DPB/Recommendation-v0", obs_mode="dict", **{**kwargs, "delay": None})
    actions = actions_of(raw, 30)
    observation, _ = raw.reset(seed=5)
    told = [info["response"] for *_, info in rollout(env, actions)]
    total = np.zeros(4)
    for t, action in enumerate(actions, start=1):
        x = observation["features"][action].astype(float)
        observation, reward, *_ = raw.step(action)
        total += reward * x / max(1.0, np.linalg.norm(x))
        if (t + 8) % 10 == 0 and t + 8 <= 30:
            assert np.allclose(told[t + 7], total, atol=1e-4)
            total = np.zeros(4)


def test_private_contexts_leave_no_raw_observation_in_info():
    env = gym.make("DPB/Pricing-v0", horizon=20, delay=3)
    env = PrivateContexts(env, GaussianContexts(1.0, 1, env.unwrapped.problem.info.dim - 1))
    for *_, info in rollout(env, actions_of(env, 20)):
        values = [v for v in info.values() if np.ndim(v)]
        assert not values
