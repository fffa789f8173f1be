"""Sessions: an agent that decides for real customers and learns from their responses.

A session is an agent of one replicate with its curator, not a server. Only its decisions are
private releases. All its other data, except the guarantee, are raw or computed from raw records.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import secrets
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dpb_gym import privacy, validation
from dpb_gym.agent import Agent, SingleAgent
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import AgentError, CheckpointError, HorizonExceeded, ParameterError, shown
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.problems.base import Array, Context, Feedback, Problem, ProblemInfo
from dpb_gym.problems.delay import PLACEHOLDERS
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import AgentSpec, as_key, check_supported, spec_of
from dpb_gym.streams import check_seed

WARM_DECISIONS, MOST_WARM_DECISIONS = 330, 5000
"""Decisions of the copy of an agent that compiles its kernels, and their largest number if an
integer parameter, such as the length of a batch, asks for more."""
_MOST = float(np.finfo(np.float32).max)


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
    ) -> None:
        self.agent, self.problem, self.account = agent, problem, account
        self._lock = threading.RLock()
        # Plain data on the agent, so that the agent's checkpoint contains the session.
        self._state: dict[str, Any] = vars(agent).setdefault(
            "_session",
            {"problem": problem, "punctual": punctual, "t": 0, "owed": False, "open": {},
             "came": [], "charged": {}, "account": None if account is None else str(account.path)},
        )  # fmt: skip
        self._charges: privacy.SessionCharges | None = None
        self._releases: list[int | None] = []
        if account is not None:
            if self.guarantee is None:
                raise AgentError("an account charges a guarantee: this session has no budget")
            self._charges = privacy.SessionCharges(account, self.guarantee, self._state["charged"])

    @property
    def guarantee(self) -> privacy.Guarantee | None:
        """The agent's guarantee; None without a budget."""
        return self.agent.curator.guarantee

    def certificate(self, audit: Any = None) -> privacy.Certificate:
        """Return the certificate of the guarantee, with what the account has charged so far.

        Args:
            audit: Report of an audit of the agent (`dpb_gym.audits.AuditReport`), or None.

        Raises:
            AgentError: If the session has no budget.
        """
        from dpb_gym.privacy.certificate import code_of

        if self.guarantee is None:
            raise AgentError("a session without a budget has no certificate")
        facts = {
            **self._state["facts"], "code": code_of(type(self.agent)),
            "guarantee": self.guarantee.to_dict(), "provisos": self.guarantee.provisos,
            "problem": self.problem.to_dict(), "audit": None if audit is None else audit.to_dict(),
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
            "agent": facts.get("agent", type(self.agent).__name__),
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
        user: int | None = None,
        available: Any = None,
    ) -> tuple[int, Any]:
        """Return the decision for the next customer.

        Args:
            features: As in `Context`, without the replicate axis: assortment ``(N, d)``, pricing
                ``(d - 1,)``, recommendation ``(n_candidates, d)``.
            revenues: Assortment: revenues of the items ``(N,)``; 1 by default if all are equal.
            arms: Recommendation from a fixed pool: indices of the candidates.
            user: Number of the customer, where the problem identifies users or the session has
                an account.
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
                failed on is in `lost`.
        """
        with self._lock:
            state, info, kind = self._state, self.problem, kind_of(self.problem.kind)
            if info.horizon is not None and state["t"] >= info.horizon:
                raise HorizonExceeded(f"the session was planned for {info.horizon:,} decisions")
            context = self._context(features, revenues, arms, user, available)
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
            action = np.array(kind.played(info, action))
            if (band := state.get("band")) is not None:
                action = np.clip(action, *band)
            state["t"], state["owed"] = context.t, True
            state["open"][context.t] = (context, action)
            offered = action[0]
            if info.kind == "assortment":
                return context.t, [int(item) for item in offered if item >= 0]
            return context.t, offered.item() if offered.ndim == 0 else offered.copy()

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
        with self._lock:
            context, action = self._opened(decision)
            if context is None:
                raise ParameterError(f"decision {decision} is a device's: receive its message")
            feedback = self._feedback(context, action, response)
            del self._state["open"][decision]
            self._state["came"].append((context, action, feedback))

    def device(self) -> Device:
        """Return the device of the next customer, which decides and makes the only message.

        Raises:
            AgentError: If the budget names a trusted curator, or contexts are public and the agent
                uses them, or the session has an account.
            HorizonExceeded: If the horizon is over.
        """
        with self._lock:
            self._split_sums()
            if self._state["t"] >= self.problem.longest:
                raise HorizonExceeded(f"the session was planned for {self._state['t']:,} decisions")
            self._state["t"] += 1
            self._state["open"][self._state["t"]] = (None, None)
            return Device(self.agent, self.problem, self._state["t"])

    def receive(self, message: Mapping[str, Any]) -> None:
        """Learn from the message of a device; messages may be late and out of order.

        Raises:
            ParameterError: If the message is no device's of this session, was received before, or
                belongs to a batch that was released; the session is unchanged.
        """
        with self._lock:
            sums, kind = self._split_sums(), kind_of(self.problem.kind)
            try:
                decision, batch = message["decision"], message["batch"]
                values = np.array(message["values"])[None]
            except (TypeError, KeyError, ValueError) as error:
                raise ParameterError(f"this is no message of a device: {error!r}") from error
            self._opened(decision)
            if not sums.per_record and batch != sums.releases:
                raise ParameterError(f"batch {batch} was released: the message came too late")
            sums.check_message(values)
            del self._state["open"][decision]
            x = np.zeros((1, *kind.feature_shape(self.problem)), np.float32)
            revenues = np.zeros((1, self.problem.n_items or 0)) if kind.revenues else None
            empty = self._empty(Context(self._state["t"], x, revenues, None, None, None), True)
            sums.side, sums.mail = "server", values
            try:
                self.agent.observe(*empty)
            finally:
                sums.side, sums.mail = "", None

    def aggregate_with(self, aggregator: privacy.SecureAggregator) -> None:
        """Add up the devices' messages by a real protocol, instead of the simulated one.

        Raises:
            AgentError: If the budget is not an aggregator's, or a message has been received.
        """
        with self._lock:
            sums = self._split_sums()
            if not isinstance(sums, privacy.AggregatedSum) or sums.rounds:
                raise AgentError(
                    "a secure aggregator needs a budget such as 'rho=1@aggregator', and is given "
                    f"before the first message; this session: {self.guarantee}"
                )
            sums.aggregator = aggregator

    def _split_sums(self) -> privacy.DisjointSum:
        """Return the sums that take messages of devices."""
        curator = self.agent.curator
        sums = [r for r in map(behind, curator.releasers) if isinstance(r, privacy.DisjointSum)]
        if len(sums) != 1 or curator.unit != "user-round" or self.account is not None:
            raise AgentError(
                "devices need a budget without a trusted curator, such as 'rho=1@local', an agent "
                f"that protects a user-round, and no account; this one: {self.guarantee}"
            )
        return sums[0]

    def drop(self, decision: int) -> None:
        """Drop a decision without a response and free its memory; raises like `observe`."""
        with self._lock:
            self._opened(decision)
            del self._state["open"][decision]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the session, with pending decisions, and hand it over; see `dpb_gym.checkpoint`.

        The file contains raw responses and past noise: protect it like the customers' data. With
        noise from the operating system the file contains no seed and reveals no future noise.
        A file is still loaded only once, because two sessions would each spend the budget on the
        customers so far.

        Raises:
            AgentError: If the agent cannot be saved, or was handed over before.
            CheckpointError: If the file cannot be written.
        """
        with self._lock:
            if self.account is not None:
                self.account.commit()
            self.agent.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, rehearsal: bool = False) -> Session:
        """Return a saved session; raises like `dpb_gym.checkpoint.load`."""
        agent = Agent.load(path, rehearsal=rehearsal)
        state = vars(agent).get("_session")
        if not isinstance(state, dict) or not isinstance(state.get("problem"), ProblemInfo):
            raise CheckpointError(f"{path} holds an agent, but no session")
        file = state.get("account")
        account = None if file is None else privacy.Account(file)
        return cls(agent, state["problem"], account=account)

    def _opened(self, decision: Any) -> tuple[Context, Array]:
        number = validation.integer("decision", decision, 1)
        if number not in self._state["open"]:
            made = number <= self._state["t"]
            why = "was answered or dropped already" if made else "was never made"
            raise ParameterError(f"decision {number} {why}")
        found: tuple[Context, Array] = self._state["open"][number]
        return found

    def _context(
        self, features: Any, revenues: Any, arms: Any, user: Any, available: Any
    ) -> Context:
        info, kind = self.problem, kind_of(self.problem.kind)
        x = validation.array("features", features, kind.feature_shape(info), -_MOST, _MOST)
        item_revenues = listed = who = None
        if kind.revenues:
            if revenues is None and info.equal_revenues:
                revenues = np.ones(info.n_items or 0)
            given = validation.array("revenues", revenues, (info.n_items,), *info.reward_range)
            item_revenues = given.astype(np.float32)[None]
        elif revenues is not None:
            raise ParameterError(f"a {info.kind} problem has no revenues")
        if info.n_candidates is not None:
            listed = np.full((1, info.n_candidates), -1)
            if arms is not None:
                given = validation.array("arms", arms, listed.shape[1:], 0, (info.n_arms or 1) - 1)
                listed[0] = given
        if info.max_interactions is not None or self.account is not None:
            who = np.array([validation.integer("user", user, 0)])
        mask = None
        if info.masked:
            given = np.ones(len(x)) if available is None else available
            mask = validation.array("available", given, (len(x),), 0, 1)[None] > 0
        elif available is not None:
            raise ParameterError(
                "all are available here; `available` needs ProblemInfo(masked=True)"
            )
        now = self._state["t"] + 1
        return _locked(Context(now, x.astype(np.float32)[None], item_revenues, listed, who, mask))

    def _feedback(self, context: Context, action: Array, response: Any) -> Feedback:
        kind, seen = kind_of(self.problem.kind), np.array([True])
        low, high = self.problem.reward_range
        if kind.response == "choice":
            at, earned = -1, 0.0
            if response is not None:
                item = validation.integer("the item that was bought", response, 0)
                if item not in action[0]:
                    raise ParameterError(
                        f"item {item} was not offered: {action[0][action[0] >= 0].tolist()}"
                    )
                assert context.revenues is not None
                at = int(np.flatnonzero(action[0] == item)[0])
                earned = float(context.revenues[0, item])
            return Feedback(np.array([earned]), choice=np.array([at]), observed=seen)
        if kind.response == "demand":
            demand = float(response) if isinstance(response, (bool, np.bool_)) else response
            demand = validation.real("demand", demand)
            if self.problem.demand == "logistic" and demand not in (0.0, 1.0):
                raise ParameterError(f"demand must be 0 or 1, got {shown(response)}")
            return Feedback(action * demand, demand=np.array([demand]), observed=seen)
        answer = None
        if kind.response is not None:
            if not isinstance(response, tuple) or len(response) != 2:
                raise ParameterError(f"response must be (reward, answer), got {shown(response)}")
            response, answer = response[0], validation.numbers("answer", response[1])[None]
        reward = np.array([validation.real("reward", response, low, high)])
        return Feedback(reward, observed=seen, answer=answer)

    def _learn(self, now: Context) -> None:
        """Pass the oldest pending response to the agent, or an unobserved round if there is none.

        Without a response, or if the account refuses it, the agent observes placeholders, so that
        no features are shown twice.
        """
        state, charges = self._state, self._charges
        state["owed"] = False
        record = state["came"].pop(0) if state["came"] else None
        if record and (charges is None or charges.admit(int(record[0].users[0]))):
            context, action, feedback = record
        else:
            context, action, feedback = self._empty(now, False)
        try:
            self.agent.observe(context._replace(t=state["t"]), action, feedback)
        except Exception as error:
            if record is None:
                raise
            state.setdefault("lost", []).append(record[0].t)
            raise AgentError(
                f"the agent failed on the response to decision {record[0].t}, which is not given "
                f"to it again, as a sum may contain a part of it: {type(error).__name__}: {error}"
            ) from error

    def _empty(self, now: Context, observed: bool) -> tuple[Context, Array, Feedback]:
        """Return a round of placeholders, with the shapes of a context."""
        kind = kind_of(self.problem.kind)
        fields = {k: v for k, v in now._asdict().items() if isinstance(v, np.ndarray)}
        blank: Any = {k: np.full_like(v, PLACEHOLDERS.get(k, 0)) for k, v in fields.items()}
        action = np.full((1, *kind.action_shape(self.problem)), kind.nothing)
        names = [k for k in ("choice", "demand") if k == kind.response]
        absent: Any = {k: np.full(1, PLACEHOLDERS.get(k, 0.0)) for k in names}
        feedback = Feedback(np.zeros(1), observed=np.array([observed]), **absent)
        return _locked(now._replace(**blank)), action, feedback

    def _commit(self) -> None:
        """Make the charges durable if the agent may have released something since the last time."""
        if self.account is not None:
            counts = [getattr(r, "releases", None) for r in self.agent.curator.releasers]
            if not counts or None in counts or counts != self._releases:
                self.account.commit()
                self._releases = counts


class Device:
    """The device of one customer: it decides, and turns the response into a message.

    It gets released data only. The context, the action and the response stay on the device; the
    session learns the message. Noise is drawn on the device: from the operating system's entropy,
    and as the session's if that has system noise. A device can be pickled before it decides.

    Attributes:
        decision: Number of the decision.
    """

    def __init__(self, agent: Agent, problem: ProblemInfo, decision: int) -> None:
        # a real aggregator, with its connections, stays on the server
        aggregator = getattr(behind(agent.curator.releasers[0]), "aggregator", None)
        copied = copy.deepcopy(agent, {id(aggregator): None})
        self._band = vars(copied).pop("_session").get("band")
        self.decision, self._agent, self._problem = decision, copied, problem
        seed = np.random.SeedSequence()  # of the operating system's entropy
        fresh = privacy.NoiseSource([np.random.Generator(np.random.PCG64DXSM(seed))])
        sums = behind(copied.curator.releasers[0])
        sums.become_device(None if copied.curator.system_noise else fresh)

    @cached_property
    def _own(self) -> Session:
        session = Session(self._agent, self._problem)
        session._state |= {"t": self.decision - 1, "band": self._band}
        return session

    def decide(self, features: Any, **given: Any) -> Any:
        """Return the action for the customer; arguments as for `Session.decide`."""
        return self._own.decide(features, **given)[1]

    def message(self, response: Any) -> dict[str, Any]:
        """Return the message about the response, JSON values; a device makes one only.

        With an aggregator the values are integers modulo ``modulus``. Each of them has a small part
        of the noise only, so mask them before they leave the device; see docs/trust.md.

        Raises:
            ParameterError: If the device has not decided, made a message, or the response is
                impossible.
        """
        context, action = self._own._opened(self.decision)
        feedback = self._own._feedback(context, action, response)
        self._own.drop(self.decision)
        self._agent.observe(context, action, feedback)
        sums = behind(self._agent.curator.releasers[0])
        values = [] if sums.mail is None else sums.mail[0].tolist()
        modulus = {} if sums.modulus is None else {"modulus": sums.modulus}
        return {"decision": self.decision, "batch": sums.releases, "values": values, **modulus}


def _locked(context: Context) -> Context:
    """Make the arrays read-only, as those of the harness, so that the same kernels are used."""
    for part in context[1:]:
        if isinstance(part, np.ndarray):
            part.flags.writeable = False
    return context


def serve(
    agent: str | type[Agent] | type[SingleAgent] | Callable[[], Agent | SingleAgent],
    budget: privacy.Budget | str | None,
    problem: ProblemInfo | Problem | str,
    *,
    noise: str = "system",
    seed: int | None = None,
    warm: bool = True,
    account: privacy.Account | None = None,
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
        list_price: Pricing: public price around which all prices lie, with `max_spread`.
        max_spread: Pricing: largest relative difference between two customers' prices, such as 0.2
            for 20%. The agent's prices are clipped to ``list_price / sqrt(1 + max_spread)`` and
            ``list_price * sqrt(1 + max_spread)``, which are public, so the guarantee holds.
        **params: Parameters of the agent.

    Raises:
        AgentError: If the agent does not play the problem, or needs a budget.
        BudgetError: If the agent's planned releases exceed the budget.
        ParameterError: If the limit of prices is incomplete, or the problem has no prices.
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
    asked, band = privacy.Budget.parse(budget), None
    if (list_price, max_spread) != (None, None):
        if info.kind != "pricing" or list_price is None or max_spread is None:
            raise ParameterError("list_price and max_spread limit the prices of a pricing problem")
        highest = info.reward_range[1]
        middle = validation.real("list_price", list_price, 0.0, highest, open_low=True)
        ratio = math.sqrt(1.0 + validation.real("max_spread", max_spread, 0.0))
        band = (middle / ratio, middle * ratio)
    start = check_seed(secrets.randbits(63) if seed is None else seed)
    spec = spec_of(agent, info.kind).over(params)
    check_supported(spec, info, asked is not None)
    if spec.uses_oracle:
        raise AgentError(f"agent {agent!r} sees the hidden state, which no customer has")
    punctual = not (spec.partial_feedback and spec.delayed_feedback)
    if account is not None and punctual:
        raise AgentError(f"{spec.name!r} needs every response, and an account may refuse some")
    made, streams = spec.make(), spec.streams([start], asked)
    made.set_up(info, streams, asked, noise="seeded" if asked is None else noise)
    if warm and isinstance(agent, str):
        warm_up(spec, info, asked, noise)
    session = Session(made, info, punctual, account)
    typed = json.loads(json.dumps(spec.params, default=str))
    run = {"agent": spec.name, "parameters": typed, "budget": privacy.Budget.text(asked)}
    session._state |= {"facts": {**run, "generator": noise}, "bound": bound, "band": band}
    return session


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
    info, kind = session.problem, kind_of(session.problem.kind)
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
