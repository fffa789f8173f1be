"""Problems made from logs: logged customers arrive, and a fitted model responds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from dpb_gym import kernels, portable, validation
from dpb_gym.errors import DataError, ParameterError, shown
from dpb_gym.privacy import Budget
from dpb_gym.problems.assortment import AssortmentProblem
from dpb_gym.problems.base import Ahead, Array, Hidden, ProblemInfo
from dpb_gym.problems.fitting import (
    Bounds,
    Fit,
    chances,
    check_features,
    check_varies,
    fit_log,
    scale,
)
from dpb_gym.problems.pricing import PricingProblem
from dpb_gym.problems.recommendation import RecommendationProblem
from dpb_gym.problems.released_fit import ReleasedFit, release_fit

if TYPE_CHECKING:
    from dpb_data import ChoiceTable, ClickTable, PriceTable

_MOST_NUMBERS = 50_000_000
Private = ReleasedFit | Budget | str | None


class Logged:
    """Base of problems on a log: customers in random order, without repetition as far as possible.

    Attributes:
        data_name: Name of the log.
        fit: The model that responds.
        bounds: Lowest and highest value by which each feature was scaled.
        scale: Coefficients of the fit divided by theta.
        thetas: Draws of theta, one of which holds in a replicate; None for the fitted theta.
        rows: Features ``(n_rows, k)`` of the fitted rows, for comparison with other models.
        repairs: What was changed when the table was read.
        visits: Largest number of the log's rows of one person.
        currency: Unit of prices in the table, or empty.
        released: Private release of the coefficients, or None.
    """

    data_name: str
    fit: Fit
    bounds: dict[str, tuple[float, float]]
    horizon: int
    info: ProblemInfo
    theta: Any
    scale: float = 1.0
    thetas: Array | None = None
    rows: Array
    repairs: tuple[str, ...] = ()
    currency: str = ""
    visits: int = 1
    released: ReleasedFit | None = None
    _some: Any = None

    def fit_to(
        self, data: Any, rows: Array, choice: Array, ridge: float, names: tuple[str, ...],
        notes: Sequence[str], longest: float, private: Private, centre: Array | None = None,
    ) -> None:  # fmt: skip
        """Set `fit`, whose coefficients are released privately if `private` is given.

        Args:
            data: The log, with a response per row.
            rows: float32 ``(n, d)``, of norm at most `longest`.
            choice: 0 for a response, -1 for none.
            ridge: See `fit_log`, as are `names`, `notes` and `centre`.
            longest: Bound of the rows' norm.
            private: See `LoggedPricing`.
        """
        starts = np.arange(len(rows) + 1)
        self.fit = fit_log(
            rows, starts, choice, data.people, ridge, names, notes, data.name, centre
        )  # fmt: skip
        if private is None:
            return
        if data.people is not None:
            raise ParameterError(
                f"{data.name}: private= protects one row, and a person with k rows only as a "
                "group of k: leave out the column of people if rows are to be protected"
            )
        if any("read off the log" in note for note in notes):
            raise ParameterError(f"{data.name}: private= needs the bounds of all columns, bounds=")
        self.released = (
            private if isinstance(private, ReleasedFit)
            else release_fit(rows, choice == 0, longest, private)
        )  # fmt: skip
        self.fit = replace(self.fit, coefficients=np.array(self.released.coefficients))

    def set_customers(
        self, name: str, contexts: Array, people: Array | None, draws: int, part: str
    ) -> None:
        """Set the customers' contexts ``(n, ...)`` and person numbers ``(n,)``.

        Args:
            name: Name of the log.
            contexts: One per customer.
            people: Person of each customer, or None.
            draws: Number of draws of theta from its posterior, one of which holds in each
                replicate; 0 for the fitted theta.
            part: ``"all"``: all customers arrive; ``"fitted"`` or ``"held-out"``: only those
                that the check of the fit was fitted to, or held out.
        """
        self.data_name, self._contexts = name, contexts
        held = self.fit.held[: len(contexts)]
        among = {"all": held | True, "fitted": ~held, "held-out": held}
        self._pool = np.flatnonzero(among[validation.choice("part", part, among)])
        if validation.integer("draws", draws, 0):
            if self.released is not None:
                raise ParameterError("draws follow from the raw log: leave out draws or private")
            self.thetas = self.fit.draws(draws) / self.scale
        self._times = -(-self.horizon // len(self._pool))
        rows = 1 if people is None else int(np.bincount(people[: len(contexts)]).max())
        times = -(-self.horizon // len(contexts))
        self.visits, uses = rows, min(self.horizon, rows * times)
        released = None if self.released is None else self.released.guarantee
        self.info = replace(self.info, person_uses=uses, log_release=released)

    def draw_hidden(self, rng: Generator) -> Hidden:
        """Return theta and the customers of the rounds ``(T,)``."""
        theta = self.theta
        if self.thetas is not None:
            theta = self.thetas[rng.integers(len(self.thetas))]
        permutations = [rng.permutation(len(self._pool)) for _ in range(self._times)]
        order = self._pool[np.concatenate(permutations)[: self.horizon]].astype(np.int32)
        return {"theta": theta, "order": order}

    def rounds_under(self, theta: Any) -> Ahead:
        """Return rounds of some customers, with responses under theta ``(d,)``, as one batch."""
        if self._some is None:
            self._some = self.instance([0])  # type: ignore[attr-defined]
        drawn = {name: block[:, 0] for name, block in self._some._block.items()}
        hidden = {"theta": np.asarray(theta)[None], "order": self._some.hidden["order"]}
        return Ahead(self, hidden, drawn, 1)  # type: ignore[arg-type]

    def draw_features(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        """Write contexts of one replicate's rounds start + 1, start + 2, ...; see `Field.fill`."""
        now = hidden["order"][start : start + len(out)]
        out[: len(now)] = self._contexts[now]
        out[len(now) :] = 0.0

    def fit_summary(self, **own: Any) -> dict[str, Any]:
        """Return the `summary`: figures of the fit, and `own` figures of the problem."""
        rest = {"bounds": self.bounds, "notes": list(self.fit.notes)}
        return {"data": self.data_name, **self.fit.figures, **own, **rest}


def _relative(sets: ChoiceTable, reference: int) -> tuple[ChoiceTable, Array]:
    """Return choice sets with attributes relative to a reference item, and a mask of their rows.

    Only sets that contain the reference and another item remain. The reference becomes the outside
    option of utility 0, since only differences of utilities matter.
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
    """Pricing for the customers of a log, with demand by a logistic model fitted to it.

    Features are an intercept and the log's features, scaled to [-1, 1]. Prices and rewards are in
    units of the highest price. The link scale zeta is chosen such that theta has norm 1.

    Args:
        data: The log.
        horizon: Rounds T, at least 2.
        ridge: Penalty of the fit, positive.
        bounds: Public lowest and highest value of features, and of the price under ``"price"``
            (only the highest counts).
        draws: See `Logged.set_customers`.
        part: See `Logged.set_customers`.
        private: Budget for one row of the log, for the release of the coefficients, from which
            zeta and all responses follow; or an earlier release. None: they are raw.

    Raises:
        DataError: If demand cannot be estimated: too few rows, a single price, no or only
            purchases, or purchases that increase with the price.
    """

    def __init__(
        self,
        data: PriceTable,
        horizon: int = 10_000,
        ridge: float = 1.0,
        bounds: Bounds | None = None,
        draws: int = 0,
        part: str = "all",
        private: Private = None,
    ) -> None:
        prices = np.unique(data.price)
        if len(prices) < 2:
            raise DataError(
                f"{data.name}: every customer was quoted {prices[0]:g}: a single price does "
                "not show how demand changes with it"
            )
        check_varies(data.bought, "bought", data.name)
        names = (*data.feature_names, "price")
        read, starts = np.column_stack([data.features, data.price]), np.arange(len(data) + 1)
        check_features(read, names, starts, data.bought - 1, data.name)
        scaled, self.bounds, notes = scale(read, names, bounds, data.name)
        notes = [*data.notes, *notes]
        n, highest = len(data.price), self.bounds["price"][1]
        customers = np.column_stack([np.ones(n), scaled[:, :-1]]).astype(np.float32)
        relative = np.minimum(data.price / highest, 1.0)
        rows = np.column_stack([customers, -relative]).astype(np.float32)
        names = ("intercept", *names)
        choice = np.where(data.bought == 1, 0, -1)
        longest = float(np.sqrt(rows.shape[1]))
        self.fit_to(data, rows, choice, ridge, names, notes, longest, private)
        slope = float(self.fit.coefficients[-1])
        if slope <= 0.0:
            raise DataError(
                f"{data.name}: purchases rise with the price (coefficient {-slope:+.3g}), so no "
                "price is best. "
                + (
                    "The noise of private= is too large: give a larger budget"
                    if private
                    else "Prices perhaps followed demand (endogenous prices): give what they were "
                    "set by as features"
                )
            )
        self.scale = size = float(np.sqrt(np.sum(self.fit.coefficients**2)))
        super().__init__(
            horizon, len(names), zeta=size * np.sqrt(len(names)), theta=self.fit.coefficients / size
        )
        self.highest_price, self.rows = highest, rows
        self.repairs, self.currency = data.notes, data.unit
        self.earned = float(np.mean(relative * data.bought))
        chance = chances(rows, starts, self.fit.coefficients)
        self.elasticity = float(np.mean(-slope * relative * (1.0 - chance)))
        self.set_customers(data.name, customers, data.people, draws, part)
        if self.thetas is not None:  # the best prices of a demand that rises are the highest
            np.maximum(self.thetas[:, -1], 1e-3, out=self.thetas[:, -1])

    def summary(self) -> dict[str, Any]:
        theta = np.tile(self.fit.coefficients / self.scale, (len(self._contexts), 1))
        _, best = self.best_prices(theta, self._contexts)
        return self.fit_summary(
            coefficients=dict(zip(self.fit.names, self.fit.coefficients.tolist())),
            link_scale_zeta=self.zeta,
            price_elasticity=self.elasticity,
            price_unit=self.highest_price,
            revenue_per_customer_in_the_log=self.earned * self.highest_price,
            revenue_per_customer_at_the_models_best=float(best.mean()) * self.highest_price,
        )


class LoggedAssortment(Logged, AssortmentProblem):
    """Assortments for the choice sets of a log, with choices by a multinomial logit fitted to it.

    Every item can be offered in every round; items missing from a set get their mean attributes.
    Each item has an intercept.

    Args:
        data: The log.
        horizon: Rounds T, at least 2.
        ridge: Penalty of the fit, positive.
        bounds: Public lowest and highest value of attributes.
        outside: The item that is the outside option: always available, and the reference of the
            other items' attributes. None if the log has sets without a choice.
        revenue: Attribute whose mean is an item's revenue, divided by the largest; equal
            revenues if None.
        capacity: K; half of the items, at most 10, by default.
        draws: See `Logged.set_customers`.
        part: See `Logged.set_customers`.

    Raises:
        DataError: If there are too few sets, or no data on choosing nothing.
    """

    def __init__(
        self, data: ChoiceTable, horizon: int = 10_000, ridge: float = 1.0,
        bounds: Bounds | None = None, outside: Any = None, revenue: str | None = None,
        capacity: int | None = None, draws: int = 0, part: str = "all",
    ) -> None:  # fmt: skip
        if revenue is not None and revenue not in data.feature_names:
            raise ParameterError(
                f"revenue must be one of {', '.join(data.feature_names)}, got {revenue!r}"
            )
        check_features(data.features, data.feature_names, data.starts, data.chosen, data.name)
        scaled, self.bounds, notes = scale(data.features, data.feature_names, bounds, data.name)
        sets, kept = replace(data, features=scaled), np.ones(len(data.items), bool)
        inside = np.arange(len(data.item_ids))
        if outside is not None:
            found = np.flatnonzero(data.item_ids.astype(str) == str(outside))
            if len(found) == 0:
                raise ParameterError(
                    f"outside must be one of {shown(data.item_ids.tolist())}, got {shown(outside)}"
                )
            inside = np.delete(inside, found[0])
            sets, kept = _relative(sets, int(found[0]))
            lost = data.n_sets - sets.n_sets
            if lost:
                notes.append(f"left out {lost:,} sets without {outside} or without another")
        elif (data.chosen >= 0).all():
            raise DataError(
                f"{data.name}: every set has a choice, which does not tell how many would buy "
                f"nothing: name the outside option, outside=one of {shown(data.item_ids.tolist())}"
            )
        self.item_ids, N = data.item_ids[inside], len(inside)
        self.revenue_unit, self.repairs = 1.0, data.notes
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
        contexts, self.rows = self._offered(rows, items, sets), rows
        self.feature_bound = float(np.abs(contexts).max())
        self.set_customers(data.name, contexts, sets.people, draws, part)

    def _earned(
        self, raw: Array, revenue: str, unit: float, rows: Array, items: Array, sets: ChoiceTable
    ) -> Array:
        """Return revenues of the items, at most 1, from raw attributes; set `elasticities`."""
        at, N = sets.feature_names.index(revenue), len(self.item_ids)
        counts = np.maximum(np.bincount(items, minlength=N), 1)
        column = raw[:, at]
        earned = np.bincount(items, column, minlength=N) / counts
        per_unit = unit / np.subtract(*self.bounds[revenue][::-1])
        chance = chances(rows, sets.starts, self.fit.coefficients)
        own = self.fit.coefficients[at] * per_unit * column * (1.0 - chance)
        means = np.bincount(items, own, minlength=N) / counts
        self.elasticities = dict(zip(self.item_ids.astype(str).tolist(), means.tolist()))
        if not (earned >= 0.0).all() or earned.max() <= 0.0:
            raise DataError(f"{sets.name}: {revenue} is negative or 0: no revenue")
        self.revenue_unit = float(earned.max())
        return np.asarray(earned / earned.max())

    def _offered(self, rows: Array, items: Array, sets: ChoiceTable) -> Array:
        """Return contexts of as many sets as fit in memory; missing items get mean attributes."""
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
        return self.fit_summary(
            items=self.item_ids.tolist(),
            utilities=dict(zip(self.fit.names, self.fit.coefficients.tolist())),
            norm_of_theta=float(np.sqrt(np.sum(self.fit.coefficients**2))),
            **own,
        )


class LoggedRecommendation(Logged, RecommendationProblem):
    """Recommendation for the customers of a log, with responses by a logistic model fitted to it.

    Every item has separate coefficients: its candidate's features are an intercept and the
    customer's features, scaled to [-1, 1] and to norm at most 1, in the item's block, and 0
    elsewhere. `summary` compares the model's value of its own best recommendations with an
    inverse-propensity estimate on the held-out log.

    Args:
        data: The log.
        horizon: Rounds T, at least 2.
        ridge: Penalty of the fit, positive.
        bounds: Public lowest and highest value of features.
        draws: See `Logged.set_customers`.
        part: See `Logged.set_customers`.
        private: See `LoggedPricing`.

    Raises:
        DataError: If there is a single item, too few rows, or no or only responses.
        ParameterError: If items times features exceed `MOST_COEFFICIENTS`.
    """

    MOST_COEFFICIENTS = 1000

    def __init__(
        self,
        data: ClickTable,
        horizon: int = 10_000,
        ridge: float = 1.0,
        bounds: Bounds | None = None,
        draws: int = 0,
        part: str = "all",
        private: Private = None,
    ) -> None:
        m, n = len(data.item_ids), len(data.items)
        if m < 2:
            raise DataError(f"{data.name}: only {data.item_ids[0]} was shown: nothing to choose")
        check_varies(data.clicked, "responded", data.name)
        choice = data.clicked - 1
        check_features(data.features, data.feature_names, np.arange(n + 1), choice, data.name)
        scaled, self.bounds, notes = scale(data.features, data.feature_names, bounds, data.name)
        notes = [*data.notes, *notes]
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
        # Without data on an item, the fit falls back to the overall rate, not to 1/2.
        rate = float(data.clicked.mean())
        centre = np.zeros((m, width))
        centre[:, 0] = portable.log(rate / (1.0 - rate)) * np.sqrt(width)
        flat = rows.reshape(n, -1)
        self.fit_to(data, flat, choice, ridge, names, notes, 1.0, private, centre.ravel())
        super().__init__(horizon, m * width, m, m, fresh=True, theta=self.fit.coefficients)
        self.item_ids, self.earned, self.repairs = data.item_ids, rate, data.notes
        self.rows = np.column_stack([customers, data.items])
        self.set_customers(data.name, customers, data.people, draws, part)
        self.check = self._held_out_value(data)

    def _held_out_value(self, data: ClickTable) -> dict[str, float]:
        """Return the value of the model's best recommendations by the model and by the log.

        The model is the one fitted without the held-out customers.
        """
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
        return self.fit_summary(
            items=self.item_ids.tolist(),
            coefficients=dict(zip(self.fit.names, self.fit.coefficients.tolist())),
            responses_in_the_log=self.earned,
            held_out_responses_to_the_models_best=self.check,
        )
