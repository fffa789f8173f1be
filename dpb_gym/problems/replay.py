"""Recommendation replayed from real ratings (MovieLens, Jester)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from dpb_gym import kernels, validation
from dpb_gym.errors import ActionError, DataError
from dpb_gym.problems.base import (
    CONTEXT_NORMS,
    Array,
    Context,
    Feedback,
    Field,
    Hidden,
    Loss,
    Problem,
    ProblemInfo,
    Round,
    action_array,
    rescale,
    rescaled_bound,
)
from dpb_gym.problems.recommendation import out_of_range, squared_loss
from dpb_gym.streams import Stream

PROTOCOLS = ("matrix", "replay")


class Ratings(Protocol):
    """What a replay problem needs of a rating table (`dpb_data.RatingTable` has it)."""

    name: str
    users: Array
    items: Array
    ratings: Array
    n_users: int
    n_items: int

    def normalised(self) -> Array:
        """Ratings mapped to [0, 1]."""


class ReplayProblem(Problem):
    """A user of a held-out split arrives; candidates are items that the user has rated.

    Users are split once (by `split_seed`) into training and test. Item features are the
    right singular vectors, times the singular values, of the training users' centred
    rating matrix (missing = 0), divided by their median norm and clipped to the unit
    ball. Only items with at least `min_ratings` training ratings are candidates.

    Protocols:
        ``"matrix"``: every candidate's rating is known, so regret is exact and every
        round returns the rating of the recommended item.
        ``"replay"``: rejection (Li et al. 2011): one candidate is drawn as the logged
        one; a round whose recommendation differs returns nothing and counts for
        nothing. The log is uniform by construction, which is what makes replay unbiased;
        it would not be for data logged by another policy.

    Args:
        ratings: The rating table.
        horizon: Rounds offered, T >= 2. In the replay protocol about one in
            `n_candidates` of them is observed.
        dim: Dimension d of the SVD features, below the numbers of training users and
            of items.
        n_candidates: Candidates per round, at least 2.
        protocol: ``"matrix"`` or ``"replay"``.
        personalised: Multiply item features elementwise with the user's factors, folded
            in by ridge regression from a half of that user's ratings which is then no
            longer offered.
        binary: Threshold in the data's own units: the reward is 1 for ratings at or
            above it, else 0. By default the rating normalised to [0, 1].
        train_fraction: Share of users in the training split, in (0, 1).
        min_ratings: Least number of training ratings of a candidate item.
        split_seed: Seed of the split, the same for all replicates.
        context_norm: ``"raw"`` (unit ball already), ``"clip"`` or ``"scale"``.

    Raises:
        ParameterError: If a parameter is out of range.
        DataError: If the data are too small for these parameters.
    """

    kind: ClassVar[str] = "recommendation"

    def __init__(
        self,
        ratings: Ratings,
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
    ) -> None:
        self.data_name = ratings.name
        self.horizon = validation.integer("horizon", horizon, 2)
        self.dim = validation.integer("dim", dim, 1)
        self.n_candidates = validation.integer("n_candidates", n_candidates, 2)
        self.protocol = validation.choice("protocol", protocol, PROTOCOLS)
        self.personalised = validation.flag("personalised", personalised)
        self.binary = None if binary is None else validation.real("binary", binary)
        self.train_fraction = validation.real(
            "train_fraction", train_fraction, 0.0, 1.0, open_low=True, open_high=True
        )
        self.min_ratings = validation.integer("min_ratings", min_ratings, 1)
        self.split_seed = validation.integer("split_seed", split_seed, 0)
        self.context_norm = validation.choice("context_norm", context_norm, CONTEXT_NORMS)
        self._prepare(ratings)
        self.feature_bound = rescaled_bound(1.0, self.context_norm, self.dim)
        self.info = ProblemInfo(
            kind=self.kind,
            horizon=self.horizon,
            dim=self.dim,
            reward_range=(0.0, 1.0),
            n_candidates=self.n_candidates,
            n_arms=None if self.personalised else len(self.features),
            partial_feedback=self.protocol == "replay",
        )

    def _prepare(self, data: Ratings) -> None:
        rng = np.random.default_rng(self.split_seed)
        value = np.asarray(data.normalised(), dtype=np.float64)
        order = rng.permutation(data.n_users)
        n_train = round(self.train_fraction * data.n_users)
        if not 1 <= n_train < data.n_users:
            raise DataError(f"{data.name}: {data.n_users} users cannot be split in two")
        training_user = np.zeros(data.n_users, bool)
        training_user[order[:n_train]] = True
        train = training_user[data.users]
        counts = np.bincount(data.items[train], minlength=data.n_items)
        kept = np.flatnonzero(counts >= self.min_ratings)
        if self.dim >= min(n_train, len(kept)):
            raise DataError(
                f"{data.name}: dim={self.dim} needs more than {self.dim} training users and items "
                f"with {self.min_ratings} ratings, found {n_train} and {len(kept)}"
            )
        new_item = np.full(data.n_items, -1, np.int64)
        new_item[kept] = np.arange(len(kept))
        item = new_item[data.items]
        mean = float(value[train].mean())
        use = train & (item >= 0)
        self.features, factors = _svd_features(
            order, n_train, data.users[use], item[use], value[use] - mean, len(kept), self.dim
        )
        self.item_index = kept
        offered = ~train & (item >= 0)
        if self.personalised:
            profile = offered & (rng.random(len(item)) < 0.5)
            offered &= ~profile
        reward = value if self.binary is None else (data.ratings >= self.binary).astype(np.float64)
        rated = np.bincount(data.users[offered], minlength=data.n_users)
        eligible = rated >= self.n_candidates
        if not eligible.any():
            raise DataError(
                f"{data.name}: no test user has rated {self.n_candidates} candidate items"
            )
        offered &= eligible[data.users]
        index = np.flatnonzero(offered)
        index = index[np.lexsort((item[index], data.users[index]))]
        self.user_index, start = np.unique(data.users[index], return_index=True)
        self._offsets = np.append(start, len(index)).astype(np.int64)
        self._items = item[index]
        self._rewards = reward[index]
        self._user_features: Array | None = None
        if self.personalised:
            self._user_features = _fold_in(
                factors, self.user_index, data.users[profile], item[profile], value[profile] - mean
            )

    def draw_hidden(self, rng: np.random.Generator) -> Hidden:
        return {}

    def fields(self) -> dict[str, Field]:
        return {
            "draws": Field((self.n_candidates + 2,), np.float64, Stream.CANDIDATES, _fill_uniforms)
        }

    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        uniforms = np.ascontiguousarray(drawn["draws"])
        B, m = len(uniforms), self.n_candidates
        users, logged = np.empty(B, np.int64), np.empty(B, np.int64)
        positions = np.empty((B, m), np.int64)
        kernels.recommendation.draw_rated(uniforms, self._offsets, users, positions, logged)
        arms = self._items[positions]
        features = np.empty((B, m, self.dim), np.float32)
        kernels.recommendation.gather(self.features[None], arms, features)
        if self._user_features is not None:
            features *= self._user_features[users][:, None, :]
        rescale(features, self.context_norm)
        secret = {"rewards": self._rewards[positions], "logged": logged}
        context = Context(int(t[0]), features, arms=arms, users=users)
        return Round(context, drawn["response"], secret)

    def check_action(self, action: Any, replicates: int) -> Array:
        """Candidate indices ``(B,)`` in 0..n_candidates - 1."""
        return action_array(action, (replicates,), True, "candidate indices")

    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        bad = (action < 0) | (action >= self.n_candidates)
        if bad.any():
            raise ActionError(out_of_range(action, int(bad.argmax()), self.n_candidates))
        expected = round_.secret["rewards"][np.arange(len(action)), action]
        if self.protocol == "matrix":
            return Feedback(expected), expected
        observed = action == round_.secret["logged"]
        return Feedback(np.where(observed, expected, 0.0), observed=observed), expected

    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        rewards = round_.secret["rewards"]
        return rewards.argmax(axis=1), rewards.max(axis=1)

    def loss(self, theta: Array, context: Context, action: Array, feedback: Feedback) -> Loss:
        """Squared loss of the linear model."""
        return squared_loss(theta, context, action, feedback)


def _svd_features(
    order: Array, n_train: int, users: Array, items: Array, values: Array, n_items: int, dim: int
) -> tuple[Array, Array]:
    """Item features of the truncated SVD and the unscaled item factors, ``(n_items, dim)``."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import svds

    row = np.empty(len(order), np.int64)
    row[order] = np.arange(len(order))
    matrix = csr_matrix((values, (row[users], items)), shape=(n_train, n_items))
    start = np.ones(min(matrix.shape))
    _, singular, right = svds(matrix, k=dim, v0=start, solver="arpack")
    descending = np.argsort(singular)[::-1]
    factors = (right[descending] * singular[descending, None]).T
    largest = np.abs(factors).argmax(axis=0)
    factors *= np.sign(factors[largest, np.arange(dim)])
    norms = np.sqrt((factors * factors).sum(axis=1))
    scaled = factors / max(float(np.median(norms)), 1e-12)
    features = np.ascontiguousarray(scaled, dtype=np.float32)
    kernels.contexts.normalise(features, kernels.contexts.CLIP)
    return features, factors


def _fold_in(factors: Array, test_users: Array, users: Array, items: Array, values: Array) -> Array:
    """Ridge-regressed user factors, scaled to the sup norm 1, float32 ``(n, dim)``."""
    dim = factors.shape[1]
    result = np.zeros((len(test_users), dim), np.float32)
    scale = float(np.median(np.sqrt((factors * factors).sum(axis=1))))
    design = factors / max(scale, 1e-12)
    sort = np.argsort(users, kind="stable")
    users, items, values = users[sort], items[sort], values[sort]
    left = np.searchsorted(users, test_users, side="left")
    right = np.searchsorted(users, test_users, side="right")
    for i, (a, b) in enumerate(zip(left, right)):
        X = design[items[a:b]]
        solved = np.linalg.solve(X.T @ X + np.eye(dim), X.T @ values[a:b])
        top = np.abs(solved).max() if b > a else 0.0
        # A user without a profile gets the plain item features.
        result[i] = solved / top if top > 0.0 else 1.0
    return result


def _fill_uniforms(
    rng: np.random.Generator, start: int, hidden: Mapping[str, Array], out: Array
) -> None:
    rng.random(out=out)
