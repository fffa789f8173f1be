"""Settings of the tests that all agents share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def few_points(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give `response-pricing` 32 points of its law of the features instead of 512.

    They change its accuracy, which is tested in `pricing`, and take a sixteenth of the time.
    """
    from dpb_agents.pricing import response_pricing

    with pytest.MonkeyPatch.context() as patch:
        if "pricing" not in request.path.parts:
            patch.setattr(response_pricing, "POINTS", 32)
        yield
