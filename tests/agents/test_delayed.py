"""Every agent under delayed feedback: learning, batch independence, and no state from `act`."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_gym.agent import Agent, SingleAgent
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import AgentError
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Feedback
from dpb_gym.problems.delay import Delivery
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import agent_specs, make_agent, register_agent
from dpb_gym.streams import AgentStreams

ARENAS = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 12, "capacity": 3, "dim": 3}),
    "assortment-pricing": ("DPB/AssortmentPricing-v0", {"n_items": 6, "capacity": 2, "dim": 4}),
    "pricing": ("DPB/Pricing-v0", {}),
    "recommendation": (
        "DPB/Recommendation-v0",
        {"dim": 5, "n_arms": 20, "interactions_per_user": 2},
    ),
    "multi-armed": ("DPB/MultiArmed-v0", {"n_arms": 4}),
}
BUDGET = Budget.zcdp(50.0)
BASELINES = ("oracle", "best-fixed-price")


def agents_of(arena, delayed=True):
    """Return the agents of the kind; with fixed arms those that need them, and random."""
    fixed = arena == "multi-armed"
    return {
        name: spec
        for name, spec in agent_specs().items()
        if spec.entry_point.startswith("dpb_agents")
        and ("recommendation" if fixed else arena) in spec.supports
        and (spec.partial_feedback and spec.delayed_feedback) == delayed
        and (spec.fixed_arms == fixed or (fixed and name == "random"))
    }


def play(arena, name, seeds, rounds, delay):
    """Return the actions of one agent, ``(rounds, B)``, and its guarantee."""
    env, kwargs = ARENAS[arena]
    problem = dpb_gym.make_problem(env, horizon=rounds, delay=delay, **kwargs)
    spec = agent_specs()[name]
    agent, instance = spec.make(), problem.instance(seeds)
    agent.attach(instance)
    budget = None if spec.budget == "never" else BUDGET
    agent.set_up(problem.info, AgentStreams(seeds), budget)
    post, actions = Delivery(problem, seeds), []
    for t in range(1, rounds + 1):
        context = locked(instance.context())
        post.open(context)
        action = agent.act(context)
        actions.append(np.array(action))
        agent.observe(*post.deliver(action, instance.respond(action).feedback))
        if t < rounds:
            instance.advance()
    return np.array(actions), agent.curator.guarantee


PAIRS = [(arena, name) for arena in ARENAS for name in agents_of(arena)]


@pytest.mark.parametrize(("arena", "name"), PAIRS)
def test_no_delay_equals_delay_zero_and_replicates_are_independent(arena, name):
    at_once, guarantee = play(arena, name, [3, 4], 40, None)
    assert (play(arena, name, [3, 4], 40, 0)[0] == at_once).all()
    late, same = play(arena, name, [3, 4], 40, "geometric=4,lost=0.1")
    assert (play(arena, name, [4], 40, "geometric=4,lost=0.1")[0][:, 0] == late[:, 1]).all()
    # releasers still advance once per round, so charges are unchanged
    assert str(same) == str(guarantee)


def unobserved(arena, name, nobody):
    """Actions where a third of the rounds return nothing: with their context, or with zeros."""
    env, kwargs = ARENAS[arena]
    problem = dpb_gym.make_problem(env, horizon=60, **kwargs)
    spec, seeds = agent_specs()[name], [3, 4]
    agent, instance = spec.make(), problem.instance(seeds)
    agent.attach(instance)
    budget = None if spec.budget == "never" else BUDGET
    agent.set_up(problem.info, AgentStreams(seeds), budget)
    seen, actions = np.random.default_rng(0).random((60, 2)) > 0.3, []
    for t in range(60):
        context = locked(instance.context())
        action = np.array(agent.act(context))
        actions.append(action.copy())
        told = instance.respond(action).feedback._replace(observed=seen[t])
        told = told._replace(reward=told.reward * seen[t])
        if nobody:
            context = context._replace(features=context.features.copy())
            context.features[~seen[t]] = 0.0
            action[~seen[t]] = kind_of(problem.kind).nothing
        agent.observe(context, action, told)
        if t < 59:
            instance.advance()
    return np.array(actions)


@pytest.mark.parametrize(("arena", "name"), PAIRS)
def test_agents_learn_nothing_from_unobserved_rounds(arena, name):
    assert (unobserved(arena, name, False) == unobserved(arena, name, True)).all()


def test_unobserved_prices_do_not_enter_means():
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=60)
    agent, context = make_agent("cils-pricing"), problem.instance([3]).context()
    agent.set_up(problem.info, AgentStreams([3]))
    for price, seen in ((0.9, True), (0.1, False), (0.7, True)):
        told = Feedback(np.zeros(1), demand=np.zeros(1), observed=np.array([seen]))
        agent.observe(context, np.array([price]), told)
    assert agent.state.total / agent.state.count == pytest.approx(0.8)


@pytest.mark.slow
@pytest.mark.parametrize("arena", ARENAS)
def test_every_agent_beats_random_when_responses_are_late(arena):
    env, kwargs = ARENAS[arena]
    agents = {
        name: (name, None if spec.budget == "never" else str(BUDGET))
        for name, spec in agents_of(arena).items()
        if name not in BASELINES
    }
    result = dpb_gym.evaluate(
        env, agents=agents, horizon=2000, replicates=2, env_kwargs={**kwargs, "delay": 50}
    )
    random = result.final_regret("random").sum()
    for name in agents:
        if name != "random":
            assert result.final_regret(name).sum() < 0.95 * random, name


@pytest.mark.parametrize("arena", [a for a in ARENAS if agents_of(a, delayed=False)])
def test_unsuitable_agents_are_rejected_by_name(arena):
    (name, *_) = agents_of(arena, delayed=False)
    env, kwargs = ARENAS[arena]
    with pytest.raises(AgentError, match=rf"{name}.*own round.*fixed=5"):
        dpb_gym.evaluate(
            env, agents=[name], horizon=20, replicates=1, env_kwargs={**kwargs, "delay": 5}
        )


class Fixed(Agent):
    """Agent whose actions depend on the round alone and that records its observations."""

    def begin(self, problem, streams, curator):
        self.told = []

    def act(self, context):
        B = len(context.features)
        return np.tile(np.arange(3) + context.t % 5, (B, 1))

    def observe(self, context, action, feedback):
        parts = (context.features, context.revenues, action, feedback.reward, feedback.choice)
        self.told.append([np.array(part) for part in parts])


def test_what_is_observed_is_the_undelayed_sequence_shifted():
    problems = [
        dpb_gym.make_problem("DPB/Assortment-v0", horizon=30, n_items=8, capacity=3, delay=d)
        for d in (None, 7)
    ]
    told = []
    for problem in problems:
        agent, instance = Fixed(), problem.instance([1, 2])
        agent.set_up(problem.info, AgentStreams([1, 2]))
        post = Delivery(problem, [1, 2])
        for t in range(1, 31):
            context = locked(instance.context())
            post.open(context)
            action = agent.act(context)
            agent.observe(*post.deliver(action, instance.respond(action).feedback))
            if t < 30:
                instance.advance()
        told.append(agent.told)
    for at_once, late in zip(told[0], told[1][7:]):
        for one, other in zip(at_once, late):
            assert (one == other).all()
    assert all((parts[2] == -1).all() and not parts[0].any() for parts in told[1][:7])


def test_a_single_agent_gets_the_action_of_the_origin():
    seen = []

    @register_agent("late-single-test", supports=["assortment"])
    class Late(SingleAgent):
        def act(self, context):
            return [context.t % 5] if context.t % 2 else [1, 2]

        def observe(self, context, action, feedback):
            seen.append((context.t, np.asarray(action).tolist()))

    dpb_gym.evaluate(
        "DPB/Assortment-v0",
        agents=["late-single-test"],
        horizon=20,
        replicates=1,
        env_kwargs={"n_items": 6, "capacity": 3, "delay": 3},
    )
    assert seen == [(t, [(t - 3) % 5] if (t - 3) % 2 else [1, 2]) for t in range(4, 21)]
