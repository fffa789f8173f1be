"""The agent protocol.

An agent is a policy plus releasers. `Agent` works on B replicates at once; a `SingleAgent` is
written for one customer stream and batched when it is made. `dpb_gym.registry` knows them by name.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from dpb_gym import checkpoint, validation
from dpb_gym.checkpoint import Policy
from dpb_gym.errors import AgentError, CheckpointError
from dpb_gym.overrides import overridden
from dpb_gym.problems.base import Array, Context, Feedback, Instance, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget, Curator, NoiseSource
    from dpb_gym.problems.stretch import Stretch

MOVED = ("check_supported", "list_agents", "make_agent", "register_agent", "spec_of")

NOISES = ("seeded", "system")


def __getattr__(name: str) -> Any:
    if name in MOVED:
        raise ImportError(f"{name} is in dpb_gym.registry now: from dpb_gym.registry import {name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Agent(Policy, ABC):
    """A bandit agent on B independent replicates.

    Parameters belong in ``__init__``, state in `begin`, which may be called again to
    start afresh. Replicate i must not depend on the other replicates.

    Attributes:
        protects: Notion and unit of what the agent protects (see `Guarantee`); None: what it was
            registered with.
        curator: What stands between raw feedback and the policy, set by `set_up`.
        stretches: Whether `play` can take the coming rounds; set by `begin`.
        replaced: Methods for which `play` stands; a subclass that overrides one of them below the
            class that defines `play` is played round by round.
    """

    replaced: ClassVar[tuple[str, ...]] = ("act", "observe")
    stretches = False

    def set_up(
        self,
        problem: ProblemInfo,
        streams: AgentStreams,
        budget: Budget | None = None,
        *,
        noise: str | NoiseSource = "seeded",
        shared: bool = False,
    ) -> None:
        """Makes the curator, begins, and has the curator calibrate and charge every plan.

        Args:
            problem: What is known of the problem. A prior from a private release is charged, used
                or not.
            streams: Random streams of the replicates.
            budget: What may be spent; None: exact releases.
            noise: ``"seeded"``, a simulation whose noise the seed reveals, or ``"system"``; or a
                source of the caller's.
            shared: Whether all replicates will see the same records, and share the budget.

        Raises:
            BudgetError: If the agent makes no releaser although there is a budget, or the
                prior's release is not covered by it.
        """
        from dpb_gym.privacy import Curator, NoiseSource

        source: NoiseSource | str | None = noise
        if isinstance(noise, str) and validation.choice("noise", noise, NOISES) == "seeded":
            source = None if budget is None else NoiseSource(streams.noise)
        if budget is not None and self.protects is None:
            raise AgentError(
                f"{type(self).__name__} gets a budget but does not say what it protects: "
                "register_agent(..., protects=('central', 'reward')), or set the attribute"
            )
        for refused in ("act", "observe", "play"):  # by a run that was handed over, see `save`
            vars(self).pop(refused, None)
        self.curator = Curator(
            budget,
            self.protects or ("central", "reward"),
            noise=source,
            replicates=streams.replicates,
            horizon=problem.longest,
            copies=streams.replicates if shared else 1,
        )
        if problem.prior is not None:
            self.curator.inherit(problem.prior.guarantee, what="prior")
        self.begin(problem, streams, self.curator)
        self.curator.seal()
        if budget is not None:
            self.curator.guarantee  # noqa: B018 (raises if the budget was never charged)

    def attach(self, instance: Instance) -> None:
        """Receives the running environment, hidden state included, before `begin`.

        Called only for agents registered with ``uses_oracle=True``, which are
        yardsticks (`oracle`) and not learners.
        """

    @abstractmethod
    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        """Prepares for ``streams.replicates`` fresh replicates of `problem`.

        Every releaser is made here, by `curator`, in the same order for every replicate.
        """

    @abstractmethod
    def act(self, context: Context) -> Array:
        """Returns one action per replicate.

        Assortment: slates ``(B, K)`` of item indices (-1 leaves a place empty);
        pricing: prices ``(B,)`` in [0, 1]; recommendation: candidate indices ``(B,)``.
        The arrays of `context` are only valid during the round.
        """

    @abstractmethod
    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        """Takes the raw responses to `action`; a private agent passes them on to its
        releasers and nowhere else.

        Called once a round. Where ``feedback.observed`` is False there is no response. With
        delayed feedback context and action are those of an earlier round, other ones in every
        replicate, and ``context.t`` is still the current round: nothing that `act` left in the
        agent belongs to them.
        """

    def play(self, rounds: Stretch) -> Array:
        """Return the actions ``(n, B)`` of a stretch of rounds and learn from their outcomes.

        Optional: in compiled code, what `act` and `observe` do round by round, bit for bit. It is
        used where nothing intervenes, and not by a subclass that overrides `act`, `observe` or one
        of the methods named in `replaced`.
        """
        raise AgentError(f"{type(self).__name__} plays round by round")

    def probabilities(self, context: Context) -> Array | None:
        """How likely each candidate is to be what `act` returns now, ``(B, n_candidates)``.

        Optional, for recommendation: logs of an agent that says it carry its own propensities
        (`dpb_gym.offline.collect`). Called before `act`; changes nothing.

        Returns:
            Rows that sum to 1, given everything that was observed so far; None, as by default,
            where the agent cannot say.
        """
        return None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint that `load` continues bit for bit; see `dpb_gym.checkpoint`.

        An agent with a budget is handed over: it goes on by `load` alone.

        Raises:
            AgentError: If the agent holds something that cannot be saved, or was handed over.
        """
        checkpoint.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], *, rehearsal: bool = False) -> Agent:
        """Continues from a checkpoint; see `dpb_gym.checkpoint.load`."""
        agent = checkpoint.load(path, rehearsal=rehearsal)
        if not isinstance(agent, Agent):
            raise CheckpointError(f"{path} holds no agent")
        return agent


def plays_stretches(agent: Agent) -> bool:
    """Return whether `Agent.play` may take the coming rounds instead of `act` and `observe`."""
    return agent.stretches and not overridden(agent, "play", *agent.replaced)


class SingleAgent(Policy):
    """An agent written for one customer stream; the registry batches it.

    Override `act` and `observe`, and `begin` for state. The context and feedback have
    no replicate axis: ``context.features`` is ``(N, d)``, ``feedback.reward`` a float.

    Attributes:
        problem: What is known of the problem (`ProblemInfo`), set before `begin`.
        rng: The agent's generator for this replicate.
        curator: Makes the releasers through which alone raw feedback reaches the policy; exact
            ones without a budget. Records and releases have no replicate axis.
    """

    problem: ProblemInfo
    rng: np.random.Generator

    def begin(self) -> None:
        """Prepares the state of a fresh replicate."""

    def act(self, context: Context) -> Any:
        """Returns a slate (at most K item indices), a price, or a candidate index."""
        raise AgentError(f"{type(self).__name__} does not implement act(context)")

    def observe(self, context: Context, action: Any, feedback: Feedback) -> None:
        """Takes the response to `action`; does nothing by default."""

    def probabilities(self, context: Context) -> Array | None:
        """How likely each candidate is to be chosen now, ``(n_candidates,)``; see `Agent`."""
        return None


class BatchedSingle(Agent):
    """Runs one copy of a `SingleAgent` per replicate.

    Args:
        maker: Class, or function that makes a copy.
        params: Its keyword arguments.

    Attributes:
        copies: One per replicate; none before `begin`.
    """

    def __init__(
        self, maker: Callable[..., SingleAgent], params: Mapping[str, Any] | None = None
    ) -> None:
        self._maker = maker
        self._params = dict(params or {})
        self.copies: list[SingleAgent] = []

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._problem = problem
        self.copies = []
        if problem.partial_feedback and curator.private and curator.unit in ("user-round", "user"):
            raise AgentError(
                "a SingleAgent observes nothing in rounds without feedback, and which these are is "
                f"protected per {curator.unit}: register it with partial_feedback=False, protect "
                "rewards only, or derive from Agent, which observes every round"
            )
        for i, rng in enumerate(streams.agent):
            copy = self._maker(**self._params)
            copy.problem, copy.rng, copy.curator = problem, rng, curator.single(i)
            copy.begin()
            self.copies.append(copy)

    def act(self, context: Context) -> Array:
        actions = []
        for i, copy in enumerate(self.copies):
            with self._blaming(i, "act"):
                actions.append(copy.act(_lane(context, i)))
        name = type(self.copies[0]).__name__
        return kind_of(self._problem.kind).stack(self._problem, actions, name)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        kind = kind_of(self._problem.kind)
        for i, copy in enumerate(self.copies):
            if feedback.observed is None or feedback.observed[i]:
                with self._blaming(i, "observe"):
                    own = kind.unstack(action, i)
                    copy.observe(_lane(context, i), own, _lane(feedback, i))

    def probabilities(self, context: Context) -> Array | None:
        told = []
        for i, copy in enumerate(self.copies):
            with self._blaming(i, "probabilities"):
                told.append(copy.probabilities(_lane(context, i)))
        return None if any(row is None for row in told) else np.array(told, np.float64)

    @contextmanager
    def _blaming(self, i: int, method: str) -> Iterator[None]:
        """Names the replicate whose copy broke down."""
        try:
            yield
        except Exception as error:
            name = type(self.copies[i]).__name__
            raise AgentError(
                f"{name}.{method} failed in replicate {i}: {type(error).__name__}: {error}"
            ).at(i) from error


Batch = TypeVar("Batch", Context, Feedback)


def _lane(batch: Batch, i: int) -> Batch:
    return type(batch)(
        *(v[i] if isinstance(v, np.ndarray) else v for v in batch)  # type: ignore[arg-type]
    )


def unsuitable(name: str, problem: ProblemInfo, kind: str, *needed: str) -> AgentError:
    """The error of an agent that cannot play a problem: another kind, or facts that it lacks.

    Args:
        name: The agent.
        problem: The problem.
        kind: Kind that the agent plays.
        needed: Attributes of the `ProblemInfo` without which it cannot.
    """
    if problem.kind != kind:
        return AgentError(f"{name} plays {kind} problems, not {problem.kind}")
    lacking = ", ".join(fact for fact in needed if getattr(problem, fact) is None)
    return AgentError(
        f"{name} must know {lacking} of a {kind} problem: ProblemInfo({lacking}=...) says nothing"
    )
