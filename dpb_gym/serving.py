"""An agent in a loop of one's own: decisions for customers, responses whenever they come.

A session is an agent of one replicate and its curator, no server. What it releases is what it
decides; every figure in it but the guarantee is raw or may be told from raw records.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent, SingleAgent
from dpb_gym.errors import AgentError, CheckpointError, HorizonExceeded, ParameterError, shown
from dpb_gym.problems.base import Array, Context, Feedback, Problem, ProblemInfo
from dpb_gym.problems.delay import NOTHING
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import check_supported, spec_of
from dpb_gym.streams import check_seed

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget, Guarantee

_MOST = float(np.finfo(np.float32).max)


class Session:
    """A running agent; `serve` starts one, `load` goes on with one that was saved.

    Methods may be called from several threads. The agent learns from one response per decision at
    most, in the order of their arrival, just before it decides again: so a session whose customers
    answer at once is a run of the harness, bit for bit.

    What a guarantee does not cover: that somebody came, that and when she answered.

    Attributes:
        agent: The agent.
        problem: What it knows of the problem.
    """

    def __init__(self, agent: Agent, problem: ProblemInfo, punctual: bool = False) -> None:
        self.agent, self.problem = agent, problem
        self._lock = threading.RLock()
        # Plain data on the agent, so that a checkpoint of it is one of the session.
        self._state: dict[str, Any] = vars(agent).setdefault(
            "_session",
            {"problem": problem, "punctual": punctual, "t": 0, "owed": False, "open": {},
             "came": []},
        )  # fmt: skip

    @property
    def guarantee(self) -> Guarantee | None:
        """What is promised; None without a budget."""
        return self.agent.curator.guarantee

    @property
    def decisions(self) -> int:
        """Decisions made, at most the problem's horizon."""
        return int(self._state["t"])

    @property
    def pending(self) -> tuple[int, ...]:
        """Decisions whose response has not come."""
        return tuple(self._state["open"])

    def decide(
        self,
        features: Any,
        *,
        revenues: Any = None,
        arms: Any = None,
        user: int | None = None,
        available: Any = None,
    ) -> tuple[int, Any]:
        """Decides for the next customer.

        Args:
            features: As in `Context`, without the replicate axis: assortment ``(N, d)``, pricing
                ``(d - 1,)``, recommendation ``(n_candidates, d)``.
            revenues: Assortment: of the items ``(N,)``; 1 each by default where all are equal.
            arms: Recommendation from a fixed pool: indices of the candidates.
            user: Number of the customer, where the problem identifies users.
            available: Which items or candidates can be offered, where that changes; all by default.

        Returns:
            A number to `observe` the response by, and the action: a slate of at most K items, a
            price, or a candidate's index.

        Raises:
            ParameterError: If a value has the wrong shape, is not finite or out of range; the
                session is as before.
            HorizonExceeded: If the horizon is over.
            AgentError: If the agent needs the last response first.
        """
        with self._lock:
            state, info, kind = self._state, self.problem, kind_of(self.problem.kind)
            if info.horizon is not None and state["t"] >= info.horizon:
                raise HorizonExceeded(f"the session was planned for {info.horizon:,} decisions")
            context = self._context(features, revenues, arms, user, available)
            if state["owed"] and state["punctual"] and not state["came"]:
                raise AgentError(
                    f"this agent needs every response in its own round: observe {state['t']} first"
                )
            if state["owed"]:
                self._learn(context)
            action = np.array(kind.check_action(info, self.agent.act(context), 1))
            state["t"], state["owed"] = context.t, True
            state["open"][context.t] = (context, action)
            offered = action[0]
            if info.kind == "assortment":
                return context.t, [int(item) for item in offered if item >= 0]
            return context.t, offered.item() if offered.ndim == 0 else offered.copy()

    def observe(self, decision: int, response: Any) -> None:
        """Takes the response to a decision, late or out of order.

        Args:
            decision: Its number.
            response: Assortment: the item that was bought, or None; pricing: the demand (0 or 1,
                False or True, if demand is logistic); recommendation: the reward; other kinds: the
                reward, with ``(reward, answer)`` where they have more.

        Raises:
            ParameterError: If there is no such decision, it was answered or dropped, or no such
                response is possible; the session is as before.
        """
        with self._lock:
            context, action = self._opened(decision)
            feedback = self._feedback(context, action, response)
            del self._state["open"][decision]
            self._state["came"].append((context, action, feedback))

    def drop(self, decision: int) -> None:
        """Waits no longer for a response, which frees its memory; raises as `observe`."""
        with self._lock:
            self._opened(decision)
            del self._state["open"][decision]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Hands the session over to a file, with what is pending; see `dpb_gym.checkpoint`.

        The file holds raw responses and past noise: keep it as secret as the customers' data. With
        noise from the operating system there is no seed in it: whoever goes on draws new noise,
        so that a copy tells no future noise. Still a file is loaded once, for two sessions would
        each spend the budget on the customers so far.

        Raises:
            AgentError: If the agent cannot be saved, or was handed over before.
            CheckpointError: If the file cannot be written.
        """
        with self._lock:
            self.agent.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, rehearsal: bool = False) -> Session:
        """Goes on with a saved session; see `dpb_gym.checkpoint.load` for what is raised."""
        agent = Agent.load(path, rehearsal=rehearsal)
        state = vars(agent).get("_session")
        if not isinstance(state, dict) or not isinstance(state.get("problem"), ProblemInfo):
            raise CheckpointError(f"{path} holds an agent, but no session")
        return cls(agent, state["problem"])

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
        earned = listed = who = None
        if kind.revenues:
            if revenues is None and info.equal_revenues:
                revenues = np.ones(info.n_items or 0)
            worth = validation.array("revenues", revenues, (info.n_items,), *info.reward_range)
            earned = worth.astype(np.float32)[None]
        elif revenues is not None:
            raise ParameterError(f"a {info.kind} problem has no revenues")
        if info.n_candidates is not None:
            listed = np.full((1, info.n_candidates), -1)
            if arms is not None:
                given = validation.array("arms", arms, listed.shape[1:], 0, (info.n_arms or 1) - 1)
                listed[0] = given
        if info.max_interactions is not None:
            who = np.array([validation.integer("user", user, 0)])
        mask = None
        if info.masked:
            given = np.ones(len(x)) if available is None else available
            mask = validation.array("available", given, (len(x),), 0, 1)[None] > 0
        elif available is not None:
            raise ParameterError("everything is available here: ProblemInfo(masked=True) says not")
        return Context(self._state["t"] + 1, x.astype(np.float32)[None], earned, listed, who, mask)

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
        """Closes the last round: with the response that came first, or with none.

        Without one the agent is shown zeros, so that it sees nobody's features twice.
        """
        state, kind = self._state, kind_of(self.problem.kind)
        state["owed"] = False
        if state["came"]:
            context, action, feedback = state["came"].pop(0)
        else:
            fields = {k: v for k, v in now._asdict().items() if isinstance(v, np.ndarray)}
            blank: Any = {k: np.full_like(v, NOTHING.get(k, 0)) for k, v in fields.items()}
            context = now._replace(**blank)
            action = np.full((1, *kind.action_shape(self.problem)), kind.nothing)
            told = [k for k in ("choice", "demand") if k == kind.response]
            absent: Any = {k: np.full(1, NOTHING.get(k, 0.0)) for k in told}
            feedback = Feedback(np.zeros(1), observed=np.array([False]), **absent)
        self.agent.observe(context._replace(t=state["t"]), action, feedback)


def serve(
    agent: str | type[Agent] | type[SingleAgent] | Callable[[], Agent | SingleAgent],
    budget: Budget | str | None,
    problem: ProblemInfo | Problem | str,
    *,
    noise: str = "system",
    seed: int | None = None,
    **params: Any,
) -> Session:
    """Starts an agent that decides for customers of yours.

    Args:
        agent: A registered name, an agent class, or a function that makes one.
        budget: What may be spent on the whole session, as `Budget` or text; None for no privacy.
        problem: What the agent may know: a `ProblemInfo`, whose `horizon` bounds the number of
            decisions; or an environment or its id, e.g. one of `from_log`, for its `ProblemInfo`.
        noise: ``"system"``: from the operating system's entropy, not repeatable; needs the extra
            ``secure``. ``"seeded"``: for tests; whoever knows the seed can take it away.
        seed: Of the agent's own random choices, and of seeded noise; random by default.
        **params: Parameters of the agent.

    Raises:
        AgentError: If the agent does not play the problem, or needs a budget.
        BudgetError: If the budget cannot be spent as the agent plans.
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
    from dpb_gym.envs.registration import make_problem
    from dpb_gym.privacy import Budget

    info = make_problem(problem).info if isinstance(problem, str) else problem
    info = info.info if isinstance(info, Problem) else info
    if not isinstance(info, ProblemInfo):
        raise ParameterError(f"problem must be a ProblemInfo or an environment, got {shown(info)}")
    asked = Budget.parse(budget)
    start = check_seed(secrets.randbits(63) if seed is None else seed)
    spec = spec_of(agent, info.kind).over(params)
    check_supported(spec, info, asked is not None)
    if spec.uses_oracle:
        raise AgentError(f"agent {agent!r} sees the hidden state, which no customer has")
    punctual = not (spec.partial_feedback and spec.delayed_feedback)
    made, streams = spec.make(), spec.streams([start], asked)
    made.set_up(info, streams, asked, noise="seeded" if asked is None else noise)
    return Session(made, info, punctual)
