"""Sums as plain data: descriptions of `Sum`, of its parts and of the bounds of its records."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.privacy import plain_plans as plain
from dpb_gym.privacy.plain_plans import DIRECTION, RECORD, Given, Method, check_array
from dpb_gym.privacy.releasers.mechanisms import Bits, Correlated, Discrete, Gaussian, Randomised
from dpb_gym.privacy.releasers.record_bounds import (
    Ball,
    NonNegativeBall,
    PSDBall,
    RecordShape,
    Segment,
)
from dpb_gym.privacy.releasers.release_schedule import ReleaseModel, Schedule
from dpb_gym.privacy.releasers.release_times import Every, OnRequest, Planned
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.privacy.releasers.trust_models import TRUST_MODELS, TrustModel, trust_model


def _schedule(ends: Any, weights: Any, scales: Any, carry: float = 1.0) -> Schedule:
    """Return a checked schedule."""
    if not len(ends) == len(weights) == len(scales):
        raise ParameterError("a schedule has a weight and a scale for every release")
    if not ((weights > 0.0).all() and (scales > 0.0).all()):
        raise ParameterError("the weights and scales of a schedule must be positive")
    return Schedule(ends, weights, scales, carry)


# a side of 8192 has 33 million entries
SIDE = plain.integer(0, 1 << 13)
plain.describe_argument(
    RecordShape, {"dim": plain.integer(0, plain.MOST_NUMBERS), "symmetric": SIDE}
)
for _ball in (Ball, PSDBall, NonNegativeBall):
    plain.describe_argument(_ball, {"radius": plain.positive})
RANGE = {"low": plain.real(), "high": plain.real()}
plain.describe_argument(Segment, RANGE)

plain.describe_argument(
    Schedule,
    {
        "ends": plain.rounds,
        "weights": plain.numbers,
        "scales": plain.numbers,
        "carry": plain.real(0.0, 1.0),
    },
    make=_schedule,
)
plain.describe_argument(
    ReleaseModel,
    {
        "horizon": plain.integer(1),
        "unit_noise": plain.not_negative,
        "rate": plain.positive,
        "spread": plain.not_negative,
        "prior": plain.positive,
        "anytime": plain.flag,
        "linear": plain.flag,
        "binary": plain.flag,
    },
)
plain.describe_argument(
    OnRequest, {"cumulative": plain.flag, "sampling": plain.real(0.0, 1.0, open_low=True)}
)
plain.describe_argument(Every, {"rounds": plain.integer(1)})
plain.describe_argument(
    Planned,
    {
        "schedule": plain.optional(plain.instance(Schedule)),
        "model": plain.optional(plain.instance(ReleaseModel)),
    },
)

plain.describe_argument(Gaussian, {})
plain.describe_argument(Correlated, {"name": plain.choice("blt", "sqrt-toeplitz", "binary-tree")})
plain.describe_argument(
    Bits,
    {"batch": plain.optional(plain.integer(1)), "levels": plain.optional(plain.integer(1))},
)
plain.describe_argument(Discrete, {"dropout": plain.real(0.0, 1.0, open_high=True)})
plain.describe_argument(Randomised, {})
# the name alone: who adds the noise is not the agent's to say
plain.describe_argument(TrustModel, {"name": plain.choice(*TRUST_MODELS)}, make=trust_model)

BOUND = plain.instance(Ball, PSDBall, NonNegativeBall, Segment)
OPTIONS: dict[str, plain.Reader] = {
    **plain.NAMED,
    "width": plain.either(plain.instance(RecordShape), plain.width),
    "mechanism": plain.optional(plain.instance(Gaussian, Correlated, Bits, Discrete, Randomised)),
    "trust": plain.instance(TrustModel),
    "times": plain.optional(plain.instance(OnRequest, Every, Planned)),
    "clip": plain.optional(plain.either(BOUND, plain.positive)),
    "reward": plain.optional(plain.pair),
    "sensitivity": plain.optional(plain.positive),
    "limit": plain.optional(plain.integer(1)),
    "participations": plain.optional(plain.integer(1)),
    "lifetime": plain.optional(plain.positive),
    "horizon": plain.optional(plain.integer(1)),
    "sigma": plain.optional(plain.positive),
}


def check_add(sums: Any, given: Given, users: Any, *rounds: int) -> None:
    """Check records, directions and users of sums.

    Users are those of the round. A releaser counts records by them, so that a limit of records
    per user does not depend on the agent's process.
    """
    what = sums.what
    batch = sums.replicates
    records = given.get("records")
    along = given.get("along")
    if along is None:
        check_array(what, "records", records, "bif", *rounds, batch, *sums.shape.shape)
    else:
        check_array(what, "records", records, "bif", *rounds, batch)
        side = sums.shape.symmetric or sums.shape.width
        several = np.shape(along)[len(rounds) + 1 : -1] if sums.shape.symmetric else ()
        check_array(what, "directions", along, "bif", *rounds, batch, *several[:1], side)
    own = given.get("users")
    if own is not None:
        check_array(what, "users", own, "i", batch)
        if users is None or ((own != users) & (own != -1)).any():
            raise AgentError(f"{what}: a record is of the user of its round, or of nobody (-1)")


def width_of(given: Given) -> int:
    """Return the numbers of a record of a sum."""
    width = given.get("width", 1)
    return width.width if isinstance(width, RecordShape) else int(width)


ADDED = {"records": RECORD, "along": DIRECTION}
SUMMED: dict[str, Method] = {
    "add": plain.adding({**ADDED, "users": DIRECTION}, check_add),
    # the records of one round
    "add_rounds": plain.adding(ADDED, lambda *given: check_add(*given, 1)),
    **plain.VALUE,
}
"""Methods of a sum that is read, and not asked to release."""

# without from_log, which only library code may say
plain.describe_releaser(
    Sum,
    OPTIONS,
    {
        **SUMMED,
        "release": Method({}, plain.check_nothing),
        "forget": Method({}, plain.check_nothing),
    },
    size=width_of,
)
