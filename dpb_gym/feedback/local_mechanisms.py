"""Local mechanisms for responses: one private message per user-round, in batches.

A mechanism is immutable. It declares the number and kind of random numbers per message, and
computes messages from true answers and these numbers, per replicate. Noise is for simulation (see
`dpb_gym.privacy.NoiseSource`).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import portable, state, validation
from dpb_gym.errors import ParameterError, shown
from dpb_gym.lazy import of_this_distribution
from dpb_gym.privacy import Budget, Composition, Guarantee
from dpb_gym.privacy import plain_plans as plain
from dpb_gym.privacy.calibration import calibrate_scale, equivalent_rho, gaussian_sigma
from dpb_gym.privacy.events import Event, GaussianEvent, LaplaceEvent, RandomizedResponseEvent
from dpb_gym.validation import FloatArray

UNIFORM = "uniform"
NORMAL = "normal"


class LocalMechanism(state.Registered, ABC):
    """Base class of local mechanisms, which privatise a user's data in one message.

    Attributes:
        numbers: Kind of random numbers, ``"uniform"`` on [0, 1) or ``"normal"``.
        width: Number of random numbers per message.
        unit: Privacy unit of the message, see `Guarantee`.
        event: The accounting event of one message.
    """

    numbers: ClassVar[str] = UNIFORM
    unit: ClassVar[str] = "reward"
    width: int
    event: Event

    @property
    def guarantee(self) -> Guarantee:
        """The local guarantee of one message; declared if the class is another package's."""
        curve = Composition.of(self.event)
        return Guarantee("local", self.unit, "replace-one", curve, self.basis)

    @property
    def basis(self) -> str:
        """What the event rests on, see `Guarantee`."""
        kind = type(self)
        if of_this_distribution(kind):
            return "computed"
        return f"declared (the mechanism {kind.__qualname__} of {kind.__module__})"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.__name__.startswith("_"):
            _MECHANISMS[cls.__name__] = cls

    def to_dict(self) -> dict[str, Any]:
        """Return the class's name and the constructor's arguments as JSON values.

        The attributes of a subclass must have the names of its arguments.
        """
        arguments = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        return {"mechanism": type(self).__name__, **arguments}

    @staticmethod
    def of(given: LocalMechanism | Mapping[str, Any]) -> Any:
        """Return a new mechanism from the arguments of one, or of a mapping from `to_dict`.

        Anything else is returned as it is, for the check of the wrapper that takes it, and so is
        a mechanism of another package, whose arguments are not known.

        Raises:
            ParameterError: If a mapping names no mechanism or wrong arguments.
        """
        if isinstance(given, LocalMechanism) and of_this_distribution(type(given)):
            # its event could be that of other arguments, which were changed since
            given = given.to_dict()
        if not isinstance(given, Mapping):
            return given
        arguments = dict(given)
        name = arguments.pop("mechanism", None)
        validation.choice("mechanism", name, tuple(_MECHANISMS))
        try:
            return _MECHANISMS[str(name)](**arguments)
        except TypeError as error:
            raise ParameterError(f"{name}: {error}") from error

    def _noise(self, numbers: ArrayLike, replicates: int) -> FloatArray:
        return validation.array("numbers", numbers, (replicates, self.width))


_MECHANISMS: dict[str, type[LocalMechanism]] = {}
"""Classes of mechanisms by name, for specs of environments in JSON."""


class ResponseMechanism(LocalMechanism):
    """A local mechanism for a single answer: a category or a number."""

    @abstractmethod
    def privatise(self, values: ArrayLike, numbers: ArrayLike) -> FloatArray | NDArray[np.int64]:
        """Return messages ``(B,)`` for true answers ``(B,)`` and random numbers ``(B, width)``."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """Finite range of the values of `scalar`."""

    @abstractmethod
    def scalar(self, messages: ArrayLike) -> FloatArray:
        """Return unbiased estimates ``(B,)`` of the (clipped) true answers."""


class RandomizedResponse(ResponseMechanism):
    """k-ary randomized response: pure epsilon-DP for one of k answers (Warner 1965).

    The true answer is sent with probability ``e^eps / (e^eps + k - 1)``, otherwise one of the
    k - 1 others, uniformly. For a click or a purchase k = 2; for the choice from an assortment
    of at most K items k = K + 1.

    Args:
        epsilon: Local epsilon, positive.
        categories: k, at least 2.

    Raises:
        ParameterError: If a parameter is out of range.

    Example:
        >>> rr = RandomizedResponse(math.log(3.0))
        >>> round(rr.keep, 2), str(rr.guarantee)
        (0.75, 'local DP eps=1.099 per reward (replace-one)')
        >>> rr.privatise([1, 1], [[0.7, 0.0], [0.8, 0.0]]).tolist()
        [1, 0]
    """

    def __init__(self, epsilon: float, categories: int = 2) -> None:
        self.epsilon = validation.real("epsilon", epsilon, 0.0, open_low=True)
        self.categories = validation.integer("categories", categories, 2)
        self.width = 2
        self.event = RandomizedResponseEvent(self.epsilon, self.categories)

    @classmethod
    def for_budget(cls, budget: Budget, categories: int = 2) -> RandomizedResponse:
        """Return the mechanism with the largest epsilon within a budget."""
        scale = calibrate_scale(budget, lambda s: [RandomizedResponseEvent(1 / s, categories)])
        return cls(1 / scale, categories)

    @property
    def keep(self) -> float:
        """Probability that the true answer is sent."""
        return 1.0 / (1.0 + (self.categories - 1) * portable.exp(-self.epsilon))

    @property
    def other(self) -> float:
        """Probability of each particular wrong answer."""
        return portable.exp(-self.epsilon) * self.keep

    def transition(self) -> FloatArray:
        """Return the probability of each message (columns) given each true answer (rows)."""
        matrix = np.full((self.categories, self.categories), self.other)
        np.fill_diagonal(matrix, self.keep)
        return matrix

    def privatise(self, values: ArrayLike, numbers: ArrayLike) -> NDArray[np.int64]:
        """Return messages ``(B,)`` in 0..k-1; see `ResponseMechanism.privatise`.

        Raises:
            ParameterError: If an answer is not in 0..k-1, or the numbers have a wrong shape.
        """
        given = validation.numbers("answers", values)
        if given.ndim != 1:
            raise ParameterError(f"answers must be a vector of integers, got {shown(values)}")
        truth = np.clip(np.nan_to_num(given), 0, self.categories - 1).astype(np.int64)
        wrong = truth != given
        if wrong.any():
            i = int(wrong.argmax())
            raise ParameterError(
                f"answers must be whole numbers in 0..{self.categories - 1}, "
                f"got {given[i]:g} in replicate {i}"
            )
        uniform = self._noise(numbers, len(truth))
        other = np.minimum(uniform[:, 1] * (self.categories - 1), self.categories - 2)
        other = other.astype(np.int64)
        other += other >= truth
        return np.where(uniform[:, 0] < self.keep, truth, other)

    def estimate(self, messages: ArrayLike) -> FloatArray:
        """Return unbiased estimates ``(B, k)`` of the one-hot encoded true answers."""
        hot = np.asarray(messages, dtype=np.int64)[:, None] == np.arange(self.categories)
        debiased: FloatArray = (hot - self.other) / (self.keep - self.other)
        return debiased

    @property
    def bounds(self) -> tuple[float, float]:
        if self.categories != 2:
            raise ParameterError("only two categories, 0 and 1, make a number")
        gap = self.keep - self.other
        return -self.other / gap, self.keep / gap

    def scalar(self, messages: ArrayLike) -> FloatArray:
        """Return unbiased estimates ``(B,)`` of answers in {0, 1}."""
        low, high = self.bounds
        return np.where(np.asarray(messages) != 0, high, low)


class _Additive(ResponseMechanism):
    """A number, clipped to [low, high], plus noise."""

    _event: ClassVar[type[GaussianEvent | LaplaceEvent]]
    _reach: ClassVar[float]

    def __init__(self, scale: float, low: float = 0.0, high: float = 1.0) -> None:
        self.scale = validation.real("the noise scale", scale, 0.0, open_low=True)
        self.low, self.high = validation.span("(low, high)", (low, high))
        self.width = 1
        self.event = self._event(self.scale, self.sensitivity)

    @property
    def sensitivity(self) -> float:
        """Largest difference of two answers."""
        return self.high - self.low

    @property
    def bounds(self) -> tuple[float, float]:
        reach = self._reach * self.scale
        return self.low - reach, self.high + reach

    def privatise(self, values: ArrayLike, numbers: ArrayLike) -> FloatArray:
        """Return messages ``(B,)``; see `ResponseMechanism.privatise`.

        Raises:
            ParameterError: If an answer is not finite, or the numbers have a wrong shape.
        """
        answers = validation.array("answers", values, (None,))
        truth = np.minimum(np.maximum(answers, self.low), self.high)  # np.clip is 3 times slower
        noise = self._quantile(self._noise(numbers, len(truth))[:, 0])
        low, high = self.bounds
        return np.minimum(np.maximum(truth + self.scale * noise, low), high)

    @abstractmethod
    def _quantile(self, numbers: FloatArray) -> FloatArray:
        """Return noise of scale 1 from the random numbers."""

    def scalar(self, messages: ArrayLike) -> FloatArray:
        """Return the messages, which are unbiased because the noise has mean zero."""
        return np.asarray(messages, dtype=np.float64)


class GaussianResponse(_Additive):
    """A number, clipped to [low, high], plus N(0, sigma^2) noise.

    Args:
        sigma: Standard deviation, positive.
        low: Lower bound to which answers are clipped.
        high: Upper bound to which answers are clipped.

    Example:
        >>> str(GaussianResponse(sigma=1.0).guarantee).split(";")[0]
        'local zCDP rho=0.5 per reward (replace-one)'
    """

    numbers = NORMAL
    # clamping there is post-processing and gives messages finite bounds
    _event = GaussianEvent
    _reach = portable.NORMAL_BOUND

    def __init__(self, sigma: float, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(sigma, low, high)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise."""
        return self.scale

    @classmethod
    def for_budget(cls, budget: Budget, low: float = 0.0, high: float = 1.0) -> GaussianResponse:
        """Return the mechanism with the least noise within a budget."""
        return cls(gaussian_sigma(equivalent_rho(budget), high - low), low, high)

    def _quantile(self, numbers: FloatArray) -> FloatArray:
        return numbers


class LaplaceResponse(_Additive):
    """A number, clipped to [low, high], plus Laplace noise: pure epsilon = (high - low) / scale.

    Args:
        scale: Mean absolute noise, positive.
        low: Lower bound to which answers are clipped.
        high: Upper bound to which answers are clipped.

    Example:
        >>> LaplaceResponse(scale=0.5).guarantee.epsilon(0.0)
        2.0
    """

    # 53-bit uniforms give no larger Laplace numbers
    _event = LaplaceEvent
    _reach = 37.0

    @classmethod
    def for_budget(cls, budget: Budget, low: float = 0.0, high: float = 1.0) -> LaplaceResponse:
        """Return the mechanism with the least noise within a budget."""
        width = validation.real("high - low", high - low, 0.0, open_low=True)
        return cls(calibrate_scale(budget, lambda s: [LaplaceEvent(s, width)]), low, high)

    def _quantile(self, numbers: FloatArray) -> FloatArray:
        centred = numbers - 0.5
        # a uniform of exactly 0 would give infinite noise
        twice = np.minimum(2.0 * np.abs(centred), 1.0 - 2.0**-53)
        return -np.sign(centred) * portable.each(portable.log1p, -twice)


RANGE = {"low": plain.real(), "high": plain.real()}
plain.describe_argument(GaussianResponse, {"sigma": plain.positive, **RANGE})
plain.describe_argument(LaplaceResponse, {"scale": plain.positive, **RANGE})
plain.describe_argument(
    RandomizedResponse, {"epsilon": plain.positive, "categories": plain.integer(2, 1 << 20)}
)
