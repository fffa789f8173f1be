"""Logs of simulated users, and the true value of a policy by simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.envs.catalogue import make_problem
from dpb_gym.errors import ParameterError
from dpb_gym.offline.log import LoggedData
from dpb_gym.offline.targets import check_distribution, frozen_probabilities
from dpb_gym.problems.base import Array, Context, Problem
from dpb_gym.streams import check_seed

Behaviour = Agent | Callable[[Context], Array] | None
# Sampling the logged candidate must share no numbers with the replicate's own streams.
_LOGGING_KEY = 0x10661D6


def collect(
    problem: Problem | str,
    rounds: int,
    seeds: Sequence[int],
    behaviour: Behaviour = None,
    skip: int = 0,
    exploration: float = 0.2,
    samples: int = 20,
    **kwargs: Any,
) -> list[LoggedData]:
    """Logs `rounds` rounds of a recommendation problem, one log per seed.

    Every log knows the expected reward of every candidate, so that estimates can be compared
    with the truth (`LoggedData.expected`).

    Args:
        problem: A recommendation problem with ``horizon >= skip + rounds``, or an
            environment id, whose horizon is then set to that.
        rounds: Rounds to log, at least 2.
        seeds: One per log; the seed fixes the hidden parameters of its replicate.
        behaviour: The logging policy: None for uniform; a function from the `Context` to
            probabilities ``(B, m)``; or an agent with one replicate per seed, which does not
            learn while it logs.
        skip: Rounds to pass over first.
        exploration: An agent's choices are mixed with this share of uniform ones, in (0, 1],
            so that every candidate can be logged.
        samples: How often a random agent is asked for its choice; the candidate is then
            drawn from the shares of its answers, so propensities are exact.
        **kwargs: Parameters of the environment, if `problem` is an id.

    Returns:
        The logs, in the order of the seeds.

    Raises:
        ParameterError: If an argument is out of range, or the problem offers no candidates.
    """
    rounds = validation.integer("rounds", rounds, 2)
    skip = validation.integer("skip", skip, 0)
    exploration = validation.real("exploration", exploration, 0.0, 1.0, open_low=True)
    name = str(problem) if isinstance(problem, str) else type(problem).__name__
    made = _problem(problem, skip + rounds, kwargs)
    seeds = [check_seed(seed) for seed in seeds]
    instance = made.instance(seeds)
    for _ in range(skip):
        instance.advance()
    B, m, d = len(seeds), made.info.n_candidates, made.dim
    assert m is not None
    generators = [np.random.default_rng([seed, skip, _LOGGING_KEY]) for seed in seeds]
    features = np.empty((B, rounds, m, d), np.float32)
    actions = np.empty((B, rounds), np.int64)
    propensities, rewards = np.empty((B, rounds)), np.empty((B, rounds))
    expected = np.empty((B, rounds, m))
    arms, users = np.full((B, rounds, m), -1, np.int64), np.full((B, rounds), -1, np.int64)
    ask = _policy(behaviour, B, m, exploration, samples)
    lanes = np.arange(B)
    for i in range(rounds):
        context = instance.context()
        shares = ask(context)
        action = np.array(
            [_draw(shares[b], generators[b].random()) for b in range(B)], dtype=np.int64
        )
        features[:, i], actions[:, i] = context.features, action
        propensities[:, i] = shares[lanes, action]
        for k in range(m):
            expected[:, i, k] = instance.respond(np.full(B, k)).expected
        # The logged reward is read off a problem that answers every round.
        rewards[:, i] = instance.respond(action).feedback.reward
        if context.arms is not None:
            arms[:, i] = context.arms
        if context.users is not None:
            users[:, i] = context.users
        if i < rounds - 1:
            instance.advance()
    return [
        LoggedData.from_arrays(
            features[b],
            actions[b],
            propensities[b],
            rewards[b],
            made.info.reward_range,
            arms=arms[b] if (arms[b] >= 0).all() else None,
            users=users[b] if (users[b] >= 0).all() else None,
            expected=expected[b],
            name=name,
        )
        for b in range(B)
    ]


def monte_carlo_value(
    agent: Agent,
    problem: Problem | str,
    rounds: int,
    seeds: Sequence[int],
    skip: int = 0,
    samples: int = 1,
    **kwargs: Any,
) -> tuple[Array, Array]:
    """The true value of a frozen agent, by fresh rounds of a simulated problem.

    Args:
        agent: A recommendation agent with one replicate per seed; it is copied, and does not
            learn.
        problem: See `collect`.
        rounds: Rounds to average over.
        seeds: The replicates' seeds, which fix the hidden parameters.
        skip: Rounds to pass over first, so that training rounds are not met again.
        samples: Choices per round of a random agent.
        **kwargs: Parameters of the environment, if `problem` is an id.

    Returns:
        Mean expected reward and its standard error per replicate, ``(B,)`` each.
    """
    rounds = validation.integer("rounds", rounds, 2)
    skip = validation.integer("skip", skip, 0)
    made = _problem(problem, skip + rounds, kwargs)
    instance = made.instance(seeds)
    for _ in range(skip):
        instance.advance()
    B, m = len(list(seeds)), made.info.n_candidates
    assert m is not None
    ask = frozen_probabilities(agent, B, m, samples)
    values = np.empty((B, rounds))
    expected = np.empty((B, m))
    for i in range(rounds):
        shares = ask(instance.context())
        for k in range(m):
            expected[:, k] = instance.respond(np.full(B, k)).expected
        values[:, i] = (shares * expected).sum(axis=1)
        if i < rounds - 1:
            instance.advance()
    return values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(rounds)


def _problem(problem: Problem | str, rounds: int, kwargs: dict[str, Any]) -> Problem:
    if isinstance(problem, str):
        made = make_problem(problem, **{"horizon": rounds, **kwargs})
    elif kwargs:
        raise ParameterError(f"parameters {', '.join(kwargs)} need an environment id")
    else:
        made = problem
    if made.kind != "recommendation":
        raise ParameterError(f"logs are made of recommendation problems, not {made.kind}")
    if made.info.partial_feedback:
        raise ParameterError(
            "logs are made of problems that answer every round (protocol='matrix')"
        )
    if made.horizon < rounds:
        raise ParameterError(f"the problem has {made.horizon} rounds, {rounds} are needed")
    return made


def _policy(
    behaviour: Behaviour, B: int, m: int, exploration: float, samples: int
) -> Callable[[Context], Array]:
    if behaviour is None:
        uniform = np.full((B, m), 1.0 / m)
        return lambda context: uniform
    if isinstance(behaviour, Agent):
        ask = frozen_probabilities(behaviour, B, m, samples)
        return lambda context: (1.0 - exploration) * ask(context) + exploration / m
    if callable(behaviour):
        policy = behaviour
        return lambda context: check_distribution("behaviour", policy(context), (B, m))
    raise ParameterError(f"behaviour must be None, a function or an agent, got {behaviour!r}")


def _draw(shares: Array, uniform: float) -> int:
    total = np.cumsum(shares)
    found = int(np.searchsorted(total, uniform * total[-1], side="right"))
    # Rounding may leave the last step just below its total.
    return min(found, int(np.flatnonzero(shares)[-1]))


__all__ = ["Behaviour", "collect", "monte_carlo_value"]
