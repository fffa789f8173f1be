"""Oblivious sequences of contexts: values, bounds, and unchanged hidden parameters."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import dpb_gym
from dpb_gym import feedback as f
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.suites.spec import Task

T = 40
SMALL = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 5, "capacity": 2, "dim": 3}, (5, 3)),
    "recommendation": ("DPB/Recommendation-v0", {"n_candidates": 4, "dim": 3}, (4, 3)),
}


def features(problem, seeds=(3,)):
    instance, seen = problem.instance(seeds), []
    for t in range(T):
        seen.append(instance.context().features.astype(float))
        if t < T - 1:
            instance.advance()
    return np.array(seen)


@pytest.fixture(params=SMALL)
def case(request):
    env_id, kwargs, shape = SMALL[request.param]
    return env_id, {"horizon": T, **kwargs}, shape


def test_switched_and_drifting(case):
    env_id, kwargs, shape = case
    switched = features(make_problem(env_id, contexts="switched", **kwargs), (3, 4))
    assert switched.shape == (T, 2, *shape)
    for lane in range(2):
        assert (switched[: T // 2, lane] == switched[0, lane]).all()
        assert (switched[T // 2 :, lane] == switched[-1, lane]).all()
    assert (switched[0] != switched[-1]).all() and (switched[0, 0] != switched[0, 1]).all()
    drifting = features(make_problem(env_id, contexts="drifting", **kwargs), (3, 4))
    np.testing.assert_allclose(drifting[[0, -1]], switched[[0, -1]], atol=1e-6)
    np.testing.assert_allclose(np.diff(drifting, n=2, axis=0), 0.0, atol=1e-5)
    alone = features(make_problem(env_id, contexts="drifting", **kwargs), (4,))
    np.testing.assert_array_equal(alone[:, 0], drifting[:, 1])


def test_an_array_or_its_file_is_shown_row_by_row(case, tmp_path):
    env_id, kwargs, shape = case
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (T + 3, *shape))
    np.save(tmp_path / "rows.npy", rows)
    for given in (rows, rows.tolist(), str(tmp_path / "rows.npy"), tmp_path / "rows.npy"):
        problem = make_problem(env_id, contexts=given, **kwargs)
        np.testing.assert_array_equal(features(problem)[:, 0], rows[:T].astype(np.float32))
        assert problem.feature_bound == np.abs(rows).max().astype(np.float32)
    long = make_problem(env_id, contexts=9.0 * rows, context_norm="clip", **kwargs)
    assert np.linalg.norm(features(long), axis=-1).max() <= 1.0 + 1e-6


def test_hidden_parameters_are_unchanged(case):
    env_id, kwargs, _ = case
    drawn, switched = (
        make_problem(env_id, contexts=c, **kwargs).instance([5]).hidden
        for c in ("drawn", "switched")
    )
    if env_id == "DPB/Assortment-v0":
        np.testing.assert_array_equal(drawn["theta"], switched["theta"])
    assert "corners" not in drawn


@pytest.mark.parametrize("contexts", ["switched", "drifting", "array"])
def test_oblivious_contexts_in_environments_wrappers_and_batches(case, contexts):
    """Run the checker, batches and private feedback; regret is against the exact best action."""
    env_id, kwargs, shape = case
    if contexts == "array":
        contexts = np.random.default_rng(1).uniform(-0.5, 0.5, (T, *shape))
    check_env(gym.make(env_id, contexts=contexts, **kwargs).unwrapped)
    one = gym.make(env_id, contexts=contexts, **kwargs)
    many = gym.make_vec(env_id, num_envs=2, contexts=contexts, **kwargs)
    many.action_space.seed(0)
    a, b = one.reset(seed=8)[0], many.reset(seed=8)[0]
    for _ in range(T):
        assert np.array_equal(a, b[0])
        action = many.action_space.sample()
        (a, reward, _, _, info), (b, rewards, *_) = one.step(action[0]), many.step(action)
        assert reward == rewards[0] and info["regret"] >= 0.0
    vectors = f.GaussianContexts(1.0, *shape)
    noisy = f.PrivateContexts(gym.make(env_id, contexts=contexts, **kwargs), vectors)
    assert noisy.reset(seed=0)[0] in noisy.observation_space
    private = "one-pass-mnl" if "Assortment" in env_id else "adaprivate-ucb"
    result = dpb_gym.evaluate(
        env_id,
        agents={"p": (private, "rho=1"), "random": "random", "oracle": "oracle"},
        horizon=T,
        replicates=2,
        env_kwargs={k: v for k, v in kwargs.items() if k != "horizon"} | {"contexts": contexts},
        progress=False,
    )
    assert (result.final_regret("oracle") == 0.0).all()
    assert (result.final_regret("random") > 0.0).all()


def test_customers_of_pricing(tmp_path):
    switched = features(make_problem("DPB/Pricing-v0", horizon=T, customers="switched"))
    assert (switched[: T // 2] == -1.0).all() and (switched[T // 2 :] == 1.0).all()
    ordered = features(make_problem("DPB/Pricing-v0", horizon=T, customers="sorted"), (1, 2))
    assert (np.diff(ordered.sum(axis=-1), axis=0) >= 0).all()
    assert (ordered[:, 0] == ordered[:, 1]).all() and len(np.unique(ordered)) > T
    assert -1.0 < ordered.min() < -0.8 and 0.8 < ordered.max() < 1.0
    rows = np.linspace(-1, 1, 2 * T).reshape(T, 2)
    np.save(tmp_path / "c.npy", rows)
    from_file = make_problem("DPB/Pricing-v0", horizon=T, customers=str(tmp_path / "c.npy"))
    np.testing.assert_array_equal(features(from_file)[:, 0], rows.astype(np.float32))


def test_a_changed_file_gives_another_task(tmp_path):
    """Results of old and new rows are never merged."""
    path = tmp_path / "c.npy"
    task = Task(name="t", env="DPB/Pricing-v0", horizon=T, env_kwargs={"customers": str(path)})
    digests = set()
    for value in (0.0, 0.5):
        np.save(path, np.full((T, 2), value))
        digests |= {task.data_digest(), task.data_digest()}
    assert len(digests) == 2 and None not in digests
    assert Task(name="t", env="DPB/Pricing-v0", horizon=T).data_digest() is None


@pytest.mark.parametrize(
    ("env_id", "kwargs", "error", "message"),
    [
        ("DPB/Assortment-v0", {"contexts": "sorted"}, ParameterError, "'switched'"),
        ("DPB/Assortment-v0", {"contexts": "no.npy"}, DataError, "cannot read"),
        ("DPB/Assortment-v0", {"contexts": np.zeros((T, 5, 2))}, ParameterError, "shape"),
        ("DPB/Assortment-v0", {"contexts": np.zeros((T - 1, 5, 3))}, ParameterError, "horizon=40"),
        ("DPB/Pricing-v0", {"customers": np.full((T, 2), 1.5)}, ParameterError, "customers"),
        ("DPB/Pricing-v0", {"customers": "nobody"}, ParameterError, "'sorted'"),
        (
            "DPB/RecommendationRankDeficient-v0",
            {"contexts": "switched"},
            ParameterError,
            "design='sphere'",
        ),
    ],
)
def test_invalid_values_are_rejected(env_id, kwargs, error, message):
    if env_id == "DPB/Assortment-v0":
        kwargs = {"n_items": 5, "capacity": 2, "dim": 3, **kwargs}
    with pytest.raises(error, match=message):
        make_problem(env_id, horizon=T, **kwargs)
