"""Privatisation of the responses of each kind of problem, for wrappers and harness."""

from __future__ import annotations

import numpy as np

from dpb_gym import state, validation
from dpb_gym.errors import ParameterError, shown
from dpb_gym.feedback.local_mechanisms import (
    GaussianResponse,
    LaplaceResponse,
    LocalMechanism,
    RandomizedResponse,
    ResponseMechanism,
)
from dpb_gym.privacy import Budget
from dpb_gym.privacy import plain_plans as plain
from dpb_gym.problems.base import Array, Feedback, ProblemInfo
from dpb_gym.problems.kinds import kind_of

RESPONSE_MECHANISMS = ("randomized-response", "binary", "gaussian", "laplace")


Sent = tuple[Feedback, Array]
"""Privatised feedback, with the reward computed from message and public data, and an unbiased
estimate of the true reward ``(B,)``."""


@state.register
class ResponseChannel:
    """Application of a local mechanism to the responses of a problem.

    The user's message depends on the response alone:

    * recommendation, and kinds of other packages: the reward, a number or 0/1,
    * pricing: the demand; the reward becomes price times the message,
    * assortment with K + 1 categories: the choice, one of K positions or none; the reward
      becomes the revenue at the position in the message (a position that is empty means no
      purchase),
    * assortment with two categories: whether anything was bought (equal revenues only),
    * assortment with a number: the revenue; the choice is withheld.

    Nothing else that depends on the response is returned.

    Args:
        mechanism: A `RandomizedResponse`, `GaussianResponse` or `LaplaceResponse`.
        problem: Public facts of the problem.

    Raises:
        ParameterError: If the mechanism does not fit the problem.
    """

    def __init__(self, mechanism: ResponseMechanism, problem: ProblemInfo) -> None:
        if not isinstance(mechanism, ResponseMechanism):
            raise ParameterError(
                "a response needs RandomizedResponse, GaussianResponse or LaplaceResponse, "
                f"got {shown(mechanism)}"
            )
        mechanism = LocalMechanism.of(mechanism)
        self.mechanism = mechanism
        self.problem = problem
        self._response = kind_of(problem.kind).response
        self._choice = False
        if isinstance(mechanism, RandomizedResponse):
            self._check_categories(mechanism)

    def _check_categories(self, mechanism: RandomizedResponse) -> None:
        info = self.problem
        if self._response != "choice":
            if mechanism.categories != 2:
                raise ParameterError(
                    f"responses of {info.kind} problems have two categories, "
                    f"got {mechanism.categories}"
                )
            if info.demand not in (None, "logistic"):
                raise ParameterError(
                    f"randomized response needs demands of 0 or 1; demand={info.demand!r} "
                    "needs a Gaussian or Laplace response"
                )
            return
        assert info.capacity is not None
        self._choice = mechanism.categories == info.capacity + 1
        if mechanism.categories != 2 and not self._choice:
            raise ParameterError(
                f"the choice from at most {info.capacity} items has {info.capacity + 1} "
                f"categories (or 2: bought or not), got {mechanism.categories}"
            )
        if not self._choice and info.equal_revenues is False:
            raise ParameterError(
                "two categories say whether anything was bought; with unequal revenues the "
                "reward would say what, so use one category per position"
            )

    def send(
        self, revenues: Array | None, action: Array, feedback: Feedback, numbers: Array
    ) -> Sent:
        """Privatise the responses of one round.

        Args:
            revenues: Assortment: ``(B, N)``.
            action: The problem's actions.
            feedback: The true feedback.
            numbers: The mechanism's random numbers ``(B, width)``.

        Where a round was not observed nothing is sent: reward, estimate and demand are 0, and
        there is no choice.

        Raises:
            ParameterError: If a response is outside the mechanism's domain.
        """
        sent, estimate = self._send(revenues, action, feedback, numbers)
        seen = feedback.observed
        if seen is None:
            return sent, estimate
        return sent.where(seen)._replace(observed=seen), np.where(seen, estimate, 0.0)

    def _send(
        self, revenues: Array | None, action: Array, feedback: Feedback, numbers: Array
    ) -> Sent:
        mechanism = self.mechanism
        if self._response == "demand":
            message = mechanism.privatise(feedback.demand, numbers)  # type: ignore[arg-type]
            demand = np.asarray(message, dtype=np.float64)
            estimate = action * mechanism.scalar(message)
            return Feedback(action * demand, demand=demand), estimate
        if self._choice:
            return self._send_choice(revenues, action, feedback, numbers)
        if self._response == "choice" and isinstance(mechanism, RandomizedResponse):
            assert feedback.choice is not None
            bought = mechanism.privatise(feedback.choice >= 0, numbers)
            revenue = sum(self.problem.reward_range)  # all are equal, and one end is 0
            estimate = revenue * mechanism.scalar(bought)
            return Feedback(revenue * bought), estimate
        # everything but the reward is withheld
        message = mechanism.privatise(feedback.reward, numbers)
        return Feedback(np.asarray(message, np.float64)), mechanism.scalar(message)

    def _send_choice(
        self, revenues: Array | None, action: Array, feedback: Feedback, numbers: Array
    ) -> Sent:
        mechanism = self.mechanism
        assert isinstance(mechanism, RandomizedResponse) and feedback.choice is not None
        B, K = action.shape
        message = mechanism.privatise(feedback.choice + 1, numbers) - 1
        lanes = np.arange(B)
        items = np.maximum(action, 0)
        offered = action >= 0
        for k in range(1, K):
            # a repeated item counts at its first position only
            offered[:, k] &= ~(action[:, :k] == action[:, k : k + 1]).any(axis=1)
        each = 1.0 if revenues is None else revenues[lanes[:, None], items].astype(np.float64)
        earned = np.where(offered, each, 0.0)
        sold = (message >= 0) & offered[lanes, np.maximum(message, 0)]
        reward = np.where(sold, earned[lanes, np.maximum(message, 0)], 0.0)
        choice = np.where(sold, message, -1)
        parts = mechanism.estimate(message + 1)
        estimate = np.zeros(B)
        for k in range(K):
            estimate += parts[:, k + 1] * earned[:, k]
        return Feedback(reward, choice=choice), estimate


def response_mechanism(name: str, budget: Budget, problem: ProblemInfo) -> ResponseMechanism:
    """Return the named response mechanism for a problem, calibrated to a budget.

    Args:
        name: ``"randomized-response"`` (of the choice, or of a 0/1 response), ``"binary"``
            (assortment: whether anything was bought), ``"gaussian"`` or ``"laplace"``.
        budget: Budget of one message.
        problem: Public facts of the problem.

    Raises:
        ParameterError: If the name is unknown or the response has no finite range.
    """
    validation.choice("mechanism", name, RESPONSE_MECHANISMS)
    if name in ("randomized-response", "binary"):
        categories = 2
        chosen = kind_of(problem.kind).response == "choice"
        if chosen and name == "randomized-response":
            assert problem.capacity is not None
            categories = problem.capacity + 1
        return RandomizedResponse.for_budget(budget, categories)
    low, high = (0.0, 1.0) if problem.demand == "logistic" else problem.reward_range
    if not np.isfinite([low, high]).all():
        raise ParameterError(
            f"responses without bounds cannot be privatised by name: the range is "
            f"[{low}, {high}]; make the mechanism with explicit low and high"
        )
    additive = GaussianResponse if name == "gaussian" else LaplaceResponse
    return additive.for_budget(budget, low, high)


# the mechanism alone: the process that makes the channel knows the problem
plain.describe_argument(
    ResponseChannel,
    {"mechanism": plain.kind_of(ResponseMechanism)},
    make=lambda mechanism: mechanism,
)
