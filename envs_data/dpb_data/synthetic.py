"""Generated data sets: no files, no licence, the shapes of the published ones.

The tables do not reproduce published statistics. They have the properties that matter to a bandit:
few latent dimensions explain the ratings, a component common to all users lets one linear policy do
well for all, and (for films) few items get most of the ratings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpb_data.rating_table import RatingTable
from dpb_gym import validation
from dpb_gym.errors import ParameterError

_FIRST_SECOND = 978_307_200  # 2001-01-01
_DAY = 86_400
# In Jester every visitor first rates these jokes (numbers from 1), the "gauge set".
GAUGE_SET = (5, 7, 8, 13, 15, 16, 17, 18, 19, 20)


def movielens(
    n_users: int = 300,
    n_items: int = 200,
    n_ratings: int = 12_000,
    *,
    step: float = 0.5,
    seed: int = 0,
) -> RatingTable:
    """Generate a sparse film-rating table with popularity skew.

    User u rates item i with 3.4 + v_i.(w + z_u) + b_u + noise, rounded to the grid of stars: v_i
    are item factors, w the taste common to all, z_u personal taste, b_u the user's bias. Which
    items a user rates follows Zipf weights (exponent 0.8), tilted towards items that many like;
    the number of ratings per user is log-normal with at least 20 (or, in tiny tables, fewer).

    Args:
        n_users: Users, at least 2.
        n_items: Items, at least 2; each gets at least one rating if there are enough of them.
        n_ratings: Ratings, from max(n_users, n_items) to n_users * n_items.
        step: 0.5 for half stars (0.5 to 5) or 1.0 for whole stars (1 to 5).
        seed: Same seed, same table.

    Returns:
        The table, sorted by user and item, with ids that have gaps, titles with commas and
        accents, and timestamps.

    Raises:
        ParameterError: A size is out of its range.
    """
    validation.integer("n_users", n_users, 2)
    validation.integer("n_items", n_items, 2)
    validation.integer("n_ratings", n_ratings, max(n_users, n_items), n_users * n_items)
    if step not in (0.5, 1.0):
        raise ParameterError(f"step must be 0.5 or 1.0, not {step}")
    rng = np.random.default_rng([seed, 1])
    factors, taste, quality = _factors(rng, n_users, n_items, 6)

    popularity = -0.8 * np.log1p(rng.permutation(n_items)) + 0.5 * quality
    keys = popularity + rng.gumbel(size=(n_users, n_items))
    # every item gets one rating first, evenly over the users
    keys[rng.permutation(n_users)[np.arange(n_items) % n_users], np.arange(n_items)] += 1e6
    forced = (keys > 1e5).sum(axis=1)
    activity = _activity(rng, np.maximum(forced, 1), n_items, n_ratings)
    ranks = np.empty_like(keys, dtype=np.int64)
    np.put_along_axis(ranks, np.argsort(-keys, axis=1), np.arange(n_items)[None, :], axis=1)
    users, items = np.nonzero(ranks < activity[:, None])

    bias = rng.normal(0.0, 0.25, n_users)
    raw = 3.4 + _signal(factors, taste, users, items) + bias[users]
    raw = raw + rng.normal(0.0, 0.35, n_ratings)
    ratings = np.clip(np.rint(raw / step) * step, step, 5.0)

    item_ids = np.cumsum(rng.integers(1, 5, n_items))
    user_ids = np.cumsum(rng.integers(1, 3, n_users))
    joined = _FIRST_SECOND + rng.integers(0, 3_000 * _DAY, n_users)
    stamps = joined[users] + rng.integers(0, 90 * _DAY, n_ratings)
    return RatingTable.from_columns(
        "synthetic-movielens",
        user_ids[users],
        item_ids[items],
        ratings,
        rating_range=(step, 5.0),
        timestamps=stamps,
        titles={int(item): _title(index, rng) for index, item in enumerate(item_ids)},
    )


def jester(*, seed: int = 0) -> RatingTable:
    """Generate a dense table of ratings of 100 jokes from -10 to 10, two decimals.

    Three users in ten rate every joke, the others the gauge set and a random share of the rest.
    A rating is 10 tanh(v_i.(w + z_u) + b_u + noise), with the notation of `movielens`.

    The table is sorted by user and joke, with ids from 1, without titles and timestamps.
    """
    n_users = 400
    n_jokes = 100
    rng = np.random.default_rng([seed, 2])
    factors, taste, _ = _factors(rng, n_users, n_jokes, 6)
    share = np.where(rng.random(n_users) < 0.3, 1.0, rng.uniform(0.3, 0.9, n_users))
    share[0] = 1.0  # every joke has a rating
    rated = rng.random((n_users, n_jokes)) < share[:, None]
    rated[:, [joke - 1 for joke in GAUGE_SET]] = True
    users, jokes = np.nonzero(rated)
    bias = rng.normal(0.05, 0.2, n_users)
    raw = 0.6 * _signal(factors, taste, users, jokes) + bias[users]
    raw = raw + rng.normal(0.0, 0.25, users.size)
    ratings = np.round(10.0 * np.tanh(raw), 2)
    return RatingTable.from_columns(
        "synthetic-jester", users + 1, jokes + 1, ratings, rating_range=(-10.0, 10.0)
    )


def _factors(
    rng: np.random.Generator, n_users: int, n_items: int, rank: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return item factors (n_items, rank), tastes (n_users, rank) and common appeal (n_items,)."""
    scale = 1.0 / np.sqrt(np.arange(1, rank + 1))
    factors = rng.normal(size=(n_items, rank)) * scale
    common = rng.normal(size=rank)
    common *= 0.6 / np.sqrt(np.sum((common * scale) ** 2))
    personal = rng.normal(size=(n_users, rank)) * (0.45 / np.sqrt(np.sum(scale**2)))
    appeal = np.sum(factors * common, axis=1)
    return factors, personal + common, appeal


def _signal(
    factors: NDArray[np.float64],
    taste: NDArray[np.float64],
    users: NDArray[np.int64],
    items: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return v_i.(w + z_u) per rating, summed in a fixed order for reproducibility."""
    total = np.zeros(users.size)
    for k in range(factors.shape[1]):
        total += factors[items, k] * taste[users, k]
    return total


def _activity(
    rng: np.random.Generator, floor: NDArray[np.int64], n_items: int, total: int
) -> NDArray[np.int64]:
    """Return log-normal ratings per user in [floor, n_items] that sum to `total`."""
    n_users = len(floor)
    wanted = np.clip(np.maximum(floor, min(20, total // n_users)), 1, n_items)
    counts = wanted if wanted.sum() <= total else floor
    weights = rng.lognormal(0.0, 0.8, n_users)
    while (rest := total - int(counts.sum())) > 0:
        free = n_items - counts
        open_weights = np.where(free > 0, weights, 0.0)
        extra = rng.multinomial(rest, open_weights / open_weights.sum())
        counts = counts + np.minimum(extra, free)
    return counts


def _title(index: int, rng: np.random.Generator) -> str:
    """Return an invented title; every fifth has an article, every seventh an accent."""
    year = int(rng.integers(1930, 2001))
    word = "Café" if index % 7 == 3 else "Film"
    if index % 5 == 2:
        return f"{word} {index:03d}, The ({year})"
    if index % 11 == 4:
        return f'"{word}" {index:03d}: Part II ({year})'
    return f"{word} {index:03d} ({year})"


def kuairec() -> RatingTable:
    """Generate a fully observed table of watch ratios, like KuaiRec's small matrix.

    Every user has watched every video. A rating is the watched share of its length, clipped to
    [0, 2], log-normal around a low-rank taste.
    """
    n_users = 60
    n_items = 80
    rng = np.random.default_rng([0, 4])
    factors, taste, _ = _factors(rng, n_users, n_items, 4)
    users, items = np.divmod(np.arange(n_users * n_items), n_items)
    raw = 0.5 * _signal(factors, taste, users, items) + rng.normal(-0.3, 0.4, users.size)
    ratings = np.round(np.clip(np.exp(raw), 0.0, 2.0), 6)
    ids = np.cumsum(rng.integers(1, 9, n_items))
    return RatingTable.from_columns(
        "synthetic-kuairec", 14 + 3 * users, ids[items], ratings, rating_range=(0.0, 2.0)
    )


def mode_canada(n_sets: int = 600) -> dict[str, list[object]]:
    """Generate travel mode choices with the columns of ModeCanada, one row per alternative."""
    rng = np.random.default_rng([0, 5])
    weights = {"cost": -0.03, "ivt": -0.01, "ovt": -0.03, "freq": 0.05}
    rows: list[list[object]] = []
    for case in range(1, n_sets + 1):
        modes = ["train", "air", "bus", "car"][4 - int(rng.integers(2, 5)) :]
        about = np.column_stack(
            [rng.uniform(20, 160, len(modes)), rng.uniform(50, 400, len(modes)),
             rng.uniform(0, 120, len(modes)), rng.integers(0, 20, len(modes))]
        ).round(2)  # fmt: skip
        winner = int(np.argmax(about @ list(weights.values()) + rng.gumbel(size=len(modes))))
        distance = int(rng.integers(80, 400))
        income = int(rng.integers(1, 15)) * 5
        rows += [
            [case, mode, int(k == winner), distance, *about[k].tolist(), income, 0, len(modes)]
            for k, mode in enumerate(modes)
        ]
    names = ("case", "alt", "choice", "dist", *weights, "income", "urban", "noalt")
    return dict(zip(names, map(list, zip(*rows))))


def loans(n: int = 4_000) -> dict[str, NDArray[np.generic]]:
    """Generate quoted loan rates: columns price, bought, amount, term, score, channel.

    Demand is logistic and decreases in the rate and in the credit score.
    """
    rng = np.random.default_rng([0, 6])
    amount = np.round(rng.lognormal(9.8, 0.5, n), -2)
    term = rng.choice(np.array([36, 48, 60, 72]), n)
    score = np.clip(np.rint(rng.normal(720, 50, n)), 500, 850)
    rate = np.clip(np.round(11.0 - 0.012 * (score - 500) + rng.normal(0, 1.5, n), 2), 2.5, 12.0)
    channel = np.where(rng.random(n) < 0.3, "direct", "partner")
    utility = 3.4 - 0.55 * rate - 0.004 * (score - 720) + 0.3 * (channel == "direct")
    accepted = (rng.random(n) < 1.0 / (1.0 + np.exp(-utility))).astype(np.int64)
    return {
        "price": rate, "bought": accepted, "amount": amount, "term": term, "score": score,
        "channel": channel,
    }  # fmt: skip


def open_bandit(
    n: int = 3_000, n_items: int = 12, *, seed: int = 0
) -> tuple[dict[str, object], dict[str, object]]:
    """Generate a log and its items with the columns of the Open Bandit Dataset.

    The logging policy is random: every item at every position with probability 1 / n_items.
    """
    rng = np.random.default_rng([seed, 7])
    quality = rng.normal(0.0, 1.0, n_items)
    item = rng.integers(0, n_items, n)
    affinity = (rng.random((n, n_items)) < 0.05).astype(np.float64)
    rate = 1.0 / (1.0 + np.exp(2.8 - 0.6 * quality[item] - 1.5 * affinity[np.arange(n), item]))
    stamps = np.datetime64("2019-11-24T00:00:03") + 7 * np.arange(n)
    log: dict[str, object] = {
        "timestamp": np.char.add(np.char.replace(stamps.astype(str), "T", " "), "+00:00"),
        "item_id": item,
        "position": rng.integers(1, 4, n),
        "click": (rng.random(n) < rate).astype(np.int64),
        "propensity_score": np.full(n, 1.0 / n_items),
        **{f"user_feature_{k}": _codes(rng, n, 3 + k) for k in range(4)},
        **{f"user-item_affinity_{k}": affinity[:, k] for k in range(n_items)},
    }
    items: dict[str, object] = {
        "item_id": np.arange(n_items),
        "item_feature_0": quality,
        **{f"item_feature_{k}": _codes(rng, n_items, 2 + k) for k in range(1, 4)},
    }
    return log, items


def _codes(rng: np.random.Generator, n: int, levels: int) -> NDArray[np.str_]:
    """Return hashed levels of a feature, as in the published data set."""
    return np.array([f"{k:032x}" for k in range(levels)])[rng.integers(0, levels, n)]
