"""Windows: which rounds they contain, and that they help when theta drifts."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_gym import make_agent, make_problem
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.streams import AgentStreams


@pytest.mark.parametrize("name", ["lin-ucb", "lin-ts"])
def test_a_window_contains_the_last_half_and_the_rounds_after_it(play, name):
    run = play(name, [3, 4], 25, params={"window": 10, "centre": True}, dim=4, n_arms=12)
    # halves of 5: after round 25 the block of rounds 21..25 is left
    x = np.take_along_axis(run.features, run.actions[..., None, None], axis=2)[-5:, :, 0]
    gram = np.eye(4) + np.einsum("tbi,tbj->bij", x, x)
    if name == "lin-ucb":
        np.testing.assert_allclose(run.agent.state.A, np.linalg.inv(gram), atol=1e-6)
    else:
        factor = np.tril(run.agent.state.A.transpose(0, 2, 1))
        np.testing.assert_allclose(factor @ factor.transpose(0, 2, 1), gram, atol=1e-6)
    response = np.einsum("tbi,tb->bi", x, run.rewards[-5:] - 0.5)
    np.testing.assert_allclose(run.agent.state.b, response, atol=1e-6)
    # seven rounds on: that block and the seven rounds since, of which five ended another block
    run = play(name, [3, 4], 32, params={"window": 10, "centre": True}, dim=4, n_arms=12)
    x = np.take_along_axis(run.features, run.actions[..., None, None], axis=2)[-7:, :, 0]
    response = np.einsum("tbi,tb->bi", x, run.rewards[-7:] - 0.5)
    np.testing.assert_allclose(run.agent.state.b, response, atol=1e-6)


def test_a_private_window_costs_what_the_whole_sum_costs():
    problem = make_problem("DPB/Recommendation-v0", horizon=40)
    told = []
    for window in (None, 20):
        agent = make_agent("adaprivate-ucb", batch=5, window=window)
        agent.set_up(problem.info, AgentStreams([0]), Budget(rho=0.5))
        told.append((agent.curator.guarantee, agent.plan.sums.sigma))
    assert told[0] == told[1]


def test_forgetting_helps_when_theta_turns():
    drift = {"kind": "abrupt", "changes": 3, "angle": 2.5}
    result = dpb_gym.evaluate(
        "DPB/Recommendation-v0",
        agents={
            "all": ("lin-ucb", None, {"alpha": 0.1, "centre": True}),
            "window": ("lin-ucb", None, {"alpha": 0.1, "centre": True, "window": 400}),
        },
        horizon=2000,
        replicates=8,
        env_kwargs={"dim": 5, "drift": drift},
    )
    gain = result.final_regret("all") - result.final_regret("window")
    assert gain.mean() > 3 * gain.std() / np.sqrt(8)


def test_windows_that_do_not_fit_are_refused():
    with pytest.raises(ParameterError, match="window must be an integer >= 600"):
        make_agent("adaprivate-ucb", window=500)
    for name in ("adaprivate-user-ucb", "adaprivate-amp"):
        with pytest.raises(ParameterError, match="has no parameter 'window': "):
            make_agent(name, window=1000)


@pytest.mark.parametrize("name", ["lin-greedy", "random"])
def test_probabilities_are_over_available_candidates(name):
    problem = make_problem("DPB/Recommendation-v0", horizon=40, available=0.5)
    agent = make_agent(name, **({"gamma": 1.0} if name == "lin-greedy" else {}))
    instance, lanes = problem.instance(range(50)), np.arange(50)
    agent.set_up(problem.info, AgentStreams(range(50)))
    for _ in range(3):
        context = locked(instance.context())
        shares, action = agent.probabilities(context), agent.act(context)
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        assert (shares[~context.available] == 0).all() and (shares[lanes, action] > 0).all()
        agent.observe(context, action, instance.respond(action).feedback)
        instance.advance()
