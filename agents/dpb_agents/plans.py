"""Descriptions of the agents' own releasers and arguments as plain data, for isolated runs.

See `dpb_gym.privacy.plain_plans`. They are here, not in the agents' modules, because they are no
part of the agents' code and its digest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpb_agents.assortment import choice_records
from dpb_agents.common.local_sgd import Gradients
from dpb_agents.multi_armed.arms import LAWS, ArmSums
from dpb_agents.multi_armed.ucb import BernoulliResponse
from dpb_agents.pricing.paper_constants import Demand
from dpb_agents.pricing.private_demand_mle import PrivateMLE
from dpb_agents.recommendation.fliphat import Peeling
from dpb_agents.recommendation.jdp_glm import RewardMLE
from dpb_agents.recommendation.local_linear import Statistics
from dpb_agents.recommendation.one_pass_sparse import SparseSums
from dpb_agents.recommendation.rivals.linear_rival import RewardSums
from dpb_gym import validation
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.feedback import CapStatistics, GaussianContexts, GaussianStatistics
from dpb_gym.privacy import ObjectivePerturbation, Segment
from dpb_gym.privacy import plain_plans as plain
from dpb_gym.privacy.objective_perturbation import LossBounds
from dpb_gym.privacy.plain_plans import DIRECTION, PUBLIC, RECORD, Given, Method, check_array
from dpb_gym.privacy.releasers.sum_plans import RANGE, SUMMED, width_of

TINY = np.finfo(np.float64).tiny


# ------------------------------------------------------------------ sums


plain.describe_releaser(
    ArmSums,
    {"arms": plain.width, "reward": plain.pair, "law": plain.choice(*LAWS), "what": plain.text},
    {**SUMMED, **plain.RELEASED},
    size=lambda given: given.get("arms", 1),
)


def check_image(sums: Any, given: Given, users: Any) -> None:
    """Check a release of M times the sums: `norm`, which scales its noise, must bound M."""
    plain.check_due(sums, given, users)
    inverse = given.get("inverse")
    norm = given.get("norm")
    if inverse is None or norm is None:
        return  # the releaser takes both or neither
    batch = sums.replicates
    width = sums.shape.width
    check_array(sums.what, "inverse", inverse, "f", batch, width, width)
    check_array(sums.what, "norm", norm, "f", batch, low=0.0)
    exact = np.linalg.norm(np.asarray(inverse, np.float64), 2, axis=(1, 2))
    if (norm < exact * (1.0 - 1e-12)).any():
        raise AgentError(f"{sums.what}: norm is smaller than the norm of inverse")


plain.describe_releaser(
    RewardSums,
    {
        "width": plain.width,
        "reward": plain.instance(Segment),
        "what": plain.text,
        "split": plain.integer(1),
        "keep": plain.optional(plain.integer(1)),
    },
    {
        **SUMMED,
        "release": Method({"due": PUBLIC, "inverse": PUBLIC, "norm": PUBLIC}, check_image),
    },
    size=width_of,
)


def check_errors(sums: Any, given: Given, users: Any) -> None:
    """Check errors, their scale and directions."""
    batch = sums.replicates
    check_array(sums.what, "errors", given.get("errors"), "f", batch)
    check_array(sums.what, "scale", given.get("scale"), "f", batch, low=TINY)
    check_array(sums.what, "directions", given.get("directions"), "f", batch, sums.width)


def check_selection(sums: Any, given: Given, users: Any) -> None:
    """Check the support of a release, and that its parts spend no more than the batch may."""
    check_array(sums.what, "support", given.get("support"), "b", sums.replicates, sums.width)
    given["picks"] = validation.integer("picks", given.get("picks"), 0, plain.MOST_STEPS)
    shares = validation.array("shares", given.get("shares"), (2,), 0.0, 1.0)
    first, second = shares.tolist()
    if first == 0.0 or (second == 0.0 and given.get("picks")) or first + second > 1.0 + 1e-12:
        raise AgentError(f"{sums.what}: shares must be positive and at most 1 in all")
    given["shares"] = first, second


plain.describe_releaser(
    SparseSums,
    {
        "width": plain.integer(2, plain.MOST_NUMBERS),
        "bound": plain.real(0.0, 1.0, open_low=True),
    },
    {
        "add": plain.adding(
            {"errors": RECORD, "scale": DIRECTION, "directions": DIRECTION}, check_errors
        ),
        "release": Method({"support": PUBLIC, "picks": PUBLIC, "shares": PUBLIC}, check_selection),
    },
    size=width_of,
)


# ------------------------------------------------------------------ sparse least squares


def check_features(releaser: Any, given: Given, users: Any) -> None:
    """Check features and rewards."""
    batch = releaser.replicates
    check_array(releaser.what, "features", given.get("features"), "f", batch, releaser.dim)
    check_array(releaser.what, "rewards", given.get("rewards"), "f", batch)


def check_descent(releaser: Any, given: Given, users: Any) -> None:
    """Check length and number of the steps, whose iterates are stored."""
    given["step"] = plain.not_negative("step", given.get("step"))
    most = min(plain.MOST_STEPS, plain.MOST_NUMBERS // (releaser.replicates * releaser.dim))
    given["steps"] = validation.integer("steps", given.get("steps"), 1, most)


def check_peeling(curator: Any, given: Given) -> None:
    """Check that the first iterate has the coordinates of the problem."""
    dim = given["dim"]
    if given["start"].shape != (dim,) or given["sparsity"] > dim:
        raise ParameterError(f"start has {dim} coordinates, and sparsity is at most {dim}")


def squares_of(given: Given) -> int:
    """Return the numbers of a matrix of second derivatives, or of the features of a slate."""
    dim = given.get("dim", 1)
    return int(dim * max(dim, given.get("slots", 1)))


plain.describe_releaser(
    Peeling,
    {
        "dim": plain.width,
        "sparsity": plain.integer(1),
        "x_max": plain.positive,
        "bound": plain.positive,
        "radius": plain.positive,
        "start": plain.numbers,
    },
    {
        "add": plain.adding({"features": DIRECTION, "rewards": RECORD}, check_features),
        "release": Method({"step": PUBLIC, "steps": PUBLIC}, check_descent),
    },
    size=squares_of,
    check=check_peeling,
)


# ------------------------------------------------------------------ likelihoods


def check_demand(releaser: Any, given: Given, users: Any) -> None:
    """Check features, price and demand."""
    what = releaser.what
    batch = releaser.replicates
    check_array(what, "features", given.get("features"), "f", batch, releaser.dim - 1)
    check_array(what, "price", given.get("price"), "f", batch)
    check_array(what, "demand", given.get("demand"), "bif", batch)


def check_rows(releaser: Any, given: Given, users: Any) -> None:
    """Check rows of vectors."""
    batch = releaser.replicates
    check_array(releaser.what, "records", given.get("records"), "f", batch, releaser.shape.width)


def check_choices(releaser: Any, given: Given, users: Any) -> None:
    """Check slates of items that exist, and the place of the choice."""
    what = releaser.what
    batch = releaser.replicates
    slots = releaser.records.x.shape[2]
    features: Any = given.get("features")
    items = features.shape[1] if np.ndim(features) == 3 else 0
    check_array(what, "features", features, "f", batch, items, releaser.dim)
    check_array(what, "slates", given.get("slates"), "i", batch, slots, low=-1, high=items - 1)
    check_array(what, "choice", given.get("choice"), "i", batch, low=-1, high=slots - 1)


def check_clip(curator: Any, given: Given) -> None:
    """Refuse features without a bound, unless nothing is promised."""
    if given.get("clip") is False and curator.private and not curator.ledger.disclosed:
        raise AgentError("records of choices that are not clipped have no bound")


def demand_loss(given: Given) -> LossBounds:
    """Return the bounds of the likelihood of a demand model."""
    demand = given["demand"]
    return LossBounds(given["dim"], demand.gradient_bound, demand.curvature, given["horizon"])


def choice_loss(given: Given) -> LossBounds:
    """Return the bounds of the multinomial likelihood."""
    bounds = choice_records.GRADIENT_BOUND, choice_records.CURVATURE
    return LossBounds(given["dim"], *bounds, given["horizon"])


# its other facts, such as bounds of gradients, follow from these
plain.describe_argument(
    Demand,
    {
        "kind": plain.choice("logistic", "gaussian"),
        "zeta": plain.positive,
        "bound": plain.positive,
    },
    attributes={"bound": "high"},
    make=Demand.of,
)
MLE: dict[str, plain.Reader] = {
    **plain.NAMED,
    "dim": plain.integer(1, 1 << 13),
    "horizon": plain.integer(1),
    "calls": plain.integer(1),
    "calibration": plain.either(
        plain.instance(ObjectivePerturbation), plain.choice("verified", "zcdp")
    ),
    "ridge": plain.positive,
}
DEMAND_MLE: dict[str, plain.Reader] = {**MLE, "demand": plain.instance(Demand)}
plain.describe_releaser(
    PrivateMLE,
    DEMAND_MLE,
    {
        **plain.MINIMISED,
        "add": plain.adding(
            {"features": DIRECTION, "price": DIRECTION, "demand": RECORD}, check_demand
        ),
    },
    size=squares_of,
    centre=plain.numbers,
    loss=demand_loss,
)
plain.describe_releaser(
    RewardMLE,
    DEMAND_MLE,
    {
        **plain.MINIMISED,
        "add": plain.adding({"records": RECORD}, check_rows),
    },
    size=squares_of,
    centre=plain.numbers,
    loss=demand_loss,
)
plain.describe_releaser(
    choice_records.ChoiceMLE,
    {**MLE, "slots": plain.integer(1, 1 << 13), "clip": plain.flag},
    {
        **plain.MINIMISED,
        "add": plain.adding(
            {"features": DIRECTION, "slates": DIRECTION, "choice": RECORD}, check_choices
        ),
    },
    size=squares_of,
    centre=plain.numbers,
    check=check_clip,
    loss=choice_loss,
)


# ------------------------------------------------------------------ local messages


def check_directed(releaser: Any, given: Given, users: Any) -> None:
    """Check rewards and their directions."""
    batch = releaser.replicates
    check_array(releaser.what, "records", given.get("records"), "bif", batch)
    check_array(releaser.what, "along", given.get("along"), "f", batch, releaser.shape.width)


plain.describe_argument(BernoulliResponse, {"epsilon": plain.positive, **RANGE})
RELEASE = Method({}, lambda *_: None)
plain.describe_messages(
    Statistics,
    GaussianStatistics,
    CapStatistics,
    methods={
        "add": plain.adding({"records": RECORD, "along": DIRECTION}, check_directed),
        "release": RELEASE,
    },
)
plain.describe_messages(
    Gradients,
    GaussianContexts,
    methods={"add": plain.adding({"records": RECORD}, check_rows), "release": RELEASE},
)
