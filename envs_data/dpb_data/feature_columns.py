"""Which columns of a table become features of a model."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from dpb_data.column_profiles import Profile, decides, is_id_name
from dpb_data.column_reader import Array
from dpb_data.rating_table import MAX_LEVELS

EVENTS_EACH = 10
"""Rarer outcomes for each coefficient, the rule of Peduzzi et al. (1996) for logistic models."""
_UNIX = 1e8
_FEWEST = 50  # rows that show that one column follows from another
_EACH = 10  # rows of each response
_RECURS = 5  # rows per price, from which on a column that is the same at each price is no chance
_CHANCE = 0.001  # of equal responses, below which they are no chance
_SAME = 0.999  # correlation with units or revenue, which reports may round
_LINE = 0.9999  # correlation with the price
_DENSE = 10  # numbers of rows are within a range of so many times their number


def select_features(
    profiles: Mapping[str, Profile],
    names: Sequence[str],
    events: int,
    models: int = 1,
    sets: Array | None = None,
    ids: Collection[str] = (),
) -> tuple[list[str], dict[str, str]]:
    """Return the columns that are features, and the reason for each column that is not.

    The choice does not depend on the order of rows or columns, nor on names but those of ids.

    Args:
        profiles: Values of the columns.
        names: Columns without a role.
        events: Number of rarer outcomes.
        models: Number of models that each have a coefficient per feature.
        sets: Number of each row's choice set ``(n,)``, for tables with a row per alternative.
        ids: Columns that number persons or things.
    """
    unused = {name: why for name in names if (why := _useless(profiles[name], sets, ids))}
    sizes = {
        name: profiles[name].distinct - 1 if profiles[name].text else 1
        for name in names
        if name not in unused
    }
    total = 1
    features = set[str]()
    # Columns that vary most come first. The order of the file does not count.
    for name in sorted(sizes, key=lambda name: (sizes[name], *_order(profiles[name]))):
        if EVENTS_EACH * models * (total + sizes[name]) > events:
            unused[name] = f"{events:,} responses are too few for more coefficients"
            continue
        total += sizes[name]
        features.add(name)
    return [name for name in names if name in features], {
        name: unused[name] for name in names if name in unused
    }


def follow(
    profiles: Mapping[str, Profile],
    names: Sequence[str],
    response: Array,
    cause: Profile | None,
    what: str = "price",
    customers: Array | float = 1.0,
) -> dict[str, str]:
    """Return the columns that follow from the response or from its cause, each with the reason.

    Such a column has no effect of its own: the revenue of a purchase is known after it, and the
    name of a variant with one price says no more than this price.

    Args:
        profiles: Values of the columns.
        names: Columns without a role.
        response: Purchases or other responses ``(n,)``, 0 for none.
        cause: The price, or the item that was shown.
        what: What the cause is called.
        customers: Customers of each row ``(n,)``, where the response counts units.
    """
    hit = response > 0
    reasons = {}
    for name in names:
        own = profiles[name]
        if _with_response(own, hit):
            reasons[name] = "it has a value only with one response: it was recorded after it"
        elif cause is not None and _is_product(own, cause, response, customers):
            reasons[name] = "units, revenue or a rate of them"
        elif cause is not None and _same_at_each(own, cause):
            reasons[name] = f"the same at each {what}, from whose effect its own cannot be told"
    return reasons


def decided(profiles: Mapping[str, Profile], names: Sequence[str], response: Array) -> list[str]:
    """Return the columns of 0 and 1 of which one value has only one kind of response.

    A column such as ``add_to_cart`` was perhaps recorded after the price was seen.

    Args:
        profiles: Values of the columns.
        names: Columns without a role.
        response: 0 or 1 ``(n,)``.
    """
    hit = response > 0
    rate = float(hit.mean()) if len(hit) else 0.0
    flags = []
    for name in names:
        own = profiles[name]
        if not own.binary or own.missing.any():
            continue
        for value in (0.0, 1.0):
            there = own.values == value
            none = not (hit & there).any() and (1.0 - rate) ** there.sum() < _CHANCE
            every = (hit | ~there).all() and rate ** there.sum() < _CHANCE
            if none or every:
                flags.append(name)
                break
    return flags


def _with_response(own: Profile, hit: Array) -> bool:
    """Return whether a column is there, and not 0, in just the rows with one kind of response."""
    if len(hit) < _FEWEST or min(hit.sum(), len(hit) - hit.sum()) < _EACH:
        return False
    there = ~own.missing
    if not own.text:
        there &= own.values != 0.0
    return bool((there == hit).all() or (there != hit).all())


def _is_product(
    own: Profile, price: Profile, units: Array, customers: Array | float
) -> bool:  # fmt: skip
    """Return whether a column is proportional to units or revenue, of all or per customer."""
    if own.text or price.text or units.max(initial=0.0) <= 1.0:
        return False
    known = np.isfinite(own.values) & np.isfinite(price.values) & (units > 0)
    if known.sum() < _FEWEST or len(np.unique(units[known])) < 2:
        return False
    value = own.values[known]
    sold = units[known]
    if value.std() == 0.0:
        return False
    each = np.maximum((np.zeros(len(units)) + customers)[known], 1.0)
    made = [part * by for part in (sold, sold / each) for by in (1.0, price.values[known])]
    return any(np.corrcoef(value, other)[0, 1] > _SAME for other in made if other.std() > 0.0)


def _same_at_each(own: Profile, cause: Profile) -> bool:
    """Return whether a column is a function of the price or item, where these recur, or a line."""
    there = ~(own.missing | cause.missing)
    if there.sum() < _FEWEST or own.distinct < 2 or cause.distinct < 2:
        return False
    codes = cause.codes()[there]
    values = own.codes()[there]
    if _RECURS * len(np.unique(codes)) <= len(codes) and decides(codes, values):
        return True
    if own.text or cause.text:
        return False
    x = own.values[there]
    y = cause.values[there]
    return bool(x.std() > 0.0 and y.std() > 0.0 and abs(np.corrcoef(x, y)[0, 1]) > _LINE)


def _order(profile: Profile) -> tuple[int, str]:
    """Return how often the most frequent value comes, and a digest of all values."""
    distinct, counts = profile.counted
    values = np.repeat(distinct, counts)
    most = int(counts.max())
    return most, hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def _useless(profile: Profile, sets: Array | None, ids: Collection[str]) -> str:
    """Return why a column is no feature, or an empty text."""
    known = profile.known
    n = len(profile.values)
    if profile.dates:
        return "dates, which do not recur; features= takes them"
    if len(known) < 0.8 * n:
        return "more than a fifth is missing"
    if profile.distinct < 2:
        return "a single value"
    if profile.name in ids:
        return "numbers of persons or things"
    if profile.text and profile.distinct > MAX_LEVELS:
        return f"text with {profile.distinct} values"
    if profile.whole and profile.distinct == n:
        dense = known.max() - known.min() <= _DENSE * n
        if dense or is_id_name(profile.name):
            return "a number of its own in every row"
    if not profile.text and np.median(known) > _UNIX:
        return "Unix times"
    if sets is not None and len(known) == n and decides(sets, profile.codes()):
        return "the same for all alternatives"
    return ""
