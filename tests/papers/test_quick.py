"""Quick versions with a separate horizon per task."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from dpb_gym.errors import SuiteError
from dpb_gym.papers import load_figures
from dpb_gym.papers.figure_spec import Figure


def two_tasks(figure_data: dict[str, Any]) -> dict[str, Any]:
    suite = figure_data["suite"]
    suite["tasks"] = [dict(copy.deepcopy(suite["tasks"][0]), name=name) for name in ("a", "b")]
    for agent in suite["agents"]:
        agent.pop("tasks", None)
    return figure_data


def test_tasks_may_have_horizons_of_their_own(figure_data: dict[str, Any]) -> None:
    data = two_tasks(figure_data)
    data["quick"]["horizons"] = {"b": 3 * data["quick"]["horizon"]}
    quick = Figure.model_validate(data).quick_version().suite
    assert [task.horizon for task in quick.tasks] == [
        data["quick"]["horizon"],
        3 * data["quick"]["horizon"],
    ]


@pytest.mark.parametrize("horizons", [{"c": 100}, {"b": 1}])
def test_unknown_tasks_and_short_horizons_are_refused(
    figure_data: dict[str, Any], horizons: dict[str, int]
) -> None:
    data = two_tasks(figure_data)
    data["quick"]["horizons"] = horizons
    with pytest.raises((ValidationError, SuiteError), match="quick"):
        Figure.model_validate(data)


@pytest.mark.parametrize("name", ["fig2", "fig4"])
def test_quick_horizons_are_ordered_like_the_full_ones(name: str) -> None:
    """Claims along the horizon need several of them, in the same order and in pairs."""
    (figure,) = load_figures(f"private-pricing/{name}")
    full = {task.name: task.horizon for task in figure.suite.tasks}
    quick = {task.name: task.horizon for task in figure.quick_version().suite.tasks}
    assert len(set(quick.values())) == len(set(full.values())) > 1
    assert sorted(full, key=lambda n: (full[n], n)) == sorted(quick, key=lambda n: (quick[n], n))
