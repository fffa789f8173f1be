"""Problems made from logs: logged customers arrive, and a fitted model responds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator
from scipy.special import chdtrc

from dpb_gym import kernels, portable, validation
from dpb_gym.errors import DataError, ParameterError, shown
from dpb_gym.privacy import Budget
from dpb_gym.problems import logged_figures
from dpb_gym.problems.assortment import AssortmentProblem
from dpb_gym.problems.base import Ahead, Array, Field, Hidden, ProblemInfo
from dpb_gym.problems.endogeneity import DOUBTED, REFUSED, PeriodEffects, period_effects
from dpb_gym.problems.fitting import (
    FREE,
    Bounds,
    Effect,
    Fit,
    Likelihood,
    check_features,
    check_varies,
    fit_log,
    scale,
)
from dpb_gym.problems.log_likelihood import ChoiceSets, ItemBlocks, spreads
from dpb_gym.problems.price_curve import PriceCurve, equal_rows
from dpb_gym.problems.price_form import form_doubt, price_form
from dpb_gym.problems.pricing import PricingProblem
from dpb_gym.problems.propensity_check import propensity_doubt
from dpb_gym.problems.recommendation import RecommendationProblem
from dpb_gym.problems.released_fit import ReleasedFit, release_fit
from dpb_gym.streams import Stream

if TYPE_CHECKING:
    from dpb_data import ChoiceTable, ClickTable, PriceTable

_MOST_NUMBERS = 50_000_000
_ITEMS = "the number of items that could be shown"
SMALLER = "Use fewer features, or name a smaller ridge="
_MOST_MEASURED = 20_000  # customers from whom elasticities are computed
_MERGED = 0.25  # share of different customers, above which equal ones are not merged
_DRAWS = 400  # of the coefficients, for the interval of the elasticity
_LEAST_SCALE = 1e-6  # link scale zeta below which chances of buying are one half
_UNTESTED = (
    "endogenous prices and the form of demand are not tested with private=, as tests read the raw "
    "rows: fit the log without it to see them"
)
Private = ReleasedFit | Budget | str | None


_FITS: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_MOST_FITS = 16  # four for each log of prices
Fitted = TypeVar("Fitted")


def fit_once(key: tuple[Any, ...], fit: Callable[[], Fitted]) -> Fitted:
    """Return ``fit()``, or the result of an earlier call with an equal key.

    The problems of one log with several parts of its customers have the same fit.
    """
    if key not in _FITS:
        _FITS[key] = fit()
        while len(_FITS) > _MOST_FITS:
            _FITS.popitem(last=False)
    _FITS.move_to_end(key)
    fitted: Fitted = _FITS[key]
    return fitted


class Logged:
    """Base of problems on a log: customers in random order, without repetition as far as possible.

    Attributes:
        data_name: Name of the log.
        fit: The model that responds.
        bounds: Lowest and highest value by which each feature was scaled; empty if none was.
        scale: Coefficients of the fit divided by theta.
        thetas: Draws of theta, one of which holds in a replicate; None for the fitted theta.
        rows: Features ``(n_rows, k)`` of the fitted rows, for comparison with other models.
        repairs: What was changed when the table was read.
        visits: Largest number of the log's rows of one person.
        currency: Unit of prices in the table, or empty.
        released: Private release of the coefficients, or None.
        today: Mean reward of a customer of the log and its standard error.
        doubts: Doubts about the fit and the log, each a sentence.
        own_actions: The log's own actions ``(n, ...)``, for the default of `log_values`.
    """

    data_name: str
    fit: Fit
    bounds: Mapping[str, tuple[float, float]] = MappingProxyType({})
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
    today: tuple[float, float]
    doubts: tuple[str, ...] = ()
    only_drawn = frozenset({"order"})
    own_actions: Array
    _some: Any = None
    _people: Array | None = None

    def release(
        self, data: Any, rows: Array, choice: Array, longest: float, private: Private,
        change: Array | None = None,
    ) -> None:  # fmt: skip
        """Replace the coefficients of `fit` by a private release, if `private` is given.

        Args:
            data: The log, with a response per row.
            rows: float32 ``(n, d)``.
            choice: 0 for a response, -1 for none.
            longest: Bound of the norm of ``rows @ change``.
            private: See `LoggedPricing`.
            change: Matrix ``(d, d)``: coefficients of ``rows @ change`` are released, from which
                those of the rows follow. The identity by default.
        """
        if private is None:
            return
        if data.people is not None and not data.grouped:
            raise ParameterError(
                f"{data.name}: private= protects one row, and a person with k rows only as a "
                "group of k: leave out the column of people if rows are to be protected"
            )
        if any("read off the table" in note for note in self.fit.notes):
            raise ParameterError(f"{data.name}: private= needs the bounds of all columns, bounds=")
        if isinstance(private, ReleasedFit):
            self.released = private
        else:
            self.released = release_fit(rows, choice == 0, longest, private, change)
        self.fit = replace(self.fit, coefficients=np.array(self.released.coefficients))

    def set_customers(
        self,
        name: str,
        contexts: Array,
        people: Array | None,
        draws: int,
        part: str,
        grouped: bool = False,
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
            grouped: Whether `people` numbers groups of customers, and no persons.
        """
        self.data_name, self._contexts, self._people = name, contexts, people
        held = self.fit.held[: len(contexts)]
        among = {"all": held | True, "fitted": ~held, "held-out": held}
        self._pool = np.flatnonzero(among[validation.choice("part", part, among)])
        if validation.integer("draws", draws, 0):
            if self.released is not None:
                raise ParameterError("draws follow from the raw log: leave out draws or private")
            self.thetas = self.posterior(draws)
        self._times = -(-self.horizon // len(self._pool))
        rows = 1
        if people is not None and not grouped:
            rows = int(np.bincount(people[: len(contexts)]).max())
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

    def set_today(self, earned: Array, people: Array | None) -> None:
        """Set `today` from the rewards of the log's customers ``(n,)``."""
        self.today = logged_figures.mean_of_customers(earned, people)

    @property
    def persons(self) -> int:
        """Number of persons of the log; customers without a person are one each."""
        people = self._people
        return len(self._contexts) if people is None else len(np.unique(people))

    def expected_rewards(self, theta: Array, who: Array, actions: Array) -> Array:
        """Return the expected rewards of customers under theta ``(d,)``, for an action each.

        Args:
            theta: ``(d,)``.
            who: Numbers of n customers.
            actions: ``(n, ...)``.
        """
        n = len(who)
        problem: Any = self
        hidden = {"theta": np.tile(theta, (n, 1))}
        drawn = {"features": self._contexts[who], "response": np.zeros(n)}
        round_ = problem.make_round(hidden, drawn, np.ones(n, np.int64))
        expected: Array = problem.respond(hidden, round_, actions)[1]
        return expected

    def log_values(self, thetas: Array, who: Array, shares: Array) -> Array:
        """Return the expected reward per customer of the log's own actions ``(K,)``.

        By default of problems that set `own_actions` and whose rounds have features only.

        Args:
            thetas: ``(K, d)``.
            who: Numbers of the customers.
            shares: Their shares under each theta ``(K, n)``; see `shares`.
        """
        own = self.own_actions[who]
        return np.array(
            [np.sum(self.expected_rewards(t, who, own) * w) for t, w in zip(thetas, shares)]
        )

    def action_values(self, actions: Array, thetas: Array, who: Array, shares: Array) -> Array:
        """Return the expected reward per customer of actions for all of them ``(K, A)``.

        By default of problems whose rounds have features only.

        Args:
            actions: ``(A, ...)``.
            thetas: ``(K, d)``.
            who: Numbers of the customers.
            shares: Their shares under each theta ``(K, n)``; see `shares`.
        """
        each = [np.repeat(action[None], len(who), axis=0) for action in actions]
        return np.array(
            [[np.sum(self.expected_rewards(theta, who, action) * share) for action in each]
             for theta, share in zip(thetas, shares)]
        )  # fmt: skip

    def shares(self, who: Array, count: int, groups: Array | None = None) -> Array:
        """Return shares of customers, or of groups of them, in `count` likely populations.

        Args:
            who: Numbers of n customers.
            count: Number of populations.
            groups: Group of each customer ``(n,)``, or None.
        """
        people = np.arange(len(who)) if self._people is None else self._people[who]
        people = np.unique(people, return_inverse=True)[1].ravel()
        return logged_figures.customer_weights(people, count, len(self._contexts), groups)

    def population(self, who: Array, count: int) -> tuple[Array, Array]:
        """Return numbers of m different customers, and their `shares` ``(count, m)``.

        Customers of the same context and action may be counted together.
        """
        return who, self.shares(who, count)

    def posterior(self, count: int) -> Array:
        """Return draws of theta from its approximate posterior ``(count, d)``; see `Fit.draws`.

        A private release has a single one: its draws would follow from the raw log.
        """
        if self.released is not None:
            return np.tile(self.fit.coefficients / self.scale, (count, 1))
        return self.fit.draws(count) / self.scale

    def wide_posterior(self, count: int) -> Array:
        """Return draws for `log_values` and `action_values`, in which demand may be of other forms.

        By default `posterior`.
        """
        return self.posterior(count)

    @property
    def pool(self) -> Array:
        """Numbers of the customers that may arrive."""
        return self._pool

    @property
    def measured(self) -> slice:
        """Evenly spaced customers, few enough for figures that take many passes."""
        return slice(None, None, -(-len(self._contexts) // _MOST_MEASURED))

    def summary(self) -> dict[str, Any]:
        """Return the figures of the fit."""
        return self.fit_summary()

    def fit_summary(self, **own: Any) -> dict[str, Any]:
        """Return the `summary`: figures of the fit, and `own` figures of the problem."""
        rest = {"bounds": self.bounds, "notes": list(self.fit.notes), "doubts": list(self.doubts)}
        return {"data": self.data_name, **self.fit.figures, **own, **rest}


def check_falls(effect: Effect, what: str, name: str, advice: str) -> None:
    """Raise `DataError` if demand does not fall with the price.

    Args:
        effect: Effect of one unit of the price on the utility.
        what: The responses, such as ``"purchases"``.
        name: Name of the log.
        advice: What to do about it.
    """
    if effect.value >= 0.0:
        low, high = effect.interval
        way = "rise" if low > 0.0 else "do not fall"
        raise DataError(
            f"{name}: {what} {way} with the price (coefficient {effect.value:+.3g}, 95% interval "
            f"{low:.3g} to {high:.3g}), so no price is best. {advice}"
        )


def endogenous_doubt(effects: PeriodEffects, name: str) -> list[str]:
    """Return a doubt about prices that moved with demand.

    Args:
        effects: Effects of the price within and between periods of the log.
        name: Name of the log.

    Raises:
        DataError: If the effects differ by more than `REFUSED` standard errors.
    """
    if abs(effects.errors) > REFUSED:
        raise DataError(
            f"{name}: endogenous prices: {effects.text}. Its effect on demand cannot be estimated: "
            "give what prices were set by as features"
        )
    return [f"endogenous prices: {effects.text}"] if abs(effects.errors) > DOUBTED else []


def moved_doubt(effects: Mapping[str, Effect], cure: str) -> list[str]:
    """Return a doubt about the first figure that a penalty moves by more than a standard error.

    Args:
        effects: Figures by name.
        cure: What to do about it.
    """
    for figure, effect in effects.items():
        if effect.moved and effect.plain_interval is not None:
            low, high = effect.plain_interval
            return [
                f"the penalty moves {figure}: {effect.value:.3g} with it, {effect.plain:.3g} "
                f"(95% interval {low:.3g} to {high:.3g}) without, more than one standard error. "
                f"{cure}"
            ]
    return []


def _row_numbers(data: PriceTable, people: Array) -> Array:
    """Return the number of the table's row of each customer ``(n,)``.

    Customers who were counted in one row follow each other, and have the same person and price.
    """
    columns = np.column_stack([people, data.price, data.features])
    first = np.append(True, (np.diff(columns, axis=0) != 0).any(axis=1))
    return np.asarray(np.cumsum(first) - 1)


def _differs_within_items(values: Array, items: Array, count: int) -> bool:
    """Return whether scaled values ``(n,)`` of some item differ; `items` are in 0..count - 1."""
    low = np.full(count, np.inf)
    high = np.full(count, -np.inf)
    np.minimum.at(low, items, values)
    np.maximum.at(high, items, values)
    return bool((high - low > 1e-6).any())


def effect_figures(effect: Effect) -> dict[str, Any]:
    """Return an effect with its interval, and the same without a penalty, for a summary."""
    figures: dict[str, Any] = {"estimate": effect.value, "interval": effect.interval}
    if effect.plain is not None:
        figures |= {"unpenalised": effect.plain, "unpenalised interval": effect.plain_interval}
    return figures


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


class PriceDesign(NamedTuple):
    """The regression of purchases on customers and prices.

    Attributes:
        customers: Constant and scaled features ``(n, d - 1)``.
        price: Prices in units of the highest, at most 1, ``(n,)``.
        rows: ``[customers, -price]``, ``(n, d)``.
        sets: The rows with the responses.
        names: d names.
        spread: Standard deviations of the columns, 0 for those without a penalty, ``(d,)``.
        bounds: See `Logged`.
        notes: Remarks on the log.
    """

    customers: Array
    price: Array
    rows: Array
    sets: ChoiceSets
    names: tuple[str, ...]
    spread: Array
    bounds: Mapping[str, tuple[float, float]]
    notes: Sequence[str]


def _price_design(data: PriceTable, bounds: Bounds | None, log_scale: Sequence[str]) -> PriceDesign:
    """Return the regression of a log.

    Raises:
        DataError: If there is one price, one response, or no customer to compare with.
    """
    prices = np.unique(data.price)
    if len(prices) < 2:
        raise DataError(
            f"{data.name}: every customer was quoted {prices[0]:g}: a single price does "
            "not show how demand changes with it"
        )
    check_varies(data.bought, "bought", data.name)
    names = (*data.feature_names, "price")
    read = np.column_stack([data.features, data.price])
    starts = np.arange(len(data) + 1)
    check_features(read, names, starts, data.bought - 1, data.name)
    scaled, reach, notes = scale(read, names, bounds, data.name, log_scale)
    customers = np.column_stack([np.ones(len(data)), scaled[:, :-1]]).astype(np.float32)
    relative = np.minimum(data.price / reach["price"][1], 1.0)
    rows = np.column_stack([customers, -relative]).astype(np.float32)
    spread = spreads(rows)
    # neither the constant nor the price is shrunk
    spread[[0, -1]] = 0.0
    return PriceDesign(
        customers=customers,
        price=relative,
        rows=rows,
        sets=ChoiceSets(rows, starts, np.where(data.bought == 1, 0, -1)),
        names=("intercept", *names),
        spread=spread,
        bounds=reach,
        notes=[*data.notes, *notes],
    )


class LoggedPricing(Logged, PricingProblem):
    """Pricing for the customers of a log, with demand by a logistic model fitted to it.

    Features are an intercept and the log's features, scaled to [-1, 1]. Prices and rewards are in
    units of the highest price. The link scale zeta is chosen such that theta has norm 1.

    Args:
        data: The log.
        horizon: Rounds T, at least 2.
        ridge: Weight of the squared coefficients of standardised features; the price and the
            intercept have none. By default chosen by the likelihood of held-out customers.
        bounds: Public lowest and highest value of features, and of the price under ``"price"``
            (only the highest counts, and with `private` the lowest too).
        extrapolate: Whether all prices from 0 to the highest can be played. By default only
            those between the lowest and the highest quoted price (with `private`: the bounds) are.
        log_scale: Features whose logarithm, log(1 + value), is used.
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
        ridge: float | None = None,
        bounds: Bounds | None = None,
        draws: int = 0,
        part: str = "all",
        private: Private = None,
        extrapolate: bool = False,
        log_scale: Sequence[str] = (),
    ) -> None:
        content = data.digest(), data.name, data.notes
        design = fit_once(
            ("design", *content, str(bounds), tuple(log_scale)),
            lambda: _price_design(data, bounds, log_scale),
        )
        self.bounds = design.bounds
        self.rows = design.rows
        self.highest_price = highest = design.bounds["price"][1]
        self._contexts = design.customers
        key = data.digest(), ridge, str(self.bounds), tuple(log_scale), *design.notes
        self.fit = fit_once(
            ("pricing", *key),
            lambda: fit_log(
                design.sets, data.people, ridge, design.spread, design.names, design.notes,
                data.name,
            ),
        )  # fmt: skip
        self.effects = dict(fit_once(("effects", *key), lambda: self._measured_effects(data)))
        raw = max(self.fit.members, key=lambda member: member.weight).coefficients
        self._release_coefficients(data, design.sets.choice, private)
        self._check_demand(data.name, private)
        tests = [_UNTESTED]
        form: list[str] = []
        self._curve: PriceCurve | None = None
        if private is None:  # a test of the raw rows is no release
            tests, form, self._curve, drawn = fit_once(
                ("form", *key), lambda: _form(data, design.sets, raw, highest, self.fit.penalty)
            )
        d = len(design.names)
        theta = self.fit.coefficients / self.scale
        super().__init__(horizon, d, zeta=self.scale * np.sqrt(d), theta=theta)
        lowest = float(design.price.min()) if private is None else self.bounds["price"][0] / highest
        top = float(design.price.max()) if private is None else 1.0
        if not validation.flag("extrapolate", extrapolate):
            self.info = replace(self.info, price_range=(max(0.0, lowest), top))
        self.repairs = data.notes
        self.currency = data.unit
        self.set_today(design.price * data.bought, data.people)
        self.doubts = (*tests, *self._doubts(private), *form)
        if self._curve is not None:
            self.effects["elasticity"] = replace(
                self.effects["elasticity"], value=float(drawn.mean()), error=float(drawn.std())
            )
        self.set_customers(data.name, design.customers, data.people, draws, part, data.grouped)

    def _measured_effects(self, data: PriceTable) -> dict[str, Effect]:
        """Return effects, of which the elasticity has the error of the customers' sampling too."""
        some = self.measured
        people = None if data.people is None else data.people[some]
        sampling = logged_figures.elasticity_sampling(
            self.rows[some], self.fit.coefficients, people
        )
        effects = self.fit.effects(self._price_effects, np.array([0.0, sampling]))
        return dict(zip(("price", "elasticity"), effects))

    def _release_coefficients(self, data: PriceTable, choice: Array, private: Private) -> None:
        """Release the coefficients, if `private` is given, and set `scale` to their norm."""
        # The ridge of a release shrinks less if the price's column is centred: to 1 - 2 price.
        centred = np.eye(self.rows.shape[1])
        centred[-1, -1] = 2.0
        centred[0, -1] = 1.0
        longest = float(np.sqrt(self.rows.shape[1]))
        self.release(data, self.rows, choice, longest, private, centred)
        self.scale = float(np.sqrt(np.sum(self.fit.coefficients**2)))

    def _check_demand(self, name: str, private: Private) -> None:
        """Raise `DataError` if demand does not depend on anything, or rises with the price."""
        if self.scale * np.sqrt(self.rows.shape[1]) < _LEAST_SCALE:
            raise DataError(
                f"{name}: half of the customers buy at every price: neither the price nor a "
                "feature has an effect. Give other features, or prices that vary more"
            )
        slope = float(self.fit.coefficients[-1])
        advice = (
            "The noise of private= is too large: give a larger budget"
            if private
            else "Prices perhaps followed demand (endogenous prices): give what they were "
            "set by as features. Or too few prices were tried to see their effect"
        )
        effect = replace(self.effects["price"], value=-slope / self.highest_price)
        check_falls(effect, "purchases", name, advice)

    def _doubts(self, private: Private) -> list[str]:
        """Return doubts about the size of the effects; set `elasticity`."""
        effects = self._price_effects(self.fit.coefficients)
        self.elasticity = float(effects[1])
        price = replace(self.effects["price"], value=float(effects[0]))
        shown = {
            "the mean price elasticity": replace(self.effects["elasticity"], value=self.elasticity),
            "the effect of one unit of the price": price,
        }
        cure = "Give a larger budget" if private else SMALLER
        return [*moved_doubt(shown, cure), *self.fit.doubts]

    def posterior(self, count: int) -> Array:
        """Return draws of theta; demand does not rise with the price in any of them."""
        thetas = super().posterior(count)
        # the best prices of a demand that rises are the highest
        np.maximum(thetas[:, -1], 1e-3, out=thetas[:, -1])
        return thetas

    def wide_posterior(self, count: int) -> Array:
        """Return draws of theta and of the further coefficients of demand of another form.

        See `dpb_gym.problems.price_curve`. A private release has none of them.
        """
        if self._curve is None:
            return self.posterior(count)
        return self._curve.draws(count) / self.scale

    def _columns(self, rows: Array, width: int) -> Array:
        """Return the first columns of the design, of which those of theta are the rows."""
        if self._curve is None or width == rows.shape[1]:
            return rows.astype(np.float64)
        return self._curve.columns(rows)

    def _price_effects(self, coefficients: Array) -> Array:
        rows = self.rows[self.measured]
        return logged_figures.price_effects(rows, coefficients, self.highest_price)

    def log_values(self, thetas: Array, who: Array, shares: Array) -> Array:
        rows = self.rows[who]
        x = self._columns(rows, thetas.shape[1])
        price = -rows[:, -1].astype(np.float64)
        return logged_figures.price_values(x, price, thetas * self.scale, shares)

    def action_values(self, actions: Array, thetas: Array, who: Array, shares: Array) -> Array:
        rows = self.rows[who].copy()
        drawn = thetas * self.scale
        values = np.empty((len(thetas), len(actions)))
        for k, price in enumerate(actions):
            rows[:, -1] = -price
            x = self._columns(rows, thetas.shape[1])
            own = np.full(len(rows), float(price))
            values[:, k] = logged_figures.price_values(x, own, drawn, shares)
        return values

    def population(self, who: Array, count: int) -> tuple[Array, Array]:
        first, groups = equal_rows(self.rows[who])
        if len(first) > _MERGED * len(who):
            return super().population(who, count)
        return who[first], self.shares(who, count, groups)

    def summary(self) -> dict[str, Any]:
        theta = np.tile(self.fit.coefficients / self.scale, (len(self._contexts), 1))
        _, best = self.best_prices(theta, self._contexts)
        return self.fit_summary(
            coefficients=dict(zip(self.fit.names, self.fit.coefficients.tolist())),
            link_scale_zeta=self.zeta,
            price_elasticity=self.elasticity,
            price_elasticity_with_interval=effect_figures(self.effects["elasticity"]),
            effect_of_one_unit_of_price=effect_figures(self.effects["price"]),
            price_unit=self.highest_price,
            revenue_per_customer_in_the_log=self.today[0] * self.highest_price,
            revenue_per_customer_at_the_models_best=float(best.mean()) * self.highest_price,
        )


def _check_revenue(data: ChoiceTable, revenue: str | None, log_scale: Sequence[str]) -> None:
    """Raise `ParameterError` unless `revenue` is None or a feature whose effect is linear."""
    if revenue is not None and revenue not in data.feature_names:
        raise ParameterError(
            f"revenue must be one of {', '.join(data.feature_names)}, got {revenue!r}"
        )
    if revenue in log_scale:
        raise ParameterError(f"log_scale: {revenue} is the revenue, whose effect is linear")


def _customers_columns(data: ChoiceTable) -> Array:
    """Return which features are of the customer: the same for all items of every set."""
    sizes = np.diff(data.starts)
    first = np.repeat(data.features[data.starts[:-1]], sizes, axis=0)
    fixed: Array = (data.features == first).all(axis=0) & bool(sizes.max() > 1)
    return fixed


def _with_outside(
    data: ChoiceTable, scaled: Array, outside: Any
) -> tuple[Array, ChoiceTable, Array]:
    """Return the items that can be offered, sets of scaled features, and which rows are in them.

    With an item as outside option features are relative to it, and sets without it are left out.

    Raises:
        ParameterError: If there is no such item.
        DataError: If no set tells how many customers buy nothing.
    """
    inside = np.arange(len(data.item_ids))
    sets = replace(data, features=scaled)
    if outside is not None:
        places = np.flatnonzero(data.item_ids.astype(str) == str(outside))
        if len(places) == 0:
            raise ParameterError(
                f"outside must be one of {shown(data.item_ids.tolist())}, got {shown(outside)}"
            )
        return np.delete(inside, places[0]), *_relative(sets, int(places[0]))
    if (data.chosen >= 0).all():
        raise DataError(
            f"{data.name}: every set has a choice, which does not tell how many would buy "
            f"nothing: name the outside option, outside=one of {shown(data.item_ids.tolist())}"
        )
    return inside, sets, np.ones(len(data.items), bool)


class SlateDesign(NamedTuple):
    """The regression of choices on items and customers.

    Attributes:
        item_ids: Names of the N items that can be offered.
        sets: The choice sets, without those that have no outside option.
        kept: Which rows of the log are in them.
        items: Item of each row.
        rows: float32 ``(n, d)``: features, constants of the items, and effects per item.
        names: d names.
        spread: Standard deviations of the columns, 0 for those without a penalty, ``(d,)``.
        asked: Features of the customer, ``(n, ...)``.
        per_item: Columns of their effects per item, ``(features, N)``; empty without them.
        shared: Which of the first columns are of the customer.
        relative: Whether features are relative to an outside option.
        identified: Whether the effect of the revenue differs from that of a constant.
        notes: Remarks on the log.
    """

    item_ids: Array
    sets: ChoiceTable
    kept: Array
    items: Array
    rows: Array
    names: tuple[str, ...]
    spread: Array
    asked: Array
    per_item: Array
    shared: Array
    relative: bool
    identified: bool
    notes: list[str]


def _slate_design(
    data: ChoiceTable, scaled: Array, outside: Any, revenue: str | None
) -> SlateDesign:
    """Return the regression of a log.

    Args:
        data: The log.
        scaled: Its scaled features.
        outside: Item that stands for buying nothing, or None.
        revenue: Feature that is the revenue, or None.

    Raises:
        ParameterError: If an argument does not fit the log.
        DataError: If no set tells how many customers buy nothing.
    """
    fixed = _customers_columns(data)
    if revenue is not None and fixed[data.feature_names.index(revenue)]:
        raise ParameterError(f"revenue: {revenue} does not differ between the items of a set")
    inside, sets, kept = _with_outside(data, scaled, outside)
    notes = []
    if lost := data.n_sets - sets.n_sets:
        notes.append(f"left out {lost:,} sets without {outside} or without another")
    item_ids = data.item_ids[inside]
    N = len(inside)
    items = np.searchsorted(inside, sets.items)
    varying = np.flatnonzero(~fixed | (outside is None))
    asked = np.flatnonzero(fixed)
    # relative to the outside option a feature of the customer is 0: only effects per item are left
    per_item = asked if outside is not None else asked[:0]
    if len(per_item):
        listed = ", ".join(data.feature_names[k] for k in per_item)
        notes.append(f"{listed}: the same for all items of a set, so with an effect per item")
    constants = np.eye(N)[items]
    own = [scaled[kept][:, [k]] * constants for k in per_item]
    rows = np.concatenate([sets.features[:, varying], constants, *own], axis=1).astype(np.float32)
    names = (
        *(data.feature_names[k] for k in varying),
        *(f"is {item}" for item in item_ids),
        *(f"{data.feature_names[k]}: {i}" for k in per_item for i in item_ids),
    )
    first = len(varying) + N
    spread = spreads(rows)
    spread[len(varying) : first] = 0.0
    identified = False
    if revenue is not None:
        # Else its effect cannot be told from the items' constants, and the penalty decides.
        relative = sets.features[:, data.feature_names.index(revenue)]
        identified = _differs_within_items(relative, items, N)
        if identified:
            spread[names.index(revenue)] = 0.0
        else:
            notes.append(
                f"{revenue} differs between items by the same amount in every set: no elasticity"
            )
    return SlateDesign(
        item_ids, sets, kept, items, rows, names, spread, scaled[kept][:, asked],
        np.arange(first, len(names)).reshape(-1, N), np.flatnonzero(fixed[varying]),
        outside is not None, identified, notes,
    )  # fmt: skip


def _form(
    data: PriceTable, sets: ChoiceSets, coefficients: Array, highest: float, penalty: Array
) -> tuple[list[str], list[str], PriceCurve, Array]:
    """Return doubts about prices and about demand's form, its `PriceCurve`, and elasticities.

    Args:
        data: The log.
        sets: Its customers, with minus the price as last column.
        coefficients: Of the fit, without a private release ``(d,)``.
        highest: Units of a price of 1.
        penalty: Weight of each squared coefficient ``(d,)``.
    """
    n = len(data.price)
    d = len(coefficients)
    rows_of = np.arange(n) if data.people is None else _row_numbers(data, data.people)
    one = np.zeros(n, np.int64)
    by_period = period_effects(sets, coefficients, d - 1, -1.0 / highest, one, rows_of)
    tests = endogenous_doubt(by_period, data.name)
    form = form_doubt(price_form(sets.rows, coefficients, data.bought, data.people))
    curve = PriceCurve(sets.rows, data.bought, coefficients, penalty, data.people)
    return tests, form, curve, curve.elasticities(sets.rows, curve.draws(_DRAWS))


class LoggedAssortment(Logged, AssortmentProblem):
    """Assortments for the choice sets of a log, with choices by a multinomial logit fitted to it.

    Every item can be offered in every round; items missing from a set get their mean attributes.
    Each item has an intercept. An attribute that is the same for all items of every set is one of
    the customer: with an outside item it has a coefficient per item.

    Args:
        data: The log.
        horizon: Rounds T, at least 2.
        ridge: Weight of the squared coefficients of standardised attributes; the items' intercepts
            and `revenue` have none. By default chosen by the likelihood of held-out customers.
        bounds: Public lowest and highest value of attributes.
        outside: The item that is the outside option: always available, and the reference of the
            other items' attributes. None if the log has sets without a choice.
        revenue: Attribute that is an item's revenue, divided by the largest one; that of a missing
            item is its mean. Equal revenues if None.
        capacity: K; half of the items, at most 10, by default.
        draws: See `Logged.set_customers`.
        part: See `Logged.set_customers`.
        log_scale: Attributes whose logarithm, log(1 + value), is used; not `revenue`.

    Raises:
        DataError: If there are too few sets, no data on choosing nothing, an item that is never
            chosen, or choices that rise with `revenue`.
    """

    def __init__(
        self, data: ChoiceTable, horizon: int = 10_000, ridge: float | None = None,
        bounds: Bounds | None = None, outside: Any = None, revenue: str | None = None,
        capacity: int | None = None, draws: int = 0, part: str = "all",
        log_scale: Sequence[str] = (),
    ) -> None:  # fmt: skip
        _check_revenue(data, revenue, log_scale)
        check_features(data.features, data.feature_names, data.starts, data.chosen, data.name)
        scaled, self.bounds, notes = scale(
            data.features, data.feature_names, bounds, data.name, log_scale
        )
        design = _slate_design(data, scaled, outside, revenue)
        sets = design.sets
        self.item_ids = design.item_ids
        self.revenue_unit = 1.0
        self.repairs = data.notes
        notes = [*data.notes, *notes, *design.notes]
        choices = ChoiceSets(design.rows, sets.starts, sets.chosen)
        self.fit = fit_once(
            ("assortment", data.digest(), ridge, str(self.bounds), str(outside), revenue,
             tuple(log_scale), *notes),
            lambda: fit_log(
                choices, sets.people, ridge, design.spread, design.names, notes, data.name
            ),
        )  # fmt: skip
        self.elasticities: dict[str, float] = {}
        self.effects: dict[str, Effect] = {}
        self.revenue = revenue or ""
        self._sets = sets
        self._items = design.items
        self.rows = design.rows
        N = len(self.item_ids)
        earned: Any = "equal"
        paid = np.ones(len(self.rows))
        means = np.ones(N)
        if revenue is not None:
            # Attributes relative to the outside option are halved.
            unit = 1.0 if design.relative else 2.0
            column = data.features[design.kept, data.feature_names.index(revenue)]
            at = design.names.index(revenue)
            earned = self._earned(column, revenue, unit, at, design.identified)
            means = earned
            paid = column / self.revenue_unit
        super().__init__(
            horizon, N, min(10, max(1, N // 2)) if capacity is None else capacity,
            len(design.names), revenues=earned, theta=self.fit.coefficients,
        )  # fmt: skip
        taken = np.maximum(sets.starts[:-1] + sets.chosen, 0)
        self.set_today(np.where(sets.chosen >= 0, paid[taken], 0.0), sets.people)
        contexts = self._offered(
            self.rows, self._items, sets, design.asked, design.per_item, design.shared
        )
        self._paid = self._revenues_offered(paid, means, len(contexts))
        if revenue is not None:
            self.info = replace(self.info, reward_range=(0.0, 1.0), equal_revenues=False)
        self.feature_bound = float(np.abs(contexts).max())
        moved = moved_doubt(self._shown_effects(), SMALLER)
        endogenous = self._endogenous(data.name, choices, design) if design.identified else []
        self.doubts = (*endogenous, *moved, *self.fit.doubts)
        self.set_customers(data.name, contexts, sets.people, draws, part)

    def _endogenous(self, name: str, choices: ChoiceSets, design: SlateDesign) -> list[str]:
        """Return doubts whether revenues followed demand, from their effects by period."""
        low, high = self.bounds[self.revenue]
        # attributes relative to the outside option are halved
        unit = (1.0 if design.relative else 2.0) / (high - low)
        at = design.names.index(self.revenue)
        periods = np.arange(design.sets.n_sets)
        by_period = period_effects(choices, self.fit.coefficients, at, unit, self._items, periods)
        return endogenous_doubt(by_period, name)

    def _earned(
        self, column: Array, revenue: str, unit: float, at: int, identified: bool
    ) -> Array:  # fmt: skip
        """Return revenues of the items, at most 1, from raw attributes; set `elasticities`.

        `identified` says whether the effect of the revenue differs from that of a constant.
        """
        sets = self._sets
        items = self._items
        N = len(self.item_ids)
        counts = np.maximum(np.bincount(items, minlength=N), 1)
        earned = np.bincount(items, column, minlength=N) / counts
        if identified:
            self._measure(column, revenue, unit / np.subtract(*self.bounds[revenue][::-1]), at)
        if not (column >= 0.0).all() or column.max() <= 0.0:
            raise DataError(f"{sets.name}: {revenue} is negative or 0: no revenue")
        self.revenue_unit = float(column.max())
        return np.asarray(earned / self.revenue_unit)

    def _measure(self, column: Array, revenue: str, per_unit: float, at: int) -> None:
        """Set `effects` and `elasticities` of the revenue; refuse demand that rises with it."""
        sets = self._sets
        items = self._items
        N = len(self.item_ids)
        rows = self.rows
        starts = sets.starts
        here = items
        paid = column
        some = slice(None, None, -(-sets.n_sets // _MOST_MEASURED))
        if some.step > 1:
            kept = np.zeros(sets.n_sets, np.bool_)
            kept[some] = True
            part = ChoiceSets(rows, starts, sets.chosen).keep(kept)
            mask = np.repeat(kept, np.diff(starts))
            rows = part.rows
            starts = part.starts
            here = items[mask]
            paid = column[mask]

        def measure(coefficients: Array) -> Array:
            slope = coefficients[at] * per_unit
            own = logged_figures.own_elasticities(rows, starts, here, paid, coefficients, slope, N)
            return np.append(own, slope)

        labels = [*self.item_ids.astype(str).tolist(), revenue]
        self.effects = dict(zip(labels, self.fit.effects(measure)))
        check_falls(
            self.effects[revenue], "choices", sets.name,
            f"{revenue} perhaps stands for quality, or followed demand: give what it depends on as "
            "features. Or too few values were tried to see its effect",
        )  # fmt: skip
        self.elasticities = {k: self.effects[k].value for k in labels[:-1]}

    def _revenues_offered(self, paid: Array, means: Array, n: int) -> Array:
        """Return revenues of the items to the first n customers ``(n, N)``.

        Args:
            paid: Revenue of every row.
            means: Revenue of an item where it is missing ``(N,)``.
            n: Number of customers.
        """
        sets = self._sets
        revenues = np.broadcast_to(means.astype(np.float32), (n, len(means))).copy()
        group = np.repeat(np.arange(sets.n_sets), np.diff(sets.starts))
        here = group < n
        revenues[group[here], self._items[here]] = paid[here]
        return revenues

    def fields(self) -> dict[str, Field]:
        fields = super().fields()
        if not self.info.equal_revenues:
            shape = (self.n_items,)
            fields["revenues"] = Field(shape, np.float32, Stream.REVENUES, self.draw_revenues)
        return fields

    def draw_revenues(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        """Write revenues of one replicate's rounds start + 1, start + 2, ...; see `Field.fill`."""
        now = hidden["order"][start : start + len(out)]
        out[: len(now)] = self._paid[now]
        out[len(now) :] = 0.0

    def _shown_effects(self) -> dict[str, Effect]:
        return {
            f"the effect of one unit of {k}" if k == self.revenue else f"the elasticity of {k}": e
            for k, e in self.effects.items()
        }

    def _offered(
        self, rows: Array, items: Array, sets: ChoiceTable, asked: Array, own: Array, shared: Array
    ) -> Array:
        """Return contexts of as many sets as fit in memory; missing items get mean attributes.

        Args:
            rows: ``(n_rows, k)``.
            items: ``(n_rows,)``.
            sets: The choice sets.
            asked: Scaled attributes of the customer in every row ``(n_rows, a)``.
            own: Columns of their effects per item ``(a, N)``, if they have them.
            shared: Columns of their effects, if those are the same for all items.
        """
        (_, width), N = rows.shape, len(self.item_ids)
        mean = np.zeros((N, width))
        np.add.at(mean, items, rows)
        mean /= np.maximum(np.bincount(items, minlength=N), 1)[:, None]
        n = min(sets.n_sets, _MOST_NUMBERS // (N * width))
        contexts = np.broadcast_to(mean.astype(np.float32), (n, N, width)).copy()
        group = np.repeat(np.arange(sets.n_sets), np.diff(sets.starts))
        first = sets.starts[:n]
        contexts[:, :, shared] = rows[first][:, None, shared]
        for value, columns in zip(asked[first].T, own):
            for item, k in enumerate(columns):
                contexts[:, item, k] = value
        here = group < n
        contexts[group[here], items[here]] = rows[here]
        return contexts

    def log_values(self, thetas: Array, who: Array, shares: Array) -> Array:
        sets = self._sets
        some = np.zeros(self._sets.n_sets, np.bool_)
        some[who] = True
        part = ChoiceSets(self.rows, sets.starts, sets.chosen).keep(some)
        taken = np.repeat(some, np.diff(sets.starts))
        group = np.repeat(np.arange(sets.n_sets), np.diff(sets.starts))
        earned = self._paid[group[taken], self._items[taken]].astype(np.float64)
        slates = part.rows, part.starts
        return np.array([logged_figures.logged_slate_value(*slates, t, earned, w)
                         for t, w in zip(thetas, shares)])  # fmt: skip

    def action_values(self, actions: Array, thetas: Array, who: Array, shares: Array) -> Array:
        contexts = self._contexts[who].astype(np.float64)
        revenues = self._paid[who]
        return np.array([logged_figures.slate_values(contexts, t, revenues, actions, w)
                         for t, w in zip(thetas, shares)])  # fmt: skip

    def summary(self) -> dict[str, Any]:
        own: dict[str, Any] = {}
        if self.elasticities:
            own = {"price_elasticities": self.elasticities}
            *items, price = self.effects.items()
            own["effect_of_one_unit_of_revenue"] = effect_figures(price[1])
            own["price_elasticities_with_intervals"] = {k: effect_figures(e) for k, e in items}
        return self.fit_summary(
            items=self.item_ids.tolist(),
            utilities=dict(zip(self.fit.names, self.fit.coefficients.tolist())),
            norm_of_theta=float(np.sqrt(np.sum(self.fit.coefficients**2))),
            revenue_per_customer_in_the_log=self.today[0] * self.revenue_unit,
            **own,
        )


def _pooled(spread: Array, name: str, data: Likelihood) -> Array:
    """Return the coefficients of one model for all items, for every item ``(m w,)``."""
    assert isinstance(data, ItemBlocks)
    sets = ChoiceSets(data.customers, data.starts, data.choice)
    penalty = spread**2
    penalty[0] = FREE
    return np.tile(sets.fit(penalty, name)[0], data.m)


def _rate_doubt(rates: Mapping[str, tuple[float, float, float, float]]) -> list[str]:
    """Return a doubt if fitted and observed rates of items differ by more than by chance."""
    gaps = {
        item: (fitted - seen) / max((high - low) / 4.0, 1e-12)
        for item, (fitted, seen, low, high) in rates.items()
    }
    distance = sum(gap**2 for gap in gaps.values())
    if chdtrc(len(gaps), distance) >= 0.05:
        return []
    worst = max(gaps, key=lambda item: abs(gaps[item]))
    fitted, seen, low, high = rates[worst]
    return [
        f"the penalty moves the rates of items: {worst} has {fitted:.2%} with it, {seen:.2%} (95% "
        f"interval {low:.2%} to {high:.2%}) without, more than one standard error. Name a smaller "
        "ridge="
    ]


class LoggedRecommendation(Logged, RecommendationProblem):
    """Recommendation for the customers of a log, with responses by a logistic model fitted to it.

    Every item has separate coefficients: its candidate's features are an intercept and the
    customer's features, scaled to [-1, 1] and to norm at most 1, in the item's block, and 0
    elsewhere. The penalty pulls them towards those of one model for all items. `summary` compares
    the model's value of its own best recommendations with an inverse-propensity estimate on the
    held-out log.

    Args:
        data: The log.
        horizon: Rounds T, at least 2.
        ridge: Weight of the squared differences of standardised coefficients from those of all
            items together. By default chosen by the likelihood of held-out customers.
        bounds: Public lowest and highest value of features.
        draws: See `Logged.set_customers`.
        part: See `Logged.set_customers`.
        private: See `LoggedPricing`.
        log_scale: See `LoggedPricing`.

    Raises:
        DataError: If there is a single item, too few rows, or no or only responses.
        ParameterError: If items times features exceed `MOST_COEFFICIENTS`.
    """

    MOST_COEFFICIENTS = 1000

    def __init__(
        self,
        data: ClickTable,
        horizon: int = 10_000,
        ridge: float | None = None,
        bounds: Bounds | None = None,
        draws: int = 0,
        part: str = "all",
        private: Private = None,
        log_scale: Sequence[str] = (),
    ) -> None:
        m = len(data.item_ids)
        n = len(data.items)
        if m < 2:
            raise DataError(f"{data.name}: only {data.item_ids[0]} was shown: nothing to choose")
        check_varies(data.clicked, "responded", data.name)
        choice = data.clicked - 1
        check_features(data.features, data.feature_names, np.arange(n + 1), choice, data.name)
        scaled, self.bounds, notes = scale(
            data.features, data.feature_names, bounds, data.name, log_scale
        )
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
        data_of_items = ItemBlocks(customers, data.items, choice, m)
        own = spreads(customers)
        own[0] = customers[0, 0]
        spread = np.tile(own, m)
        pooled = partial(_pooled, own, data.name)
        self.fit = fit_once(
            ("recommendation", data.digest(), ridge, str(self.bounds), tuple(log_scale), *notes),
            lambda: fit_log(
                data_of_items, data.people, ridge, spread, names, notes, data.name, pooled
            ),
        )
        if private is not None:
            rows = np.zeros((n, m, width), np.float32)
            rows[np.arange(n), data.items] = customers
            self.release(data, rows.reshape(n, -1), choice, 1.0, private)
        super().__init__(horizon, m * width, m, m, fresh=True, theta=self.fit.coefficients)
        self.item_ids, self.repairs = data.item_ids, data.notes
        self.rows = np.column_stack([customers, data.items])
        self._shown = data.items
        self.set_today(data.clicked.astype(np.float64), data.people)
        self.rates = self._item_rates(data_of_items)
        self.doubts = (
            *_rate_doubt(self.rates),
            *propensity_doubt(1.0 / data.propensity, m, _ITEMS),
        )
        self.set_customers(data.name, customers, data.people, draws, part)
        self.check = self._held_out_value(data)

    def _item_rates(self, data: ItemBlocks) -> dict[str, Any]:
        """Return each item's mean fitted chance, and its observed rate with a 95% interval."""
        chance = data.chances(self.fit.coefficients)
        hit = data.choice >= 0
        rates: dict[str, Any] = {}
        for k, item in enumerate(self.item_ids):
            own = data.items == k
            count = int(own.sum())
            seen = float(hit[own].sum())
            if count:
                # Agresti and Coull: an interval for no response, too
                middle = (seen + 2.0) / (count + 4.0)
                half = 2.0 * float(np.sqrt(middle * (1.0 - middle) / (count + 4.0)))
                rates[str(item)] = (
                    float(chance[own].mean()), seen / count, max(0.0, middle - half), middle + half
                )  # fmt: skip
        return rates

    def log_values(self, thetas: Array, who: Array, shares: Array) -> Array:
        drawn = thetas.reshape(len(thetas), len(self.item_ids), -1)
        customers = self._contexts[who].astype(np.float64)
        items = self._shown[who]
        return np.array([logged_figures.shown_value(customers, own, items, w)
                         for own, w in zip(drawn, shares)])  # fmt: skip

    def action_values(self, actions: Array, thetas: Array, who: Array, shares: Array) -> Array:
        drawn = thetas.reshape(len(thetas), len(self.item_ids), -1)
        customers = self._contexts[who].astype(np.float64)
        return np.array([logged_figures.item_values(customers, own, actions, w)
                         for own, w in zip(drawn, shares)])  # fmt: skip

    def _held_out_value(self, data: ClickTable) -> dict[str, float]:
        """Return the value of the model's best recommendations by the model and by the log.

        The model is the one fitted without the held-out customers.
        """
        held = self.fit.held
        theta = self.fit.trained.reshape(len(self.item_ids), -1)
        utility = np.einsum("nw,mw->nm", self._contexts[held].astype(np.float64), theta)
        weight = (utility.argmax(axis=1) == data.items[held]) / data.propensity[held]
        figures = {
            "model": float(portable.each(kernels.elementary.sigmoid, utility.max(axis=1)).mean()),
            "log_rounds": float(np.count_nonzero(weight)),
        }
        if weight.any():
            value = float(np.sum(weight * data.clicked[held]) / np.sum(weight))
            spread = np.sqrt(np.sum((weight * (data.clicked[held] - value)) ** 2))
            figures |= {"log": value, "log_standard_error": float(spread / np.sum(weight))}
        return figures

    def draw_features(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        m = self.n_candidates
        width = self._contexts.shape[1]
        now = np.empty((len(out), width), np.float32)
        super().draw_features(rng, start, hidden, now)
        out[:] = 0.0
        for item in range(m):
            out[:, item, item * width : (item + 1) * width] = now

    def summary(self) -> dict[str, Any]:
        return self.fit_summary(
            items=self.item_ids.tolist(),
            coefficients=dict(zip(self.fit.names, self.fit.coefficients.tolist())),
            responses_in_the_log=self.today[0],
            rates_of_items=self.rates,
            held_out_responses_to_the_models_best=self.check,
        )
