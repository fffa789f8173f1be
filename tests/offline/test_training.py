"""Cost of offline training: public acceptance, replicates that share rounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpb_gym import SingleAgent, offline
from dpb_gym.agent import BatchedSingle
from dpb_gym.errors import BudgetExceeded, ParameterError
from dpb_gym.offline import LoggedData
from dpb_gym.privacy import Budget, Composition, accounting

N, M = 400, 2


class Recorder(SingleAgent):
    """Agent that chooses the first candidate and records its observations."""

    def begin(self):
        self.seen = []

    def act(self, context):
        return 0

    def observe(self, context, action, feedback):
        self.seen.append((float(context.features[0, 0]), feedback.reward))


def simple_log(first_propensity=0.5, declared=0.01):
    """Every round shows the first candidate; its feature is the number of the round."""
    features = np.repeat(np.arange(N, dtype=float)[:, None, None], M, axis=1)
    propensities = np.full(N, 0.5)
    propensities[0] = first_propensity
    rewards = np.linspace(0, 1, N)
    return LoggedData.from_arrays(
        features, np.zeros(N), propensities, rewards, (0, 1), minimum_propensity=declared
    )


def observed(log, seeds=(0,), **options):
    agent = BatchedSingle(Recorder)
    offline.train_offline(agent, log, seeds=seeds, method="replay", **options)
    return [copy.seen for copy in agent.copies]


def test_one_record_does_not_decide_whether_others_are_used():
    """A customer with a 50 times smaller propensity does not affect other rounds."""
    (before,), (after,) = observed(simple_log(0.5)), observed(simple_log(0.01))
    assert [seen for seen in before if seen[0] > 0] == [seen for seen in after if seen[0] > 0]
    assert (0.0, 0.0) in after  # a propensity at the declared minimum is always accepted
    # about declared / propensity of the agreeing rounds
    assert abs(len(before) - N * 0.01 / 0.5) < 4 * math.sqrt(N * 0.02)
    (many,) = observed(simple_log(0.5, declared=0.5))
    assert len(many) == N


def test_the_scale_of_the_acceptance_must_be_declared():
    log = simple_log(declared=None)
    with pytest.raises(ParameterError, match="declare the log's minimum_propensity"):
        observed(log)
    with pytest.raises(ParameterError, match=r"propensities must lie in \[0.2, 1\], got 0.01"):
        simple_log(0.01, declared=0.2)
    uniform = LoggedData.from_problem("DPB/Recommendation-v0", 50, dim=3, n_candidates=4)
    assert uniform.minimum_propensity == 0.25


@pytest.fixture(scope="module")
def log():
    return LoggedData.from_problem("DPB/Recommendation-v0", 300, seed=1, dim=3, n_candidates=3)


@pytest.mark.parametrize("budget", ["eps=1,delta=1e-5", "rho=0.2"])
@pytest.mark.parametrize("name", ["one-pass-linear", "adaprivate-ts"])
def test_replicates_that_share_a_log_share_the_budget(log, budget, name):
    """2,000 replicates of a claimed eps = 1 each cost 122 together; the ledger adds them up."""
    B = 25
    alone = offline.train_offline(name, log, budget).curator
    together = offline.train_offline(name, log, budget, seeds=range(B)).curator
    for one, many in zip(alone.releasers, together.releasers):
        assert many.sigma == pytest.approx(one.sigma * math.sqrt(B), rel=1e-6)
    asked = Budget.parse(budget)
    for curator in (alone, together):
        guarantee = curator.guarantee
        if asked.rho is None:
            assert guarantee.epsilon(asked.delta) == pytest.approx(asked.epsilon, rel=1e-4)
        else:
            assert guarantee.rho == pytest.approx(asked.rho)
    # each replicate alone costs its part: that of one releaser, charged once
    events = [event for entry in together.ledger.entries for event in [entry.event]]
    assert sum(event.count for event in events) == B * sum(
        entry.event.count for entry in alone.ledger.entries
    )


def test_epsilon_of_2000_replicates_with_a_full_budget_each(log):
    curator = offline.train_offline("one-pass-linear", log, "eps=1,delta=1e-5").curator
    events = curator.guarantee.curve.events
    assert accounting.epsilon(Composition.of(*events * 2000), 1e-5) > 100


@pytest.mark.parametrize("budget", ["eps=1,delta=1e-5", "rho=0.2"])
def test_replicates_with_separate_parts_have_the_whole_budget(log, budget):
    alone = offline.train_offline("one-pass-linear", log, budget).curator
    parts = offline.train_offline(
        "one-pass-linear", log, budget, seeds=range(4), rounds="parts"
    ).curator
    assert parts.guarantee.epsilon(1e-5) == pytest.approx(alone.guarantee.epsilon(1e-5), rel=1e-3)
    seen = observed(simple_log(declared=0.5), seeds=range(4), rounds="parts")
    rounds = [[number for number, _ in copy] for copy in seen]
    assert sorted(number for copy in rounds for number in copy) == list(range(N)), "everybody once"
    with pytest.raises(ParameterError, match="parts"):
        observed(simple_log(declared=0.5), seeds=range(201), rounds="parts")


def test_single_agents_that_share_a_log_share_the_budget():
    class Summing(SingleAgent):
        protects = ("central", "reward")

        def begin(self):
            self.sums = self.curator.running_sum(1, reward=(0.0, 1.0))

        def act(self, context):
            return 0

        def observe(self, context, action, feedback):
            self.sums.add(feedback.reward, along=np.ones(1))

    sigmas = {}
    for B in (1, 4):
        agent = BatchedSingle(Summing)
        agent.protects = Summing.protects
        log = simple_log(declared=0.5)
        offline.train_offline(agent, log, "rho=0.5", seeds=range(B), method="replay")
        assert agent.curator.guarantee.rho == pytest.approx(0.5)
        sigmas[B] = agent.copies[0].sums.sigma
    assert sigmas[4] == pytest.approx(2 * sigmas[1])


def test_indivisible_mechanisms_are_rejected_before_training(log):
    """A local agent randomises every reward with the whole budget, once per replicate."""
    offline.train_offline("local-lin-ucb", log, "eps=2,delta=1e-5")
    with pytest.raises(BudgetExceeded):
        offline.train_offline("local-lin-ucb", log, "eps=2,delta=1e-5", seeds=[0, 1])


def test_noise_may_come_from_the_operating_system(log):
    first, again = (
        offline.train_offline("one-pass-linear", log, "eps=1,delta=1e-5", noise="system")
        for _ in range(2)
    )
    assert first.curator.system_noise
    a, b = (agent.curator.releasers[0].value for agent in (first, again))
    assert (np.asarray(a) != np.asarray(b)).any()


def test_no_two_trainings_share_their_noise(log):
    """Two releases with the same normals at two scales would reveal the raw sum."""
    sums = {}
    for key, options in {
        "alone": {},
        "with others": {"seeds": (0, 1)},
        "a part": {"seeds": (0, 1), "rounds": "parts"},
    }.items():
        agent = offline.train_offline("one-pass-linear", log, "eps=1,delta=1e-5", **options)
        generator = agent.curator.noise.generators[0]
        sums[key] = generator.normal(size=3).tolist()
    assert len({tuple(values) for values in sums.values()}) == 3


def test_replay_with_estimated_propensities_needs_public_choices(log):
    unknown = LoggedData.from_arrays(
        log.features, log.actions, None, log.rewards, (0, 1), minimum_propensity=0.01
    )
    budget = "eps=1,delta=1e-5"
    for name, refused in (("adaprivate-ts", False), ("jdp-lin-ucb", True)):
        if refused:
            with pytest.raises(ParameterError, match="estimated propensities"):
                offline.train_offline(name, unknown, budget, method="replay")
        else:
            offline.train_offline(name, unknown, budget, method="replay")
