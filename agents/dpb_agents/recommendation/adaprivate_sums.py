"""Private sums of rewards for AdaPrivate: plain, Poisson-sampled, and per user."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.problems.base import Array

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget, Event, GaussianSum, NoiseSource, Segment

_NO_NOMINAL = (
    "calibration='paper' with sampling takes Budget.approx(epsilon, delta): Eq. 3.6 solves for "
    "epsilon"
)


@dataclass(frozen=True)
class Noise:
    """Noise of one batch.

    Attributes:
        sigma: Standard deviation per coordinate, before any rescaling.
        event: What one protected unit can be charged with: the true event, whatever was
            promised.
        within: Whether the event is known to fit in the budget, so that a ledger may hold it
            to that.
    """

    sigma: float
    event: Event
    within: bool = True


def gaussian_noise(budget: Budget, sensitivity: float, calibration: str) -> Noise:
    """Noise of a sum over disjoint batches.

    Args:
        budget: What may be spent on all batches together.
        sensitivity: Largest change of the batches' sums (root of the sum of squares) by one
            protected unit.
        calibration: ``"verified"``: the exact Gaussian mechanism; ``"paper"``: RU, Eq. 2.8,
            ``sensitivity / sqrt(2 rho)`` with ``rho = (sqrt(eps + l) - sqrt(l))^2``,
            ``l = log(1/delta)``; valid, and looser than it need be (erratum R1).
    """
    from dpb_gym.privacy import GaussianEvent, Release, calibrate, gaussian_sigma, textbook_rho

    if calibration == "paper" and budget.kind == "approx":
        assert budget.epsilon is not None and budget.delta is not None
        sigma = gaussian_sigma(textbook_rho(budget.epsilon, budget.delta), sensitivity)
    else:
        (sigma,) = calibrate(budget, Release(sensitivity))
    return Noise(sigma, GaussianEvent(sigma, sensitivity))


def sampled_noise(budget: Budget, bound: Segment, q: float, calibration: str) -> Noise:
    """Noise of a Poisson-sampled batch, before the rescaling by 1/q.

    ``"verified"``: the exact privacy profile of the sampled Gaussian for an (epsilon, delta)
    budget. A zCDP budget holds at every Renyi order, and sampling does not help at large ones:
    the noise is that without sampling. ``"paper"``: RU, Eq. 3.6, which is no upper bound
    (erratum R2); the event is the true one.

    Args:
        budget: What may be spent.
        bound: Range of the rewards as they are summed.
        q: Probability with which a reward is included.
        calibration: See above.

    Raises:
        BudgetError: If ``"paper"`` is given a zCDP budget.
        ParameterError: If Eq. 3.6 reaches the nominal epsilon at no sigma.
    """
    from dpb_gym.privacy import (
        GaussianEvent,
        PoissonGaussianEvent,
        amplified_sigma_ru,
        calibrate_scale,
    )

    distance = bound.sensitivity()
    longest = max(abs(bound.low), abs(bound.high))
    symmetric = math.isclose(2.0 * longest, distance)
    pair = "symmetric" if symmetric else "zero-out"
    # a reward may also be left out altogether, which moves the sum by its own length
    sensitivity = distance if symmetric else max(distance, longest)

    def event(sigma: float) -> PoissonGaussianEvent:
        return PoissonGaussianEvent(q, sigma, sensitivity, 1, pair)

    if calibration == "paper":
        if budget.kind != "approx":
            raise BudgetError(_NO_NOMINAL)
        assert budget.epsilon is not None and budget.delta is not None
        sigma = amplified_sigma_ru(budget.epsilon, budget.delta, q).sigma * distance
        return Noise(sigma, event(sigma), within=False)
    if budget.kind == "zcdp":
        plain = gaussian_noise(budget, distance, calibration)
        return Noise(plain.sigma, GaussianEvent(plain.sigma, distance))
    sigma = calibrate_scale(budget, lambda scale: [event(scale)], start=sensitivity)
    return Noise(sigma, event(sigma))


class SampledSum:
    """Batch sums of a secret Poisson sample of the records, rescaled by 1/q (RU, section 3.2).

    Each record enters with probability q, by a bit from the privacy stream that nobody else
    sees; the noisy sum of the batch is divided by q. Its noise has standard deviation sigma / q.

    Args:
        sums: Takes the sample; charges the event of the sampled mechanism.
        q: In (0, 1].
        noise: Source of the inclusion bits; a stream of its own is spawned from it.
    """

    def __init__(self, sums: GaussianSum, q: float, noise: NoiseSource) -> None:
        from scipy.special import ndtri

        from dpb_gym.privacy.noise import NormalStream

        self._sums, self.q = sums, q
        self._bits = NormalStream(noise, 1)
        self._quantile = float(ndtri(q))
        self.replicates = sums.replicates
        self.event, self.sensitivity = sums.event, sums.sensitivity

    @property
    def rounds(self) -> int:
        """Records per replicate so far."""
        return self._sums.rounds

    @property
    def clipped_count(self) -> Array:
        """Records outside their range so far, ``(B,)``."""
        return self._sums.clipped_count

    @property
    def sigma(self) -> float:
        """Noise standard deviation of one batch per coordinate, rescaled."""
        return self._sums.sigma / self.q

    @property
    def noise_std(self) -> float:
        """Standard deviation of the last release's noise per coordinate, rescaled."""
        return self._sums.noise_std / self.q

    @property
    def batches(self) -> int:
        """Releases so far."""
        return self._sums.batches

    def add(self, records: Array, directions: Array) -> None:
        """Adds one record per replicate, or none, by the replicate's secret bit."""
        step = self._bits.advance()
        included = self._bits.block[:, step, 0] < self._quantile
        self._sums.add(records, np.where(included[:, None], directions, 0.0))

    def release(self) -> Array:
        """Closes the batch: the noisy sums so far over q, ``(B, width)``."""
        released: Array = self._sums.release()
        released /= self.q
        return released

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint needs (the ledger has its own)."""
        return {"sums": self._sums.state_dict(), "bits": self._bits.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        self._sums.load_state(state["sums"])
        self._bits.load_state(state["bits"])


def lifetime_radius(bound: Segment, rounds: int, clip: float) -> float | None:
    """Radius of the lifetime clip of a user, or None if capping her rounds costs less.

    RU take C = sqrt(k) for rewards in [0, 1]: here ``clip sqrt(k)`` times the largest absolute
    value of a summed reward. Sums of k rewards move by at most k times the range anyway.

    Raises:
        ParameterError: If rounds is below 1.
    """
    if rounds < 1:
        raise ParameterError(f"a user has at least one round; got {rounds}")
    radius = clip * math.sqrt(rounds) * max(abs(bound.low), abs(bound.high))
    return radius if 2.0 * radius < rounds * bound.sensitivity() else None
