"""The harness agent ``sb3-ppo``."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym import agent_spec, make_agent, make_problem
from dpb_gym.errors import AgentError, MissingExtraError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Feedback
from dpb_gym.registry import AgentSpec, check_supported
from dpb_gym.streams import AgentStreams, Stream, generator

pytestmark = pytest.mark.sb3
torch = pytest.importorskip("torch", reason="needs the [sb3] extra")
pytest.importorskip("stable_baselines3", reason="needs the [sb3] extra")

Play = Callable[..., tuple[np.ndarray, np.ndarray]]

PROBLEMS = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 6, "capacity": 2, "dim": 2}),
    "assortment, revenues": (
        "DPB/Assortment-v0",
        {"n_items": 6, "capacity": 3, "dim": 2, "revenues": "random"},
    ),
    "pricing": ("DPB/Pricing-v0", {}),
    "pricing, gaussian": ("DPB/Pricing-v0", {"demand": "gaussian"}),
    "recommendation": ("DPB/Recommendation-v0", {"dim": 3, "n_arms": 9}),
    "replay": ("DPB/MovieLensReplay-v0", {"dim": 4, "protocol": "replay"}),
}
QUICK: dict[str, Any] = {"n_steps": 8, "batch_size": 4, "n_epochs": 2, "net_arch": (8,)}


def policy_of(agent: Any, replicate: int = 0) -> Any:
    return agent._learners[replicate].model.policy


class TestRegistration:
    def test_spec(self) -> None:
        spec = agent_spec("sb3-ppo")
        assert set(spec.supports) == {"assortment", "pricing", "recommendation"}
        assert spec.budget == "never"
        assert not spec.uses_oracle
        assert AgentSpec.from_json(agent_spec("sb3-ppo", net_arch=[4]).to_json()).make()

    def test_takes_no_budget(self) -> None:
        info = make_problem("DPB/Pricing-v0").info
        with pytest.raises(AgentError, match="takes no budget"):
            check_supported(agent_spec("sb3-ppo"), info, Budget.zcdp(1.0))

    def test_is_not_private(self) -> None:
        agent = make_agent("sb3-ppo")
        agent.set_up(make_problem("DPB/Pricing-v0").info, AgentStreams([0]))
        assert agent.curator.guarantee is None

    def test_zoo_loads_without_torch(self) -> None:
        code = (
            "import sys, dpb_gym; dpb_gym.make_agent('sb3-ppo');"
            "print([m for m in ('torch', 'stable_baselines3') if m in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"

    def test_missing_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "stable_baselines3", None)
        agent = make_agent("sb3-ppo")
        with pytest.raises(MissingExtraError, match=r"pip install dpb-gym\[sb3\]"):
            agent.set_up(make_problem("DPB/Pricing-v0").info, AgentStreams([0]))

    @pytest.mark.parametrize(
        ("params", "name"),
        [
            ({"n_steps": 1}, "n_steps"),
            ({"n_steps": 2.5}, "n_steps"),
            ({"batch_size": 1}, "batch_size"),
            ({"n_steps": 16, "batch_size": 17}, "batch_size"),
            ({"learning_rate": 0.0}, "learning_rate"),
            ({"learning_rate": float("nan")}, "learning_rate"),
            ({"net_arch": (0,)}, "net_arch"),
            ({"net_arch": "64"}, "net_arch"),
            ({"net_arch": 64}, "net_arch"),
            ({"n_epochs": 0}, "n_epochs"),
            ({"gamma": 1.5}, "gamma"),
            ({"log_std_init": float("inf")}, "log_std_init"),
            ({"n_step": 5}, "no parameter 'n_step'"),
        ],
    )
    def test_bad_parameters(self, params: dict[str, Any], name: str) -> None:
        with pytest.raises(ParameterError, match=name):
            make_agent("sb3-ppo", **params)

    def test_a_mini_batch_of_one_round_may_be_left_over(self, play: Play) -> None:
        """Its advantage cannot be normalised; the networks must stay finite."""
        agent = make_agent("sb3-ppo", n_steps=5, batch_size=4, n_epochs=2)
        play(agent, "DPB/Pricing-v0", [0], 17)
        assert all(torch.isfinite(p).all() for p in policy_of(agent).parameters())


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
        env_id, kwargs = PROBLEMS[problem]
        lane = chosen % len(seeds)
        batch, regret = play(make_agent("sb3-ppo", **QUICK), env_id, seeds, 28, **kwargs)
        alone, lonely = play(make_agent("sb3-ppo", **QUICK), env_id, [seeds[lane]], 28, **kwargs)
        np.testing.assert_array_equal(batch[:, lane], alone[:, 0])
        np.testing.assert_array_equal(regret[:, lane], lonely[:, 0])

    def test_nor_on_global_state_or_companions(self, play: Play) -> None:
        env_id, kwargs = PROBLEMS["assortment"]
        quiet, _ = play(make_agent("sb3-ppo", **QUICK), env_id, [4, 5], 40, **kwargs)
        agent, companion = (make_agent("sb3-ppo", **QUICK) for _ in range(2))
        problem = make_problem(env_id, horizon=40, **kwargs)
        instance = problem.instance([4, 5])
        torch.set_num_threads(2)
        try:
            for a in (agent, companion):
                a.set_up(problem.info, AgentStreams([4, 5]))
            for t in range(40):
                if t:
                    instance.advance()
                torch.manual_seed(t)
                np.random.seed(t)  # noqa: NPY002
                context = instance.context()
                for a in (companion, agent):
                    action = a.act(context)
                    a.observe(context, action, instance.respond(action).feedback)
                np.testing.assert_array_equal(action, quiet[t])
        finally:
            torch.set_num_threads(1)

    @pytest.mark.parametrize("problem", PROBLEMS)
    def test_global_state_is_left_as_found(self, problem: str) -> None:
        env_id, kwargs = PROBLEMS[problem]
        made = make_problem(env_id, horizon=40, **kwargs)
        instance = made.instance([1, 2])
        agent = make_agent("sb3-ppo", **QUICK)

        def state() -> list[Any]:
            kind, keys, *rest = np.random.get_state()  # noqa: NPY002
            return [
                random.getstate(),
                (kind, keys.tolist(), *rest),
                torch.get_rng_state().tolist(),
                torch.get_num_threads(),
                torch.is_grad_enabled(),
            ]

        torch.set_num_threads(2)
        try:
            found = state()
            agent.set_up(made.info, AgentStreams([1, 2]))
            assert state() == found
            for t in range(20):
                if t:
                    instance.advance()
                context = instance.context()
                with torch.no_grad() if t > 10 else torch.enable_grad():
                    action = agent.act(context)
                agent.observe(context, action, instance.respond(action).feedback)
                assert state() == found
            with pytest.raises((RuntimeError, ValueError)):
                agent.act(context._replace(features=np.zeros((2, 1), np.float32)))
            assert state() == found
        finally:
            torch.set_num_threads(1)

    def test_begin_starts_afresh(self, play: Play) -> None:
        agent = make_agent("sb3-ppo", **QUICK)
        env_id, kwargs = PROBLEMS["recommendation"]
        first, _ = play(agent, env_id, [3], 30, **kwargs)
        second, _ = play(agent, env_id, [3], 30, **kwargs)
        np.testing.assert_array_equal(first, second)

    def test_replicates_differ(self, play: Play) -> None:
        actions, _ = play(make_agent("sb3-ppo", **QUICK), "DPB/Pricing-v0", [1, 2, 3], 10)
        assert len(np.unique(actions[0])) == 3


class TestLearning:
    @pytest.mark.parametrize(
        ("env_id", "kwargs", "horizon"),
        [
            ("DPB/Pricing-v0", {"dim": 2, "theta": [2.0, 1.5]}, 800),
            (
                "DPB/Recommendation-v0",
                {"dim": 2, "n_arms": 20, "n_candidates": 3, "theta": [3.0, -2.0]},
                800,
            ),
            (
                "DPB/Assortment-v0",
                {"n_items": 5, "capacity": 2, "dim": 2, "theta": [2.0, -2.0]},
                800,
            ),
            (
                "DPB/Assortment-v0",
                {"n_items": 6, "capacity": 2, "dim": 1, "theta": [0.2], "revenues": "random"},
                800,
            ),
        ],
    )
    def test_beats_random(
        self, play: Play, env_id: str, kwargs: dict[str, Any], horizon: int
    ) -> None:
        """Paired over 6 replicates, learning included; much better at the end than random
        and than the untrained policy of its first 64 rounds."""
        seeds = range(100, 106)
        _, ours = play(make_agent("sb3-ppo"), env_id, seeds, horizon, **kwargs)
        _, theirs = play(make_agent("random"), env_id, seeds, horizon, **kwargs)
        gain = (theirs - ours).mean(axis=0)
        assert gain.mean() / (gain.std(ddof=1) / np.sqrt(len(gain))) > 4.0
        assert ours[-200:].mean() < 0.5 * theirs[-200:].mean()
        assert ours[-200:].mean() < 0.6 * ours[:64].mean()

    def test_revenue_scale_does_not_matter(self, play: Play) -> None:
        """Rewards are divided by the largest revenue (here a power of two: exactly)."""
        _, kwargs = PROBLEMS["assortment"]
        runs = [
            play(
                make_agent("sb3-ppo", **QUICK),
                "DPB/Assortment-v0",
                [7],
                30,
                **kwargs,
                revenues=[scale * r for r in (1.0, 0.5, 0.25, 1.0, 0.75, 0.5)],
            )[0]
            for scale in (1.0, 1024.0)
        ]
        np.testing.assert_array_equal(*runs)

    @pytest.mark.parametrize("gamma", [0.0, 0.6])
    def test_returns_bootstrap_with_the_next_context(
        self, gamma: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Generalised advantages by their definition, the last value being that of the
        context after the rollout: rounds are never terminal."""
        n, lam = 6, 0.95
        problem = make_problem("DPB/Pricing-v0", horizon=50)
        instance = problem.instance([5])
        agent = make_agent("sb3-ppo", n_steps=n, batch_size=n, n_epochs=1, gamma=gamma)
        agent.set_up(problem.info, AgentStreams([5]))
        model = agent._learners[0].model  # type: ignore[attr-defined]
        seen: list[np.ndarray] = []
        monkeypatch.setattr(
            model, "train", lambda: seen.append(model.rollout_buffer.advantages.copy())
        )
        rewards, values = [], []
        for t in range(n + 1):
            if t:
                instance.advance()
            context = instance.context()
            with torch.no_grad():
                tensor = torch.tensor(context.features)
                values.append(float(model.policy.predict_values(tensor)))
            action = agent.act(context)
            feedback = instance.respond(action).feedback
            agent.observe(context, action, feedback)
            rewards.append(float(feedback.reward[0]))
        deltas = [rewards[s] + gamma * values[s + 1] - values[s] for s in range(n)]
        wanted = [sum((gamma * lam) ** (u - s) * deltas[u] for u in range(s, n)) for s in range(n)]
        assert len(seen) == 1
        np.testing.assert_allclose(seen[0].ravel(), wanted, rtol=1e-5, atol=1e-6)
        assert model.rollout_buffer.pos == 1

    def test_rounds_without_feedback_are_left_out(self) -> None:
        problem = make_problem("DPB/Recommendation-v0", horizon=50, dim=3)
        instance = problem.instance([1, 2])
        agent = make_agent("sb3-ppo", **QUICK)
        agent.set_up(problem.info, AgentStreams([1, 2]))
        for t in range(5):
            context = instance.context()
            action = agent.act(context)
            observed = np.array([True, t % 2 == 0])
            agent.observe(context, action, Feedback(np.full(2, float(t)), observed=observed))
            instance.advance()
        buffers = [
            learner.model.rollout_buffer
            for learner in agent._learners  # type: ignore[attr-defined]
        ]
        assert [b.pos for b in buffers] == [5, 3]
        np.testing.assert_array_equal(buffers[1].rewards[:3, 0], [0.0, 2.0, 4.0])

    def test_prices_are_the_rescaled_gaussian(self) -> None:
        """Without hidden layers or training: price = clip((mean + std z + 1) / 2)."""
        problem = make_problem("DPB/Pricing-v0", horizon=5)
        count = 400
        agent = make_agent("sb3-ppo", net_arch=(), log_std_init=-1.0)
        agent.set_up(problem.info, AgentStreams(range(count)))
        prices = agent.act(problem.instance(range(count)).context())
        assert prices.shape == (count,)
        assert prices.dtype == np.float64
        assert ((prices >= 0.0) & (prices <= 1.0)).all()
        # The means are within 0.02 of 0 (output gain 0.01).
        assert abs(prices.mean() - 0.5) < 4 * 0.5 * np.exp(-1.0) / np.sqrt(count) + 0.01
        assert abs(prices.std() - 0.5 * np.exp(-1.0)) < 0.03

    def test_trains_after_every_n_steps(self, play: Play) -> None:
        """8 rounds a training, 2 epochs each: the policy is updated at rounds 9, 17, 25."""
        agent = make_agent("sb3-ppo", **QUICK)
        play(agent, "DPB/Pricing-v0", [0, 1], 32)
        learners = agent._learners  # type: ignore[attr-defined]
        assert [learner.model._n_updates for learner in learners] == [6, 6]

    def test_slates_hold_distinct_items(self, play: Play) -> None:
        slates, _ = play(make_agent("sb3-ppo", **QUICK), "DPB/Assortment-v0", [0, 1], 20)
        assert slates.shape == (20, 2, 10)
        assert all(len(set(slate)) == 10 for slate in slates.reshape(-1, 10).tolist())


class TestPlackettLuce:
    """The slate distribution against its definition."""

    @staticmethod
    def policy(count: int, places: int, net_arch: Sequence[int] = (8,)) -> Any:
        info = make_problem(
            "DPB/Assortment-v0", horizon=9, n_items=count, capacity=places, dim=2
        ).info
        agent = make_agent("sb3-ppo", net_arch=net_arch)
        agent.set_up(info, AgentStreams([1]))
        policy = policy_of(agent)
        with torch.no_grad():
            policy.action_net.weight.mul_(600.0)  # away from uniform
        return policy

    @staticmethod
    def probability(scores: np.ndarray, slate: Sequence[int]) -> float:
        left, product = list(range(len(scores))), 1.0
        for item in slate:
            product *= np.exp(scores[item]) / np.exp(scores[left]).sum()
            left.remove(item)
        return product

    @pytest.mark.parametrize(("count", "places"), [(4, 1), (4, 2), (5, 3), (3, 3), (1, 1)])
    def test_log_probabilities(self, count: int, places: int) -> None:
        policy = self.policy(count, places)
        observation = torch.tensor(
            generator(0, Stream.FEATURES).standard_normal((1, 2 * count)), dtype=torch.float32
        )
        slates = np.array(list(permutations(range(count), places)))
        distribution = policy.get_distribution(observation)
        scores = distribution.scores.detach().numpy()[0].astype(np.float64)
        repeated = observation.repeat(len(slates), 1)
        _, logs, entropy = policy.evaluate_actions(repeated, torch.tensor(slates).float())
        assert entropy is None
        wanted = [self.probability(scores, slate) for slate in slates.tolist()]
        np.testing.assert_allclose(logs.exp().detach().numpy(), wanted, rtol=2e-5)
        assert sum(wanted) == pytest.approx(1.0)
        best = distribution.get_actions(deterministic=True)[0].tolist()
        assert best == np.argsort(-scores)[:places].tolist()

    def test_samples_follow_them(self) -> None:
        from scipy.stats import chisquare

        policy = self.policy(4, 2)
        features = generator(3, Stream.FEATURES).standard_normal((1, 8))
        observation = torch.tensor(features, dtype=torch.float32).repeat(20_000, 1)
        torch.manual_seed(0)
        with torch.no_grad():
            drawn, _, logs = policy(observation)
        slates = list(permutations(range(4), 2))
        counts = [int((drawn == torch.tensor(s)).all(dim=1).sum()) for s in slates]
        scores = policy.get_distribution(observation[:1]).scores.detach().numpy()[0]
        wanted = np.array([self.probability(scores.astype(np.float64), s) for s in slates])
        assert wanted.max() > 2.0 * wanted.min()
        assert sum(counts) == 20_000
        assert chisquare(counts, 20_000 * wanted / wanted.sum()).pvalue > 1e-3
        _, again, _ = policy.evaluate_actions(observation, drawn)
        np.testing.assert_allclose(again.detach().numpy(), logs.numpy(), rtol=1e-5)

    def test_one_place_is_the_categorical_distribution(self) -> None:
        policy = self.policy(5, 1)
        observation = torch.tensor(generator(4, Stream.FEATURES).standard_normal((7, 10))).float()
        actions = torch.arange(7).remainder(5)
        _, logs, _ = policy.evaluate_actions(observation, actions[:, None])
        scores = policy.get_distribution(observation).scores
        wanted = torch.distributions.Categorical(logits=scores).log_prob(actions)
        torch.testing.assert_close(logs, wanted)

    def test_gradient_of_the_log_probability(self) -> None:
        """By finite differences in double precision."""
        policy = self.policy(4, 3)
        distribution = policy.action_dist
        actions = torch.tensor([[2, 0, 3], [1, 2, 0]])

        def log_probability(scores: Any) -> Any:
            return distribution.proba_distribution(scores.unsqueeze(-1)).log_prob(actions)

        scores = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        assert torch.autograd.gradcheck(log_probability, scores.requires_grad_())

    def test_scores_do_not_depend_on_the_items_place(self) -> None:
        policy = self.policy(6, 2, net_arch=(8, 8))
        features = torch.tensor(generator(5, Stream.FEATURES).standard_normal((1, 6, 2))).float()
        order = torch.tensor([3, 1, 5, 0, 2, 4])
        with torch.no_grad():
            plain = policy.get_distribution(features.reshape(1, -1)).scores
            moved = policy.get_distribution(features[:, order].reshape(1, -1)).scores
            values = [
                policy.predict_values(items.reshape(1, -1))
                for items in (features, features[:, order])
            ]
        torch.testing.assert_close(moved, plain[:, order])
        torch.testing.assert_close(*values)

    def test_items_far_outside_the_usual_range_stay_finite(self) -> None:
        policy = self.policy(4, 2)
        observation = torch.full((1, 8), 1e4)
        with torch.no_grad():
            slate, value, log_probability = policy(observation)
        assert torch.isfinite(value).all()
        assert torch.isfinite(log_probability).all()
        assert isinstance(policy.action_space, gymnasium.spaces.MultiDiscrete)
        assert len(set(slate[0].tolist())) == 2
