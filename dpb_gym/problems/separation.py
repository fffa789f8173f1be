"""Separated data: groups whose responses are all the same, so that no finite estimate exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpb_gym import kernels
from dpb_gym.problems.base import Array
from dpb_gym.problems.log_likelihood import ChoiceSets

_ESCAPED = 2.0  # utility: between the two penalties a separated one moves by 6.9 per unit
_AGAINST = 0.1  # share of the largest movement that may contradict a separation


@dataclass(frozen=True)
class Separation:
    """Choices that a direction of the coefficients determines.

    Attributes:
        text: The group and its responses, as part of a sentence.
        chance: Probability of these responses if the group were like all customers.
    """

    text: str
    chance: float


def separation(data: ChoiceSets, move: Array, names: Sequence[str]) -> Separation | None:
    """Return the separation of the data, or None if the maximum likelihood estimate exists.

    The estimate does not exist if a direction of the coefficients makes no choice less probable
    and some more probable (Albert & Anderson 1984). Estimates with smaller and smaller penalties
    move along such a direction without end.

    Args:
        data: The choices.
        move: Difference of two estimates, of which the second has a thousandth of the penalty.
        names: Names of the columns.
    """
    utilities = np.empty((1, len(data.rows)))
    kernels.mnl.utilities(data.rows[None], move[None], utilities)
    utility = utilities[0]
    largest = float(np.abs(utility).max())
    if largest < _ESCAPED:
        return None
    group = np.repeat(np.arange(len(data)), np.diff(data.starts))
    taken = np.maximum(data.starts[:-1] + data.choice, 0)
    own = np.where(data.choice < 0, 0.0, utility[taken])
    gains = utility - own[group]  # of a row on the choice; -own is that of the outside option
    if max(gains.max(), -own.min()) > _AGAINST * largest:
        return None  # columns that nearly depend on each other, but no separation
    never = gains < -0.5 * largest
    always = own > 0.5 * largest
    bought = float(np.mean(data.choice >= 0))
    rate = bought * len(data) / len(data.rows)
    # No sale at all has the log of the smallest chance, as the log of zero warns.
    log_bought = np.log(max(bought, 1e-300))
    log_chance = never.sum() * np.log1p(-min(rate, 0.999)) + always.sum() * log_bought
    sizes = np.abs(move) * data.sizes
    columns = np.flatnonzero(sizes > 0.3 * sizes.max())
    parts = []
    if never.any():
        who = _group(data.rows, columns, never, names)
        parts.append(f"none of the {int(never.sum()):,} rows with {who} was chosen")
    if always.any():
        rows = np.zeros(len(data.rows), np.bool_)
        rows[taken[always]] = True
        who = _group(data.rows, columns, rows, names)
        parts.append(f"all {int(always.sum()):,} customers with {who} bought")
    return Separation(" and ".join(parts), float(np.exp(log_chance)))


def _group(rows: Array, columns: Array, chosen: Array, names: Sequence[str]) -> str:
    """Return the column of which the chosen rows have one value that no other row has, or all.

    Levels of a text column have a column each but the first.
    """
    for k in columns:
        values = rows[:, k]
        first = values[chosen][0]
        if (values[chosen] == first).all() and not (values[~chosen] == first).any():
            upper = "=" not in names[k] or bool((values[~chosen] < first).all())
            return str(names[k]) if upper else names[k].replace("=", " other than ")
    stems = {names[k].split("=")[0] for k in columns if "=" in names[k]}
    for stem in sorted(stems):
        # the level that has no column of its own
        own = [k for k, name in enumerate(names) if name.startswith(f"{stem}=")]
        lowest = rows[:, own] == rows[:, own].min(axis=0)
        if (lowest.all(axis=1) == chosen).all():
            levels = ", ".join(names[k].partition("=")[2] for k in own)
            return f"{stem} other than {levels}"
    listed = [names[k] for k in columns if names[k] != "intercept"]
    return f"some values of {', '.join(listed[:4])}"
