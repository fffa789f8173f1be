"""Target policies: what a trained agent would choose, and agents that learn from a log."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.agent import Agent, BatchedSingle, agent_spec, check_supported
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.offline.log import LoggedData
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Array, Context, Feedback
from dpb_gym.streams import AgentStreams

DISTRIBUTION_TOLERANCE = 1e-9
_ACCEPTANCE_KEY = 0xACCE97


def probabilities(
    agent: Agent,
    log: LoggedData | Sequence[LoggedData],
    samples: int = 200,
    t: int | None = None,
) -> Array:
    """How likely a frozen agent is to choose each logged candidate.

    The agent is copied and never told a reward, so it does not learn and spends no privacy;
    the agent passed in is unchanged. A policy that always answers alike is asked once per
    round and gets probabilities 0 and 1. One that draws random numbers (Thompson sampling) is
    asked `samples` times and gets the shares of its answers. IPS, DM and DR are linear in
    these probabilities, so they stay unbiased for any number of samples; fewer samples only
    add variance, and a small bias to SNIPS and switch-DR.

    Args:
        agent: A trained recommendation agent of B replicates.
        log: A log that all replicates are evaluated on (B = 1), or one log per replicate, all
            of one shape.
        samples: Choices per round of a random policy, at least 1.
        t: The round number that the agent is told; the length of the log by default.

    Returns:
        ``(n, m)`` for one log, ``(B, n, m)`` for a sequence of logs; rows sum to one.

    Raises:
        ParameterError: If the logs differ in shape.
        AgentError: If the agent does not have one replicate per log, or chooses outside the
            candidates.
    """
    logs = [log] if isinstance(log, LoggedData) else list(log)
    if not logs or any(other.features.shape != logs[0].features.shape for other in logs):
        raise ParameterError("the logs must be at least one, and all of the same shape")
    n, m, _ = logs[0].features.shape
    round_ = n if t is None else validation.integer("t", t, 1)
    ask = frozen_probabilities(agent, len(logs), m, samples)
    result = np.empty((len(logs), n, m))
    features = np.stack([other.features for other in logs], axis=1)
    for i in range(n):
        context = Context(
            round_,
            features[i],
            arms=_stack(logs, "arms", i),
            users=_stack(logs, "users", i),
        )
        result[:, i] = ask(context)
    return result[0] if isinstance(log, LoggedData) else result


def _stack(logs: Sequence[LoggedData], name: str, i: int) -> Array | None:
    rows = [getattr(log, name) for log in logs]
    return None if any(row is None for row in rows) else np.stack([row[i] for row in rows])


def frozen_probabilities(
    agent: Agent, replicates: int, m: int, samples: int
) -> Callable[[Context], Array]:
    """A function from contexts to the frozen agent's probabilities ``(B, m)``."""
    if not isinstance(agent, Agent):
        raise ParameterError(
            f"a trained agent is needed (train_offline makes one), got {type(agent).__name__}"
        )
    samples = validation.integer("samples", samples, 1)
    frozen = copy.deepcopy(agent)
    lanes = np.arange(replicates)
    times: list[int] = []

    def choose(context: Context, count: int) -> Array:
        try:
            actions = np.asarray([frozen.act(context) for _ in range(count)])
        except (AttributeError, IndexError) as error:
            raise AgentError(f"{type(agent).__name__} was not begun or trained: {error}") from error
        if actions.shape != (count, replicates):
            raise AgentError(
                f"{type(agent).__name__} answers with shape {actions.shape[1:]}; one choice for "
                f"each of {replicates} replicates is needed, a log or replicate for each"
            )
        if actions.min() < 0 or actions.max() >= m:
            raise AgentError(f"{type(agent).__name__} chose outside 0..{m - 1}")
        return actions

    def ask(context: Context) -> Array:
        if not times:
            times.append(samples if samples > 1 and _is_random(frozen, context) else 1)
        chosen = choose(context, times[0]) + m * lanes
        counts = np.bincount(chosen.ravel(), minlength=replicates * m)
        return counts.reshape(replicates, m) / times[0]

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


def check_distribution(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Validates probabilities along the last axis.

    Raises:
        ParameterError: If the shape is wrong, a number is outside [0, 1] or a row does not
            sum to one (to 1e-9).
    """
    found = validation.array(name, value, shape, 0.0, 1.0)
    total = found.sum(axis=-1)
    wrong = np.abs(total - 1.0) > DISTRIBUTION_TOLERANCE
    if wrong.any():
        row = int(wrong.argmax())
        raise ParameterError(
            f"{name} must sum to 1 in every round, got {total.flat[row]:.12g} in round {row}"
        )
    return found


def train_offline(
    agent: str | Agent,
    log: LoggedData,
    budget: Budget | None = None,
    *,
    seeds: Sequence[int] = (0,),
    method: str = "all",
    **params: Any,
) -> Agent:
    """Lets an agent learn from a log, in the order of its rounds.

    The agent's guarantee is the one it states: rewards enter its releasers only, whoever chose
    the candidates. What counts as public in it (contexts, recommendations) is what is logged.

    Args:
        agent: A registered name, or an agent that has not begun.
        log: The log.
        budget: Privacy budget of the agent.
        seeds: Seeds of the agent's own random numbers and noise, one per replicate; all
            replicates learn from the same log.
        method: ``"all"``: every logged choice and reward is handed over, which suits agents
            that learn from any recommended candidate (the linear ones). ``"replay"``: the
            agent chooses, and is told the reward only where its choice agrees with the log
            (rejection; Li, Chu, Langford & Wang 2011), with acceptance inverse to the
            propensity, so that it learns as it would online. About one round in m remains.
        **params: Parameters of a registered agent.

    Returns:
        The trained agent.

    Raises:
        UnknownNameError: If the agent is not registered.
        AgentError: If the agent does not play recommendation, needs a budget, or learns only
            from its own choices (``"all"``).
        ParameterError: If `method` is unknown.
    """
    method = validation.choice("method", method, ("all", "replay"))
    info = log.problem_info(partial_feedback=method == "replay")
    if isinstance(agent, str):
        spec = agent_spec(agent, **params)
        if spec.uses_oracle:
            raise AgentError(f"agent {agent!r} sees the hidden state, which a log does not have")
        check_supported(spec, info, budget)
        learner, streams = spec.make(), spec.streams(seeds, budget)
    elif params:
        raise ParameterError("parameters need the name of a registered agent")
    else:
        learner, streams = agent, AgentStreams(seeds, f"{type(agent).__qualname__}, {budget}")
    if method == "all" and isinstance(learner, BatchedSingle):
        raise AgentError(
            "a SingleAgent learns from its own choices only: train it with method='replay'"
        )
    learner.set_up(info, streams, budget)
    B = len(seeds)
    smallest = float(log.propensities.min())
    accepting = np.random.default_rng([*map(int, seeds), _ACCEPTANCE_KEY])
    accepted = accepting.random(len(log)) * log.propensities < smallest
    for i in range(len(log)):
        context = Context(
            i + 1,
            np.repeat(log.features[i][None], B, axis=0),
            arms=None if log.arms is None else np.repeat(log.arms[i][None], B, axis=0),
            users=None if log.users is None else np.repeat(log.users[i], B),
        )
        action = learner.act(context)
        reward = np.full(B, log.rewards[i])
        if method == "all":
            learner.observe(context, np.full(B, log.actions[i]), Feedback(reward))
        else:
            seen = (action == log.actions[i]) & accepted[i]
            feedback = Feedback(np.where(seen, reward, 0.0), observed=seen)
            learner.observe(context, action, feedback)
    return learner
