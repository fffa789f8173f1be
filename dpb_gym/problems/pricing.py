"""Personalised pricing with GLM demand (Chen, Simchi-Levi & Wang, sections 3 and 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from dpb_gym import kernels, portable, state, validation
from dpb_gym.errors import ActionError
from dpb_gym.overrides import overridden
from dpb_gym.problems import exhaustive_search
from dpb_gym.problems.base import Field, Problem
from dpb_gym.problems.contexts import CONTEXT_NORMS, fixed_rows, rescale, rescaled_bound
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.rounds import (
    LINK_SCALES,
    Array,
    Context,
    Feedback,
    Hidden,
    ProblemInfo,
    Round,
    signed,
)
from dpb_gym.streams import Stream, generator

GLM = ("logistic", "gaussian")
DEMANDS = (*GLM, "probit", "exponential")
CUSTOMERS = ("uniform", "drifting", "two-type", "switched", "sorted")


@state.register
class PricingProblem(Problem):
    """Personalised pricing of one product: a price in [0, 1] for each customer.

    Features x_t ``(d - 1,)``, price p, phi = [x; -p] / sqrt(d). Demand is Bernoulli with
    mean 1 / (1 + exp(-zeta <phi, theta>)) or Gaussian with mean <phi, theta> and unit
    variance; the reward is price times demand.

    Args:
        horizon: Rounds T, at least 2.
        dim: Dimension d of theta, at least 2.
        demand: ``"logistic"`` or ``"gaussian"``; or a misspecified model, which agents model as
            logistic: ``"probit"``, Bernoulli with mean Phi(zeta <phi, theta>), or
            ``"exponential"``, with mean min(1, exp(zeta <phi, theta>)). Their best prices are
            found by search.
        zeta: Link scale of the logistic model, 1e-9 to 1e9.
        context_norm: ``"raw"``, ``"clip"`` (x / max(1, ||x||)) or ``"scale"``
            (x / sqrt(d - 1)).
        customers: ``"uniform"``: iid on [-1, 1]^(d-1). Oblivious sequences, the same in
            every replicate: ``"drifting"`` moves linearly from the corner -1 to the
            corner +1 over the horizon with a sinusoidal wobble; ``"two-type"`` alternates
            at random between the corners +1 and -1 (Proposition 1 of the paper, for
            d = 2 with theta = (1, 1) / sqrt(2)); ``"switched"`` stays in the corner -1 until
            round T / 2 and in the corner +1 afterwards; ``"sorted"`` sends uniform customers in
            the order of the sum of their features; or an array ``(n, d - 1)`` with values in
            [-1, 1], n >= horizon, whose row t-1 is the customer of round t, or the path of one
            saved by `numpy.save`.
        theta: Fixed parameter ``(d,)``. By default
            (-sqrt(.1), ..., -sqrt(.1), sqrt(1 - .1 (d - 1))) for d <= 10 and a random unit
            vector per replicate above; (1, 1) / sqrt(2) for two-type customers at d = 2.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self,
        horizon: int = 10_000,
        dim: int = 3,
        demand: str = "logistic",
        zeta: float = 4.0,
        context_norm: str = "raw",
        customers: Any = "uniform",
        theta: Any = None,
    ) -> None:
        self.horizon = validation.integer("horizon", horizon, 2)
        self.dim = validation.integer("dim", dim, 2)
        self.demand = validation.choice("demand", demand, DEMANDS)
        self._model = DEMANDS.index(self.demand)
        self.zeta = validation.real("zeta", zeta, *LINK_SCALES)
        self.context_norm = validation.choice("context_norm", context_norm, CONTEXT_NORMS)
        self.customers: str = "array"
        self.sequence: Array | None = None
        if isinstance(customers, str) and not customers.endswith(".npy"):
            self.customers = validation.choice("customers", customers, CUSTOMERS)
        else:
            self.sequence = fixed_rows("customers", customers, self.horizon, (self.dim - 1,))
            validation.array("customers", self.sequence, (None, self.dim - 1), -1.0, 1.0)
        if self.customers == "drifting":
            self.sequence = self._drifting()
        elif self.customers == "switched":
            corner = np.where(2 * np.arange(1, self.horizon + 1) > self.horizon, 1.0, -1.0)
            self.sequence = np.repeat(corner[:, None], self.dim - 1, axis=1).astype(np.float32)
        elif self.customers == "sorted":
            drawn = generator(0, Stream.FEATURES).random((self.horizon, self.dim - 1))
            order = np.argsort(drawn.sum(axis=1), kind="stable")
            self.sequence = (2.0 * drawn[order] - 1.0).astype(np.float32)
        if theta is not None:
            self.theta: Array | None = validation.array("theta", theta, (self.dim,))
        elif self.customers == "two-type" and self.dim == 2:
            self.theta = np.full(2, np.sqrt(0.5))
        elif self.dim <= 10:
            self.theta = np.full(self.dim, -np.sqrt(0.1))
            self.theta[-1] = np.sqrt(1.0 - 0.1 * (self.dim - 1))
        else:
            self.theta = None
        if demand == "gaussian":
            self.unused = {"zeta": "demand other than 'gaussian'"}
        assumed = "gaussian" if demand == "gaussian" else "logistic"
        top = (0.0, 1.0) if assumed == "logistic" else (-np.inf, np.inf)
        self.feature_bound = rescaled_bound(1.0, self.context_norm, self.dim - 1)
        self.info = ProblemInfo(
            kind="pricing",
            horizon=self.horizon,
            dim=self.dim,
            reward_range=top,
            demand=assumed,
            zeta=self.zeta if assumed == "logistic" else None,
        )

    def _drifting(self) -> Array:
        t = np.linspace(0.0, 1.0, self.horizon)[:, None]
        angle = 2.0 * np.pi * 8.0 * t + np.arange(self.dim - 1)[None, :]
        path = (2.0 * t - 1.0) * 0.7 + 0.3 * portable.each(kernels.elementary.sin, angle)
        return path.astype(np.float32)

    def draw_hidden(self, rng: Generator) -> Hidden:
        if self.theta is not None:
            return {"theta": self.theta}
        theta = portable.normals(rng, self.dim)
        return {"theta": theta / np.sqrt(np.sum(theta * theta))}

    def fields(self) -> dict[str, Field]:
        return {"features": Field((self.dim - 1,), np.float32, Stream.FEATURES, self.draw_features)}

    def draw_features(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        """Write features of one replicate's rounds start + 1, start + 2, ...; see `Field.fill`."""
        if self.sequence is not None:
            rows = self.sequence[start : start + len(out)]
            out[: len(rows)] = rows
            out[len(rows) :] = 0.0
        elif self.customers == "two-type":
            out[:] = np.where(rng.random(len(out)) < 0.5, 1.0, -1.0)[:, None]
        else:
            signed(rng, start, hidden, out)
        rescale(out, self.context_norm)

    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        return Round(Context(int(t[0]), drawn["features"]), drawn["response"], {})

    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        B = len(action)
        features = round_.context.features
        theta = hidden["theta"]
        demand = np.empty(B)
        reward = np.empty(B)
        expected = np.empty(B)
        model = self._model
        zeta = self.zeta
        uniform = round_.uniform
        action = kind_of("pricing").played(self.info, action)
        bad = kernels.demand_models.outcome(
            features, theta, action, model, zeta, uniform, demand, reward, expected
        )
        if bad:
            text = f"price {action[bad - 1]} of replicate {bad - 1} is outside [0, 1]"
            raise ActionError(text).at(bad - 1)
        if "cost" in round_.secret:
            cost = round_.secret["cost"]
            kernels.demand_models.net_revenues(features, theta, action, model, zeta, cost, expected)
        return Feedback(reward, demand=demand), expected

    def answer_terms(self, hidden: Hidden, round_: Round) -> tuple[Any, ...] | None:
        own = not overridden(self, PricingProblem, "respond", "check_action")
        if not own or "cost" in round_.secret:
            return None
        theta = hidden["theta"]
        features = round_.context.features
        low, high = self.info.price_range or (0.0, 1.0)
        lines = (-1, len(theta))
        return (
            features.reshape(*lines, features.shape[1]),
            theta,
            self._model,
            float(self.zeta),
            float(low),
            float(high),
            round_.uniform.reshape(lines),
        )

    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        if self.demand not in GLM:
            return exhaustive_search.best_action(self, [hidden], round_)
        theta = hidden["theta"]
        features = round_.context.features
        if "cost" not in round_.secret:
            price, value = self.best_prices(theta, features)
        else:
            price, value = np.empty((2, len(features)))
            cost = round_.secret["cost"]
            kernels.demand_models.best_net_prices(features, theta, self.zeta, cost, price, value)
        if self.info.price_range is None:
            return price, value
        # earnings fall on both sides of the best price, so the nearer end is best within a range
        price = kind_of("pricing").played(self.info, price)
        return price, self.respond(hidden, round_, price)[1]

    def best_prices(self, theta: Array, features: Array) -> tuple[Array, Array]:
        """Return closed-form best prices (Lambert W) of logistic or Gaussian demand.

        Args:
            theta: ``(B, d)``.
            features: ``(B, d - 1)``.

        Returns:
            Prices ``(B,)`` in [0, 1] and expected revenues ``(B,)``.
        """
        price, value = np.empty((2, len(features)))
        kernels.demand_models.best_prices(features, theta, self._model, self.zeta, price, value)
        return price, value
