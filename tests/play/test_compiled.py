"""Loops of algorithms: what is compiled is shared by those with the same functions only."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from dpb_gym.kernels.loops import place_of
from dpb_gym.play import Functions, jit
from dpb_gym.registry import agent_spec


class One:
    """Stands for an algorithm."""


class Other:
    """Stands for another algorithm of the same package."""


Elsewhere = agent_spec("lin-ucb").maker


@jit
def act(c, s, t, x, z):
    return 1.0


@jit
def record(c, s, t, x, action, y, z):
    return z


@jit
def learn(c, s, released, t):
    return None


@jit
def forget(c, s, released, t):
    return None


def priced(price):
    """Return a function that was made around a price."""

    @jit
    def act(c, s, t, x, z):
        return price

    return act


SAME = Functions(act, record, learn)


def test_algorithms_with_the_same_functions_share_a_place():
    assert place_of(One, SAME) == place_of(Other, SAME)
    assert place_of(One, SAME).file == inspect.getsourcefile(One)


@pytest.mark.parametrize(
    "functions",
    [SAME._replace(learn=forget), SAME._replace(see=learn), SAME._replace(adopt=learn)],
)
def test_another_function_has_another_place(functions):
    assert place_of(One, SAME) != place_of(One, functions)


def test_the_same_function_in_another_part_has_another_place():
    assert place_of(One, SAME._replace(see=learn)) != place_of(One, SAME._replace(adopt=learn))


def test_an_algorithm_of_another_package_has_a_place_of_its_own():
    place = place_of(Elsewhere, SAME)
    assert place != place_of(One, SAME)
    assert place.module == Elsewhere.__module__
    assert place.file == inspect.getsourcefile(Elsewhere)


def test_functions_made_around_a_value_share_the_place_of_that_value():
    cheap = SAME._replace(act=priced(0.25))
    assert place_of(One, cheap) == place_of(Other, SAME._replace(act=priced(0.25)))
    assert place_of(One, cheap) != place_of(One, SAME._replace(act=priced(0.5)))


@pytest.mark.parametrize("inside", [np.arange(3.0), act])
def test_functions_made_around_anything_else_are_of_their_algorithm(inside):
    around = SAME._replace(act=priced(inside))
    assert place_of(One, around) != place_of(Other, around)
