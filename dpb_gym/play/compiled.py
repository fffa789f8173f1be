"""Compiled loops of algorithms, once per class."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any

from dpb_gym.play.algorithm import Functions, Offer, Released


@cache
def compiled_loops(
    algorithm: type,
    functions: Functions,
    state: Hashable,
    context: tuple[int, ...],
    slate: bool,
    table: bool,
    directed: bool,
) -> Any:
    """Return the loops of an algorithm; see `dpb_gym.kernels.loops.loops`."""
    from dpb_gym.kernels.loops import loops

    return loops(algorithm, functions, state, Released, Offer, context, slate, table, directed)
