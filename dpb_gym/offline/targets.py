"""Frozen agents: what a trained agent would have done in the rounds of a log."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.problems.base import Array, Context


class Rounds(Protocol):
    """A log, as far as an agent sees it."""

    def __len__(self) -> int: ...
    def context(self, i: int, t: int) -> Context:
        """Round i as an agent of one replicate sees it at its round t."""


def answers(
    agent: Agent, logs: Sequence[Rounds], samples: int, t: int | None = None
) -> Iterator[Array]:
    """Asks a frozen agent about every round of its replicates' logs.

    Args:
        agent: A trained agent of one replicate per log; it is copied and never told a reward.
        logs: Logs of one length.
        samples: Answers per round of a random policy; one that always answers alike gives one.
        t: The round number that the agent is told; the length of the log by default.

    Yields:
        Per round its actions ``(samples, B, ...)``.
    """
    ask = frozen_choices(agent, len(logs), samples)
    told = len(logs[0]) if t is None else validation.integer("t", t, 1)
    for i in range(len(logs[0])):
        contexts = [log.context(i, told) for log in logs]
        parts: list[Any] = [
            None if any(p is None for p in part) else np.concatenate(part)
            for part in zip(*(context[1:] for context in contexts))
        ]
        yield ask(Context(told, *parts))


def frozen_choices(agent: Agent, replicates: int, samples: int) -> Callable[[Context], Array]:
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
