"""Learning curves of a user's own model beside those of registered agents."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import AgentError
from dpb_gym.learners import learner

pytestmark = pytest.mark.sb3
PPO = pytest.importorskip("stable_baselines3", reason="needs the [sb3] extra").PPO
SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "policy_kwargs": {"net_arch": [4]}}


def ppo(env: Any) -> Any:
    return PPO("MlpPolicy", env, device="cpu", **SMALL)


def curves(agents: Any, env: str = "DPB/Pricing-v0", **options: Any) -> Any:
    options = {"horizon": 60, "replicates": 3, "checkpoints": "all", "progress": False, **options}
    return dpb_gym.evaluate(env, agents, **options)


def regrets(result: Any, label: str) -> np.ndarray:
    return np.asarray(next(row for row in result.rows if row.agent == label).regret)


def test_a_model_has_a_curve_on_the_same_customers() -> None:
    result = curves({"mine": learner(ppo), "ours": ("one-pass-pricing", "rho=1"), "r": "random"})
    mine = regrets(result, "mine")
    assert mine.shape == (3, 60) and (np.diff(mine, axis=1) >= 0).all()
    alone = regrets(curves({"r": "random"}), "r")
    np.testing.assert_array_equal(regrets(result, "r"), alone)


@pytest.mark.parametrize("env", ["DPB/Recommendation-v0", "DPB/Assortment-v0"])
def test_models_play_other_problems(env: str) -> None:
    assert regrets(curves({"mine": learner(ppo)}, env, replicates=1, horizon=20), "mine").size == 20


def test_a_replicate_does_not_depend_on_its_batch_or_the_callers_generators() -> None:
    whole = regrets(curves({"mine": learner(ppo)}), "mine")
    np.random.seed(5)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    alone = regrets(curves({"mine": learner(ppo)}, replicates=1, seed=1), "mine")
    np.testing.assert_array_equal(alone[0], whole[1])
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert not np.array_equal(whole[0], whole[1])


class Remembering:
    """Model that plays its last reward plus 0.25, rescaled, and stores what it has seen."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self.seen: list[tuple[float, ...]] = []

    def learn(self, total_timesteps: int) -> None:
        observation, _ = self.env.reset()
        reward = 0.0
        for _ in range(total_timesteps):
            action = np.array([0.5 * reward - 0.5])
            self.seen.append((*observation, float(action[0])))
            observation, reward, *_ = self.env.step(action)


def test_a_model_gets_each_customer_and_the_response_to_its_own_action() -> None:
    """The agent below plays the same prices without a thread."""
    models: list[Remembering] = []

    def make(env: Any) -> Remembering:
        models.append(Remembering(env))
        return models[-1]

    class Same(dpb_gym.SingleAgent):
        def begin(self) -> None:
            self.reward = 0.0

        def act(self, context: Any) -> float:
            return 0.25 + 0.25 * self.reward

        def observe(self, context: Any, action: Any, feedback: Any) -> None:
            self.reward = feedback.reward

    result = curves({"mine": learner(make), "same": Same})
    np.testing.assert_allclose(regrets(result, "mine"), regrets(result, "same"), rtol=1e-6)
    assert [len(model.seen) for model in models] == [60, 60, 60]


def test_threads_end_with_the_run() -> None:
    before = threading.active_count()
    curves({"mine": learner(ppo)}, horizon=20)
    for thread in threading.enumerate():
        if thread.daemon and thread.name.endswith("(_learn)"):
            thread.join(5)
    assert threading.active_count() <= before


def test_an_error_of_the_model_names_it() -> None:
    def broken(env: Any) -> Any:
        raise ZeroDivisionError("bug")

    with pytest.raises(AgentError, match=r"learn\(\) of the model failed: ZeroDivisionError: bug"):
        curves({"mine": learner(broken)})


def test_late_responses_are_refused() -> None:
    with pytest.raises(AgentError, match="needs a response in every round"):
        curves({"mine": learner(ppo)}, env_kwargs={"delay": "fixed=3"})
