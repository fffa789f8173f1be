"""Every environment under every condition: Gymnasium's checker, and agents that play."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import RecordConstructorArgs
from gymnasium.utils.env_checker import check_env

import dpb_gym
from dpb_gym.envs.registration import ENVIRONMENTS, environment
from dpb_gym.errors import ParameterError

CONDITIONS = [
    {"drift": "walk"},
    {"drift": "abrupt,changes=2,angle=1"},
    {"drift": "seasonal,period=9"},
    {"available": 0.5},
    {"stock": 3},
    {"types": "2,spread=0.5"},
    {"contamination": 0.2},
    {"features": "correlated"},
    {"features": "heavy-tailed"},
    {"features": "scaled"},
    {"intercept": -0.5},
    {"delay": "geometric=3,lost=0.1"},
    {"unknown_horizon": True},
    {"returning": 5},
    {"contexts": "switched"},
    {"customers": "sorted"},
    {"choice": "nested"},
    {"demand": "exponential"},
    {"exactly": True, "revenues": "signed"},
]
SMALL = {"horizon": 8, "n_items": 4, "capacity": 2, "n_arms": 12}
IDS = sorted(e for e in ENVIRONMENTS if e.startswith("DPB/"))
PAIRS = {
    "DPB/Assortment-v0": [("one-pass-mnl", "rho=1"), ("ucb-mnl", None)],
    "DPB/Pricing-v0": [("one-pass-pricing", "rho=1"), ("glm-ucb-pricing", None)],
    "DPB/Recommendation-v0": [("one-pass-linear", "rho=1"), ("lin-ucb", None)],
}


class KeepsToTheOffer(gym.Wrapper, RecordConstructorArgs):
    """Replace unavailable items by available ones."""

    def __init__(self, env):
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        self.offer = info.get("available")
        return observation, info

    def step(self, action):
        if self.offer is not None:
            if np.asarray(action).dtype.kind == "f":  # scores and prices of all items
                action = action.copy()
                action[0, ~self.offer] = -1.0
            else:
                action = np.where(self.offer[action], action, int(self.offer.argmax()))
        observation, *rest, info = self.env.step(action)
        self.offer = info.get("available")
        return observation, *rest, info


def given(env_id, condition):
    """Return arguments of a small environment, None where the condition does not apply."""
    known = environment(env_id).parameters
    if not set(condition) <= set(known):
        return None
    wide = {k: v for k, v in SMALL.items() if k in known}
    if "contexts" in condition and "fresh" in known:
        wide["design"] = "sphere"
        wide.pop("n_arms", None)
    return {**wide, **condition}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_the_checker_passes_on_every_id(condition):
    passed = []
    for env_id in IDS:
        kwargs = given(env_id, condition)
        if kwargs is None:
            continue
        try:
            env = gym.make(env_id, disable_env_checker=True, **kwargs).unwrapped
        except ParameterError as error:
            assert len(str(error)) > 20  # a reason
            continue
        check_env(KeepsToTheOffer(env) if "available" in condition else env, skip_render_check=True)
        passed.append(env_id)
    assert passed


@pytest.mark.parametrize("env_id", PAIRS)
def test_private_and_non_private_agents_play_under_every_condition(env_id):
    played = [(c, kwargs) for c in CONDITIONS if (kwargs := given(env_id, c)) is not None]
    assert len(played) >= 13
    for condition, kwargs in played:
        T = kwargs.pop("horizon")
        agents = {f"{name} {budget}": (name, budget) for name, budget in PAIRS[env_id]}
        result = dpb_gym.evaluate(
            env_id, agents=agents, horizon=T, replicates=2, env_kwargs=kwargs, progress=False
        )
        assert not result.failures and len(result.rows) == 2, condition
        vector = gym.make_vec(env_id, 2, horizon=T, **kwargs)
        _, infos = vector.reset(seed=0)
        actions = vector.action_space.sample()
        if "available" in infos:
            first = infos["available"].argmax(axis=1)
            actions = np.broadcast_to(first.reshape(2, *[1] * (actions.ndim - 1)), actions.shape)
        _, rewards, *_ = vector.step(actions)
        assert np.isfinite(rewards).all()
