"""Recommendation replayed from real ratings (MovieLens, Jester)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from dpb_gym import kernels, validation
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.problems import item_features
from dpb_gym.problems.base import Field, Problem
from dpb_gym.problems.contexts import CONTEXT_NORMS, rescale, rescaled_bound
from dpb_gym.problems.prior import Prior
from dpb_gym.problems.recommendation import out_of_range
from dpb_gym.problems.rounds import Array, Context, Feedback, Hidden, ProblemInfo, Round
from dpb_gym.streams import Stream

if TYPE_CHECKING:
    from dpb_data import RatingTable
    from dpb_gym.privacy import Guarantee

PROTOCOLS = ("matrix", "replay")
# Private features need noise for every pair of items.
MOST_PRIVATE_ITEMS = 2000


class ReplayProblem(Problem):
    """Recommendation to held-out users among items that they have rated.

    Users are split once (by `split_seed`) into training and test. Item features are the
    right singular vectors, times the singular values, of the training users' centred
    rating matrix (missing = 0), divided by their median norm and clipped to the unit
    ball. Only items with at least `min_ratings` training ratings are candidates.

    An agent's guarantee protects test users, never training users: these are protected only
    by `feature_epsilon`. The features then come from one noisy second moment of the
    training users' rows (`dpb_gym.privacy.private_factors.private_factors`), ratings are centred
    at the middle of their scale, and the items are chosen by the test users' counts, since
    the items that a test user has rated are part of the public contexts. `features_guarantee`
    states the cost. The two groups are disjoint, so the guarantees do not add up.

    Rounds are drawn without repetition: at the start of a replicate each test user's ratings are
    split at random into disjoint sets of candidates, in random order over all users. No rating is
    offered twice unless the data have fewer sets than the horizon has rounds; then all ratings
    are split again, as often as needed. `info.rating_uses` and `info.person_uses` are the maximum
    numbers of rounds per rating and per person; they convert a guarantee per reward into one per
    rating or per person.

    Protocols:
        ``"matrix"``: every candidate's rating is known, so regret is exact and every
        round returns the rating of the recommended item.
        ``"replay"``: rejection (Li et al. 2011): one candidate is drawn as the logged
        one; a round whose recommendation differs returns nothing and is not counted. Logged
        candidates are uniform by construction, which makes replay unbiased.

    Args:
        ratings: The rating table.
        horizon: Rounds offered, T >= 2. In the replay protocol about one in
            `n_candidates` of them is observed.
        dim: Dimension d of the SVD features, below the numbers of training users and
            of items.
        n_candidates: Candidates per round, at least 2.
        protocol: ``"matrix"`` or ``"replay"``.
        personalised: Multiply item features elementwise with the user's factors. These are
            estimated by ridge regression from half of the user's ratings, which are not offered.
        binary: Threshold in the data's own units: the reward is 1 for ratings at or
            above it, else 0. By default the rating normalised to [0, 1].
        train_fraction: Share of users in the training split, in (0, 1).
        min_ratings: Least number of training ratings of a candidate item (of test
            ratings if the features are private).
        max_items: Maximum number of items, those with the most ratings. All by default; for
            private features at most 2000, which is then the default.
        feature_epsilon: Epsilon of private features, per training user. None: exact
            features, without privacy.
        feature_delta: Delta of private features, in (0, 1).
        warm_start: Give agents a prior (`ProblemInfo.prior`): append to each candidate's features
            its reward as predicted by a ridge regression of the training users' rewards on the
            features (so d = dim + 1; see `with_predictions`). Not for private features.
        split_seed: Seed of the split, the same for all replicates.
        rounds_per_user: Maximum number of rounds per test user. None: the smallest limit that
            minimises repetition of ratings; a lower one repeats those of less active users.
        repeats: True draws users and their ratings uniformly with replacement in each round; one
            rating may then be used in every round.
        context_norm: ``"raw"`` (unit ball already), ``"clip"`` or ``"scale"``.

    Attributes:
        features: float32 ``(n_items, dim)``, features of the candidate items.
        features_guarantee: Guarantee of the training users; None without privacy.
        item_index: Index in the rating table of each candidate item.
        user_index: Index in the rating table of each test user who can arrive.

    Raises:
        ParameterError: If a parameter is out of range.
        DataError: If the data are too small for these parameters.
    """

    def __init__(
        self,
        ratings: RatingTable,
        horizon: int = 10_000,
        dim: int = 50,
        n_candidates: int = 5,
        protocol: str = "matrix",
        personalised: bool = False,
        binary: float | None = None,
        train_fraction: float = 0.5,
        min_ratings: int = 5,
        split_seed: int = 0,
        context_norm: str = "raw",
        max_items: int | None = None,
        feature_epsilon: float | None = None,
        feature_delta: float = 1e-5,
        warm_start: bool = False,
        rounds_per_user: int | None = None,
        repeats: bool = False,
    ) -> None:
        self.data_name = ratings.name
        self.horizon = validation.integer("horizon", horizon, 2)
        self.dim = validation.integer("dim", dim, 1)
        self.n_candidates = validation.integer("n_candidates", n_candidates, 2)
        self.protocol = validation.choice("protocol", protocol, PROTOCOLS)
        self.personalised = validation.flag("personalised", personalised)
        self.binary = validation.optional(validation.real, "binary", binary)
        self.train_fraction = validation.real(
            "train_fraction", train_fraction, 0.0, 1.0, open_low=True, open_high=True
        )
        self.min_ratings = validation.integer("min_ratings", min_ratings, 1)
        self.split_seed = validation.integer("split_seed", split_seed, 0)
        self.context_norm = validation.choice("context_norm", context_norm, CONTEXT_NORMS)
        self._read_features(max_items, feature_epsilon, feature_delta, warm_start)
        if feature_epsilon is None:
            self.unused = {"feature_delta": "private features, which feature_epsilon asks for"}
        self.repeats = validation.flag("repeats", repeats)
        self.rounds_per_user = validation.optional(
            validation.integer, "rounds_per_user", rounds_per_user, 1
        )
        if self.repeats and rounds_per_user is not None:
            raise ParameterError("rounds_per_user has no meaning with repeats=True")
        self._prepare(ratings)
        rating_uses, person_uses = self._plan_splits()
        self.feature_bound = rescaled_bound(1.0, self.context_norm, self.dim)
        self.info = ProblemInfo(
            kind="recommendation",
            horizon=self.horizon,
            dim=self.dim,
            reward_range=(0.0, 1.0),
            n_candidates=self.n_candidates,
            n_arms=None if self.personalised else len(self.features),
            partial_feedback=self.protocol == "replay",
            rating_uses=rating_uses,
            person_uses=person_uses,
            prior=self._prior,
            binary=self.binary is not None,
        )

    def _read_features(self, max_items: Any, epsilon: Any, delta: Any, warm_start: Any) -> None:
        """Check the parameters of the item features."""
        self.feature_epsilon = validation.optional(
            validation.real, "feature_epsilon", epsilon, 0.0, open_low=True
        )
        self.feature_delta = validation.real(
            "feature_delta", delta, 0.0, 1.0, open_low=True, open_high=True
        )
        self._private = self.feature_epsilon is not None
        limit = MOST_PRIVATE_ITEMS if self._private else None
        self.max_items = validation.optional(
            validation.integer, "max_items", limit if max_items is None else max_items, 2, limit
        )
        self.warm_start = validation.flag("warm_start", warm_start)
        if self.warm_start and self._private:
            raise ParameterError(
                "warm_start=True reads the training users' ratings without noise, which "
                "feature_epsilon does not cover: give one of them"
            )

    def _prepare(self, data: RatingTable) -> None:
        from scipy.sparse import csr_array

        rng = np.random.default_rng(self.split_seed)
        value = np.asarray(data.normalised(), dtype=np.float64)
        row, train = self._split(data, rng)
        item = self._number_items(data, train)
        use = train & (item >= 0)
        mean = 0.5 if self._private else float(value[train].mean())
        shape = self.n_training_users, len(self.item_index)
        rows = csr_array((value[use] - mean, (row[data.users[use]], item[use])), shape=shape)
        self.features_guarantee: Guarantee | None = None
        if self.feature_epsilon is None:
            factors = item_features.svd_factors(rows, self.dim)
        else:
            asked = self.feature_epsilon, self.feature_delta
            released = item_features.private_svd_factors(rows, self.dim, asked, self.split_seed)
            factors, self.features_guarantee = released.factors, released.guarantee
        self.features = item_features.scaled(factors)
        offered = ~train & (item >= 0)
        if self.personalised:
            profile = offered & (rng.random(len(item)) < 0.5)
            offered &= ~profile
        reward = value if self.binary is None else (data.ratings >= self.binary).astype(np.float64)
        self._offer(data, item, reward, offered)
        self._user_features: Array | None = None
        if self.personalised:
            known = data.users[profile], item[profile], value[profile] - mean
            self._user_features = item_features.fold_in(factors, self.user_index, *known)
        self._prior: Prior | None = None
        if self.warm_start:
            training = (data.users[use], item[use], reward[use])
            self.features, self._prior = item_features.with_predictions(self.features, *training)
            self.dim += 1
            if self._user_features is not None:
                # the precision does not apply to personalised features
                self._prior = Prior(self._prior.mean)
                ones = np.ones((len(self._user_features), 1), np.float32)
                self._user_features = np.hstack([self._user_features, ones])

    def _split(self, data: RatingTable, rng: Generator) -> tuple[Array, Array]:
        """Return each user's row, training users first, and the mask of their ratings."""
        n_train = self.n_training_users = round(self.train_fraction * data.n_users)
        if not 1 <= n_train < data.n_users:
            raise DataError(f"{data.name}: {data.n_users} users cannot be split in two")
        row = np.argsort(rng.permutation(data.n_users))
        return row, row[data.users] < n_train

    def _number_items(self, data: RatingTable, train: Array) -> Array:
        """Return the candidate item of each rating, -1 for items that are no candidates."""
        counts = np.bincount(data.items[train ^ self._private], minlength=data.n_items)
        kept = np.flatnonzero(counts >= self.min_ratings)
        if self.max_items is not None and len(kept) > self.max_items:
            most = np.argsort(-counts[kept], kind="stable")[: self.max_items]
            kept = np.sort(kept[most])
        if self.dim >= min(self.n_training_users, len(kept)):
            raise DataError(
                f"{data.name}: dim={self.dim} needs more than {self.dim} training users and items "
                f"with {self.min_ratings} ratings, found {self.n_training_users} and {len(kept)}"
            )
        self.item_index = kept
        number = np.full(data.n_items, -1, np.int64)
        number[kept] = np.arange(len(kept))
        return number[data.items]

    def _offer(self, data: RatingTable, item: Array, reward: Array, offered: Array) -> None:
        """Set the offered ratings, of users with enough of them, sorted by user and item."""
        rated = np.bincount(data.users[offered], minlength=data.n_users)
        eligible = rated >= self.n_candidates
        if not eligible.any():
            raise DataError(
                f"{data.name}: no test user has rated {self.n_candidates} candidate items"
            )
        index = np.flatnonzero(offered & eligible[data.users])
        index = index[np.lexsort((item[index], data.users[index]))]
        self.user_index, start = np.unique(data.users[index], return_index=True)
        self._offsets = np.append(start, len(index)).astype(np.int64)
        self._items, self._rewards = item[index], reward[index]

    def _plan_splits(self) -> tuple[int, int]:
        """Plan the number of candidate sets per user in each split of all ratings.

        Returns:
            Maximum numbers of rounds that offer one rating, and of one person.
        """
        self._splits: list[Array] = []
        if self.repeats:
            return self.horizon, self.horizon
        sets = np.diff(self._offsets) // self.n_candidates
        limit = self.rounds_per_user or self.horizon
        if limit * len(sets) < self.horizon:
            raise DataError(
                f"{self.data_name}: {len(sets)} test users of at most {limit} rounds fill "
                f"{limit * len(sets):,} rounds, not {self.horizon:,}: lower the horizon, or raise "
                "rounds_per_user"
            )
        given = np.zeros_like(sets)
        while (left := self.horizon - int(given.sum())) > 0:
            counts = np.minimum(sets, limit - given)
            if counts.sum() > left:
                # The smallest common number of sets that fills the rest.
                most = np.arange(1, int(counts.max()) + 1)
                filled = np.array([np.minimum(counts, n).sum() for n in most])
                counts = np.minimum(counts, most[np.searchsorted(filled, left)])
            self._splits.append(counts)
            given += counts
        return len(self._splits), int(given.max())

    @property
    def today(self) -> tuple[float, float]:
        """Mean reward of the ratings of the users who arrive, and its standard error."""
        counts = np.diff(self._offsets)
        user = np.repeat(np.arange(len(counts)), counts)
        rewards = self._rewards.astype(np.float64)
        sums = np.bincount(user, rewards - rewards.mean())
        return float(rewards.mean()), float(np.sqrt(np.sum(sums**2)) / len(rewards))

    def summary(self) -> dict[str, Any]:
        guarantee = self.features_guarantee
        protected = "nothing" if guarantee is None else guarantee.describe(self.feature_delta)
        return {
            "data": self.data_name,
            "training users": self.n_training_users,
            "test users": len(self.user_index),
            "candidate items": len(self.features),
            "features": "truncated SVD" if guarantee is None else "DP-SVD",
            "protects training users": protected,
            "rounds with one rating, at most": self.info.rating_uses,
            "rounds of one person, at most": self.info.person_uses,
        }

    def draw_hidden(self, rng: Generator) -> Hidden:
        """Return the rounds: ``users`` (T,) and ``positions`` (T, n_candidates) of ratings."""
        if self.repeats:
            return {}
        users = np.empty(self.horizon, np.int32)
        positions = np.empty((self.horizon, self.n_candidates), np.int32)
        done = 0
        for counts in self._splits:
            n = int(counts.sum())
            owner = np.empty(n, np.int32)
            sets = np.empty((n, self.n_candidates), np.int32)
            uniforms = rng.random(sets.size)
            kernels.candidates.split_ratings(uniforms, self._offsets, counts, owner, sets)
            order = rng.permutation(n)[: self.horizon - done]
            users[done : done + n] = owner[order]
            positions[done : done + n] = sets[order]
            done += n
        return {"users": users, "positions": positions}

    def fields(self) -> dict[str, Field]:
        """Return uniforms for the logged candidate; with `repeats` also for user and candidates."""
        width = self.n_candidates + 2 if self.repeats else 1
        return {"draws": Field((width,), np.float64, Stream.CANDIDATES)}

    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        uniforms = np.ascontiguousarray(drawn["draws"])
        B = len(uniforms)
        m = self.n_candidates
        if self.repeats:
            users = np.empty(B, np.int64)
            logged = np.empty(B, np.int64)
            positions = np.empty((B, m), np.int64)
            kernels.candidates.draw_rated(uniforms, self._offsets, users, positions, logged)
        else:
            now = (np.arange(B), t - 1)
            users = hidden["users"][now].astype(np.int64)
            positions = hidden["positions"][now].astype(np.int64)
            logged = np.minimum((uniforms[:, 0] * m).astype(np.int64), m - 1)
        arms = self._items[positions]
        features = np.empty((B, m, self.dim), np.float32)
        kernels.candidates.gather(self.features[None], arms, features)
        if self._user_features is not None:
            features *= self._user_features[users][:, None, :]
        rescale(features, self.context_norm)
        secret = {"rewards": self._rewards[positions], "logged": logged}
        context = Context(int(t[0]), features, arms=arms, users=users)
        return Round(context, drawn["response"], secret)

    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        bad = (action < 0) | (action >= self.n_candidates)
        if bad.any():
            raise out_of_range(action, int(bad.argmax()), self.n_candidates)
        expected = round_.secret["rewards"][np.arange(len(action)), action]
        if self.protocol == "matrix":
            return Feedback(expected), expected
        observed = action == round_.secret["logged"]
        return Feedback(np.where(observed, expected, 0.0), observed=observed), expected

    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        rewards = round_.secret["rewards"]
        return rewards.argmax(axis=1), rewards.max(axis=1)
