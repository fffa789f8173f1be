"""What every problem is: hidden state, per-round fields, responses, best actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpb_gym import kernels
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.streams import Stream

if TYPE_CHECKING:
    from dpb_gym.problems.instance import Instance

Array = NDArray[Any]
Hidden = dict[str, Array]

CONTEXT_NORMS = ("raw", "clip", "scale")
# Standard normals beyond it have probability below 1e-32.
GAUSSIAN_BOUND = 12.0


def rescaled_bound(bound: float, context_norm: str, length: int) -> float:
    """Bound on a feature after `context_norm`, for vectors of the given length."""
    if context_norm == "clip":
        return min(1.0, bound)
    if context_norm == "scale":
        # One float32 step up: the scaled numbers are rounded.
        return float(np.nextafter(np.float32(bound / np.sqrt(length)), np.float32(np.inf)))
    return bound


def rescale(features: Array, context_norm: str) -> None:
    """Applies `context_norm` to float32 vectors along the last axis, in place.

    Args:
        features: C-contiguous float32 array.
        context_norm: ``"raw"`` leaves x, ``"clip"`` gives x / max(1, ||x||), ``"scale"``
            x / sqrt(length).
    """
    if context_norm == "raw":
        return
    if not features.flags.c_contiguous:
        raise ParameterError("features must be C-contiguous to be rescaled in place")
    contexts = kernels.contexts
    mode = contexts.CLIP if context_norm == "clip" else contexts.SCALE
    contexts.normalise(features.reshape(-1, features.shape[-1]), mode)


@dataclass(frozen=True)
class ProblemInfo:
    """What an agent may know of a problem before the first round; never theta.

    Attributes:
        kind: ``"assortment"``, ``"pricing"`` or ``"recommendation"``.
        horizon: Number of rounds T.
        dim: Dimension d of the unknown parameter and of a feature vector.
        reward_range: Lowest and highest reward of one round.
        n_items: Assortment: number of items N.
        capacity: Assortment: most items in a slate, K.
        equal_revenues: Assortment: whether every item always earns the same.
        demand: Pricing: ``"logistic"`` or ``"gaussian"``.
        zeta: Pricing: link scale.
        n_candidates: Recommendation: candidates offered each round.
        n_arms: Recommendation: size of the fixed pool, None if arms are fresh.
        max_interactions: Rounds of one user at most, None if users are not identified.
        partial_feedback: Whether some rounds return no feedback (rejection replay).
    """

    kind: str
    horizon: int
    dim: int
    reward_range: tuple[float, float]
    n_items: int | None = None
    capacity: int | None = None
    equal_revenues: bool | None = None
    demand: str | None = None
    zeta: float | None = None
    n_candidates: int | None = None
    n_arms: int | None = None
    max_interactions: int | None = None
    partial_feedback: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields that are set, ready for JSON."""
        return {k: v for k, v in asdict(self).items() if v is not None}


class Context(NamedTuple):
    """What a policy sees of the current customers, B replicates at once.

    Attributes:
        t: Round, counted from 1; in lockstep the same for all replicates.
        features: float32. Assortment ``(B, N, d)``; pricing ``(B, d - 1)``;
            recommendation ``(B, n_candidates, d)``.
        revenues: Assortment only: float32 ``(B, N)``.
        arms: Recommendation only: pool indices ``(B, n_candidates)``, -1 when fresh.
        users: User ids ``(B,)`` where users are identified, else None.
    """

    t: int
    features: Array
    revenues: Array | None = None
    arms: Array | None = None
    users: Array | None = None


class Feedback(NamedTuple):
    """The raw response of the current customers: private data.

    Attributes:
        reward: ``(B,)`` realised revenue or reward.
        choice: Assortment: position in the offered slate, -1 for no purchase ``(B,)``.
        demand: Pricing: realised demand ``(B,)``.
        observed: False where the round returned nothing (rejection replay); None
            means that every replicate was observed.
    """

    reward: Array
    choice: Array | None = None
    demand: Array | None = None
    observed: Array | None = None


class Round(NamedTuple):
    """One round as the environment knows it; agents see `context` only."""

    context: Context
    uniform: Array
    secret: dict[str, Array]


class Outcome(NamedTuple):
    """Feedback with the expected reward and the pseudo-regret of the action, ``(B,)``."""

    feedback: Feedback
    expected: Array
    regret: Array


class Loss(NamedTuple):
    """Loss of one record per replicate.

    Attributes:
        value: ``(B,)``.
        gradient: ``(B, d)``.
        hessian: ``(B, d, d)``.
    """

    value: Array
    gradient: Array
    hessian: Array


Fill = Callable[[np.random.Generator, int, Mapping[str, Array], Array], None]


@dataclass(frozen=True)
class Field:
    """Numbers that one replicate needs each round, from a stream of their own.

    Attributes:
        shape: Shape in one round.
        dtype: NumPy dtype of the stored block.
        stream: The stream they come from.
        fill: ``fill(generator, start, hidden, out)`` writes rounds start+1,
            start+2, ... into ``out[0], out[1], ...``; consumes a fixed count of
            numbers per round, in round order.
    """

    shape: tuple[int, ...]
    dtype: type
    stream: Stream
    fill: Fill


class Problem(ABC):
    """Base of the problems: immutable parameters and batch mathematics, no state.

    Subclasses set `kind`, `horizon`, `dim`, `info` and `feature_bound`, and implement the
    hooks below. State lives in an `Instance`.
    """

    kind: ClassVar[str]
    horizon: int
    dim: int
    info: ProblemInfo
    feature_bound: float
    """Bound on the magnitude of every feature that is ever drawn."""

    @abstractmethod
    def draw_hidden(self, rng: np.random.Generator) -> Hidden:
        """Draws what is fixed for one replicate (theta, arm features): unbatched arrays."""

    @abstractmethod
    def fields(self) -> dict[str, Field]:
        """Names and layouts of the per-round numbers."""

    @abstractmethod
    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        """Builds round t ``(B,)`` from the drawn fields, all with leading axis B."""

    @abstractmethod
    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        """Returns the feedback to `action` and its expected reward ``(B,)``.

        Raises:
            ActionError: If an action is out of range.
        """

    @abstractmethod
    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        """Returns an optimal action and its expected reward ``(B,)``."""

    @abstractmethod
    def check_action(self, action: Any, replicates: int) -> Array:
        """Returns the action as a well-typed array or raises `ActionError`."""

    @abstractmethod
    def loss(self, theta: Array, context: Context, action: Array, feedback: Feedback) -> Loss:
        """Loss of the round's record at `theta` ``(B, d)``, for likelihood-based agents."""

    def summary(self) -> dict[str, Any]:
        """How a problem made from data was fitted; empty for synthetic problems."""
        return {}

    def instance(self, seeds: Sequence[int], episodes: Sequence[int] | None = None) -> Instance:
        """Draws the hidden state of one replicate per seed.

        Args:
            seeds: Non-negative integers, one per replicate.
            episodes: Episode numbers, 0 by default.
        """
        from dpb_gym.problems.instance import Instance

        return Instance(self, seeds, episodes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.info})"


def action_array(action: Any, shape: tuple[int, ...], integral: bool, what: str) -> Array:
    """Returns `action` with the wanted shape and kind or raises `ActionError`."""
    result = np.asarray(action)
    if result.shape != shape:
        raise ActionError(f"{what} must have shape {shape}, got {result.shape}")
    if integral:
        if result.dtype.kind not in "iu":
            raise ActionError(f"{what} must be integers, got dtype {result.dtype}")
        return np.ascontiguousarray(result, dtype=np.int64)
    if result.dtype.kind not in "iuf":
        raise ActionError(f"{what} must be numbers, got dtype {result.dtype}")
    return np.ascontiguousarray(result, dtype=np.float64)
