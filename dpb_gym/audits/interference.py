"""Test of non-interference: with fixed releases, raw records do not affect actions.

This is the premise of the billboard lemma. A run is repeated with the same contexts, random
numbers and releases, but with other responses in half of the rounds, and with other observed
contexts if contexts are protected. All actions must stay equal, bit for bit, and so must the
records of the other rounds: each record enters in its own round, and none enters twice.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from dpb_gym.audits.paired_run import releasers
from dpb_gym.audits.worlds import bought
from dpb_gym.problems.base import Array, Context, Feedback, Problem
from dpb_gym.problems.delay import Delivery
from dpb_gym.streams import AgentStreams
from dpb_gym.suites.spec import AgentRun

REPLICATES = 8


def interferes(run: AgentRun, problem: Problem, seed: int) -> int | None:
    """Return the round of the first action or record that depends on raw data of other rounds.

    None means that there is no such round.

    Args:
        run: The agent and its budget.
        problem: The problem; its horizon is played to the end.
        seed: Seed of customers and agent.
    """
    seeds = range(seed, seed + REPLICATES)
    first = _play(run, problem, seeds, None)
    again = _play(run, problem, seeds, first)
    acted = [np.array_equal(*pair) for pair in zip(first.actions, again.actions)]
    found = [t for t, same in enumerate(acted, start=1) if not same] + again.reused
    return min(found, default=None)


class _Record:
    """Actions and records of a run, and rounds with equal data but different records."""

    def __init__(self) -> None:
        self.actions: list[Array] = []
        self.calls: dict[tuple[int, str], list[Any]] = {}
        self.reused: list[int] = []
        self.scrambled = False


def _play(run: AgentRun, problem: Problem, seeds: range, fixed: _Record | None) -> _Record:
    """Play a run; with `fixed`, use its releases and other raw feedback in half of the rounds."""
    agent, record = run.spec.make(), _Record()
    scramble = np.random.default_rng(seeds[0])
    agent.set_up(problem.info, AgentStreams(seeds, "audit"), run.budget)
    for number, releaser in enumerate(releasers(agent)):
        for method in ("add", "send"):
            if hasattr(releaser, method):
                _hold(releaser, method, record, fixed, (number, method))
    protects_contexts = agent.curator.unit in ("user-round", "user")
    instance = problem.instance(list(seeds))
    delivery = Delivery(problem, list(seeds))
    for t in range(1, problem.horizon + 1):
        context = instance.context()
        action = agent.act(context)
        record.actions.append(np.array(action))
        delivery.open(context)
        context, chosen, feedback = delivery.deliver(action, instance.respond(action).feedback)
        record.scrambled = fixed is not None and (t == 1 or scramble.random() < 0.5)
        if record.scrambled:
            feedback = _other(feedback, problem, context, chosen, scramble)
            if protects_contexts:
                if feedback.observed is not None:
                    feedback = feedback._replace(observed=~feedback.observed)
                order = scramble.permutation(len(seeds))
                context = context._replace(features=context.features[order])
        agent.observe(context, chosen, feedback)
        if t < problem.horizon:
            instance.advance()
    return record


def _hold(
    releaser: Any, method: str, record: _Record, fixed: _Record | None, key: tuple[int, str]
) -> None:
    """Record the inputs of `add` and outputs of `send`, or replay recorded ones."""
    original, kept = getattr(releaser, method), record.calls.setdefault(key, [])
    held = None if fixed is None else iter(fixed.calls[key])

    def listening(*args: Any, **kwargs: Any) -> Any:
        if method == "send":
            sent = original(*args, **kwargs) if held is None else next(held)
            kept.append(sent)
            return sent
        if held is not None:
            given, (args, kwargs) = (args, kwargs), next(held, (args, kwargs))
            if not record.scrambled and not _same(given, (args, kwargs)):
                record.reused.append(len(record.actions))
        else:
            kept.append(copy.deepcopy((args, kwargs)))
        return original(*args, **kwargs)

    setattr(releaser, method, listening)


def _same(one: Any, other: Any) -> bool:
    """Return whether the arguments of two calls are equal."""
    flat = [[*args, *(kwargs[k] for k in sorted(kwargs))] for args, kwargs in (one, other)]
    return len(flat[0]) == len(flat[1]) and all(np.array_equal(*pair) for pair in zip(*flat))


def _other(
    feedback: Feedback, problem: Problem, context: Context, action: Array, rng: np.random.Generator
) -> Feedback:
    """Return a response that is possible for the action and usually different."""
    kind = problem.info.kind
    if kind == "pricing":
        assert feedback.demand is not None
        demand = 1.0 - feedback.demand if problem.info.demand == "logistic" else -feedback.demand
        return feedback._replace(reward=np.asarray(action) * demand, demand=demand)
    if kind == "assortment":
        slates = np.asarray(action)
        other = bought(context, slates, rng.integers(-1, (slates >= 0).sum(axis=1)))
        return feedback._replace(reward=other.reward, choice=other.choice)
    low, high = problem.info.reward_range
    return feedback._replace(reward=low + high - feedback.reward)
