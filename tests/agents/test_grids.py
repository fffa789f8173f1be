"""Agents have few parameters, name successors of removed ones, and have a grid of eight points."""

from __future__ import annotations

import inspect

import pytest

from dpb_gym.errors import ParameterError
from dpb_gym.planning.tuning import choose_points, read_grid
from dpb_gym.registry import agent_spec, agent_specs, make_agent

MOST, POINTS = 11, 8
# No parameter of theirs can be good or bad.
BASELINES = {"random", "oracle", "best-fixed-price"}
BUILT_IN = sorted(n for n, s in agent_specs().items() if s.entry_point.startswith("dpb_agents."))
# The fast agents are tuned for them.
REFERENCES = {name for name in BUILT_IN if name.startswith("reference-")}


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - BASELINES - REFERENCES))
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


def test_baselines_and_references_have_nothing_to_tune():
    for name in BASELINES | REFERENCES:
        with pytest.raises(ParameterError, match="nothing to tune"):
            read_grid(agent_spec(name))


@pytest.mark.parametrize("name", BUILT_IN)
def test_parameters_are_few_and_removed_ones_name_their_replacement(name):
    cls = agent_spec(name).maker
    taken = inspect.signature(cls).parameters
    assert len(taken) <= MOST
    for key, instead in cls.retired.items():
        with pytest.raises(ParameterError) as refused:
            make_agent(name, **{key: 1})
        assert key not in taken and str(refused.value).endswith(f": {instead}")
