"""Frozen agents: choices of a trained agent in the rounds of a log."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from dpb_gym import state, validation
from dpb_gym.agent import Agent
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.offline.array_checks import distribution
from dpb_gym.problems.base import Array, Context

Ask = Callable[[Context], Array]


def frozen_shares(agent: Agent, replicates: int, samples: int) -> Ask:
    """Return a function from contexts to a frozen agent's probabilities of candidates ``(B, m)``.

    They are those of `Agent.probabilities`, or else the shares of its sampled choices.

    Raises:
        AgentError: If the agent chooses outside the candidates.
    """
    ask = frozen_choices(agent, replicates, samples)
    frozen = copy.deepcopy(agent)
    checked = False

    def shares(context: Context) -> Array:
        nonlocal checked
        m = context.features.shape[1]
        given = None if checked else ask(context)  # checks the number of replicates
        checked = True
        stated = stated_shares(frozen, context)
        if stated is not None:
            return stated
        given = ask(context) if given is None else given
        if given.min() < 0 or given.max() >= m:
            raise AgentError(f"{agent.class_name} chose outside 0..{m - 1}")
        return np.stack([(given == k).mean(axis=0) for k in range(m)], axis=1)

    return shares


def stated_shares(agent: Agent, context: Context) -> Array | None:
    """Return the checked `Agent.probabilities`, or None.

    Raises:
        AgentError: If there is not one row per replicate.
        ParameterError: If the rows are not probabilities.
    """
    stated = agent.probabilities(context)
    if stated is None:
        return None
    name = f"{agent.class_name}.probabilities"
    wanted = context.features.shape[:2]
    if np.shape(stated) != wanted:
        raise AgentError(
            f"{name} has shape {np.shape(stated)}, not {wanted}: a row for each of {wanted[0]} "
            "replicates"
        )
    return distribution(name, stated, wanted)


def frozen_choices(agent: Agent, replicates: int, samples: int) -> Ask:
    """Return a function from contexts to the frozen agent's actions ``(samples or 1, B, ...)``."""
    if not isinstance(agent, Agent):
        raise ParameterError(
            f"a trained agent is needed (train_offline makes one), got {type(agent).__name__}"
        )
    samples = validation.integer("samples", samples, 1)
    frozen = copy.deepcopy(agent)
    times: list[int] = []

    def ask(context: Context) -> Array:
        if not times:
            times.append(samples if samples > 1 and _is_random(frozen, context) else 1)
        try:
            # an agent may return one array that it writes in again
            actions = np.array([np.array(frozen.act(context)) for _ in range(times[0])])
        except (AttributeError, IndexError) as error:
            raise AgentError(f"{type(agent).__name__} was not begun or trained: {error}") from error
        if actions.ndim < 2 or actions.shape[1] != replicates:
            raise AgentError(
                f"{type(agent).__name__} answers with shape {actions.shape[1:]}; one choice for "
                f"each of {replicates} replicates is needed, a log or replicate for each"
            )
        return actions

    return ask


def _is_random(agent: Agent, context: Context) -> bool:
    """Return whether `act` changes the agent's state, as drawing random numbers does.

    The states after two calls with one context are compared. An agent whose states cannot be
    compared counts as random.
    """
    states = []
    for _ in range(2):
        try:
            agent.act(context)
            states.append(state.dumps(agent))
        except Exception:  # no plain state; a broken agent raises in the caller
            return True
    return states[0] != states[1]
