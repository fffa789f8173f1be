"""Where an agent's code came from: package, version, module, revision, hash of its file."""

from __future__ import annotations

import hashlib
import inspect
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from dpb_gym.agent import agent_spec
from dpb_gym.errors import AgentError
from dpb_gym.evaluation.manifest import git_revision


def source_reference(name: str) -> dict[str, Any]:
    """Says where a registered agent's code is from, as plain JSON values.

    Keys: ``name``, ``entry_point``, ``version`` (the class's own, empty if it has none),
    ``package`` and ``package_version`` (the distribution that holds the module, None if there
    is none), ``module``, ``file`` (name without folders), ``sha256`` (of that file) and
    ``revision`` (git, with ``-dirty`` if the file was changed; None if unknown). No path of
    this machine is among them.

    Raises:
        UnknownNameError: If the agent is not registered here.
        AgentError: If its code has no file, as in a notebook.
    """
    spec = agent_spec(name)
    cls = spec.load()
    module = cls.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if module == "__main__" or file is None or not Path(file).is_file():
        raise AgentError(
            f"agent {name!r} lives in {module!r}, which others cannot import: put it into a "
            "package with an entry point in the group 'dpb_gym.agents'"
        )
    source = Path(inspect.getsourcefile(cls) or file)
    package = _distribution(module)
    return {
        "name": name,
        "entry_point": spec.entry_point,
        "version": str(getattr(cls, "version", "")),
        "package": package,
        "package_version": None if package is None else metadata.version(package),
        "module": module,
        "file": source.name,
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "revision": git_revision(source),
    }


def _distribution(module: str) -> str | None:
    top = module.split(".")[0]
    found = sorted(set(metadata.packages_distributions().get(top, ())))
    return found[0] if found else _by_entry_point(top)


def _by_entry_point(top: str) -> str | None:
    """The distribution that announces the module: an editable install lists no files."""
    for point in metadata.entry_points(group="dpb_gym.agents"):
        if point.module.split(".")[0] == top and point.dist is not None:
            return str(point.dist.name)
    return None
