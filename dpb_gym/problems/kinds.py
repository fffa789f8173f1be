"""Kinds of problems: what is asked of a policy, and what comes back.

A kind is one object; environments, agents, feedback wrappers and the harness ask it instead of
comparing names. A package adds its own with `register_kind`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_gym import kernels
from dpb_gym.errors import ActionError, AgentError, ParameterError, shown, unknown_name
from dpb_gym.problems.rounds import Array, Context, Feedback, ProblemInfo


class RoundRow(NamedTuple):
    """One line of what a round showed, for people.

    Attributes:
        name: What it is, e.g. ``"item 3"``.
        worth: Revenue or price in [0, 1], or None.
        features: Its features ``(d,)``.
        mark: What happened to it, empty if nothing did.
        success: Whether it was bought or rewarded.
    """

    name: str
    worth: float | None
    features: Array
    mark: str = ""
    success: bool = False


class Kind(ABC):
    """What one kind of problem asks of a policy.

    Attributes:
        name: Short, lower-case, e.g. ``"ranking"``; agents declare it in ``supports``.
        response: The field of `Feedback` that tells more than the reward, and its key in
            ``info``: ``"choice"`` (a position in the action), ``"demand"`` (which the price
            multiplies) or ``"answer"`` (anything else); None if the reward is all there is.
        interface: Keyword arguments of `actions` that environments of this kind take.
        actions: Makes the Gymnasium side of actions, see `dpb_gym.envs.actions.ActionMode`: a
            function of the problem's `ProblemInfo` and the `interface`, or
            ``"module:function"``.
        revenues: Whether contexts have ``revenues``, one per item.
        integral: Whether actions are integers, not real numbers.
        called: What actions are called in messages.
        nothing: What stands in all entries of an action where nobody was asked.
    """

    name: ClassVar[str]
    response: ClassVar[str | None] = None
    interface: ClassVar[tuple[str, ...]] = ()
    actions: ClassVar[str | Callable[..., Any]]
    revenues: ClassVar[bool] = False
    integral: ClassVar[bool] = True
    called: ClassVar[str] = "actions"
    nothing: ClassVar[int] = 0

    @abstractmethod
    def feature_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        """Shape of ``context.features`` without the replicate axis."""

    def action_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        """Shape of one replicate's action; a single number by default."""
        return ()

    def check_action(self, info: ProblemInfo, action: Any, replicates: int) -> Array:
        """Returns actions ``(B, *action_shape)`` well typed, or raises `ActionError`.

        The range is the problem's to check, when it responds.
        """
        shape = (replicates, *self.action_shape(info))
        return action_array(action, shape, self.integral, self.called)

    @abstractmethod
    def random(self, info: ProblemInfo, uniforms: Array, available: Array | None = None) -> Array:
        """Uniformly random actions from uniforms ``(B, *action_shape)``, of what is available."""

    def sizes(self, space: Any) -> dict[str, int] | None:
        """What a foreign environment's action space tells of its `ProblemInfo`.

        None if the space is not one of this kind, which is then not adapted; see
        `dpb_gym.envs.adapter`.
        """
        return None

    def encode(self, action: Array, space: Any) -> Any:
        """One replicate's action as a foreign environment takes it."""
        return action

    def stack(self, info: ProblemInfo, actions: Sequence[Any], agent: str) -> Array:
        """Joins the actions of single agents, one per replicate.

        Raises:
            AgentError: If one of them has the wrong form; `agent` is named.
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
        """One replicate's action, as a single agent would have given it."""
        return actions[replicate]

    def rows(
        self, context: Context, action: Array | None, feedback: Feedback | None
    ) -> list[RoundRow]:
        """What one replicate's round looked like; `action` is None before it is chosen.

        Args:
            context: Without the replicate axis, as `feedback`.
            action: The problem's action.
            feedback: What came back.
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
            kernels.recommendation.draw_candidates(uniforms, info.n_items, slates)
            slates.sort(axis=1)
            return slates
        slates[:] = -1
        for row, mask, slate in zip(uniforms, available, slates):
            pool = np.flatnonzero(mask)
            places = np.empty((1, min(len(row), len(pool))), np.int64)
            kernels.recommendation.draw_candidates(row[None, : places.shape[1]], len(pool), places)
            slate[: places.shape[1]] = np.sort(pool[places[0]])
        return slates

    def sizes(self, space: Any) -> dict[str, int] | None:
        """A `MultiDiscrete` of K item indices."""
        nvec = np.asarray(getattr(space, "nvec", ()))
        if nvec.ndim != 1 or len(set(nvec.tolist())) != 1:
            return None
        return {"n_items": int(nvec[0]), "capacity": len(nvec)}

    def encode(self, action: Array, space: Any) -> Any:
        """An empty place holds a repeated item, which counts for nothing."""
        offered = action[action >= 0]
        if not len(offered):
            raise ActionError("an empty slate cannot be offered")
        return np.where(action >= 0, action, offered[0])

    def stack(self, info: ProblemInfo, actions: Sequence[Any], agent: str) -> Array:
        """Slates may have fewer than K items."""
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
        """The slate without the empty places at its end."""
        slate: Array = actions[replicate]
        return slate[: np.flatnonzero(slate >= 0).max(initial=-1) + 1]

    def rows(
        self, context: Context, action: Array | None, feedback: Feedback | None
    ) -> list[RoundRow]:
        assert context.revenues is not None
        items = range(len(context.features)) if action is None else action.tolist()
        bought = None if feedback is None else feedback.choice
        return [
            RoundRow(
                f"item {i}",
                float(context.revenues[i]),
                context.features[i],
                "bought" if place == bought else "" if action is None else "offered",
                place == bought,
            )
            for place, i in enumerate(items)
            if i >= 0
        ]


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

    def random(self, info: ProblemInfo, uniforms: Array, available: Array | None = None) -> Array:
        return uniforms.copy()

    def sizes(self, space: Any) -> dict[str, int] | None:
        """A `Box` of one price on [0, 1]."""
        box = space.shape == (1,) and np.dtype(space.dtype).kind == "f"
        return {} if box else None

    def encode(self, action: Array, space: Any) -> Any:
        return np.array([action], space.dtype)

    def rows(
        self, context: Context, action: Array | None, feedback: Feedback | None
    ) -> list[RoundRow]:
        if action is None or feedback is None or feedback.demand is None:
            return [RoundRow("customer", None, context.features)]
        price, demand = float(action), float(feedback.demand)
        mark = f"price {price:.3f}, demand {demand:.3g}"
        return [RoundRow("customer", price, context.features, mark, demand > 0)]


class Recommendation(Kind):
    """One of a few candidates for each customer."""

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
        index = (uniforms * info.n_candidates).astype(np.int64)
        return np.minimum(index, info.n_candidates - 1)

    def sizes(self, space: Any) -> dict[str, int] | None:
        """A `Discrete` of candidate indices."""
        return {"n_candidates": int(space.n)} if space.shape == () and hasattr(space, "n") else None

    def encode(self, action: Array, space: Any) -> Any:
        return int(action)

    def rows(
        self, context: Context, action: Array | None, feedback: Feedback | None
    ) -> list[RoundRow]:
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
    """The kind of that name.

    Raises:
        UnknownNameError: If there is none; the message offers close matches.
    """
    found = KINDS.get(name) if isinstance(name, str) else None
    if found is None:
        raise unknown_name("kind", name, KINDS)
    return found


def register_kind(kind: Kind) -> None:
    """Adds a kind of problems; registering the same class again changes nothing.

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
    """Returns `action` with the wanted shape and kind or raises `ActionError`.

    Args:
        action: Anything.
        shape: What its shape must be.
        integral: Whether it must be integers (returned as int64), not numbers (float64).
        what: What it is called in messages.
        bits: Whether booleans will do.
    """
    plain = type(action) is np.ndarray and action.shape == shape and action.flags.c_contiguous
    if plain and action.dtype == (np.int64 if integral else np.float64):
        return np.asarray(action)
    try:
        result = np.asanyarray(action)
    except Exception:  # rows of unequal length, or a stranger's object
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
