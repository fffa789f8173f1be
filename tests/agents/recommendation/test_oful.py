"""OFUL against dense algebra: the printed width, learning at doublings of the determinant."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import ParameterError
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams


@pytest.mark.parametrize(
    "params", [{"ridge": 1.5}, {"alpha": 0.3, "ridge": 2.0, "norm": 2.0, "delta": 0.1}]
)
def test_every_action_follows_the_paper(params):
    problem = dpb_gym.make_problem("DPB/Recommendation-v0", horizon=300, dim=4, n_candidates=6)
    agent, instance = make_agent("oful", **params), problem.instance([3])
    agent.set_up(problem.info, AgentStreams([3]))
    alpha, ridge, norm, delta = (
        params.get(k, v) for k, v in (("alpha", 1), ("ridge", 1), ("norm", 1), ("delta", 0.01))
    )
    V = ridge * np.eye(4)
    known, b, switches = V.copy(), np.zeros(4), 0
    theta, metric = np.zeros(4), np.linalg.inv(V)
    for t in range(300):
        context = locked(instance.context())
        x = context.features[0].astype(float)
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
        ratio = np.linalg.det(known) / ridge**4
        width = 0.5 * np.sqrt(2 * np.log(np.sqrt(ratio) / delta)) + np.sqrt(ridge) * norm
        index = x @ theta + alpha * width * np.sqrt((x @ metric * x).sum(axis=1))
        action = agent.act(context)
        assert index[action[0]] >= index.max() - 1e-9
        feedback = instance.respond(action).feedback
        agent.observe(context, action, feedback)
        chosen = x[action[0]]
        V += np.outer(chosen, chosen)
        b += feedback.reward[0] * chosen
        if np.linalg.det(V) > 2 * np.linalg.det(known):
            known, metric, switches = V.copy(), np.linalg.inv(V), switches + 1
            theta = metric @ b
        if t < 299:
            instance.advance()
    assert switches > 10


def test_bad_parameters():
    for wrong in ({"delta": 0.0}, {"delta": 1.0}, {"norm": -1.0}, {"growth": 0.0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            make_agent("oful", **wrong)
