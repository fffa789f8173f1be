"""Registration of environments: ids, problems and default parameters.

Problems are imported lazily.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import gymnasium
from gymnasium.envs.registration import ENV_ID_RE

from dpb_gym import docstrings, validation
from dpb_gym.errors import DataError, ParameterError, shown, unknown_name, unknown_parameter
from dpb_gym.problems.base import Problem
from dpb_gym.problems.conditions import CONDITIONS, applicable, with_conditions
from dpb_gym.problems.kinds import KINDS, kind_of


@dataclass(frozen=True)
class Environment:
    """A registered environment.

    Attributes:
        id: Gymnasium id.
        kind: Problem kind.
        problem: Factory of the problem: ``"module:callable"``, or the callable itself.
        defaults: Keyword arguments of the problem under this id.
        summary: One line.
        reveals: What contexts, candidates, `ProblemInfo` and ``info`` reveal of people's data,
            independently of an agent's guarantee; empty if not stated.
    """

    id: str
    kind: str
    problem: str | Callable[..., Problem]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    reveals: str = ""

    @property
    def interface(self) -> tuple[str, ...]:
        """Keyword arguments of the Gymnasium environment that the problem does not take."""
        return ("obs_mode", *kind_of(self.kind).interface)

    @cached_property
    def short(self) -> str:
        """The id without ``DPB/`` and version, for names of tasks and files."""
        return validation.slug(self.id.removeprefix("DPB/").removesuffix("-v0"))

    @cached_property
    def factory(self) -> Any:
        """The callable that returns the problem.

        Raises:
            ParameterError: If there is no such module or name.
        """
        if callable(self.problem):
            return self.problem
        try:
            return resolve_name(self.problem)
        except (ImportError, AttributeError, ValueError) as error:
            raise ParameterError(f"{self.id}: cannot load {self.problem}: {error}") from error

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of the problem and its conditions, with their defaults."""
        return {**applicable(self.kind), **docstrings.defaults(self.factory), **self.defaults}

    @property
    def meanings(self) -> dict[str, str]:
        """Description of each parameter, from the docstrings of problem and conditions."""
        summaries = {
            name: docstrings.parse(condition).summary for name, condition in CONDITIONS.items()
        }
        return summaries | docstrings.parameters(self.factory)

    def make_problem(self, **kwargs: Any) -> Problem:
        """Return the problem with its conditions.

        Raises:
            ParameterError: If a keyword argument is unknown, invalid or without an effect.
        """
        known = self.parameters
        own = inspect.signature(self.factory).parameters
        passes_on = any(p.kind is p.VAR_KEYWORD for p in own.values())
        for key in kwargs:
            if key not in known and key not in CONDITIONS and not passes_on:
                takes = f"the problem takes {', '.join(known)}"
                takes += f"; the environment {', '.join(self.interface)}"
                raise unknown_parameter(self.id, key, [*known, *self.interface], takes)
        given = {**self.defaults, **kwargs}
        conditions = {k: given.pop(k) for k in CONDITIONS if k in given and k not in own}
        problem: Problem = self.factory(**given)
        for key, needed in problem.unused.items():
            if key in kwargs and kwargs[key] != known[key]:
                raise ParameterError(f"{self.id}: {key} applies to {needed} only")
        return with_conditions(problem, conditions) if conditions else problem


class EnvironmentId(str):
    """Id of an environment that is registered again in a process that unpickles it.

    Workers that start fresh do not have the registrations of the main process. Gymnasium sends
    them the spec of an environment, which has this id.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        entry = ENVIRONMENTS.get(self)
        if entry is None or entry.id in _BUILT_IN["environments"]:
            return str, (str(self),)
        facts = (entry.id, entry.kind, entry.problem, dict(entry.defaults))
        return _registered_again, (type(self), *facts, entry.summary, entry.reveals)

    def __deepcopy__(self, memo: Any) -> EnvironmentId:
        return self  # Gymnasium copies specs


def _registered_again(kind: type[EnvironmentId], *facts: Any) -> EnvironmentId:
    """Register an environment of another process here, unless its id is known."""
    entry = Environment(*facts)
    if entry.id not in ENVIRONMENTS:
        ENVIRONMENTS[entry.id] = entry
    if entry.problem != ADAPTED and entry.id not in gymnasium.registry:
        _register(entry.id)
    return kind(entry.id)


_BUILT_IN = json.loads(Path(__file__).with_name("environments.json").read_text("utf-8"))
REVEALS: dict[str, str] = _BUILT_IN["reveals"]
"""Texts for `Environment.reveals`, by name."""
ENVIRONMENTS: dict[str, Environment] = {
    env_id: Environment(env_id, **{**entry, "reveals": REVEALS[entry["reveals"]]})
    for env_id, entry in _BUILT_IN["environments"].items()
}
"""Registered environments by id; the built-in ones are in ``environments.json``."""
ADAPTED = "dpb_gym.envs.adapter:AdaptedProblem"
LOG_ID = re.compile(r"Log/([a-zA-Z0-9]+)-[a-zA-Z0-9]+-[0-9a-f]{8}-v0")


def environment(env_id: str) -> Environment:
    """Return a registered environment.

    For the id of a log that was read in another process, the entry's problem raises `DataError`.

    Raises:
        UnknownNameError: If the id is not registered; the message offers close matches.
    """
    key = env_id.removeprefix("dpb_gym:") if isinstance(env_id, str) else None
    if key in ENVIRONMENTS:
        return ENVIRONMENTS[key]
    match = LOG_ID.fullmatch(key or "")
    kinds = [name for name in KINDS if match is not None and log_label(name) == match[1]]
    if match is None or not kinds:
        raise unknown_name("environment", env_id, ENVIRONMENTS)
    summary = "made of a log elsewhere"
    return Environment(match[0], kinds[0], missing_log, {"log": key}, summary)


def log_label(kind: str) -> str:
    """Return the name of a kind in ids of logs, such as ``"AssortmentPricing"``."""
    return "".join(part.capitalize() for part in re.findall("[a-zA-Z0-9]+", kind))


def missing_log(log: str, horizon: int = 10_000) -> Problem:
    """Raise the error for the problem of a log that was read in another process.

    Raises:
        DataError: Always.
    """
    raise DataError(
        f"{log} was made of a log in another process: call dpb_gym.from_log with that log and the "
        "same settings first, which gives the same id"
    )


def make_problem(env_id: str, **kwargs: Any) -> Problem:
    """Return the problem of an environment id; see `Environment.make_problem`."""
    return environment(env_id).make_problem(**kwargs)


def register_environments() -> None:
    """Register all built-in environments with Gymnasium; calling it again has no effect."""
    for env_id in ENVIRONMENTS:
        if env_id not in gymnasium.registry:
            _register(env_id)


def _register(env_id: str) -> None:
    gymnasium.register(
        id=env_id,
        entry_point="dpb_gym.envs.gym_env:BanditEnv",
        vector_entry_point="dpb_gym.envs.gym_env:BanditVectorEnv",
        kwargs={"env_id": EnvironmentId(env_id)},
    )


def register_environment(
    env_id: str,
    problem: str | Callable[..., Problem] | None = None,
    *,
    kind: str,
    summary: str = "",
    reveals: str = "",
    **defaults: Any,
) -> None:
    """Register a custom environment with Gymnasium and the harness.

    Args:
        env_id: Gymnasium id, e.g. ``"MyShop/Assortment-v0"``.
        problem: A `Problem` class or factory, or ``"module:callable"``. Specs of the environment
            carry it to workers of `gymnasium.make_vec`. None for an id that is already registered
            with Gymnasium: the harness then steps that environment, see
            `dpb_gym.envs.adapter.AdaptedProblem` for the requirements.
        kind: Name of a problem kind (``"assortment"``, ``"pricing"``, ``"recommendation"``, or
            one of `register_kind`). It determines the form of actions and feedback, and thereby
            the agents that can play.
        summary: One line for listings.
        reveals: What contexts, candidates, `ProblemInfo` and ``info`` reveal of people's data,
            independently of an agent's guarantee; ``dpb show`` prints it.
        **defaults: Keyword arguments of the problem under this id.

    Raises:
        ParameterError: If the id is taken by another problem, the kind is unknown, or an
            environment of Gymnasium's does not follow the info contract.
    """
    validation.choice("kind", kind, KINDS)
    if not (isinstance(env_id, str) and ENV_ID_RE.fullmatch(env_id)):
        raise ParameterError(f"env_id must look like 'MyShop/Name-v0', got {shown(env_id)}")
    adapted = problem is None
    if problem is None:
        problem = ADAPTED
        defaults = {"env": env_id, "kind": kind, **defaults}
    if not callable(problem) and not (isinstance(problem, str) and ":" in problem):
        raise ParameterError(
            "problem must be a Problem class, a function, 'module:callable' or None, "
            f"got {shown(problem)}"
        )
    entry = Environment(env_id, kind, problem, defaults, summary, reveals)
    taken = ENVIRONMENTS.get(env_id)
    external = taken is None and env_id in gymnasium.registry and not adapted
    if taken not in (None, entry) or external:
        raise ParameterError(f"environment id {env_id!r} is already registered")
    if adapted:  # two rounds, to check the contract
        entry.make_problem().instance([0]).advance()
    if taken is None:
        ENVIRONMENTS[env_id] = entry
        if not adapted:
            _register(env_id)
