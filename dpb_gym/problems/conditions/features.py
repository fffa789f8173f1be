"""Features unlike the usual ones, and an intercept that they do not show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpb_gym import portable, validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array, Field, Hidden, Problem, Round
from dpb_gym.problems.conditions.base import Condition, needs_theta
from dpb_gym.problems.kinds import kind_of
from dpb_gym.streams import Stream

KINDS: dict[str, dict[str, float]] = {
    "correlated": {"rho": 0.8},
    "heavy-tailed": {"freedom": 3},
    "scaled": {"low": 0.1, "high": 10.0},
}
MOST = 100.0


class Features(Condition):
    """Changes every feature vector, after `context_norm`.

    ``"correlated"`` multiplies it by the square root of the matrix with ones on the diagonal and
    `rho` elsewhere. ``"heavy-tailed"`` multiplies it by sqrt(freedom / chi^2), at most 100,
    independently, which makes a Gaussian one Student's t of `freedom` degrees. ``"scaled"``
    shows coordinate j times s_j, growing geometrically from `low` to `high`, while customers
    answer to the unscaled vector.
    """

    name = "features"

    def __init__(self, problem: Problem, value: Any) -> None:
        self.kind, given = validation.variant("features", value, KINDS)
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

    def _tail(
        self, rng: np.random.Generator, start: int, hidden: Mapping[str, Array], out: Array
    ) -> None:
        squares = portable.normals(rng, (*out.shape, self._freedom)) ** 2
        out[:] = np.minimum(np.sqrt(self._freedom / squares.sum(axis=-1)), MOST)

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        given = round_.context.features
        if self.kind == "scaled":
            round_ = round_._replace(secret={"features": given, **round_.secret})
            changed = given * self._scales
        elif self.kind == "heavy-tailed":
            changed = given * drawn["tail"][..., None]
        else:
            changed = np.zeros(given.shape, np.float32)
            for j, column in enumerate(self._root):  # no BLAS: the same bits everywhere
                changed += given[..., j, None] * column.astype(np.float32)
        return round_._replace(context=round_.context._replace(features=changed))


class Intercept(Condition):
    """A constant that is added to <x, theta> (pricing: to <phi, theta>) and that no feature shows.

    Customers answer to x + delta with <delta, theta> equal to it; agents see x. Types and
    contamination act on theta, and so on the intercept too.
    """

    name = "intercept"

    def __init__(self, problem: Problem, value: Any) -> None:
        self._value = validation.real("intercept", value, -1e3, 1e3)
        self._pricing = problem.info.kind == "pricing"
        self._dim = problem.dim

    def hidden(self, drawn: Any, hidden: Hidden) -> Hidden:
        theta = needs_theta("intercept", hidden)
        part = theta[:-1] if self._pricing else theta
        square = np.sum(part * part)
        if not square > 0.0:
            raise ParameterError("intercept needs a theta that is not zero on the features")
        size = self._value * (np.sqrt(self._dim) if self._pricing else 1.0)
        return {"intercept": size / square * part}

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        features = round_.secret.get("features", round_.context.features)
        shift = hidden["intercept"].astype(np.float32)
        shift = shift.reshape(len(shift), *(1,) * (features.ndim - 2), -1)
        return round_._replace(secret={**round_.secret, "features": features + shift})
