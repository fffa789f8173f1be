"""Learning curves: parts of a run, and the customer after whom an agent has learned."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpb_gym
from dpb_gym.planning.learning_curve import (
    LearningCurve,
    learning_curve,
    learning_sentence,
    parts,
)


@given(st.integers(2, 10**7))
def test_parts_double_and_end_at_the_horizon(horizon: int) -> None:
    ends = parts(horizon)
    assert ends[-1] == horizon and len(ends) <= 8 and ends == sorted(set(ends))
    assert all(2 * a <= b <= 2 * a + 1 for a, b in pairwise(ends))


@pytest.mark.parametrize(("lost", "learned"), [
    ((30.0, 20.0, 10.0, 5.0), None), ((30.0, 5.2, 5.0, 5.0), 1000), ((5.0, 5.0, 5.0, 5.0), 0),
    ((30.0, 20.0, 5.0, 5.0), 2000), ((5.0, 9.0, 5.0, 5.0), 2000), ((30.0, 3.5, 3.2, 2.0), None),
])  # fmt: skip
def test_learning_is_over_where_later_parts_lose_as_much(lost: Any, learned: int | None) -> None:
    assert LearningCurve("a", (1000, 2000, 4000, 8000), lost).learned == learned


def test_the_loss_of_a_part_is_that_of_its_customers() -> None:
    result = dpb_gym.evaluate("DPB/Pricing-v0", ["random"], 400, 3, checkpoints=[100, 400])
    row = result.rows[0]
    curve = learning_curve(row)
    best = np.mean(row.reward[:, -1] + row.regret[:, -1]) / 400
    late = np.mean(row.regret[:, 1] - row.regret[:, 0]) / 300
    assert curve.ends == (100, 400) and curve.lost[1] == pytest.approx(100 * late / best)


def test_the_sentence_groups_budgets() -> None:
    ends = (1000, 2000, 4000, 8000)
    curves = [LearningCurve("eps=1", ends, (9.0, 5.0, 5.0, 5.0)),
              LearningCurve("eps=4", ends, (9.0, 5.0, 5.0, 5.0)),
              LearningCurve("eps=0.1", ends, (90.0, 50.0, 20.0, 5.0))]  # fmt: skip
    assert learning_sentence(curves) == (
        "At eps=1 and eps=4 learning is over after about 1,000 customers. At eps=0.1 learning is "
        "not over after 8,000 customers."
    )


def test_a_loss_that_grows_in_the_end_is_no_end_of_learning() -> None:
    assert LearningCurve("a", (125, 250, 500, 1000), (0.0, 0.0, 0.0, 5.0)).learned is None
    assert LearningCurve("a", (125, 250, 500, 1000), (4.2, 5.0, 4.4, 5.0)).learned == 0
