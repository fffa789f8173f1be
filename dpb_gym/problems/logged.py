"""Problems on a log: its customers arrive, and a model fitted to it responds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from dpb_gym import kernels, portable
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.problems.assortment import AssortmentProblem
from dpb_gym.problems.base import Array, Hidden, ProblemInfo
from dpb_gym.problems.fitting import Bounds, Fit, check_varies, fit_log, log_chances, scale
from dpb_gym.problems.pricing import PricingProblem
from dpb_gym.problems.recommendation import RecommendationProblem

if TYPE_CHECKING:
    from dpb_data import ChoiceTable, ClickTable, PriceTable

_MOST_NUMBERS = 50_000_000


class Logged:
    """What problems on a log share: customers in random order, all before anybody comes again.

    Attributes:
        data_name: Of the log.
        fit: The model that responds.
        bounds: Lowest and highest value by which each feature was scaled.
    """

    data_name: str
    fit: Fit
    bounds: dict[str, tuple[float, float]]
    horizon: int
    info: ProblemInfo
    theta: Any

    def settle(self, name: str, contexts: Array, people: Array | None) -> None:
        """Takes the customers' contexts ``(n, ...)``, and who they were."""
        self.data_name, self._contexts = name, contexts
        self._times = -(-self.horizon // len(contexts))
        rows = 1 if people is None else int(np.bincount(people[: len(contexts)]).max())
        self.info = replace(self.info, person_uses=min(self.horizon, rows * self._times))

    def draw_hidden(self, rng: Generator) -> Hidden:
        """The model, and the customers of the rounds ``(T,)``."""
        decks = [rng.permutation(len(self._contexts)) for _ in range(self._times)]
        order = np.concatenate(decks)[: self.horizon].astype(np.int32)
        return {"theta": self.theta, "order": order}

    def draw_features(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        """Contexts of one replicate's rounds start + 1, start + 2, ...; see `Field.fill`."""
        now = hidden["order"][start : start + len(out)]
        out[: len(now)] = self._contexts[now]
        out[len(now) :] = 0.0

    def told(self, **own: Any) -> dict[str, Any]:
        """The `summary`: the fit, and what is the problem's own."""
        rest = {"bounds": self.bounds, "notes": list(self.fit.notes)}
        return {"data": self.data_name, **self.fit.figures, **own, **rest}


def _relative(sets: ChoiceTable, reference: int) -> tuple[ChoiceTable, Array]:
    """The sets that hold a reference item and another, in attributes relative to it; and which rows
    they still have.

    The reference leaves its sets: choosing it is choosing the outside option, whose utility 0
    stands for its own, since only differences of utilities count.
    """
    sizes = np.diff(sets.starts)
    group = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.flatnonzero(sets.items == reference)
    row_of = np.full(len(sizes), -1)
    row_of[group[rows]] = rows
    usable = (row_of >= 0) & (sizes > 1)
    kept = usable[group] & (sets.items != reference)
    features = 0.5 * (sets.features - sets.features[np.maximum(row_of, 0)[group]])
    taken = sets.starts[:-1] + sets.chosen
    outside = (sets.chosen < 0) | (taken == row_of)
    chosen = np.where(outside, -1, sets.chosen - (row_of < taken))
    starts = np.append(0, np.cumsum(sizes[usable] - 1)).astype(np.int64)
    people = None if sets.people is None else sets.people[usable]
    made = replace(
        sets, starts=starts, items=sets.items[kept], features=features[kept],
        chosen=chosen[usable], people=people,
    )  # fmt: skip
    return made, kept


class LoggedPricing(Logged, PricingProblem):
    """Customers of a log of prices; demand is the logistic model that was fitted to it.

    Features are an intercept and the log's, scaled to [-1, 1]; the price is in units of the
    highest price, so that the reward is revenue in these units. The link scale zeta is chosen
    such that theta has norm 1.

    Args:
        data: The log.
        horizon: Rounds T, at least 2.
        ridge: Penalty of the fit, positive.
        bounds: Public lowest and highest value of features, and of the price under ``"price"``
            (only the highest counts).

    Raises:
        DataError: If the log cannot tell how demand depends on the price: too few rows, one
            price only, nobody or everybody bought, or purchases that rise with the price.
    """

    def __init__(
        self,
        data: PriceTable,
        horizon: int = 10_000,
        ridge: float = 1.0,
        bounds: Bounds | None = None,
    ) -> None:
        prices = np.unique(data.price)
        if len(prices) < 2:
            raise DataError(
                f"{data.name}: everybody was quoted {prices[0]:g}: a single price does not tell "
                "how demand changes with it"
            )
        check_varies(data.bought, "bought", data.name)
        names = (*data.feature_names, "price")
        read = np.column_stack([data.features, data.price])
        scaled, self.bounds, notes = scale(read, names, dict(bounds or {}), data.name)
        n, highest = len(data.price), self.bounds["price"][1]
        customers = np.column_stack([np.ones(n), scaled[:, :-1]]).astype(np.float32)
        relative = np.minimum(data.price / highest, 1.0)
        rows = np.column_stack([customers, -relative]).astype(np.float32)
        names = ("intercept", *names)
        choice = np.where(data.bought == 1, 0, -1)
        self.fit = fit_log(
            rows, np.arange(n + 1), choice, data.people, ridge, names, notes, data.name
        )  # fmt: skip
        slope = float(self.fit.coefficients[-1])
        if slope <= 0.0:
            raise DataError(
                f"{data.name}: purchases rise with the price (coefficient {-slope:+.3g}), so no "
                "price is best. Prices were perhaps set by what was known of the customer: give "
                "that as features"
            )
        self._size = size = float(np.sqrt(np.sum(self.fit.coefficients**2)))
        super().__init__(
            horizon, len(names), zeta=size * np.sqrt(len(names)), theta=self.fit.coefficients / size
        )
        self.highest_price = highest
        self.earned = float(np.mean(relative * data.bought))
        chance = portable.each(
            kernels.elementary.exp, log_chances(rows, np.arange(n + 1), self.fit.coefficients)[0]
        )
        self.elasticity = float(np.mean(-slope * relative * (1.0 - chance)))
        self.settle(data.name, customers, data.people)

    def summary(self) -> dict[str, Any]:
        theta = np.tile(self.fit.coefficients / self._size, (len(self._contexts), 1))
        _, best = self.best_prices(theta, self._contexts)
        return self.told(
            coefficients=dict(zip(self.fit.names, self.fit.coefficients.tolist())),
            link_scale_zeta=self.zeta,
            price_elasticity=self.elasticity,
            price_unit=self.highest_price,
            revenue_per_customer_in_the_log=self.earned * self.highest_price,
            revenue_per_customer_at_the_models_best=float(best.mean()) * self.highest_price,
        )


class LoggedAssortment(Logged, AssortmentProblem):
    """Choice sets of a log; choices are the multinomial logit that was fitted to them.

    Every item can be offered in every round; one that a set of the log lacks has its mean
    attributes. Each item has a constant of its own.

    Args:
        data: The log.
        horizon: Rounds T, at least 2.
        ridge: Penalty of the fit, positive.
        bounds: Public lowest and highest value of attributes.
        outside: The item that is the outside option: it is always there, and the others'
            attributes count relative to its own. None if the log has sets without a choice.
        revenue: Attribute whose mean is an item's revenue, divided by the largest; equal
            revenues if None.
        capacity: K; half of the items, at most 10, by default.

    Raises:
        DataError: If the log cannot tell: too few sets, or nothing is known of who buys nothing.
    """

    def __init__(
        self, data: ChoiceTable, horizon: int = 10_000, ridge: float = 1.0,
        bounds: Bounds | None = None, outside: Any = None, revenue: str | None = None,
        capacity: int | None = None,
    ) -> None:  # fmt: skip
        if revenue is not None and revenue not in data.feature_names:
            raise ParameterError(
                f"revenue must be one of {', '.join(data.feature_names)}, got {revenue!r}"
            )
        scaled, self.bounds, notes = scale(
            data.features, data.feature_names, dict(bounds or {}), data.name
        )
        sets, kept = replace(data, features=scaled), np.ones(len(data.items), bool)
        inside = np.arange(len(data.item_ids))
        if outside is not None:
            found = np.flatnonzero(data.item_ids.astype(str) == str(outside))
            if len(found) == 0:
                raise ParameterError(
                    f"outside must be one of {data.item_ids.tolist()}, got {outside!r}"
                )
            inside = np.delete(inside, found[0])
            sets, kept = _relative(sets, int(found[0]))
            lost = data.n_sets - sets.n_sets
            if lost:
                notes.append(f"left out {lost:,} sets without {outside} or without another")
        elif (data.chosen >= 0).all():
            raise DataError(
                f"{data.name}: every set has a choice, which does not tell how many would buy "
                f"nothing: name the outside option, outside=one of {data.item_ids.tolist()}"
            )
        self.item_ids, N = data.item_ids[inside], len(inside)
        items = np.searchsorted(inside, sets.items)
        rows = np.column_stack([sets.features, np.eye(N)[items]]).astype(np.float32)
        names = (*data.feature_names, *(f"is {item}" for item in self.item_ids))
        self.fit = fit_log(
            rows, sets.starts, sets.chosen, sets.people, ridge, names, [*data.notes, *notes],
            data.name,
        )  # fmt: skip
        self.elasticities: dict[str, float] = {}
        earned: Any = "equal"
        if revenue is not None:
            # Attributes relative to the outside option are halved.
            unit = 2.0 if outside is None else 1.0
            earned = self._earned(data.features[kept], revenue, unit, rows, items, sets)
        super().__init__(
            horizon, N, min(10, max(1, N // 2)) if capacity is None else capacity, len(names),
            revenues=earned, theta=self.fit.coefficients,
        )  # fmt: skip
        contexts = self._offered(rows, items, sets)
        self.feature_bound = float(np.abs(contexts).max())
        self.settle(data.name, contexts, sets.people)

    def _earned(
        self, raw: Array, revenue: str, unit: float, rows: Array, items: Array, sets: ChoiceTable
    ) -> Array:
        """What each item earns, at most 1, by the raw attributes; notes the elasticities to it."""
        at, N = sets.feature_names.index(revenue), len(self.item_ids)
        counts = np.maximum(np.bincount(items, minlength=N), 1)
        column = raw[:, at]
        earned = np.bincount(items, column, minlength=N) / counts
        per_unit = unit / np.subtract(*self.bounds[revenue][::-1])
        chance = portable.each(
            kernels.elementary.exp, log_chances(rows, sets.starts, self.fit.coefficients)[0]
        )
        own = self.fit.coefficients[at] * per_unit * column * (1.0 - chance)
        means = np.bincount(items, own, minlength=N) / counts
        self.elasticities = dict(zip(self.item_ids.astype(str).tolist(), means.tolist()))
        if not (earned >= 0.0).all() or earned.max() <= 0.0:
            raise DataError(f"{sets.name}: {revenue} is negative or 0: no revenue")
        return np.asarray(earned / earned.max())

    def _offered(self, rows: Array, items: Array, sets: ChoiceTable) -> Array:
        """The contexts: mean attributes for what a set lacks; as many sets as fit in memory."""
        (_, width), N = rows.shape, len(self.item_ids)
        mean = np.zeros((N, width))
        np.add.at(mean, items, rows)
        mean /= np.maximum(np.bincount(items, minlength=N), 1)[:, None]
        n = min(sets.n_sets, _MOST_NUMBERS // (N * width))
        contexts = np.broadcast_to(mean.astype(np.float32), (n, N, width)).copy()
        group = np.repeat(np.arange(sets.n_sets), np.diff(sets.starts))
        here = group < n
        contexts[group[here], items[here]] = rows[here]
        return contexts

    def summary(self) -> dict[str, Any]:
        own = {"price_elasticities": self.elasticities} if self.elasticities else {}
        return self.told(
            items=self.item_ids.tolist(),
            utilities=dict(zip(self.fit.names, self.fit.coefficients.tolist())),
            norm_of_theta=float(np.sqrt(np.sum(self.fit.coefficients**2))),
            **own,
        )


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
        check_varies(data.clicked, "responded", data.name)
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

    def draw_features(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
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
