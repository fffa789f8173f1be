"""Properties of every built-in agent: it beats random, and replicates are independent.

A replicate does not depend on its batch, on other agents, or on lockstep or Gymnasium stepping.
"""

from __future__ import annotations

from functools import cache

import gymnasium as gym
import numpy as np
import pytest

import dpb_gym
from dpb_gym.customer_rounds import locked
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_specs, make_agent, shortcoming
from dpb_gym.streams import AgentStreams

# Some agents protect all rounds of a user, so users are identified.
USERS = {"interactions_per_user": 2}
# Small and easy, so that a short run separates learning from chance.
ARENAS = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 20, "capacity": 4, "dim": 3}),
    "assortment-revenues": (
        "DPB/Assortment-v0",
        {"n_items": 12, "capacity": 3, "dim": 3, "revenues": "random", "context_norm": "clip"},
    ),
    "assortment-one": ("DPB/Assortment-v0", {"n_items": 10, "capacity": 1, "dim": 3}),
    "pricing": ("DPB/Pricing-v0", {}),
    "pricing-two-type": ("DPB/PricingTwoType-v0", {}),
    "pricing-drifting": ("DPB/Pricing-v0", {"customers": "drifting"}),
    "recommendation": ("DPB/Recommendation-v0", {"dim": 5, "n_arms": 20, **USERS}),
    "recommendation-fresh": ("DPB/Recommendation-v0", {"dim": 4, "fresh": True, **USERS}),
    "recommendation-linear": ("DPB/Recommendation-v0", {"dim": 4, "reward": "linear", **USERS}),
    "recommendation-gaussian": (
        "DPB/Recommendation-v0",
        {"dim": 4, "reward": "gaussian", **USERS},
    ),
    "multi-armed": ("DPB/MultiArmed-v0", {"n_arms": 5, **USERS}),
    "movielens": ("DPB/MovieLensReplay-v0", {"dim": 8}),
    "movielens-replay": ("DPB/MovieLensReplay-v0", {"dim": 8, "protocol": "replay"}),
    "jester": ("DPB/JesterReplay-v0", {"dim": 8}),
}
# A loose budget: these tests check that agents work, not the cost of privacy.
BUDGET = Budget.zcdp(50.0)
BASELINES = {"random", "oracle"}
# Of a problem with this horizon, so that agents explore, release and exploit.
ROUNDS = 160
SLOW = ("ppo", "dqn", "sac")


def budget_of(spec):
    return None if spec.budget == "never" else BUDGET


def pairs():
    """Order by kind, so that another worker compiles the next kind's kernels meanwhile.

    The agents of Stable-Baselines3 are also in tests/sb3. So each of them has one arena only.
    """
    placed = set()
    for arena, (env_id, kwargs) in ARENAS.items():
        info = dpb_gym.make_problem(env_id, horizon=50, **kwargs).info
        for name, spec in agent_specs().items():
            if not spec.entry_point.startswith("dpb_agents"):
                continue
            if arena == "multi-armed" and not spec.fixed_arms:
                continue  # uncentred ridge regression may stay with the first arm it plays
            if shortcoming(spec, info) or name in placed:
                continue
            if name in SLOW:
                placed.add(name)
            yield name, arena


PAIRS = list(pairs())
SOME = 1
"""Arenas of each agent in `make test`; `make test-all` has all."""


def marked(chosen):
    """Mark as long all but `SOME` arenas of each agent; those of the next agent are others."""
    arenas = {}
    for name, arena in chosen:
        arenas.setdefault(name, []).append(arena)
    kept = {
        (name, own[(i + k) % len(own)])
        for i, (name, own) in enumerate(sorted(arenas.items()))
        for k in range(min(SOME, len(own)))
    }
    return [pytest.param(*pair, marks=() if pair in kept else pytest.mark.long) for pair in chosen]


BY_HAND = ("assortment-revenues", "pricing", "recommendation", "multi-armed", "movielens")


def lockstep(problem, name, seeds, rounds, budget):
    """Actions and regret of one agent, round by round."""
    instance = problem.instance(seeds)
    agent = make_agent(name)
    agent.attach(instance)
    agent.set_up(problem.info, AgentStreams(seeds), budget)
    actions, regrets = [], []
    for t in range(rounds):
        context = locked(instance.context())
        action = agent.act(context)
        outcome = instance.respond(action)
        actions.append(np.array(action))
        regrets.append(outcome.regret)
        agent.observe(context, action, outcome.feedback)
        if t < rounds - 1:
            instance.advance()
    return np.array(actions), np.array(regrets)


@cache
def final_regret(name, arena):
    """Return the regret of 12 or 24 replicates, 4 of a slow agent; cached for `random`."""
    env_id, kwargs = ARENAS[arena]
    rounds, replicates = (5_000, 12) if "replay" in arena else (1_500, 24)
    if name in SLOW:
        replicates = 4
    agent = (name, budget_of(agent_specs()[name]))
    played = dpb_gym.evaluate(
        env_id, [agent], rounds, replicates, env_kwargs=kwargs, workers=1, progress=False
    )
    return played.final_regret(played.labels[0])


# One action gains something there: items, arms or prices stay the same.
REPEATING = (
    "assortment-revenues",
    "pricing",
    "pricing-two-type",
    "pricing-drifting",
    "multi-armed",
)
BETTER = [
    (name, arena)
    for name, arena in PAIRS
    if name not in BASELINES and (name != "private-single-action" or arena in REPEATING)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arena"), marked(BETTER))
def test_beats_random(name, arena):
    ours, chance = final_regret(name, arena), final_regret("random", arena)
    gap = chance[: len(ours)] - ours
    # Paired over replicates; four standard errors.
    assert gap.mean() > 4 * gap.std(ddof=1) / np.sqrt(len(gap)), (ours.mean(), chance.mean())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arena"), marked(PAIRS))
def test_a_replicate_does_not_depend_on_its_batch(name, arena):
    env_id, kwargs = ARENAS[arena]
    problem = dpb_gym.make_problem(env_id, horizon=ROUNDS, **kwargs)
    budget = budget_of(agent_specs()[name])
    seeds = [3, 8, 4, 9, 5, 7]
    together = lockstep(problem, name, seeds, ROUNDS, budget)
    for i in (0, 4):
        alone = lockstep(problem, name, [seeds[i]], ROUNDS, budget)
        for batch, single in zip(together, alone):
            np.testing.assert_array_equal(batch[:, i], single[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arena"),
    [p for p in PAIRS if p[1] in BY_HAND],
)
def test_a_lane_equals_stepping_gymnasium_by_hand(name, arena):
    env_id, kwargs = ARENAS[arena]
    problem = dpb_gym.make_problem(env_id, horizon=60, **kwargs)
    budget = budget_of(agent_specs()[name])
    actions, regrets = lockstep(problem, name, [6, 7], 60, budget)
    env = gym.make(env_id, horizon=60, obs_mode="dict", **kwargs)
    observation, _ = env.reset(seed=7)
    instance = problem.instance([6, 7])
    total = []
    for t in range(60):
        np.testing.assert_array_equal(observation["features"], instance.context().features[1])
        action = actions[t, 1]
        if problem.kind == "assortment":
            # A Gymnasium slate has no empty places: repeat an item instead.
            action = np.where(action < 0, action.max(), action)
        elif problem.kind == "pricing":
            # Gymnasium's price box is float32; play the harness's float64 underneath.
            action = np.array([action])
        step = env.unwrapped.step(action)
        observation = step[0]
        total.append(step[4]["regret"])
        if t < 59:
            instance.advance()
    np.testing.assert_array_equal(total, regrets[:, 1])
