"""Generated tables: deterministic, of the documented shape, and learnable."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpb_data
from dpb_data import RatingTable, synthetic
from dpb_gym.errors import ParameterError


def test_default_films(half_stars: RatingTable) -> None:
    assert (half_stars.n_users, half_stars.n_items, len(half_stars)) == (300, 200, 12_000)
    assert set(np.unique(half_stars.ratings)) == {i / 2 for i in range(1, 11)}
    assert np.bincount(half_stars.users).min() >= 20
    popular = np.sort(np.bincount(half_stars.items))[::-1]
    assert popular[:20].sum() > 0.25 * len(half_stars)  # a tenth of the films: a quarter or more
    assert np.any(np.diff(half_stars.item_ids) > 1) and np.any(np.diff(half_stars.user_ids) > 1)
    assert half_stars.timestamps is not None and half_stars.timestamps.min() > 788_918_400


def test_default_jokes(jokes: RatingTable) -> None:
    assert (jokes.n_users, jokes.n_items) == (400, 100)
    per_joke = np.bincount(jokes.items)
    for joke in synthetic.GAUGE_SET:
        assert per_joke[joke - 1] == 400
    assert np.all(jokes.ratings == np.round(jokes.ratings, 2))
    assert jokes.ratings.min() < -9 and jokes.ratings.max() > 9
    assert 0.2 < np.mean(np.bincount(jokes.users) == 100) < 0.4


@pytest.mark.parametrize("make", [synthetic.movielens, synthetic.jester])
def test_same_seed_same_table_other_seed_other_table(make: type) -> None:
    a, b, c = make(seed=5), make(seed=5), make(seed=6)
    assert np.array_equal(a.ratings, b.ratings) and np.array_equal(a.items, b.items)
    assert a.titles == b.titles
    assert not (len(a) == len(c) and np.array_equal(a.ratings, c.ratings))


def test_another_process_makes_the_same_table(half_stars: RatingTable) -> None:
    code = "import dpb_data as d; t = d.load_ratings('synthetic-movielens'); print(t.ratings.sum(),"
    code += "int((t.items * t.users).sum()), t.timestamps.sum())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert half_stars.timestamps is not None
    here = (half_stars.ratings.sum(), int((half_stars.items * half_stars.users).sum()))
    assert run.stdout.split() == [str(value) for value in (*here, half_stars.timestamps.sum())]


@pytest.mark.parametrize("name", ["synthetic-movielens", "synthetic-jester"])
def test_an_oracle_linear_policy_beats_random_clearly(name: str) -> None:
    """A least-squares policy on SVD features, fitted in hindsight, picks 1 of 5 rated items."""
    table = dpb_data.load_ratings(name)
    reward = np.full((table.n_users, table.n_items), np.nan)
    reward[table.users, table.items] = table.normalised()
    centred = np.where(np.isnan(reward), 0.0, reward - np.nanmean(reward))
    features = np.linalg.svd(centred, full_matrices=False)[2][:10].T
    features = np.column_stack([features, np.ones(table.n_items)])
    theta = np.linalg.lstsq(features[table.items], table.normalised(), rcond=None)[0]
    score = features @ theta
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(2_000):
        user = rng.integers(table.n_users)
        candidates = rng.choice(np.flatnonzero(~np.isnan(reward[user])), 5, replace=False)
        values = reward[user, candidates]
        gains.append((values[np.argmax(score[candidates])] - values.mean(),
                      values.max() - values.mean()))  # fmt: skip
    linear, best = np.mean(gains, axis=0)
    assert linear > 0.05 and linear > 0.4 * best
    assert best > linear  # personal taste remains: the shared policy is not perfect


@given(st.integers(2, 40), st.integers(2, 40), st.floats(0, 1), st.sampled_from([0.5, 1.0]))
@settings(deadline=None)
def test_any_size_is_met_exactly(n_users: int, n_items: int, fill: float, step: float) -> None:
    fewest, most = max(n_users, n_items), n_users * n_items
    n_ratings = fewest + round(fill * (most - fewest))
    table = synthetic.movielens(n_users, n_items, n_ratings, step=step, seed=1)
    assert (table.n_users, table.n_items, len(table)) == (n_users, n_items, n_ratings)
    pairs = table.users * n_items + table.items
    assert len(np.unique(pairs)) == n_ratings
    assert table.rating_range == (step, 5.0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_users": 1},
        {"n_items": 1},
        {"n_ratings": 299},
        {"n_ratings": 300 * 200 + 1},
        {"step": 0.25},
        {"step": float("nan")},
    ],
)
def test_impossible_films(arguments: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        synthetic.movielens(**arguments)  # type: ignore[arg-type]
