"""Frozen agents: what a trained agent would have done in the rounds of a log."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.offline.array_checks import distribution
from dpb_gym.problems.base import Array, Context

Ask = Callable[[Context], Array]


def frozen_shares(agent: Agent, replicates: int, samples: int) -> Ask:
    """A function from contexts to how likely the frozen agent is to choose each candidate,
    ``(B, m)``: what it says, or else the shares of its answers.

    Raises:
        AgentError: If the agent chooses outside the candidates.
    """
    ask, frozen = frozen_choices(agent, replicates, samples), copy.deepcopy(agent)
    met = False

    def shares(context: Context) -> Array:
        nonlocal met
        m = context.features.shape[1]
        given = None if met else ask(context)  # refuses an agent of other replicates
        met, told = True, told_shares(frozen, context)
        if told is not None:
            return told
        given = ask(context) if given is None else given
        if given.min() < 0 or given.max() >= m:
            raise AgentError(f"{type(agent).__name__} chose outside 0..{m - 1}")
        return np.stack([(given == k).mean(axis=0) for k in range(m)], axis=1)

    return shares


def told_shares(agent: Agent, context: Context) -> Array | None:
    """What an agent says of the probabilities of its choice; None if it does not.

    Raises:
        AgentError: If there is not one row per replicate.
        ParameterError: If they are no probabilities.
    """
    told = agent.probabilities(context)
    if told is None:
        return None
    name, wanted = f"{type(agent).__name__}.probabilities", context.features.shape[:2]
    if np.shape(told) != wanted:
        raise AgentError(
            f"{name} has shape {np.shape(told)}, not {wanted}: a row for each of {wanted[0]} "
            "replicates"
        )
    return distribution(name, told, wanted)


def frozen_choices(agent: Agent, replicates: int, samples: int) -> Ask:
    """A function from contexts to the frozen agent's actions ``(samples or 1, B, ...)``."""
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
            actions = np.asarray([frozen.act(context) for _ in range(times[0])])
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
    """Whether answering changes the agent, as drawing random numbers does.

    Asked twice about one context, an agent without random numbers ends in the state in which
    it was after the first time. What cannot be compared counts as random.
    """
    states = []
    for _ in range(2):
        try:
            agent.act(context)
            states.append(pickle.dumps(vars(agent)))
        except Exception:  # whatever cannot be pickled; a broken agent fails when it is asked
            return True
    return states[0] != states[1]
