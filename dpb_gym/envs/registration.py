"""Registers environments with Gymnasium and in our catalogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import ENV_ID_RE

from dpb_gym import validation
from dpb_gym.envs.catalogue import ENVIRONMENTS, Environment
from dpb_gym.errors import ParameterError, shown
from dpb_gym.problems.base import Problem
from dpb_gym.problems.kinds import kinds

ADAPTED = "dpb_gym.envs.adapter:AdaptedProblem"


def register_environments() -> None:
    """Registers every id of the catalogue; calling it again changes nothing."""
    for env_id in ENVIRONMENTS:
        if env_id not in gymnasium.registry:
            _register(env_id)


def _register(env_id: str) -> None:
    gymnasium.register(
        id=env_id,
        entry_point="dpb_gym.envs.shells:BanditEnv",
        vector_entry_point="dpb_gym.envs.shells:BanditVectorEnv",
        kwargs={"env_id": env_id},
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
    """Registers an environment of your own, for Gymnasium and for the harness.

    Args:
        env_id: Gymnasium id, e.g. ``"MyShop/Assortment-v0"``.
        problem: A `Problem` class or factory, or ``"module:callable"``. Give the string form
            if worker processes are to find it. None for an id that is registered with
            Gymnasium already: the harness then steps that environment, see
            `dpb_gym.envs.adapter.AdaptedProblem` for what it must do.
        kind: Name of a problem kind (``"assortment"``, ``"pricing"``, ``"recommendation"``, or
            one of `register_kind`): what actions and feedback look like, and hence which agents
            can play.
        summary: One line for listings.
        reveals: What contexts, candidates, `ProblemInfo` and ``info`` tell of people's data,
            whatever an agent guarantees; ``dpb show`` prints it.
        **defaults: Keyword arguments of the problem under this id.

    Raises:
        ParameterError: If the id is taken by another problem, the kind is unknown, or an
            environment of Gymnasium's does not follow the info contract.
    """
    validation.choice("kind", kind, kinds())
    if not (isinstance(env_id, str) and ENV_ID_RE.fullmatch(env_id)):
        raise ParameterError(f"env_id must look like 'MyShop/Name-v0', got {shown(env_id)}")
    adapted = problem is None
    if problem is None:
        problem, defaults = ADAPTED, {"env": env_id, "kind": kind, **defaults}
    if not callable(problem) and not (isinstance(problem, str) and ":" in problem):
        raise ParameterError(
            "problem must be a Problem class, a function, 'module:callable' or None, "
            f"got {shown(problem)}"
        )
    entry = Environment(env_id, kind, problem, defaults, summary, reveals)
    taken = ENVIRONMENTS.get(env_id)
    theirs = taken is None and env_id in gymnasium.registry and not adapted
    if taken not in (None, entry) or theirs:
        raise ParameterError(f"environment id {env_id!r} is already registered")
    if adapted:
        _rehearse(entry)
    if taken is None:
        ENVIRONMENTS[env_id] = entry
        if not adapted:
            _register(env_id)


def _rehearse(entry: Environment) -> None:
    """Plays two rounds, so that a broken contract is told at once."""
    instance = entry.make_problem().instance([0])
    instance.advance()
