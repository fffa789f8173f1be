"""Conditions that change how customers respond: features, theta, and the response model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from dpb_gym import kernels, portable, validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems import exhaustive_search
from dpb_gym.problems.base import Array, Field, Hidden, Problem, Round
from dpb_gym.problems.conditions.condition import Condition, needs_theta
from dpb_gym.problems.kinds import kind_of
from dpb_gym.streams import Stream

MAX_TYPES = 100
DRIFTS: dict[str, dict[str, float]] = {
    "walk": {"rate": 0.01},
    "abrupt": {"changes": 3, "angle": 1.0},
    "seasonal": {"period": 1000, "angle": 1.0},
}
DESIGNS: dict[str, dict[str, float]] = {
    "correlated": {"rho": 0.8},
    "heavy-tailed": {"freedom": 3},
    "scaled": {"low": 0.1, "high": 10.0},
}
MOST = 100.0


class Features(Condition):
    """Distribution of the feature vectors, changed after `context_norm`.

    ``"correlated"`` multiplies it by the square root of the matrix with ones on the diagonal and
    `rho` elsewhere. ``"heavy-tailed"`` multiplies it by sqrt(freedom / chi^2), at most 100,
    independently, which makes a Gaussian one Student's t of `freedom` degrees. ``"scaled"``
    shows coordinate j times s_j, growing geometrically from `low` to `high`, while customers
    respond to the unscaled vector.
    """

    name = "features"

    def __init__(self, problem: Problem, value: Any) -> None:
        self.kind, given = validation.variant("features", value, DESIGNS)
        *self._rows, width = kind_of(problem.info.kind).feature_shape(problem.info)
        self._rho = validation.real("features: rho", given.get("rho", 0.0), 0.0, 1.0)
        self._freedom = validation.integer("features: freedom", given.get("freedom", 1), 1, 100)
        ends = [given.get(end, 1.0) for end in ("low", "high")]
        low = validation.real("features: low", ends[0], 0.0, 1e3, open_low=True)
        high = validation.real("features: high", ends[1], low, 1e3)
        if self.kind == "scaled" and width < 2:
            raise ParameterError("features 'scaled' needs vectors of at least 2 coordinates")
        share = [j / max(1, width - 1) for j in range(width)]
        self._scales = np.array([low * portable.power(high / low, s) for s in share], np.float32)
        self._root = np.full((width, width), 0.0)
        self._root += (np.sqrt(1.0 + (width - 1) * self._rho) - np.sqrt(1.0 - self._rho)) / width
        self._root[np.diag_indices(width)] += np.sqrt(1.0 - self._rho)
        most = {"correlated": float(self._root.sum(axis=0).max()), "heavy-tailed": MOST}
        self.stretch = most.get(self.kind, high)

    def fields(self) -> dict[str, Field]:
        if self.kind != "heavy-tailed":
            return {}
        return {"tail": Field(tuple(self._rows), np.float32, Stream.TAILS, self._tail)}

    def _tail(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        squares = portable.normals(rng, (*out.shape, self._freedom)) ** 2
        out[:] = np.minimum(np.sqrt(self._freedom / squares.sum(axis=-1)), MOST)

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        given = round_.context.features
        if self.kind == "scaled":
            round_ = round_.hiding(features=round_.secret.get("features", given))
            changed = given * self._scales
        elif self.kind == "heavy-tailed":
            changed = given * drawn["tail"][..., None]
        else:
            changed = np.zeros(given.shape, np.float32)
            for j, column in enumerate(self._root):  # no BLAS: the same bits everywhere
                changed += given[..., j, None] * column.astype(np.float32)
        return round_.showing(features=changed)


class Intercept(Condition):
    """A constant added to <x, theta> (pricing: to <phi, theta>) that no feature represents.

    Customers respond to x + delta with <delta, theta> equal to it; agents see x. Types and
    contamination act on theta, and so on the intercept too.
    """

    name = "intercept"

    def __init__(self, problem: Problem, value: Any) -> None:
        self._value = validation.real("intercept", value, -1e3, 1e3)
        self._part, self._divisor = kind_of(problem.info.kind).intercept(problem.dim)

    def hidden(self, drawn: Any, hidden: Hidden) -> Hidden:
        theta = needs_theta("intercept", hidden)
        part = theta[self._part]
        square = np.sum(part * part)
        if not square > 0.0:
            raise ParameterError("intercept needs a theta that is not zero on the features")
        size = self._value * self._divisor
        return {"intercept": size / square * part}

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        features = round_.secret.get("features", round_.context.features)
        shift = hidden["intercept"].astype(np.float32)
        shift = shift.reshape(len(shift), *(1,) * (features.ndim - 2), -1)
        return round_.hiding(features=features + shift)


class Drift(Condition):
    """Rotation of theta over time, at constant norm; regret is against each round's best action.

    ``"walk"`` takes a step in a uniformly random direction every round; n steps rotate theta
    by about ``rate sqrt(n)`` (radians). ``"abrupt"`` rotates it by `angle` towards a random
    direction, `changes` times, evenly spread over the horizon. ``"seasonal"`` rotates it by
    ``angle sin(2 pi t / period)`` towards one random direction.
    """

    name = "drift"

    def __init__(self, problem: Problem, value: Any) -> None:
        self.kind, given = validation.variant("drift", value, DRIFTS)
        self._rate = validation.real("drift: rate", given.get("rate", 0.0), 0.0, 1.0)
        self._changes = validation.integer(
            "drift: changes", given.get("changes", 1), 1, problem.horizon - 1
        )
        self._period = validation.integer("drift: period", given.get("period", 2), 2)
        self._angle = validation.real("drift: angle", given.get("angle", 0.0), -np.pi, np.pi)
        self._dim, self._horizon = problem.dim, problem.horizon
        if problem.dim < 2:
            raise ParameterError("drift turns theta, which needs dim >= 2")

    def hidden(self, drawn: Any, hidden: Hidden) -> Hidden:
        theta = needs_theta("drift", hidden)
        if self.kind == "walk":
            return {"drift_at": theta.copy()}
        if self.kind == "seasonal":
            return {"drift_towards": _normal_to(theta, portable.normals(drawn, self._dim))}
        thetas = np.empty((self._changes + 1, self._dim))
        thetas[0] = theta
        for k in range(self._changes):
            away = _normal_to(thetas[k], portable.normals(drawn, self._dim))
            thetas[k + 1] = self._turned(thetas[k], away, self._angle)
        return {"drift_thetas": thetas}

    def _turned(self, theta: Array, away: Array, angle: Any) -> Array:
        """Return theta rotated by `angle` towards `away`, orthogonal to it and of its norm."""
        angle = np.asarray(angle, np.float64)[..., None]
        cosine = portable.each(kernels.elementary.sin, angle + np.pi / 2)
        sine = portable.each(kernels.elementary.sin, angle)
        return cosine * theta + sine * away

    def fields(self) -> dict[str, Field]:
        if self.kind != "walk":
            return {}
        return {"drift": Field((self._dim,), np.float64, Stream.DRIFT, self._walk)}

    def _walk(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        """Write theta of the next rounds to `out` and the last one to ``drift_at``, a view."""
        at = hidden["drift_at"]
        radius = np.sqrt(np.sum(at * at))
        out[:] = portable.normals(rng, out.shape)
        out *= self._rate * radius / np.sqrt(self._dim)
        for i, step in enumerate(out):
            if start + i:
                at += step
                at *= radius / np.sqrt(np.sum(at * at))
            out[i] = at

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        if self.kind == "walk":
            theta: Array = drawn["drift"]
        elif self.kind == "abrupt":
            # changes + 1 stretches of equal length
            stretch = (t - 1) * (self._changes + 1) // self._horizon
            theta = hidden["drift_thetas"][np.arange(len(t)), stretch]
        else:
            phase = portable.each(kernels.elementary.sin, 2.0 * np.pi * t / self._period)
            theta = self._turned(hidden["theta"], hidden["drift_towards"], self._angle * phase)
        return round_.hiding(theta=theta)

    def truth(self, hidden: Hidden, round_: Round) -> Hidden:
        return {**hidden, "theta": round_.secret["theta"]}


def _normal_to(theta: Array, vector: Array) -> Array:
    """Return the part of `vector` orthogonal to theta, scaled to theta's norm."""
    square = np.sum(theta * theta)
    if not square > 0.0:
        raise ParameterError("drift turns theta, which must not be zero")
    away: Array = vector - np.sum(vector * theta) / square * theta
    away *= np.sqrt(square / np.sum(away * away))
    return away


class Types(Condition):
    """Hidden customer types, equally likely, each with its own parameter.

    Type c responds by theta + offset_c; the offsets are Gaussian of length about
    ``spread ||theta||``, with mean zero, fixed per replicate. Assortments become a mixed logit;
    demand and rewards become mixtures that are no GLM. The expected reward is the mean over the
    types. The best action is searched (`dpb_gym.problems.exhaustive_search`).
    """

    name = "types"

    def __init__(self, problem: Problem, value: Any) -> None:
        known = {"count": 3, "spread": 1.0}
        given = {"count": value}
        if isinstance(value, str):
            given = validation.parse_variant("types", value)
            count = given.pop("kind")
            given["count"] = int(count) if count.isdecimal() else count
        elif isinstance(value, Mapping):
            given = dict(value)
        given = validation.settings("types", given, known)
        self._count = validation.integer("types: count", given["count"], 2, MAX_TYPES)
        self._spread = validation.real("types: spread", given["spread"], 0.0, 1e3, open_low=True)
        exhaustive_search.check_searchable("types", problem.info)

    def hidden(self, drawn: Any, hidden: Hidden) -> Hidden:
        theta = needs_theta("types", hidden)
        offsets = portable.normals(drawn, (self._count, len(theta)))
        offsets -= offsets.sum(axis=0) / self._count
        offsets *= self._spread * np.sqrt(np.sum(theta * theta) / len(theta))
        return {"types": offsets}

    def fields(self) -> dict[str, Field]:
        return {"type": Field((), np.float64, Stream.CUSTOMERS)}

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        # a uniform is below 1 - 2^-53, but its product may round up
        kind = np.minimum((drawn["type"] * self._count).astype(np.int64), self._count - 1)
        return round_.hiding(type=kind)

    def worlds(self, hidden: Hidden) -> list[Hidden]:
        theta = hidden["theta"]
        types = hidden["types"]
        return [{**hidden, "theta": theta + types[:, c]} for c in range(self._count)]

    def customer(self, hidden: Hidden, round_: Round) -> Hidden:
        offset = hidden["types"][np.arange(len(hidden["types"])), round_.secret["type"]]
        return {**hidden, "theta": hidden["theta"] + offset}


class Contamination(Condition):
    """Probability that a customer responds as if theta were zero.

    A binary reward or demand is then 1 with probability 1/2; every offered item and no purchase
    are equally likely. Regret is against the truth without contamination.
    """

    name = "contamination"

    def __init__(self, problem: Problem, value: Any) -> None:
        self._chance = validation.real("contamination", value, 0.0, 1.0, open_low=True)

    def hidden(self, drawn: Any, hidden: Hidden) -> Hidden:
        needs_theta("contamination", hidden)
        return {}

    def fields(self) -> dict[str, Field]:
        return {"contaminated": Field((), np.float64, Stream.CONTAMINATION)}

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        return round_.hiding(contaminated=drawn["contaminated"] < self._chance)

    def customer(self, hidden: Hidden, round_: Round) -> Hidden:
        clean = ~round_.secret["contaminated"][:, None]
        return {**hidden, "theta": hidden["theta"] * clean}
