"""Distance of two units' records in a sum, and what it rests on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from dpb_gym import kernels, validation
from dpb_gym.errors import ParameterError, shown
from dpb_gym.privacy.guarantee import RESPONSES
from dpb_gym.privacy.releasers.record_bounds import (
    Ball,
    Bound,
    NonNegativeBall,
    PSDBall,
    RecordShape,
    Segment,
)
from dpb_gym.privacy.releasers.releaser import CuratorProtocol


class Distance(NamedTuple):
    """Largest distance of the records of two units.

    Attributes:
        sensitivity: The distance in 2-norm, of all records of a unit together.
        radius: Norm to which the releaser clips records.
        basis: See `Guarantee`: "declared" if it rests on a number that nothing enforces.
        proviso: See `Guarantee.provisos`.
    """

    sensitivity: float
    radius: float
    basis: str = "computed"
    proviso: str = ""


def bound_of(
    clip: Bound | float | None, reward: tuple[float, float] | None, shape: RecordShape
) -> Bound | None:
    """Return the bound of records from the arguments of a sum.

    Raises:
        ParameterError: If it is no bound of this package, or not for records of this shape.
    """
    bound = Segment(*reward) if reward is not None else clip
    if bound is not None and not isinstance(bound, (Ball, Segment)):
        bound = Ball(validation.real("clip", bound, 0.0, open_low=True))
    if bound is not None and type(bound) not in (Ball, Segment, NonNegativeBall, PSDBall):
        raise ParameterError(
            f"clip must be a Ball, Segment, NonNegativeBall or PSDBall, got {shown(bound)}; a "
            "class of another package could change its bound"
        )
    vectors = (Segment, NonNegativeBall)
    if isinstance(bound, vectors if shape.symmetric else PSDBall):
        raise ParameterError(
            "Segment and NonNegativeBall bound vectors, PSDBall symmetric matrices, Ball either"
        )
    # a copy of the fields, so that nothing else that was set on the instance counts
    return None if bound is None else replace(bound)


def distance_of(
    curator: CuratorProtocol,
    clip: Bound | None,
    *,
    given: float | None,
    limit: int | None,
    participations: int | None,
    enforced: bool,
    what: str,
) -> Distance:
    """Return the distance of two units: `limit` times that of two records (erratum R10).

    Args:
        curator: Its unit and relation say what neighbours are.
        clip: Bound of a record.
        given: Sensitivity that overrides that of the bound.
        limit: Most records of a user, which the releaser counts.
        participations: The same, which it does not count.
        enforced: Whether library code enforces `given`.
        what: Name of the sum.

    Raises:
        ParameterError: If the records have no bound, or users may have any number of them.
    """
    most = participations if limit is None else limit
    # without users a record is one unit, whatever the number of records
    times = 1 if most is None else validation.integer("participations", most, 1)
    radius = clip.radius if isinstance(clip, Ball) else math.inf
    apart = math.inf
    if clip is not None:
        apart = clip.sensitivity(curator.relation, curator.unit in RESPONSES)
    elif curator.private and (given is None or not curator.ledger.disclosed):
        raise ParameterError(
            f"{what}: give clip or reward. A sum has the sensitivity of a bound that its "
            "releaser enforces"
        )
    protected = curator.private and not enforced
    users = protected and curator.unit in ("user", "user-rewards")
    if users and most is None and given is None:
        raise ParameterError(
            "users are protected, who may have several records: give limit (the most records "
            "of one user that enter), or an explicit sensitivity"
        )

    single, typed = apart, f"at most {most} records"
    if given is not None:
        single = validation.real("sensitivity", given, 0.0, open_low=True)
        typed = f"sensitivity {single:g}"
    total = single * times
    if users and limit is None:
        return Distance(total, radius, basis=f"declared ({what}: {typed} of a user)")
    if protected and single < apart * (1.0 - kernels.continual.ROUNDING):
        if type(clip) is Ball:
            # records of a special form may be closer than two of the ball; this length is enforced
            shorter = min(radius, single)
            return Distance(total, shorter, proviso=f"declared: {typed} of {what}")
        return Distance(total, radius, basis=f"declared ({what}: {typed})")
    return Distance(total, radius)
