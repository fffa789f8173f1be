"""Checkpoints of running agents: policy, releasers, pending batch, ledger and streams.

A resumed run equals the uninterrupted one bit for bit, so it draws the same noise. Two runs from
one state on different customers would add the *same* noise to different data, and the difference
of their releases would be noiseless. Therefore a private agent's run continues in one place only.
After `save` the saved agent raises on use. A file has the id of its run and a generation, and the
newest generation is in a state directory outside of the file, or in the account of a session
(`dpb_gym.privacy.generations`). A file that was loaded before, a copy of it and an older file are
rejected on this machine. With `rehearsal` they can be loaded, and the ledger of the agent then
states that its releases are not private.

Not noticed are a copy of the file together with the state directory, an agent copied in memory, and
a run that is set up again from its seeds.

The file is a JSON header line (format, version, class, hash) and the agent as state, which
contains no code: see `dpb_gym.state`. So an untrusted file can be loaded: it makes objects of
registered classes only, and sets their attributes and nothing else. What decides privacy is not
taken from it. A copy of the agent plans its releasers again, from its parameters, the problem and
the budget; scales of noise, bounds, plans and charges must be the same
(`dpb_gym.privacy.restoring`). So `save` and `load` call `begin` of a copy.

A file can still contain wrong data of its own run, such as sums, releases, noise that was drawn,
and parameters of the policy: the hash detects damage, not forgery. Compiled code does not check the
sizes of arrays, so a run that continues from a forged file may crash.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from dpb_gym import privacy, state
from dpb_gym.errors import AgentError, CheckpointError, EarlyError
from dpb_gym.files import read_regular, write_whole
from dpb_gym.lazy import AGENTS, load_plugins
from dpb_gym.privacy.generations import Continuation, Holder, Lease, Saved, digest_of_file
from dpb_gym.privacy.restoring import check_exact, check_restored

FORMAT = "dpb-gym agent checkpoint"
VERSION = 4
HOLDERS = ("state directory", "account")
MOST_BYTES = 1 << 33
MOST_HEADER = 4096


class Policy(state.Registered):
    """Base class of `Agent` and `SingleAgent`; its subclasses can be registered.

    Attributes:
        protects: Notion and unit of the agent's guarantee (see `Guarantee`); None: as registered.
        retired: Error text by name of a removed parameter.
    """

    protects: tuple[str, str] | None = None
    retired: ClassVar[Mapping[str, str]] = {}

    @cached_property
    def curator(self) -> privacy.Curator:
        """Creates the releasers, the policy's only access to raw feedback.

        Without a budget they are exact.

        Raises:
            EarlyError: Before `begin`.
        """
        raise EarlyError(
            f"{type(self).__name__} has no curator yet: make releasers in `begin`, not in "
            "`__init__`"
        )

    def set_up_again(self) -> None:
        """Set up for the same problem and budget, with other random numbers."""
        raise AgentError("a policy of one replicate is saved with the agent that runs it")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        state.register_package(cls.__module__)  # for the objects that the agent has


def save(
    agent: Policy,
    path: str | os.PathLike[str],
    *,
    state_dir: str | os.PathLike[str] | None = None,
    account: privacy.Account | None = None,
    own: Continuation | None = None,
) -> None:
    """Write the agent's whole state to `path`, atomically.

    An agent with a budget is handed over: only the checkpoint can be continued, and this agent
    raises on `act` and `observe` until it is set up again.

    Args:
        agent: A running agent.
        path: File to write; its folder must exist. An existing checkpoint is replaced.
        state_dir: Folder with the generations of runs, which is created; see `Lease`.
        account: Account that has the generations of the session instead.
        own: The continuation that the account knows.

    Raises:
        AgentError: If the agent was handed over before, or its state cannot be saved.
        CheckpointError: If the file or the state directory cannot be written; the agent remains
            usable. Or if the run goes on elsewhere.
        DataError: If the account or the file of the state directory is damaged.
    """
    name = type(agent).__name__
    curator = getattr(agent, "curator", None)
    payload = dumps(agent)
    digest = hashlib.sha256(payload).hexdigest()
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "class": state.name_of(type(agent)),
        "bytes": len(payload),
        "sha256": digest,
    }
    if curator is not None and _continues_once(curator):
        holder: Holder
        if account is None:
            lease = holder = Lease(state_dir)
            own = _continuations.get(curator) or lease.enter()
        else:
            assert own is not None
            holder = account
        key = secrets.token_hex(16)
        header["holder"] = HOLDERS[account is not None]
        header |= {
            "id": own.id,
            "generation": own.generation,
            "key": key,
            "token": holder.confirm(own, digest_of_file(key, digest)),
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


def load(
    path: str | os.PathLike[str],
    *,
    state_dir: str | os.PathLike[str] | None = None,
    rehearsal: bool = False,
    check: Callable[[Policy, Saved | None, bool], Advance | None] | None = None,
) -> Policy:
    """Return the agent of a checkpoint, ready to continue. No file is created.

    A module that defines the agent outside a registered package must be imported before.

    Args:
        path: File written by `save`.
        state_dir: The state directory that the run had; see `Lease`.
        rehearsal: Whether to load the checkpoint for debugging, or on the same customers, whatever
            became of its run. The agent then has no guarantee, and the run can still be continued.
        check: Called with the agent, what the file says of its run, and whether an account has the
            generations. It raises an error if they do not suit the caller, or returns what
            continues the run in the account. After an error the checkpoint is as before.

    Raises:
        CheckpointError: If the file is missing, damaged, of another version, or refers to unknown
            classes. Or if the agent has a budget, and the checkpoint was loaded before, or the
            state directory does not know it.
        DataError: If the file of the state directory is damaged.
    """
    target = Path(path)
    header, payload = _read(target)
    agent = loads(payload, target)
    if state.name_of(type(agent)) != header["class"]:
        raise CheckpointError(f"{target} holds a {state.name_of(type(agent))}, not what it says")
    curator = getattr(agent, "curator", None)
    saved = None
    if curator is not None and _continues_once(curator):
        saved = _saved(header, target)
    advance = None
    if check is not None:
        advance = check(agent, saved, header.get("holder") == HOLDERS[1])
    if curator is None or saved is None:
        return agent
    if rehearsal:
        curator.disclose("a rehearsal, maybe a second continuation of one checkpoint")
        return agent
    if advance is None:
        if header["holder"] != HOLDERS[0]:
            raise CheckpointError(
                f"{target} is a session with an account: load it with dpb_gym.Session.load"
            )
        advance = Lease(state_dir).advance
    # files of earlier versions have no key, and their digest in the token
    key = header.get("key")
    content = header["sha256"] if key is None else digest_of_file(str(key), header["sha256"])
    if not saved.token.endswith(content):
        raise CheckpointError(
            f"{target}: its header is that of another file or its content was changed, so that it "
            "cannot be continued"
        )
    try:
        _continuations[curator] = advance(saved)
    except CheckpointError as error:
        raise CheckpointError(
            f"{target}: {error}. Or rehearsal=True loads it without a guarantee"
        ) from None
    return agent


def dumps(agent: Policy, *, try_it: bool = True) -> bytes:
    """Return the agent's whole state; the agent goes on.

    Args:
        agent: A running agent.
        try_it: Whether to restore a copy first, which is then discarded.

    Raises:
        AgentError: If the agent was handed over before, or its state cannot be saved.
    """
    name = type(agent).__name__
    curator = getattr(agent, "curator", None)
    if curator is not None and curator.handed_over:
        raise AgentError(f"{name} cannot be saved: {curator.handed_over}")
    try:
        payload = state.dumps(agent)
        if try_it:
            restored(payload)
    except Exception as error:
        raise AgentError(
            f"{name} cannot be saved: {error}. Its attributes must be data, and objects of classes "
            "of this package or of the module that defines the agent"
        ) from error
    return payload


def loads(payload: bytes, source: str | os.PathLike[str]) -> Policy:
    """Return the agent of a state that `dumps` returned, after a check of its privacy.

    Nothing shows that it was not continued before: that is the caller's to find out.

    Args:
        payload: The state.
        source: Name of the file, for messages.

    Raises:
        CheckpointError: If it is damaged, or does not follow from the budget and the plan.
    """
    load_plugins(AGENTS)
    try:
        return restored(payload)
    except Exception as error:  # also of `begin`
        raise CheckpointError(f"{source}: cannot be restored: {error}") from error


Advance = Callable[[Saved], Continuation]
_continuations: weakref.WeakKeyDictionary[privacy.Curator, Continuation] = (
    weakref.WeakKeyDictionary()
)
"""Continuations of the runs in this process, by the curator of the agent."""


def continuation_of(agent: Policy) -> Continuation | None:
    """Return the continuation of an agent that was loaded, None for a new one."""
    return _continuations.get(agent.curator)


def continue_as(agent: Policy, own: Continuation) -> None:
    """State which continuation of its run an agent is, before a session is made of it."""
    _continuations[agent.curator] = own


def continues_once(agent: Policy) -> bool:
    """Return whether a second continuation of the agent's run would break a guarantee."""
    return _continues_once(agent.curator)


def _continues_once(curator: privacy.Curator) -> bool:
    """Return whether a second continuation would break a guarantee."""
    guarantee = curator.guarantee
    return guarantee is not None and guarantee.private


def _saved(header: Mapping[str, Any], target: Path) -> Saved:
    """Return what the header says of the run of a private agent."""
    session, generation, token = (header.get(name) for name in ("id", "generation", "token"))
    texts = isinstance(session, str) and isinstance(token, str)
    if not texts or type(generation) is not int or header.get("holder") not in HOLDERS:
        raise CheckpointError(
            f"{target}: its agent is private, and its header has no id, generation, token and "
            "holder of a run"
        )
    assert isinstance(session, str) and isinstance(token, str)
    return Saved(session, generation, token)


def restored(payload: bytes) -> Policy:
    """Return the agent of a state after a check of what decides its privacy.

    Raises:
        DPBError: If the state is damaged, holds no agent, or does not follow from budget and plan.
    """
    agent = state.loads(payload)
    curator = getattr(agent, "curator", None)
    if not (isinstance(agent, Policy) and isinstance(curator, privacy.Curator | None)):
        raise CheckpointError("it holds no agent")
    if curator is None or not curator.private:
        check_exact(agent)
        return agent
    fresh = state.loads(payload)
    fresh.set_up_again()
    check_restored(agent, fresh)
    return agent


def _read(target: Path) -> tuple[dict[str, Any], bytes]:
    try:
        data = read_regular(target, MOST_BYTES)
    except OSError as error:
        raise CheckpointError(f"{target}: cannot be read: {error}") from error
    line, _, payload = data.partition(b"\n")
    try:
        header = json.loads(line if len(line) <= MOST_HEADER else b"")
        file_format = header["format"], header["version"]
        expected = header["bytes"], header["sha256"]
        known = isinstance(header["class"], str) and isinstance(header.get("id", ""), str)
        if not known or not re.fullmatch("([0-9a-f]{32})?", header.get("id", "")):
            raise ValueError("class and id are texts")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CheckpointError(f"{target} is not an agent checkpoint") from None
    if file_format[0] == FORMAT and type(file_format[1]) is int and file_format[1] < VERSION:
        raise CheckpointError(
            f"{target}: version {file_format[1]} of the format could run code, and cannot be read. "
            f"End its run with the version of dpb-gym that wrote it, or start a new run; this one "
            f"reads version {VERSION}"
        )
    if file_format != (FORMAT, VERSION):
        raise CheckpointError(
            f"{target}: format {file_format[0]!r} version {file_format[1]!r}, expected {FORMAT!r} "
            f"{VERSION}"
        )
    if (len(payload), hashlib.sha256(payload).hexdigest()) != expected:
        raise CheckpointError(
            f"{target} is damaged: {len(payload)} bytes of {expected[0]}, or changed content"
        )
    return header, payload
