"""Recommendation: one of several candidates for each customer, who rewards it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from dpb_gym.envs.actions import ActionMode, ByIndex
from dpb_gym.problems.base import Array, Context, Feedback, Hidden, Problem, ProblemInfo, Round
from dpb_gym.problems.exhaustive_search import expected
from dpb_gym.problems.kinds import Display, Kind, RoundRow
from dpb_gym.problems.log_form import LogForm, read_columns
from dpb_gym.problems.neighbours import AuditForm, Pair, World, extreme_pairs, unit_vector


def recommendation_mode(info: ProblemInfo) -> ActionMode:
    """Return the mode of a candidate's index."""
    assert info.n_candidates is not None
    return ByIndex(np.arange(info.n_candidates), "candidate index")


class RecommendationAudit(AuditForm):
    """Customers with equal candidates at right angles and beyond, and extreme rewards."""

    small = (
        "DPB/Recommendation-v0",
        {"dim": 2, "n_arms": 12, "n_candidates": 3, "interactions_per_user": 2},
    )

    def pairs(self, info: ProblemInfo) -> list[Pair]:
        low, high = self.response_range(info)
        one = World(_equal_candidates(info, 0.0), high)
        return [
            Pair(f"features {angle} degrees apart, rewards {high:g} and {other:g}", one, world)
            for angle in (90, 105, 120, 180)
            for other in (high, low)
            for world in [World(_equal_candidates(info, angle), other)]
        ]

    def partial_pairs(self, info: ProblemInfo) -> list[Pair]:
        seen = self.pairs(info)[0].first
        last = (info.n_candidates or 1) - 1
        name = "reward known of the first or of the last candidate"
        return [Pair(name, replace(seen, logged=0), replace(seen, logged=last))]

    def response_pairs(self, info: ProblemInfo) -> list[Pair]:
        """Return pairs with public contexts: every candidate has features e1."""
        low, high = self.response_range(info)
        alone, quiet = extreme_pairs((low, high), _equal_candidates(info, 0.0))
        others = (World(_equal_candidates(info, 90.0), low),)
        name = f"{alone.name}, all others at right angles"
        return [alone, quiet, Pair(name, alone.first, alone.second, others)]

    def answer(self, world: World, info: ProblemInfo, context: Context, action: Array) -> Feedback:
        value = np.full(len(action), float(world.response))
        if not info.partial_feedback:
            return Feedback(value)
        seen = np.full(len(action), True)
        if world.logged is not None:
            seen = np.asarray(action) == world.logged
        return Feedback(np.where(seen, value, 0.0), observed=seen)

    def numbers(self, context: Context, action: Array) -> Array:
        """Return position and features of the recommended candidates."""
        chosen = context.features[np.arange(len(action)), action]
        return np.concatenate([action[:, None], chosen], axis=1, dtype=np.float64)


def _equal_candidates(info: ProblemInfo, degrees: float) -> Array:
    """Return candidates that all have the features at an angle from e1."""
    vector = unit_vector(info.dim, degrees)
    return np.tile(vector, (info.n_candidates or 1, 1)).astype(np.float32)


class RecommendationLogs(LogForm):
    """Shown items and responses with propensities, or ratings.

    The problem is a `LoggedRecommendation`, or a `ReplayProblem` of ratings.
    """

    agents = ("one-pass-linear", "lin-greedy", "lin-ts", "adaprivate-ucb")
    recommended = ("one-pass-linear", "adaprivate-ucb")
    act = "Recommend"
    earned = "the reward"

    def takes(self, source: Any) -> bool:
        import dpb_data

        return isinstance(source, (dpb_data.RatingTable, dpb_data.ClickTable))

    def read(self, source: Any, columns: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        import dpb_data

        clicked = {"propensity", "reward"} & {*columns}
        reader = dpb_data.clicks if clicked else dpb_data.ratings
        return read_columns(reader, Recommendation.name, source, columns)

    def reading(self, kind: str, source: Any, given: Mapping[str, Any]) -> Any:
        import dpb_data

        return dpb_data.read(source, kind, **given)

    def problem(self, table: Any) -> Callable[..., Any]:
        if hasattr(table, "ratings"):
            from dpb_gym.envs.log_environments import replay_problem

            return replay_problem
        return _logged()

    def fits(self, source: Any, columns: Mapping[str, Any]) -> bool:
        return "propensity" in columns or hasattr(source, "propensity")

    def releases(self, table: Any) -> bool:
        return not hasattr(table, "ratings")

    def data_digest(self, source: Any, parameters: Mapping[str, Any]) -> str:
        import dpb_data

        return str(dpb_data.ratings(source).digest())

    def unit(self, problem: Any, currency: str | None, reading: Any) -> tuple[str, float]:
        from dpb_gym.problems.logged import Logged

        return "responses" if isinstance(problem, Logged) else "units of reward", 1.0

    def options(self, problem: Any) -> Array:
        return np.arange(problem.info.n_candidates)

    def label(self, problem: Any, action: Array, currency: str | None) -> str:
        return f"always {problem.item_ids[int(action)]}"


@functools.cache
def _logged() -> Callable[..., Any]:
    # imports SciPy, which simulations do without
    from dpb_gym.problems.fitting import Cached
    from dpb_gym.problems.logged import LoggedRecommendation

    return Cached(LoggedRecommendation)


class Recommendation(Kind):
    """The index of one candidate for each customer."""

    name = "recommendation"
    called = "candidate indices"
    counts = "n_candidates"
    actions = staticmethod(recommendation_mode)
    one_candidate = True
    refuses = MappingProxyType({"stock": "a recommendation uses nothing up"})
    audit = RecommendationAudit()
    logs = RecommendationLogs()

    def feature_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        assert info.n_candidates is not None
        return info.n_candidates, info.dim

    def random(self, info: ProblemInfo, uniforms: Array, available: Array | None = None) -> Array:
        if available is not None:
            count = available.sum(axis=1)
            first = np.minimum((uniforms * count).astype(np.int64), count - 1)
            order = np.argsort(~available, axis=1, kind="stable")
            chosen: Array = order[np.arange(len(order)), first]
            return chosen
        assert info.n_candidates is not None
        # A uniform is below 1 - 2^-53, but its product with m may round up to m.
        return np.minimum((uniforms * info.n_candidates).astype(np.int64), info.n_candidates - 1)

    def sizes(self, space: Any) -> dict[str, int] | None:
        """Return the number of candidates of a `Discrete` space."""
        return {"n_candidates": int(space.n)} if space.shape == () and hasattr(space, "n") else None

    def encode(self, action: Array, space: Any) -> Any:
        return int(action)

    def rows(self, context: Context, action: Array | None, feedback: Feedback | None) -> Display:
        rows = [RoundRow(f"candidate {i}", None, x) for i, x in enumerate(context.features)]
        if context.arms is not None and context.arms.min() >= 0:
            rows = [r._replace(name=f"arm {arm}") for r, arm in zip(rows, context.arms.tolist())]
        if action is not None and feedback is not None:
            seen = feedback.observed is None or bool(feedback.observed)
            mark = f"reward {feedback.reward:.3g}" if seen else "nothing observed"
            chosen = rows[int(action)]
            rows[int(action)] = chosen._replace(mark=mark, success=bool(feedback.reward > 0))
        return rows

    def named_dim(self, actions: int | None, features: int) -> int | None:
        """Return one coefficient per named candidate, for a constant and each feature."""
        return None if actions is None else actions * (1 + features)

    def named_features(self, info: ProblemInfo, values: Array) -> Array:
        """Return a block of the values for each candidate, zero elsewhere."""
        count = info.n_candidates or 0
        size = len(values)
        # block k of row k begins k (dim + size) numbers after the first one
        flat = np.zeros(count * (info.dim + size))
        flat.reshape(count, -1)[:, :size] = values
        return flat[: count * info.dim].reshape(count, info.dim)

    def action_schema(self, info: ProblemInfo, one: dict[str, Any]) -> dict[str, Any]:
        return one

    def check_searchable(self, what: str, info: ProblemInfo) -> None:
        """Accept every problem."""

    def search(
        self, problem: Problem, worlds: Sequence[Hidden], round_: Round
    ) -> tuple[Array, Array]:
        """Return the best of all available candidates."""
        B, m = round_.context.features.shape[:2]
        values = np.empty((B, m))
        for k in range(m):
            values[:, k] = expected(problem, worlds, round_, np.full(B, k))
        if round_.context.available is not None:
            values[~round_.context.available] = -np.inf
        best = values.argmax(axis=1)
        return best, values[np.arange(B), best]
