"""Lists of hostile inputs, and checks of their effect.

``DPB_TRIES`` is the number of cases per list, chosen by a fixed seed; 0 tries all.
docs/contributing.md lists the default numbers.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dpb_gym.errors import DPBError
from dpb_gym.report import records
from dpb_gym.report.page import render
from dpb_gym.results.result import Result

SEED, DEFAULT_TRIES = 20261122, 300
TRIES = int(os.environ.get("DPB_TRIES", DEFAULT_TRIES))
T = TypeVar("T")

SUITE = """
name: hostile-v0
replicates: 2
block: 2
checkpoints: 2
budgets: {default: ["eps=1,delta=1e-5"]}
tasks:
  - name: prices
    env: DPB/Pricing-v0
    env_kwargs: {dim: 2}
    horizon: 12
    normalisation: {random: 1.0, oracle: 9.0}
    track: first
tracks: {first: {title: First}}
agents: [random, {name: private-pricing, label: Private}]
"""

VALUES: list[Any] = [
    None, True, 0, -1, 3, 10**400, -(10**400), 0.5, 1e308, -1e308, 5e-324, float("nan"),
    float("inf"), "", "x", "a\u200bb", "\x1b[31m", "\ud800", "x" * 10_000, "1e999", "../../up",
    "</script><script>alert(1)</script>", [], [None], [[]], {}, {"a": 1}, [0] * 2000,
    "eps=1e-300,delta=1e-300", "rho=1e300", "eps=1.0000001,delta=1e-5", "computed here",
]  # fmt: skip


def chosen(items: Sequence[T]) -> list[T]:
    """Return all items, or a fixed sample of TRIES of them."""
    if not TRIES or len(items) <= TRIES:
        return list(items)
    return random.Random(SEED).sample(list(items), TRIES)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values within a JSON value."""
    if at:
        yield at
    items = (
        value
        if isinstance(value, dict)
        else dict(enumerate(value if isinstance(value, list) else ()))
    )
    for key, inner in items.items():
        yield from places(inner, (*at, key))


def put(value: Any, at: tuple[Any, ...], new: Any) -> None:
    """Replace the value at a path."""
    for key in at[:-1]:
        value = value[key]
    value[at[-1]] = new


@contextlib.contextmanager
def in_time(seconds: int = 20) -> Iterator[None]:
    """Fail the test if the block takes too long."""

    def late(*_: Any) -> None:
        pytest.fail("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused(call: Any) -> bool:
    """Return whether a call raises a DPBError with a message; other errors propagate."""
    try:
        with in_time():
            call()
    except DPBError as error:
        assert str(error).strip() and len(str(error)) < 3000
        return True
    return False


def shown(folder: Path) -> int:
    """Render the leaderboard, check that stated rows have no rank, and return its length."""
    data = Result.load(folder).to_leaderboard()
    assert "<script" in render(data)
    for task in data.tasks:
        for row in task.rows:
            assert not (row.stated and row.lead), row.key
    for row in records(data):
        assert row["trust"] in ("computed here", "recomputed here") or row["lead"] is None
    return len(records(data))
