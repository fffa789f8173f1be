"""Devices: a customer's side of a session, which decides and randomises the response.

A device is built from public data alone: names, parameters and the released values that its
policy follows from. It sets up a fresh agent from them and repeats the releases, so that nothing
else can reach it. docs/trust.md lists the fields.
"""

from __future__ import annotations

import copy
import json
import math
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym import privacy, validation
from dpb_gym.agent import NOISES, Agent
from dpb_gym.customer_rounds import context_of, feedback_of, message_round, shown_action
from dpb_gym.errors import AgentError, DPBError, MissingExtraError, ParameterError, shown
from dpb_gym.portable import fill_normals
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.privacy.shuffler import bits_of
from dpb_gym.problems.base import Array, Context, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import AgentSpec, agent_spec, as_key, check_supported
from dpb_gym.streams import AgentStreams, BlockDraws, fill_uniforms

FORMAT = "dpb-gym device, version 1"
CONFIGURATION = ("format", "agent", "parameters", "budget", "noise", "problem", "price_band")
PROGRESS = ("decision", "rounds", "releases")
FIELDS = (*CONFIGURATION, *PROGRESS)
RELEASE = ("round", "devices", "sum")
MOST_REPLICAS = 4


def message_sums(agent: Agent, problem: ProblemInfo) -> Sum | None:
    """Return the sums of an agent that take messages of devices, or None if it has none.

    They need a budget without a trusted curator, and an agent that uses nothing of a round that
    stays on the device: it protects a user-round, and arms change.
    """
    curator = agent.curator
    if curator.unit != "user-round" or problem.fixed_arms:
        return None
    sums = [r for r in map(behind, curator.releasers) if isinstance(r, Sum) and r.trust.devices]
    return sums[0] if len(sums) == 1 else None


def split_sums(agent: Agent, problem: ProblemInfo) -> Sum:
    """Return the `message_sums` of an agent.

    Raises:
        AgentError: If it has none.
    """
    sums = message_sums(agent, problem)
    if sums is None:
        raise AgentError(
            "devices need a budget without a trusted curator, such as 'rho=1@local', an agent "
            "that protects a user-round, and arms that change; this one: "
            f"{agent.curator.guarantee}"
        )
    return sums


class Device:
    """The device of one customer: it decides, and turns the response into a message.

    The context, the action and the response stay on the device; the session learns the message.
    All random numbers are drawn on the device, from the operating system's entropy. Before it
    decides, a device is nothing but `public`, and can be pickled as that.

    Args:
        public: `Device.public` of the device that `Session.device` returned, JSON values.

    Attributes:
        decision: Number of the decision; None with a shuffler, which must not learn it.
        public: What the device is built from: names, parameters, and released values.

    Raises:
        ParameterError: If `public` has other fields.
    """

    def __init__(self, public: Mapping[str, Any]) -> None:
        given = validation.settings("a device", public, dict.fromkeys(FIELDS))
        try:
            self.public: dict[str, Any] = json.loads(json.dumps(given, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise ParameterError(f"a device is built from JSON values: {error}") from error
        if given["format"] != FORMAT:
            raise ParameterError(f"a device has the format {FORMAT!r}, got {shown(public)}")
        self.decision = validation.optional(
            validation.integer, "decision", self.public["decision"], 1
        )
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._round: tuple[Context, Array] | None = None
        self._finished = False

    def __reduce__(self) -> tuple[Any, ...]:
        if self._round is not None:
            raise AgentError("a device that has decided holds its customer's data: it cannot move")
        return Device, (self.public,)

    @cached_property
    def _agent(self) -> Agent:
        return _agent_of(self.public)

    @property
    def guarantee(self) -> privacy.Guarantee | None:
        """Guarantee of the message, which the device computes from the budget that it applies.

        Raises:
            ParameterError: If `public` describes no agent that plays on devices.
        """
        guarantee = self._agent.curator.guarantee
        return None if guarantee is None else guarantee.delivered(on_devices=True)

    def decide(
        self,
        features: Any,
        *,
        revenues: Any = None,
        arms: Any = None,
        user: int | None = None,
        available: Any = None,
    ) -> Any:
        """Return the action for the customer; arguments as for `Session.decide`.

        Raises:
            ParameterError: If `public` describes no agent that plays on devices, or a value has
                the wrong shape, is not finite or out of range.
            AgentError: If the device has decided already, or belongs to the parent of a forked
                process.
        """
        with self._lock:
            self._check_process()
            if self._round is not None:
                raise AgentError("the device has decided already: every customer has a new one")
            info = _problem(self.public)
            agent = self._agent
            context = context_of(
                info,
                int(self.public["rounds"]) + 1,
                features,
                revenues=revenues,
                arms=arms,
                user=user,
                available=available,
            )
            action = np.array(kind_of(info.kind).check_action(info, agent.act(context), 1))
            if self.public["price_band"] is not None:
                action = np.clip(action, *self.public["price_band"])
            self._round = context, action
            return shown_action(info, action)

    def message(self, response: Any) -> dict[str, Any]:
        """Return the message about the response, JSON values; a device makes one only.

        With an aggregator the values are integers modulo ``modulus``. Each of them has a small part
        of the noise only, so mask them before they leave the device; see docs/trust.md. With a
        shuffler the message has single bits, for a `privacy.Shuffler`.

        Args:
            response: As for `Session.observe`.

        Raises:
            ParameterError: If the device has not decided, made a message, or the response is
                impossible.
            AgentError: In another process than that of the decision.
        """
        with self._lock:
            self._check_process()
            if self._round is None:
                raise ParameterError("the device has not decided: there is no response yet")
            if self._finished:
                raise ParameterError("the device has made its message already")
            context, action = self._round
            feedback = feedback_of(_problem(self.public), context, action, response)
            self._finished = True
            with self._agent.curator.round(context.t):
                self._agent.observe(context, action, feedback)
            sums = split_sums(self._agent, _problem(self.public))
            sent = None if sums.mail is None else sums.mail[0]
            if sums.shuffled:
                return _bits(sums, sent)
            values = [] if sent is None else sent.tolist()
            modulus = {} if sums.modulus is None else {"modulus": sums.modulus}
            message = {"decision": self.decision, "batch": sums.releases, "values": values}
            return {**message, **modulus}

    def _check_process(self) -> None:
        """Raise AgentError in a process that was forked from that of the device."""
        if os.getpid() != self._process:
            raise AgentError(
                "the device was copied when its process was forked, and the parent process goes on "
                "with it. A device of this process is Device(public) of one that has not decided"
            )


def _bits(sums: Sum, ones: NDArray[Any] | None) -> dict[str, Any]:
    """Return the message to a shuffler; after the last batch it has no bits."""
    if ones is None:
        return {"batch": sums.releases, "bits": []}
    header = sums.header
    bits = bits_of(ones, header["bits_each"])
    return {**header, "once": secrets.token_hex(16), "bits": bits}


def public_of(
    facts: Mapping[str, Any],
    agent: Agent,
    problem: ProblemInfo,
    band: tuple[float, float] | None,
    decision: int,
) -> dict[str, Any]:
    """Return what the next device of a session is built from; see `Device.public`.

    Args:
        facts: ``agent``, ``parameters``, ``budget`` and ``generator`` of the session.
        agent: Its agent.
        problem: Its problem.
        band: Lowest and highest price, or None.
        decision: Number of the decision.

    Raises:
        AgentError: If the agent is not registered, so that a device cannot make it by its name.
    """
    name = facts.get("agent")
    try:
        registered = agent_spec(str(name)).maker is agent.own_class
    except DPBError:
        registered = False
    if not registered:
        raise AgentError(
            f"devices make the agent by its registered name; {shown(name)} is not registered"
        )
    sums = split_sums(agent, problem)
    return {
        "format": FORMAT,
        "agent": name,
        "parameters": dict(facts["parameters"]),
        "budget": facts["budget"],
        "noise": facts["generator"],
        "problem": _plain_problem(problem),
        "price_band": None if band is None else list(band),
        "decision": None if sums.shuffled else decision,
        "rounds": sums.rounds,
        "releases": copy.deepcopy(sums.past),
    }


def _plain_problem(problem: ProblemInfo) -> dict[str, Any]:
    """Return a problem as strict JSON values: infinite bounds are null."""
    plain = problem.to_dict()
    plain["reward_range"] = [x if math.isfinite(x) else None for x in problem.reward_range]
    return plain


class _OwnDraws(BlockDraws):
    """Draws of a generator that the operating system seeds; a copy has another generator."""

    def __init__(self, shape: tuple[int, ...], fill: Callable[..., None]) -> None:
        super().__init__([_generator()], shape, fill)
        self._own = shape, fill

    def __deepcopy__(self, memo: dict[int, Any]) -> _OwnDraws:
        return _OwnDraws(*self._own)


class _OwnStreams(AgentStreams):
    """Streams for the decisions of one device, seeded by the operating system."""

    def __init__(self) -> None:
        super().__init__([secrets.randbits(128)])
        self.agent = (_generator(),)

    def uniforms(self, *shape: int) -> BlockDraws:
        return _OwnDraws(shape, fill_uniforms)

    def normals(self, *shape: int) -> BlockDraws:
        return _OwnDraws(shape, fill_normals)


def _generator() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence()))


class _Replica:
    """A fresh agent that has seen the released values of a session, and nothing else.

    It observes a round of placeholders per message, as the session's own agent does.
    """

    def __init__(self, public: Mapping[str, Any]) -> None:
        spec, budget = _spec(public)
        self._streams = _OwnStreams()
        self._problem = _problem(public)
        self._agent = spec.make()
        noise = "system" if public["noise"] == "system" else privacy.NoiseSource([_generator()])
        self._agent.set_up(self._problem, self._streams, budget, noise=noise)
        self._sums = split_sums(self._agent, self._problem)
        self._sums.ready()
        self._sums.side = "replica"

    def leads_to(self, public: Mapping[str, Any]) -> bool:
        """Return whether a device's releases continue those that were repeated so far."""
        past = self._sums.past
        continued: bool = past == public["releases"][: len(past)]
        return continued and self._sums.rounds <= public["rounds"]

    def advance(self, public: Mapping[str, Any]) -> None:
        """Repeat the releases of a device, and count the messages since then.

        Raises:
            ParameterError: If they do not follow the plan of the budget.
        """
        sums = self._sums
        plan = sums.schedule
        rounds = validation.integer("rounds", public["rounds"], 0, self._problem.longest)
        releases = public["releases"]
        due = plan.ends[plan.ends <= rounds].tolist()
        if not isinstance(releases, list) or len(releases) != len(due):
            raise ParameterError(f"after {rounds} messages there are {len(due)} releases")
        for end, size, release in zip(due, plan.sizes.tolist(), releases):
            given = validation.settings("a release", release, dict.fromkeys(RELEASE))
            validation.integer("round", given["round"], end, end)
            validation.integer("devices", given["devices"], 0, size)
            validation.array("sum", given["sum"], (sums.shape.width,))
        sums.coming = releases[len(sums.past) :]
        while sums.rounds < rounds:
            with self._agent.curator.round(sums.rounds + 1):
                self._agent.observe(*message_round(self._problem, sums.rounds + 1))

    def device_agent(self, public: Mapping[str, Any]) -> Agent:
        """Return a copy for one device, with random numbers of its own."""
        copied = copy.deepcopy(self._agent, {id(g): _generator() for g in self._streams.agent})
        # system noise has no generator that a copy could share
        noise = None if copied.curator.system_noise else privacy.NoiseSource([_generator()])
        split_sums(copied, self._problem).become_device(noise)
        return copied


_replicas: OrderedDict[str, _Replica] = OrderedDict()
"""The last replicas by configuration: the next device repeats new releases only."""
_making = threading.Lock()


def _forget() -> None:
    """Drop what belongs to the parent of a forked process."""
    global _making
    _replicas.clear()
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _agent_of(public: Mapping[str, Any]) -> Agent:
    """Return the agent of a device.

    Raises:
        ParameterError: If `public` describes no agent that plays on devices.
    """
    key = as_key([public[name] for name in CONFIGURATION])
    try:
        with _making:
            replica = _replicas.pop(key, None)
            if replica is None or not replica.leads_to(public):
                replica = _Replica(public)
            replica.advance(public)
            _replicas[key] = replica
            while len(_replicas) > MOST_REPLICAS:
                _replicas.popitem(last=False)
            return replica.device_agent(public)
    except MissingExtraError:
        raise
    except Exception as error:  # a forged configuration can raise anything
        raise ParameterError(f"no device can be made of this: {error}") from error


def _spec(public: Mapping[str, Any]) -> tuple[AgentSpec, privacy.Budget]:
    """Return the agent's spec and the budget, both checked."""
    validation.choice("noise", public["noise"], NOISES)
    band = public["price_band"]
    if band is not None:
        lowest, highest = validation.array("price_band", band, (2,), 0.0)
        if lowest > min(highest, 1.0):  # prices are at most 1
            raise ParameterError(f"price_band must be [lowest, highest], got {shown(band)}")
    budget = privacy.Budget.parse(public["budget"])
    if budget is None:
        raise ParameterError("a device needs a budget")
    spec = agent_spec(validation.text("agent", public["agent"]))
    spec = spec.over(validation.settings("parameters", public["parameters"], spec.defaults))
    check_supported(spec, _problem(public), True)
    return spec, budget


def _problem(public: Mapping[str, Any]) -> ProblemInfo:
    return ProblemInfo.from_dict(public["problem"])
