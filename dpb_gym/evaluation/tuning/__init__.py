"""Tuning: the same effort for every agent, on tuning seeds only; recipes keep what was found."""

from __future__ import annotations

from dpb_gym.evaluation.recipes import load_recipe, write_recipe
from dpb_gym.evaluation.tuning.results import Point, Recipe, Selection, Tuning
from dpb_gym.evaluation.tuning.search import (
    TUNING_SEEDS,
    Grid,
    check_seeds,
    choose_points,
    read_grid,
    tune,
)

__all__ = [
    "TUNING_SEEDS",
    "Grid",
    "Point",
    "Recipe",
    "Selection",
    "Tuning",
    "check_seeds",
    "choose_points",
    "load_recipe",
    "read_grid",
    "tune",
    "write_recipe",
]
