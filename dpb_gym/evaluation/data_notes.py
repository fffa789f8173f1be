"""Remarks on what real data were used for, to stand beside the agents' guarantees."""

from __future__ import annotations

from dpb_gym.evaluation.spec import Task


def data_notes(task: Task) -> list[str]:
    """What the guarantees in a task's rows do not say: who made its item features.

    Computed from the task's parameters alone, so that stored results need no data.
    """
    parameters = task.parameters
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
