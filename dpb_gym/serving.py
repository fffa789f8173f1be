"""Sessions: an agent that decides for real customers and learns from their responses.

A session is an agent of one replicate with its curator, not a server. Only its decisions are
private releases. All its other data, except the guarantee, are raw or computed from raw records.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import secrets
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpb_gym import checkpoint, privacy, validation
from dpb_gym.agent import Agent, SingleAgent
from dpb_gym.checkpoint import Advance, Policy
from dpb_gym.customer_rounds import (
    context_of,
    empty_round,
    feedback_of,
    message_round,
    shown_action,
)
from dpb_gym.devices import Device, message_sums, public_of, split_sums
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import AgentError, CheckpointError, HorizonExceeded, ParameterError, shown
from dpb_gym.privacy.generations import Continuation, Lease, Saved
from dpb_gym.privacy.guarantee import ROUNDS
from dpb_gym.privacy.releasers.release_times import Every
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.privacy.tape import external, repeating
from dpb_gym.problems.base import Array, Context, Feedback, Problem, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import AgentSpec, as_key, check_supported, spec_of
from dpb_gym.streams import check_seed

WARM_DECISIONS = 330
"""Decisions of the copy of an agent that compiles its kernels."""
MOST_WARM_DECISIONS = 5000
"""Their largest number if an integer parameter, such as the length of a batch, asks for more."""
PARTS: dict[str, Any] = {
    "punctual": bool, "t": int, "owed": bool, "open": dict, "came": list, "persons": list,
    "account": str | None,
    "facts": dict | None, "bound": float | int | None, "band": tuple | None, "lost": list | None,
    "split": bool | None, "charged": int | None,
}  # fmt: skip
"""Types of what a session has."""


ON_THIS_MACHINE = "a saved session continues once on this machine"
BY_THE_ACCOUNT = "a saved session continues once, by its account"
"""Clauses of a guarantee."""


class Session:
    """A running agent; `serve` starts a session, `load` continues a saved one.

    Methods are thread-safe. Before each decision the agent learns from at most one response, in
    order of arrival. So a session with immediate responses equals a run of the harness, bit for
    bit.

    The guarantee does not cover arrivals of customers, or whether and when they respond.

    With an account, a response is passed to the agent only if the customer's lifetime budget pays
    for it. Otherwise the agent observes a round without a response, and the customer is served
    all the same. Who is refused depends on arrivals only.

    Attributes:
        agent: The agent.
        problem: Public facts of the problem.
        account: Lifetime budgets of the customers, or None.
    """

    def __init__(
        self,
        agent: Agent,
        problem: ProblemInfo,
        punctual: bool = False,
        account: privacy.Account | None = None,
        state_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.agent = agent
        self.problem = problem
        self.account = _checked_account(account)
        agent.curator.rounds.attend()  # records enter in rounds that the session opens
        # absolute, as a program can change its working directory before it saves
        self._state_dir = None if state_dir is None else os.path.abspath(state_dir)
        self._process = os.getpid()  # a fork outside of Python does not run its hooks
        self._lock = threading.RLock()
        # Plain data on the agent, so that the agent's checkpoint contains the session.
        named = None if account is None else str(account.path or "")
        self._state: dict[str, Any] = vars(agent).setdefault(
            "_session",
            {"problem": problem, "punctual": punctual, "t": 0, "owed": False, "open": {},
             "came": [], "persons": [], "account": named},
        )  # fmt: skip
        self._numbers = {person: n for n, person in enumerate(self._state["persons"])}
        self._charges: privacy.SessionCharges | None = None
        self._releases: list[int | None] = []
        if account is not None:
            if self.guarantee is None:
                raise AgentError("an account charges a guarantee: this session has no budget")
            own = checkpoint.continuation_of(agent)
            self._charges = privacy.SessionCharges(account, self.guarantee, own)
            self._charges.check_charged(self._state.get("charged") or 0)
            # a second session of this agent counts on
            checkpoint.continue_as(agent, self._charges.own)
            self._entries = self.agent.curator.charges

    def __reduce__(self) -> Any:
        """Raise `AgentError`, also where Python copies a session.

        Both copies would go on with the same records. `save` and `load` continue one.
        """
        raise AgentError(
            "a session cannot be copied: it goes on once. Write it by save(path) and continue it "
            "by Session.load(path)"
        )

    @property
    def guarantee(self) -> privacy.Guarantee | None:
        """The agent's guarantee for real customers; None: no budget.

        It says who sees what (`Guarantee.delivered`), and where a saved session continues once.
        """
        guarantee = self.agent.curator.guarantee
        if guarantee is None or not guarantee.private:
            return guarantee
        served = self.decisions > 0 and not self._state.get("split")
        guarantee = guarantee.delivered(on_devices=self._can_split and not served)
        once = ON_THIS_MACHINE if self.account is None else BY_THE_ACCOUNT
        return replace(guarantee, provisos=(*guarantee.provisos, once))

    def certificate(self, audit: Any = None) -> privacy.Certificate:
        """Return the certificate of the guarantee, with what the account has charged so far.

        Args:
            audit: Report of an audit of the agent (`dpb_gym.audits.AuditReport`), or None.

        Raises:
            AgentError: If the session has no budget.
            ParameterError: If the audit is of another agent.
        """
        from dpb_gym.privacy.certificate import code_of

        if self.guarantee is None:
            raise AgentError("a session without a budget has no certificate")
        facts = {
            **self._state["facts"], "code": code_of(self.agent.own_class),
            "guarantee": self.guarantee.to_dict(), "provisos": self.guarantee.provisos,
            "problem": self.problem.to_dict(), "audit": None if audit is None else audit.summary(),
            "lifetime": None if self.account is None else self.account.summary(),
        }  # fmt: skip
        return privacy.Certificate.of([facts])

    @property
    def decisions(self) -> int:
        """Number of decisions so far, at most the problem's horizon."""
        return int(self._state["t"])

    @property
    def pending(self) -> tuple[int, ...]:
        """Numbers of the decisions without a response."""
        return tuple(self._state["open"])

    @property
    def n_pending(self) -> int:
        """Number of decisions without a response."""
        return len(self._state["open"])

    @property
    def lost(self) -> tuple[int, ...]:
        """Numbers of the decisions whose responses the agent failed on; none is used again."""
        return tuple(self._state.get("lost", ()))

    def disclosure(self, decision: int) -> dict[str, Any]:
        """Return what a customer may be told of a decision without a response, as plain data.

        Args:
            decision: Number of the decision.

        Returns:
            The decision, its action, the agent, its guarantee, what the action follows from,
            whether the customer's features lay outside the declared bounds, and the lowest and
            highest price of any customer or None.

        Raises:
            ParameterError: If there is no such decision, or it was answered or dropped.
        """
        context, action = self._opened(decision)
        facts = self._state.get("facts", {})
        return {
            "decision": context.t,
            "action": action[0].tolist(),
            "agent": facts.get("agent", self.agent.class_name),
            "guarantee": None if self.guarantee is None else str(self.guarantee),
            "follows_from": "this customer's features and what was released of earlier responses",
            "features_outside_bounds": self._outside(context.features),
            "price_band": self._state.get("band"),
        }

    def _outside(self, features: Array) -> bool:
        bound = self._state.get("bound")
        return bound is not None and float(np.abs(features).max(initial=0.0)) > bound * (1.0 + 1e-6)

    def decide(
        self,
        features: Any,
        *,
        revenues: Any = None,
        arms: Any = None,
        user: int | str | None = None,
        available: Any = None,
    ) -> tuple[int, Any]:
        """Return the decision for the next customer.

        Args:
            features: As in `Context`, without the replicate axis: assortment ``(N, d)``, pricing
                ``(d - 1,)``, recommendation ``(n_candidates, d)``.
            revenues: Assortment: revenues of the items ``(N,)``; 1 by default if all are equal.
            arms: Recommendation from a fixed pool: indices of the candidates.
            user: Number of the customer, where the problem identifies users or the session has
                an account; below 2^26 if the guarantee is per user. With an account it may be a
                text, see `Account.person`; then agents see a number in order of first appearance,
                and all customers need texts.
            available: Mask of items or candidates that can be offered, where availability varies;
                all by default.

        Returns:
            The decision's number, for `observe`, and the action: a slate of at most K items, a
            price, or a candidate's index.

        Raises:
            ParameterError: If a value has the wrong shape, is not finite or out of range; the
                session is unchanged.
            HorizonExceeded: If the horizon is over.
            AgentError: If the agent needs the last response first, or fails; a response that it
                failed on is in `lost`. Or if it charges its curator for more than an account has
                charged. Or if the budget trusts no curator and the customers'
                devices decide; only simulations (``noise="seeded"``) may decide here.
                Or if the session was handed over.
            CheckpointError: If the session goes on elsewhere, as its account tells.
            DataError: If the account is damaged or cannot be written. Nothing was decided, and the
                next call charges the response again.
        """
        with self._used():
            state = self._state
            info = self.problem
            kind = kind_of(self.problem.kind)
            self._check_trusted()
            if info.horizon is not None and state["t"] >= info.horizon:
                raise HorizonExceeded(f"the session was planned for {info.horizon:,} decisions")
            person = self._number(user)
            context = context_of(
                info,
                state["t"] + 1,
                features,
                revenues=revenues,
                arms=arms,
                user=person,
                available=available,
                identified=self.account is not None,
                counted=self.agent.curator.unit not in ROUNDS,
            )
            if self._outside(context.features):
                warnings.warn(
                    f"decision {context.t}: features exceed the declared bound {state['bound']:g} "
                    "in magnitude; scale them by the bounds of the log, which agents rely on",
                    RuntimeWarning,
                    stacklevel=2,
                )
            if state["owed"] and state["punctual"] and not state["came"]:
                raise AgentError(
                    f"this agent needs every response in its own round: observe {state['t']} first"
                )
            if state["owed"]:
                self._learn(context)
            self._commit()
            action = kind.check_action(info, self.agent.act(context), 1)
            self._commit(acted=True)
            self._check_charges()
            action = np.array(kind.played(info, action))
            if (band := state.get("band")) is not None:
                action = np.clip(action, *band)
            self._remember(user)
            state["t"], state["owed"] = context.t, True
            state["open"][context.t] = (context, action)
            return context.t, shown_action(info, action)

    def observe(self, decision: int, response: Any) -> None:
        """Record the response to a decision; responses may be late and out of order.

        Args:
            decision: Number of the decision.
            response: Assortment: the bought item, or None; pricing: the demand (0 or 1, False or
                True, if demand is logistic); recommendation: the reward; other kinds: the reward,
                or ``(reward, answer)`` if the kind has an answer.

        Raises:
            ParameterError: If there is no such decision, it was answered or dropped, or the
                response is impossible; the session is unchanged.
        """
        with self._used():
            context, action = self._opened(decision)
            if context is None:
                raise ParameterError(f"decision {decision} is a device's: receive its message")
            feedback = feedback_of(self.problem, context, action, response)
            del self._state["open"][decision]
            self._state["came"].append((context, action, feedback))

    def device(self, *, simulation: bool = False) -> Device:
        """Return the device of the next customer, which decides and makes the only message.

        Send `Device.public` to the customer, where ``Device(public)`` is the device. It has
        released values only.

        Args:
            simulation: Whether the session is a simulation, without real customers. Then seeded
                noise and the simulated aggregator are accepted.

        Raises:
            AgentError: If the budget names a trusted curator, or contexts are public and the agent
                uses them, or the agent is not registered; or the session has an account, or has
                decided for customers itself; or it is no simulation and it is a rehearsal, its
                noise is seeded or its aggregator is simulated.
            HorizonExceeded: If the horizon is over.
        """
        with self._used():
            sums = self._split_sums()
            state = self._state
            facts = state.get("facts", {})
            if not simulation:
                self._check_real(sums)
            if state["t"] and not state.get("split"):
                raise AgentError(
                    "this session has decided for customers itself, so it has their data: start "
                    "another one for devices"
                )
            if state["t"] >= self.problem.longest:
                raise HorizonExceeded(f"the session was planned for {state['t']:,} decisions")
            number = state["t"] + 1
            device = Device(public_of(facts, self.agent, self.problem, state.get("band"), number))
            state["t"], state["split"] = number, True
            if device.decision is not None:
                state["open"][number] = (None, None)
            return device

    def _check_real(self, sums: privacy.Sum) -> None:
        """Raise AgentError if session, noise or aggregator are for simulations only."""
        guarantee = self.agent.curator.guarantee
        if guarantee is not None and not guarantee.private:
            raise AgentError(f"a session without a guarantee makes no devices: {guarantee.basis}")
        if not self.agent.curator.system_noise:
            raise AgentError(
                "devices of real customers need noise='system'; in a simulation, "
                "device(simulation=True) accepts seeded noise"
            )
        simulated = isinstance(sums.aggregator, privacy.SimulatedAggregator)
        if simulated and sums.trust.aggregated:
            raise AgentError(
                "the simulated aggregator reads every message, which has a part of the noise only: "
                "give a real one to aggregate_with(...); device(simulation=True) accepts it"
            )

    def _check_trusted(self) -> None:
        """Raise AgentError if this process must not see a customer's data."""
        state = self._state
        curator = self.agent.curator
        if state.get("split"):
            raise AgentError("the customers of this session decide on their devices: device()")
        # by the noise, as not every session is made by `serve`
        if curator.private and curator.system_noise and self._can_split:
            raise AgentError(
                f"with {curator.budget} no server sees a customer's data: device() returns the "
                "next customer's device. noise='seeded' simulates devices in this process"
            )

    def receive(self, message: Mapping[str, Any]) -> None:
        """Learn from the message of a device; messages may be late and out of order.

        Raises:
            ParameterError: If the message is no device's of this session, was received before, or
                belongs to a batch that was released; the session is unchanged.
            AgentError: If the budget is a shuffler's, see `receive_batch`.
        """
        with self._used():
            sums = self._split_sums()
            if sums.shuffled:
                raise AgentError(
                    "with a shuffler no message comes from a device: give Device.message to the "
                    "shuffler, and its batches to receive_batch"
                )
            decision, batch, values = sums.message_parts(message)
            self._opened(decision)
            if not sums.trust.per_record and batch != sums.releases:
                raise ParameterError(f"batch {batch} was released: the message came too late")
            sums.check_message(values)
            del self._state["open"][decision]
            self._learn_messages(sums, 1, values)

    def receive_batch(self, shuffled: Mapping[str, Any]) -> None:
        """Learn from a batch of shuffled bits.

        Args:
            shuffled: The open batch as `privacy.Shuffler.submit` returns it: ``batch``,
                ``customers``, ``coordinates``, ``bits_each``, and ``ones``, the number of ones per
                coordinate.

        Raises:
            ParameterError: If it is not the open batch, or has another number of customers, bits or
                coordinates than the guarantee was computed for; the session is unchanged.
            AgentError: If the budget is not a shuffler's.
        """
        with self._used():
            sums = self._split_sums()
            if not sums.shuffled or not self._state.get("split"):
                raise AgentError(
                    "shuffled bits need a budget such as 'rho=1@shuffler' and devices of this "
                    f"session; this one: {self.guarantee}"
                )
            self._learn_messages(sums, sums.receive_batch(shuffled), None)

    def _learn_messages(self, sums: privacy.Sum, number: int, values: Any) -> None:
        """Observe a round of placeholders per message; the sums have the messages."""
        sums.side, sums.mail = "server", values
        try:
            for _ in range(number):
                with self.agent.curator.round(sums.rounds + 1):
                    self.agent.observe(*message_round(self.problem, sums.rounds + 1))
        finally:
            sums.side, sums.mail = "", None

    def aggregate_with(self, aggregator: privacy.SecureAggregator) -> None:
        """Add up the devices' messages by a real protocol, instead of the simulated one.

        Raises:
            AgentError: If the budget is not an aggregator's, or a device has been made, whose
                customer was told of another aggregator.
        """
        with self._used():
            sums = self._split_sums()
            if not sums.trust.aggregated or self._state["t"]:
                raise AgentError(
                    "a secure aggregator needs a budget such as 'rho=1@aggregator', and is given "
                    f"before the first device; this session: {self.guarantee}"
                )
            sums.aggregator = aggregator

    def _split_sums(self) -> privacy.Sum:
        """Return the sums that take messages of devices."""
        if self.account is not None:
            raise AgentError(
                "devices need a session without an account, which charges customers by their number"
            )
        return split_sums(self.agent, self.problem)

    @property
    def _can_split(self) -> bool:
        """Whether devices can make the messages."""
        return self.account is None and message_sums(self.agent, self.problem) is not None

    def drop(self, decision: int) -> None:
        """Drop a decision without a response and free its memory; raises like `observe`."""
        with self._used():
            self._opened(decision)
            del self._state["open"][decision]

    def drop_oldest(self, most: int) -> list[int]:
        """Drop the oldest decisions without a response until `most` remain; return them."""
        with self._used():
            pending = self._state["open"]
            dropped = []
            while len(pending) > most:
                oldest = next(iter(pending))
                del pending[oldest]
                dropped.append(oldest)
            return dropped

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the session, with pending decisions, and hand it over; see `dpb_gym.checkpoint`.

        The file contains raw responses and past noise: protect it like the customers' data. With
        noise from the operating system the file reveals no future noise. It contains the generator
        of the agent's own random choices.
        A session is continued once, because two would each spend the budget on the customers so
        far: its account or its state directory refuses a second load, also of a copy.

        Raises:
            AgentError: If the agent cannot be saved, or was handed over before.
            CheckpointError: If the file or the state directory cannot be written, or the session
                goes on elsewhere.
            DataError: If the account or the file of the state directory is damaged.
        """
        with self._used():
            own = None if self._charges is None else self._charges.own
            checkpoint.save(
                self.agent, path, state_dir=self._state_dir, account=self.account, own=own
            )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        account: privacy.Account | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        rehearsal: bool = False,
    ) -> Session:
        """Return a saved session, and continue it here only. No file is created.

        Args:
            path: File that `save` wrote.
            account: The account of the session. It can be left out if it is the file that the
                session had, without a key. A file that does not hold this session is not opened.
            state_dir: The state directory of a session without an account, see `serve`.
            rehearsal: Whether to load the file for debugging, without account and guarantee,
                whatever became of the session; see `dpb_gym.checkpoint.load`.

        Raises:
            CheckpointError: If the file is damaged or holds no session; the session was loaded
                before, from this file or a copy; or its account or state directory is not found
                or does not know it.
            DataError: If the account or the file of the state directory is damaged.
            ParameterError: If `account` is none.
        """
        holder = None if rehearsal else _checked_account(account)

        def check(agent: Policy, saved: Saved | None, in_account: bool) -> Advance | None:
            nonlocal holder
            _check_session(agent, path)
            named = vars(agent)["_session"].get("account")
            if saved is None or rehearsal:
                return None
            if not in_account:
                if holder is not None:
                    raise CheckpointError(f"{path}: this session has no account")
                if named is not None:
                    raise CheckpointError(f"{path}: its session has an account, its header none")
                return None
            if holder is None and named:
                holder = privacy.Account.holding(named, saved.id)
            if holder is None:
                raise CheckpointError(
                    f"{path}: no account {shown(named)} holds this session. Give account=..., the "
                    "account that it had, if it has a key, a URL or another path now"
                )
            vars(agent)["_session"]["account"] = str(holder.path or "")
            guarantee = agent.curator.guarantee
            assert guarantee is not None  # as something was saved of it
            return functools.partial(holder.advance, guarantee=guarantee)

        agent: Any = checkpoint.load(path, state_dir=state_dir, rehearsal=rehearsal, check=check)
        problem = vars(agent)["_session"]["problem"]
        return cls(agent, problem, account=holder, state_dir=state_dir)

    def snapshot(self) -> bytes:
        """Return the session as bytes, like the file of `save`; the session goes on.

        Only `dpb_gym.service` continues from it, with a journal of everything since then.

        Raises:
            AgentError: If the agent cannot be saved, or was handed over before.
        """
        with self._used():
            return checkpoint.dumps(self.agent, try_it=False)

    @classmethod
    def restored(
        cls,
        content: bytes,
        own: Continuation | None,
        source: str | os.PathLike[str],
        *,
        account: privacy.Account | None = None,
        state_dir: str | os.PathLike[str] | None = None,
    ) -> Session:
        """Return the session of a snapshot.

        The caller has checked that nobody else continues it, see `dpb_gym.service`.

        Args:
            content: What `snapshot` returned.
            own: The continuation that made the snapshot; None: without a budget.
            source: Name of the file, for messages.
            account: The account of the session.
            state_dir: See `serve`.

        Raises:
            CheckpointError: If it is damaged or holds no session.
        """
        agent: Any = checkpoint.loads(content, source)
        _check_session(agent, source)
        if own is not None:
            checkpoint.continue_as(agent, own)
        problem = vars(agent)["_session"]["problem"]
        return cls(agent, problem, account=account, state_dir=state_dir)

    @property
    def facts(self) -> dict[str, Any]:
        """Agent, parameters, budget and generator of noise, as plain data."""
        return dict(self._state.get("facts") or {})

    def check_response(self, decision: int, response: Any) -> None:
        """Raise what `observe` would raise; the session is unchanged."""
        with self._used():
            context, action = self._opened(decision)
            feedback_of(self.problem, context, action, response)

    def continuation(self) -> Continuation | None:
        """Return the continuation that this session is; a new one enters a state directory.

        None: without a budget a session can be continued at any number of places.

        Raises:
            CheckpointError: If the state directory cannot be written.
        """
        if self._charges is not None:
            return self._charges.own
        if not checkpoint.continues_once(self.agent):
            return None
        own = checkpoint.continuation_of(self.agent) or Lease(self._state_dir).enter()
        checkpoint.continue_as(self.agent, own)
        return own

    def confirm(self) -> None:
        """Check that this session is its newest continuation, and commit all charges.

        Raises:
            AgentError: If the session was handed over; its file has the newest token.
            CheckpointError: If the session goes on elsewhere, or its record is lost.
            DataError: If the account or the file of the state directory is damaged.
        """
        with self._used():
            own = self.continuation()
            if own is not None:
                holder = Lease(self._state_dir) if self.account is None else self.account
                holder.confirm(own)
            if self._charges is not None:
                self._charges.check_charged(self._state.get("charged") or 0)

    def _used(self) -> contextlib.AbstractContextManager[Any]:
        """Return the lock, or raise AgentError if the session was handed over."""
        why = self.agent.curator.handed_over  # first: a thread of the parent may hold the lock
        if not why and self.agent.curator.private and os.getpid() != self._process:
            why = "the process was forked, and the parent goes on"
        if why:
            raise AgentError(f"this session was handed over: {why}")
        return self._lock

    def _number(self, user: Any) -> Any:
        """Return the number that agents see of a user; texts are numbered as they appear."""
        persons: list[str] = self._state["persons"]
        if self.account is None or (not isinstance(user, str) and not persons):
            return user
        if not isinstance(user, str) or (not persons and self._state["t"]):
            raise ParameterError(
                "users of one session are all numbers or all texts; this one began with "
                f"{'texts' if persons else 'numbers'}, got {shown(user)}"
            )
        return self._numbers.get(self.account.person(user), len(persons))

    def _remember(self, user: Any) -> None:
        """Keep the number of a text."""
        persons: list[str] = self._state["persons"]
        if self.account is not None and isinstance(user, str):
            person = self.account.person(user)
            if person not in self._numbers:
                self._numbers[person] = len(persons)
                persons.append(person)

    def _person(self, context: Context) -> str:
        """Return what the account calls the customer of a context."""
        assert self.account is not None and context.users is not None
        number = int(context.users[0])
        persons: list[str] = self._state["persons"]
        return persons[number] if persons else self.account.person(number)

    def _opened(self, decision: Any) -> tuple[Context, Array]:
        number = validation.integer("decision", decision, 1)
        if number not in self._state["open"]:
            made = number <= self._state["t"]
            why = "was answered or dropped already" if made else "was never made"
            raise ParameterError(f"decision {number} {why}")
        entry: tuple[Context, Array] = self._state["open"][number]
        return entry

    def _learn(self, now: Context) -> None:
        """Pass the oldest pending response to the agent, or an unobserved round if there is none.

        Without a response, or if the account refuses it, the agent observes placeholders, so that
        no features are shown twice.
        """
        state = self._state
        charges = self._charges
        record = state["came"][0] if state["came"] else None
        admitted = record is not None
        if record and charges is not None:
            person = self._person(record[0])
            # with the number of charges: a session that is repeated makes none
            numbers = external(2, lambda: (*charges.admit_persons([person]), charges.charged))
            admitted, state["charged"] = bool(numbers[0]), int(numbers[1])
        # not before: if the account cannot be written, the next decision charges it again
        state["owed"] = False
        del state["came"][:1]
        if record and admitted:
            context, action, feedback = record
        else:
            context, action, feedback = empty_round(self.problem, now, False)
        if context.t != state["t"]:  # the same object is not prepared for the agent again
            context = context._replace(t=state["t"])
        try:
            with self.agent.curator.round(state["t"]):
                self.agent.observe(context, action, feedback)
        except Exception as error:
            if record is None:
                raise
            state.setdefault("lost", []).append(record[0].t)
            raise AgentError(
                f"the agent failed on the response to decision {record[0].t}, which is not given "
                f"to it again, as a sum may contain a part of it: {type(error).__name__}: {error}"
            ) from error

    def _check_charges(self) -> None:
        """Raise AgentError if the agent was charged after its customers' costs were computed."""
        if self._charges is not None and self.agent.curator.charges != self._entries:
            raise AgentError(
                "the agent charged its curator, or disclosed data, after the session began, and "
                "the account charges customers what the guarantee cost then: charge all releases "
                "in begin, or serve without an account. This decision is not made"
            )

    def _commit(self, *, acted: bool = False) -> None:
        """Commit if the agent may have released something since the last time.

        Args:
            acted: Whether no record came since then, but the agent chose an action.
        """
        if self._charges is not None and not repeating():
            counts = [_count_releases(behind(r)) for r in self.agent.curator.releasers]
            unknown = not counts or None in counts
            if counts != self._releases or (unknown and not acted):
                self._charges.commit()
                self._releases = counts


def _count_releases(releaser: Any) -> int | None:
    """Return how often a sum has released something; None if its records do it, or nothing tells.

    A subclass may release without counting.
    """
    counted = type(releaser) is privacy.Sum and not isinstance(releaser.times, Every)
    return releaser.releases if counted else None


def _checked_account(account: Any) -> privacy.Account | None:
    """Return an account, or raise ParameterError: a path does not say how it is opened."""
    if account is None or isinstance(account, privacy.Account):
        return account
    raise ParameterError(
        "account must be an Account, such as Account('people.db', lifetime='eps=3,delta=1e-6'), "
        f"got {shown(account)}"
    )


def _check_session(agent: Policy, path: Any) -> None:
    """Raise CheckpointError unless an agent has a session of its problem and budget."""
    session = vars(agent).get("_session")
    if not isinstance(session, dict) or not isinstance(session.get("problem"), ProblemInfo):
        raise CheckpointError(f"{path} holds an agent, but no session")
    for name, kind in PARTS.items():
        if not isinstance(session.get(name), kind):
            raise CheckpointError(f"{path}: {name} of the session is {shown(session.get(name))}")
    problem = session["problem"]
    curator = vars(agent).get("curator")
    if curator is None:
        raise CheckpointError(f"{path} holds a session whose agent has no curator")
    stated = {
        "problem": (problem, vars(agent).get("_started_for")),
        "decisions": (session["t"], min(max(session["t"], 0), problem.longest)),
    }
    if facts := session.get("facts"):
        stated["budget"] = (facts.get("budget"), privacy.Budget.text(curator.budget))
        if curator.budget is not None:
            generator = "system" if curator.system_noise else "seeded"
            stated["generator"] = (facts.get("generator"), generator)
    for name, (given, expected) in stated.items():
        if given != expected:
            raise CheckpointError(
                f"{path}: the session states the {name} {shown(given)}, its agent has "
                f"{shown(expected)}"
            )
    if not all(isinstance(person, str) for person in session["persons"]):
        raise CheckpointError(f"{path}: a customer of the session has no text for a name")
    pending = [*session["open"].values(), *session["came"]]
    if not all(isinstance(each, tuple) and _is_pending(*each) for each in pending):
        raise CheckpointError(f"{path}: a pending decision of the session is damaged")


def _is_pending(context: Any = None, action: Any = None, feedback: Any = None) -> bool:
    """Return whether these are of one decision; all are None for the decision of a device."""
    decided = isinstance(context, Context) and isinstance(action, np.ndarray)
    device = context is None and action is None
    return (decided or device) and isinstance(feedback, Feedback | None)


def serve(
    agent: str | type[Agent] | type[SingleAgent] | Callable[[], Agent | SingleAgent],
    budget: privacy.Budget | str | None,
    problem: ProblemInfo | Problem | str,
    *,
    noise: str = "system",
    seed: int | None = None,
    warm: bool = True,
    account: privacy.Account | None = None,
    state_dir: str | os.PathLike[str] | None = None,
    list_price: float | None = None,
    max_spread: float | None = None,
    **params: Any,
) -> Session:
    """Start a session: an agent that decides for real customers.

    Args:
        agent: A registered name, an agent class, or a function that returns an agent.
        budget: Budget of the whole session, as `Budget` or text; None for no privacy.
        problem: Public facts: a `ProblemInfo`, whose `horizon` bounds the number of decisions; or
            an environment's problem or id, e.g. from `from_log`, for its `ProblemInfo`.
        noise: ``"system"``: from the operating system's entropy, not reproducible; needs the extra
            ``secure``. ``"seeded"``: for tests; anyone with the seed can remove the noise.
        seed: Seed of the agent's random choices and of seeded noise; random by default.
        warm: Whether to compile all kernels of a registered agent before returning, so that no
            customer waits for the compiler: a copy of it plays a few hundred random customers.
        account: Lifetime budgets of the customers, shared with other sessions; see `Account`. The
            agent must play without some of the responses.
        state_dir: Folder that remembers which saved sessions were loaded on this machine, if there
            is no account; it is created by `Session.save`. Keep it out of what is copied with the
            sessions. By default that of the user, see
            `dpb_gym.files.state_directory`.
        list_price: Pricing: public price around which all prices lie, with `max_spread`.
        max_spread: Pricing: largest relative difference between two customers' prices, such as 0.2
            for 20%. The agent's prices are clipped to ``list_price / sqrt(1 + max_spread)`` and
            ``list_price * sqrt(1 + max_spread)``, which are public, so the guarantee holds.
        **params: Parameters of the agent.

    Raises:
        AgentError: If the agent does not play the problem, or needs a budget.
        BudgetError: If the agent's planned releases exceed the budget.
        ParameterError: If the limit of prices is incomplete, the problem has no prices, or the
            account is none.
        MissingExtraError: If OpenDP is not installed (``noise="system"``).

    Example:
        >>> import dpb_gym
        >>> session = dpb_gym.serve(
        ...     "one-pass-pricing", "rho=1", "DPB/Pricing-v0", noise="seeded", seed=1
        ... )
        >>> decision, price = session.decide([0.2, 0.9])
        >>> session.observe(decision, price < 0.5)
        >>> session.decisions, session.pending, str(session.guarantee)[:31]
        (1, (), 'anticipating zCDP rho=1 per use')
    """
    info: Any = make_problem(problem) if isinstance(problem, str) else problem
    bound = getattr(info, "feature_bound", None)
    info = info.info if isinstance(info, Problem) else info
    if not isinstance(info, ProblemInfo):
        raise ParameterError(f"problem must be a ProblemInfo or an environment, got {shown(info)}")
    asked = privacy.Budget.parse(budget)
    band = None
    if (list_price, max_spread) != (None, None):
        priced = kind_of(info.kind).response == "demand"
        if not priced or list_price is None or max_spread is None:
            raise ParameterError("list_price and max_spread limit the prices of a pricing problem")
        highest = info.reward_range[1]
        middle = validation.real("list_price", list_price, 0.0, highest, open_low=True)
        ratio = math.sqrt(1.0 + validation.real("max_spread", max_spread, 0.0))
        band = (middle / ratio, middle * ratio)
    _checked_account(account)
    start = check_seed(secrets.randbits(63) if seed is None else seed)
    spec = spec_of(agent, info.kind).over(params)
    check_supported(spec, info, asked is not None)
    if spec.uses_oracle:
        raise AgentError(f"agent {agent!r} sees the hidden state, which no customer has")
    punctual = not (spec.partial_feedback and spec.delayed_feedback)
    if account is not None and punctual:
        raise AgentError(f"{spec.name!r} needs every response, and an account may refuse some")
    made = spec.make()
    streams = spec.streams([start], asked)
    made.set_up(info, streams, asked, noise="seeded" if asked is None else noise)
    if warm and isinstance(agent, str):
        warm_up(spec, info, asked, noise)
    session = Session(made, info, punctual, account, state_dir)
    typed = json.loads(json.dumps(spec.params, default=_plain))
    run = {"agent": spec.name, "parameters": typed, "budget": privacy.Budget.text(asked)}
    session._state |= {"facts": {**run, "generator": noise}, "bound": bound, "band": band}
    return session


def _plain(value: Any) -> Any:
    """Return a parameter as JSON value: arrays as lists, other objects as text."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)


def warm_up(
    spec: AgentSpec, problem: ProblemInfo, budget: privacy.Budget | None, noise: str
) -> None:
    """Compile the kernels that a session needs, once per process: play random customers.

    The copy of the agent plans for a short horizon, so that it passes all of its phases. Its
    errors are ignored, because the session itself raises them.
    """
    sizes = [size + 2 for size in spec.params.values() if isinstance(size, int)]
    rounds = max(WARM_DECISIONS, *(size for size in sizes if size <= MOST_WARM_DECISIONS), 0)
    facts = replace(problem, horizon=min(problem.longest, rounds))
    key = as_key([spec.entry_point, spec.params, str(budget), noise, facts.to_dict()])
    if key not in _warm:
        _warm.add(key)
        with contextlib.suppress(Exception):
            agent = spec.make()
            noise = "seeded" if budget is None else noise
            agent.set_up(facts, spec.streams([0], budget), budget, noise=noise)
            some = spec.partial_feedback and spec.delayed_feedback
            _play(Session(agent, facts), np.random.default_rng(0), 0.9 if some else 1.0)


def _play(session: Session, rng: np.random.Generator, share: float) -> None:
    """Play a session to its horizon and respond to a share of its decisions."""
    info = session.problem
    kind = kind_of(session.problem.kind)
    for _ in range(info.longest):
        given: dict[str, Any] = {}
        if kind.revenues and not info.equal_revenues:
            given["revenues"] = rng.uniform(*info.reward_range, info.n_items)
        if info.n_arms and info.n_candidates:
            given["arms"] = np.sort(rng.permutation(info.n_arms)[: info.n_candidates])
        if info.max_interactions is not None:
            given["user"] = session.decisions // info.max_interactions
        features = rng.random(kind.feature_shape(info)) / np.sqrt(info.dim)
        decision, action = session.decide(features, **given)
        response: Any = rng.uniform(*info.reward_range)
        if kind.response == "choice":
            response = rng.choice([None, *action])
        elif kind.response == "demand":
            response = rng.integers(2)
        if rng.random() < share:
            session.observe(decision, response)


_warm: set[str] = set()
"""Keys of the agents and problems whose kernels this process has compiled."""
