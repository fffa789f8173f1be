"""What takes part: an agent under a label, with one budget."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dpb_gym.agent import (
    Agent,
    AgentSpec,
    BatchedSingle,
    SingleAgent,
    agent_spec,
    agent_specs,
    check_parameters,
)
from dpb_gym.errors import AgentError, BudgetError, ParameterError

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget

NO_BUDGET = "none"
FACTORY = "factory:"
_ALLOWED = (
    "a registered name, (name, budget), (name, budget, parameters), an agent class, or a "
    "function that makes an agent"
)


@dataclass(frozen=True)
class Entry:
    """An agent at one budget, as it takes part in a task.

    The class travels with the entry, so that agents defined in scripts and notebooks
    also run in other processes.

    Attributes:
        label: Display label, unique within a task.
        spec: What the registry knows of the agent, parameters included.
        budget: Privacy budget, None for a non-private run.
        maker: The agent's class or a function that makes an agent; None means that
            `spec` finds the class by name.
    """

    label: str
    spec: AgentSpec
    budget: Budget | None = None
    maker: Callable[..., Any] | None = None

    @property
    def budget_label(self) -> str:
        """The budget in short, ``"none"`` without one."""
        return NO_BUDGET if self.budget is None else self.budget.label

    @property
    def title(self) -> str:
        """Label and budget, for messages."""
        return self.label if self.budget is None else f"{self.label} ({self.budget_label})"

    @property
    def version(self) -> str:
        """The class's own ``version``, empty if it has none; part of every result's key."""
        cls = self.maker if inspect.isclass(self.maker) else None
        if cls is None and not self.spec.entry_point.startswith(FACTORY):
            cls = self.spec.load()
        return str(getattr(cls, "version", ""))

    def make(self) -> Agent:
        """Makes a fresh agent.

        Raises:
            ParameterError: If a parameter is unknown or invalid.
            AgentError: If the maker does not make an agent.
        """
        if self.maker is None:
            return self.spec.make()
        params = dict(self.spec.params)
        if inspect.isclass(self.maker):
            check_parameters(self.spec.name, self.maker, params)
        made = self.maker(**params)
        if isinstance(made, Agent):
            return made
        if isinstance(made, SingleAgent):
            maker = self.maker
            return BatchedSingle(lambda: maker(**params))
        raise AgentError(
            f"agent {self.label!r}: {self.maker!r} made a {type(made).__name__}, "
            "which derives neither from Agent nor from SingleAgent"
        )


def slug(text: str) -> str:
    """Lower-case letters, digits and single hyphens, for file and task names."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def named_entry(
    label: str, name: str, budget: Budget | None = None, params: Mapping[str, Any] | None = None
) -> Entry:
    """Makes the entry of a registered agent.

    Raises:
        UnknownNameError: If the agent is not registered.
    """
    spec = agent_spec(name, **dict(params or {}))
    # A class that this process cannot import by name cannot be imported by others either.
    cls = spec.load()
    return Entry(label, spec, budget, cls)


def resolve_agents(agents: Any, kind: str, budgets: Sequence[Budget] | None = None) -> list[Entry]:
    """Reads the `agents` argument of `dpb_gym.evaluate`.

    Args:
        agents: A mapping from labels to values, a sequence of values, or one value. A
            value is a registered name, ``(name, budget)``, ``(name, budget, params)``, an
            `AgentSpec`, an agent class, or a function without arguments that makes an
            agent; the name in a tuple may also be a class.
        kind: Problem kind, for classes that are not registered.
        budgets: Budgets of those agents that need one and were given none: each of them
            runs once per budget.

    Raises:
        ParameterError: If the argument is none of these.
        UnknownNameError: If an agent is not registered.
        BudgetError: If a budget is not a `Budget`.
    """
    if isinstance(agents, Mapping):
        named = [(label, value) for label, value in agents.items()]
    elif isinstance(agents, Sequence) and not isinstance(agents, str):
        named = [(None, value) for value in agents]
    else:
        named = [(None, agents)]
    if not named:
        raise ParameterError("agents must name at least one agent, got none")
    grid = _budget_grid(budgets)
    entries: list[Entry] = []
    for label, value in named:
        entry = _entry(label, value, kind)
        expand = grid and entry.budget is None and entry.spec.budget == "required"
        entries += [replace(entry, budget=b) for b in grid] if expand else [entry]
    check_distinct(entries)
    return entries


def check_distinct(entries: Sequence[Entry]) -> None:
    """Raises `ParameterError` if two entries share label and budget."""
    titles = [entry.title for entry in entries]
    twice = sorted({title for title in titles if titles.count(title) > 1})
    if twice:
        raise ParameterError(f"agent given twice: {', '.join(twice)}; use distinct labels")


def _budget_grid(budgets: Any) -> list[Budget]:
    if budgets is None:
        return []
    grid = list(budgets) if isinstance(budgets, (list, tuple)) else [budgets]
    return [check_budget(budget) for budget in grid]


def check_budget(budget: Any) -> Budget:
    """Returns the budget or raises `BudgetError`."""
    from dpb_gym.privacy import Budget

    if not isinstance(budget, Budget):
        raise BudgetError(
            f"a budget must be Budget.zcdp(rho), Budget.approx(epsilon, delta) or None, "
            f"got {budget!r}"
        )
    return budget


def _entry(label: Any, value: Any, kind: str) -> Entry:
    if label is not None and not (isinstance(label, str) and label.strip() and label.isprintable()):
        raise ParameterError(f"an agent's label must be printable text, got {label!r}")
    budget: Any = None
    params: Any = {}
    if isinstance(value, tuple):
        if not 1 <= len(value) <= 3:
            raise ParameterError(f"an agent must be {_ALLOWED}, got {value!r}")
        given = [*value, None, None][:3]
        value, budget, params = given
        budget = None if budget is None else check_budget(budget)
        params = {} if params is None else params
        if not isinstance(params, Mapping) or not all(isinstance(key, str) for key in params):
            raise ParameterError(f"agent parameters must map names to values, got {params!r}")
    if isinstance(value, str):
        return named_entry(label or value, value, budget, params)
    if isinstance(value, AgentSpec):
        spec = replace(value, params={**value.params, **params})
        return Entry(label or spec.name, spec, budget, spec.load())
    if inspect.isclass(value) and issubclass(value, (Agent, SingleAgent)):
        spec = _spec_of(value, kind)
        spec = replace(spec, params={**spec.params, **params})
        return Entry(label or spec.name, spec, budget, value)
    if callable(value) and not inspect.isclass(value):
        origin = f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', '?')}"
        spec = AgentSpec(
            slug(label or str(getattr(value, "__name__", "agent"))),
            FACTORY + origin,
            (kind,),
            budget="optional",
            params=params,
        )
        return Entry(label or spec.name, spec, budget, value)
    if isinstance(value, (Agent, SingleAgent)):
        raise ParameterError(
            f"give the class {type(value).__name__} or a function that makes the agent, "
            "not an agent that exists already: every block of replicates needs a fresh one"
        )
    raise ParameterError(f"an agent must be {_ALLOWED}, got {value!r}")


def _spec_of(cls: type, kind: str) -> AgentSpec:
    """The registered spec of a class, or an ad hoc one."""
    entry_point = f"{cls.__module__}:{cls.__qualname__}"
    known = [spec for spec in agent_specs().values() if spec.entry_point == entry_point]
    if len(known) > 1:
        names = ", ".join(spec.name for spec in known)
        raise AgentError(f"{cls.__name__} is registered under several names ({names}): give one")
    if known:
        return known[0]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__)
    summary = (inspect.getdoc(cls) or "").split("\n")[0]
    return AgentSpec(slug(words), entry_point, (kind,), budget="optional", summary=summary)
