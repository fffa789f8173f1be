"""LinUCB on shuffled sums: estimates, release times, and guarantee."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_gym.customer_rounds import locked
from dpb_gym.privacy import Budget
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

SEEDS = [3, 4]


def played(budget, rounds, horizon=40, env="DPB/Recommendation-v0", **params):
    """The agent after some rounds, and the records of its first replicate."""
    kwargs = {"dim": 3} if "Recommendation" in env else {"dim": 3, "protocol": "replay"}
    problem = dpb_gym.make_problem(env, horizon=horizon, **kwargs)
    agent, instance = make_agent("shuffle-lin-ucb", **params), problem.instance(SEEDS)
    agent.set_up(problem.info, AgentStreams(SEEDS), budget)
    records, thetas = [], []
    for _ in range(rounds):
        context = locked(instance.context())
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        x = context.features[0, action[0]].astype(float)
        records.append(np.append(x / max(1.0, np.linalg.norm(x)), feedback.reward[0]))
        agent.observe(context, action, feedback)
        thetas.append(agent.state.theta[0].copy())
        instance.advance()
    return agent, np.array(records), np.array(thetas), problem


@pytest.mark.parametrize("every", [8, 10])
def test_without_a_budget_it_is_ridge_regression_on_whole_batches(every):
    agent, records, thetas, _ = played(None, 35, every=every, ridge=0.7)
    for t, theta in enumerate(thetas, start=1):
        known = records[: t - t % every]
        gram = known.T @ known
        expected = np.linalg.solve(gram[:3, :3] + 0.7 * np.eye(3), gram[:3, 3])
        np.testing.assert_allclose(theta, expected, atol=1e-9)
    assert agent.curator.guarantee is None and agent.plan.sums.releases == 35 // every


def test_noise_is_that_of_bits_and_the_guarantee_has_notion_shuffle():
    agent, _, thetas, _ = played(Budget.zcdp(0.5), 20, every=10)
    promise = agent.curator.guarantee
    assert (promise.notion, promise.unit) == ("shuffle", "user-round")
    assert 0.49 < promise.rho <= 0.5 and "shuffle zCDP" in str(promise)
    # the noise is as large as that of a trusted curator, and not twice that
    central = np.sqrt(2.0) * 2.0 / np.sqrt(2 * 0.5)
    assert central < agent.plan.sums.sigma < 1.5 * central
    # two batches of bits: a whole number of ones, less a whole number that is expected
    ones = agent.plan.sums.value[0].diagonal() / (agent.plan.sums.grid / 0.6)
    assert np.abs(ones - np.rint(ones)).max() < 1e-6
    again = played(Budget.zcdp(0.5), 20, every=10)[2]
    assert np.array_equal(thetas, again)


def test_batches_in_replay_count_n_candidates_times_as_many_customers():
    agent, *_, problem = played(
        Budget.zcdp(0.5), 70, horizon=200, every=10, env="DPB/MovieLensReplay-v0"
    )
    assert agent.plan.sums.batch == 10 * problem.info.n_candidates
    assert agent.plan.sums.releases == 70 // agent.plan.sums.batch
