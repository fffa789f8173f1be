"""theta that moves: a walk, a few sudden changes, or seasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpb_gym import kernels, portable, validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array, Field, Hidden, Problem, Round
from dpb_gym.problems.conditions.base import Condition, needs_theta
from dpb_gym.streams import Stream

KINDS: dict[str, dict[str, float]] = {
    "walk": {"rate": 0.01},
    "abrupt": {"changes": 3, "angle": 1.0},
    "seasonal": {"period": 1000, "angle": 1.0},
}


class Drift(Condition):
    """theta turns and keeps its norm; regret is against the best action of each round.

    ``"walk"`` takes a step in a uniformly random direction every round, of which n turn theta
    by about ``rate sqrt(n)`` (radians). ``"abrupt"`` turns it by `angle` towards a random
    direction, `changes` times, evenly spread over the horizon. ``"seasonal"`` swings between
    plus and minus `angle` towards one random direction, sin(2 pi t / period).
    """

    name = "drift"

    def __init__(self, problem: Problem, value: Any) -> None:
        self.kind, given = validation.variant("drift", value, KINDS)
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
        """theta turned by the angle towards a vector of its norm that is normal to it."""
        angle = np.asarray(angle, np.float64)[..., None]
        cosine = portable.each(kernels.elementary.sin, angle + np.pi / 2)
        sine = portable.each(kernels.elementary.sin, angle)
        turned: Array = cosine * theta + sine * away
        return turned

    def fields(self) -> dict[str, Field]:
        if self.kind != "walk":
            return {}
        return {"drift": Field((self._dim,), np.float64, Stream.DRIFT, self._walk)}

    def _walk(
        self, rng: np.random.Generator, start: int, hidden: Mapping[str, Array], out: Array
    ) -> None:
        """Writes theta of the coming rounds; ``drift_at``, a view, keeps the last one."""
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
        return round_._replace(secret={**round_.secret, "theta": theta})

    def truth(self, hidden: Hidden, round_: Round) -> Hidden:
        return {**hidden, "theta": round_.secret["theta"]}


def _normal_to(theta: Array, vector: Array) -> Array:
    """`vector` made normal to theta and as long."""
    square = np.sum(theta * theta)
    if not square > 0.0:
        raise ParameterError("drift turns theta, which must not be zero")
    away: Array = vector - np.sum(vector * theta) / square * theta
    away *= np.sqrt(square / np.sum(away * away))
    return away
