"""The hotel problem: features of pairs, the fit against independent optimisers, the rounds."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import dpb_data
from dpb_gym import streams
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import ActionError, DataError, ParameterError, UnknownNameError
from dpb_gym.problems.expedia import HotelModel, largest_norm, pair_features
from dpb_gym.problems.fitting import choice_figures
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

ENV = "DPB/ExpediaAssortment-v0"
REAL = (
    Path(os.environ.get("DPB_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
    / "expedia"
)
NORMS = ("raw", "clip", "scale", "bound")


@pytest.fixture(scope="module")
def data():
    return dpb_data.encode_searches(dpb_data.load_searches("synthetic-expedia"))


@pytest.fixture(scope="module")
def small():
    """Return a small data set that plain Python can process."""
    return dpb_data.encode_searches(dpb_data.load_searches("synthetic-expedia"), 8347)


def plain_pairs(data, feature_set, intercept):
    """Return names of the factors of each feature, computed independently."""
    hotel = [(h, None) for h in data.hotel_features]
    if feature_set == "hotel":
        pairs = hotel
    elif feature_set == "outer":
        pairs = [(h, u) for h in data.hotel_features for u in data.user_features]
    else:
        wanted = ["hist_price", "length_of_stay", "booking_window", "adults", "children"]
        wanted.append("saturday")
        pairs = hotel + [
            ("price", u) for w in wanted for u in data.user_features if u.split("=")[0] == w
        ]
        pairs += [
            (h, u)
            for h in data.hotel_features
            for u in data.user_features
            if h.startswith("star=") and u.startswith("hist_star=")
        ]
    return pairs + ([(None, None)] if intercept else [])


def plain_features(data, feature_set, norm, intercept, searches):
    """(searches, hotels, d) in float64."""
    columns = []
    for h, u in plain_pairs(data, feature_set, intercept):
        left = np.ones(len(data.hotels)) if h is None else data.hotels[:, index(data, h)]
        right = np.ones(len(data.users)) if u is None else data.users[:, index(data, u)]
        columns.append(right[searches][:, None] * left[None, :])
    x = np.stack(columns, axis=-1)
    norms = np.sqrt((x**2).sum(axis=-1, keepdims=True))
    if norm == "clip":
        return x / np.maximum(1.0, norms)
    if norm == "scale":
        return x / math.sqrt(x.shape[-1])
    if norm == "bound":
        everything = plain_features(data, feature_set, "raw", intercept, np.arange(len(data.users)))
        return x / np.sqrt((everything**2).sum(axis=-1)).max()
    return x


def index(data, name):
    names = data.hotel_features if name in data.hotel_features else data.user_features
    return names.index(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("feature_set", "d"), [("hotel", 10), ("hotel+interactions", 30), ("outer", 180)]
)
def test_dimensions_of_the_feature_sets(feature_set, d):
    assert make_problem(ENV, feature_set=feature_set).dim == d
    assert make_problem(ENV, feature_set=feature_set, intercept=True).dim == d + 1


def test_the_default_follows_the_paper():
    problem = make_problem(ENV)
    info = problem.info
    assert (info.kind, info.horizon, info.n_items, info.capacity) == (
        "assortment", 100_000, 124, 10,
    )  # fmt: skip
    assert info.equal_revenues and info.reward_range == (0.0, 1.0)
    assert info.dim == 30 and problem.context_norm == "raw"
    assert "theta" not in info.to_dict()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("feature_set", ["hotel", "hotel+interactions", "outer"])
def test_features_against_plain_products(small, feature_set, norm, intercept):
    features = pair_features(small, feature_set, norm, intercept)
    searches = np.array([0, 5, 5, 11])
    rows = features.of(features.hotels[None], features.searches[searches][:, None])
    expected = plain_features(small, feature_set, norm, intercept, searches)
    assert rows.dtype == np.float32 and rows.shape == expected.shape
    np.testing.assert_allclose(rows, expected, rtol=2e-5, atol=2e-5)
    again = rows_of(features, np.tile(np.arange(len(small.hotels)), 4), np.repeat(searches, 30))
    np.testing.assert_array_equal(again.reshape(rows.shape), rows)  # bit for bit
    pairs = plain_pairs(small, feature_set, intercept)
    names = [" * ".join(p for p in pair if p) or "intercept" for pair in pairs]
    assert list(features.names) == names
    everything = features.of(features.hotels[None], features.searches[:, None])
    assert np.abs(everything).max() <= features.magnitude
    if norm != "raw":
        # clip and bound: in the unit ball up to float32; scale divides by sqrt(d) only.
        longest = np.sqrt((everything.astype(np.float64) ** 2).sum(axis=-1)).max()
        assert norm == "scale" or longest <= 1.0 + (1e-6 if norm == "clip" else 0.0)
        assert norm != "bound" or longest > 1.0 - 1e-5


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 600), m=st.integers(1, 5), d=st.integers(1, 4), seed=st.integers(0, 99))
def test_largest_norm(n, m, d, seed):
    rng = np.random.default_rng(seed)
    hotels = rng.normal(size=(m, d)).astype(np.float32)
    searches = rng.normal(size=(n, d)).astype(np.float32)
    product = hotels[None].astype(np.float64) * searches[:, None]
    assert largest_norm(hotels, searches) == pytest.approx(np.linalg.norm(product, axis=-1).max())


def rows_of(features, hotels, searches):
    """Features of pairs by their numbers."""
    return features.of(features.hotels[hotels], features.searches[searches])


def likelihood(theta, data, rows):
    """Log-likelihood by plain loops; rows in the order of data.shown."""
    value = 0.0
    for s, (a, b) in enumerate(zip(data.starts[:-1], data.starts[1:])):
        u = [float(x @ theta) for x in rows[a:b]]
        chosen = u[data.choice[s]] if data.choice[s] >= 0 else 0.0
        value += chosen - math.log(1.0 + sum(map(math.exp, u)))
    return value


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["raw", "clip"])
@pytest.mark.parametrize("feature_set", ["hotel", "hotel+interactions"])
@pytest.mark.parametrize("ridge", [0.1, 1.0, 50.0])
def test_theta_maximises_the_penalised_likelihood(small, feature_set, norm, ridge):
    features = pair_features(small, feature_set, norm, intercept=True)
    model = HotelModel(small, features, ridge)
    search = np.repeat(np.arange(len(small.users)), np.diff(small.starts))
    rows = rows_of(features, small.shown, search).astype(np.float64)

    def objective(theta):
        return -likelihood(theta, small, rows) + 0.5 * ridge * theta @ theta

    assert model.figures["log_likelihood"] == pytest.approx(likelihood(model.theta, small, rows))
    zero = np.zeros(len(features.names))
    assert model.figures["null_log_likelihood"] == pytest.approx(likelihood(zero, small, rows))
    assert objective(model.theta) < objective(zero)
    step = 1e-5
    gradient = [
        (objective(model.theta + step * e) - objective(model.theta - step * e)) / (2 * step)
        for e in np.eye(len(features.names))
    ]
    np.testing.assert_allclose(gradient, 0.0, atol=2e-5)
    if feature_set == "hotel" and ridge == 1.0:
        optimum = minimize(objective, zero, method="BFGS", options={"gtol": 1e-5})
        np.testing.assert_allclose(model.theta, optimum.x, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_fit_recovers_the_theta_of_simulated_choices(data, seed):
    """Fit choices simulated from a known theta on the same searches."""
    rng = np.random.default_rng(seed)
    theta = np.append(0.5 * rng.normal(size=10), -2.0)
    copies = 12
    starts = np.concatenate([[0], np.cumsum(np.tile(np.diff(data.starts), copies))])
    shown = np.tile(data.shown, copies)
    users = np.tile(data.users, (copies, 1))
    search = np.repeat(np.arange(len(users)), np.diff(starts))
    many = dpb_data.HotelChoices(
        **{**vars(data), "starts": starts, "shown": shown, "users": users,
           "choice": np.zeros(len(users), np.int64)}
    )  # fmt: skip
    features = pair_features(many, "hotel", "raw", intercept=True)
    u = rows_of(features, shown, search) @ theta + rng.gumbel(size=len(shown))
    outside = rng.gumbel(size=len(users))
    for s, (a, b) in enumerate(pairwise(starts)):
        best = int(u[a:b].argmax())
        many.choice[s] = best if u[a + best] > outside[s] else -1
    model = HotelModel(many, features, ridge=1e-3)
    rows = rows_of(features, shown, search).astype(np.float64)
    information = np.zeros((11, 11))
    for a, b in pairwise(starts):
        p = np.exp(rows[a:b] @ theta)
        p /= 1.0 + p.sum()
        mean = p @ rows[a:b]
        information += (rows[a:b] * p[:, None]).T @ rows[a:b] - np.outer(mean, mean)
    off = model.theta - theta
    # Chi-square with 11 degrees of freedom: beyond 35 once in 4,000 data sets.
    assert 1.0 < off @ information @ off < 35.0
    assert np.linalg.norm(off) < 0.25 * np.linalg.norm(theta)
    assert model.figures["pseudo_r2"] > 0.1


def test_share_correctly_ranked_by_plain_loops(small):
    features = pair_features(small, "hotel", "raw", True)
    model = HotelModel(small, features)
    search = np.repeat(np.arange(len(small.users)), np.diff(small.starts))
    u = rows_of(features, small.shown, search).astype(np.float64) @ model.theta
    among, with_outside, fitted = [], [], []
    for s, (a, b) in enumerate(zip(small.starts[:-1], small.starts[1:])):
        utilities = [*u[a:b], 0.0]
        mine = utilities[small.choice[s]]  # -1 is the outside option
        right = [
            float(mine > other)
            for k, other in enumerate(utilities)
            if k != (small.choice[s] if small.choice[s] >= 0 else b - a)
        ]
        with_outside += right
        if small.choice[s] >= 0:
            among += right[:-1]
        fitted.append(1.0 - 1.0 / np.exp(utilities).sum())
    figures = model.figures
    assert figures["correctly_ranked"] == pytest.approx(np.mean(among))
    assert figures["correctly_ranked_with_outside"] == pytest.approx(np.mean(with_outside))
    assert figures["chosen_share"] == pytest.approx((small.choice >= 0).mean())
    assert figures["chosen_share_fitted"] == pytest.approx(np.mean(fitted))
    assert figures["correctly_ranked"] > 0.6


def test_summary_is_plain_and_complete():
    problem = make_problem(ENV, n_items=20, feature_set="hotel")
    summary = json.loads(json.dumps(problem.summary()))
    assert summary["data"] == "synthetic-expedia" and summary["destination"] == 8192
    assert (summary["items"], summary["hotels"], summary["dim"]) == (20, 124, 10)
    assert (summary["user_features"], summary["hotel_features"]) == (18, 10)
    assert summary["log_likelihood"] > summary["null_log_likelihood"]
    assert summary["pseudo_r2"] > 0.02 and summary["correctly_ranked"] > 0.6
    assert len(summary["utilities"]) == 10 and summary["utilities"]["price"] < 0
    assert summary["dropped"] == {} and summary["notes"] == []
    clicks = make_problem(ENV, choice="click").summary()
    assert clicks["chosen_share"] == 1.0 and "every search has a choice" in clicks["notes"][0]


def test_rounds_are_searches_of_the_log_with_all_hotels():
    problem = make_problem(ENV, horizon=400, feature_set="outer")
    instance = problem.instance([3, 4])
    data, seen = problem.model.data, []
    for _ in range(399):
        context, search = instance.context(), instance.round().secret["search"]
        seen.append(search)
        assert context.features.shape == (2, 124, 180)
        expected = data.hotels[:, :, None] * data.users[search[0]][None, None, :]
        np.testing.assert_allclose(context.features[0].reshape(124, 10, 18), expected, atol=2e-5)
        instance.advance()
        if len(seen) == 20:
            break
    draws = np.concatenate(seen)
    assert len(np.unique(draws)) > 30 and draws.max() < len(data.users)
    assert (np.array(seen)[:, 0] != np.array(seen)[:, 1]).any()


@pytest.mark.slow
def test_searches_are_drawn_uniformly():
    problem = make_problem(ENV, horizon=6_000, destination=8347, feature_set="hotel")
    instance = problem.instance(range(4))
    n = len(problem.model.data.users)
    counts = np.zeros(n)
    for _ in range(5_999):
        np.add.at(counts, instance.round().secret["search"], 1)
        instance.advance()
    expected = counts.sum() / n
    # Chi-square with n - 1 degrees of freedom, mean n - 1, variance 2 (n - 1).
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert abs(statistic - (n - 1)) < 5 * math.sqrt(2 * (n - 1))


@pytest.mark.slow
def test_responses_follow_the_fitted_model():
    problem = make_problem(ENV, horizon=4_000, capacity=3, intercept=True, revenues="price")
    instance = problem.instance(range(8))
    slates = np.tile([2, 50, 99], (8, 1))
    reward = expected = 0.0
    for _ in range(3_999):
        outcome = instance.respond(slates)
        reward += outcome.feedback.reward.sum()
        expected += outcome.expected.sum()
        instance.advance()
    deviation = math.sqrt(8 * 4_000 * 0.25)
    assert abs(reward - expected) < 5 * deviation and reward > 0
    context = instance.context()
    u = context.features.astype(np.float64) @ problem.model.theta
    weights = np.exp(np.take_along_axis(u, slates, axis=1))
    revenue = np.take_along_axis(context.revenues, slates, axis=1)
    np.testing.assert_allclose(
        instance.respond(slates).expected,
        (weights * revenue).sum(axis=1) / (1 + weights.sum(axis=1)),
    )


def test_revenues_and_items():
    problem = make_problem(ENV, revenues="price", n_items=15)
    data = problem.model.data
    assert problem.revenues.max() == 1.0 and (problem.revenues > 0).all()
    assert not problem.info.equal_revenues and problem.info.n_items == 15
    kept = np.searchsorted(data.hotel_ids, problem.item_ids)
    assert (data.hotel_ids[kept] == problem.item_ids).all()
    np.testing.assert_allclose(problem.revenues, data.prices[kept] / data.prices[kept].max())
    shown = np.bincount(data.shown, minlength=124)
    others = np.setdiff1d(np.arange(124), kept)
    assert shown[kept].min() >= shown[others].max()
    np.testing.assert_array_equal(
        problem.instance([1]).context().features,
        make_problem(ENV).instance([1]).context().features[:, kept],
    )
    # The fit does not depend on the offered hotels.
    np.testing.assert_array_equal(problem.model.theta, make_problem(ENV).model.theta)
    assert make_problem(ENV, n_items=4).capacity == 4
    assert make_problem(ENV, n_items=4, capacity=2).capacity == 2


@pytest.mark.parametrize("norm", NORMS)
def test_features_respect_the_bound_of_the_space(norm):
    problem = make_problem(ENV, horizon=60, context_norm=norm)
    instance = problem.instance(range(8))
    for _ in range(59):
        assert np.abs(instance.context().features).max() <= problem.feature_bound
        instance.advance()


CASES = [
    {"capacity": 3},
    {"revenues": "price", "context_norm": "clip", "n_items": 12, "capacity": 4},
    {"feature_set": "outer", "context_norm": "bound", "destination": 20319},
]


def play(problem, seeds, rounds):
    instance = problem.instance(seeds)
    generators = [np.random.default_rng(s + 99) for s in seeds]
    log = []
    for t in range(rounds):
        K, N = problem.capacity, problem.n_items
        slates = np.array([g.integers(-1, N, K) for g in generators])
        context, outcome = instance.context(), instance.respond(slates)
        log.append([context.features, context.revenues, outcome.feedback.reward,
                    outcome.feedback.choice, outcome.expected, outcome.regret,
                    *instance.oracle()])  # fmt: skip
        if t + 1 < rounds:
            instance.advance()
    return log


@pytest.mark.slow
@pytest.mark.parametrize("kwargs", CASES)
@settings(max_examples=5, deadline=None)
@given(seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=7))
def test_a_replicate_is_the_same_in_any_batch_and_block(kwargs, seeds):
    problem = make_problem(ENV, horizon=20, **kwargs)
    together = play(problem, seeds, 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "MAX_BLOCK_ROUNDS", 3)
        alone = play(problem, [seeds[-1]], 20)
    for row, single in zip(together, alone):
        assert (row[5] >= 0).all()
        for a, b in zip(row, single):
            np.testing.assert_array_equal(a[-1], b[0])


def test_the_oracle_has_no_regret_and_replicates_restart_independently():
    problem = make_problem(ENV, horizon=30, revenues="price")
    instance = problem.instance([5, 6])
    alone = problem.instance([6])
    instance.restart(0, 8, 1)
    for t in range(29):
        assert (instance.respond(instance.oracle()[0]).regret == 0).all()
        np.testing.assert_array_equal(instance.context().features[1], alone.context().features[0])
        instance.advance(np.array([t % 2 == 0, True]))
        alone.advance()


@pytest.mark.parametrize("kwargs", [{}, {"revenues": "price", "capacity": 1}])
@pytest.mark.parametrize("agent", ["ucb-mnl", "dpmnl", "random"])
def test_agents_play(agent, kwargs):
    from dpb_gym.privacy import Budget

    problem = make_problem(ENV, horizon=60, feature_set="hotel", context_norm="bound", **kwargs)
    budget = Budget.zcdp(1.0) if agent == "dpmnl" else None
    seeds = [1, 2, 3]
    options = {"explore": 20} if agent in ("ucb-mnl", "dpmnl") else {}
    playing = make_agent(agent, **options)
    playing.set_up(problem.info, AgentStreams(seeds), budget)
    instance = problem.instance(seeds)
    regret = np.zeros(3)
    for t in range(60):
        context = instance.context()
        action = playing.act(context)
        outcome = instance.respond(action)
        playing.observe(context, action, outcome.feedback)
        regret += outcome.regret
        if t < 59:
            instance.advance()
    assert np.isfinite(regret).all() and (regret > 0).all()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"feature_set": "all"}, {"context_norm": "unit"}, {"revenues": "random"},
        {"capacity": 125}, {"capacity": 0}, {"n_items": 0}, {"n_items": 125}, {"horizon": 1},
        {"ridge": 0.0}, {"ridge": math.nan}, {"ridge": -1}, {"choice": "view"},
        {"max_missing": 1.1}, {"max_missing": math.nan}, {"destination": "Paris"},
        {"destination": 99}, {"destination": 1.5}, {"destination": True}, {"repair": "yes"},
        {"intercept": 1}, {"dim": 5}, {"revenues": None},
    ],
)  # fmt: skip
def test_bad_parameters(kwargs):
    with pytest.raises(ParameterError, match=next(iter(kwargs))):
        make_problem(ENV, **kwargs)


def test_bad_data_and_actions(tmp_path):
    with pytest.raises(UnknownNameError):
        make_problem(ENV, data="synthetic-expedi")
    with pytest.raises(DataError, match="holds ratings"):
        make_problem(ENV, data="synthetic-movielens")
    from dpb_data.expedia_synthetic import searches_csv

    path = tmp_path / "mine.csv"
    path.write_bytes(searches_csv(30)[:-7])
    with pytest.raises(DataError, match="repair='drop-last-search'"):
        make_problem(ENV, data=str(path))
    with pytest.warns(UserWarning, match="cut off"):
        problem = make_problem(ENV, data=str(path), repair="drop-last-search")
    assert "is cut off" in problem.summary()["notes"][0]
    instance = problem.instance([0])
    for bad in ([[0] * 9], [[200] + [0] * 9], [[0.5] * 10]):
        with pytest.raises(ActionError):
            instance.respond(np.array(bad))


def test_theta_does_not_depend_on_the_number_of_threads():
    code = (
        "from dpb_gym.envs.registration import make_problem; import sys;"
        f"p = make_problem({ENV!r}, feature_set='outer', context_norm='bound');"
        "sys.stdout.write(p.model.theta.tobytes().hex() + p.model.features.hotels.tobytes().hex())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": n, "OMP_NUM_THREADS": n},
        ).stdout
        for n in ("1", "4")
    }  # fmt: skip
    assert len(runs) == 1


@pytest.mark.real_data("expedia")
@pytest.mark.parametrize(
    ("file", "destination", "d"),
    [
        ("training_set_VU_DM.prefix.csv", None, (10, 17, 80)),
        ("training_set_VU_DM.prefix.csv", "all", (10, 21, 130)),
        ("kaggle_train_subset_1000_searches.csv", None, (8, 17, 80)),
        ("kaggle_train_subset_1000_searches.csv", "all", (7, 18, 84)),
    ],
)
def test_real_files(file, destination, d):
    if not REAL.exists():
        pytest.skip(f"original data set expedia is not in {REAL.parent} (set DPB_DATA)")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*cut off")
        for feature_set, dim in zip(("hotel", "hotel+interactions", "outer"), d):
            problem = make_problem(
                ENV, data=str(REAL / file), repair="drop-last-search", destination=destination,
                feature_set=feature_set, horizon=20, n_items=25,
            )  # fmt: skip
            summary = problem.summary()
            assert problem.dim == summary["dim"] == dim
            assert summary["log_likelihood"] > summary["null_log_likelihood"]
            assert summary["correctly_ranked"] > 0.55
            for row in play(problem, [0, 1], 20):
                assert (row[5] >= 0).all() and np.isfinite(row[0]).all()


def test_the_quartiles_of_utilities_are_those_of_theta() -> None:
    """With zero chances of ties, utilities over not buying are the rows times theta."""
    rows = np.array([[0.1], [0.2], [0.4], [0.7], [1.1]])
    figures = choice_figures(rows, np.array([0, 2, 5]), np.array([0, -1]), np.array([2.0]))
    assert figures["utility_quartiles"] == pytest.approx([0.2, 0.4, 0.8, 1.4, 2.2])
