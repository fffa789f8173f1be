"""Stretches of rounds played in compiled code equal `act` and `observe`, bit for bit."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import dpb_gym
from dpb_agents.recommendation.rivals.linear_rival import RewardSums
from dpb_gym.agent import Agent, plays_stretches
from dpb_gym.errors import AgentError, BudgetError, ParameterError
from dpb_gym.planning.tuning import read_grid
from dpb_gym.privacy import Budget, Curator, Segment, Sum
from dpb_gym.problems.base import Instance
from dpb_gym.problems.recommendation import RecommendationProblem
from dpb_gym.registry import agent_spec, agent_specs, make_agent, shortcoming
from dpb_gym.running import runner
from dpb_gym.streams import AgentStreams

HORIZON = 450  # past a release of AdaPrivate's, and the end of a block of drawn numbers
ENVIRONMENTS = {
    "recommendation": ("DPB/Recommendation-v0", {"dim": 5, "n_candidates": 8}),
    "users": (
        "DPB/Recommendation-v0",
        {"dim": 3, "reward": "gaussian", "interactions_per_user": 2},
    ),
    "fresh arms": ("DPB/Recommendation-v0", {"dim": 4, "reward": "linear", "fresh": True}),
    "drift": ("DPB/Recommendation-v0", {"dim": 4, "drift": "abrupt"}),
    "multi-armed": ("DPB/MultiArmed-v0", {"n_arms": 4}),
    "pricing": ("DPB/Pricing-v0", {}),
    "assortment": ("DPB/Assortment-v0", {"n_items": 8, "capacity": 3, "dim": 3}),
}
LENGTHS = (1, 7, 64, 113)
DEEP = {"ppo", "dqn", "sac"}
"""Agents that need an extra."""

SINGLE = {
    "adaprivate-user-ts", "adaprivate-user-ucb", "best-fixed-price", "dpmnl", "dpmnl-approx",
    "fixed-price", "greedy-mnl", "ofu-mnl-plus", "one-pass-sparse", "one-pass-sparse-joint",
    "oracle", "private-pricing", "random", "resolving-mnl", "resolving-pricing", "ts-mnl",
    "ucb-mnl",
}  # fmt: skip
"""Agents that play round by round. Named, because to ask them all takes seconds of every run."""
SINGLE_THERE = {("one-pass-linear-joint", "multi-armed")}


@functools.cache
def problem(environment):
    env_id, kwargs = ENVIRONMENTS[environment]
    return dpb_gym.make_problem(env_id, horizon=HORIZON, **kwargs)


def start(name, environment, replicates, **params):
    """A running agent and its instance; None if the agent cannot play there."""
    made, seeds = problem(environment), range(replicates)
    budget = None if agent_specs()[name].budget == "never" else Budget.zcdp(20.0)
    if shortcoming(agent_spec(name, **params), made.info):
        return None
    agent = make_agent(name, **params)
    try:
        agent.set_up(made.info, AgentStreams(seeds), budget)
    except (AgentError, BudgetError, ParameterError):
        return None
    return agent, made.instance(seeds)


def singly(agent, instance, rounds):
    """Play rounds one by one; the actions."""
    actions = []
    for _ in range(rounds):
        context = instance.context()
        for part in context[1:]:
            if part is not None:
                part.flags.writeable = False
        actions.append(agent.act(context).copy())
        agent.observe(context, actions[-1], instance.respond(actions[-1]).feedback)
        if instance.t[0] < HORIZON:
            instance.advance()
    return np.array(actions)


def together(agent, instance, rounds):
    """Play rounds in stretches, of which some end early; the actions."""
    actions, left = [], rounds
    while left:
        most = min(left, LENGTHS[len(actions) % len(LENGTHS)])
        stretch = instance.move(most)
        if stretch is None:  # a single price or slate is no stretch
            actions.append(singly(agent, instance, 1))
            left -= 1
            continue
        actions.append(agent.play(stretch.view()).copy())
        left -= len(actions[-1])
        if instance.t[0] < HORIZON:
            instance.advance()
    return np.concatenate(actions)


def own():
    """Names of this project's agents; other tests register agents when they are imported."""
    specs = agent_specs().items()
    return {name for name, spec in specs if spec.entry_point.startswith("dpb_agents")} - DEEP


@functools.cache
def players():
    """Agents that play stretches, with the environments in which they do."""
    return [
        (name, environment)
        for name in sorted(own() - SINGLE)
        for environment in ENVIRONMENTS
        if (name, environment) not in SINGLE_THERE
        and not shortcoming(agent_spec(name), problem(environment).info)
    ]


def points():
    """Every value of every tuning grid; `make test` has the last of every second parameter."""
    return [
        pytest.param(
            name,
            {key: value},
            marks=() if value == values[-1] and number % 2 == 0 else pytest.mark.long,
        )
        for name in sorted({name for name, _ in players()})
        for number, (key, values) in enumerate(read_grid(agent_spec(name)).items())
        for value in values
    ]


def test_the_agents_that_play_round_by_round_are_named():
    playing = []
    for name in sorted(own()):
        for environment in ENVIRONMENTS:
            made = start(name, environment, 1)
            if made is not None and plays_stretches(made[0]):
                playing.append((name, environment))
    assert playing == players()


def test_the_linear_policies_play_stretches():
    recommended = {e for e in ENVIRONMENTS if problem(e).info.kind == "recommendation"}
    assert {("lin-ucb", e) for e in recommended} < set(players())


def sizes():
    """Return agents, environments and replicates; 1, 3 and 20 in the first environment."""
    first = next(iter(ENVIRONMENTS))
    return [(n, e, size) for n, e in players() for size in ((1, 3, 20) if e == first else (3,))]


@pytest.mark.parametrize("name,environment,replicates", sizes())
def test_stretches_equal_single_rounds(name, environment, replicates):
    one, other = (start(name, environment, replicates) for _ in range(2))
    expected = singly(*one, HORIZON)
    np.testing.assert_array_equal(together(*other, HORIZON), expected)


@pytest.mark.parametrize("name,params", points())
def test_stretches_equal_single_rounds_at_other_parameters(name, params):
    environment = next(e for n, e in players() if n == name)
    one, other = (start(name, environment, 2, **params) for _ in range(2))
    if plays_stretches(one[0]):
        np.testing.assert_array_equal(together(*other, HORIZON), singly(*one, HORIZON))


@pytest.mark.parametrize("name", sorted({name for name, _ in players()}))
def test_agents_go_on_after_stretches_and_checkpoints(name, tmp_path):
    environment = next(e for n, e in players() if n == name)
    one, (agent, instance) = (start(name, environment, 3) for _ in range(2))
    expected = singly(*one, HORIZON)
    actions = [together(agent, instance, 151), singly(agent, instance, 32)]
    agent.save(tmp_path / "agent")
    agent = Agent.load(tmp_path / "agent")
    actions += [together(agent, instance, 150), singly(agent, instance, HORIZON - 333)]
    np.testing.assert_array_equal(np.concatenate(actions), expected)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_runs_are_the_same_with_and_without_stretches(environment, monkeypatch):
    # The runner is tested here, so some agents suffice; other environments have others of them.
    names = [name for name, e in players() if e == environment]
    names = names[list(ENVIRONMENTS).index(environment) % 3 :: 3]
    env_id, kwargs = ENVIRONMENTS[environment]

    def run(agents):
        result = dpb_gym.evaluate(
            env_id,
            agents,
            horizon=HORIZON,
            replicates=3,
            env_kwargs=kwargs,
            checkpoints=[1, 33, 34, 151, 450],
            budgets=["rho=2"],
            workers=1,
            progress=False,
        )
        return [(r["agent"], r["seed"], r["round"], r["regret"], r["reward"])
                for r in result.records() if r["agent"] != "random"]  # fmt: skip

    alone, mixed = run(names), run(["random", *names])
    monkeypatch.setattr(runner, "plays_stretches", lambda agent: False)
    expected = run(names)
    assert sorted(alone) == sorted(expected) and sorted(mixed) == sorted(expected)


def test_mixed_agents_play_as_many_rounds_as_a_short_stretch_has(monkeypatch):
    def run():
        result = dpb_gym.evaluate(
            "DPB/Pricing-v0",
            ["random", "one-pass-pricing"],
            horizon=200,
            replicates=3,
            budgets=["rho=2"],
            workers=1,
            progress=False,
        )
        return [(r["agent"], r["seed"], r["round"], r["regret"]) for r in result.records()]

    expected = run()
    monkeypatch.setattr("dpb_gym.problems.base.MOST_BYTES", 1000)  # of hidden state
    assert run() == expected


def test_agents_whose_steps_are_looked_at_play_round_by_round():
    agent = make_agent("lin-ucb")
    agent.set_up(problem("recommendation").info, AgentStreams([1]))
    assert plays_stretches(agent)
    agent.act = lambda context: 1 / 0  # somebody looks inside
    assert not plays_stretches(agent)


def test_the_newest_class_with_a_step_or_a_stretch_decides():
    class Quick(Agent):
        stretches = True

        def begin(self, problem, streams, curator):
            pass

        def act(self, context):
            return 1

        def observe(self, context, action, feedback):
            pass

        def play(self, rounds):
            return 1

    class Slow(Quick):
        def act(self, context):
            return 2

    class Inheriting(Slow):
        pass

    class Again(Inheriting):
        def play(self, rounds):
            return 2

    class Looked:
        def observe(self, context, action, feedback):
            return None

    class Mixed(Looked, Quick):
        pass

    class Without(Agent):
        stretches = True
        begin = Quick.begin
        act = Quick.act
        observe = Quick.observe

    kinds = (Quick, Slow, Inheriting, Again, Mixed, Without)
    played = [plays_stretches(kind()) for kind in kinds]
    assert played == [True, False, False, True, False, False]
    agent = Quick()
    agent.play = lambda rounds: 3  # somebody looks inside
    assert not plays_stretches(agent)


def test_a_sum_and_a_problem_with_own_steps_take_rounds_one_by_one():
    class Doubled(Sum):
        def add(self, records, along=None):
            super().add(2.0 * records, along)

    class Own(RecommendationProblem):
        def best_action(self, hidden, round_):
            actions, values = super().best_action(hidden, round_)
            return actions, values + 1.0

    records = np.full((3, 1), 0.25)
    sums = [kind(Curator(None, replicates=1), 1, reward=(0.0, 1.0)) for kind in (Sum, Doubled)]
    for each in sums:
        each.add_rounds(records, np.ones((3, 1, 1)))
    assert [float(each.release()[0, 0]) for each in sums] == [0.75, 1.5]

    class DoubledRewards(RewardSums):
        def add(self, records, along=None):
            super().add(2.0 * records, along)

    released = []
    for kind in (RewardSums, DoubledRewards):
        rewards = kind(Curator(None, replicates=1), 1, Segment(0.0, 1.0), "rewards")
        rewards.add_rounds(records, np.ones((3, 1, 1)))
        released.append(float(rewards.release(np.ones(1, bool))[0, 0]))
    assert released == [0.75, 1.5]
    best = [
        Instance(kind(n_candidates=3, dim=2, horizon=8), [1]).stretch(4).best
        for kind in (RecommendationProblem, Own)
    ]
    np.testing.assert_allclose(best[1], best[0] + 1.0)
