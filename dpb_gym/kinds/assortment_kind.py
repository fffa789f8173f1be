"""Assortment: slates of at most K of N items, of which a customer buys one or nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from dpb_gym import kernels, validation
from dpb_gym.envs.actions import MAX_ASSORTMENTS, MODES, ActionMode, ByIndex
from dpb_gym.errors import ActionError, AgentError, ParameterError, shown
from dpb_gym.problems.base import Array, Context, Feedback, Hidden, Problem, ProblemInfo, Round
from dpb_gym.problems.exhaustive_search import MAX_SLATES, count_slates, expected_at, slates
from dpb_gym.problems.kinds import Display, Kind, RoundRow
from dpb_gym.problems.log_form import MOST_OPTIONS, LogForm, frequent_rows, read_columns
from dpb_gym.problems.neighbours import AuditForm, Pair, World, bought, unit_vector


def assortment_mode(info: ProblemInfo, action_mode: str | None = None) -> ActionMode:
    """Return the action mode ``"slate"``, ``"scores"``, ``"mask"`` or ``"index"``.

    ``"index"`` numbers all slates by size, then lexicographically. The default is ``"slate"``, but
    ``"scores"`` where slates hold exactly K items, because a sample of K indices repeats some.

    Raises:
        ParameterError: If the mode is unknown, or there are too many slates for an index.
    """
    assert info.n_items is not None and info.capacity is not None
    usual = "scores" if info.exactly else "slate"
    mode = usual if action_mode is None else action_mode
    validation.choice("action_mode", mode, (*MODES, "index"))
    if mode != "index":
        return MODES[mode](info.n_items, info.capacity)
    count = count_slates(info)
    if count > MAX_ASSORTMENTS:
        raise ParameterError(
            f"action_mode='index' would need {count} assortments, at most {MAX_ASSORTMENTS} "
            "are allowed; use fewer items, a smaller capacity or another action_mode"
        )
    least = info.capacity if info.exactly else 1
    return ByIndex(slates(info.n_items, info.capacity, least), "assortment index")


class AssortmentAudit(AuditForm):
    """Customers with equal, opposite or short items, who buy or do not."""

    small = (
        "DPB/Assortment-v0",
        {"n_items": 8, "capacity": 4, "dim": 2, "context_norm": "clip"},
    )

    def response_range(self, info: ProblemInfo) -> tuple[float, float]:
        return 0.0, 1.0

    def pairs(self, info: ProblemInfo) -> list[Pair]:
        return _pairs(info)

    def response_pairs(self, info: ProblemInfo) -> list[Pair]:
        return [*super().response_pairs(info), _opposite_items(info, (1, -1)), _short_items(info)]

    def answer(self, world: World, info: ProblemInfo, context: Context, action: Array) -> Feedback:
        B = len(action)
        choice = np.full(B, -1)
        if world.response:
            taste = np.zeros(info.dim) if world.taste is None else world.taste
            liking = (context.features * taste).sum(axis=2)
            lanes = np.arange(B)[:, None]
            here = np.where(action >= 0, liking[lanes, np.maximum(action, 0)], -np.inf)
            choice = np.where((action >= 0).any(axis=1), here.argmax(axis=1), -1)
        return bought(context, action, choice)

    def numbers(self, context: Context, action: Array) -> Array:
        """Return sums of the positions and of the features of the offered items."""
        lanes = np.arange(len(action))
        offered = action >= 0
        features = context.features[lanes[:, None], np.maximum(action, 0)]
        total = (features * offered[:, :, None]).sum(axis=1)
        places = (action * offered).sum(axis=1)
        return np.concatenate([places[:, None], total], axis=1, dtype=np.float64)


def _pairs(problem: ProblemInfo) -> list[Pair]:
    n = problem.n_items or 1
    d = problem.dim
    signs = np.where(np.arange(n) % 2, -1.0, 1.0)[:, None]

    def same(degrees: float, buys: float) -> World:
        return World(np.tile(unit_vector(d, degrees), (n, 1)).astype(np.float32), buys)

    def mixed(degrees: float, buys: float) -> World:
        v = unit_vector(d, degrees)
        return World((signs * v).astype(np.float32), 1.0, taste=buys * v)

    driven = (mixed(0, 1), mixed(150, 1))
    pairs = [
        Pair("all items e1 or all items e2, both buy", same(0, 1), same(90, 1)),
        Pair("all items e1 or all items e2, neither buys", same(0, 0), same(90, 0)),
        Pair("all items e1 or all items -e1, both buy", same(0, 1), same(180, 1)),
        Pair("all items e1, buys or not", same(0, 1), same(0, 0)),
        Pair("items x and -x at 150 degrees, buys -x as nobody else", mixed(0, -1), mixed(150, -1)),
    ]
    return [*pairs, replace(pairs[-1], others=driven), _short_items(problem)]


def _opposite_items(problem: ProblemInfo, pattern: Sequence[int], norm: float = 1.0) -> Pair:
    """Return a pair that buys x or -x; item i has the features ``pattern[i % len(pattern)] x``."""
    x = norm * unit_vector(problem.dim)
    items = (np.resize(pattern, problem.n_items or 1)[:, None] * x).astype(np.float32)
    name = "items x and -x" if norm == 1.0 else f"items x, -x and 0, norm {norm:g}"
    return Pair(f"{name}, buys x or -x", World(items, 1.0, x), World(items, 1.0, -x))


def _short_items(problem: ProblemInfo) -> Pair:
    """Return a pair in which a record has nearly no curvature, so that the response has all."""
    return _opposite_items(problem, (1, -1, 0, 0), 0.3)


class AssortmentLogs(LogForm):
    """Choice sets; the problem is a `LoggedAssortment`."""

    settings = ("outside", "revenue", "capacity")
    agents = ("one-pass-mnl", "greedy-mnl", "dpmnl")
    recommended = ("one-pass-mnl", "dpmnl")
    act = "Offer"

    def takes(self, source: Any) -> bool:
        import dpb_data

        return isinstance(source, dpb_data.ChoiceTable)

    def read(self, source: Any, columns: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        import dpb_data

        if not columns:
            return dpb_data.read(source, Assortment.name, outside=settings["outside"]).table()
        return read_columns(dpb_data.choices, Assortment.name, source, columns)

    def reading(self, kind: str, source: Any, given: Mapping[str, Any]) -> Any:
        import dpb_data

        return dpb_data.read(source, kind, **given)

    def problem(self, table: Any) -> Callable[..., Any]:
        return _logged()

    def data_digest(self, source: Any, parameters: Mapping[str, Any]) -> str:
        import dpb_data

        searches = dpb_data.load_searches(str(source), repair=parameters.get("repair"))
        return str(searches.digest())

    def unit(self, problem: Any, currency: str | None, reading: Any) -> tuple[str, float]:
        if problem.info.equal_revenues:
            return "choices", 1.0
        return currency or "units of revenue", problem.revenue_unit

    def options(self, problem: Any) -> Array:
        """Return slates that are best for some customer, under the estimate or a draw."""
        thetas = [problem.theta, *problem.posterior(4)]
        slates = np.concatenate([problem.rounds_under(theta).best[0] for theta in thetas])
        return frequent_rows(slates, MOST_OPTIONS)

    def label(self, problem: Any, action: Array, currency: str | None) -> str:
        items = [str(problem.item_ids[i]) for i in action if i >= 0]
        return f"always {', '.join(items)}"

    def doubts(self, problem: Any, data: Any) -> list[str]:
        """Return doubts if an attribute is named as a price, and choices count alike."""
        from dpb_data.column_roles import is_price_name

        names = [name for name in data.feature_names if is_price_name(name)]
        if problem.revenue or not names:
            return []
        doubts = [
            f"all choices count alike, whatever their {names[0]}: give revenue={names[0]!r} if it "
            "is what you earn"
        ]
        for name in names:
            if name not in problem.fit.names:
                continue
            place = problem.fit.names.index(name)
            (effect,) = problem.fit.effects(lambda theta, at=place: theta[[at]])
            if effect.interval[0] > 0.0:
                doubts.append(
                    f"choices rise with {name}: it perhaps stands for quality, or followed demand"
                )
        return doubts


@functools.cache
def _logged() -> Callable[..., Any]:
    # imports SciPy, which simulations do without
    from dpb_gym.problems.fitting import Cached
    from dpb_gym.problems.logged import LoggedAssortment

    return Cached(LoggedAssortment)


class Assortment(Kind):
    """Slates ``(B, K)`` of at most K of N items; the customer buys one of them or nothing.

    Entries of -1 and repeated items count for nothing.
    """

    name = "assortment"
    response = "choice"
    interface = ("action_mode",)
    actions = staticmethod(assortment_mode)
    revenues = True
    context = ("features", "revenues")
    called = "slates"
    counts = "n_items"
    nothing = -1
    refuses = MappingProxyType({})
    audit = AssortmentAudit()
    logs = AssortmentLogs()

    def feature_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        assert info.n_items is not None
        return info.n_items, info.dim

    def action_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        assert info.capacity is not None
        return (info.capacity,)

    def random(self, info: ProblemInfo, uniforms: Array, available: Array | None = None) -> Array:
        slates = np.empty(uniforms.shape, np.int64)
        if available is None:
            kernels.candidates.draw_candidates(uniforms, info.n_items, slates)
            slates.sort(axis=1)
            return slates
        slates[:] = -1
        for row, mask, slate in zip(uniforms, available, slates):
            pool = np.flatnonzero(mask)
            places = np.empty((1, min(len(row), len(pool))), np.int64)
            kernels.candidates.draw_candidates(row[None, : places.shape[1]], len(pool), places)
            slate[: places.shape[1]] = np.sort(pool[places[0]])
        return slates

    def sizes(self, space: Any) -> dict[str, int] | None:
        """Return N and K of a `MultiDiscrete` of K item indices."""
        nvec = np.asarray(getattr(space, "nvec", ()))
        if nvec.ndim != 1 or len(set(nvec.tolist())) != 1:
            return None
        return {"n_items": int(nvec[0]), "capacity": len(nvec)}

    def encode(self, action: Array, space: Any) -> Any:
        """Return the slate with empty places filled by a repeated item, which has no effect."""
        offered = action[action >= 0]
        if not len(offered):
            raise ActionError("an empty slate cannot be offered")
        return np.where(action >= 0, action, offered[0])

    def stack(self, info: ProblemInfo, actions: Sequence[Any], agent: str) -> Array:
        """Stack slates, which may have fewer than K items."""
        slates = np.full((len(actions), *self.action_shape(info)), -1, np.int64)
        for i, action in enumerate(actions):
            slate = np.asarray(action)
            if slate.ndim != 1 or len(slate) > slates.shape[1] or slate.dtype.kind not in "iu":
                raise AgentError(
                    f"{agent}.act must return at most {slates.shape[1]} integer item indices, "
                    f"got {shown(action)}"
                )
            slates[i, : len(slate)] = slate
        return slates

    def unstack(self, actions: Array, replicate: int) -> Any:
        """Return the slate without the empty places at its end."""
        slate: Array = actions[replicate]
        return slate[: np.flatnonzero(slate >= 0).max(initial=-1) + 1]

    def rows(self, context: Context, action: Array | None, feedback: Feedback | None) -> Display:
        assert context.revenues is not None
        items = list(range(len(context.features)) if action is None else action.tolist())
        bought = -1 if feedback is None or feedback.choice is None else int(feedback.choice)
        rows = []
        for i in dict.fromkeys(item for item in items if item >= 0):
            won = bought >= 0 and items[bought] == i
            times = items.count(i)
            mark = "bought" if won else "" if action is None else "offered"
            mark += f", {times} times in the slate, counts once" if times > 1 else ""
            value = float(context.revenues[i])
            rows.append(RoundRow(f"item {i}", value, context.features[i], mark, won))
        return rows

    def shown(self, action: Array) -> Any:
        """Return the list of offered items."""
        return [int(item) for item in action if item >= 0]

    def feedback(
        self, info: ProblemInfo, context: Context, action: Array, response: Any
    ) -> Feedback:
        """Return the feedback for the item that was bought, or None."""
        at = -1
        earned = 0.0
        if response is not None:
            item = validation.integer("the item that was bought", response, 0)
            if item not in action[0]:
                raise ParameterError(
                    f"item {item} was not offered: {action[0][action[0] >= 0].tolist()}"
                )
            assert context.revenues is not None
            at = int(np.flatnonzero(action[0] == item)[0])
            earned = float(context.revenues[0, item])
        seen = np.array([True])
        return Feedback(np.array([earned]), choice=np.array([at]), observed=seen)

    def action_schema(self, info: ProblemInfo, one: dict[str, Any]) -> dict[str, Any]:
        return {"type": "array", "items": one, "maxItems": info.capacity}

    def check_searchable(self, what: str, info: ProblemInfo) -> None:
        count = count_slates(info)
        if count > MAX_SLATES:
            raise ParameterError(
                f"{what}: the best of {count} slates is found by trying them all, at most "
                f"{MAX_SLATES} are allowed: use fewer items or a smaller capacity"
            )

    def search(
        self, problem: Problem, worlds: Sequence[Hidden], round_: Round
    ) -> tuple[Array, Array]:
        """Return the best of all slates; unavailable items are left out."""
        info = problem.info
        assert info.n_items is not None and info.capacity is not None
        every = slates(info.n_items, info.capacity, info.capacity if info.exactly else 0)
        B = len(round_.uniform)
        available = round_.context.available
        best = np.empty((B, info.capacity), np.int64)
        values = np.empty(B)
        for b in range(B):
            tried = every
            if available is not None:
                tried = every[(available[b][every] | (every < 0)).all(axis=1)]
            lanes = np.broadcast_to(np.int64(b), len(tried))
            expected = expected_at(problem, worlds, round_, lanes)(tried)
            best[b], values[b] = tried[expected.argmax()], expected.max()
        return best, values
