"""The boosted trees are those of scikit-learn, up to rounding."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from dpb_gym.planning.tree_predictions import boosted_chances


@pytest.mark.parametrize("n,k", [(1500, 3), (60, 2)])
def test_chances_equal_those_of_scikit_learn(n, k):
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(2 * n, k)).astype(np.float32)
    rows[:, 0] = rng.integers(0, 5, 2 * n)
    others = rows[n:] + np.float32(0.3)
    rows = rows[:n]
    utility = rows[:, 0] - 2.0 + rows[:, 1] ** 2 - rows[:, -1]
    hit = rng.random(n) < 1.0 / (1.0 + np.exp(-utility))
    model = HistGradientBoostingClassifier(max_iter=100, early_stopping=False).fit(rows, hit)
    expected = model.predict_proba(others)[:, 1]
    assert np.ptp(expected) > 0.5
    np.testing.assert_allclose(boosted_chances(rows, hit, others), expected, atol=1e-9)


def test_equal_responses_have_their_share():
    rows = np.zeros((5, 2))
    assert boosted_chances(rows, np.ones(5, bool), rows[:2]).tolist() == [1.0, 1.0]
