"""Recommendation on a log with propensities: its customers arrive, a fitted model responds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym import kernels, portable
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.problems.base import Array
from dpb_gym.problems.fitting import Bounds, fit_log, scale
from dpb_gym.problems.logged import Logged
from dpb_gym.problems.recommendation import RecommendationProblem

if TYPE_CHECKING:
    from dpb_data import ClickTable


class LoggedRecommendation(Logged, RecommendationProblem):
    """Customers of a recommender's log; responses are the logistic model that was fitted to it.

    Every item has a model of its own: its candidate's features are an intercept and the
    customer's features, scaled to [-1, 1] and to norm at most 1, in the item's block, and 0
    elsewhere. The propensities check the model: `summary` compares what it says of its own best
    recommendations with what the held-out log says of them.

    Args:
        data: The log.
        horizon: Rounds T, at least 2.
        ridge: Penalty of the fit, positive.
        bounds: Public lowest and highest value of features.

    Raises:
        DataError: If the log cannot tell: one item only, too few rows, or nobody or everybody
            responded.
        ParameterError: If items times features exceed `MOST_COEFFICIENTS`.
    """

    MOST_COEFFICIENTS = 1000

    def __init__(
        self,
        data: ClickTable,
        horizon: int = 10_000,
        ridge: float = 1.0,
        bounds: Bounds | None = None,
    ) -> None:
        m, n = len(data.item_ids), len(data.items)
        if m < 2:
            raise DataError(f"{data.name}: only {data.item_ids[0]} was shown: nothing to choose")
        if data.clicked.min() == data.clicked.max():
            what = "everybody" if data.clicked[0] else "nobody"
            raise DataError(f"{data.name}: {what} responded: there is no variation to learn from")
        scaled, self.bounds, notes = scale(
            data.features, data.feature_names, dict(bounds or {}), data.name
        )
        customers = np.column_stack([np.ones(n), scaled]).astype(np.float32)
        customers /= np.float32(np.sqrt(customers.shape[1]))
        width = customers.shape[1]
        if m * width > self.MOST_COEFFICIENTS:
            raise ParameterError(
                f"{data.name}: {m} items with {width} coefficients each are more than "
                f"{self.MOST_COEFFICIENTS}: group items, or give fewer features"
            )
        names = tuple(f"{item}: {f}" for item in data.item_ids for f in ("intercept",
                      *data.feature_names))  # fmt: skip
        rows = np.zeros((n, m, width), np.float32)
        rows[np.arange(n), data.items] = customers
        # Where nothing is known of an item its share is everybody's, not a half.
        rate = float(data.clicked.mean())
        centre = np.zeros((m, width))
        centre[:, 0] = portable.log(rate / (1.0 - rate)) * np.sqrt(width)
        self.fit = fit_log(
            rows.reshape(n, -1), np.arange(n + 1), data.clicked - 1, data.people, ridge, names,
            notes, data.name, centre.ravel(),
        )  # fmt: skip
        super().__init__(horizon, m * width, m, m, fresh=True, theta=self.fit.coefficients)
        self.item_ids, self.earned = data.item_ids, rate
        self.settle(data.name, customers, data.people)
        self.check = self._held_out_value(data)

    def _held_out_value(self, data: ClickTable) -> dict[str, float]:
        """What the model fitted to the others says of its best recommendations, and the log."""
        held = self.fit.held
        theta = self.fit.trained.reshape(len(self.item_ids), -1)
        utility = np.einsum("nw,mw->nm", self._contexts[held].astype(np.float64), theta)
        weight = (utility.argmax(axis=1) == data.items[held]) / data.propensity[held]
        found = {
            "model": float(portable.each(kernels.elementary.sigmoid, utility.max(axis=1)).mean()),
            "log_rounds": float(np.count_nonzero(weight)),
        }
        if weight.any():
            value = float(np.sum(weight * data.clicked[held]) / np.sum(weight))
            spread = np.sqrt(np.sum((weight * (data.clicked[held] - value)) ** 2))
            found |= {"log": value, "log_standard_error": float(spread / np.sum(weight))}
        return found

    def draw_features(
        self, rng: np.random.Generator, start: int, hidden: Mapping[str, Array], out: Array
    ) -> None:
        m, width = self.n_candidates, self._contexts.shape[1]
        now = np.empty((len(out), width), np.float32)
        super().draw_features(rng, start, hidden, now)
        out[:] = 0.0
        for item in range(m):
            out[:, item, item * width : (item + 1) * width] = now

    def summary(self) -> dict[str, Any]:
        return self.told(
            items=self.item_ids.tolist(),
            coefficients=dict(zip(self.fit.names, self.fit.coefficients.tolist())),
            responses_in_the_log=self.earned,
            held_out_responses_to_the_models_best=self.check,
        )
