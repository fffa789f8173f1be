"""Records of environments, agents, suites and data sets, for ``dpb list`` and for completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dpb_gym
from dpb_gym import suites
from dpb_gym.envs.registration import ENVIRONMENTS
from dpb_gym.errors import DataError


def _envs() -> list[dict[str, Any]]:
    return [{"id": e.id, "problem": e.kind, "summary": e.summary} for e in ENVIRONMENTS.values()]


def _suites() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "tasks": [task.name for task in suite.tasks],
            "agents": len(suite.agents),
            "replicates": suite.replicates,
            "title": suite.title,
        }
        for name, suite in ((name, suites.load_suite(name)) for name in suites.suite_names())
    ]


def _sets() -> list[dict[str, Any]]:
    import dpb_data

    def place(name: str) -> str | None:
        try:
            return str(dpb_data.path(name))
        except DataError:
            return None

    known = dpb_data.datasets()
    return [{**d.to_dict(), "path": "generated" if d.generated else place(d.name)} for d in known]


KINDS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "envs": _envs, "agents": lambda: dpb_gym.list_agents(), "suites": _suites, "data": _sets
}  # fmt: skip
