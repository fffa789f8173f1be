"""Checkpoints of running agents: policy, releasers, pending batch, ledger and streams.

A resumed run equals the uninterrupted one bit for bit, so it draws the same noise. Two runs from
one state on different customers would add the *same* noise to different data, and the difference
of their releases would be noiseless. Therefore a private agent's run continues in one place only:
after `save` the saved agent raises on use, and a checkpoint can be loaded once. A marker file next
to it records the load. A second load is rejected or, with `rehearsal`, returns an agent whose
ledger states that its releases are not private. Not detected are a copy of the file loaded in
another folder, an agent copied in memory, and a run that is set up again from its seeds.

The file is a JSON header line (format, version, class, hash) and a pickle. `load` restricts the
globals of the pickle to classes of this package, of packages with registered agents and of imported
modules that define an agent, to plain containers, and to NumPy's functions for arrays and
generators. So an untrusted file runs no code of its own, as long as the constructors of those
classes are harmless. It may still contain a wrong state or a false ledger, exhaust memory, or crash
NumPy: the hash detects damage, not forgery.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import pickle
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from dpb_gym import privacy, state
from dpb_gym.errors import AgentError, CheckpointError
from dpb_gym.files import write_whole
from dpb_gym.lazy import AGENTS, load_plugins

FORMAT = "dpb-gym agent checkpoint"
VERSION = 3
OURS = ("agent", "feedback", "local_privacy", "privacy", "problems", "streams")
LISTED = {
    "builtins": "bytearray complex dict float frozenset int list range set slice tuple",
    "collections": "Counter OrderedDict defaultdict deque",
    "dpb_gym.portable": "fill_normals",
    "dpb_gym.streams": "fill_uniforms",
    "numpy": "dtype ndarray",
    "numpy._core.multiarray": "_reconstruct scalar",
    "numpy._core.numeric": "_frombuffer",
    "numpy.random._pcg64": "PCG64 PCG64DXSM",
    "numpy.random._pickle": "__bit_generator_ctor __generator_ctor",
    "numpy.random._sfc64": "SFC64",
    "numpy.random.bit_generator": "SeedSequence __pyx_unpickle_SeedSequence",
}

PACKAGES: set[str] = set()
"""Packages of the registered agents."""


class Policy(state.Registered):
    """Base class of `Agent` and `SingleAgent`; its subclasses can be registered.

    Attributes:
        protects: Notion and unit of the agent's guarantee (see `Guarantee`); None: as registered.
        curator: Creates the releasers, the policy's only access to raw feedback; without a budget
            they are exact.
        retired: Error text by name of a removed parameter.
    """

    protects: tuple[str, str] | None = None
    retired: ClassVar[Mapping[str, str]] = {}
    curator: privacy.Curator

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        state.register_package(cls.__module__)  # for the objects that the agent has


def save(agent: Policy, path: str | os.PathLike[str]) -> None:
    """Write the agent's whole state to `path`, atomically.

    An agent with a budget is handed over: only the checkpoint can be continued, and this agent
    raises on `act` and `observe` until it is set up again.

    Args:
        agent: A running agent.
        path: File to write; its folder must exist. An existing checkpoint is replaced.

    Raises:
        AgentError: If the agent was handed over before, or its state cannot be saved.
        CheckpointError: If the file cannot be written; the agent remains usable.
    """
    name = type(agent).__name__
    curator = getattr(agent, "curator", None)
    if curator is not None and curator.handed_over:
        raise AgentError(f"{name} cannot be saved: {curator.handed_over}")
    try:
        payload = pickle.dumps(agent, protocol=5)
        _Unpickler(io.BytesIO(payload)).load()
    except Exception as error:
        raise AgentError(
            f"{name} cannot be saved: {error}. Its attributes must be data, and objects of classes "
            "of this package or of the module that defines the agent"
        ) from error
    header = {
        "format": FORMAT,
        "version": VERSION,
        "class": f"{type(agent).__module__}:{type(agent).__qualname__}",
        "id": uuid.uuid4().hex,
        "bytes": len(payload),
        "sha256": hashlib.sha256(payload).hexdigest(),
    }
    target = Path(path)
    try:
        write_whole(target, json.dumps(header).encode() + b"\n" + payload)
    except OSError as error:
        raise CheckpointError(f"{target}: cannot write the checkpoint: {error}") from error
    if curator is not None and curator.private:
        curator.hand_over(f"it was saved to {target}, which is the run now: load that to go on")

        def refuse(*_: Any) -> None:
            raise AgentError(f"{name} was handed over: {curator.handed_over}")

        vars(agent).update(act=refuse, observe=refuse, play=refuse)


def load(path: str | os.PathLike[str], *, rehearsal: bool = False) -> Policy:
    """Return the agent of a checkpoint, ready to continue.

    A module that defines the agent outside a registered package must be imported before.

    Args:
        path: File written by `save`.
        rehearsal: Whether to load a checkpoint again that was loaded before, for debugging or on
            the same customers. The agent then has no guarantee.

    Raises:
        CheckpointError: If the file is missing, damaged, of another version, or refers to unknown
            classes; or if the agent has a budget and this checkpoint was loaded before.
    """
    target = Path(path)
    header, payload = _read(target)
    load_plugins(AGENTS)
    try:
        agent: Policy = _Unpickler(io.BytesIO(payload)).load()
        curator = getattr(agent, "curator", None)
    except Exception as error:
        raise CheckpointError(f"{target}: cannot be restored: {error}") from error
    if not (issubclass(type(agent), Policy) and isinstance(curator, privacy.Curator | None)):
        raise CheckpointError(f"{target} holds no agent")
    if curator is None or not curator.private:
        return agent
    try:
        target.with_name(f"{target.name}.{header['id'][:12]}.loaded").touch(exist_ok=False)
    except FileExistsError:
        if not rehearsal:
            raise CheckpointError(
                f"{target} was loaded before. A second continuation would draw the same noise, and "
                "two of them on different customers are not private under one budget. "
                "rehearsal=True loads it without a guarantee"
            ) from None
        curator.disclose("a second continuation of one checkpoint, with the same noise")
    except OSError as error:
        raise CheckpointError(
            f"{target}: cannot note beside it that it was loaded ({error}); without that note it "
            "could be loaded twice under one budget"
        ) from error
    return agent


class _Unpickler(pickle.Unpickler):
    """Unpickler restricted to plain data and objects of known classes."""

    def find_class(self, module: str, name: str) -> Any:
        if name in LISTED.get(module, "").split():
            return super().find_class(module, name)
        top, _, rest = module.partition(".")
        if top == "dpb_gym" and rest.partition(".")[0] in OURS:
            importlib.import_module(module)
        elif not _of_agents(module):
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no known class")
        found: Any = sys.modules[module]
        for part in name.split("."):
            found = vars(found).get(part)
        if not isinstance(found, type) or (found.__module__, found.__qualname__) != (module, name):
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no class there")
        return found


def _of_agents(module: str) -> bool:
    """Return whether a module is imported and defines an agent or is in a registered package."""
    top = module.partition(".")[0]
    if module not in sys.modules or top == __name__.partition(".")[0]:
        return False
    load_plugins(AGENTS)
    if top in PACKAGES:
        return True
    classes = [value for value in vars(sys.modules[module]).values() if isinstance(value, type)]
    return any(issubclass(c, Policy) and c.__module__ == module for c in classes)


def _read(target: Path) -> tuple[dict[str, Any], bytes]:
    try:
        line, _, payload = target.read_bytes().partition(b"\n")
    except OSError as error:
        raise CheckpointError(f"{target}: cannot be read: {error}") from error
    try:
        header = json.loads(line)
        found = header["format"], header["version"]
        expected = header["bytes"], header["sha256"]
        bytes.fromhex(header["id"])  # part of the marker's name
    except (ValueError, TypeError, KeyError):
        raise CheckpointError(f"{target} is not an agent checkpoint") from None
    if found != (FORMAT, VERSION):
        raise CheckpointError(
            f"{target}: format {found[0]!r} version {found[1]!r}, expected {FORMAT!r} {VERSION}"
        )
    if (len(payload), hashlib.sha256(payload).hexdigest()) != expected:
        raise CheckpointError(
            f"{target} is damaged: {len(payload)} bytes of {expected[0]}, or changed content"
        )
    return header, payload
