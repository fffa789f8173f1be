"""Replay problems on generated ratings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import dpb_gym
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import ActionError, DataError, ParameterError, UnknownNameError
from dpb_gym.problems.rating_replay import ReplayProblem


@dataclass
class Table:
    users: np.ndarray
    items: np.ndarray
    ratings: np.ndarray
    n_users: int
    n_items: int
    name: str = "test-table"

    def normalised(self):
        return (self.ratings - 1.0) / 4.0


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n_users, n_items = 120, 60
    left, right = rng.normal(size=(n_users, 4)), rng.normal(size=(n_items, 4))
    score = left @ right.T + 1.5 * right[:, :1].T
    rating = np.clip(np.round(3 + score), 1, 5)
    kept = rng.random((n_users, n_items)) < 0.4
    users, items = np.nonzero(kept)
    order = rng.permutation(len(users))
    return Table(users[order], items[order], rating[users, items][order], n_users, n_items)


def ratings_of(table, user):
    own = table.users == user
    return dict(zip(table.items[own], table.normalised()[own]))


@pytest.mark.parametrize("personalised", [False, True])
def test_candidates_are_rated_by_the_user_and_pay_the_rating(table, personalised):
    problem = ReplayProblem(table, dim=5, horizon=50, personalised=personalised)
    instance = problem.instance(range(3))
    for t in range(50):
        context = instance.context()
        for b in range(3):
            user = problem.user_index[context.users[b]]
            own = ratings_of(table, user)
            items = problem.item_index[context.arms[b]]
            assert len(set(items)) == 5
            rewards = [own[i] for i in items]
            for k in range(5):
                outcome = instance.respond(np.full(3, k))
                assert outcome.feedback.reward[b] == rewards[k] == outcome.expected[b]
            assert instance.oracle()[1][b] == max(rewards)
        if t < 49:
            instance.advance()


def test_test_users_never_shape_the_features(table):
    problem = ReplayProblem(table, dim=5)
    changed = Table(**vars(table))
    test_user = np.isin(table.users, problem.user_index)
    changed.ratings = np.where(test_user, 1.0, table.ratings)
    np.testing.assert_array_equal(ReplayProblem(changed, dim=5).features, problem.features)
    trained = Table(**vars(table))
    trained.ratings = np.where(test_user, table.ratings, np.roll(table.ratings, 1))
    assert not np.array_equal(ReplayProblem(trained, dim=5).features, problem.features)


def test_features_are_the_truncated_svd(table):
    problem = ReplayProblem(table, dim=5, train_fraction=0.9, min_ratings=1)
    norms = np.linalg.norm(problem.features.astype(float), axis=1)
    assert norms.max() <= 1 + 1e-6 and np.median(norms) > 0.9
    rng = np.random.default_rng(0)
    order = rng.permutation(table.n_users)
    dense = np.zeros((table.n_users, table.n_items))
    dense[table.users, table.items] = table.normalised()
    mask = np.zeros_like(dense, bool)
    mask[table.users, table.items] = True
    rows = order[: round(0.9 * table.n_users)]
    centred = np.where(mask[rows], dense[rows] - dense[rows][mask[rows]].mean(), 0.0)
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    factors = (vt[:5] * s[:5, None]).T
    factors /= np.median(np.linalg.norm(factors, axis=1))
    expected = factors / np.maximum(1, np.linalg.norm(factors, axis=1, keepdims=True))
    got = problem.features.astype(float)
    np.testing.assert_allclose(got @ got.T, expected @ expected.T, atol=1e-5)


def test_linear_oracle_beats_random(table):
    problem = ReplayProblem(table, dim=8, horizon=400)
    instance = problem.instance(range(8))
    A, b = np.eye(8), np.zeros(8)
    rng = np.random.default_rng(1)
    random = linear = 0.0
    for t in range(400):
        x = instance.context().features.astype(float)
        r = instance.respond(rng.integers(0, 5, 8))
        random += r.regret.sum()
        theta = np.linalg.solve(A, b)
        greedy = (x @ theta).argmax(1)
        outcome = instance.respond(greedy)
        linear += outcome.regret.sum()
        chosen = x[np.arange(8), greedy]
        A += chosen.T @ chosen
        b += chosen.T @ (outcome.feedback.reward - 0.5)
        if t < 399:
            instance.advance()
    assert linear < 0.75 * random


def test_rejection_replay_observes_one_in_k(table):
    problem = ReplayProblem(table, dim=5, horizon=2000, protocol="replay", n_candidates=4)
    assert problem.info.partial_feedback
    instance = problem.instance([0, 1])
    seen = np.zeros(2)
    for t in range(2000):
        outcome = instance.respond(np.array([t % 4, 0]))
        observed = outcome.feedback.observed
        seen += observed
        assert (outcome.feedback.reward[~observed] == 0).all()
        assert (outcome.regret[~observed] == 0).all()
        if t < 1999:
            instance.advance()
    np.testing.assert_allclose(seen / 2000, 0.25, atol=0.04)


def test_binary_rewards(table):
    instance = ReplayProblem(table, dim=5, horizon=30, binary=4.0).instance([0])
    values = set()
    for t in range(30):
        values.add(float(instance.respond(np.array([0])).feedback.reward[0]))
        if t < 29:
            instance.advance()
    assert values == {0.0, 1.0}


@pytest.mark.parametrize(
    "kwargs",
    [
        {"protocol": "online"},
        {"train_fraction": 1.0},
        {"binary": float("nan")},
        {"n_candidates": 1},
        {"personalised": "yes"},
        {"dim": 0},
    ],
)
def test_bad_parameters(table, kwargs):
    with pytest.raises(ParameterError):
        ReplayProblem(table, **{"dim": 5, **kwargs})


@pytest.mark.parametrize("kwargs", [{"dim": 60}, {"dim": 5, "n_candidates": 61}])
def test_data_too_small(table, kwargs):
    with pytest.raises(DataError):
        ReplayProblem(table, **kwargs)


def test_bad_actions(table):
    instance = ReplayProblem(table, dim=5).instance([0])
    for action in ([5], [-1], [0.0], [[0]]):
        with pytest.raises(ActionError):
            instance.respond(np.asarray(action))


@pytest.mark.parametrize("env_id", ["DPB/MovieLensReplay-v0", "DPB/JesterReplay-v0"])
def test_generated_data_work_out_of_the_box(env_id):
    problem = make_problem(env_id)
    assert problem is make_problem(env_id), "the factorisation is kept"
    outcome = problem.instance([0]).respond(np.array([0]))
    assert 0 <= outcome.feedback.reward[0] <= 1
    with pytest.raises(UnknownNameError, match=r"Known: .*jester-1"):
        make_problem(env_id, data="no-such-data")
    with pytest.raises(DataError):
        make_problem(env_id, data="no-such-folder/ratings.csv")


# ------------------------------------------------------------------ private features, warm start


def test_private_features_protect_training_users_only(table):
    problem = ReplayProblem(table, dim=5, feature_epsilon=2.0)
    guarantee = problem.features_guarantee
    assert (guarantee.notion, guarantee.unit) == ("central", "user")
    assert guarantee.epsilon(1e-5) == pytest.approx(2.0, rel=1e-4)
    assert "eps=2" in problem.summary()["protects training users"]
    plain = ReplayProblem(table, dim=5)
    assert plain.features_guarantee is None
    assert plain.summary()["protects training users"] == "nothing"


def test_private_features_depend_on_training_users_through_the_noisy_moment_only(table):
    """Items, users, rewards and centring do not depend on the training users' ratings."""
    first = ReplayProblem(table, dim=5, feature_epsilon=1e6, personalised=True)
    training = ~np.isin(table.users, first.user_index)
    changed = Table(**vars(table))
    rng = np.random.default_rng(9)
    changed.ratings = np.where(training, rng.integers(1, 6, len(table.ratings)), table.ratings)
    changed.items = table.items.copy()
    kept = np.flatnonzero(training)
    changed.items[kept] = np.arange(len(kept)) % 60
    second = ReplayProblem(changed, dim=5, feature_epsilon=1e6, personalised=True)
    np.testing.assert_array_equal(first.item_index, second.item_index)
    np.testing.assert_array_equal(first.user_index, second.user_index)
    np.testing.assert_array_equal(first._rewards, second._rewards)
    assert not np.array_equal(first.features, second.features)


def test_private_features_approach_the_clipped_svd(table):
    problem = ReplayProblem(table, dim=5, feature_epsilon=1e9, train_fraction=0.9, min_ratings=1)
    rng = np.random.default_rng(0)
    order = rng.permutation(table.n_users)
    dense = np.zeros((table.n_users, table.n_items))
    dense[table.users, table.items] = table.normalised() - 0.5
    rows = dense[order[: round(0.9 * table.n_users)]][:, problem.item_index]
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    factors = (vt[:5] * s[:5, None]).T
    factors /= np.median(np.linalg.norm(factors, axis=1))
    expected = factors / np.maximum(1, np.linalg.norm(factors, axis=1, keepdims=True))
    got = problem.features.astype(float)
    np.testing.assert_allclose(got @ got.T, expected @ expected.T, atol=2e-4)


def test_noise_of_features_is_keyed_by_split_and_budget():
    """Two budgets must not share their normals: one release could be subtracted from the other."""
    from dpb_gym.problems.item_features import private_svd_factors

    def released(epsilon, seed):
        """Return the noise alone, from a table without ratings, divided by its scale."""
        nothing = np.zeros((50, 30))
        private = private_svd_factors(nothing, 8, (epsilon, 1e-5), seed)
        return (private.factors @ private.factors.T).ravel()

    own = released(1.0, 0)
    np.testing.assert_array_equal(released(1.0, 0), own)
    for unrelated in (released(1.0, 1), released(2.0, 0)):
        assert abs(np.corrcoef(own, unrelated)[0, 1]) < 0.5


def test_most_rated_items_are_kept(table):
    problem = ReplayProblem(table, dim=5, max_items=20)
    training = ~np.isin(table.users, problem.user_index)
    counts = np.bincount(table.items[training], minlength=60)
    assert len(problem.item_index) == 20
    assert counts[problem.item_index].min() >= np.sort(counts)[-21]


def test_a_private_agent_starts_at_the_training_users_preferences():
    films = {"warm_start": True, "dim": 10}
    agents = {
        "cold": ("one-pass-linear", "rho=0.1", {"prior_mean": [0.0] * 11}),
        "warm": ("one-pass-linear", "rho=0.1"),
    }
    run = dpb_gym.evaluate("DPB/MovieLensReplay-v0", agents, 200, 8, env_kwargs=films)
    gain = run.final_regret("cold") - run.final_regret("warm")
    assert (gain > 0).all()


@pytest.mark.parametrize("personalised", [False, True])
def test_warm_start_appends_the_training_users_preferences(table, personalised):
    problem = ReplayProblem(table, dim=5, warm_start=True, personalised=personalised, horizon=300)
    plain = ReplayProblem(table, dim=5, personalised=personalised, horizon=300)
    assert problem.dim == problem.info.dim == 6 and plain.info.prior is None
    prior = problem.info.prior.centre
    assert (problem.info.prior.precision is None) == personalised
    norms = np.linalg.norm(problem.features.astype(float), axis=1)
    assert norms.max() <= 1.0
    np.testing.assert_allclose(problem.features[:, :5], plain.features * np.sqrt(0.5), atol=1e-5)
    # The prediction is the ridge regression of the training rewards, up to a constant.
    training = ~np.isin(table.users, problem.user_index)
    place = np.full(60, -1)
    place[problem.item_index] = np.arange(len(problem.item_index))
    use = training & (place[table.items] >= 0)
    x = plain.features[place[table.items[use]]].astype(float)
    r = table.normalised()[use]
    theta = np.linalg.solve(x.T @ x + np.eye(5), x.T @ (r - r.mean()))
    predicted = plain.features.astype(float) @ theta
    got = problem.features.astype(float) @ prior
    np.testing.assert_allclose(got, predicted - predicted.mean(), atol=1e-5)
    # Held-out users' rewards correlate with the predictions.
    instance = problem.instance(range(6))
    guided = anyhow = 0.0
    for t in range(300):
        x = instance.context().features.astype(float)
        assert x.shape == (6, 5, 6)
        guided += instance.respond((x @ prior).argmax(1)).regret.sum()
        anyhow += instance.respond(np.full(6, t % 5)).regret.sum()
        if t < 299:
            instance.advance()
    assert guided < 0.8 * anyhow


@pytest.mark.parametrize(
    "kwargs",
    [
        {"feature_epsilon": 0.0},
        {"feature_epsilon": float("inf")},
        {"feature_epsilon": 1.0, "feature_delta": 0.0},
        {"feature_epsilon": 1.0, "max_items": 2001},
        {"max_items": 1},
        {"warm_start": 1},
        {"warm_start": True, "feature_epsilon": 1.0},
    ],
)
def test_bad_feature_parameters(table, kwargs):
    with pytest.raises(ParameterError):
        ReplayProblem(table, dim=5, **kwargs)


def test_the_environment_takes_exactly_the_problems_parameters():
    import inspect

    from dpb_gym.envs.log_environments import replay_problem
    from dpb_gym.envs.registration import environment
    from dpb_gym.problems.conditions import applicable

    own = dict(inspect.signature(ReplayProblem).parameters)
    own.pop("ratings")
    offered = environment("DPB/JesterReplay-v0").parameters
    defaults = {k: p.default for k, p in own.items()}
    conditions = dict.fromkeys(applicable("recommendation"))
    assert offered == {**conditions, **defaults, "data": "synthetic-jester"}
    for wrong in ({"ratings": 1}, {"dim": [5]}):
        with pytest.raises(ParameterError):
            replay_problem(**wrong)


# ------------------------------------------------------------------------ without repetition


def run_of(problem, replicates=3):
    """Users (T, B) and candidate items (T, B, m) of a whole run."""
    instance = problem.instance(range(replicates))
    users, items = [], []
    for t in range(problem.horizon):
        context = instance.context()
        users.append(context.users)
        items.append(context.arms)
        if t < problem.horizon - 1:
            instance.advance()
    return np.array(users), np.array(items)


def uses(users, items):
    """Return the maximum numbers of rounds per rating and per person, over replicates."""
    most = [0, 0]
    for b in range(users.shape[1]):
        rounds = np.bincount(users[:, b])
        pairs = users[:, b, None] * 1000 + items[:, b]
        most = [max(most[0], np.bincount(pairs.ravel()).max()), max(most[1], rounds.max())]
    return most


@pytest.mark.parametrize("protocol", ["matrix", "replay"])
@pytest.mark.parametrize("personalised", [False, True])
def test_no_rating_is_offered_twice_where_the_data_suffice(table, protocol, personalised):
    kwargs = {"dim": 5, "horizon": 90, "protocol": protocol, "personalised": personalised}
    problem = ReplayProblem(table, **kwargs)
    users, items = run_of(problem)
    info = problem.info
    assert uses(users, items) == [info.rating_uses, info.person_uses] and info.rating_uses == 1
    # No smaller limit per person fills the horizon.
    sets = np.diff(problem._offsets) // 5
    assert np.minimum(sets, info.person_uses - 1).sum() < 90 <= sets.sum()
    assert not np.array_equal(users[:, 0], users[:, 1])
    assert problem.summary()["rounds with one rating, at most"] == 1
    again, _ = run_of(problem)
    np.testing.assert_array_equal(users, again)


def test_ratings_repeat_only_where_the_data_do_not_suffice(table):
    capacity = int((np.diff(ReplayProblem(table, dim=5)._offsets) // 5).sum())
    for horizon, passes in ((capacity, 1), (capacity + 1, 2), (2 * capacity + 7, 3)):
        problem = ReplayProblem(table, dim=5, horizon=horizon)
        users, items = run_of(problem, 2)
        assert problem.info.rating_uses == passes
        counts = uses(users, items)
        assert counts[0] == passes and counts[1] <= problem.info.person_uses
        first = uses(users[:capacity], items[:capacity])
        assert first[0] == 1, "within one dealing nothing comes twice"
    everyone = ReplayProblem(table, dim=5, horizon=capacity)
    assert everyone.info.person_uses == (np.diff(everyone._offsets) // 5).max()


def test_rounds_of_a_person_can_be_limited(table):
    problem = ReplayProblem(table, dim=5, horizon=50, rounds_per_user=1)
    users, items = run_of(problem)
    assert uses(users, items) == [1, 1] == [problem.info.rating_uses, problem.info.person_uses]
    with pytest.raises(DataError, match=r"60 test users of at most 2 rounds fill 120 .* not 300"):
        ReplayProblem(table, dim=5, horizon=300, rounds_per_user=2)
    # With this limit less active users repeat their ratings.
    free = ReplayProblem(table, dim=5, horizon=300)
    even = ReplayProblem(table, dim=5, horizon=300, rounds_per_user=5)
    assert uses(*run_of(even)) == [even.info.rating_uses, even.info.person_uses]
    assert even.info.person_uses == 5 < free.info.person_uses
    assert even.info.rating_uses >= free.info.rating_uses
    for wrong in ({"rounds_per_user": 0}, {"rounds_per_user": 2, "repeats": True}, {"repeats": 1}):
        with pytest.raises(ParameterError):
            ReplayProblem(table, dim=5, **wrong)


def test_repeats_allow_one_rating_in_every_round(table):
    problem = ReplayProblem(table, dim=5, horizon=90, repeats=True)
    assert problem.info.rating_uses == problem.info.person_uses == 90
    users, items = run_of(problem)
    assert uses(users, items)[0] > 1


def test_ratings_are_split_uniformly(table):
    """Every rating of a user is equally likely in every set and position."""
    problem = ReplayProblem(table, dim=5, horizon=60, rounds_per_user=1)
    low, high = problem._offsets[:2]
    seen = np.zeros((high - low, 5))
    came = 0
    for seed in range(1500):
        hidden = problem.draw_hidden(np.random.default_rng(seed))
        rows = np.flatnonzero(hidden["users"] == 0)
        assert len(rows) <= 1
        for row in rows:
            came += 1
            seen[hidden["positions"][row] - low, np.arange(5)] += 1
    expected = came / (high - low)
    assert came > 1000
    chi2 = ((seen - expected) ** 2 / expected).sum()
    assert abs(chi2 - seen.size) < 5 * np.sqrt(2 * seen.size)


def test_the_splitting_kernel_is_a_shuffle_per_user():
    from dpb_gym.kernels.candidates import split_ratings

    rng = np.random.default_rng(4)
    sizes = np.array([7, 3, 12, 5])
    offsets = np.append(0, np.cumsum(sizes))
    counts = np.array([2, 0, 4, 1])
    uniforms = rng.random(counts.sum() * 3)
    users, positions = np.empty(7, np.int32), np.empty((7, 3), np.int32)
    split_ratings(uniforms, offsets, counts, users, positions)
    draws = iter(uniforms)
    expected = []
    for u in range(4):
        order = list(range(offsets[u], offsets[u + 1]))
        for i in range(counts[u] * 3):
            j = i + int(next(draws) * (len(order) - i))
            order[i], order[j] = order[j], order[i]
        expected += [order[3 * h : 3 * h + 3] for h in range(counts[u])]
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(users, np.repeat(np.arange(4), counts))


def test_results_state_the_guarantee_per_rating_and_per_person():
    import dpb_gym

    def lines(**kwargs):
        result = dpb_gym.evaluate(
            "DPB/MovieLensReplay-v0", {"own": ("one-pass-linear", "rho=0.5"), "plain": "lin-ucb"},
            replicates=1, env_kwargs={"dim": 4, **kwargs.pop("env_kwargs", {})}, **kwargs,
        )  # fmt: skip
        return list(result.guarantees().values())

    own = next(line for line in lines(horizon=200) if "rho" in line)
    assert "; per rating (<= 1 round): eps=" in own and "; per person (<= 2 rounds): eps=" in own
    own = next(line for line in lines(horizon=2000) if "rho" in line)
    assert "; per rating (<= 2 rounds): eps=" in own
    repeated = lines(horizon=200, env_kwargs={"repeats": True})
    assert any("; per rating (<= 200 rounds): eps=" in line for line in repeated)
    assert any(line == "non-private" for line in repeated)
