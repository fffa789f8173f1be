"""The agent protocol, agent specs and the registry.

An agent is a policy plus releasers. `Agent` works on B replicates at once; a
`SingleAgent` is written for one customer stream and batched by the registry. Agents
register under a short name, in this process with `register_agent` or from any
installed package through the entry-point group ``dpb_gym.agents``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import AgentError, ParameterError, unknown_name
from dpb_gym.problems.base import Array, Context, Feedback, Instance, ProblemInfo
from dpb_gym.problems.kinds import kind_of, kinds
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget, Curator, NoiseSource

ENTRY_POINT_GROUP = "dpb_gym.agents"
OURS = "dpb-gym"
ANY = "any"
BUDGET_USES = ("never", "optional", "required")


class Agent(ABC):
    """A bandit agent on B independent replicates.

    Parameters belong in ``__init__``, state in `begin`, which may be called again to
    start afresh. Replicate i must not depend on the other replicates.

    Attributes:
        protects: Notion and unit of what the agent protects (see `Guarantee`); None: what it was
            registered with.
        curator: What stands between raw feedback and the policy, set by `set_up`.
    """

    protects: tuple[str, str] | None = None
    curator: Curator

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
            problem: What is known of the problem.
            streams: Random streams of the replicates.
            budget: What may be spent; None: exact releases.
            noise: ``"seeded"``, a simulation whose noise the seed reveals, or ``"system"``; or a
                source of the caller's.
            shared: Whether all replicates will see the same records, and share the budget.

        Raises:
            BudgetError: If the agent makes no releaser although there is a budget.
        """
        from dpb_gym.privacy import Curator, NoiseSource

        if isinstance(noise, str):
            validation.choice("noise", noise, ("seeded", "system"))
        if budget is not None and self.protects is None:
            raise AgentError(
                f"{type(self).__name__} gets a budget but does not say what it protects: "
                "register_agent(..., protects=('central', 'reward')), or set the attribute"
            )
        for refused in ("act", "observe"):  # by a run that was handed over, see `save`
            vars(self).pop(refused, None)
        self.curator = Curator(
            budget,
            self.protects or ("central", "reward"),
            noise=NoiseSource(streams.noise) if noise == "seeded" else noise,
            replicates=streams.replicates,
            horizon=problem.horizon,
            copies=streams.replicates if shared else 1,
        )
        self.begin(problem, streams, self.curator)
        self.curator.seal()
        self.curator.guarantee  # noqa: B018 (raises if the budget was never charged)

    def attach(self, instance: Instance) -> None:  # noqa: B027
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
        releasers and nowhere else."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint that `load` continues bit for bit; see `dpb_gym.checkpoint`.

        An agent with a budget is handed over: it goes on by `load` alone.

        Raises:
            AgentError: If the agent holds something that cannot be saved, or was handed over.
        """
        from dpb_gym import checkpoint

        checkpoint.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], *, rehearsal: bool = False) -> Agent:
        """Continues from a checkpoint; see `dpb_gym.checkpoint.load`."""
        from dpb_gym import checkpoint

        return checkpoint.load(path, rehearsal=rehearsal)


class SingleAgent:
    """An agent written for one customer stream; the registry batches it.

    Override `act` and `observe`, and `begin` for state. The context and feedback have
    no replicate axis: ``context.features`` is ``(N, d)``, ``feedback.reward`` a float.

    Attributes:
        problem: What is known of the problem (`ProblemInfo`), set before `begin`.
        rng: The agent's generator for this replicate.
        curator: Makes the releasers through which alone raw feedback reaches the policy; exact
            ones without a budget. Records and releases have no replicate axis.
    """

    protects: tuple[str, str] | None = None
    problem: ProblemInfo
    rng: np.random.Generator
    curator: Curator

    def begin(self) -> None:
        """Prepares the state of a fresh replicate."""

    def act(self, context: Context) -> Any:
        """Returns a slate (at most K item indices), a price, or a candidate index."""
        raise AgentError(f"{type(self).__name__} does not implement act(context)")

    def observe(self, context: Context, action: Any, feedback: Feedback) -> None:
        """Takes the response to `action`; does nothing by default."""


@dataclass(frozen=True)
class _Making:
    """``maker(**params)``, which a checkpoint can hold."""

    maker: Callable[..., SingleAgent]
    params: dict[str, Any]

    def __call__(self) -> SingleAgent:
        return self.maker(**self.params)


class BatchedSingle(Agent):
    """Runs one copy of a `SingleAgent` per replicate."""

    def __init__(self, factory: Callable[[], SingleAgent]) -> None:
        self._factory = factory
        self._copies: list[SingleAgent] = []

    @property
    def copies(self) -> list[SingleAgent]:
        """The copies, one per replicate; empty before `begin`."""
        return list(self._copies)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._problem = problem
        self._copies = []
        for i, rng in enumerate(streams.agent):
            copy = self._factory()
            copy.problem, copy.rng, copy.curator = problem, rng, curator.single(i)
            copy.begin()
            self._copies.append(copy)

    def act(self, context: Context) -> Array:
        self._actions = []
        for i, copy in enumerate(self._copies):
            with self._blaming(i, "act"):
                self._actions.append(copy.act(_lane(context, i)))
        name = type(self._copies[0]).__name__
        return kind_of(self._problem.kind).stack(self._problem, self._actions, name)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        for i, copy in enumerate(self._copies):
            if feedback.observed is None or feedback.observed[i]:
                with self._blaming(i, "observe"):
                    copy.observe(_lane(context, i), self._actions[i], _lane(feedback, i))

    @contextmanager
    def _blaming(self, i: int, method: str) -> Iterator[None]:
        """Names the replicate whose copy broke down."""
        try:
            yield
        except Exception as error:
            name = type(self._copies[i]).__name__
            raise AgentError(
                f"{name}.{method} failed in replicate {i}: {type(error).__name__}: {error}"
            ).at(i) from error


Batch = TypeVar("Batch", Context, Feedback)


def _lane(batch: Batch, i: int) -> Batch:
    return type(batch)(
        *(v[i] if isinstance(v, np.ndarray) else v for v in batch)  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class AgentSpec:
    """Everything needed to make an agent again; serialises to JSON.

    Attributes:
        name: Registered name.
        entry_point: ``"module:Class"``.
        supports: Problem kinds.
        budget: ``"never"``, ``"optional"`` or ``"required"``.
        protects: Notion and unit of what the agent protects under a budget.
        params: Keyword arguments of the class.
        summary: First line of the class's docstring.
        partial_feedback: Whether rounds without feedback (rejection replay) are allowed.
        uses_oracle: Whether the agent needs the environment's hidden state (`oracle`).
    """

    name: str
    entry_point: str
    supports: tuple[str, ...]
    budget: str = "never"
    protects: tuple[str, str] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    partial_feedback: bool = True
    uses_oracle: bool = False

    def to_json(self) -> str:
        """Returns the spec as a JSON object; see `from_json`."""
        data = {k: getattr(self, k) for k in self.__dataclass_fields__}
        return json.dumps(data | {"params": dict(self.params)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> AgentSpec:
        """Rebuilds a spec from `to_json`.

        Raises:
            AgentError: If the text is not a spec.
        """
        try:
            data = json.loads(text)
            protects = data["protects"] and tuple(data["protects"])
            return cls(**{**data, "supports": tuple(data["supports"]), "protects": protects})
        except (ValueError, TypeError, KeyError) as error:
            raise AgentError(f"not an agent spec: {error}") from None

    def load(self) -> type[Agent] | type[SingleAgent]:
        """Returns the class, registered in this process or imported.

        Raises:
            AgentError: If the entry point does not name an agent class.
        """
        if self.entry_point in _CLASSES:
            return _CLASSES[self.entry_point]
        module, _, attribute = self.entry_point.partition(":")
        try:
            loaded = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise AgentError(
                f"agent {self.name!r}: cannot load {self.entry_point}: {error}"
            ) from error
        if not (inspect.isclass(loaded) and issubclass(loaded, (Agent, SingleAgent))):
            raise AgentError(f"agent {self.name!r}: {self.entry_point} is not an agent class")
        return loaded

    def streams(self, seeds: Sequence[int], budget: Budget | None = None) -> AgentStreams:
        """The random streams that the harness gives this agent.

        Decisions and noise are keyed by the replicate's seed and by who acts: name, parameters
        and budget.

        Args:
            seeds: Seeds of the replicates.
            budget: What the agent may spend.
        """
        return agent_streams(self.name, self.load(), self.params, budget, seeds)

    def make(self, **params: Any) -> Agent:
        """Makes the agent with `params` over the spec's own.

        Raises:
            ParameterError: If a parameter is unknown or invalid.
        """
        return build_agent(self.name, self.load(), {**self.params, **params}, self.protects)


def build_agent(
    name: str,
    maker: Callable[..., Any],
    params: Mapping[str, Any],
    protects: tuple[str, str] | None = None,
) -> Agent:
    """Makes an agent, batched if it is written for one stream.

    Args:
        name: For messages.
        maker: A class, or a function that makes an agent.
        params: Keyword arguments.
        protects: What it protects if it does not say so itself.

    Raises:
        ParameterError: If a parameter is unknown or invalid.
        AgentError: If `maker` does not make an agent.
    """
    if inspect.isclass(maker):
        check_parameters(name, maker, params)
    made = maker(**params)
    if isinstance(made, SingleAgent):
        agent: Agent = BatchedSingle(_Making(maker, dict(params)))
        agent.protects = made.protects
    elif isinstance(made, Agent):
        agent = made
    else:
        raise AgentError(
            f"agent {name!r}: {maker!r} made a {type(made).__name__}, which derives neither from "
            "Agent nor from SingleAgent"
        )
    if agent.protects is None:
        agent.protects = protects
    return agent


def agent_streams(
    name: str,
    maker: Callable[..., Any],
    params: Mapping[str, Any],
    budget: Budget | None,
    seeds: Sequence[int],
) -> AgentStreams:
    """The random streams of an agent: keyed by seed and by name, parameters and budget."""
    arguments = dict(params)
    with suppress(TypeError, ValueError):  # functions may not tell their parameters
        bound = inspect.signature(maker).bind(**params)
        bound.apply_defaults()  # a parameter that is written out is the same agent
        arguments = dict(bound.arguments)
    parts = [name, arguments, str(budget)]
    return AgentStreams(seeds, json.dumps(parts, sort_keys=True, default=repr))


def check_parameters(name: str, cls: type, params: Mapping[str, Any]) -> None:
    """Raises `ParameterError` naming parameters that ``cls(**params)`` does not take."""
    signature = inspect.signature(cls)
    known = [p.name for p in signature.parameters.values() if p.kind != p.VAR_KEYWORD]
    if len(known) != len(signature.parameters):
        return
    for key in params:
        if key not in known:
            raise ParameterError(
                f"agent {name!r} has no parameter {key!r}; it takes {', '.join(known) or 'none'}"
            )


_REGISTRY: dict[str, AgentSpec] = {}
# Classes defined in scripts, notebooks and functions cannot be imported by name.
_CLASSES: dict[str, type[Agent] | type[SingleAgent]] = {}
_discovered = False
Registered = TypeVar("Registered", bound=type)


def register_agent(
    name: str,
    *,
    supports: Sequence[str],
    protects: tuple[str, str] | None = None,
    budget: str | None = None,
    partial_feedback: bool = True,
    uses_oracle: bool = False,
    **params: Any,
) -> Callable[[Registered], Registered]:
    """Class decorator that registers an agent under `name`.

    One class may be registered several times under different names and `params`.

    Args:
        name: Short, lower-case, hyphenated.
        supports: Names of problem kinds (assortment, pricing, recommendation, or one of
            `dpb_gym.register_kind`), or ``"any"`` for every kind there is.
        protects: Notion and unit of what the agent protects under a budget, e.g.
            ``("central", "reward")``; see `dpb_gym.Guarantee`. None: it takes no budget.
        budget: ``"optional"`` (the default with `protects`: without one its releasers are exact)
            or ``"required"``; ``"never"`` without `protects`.
        partial_feedback: False if the agent needs feedback in every round.
        uses_oracle: True if the harness must show the agent the hidden state.
        **params: Default keyword arguments of the class under this name.

    Raises:
        AgentError: If the name is taken by another class or an argument is invalid.
    """
    if not name or name != name.lower() or any(c.isspace() or c == "_" for c in name):
        raise AgentError(f"agent name must be lower-case and hyphenated, got {name!r}")
    named = (supports,) if isinstance(supports, str) else tuple(supports)
    known = (*kinds(), ANY)
    if not named or any(k not in known for k in named):
        raise AgentError(f"supports must name problems among {', '.join(known)}, got {supports!r}")
    use = budget or ("never" if protects is None else "optional")
    if use not in BUDGET_USES:
        raise AgentError(f"budget must be one of {', '.join(BUDGET_USES)}, got {budget!r}")
    if (use == "never") != (protects is None):
        raise AgentError(
            "an agent that takes a budget says what it protects, e.g. protects=('central', "
            "'reward'), and one that does not protects nothing"
        )
    if protects is not None:
        from dpb_gym.privacy import Guarantee

        Guarantee(*protects)

    def decorate(cls: Registered) -> Registered:
        if not (inspect.isclass(cls) and issubclass(cls, (Agent, SingleAgent))):
            raise AgentError(f"agent {name!r} must derive from Agent or SingleAgent, got {cls!r}")
        doc = inspect.getdoc(cls) or ""
        spec = AgentSpec(
            name=name,
            entry_point=f"{cls.__module__}:{cls.__qualname__}",
            supports=named,
            budget=use,
            protects=protects,
            params=params,
            summary=doc.strip().split("\n")[0],
            partial_feedback=partial_feedback,
            uses_oracle=uses_oracle,
        )
        taken = _REGISTRY.get(name)
        if taken is not None and taken.entry_point != spec.entry_point:
            raise AgentError(f"agent {name!r} is already registered by {taken.entry_point}")
        _REGISTRY[name] = spec
        _CLASSES[spec.entry_point] = cls
        return cls

    return decorate


def _discover() -> None:
    global _discovered
    if _discovered:
        return
    _discovered = True
    from importlib.metadata import entry_points

    points = entry_points(group=ENTRY_POINT_GROUP)
    # The package's own names come first: no plug-in takes them.
    for point in sorted(points, key=lambda point: point.dist is None or point.dist.name != OURS):
        try:
            point.load()
        except (Exception, SystemExit) as error:  # one plug-in must not take the others down
            warnings.warn(
                f"could not load the agents of {point.value} ({point.name}): {error}",
                RuntimeWarning,
                stacklevel=3,
            )


def agent_specs() -> dict[str, AgentSpec]:
    """Returns every registered agent by name, plug-ins included."""
    _discover()
    return {name: agent_spec(name) for name in sorted(_REGISTRY)}


def agent_spec(name: str, **params: Any) -> AgentSpec:
    """Returns the spec of a registered agent, with `params` over its own.

    Raises:
        UnknownNameError: If the name is not registered; the message offers close matches.
    """
    _discover()
    if name not in _REGISTRY:
        raise unknown_name("agent", name, _REGISTRY)
    spec = _REGISTRY[name]
    if ANY in spec.supports:
        spec = replace(spec, supports=kinds())
    return replace(spec, params={**spec.params, **params}) if params else spec


def list_agents() -> list[dict[str, Any]]:
    """Lists every registered agent; a notebook shows the list as a table.

    Returns:
        Records with the agent's name, the problems it supports, whether it takes a privacy
        budget (``"required"``, ``"optional"`` or ``"never"``) and what it is.
    """
    from dpb_gym.report.notebook import Listing

    return Listing(
        {
            "name": spec.name,
            "problems": list(spec.supports),
            "budget": spec.budget,
            "summary": spec.summary,
        }
        for spec in agent_specs().values()
    )


def make_agent(name: str, **params: Any) -> Agent:
    """Makes a registered agent.

    Raises:
        UnknownNameError: If the name is not registered.
        ParameterError: If a parameter is unknown or invalid.
    """
    return agent_spec(name).make(**params)


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


def check_supported(spec: AgentSpec, problem: ProblemInfo, budget: Budget | None) -> None:
    """Raises `AgentError` if the agent cannot run on the problem with the budget."""
    if problem.kind not in spec.supports:
        raise AgentError(
            f"agent {spec.name!r} supports {', '.join(spec.supports)}, not {problem.kind}"
        )
    if problem.partial_feedback and not spec.partial_feedback:
        raise AgentError(f"agent {spec.name!r} needs feedback in every round (protocol='matrix')")
    if spec.budget == "required" and budget is None:
        raise AgentError(
            f"agent {spec.name!r} is private and needs a budget: --budget rho=1, "
            "budgets=['rho=1'], or eps=1,delta=1e-5"
        )
    if spec.budget == "never" and budget is not None:
        raise AgentError(f"agent {spec.name!r} is non-private and takes no budget")
