"""Tuning on protected customers, with the selection charged to a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpb_gym import portable
from dpb_gym.agent import Agent
from dpb_gym.errors import ParameterError
from dpb_gym.planning.tuning import TUNING_SEEDS, Grid, choose_points, read_grid
from dpb_gym.privacy import Budget, Curator, Guarantee, NoiseSource, SelectionEvent, SystemNoise
from dpb_gym.privacy.calibration import fit_rho
from dpb_gym.privacy.guarantee import ROUNDS
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.problems.base import Problem
from dpb_gym.registry import check_supported, spec_of
from dpb_gym.streams import AgentStreams

RUNS = 32.0
COUNTING = 0.1  # part of a run's cost that goes to its score


@dataclass(frozen=True)
class PrivateChoice:
    """Parameters that were chosen under differential privacy.

    Attributes:
        agent: Name of the agent.
        params: Chosen parameters other than the agent's defaults.
        score: Noisy mean reward of the chosen run over the horizon.
        guarantee: Guarantee of the tuning customers, selection included.
    """

    agent: str
    params: Mapping[str, Any]
    score: float
    guarantee: Guarantee


def cost_of_run(budget: Budget, runs: float) -> float:
    """Return the zCDP of one run such that a selection with mean `runs` fits in the budget."""
    if budget.rho is None:
        return fit_rho(budget, lambda rho: [SelectionEvent(rho, runs)])
    most = budget.rho
    return portable.bisect(lambda rho: SelectionEvent(rho, runs).zcdp <= most, 0.0, most)[0]


def tune_privately(
    agent: str | type[Any], problem: Problem, budget: Budget | str, grid: Grid | None = None, *,
    runs: float = RUNS, replicates: int = 20, noise_seed: int | None = None,
) -> PrivateChoice:  # fmt: skip
    """Choose an agent's parameters on tuning customers whose records the selection protects.

    Each of a geometric number of runs (Liu & Talwar 2019; `SelectionEvent`) draws a point of the
    grid, plays the tuning customers with noise of its own and releases its summed reward with
    noise. The point of the largest score is returned. Nothing else may be published: neither the
    number of runs nor how long they took.

    Args:
        agent: Name or class of an agent that protects a user-round or a reward.
        problem: The problem; its rewards are bounded.
        budget: Budget of the tuning customers, for everything that is released of them.
        grid: Values to try, instead of the class's `tuning_grid`.
        runs: Mean number of runs, > 1.
        replicates: Tuning replicates, disjoint sets of customers.
        noise_seed: Seed of noise and choices, for simulations; None: the operating system's.

    Raises:
        ParameterError: If an argument is out of range, rewards are not bounded, or the agent
            protects another unit or exceeds its budget.
        AgentError: If the agent does not support the problem.
    """
    asked = Budget.parse(budget)
    if asked is None:
        raise ParameterError("private tuning needs a budget, 'eps=1,delta=1e-6' say")
    spec = spec_of(agent, problem.kind)
    random = np.random.default_rng(noise_seed)
    check_supported(spec, problem.info, True)
    points = choose_points(spec, read_grid(spec, grid), {}, None)
    seeds = range(TUNING_SEEDS.start, TUNING_SEEDS.start + replicates)

    def noise() -> NoiseSource:
        if noise_seed is None:
            return SystemNoise(replicates)
        return NoiseSource.from_seed(int(random.integers(2**63)), replicates)

    event = SelectionEvent(cost_of_run(asked, runs), runs)
    scored = []
    for _ in range(int(random.geometric(1.0 / runs))):
        at = int(random.integers(len(points)))
        player = spec.over(points[at]).make()
        scored.append((_score(player, problem, seeds, event.rho, noise), at))
    score, at = max(scored)
    ledger = Ledger(asked, *(player.protects or ()))
    # of all points, because which ones were played is not published
    own = Budget.zcdp((1 - COUNTING) * event.rho)
    costs = [spec.over(point).guarantee(problem.info, own) for point in points]
    stated = [cost.basis for cost in costs if cost is not None and cost.basis != "computed"]
    clauses = [clause for cost in costs if cost is not None for clause in cost.provisos]
    basis = "; ".join(dict.fromkeys(stated)) or "computed"
    what = "best of a random number of runs, selection included"
    ledger.charge(event, what=what, basis=basis)
    guarantee = replace(ledger.guarantee, provisos=tuple(dict.fromkeys(clauses)))
    return PrivateChoice(spec.name, points[at], score, guarantee)


def _score(
    agent: Agent, problem: Problem, seeds: range, rho: float, noise: Callable[[], NoiseSource]
) -> float:
    """Play one run of cost `rho` and return its noisy mean reward."""
    info = problem.info
    along = np.ones((len(seeds), 1))
    streams = AgentStreams(seeds, str(noise().uniform()))
    agent.set_up(info, streams, Budget.zcdp((1 - COUNTING) * rho), noise=noise())
    agent.curator.rounds.attend()
    _check_cost(agent, rho)
    counting = Budget.zcdp(COUNTING * rho)
    scores = Curator(counting, ("central", "reward"), noise=noise(), horizon=info.longest)
    rewards = scores.batch_sum(1, reward=info.reward_range, what="score")
    instance = problem.instance(seeds)
    for t in range(problem.horizon):
        if t:
            instance.advance()
        context = instance.context()
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        with agent.curator.round(context.t):
            agent.observe(context, action, feedback)
        rewards.add(feedback.reward, along)
    # again, because an agent can charge its curator later
    _check_cost(agent, rho)
    return float(rewards.release().mean())


def _check_cost(agent: Agent, rho: float) -> None:
    """Raise ParameterError unless an agent's guarantee costs less than `rho` for one round."""
    cost = agent.curator.guarantee
    if cost is None or cost.unit not in ROUNDS or not (cost.rho or rho) < rho:
        raise ParameterError(f"private tuning needs a reward or user-round within budget: {cost}")
