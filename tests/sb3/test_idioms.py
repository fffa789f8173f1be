"""The quick start of Stable-Baselines3 runs on every id without warnings."""

from __future__ import annotations

import warnings

import pytest

from dpb_gym.envs.registration import ENVIRONMENTS

pytestmark = pytest.mark.sb3
pytest.importorskip("stable_baselines3", reason="needs the [sb3] extra")

from stable_baselines3 import A2C, PPO  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.logger import KVWriter, Logger  # noqa: E402

from dpb_gym.envs.sb3 import make_sb3_vec  # noqa: E402

IDS = sorted(e for e in ENVIRONMENTS if e.startswith("DPB/"))
QUICK = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("env_id", IDS)
def test_the_id_alone_is_enough(env_id):
    model = PPO("MlpPolicy", env_id, **QUICK)
    model.learn(16)
    env = model.get_env()
    observation = env.reset()
    action, _ = model.predict(observation, deterministic=True)
    env.step(action)
    assert env.render("rgb_array").shape[2] == 3


class Printed(KVWriter):
    """Collect the values that Stable-Baselines3 prints."""

    def __init__(self):
        self.values = {}

    def write(self, key_values, key_excluded, step=0):
        self.values.update(key_values)

    def close(self):
        pass


@pytest.mark.parametrize("env_id", IDS)
def test_vectorised_training_reports_episode_rewards(env_id):
    short = {"horizon": 8}
    make_vec_env(env_id, n_envs=4).close()
    ours = make_sb3_vec(env_id, 4, **short)
    theirs = make_vec_env(env_id, n_envs=4, env_kwargs=short)
    for venv in (ours, theirs):
        model = A2C("MlpPolicy", venv, n_steps=8)
        printed = Printed()
        model.set_logger(Logger(None, [printed]))
        model.learn(64, log_interval=1)
        rewards = [info["r"] for info in model.ep_info_buffer]
        assert printed.values["rollout/ep_rew_mean"] == pytest.approx(sum(rewards) / len(rewards))
        assert len(model.ep_info_buffer) == 8
        assert {info["l"] for info in model.ep_info_buffer} == {8}
        mean, _ = evaluate_policy(model, venv, n_eval_episodes=4)
        assert mean >= 0.0
        venv.close()
