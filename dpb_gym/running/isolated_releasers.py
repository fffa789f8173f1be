"""Releasers of isolated agents: closed tables of classes, arguments and methods.

An isolated agent's process names a class of `RELEASERS` and gives plain values. Objects among them,
such as bounds and mechanisms, are described by the fields of `OBJECTS` and made by their
constructors here. So sensitivities, costs and scales of noise are computed in this process, and no
number that follows from others is read. The same tables have the methods that an agent can call,
and check every argument before compiled code reads it.

Classes are named by text, because the library imports no agent.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import AgentError, ParameterError, shown
from dpb_gym.lazy import own_packages
from dpb_gym.privacy import Curator
from dpb_gym.privacy.guarantee import RESPONSES
from dpb_gym.privacy.objective_perturbation import (
    LossBounds,
    ObjectivePerturbation,
    PerturbedObjectiveEvent,
)
from dpb_gym.privacy.releasers.minimiser import LossMinimiser
from dpb_gym.privacy.releasers.record_bounds import Ball
from dpb_gym.privacy.releasers.release_schedule import Schedule
from dpb_gym.privacy.releasers.releaser import Releaser
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.problems.rounds import LONGEST
from dpb_gym.streams import AgentStreams

Reader = Callable[[str, Any], Any]
Given = dict[str, Any]

MOST_NUMBERS = 1 << 26
"""Most numbers in an array that arguments let a releaser make: 512 MiB."""
MOST_RELEASES, MOST_STEPS = 1 << 16, 1 << 16
"""Most releases of a schedule, and most steps of an iteration."""
CHARGES = ("as_printed", "disclose", "seal")
"""Methods of a curator that an isolated agent can call, in `begin`."""
RECORD, DIRECTION, PUBLIC = "record", "direction", "public"
"""Whose argument counts. A record is that of the customer's process. A direction is too if the
unit protects contexts, otherwise it is the policy's. A public argument is the policy's."""
DTYPES = {"b": ("|b1",), "i": ("<i4", "<i8"), "f": ("<f4", "<f8")}


class ArgumentKind(NamedTuple):
    """A class whose objects can be arguments.

    Attributes:
        path: Module and name.
        fields: Readers of the arguments of the constructor, by name.
        attributes: Where an argument is another attribute of the object than its own name.
        make: Makes the object of the class and its arguments; None: the constructor.
    """

    path: str
    fields: Mapping[str, Reader]
    attributes: Mapping[str, str] = {}
    make: Callable[[Any, Given], Any] | None = None


class Method(NamedTuple):
    """A method of a releaser.

    Attributes:
        sources: `RECORD`, `DIRECTION` or `PUBLIC` of each argument, by name.
        check: Raises an error unless the arguments are possible for the releaser.
        records: Whether the method takes records.
        returns: Whether it returns something.
    """

    sources: Mapping[str, str]
    check: Callable[[Any, Given, Array | None], None]
    records: bool = False
    returns: bool = True


class ReleaserEntry(NamedTuple):
    """A releaser that isolated agents can have.

    Attributes:
        options: Readers of the arguments of the constructor, by name.
        methods: Its methods, by name; ``"value"`` is a property.
        centre: Reader of its `centre`, which `begin` may set; None: it has none.
        check: Raises an error unless arguments belong together, given the curator.
    """

    options: Mapping[str, Reader]
    methods: Mapping[str, Method]
    centre: Reader | None = None
    check: Callable[[Curator, Given], None] | None = None


# ------------------------------------------------------------------ plain values


def _integer(low: int, high: int = LONGEST) -> Reader:
    return lambda name, value: validation.integer(name, value, low, high)


def _real(low: float = -math.inf, high: float = math.inf, **ends: Any) -> Reader:
    return lambda name, value: validation.real(name, value, low, high, **ends)


def _choice(*options: str) -> Reader:
    return lambda name, value: validation.choice(name, value, options)


def _optional(reader: Reader) -> Reader:
    return lambda name, value: None if value is None else reader(name, value)


def text(name: str, value: Any) -> str:
    """Return a text of at most 200 characters."""
    if len(validation.text(name, value)) > 200:
        raise ParameterError(f"{name} must have at most 200 characters, got {shown(value)}")
    return str(value)


def _flag(name: str, value: Any) -> bool:
    return validation.flag(name, value)


def _pair(name: str, value: Any) -> tuple[float, float]:
    if type(value) not in (list, tuple) or len(value) != 2:
        raise ParameterError(f"{name} must be (lowest, highest), got {shown(value)}")
    return validation.span(name, value)


def _numbers(name: str, value: Any) -> Array:
    """Return a finite vector of floats."""
    return validation.array(name, value, (None,))


def _rounds(name: str, value: Any) -> Array:
    """Return ascending numbers of rounds."""
    found = np.asarray(value)
    whole = type(value) is np.ndarray and found.ndim == 1 and found.dtype.str == "<i8"
    if not whole or not 0 < len(found) <= MOST_RELEASES:
        raise ParameterError(f"{name} must be a vector of whole numbers, got {shown(value)}")
    if found[0] < 1 or (np.diff(found) < 1).any():
        raise ParameterError(f"{name} must ascend from 1, got {shown(value)}")
    return found


_positive = _real(0.0, open_low=True)
_not_negative = _real(0.0)
_width = _integer(1, MOST_NUMBERS)


# ------------------------------------------------------------------ objects among arguments


def _schedule(kind: Any, given: Given) -> Schedule:
    """Return a schedule of running sums: that its releases are disjoint is not read."""
    ends, weights, scales = (given[name] for name in ("ends", "weights", "scales"))
    if not len(ends) == len(weights) == len(scales):
        raise ParameterError("a schedule has a weight and a scale for every release")
    if not ((weights > 0.0).all() and (scales > 0.0).all()):
        raise ParameterError("the weights and scales of a schedule must be positive")
    return Schedule(ends, weights, scales)


class Uncosted(NamedTuple):
    """A calibration of objective perturbation without its cost, see `completed`."""

    ridge: float
    sigma: float
    output_mu: float

    def completed(self, loss: LossBounds) -> ObjectivePerturbation:
        """Return the calibration for the bounds of a loss, with its true cost."""
        tolerance = loss.plan(self.ridge, self.sigma, 1.0).tolerance
        event = PerturbedObjectiveEvent(
            loss.curvature / self.ridge,
            self.sigma,
            2 * loss.gradient_bound,
            loss.dim,
            self.output_mu,
        )
        output_std = 2 * tolerance / (self.ridge * self.output_mu)
        return ObjectivePerturbation(loss.dim, self.ridge, self.sigma, tolerance, output_std, event)


_PRIVACY, _FEEDBACK = "dpb_gym.privacy.releasers", "dpb_gym.feedback"
_RADIUS = {"radius": _positive}
_RANGE = {"low": _real(), "high": _real()}
_KINDS = (
    ArgumentKind(
        f"{_PRIVACY}.record_bounds:RecordShape",
        {"dim": _integer(0, MOST_NUMBERS), "symmetric": _integer(0, 1 << 13)},
    ),
    ArgumentKind(f"{_PRIVACY}.record_bounds:Ball", _RADIUS),
    ArgumentKind(f"{_PRIVACY}.record_bounds:PSDBall", _RADIUS),
    ArgumentKind(f"{_PRIVACY}.record_bounds:NonNegativeBall", _RADIUS),
    ArgumentKind(f"{_PRIVACY}.record_bounds:Segment", _RANGE),
    ArgumentKind(
        f"{_PRIVACY}.release_schedule:Schedule",
        {"ends": _rounds, "weights": _numbers, "scales": _numbers},
        make=_schedule,
    ),
    ArgumentKind(
        f"{_PRIVACY}.release_schedule:ReleaseModel",
        {
            "horizon": _integer(1),
            "unit_noise": _not_negative,
            "rate": _positive,
            "spread": _not_negative,
            "prior": _positive,
            "anytime": _flag,
            "linear": _flag,
        },
    ),
    ArgumentKind(
        "dpb_gym.privacy.objective_perturbation:ObjectivePerturbation",
        {"ridge": _positive, "sigma": _positive, "output_mu": _positive},
        {"output_mu": "event.output_mu"},
        lambda kind, given: Uncosted(**given),
    ),
    ArgumentKind(
        "dpb_agents.pricing.paper_constants:Demand",
        {"kind": _choice("logistic", "gaussian"), "zeta": _positive, "bound": _positive},
        {"bound": "high"},
        lambda kind, given: kind.of(**given),
    ),
    ArgumentKind(f"{_FEEDBACK}.local_mechanisms:GaussianResponse", {"sigma": _positive, **_RANGE}),
    ArgumentKind(f"{_FEEDBACK}.local_mechanisms:LaplaceResponse", {"scale": _positive, **_RANGE}),
    ArgumentKind(
        f"{_FEEDBACK}.local_mechanisms:RandomizedResponse",
        {"epsilon": _positive, "categories": _integer(2, 1 << 20)},
    ),
    ArgumentKind("dpb_agents.multi_armed.ucb:BernoulliResponse", {"epsilon": _positive, **_RANGE}),
    ArgumentKind(
        f"{_FEEDBACK}.context_mechanisms:GaussianContexts",
        {"sigma": _positive, "vectors": _integer(1, 1 << 20), "dim": _width},
    ),
    ArgumentKind(
        f"{_FEEDBACK}.context_mechanisms:GaussianStatistics",
        {"sigma": _positive, "dim": _integer(1, 1 << 13), **_RANGE},
    ),
    ArgumentKind(
        f"{_FEEDBACK}.context_mechanisms:CapStatistics",
        {"epsilon": _positive, "dim": _integer(1, 1 << 13), **_RANGE},
    ),
)
OBJECTS = {kind.path: kind for kind in _KINDS}
"""Classes whose objects can be arguments, by module and name."""
_CHANNEL = f"{_FEEDBACK}.channel:ResponseChannel"


def _object(*names: str) -> Reader:
    """Return a reader of objects of classes of these names."""
    kinds = {path: kind for path, kind in OBJECTS.items() if path.partition(":")[2] in names}

    def read(name: str, value: Any) -> Any:
        path = value.get("is") if type(value) is dict else None
        if type(path) is not str or path not in kinds:
            raise ParameterError(f"{name} must be {' or '.join(names)}, got {shown(value)}")
        kind = kinds[path]
        if set(value) != {"is", *kind.fields}:
            raise ParameterError(f"{path} is made of {', '.join(kind.fields)}; got {shown(value)}")
        given = {
            field: reader(f"{name}: {field}", value[field]) for field, reader in kind.fields.items()
        }
        made = _class(path)
        return made(**given) if kind.make is None else kind.make(made, given)

    return read


def _either(reader: Reader, other: Reader) -> Reader:
    """Return a reader of objects and, by `other`, of anything else."""
    return lambda name, value: (reader if type(value) is dict else other)(name, value)


def _class(path: str) -> Any:
    """Return the class of a path in a table of this module."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def path_of(kind: type) -> str:
    """Return module and name of a class, as in the tables of this module."""
    return f"{kind.__module__}:{kind.__qualname__}"


def plain(value: Any) -> Any:
    """Return an argument as plain values, in the agent's process.

    Raises:
        AgentError: If it is an object of a class that is not in `OBJECTS`.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if type(value) in (list, tuple):
        return [plain(each) for each in value]
    path = path_of(type(value))
    if path == _CHANNEL:
        return plain(value.mechanism)  # whose problem is known
    if path not in OBJECTS:
        raise would_run(path)
    kind = OBJECTS[path]
    found = {"is": path}
    for name in kind.fields:
        part = value
        for attribute in kind.attributes.get(name, name).split("."):
            part = getattr(part, attribute)
        found[name] = plain(part)
    return found


def would_run(path: str) -> AgentError:
    """Return the error for a class that is in no table."""
    return AgentError(
        f"{path.replace(':', '.')} would run beside the raw data: an isolated agent uses releasers "
        f"of {' and '.join(sorted(own_packages()))}"
    )


# ------------------------------------------------------------------ arguments of methods


def _check(
    what: str, name: str, value: Any, kinds: str, *shape: int, low: Any = None, high: Any = None
) -> None:
    """Raise ParameterError unless a value is an array of this kind and shape, in the range."""
    known = type(value) is np.ndarray and value.dtype.str in [d for k in kinds for d in DTYPES[k]]
    if not known or value.shape != shape:
        got = shown(value)
        if type(value) is np.ndarray:
            got = f"{value.dtype} of shape {value.shape}"
        raise ParameterError(f"{what}: {name} must be an array of shape {shape}, got {got}")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ParameterError(f"{what}: {name} must be finite; got NaN or infinity")
    below = low is not None and (value < low).any()
    if below or (high is not None and (value > high).any()):
        raise ParameterError(f"{what}: {name} must be in {low}..{high}, got {shown(value)}")


def _nothing(releaser: Releaser, given: Given, users: Array | None) -> None:
    """Check nothing: there are no arguments."""


def _check_add(sums: Any, given: Given, users: Array | None, *rounds: int) -> None:
    """Check records, directions and users of sums.

    Users are those of the round. A releaser counts records by them, so that a limit of records
    per user does not depend on the agent's process.
    """
    records, along, own = given.get("records"), given.get("along"), given.get("users")
    what, B, side = sums.what, sums.replicates, sums.shape.symmetric or sums.shape.width
    if along is None:
        _check(what, "records", records, "bif", *rounds, B, *sums.shape.shape)
    else:
        _check(what, "records", records, "bif", *rounds, B)
        several = np.shape(along)[len(rounds) + 1 : -1] if sums.shape.symmetric else ()
        _check(what, "directions", along, "bif", *rounds, B, *several[:1], side)
    if own is not None:
        _check(what, "users", own, "i", B)
        if users is None or ((own != users) & (own != -1)).any():
            raise AgentError(f"{what}: a record is of the user of its round, or of nobody (-1)")


def _check_due(releaser: Any, given: Given, users: Array | None) -> None:
    _check(releaser.what, "due", given.get("due"), "b", releaser.replicates)


def _check_due_or_all(releaser: Any, given: Given, users: Array | None) -> None:
    if given.get("due") is not None:
        _check_due(releaser, given, users)


def _check_image(sums: Any, given: Given, users: Array | None) -> None:
    """Check a release of M times the sums: `norm`, which scales its noise, must bound M."""
    _check_due(sums, given, users)
    inverse, norm = given.get("inverse"), given.get("norm")
    if inverse is None or norm is None:
        return  # the releaser takes both or neither
    B, d = sums.replicates, sums.shape.width
    _check(sums.what, "inverse", inverse, "f", B, d, d)
    _check(sums.what, "norm", norm, "f", B, low=0.0)
    exact = np.linalg.norm(np.asarray(inverse, np.float64), 2, axis=(1, 2))
    if (norm < exact * (1.0 - 1e-12)).any():
        raise AgentError(f"{sums.what}: norm is smaller than the norm of inverse")


def _check_arms(sums: Any, given: Given, users: Array | None) -> None:
    B, n = sums.replicates, sums.shape.width
    _check(sums.what, "reward", given.get("reward"), "bif", B)
    _check(sums.what, "arm", given.get("arm"), "i", B, low=0, high=n - 1)
    _check(sums.what, "seen", given.get("seen"), "b", B)


def _check_errors(sums: Any, given: Given, users: Array | None) -> None:
    B = sums.replicates
    _check(sums.what, "errors", given.get("errors"), "f", B)
    _check(sums.what, "scale", given.get("scale"), "f", B, low=np.finfo(np.float64).tiny)
    _check(sums.what, "directions", given.get("directions"), "f", B, sums.width)


def _check_selection(sums: Any, given: Given, users: Array | None) -> None:
    _check(sums.what, "support", given.get("support"), "b", sums.replicates, sums.width)
    given["picks"] = validation.integer("picks", given.get("picks"), 0, MOST_STEPS)
    shares = validation.array("shares", given.get("shares"), (2,), 0.0, 1.0)
    first, second = shares.tolist()
    if first == 0.0 or (second == 0.0 and given.get("picks")) or first + second > 1.0 + 1e-12:
        raise AgentError(f"{sums.what}: shares must be positive and at most 1 in all")
    given["shares"] = first, second


def _check_features(releaser: Any, given: Given, users: Array | None) -> None:
    _check(releaser.what, "features", given.get("features"), "f", releaser.replicates, releaser.dim)
    _check(releaser.what, "rewards", given.get("rewards"), "f", releaser.replicates)


def _check_descent(releaser: Any, given: Given, users: Array | None) -> None:
    given["step"] = _not_negative("step", given.get("step"))
    most = min(MOST_STEPS, MOST_NUMBERS // (releaser.replicates * releaser.dim))
    given["steps"] = validation.integer("steps", given.get("steps"), 1, most)


def _check_demand(releaser: Any, given: Given, users: Array | None) -> None:
    B, what = releaser.replicates, releaser.what
    _check(what, "features", given.get("features"), "f", B, releaser.dim - 1)
    _check(what, "price", given.get("price"), "f", B)
    _check(what, "demand", given.get("demand"), "bif", B)


def _check_vectors(releaser: Any, given: Given, users: Array | None) -> None:
    _check(releaser.what, "vectors", given.get("vectors"), "f", releaser.replicates, releaser.dim)
    _check(releaser.what, "rewards", given.get("rewards"), "bif", releaser.replicates)


def _check_choices(releaser: Any, given: Given, users: Array | None) -> None:
    B, what, slots = releaser.replicates, releaser.what, releaser.records.x.shape[2]
    features: Any = given.get("features")
    items = features.shape[1] if np.ndim(features) == 3 else 0
    _check(what, "features", features, "f", B, items, releaser.dim)
    _check(what, "slates", given.get("slates"), "i", B, slots, low=-1, high=items - 1)
    _check(what, "choice", given.get("choice"), "i", B, low=-1, high=slots - 1)


def _check_gradient(releaser: Any, given: Given, users: Array | None) -> None:
    B, d = releaser.replicates, releaser.mechanism.dim
    _check(releaser.what, "gradient", given.get("gradient"), "f", B, d)
    _check(releaser.what, "reach", given.get("reach"), "f", B, low=np.finfo(np.float64).tiny)


# ------------------------------------------------------------------ arguments that belong together


def _check_peeling(curator: Curator, given: Given) -> None:
    dim = given["dim"]
    if given["start"].shape != (dim,) or given["sparsity"] > dim:
        raise ParameterError(f"start has {dim} coordinates, and sparsity is at most {dim}")


def _check_clip(curator: Curator, given: Given) -> None:
    if given.get("clip") is False and curator.private and not curator.ledger.disclosed:
        raise AgentError("records of choices that are not clipped have no bound")


# ------------------------------------------------------------------ tables

_NAMED: dict[str, Reader] = {"share": _optional(_real(0.0, 1.0, open_low=True)), "what": text}
_SUM: dict[str, Reader] = {
    **_NAMED,
    "width": _either(_object("RecordShape"), _width),
    "clip": _optional(_either(_object("Ball", "PSDBall", "NonNegativeBall", "Segment"), _positive)),
    "reward": _optional(_pair),
    "sensitivity": _optional(_positive),
    "limit": _optional(_integer(1)),
    "participations": _optional(_integer(1)),
    "horizon": _optional(_integer(1)),
    "sigma": _optional(_positive),
}
_BATCH: dict[str, Reader] = {
    **_SUM,
    "cumulative": _flag,
    "sampling": _real(0.0, 1.0, open_low=True),
}
_PLANNED: dict[str, Reader] = {
    **_SUM,
    "schedule": _object("Schedule"),
    "model": _optional(_object("ReleaseModel")),
}
_MLE: dict[str, Reader] = {
    **_NAMED,
    "dim": _integer(1, 1 << 13),
    "horizon": _integer(1),
    "calls": _integer(1),
    "calibration": _either(_object("ObjectivePerturbation"), _choice("verified", "zcdp")),
    "ridge": _positive,
}
_DEMAND_MLE: dict[str, Reader] = {**_MLE, "demand": _object("Demand")}


def _adding(sources: Mapping[str, str], check: Callable[..., None]) -> Method:
    """Return a method that takes records and returns nothing."""
    return Method(sources, check, records=True, returns=False)


_ADD = {"records": RECORD, "along": DIRECTION}
_SUMMED: dict[str, Method] = {
    "add": _adding({**_ADD, "users": DIRECTION}, _check_add),
    # the records of one round
    "add_rounds": _adding(_ADD, lambda *given: _check_add(*given, 1)),
    "value": Method({}, _nothing),
}
_BATCHED: dict[str, Method] = {
    **_SUMMED,
    "release": Method({}, _nothing),
    "forget": Method({}, _nothing),
}
_RELEASED: dict[str, Method] = {
    "release": Method({"due": PUBLIC}, _check_due),
    "value": Method({}, _nothing),
}
_MINIMISED = {**_RELEASED, "release": Method({"due": PUBLIC}, _check_due_or_all)}
# The arguments are context, action and feedback, which this process has.
_SENT = {"send": Method({}, _nothing, records=True)}

RELEASERS: dict[str, ReleaserEntry] = {
    f"{_PRIVACY}.running_sum:RunningSum": ReleaserEntry(
        {
            **_SUM,
            "mechanism": _optional(_choice("blt", "sqrt-toeplitz", "binary-tree")),
            "every": _integer(1),
        },
        _SUMMED,
    ),
    f"{_PRIVACY}.batch_sum:BatchSum": ReleaserEntry(_BATCH, _BATCHED),
    f"{_PRIVACY}.batch_sum:UserSum": ReleaserEntry(
        {**_BATCH, "radius": _positive},
        {name: method for name, method in _BATCHED.items() if name != "add_rounds"},
    ),
    f"{_PRIVACY}.shuffled_sum:ShuffledSum": ReleaserEntry(
        {**_BATCH, "batch": _integer(1), "levels": _optional(_integer(1))}, _BATCHED
    ),
    f"{_PRIVACY}.weighted_sum:WeightedSum": ReleaserEntry(_PLANNED, _SUMMED),
    f"{_PRIVACY}.aggregated_sum:AggregatedSum": ReleaserEntry(
        {**_PLANNED, "dropout": _real(0.0, 1.0, open_high=True)}, _SUMMED
    ),
    f"{_PRIVACY}.shuffled_sum:ShuffledBatches": ReleaserEntry(_PLANNED, _SUMMED),
    f"{_PRIVACY}.local_sum:LocalSum": ReleaserEntry(_PLANNED, _SUMMED),
    "dpb_gym.local_privacy:Responses": ReleaserEntry(
        {
            "channel": _object(
                "GaussianResponse", "LaplaceResponse", "RandomizedResponse", "BernoulliResponse"
            )
        },
        _SENT,
    ),
    "dpb_agents.recommendation.local_linear:Statistics": ReleaserEntry(
        {"mechanism": _object("GaussianStatistics", "CapStatistics")}, _SENT, centre=_real()
    ),
    "dpb_agents.common.local_sgd:Gradients": ReleaserEntry(
        {"mechanism": _object("GaussianContexts")},
        {"send": Method({"gradient": RECORD, "reach": PUBLIC}, _check_gradient, records=True)},
    ),
    "dpb_agents.multi_armed.arms:ArmSums": ReleaserEntry(
        {"arms": _width, "reward": _pair, "law": _choice("gaussian", "laplace"), "what": text},
        {
            **_RELEASED,
            "add": _adding({"reward": RECORD, "arm": DIRECTION, "seen": DIRECTION}, _check_arms),
        },
    ),
    "dpb_agents.recommendation.rivals.linear_rival:RewardSums": ReleaserEntry(
        {
            "width": _width,
            "reward": _object("Segment"),
            "what": text,
            "split": _integer(1),
            "keep": _optional(_integer(1)),
        },
        {
            **_SUMMED,
            "release": Method({"due": PUBLIC, "inverse": PUBLIC, "norm": PUBLIC}, _check_image),
        },
    ),
    "dpb_agents.recommendation.one_pass_sparse:SparseSums": ReleaserEntry(
        {"width": _integer(2, MOST_NUMBERS), "bound": _real(0.0, 1.0, open_low=True)},
        {
            "add": _adding(
                {"errors": RECORD, "scale": DIRECTION, "directions": DIRECTION}, _check_errors
            ),
            "release": Method(
                {"support": PUBLIC, "picks": PUBLIC, "shares": PUBLIC}, _check_selection
            ),
        },
    ),
    "dpb_agents.recommendation.fliphat:Peeling": ReleaserEntry(
        {
            "dim": _width,
            "sparsity": _integer(1),
            "x_max": _positive,
            "bound": _positive,
            "radius": _positive,
            "start": _numbers,
        },
        {
            "add": _adding({"features": DIRECTION, "rewards": RECORD}, _check_features),
            "release": Method({"step": PUBLIC, "steps": PUBLIC}, _check_descent),
        },
        check=_check_peeling,
    ),
    "dpb_agents.pricing.private_demand_mle:PrivateMLE": ReleaserEntry(
        _DEMAND_MLE,
        {
            **_MINIMISED,
            "add": _adding(
                {"features": DIRECTION, "price": DIRECTION, "demand": RECORD}, _check_demand
            ),
        },
        centre=_numbers,
    ),
    "dpb_agents.recommendation.jdp_glm:RewardMLE": ReleaserEntry(
        _DEMAND_MLE,
        {
            **_MINIMISED,
            "add": _adding({"vectors": DIRECTION, "rewards": RECORD}, _check_vectors),
        },
        centre=_numbers,
    ),
    "dpb_agents.assortment.choice_records:ChoiceMLE": ReleaserEntry(
        {**_MLE, "slots": _integer(1, 1 << 13), "clip": _flag},
        {
            **_MINIMISED,
            "add": _adding(
                {"features": DIRECTION, "slates": DIRECTION, "choice": RECORD}, _check_choices
            ),
        },
        centre=_numbers,
        check=_check_clip,
    ),
}
"""Releasers that isolated agents can have, by module and name of the class."""


# ------------------------------------------------------------------ plans


def described(curator: Any, kind: type, args: tuple[Any, ...], options: Given) -> Given:
    """Return the arguments of a releaser's constructor as plain values, in the agent's process.

    Raises:
        AgentError: If isolated agents cannot have such a releaser or argument.
    """
    path = path_of(kind)
    if issubclass(kind, LossMinimiser) and path not in RELEASERS:
        raise AgentError(
            f"{kind.__name__}: a minimiser's loss, which is the agent's code, would run beside the "
            "raw data; use a releaser without one"
        )
    if path not in RELEASERS:
        raise would_run(path)
    bound = inspect.signature(kind).bind(curator, *args, **options)
    given: Given = {}
    for name, value in list(bound.arguments.items())[1:]:
        several = bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        given |= value if several else {name: value}
    return {name: plain(v) for name, v in given.items() if not isinstance(v, AgentStreams)}


def new_releaser(
    curator: Curator, path: Any, given: Any, problem: ProblemInfo, streams: AgentStreams
) -> tuple[Any, ReleaserEntry]:
    """Return a new releaser and its entry.

    Args:
        curator: Its curator.
        path: Module and name of its class, as the agent's process says.
        given: Arguments of its constructor, as the agent's process says.
        problem: The problem.
        streams: The streams of this process.

    Raises:
        AgentError: If isolated agents cannot have such a releaser or argument.
        DPBError: As the constructor does.
    """
    if type(path) is not str or path not in RELEASERS:
        raise (
            would_run(path)
            if type(path) is str
            else AgentError(f"an isolated agent makes releasers, not {shown(path)}")
        )
    entry, kind = RELEASERS[path], _class(path)
    if type(given) is not dict:
        raise AgentError(f"a releaser is made of arguments, not of {shown(given)}")
    options: Given = {}
    for name, value in given.items():
        if name not in entry.options:
            raise AgentError(f"{path} has no argument {shown(name)} for isolated agents")
        options[name] = entry.options[name](name, value)
    if entry.check is not None:
        entry.check(curator, options)
    _check_size(curator, options)
    if isinstance(plan := options.get("calibration"), Uncosted):
        options["calibration"] = plan.completed(_loss(path, options))
    if "mechanism" in options and not isinstance(options["mechanism"], str | None):
        options["streams"] = streams
    if "channel" in options:
        options["channel"] = _class(_CHANNEL)(options["channel"], problem)
        options["streams"] = streams
    missing = [
        parameter.name
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        and parameter.name not in ("curator", *options)
    ]
    if missing:
        raise AgentError(f"{path} needs {', '.join(missing)}")
    releaser = kind(curator, **options)
    if isinstance(releaser, Sum):
        _bound_records(curator, releaser)
    return releaser, entry


def _check_size(curator: Curator, options: Given) -> None:
    """Raise AgentError if a releaser of this size would take too much memory."""
    width = options.get("width") or options.get("arms") or options.get("dim") or 1
    width = width if isinstance(width, int) else width.width
    if "dim" in options:
        width *= max(width, options.get("slots", 1))  # second derivatives, and slates
    if width * curator.replicates > MOST_NUMBERS:
        raise AgentError(
            f"a releaser of {width} numbers for {curator.replicates} replicates; isolated agents "
            f"have at most {MOST_NUMBERS} in all"
        )


def _loss(path: str, options: Given) -> LossBounds:
    """Return the bounds of the loss that a minimiser of choices or demands has."""
    dim, records = options["dim"], options["horizon"]
    if "demand" in options:
        demand = options["demand"]
        return LossBounds(dim, demand.gradient_bound, demand.curvature, records)
    module = import_module(path.partition(":")[0])
    return LossBounds(dim, module.GRADIENT_BOUND, module.CURVATURE, records)


def _bound_records(curator: Curator, sums: Sum) -> None:
    """Bound the records of sums by their sensitivity, or raise AgentError if nothing can.

    Records of a ball may have a sensitivity that only their form justifies, and the guarantee says
    that it is declared. If their inner products are not negative, they are at most 2^(1/2) radii
    apart. So longer records than sensitivity / 2^(1/2) are shortened to that.
    """
    if not curator.private or sums.enforces:
        return
    if sums.clip is None:
        if not curator.ledger.disclosed:
            raise AgentError(f"{sums.what}: give clip or reward, which a releaser enforces")
        return
    given = sums.sensitivity / sums.records_per_unit
    apart = sums.clip.sensitivity(curator.relation, curator.unit in RESPONSES)
    if given >= apart * (1.0 - 1e-12):
        return
    if type(sums.clip) is not Ball:
        raise AgentError(
            f"{sums.what}: its bound allows records that are {apart:.6g} apart, and an isolated "
            f"agent declares a sensitivity of {given:.6g}, which nothing enforces"
        )
    sums._radius = min(sums._radius, math.sqrt(0.5) * given * (1.0 + 1e-6))
