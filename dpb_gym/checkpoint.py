"""Checkpoints of running agents: policy, releasers, pending batch, ledger and streams.

A resumed run equals the uninterrupted one bit for bit, so it draws the same noise. That is
what makes loading one checkpoint twice dangerous: two continuations on different customers
would add the *same* noise to different data, and the difference of their releases would be
noiseless. Therefore a checkpoint under a budget is spent by loading it: a marker file beside
it remembers, and a second load is refused, or, as a rehearsal, gives an agent whose curator
says that nothing it releases is private.

The file is a JSON header line (format, version, class, hash) and a pickle. Like every pickle
it can run code when loaded: load checkpoints of your own only.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import AgentError, CheckpointError
from dpb_gym.files import write_whole

if TYPE_CHECKING:
    from dpb_gym.agent import Agent

FORMAT = "dpb-gym agent checkpoint"
VERSION = 1


def save(agent: Agent, path: str | os.PathLike[str]) -> None:
    """Writes the agent's whole state to `path`, atomically.

    Args:
        agent: A running agent.
        path: File to write; its folder must exist. An older checkpoint there is replaced,
            with its marker.

    Raises:
        AgentError: If the agent holds something that cannot be saved.
        CheckpointError: If the file cannot be written.
    """
    try:
        payload = pickle.dumps(agent, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise AgentError(
            f"{type(agent).__name__} cannot be saved: {error}. Its attributes must be picklable"
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


def load(path: str | os.PathLike[str], *, rehearsal: bool = False) -> Agent:
    """Continues from a checkpoint.

    Args:
        path: File that `save` wrote.
        rehearsal: Load a checkpoint again that was loaded before, for debugging or on the
            same customers. The agent works as before, but its curator says that nothing it
            releases is private.

    Raises:
        CheckpointError: If the file is missing, damaged or of another version; or if the
            agent has a budget and this checkpoint was loaded before.
    """
    target = Path(path)
    header, payload = _read(target)
    try:
        agent: Agent = pickle.loads(payload)
    except Exception as error:
        raise CheckpointError(f"{target}: cannot be restored: {error}") from error
    curator = agent.curator
    if not curator.private:
        return agent
    marker = target.with_name(f"{target.name}.{header['id'][:12]}.loaded")
    try:
        marker.touch(exist_ok=False)
        first = True
    except FileExistsError:
        first = False
    except OSError as error:
        raise CheckpointError(
            f"{target}: cannot note beside it that it was loaded ({error}); without that note it "
            "could be loaded twice under one budget"
        ) from error
    if not first and not rehearsal:
        raise CheckpointError(
            f"{target} was loaded before. A second continuation would draw the same noise, and "
            "two of them on different customers are not private under one budget. "
            "rehearsal=True loads it without a guarantee"
        )
    if not first:
        curator.disclose("a second continuation of one checkpoint, with the same noise")
    return agent


def _read(target: Path) -> tuple[dict[str, Any], bytes]:
    try:
        line, _, payload = target.read_bytes().partition(b"\n")
    except OSError as error:
        raise CheckpointError(f"{target}: cannot be read: {error}") from error
    try:
        header = json.loads(line)
        found = header["format"], header["version"]
        expected = header["bytes"], header["sha256"]
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
