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
from dpb_gym.evaluation.spec import code_hash, distribution


def source_reference(name: str) -> dict[str, Any]:
    """Says where a registered agent's code is from, as plain JSON values.

    Keys: ``name``, ``entry_point``, ``source`` (the hash in the keys of its cells),
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
    package = distribution(module)
    return {
        "name": name,
        "entry_point": spec.entry_point,
        "source": code_hash(cls),
        "package": package,
        "package_version": None if package is None else metadata.version(package),
        "module": module,
        "file": source.name,
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "revision": git_revision(source),
    }
