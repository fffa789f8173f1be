"""RarelySwitching-zCDP: a private LinUCB that learns at O(d log T) switches."""

from __future__ import annotations

from typing import Any, ClassVar

from dpb_agents.recommendation.linear import SUPPORTS
from dpb_agents.recommendation.rivals.switching import Switching
from dpb_gym.problems.base import Array
from dpb_gym.registry import register_agent


@register_agent(
    "rarely-switching-zcdp", supports=SUPPORTS, protects=("central", "reward"), budget="required"
)
class RarelySwitching(Switching):
    """Rarely switching private LinUCB with a plain bonus, after RU's comparison [construct].

    RU names "RarelySwitching-zCDP" without saying what sets it apart; this is `adac-oful-zcdp`
    with the bonus alpha ||x||_{V^-1} and a larger `growth`. Releases, sensitivity and
    guarantee are as there: central, **reward** of one round, replace-one; every reward is in
    one released sum. Features, actions and the times of switches count as public.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "growth": [4.0, 16.0],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    def _widths(self, due: Array) -> Array:
        return self._width
