"""Compiled loops of algorithms, once per class."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any

from dpb_gym.play.algorithm import Candidates, Functions, Offer, Released


@cache
def compiled_loops(
    algorithm: type,
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
    """Return the loops of an algorithm; see `dpb_gym.kernels.loops.loops`."""
    from dpb_gym.kernels.loops import loops

    kind = Candidates if integral else Offer
    options = slate, table, directed, second, follow, public, prices
    return loops(algorithm, functions, state, Released, kind, fields_of_context, *options)
