"""Stable-Baselines3's own algorithms train on every environment."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest

import dpb_gym  # noqa: F401

pytestmark = pytest.mark.sb3
pytest.importorskip("stable_baselines3", reason="needs the [sb3] extra")

from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3  # noqa: E402
from stable_baselines3.common.env_checker import check_env  # noqa: E402

from dpb_gym.envs.sb3 import make_sb3_vec  # noqa: E402

STEPS = 96
ON_POLICY: dict[str, Any] = {"n_steps": 16}
OFF_POLICY: dict[str, Any] = {
    "buffer_size": 200,
    "learning_starts": 32,
    "batch_size": 16,
    "train_freq": 8,
    "gradient_steps": 2,
}
ARGUMENTS = {
    PPO: {**ON_POLICY, "batch_size": 16, "n_epochs": 2},
    A2C: ON_POLICY,
    DQN: OFF_POLICY,
    SAC: OFF_POLICY,
    TD3: OFF_POLICY,
    DDPG: OFF_POLICY,
}
SMALL_ASSORTMENT = {"n_items": 6, "capacity": 2, "dim": 2}

CASES = [
    (PPO, "DPB/Assortment-v0", {}),
    (PPO, "DPB/Assortment-v0", {"action_mode": "scores"}),
    (PPO, "DPB/Assortment-v0", {"action_mode": "index", **SMALL_ASSORTMENT}),
    (DQN, "DPB/Assortment-v0", {"action_mode": "index", **SMALL_ASSORTMENT}),
    (TD3, "DPB/Assortment-v0", {"action_mode": "scores", **SMALL_ASSORTMENT}),
    (PPO, "DPB/Pricing-v0", {}),
    (PPO, "DPB/Pricing-v0", {"n_prices": 4, "demand": "gaussian"}),
    (DQN, "DPB/Pricing-v0", {"n_prices": 4}),
    (SAC, "DPB/Pricing-v0", {}),
    (DDPG, "DPB/Pricing-v0", {}),
    (PPO, "DPB/Recommendation-v0", {}),
    (A2C, "DPB/Recommendation-v0", {}),
    (DQN, "DPB/Recommendation-v0", {}),
    (PPO, "DPB/MovieLensReplay-v0", {"dim": 8}),
    (DQN, "DPB/MovieLensReplay-v0", {"dim": 8}),
    (PPO, "DPB/JesterReplay-v0", {"dim": 8}),
    (DQN, "DPB/JesterReplay-v0", {"dim": 8}),
    (PPO, "DPB/Assortment-v0", {"obs_mode": "dict", **SMALL_ASSORTMENT}),
    (PPO, "DPB/Pricing-v0", {"obs_mode": "dict"}),
    (SAC, "DPB/Pricing-v0", {"obs_mode": "dict"}),
    (PPO, "DPB/Recommendation-v0", {"obs_mode": "dict", "users_per_horizon": 4}),
    (DQN, "DPB/Recommendation-v0", {"obs_mode": "dict"}),
    (DQN, "DPB/MovieLensReplay-v0", {"obs_mode": "dict", "dim": 8}),
]


def label(value: Any) -> str:
    if isinstance(value, dict):
        return "-".join(str(v) for v in value.values()) or "default"
    return getattr(value, "__name__", str(value))


def single(env_id: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make(env_id, **kwargs)
    if isinstance(env.action_space, gymnasium.spaces.Box):
        env = gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
    return env


@pytest.mark.parametrize("route", ["make", "adapter"])
@pytest.mark.parametrize(("algorithm", "env_id", "kwargs"), CASES, ids=label)
def test_trains(algorithm: Any, env_id: str, kwargs: dict[str, Any], route: str) -> None:
    horizon = 20
    if route == "make":
        env: Any = gymnasium.make(env_id, horizon=horizon, **kwargs)
    else:
        env = make_sb3_vec(env_id, 2, horizon=horizon, **kwargs)
    policy = "MultiInputPolicy" if kwargs.get("obs_mode") == "dict" else "MlpPolicy"
    model = algorithm(
        policy,
        env,
        gamma=0.0,
        seed=0,
        device="cpu",
        policy_kwargs={"net_arch": [8]},
        **ARGUMENTS[algorithm],
    )
    before = [p.detach().clone().numpy() for p in model.policy.parameters()]
    model.learn(STEPS)
    after = [p.detach().numpy() for p in model.policy.parameters()]
    assert model.num_timesteps >= STEPS
    assert all(np.isfinite(p).all() for p in after)
    assert any((p != q).any() for p, q in zip(before, after))
    lanes = 1 if route == "make" else 2
    assert len(model.ep_info_buffer) == lanes * (STEPS // lanes // horizon)
    venv = model.get_env()
    actions, _ = model.predict(venv.reset(), deterministic=True)
    for action in actions:
        assert venv.action_space.contains(action)
    _, rewards, _, _ = venv.step(actions)
    assert np.isfinite(rewards).all()


def test_ppo_on_masks_through_the_adapter() -> None:
    """A Bernoulli policy gives its bits as floats."""
    env = make_sb3_vec("DPB/Assortment-v0", 2, horizon=20, action_mode="mask", **SMALL_ASSORTMENT)
    model = PPO("MlpPolicy", env, seed=0, device="cpu", **ARGUMENTS[PPO]).learn(STEPS)
    assert model.num_timesteps == STEPS


CHECKED = [
    ("DPB/Assortment-v0", {}),
    ("DPB/Assortment-v0", {"revenues": "random", "context_norm": "clip"}),
    ("DPB/Assortment-v0", {"action_mode": "scores"}),
    ("DPB/Assortment-v0", {"action_mode": "mask"}),
    ("DPB/Assortment-v0", {"action_mode": "index", **SMALL_ASSORTMENT}),
    ("DPB/Pricing-v0", {}),
    ("DPB/Pricing-v0", {"obs_mode": "dict"}),
    ("DPB/Pricing-v0", {"n_prices": 10}),
    ("DPB/PricingTwoType-v0", {}),
    ("DPB/Recommendation-v0", {}),
    ("DPB/RecommendationRankDeficient-v0", {}),
    ("DPB/RecommendationHighDim-v0", {}),
    ("DPB/MovieLensReplay-v0", {}),
    ("DPB/JesterReplay-v0", {}),
]


@pytest.mark.parametrize(("env_id", "kwargs"), CHECKED, ids=label)
def test_passes_the_checker_without_warnings(env_id: str, kwargs: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(single(env_id, horizon=30, **kwargs))


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("DPB/Assortment-v0", SMALL_ASSORTMENT),
        ("DPB/Recommendation-v0", {}),
        ("DPB/MovieLensReplay-v0", {}),
    ],
    ids=label,
)
def test_dict_observations_warn_of_their_two_dimensions_only(
    env_id: str, kwargs: dict[str, Any]
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(single(env_id, horizon=30, obs_mode="dict", **kwargs))
    assert ["unconventional shape" in str(w.message) for w in caught] == [True]


LEARNABLE = [
    ("DPB/Pricing-v0", {"dim": 2, "theta": [1.5, 2.0]}),
    (
        "DPB/Recommendation-v0",
        {"dim": 2, "n_arms": 20, "n_candidates": 3, "theta": [3.0, -2.0]},
    ),
    (
        "DPB/Assortment-v0",
        {"n_items": 4, "capacity": 1, "dim": 2, "theta": [2.0, -2.0], "action_mode": "index"},
    ),
]


def mean_regrets(model: PPO | None, env_id: str, kwargs: dict[str, Any]) -> np.ndarray:
    """Mean regret per round on 40 replicates that no training saw; None acts at random."""
    venv = make_sb3_vec(env_id, 40, horizon=100, **kwargs)
    venv.seed(10_000)
    venv.action_space.seed(0)
    observations = venv.reset()
    total = np.zeros(40)
    for _ in range(100):
        if model is None:
            actions = np.array([venv.action_space.sample() for _ in range(40)])
        else:
            actions = model.predict(observations, deterministic=True)[0]
        observations, _, _, infos = venv.step(actions)
        total += [info["regret"] for info in infos]
    return total / 100


@pytest.mark.parametrize(("env_id", "kwargs"), LEARNABLE, ids=label)
def test_ppo_beats_random_and_its_untrained_self(env_id: str, kwargs: dict[str, Any]) -> None:
    model = PPO(
        "MlpPolicy",
        make_sb3_vec(env_id, 16, horizon=200, **kwargs),
        n_steps=32,
        batch_size=128,
        n_epochs=8,
        learning_rate=3e-3,
        gamma=0.0,
        policy_kwargs={"net_arch": [32]},
        seed=0,
        device="cpu",
    )
    untrained = mean_regrets(model, env_id, kwargs)
    trained = mean_regrets(model.learn(16_384), env_id, kwargs)
    at_random = mean_regrets(None, env_id, kwargs)
    for other in (untrained, at_random):
        gain = other - trained
        assert gain.mean() / (gain.std(ddof=1) / np.sqrt(len(gain))) > 6.0
        assert trained.mean() < 0.5 * other.mean()
