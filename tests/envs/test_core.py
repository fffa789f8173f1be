"""Parts of the core of environments."""

from __future__ import annotations

import numpy as np

from dpb_gym.envs.core import only


def test_one_replicate_is_a_number_or_a_copy_of_its_row() -> None:
    assert type(only(np.array([3, 4]), 1)) is int and only(np.array([3, 4]), 1) == 4
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    row = only(rows, 1)
    assert row.tolist() == [3.0, 4.0]
    row[0] = 9.0
    assert rows[1, 0] == 3.0
    assert only(rows[:, :1], 1).tolist() == [3.0]
