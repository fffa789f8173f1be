"""Linear-contextual recommendation (Riyazat & Ukwatta, section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from dpb_gym import kernels, portable, validation
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.overrides import overridden
from dpb_gym.problems.base import Field, Problem
from dpb_gym.problems.contexts import CONTEXT_NORMS, ContextSchedule, read_rank, rescale
from dpb_gym.problems.folded import FoldedStretch
from dpb_gym.problems.rounds import Array, Context, Feedback, Hidden, ProblemInfo, Round
from dpb_gym.problems.stretch import JudgedStretch, Stretch
from dpb_gym.streams import Stream

REWARDS = ("logistic", "linear", "gaussian")
DESIGNS = ("sphere", "low-rank", "blocks")


class RecommendationProblem(Problem):
    """Recommendation of one of a few candidates with known features in each round.

    The pool of arms has unit-norm features, fixed per replicate. theta is Gaussian,
    normalised to norm 2.

    Args:
        horizon: Rounds T, at least 2.
        dim: Dimension d, at least 1.
        n_arms: Size of the pool.
        n_candidates: Candidates per round, drawn from the pool without replacement, 1..n_arms;
            without a pool any number.
        reward: ``"logistic"``: Bernoulli with mean sigmoid(<x, theta>); ``"linear"``:
            Bernoulli with mean 1/2 + <x, theta> / 4; ``"gaussian"``: that mean plus
            N(0, noise_std^2), clipped to [0, 1] (the expected reward accounts for the
            clipping).
        noise_std: Standard deviation for ``reward="gaussian"``, > 0.
        fresh: Draw new arms each round instead of a fixed pool.
        design: ``"sphere"``: directions uniform on the sphere; ``"low-rank"``: in one
            random subspace of dimension `rank` per replicate; ``"blocks"``: new arms each
            round, in one subspace of dimension `rank` for `block_rounds` rounds, then in the
            next (an oblivious schedule whose subspaces span R^d).
        rank: Dimension of the subspaces, 1..d; max(1, d // 2) by default.
        block_rounds: Rounds per subspace of the ``"blocks"`` design.
        context_norm: ``"raw"`` (unit norm), ``"clip"`` or ``"scale"`` (x / sqrt(d)).
        interactions_per_user: Number k of rounds per user; adds user ids.
        users_per_horizon: Number of users, instead of k; k = ceil(T / users).
        user_order: ``"consecutive"`` or ``"shuffled"`` rounds of a user.
        theta: Fixed parameter ``(d,)``.
        contexts: ``"drawn"`` by the design, or an oblivious sequence of new arms:
            ``"switched"``, ``"drifting"``, an array ``(n, n_candidates, d)`` or its file; see
            `dpb_gym.problems.contexts.ContextSchedule`.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self,
        horizon: int = 10_000,
        dim: int = 20,
        n_arms: int = 100,
        n_candidates: int = 5,
        reward: str = "logistic",
        noise_std: float = 0.1,
        fresh: bool = False,
        design: str = "sphere",
        rank: int | None = None,
        block_rounds: int = 500,
        context_norm: str = "raw",
        interactions_per_user: int | None = None,
        users_per_horizon: int | None = None,
        user_order: str = "consecutive",
        theta: Any = None,
        contexts: Any = "drawn",
    ) -> None:
        self.horizon = validation.integer("horizon", horizon, 2)
        self.dim = validation.integer("dim", dim, 1)
        self.n_arms = validation.integer("n_arms", n_arms, 1)
        self.reward = validation.choice("reward", reward, REWARDS)
        self.noise_std = validation.real("noise_std", noise_std, 0.0, open_low=True)
        self.design = validation.choice("design", design, DESIGNS)
        self.fresh = validation.flag("fresh", fresh) or design == "blocks"
        self.rank = read_rank(rank, self.dim, design, ("low-rank", "blocks"))
        self.block_rounds = validation.integer("block_rounds", block_rounds, 1)
        self.context_norm = validation.choice("context_norm", context_norm, CONTEXT_NORMS)
        self.user_order = validation.choice("user_order", user_order, ("consecutive", "shuffled"))
        self.interactions_per_user = read_interactions(
            interactions_per_user, users_per_horizon, self.horizon
        )
        self.theta = validation.optional(validation.array, "theta", theta, (self.dim,))
        # without a pool, candidates are new in every round and their number has no bound
        drawn = isinstance(contexts, str) and contexts == "drawn"
        most = self.n_arms if drawn and not self.fresh else None
        self.n_candidates = validation.integer("n_candidates", n_candidates, 1, most)
        self._shape = (self.n_candidates, self.dim)
        self.schedule = ContextSchedule(contexts, self.horizon, self._shape, self.context_norm, 1.0)
        self.feature_bound = self.schedule.bound
        if not self.schedule.drawn:
            if design != "sphere":
                raise ParameterError("contexts that are not drawn need design='sphere'")
            self.fresh = True
        self.unused = self._unused()
        self._model = REWARDS.index(self.reward), self.noise_std
        self.info = ProblemInfo(
            kind="recommendation",
            horizon=self.horizon,
            dim=self.dim,
            reward_range=(0.0, 1.0),
            n_candidates=self.n_candidates,
            n_arms=None if self.fresh else self.n_arms,
            max_interactions=self.interactions_per_user,
            binary=self.reward != "gaussian",
        )

    def _unused(self) -> dict[str, str]:
        """Return the parameters without an effect, with what would give them one."""
        users = self.interactions_per_user is not None
        needs: dict[str, tuple[bool, str]] = {
            "noise_std": (self.reward == "gaussian", "reward='gaussian'"),
            "block_rounds": (self.design == "blocks", "design='blocks'"),
            "user_order": (users, "interactions_per_user or users_per_horizon"),
            "n_arms": (not self.fresh, "a fixed pool: fresh=False and design other than 'blocks'"),
        }
        return {name: text for name, (applies, text) in needs.items() if not applies}

    def draw_hidden(self, rng: Generator) -> Hidden:
        theta = portable.normals(rng, self.dim)
        theta *= 2.0 / np.sqrt(np.sum(theta * theta))
        hidden: Hidden = {"theta": theta if self.theta is None else self.theta}
        if self.design != "sphere":
            hidden["basis"] = portable.normals(rng, (self.dim, self.dim))
            kernels.linalg.orthonormalise(hidden["basis"])
        if not self.fresh:
            arms, (score, mean) = self._draw_arms(rng, hidden), np.empty((2, self.n_arms))
            kernels.linear_rewards.evaluate(arms, hidden["theta"], *self._model, score, mean)
            hidden.update(arms=arms, score=score, mean=mean)
        if self.interactions_per_user is not None and self.user_order == "shuffled":
            users = np.arange(self.horizon) // self.interactions_per_user
            hidden["users"] = rng.permutation(users)
        draw = partial(self.draw_features, rng, 0, hidden)
        return {**hidden, **self.schedule.hidden(draw, self._shape)}

    def _draw_arms(self, rng: Generator, hidden: Hidden) -> Array:
        """Return the features of a replicate's pool, float32 ``(n_arms, d)``."""
        arms = np.empty((self.n_arms, self.dim), np.float32)
        if self.design == "low-rank":
            coefficients = portable.normals(rng, (self.n_arms, self.rank), np.float32)
            subspace = np.ascontiguousarray(hidden["basis"][:, : self.rank])
            kernels.feature_rows.combine(coefficients, subspace, arms)
        else:
            portable.fill_normals(rng, arms)
        kernels.feature_rows.normalise(arms, kernels.feature_rows.SPHERE)
        rescale(arms, self.context_norm)
        return arms

    def fields(self) -> dict[str, Field]:
        if not self.schedule.drawn:
            return {}
        if self.fresh:
            return {"features": Field(self._shape, np.float32, Stream.FEATURES, self.draw_features)}
        shape = (self.n_candidates,)
        return {"arms": Field(shape, np.int64, Stream.CANDIDATES, self.draw_candidates)}

    def draw_features(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        """Write features of one replicate's rounds start + 1, start + 2, ...; see `Field.fill`."""
        rows = out.reshape(-1, self.dim)
        if self.design == "sphere":
            portable.fill_normals(rng, rows)
            kernels.feature_rows.normalise(rows, kernels.feature_rows.SPHERE)
        else:
            n = len(out)
            d = self.dim
            coefficients = portable.normals(rng, (n, self.n_candidates, self.rank), np.float32)
            block = np.arange(start, start + n) // self.block_rounds
            first = block * self.rank % d if self.design == "blocks" else np.zeros_like(block)
            basis = np.broadcast_to(hidden["basis"], (n, d, d))
            kernels.feature_rows.project_block(coefficients, basis, first, out)
        rescale(rows, self.context_norm)

    def draw_candidates(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        """Write pool indices of one replicate's candidates in rounds start + 1, start + 2, ..."""
        kernels.candidates.draw_candidates(rng.random(out.shape), self.n_arms, out)

    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        if "arms" in drawn:
            arms = np.ascontiguousarray(drawn["arms"])
            features = np.empty((*arms.shape, self.dim), np.float32)
            pool = hidden["arms"]
            # rows that are rounds of one replicate share its pool
            kernels.candidates.gather(pool if pool.strides[0] else pool[:1], arms, features)
        else:
            features = drawn["features"] if self.schedule.drawn else self.schedule.at(hidden, t)
            arms = np.full(features.shape[:2], -1, np.int64)
        context = Context(int(t[0]), features, arms=arms, users=self._users(hidden, t))
        return Round(context, drawn["response"], {})

    def _users(self, hidden: Hidden, t: Array) -> Array | None:
        """Return the users of rounds t ``(..., B)``, None if they are not identified."""
        if self.interactions_per_user is None:
            return None
        if "users" in hidden:
            users: Array = hidden["users"][np.arange(t.shape[-1]), t - 1]
            return users
        return (t - 1) // self.interactions_per_user

    def stretch(
        self, hidden: Hidden, drawn: Mapping[str, Array], t: int
    ) -> JudgedStretch | FoldedStretch | None:
        own = RecommendationProblem
        if self.info.masked or overridden(self, own, "make_round", "respond", "best_action"):
            return super().stretch(hidden, drawn, t)
        n, B = drawn["response"].shape
        reward, expected = np.empty((2, n, B, self.n_candidates))
        best = np.empty((n, B))
        uniform = drawn["response"]
        written = *self._model, uniform, reward, expected, best
        if "arms" in drawn:
            arms = drawn["arms"]
            features = np.empty((*arms.shape, self.dim), np.float32)
            flat = features.reshape(n * B, *self._shape)
            kernels.candidates.gather(hidden["arms"], arms.reshape(n * B, -1), flat)
            kernels.linear_rewards.arm_outcomes(arms, hidden["score"], hidden["mean"], *written)
        elif self.schedule.drawn:
            features = drawn["features"]
            arms = np.full((n, B, self.n_candidates), -1, np.int64)
            kernels.linear_rewards.outcomes(features, hidden["theta"], *written)
        else:
            return super().stretch(hidden, drawn, t)
        users = None
        if self.interactions_per_user is not None:
            users = self._users(hidden, np.repeat(np.arange(t, t + n)[:, None], B, axis=1))
        context = Context(t, features, arms=arms, users=users)
        return JudgedStretch(Stretch(context, reward), expected, best)

    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        reward = np.empty(len(action))
        expected = np.empty(len(action))
        features = round_.context.features
        theta = hidden["theta"]
        uniform = round_.uniform
        law, noise = self._model
        bad = kernels.linear_rewards.outcome(
            features, theta, action, law, noise, uniform, reward, expected
        )
        if bad:
            raise out_of_range(action, bad - 1, self.n_candidates)
        return Feedback(reward), expected

    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        features = round_.context.features
        arm = np.empty(len(features), np.int64)
        value = np.empty(len(features))
        kernels.linear_rewards.best_arms(features, hidden["theta"], *self._model, arm, value)
        return arm, value


class MultiArmedProblem(RecommendationProblem):
    """Multi-armed bandit: the same arms in every round; arm i has the unit vector e_i as features.

    One-hot features make linear agents with d = n_arms comparable with agents without features.

    Args:
        horizon: Rounds T, at least 2.
        n_arms: Number of arms, at least 1.
        reward: ``"linear"``: Bernoulli with mean 1/2 + theta_i / 4; ``"logistic"``: Bernoulli with
            mean sigmoid(theta_i); ``"gaussian"``: the linear mean plus N(0, noise_std^2), clipped
            to [0, 1].
        noise_std: Standard deviation for ``reward="gaussian"``, > 0.
        interactions_per_user: Number k of consecutive rounds per user; adds user ids.
        theta: Fixed parameter ``(n_arms,)``; otherwise Gaussian, normalised to norm 2.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self,
        horizon: int = 10_000,
        n_arms: int = 10,
        reward: str = "linear",
        noise_std: float = 0.1,
        interactions_per_user: int | None = None,
        theta: Any = None,
    ) -> None:
        n = validation.integer("n_arms", n_arms, 1)
        super().__init__(horizon, n, n, n, reward, noise_std, theta=theta,
                         interactions_per_user=interactions_per_user)  # fmt: skip

    def _draw_arms(self, rng: Generator, hidden: Hidden) -> Array:
        return np.eye(self.n_arms, dtype=np.float32)

    def draw_candidates(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        out[:] = np.arange(self.n_arms)


def read_interactions(per_user: int | None, users: int | None, horizon: int) -> int | None:
    """Return the rounds of a user from one of two parameters; None if users are not identified.

    Raises:
        ParameterError: If both are given, or one is out of range.
    """
    if per_user is not None and users is not None:
        raise ParameterError("give interactions_per_user or users_per_horizon, not both")
    if users is not None:
        return -(-horizon // validation.integer("users_per_horizon", users, 1, horizon))
    return validation.optional(validation.integer, "interactions_per_user", per_user, 1, horizon)


def out_of_range(action: Array, replicate: int, n_candidates: int) -> ActionError:
    """Return the error for a candidate index that is not offered."""
    return ActionError(
        f"candidate {action[replicate]} of replicate {replicate} is outside 0..{n_candidates - 1}"
    ).at(replicate)
