"""Offline training of agents on a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent, BatchedSingle
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.offline.recommendation_log import LoggedData
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Feedback, ProblemInfo
from dpb_gym.registry import agent_spec, check_supported
from dpb_gym.streams import AgentStreams

_ACCEPTANCE_KEY = 0xACCE97
_REWARDS_ONLY = (("central", "reward"), ("central", "user-rewards"), ("local", "reward"))


def train_offline(
    agent: str | Agent,
    log: LoggedData,
    budget: Budget | str | None = None,
    *,
    seeds: Sequence[int] = (0,),
    method: str = "all",
    rounds: str = "shared",
    noise: str = "seeded",
    **params: Any,
) -> Agent:
    """Train an agent on a log, in the order of its rounds, and return it.

    Rewards enter the agent's releasers only. The public data of its guarantee (contexts,
    recommendations) are those of the log. Replicates that learn from the same rounds compose and
    share the budget; the guarantee is that of all of them together.

    Args:
        agent: A registered name, or an agent before `begin`.
        log: The log.
        budget: Privacy budget of all replicates together.
        seeds: Seeds of the agent's own random numbers and noise, one per replicate.
        method: ``"all"``: the agent observes every logged choice and reward, for agents that
            learn from any recommended candidate (the linear ones). ``"replay"``: the agent
            chooses, and observes the reward only if its choice agrees with the log (rejection;
            Li, Chu, Langford & Wang 2011). Acceptance is inverse to the propensity, so it learns
            as online, from about one round in m. The acceptance probability is scaled by the log's
            declared `minimum_propensity`.
        rounds: ``"shared"``: every replicate learns from the whole log, and the budget is divided
            among them. ``"parts"``: every replicate learns from a separate part with the whole
            budget, because the parts are disjoint.
        noise: ``"seeded"``, a simulation whose noise `seeds` reveal; ``"system"``, from the
            operating system, for logs of real people.
        **params: Parameters of a registered agent.

    Returns:
        The trained agent.

    Raises:
        UnknownNameError: If the agent is not registered.
        AgentError: If the agent does not play recommendation, needs a budget, or learns only
            from its own choices (``"all"``).
        ParameterError: If `method` or `rounds` is unknown, the log is too short for its parts, or
            has no declared `minimum_propensity` (``"replay"``).
    """
    method = validation.choice("method", method, ("all", "replay"))
    rounds = validation.choice("rounds", rounds, ("shared", "parts"))
    B = len(seeds)
    n = len(log)
    if rounds == "parts" and n < 2 * B:
        raise ParameterError(f"{n} rounds cannot be divided into {B} parts of two")
    rows = np.repeat(np.arange(n)[:, None], B, axis=1)
    if rounds == "parts":
        rows = np.arange(n - n % B).reshape(-1, B)
    replay = method == "replay"
    if replay and log.minimum_propensity is None:
        raise ParameterError(
            "replay accepts rounds by the smallest propensity that a logged round can have, which "
            "must be public: declare the log's minimum_propensity"
        )
    budget = Budget.parse(budget)
    info = log.problem_info(partial_feedback=replay, rounds=len(rows))
    learner, who = _learner(agent, params, info, budget, seeds)
    if not replay and isinstance(learner, BatchedSingle):
        raise AgentError(
            "a SingleAgent learns from its own choices only: train it with method='replay'"
        )
    if replay and log.estimated and budget is not None and learner.protects not in _REWARDS_ONLY:
        raise ParameterError(
            "estimated propensities depend on the rounds of all customers, so that one round "
            f"decides which others are accepted: an agent that protects {learner.protects} needs "
            "known ones"
        )
    # independent noise: not that of a run, or of a training with another number of replicates,
    # which divides the budget differently
    companions = "" if budget is None else f", {B}"
    streams = AgentStreams(seeds, f"{who}, offline: {method}, {rounds}{companions}")
    learner.set_up(info, streams, budget, noise=noise, shared=rounds == "shared")
    accepting = np.random.default_rng([*map(int, seeds), _ACCEPTANCE_KEY]).random(n)
    accepted = accepting * log.propensities < (log.minimum_propensity or 1.0)
    learner.curator.rounds.attend()
    for i, row in enumerate(rows):
        context = log.context(row, i + 1)
        action = learner.act(context)
        reward = log.rewards[row]
        if replay:
            seen = (action == log.actions[row]) & accepted[row]
            feedback = Feedback(np.where(seen, reward, 0.0), observed=seen)
        else:
            action = log.actions[row]
            feedback = Feedback(reward)
        with learner.curator.round(context.t):
            learner.observe(context, action, feedback)
    return learner


def _learner(
    agent: str | Agent,
    params: Mapping[str, Any],
    info: ProblemInfo,
    budget: Budget | None,
    seeds: Sequence[int],
) -> tuple[Agent, str]:
    """Return the agent to train, and the name that keys its random numbers."""
    if isinstance(agent, str):
        spec = agent_spec(agent, **params)
        if spec.uses_oracle:
            raise AgentError(f"agent {agent!r} sees the hidden state, which a log does not have")
        check_supported(spec, info, budget is not None)
        return spec.make(), spec.streams(seeds, budget).configuration
    if params:
        raise ParameterError("parameters need the name of a registered agent")
    return agent, f"{type(agent).__qualname__}, {budget}"
