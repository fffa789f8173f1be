"""Registry of agents: names, specs and construction.

Agents register under a short name, in this process with `register_agent` or from any installed
package through the entry-point group ``dpb_gym.agents``. The names of built-in agents are reserved.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

from dpb_gym import docstrings, predictors, privacy, state, validation
from dpb_gym.agent import Agent, BatchedSingle, SingleAgent
from dpb_gym.checkpoint import Policy
from dpb_gym.errors import AgentError, ParameterError, unknown_name, unknown_parameter
from dpb_gym.lazy import AGENTS, load_plugins
from dpb_gym.play.algorithm import Algorithm, player_of
from dpb_gym.play.player import Player
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.problems.kinds import KINDS
from dpb_gym.streams import AgentStreams

FACTORY = "factory:"
ANY = "any"
BUDGET_USES = ("never", "optional", "required")

as_key = partial(json.dumps, sort_keys=True, default=repr)
"""Return name, parameters and budget of an agent as text, the key of its random numbers."""


@dataclass(frozen=True)
class AgentSpec:
    """Specification from which an agent can be made.

    For the attributes not listed here, see `register_agent`.

    Attributes:
        name: Registered name, or a generated one for a class or function.
        entry_point: ``"module:Class"``; ``"factory:module:function"`` for a function.
        maker: The class, or a function that returns an agent.
        params: Keyword arguments of the class.
    """

    name: str
    entry_point: str
    maker: Any = field(compare=False, repr=False, kw_only=True)
    supports: tuple[str, ...]
    budget: str = "never"
    protects: tuple[str, str] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    partial_feedback: bool = True
    delayed_feedback: bool = True
    needs_horizon: bool = False
    fixed_arms: bool = False
    uses_oracle: bool = False
    standing: str = ""

    def over(self, params: Mapping[str, Any]) -> AgentSpec:
        """Return the spec with `params` overriding the spec's own."""
        return replace(self, params={**self.params, **params})

    def streams(self, seeds: Sequence[int], budget: privacy.Budget | None = None) -> AgentStreams:
        """Return the random streams that the harness gives this agent.

        Decisions and noise are keyed by the replicate's seed and the agent's name, parameters and
        budget. Parameters at their defaults are omitted, so that an agent keeps its random numbers
        when a new parameter is added to its class.

        Args:
            seeds: Seeds of the replicates.
            budget: The agent's budget.
        """
        usual = docstrings.defaults(self.maker) if self.params else {}
        params = self.params.items()
        own = {k: v for k, v in params if k not in usual or as_key(v) != as_key(usual[k])}
        return AgentStreams(seeds, as_key([self.name, own, str(budget)]))

    @property
    def defaults(self) -> dict[str, Any]:
        """Defaults of all parameters, overridden by the spec's own."""
        return {**docstrings.defaults(self.maker), **self.params}

    def guarantee(
        self, problem: ProblemInfo, budget: privacy.Budget | None
    ) -> privacy.Guarantee | None:
        """Return the guarantee of the agent's curator on a problem.

        Raises:
            DPBError: If the agent cannot play the problem, or takes no such budget.
        """
        agent = self.make()
        agent.set_up(problem, AgentStreams([0]), budget)
        return agent.curator.guarantee

    def make(self, **params: Any) -> Agent:
        """Return a new agent, with `params` overriding the spec's own; a `SingleAgent` is batched.

        Raises:
            ParameterError: If a parameter is unknown or invalid.
            AgentError: If the maker does not return an agent.
        """
        maker = self.maker
        given = {**self.params, **params}
        if given and inspect.isclass(maker):
            check_parameters(self.name, maker, given)
        try:
            made = maker(**given)
        except ParameterError as error:
            raise ParameterError(f"{self.name}: {error}") from None
        if inspect.isclass(maker) and type(made) is not maker:
            # what rows say of an agent, such as "by construction", is about this class
            raise AgentError(
                f"agent {self.name!r}: {maker.__name__} made a {type(made).__name__}; give the "
                "class of the agent, or a function that makes it"
            )
        agent: Agent
        if Algorithm in type(made).__mro__:
            agent = (player_of(made) or Player)(made)
        elif isinstance(made, SingleAgent):
            agent = BatchedSingle(maker, given)
        elif isinstance(made, Agent):
            agent = made
        else:
            raise AgentError(
                f"agent {self.name!r}: {maker!r} made a {type(made).__name__}, which derives "
                "from none of Algorithm, Agent and SingleAgent"
            )
        agent.protects = made.protects or self.protects
        return agent


def check_parameters(name: str, cls: type, params: Mapping[str, Any]) -> None:
    """Raise `ParameterError` naming parameters that ``cls(**params)`` does not take."""
    signature = inspect.signature(cls)
    known = [p.name for p in signature.parameters.values() if p.kind != p.VAR_KEYWORD]
    if len(known) != len(signature.parameters):
        return
    for key in params:
        if key not in known:
            if instead := getattr(cls, "retired", {}).get(key):
                raise ParameterError(f"agent {name!r} has no parameter {key!r}: {instead}")
            takes = f"it takes {', '.join(known) or 'none'}"
            raise unknown_parameter(f"agent {name!r}", key, known, takes)


_REGISTRY: dict[str, AgentSpec] = {}
Registered = TypeVar("Registered", bound=type)


def register_agent(
    name: str,
    *,
    supports: Sequence[str],
    protects: tuple[str, str] | None = None,
    budget: str | None = None,
    partial_feedback: bool = True,
    delayed_feedback: bool = True,
    needs_horizon: bool = False,
    fixed_arms: bool = False,
    uses_oracle: bool = False,
    summary: str | None = None,
    standing: str = "",
    **params: Any,
) -> Callable[[Registered], Registered]:
    """Return a class decorator that registers an agent under `name`.

    A class may be registered several times under different names and `params`.

    Args:
        name: Short, lower-case, hyphenated.
        supports: Names of problem kinds (assortment, pricing, recommendation, or one of
            `dpb_gym.register_kind`), or ``"any"`` for all kinds.
        protects: Notion and unit of the agent's guarantee, e.g. ``("central", "reward")``; see
            `dpb_gym.Guarantee`. None: it takes no budget.
        budget: ``"optional"`` (the default with `protects`: without a budget its releasers are
            exact) or ``"required"``; ``"never"`` without `protects`.
        partial_feedback: False if the agent needs feedback in every round.
        delayed_feedback: False if `observe` must directly follow `act`, because the agent stores
            part of its choice between them.
        needs_horizon: True if the agent needs the number of rounds, which some problems hide.
        fixed_arms: True if the agent identifies arms by their indices, so that every round must
            offer the same arms.
        uses_oracle: True if the agent needs the hidden state.
        summary: One-line description; the first line of the docstring by default.
        standing: How the agent relates to its source, a key of
            `dpb_gym.report.comparison_groups.STANDINGS`; empty if not stated.
        **params: Default keyword arguments of the class under this name.

    Raises:
        AgentError: If the name is taken by another class or an argument is invalid.
    """
    named = (supports,) if isinstance(supports, str) else tuple(supports)
    use = budget or ("never" if protects is None else "optional")
    _check_registration(name, named, use, protects)
    check_standing(name, standing)

    def decorate(cls: Registered) -> Registered:
        if not (inspect.isclass(cls) and issubclass(cls, Policy)):
            raise AgentError(f"agent {name!r} must derive from Agent or SingleAgent, got {cls!r}")
        spec = AgentSpec(
            name=name,
            entry_point=f"{cls.__module__}:{cls.__qualname__}",
            maker=cls,
            supports=named,
            budget=use,
            protects=protects,
            params=params,
            summary=summary or (inspect.getdoc(cls) or "").strip().split("\n")[0],
            partial_feedback=partial_feedback,
            delayed_feedback=delayed_feedback,
            needs_horizon=needs_horizon,
            fixed_arms=fixed_arms,
            uses_oracle=uses_oracle,
            standing=standing,
        )
        load_plugins(AGENTS, own=True)  # their names are reserved
        taken = _REGISTRY.get(name)
        if taken is not None and taken.entry_point != spec.entry_point:
            raise AgentError(f"agent {name!r} is already registered by {taken.entry_point}")
        _REGISTRY[name] = spec
        state.register_package(cls.__module__.partition(".")[0])
        return cls

    return decorate


def _check_registration(
    name: str, supports: Sequence[str], use: str, protects: tuple[str, str] | None
) -> None:
    """Raise `AgentError` if arguments of `register_agent` are invalid."""
    if not isinstance(name, str) or not re.fullmatch("[a-z0-9]+([-.][a-z0-9]+)*", name):
        raise AgentError(f"agent name must be lower-case and hyphenated, got {name!r}")
    known = (*KINDS, ANY)
    if not supports or any(k not in known for k in supports):
        raise AgentError(f"supports must name problems among {', '.join(known)}, got {supports!r}")
    if use not in BUDGET_USES:
        raise AgentError(f"budget must be one of {', '.join(BUDGET_USES)}, got {use!r}")
    if (use == "never") != (protects is None) or isinstance(protects, str):
        raise AgentError(
            "an agent that takes a budget says what it protects, e.g. protects=('central', "
            "'reward'), and one that does not protects nothing"
        )
    if protects is not None:
        privacy.Guarantee(*protects)


def check_standing(name: str, standing: str) -> None:
    """Raise `AgentError` if an agent's `standing` is neither empty nor a key of `STANDINGS`."""
    from dpb_gym.report.comparison_groups import STANDINGS

    if standing and standing not in STANDINGS:
        raise AgentError(
            f"agent {name!r}: standing must be one of {', '.join(STANDINGS)}, got {standing!r}"
        )


def set_standings(names: Mapping[str, str]) -> None:
    """Set the standing of registered agents, for packages that list them in one table.

    Args:
        names: Names of agents by standing, separated by blanks.

    Raises:
        AgentError: If a standing is unknown.
        UnknownNameError: If a name is not registered.
    """
    for standing, listed in names.items():
        for name in listed.split():
            check_standing(name, standing)
            if name not in _REGISTRY:
                raise unknown_name("agent", name, _REGISTRY)
            _REGISTRY[name] = replace(_REGISTRY[name], standing=standing)


def agent_specs() -> dict[str, AgentSpec]:
    """Return every registered agent by name, plug-ins included."""
    load_plugins(AGENTS)
    return {name: agent_spec(name) for name in sorted(_REGISTRY)}


def agent_spec(name: str, **params: Any) -> AgentSpec:
    """Return the spec of a registered agent, with `params` overriding its own.

    Raises:
        UnknownNameError: If the name is not registered; the message offers close matches.
    """
    if name not in _REGISTRY:
        load_plugins(AGENTS)
    if name not in _REGISTRY:
        raise unknown_name("agent", name, _REGISTRY)
    spec = _REGISTRY[name]
    if ANY in spec.supports:
        spec = replace(spec, supports=tuple(KINDS))
    return spec.over(params) if params else spec


def spec_of(agent: Any, kind: str, label: str | None = None) -> AgentSpec:
    """Return the spec of an agent given as a name, a spec, a class, a function or a model.

    Args:
        agent: The agent. A class or function that is not registered gets a generated name, and so
            does an object with `predict`, see `dpb_gym.predictors`.
        kind: The problem kind that it plays if it is not registered.
        label: Name for a function; ``__name__`` by default.

    Raises:
        UnknownNameError: If the name is not registered.
        AgentError: If a class is registered under several names.
        ParameterError: If it is none of these.
    """
    if isinstance(agent, str):
        return agent_spec(agent)
    if isinstance(agent, AgentSpec):
        return agent
    if isinstance(agent, Policy):
        raise ParameterError(
            f"give the class {type(agent).__name__} or a function that makes the agent, "
            "not an agent that exists already: every block of replicates needs a fresh one"
        )
    if predictors.is_model(agent):
        agent = predictors.PredictorMaker(agent)
        return AgentSpec(
            validation.slug(label or agent.__name__),
            f"{FACTORY}{type(agent.model).__module__}:{type(agent.model).__qualname__}",
            (kind,),
            maker=agent,
            summary=(inspect.getdoc(predictors.Predictor) or "").partition("\n")[0],
        )
    if not callable(agent) or (inspect.isclass(agent) and not issubclass(agent, Policy)):
        raise predictors.unfit(agent)
    name = str(getattr(agent, "__name__", "agent"))
    place = f"{getattr(agent, '__module__', '?')}:{getattr(agent, '__qualname__', '?')}"
    if not inspect.isclass(agent):
        _check_factory(agent)
        return AgentSpec(
            validation.slug(label or name), FACTORY + place, (kind,), "optional", maker=agent
        )
    known = [spec for spec in agent_specs().values() if spec.entry_point == place]
    if len(known) > 1:
        names = ", ".join(spec.name for spec in known)
        raise AgentError(f"{name} is registered under several names ({names}): give one")
    if known:
        return replace(known[0], maker=agent)
    name = validation.slug(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name))
    protects = cast("type[Policy]", agent).protects
    return AgentSpec(name, place, (kind,), "optional", protects, maker=agent)


def _check_factory(function: Any) -> None:
    """Raise ParameterError if a function needs arguments, as one of observations does."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise predictors.unfit(function) from None
    except ValueError:  # a builtin without a signature
        return


def list_agents() -> list[dict[str, Any]]:
    """Return a list of all registered agents; a notebook shows it as a table.

    Returns:
        Records with the agent's name, the problems it supports, whether it takes a privacy
        budget (``"required"``, ``"optional"`` or ``"never"``) and a summary.
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
    """Return a new registered agent.

    Raises:
        UnknownNameError: If the name is not registered.
        ParameterError: If a parameter is unknown or invalid.
    """
    return agent_spec(name).make(**params)


def shortcoming(spec: AgentSpec, problem: ProblemInfo) -> str:
    """Return the reason why an agent cannot play a problem, or "" if it can."""
    if problem.kind not in spec.supports:
        return f"supports {', '.join(spec.supports)}, not {problem.kind}"
    if problem.partial_feedback and not spec.partial_feedback:
        return "needs feedback in every round (protocol='matrix')"
    if problem.delay is not None and not (spec.partial_feedback and spec.delayed_feedback):
        return f"needs every response in its own round, not delay={problem.delay}"
    if spec.fixed_arms and not problem.fixed_arms:
        return "needs the same arms in every round, as DPB/MultiArmed-v0 has them; here they change"
    if problem.horizon is None and spec.needs_horizon:
        able = ", ".join(
            name
            for name, other in agent_specs().items()
            if problem.kind in other.supports
            and not (other.needs_horizon or other.uses_oracle)
            and (spec.budget == "never" or other.budget != "never")
        )
        return f"needs a horizon, which unknown_horizon=True hides; these need none: {able}"
    return ""


def check_supported(spec: AgentSpec, problem: ProblemInfo, budget: bool) -> None:
    """Raise `AgentError` if the agent cannot run on the problem, with a budget or without."""
    if reason := shortcoming(spec, problem):
        raise AgentError(f"agent {spec.name!r} {reason}")
    if spec.budget == "required" and not budget:
        raise AgentError(
            f"agent {spec.name!r} is private and needs a budget: --budget rho=1, "
            "budgets=['rho=1'], or eps=1,delta=1e-5"
        )
    if spec.budget == "never" and budget:
        raise AgentError(
            f"agent {spec.name!r} is non-private and takes no budget; if it is private, register "
            "it with what it protects, e.g. protects=('central', 'reward')"
        )
