"""The harness agents ``sb3-dqn`` and ``sb3-sac``."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym import agent_spec, make_agent, make_problem
from dpb_gym.errors import AgentError, MissingExtraError, ParameterError
from dpb_gym.problems.base import Feedback
from dpb_gym.registry import check_supported
from dpb_gym.streams import AgentStreams, Stream, generator

pytestmark = pytest.mark.sb3
torch = pytest.importorskip("torch", reason="needs the [sb3] extra")
pytest.importorskip("stable_baselines3", reason="needs the [sb3] extra")

Play = Callable[..., tuple[np.ndarray, np.ndarray]]

QUICK: dict[str, Any] = {
    "net_arch": (8,),
    "batch_size": 4,
    "learning_starts": 4,
    "train_freq": 3,
    "gradient_steps": 2,
}
PROBLEMS = {
    "dqn, pricing": ("sb3-dqn", "DPB/Pricing-v0", {}),
    "dqn, recommendation": ("sb3-dqn", "DPB/Recommendation-v0", {"dim": 3, "n_arms": 9}),
    "dqn, replay": ("sb3-dqn", "DPB/MovieLensReplay-v0", {"dim": 4, "protocol": "replay"}),
    "sac": ("sb3-sac", "DPB/Pricing-v0", {}),
    "sac, gaussian": ("sb3-sac", "DPB/Pricing-v0", {"demand": "gaussian"}),
}


def learners(agent: Any) -> list[Any]:
    return list(agent._learners)


@pytest.mark.parametrize(
    ("name", "supports"),
    [("sb3-dqn", {"pricing", "recommendation"}), ("sb3-sac", {"pricing"})],
)
class TestRegistration:
    def test_spec(self, name: str, supports: set[str]) -> None:
        spec = agent_spec(name)
        assert set(spec.supports) == supports
        assert spec.budget == "never"
        assert not spec.uses_oracle

    def test_assortments_are_refused(self, name: str, supports: set[str]) -> None:
        with pytest.raises(AgentError, match="assortment"):
            check_supported(agent_spec(name), make_problem("DPB/Assortment-v0").info, None)

    def test_loads_without_torch(self, name: str, supports: set[str]) -> None:
        code = (
            f"import sys, dpb_gym; dpb_gym.make_agent('{name}');"
            "print([m for m in ('torch', 'stable_baselines3') if m in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"

    def test_missing_extra_is_named(
        self, name: str, supports: set[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "stable_baselines3", None)
        with pytest.raises(MissingExtraError, match=name):
            make_agent(name).set_up(make_problem("DPB/Pricing-v0").info, AgentStreams([0]))


@pytest.mark.parametrize(
    ("name", "params", "named"),
    [
        ("sb3-dqn", {"learning_rate": 0.0}, "learning_rate"),
        ("sb3-dqn", {"net_arch": "64"}, "net_arch"),
        ("sb3-dqn", {"gamma": -0.1}, "gamma"),
        ("sb3-dqn", {"buffer_size": 0}, "buffer_size"),
        ("sb3-dqn", {"batch_size": 1.5}, "batch_size"),
        ("sb3-dqn", {"learning_starts": 0}, "learning_starts"),
        ("sb3-dqn", {"train_freq": 0}, "train_freq"),
        ("sb3-dqn", {"gradient_steps": 0}, "gradient_steps"),
        ("sb3-dqn", {"exploration": 0.0}, "exploration"),
        ("sb3-dqn", {"final_epsilon": 1.1}, "final_epsilon"),
        ("sb3-dqn", {"n_prices": 1}, "n_prices"),
        ("sb3-sac", {"entropy": 0.0}, "entropy"),
        ("sb3-sac", {"target_entropy": float("nan")}, "target_entropy"),
        ("sb3-sac", {"n_prices": 5}, "no parameter 'n_prices'"),
    ],
)
def test_bad_parameters(name: str, params: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        make_agent(name, **params)


class TestBitExactness:
    @pytest.mark.parametrize("problem", PROBLEMS)
    @settings(max_examples=3, deadline=None)
    @given(
        seeds=st.lists(st.integers(0, 2**40), min_size=2, max_size=4, unique=True),
        chosen=st.integers(0, 3),
    )
    def test_replicate_does_not_depend_on_its_batch(
        self, play: Play, problem: str, seeds: list[int], chosen: int
    ) -> None:
        name, env_id, kwargs = PROBLEMS[problem]
        lane = chosen % len(seeds)
        batch, regret = play(make_agent(name, **QUICK), env_id, seeds, 28, **kwargs)
        alone, lonely = play(make_agent(name, **QUICK), env_id, [seeds[lane]], 28, **kwargs)
        np.testing.assert_array_equal(batch[:, lane], alone[:, 0])
        np.testing.assert_array_equal(regret[:, lane], lonely[:, 0])

    @pytest.mark.parametrize("problem", PROBLEMS)
    def test_global_state_is_left_as_found(self, problem: str) -> None:
        name, env_id, kwargs = PROBLEMS[problem]
        made = make_problem(env_id, horizon=40, **kwargs)
        instance = made.instance([1, 2])
        agent = make_agent(name, **QUICK)

        def state() -> list[Any]:
            kind, keys, *rest = np.random.get_state()  # noqa: NPY002
            return [
                random.getstate(),
                (kind, keys.tolist(), *rest),
                torch.get_rng_state().tolist(),
                torch.get_num_threads(),
            ]

        torch.set_num_threads(2)
        try:
            found = state()
            agent.set_up(made.info, AgentStreams([1, 2]))
            for t in range(20):
                if t:
                    instance.advance()
                context = instance.context()
                action = agent.act(context)
                agent.observe(context, action, instance.respond(action).feedback)
                assert state() == found
        finally:
            torch.set_num_threads(1)

    def test_begin_starts_afresh(self, play: Play) -> None:
        for problem in ("dqn, recommendation", "sac"):
            name, env_id, kwargs = PROBLEMS[problem]
            agent = make_agent(name, **QUICK)
            first, _ = play(agent, env_id, [3], 30, **kwargs)
            second, _ = play(agent, env_id, [3], 30, **kwargs)
            np.testing.assert_array_equal(first, second)


class TestLearning:
    @pytest.mark.parametrize(
        ("name", "env_id", "kwargs"),
        [
            ("sb3-dqn", "DPB/Pricing-v0", {"dim": 2, "theta": [2.0, 1.5]}),
            ("sb3-sac", "DPB/Pricing-v0", {"dim": 2, "theta": [2.0, 1.5]}),
            (
                "sb3-dqn",
                "DPB/Recommendation-v0",
                {"dim": 2, "n_arms": 20, "n_candidates": 3, "theta": [3.0, -2.0]},
            ),
        ],
    )
    def test_beats_random(self, play: Play, name: str, env_id: str, kwargs: dict[str, Any]) -> None:
        """Paired over 6 replicates, learning included; at the end much better than random."""
        seeds = range(100, 106)
        _, ours = play(make_agent(name), env_id, seeds, 800, **kwargs)
        _, theirs = play(make_agent("random"), env_id, seeds, 800, **kwargs)
        gain = (theirs - ours).mean(axis=0)
        assert gain.mean() / (gain.std(ddof=1) / np.sqrt(len(gain))) > 4.0
        assert ours[-200:].mean() < 0.5 * theirs[-200:].mean()

    @pytest.mark.parametrize("name", ["sb3-dqn", "sb3-sac"])
    def test_a_round_is_remembered_with_the_context_that_follows(self, name: str) -> None:
        problem = make_problem("DPB/Pricing-v0", horizon=50)
        instance = problem.instance([5])
        agent = make_agent(name, **QUICK)
        agent.set_up(problem.info, AgentStreams([5]))
        contexts, rewards = [], []
        for t in range(9):
            if t:
                instance.advance()
            context = instance.context()
            action = agent.act(context)
            feedback = instance.respond(action).feedback
            agent.observe(context, action, feedback)
            contexts.append(context.features[0].copy())
            rewards.append(np.float32(feedback.reward[0]))
        buffer = learners(agent)[0].model.replay_buffer
        assert buffer.size() == 8
        np.testing.assert_array_equal(buffer.observations[:8, 0], contexts[:8])
        np.testing.assert_array_equal(buffer.next_observations[:8, 0], contexts[1:])
        np.testing.assert_array_equal(buffer.rewards[:8, 0], rewards[:8])
        assert not buffer.dones[:8].any()

    def test_rounds_without_feedback_are_left_out(self) -> None:
        problem = make_problem("DPB/Recommendation-v0", horizon=50, dim=3)
        instance = problem.instance([1, 2])
        agent = make_agent("sb3-dqn", **QUICK)
        agent.set_up(problem.info, AgentStreams([1, 2]))
        for t in range(6):
            context = instance.context()
            action = agent.act(context)
            observed = np.array([True, t % 2 == 0])
            agent.observe(context, action, Feedback(np.full(2, float(t)), observed=observed))
            instance.advance()
        buffers = [learner.model.replay_buffer for learner in learners(agent)]
        assert [b.size() for b in buffers] == [5, 3]
        np.testing.assert_array_equal(buffers[1].rewards[:3, 0], [0.0, 2.0, 4.0])

    @pytest.mark.parametrize("name", ["sb3-dqn", "sb3-sac"])
    def test_trains_on_time(self, play: Play, name: str) -> None:
        """Rounds 6, 9, ..., 30 of the 31 remembered, two steps each."""
        agent = make_agent(name, **QUICK)
        play(agent, "DPB/Pricing-v0", [0, 1], 32)
        assert [learner.model._n_updates for learner in learners(agent)] == [18, 18]

    def test_prices_lie_on_the_grid_and_sac_prices_in_the_interval(self, play: Play) -> None:
        prices, _ = play(make_agent("sb3-dqn", n_prices=5, **QUICK), "DPB/Pricing-v0", [0, 1], 40)
        assert set(np.unique(prices)) <= {0.0, 0.25, 0.5, 0.75, 1.0}
        prices, _ = play(make_agent("sb3-sac", **QUICK), "DPB/Pricing-v0", [0, 1], 40)
        assert ((prices >= 0.0) & (prices <= 1.0)).all() and len(np.unique(prices)) == 80

    def test_epsilon_falls_to_its_end(self, play: Play) -> None:
        agent = make_agent("sb3-dqn", exploration=0.5, final_epsilon=0.125, **QUICK)
        play(agent, "DPB/Pricing-v0", [0], 41)
        assert learners(agent)[0].model.exploration_rate == pytest.approx(0.125)
        play(agent, "DPB/Pricing-v0", [0], 11)  # 10 of 11 rounds: past the half
        assert learners(agent)[0].model.exploration_rate == pytest.approx(0.125)

    def test_values_do_not_depend_on_the_candidates_place(self) -> None:
        problem = make_problem("DPB/Recommendation-v0", horizon=9, dim=3, n_candidates=5)
        agent = make_agent("sb3-dqn", **QUICK)
        agent.set_up(problem.info, AgentStreams([1]))
        network = learners(agent)[0].model.q_net
        features = generator(5, Stream.FEATURES).standard_normal((1, 5, 3))
        order = [3, 1, 4, 0, 2]
        with torch.no_grad():
            plain = network(torch.tensor(features.reshape(1, -1)).float())
            moved = network(torch.tensor(features[:, order].reshape(1, -1)).float())
        torch.testing.assert_close(plain[:, order], moved)
        assert plain.unique().numel() == 5
