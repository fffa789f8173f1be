"""Declared parameters: which check a class applies to each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpb_gym.errors import ParameterError
from dpb_gym.parameters import check_parameters, integer, positive, real, with_parameters


class Base:
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        with_parameters(cls)

    def __post_init__(self) -> None:
        check_parameters(self)


class Rate(Base):
    rate: float = positive(1.0)


class Count(Base):
    count: int = integer(3, low=1)


class OtherDefault(Rate):
    rate: float = 2.0


class Narrower(OtherDefault):
    rate: float = real(0.5, low=0.0, high=1.0)


class Both(Count, OtherDefault):
    label: str = "free"


class Crossed(OtherDefault, Count):
    count: int = 5


@pytest.mark.parametrize(
    ("cls", "name", "bad"),
    [
        (Rate, "rate", -1.0),
        (OtherDefault, "rate", -1.0),
        (Narrower, "rate", 1.5),
        (Both, "rate", -1.0),
        (Both, "count", 0),
        (Crossed, "rate", -1.0),
        (Crossed, "count", 0),
    ],
)
def test_a_check_holds_in_every_subclass(cls: Any, name: str, bad: float) -> None:
    cls()
    with pytest.raises(ParameterError, match=name):
        cls(**{name: bad})


def test_a_narrower_check_stays_in_its_class() -> None:
    Narrower()
    assert Rate(rate=1.5).rate == OtherDefault(rate=1.5).rate == 1.5


def test_parameters_without_a_check_and_checked_values() -> None:
    agent: Any = Both(count=np.int64(4), label="any")
    assert (agent.count, type(agent.count), agent.label, agent.rate) == (4, int, "any", 2.0)
