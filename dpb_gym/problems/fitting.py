"""Fitting a choice model to a log, with its quality on held-out customers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from dpb_gym import kernels, portable, validation
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.problems.base import Array
from dpb_gym.problems.log_likelihood import ChoiceSets, ItemBlocks, log_chances
from dpb_gym.problems.separation import separation
from dpb_gym.progress_lines import step
from dpb_gym.streams import Stream, generator

T = TypeVar("T")
Bounds = Mapping[str, tuple[float, float]]
Likelihood = ChoiceSets | ItemBlocks
FEWEST_ROWS = 50
_FOLDS = 5  # parts of the customers, of which the first is held out
_TOLD = 10  # held-out responses of each kind that a judgement of separation needs
RIDGES = tuple(10.0**k for k in range(-2, 5))
"""Weights of the squared standardised coefficients, from which the penalty is chosen."""
FREE = 1e-6
"""Weight of all squared standardised coefficients, which makes every fit exist."""
CHANCE = 0.001
"""Separated groups are rejected if so many equal responses are rarer than this."""
_POSSIBLE = 0.02  # relative likelihood of the least likely penalty that is considered
_MANY = 50_000  # customers per coefficient, from which on no penalty of `RIDGES` has an effect
_GOLDEN = 0.6180339887498949
_FIT_NUMBERS = 50_000_000  # numbers that one step of a fit may read where the penalty is chosen
_FIT_ROWS = 50_000  # and customers, of which one coefficient needs no more (see _MANY)
TWO_SIDED = 1.959963984540054
"""Standard errors from a normal estimate to an end of its 95% interval."""
TELLING = 0.98
"""Share of pairs (response, no response) that a feature orders right if it is a copy of the
response; the same, for held-out customers, of a model of separated data is `SEPARATED`."""
SEPARATED = 0.995
MOST_CLIPPED = 0.05
"""Largest share of a column that may lie outside its declared bounds."""
LARGEST_RIDGE = 1e6
_WIDEST = 1000.0  # times the range of the values that declared bounds may be wide
_TAIL = 100.0  # times the range of the middle half of a column that its range may be
_FAR = 100.0  # times the range of all but the outermost hundredths, an outlier sets the scale


@dataclass(frozen=True)
class Effect:
    """A figure of a fit, such as an elasticity, beside that of the fit without a penalty.

    Attributes:
        value: The figure.
        error: Its standard error.
        plain: The figure by maximum likelihood, or None if that does not exist.
        plain_error: Its standard error.
        sampling: Standard error of the figure if the coefficients were known: it is a mean over
            the customers of the log, and others would have another mean.
    """

    value: float
    error: float
    plain: float | None
    plain_error: float | None
    sampling: float = 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the figure."""
        half = TWO_SIDED * float(np.hypot(self.error, self.sampling))
        return self.value - half, self.value + half

    @property
    def plain_interval(self) -> tuple[float, float] | None:
        """The 95% interval of the figure by maximum likelihood."""
        if self.plain is None or self.plain_error is None:
            return None
        half = TWO_SIDED * float(np.hypot(self.plain_error, self.sampling))
        return self.plain - half, self.plain + half

    @property
    def moved(self) -> bool:
        """Whether the penalty moves the figure by more than one standard error."""
        if self.plain is None or self.plain_error is None:
            return False
        return abs(self.value - self.plain) > self.plain_error


@dataclass(frozen=True, eq=False)
class Member:
    """A fit with one of the possible penalties.

    Attributes:
        weight: Likelihood of customers that a fit with the penalty was not fitted to, relative to
            the largest one (pseudo-Bayesian model averaging, Geisser & Eddy 1979).
        coefficients: ``(d,)``.
        information: See `Fit`.
        penalty: See `Fit`.
    """

    weight: float
    coefficients: Array
    information: Array
    penalty: Array


@dataclass(frozen=True, eq=False)
class Fit:
    """A choice model fitted to a log.

    Attributes:
        coefficients: ``(d,)``, of the scaled features.
        names: d names.
        figures: ``rows``, ``held_out_rows``; mean log-likelihood of a held-out row under the
            model (fitted to the others) and under the null model (the shares of the others, or
            equal chances): ``held_out_log_likelihood``, ``held_out_null``; ``penalty``, the weight
            of squared standardised coefficients; ``calibration``: per tenth of the predicted
            chances (predicted, observed, count).
        notes: Remarks, each a sentence.
        doubts: Doubts about the estimates, each a sentence.
        held: Mask of the held-out customers ``(n,)``.
        trained: Coefficients ``(d,)`` fitted to the others.
        chance: Probabilities of the held-out customers' rows by `trained`.
        chosen: Mask of the chosen rows ``(n_rows,)``.
        held_rows: Mask of the held-out customers' rows ``(n_rows,)``.
        information: Lower triangle of the Hessian of the negative log-likelihood ``(d, d)``.
        penalty: Weight of each squared coefficient ``(d,)``.
        members: Fits with the possible penalties.
        variation: Covariance of the score where persons have several rows ``(d, d)``; None: that
            of independent rows, the information.
        plain: Coefficients without a penalty ``(d,)``, or None if they do not exist.
        plain_information: `information` at `plain`.
        plain_variation: `variation` at `plain`.
    """

    coefficients: Array
    names: tuple[str, ...]
    figures: dict[str, Any]
    notes: tuple[str, ...]
    doubts: tuple[str, ...]
    held: Array
    trained: Array
    chance: Array
    chosen: Array
    held_rows: Array
    information: Array
    penalty: Array
    members: tuple[Member, ...]
    variation: Array | None = None
    plain: Array | None = None
    plain_information: Array | None = None
    plain_variation: Array | None = None

    @property
    def informed(self) -> bool:
        """Whether the model predicts held-out customers better than the null model."""
        return bool(self.figures["held_out_log_likelihood"] > self.figures["held_out_null"])

    def draws(self, count: int, scale: float = 1.0) -> Array:
        """Return draws of the coefficients from their approximate posterior ``(count, d)``.

        The posterior is a mixture over penalties (`members`), each normal around its coefficients
        (Laplace's approximation). The covariance is the inverse Hessian of the penalised
        likelihood, or the sandwich estimate over persons where they have several rows (Liang &
        Zeger 1986).

        Args:
            count: Number of draws; the first ones do not depend on it.
            scale: Factor of the information: that of a log of `scale` times the customers.
        """
        d = len(self.coefficients)
        lowers = []
        for one in self.members:
            lower = np.zeros((1, d, d))
            precision = scale * one.information + np.diag(one.penalty)
            kernels.linalg.cholesky(precision[None], lower)
            lowers.append(lower[0])
        spread = np.zeros((1, d, d))
        if self.variation is not None:
            # persons fewer than coefficients leave directions without variation
            least = 1e-9 * np.diag(np.maximum(self.information.diagonal(), self.penalty))
            kernels.linalg.cholesky((scale * self.variation + least)[None], spread)
        shares = np.cumsum([one.weight for one in self.members])
        draws = np.empty((count, d))
        half = np.empty(d)
        for k in range(count):
            # multiples of the golden ratio are spread evenly, however many there are
            place = int(np.searchsorted(shares, (0.5 + k) * _GOLDEN % 1.0 * shares[-1]))
            z = portable.normals(generator(k, Stream.HIDDEN), d)
            if self.variation is None:
                kernels.linalg.solve_upper_one(lowers[place], z, half)
            else:
                mixed = np.array([kernels.linalg.dot_one(row, z) for row in spread[0]])
                kernels.linalg.solve_cholesky_one(lowers[place], mixed, half)
            draws[k] = half + self.members[place].coefficients
        return draws

    def effects(
        self, measure: Callable[[Array], Array], sampling: Array | None = None
    ) -> list[Effect]:
        """Return figures of the coefficients with standard errors by the delta method.

        Args:
            measure: Function of the coefficients ``(d,)`` that returns k figures.
            sampling: `Effect.sampling` of the figures ``(k,)``; 0 by default.
        """
        values = measure(self.coefficients)
        own = np.zeros_like(values) if sampling is None else sampling
        squares = np.zeros_like(values)
        for one in self.members:
            covariance = _covariance(one.information, one.penalty, self.variation)
            there, error = _delta(measure, one.coefficients, covariance)
            squares += one.weight * (error**2 + (there - values) ** 2)
        errors = np.sqrt(squares / sum(one.weight for one in self.members))
        if self.plain is None or self.plain_information is None:
            return [
                Effect(float(v), float(e), None, None, float(s))
                for v, e, s in zip(values, errors, own)
            ]
        free = np.zeros_like(self.penalty)
        other = _covariance(self.plain_information, free, self.plain_variation)
        plain, plain_errors = _delta(measure, self.plain, other)
        columns = (values, errors, plain, plain_errors, own)
        return [Effect(*map(float, row)) for row in zip(*columns)]


def _covariance(information: Array, penalty: Array, variation: Array | None) -> Array:
    """Return the covariance of an estimate, see `Fit.draws`; infinite variances become large."""
    lower = np.tril(information)
    precision = lower + np.tril(lower, -1).T + np.diag(penalty)
    inverse: Array = np.linalg.pinv(precision, rcond=1e-13, hermitian=True)
    return inverse if variation is None else inverse @ variation @ inverse


def _delta(
    measure: Callable[[Array], Array], theta: Array, covariance: Array
) -> tuple[Array, Array]:
    """Return figures and their standard errors ``(k,)``; derivatives are central differences."""
    steps = 0.01 * np.sqrt(np.maximum(covariance.diagonal(), 1e-30))
    slopes = []
    for k, step_ in enumerate(steps):
        move = np.zeros_like(theta)
        move[k] = step_
        slopes.append((measure(theta + move) - measure(theta - move)) / (2.0 * step_))
    gradient = np.array(slopes)
    variances = np.einsum("dk,de,ek->k", gradient, covariance, gradient)
    return measure(theta), np.sqrt(np.maximum(variances, 0.0))


class Cached(Generic[T]):
    """A factory in an LRU cache; it raises ParameterError for invalid arguments.

    It is pickled as its factory, so that environments of logs reach other processes.

    Args:
        make: The factory.
    """

    def __init__(self, make: Callable[..., T]) -> None:
        functools.update_wrapper(self, make, updated=())
        self._make = make
        self._signature = inspect.signature(make)
        self._cache = functools.lru_cache(maxsize=8, typed=True)(make)  # typed: 1 is not True

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        """Return what the factory makes, or has made of the same arguments recently.

        Raises:
            ParameterError: If an argument is unknown, missing or unhashable.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ParameterError(f"{self._make.__name__}: {error}") from None
        bound.apply_defaults()
        try:
            return self._cache(*bound.args, **bound.kwargs)
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            raise ParameterError(f"{error} as a parameter") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return Cached, (self._make,)


def check_varies(taken: Array, did: str, name: str) -> None:
    """Raise `DataError` for a log in which all responses are the same."""
    if taken.min() == taken.max():
        who = "every customer" if taken[0] else "no customer"
        raise DataError(f"{name}: {who} {did}: there is no variation to learn from")


def order_share(values: Array, hit: Array) -> float:
    """Return the share of pairs (hit, no hit) in which the hit has the larger value (AUC)."""
    positive = int(np.count_nonzero(hit))
    pairs = positive * (len(values) - positive)
    if not pairs:
        return 0.5
    # mean ranks of equal values; importing scipy.stats takes longer than a fit
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - 0.5 * (counts - 1)
    total = float(ranks[place.ravel()[hit]].sum())
    return (total - positive * (positive + 1) / 2) / pairs


def chosen_rows(starts: Array, choice: Array) -> Array:
    """Return the mask of the chosen rows ``(n_rows,)``; see `ChoiceSets`."""
    chosen = np.zeros(starts[-1], np.bool_)
    chosen[(starts[:-1] + choice)[choice >= 0]] = True
    return chosen


def check_features(features: Array, names: Sequence[str], starts: Array, choice: Array,
                   name: str) -> None:  # fmt: skip
    """Raise `DataError` for a feature that is a copy of the response, or separates the data.

    Args:
        features: ``(n_rows, k)``.
        names: k names.
        starts: Set s has the rows ``starts[s]:starts[s + 1]``.
        choice: Position in the set, -1 for none of them ``(n_sets,)``.
        name: Name of the log, for error messages.
    """
    if len(choice) < FEWEST_ROWS:
        return  # too few to judge, and `fit_log` rejects them
    hit = chosen_rows(starts, choice)
    bought = choice >= 0
    several = np.diff(starts).max() > 1
    for feature, column in zip(names, features.T):
        share = order_share(column, hit)
        if several:  # within sets: how often the choice has the largest or the smallest value
            ends = [np.maximum.reduceat(sign * column, starts[:-1]) for sign in (1.0, -1.0)]
            own = column[(starts[:-1] + choice)[bought]]
            varies = (ends[0] > -ends[1])[bought]
            if varies.mean() <= 0.5:
                continue
            first = [np.mean(s * own[varies] == e[bought][varies]) for s, e in zip((1, -1), ends)]
            share = share if float(max(first)) >= TELLING else 0.5
        if max(share, 1.0 - share) < TELLING:
            continue
        if feature == "price":
            raise DataError(
                f"{name}: one price separates purchases from refusals: demand between cannot be "
                "estimated. Was the price changed after the purchase?"
            )
        raise DataError(
            f"{name}: {feature} tells the response of nearly every customer: it is a copy of it, "
            "or was recorded after it. Leave it out: name the others in features="
        )


def choice_figures(rows: Array, starts: Array, choice: Array, theta: Array) -> dict[str, Any]:
    """Return figures of the fit; see `dpb_gym.problems.expedia.ExpediaProblem.summary`."""
    inside, outside = log_chances(rows, starts, theta)
    search = np.repeat(np.arange(len(choice)), np.diff(starts))
    bought = choice >= 0
    chosen = np.where(bought, inside[starts[:-1] + np.maximum(choice, 0)], outside)
    # Pairs of the choice and another alternative; one half where they tie.
    others = np.arange(len(rows)) - starts[search] != choice[search]
    hotels = others & bought[search]
    right = (chosen[search] > inside) + 0.5 * (chosen[search] == inside)
    none = ((chosen > outside) + 0.5 * (chosen == outside))[bought]
    likelihood = float(chosen.sum())
    null = -float(np.sum(np.log1p(np.diff(starts))))
    quartiles = np.quantile(inside - outside[search], (0.0, 0.25, 0.5, 0.75, 1.0))
    return {
        "log_likelihood": likelihood,
        "null_log_likelihood": null,
        "pseudo_r2": 1.0 - likelihood / null,
        "correctly_ranked": float(right[hotels].mean()) if hotels.any() else None,
        "correctly_ranked_with_outside": float(np.append(right[others], none).mean()),
        "chosen_share": float(bought.mean()),
        "chosen_share_fitted": float(np.mean(1.0 - np.exp(outside))),
        "utility_quartiles": quartiles.tolist(),
    }


def fit_log(
    data: Likelihood, people: Array | None, ridge: float | None, spread: Array,
    names: tuple[str, ...], notes: Sequence[str], name: str,
    centre: Callable[[Any], Array] | None = None,
) -> Fit:  # fmt: skip
    """Fit to all customers, and to all but the held-out ones to measure out-of-sample quality.

    Args:
        data: The responses.
        people: Person of each customer ``(n,)``, or None.
        ridge: Weight of the squared standardised coefficients; None: the one of `RIDGES` with the
            best likelihood of customers that it was not fitted to, without the held-out ones.
        spread: Standard deviation of each coefficient's column, 0 for coefficients without a
            penalty, such as those of the price and of constants ``(d,)``.
        names: d names.
        notes: Remarks on the log.
        name: Name of the log.
        centre: Function of the responses that returns the centre of the penalty ``(d,)``;
            maximum likelihood is then not compared. None: the centre is 0.

    Raises:
        DataError: If there are too few customers, or the data are separated.
    """
    n = len(data)
    if ridge is not None:
        ridge = validation.real("ridge", ridge, 0.0, LARGEST_RIDGE, open_low=True)
    least = max(FEWEST_ROWS, 10 * len(names))
    if n < least:
        raise DataError(
            f"{name}: {n} customers are too few for {len(names)} coefficients: give at least "
            f"{least}, or fewer features"
        )
    who = np.arange(n) if people is None else people
    fold = _folds(who)
    held = fold == 0
    others = data.keep(~held)
    rest = data.keep(held)
    step(f"fitting to {int((~held).sum()):,} customers, to be checked on {int(held.sum()):,}")
    free = FREE * data.sizes**2
    possible = {ridge or 0.0: 1.0}
    if ridge is None and spread.any() and n <= _MANY * len(names):
        possible = _weigh_ridges(others, fold[~held], spread, free, name, centre)
    ridge = max(possible, key=lambda one: possible[one])
    penalty = ridge * spread**2 + free
    theta, _ = others.fit(penalty, name, None if centre is None else centre(others))
    inside, _ = rest.log_chances(theta)
    log_likelihood, null, calibration = _quality(others, rest, theta, inside, name)
    figures: dict[str, Any] = {
        "rows": n,
        "held_out_rows": int(held.sum()),
        "held_out_log_likelihood": log_likelihood,
        "held_out_null": null,
        "penalty": ridge,
        "calibration": calibration,
    }
    remarks = list(notes)
    if log_likelihood <= null:
        remarks.append("on held-out customers the model predicts no better than the mean")
    step(f"fitting to all {n:,} customers")
    middle = None if centre is None else centre(data)
    members = _members(data, possible, spread, free, name, middle)
    best = max(members, key=lambda member: member.weight)
    repeated = people is not None and np.bincount(people).max() > 1
    fit = Fit(
        best.coefficients, names, figures, tuple(remarks), (), held, theta, np.exp(inside),
        chosen_rows(data.starts, data.choice), np.repeat(held, np.diff(data.starts)),
        best.information, penalty, tuple(members),
        data.variation(best.coefficients, who) if repeated else None,
    )  # fmt: skip
    if centre is not None or not isinstance(data, ChoiceSets):
        return fit
    return _compared(fit, data, who if repeated else None, free, name)


def _folds(who: Array) -> Array:
    """Return a fold for each customer ``(n,)``; all customers of a person are in one fold."""
    rng = np.random.default_rng(0)
    if who.max() < _FOLDS:  # too few persons to hold some of them out
        return rng.permutation(len(who)) % _FOLDS
    folds: Array = (rng.permutation(int(who.max()) + 1) % _FOLDS)[who]
    return folds


def _quality(
    others: Likelihood, rest: Likelihood, theta: Array, inside: Array, name: str
) -> tuple[float, float, list[tuple[float, float, int]]]:
    """Return how well theta, fitted to some customers, predicts the responses of the rest.

    Args:
        others: The responses that theta was fitted to.
        rest: The other ones.
        theta: Coefficients.
        inside: Log probabilities of the rest's rows.
        name: Name of the log.

    Returns:
        The mean log likelihood, that of the mean response, and for tenths of the rows by
        probability the mean probability, the share of responses and the number of rows.

    Raises:
        DataError: If the features determine all responses.
    """
    share = float(np.mean(others.choice >= 0))
    null = np.where(rest.choice < 0, 1.0 - share, share / np.diff(rest.starts))
    hit = chosen_rows(rest.starts, rest.choice)
    if min(hit.sum(), len(hit) - hit.sum()) >= _TOLD and order_share(inside, hit) >= SEPARATED:
        raise DataError(
            f"{name}: the features tell the response of every held-out customer: the data are "
            "separated, and no model of demand can be fitted. Leave out what was recorded after "
            "the response"
        )
    order = np.argsort(inside, kind="stable")
    calibration = [
        (round(float(np.exp(inside[part]).mean()), 4), round(float(hit[part].mean()), 4), len(part))
        for part in np.array_split(order, 10)
        if len(part)
    ]
    mean_null = float(np.mean(np.log(np.maximum(null, 1e-300))))
    return float(rest.likelihoods(theta).mean()), mean_null, calibration


def _members(
    data: Likelihood, possible: Mapping[float, float], spread: Array, free: Array, name: str,
    centre: Array | None,
) -> list[Member]:  # fmt: skip
    """Return the fit to all customers for each possible ridge, from the largest one on."""
    members = []
    start = centre
    for ridge, weight in sorted(possible.items(), reverse=True):
        penalty = ridge * spread**2 + free
        # a fit starts at that of the next larger ridge, which is near it
        start, information = data.fit(penalty, name, centre, start)
        members.append(Member(weight, start, information, penalty))
    return members


def _weigh_ridges(
    data: Likelihood, fold: Array, spread: Array, free: Array, name: str,
    centre: Callable[[Any], Array] | None,
) -> dict[float, float]:  # fmt: skip
    """Return the possible penalties of `RIDGES` with their likelihood relative to the best one.

    The likelihood is that of customers of other folds. Many customers are thinned out, since the
    best penalty does not depend on their number.
    """
    most = max(2_000, 10 * len(spread), min(_FIT_ROWS, _FIT_NUMBERS // data.width))
    if len(data) > most:
        some = np.zeros(len(data), np.bool_)
        some[np.random.default_rng(1).permutation(len(data))[:most]] = True
        data = data.keep(some)
        fold = fold[some]
    total = np.zeros(len(RIDGES))
    for part in np.unique(fold):
        here = data.keep(fold != part)
        there = data.keep(fold == part)
        middle = None if centre is None else centre(here)
        theta = middle
        for k, ridge in reversed(list(enumerate(RIDGES))):  # from the smoothest, as starting point
            theta, _ = here.fit(ridge * spread**2 + free, name, middle, theta)
            total[k] += there.likelihoods(theta).sum()
    weights = np.exp(total - total.max())
    return {ridge: float(weight) for ridge, weight in zip(RIDGES, weights) if weight >= _POSSIBLE}


def _compared(fit: Fit, data: ChoiceSets, people: Array | None, free: Array, name: str) -> Fit:
    """Return the fit with its unpenalised version, and with a doubt about small separated groups.

    Raises:
        DataError: If groups are separated that are too large to be so by chance.
    """
    step("comparing with maximum likelihood")
    loose, _ = data.fit(1e3 * free, name, None, fit.coefficients)
    plain, information = data.fit(free, name, None, loose)
    separated = separation(data, plain - loose, fit.names)
    if separated is None:
        variation = None if people is None else data.variation(plain, people)
        return replace(fit, plain=plain, plain_information=information, plain_variation=variation)
    if separated.chance < CHANCE:
        raise DataError(
            f"{name}: {separated.text}: the data are separated, and their demand cannot be "
            "estimated. Leave out these rows, merge the group with another, or leave out what was "
            "recorded after the response: features= names the columns to use"
        )
    doubt = f"separated: {separated.text}; their demand is a guess: merge them with another group"
    return replace(fit, doubts=(*fit.doubts, doubt))


def scale(
    features: Array,
    names: Sequence[str],
    bounds: Bounds | None,
    name: str,
    log_scale: Sequence[str] = (),
) -> tuple[Array, dict[str, tuple[float, float]], list[str]]:
    """Scale features to [-1, 1], by public bounds where they are declared.

    Args:
        features: ``(n, k)``.
        names: k names.
        bounds: Lowest and highest value by name, or None; values outside are clipped.
        name: Name of the log, for error messages.
        log_scale: Names of features whose log(1 + value) is scaled; not the price's.

    Returns:
        Scaled features ``(n, k)``, the bounds used, and notes.

    Raises:
        ParameterError: If a bound is unknown or no interval, or does not hold the values.
        DataError: If a value is so far from the others that it sets the scale.
    """
    bounds = {key: validation.span(f"bounds of {key}", b) for key, b in dict(bounds or {}).items()}
    unknown = set(bounds) - set(names)
    if unknown:
        raise ParameterError(f"bounds of {sorted(unknown)}: the features are {', '.join(names)}")
    chosen = tuple(name for name in names if name != "price" and "=" not in name)
    wanted = [validation.choice("log_scale", feature, chosen) for feature in log_scale]
    step("scaling the features")
    scaled = np.empty(features.shape, np.float32)
    read = []
    used = {}
    notes: list[str] = []
    for k, feature in enumerate(names):
        column = features[:, k]
        levels = "=" in feature
        low, high = bounds.get(feature, (0.0, 1.0) if levels else (column.min(), column.max()))
        if not (np.isfinite([low, high]).all() and low < high):
            raise ParameterError(
                f"{name}: {feature} lies in [{low:g}, {high:g}], which is no interval: leave out "
                "what never varies, and declare bounds as (lowest, highest)"
            )
        if feature not in bounds and not levels:
            read.append(feature)
            check_outliers(column, feature, name)
            if feature not in wanted:
                check_tail(column, feature, name)
        if high - low > _WIDEST * (column.max() - column.min()) and not levels:
            raise ParameterError(
                f"bounds of {feature}: ({low:g}, {high:g}) is over {_WIDEST:,.0f} times as wide as "
                f"the values, which are from {column.min():g} to {column.max():g}"
            )
        clipped = float(np.mean((column < low) | (column > high)))
        if clipped > MOST_CLIPPED:
            raise ParameterError(
                f"bounds of {feature}: {clipped:.0%} of the values lie outside ({low:g}, {high:g}) "
                f"and would be clipped; they are from {column.min():g} to {column.max():g}"
            )
        if clipped:
            notes.append(f"{feature}: {clipped:.2%} of the values are clipped to the bounds")
        used[feature] = (float(low), float(high))
        if feature in wanted:
            if min(low, column.min()) < 0.0:
                raise ParameterError(f"log_scale: {feature} has negative values or bounds")
            column = np.log1p(column)
            low = np.log1p(low)
            high = np.log1p(high)
            notes.append(f"{feature}: read on a logarithmic scale, log(1 + value)")
        scaled[:, k] = np.clip(2.0 * (column - low) / (high - low) - 1.0, -1.0, 1.0)
    if read:
        notes.append(
            f"the bounds of {', '.join(read)} were read off the table, which no guarantee covers: "
            "declare bounds={name: (lowest, highest)}"
        )
    return scaled, used, notes


def check_outliers(column: Array, feature: str, name: str) -> None:
    """Raise `DataError` if single values are so large that all others have nearly one value."""
    low = float(np.quantile(column, 0.01, method="higher"))
    high = float(np.quantile(column, 0.99, method="lower"))
    far = max(float(column.max()) - high, low - float(column.min()))
    if high > low and far > _FAR * (high - low):
        odd = float(column.max() if column.max() - high == far else column.min())
        raise DataError(
            f"{name}: {feature} is {odd:.4g} in some row, and from {low:.4g} to {high:.4g} in 98% "
            f"of them: correct it, or declare bounds={{{feature!r}: (lowest, highest)}}"
        )


def check_tail(column: Array, feature: str, name: str) -> None:
    """Raise `DataError` if a column's range is so long that its bulk has nearly one value.

    The range is compared with that of the middle half of the values, without the most frequent
    value where that is more than half of them.
    """
    values, counts = np.unique(column, return_counts=True)
    if 2 * counts.max() > len(column) and len(values) > 2:
        column = column[column != values[counts.argmax()]]
    low, middle, high = np.quantile(column, (0.25, 0.5, 0.75))
    if high > low and column.max() - column.min() > _TAIL * (high - low):
        if feature == "price":
            what = (
                "one demand curve cannot hold for such prices: give a table per product, or the "
                "price relative to a usual one"
            )
        else:
            what = f"give log_scale=[{feature!r}], or bounds={{{feature!r}: (lowest, highest)}}"
        raise DataError(
            f"{name}: {feature} is from {column.min():.4g} to {column.max():,.0f} with a median of "
            f"{middle:.4g}, so its largest values alone set the scale: {what}"
        )
