"""The agent protocol.

An agent is a policy plus releasers. `Agent` works on B replicates at once; a `SingleAgent` is
written for one customer stream and is batched by the registry (`dpb_gym.registry`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from dpb_gym import checkpoint, privacy, state, validation
from dpb_gym.checkpoint import Policy
from dpb_gym.errors import AgentError, BudgetError, CheckpointError, StateError, shown
from dpb_gym.overrides import overridden
from dpb_gym.privacy.releasers.releaser import Releaser, Rounds, behind
from dpb_gym.problems.base import Array, Context, Feedback, Instance, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.rounds import LINK_SCALES
from dpb_gym.problems.stretch import Stretch
from dpb_gym.streams import AgentStreams

NOISES = ("seeded", "system")


class Agent(Policy, ABC):
    """A bandit agent on B independent replicates.

    Parameters belong in ``__init__``, state in `begin`, which may be called again to
    restart. Replicate i must not depend on the other replicates.

    Attributes:
        protects: Notion and unit of the agent's guarantee (see `Guarantee`); None: as registered.
        curator: Separates raw feedback from the policy; set by `set_up`.
        stretches: Whether `play` can play several rounds at once; set by `begin`.
        replaced: Methods that `play` replaces. A subclass that overrides one of them, but not
            `play`, is played round by round.
        player_class: The class that defines `play`.
    """

    replaced: ClassVar[tuple[str, ...]] = ("act", "observe")
    player_class: ClassVar[type]
    stretches = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "play" in vars(cls):
            cls.player_class = cls

    @property
    def own_class(self) -> type:
        """The class that its author wrote."""
        return type(self)

    @property
    def class_name(self) -> str:
        """Name of the class that its author wrote."""
        return self.own_class.__name__

    def set_up(
        self,
        problem: ProblemInfo,
        streams: AgentStreams,
        budget: privacy.Budget | None = None,
        *,
        noise: str | privacy.NoiseSource = "seeded",
        shared: bool = False,
    ) -> None:
        """Create the curator, call `begin`, then calibrate and charge all planned releases.

        Args:
            problem: Public facts of the problem. A prior from a private release is charged even if
                the agent does not use it.
            streams: Random streams of the replicates.
            budget: Privacy budget; None: exact releases.
            noise: ``"seeded"`` (for simulations: the seed determines the noise), ``"system"``, or
                a `NoiseSource`.
            shared: Whether all replicates see the same records and share the budget.

        Raises:
            BudgetError: If there is a budget but the agent creates no releaser, or the prior's
                release exceeds the budget.
        """
        self._started_for = problem
        source: privacy.NoiseSource | str | None = noise
        if isinstance(noise, str) and validation.choice("noise", noise, NOISES) == "seeded":
            source = None if budget is None else privacy.NoiseSource(streams.noise)
        if budget is not None and self.protects is None:
            raise AgentError(
                f"{self.class_name} gets a budget but does not say what it protects: "
                "register_agent(..., protects=('central', 'reward')), or set the attribute"
            )
        for blocked in ("act", "observe", "play"):  # set by `save` of a private run
            vars(self).pop(blocked, None)
        if problem.zeta is not None:
            validation.real("zeta", problem.zeta, *LINK_SCALES)
        self.curator = privacy.Curator(
            budget,
            self.protects or ("central", "reward"),
            noise=source,
            replicates=streams.replicates,
            horizon=problem.longest,
            copies=streams.replicates if shared else 1,
        )
        self.curator.rounds = Rounds(of_agent=True)
        if problem.prior is not None:
            self.curator.inherit(problem.prior.guarantee, what="prior")
        self.begin(problem, streams, self.curator)
        self.curator.seal()
        if budget is not None:
            self.curator.provisos = problem.provisos
            try:
                self.curator.guarantee  # noqa: B018 (raises if the budget was never charged)
            except BudgetError as error:
                raise BudgetError(f"{error}{self._strange_releasers()}") from None

    def _strange_releasers(self) -> str:
        """Return the names of releasers that are not of the agent's own curator, as a remark."""
        parts = [self, *vars(self).get("copies", ())[:1]]
        names = [
            f"self.{name}"
            for part in parts
            for name, value in vars(part).items()
            if isinstance(behind(value), Releaser)
        ]
        if not names:
            return ""
        return (
            f". {', '.join(names)} is of another curator: make releasers in `begin`, with the "
            "curator that it gets"
        )

    def set_up_again(self) -> None:
        """Set up for the same problem and budget, with other random numbers.

        Raises:
            AgentError: If the agent was not set up by `set_up`.
        """
        problem = vars(self).get("_started_for")
        curator = self.curator
        if not isinstance(problem, ProblemInfo):
            raise AgentError("set_up was not called, which creates the curator and calls begin")
        noise = curator.noise
        replicates = 1 if noise is None else len(noise.generators)
        self.set_up(
            problem,
            AgentStreams((0,) * replicates),
            curator.budget,
            noise="system" if curator.system_noise else "seeded",
            shared=curator.copies > 1,
        )

    def attach(self, instance: Instance) -> None:
        """Receive the running environment, including its hidden state, before `begin`.

        Called only for agents registered with ``uses_oracle=True``, which are baselines such as
        `oracle`.
        """

    @abstractmethod
    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: privacy.Curator) -> None:
        """Initialise the state for ``streams.replicates`` new replicates of `problem`.

        All releasers are created here, by `curator`.
        """

    @abstractmethod
    def act(self, context: Context) -> Array:
        """Return one action per replicate.

        Assortment: slates ``(B, K)`` of item indices (-1 leaves a place empty), or with prices
        ``(B, N)`` prices (-1 leaves an item out); pricing: prices ``(B,)`` in [0, 1];
        recommendation: candidate indices ``(B,)``.
        The arrays of `context` are only valid during the round.
        """

    @abstractmethod
    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        """Process the raw responses to `action`; a private agent passes them to its releasers only.

        Called once a round. Where ``feedback.observed`` is False there is no response. With
        delayed feedback, context and action are those of an earlier round, which differs between
        replicates, and ``context.t`` is still the current round. State left by `act` does not
        belong to them.
        """

    def play(self, rounds: Stretch) -> Array:
        """Return the actions ``(n, B)`` of a stretch of rounds and learn from their outcomes.

        Optional: compiled code with the same results as `act` and `observe` round by round, bit for
        bit. It is not used for a subclass that overrides `act`, `observe` or one of the methods
        named in `replaced`.
        """
        raise AgentError(f"{type(self).__name__} plays round by round")

    def probabilities(self, context: Context) -> Array | None:
        """Return the probability of each candidate to be chosen by the next `act`.

        Optional, for recommendation: they become the propensities of logs made by
        `dpb_gym.offline.collect`. Called before `act`; must not change the agent's state.

        Returns:
            Probabilities ``(B, n_candidates)`` given all observations so far, or None (the
            default) if the agent cannot compute them.
        """
        return None

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        state_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write a checkpoint from which `load` continues bit for bit; see `dpb_gym.checkpoint`.

        An agent with a budget is handed over: only the loaded agent can continue.

        Args:
            path: File to write.
            state_dir: Folder that remembers which checkpoints were loaded; by default that of the
                user, see `dpb_gym.files.state_directory`.

        Raises:
            AgentError: If the agent's state cannot be saved, or the agent was handed over.
            CheckpointError: If the file or the state directory cannot be written.
        """
        checkpoint.save(self, path, state_dir=state_dir)

    @staticmethod
    def load(
        path: str | os.PathLike[str],
        *,
        state_dir: str | os.PathLike[str] | None = None,
        rehearsal: bool = False,
    ) -> Agent:
        """Continue from a checkpoint; see `dpb_gym.checkpoint.load`."""
        agent = checkpoint.load(path, state_dir=state_dir, rehearsal=rehearsal)
        if not isinstance(agent, Agent):
            raise CheckpointError(f"{path} holds no agent")
        return agent


Agent.player_class = Agent  # `__init_subclass__` is not called for the class itself


def plays_stretches(agent: Agent) -> bool:
    """Return whether `Agent.play` may take the coming rounds instead of `act` and `observe`."""
    return agent.stretches and not overridden(agent, agent.player_class, "play", *agent.replaced)


class SingleAgent(Policy):
    """An agent written for one customer stream; the registry batches it.

    Override `act` and `observe`, and `begin` for state. The context and feedback have
    no replicate axis: ``context.features`` is ``(N, d)``, ``feedback.reward`` a float.

    Attributes:
        problem: Public facts of the problem (`ProblemInfo`), set before `begin`.
        rng: The agent's generator for this replicate.
        curator: Creates the releasers, the policy's only access to raw feedback; without a budget
            they are exact. Records and releases have no replicate axis.
    """

    problem: ProblemInfo
    rng: np.random.Generator

    def begin(self) -> None:
        """Initialise the state of a new replicate."""

    def act(self, context: Context) -> Any:
        """Return a slate (at most K item indices), a price, or a candidate index."""
        raise AgentError(f"{type(self).__name__} does not implement act(context)")

    def observe(self, context: Context, action: Any, feedback: Feedback) -> None:
        """Process the response to `action`; by default do nothing."""

    def probabilities(self, context: Context) -> Array | None:
        """Return the probability of each candidate, ``(n_candidates,)``, or None; see `Agent`."""
        return None


class BatchedSingle(Agent):
    """Adapter that runs one copy of a `SingleAgent` per replicate.

    Args:
        maker: Class, or function that returns a copy.
        params: Keyword arguments of `maker`.

    Attributes:
        copies: One copy per replicate; empty before `begin`.
    """

    def __init__(
        self, maker: Callable[..., SingleAgent], params: Mapping[str, Any] | None = None
    ) -> None:
        self._maker = maker
        self._params = dict(params or {})
        self.copies: list[SingleAgent] = []

    @property
    def class_name(self) -> str:
        """Name of the class of the copies."""
        return str(getattr(self._maker, "__name__", type(self).__name__))

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: privacy.Curator) -> None:
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
            try:
                actions.append(copy.act(_lane(context, i)))
            except Exception as error:
                raise self._failed(i, "act", error) from error
        name = type(self.copies[0]).__name__
        return kind_of(self._problem.kind).stack(self._problem, actions, name)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        kind = kind_of(self._problem.kind)
        for i, copy in enumerate(self.copies):
            if feedback.observed is None or feedback.observed[i]:
                try:
                    own = kind.unstack(action, i)
                    copy.observe(_lane(context, i), own, _lane(feedback, i))
                except Exception as error:
                    raise self._failed(i, "observe", error) from error

    def probabilities(self, context: Context) -> Array | None:
        if getattr(self.copies[0].probabilities, "__func__", None) is SingleAgent.probabilities:
            return None
        rows = []
        for i, copy in enumerate(self.copies):
            try:
                row = copy.probabilities(_lane(context, i))
            except Exception as error:
                raise self._failed(i, "probabilities", error) from error
            if row is None:
                return None
            rows.append(row)
        return np.array(rows, np.float64)

    def _failed(self, i: int, method: str, error: Exception) -> AgentError:
        """Return the error that names the replicate of a copy that failed."""
        name = type(self.copies[i]).__name__
        return AgentError(
            f"{name}.{method} failed in replicate {i}: {type(error).__name__}: {error}"
        ).at(i)


def _written(agent: BatchedSingle) -> dict[str, Any]:
    """Return the attributes of an adapter, with the name of the class of its copies."""
    if not isinstance(agent._maker, type):
        raise StateError(f"its copies are made by {shown(agent._maker)}; give a class instead")
    return {**vars(agent), "_maker": state.name_of(agent._maker)}


def _read(agent: BatchedSingle, attributes: dict[str, Any]) -> None:
    maker = state.class_of(attributes.get("_maker"), SingleAgent)
    state.set_attributes(agent, {**attributes, "_maker": maker})


state.register(BatchedSingle, out=_written, into=_read)

Batch = TypeVar("Batch", Context, Feedback)


def _lane(batch: Batch, i: int) -> Batch:
    # most parts are None, and a list takes half the time of a generator
    parts = [v[i] if v is not None and isinstance(v, np.ndarray) else v for v in batch]
    return tuple.__new__(type(batch), parts)


def unsuitable(name: str, problem: ProblemInfo, kind: str, *needed: str) -> AgentError:
    """Return the error for an agent that cannot play a problem: wrong kind or missing facts.

    Args:
        name: The agent.
        problem: The problem.
        kind: Kind that the agent plays.
        needed: Attributes of the `ProblemInfo` that must not be None.
    """
    if problem.kind != kind:
        return AgentError(f"{name} plays {kind} problems, not {problem.kind}")
    lacking = ", ".join(fact for fact in needed if getattr(problem, fact) is None)
    return AgentError(
        f"{name} must know {lacking} of a {kind} problem, which this ProblemInfo does not have"
    )
