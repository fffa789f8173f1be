"""``dpb list``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from dpb_gym.cli import datasets
from dpb_gym.cli.options import Json
from dpb_gym.cli.output import print_json, print_table
from dpb_gym.errors import unknown_name

KINDS = ("envs", "agents", "suites", "data")


def list_kind(
    kind: Annotated[str, typer.Argument(metavar="envs|agents|suites|data", help="What to list.")],
    json: Json = False,
) -> None:
    """List environments, agents, suites or data sets.

    Example: dpb list agents
    """
    if kind not in KINDS:
        raise unknown_name("listing", kind, KINDS)
    if kind == "data":
        datasets.list_all(json)
        return
    columns, records = {"envs": _envs, "agents": _agents, "suites": _suites}[kind]()
    if json:
        print_json(records)
    else:
        print_table(columns, [[_cell(record[c]) for c in columns] for record in records])


def names(kind: str) -> list[str]:
    """The names of one of `KINDS`, for the shell's completion."""
    if kind == "data":
        import dpb_data

        return [known.name for known in dpb_data.datasets()]
    if kind == "suites":
        from dpb_gym.evaluation.suite import suite_names

        return list(suite_names())
    (key, *_), records = {"envs": _envs, "agents": _agents}[kind]()
    return [record[key] for record in records]


def complete(*kinds: str) -> Callable[[str], list[str]]:
    """Completes names of what ``dpb list`` lists."""

    def completed(incomplete: str) -> list[str]:
        return [name for kind in kinds for name in names(kind) if name.startswith(incomplete)]

    return completed


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _envs() -> tuple[list[str], list[dict[str, Any]]]:
    from dpb_gym.envs.catalogue import ENVIRONMENTS

    records = [{"id": e.id, "problem": e.kind, "summary": e.summary} for e in ENVIRONMENTS.values()]
    return ["id", "problem", "summary"], records


def _agents() -> tuple[list[str], list[dict[str, Any]]]:
    from dpb_gym.registry import list_agents

    return ["name", "problems", "budget", "summary"], list_agents()


def _suites() -> tuple[list[str], list[dict[str, Any]]]:
    from dpb_gym.evaluation.suite import load_suite, suite_names

    records = []
    for name in suite_names():
        suite = load_suite(name)
        records.append(
            {
                "name": name,
                "tasks": [task.name for task in suite.tasks],
                "agents": len(suite.agents),
                "replicates": suite.replicates,
                "title": suite.title,
            }
        )
    return ["name", "tasks", "agents", "replicates", "title"], records
