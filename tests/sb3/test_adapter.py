"""Vector environments for Stable-Baselines3: equality with single ones, and rescaled actions."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dpb_gym  # noqa: F401
from dpb_gym.errors import ActionError, MissingExtraError, ParameterError, UnknownNameError
from dpb_gym.feedback import PrivateResponse, RandomizedResponse

pytestmark = pytest.mark.sb3
pytest.importorskip("stable_baselines3", reason="needs the [sb3] extra")

from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv  # noqa: E402

from dpb_gym.envs.sb3 import SB3VecEnv, make_sb3_vec  # noqa: E402


def test_ppo_learns_the_same_through_both() -> None:
    kwargs = {"horizon": 20, "dim": 3, "n_arms": 6}
    arguments = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "seed": 3, "device": "cpu"}
    adapter = make_sb3_vec("DPB/Recommendation-v0", 2, **kwargs)
    singles = DummyVecEnv([lambda: gymnasium.make("DPB/Recommendation-v0", **kwargs)] * 2)
    ours = PPO("MlpPolicy", adapter, **arguments).learn(96)
    theirs = PPO("MlpPolicy", singles, **arguments).learn(96)
    for one, other in zip(ours.policy.parameters(), theirs.policy.parameters()):
        np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())


def test_horizon_is_a_truncation_with_the_last_observation() -> None:
    adapter = make_sb3_vec("DPB/Pricing-v0", 2, horizon=3).venv
    adapter.seed(0)
    adapter.reset()
    action = np.zeros((2, 1), np.float32)
    for t in (1, 2):
        _, _, dones, infos = adapter.step(action)
        assert not dones.any()
        assert all("terminal_observation" not in info and info["t"] == t for info in infos)
    last, _, dones, infos = adapter.step(action)
    assert dones.all()
    for info, fresh, start in zip(infos, last, adapter.reset_infos):
        assert info["TimeLimit.truncated"] is True
        assert info["t"] == 3
        assert info["terminal_observation"].shape == (2,)
        assert not np.array_equal(info["terminal_observation"], fresh)
        assert start["t"] == 0 and start.keys() == info.keys() - {
            "TimeLimit.truncated",
            "terminal_observation",
        }


def test_private_environments() -> None:
    def make() -> gymnasium.Env[Any, Any]:
        env = gymnasium.make("DPB/Pricing-v0", horizon=5)
        return PrivateResponse(env, RandomizedResponse(epsilon=1.0))

    adapter = SB3VecEnv([make] * 2)
    assert adapter.action_space.low == -1.0
    adapter.reset()
    infos = adapter.step(np.zeros((2, 1), np.float32))[3]
    assert "demand" in infos[0] and "regret" not in infos[0]
    assert len(adapter.get_attr("guarantee")) == 2


def test_infos_are_fresh_and_independent() -> None:
    adapter = make_sb3_vec("DPB/Pricing-v0", 2, horizon=9)
    adapter.reset()
    action = np.zeros((2, 1), np.float32)
    first = adapter.step(action)[3]
    assert first[0] is not first[1]
    first[0].clear()
    first[1]["regret"] = "overwritten"
    second = adapter.step(action)[3]
    assert set(second[0]) == set(second[1]) > {"t", "regret"}
    assert second[0]["t"] == 2
    assert all(type(value) in (int, float, bool) for value in second[1].values())


def test_seeds_are_used_once_and_name_the_replicate() -> None:
    adapter = make_sb3_vec("DPB/Recommendation-v0", 3, horizon=5, dim=2).venv
    assert adapter.seed(7) == [7, 8, 9]
    first = adapter.reset()
    for lane, seed in enumerate((7, 8, 9)):
        single = gymnasium.make("DPB/Recommendation-v0", horizon=5, dim=2)
        np.testing.assert_array_equal(first[lane], single.reset(seed=seed)[0])
        np.testing.assert_array_equal(adapter.reset_infos[lane]["t"], 0)
    assert not np.array_equal(first, adapter.reset())
    adapter.seed(7)
    np.testing.assert_array_equal(first, adapter.reset())


class TestRescaling:
    def test_spaces(self) -> None:
        symmetric = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        unit = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
        assert make_sb3_vec("DPB/Pricing-v0").action_space == symmetric
        assert make_sb3_vec("DPB/Pricing-v0", rescale_actions=False).action_space == unit
        grid = make_sb3_vec("DPB/Pricing-v0", n_prices=4)
        assert grid.action_space == gymnasium.spaces.Discrete(4)
        scores = make_sb3_vec("DPB/Assortment-v0", n_items=4, capacity=2, action_mode="scores")
        assert scores.action_space == gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)

    @settings(max_examples=50, deadline=None)
    @given(arrays(np.float32, (3, 1), elements=st.floats(-1, 1, width=32)))
    def test_is_the_linear_map(self, actions: np.ndarray) -> None:
        """The expected revenue at action a is that of the price (a + 1) / 2."""
        ours = make_sb3_vec("DPB/Pricing-v0", 3, horizon=4)
        plain = make_sb3_vec("DPB/Pricing-v0", 3, horizon=4, rescale_actions=False)
        prices = ((actions.astype(np.float64) + 1.0) / 2.0).astype(np.float32)
        outcomes = []
        for adapter, chosen in ((ours, actions), (plain, prices)):
            adapter.seed(1)
            adapter.reset()
            outcomes.append([info["expected_reward"] for info in adapter.step(chosen)[3]])
        np.testing.assert_allclose(outcomes[0], outcomes[1], rtol=1e-6, atol=1e-9)

    def test_untrained_policy_rarely_gives_the_product_away(self) -> None:
        shares = {}
        for rescale in (True, False):
            adapter = make_sb3_vec("DPB/Pricing-v0", 50, horizon=100, rescale_actions=rescale)
            model = PPO("MlpPolicy", adapter, n_steps=8, batch_size=8, seed=0, device="cpu")
            actions = model.predict(adapter.reset())[0]
            shares[rescale] = np.mean(actions <= adapter.action_space.low)
        assert shares[False] > 0.35
        assert shares[True] < 0.3

    @pytest.mark.parametrize(
        "actions",
        [
            np.full((2, 1), np.nan, np.float32),
            np.array([[0.0], [1.5]], np.float32),
            np.array([[0.0], [-np.inf]], np.float32),
            np.zeros(2, np.float32),
            np.zeros((3, 1), np.float32),
            np.array([["a"], ["b"]]),
        ],
    )
    def test_bad_actions(self, actions: np.ndarray) -> None:
        adapter = make_sb3_vec("DPB/Pricing-v0", 2, horizon=5)
        adapter.reset()
        with pytest.raises(ActionError, match="actions must"):
            adapter.step(actions)

    def test_bad_discrete_actions_reach_the_environment(self) -> None:
        adapter = make_sb3_vec("DPB/Recommendation-v0", 2, horizon=5)
        adapter.reset()
        for actions in (np.array([0, 99]), np.array([0.5, 1.0]), np.array([0.0, np.nan])):
            with pytest.raises(ActionError), np.errstate(invalid="ignore"):
                adapter.step(actions)


def test_monitor_and_evaluation() -> None:
    adapter = make_sb3_vec("DPB/Pricing-v0", 2, horizon=6)
    model = PPO("MlpPolicy", adapter, n_steps=8, batch_size=8, n_epochs=1, seed=0, device="cpu")
    model.learn(32)
    assert [episode["l"] for episode in model.ep_info_buffer] == [6] * 4
    rewards, lengths = evaluate_policy(
        model, adapter, n_eval_episodes=4, return_episode_rewards=True
    )
    assert lengths == [6] * 4
    assert all(0.0 <= reward <= 6.0 for reward in rewards)


def test_rejects_vector_environments() -> None:
    with pytest.raises(ParameterError, match="VectorEnv"):
        SB3VecEnv(gymnasium.make_vec("DPB/Pricing-v0", num_envs=2))  # type: ignore[arg-type]


def test_bad_names_and_parameters() -> None:
    with pytest.raises(UnknownNameError, match="DPB/Pricing-v0"):
        make_sb3_vec("DPB/Pricin-v0")
    with pytest.raises(ParameterError, match="num_envs"):
        make_sb3_vec("DPB/Pricing-v0", 0)
    with pytest.raises(ParameterError, match="no_such"):
        make_sb3_vec("DPB/Pricing-v0", no_such=1)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dpb_gym.envs.sb3")
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    with pytest.raises(MissingExtraError, match=r"pip install dpb-gym\[sb3\]"):
        importlib.import_module("dpb_gym.envs.sb3")
