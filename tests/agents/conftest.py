"""Settings of the tests that all agents share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def few_points_but_in_pricing(request: pytest.FixtureRequest) -> None:
    """Use `few_points` in all but the tests of pricing."""
    if "pricing" not in request.path.parts:
        request.getfixturevalue("few_points")
