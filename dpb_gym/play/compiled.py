"""Compiled loops of algorithms, once for the same functions."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import TYPE_CHECKING, Any

from dpb_gym.play.algorithm import Candidates, Functions, Offer, Released

if TYPE_CHECKING:
    from dpb_gym.kernels.loops import Place


def compiled_loops(algorithm: type, functions: Functions, *options: Any) -> Any:
    """Return the loops of an algorithm; see `dpb_gym.kernels.loops.loops`."""
    from dpb_gym.kernels.loops import place_of

    return _compiled_loops(place_of(algorithm, functions), functions, *options)


@cache
def _compiled_loops(
    place: Place,
    functions: Functions,
    state: Hashable,
    fields_of_context: int,
    integral: bool,
    slate: bool,
    table: bool,
    directed: bool,
    second: bool,
    follow: bool,
    public: bool,
    prices: bool,
) -> Any:
    from dpb_gym.kernels.loops import loops

    kind = Candidates if integral else Offer
    options = slate, table, directed, second, follow, public, prices
    return loops(place, functions, state, Released, kind, fields_of_context, *options)
