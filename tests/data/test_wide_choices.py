"""Columns of alternatives whose attributes have names of one letter, and prices per piece."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_data
from dpb_gym.errors import DataError

NAMES = ("beach", "pier", "boat")


def fishing(codes):
    """A table of choices in its older layout, with the choice as text or as codes 1, 2 and 3."""
    rng = np.random.default_rng(0)
    n = 300
    chosen = rng.integers(3, size=n)
    table = {"mode": chosen + 1 if codes else np.array(NAMES)[chosen]}
    table["price"] = rng.random(n)
    for k, name in enumerate(NAMES):
        if codes:
            table[f"d{name}"] = (chosen == k).astype(int)
        table[f"p{name}"] = rng.random(n)
        table[f"q{name}"] = rng.random(n)
    return table


@pytest.mark.parametrize("codes", [False, True])
def test_the_question_has_the_arguments_that_read_letters(codes):
    reading = dpb_data.read(fishing(codes))
    (question,) = reading.questions
    settings = question.answers[0].settings
    named = {"alternatives": {"1": "beach", "2": "pier", "3": "boat"}} if codes else {}
    letters = {"problem": "assortment", "chosen": "mode", "features": ["p", "q"]}
    assert settings == {**letters, **named}
    again = dpb_data.read(fishing(codes), **settings, person="none", outside="boat")
    assert list(again.table().feature_names) == ["p", "q"]


def test_prices_per_piece_are_read():
    prices = ["9,90/Stk", "12,90/Stk"] * 60
    table = {"price": prices, "bought": [1, 0, 0] * 40}
    reading = dpb_data.read(table, person="none")
    assert set(reading.table().price) == {9.9, 12.9}
    assert any("/Stk removed" in note for note in reading.table().notes)
    table["price"] = ["9,90/kg", *prices[1:]]
    with pytest.raises(DataError, match="9,90/kg"):
        dpb_data.read(table, person="none").table()
