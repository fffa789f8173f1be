"""Fitting a choice model to a log, with its quality on held-out customers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from dpb_gym import kernels, portable, validation
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.problems.base import Array
from dpb_gym.progress_lines import step
from dpb_gym.streams import Stream, generator

T = TypeVar("T")
Bounds = Mapping[str, tuple[float, float]]
FEWEST_ROWS = 50
_HELD_OUT = 5  # one customer in five, at random, is held out
TELLING = 0.98
"""Share of pairs (response, no response) that a feature orders right if it is a copy of the
response; the same, for held-out customers, of a model of separated data is `SEPARATED`."""
SEPARATED = 0.995
MOST_CLIPPED = 0.05
"""Largest share of a column that may lie outside its declared bounds."""
LARGEST_RIDGE = 1e6
_WIDEST = 1000.0  # times the range of the values that declared bounds may be wide
_FAR = 100.0  # times the range of all but the outermost hundredths, an outlier sets the scale


@dataclass(frozen=True, eq=False)
class Fit:
    """A multinomial logit fitted to a log.

    Attributes:
        coefficients: ``(d,)``, of the scaled features.
        names: d names.
        figures: ``rows``, ``held_out_rows``; mean log-likelihood of a held-out row under the
            model (fitted to the others) and under the null model (the shares of the others, or
            equal chances): ``held_out_log_likelihood``, ``held_out_null``; ``calibration``: per
            tenth of the predicted chances (predicted, observed, count).
        notes: Remarks, each a sentence.
        held: Mask of the held-out customers ``(n,)``.
        trained: Coefficients ``(d,)`` fitted to the others.
        chance: Probabilities of the held-out customers' rows by `trained`.
        chosen: Mask of the chosen rows ``(n_rows,)``.
        held_rows: Mask of the held-out customers' rows ``(n_rows,)``.
        information: Lower triangle of the Hessian of the negative log-likelihood ``(d, d)``.
        ridge: Weight of the penalty.
    """

    coefficients: Array
    names: tuple[str, ...]
    figures: dict[str, Any]
    notes: tuple[str, ...]
    held: Array
    trained: Array
    chance: Array
    chosen: Array
    held_rows: Array
    information: Array
    ridge: float

    @property
    def informed(self) -> bool:
        """Whether the model predicts held-out customers better than the null model."""
        return bool(self.figures["held_out_log_likelihood"] > self.figures["held_out_null"])

    def draws(self, count: int, scale: float = 1.0) -> Array:
        """Return draws of the coefficients from their approximate posterior ``(count, d)``.

        The posterior is normal around the coefficients with the inverse Hessian of the penalised
        likelihood as covariance (Laplace's approximation).

        Args:
            count: Number of draws; the first ones do not depend on it.
            scale: Factor of the information: that of a log of `scale` times the customers.
        """
        d = len(self.coefficients)
        lower, step = np.empty((1, d, d)), np.empty(d)
        kernels.linalg.cholesky(scale * self.information[None] + self.ridge * np.eye(d), lower)
        found = np.empty((count, d))
        for k in range(count):
            z = portable.normals(generator(k, Stream.HIDDEN), d)
            kernels.linalg.solve_upper_one(lower[0], z, step)
            found[k] = step
        return found + self.coefficients


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
    from scipy.stats import rankdata

    ranks, positive = rankdata(values), int(np.count_nonzero(hit))
    pairs = positive * (len(values) - positive)
    return float((ranks[hit].sum() - positive * (positive + 1) / 2) / pairs) if pairs else 0.5


def chosen_rows(starts: Array, choice: Array) -> Array:
    """Return the mask of the chosen rows ``(n_rows,)``; see `fit_mnl`."""
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
    hit, bought = chosen_rows(starts, choice), choice >= 0
    several = np.diff(starts).max() > 1
    for feature, column in zip(names, features.T):
        share = order_share(column, hit)
        if several:  # within sets: how often the choice has the largest or the smallest value
            ends = [np.maximum.reduceat(sign * column, starts[:-1]) for sign in (1.0, -1.0)]
            own = column[(starts[:-1] + choice)[bought]]
            varies = (ends[0] > -ends[1])[bought]
            first = [np.mean(s * own[varies] == e[bought][varies]) for s, e in zip((1, -1), ends)]
            alone = varies.mean() > 0.5 and float(max(first)) >= TELLING
            share = share if alone else 0.5
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


def fit_mnl(
    rows: Array, starts: Array, choice: Array, ridge: float, name: str,
    centre: Array | None = None, hessian: Array | None = None,
) -> Array:  # fmt: skip
    """Return theta that maximises sum_s log P(choice_s) - ridge / 2 ||theta - centre||^2.

    P is the multinomial logit over the rows of set s and the outside option of utility 0.

    Args:
        rows: float32 ``(n_rows, d)``.
        starts: Set s has the rows ``starts[s]:starts[s + 1]``.
        choice: Position in the set, -1 for the outside option.
        ridge: Weight of the penalty, positive.
        name: Name of the log, for error messages.
        centre: Centre of the penalty ``(d,)``; 0 by default.
        hessian: Output ``(1, d, d)``: see `Fit.information`.

    Raises:
        DataError: If the fit does not converge.
    """
    offered = np.diff(starts)
    n, d = len(offered), rows.shape[1]
    group = np.repeat(np.arange(n), offered)
    x = np.zeros((1, n, int(offered.max()), d), np.float32)
    x[0, group, np.arange(len(rows)) - starts[group]] = rows
    theta, norm = np.zeros((1, d)), np.zeros(1)
    precision = 1e-10 * n
    taken, shown = choice.astype(np.int32)[None], offered.astype(np.int32)[None]

    def losses(*arguments: Array) -> None:
        kernels.mnl.add_choices(x, shown, taken, np.zeros(1, np.int64), n, *arguments)

    kernels.newton.minimise(
        losses, np.ones(1, np.bool_), theta, norm,
        np.empty((1, d, d)) if hessian is None else hessian, ridge=ridge,
        linear=np.zeros((1, d)) if centre is None else -ridge * centre[None], precision=precision,
    )  # fmt: skip
    if not norm[0] <= 1e3 * precision:
        raise DataError(f"{name}: the fit of the choices stopped at gradient {norm[0]:.3g}")
    fitted: Array = theta[0]
    return fitted


def log_chances(rows: Array, starts: Array, theta: Array) -> tuple[Array, Array]:
    """Return log-probabilities of rows ``(n_rows,)`` and of the outside option ``(n_sets,)``."""
    utility = np.empty((1, len(rows)))
    kernels.mnl.utilities(rows[None], theta[None], utility)
    u, group = utility[0], np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    top = np.maximum(np.maximum.reduceat(u, starts[:-1]), 0.0)
    total = np.add.reduceat(np.exp(u - top[group]), starts[:-1]) + np.exp(-top)
    outside = -top - np.log(total)
    return u + outside[group], outside


def chances(rows: Array, starts: Array, theta: Array) -> Array:
    """Return probabilities of rows ``(n_rows,)``."""
    return portable.each(kernels.elementary.exp, log_chances(rows, starts, theta)[0])


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
    likelihood, null = float(chosen.sum()), -float(np.sum(np.log1p(np.diff(starts))))
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
    rows: Array, starts: Array, choice: Array, people: Array | None, ridge: float,
    names: tuple[str, ...], notes: Sequence[str], name: str, centre: Array | None = None,
) -> Fit:  # fmt: skip
    """Fit to all customers, and to all but the held-out ones to measure out-of-sample quality."""
    n, ridge = len(choice), validation.real("ridge", ridge, 0.0, LARGEST_RIDGE, open_low=True)
    least = max(FEWEST_ROWS, 10 * len(names))
    if n < least:
        raise DataError(
            f"{name}: {n} customers are too few for {len(names)} coefficients: give at least "
            f"{least}, or fewer features"
        )
    who = np.arange(n) if people is None else people
    held = (np.random.default_rng(0).permutation(int(who.max()) + 1) % _HELD_OUT == 0)[who]
    step(f"fitting to {int((~held).sum()):,} customers, to be checked on {int(held.sum()):,}")
    theta = fit_mnl(*_sets(rows, starts, choice, ~held), ridge, name, centre)
    kept, begin, taken = _sets(rows, starts, choice, held)
    inside, outside = log_chances(kept, begin, theta)
    sizes = np.diff(begin)
    own = np.where(taken < 0, outside, inside[np.maximum(begin[:-1] + taken, 0)])
    share = float(np.mean(choice[~held] >= 0))
    null = np.where(taken < 0, 1.0 - share, share / sizes)
    hit = chosen_rows(begin, taken)
    if hit.sum() >= 5 and order_share(inside, hit) >= SEPARATED:
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
    figures: dict[str, Any] = {
        "rows": n,
        "held_out_rows": int(held.sum()),
        "held_out_log_likelihood": float(own.mean()),
        "held_out_null": float(np.mean(np.log(np.maximum(null, 1e-300)))),
        "calibration": calibration,
    }
    remarks = list(notes)
    if figures["held_out_log_likelihood"] <= figures["held_out_null"]:
        remarks.append("on held-out customers the model predicts no better than the mean")
    step(f"fitting to all {n:,} customers")
    hessian = np.zeros((1, len(names), len(names)))
    fitted = fit_mnl(rows, starts, choice, ridge, name, centre, hessian)
    return Fit(
        fitted, names, figures, tuple(remarks), held, theta, np.exp(inside),
        chosen_rows(starts, choice), np.repeat(held, np.diff(starts)), hessian[0], ridge,
    )  # fmt: skip


def _sets(rows: Array, starts: Array, choice: Array, kept: Array) -> tuple[Array, Array, Array]:
    sizes = np.diff(starts)
    begin = np.append(0, np.cumsum(sizes[kept])).astype(np.int64)
    return rows[np.repeat(kept, sizes)], begin, choice[kept]


def scale(
    features: Array, names: Sequence[str], bounds: Bounds | None, name: str
) -> tuple[Array, dict[str, tuple[float, float]], list[str]]:
    """Scale features to [-1, 1], by public bounds where they are declared.

    Args:
        features: ``(n, k)``.
        names: k names.
        bounds: Lowest and highest value by name, or None; values outside are clipped.
        name: Name of the log, for error messages.

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
    step("scaling the features")
    scaled, read, used = np.empty(features.shape, np.float32), [], {}
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
        scaled[:, k] = np.clip(2.0 * (column - low) / (high - low) - 1.0, -1.0, 1.0)
    if read:
        notes.append(
            f"the bounds of {', '.join(read)} were read off the log, which no guarantee covers: "
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
