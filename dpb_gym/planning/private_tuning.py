"""Tuning on protected customers, with the selection charged to a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpb_gym import portable, validation
from dpb_gym.agent import Agent
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import ParameterError
from dpb_gym.planning.tuning import TUNING_SEEDS, Grid, check_seeds, choose_points, read_grid
from dpb_gym.privacy import Budget, Curator, Guarantee, NoiseSource, SelectionEvent, SystemNoise
from dpb_gym.privacy.calibration import fit_rho
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
        agent: Registered name.
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
    fits = lambda rho: SelectionEvent(rho, runs).zcdp <= budget.limit  # noqa: E731
    return portable.bisect(fits, 0.0, budget.rho)[0]


def tune_privately(
    agent: str | type[Any],
    env_id: str,
    budget: Budget | str,
    *,
    horizon: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    grid: Grid | None = None,
    runs: float = RUNS,
    replicates: int = 20,
    seed: int = TUNING_SEEDS.start,
    noise: str = "system",
    noise_seed: int | None = None,
) -> PrivateChoice:
    """Choose an agent's parameters on tuning customers whose records the selection protects.

    Each of a geometric number of runs (Liu & Talwar 2019; `SelectionEvent`) draws a point of the
    grid, plays the tuning customers with noise of its own and releases its summed reward with
    noise. The point of the largest score is returned. Nothing else may be published: neither the
    number of runs nor how long they took.

    Args:
        agent: Registered name or class of an agent that protects a user-round or a reward.
        env_id: Environment id.
        budget: Budget of the tuning customers, for everything that is released of them.
        horizon: Rounds per run; the environment's default if not given.
        env_kwargs: Parameters of the environment.
        grid: Values to try, instead of the class's `tuning_grid`.
        runs: Mean number of runs, > 1.
        replicates: Tuning replicates, disjoint sets of customers.
        seed: First tuning seed.
        noise: ``"system"``, or ``"seeded"`` for simulations.
        noise_seed: Seed of seeded noise and of the choice of points.

    Raises:
        ParameterError: If an argument is out of range, rewards are not bounded, or the agent
            protects another unit.
        AgentError: If the agent does not support the problem.
    """
    asked = Budget.parse(budget)
    if asked is None:
        raise ParameterError("private tuning needs a budget, 'eps=1,delta=1e-6' say")
    check_seeds(seed, validation.integer("replicates", replicates, 1))
    more = {} if horizon is None else {"horizon": horizon}
    problem = make_problem(env_id, **(env_kwargs or {}), **more)
    spec = spec_of(agent, problem.kind)
    check_supported(spec, problem.info, True)
    points = choose_points(spec, read_grid(spec, grid), {}, None)
    system = validation.choice("noise", noise, ("system", "seeded")) == "system"
    random = np.random.default_rng(None if system else noise_seed)
    source = SystemNoise if system else partial(_seeded, random)
    event = SelectionEvent(cost_of_run(asked, runs), runs)
    best: tuple[float, int] = (-np.inf, 0)
    unit = None
    for _ in range(int(random.geometric(1.0 / runs))):
        at = int(random.integers(len(points)))
        player = spec.over(points[at]).make()
        score, unit = _score(player, problem, range(seed, seed + replicates), event.rho, source)
        best = max(best, (score, at))
    assert unit is not None
    ledger = Ledger(asked, *unit)
    ledger.charge(event, what="best of a random number of runs, selection included")
    return PrivateChoice(spec.name, points[best[1]], best[0], ledger.guarantee)


def _seeded(random: np.random.Generator, replicates: int) -> NoiseSource:
    return NoiseSource.from_seed(random.integers(2**63, size=4).tolist(), replicates)


def _score(
    agent: Agent, problem: Problem, seeds: range, rho: float, source: Any
) -> tuple[float, tuple[str, str]]:
    """Play one run of cost `rho`; return its noisy mean reward and what the agent protects."""
    if agent.protects is None or agent.protects[1] not in ("reward", "user-round"):
        raise ParameterError("private tuning is for agents that protect a reward or a user-round")
    B, info = len(seeds), problem.info
    streams = AgentStreams(seeds, str(source(1).uniform()))
    agent.set_up(info, streams, Budget.zcdp((1 - COUNTING) * rho), noise=source(B))
    cost = agent.curator.guarantee
    if cost is None or cost.basis != "computed" or (cost.rho or np.inf) > rho:
        raise ParameterError(f"private tuning needs runs within their budget; got {cost}")
    scores = Curator(
        Budget.zcdp(COUNTING * rho), ("central", "reward"), noise=source(B), horizon=info.longest
    )
    rewards = scores.batch_sum(1, reward=info.reward_range, what="score")
    instance, along = problem.instance(seeds), np.ones((B, 1))
    for t in range(problem.horizon):
        if t:
            instance.advance()
        context = instance.context()
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        agent.observe(context, action, feedback)
        rewards.add(feedback.reward, along)
    return float(rewards.release().mean()), agent.protects
