"""Remarks on what guarantees and regret do not say of a task, to stand beside them."""

from __future__ import annotations

import numpy as np

from dpb_gym.evaluation.spec import Task
from dpb_gym.problems.season import EXACT, benchmark


def data_notes(task: Task) -> list[str]:
    """What a task's rows do not say: who made its item features, what sales tell, what the
    regret of a season is against.

    Computed from the task's parameters alone, so that stored results need no data.
    """
    parameters = task.parameters
    if parameters.get("stock") is not None:
        stock = np.ravel(parameters["stock"]).tolist()
        stock *= parameters.get("n_items", 1) if len(stock) == 1 else 1
        exact = benchmark(stock, task.horizon) == EXACT
        against = "the dynamic programme's optimum" if exact else "the fluid bound"
        return [
            f"{task.name}: regret is against {against} of the season; what is sold out is on "
            "display and follows from responses, beside what agents guarantee."
        ]
    if "feature_epsilon" not in parameters:
        return []
    epsilon, delta = parameters["feature_epsilon"], parameters["feature_delta"]
    if epsilon is None:
        return [
            f"{task.name}: the item features are computed from training users, whom nothing "
            "protects; the agents' guarantees are for the users who arrive."
        ]
    return [
        f"{task.name}: the item features (DP-SVD) protect each training user with central DP "
        f"eps={epsilon:g} at delta={delta:g} (replace-one), apart from the agents' guarantees for "
        "the users who arrive."
    ]
