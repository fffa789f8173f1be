"""Releasers of isolated agents, made of the plain data that an agent's process sends.

An isolated agent's process names a class and gives plain values. The class describes which values
it takes (`dpb_gym.privacy.plain_plans`), and is made by its constructor here. So sensitivities,
costs and scales of noise are computed in this process, and no number that follows from others is
read. The descriptions also have the methods that an agent can call, and check every argument before
compiled code reads it.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

from dpb_gym.errors import AgentError, shown
from dpb_gym.feedback import context_mechanisms
from dpb_gym.feedback.channel import ResponseChannel
from dpb_gym.local_privacy import Responses
from dpb_gym.privacy import Curator
from dpb_gym.privacy.guarantee import RESPONSES
from dpb_gym.privacy.plain_plans import (
    MOST_NUMBERS,
    RELEASERS,
    SENT,
    Given,
    ReleaserEntry,
    Uncosted,
    describe_releaser,
    instance,
    path_of,
    plain,
    releaser_named,
    would_run,
)
from dpb_gym.privacy.releasers import sum_plans
from dpb_gym.privacy.releasers.minimiser import Minimiser
from dpb_gym.privacy.releasers.record_bounds import Ball
from dpb_gym.privacy.releasers.releaser import Releaser
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.streams import AgentStreams

DESCRIBING = (context_mechanisms, sum_plans)
"""Modules whose import describes the library's releasers and their arguments."""
CHARGES = ("as_printed", "disclose", "seal")
"""Methods of a curator that an isolated agent can call, in `begin`."""


def _with_channel(options: Given, problem: ProblemInfo, streams: AgentStreams) -> Given:
    """Return the arguments of responses with the channel of this process' problem."""
    if "channel" not in options:
        return options
    return {"channel": ResponseChannel(options["channel"], problem), "streams": streams}


describe_releaser(Responses, {"channel": instance(ResponseChannel)}, SENT, completed=_with_channel)


def described(made: Releaser | None, kind: type, args: tuple[Any, ...], options: Given) -> Given:
    """Return the arguments of a releaser's constructor as plain values, in the agent's process.

    Args:
        made: The releaser that they made, which can describe them as far as they are functions.
        kind: Its class.
        args: Arguments behind the curator.
        options: Arguments with names.

    Raises:
        AgentError: If isolated agents cannot have such a releaser or argument.
    """
    path = path_of(kind)
    entry = RELEASERS.get(path)
    if entry is None or entry.kind is not kind:
        if issubclass(kind, Minimiser):
            raise AgentError(
                f"{kind.__name__}: a minimiser's loss, which is the agent's code, would run beside "
                "the raw data; use a releaser without one"
            )
        raise would_run(path)
    bound = inspect.signature(kind).bind(None, *args, **options)
    given: Given = {}
    for name, value in list(bound.arguments.items())[1:]:
        several = bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        given |= value if several else {name: value}
    if made is not None:
        given = made.plain_options(given)
    return {name: plain(v) for name, v in given.items() if not isinstance(v, AgentStreams)}


def new_releaser(
    curator: Curator, path: Any, given: Any, problem: ProblemInfo, streams: AgentStreams
) -> tuple[Any, ReleaserEntry]:
    """Return a new releaser and its description.

    Args:
        curator: Its curator.
        path: Module and name of its class, as the agent's process says.
        given: Arguments of its constructor, as the agent's process says.
        problem: The problem.
        streams: The streams of this process.

    Raises:
        AgentError: If isolated agents cannot have such a releaser or argument.
        DPBError: As the constructor does.
    """
    entry = releaser_named(path)
    if type(given) is not dict:
        raise AgentError(f"a releaser is made of arguments, not of {shown(given)}")
    options: Given = {}
    for name, value in given.items():
        if name not in entry.options:
            raise AgentError(f"{path} has no argument {shown(name)} for isolated agents")
        options[name] = entry.options[name](name, value)
    if entry.check is not None:
        entry.check(curator, options)
    if entry.size(options) * curator.replicates > MOST_NUMBERS:
        raise AgentError(
            f"a releaser of {entry.size(options)} numbers for {curator.replicates} replicates; "
            f"isolated agents have at most {MOST_NUMBERS} in all"
        )
    calibration = options.get("calibration")
    if isinstance(calibration, Uncosted) and entry.loss is not None:
        options["calibration"] = calibration.completed(entry.loss(options))
    if entry.completed is not None:
        options = entry.completed(options, problem, streams)
    missing = [
        parameter.name
        for parameter in inspect.signature(entry.kind).parameters.values()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        and parameter.name not in ("curator", *options)
    ]
    if missing:
        raise AgentError(f"{path} needs {', '.join(missing)}")
    releaser = entry.kind(curator, **options)
    if isinstance(releaser, Sum):
        _bound_records(curator, releaser)
    return releaser, entry


def _bound_records(curator: Curator, sums: Sum) -> None:
    """Bound the records of sums by their sensitivity, or raise AgentError if nothing can.

    Records of a ball may have a sensitivity that only their form justifies, and the guarantee says
    that it is declared. If their inner products are not negative, they are at most 2^(1/2) radii
    apart. So longer records than sensitivity / 2^(1/2) are shortened to that.
    """
    if not curator.private or sums.enforced:
        return
    if sums.clip is None:
        if not curator.ledger.disclosed:
            raise AgentError(f"{sums.what}: give clip or reward, which a releaser enforces")
        return
    given = sums.sensitivity / sums.records_per_unit
    apart = sums.clip.sensitivity(curator.relation, curator.unit in RESPONSES)
    if given >= apart * (1.0 - 1e-12):
        return
    if type(sums.clip) is not Ball:
        raise AgentError(
            f"{sums.what}: its bound allows records that are {apart:.6g} apart, and an isolated "
            f"agent declares a sensitivity of {given:.6g}, which nothing enforces"
        )
    sums.radius = min(sums.radius, math.sqrt(0.5) * given * (1.0 + 1e-6))
