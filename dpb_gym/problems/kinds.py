"""Kinds of problems: the form of actions and of responses.

Environments, agents, feedback wrappers and the harness use the `Kind` object instead of comparing
names. Other packages add kinds with `register_kind`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_gym import kernels, state
from dpb_gym.errors import ActionError, AgentError, ParameterError, shown, unknown_name
from dpb_gym.problems.rounds import Array, Context, Feedback, ProblemInfo


class RoundRow(NamedTuple):
    """One row of the display of a round.

    Attributes:
        name: Label, e.g. ``"item 3"``.
        value: Revenue or price in [0, 1], or None.
        features: Feature vector ``(d,)``.
        mark: Outcome, e.g. ``"bought"``; empty if there is none.
        success: Whether it was bought or rewarded.
    """

    name: str
    value: float | None
    features: Array
    mark: str = ""
    success: bool = False


Display = list[RoundRow]


class Kind(state.Registered, ABC):
    """Actions and responses of one kind of problem.

    Attributes:
        name: Short, lower-case, e.g. ``"ranking"``; agents declare it in ``supports``.
        response: The field of `Feedback`, and key in ``info``, that says more than the reward:
            ``"choice"`` (a position in the action), ``"demand"`` (multiplied by the price) or
            ``"answer"`` (anything else); None if there is only a reward.
        interface: Keyword arguments of `actions` that environments of this kind take.
        actions: Factory of the `dpb_gym.envs.actions.ActionMode`: a function of the problem's
            `ProblemInfo` and the `interface`, or ``"module:function"``.
        revenues: Whether contexts have ``revenues``, one per item.
        integral: Whether actions are integers, not real numbers.
        called: Name of actions in error messages.
        context: Fields of `Context` that an `Algorithm` of this kind sees.
        nothing: Placeholder in all entries of an action for a round without feedback.
    """

    name: ClassVar[str]
    response: ClassVar[str | None] = None
    interface: ClassVar[tuple[str, ...]] = ()
    actions: ClassVar[str | Callable[..., Any]]
    revenues: ClassVar[bool] = False
    integral: ClassVar[bool] = True
    called: ClassVar[str] = "actions"
    context: ClassVar[tuple[str, ...]] = ("features",)
    nothing: ClassVar[int] = 0

    @abstractmethod
    def feature_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        """Return the shape of ``context.features`` without the replicate axis."""

    def action_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        """Return the shape of one replicate's action; () for a number, the default."""
        return ()

    def check_action(self, info: ProblemInfo, action: Any, replicates: int) -> Array:
        """Return actions as a well-typed array ``(B, *action_shape)`` or raise `ActionError`.

        The range is checked by the problem when it responds.
        """
        shape = (replicates, *self.action_shape(info))
        return action_array(action, shape, self.integral, self.called)

    def played(self, info: ProblemInfo, action: Array) -> Array:
        """Return the actions that are played for checked actions; agents learn from them."""
        return action

    @abstractmethod
    def random(self, info: ProblemInfo, uniforms: Array, available: Array | None = None) -> Array:
        """Return uniformly random available actions, from uniforms ``(B, *action_shape)``."""

    def sizes(self, space: Any) -> dict[str, int] | None:
        """Return the fields of `ProblemInfo` that an external action space determines.

        None if the space does not belong to this kind; see `dpb_gym.envs.adapter`.
        """
        return None

    def encode(self, action: Array, space: Any) -> Any:
        """Return one replicate's action in the form of an external environment's space."""
        return action

    def stack(self, info: ProblemInfo, actions: Sequence[Any], agent: str) -> Array:
        """Stack the actions of single agents, one per replicate.

        Raises:
            AgentError: If an action has the wrong form; the message names `agent`.
        """
        shape = self.action_shape(info)
        for action in actions:
            if np.shape(action) != shape and (shape or np.shape(action) != (1,)):
                wanted = f"an array of shape {shape}" if shape else "one number"
                raise AgentError(
                    f"{agent}.act must return {wanted}, got an array of shape {np.shape(action)}"
                )
        return np.array([np.reshape(action, shape) for action in actions])

    def unstack(self, actions: Array, replicate: int) -> Any:
        """Return one replicate's action in the form that a single agent returns."""
        return actions[replicate]

    def rows(self, context: Context, action: Array | None, feedback: Feedback | None) -> Display:
        """Return the display of one replicate's round.

        Args:
            context: Without the replicate axis, as `feedback`.
            action: The problem's action; None before it is chosen.
            feedback: The response; None before it is known.
        """
        vectors = np.reshape(context.features, (-1, np.shape(context.features)[-1]))
        rows = [RoundRow(f"vector {i}", None, vector) for i, vector in enumerate(vectors)]
        if action is not None and feedback is not None:
            mark = f"action {np.asarray(action).tolist()}, reward {feedback.reward:.3g}"
            rows[0] = rows[0]._replace(mark=mark, success=bool(feedback.reward > 0))
        return rows


class Assortment(Kind):
    """Slates ``(B, K)`` of at most K of N items; the customer buys one of them or nothing.

    Entries of -1 and repeated items count for nothing.
    """

    name = "assortment"
    response = "choice"
    interface = ("action_mode",)
    actions = "dpb_gym.envs.actions:assortment_mode"
    revenues = True
    context = ("features", "revenues")
    called = "slates"
    nothing = -1

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
            won, times = bought >= 0 and items[bought] == i, items.count(i)
            mark = "bought" if won else "" if action is None else "offered"
            mark += f", {times} times in the slate, counts once" if times > 1 else ""
            value = float(context.revenues[i])
            rows.append(RoundRow(f"item {i}", value, context.features[i], mark, won))
        return rows


class Pricing(Kind):
    """One price in [0, 1] for each customer."""

    name = "pricing"
    response = "demand"
    interface = ("n_prices",)
    integral = False
    called = "prices"
    actions = "dpb_gym.envs.actions:pricing_mode"

    def feature_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        return (info.dim - 1,)

    def played(self, info: ProblemInfo, action: Array) -> Array:
        """Return the prices moved into `ProblemInfo.price_range`; impossible ones are unchanged."""
        if info.price_range is None or not (action.min() >= 0.0 and action.max() <= 1.0):
            return action
        low, high = info.price_range
        return np.minimum(np.maximum(action, low), high)

    def random(self, info: ProblemInfo, uniforms: Array, available: Array | None = None) -> Array:
        if info.price_range is None:
            return uniforms.copy()
        low, high = info.price_range
        return low + uniforms * (high - low)

    def sizes(self, space: Any) -> dict[str, int] | None:
        """Return no sizes for a `Box` of one price on [0, 1]."""
        box = space.shape == (1,) and np.dtype(space.dtype).kind == "f"
        return {} if box else None

    def encode(self, action: Array, space: Any) -> Any:
        return np.array([action], space.dtype)

    def rows(self, context: Context, action: Array | None, feedback: Feedback | None) -> Display:
        if action is None or feedback is None or feedback.demand is None:
            return [RoundRow("customer", None, context.features)]
        price, demand = float(action), float(feedback.demand)
        mark = f"price {price:.3f}, demand {demand:.3g}"
        return [RoundRow("customer", price, context.features, mark, demand > 0)]


class Recommendation(Kind):
    """The index of one candidate for each customer."""

    name = "recommendation"
    called = "candidate indices"
    actions = "dpb_gym.envs.actions:recommendation_mode"

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


KINDS: dict[str, Kind] = {k.name: k for k in (Assortment(), Pricing(), Recommendation())}
"""Every kind by its name."""


def kind_of(name: str) -> Kind:
    """Return the kind with a name.

    Raises:
        UnknownNameError: If there is none; the message offers close matches.
    """
    found = KINDS.get(name) if isinstance(name, str) else None
    if found is None:
        raise unknown_name("kind", name, KINDS)
    return found


def register_kind(kind: Kind) -> None:
    """Register a kind of problems; registering the same class again has no effect.

    Raises:
        ParameterError: If it is no `Kind` or the name is taken by another one.
    """
    if not isinstance(kind, Kind):
        raise ParameterError(f"kind must be an instance of a Kind, got {shown(kind)}")
    taken = KINDS.get(kind.name)
    if taken is not None and type(taken) is not type(kind):
        raise ParameterError(f"the kind {kind.name!r} is taken by {type(taken).__name__}")
    KINDS[kind.name] = kind


def action_array(
    action: Any, shape: tuple[int, ...], integral: bool, what: str, bits: bool = False
) -> Array:
    """Return `action` as an array of a shape and dtype or raise `ActionError`.

    Args:
        action: Any object.
        shape: Required shape.
        integral: Whether integers are required (returned as int64), not numbers (float64).
        what: Name of the action in messages.
        bits: Whether booleans are accepted.
    """
    plain = type(action) is np.ndarray and action.shape == shape and action.flags.c_contiguous
    if plain and action.dtype == (np.int64 if integral else np.float64):
        return np.asarray(action)
    try:
        result = np.asanyarray(action)
    except Exception:  # rows of unequal length, or an object whose conversion fails
        raise ActionError(f"{what} must have shape {shape}, got {shown(action)}") from None
    if result.shape != shape:
        raise ActionError(f"{what} must have shape {shape}, got {result.shape}")
    masked = isinstance(result, np.ma.MaskedArray)
    kind = result.dtype.kind
    if masked or not (kind in "iu" or (kind == "f" and not integral) or (kind == "b" and bits)):
        found = "a masked array" if masked else f"dtype {result.dtype}"
        raise ActionError(f"{what} must be {'integers' if integral else 'numbers'}, got {found}")
    if result.dtype.itemsize <= 8:
        return np.asarray(result, np.int64 if integral else np.float64, order="C")
    with np.errstate(over="ignore"):
        return np.asarray(result, np.float64, order="C")
