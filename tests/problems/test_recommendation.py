"""Recommendation: candidates, rewards, designs, users."""

from __future__ import annotations

import numpy as np
import numpy_kernels
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym import kernels
from dpb_gym.envs.registration import environment, make_problem
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.problems.base import Context, Round
from dpb_gym.problems.recommendation import REWARDS, RecommendationProblem


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30) | st.integers(60, 400), st.integers(0, 2**32 - 1), st.data())
def test_candidates_equal_a_full_shuffle(pool, seed, data):
    m = data.draw(st.integers(1, pool))
    uniforms = np.random.default_rng(seed).random((4, m))
    out = np.empty((4, m), np.int64)
    kernels.candidates.draw_candidates(uniforms, pool, out)
    for row, u in zip(out, uniforms):
        order = list(range(pool))
        for k in range(m):
            j = k + int(u[k] * (pool - k))
            order[k], order[j] = order[j], order[k]
        assert row.tolist() == order[:m]


class Counted(np.ndarray):
    """An array that counts how often a single entry of it is read."""

    reads = 0

    def __getitem__(self, key):
        Counted.reads += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("pool", [3, 5])  # a smaller one is shuffled as a whole
def test_draws_of_candidates_cost_the_same_each(monkeypatch, pool):
    monkeypatch.setattr(kernels.candidates, "_place", kernels.candidates._place.py_func)
    reads = []
    for m in (500, 2000):
        swapped, held = kernels.candidates._table(m)
        Counted.reads = 0
        kernels.candidates._draw_distinct.py_func(
            np.random.default_rng(2).random(m),
            pool * m,
            np.empty(m, np.int64),
            swapped.view(Counted),
            held.view(Counted),
        )
        reads.append(Counted.reads / m)
    assert max(reads) < 12 and reads[1] < 1.3 * reads[0]


def test_candidates_are_uniform():
    out = np.empty((50_000, 2), np.int64)
    kernels.candidates.draw_candidates(np.random.default_rng(1).random((50_000, 2)), 4, out)
    counts = np.unique(out, axis=0, return_counts=True)[1]
    assert len(counts) == 12
    assert ((counts - 50_000 / 12) ** 2 / (50_000 / 12)).sum() < 40  # 11 df, p about 4e-5


def test_without_a_pool_there_may_be_any_number_of_candidates():
    problem = RecommendationProblem(horizon=4, dim=2, n_candidates=150, fresh=True)
    assert problem.instance([0]).context().features.shape == (1, 150, 2)
    with pytest.raises(ParameterError, match=r"n_candidates must be an integer in 1\.\.100"):
        RecommendationProblem(horizon=4, dim=2, n_candidates=150)


@pytest.mark.parametrize("reward", REWARDS)
def test_reward_has_the_stated_mean(reward):
    n = 40_001
    problem = RecommendationProblem(dim=3, reward=reward, noise_std=0.4)
    features = np.tile(np.float32([[[0.6, 0, 0.8], [0, 1, 0]]]), (n, 1, 1))
    theta = np.tile([[1.2, -1.9, 0.4]], (n, 1))
    uniform = (np.arange(n) + 0.5) / n
    for arm in (0, 1):
        round_ = Round(Context(1, features), uniform, {})
        feedback, expected = problem.respond({"theta": theta}, round_, np.full(n, arm))
        score = features[0, arm].astype(float) @ theta[0]
        mean = numpy_kernels.mean_reward(np.array([score]), reward, 0.4)[0]
        assert expected[0] == pytest.approx(mean, rel=1e-10)
        assert feedback.reward.mean() == pytest.approx(mean, abs=1e-4)
        assert feedback.reward.min() >= 0 and feedback.reward.max() <= 1


def test_gaussian_mean_accounts_for_clipping():
    from scipy.integrate import quad
    from scipy.stats import norm

    for score in (-2.0, -0.3, 1.9):
        mean = 0.5 + 0.25 * score
        edges = [-mean / 0.4, (1 - mean) / 0.4]
        density = lambda z, m=mean: np.clip(m + 0.4 * z, 0, 1) * norm.pdf(z)  # noqa: E731
        value = quad(density, -12, 12, points=edges, limit=400)[0]
        model = REWARDS.index("gaussian")
        assert kernels.linear_rewards.mean_reward(score, model, 0.4) == pytest.approx(value, 1e-6)


@pytest.mark.parametrize("reward", REWARDS)
def test_best_arm_by_enumeration(reward):
    instance = RecommendationProblem(horizon=30, reward=reward, dim=6).instance(range(5))
    for _ in range(29):
        arm, value = instance.oracle()
        every = [instance.respond(np.full(5, k)).expected for k in range(5)]
        np.testing.assert_array_equal(value, np.max(every, axis=0))
        np.testing.assert_array_equal(arm, np.argmax(every, axis=0))
        assert (instance.respond(arm).regret == 0).all()
        instance.advance()


def test_theta_and_arms_have_the_stated_norms():
    instance = RecommendationProblem().instance([0, 1])
    np.testing.assert_allclose(np.linalg.norm(instance.hidden["theta"], axis=1), 2.0)
    np.testing.assert_allclose(np.linalg.norm(instance.hidden["arms"], axis=2), 1.0, atol=1e-6)
    context = instance.context()
    for b in range(2):
        np.testing.assert_array_equal(
            context.features[b], instance.hidden["arms"][b, context.arms[b]]
        )
        assert len(set(context.arms[b])) == 5


def test_published_regret_of_random_play():
    """About 1256 over T = 10,000 rounds on average over replicates (mean over 60 here)."""
    problem = RecommendationProblem(horizon=500)
    instance = problem.instance(range(60))
    rng = np.random.default_rng(0)
    total = np.zeros(60)
    for t in range(500):
        total += instance.respond(rng.integers(0, 5, 60)).regret
        if t < 499:
            instance.advance()
    assert 20 * total.mean() == pytest.approx(1256, rel=0.05)


def test_blocks_confine_candidates_and_span_the_space():
    problem = RecommendationProblem(
        horizon=80, dim=6, design="blocks", rank=2, block_rounds=20, n_arms=10
    )
    instance = problem.instance([3])
    blocks = [[] for _ in range(4)]
    for t in range(80):
        context = instance.context()
        assert (context.arms == -1).all()
        blocks[t // 20].append(context.features[0].astype(float).copy())
        if t < 79:
            instance.advance()
    stacked = [np.concatenate(b) for b in blocks]
    for rows in stacked:
        assert np.linalg.matrix_rank(rows, tol=1e-4) == 2
    assert np.linalg.matrix_rank(np.concatenate(stacked[:3]), tol=1e-4) == 6
    np.testing.assert_allclose(np.linalg.norm(stacked[0], axis=1), 1, atol=1e-6)


def test_low_rank_pool():
    instance = RecommendationProblem(dim=8, design="low-rank", rank=3).instance([0])
    assert np.linalg.matrix_rank(instance.hidden["arms"][0].astype(float), tol=1e-4) == 3


def test_fresh_arms_change_every_round():
    instance = RecommendationProblem(horizon=5, fresh=True).instance([0])
    first = instance.context().features.copy()
    instance.advance()
    assert (instance.context().features != first).all()
    assert instance.problem.info.n_arms is None


@pytest.mark.parametrize("order", ["consecutive", "shuffled"])
def test_users_have_k_rounds_each(order):
    problem = RecommendationProblem(horizon=60, interactions_per_user=5, user_order=order)
    instance = problem.instance([0, 1])
    users = []
    for t in range(60):
        users.append(instance.context().users.copy())
        if t < 59:
            instance.advance()
    users = np.array(users)
    for b in range(2):
        assert (np.bincount(users[:, b]) == 5).all() and users[:, b].max() == 11
    ordered = bool((np.diff(users[:, 0]) >= 0).all())
    assert ordered == (order == "consecutive")
    if order == "shuffled":
        assert (users[:, 0] != users[:, 1]).any()
    assert RecommendationProblem(horizon=60, users_per_horizon=12).info.max_interactions == 5


@pytest.mark.parametrize(
    "kwargs",
    [
        {"n_candidates": 101},
        {"n_candidates": 0},
        {"reward": "count"},
        {"noise_std": 0.0},
        {"fresh": 1},
        {"design": "cube"},
        {"rank": 3},
        {"design": "low-rank", "rank": 21},
        {"interactions_per_user": 0},
        {"interactions_per_user": 5, "users_per_horizon": 5},
        {"user_order": "random"},
        {"theta": [0.0]},
        {"dim": float("nan")},
    ],
)
def test_bad_parameters(kwargs):
    with pytest.raises(ParameterError):
        RecommendationProblem(**kwargs)


@pytest.mark.parametrize("action", [[5], [-1], [0.5], [0, 1], 0, [np.nan]])
def test_bad_actions(action):
    with pytest.raises(ActionError):
        RecommendationProblem(horizon=4).instance([0]).respond(np.asarray(action))


@pytest.mark.parametrize(
    ("env_id", "given", "needed"),
    [
        ("DPB/Recommendation-v0", {"noise_std": 0.5}, "reward='gaussian'"),
        ("DPB/Recommendation-v0", {"block_rounds": 10}, "design='blocks'"),
        ("DPB/Recommendation-v0", {"user_order": "shuffled"}, "interactions_per_user"),
        ("DPB/Recommendation-v0", {"fresh": True, "n_arms": 50}, "a fixed pool"),
        ("DPB/RecommendationRankDeficient-v0", {"n_arms": 50}, "a fixed pool"),
        ("DPB/MultiArmed-v0", {"noise_std": 0.5}, "reward='gaussian'"),
        ("DPB/Pricing-v0", {"demand": "gaussian", "zeta": 2.0}, "demand other than 'gaussian'"),
        ("DPB/MovieLensReplay-v0", {"feature_delta": 1e-6}, "feature_epsilon"),
    ],
)
def test_parameters_without_an_effect_are_refused(env_id, given, needed):
    name = list(given)[-1]
    with pytest.raises(ParameterError, match=f"{name} applies to .*{needed}"):
        make_problem(env_id, horizon=20, **given)
    usual = {**given, name: environment(env_id).parameters[name]}
    make_problem(env_id, horizon=20, **usual)
