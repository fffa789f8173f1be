"""Runs that also record the offered arms."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(name="play")
def play_fixture(play):
    """`play` of the parent folder, with ``arms`` (T, B, m) in its result."""

    def run(agent, seeds, horizon, *args, env_id="DPB/Recommendation-v0", **kwargs):
        result = play(agent, seeds, horizon, *args, env_id=env_id, **kwargs)
        instance = result.problem.instance(seeds)
        arms = []
        for t in range(horizon):
            arms.append(instance.context().arms.copy())
            if t < horizon - 1:
                instance.advance()
        result.arms = np.array(arms)
        return result

    return run
