"""Assortments with prices: a seller chooses at most K of N items and the price of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from dpb_gym import kernels, validation
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.problems.base import Field, Problem
from dpb_gym.problems.rounds import Array, Context, Feedback, Hidden, ProblemInfo, Round, signed
from dpb_gym.streams import Stream

SENSITIVITY = 4.0
"""Mean price sensitivity: the best price of a single item of value 1 is then about .45."""


class AssortmentPricingProblem(Problem):
    """Offers of at most K of N items with a price for each; a customer buys one or nothing.

    Round t has item features x_i ``(m,)``, d = 2 m. At the price p_i item i has the utility
    <x_i, a> - p_i <x_i, b> with theta = (a, b): a value and a price sensitivity. The customer buys
    item i of the offered items S with probability exp(u_i) / (1 + sum_{j in S} exp(u_j)). The
    reward is the price of the bought item. Price sensitivities differ between items, as in Gallego
    & Wang (2014): the best offer has the prices z + 1 / <x_i, b> for one number z.

    The first feature is 1, the others are uniform on [-1, 1]. By default the coordinates of a are
    uniform on [-1, 1], but the first on [0, 1]; b is `SENSITIVITY` for the first feature, and the
    others lie in [-1, 1] such that no sensitivity is below half or above 3/2 of `SENSITIVITY`.

    Args:
        horizon: Rounds T, at least 2.
        n_items: N, at least 1.
        capacity: K in 1..N.
        dim: Dimension d of theta, even, at least 2.
        theta: Fixed parameter ``(d,)``; drawn per replicate by default.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    respects_availability = True

    def __init__(
        self,
        horizon: int = 10_000,
        n_items: int = 20,
        capacity: int = 5,
        dim: int = 6,
        theta: Any = None,
    ) -> None:
        self.horizon = validation.integer("horizon", horizon, 2)
        self.n_items = validation.integer("n_items", n_items, 1)
        self.capacity = validation.integer("capacity", capacity, 1, self.n_items)
        self.dim = validation.integer("dim", dim, 2)
        if self.dim % 2:
            raise ParameterError(
                f"dim must be even, a value and a price sensitivity per feature; got {self.dim}"
            )
        self.theta: Array | None = validation.optional(
            validation.array, "theta", theta, (self.dim,)
        )
        self.feature_bound = 1.0
        self._shape = (self.n_items, self.dim // 2)
        self.info = ProblemInfo(
            kind="assortment-pricing",
            horizon=self.horizon,
            dim=self.dim,
            reward_range=(0.0, 1.0),
            n_items=self.n_items,
            capacity=self.capacity,
        )

    def draw_hidden(self, rng: Generator) -> Hidden:
        if self.theta is not None:
            return {"theta": self.theta}
        m = self.dim // 2
        theta = 2.0 * rng.random(self.dim) - 1.0
        theta[0] = 0.5 * theta[0] + 0.5
        theta[m + 1 :] *= 0.5 * SENSITIVITY / max(1, m - 1)
        theta[m] = SENSITIVITY
        return {"theta": theta}

    def fields(self) -> dict[str, Field]:
        return {"features": Field(self._shape, np.float32, Stream.FEATURES, self.draw_features)}

    def draw_features(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        """Write features of one replicate's rounds start + 1, start + 2, ...; see `Field.fill`."""
        signed(rng, start, hidden, out)
        out[..., 0] = 1.0

    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        return Round(Context(int(t[0]), drawn["features"]), drawn["response"], {})

    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        B = len(action)
        choice = np.empty(B, np.int64)
        reward = np.empty(B)
        expected = np.empty(B)
        action = self.played(action, B)
        bad = kernels.priced_choices.outcome(
            round_.context.features, hidden["theta"], action, self.capacity, round_.uniform,
            choice, reward, expected,
        )  # fmt: skip
        if bad:
            raise ActionError(
                f"prices {action[bad - 1].tolist()} of replicate {bad - 1} must be in [0, 1], or "
                f"-1 for items that are left out, and offer at most {self.capacity} items"
            ).at(bad - 1)
        return Feedback(reward, choice=choice), expected

    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        features = round_.context.features
        available = round_.context.available
        if available is None:
            available = np.ones(features.shape[:2], np.bool_)
        low, high = self.info.price_range or (0.0, 1.0)
        prices = np.empty(features.shape[:2])
        values = np.empty(len(features))
        kernels.priced_choices.best_offers(
            features, hidden["theta"], available, self.capacity, low, high, prices, values
        )
        return prices, values
