"""Frozen agents as policies, and agents that learn from a log."""

from __future__ import annotations

import numpy as np
import pytest
from log_helpers import estimate
from scipy.stats import norm

from dpb_gym import Budget, SingleAgent, agent_spec, make_agent, offline, state
from dpb_gym.agent import Agent, BatchedSingle
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.offline import LoggedData
from dpb_gym.problems.base import Context, Feedback
from dpb_gym.streams import AgentStreams

BUDGET = Budget.approx(2.0, 1e-5)


@pytest.fixture(scope="module")
def log():
    return LoggedData.from_problem("DPB/Recommendation-v0", 600, seed=1, dim=4, n_candidates=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lin-greedy", "lin-ucb", "adaprivate-ucb", "one-pass-linear"])
def test_deterministic_policies_are_one_hot(log, name):
    agent = offline.train_offline(name, log, BUDGET if "private" in name else None)
    shares = offline.probabilities(agent, log)
    assert set(np.unique(shares)) == {0.0, 1.0} and (shares.sum(axis=1) == 1).all()
    for i in (0, 17, 599):
        context = Context(600, log.features[i : i + 1], arms=log.arms[i : i + 1])
        assert shares[i].argmax() == agent.act(context)[0]


def test_thompson_sampling_has_its_exact_probabilities(log):
    agent = offline.train_offline("lin-ts", log, v=2.0, seeds=[4])
    two = log.select(slice(0, 40))
    pairs = LoggedData.from_arrays(
        two.features[:, :2], np.zeros(40), np.ones(40), two.rewards, (0, 1)
    )
    shares = offline.probabilities(agent, pairs, samples=400)[:, 0]
    # theta ~ N(A^-1 b, v^2 A^-1): the difference of two scores is normal.
    A, b = np.eye(4), np.zeros(4)
    for i in range(len(log)):
        x = log.features[i, log.actions[i]].astype(float)
        A += np.outer(x, x)
        b += log.rewards[i] * x
    inverse = np.linalg.inv(A)
    difference = pairs.features[:, 0].astype(float) - pairs.features[:, 1]
    spread = 2.0 * np.sqrt(np.einsum("ni,ij,nj->n", difference, inverse, difference))
    expected = norm.cdf(difference @ inverse @ b / spread)
    z = (shares - expected) / np.sqrt(np.maximum(expected * (1 - expected), 1e-3) / 400)
    unsure = (expected > 0.02) & (expected < 0.98)
    assert unsure.sum() > 10
    assert np.abs(z).max() < 4.5 and 0.5 < z[unsure].std() < 1.5


def test_evaluation_leaves_the_agent_as_it_was(log):
    for name in ("lin-ts", "adaprivate-ts", "one-pass-linear", "random"):
        agent = offline.train_offline(name, log, BUDGET if name.startswith("ada") else None)
        before = state.dumps(agent)
        offline.evaluate_offline(agent, log.select(slice(0, 20)), samples=5)
        assert state.dumps(agent) == before, name


@pytest.mark.slow
def test_replicates_of_a_batch_equal_single_agents(log):
    other = LoggedData.from_problem("DPB/Recommendation-v0", 600, seed=9, dim=4, n_candidates=3)
    batch = offline.train_offline("lin-ts", log, seeds=[3, 8])
    both = offline.probabilities(batch, [log, other], samples=7)
    for i, (seed, own) in enumerate([(3, log), (8, other)]):
        alone = offline.train_offline("lin-ts", log, seeds=[seed])
        np.testing.assert_array_equal(offline.probabilities(alone, own, samples=7), both[i])


def test_an_agent_of_many_replicates_needs_a_log_for_each(log):
    agent = offline.train_offline("lin-greedy", log, seeds=[0, 1])
    with pytest.raises(AgentError, match="replicates"):
        offline.evaluate_offline(agent, log)
    with pytest.raises(ParameterError, match="same shape"):
        offline.probabilities(agent, [log, log.select(slice(0, 10))])
    with pytest.raises(ParameterError, match="at least one"):
        offline.probabilities(agent, [])
    with pytest.raises(ParameterError, match="samples"):
        offline.probabilities(agent, log, samples=0)


@pytest.mark.slow
def test_few_samples_estimate_the_same_value(log):
    """IPS is linear in the policy: the mean over repetitions does not depend on samples."""
    agent = offline.train_offline("lin-ts", log, v=3.0)
    exact = estimate("ips", log, offline.probabilities(agent, log, samples=150))
    few = [
        estimate(
            "ips",
            log,
            offline.probabilities(offline.train_offline("lin-ts", log, v=3.0, seeds=[s]), log, 1),
        )
        for s in range(12)
    ]
    assert np.std(few) > 0
    assert abs(np.mean(few) - exact) < 4 * np.std(few) / np.sqrt(12) + 1e-3


def test_learning_from_a_log_is_observing_it(log):
    learner = offline.train_offline("adaprivate-ucb", log, BUDGET, seeds=[6], batch=50)
    spec = agent_spec("adaprivate-ucb", batch=50)
    again = spec.make()
    configuration = spec.streams([6], BUDGET).configuration
    streams = AgentStreams([6], f"{configuration}, offline: all, shared, 1")
    again.set_up(log.problem_info(), streams, BUDGET)
    for i in range(len(log)):
        context = Context(i + 1, log.features[i : i + 1])
        again.observe(context, log.actions[i : i + 1], Feedback(log.rewards[i : i + 1]))
    np.testing.assert_array_equal(
        offline.probabilities(learner, log), offline.probabilities(again, log)
    )
    assert learner.curator.guarantee == again.curator.guarantee
    assert learner.curator.guarantee.epsilon(1e-5) == pytest.approx(2.0, rel=1e-4)


class Recorder(SingleAgent):
    """Agent that chooses the first candidate and records its observations."""

    def begin(self):
        self.seen = []

    def act(self, context):
        return 0

    def observe(self, context, action, feedback):
        self.seen.append((context.t, action, feedback.reward))


@pytest.mark.slow
def test_rejection_accepts_agreeing_rounds_evenly():
    """Acceptance is inverse to the propensity, so observations do not depend on it."""
    log = LoggedData.from_problem(
        "DPB/Recommendation-v0",
        4000,
        behaviour=lambda c: np.array([[0.1, 0.9]]) if c.t % 2 else np.array([[0.5, 0.5]]),
        minimum_propensity=0.1,
        n_candidates=2,
        dim=2,
    )
    agent = BatchedSingle(Recorder)
    offline.train_offline(agent, log, method="replay")
    seen = agent.copies[0].seen
    for t, action, reward in seen:
        assert action == log.actions[t - 1] == 0 and reward == log.rewards[t - 1]
    odd = sum(t % 2 for t, _, _ in seen)
    even = len(seen) - odd
    assert odd == (log.actions[::2] == 0).sum(), "the rarest choices are all accepted"
    assert abs(even - odd) < 4 * np.sqrt(even + odd)
    with pytest.raises(AgentError, match="replay"):
        offline.train_offline(BatchedSingle(Recorder), log)


def test_replay_learns_as_online(log):
    agent = offline.train_offline("lin-greedy", log, method="replay")
    assert agent.plan.every == 3, "one in three rounds is expected to be observed"


def test_agents_that_cannot_learn_from_a_log(log):
    for name, kwargs, error in (
        ("oracle", {}, AgentError),
        ("ucb-mnl", {}, AgentError),
        ("adaprivate-ts", {}, AgentError),
        ("lin-ucb", {"method": "online"}, ParameterError),
        ("lin-ucb", {"width": 3}, ParameterError),
    ):
        with pytest.raises(error):
            offline.train_offline(name, log, **kwargs)
    with pytest.raises(ParameterError, match="registered"):
        offline.train_offline(make_agent("lin-ucb"), log, alpha=2.0)


class OutOfRange(Agent):
    def begin(self, problem, streams, curator):
        pass

    def act(self, context):
        return np.array([3])

    def observe(self, context, action, feedback):
        pass


def test_choices_outside_the_candidates_are_refused(log):
    with pytest.raises(AgentError, match=r"0\.\.2"):
        offline.probabilities(OutOfRange(), log)
