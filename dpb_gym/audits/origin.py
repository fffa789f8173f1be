"""Origin of an audit: the arguments with which it runs again."""

from __future__ import annotations

import json
from typing import Any

from dpb_gym.privacy import Budget
from dpb_gym.privacy.certificate import versions


def origin_of(agent: str, budget: Budget, runs: int, **arguments: Any) -> dict[str, Any] | None:
    """Return the arguments of an audit as plain JSON values, None if they have no such form.

    Args:
        agent: Registered name.
        budget: Budget of the audit.
        runs: Runs in each world.
        **arguments: Other arguments of `audit`.
    """
    parameters, env_kwargs = (dict(arguments.pop(n) or {}) for n in ("params", "env_kwargs"))
    origin = {
        "agent": agent, "parameters": parameters, "budget": str(budget), "runs": runs,
        "env_kwargs": env_kwargs, **arguments, "versions": versions(),
    }  # fmt: skip
    try:
        return dict(json.loads(json.dumps(origin, allow_nan=False)))
    except (TypeError, ValueError):
        return None
