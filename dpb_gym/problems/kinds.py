"""Kinds of problems: the form of actions, of responses and of logs, and how a round is shown.

Environments, agents, feedback wrappers, audits, advice and the harness use the `Kind` object
instead of comparing names. The kinds of this package are in `dpb_gym.kinds`. Other packages add
kinds with `register_kind`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dpb_gym import state, validation
from dpb_gym.errors import ActionError, AgentError, ParameterError, shown, unknown_name
from dpb_gym.problems.rounds import Array, Context, Feedback, Hidden, ProblemInfo, Round

if TYPE_CHECKING:
    from dpb_gym.problems.log_form import LogForm
    from dpb_gym.problems.neighbours import AuditForm


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
NUMBERS = frozenset({int, float, np.int32, np.int64, np.float32, np.float64})
"""Types of numbers that arrays are made of as they are."""


class Kind(state.Registered, ABC):
    """Everything that the library needs to know of one kind of problem.

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
        counts: The field of `ProblemInfo` with the number of actions, which a service can name and
            exclude; None: it can do neither.
        one_candidate: Whether an action is the index of one of the context's feature vectors.
        one_price: Whether an action is a price, to which compiled code can respond (see
            `Problem.answer_terms`).
        refuses: Conditions that do not apply to the kind, and why.
        audit: Adversarial customers for audits of agents; None: agents are not audited.
        logs: Form of logs, for `from_log` and `advise`; None: there are no logs.
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
    counts: ClassVar[str | None] = None
    one_candidate: ClassVar[bool] = False
    one_price: ClassVar[bool] = False
    refuses: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"available": "it has no list of items", "stock": "it sells no items"}
    )
    audit: ClassVar[AuditForm | None] = None
    logs: ClassVar[LogForm | None] = None

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

    def offered(self, action: Array) -> Array:
        """Return the indices of what is offered, ``(B,)`` or ``(B, m)``; negative: nothing."""
        return action

    def shown(self, action: Array) -> Any:
        """Return one replicate's action as a session returns it."""
        return action.item() if action.ndim == 0 else action.copy()

    def feedback(
        self, info: ProblemInfo, context: Context, action: Array, response: Any
    ) -> Feedback:
        """Return the feedback for a response to a session of one replicate.

        Args:
            info: The problem.
            context: Context of the round, B = 1.
            action: The action that was played ``(1, ...)``.
            response: See `Session.observe`: by default the reward, or a tuple of the reward and
                the value of the field `response`.

        Raises:
            ParameterError: If the response is impossible.
        """
        parts = {}
        if self.response is not None:
            if not isinstance(response, tuple) or len(response) != 2:
                raise ParameterError(
                    f"response must be (reward, {self.response}), got {shown(response)}"
                )
            response, answer = response
            numbers = validation.numbers(self.response, answer)[None]
            parts[self.response] = (
                numbers.astype(np.int64) if self.response == "choice" else numbers
            )
        reward = np.array([validation.real("reward", response, *info.reward_range)])
        return Feedback(reward, observed=np.array([True]), **parts)

    def intercept(self, dim: int) -> tuple[slice, float]:
        """Return the coordinates of theta that multiply features, and the features' divisor."""
        return slice(None), 1.0

    def named_dim(self, actions: int | None, features: int) -> int | None:
        """Return the dimension of customers with named features, None if they can have none.

        Args:
            actions: Number of named actions, None if they have numbers.
            features: Number of features.
        """
        return None

    def named_features(self, info: ProblemInfo, values: Array) -> Array:
        """Return named features of a customer in the form of ``context.features``.

        Args:
            info: The problem, whose dimension is that of `named_dim`.
            values: 1 and the features, each in [0, 1], scaled to norm at most 1.
        """
        raise ParameterError(f"customers of {self.name} problems have no named features")

    def action_schema(self, info: ProblemInfo, one: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON schema of an action in answers of a service.

        Args:
            info: The problem.
            one: Schema of the name or number of one action.
        """
        return {}

    def check_searchable(self, what: str, info: ProblemInfo) -> None:
        """Raise `ParameterError` for problems whose best actions `search` cannot find.

        Args:
            what: What needs the search, for the message.
            info: The problem.
        """
        raise ParameterError(f"{what}: best actions of {self.name} problems cannot be searched")

    def search(self, problem: Any, worlds: Sequence[Hidden], round_: Round) -> tuple[Array, Array]:
        """Return actions of largest mean expected reward over the worlds, and that reward ``(B,)``.

        See `dpb_gym.problems.exhaustive_search.best_action`.

        Raises:
            ParameterError: If they cannot be searched.
        """
        raise ParameterError(f"best actions of {self.name} problems cannot be searched")

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
        if not shape and NUMBERS.issuperset(map(type, actions)):
            return np.array(actions)  # as below, in a fifth of the time
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


_BUILT_IN = {
    "assortment": "dpb_gym.kinds.assortment_kind:Assortment",
    "assortment-pricing": "dpb_gym.kinds.assortment_pricing_kind:AssortmentPricing",
    "pricing": "dpb_gym.kinds.pricing_kind:Pricing",
    "recommendation": "dpb_gym.kinds.recommendation_kind:Recommendation",
}
KINDS: dict[str, Kind | str] = {**_BUILT_IN}
"""Every kind by its name; those of this package are imported on first use."""


def kind_of(name: str) -> Kind:
    """Return the kind with a name.

    Raises:
        UnknownNameError: If there is none; the message offers close matches.
    """
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise unknown_name("kind", name, KINDS)
    if not isinstance(kind, str):  # a test of an abstract class takes longer
        return kind
    made: Kind = resolve_name(kind)()
    KINDS[name] = made
    return made


def log_form(name: str) -> LogForm:
    """Return the form of logs of a kind.

    Raises:
        UnknownNameError: If there is no such kind.
        ParameterError: If there are no logs of the kind.
    """
    form = kind_of(name).logs
    if form is None:
        known = [kind for kind in KINDS if kind_of(kind).logs is not None]
        raise ParameterError(f"there are no logs of {name}, only of {', '.join(known)}")
    return form


def register_kind(kind: Kind) -> None:
    """Register a kind of problems; registering the same class again has no effect.

    Raises:
        ParameterError: If it is no `Kind` or the name is taken by another one.
    """
    if not isinstance(kind, Kind):
        raise ParameterError(f"kind must be an instance of a Kind, got {shown(kind)}")
    taken = None if kind.name not in KINDS else kind_of(kind.name)
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
        got = "a masked array" if masked else f"dtype {result.dtype}"
        raise ActionError(f"{what} must be {'integers' if integral else 'numbers'}, got {got}")
    if result.dtype.itemsize <= 8:
        return np.asarray(result, np.int64 if integral else np.float64, order="C")
    with np.errstate(over="ignore"):
        return np.asarray(result, np.float64, order="C")
