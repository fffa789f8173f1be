"""Trained models of Stable-Baselines3 as agents."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import dpb_gym
from dpb_gym.predictors import PredictorMaker

pytestmark = pytest.mark.sb3
pytest.importorskip("stable_baselines3", reason="needs the [sb3] extra")

from stable_baselines3 import PPO  # noqa: E402


def test_evaluate_plays_a_trained_model_as_its_environment_does() -> None:
    env = gymnasium.make("DPB/Pricing-v0", horizon=30)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, seed=1, device="cpu").learn(32)
    result = dpb_gym.evaluate("DPB/Pricing-v0", {"ppo": model}, 30, 2, progress=False)
    expected = []
    for seed in range(2):
        observation, _ = env.reset(seed=seed)
        total = 0.0
        for _ in range(30):
            action, _ = model.predict(observation, deterministic=True)
            observation, _, _, _, info = env.step(action)
            total += info["regret"]
        expected.append(total)
    np.testing.assert_allclose(result.final_regret("ppo"), expected, rtol=1e-6)
    before = PredictorMaker(model).version
    assert PredictorMaker(model).version == before
    model.learn(32)
    assert PredictorMaker(model).version != before
