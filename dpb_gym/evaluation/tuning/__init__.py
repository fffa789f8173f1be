"""Tuning: the same effort for every agent, on tuning seeds only; recipes keep what was found."""

from __future__ import annotations

from dpb_gym.evaluation.recipes import load_recipe as load_recipe
from dpb_gym.evaluation.recipes import write_recipe as write_recipe
from dpb_gym.evaluation.tuning.results import Point as Point
from dpb_gym.evaluation.tuning.results import Recipe as Recipe
from dpb_gym.evaluation.tuning.results import Selection as Selection
from dpb_gym.evaluation.tuning.results import Tuning as Tuning
from dpb_gym.evaluation.tuning.search import TUNING_SEEDS as TUNING_SEEDS
from dpb_gym.evaluation.tuning.search import Grid as Grid
from dpb_gym.evaluation.tuning.search import check_seeds as check_seeds
from dpb_gym.evaluation.tuning.search import choose_points as choose_points
from dpb_gym.evaluation.tuning.search import read_grid as read_grid
from dpb_gym.evaluation.tuning.search import tune as tune
