"""Results of one agent as an archive that others can add to theirs.

An archive holds ``submission.json``, the agent's shards and timings under the paths that they
have in a result directory, and ``audits.json`` if the agent was audited. Numbers are never
taken on trust: whoever has the agent computes cells again with ``dpb verify``.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpb_gym.errors import ParameterError, ResultError, SuiteError, unknown_name
from dpb_gym.evaluation import manifest as origin
from dpb_gym.evaluation.audits import audit_key, leaderboard_audit, read_audits
from dpb_gym.evaluation.checkpoints import resolve_checkpoints
from dpb_gym.evaluation.exchange.archives import pack, unpack
from dpb_gym.evaluation.exchange.sources import source_reference
from dpb_gym.evaluation.filesystem import write_file
from dpb_gym.evaluation.outcome import CellResult
from dpb_gym.evaluation.shards import DamagedShard, read_shard, shard_name
from dpb_gym.evaluation.spec import ALGORITHM_VERSION, AgentRun, Cell
from dpb_gym.evaluation.store import Store
from dpb_gym.evaluation.suite import SEED_SPAN, Suite, load_suite, parse_suite, suite_names

SUBMISSION_VERSION = 1
SUBMISSION = "submission.json"
AUDITS = "audits.json"


@dataclass(frozen=True)
class Submission:
    """An archive that was read and found sound.

    Attributes:
        info: Content of its ``submission.json``.
        suite: The suite that it belongs to.
        results: Its cells, by path below ``shards/``.
        shards: The shards themselves, by the same paths.
        timings: Timings as JSON, by the same paths.
        audits: Audit reports by `dpb_gym.evaluation.audits.audit_key`.
    """

    info: Mapping[str, Any]
    suite: Suite
    results: Mapping[str, CellResult]
    shards: Mapping[str, bytes]
    timings: Mapping[str, bytes]
    audits: Mapping[str, Mapping[str, Any]]


def submit(
    directory: str | os.PathLike[str], agent: str, out: str | os.PathLike[str]
) -> dict[str, Any]:
    """Writes an archive with all results of one agent.

    Args:
        directory: A result directory.
        agent: The agent's registered name or its label.
        out: The archive: ``.tar.gz`` or ``.zip``.

    Returns:
        Content of its ``submission.json``.

    Raises:
        UnknownNameError: If the directory holds no results of the agent, or it is not
            registered here.
        AgentError: If others could not import the agent's code.
        ResultError: If a shard is damaged or was computed by other code than is installed, or
            the archive cannot be written.
    """
    store = Store.open(directory)
    chosen: dict[str, tuple[CellResult, bytes]] = {}
    known: set[str] = set()
    for path in store.shard_files():
        result = read_shard(path)
        names = {result.cell.agent.name, result.cell.agent.label}
        known |= names
        if agent in names:
            check_cell(result.cell, store.suite, str(path))
            chosen[shard_name(result.cell)] = result, path.read_bytes()
    if not chosen:
        raise unknown_name(f"agent in {store.path}", agent, known)
    owners = {result.cell.agent.name for result, _ in chosen.values()}
    if len(owners) > 1:
        raise ParameterError(f"{agent!r} is the label of several agents: {', '.join(owners)}")
    source = source_reference(owners.pop())
    members: dict[str, bytes] = {}
    for name, (result, content) in chosen.items():
        _check_code(result.cell, source)
        members[f"shards/{name}"] = content
        timing = store.timing(store.path / "shards" / name)
        if timing is not None:
            members[f"timings/{_timing_name(name)}"] = _json(asdict(timing))
    audits = {
        key: report
        for key, report in read_audits(store.path).items()
        if json.loads(key)[0] == source["name"]
    }
    if audits:
        members[AUDITS] = _json(audits)
    results = [result for result, _ in chosen.values()]
    info = {
        "submission": SUBMISSION_VERSION,
        "created": origin.now(),
        "suite": store.suite.name,
        "protocol": store.suite.protocol,
        "suite_text": store.manifest["suite_text"],
        "algorithm": ALGORITHM_VERSION,
        "agent": source,
        "labels": sorted({result.cell.agent.label for result in results}),
        "versions": origin.versions(),
        "revision": origin.revision(),
        "machine": origin.describe_machine(),
        "rows": _rows(store.suite, results),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    }
    members[SUBMISSION] = _json(info)
    target = Path(out)
    content = pack(target, members)
    # Whoever imports it reads exactly this: better to stumble here than there.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / target.name
        copy.write_bytes(content)
        read_submission(copy)
    write_file(target, content)
    return info


def read_submission(path: str | os.PathLike[str]) -> Submission:
    """Reads an archive and checks all of it.

    Raises:
        ResultError: If it is damaged, altered, holds other files than a submission does, or
            results that do not belong to the suite that it names.
    """
    file = Path(path)
    members = unpack(file)
    info = _object(file, SUBMISSION, members.pop(SUBMISSION, None))
    if info.get("submission") != SUBMISSION_VERSION:
        raise ResultError(
            f"{file}: expected submission version {SUBMISSION_VERSION}, found "
            f"{info.get('submission')!r}"
        )
    files = info.get("files")
    if not isinstance(files, dict) or set(files) != set(members):
        raise ResultError(f"{file}: its files are not those that {SUBMISSION} lists")
    for name, content in members.items():
        if hashlib.sha256(content).hexdigest() != files[name]:
            raise ResultError(f"{file}: {name} does not have the hash that {SUBMISSION} states")
    try:
        suite = parse_suite(info["suite_text"], f"{file}: suite_text")
        agent = info["agent"]["name"], info["agent"]["entry_point"]
        described = (info["suite"], info["protocol"]) == (suite.name, suite.protocol)
    except (KeyError, TypeError, SuiteError) as error:
        raise ResultError(f"{file}: {SUBMISSION} is damaged ({error})") from error
    if not described:
        raise ResultError(f"{file}: {SUBMISSION} names another suite than it holds")
    audits = _object(file, AUDITS, members.pop(AUDITS, b"{}"))
    for key, report in audits.items():
        _check_audit(file, key, report, agent[0])
    timings = {k[8:]: members.pop(k) for k in list(members) if k.startswith("timings/")}
    shards, results = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in members.items():
            result = _read_member(Path(folder), file, name, content)
            _check_identity(file, result.cell, suite, agent)
            place = name.removeprefix("shards/")
            shards[place], results[place] = content, result
    if not shards:
        raise ResultError(f"{file}: holds no results")
    expected = {_timing_name(name): name for name in shards}
    for name in timings:
        if name not in expected:
            raise ResultError(f"{file}: timings/{name} belongs to no shard")
        _object(file, f"timings/{name}", timings[name])
    return Submission(
        info, suite, results, shards, {expected[k]: v for k, v in timings.items()}, audits
    )


def check_suite(suite: Suite, where: str) -> None:
    """Refuses a suite that bears the name of one of the package but differs from it.

    Raises:
        ResultError: If it does.
    """
    if suite.name in suite_names() and load_suite(suite.name).protocol != suite.protocol:
        raise ResultError(
            f"{where}: its suite {suite.name!r} (protocol {suite.protocol[:8]}) is not the one of "
            f"this package (protocol {load_suite(suite.name).protocol[:8]}): other tasks, seeds "
            "or checkpoints"
        )


def check_cell(cell: Cell, suite: Suite, where: str) -> None:
    """Checks that a cell says exactly what its suite says.

    Raises:
        ResultError: If its task, seed, checkpoints or replicates are others.
    """
    if (cell.suite, cell.protocol) != (suite.name, suite.protocol):
        raise ResultError(
            f"{where}: {cell} belongs to suite {cell.suite!r} (protocol "
            f"{cell.protocol[:8]}), not to {suite.name!r} (protocol {suite.protocol[:8]})"
        )
    task = next((task for task in suite.tasks if task.name == cell.task.name), None)
    if task is None or cell.task.identity != task.identity:
        raise ResultError(
            f"{where}: {cell} was computed on another environment than suite {suite.name!r} has"
        )
    checkpoints = resolve_checkpoints(suite.checkpoints, task.horizon)
    if (cell.seed, cell.checkpoints) != (suite.seed, checkpoints) or cell.stop > SEED_SPAN:
        raise ResultError(
            f"{where}: {cell} has other seeds or checkpoints than suite {suite.name!r}"
        )


def _check_identity(file: Path, cell: Cell, suite: Suite, agent: tuple[str, str]) -> None:
    check_cell(cell, suite, str(file))
    run = cell.agent
    if (run.name, run.entry_point) != agent:
        raise ResultError(f"{file}: {cell} belongs to agent {run.name!r}, not {agent[0]!r}")


def _check_code(cell: Cell, source: Mapping[str, Any]) -> None:
    if cell.algorithm != ALGORITHM_VERSION:
        raise ResultError(
            f"{cell} was computed by algorithm version {cell.algorithm}; this is "
            f"{ALGORITHM_VERSION}: run the suite again"
        )
    for key in ("entry_point", "source"):
        if getattr(cell.agent, key) != source[key]:
            raise ResultError(
                f"{cell} was computed with another {key.replace('_', ' ')} of the agent than is "
                "here: run the suite again"
            )


def _read_member(folder: Path, file: Path, name: str, content: bytes) -> CellResult:
    """Reads a shard of an archive; its path must be the one that its cell has."""
    if not name.startswith("shards/") or not name.endswith(".parquet"):
        raise ResultError(f"{file}: {name} is no part of a submission")
    copy = folder / Path(name).name
    copy.write_bytes(content)
    try:
        result = read_shard(copy)
    except DamagedShard as error:
        raise ResultError(f"{file}: {str(error).replace(str(copy), name)}") from error
    finally:
        copy.unlink()
    if name != f"shards/{shard_name(result.cell)}":
        raise ResultError(f"{file}: {name} holds another cell ({result.cell})")
    return result


def _rows(suite: Suite, results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """What the archive holds: guarantee and number of replicates by task, label and budget."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for result in results:
        key = result.cell.row
        row = found.setdefault(
            key,
            {
                **dict(zip(("task", "agent", "budget"), key)),
                "guarantee": result.guarantee,
                "replicates": 0,
                "of": suite.task(key[0]).replicates or suite.replicates,
            },
        )
        row["replicates"] += len(result.cell.replicates)
    return list(found.values())


def _check_audit(file: Path, key: str, report: Any, agent: str) -> None:
    """An audit must speak of the submission's own agent, and be one that the page can show."""
    try:
        name, params, kind = json.loads(key)
        run = AgentRun(label=name, name=name, entry_point=name, params=params)
        own = name == agent and key == audit_key(run, kind)
        leaderboard_audit(report)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ResultError(f"{file}: {AUDITS} is damaged ({error!r})") from error
    if not own:
        raise ResultError(f"{file}: {AUDITS} speaks of {name!r}, which is not the agent")


def _timing_name(shard: str) -> str:
    return shard.removesuffix(".parquet") + ".json"


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def _object(file: Path, name: str, content: bytes | None) -> dict[str, Any]:
    if content is None:
        raise ResultError(f"{file}: is no submission: it has no {name}")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{file}: {name} is damaged ({error})") from error
    if not isinstance(value, dict):
        raise ResultError(f"{file}: {name} is damaged (no object)")
    return value
