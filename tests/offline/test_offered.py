"""Agents that state probabilities: logs contain them, and estimates recover the truth."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_gym import SingleAgent
from dpb_gym.agent import Agent, BatchedSingle
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.offline import evaluate_offline
from dpb_gym.offline.collecting import collect
from dpb_gym.offline.recommendation_log import probabilities
from dpb_gym.registry import agent_spec, make_agent
from dpb_gym.streams import AgentStreams

ENV = "DPB/Recommendation-v0"
SMALL = {"dim": 4, "n_candidates": 3, "n_arms": 20}
SEEDS = [5, 6]


class Cautious(SingleAgent):
    """Greedy on running means of arms, uniform with probability 1/2."""

    def begin(self):
        self.sums = np.zeros((2, 20))

    def probabilities(self, context):
        means = self.sums[1, context.arms] / np.maximum(self.sums[0, context.arms], 1.0)
        shares = np.full(3, 0.5 / 3)
        shares[means.argmax()] += 0.5
        return shares

    def act(self, context):
        return int(self.rng.choice(3, p=self.probabilities(context)))

    def observe(self, context, action, feedback):
        self.sums[0, context.arms[action]] += 1.0
        self.sums[1, context.arms[action]] += feedback.reward


def begun(agent, rounds, seeds=SEEDS, streams=None, **conditions):
    problem = dpb_gym.make_problem(ENV, horizon=rounds, **SMALL, **conditions)
    agent.set_up(problem.info, streams or AgentStreams(seeds))
    return problem, agent


def shown(problem, seeds=SEEDS):
    return problem.instance(seeds).context()


@pytest.mark.parametrize("name", ["random", "lin-ucb", "lin-greedy"])
def test_stated_probabilities_match_choice_frequencies(name):
    """1,500 rounds of a frozen agent against its stated probabilities, to five std."""
    params = {} if name == "random" else {"gamma": 0.05}
    problem, agent = begun(make_agent(name, **params), 50)
    instance = problem.instance(SEEDS)
    for _ in range(20):
        action = agent.act(instance.context())
        agent.observe(instance.context(), action, instance.respond(action).feedback)
        instance.advance()
    context = instance.context()
    said = agent.probabilities(context)
    assert said.shape == (2, 3) and np.allclose(said.sum(axis=1), 1.0)
    drawn = np.array([agent.act(context) for _ in range(1500)])
    assert (agent.probabilities(context) == said).all()
    for k in range(3):
        spread = np.sqrt(said[:, k] * (1 - said[:, k]) / 1500)
        assert (np.abs((drawn == k).mean(axis=0) - said[:, k]) <= 5 * spread + 1e-12).all()


def test_agents_without_probabilities_return_none():
    for name in ("lin-ts", "one-pass-linear"):
        problem, agent = begun(make_agent(name), 10)
        assert agent.probabilities(shown(problem)) is None
    pricing = dpb_gym.make_problem("DPB/Pricing-v0", horizon=10)
    random = make_agent("random")
    random.set_up(pricing.info, AgentStreams([0]))
    assert random.probabilities(pricing.instance([0]).context()) is None


def test_a_learning_log_is_the_run_of_the_harness():
    """Same streams: the same choices, with the probabilities they had, and the same regret."""
    spec = agent_spec("lin-ucb", gamma=0.02)
    problem, agent = begun(spec.make(), 200, streams=spec.streams(SEEDS))
    logs = collect(problem, 200, SEEDS, agent, learn=True)
    run = dpb_gym.evaluate(
        ENV,
        agents={"a": ("lin-ucb", None, {"gamma": 0.02})},
        horizon=200,
        replicates=2,
        seed=SEEDS[0],
        env_kwargs=SMALL,
    )
    rows = np.arange(200)
    for b, log in enumerate(logs):
        lost = log.expected.max(axis=1) - log.expected[rows, log.actions]
        assert np.isclose(lost.sum(), run.final_regret("a")[b])
        assert (log.propensities == log.behaviour[rows, log.actions]).all()
        assert 0.0 < log.propensities.min() < 0.5 < log.propensities.max()


@pytest.mark.slow
@pytest.mark.parametrize("delay", [None, "geometric=5"])
def test_estimators_recover_the_truth_from_a_learning_log(delay):
    """The logging policy changes in every round; stated probabilities make estimates exact."""
    target = np.tile([0.1, 0.2, 0.7], (2000, 1))
    misses = 0
    for seed in range(4):
        agent = BatchedSingle(Cautious)
        problem, agent = begun(agent, 2000, [seed], delay=delay)
        (log,) = collect(problem, 2000, [seed], agent, learn=True, minimum_propensity=0.5 / 3)
        truth = (target * log.expected).sum(axis=1).mean()
        estimates = evaluate_offline(target, log, estimators=("ips", "snips", "dr"), resamples=0)
        for name in ("ips", "snips", "dr"):
            misses += abs(estimates[name].value - truth) > 2.5 * estimates[name].std_error
        naive = log.rewards.mean()
        assert abs(naive - truth) > 3 * estimates["ips"].std_error
    assert misses <= 2


def test_a_frozen_agents_stated_probabilities_are_logged():
    """No sampling: the logged probabilities are the mixture of its own with uniform ones."""
    problem, agent = begun(BatchedSingle(Cautious), 40)
    logs = collect(problem, 40, SEEDS, agent, exploration=0.2, samples=1)
    wanted = np.array([0.5 / 3 + 0.5, 0.5 / 3, 0.5 / 3])
    for log in logs:
        assert np.allclose(np.sort(log.behaviour, axis=1), np.sort(0.8 * wanted + 0.2 / 3))
    exact = probabilities(agent, logs, samples=1)
    assert np.allclose(exact.max(axis=2), wanted[0])


class Wrong(Agent):
    def __init__(self, stated):
        self.stated = stated

    def begin(self, problem, streams, curator):
        pass

    def act(self, context):
        return np.zeros(2, np.int64)

    def observe(self, context, action, feedback):
        pass

    def probabilities(self, context):
        return self.stated


@pytest.mark.parametrize(
    ("stated", "error", "message"),
    [
        (None, ParameterError, "does not say the probabilities"),
        (np.full((2, 3), 0.5), ParameterError, "Wrong.probabilities"),
        (np.full((1, 3), 1 / 3), AgentError, "each of 2 replicates"),
    ],
)
def test_invalid_probabilities_are_rejected(stated, error, message):
    problem, agent = begun(Wrong(stated), 10)
    with pytest.raises(error, match=message):
        collect(problem, 10, SEEDS, agent, learn=True)


def test_learning_needs_an_agent():
    with pytest.raises(ParameterError, match="learn=True needs an agent"):
        collect(ENV, 10, [0], learn=True, **SMALL)
