"""The usual sums, composed by name, and sums of one record that stands for a whole log.

`Curator` has methods of the same names. Names in capitals are older spellings of the functions;
what they return is a `Sum`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.releasers.mechanisms import Bits, Correlated, Discrete
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.privacy.releasers.release_schedule import ReleaseModel
from dpb_gym.privacy.releasers.release_times import Every, OnRequest, Plan, Planned
from dpb_gym.privacy.releasers.releaser import CuratorProtocol
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.privacy.releasers.trust_models import (
    AGGREGATOR,
    LOCAL,
    SHUFFLER,
    TRUSTED_CURATOR,
    TrustModel,
)
from dpb_gym.validation import FloatArray

Width = int | RecordShape


def batch_sum(
    curator: CuratorProtocol,
    width: Width,
    *,
    cumulative: bool = False,
    sampling: float = 1.0,
    what: str = "sums of disjoint batches",
    **options: Any,
) -> Sum:
    """Return sums of disjoint batches plus N(0, sigma^2 I), closed by `Sum.release`.

    Args:
        curator: See `Sum`.
        width: See `Sum`.
        cumulative: See `OnRequest`.
        sampling: See `OnRequest`.
        what: See `Sum`.
        **options: Further parameters of `Sum`.
    """
    times = OnRequest(cumulative, sampling)
    return Sum(curator, width, times=times, what=what, **options)


def user_sum(
    curator: CuratorProtocol,
    width: Width,
    *,
    radius: float,
    reward: tuple[float, float],
    **options: Any,
) -> Sum:
    """Return batch sums in which every user's contributions are clipped (RU 6.1, corrected).

    Args:
        curator: See `Sum`.
        width: See `Sum`.
        radius: Lifetime budget C > 0 of a user, see `Sum`.
        reward: Range of the protected numbers, which multiply public directions.
        **options: Further parameters of `batch_sum`.
    """
    if "sampling" in options:
        raise ParameterError("every record enters a sum of clipped users: leave sampling out")
    return batch_sum(curator, width, lifetime=radius, reward=reward, **options)


def running_sum(
    curator: CuratorProtocol,
    width: Width,
    *,
    mechanism: str | None = None,
    every: int = 1,
    what: str = "running sum",
    **options: Any,
) -> Sum:
    """Return a running sum of a stream of records, readable at any step.

    Each record enters once. The whole sequence of releases is one Gaussian mechanism of
    sensitivity ``sensitivity * gain``.

    Args:
        curator: See `Sum`.
        width: See `Sum`.
        mechanism: See `Correlated`. None: ``"blt"``, or with system noise ``"binary-tree"``, whose
            noise alone stays on a grid.
        every: Release interval in rounds.
        what: See `Sum`.
        **options: Further parameters of `Sum`. The horizon must be known.
    """
    name = mechanism or ("binary-tree" if curator.system_noise else "blt")
    parts: dict[str, Any] = {"mechanism": Correlated(name), "times": Every(every)}
    return Sum(curator, width, what=what, **parts, **options)


def shuffled_sum(
    curator: CuratorProtocol,
    width: Width,
    *,
    batch: int,
    levels: int | None = None,
    what: str = "shuffled sums of batches",
    **options: Any,
) -> Sum:
    """Return sums of batches of bits that a shuffler mixes; whole batches are simulated.

    Without a budget the sums are exact.

    Args:
        curator: See `Sum`.
        width: See `Sum`.
        batch: Customers per batch; a batch of another size is not released.
        levels: See `Bits`.
        what: See `Sum`.
        **options: Further parameters of `batch_sum`. Records need `clip` or `reward`.
    """
    return batch_sum(curator, width, mechanism=Bits(batch, levels), what=what, **options)


def weighted_sum(
    curator: CuratorProtocol,
    width: Width,
    *,
    schedule: Plan | None,
    model: ReleaseModel | None = None,
    trust: TrustModel = TRUSTED_CURATOR,
    what: str = "weighted running sums",
    **options: Any,
) -> Sum:
    """Return running sums of weighted records, released at planned rounds, for a trust model.

    Args:
        curator: See `Sum`.
        width: See `Sum`.
        schedule: See `Planned`.
        model: See `Planned`; needed without a trusted curator.
        trust: See `Sum`.
        what: See `Sum`.
        **options: Further parameters of `Sum`. Messages need `clip` or `reward`.
    """
    return Sum(curator, width, trust=trust, times=Planned(schedule, model), what=what, **options)


def aggregated_sum(
    curator: CuratorProtocol, width: Width, *, dropout: float = 0.05, **options: Any
) -> Sum:
    """Return a `weighted_sum` that a secure aggregator adds up; `dropout` as in `Discrete`."""
    return weighted_sum(curator, width, trust=AGGREGATOR, mechanism=Discrete(dropout), **options)


def shuffled_batches(curator: CuratorProtocol, width: Width, **options: Any) -> Sum:
    """Return a `weighted_sum` of bits that a shuffler mixes."""
    return weighted_sum(curator, width, trust=SHUFFLER, **options)


def local_sum(curator: CuratorProtocol, width: Width, **options: Any) -> Sum:
    """Return a `weighted_sum` of messages that every device randomises alone."""
    return weighted_sum(curator, width, trust=LOCAL, **options)


@dataclass(frozen=True)
class OldName:
    """Older spelling of a function of this module, which was the name of a class.

    It is called as before, `isinstance` tells such sums from others, and the class of sums that are
    released on request can still be a base; the base is `Sum`.

    Attributes:
        make: The function.
        times: Class of the release times of its sums.
        trust: Name of their trust model; None: any in which devices send messages.
        also: Whether a sum of these is meant.
    """

    make: Callable[..., Sum]
    times: type
    trust: str | None = "curator"
    also: Callable[[Sum], bool] = lambda sums: True

    def __call__(self, *args: Any, **options: Any) -> Sum:
        return self.make(*args, **options)

    def __instancecheck__(self, value: Any) -> bool:
        # by the parts, as there is one class
        if not (isinstance(value, Sum) and isinstance(value.times, self.times)):
            return False
        # by the parts, as all sums are of one class
        trust = value.trust
        known = trust.devices if self.trust is None else trust.name == self.trust
        return known and self.also(value)

    # documented for bases that are no classes (PEP 560), so that old code gets a reason
    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        if self.make is not batch_sum:
            raise TypeError(
                f"{self.make.__name__} is a function that composes a Sum; your own class is a "
                "subclass of dpb_gym.privacy.Sum, or of Releaser"
            )
        return (Sum,)


BatchSum = OldName(batch_sum, OnRequest)
UserSum = OldName(user_sum, OnRequest, also=lambda sums: sums.clips_users)
ShuffledSum = OldName(shuffled_sum, OnRequest, also=lambda sums: sums.shuffled)
RunningSum = OldName(running_sum, Every)
WeightedSum = OldName(weighted_sum, Planned)
AggregatedSum = OldName(aggregated_sum, Planned, "aggregator")
ShuffledBatches = OldName(shuffled_batches, Planned, "shuffler")
LocalSum = OldName(local_sum, Planned, "local")
DisjointSum = OldName(weighted_sum, Planned, None)


class LogSum:
    """Noisy sum of one record that library code computes from a whole log.

    The caller bounds what each unit of the log contributes and passes the `sensitivity`. So it is
    not for agents, whose sums bound each record themselves.

    Raises:
        BudgetError: If the curator is an agent's.
    """

    def __init__(self, curator: CuratorProtocol, width: Width, **options: Any) -> None:
        self._sums = batch_sum(curator, width, horizon=1, from_log=True, **options)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise per coordinate."""
        return self._sums.sigma

    def of(self, record: FloatArray) -> FloatArray:
        """Release the record, of one replicate and without its axis."""
        self._sums.add(record[None])
        return np.asarray(self._sums.release()[0])
