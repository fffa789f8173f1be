"""Helpers of these tests, and a made-up figure."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from dpb_gym.papers.figure_spec import Figure

sys.path.insert(0, str(Path(__file__).parent))

from figure_helpers import FIGURE


@pytest.fixture
def figure_data() -> dict[str, Any]:
    """A valid figure for tests to modify."""
    return copy.deepcopy(FIGURE)


@pytest.fixture
def figure(figure_data: dict[str, Any]) -> Figure:
    return Figure.model_validate(figure_data)
