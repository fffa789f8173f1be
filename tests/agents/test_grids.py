"""Agents have few parameters, name successors of removed ones, and have a grid of eight points."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import yaml

from dpb_gym.errors import ParameterError
from dpb_gym.planning.tuning import choose_points, read_grid
from dpb_gym.registry import agent_spec, agent_specs, make_agent

MOST, POINTS = 11, 8
# No parameter of theirs can be good or bad.
BASELINES = {"random", "oracle", "best-fixed-price"}
BUILT_IN = sorted(n for n, s in agent_specs().items() if s.entry_point.startswith("dpb_agents."))


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - BASELINES))
def test_every_grid_has_as_many_points(name):
    spec = agent_spec(name)
    grid = read_grid(spec)
    points = choose_points(spec, grid, {}, None)
    assert len(points) == POINTS
    for point in points:
        spec.maker(**{**spec.params, **point})
    known = spec.defaults
    for key, values in grid.items():
        assert any(known[key] == value for value in values), f"the default of {key} is a point"


def test_baselines_have_nothing_to_tune():
    for name in BASELINES:
        with pytest.raises(ParameterError, match="nothing to tune"):
            read_grid(agent_spec(name))


SPACES = Path(__file__).parents[2] / "agents" / "recipes" / "spaces.yaml"
SEARCHED = 24
"""Points per agent, task and budget of the arena; see benchmarks/tune_tracks.py."""


def test_spaces_have_enough_points_and_contain_grids_and_defaults():
    """Everybody gets the same number of points, none of a space smaller than its grid."""
    spaces = yaml.safe_load(SPACES.read_text(encoding="utf-8"))
    for name, space in spaces.items():
        spec = agent_spec(name)
        points = choose_points(spec, read_grid(spec, space), {}, SEARCHED)
        assert len(points) == SEARCHED, name
        for point in points:
            spec.make(**point)
        for key, values in read_grid(spec, space).items():
            assert spec.defaults[key] in values, (name, key)
        for key, values in read_grid(spec).items():
            assert set(values) <= set(read_grid(spec, space)[key]), (name, key)


def test_spaces_have_what_papers_search_and_our_pages_call_better():
    spaces = yaml.safe_load(SPACES.read_text(encoding="utf-8"))
    assert "blt" in spaces["jdp-lin-ucb"]["mechanism"] and "blt" in spaces["dpmnl"]["mechanism"]
    for name in ("adaprivate-ucb", "adaprivate-ts"):
        assert {"ridge", "batch", "centre"} <= set(spaces[name])
    assert {1.0, 2.0, 4.0} <= set(spaces["zcdp-episodic"]["trigger"])


@pytest.mark.parametrize("name", BUILT_IN)
def test_parameters_are_few_and_removed_ones_name_their_replacement(name):
    cls = agent_spec(name).maker
    taken = inspect.signature(cls).parameters
    assert len(taken) <= MOST
    for key, instead in cls.retired.items():
        with pytest.raises(ParameterError) as refused:
            make_agent(name, **{key: 1})
        assert key not in taken and str(refused.value).endswith(f": {instead}")
