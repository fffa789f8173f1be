from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpb_gym.errors import ParameterError
from dpb_gym.suites.suite import LOG_POINTS, resolve_checkpoints


@given(
    horizon=st.integers(1, 10**7),
    which=st.one_of(st.just("log"), st.integers(1, 200)),
)
def test_they_increase_and_end_at_the_horizon(horizon: int, which: str | int) -> None:
    rounds = resolve_checkpoints(which, horizon)
    assert rounds[-1] == horizon
    assert rounds[0] >= 1
    assert all(a < b for a, b in pairwise(rounds))
    assert len(rounds) <= (LOG_POINTS if which == "log" else which) + 1


@given(horizon=st.integers(10**4, 10**7))
def test_log_spacing_has_equal_ratios(horizon: int) -> None:
    rounds = np.array(resolve_checkpoints("log", horizon))
    late = rounds[rounds >= 1000]
    ratios = late[1:] / late[:-1]
    expected = horizon ** (1 / (LOG_POINTS - 1))
    np.testing.assert_allclose(ratios, expected, rtol=0.01)


@given(horizon=st.integers(1, 500), rounds=st.lists(st.integers(1, 500), max_size=20))
def test_explicit_rounds_are_kept_and_the_end_is_added(horizon: int, rounds: list[int]) -> None:
    if any(t > horizon for t in rounds):
        with pytest.raises(ParameterError, match=f"1..{horizon}"):
            resolve_checkpoints(rounds, horizon)
    else:
        assert resolve_checkpoints(rounds, horizon) == tuple(sorted({*rounds, horizon}))


def test_log_takes_a_number_of_points() -> None:
    assert resolve_checkpoints("log:4", 1000) == (1, 10, 100, 1000)
    assert resolve_checkpoints("log:64", 5000) == resolve_checkpoints("log", 5000)
    assert resolve_checkpoints("log:2", 7) == (1, 7)


def test_all_and_counts() -> None:
    assert resolve_checkpoints("all", 5) == (1, 2, 3, 4, 5)
    assert resolve_checkpoints(4, 1000) == (250, 500, 750, 1000)
    assert resolve_checkpoints(10, 3) == (1, 2, 3)


@pytest.mark.parametrize(
    "bad",
    [
        "logs",
        "log:1",
        "log:0",
        "log:",
        "log:x",
        0,
        -1,
        True,
        1.5,
        None,
        [0],
        [1.5],
        ["a"],
        object(),
    ],
)
def test_everything_else_is_refused(bad: object) -> None:
    with pytest.raises(ParameterError):
        resolve_checkpoints(bad, 100)  # type: ignore[arg-type]
