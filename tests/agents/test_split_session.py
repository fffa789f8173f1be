"""Sessions whose customers' devices make the messages."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import AgentError, HorizonExceeded, ParameterError
from dpb_gym.privacy.releasers.releaser import behind


def session_of(agent, env, budget, horizon):
    problem = dpb_gym.make_problem(env, horizon=horizon)
    session = dpb_gym.serve(agent, budget, problem, noise="seeded", seed=1, warm=False)
    return problem, session, behind(session.agent.curator.releasers[0])


def responded(kind, action, feedback):
    if kind == "pricing":
        return feedback.demand[0]
    if kind == "recommendation":
        return feedback.reward[0]
    at = feedback.choice[0]
    return None if at < 0 else int(action[at])


@pytest.mark.parametrize(
    ("agent", "env", "budget"),
    [
        ("one-pass-pricing", "DPB/Pricing-v0", "eps=12,delta=1e-5@local"),
        ("one-pass-pricing", "DPB/Pricing-v0", "rho=40@aggregator"),
        ("one-pass-mnl", "DPB/Assortment-v0", "rho=40@shuffler"),
        ("one-pass-linear-joint", "DPB/Recommendation-v0", "rho=100@local"),
    ],
)
def test_the_server_learns_from_messages_alone(agent, env, budget):
    """Messages are JSON; the sums estimate the rows that the devices computed."""
    problem, session, sums = session_of(agent, env, budget, 60)
    kind, instance, exact = problem.info.kind, problem.instance([5]), 0.0
    errors = []
    for t in range(60):
        context = instance.context()
        device = session.device()
        if t % 20 == 0:
            device = pickle.loads(pickle.dumps(device))
        given = {} if context.revenues is None else {"revenues": context.revenues[0]}
        action = device.decide(context.features[0], **given)
        feedback = instance.respond(np.array([action])).feedback
        message = json.loads(json.dumps(device.message(responded(kind, action, feedback))))
        exact = exact + behind(device._agent.curator.releasers[0])._own[0]
        released = sums.releases
        session.receive(message)
        if sums.releases > released:
            errors.append((sums.value[0] - exact) / sums.noise_std)
            exact = 0.0
        if t < 59:
            instance.advance()
    assert session.pending == () and sums.releases == len(sums.schedule.ends) > 1
    assert np.mean(np.square(errors)) == pytest.approx(1.0, abs=0.7)
    assert np.isfinite(session.agent.theta).all() and session.agent.theta.any()


def test_every_device_draws_its_own_noise():
    _, session, _ = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=1@local", 100)
    sent = []
    for _ in range(2):
        device = session.device()
        device.decide([0.1, 0.2])
        sent.append(device.message(1)["values"])
    assert (np.array(sent[0]) != np.array(sent[1])).all()


def test_only_one_message_of_each_device_is_received():
    _, session, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=1@local", 3)
    device = session.device()
    device.decide([0.1, 0.2])
    message = device.message(0)
    session.receive(message)
    with pytest.raises(ParameterError, match="already"):
        session.receive(message)
    with pytest.raises(ParameterError, match="already"):
        device.message(1)
    assert sums.rounds == 1
    for wrong in ({}, None, {**message, "decision": 2}):
        with pytest.raises(ParameterError):
            session.receive(wrong)
    session.device()
    other = session.device()
    for values in ([1.0], [float("nan")] * len(message["values"])):
        with pytest.raises(ParameterError, match="numbers"):
            session.receive({**message, "decision": other.decision, "values": values})
    with pytest.raises(ParameterError, match="message"):
        session.observe(other.decision, 1)
    with pytest.raises(HorizonExceeded):
        session.device()
    assert session.pending == (2, 3) and sums.rounds == 1


def test_a_message_for_a_released_batch_is_too_late():
    _, session, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=40@aggregator", 60)
    late = session.device()
    late.decide([0.1, 0.2])
    message = late.message(1)
    while not sums.releases:
        device = session.device()
        device.decide([0.3, 0.2])
        session.receive(device.message(0))
    with pytest.raises(ParameterError, match="too late"):
        session.receive(message)
    wrapped = {**message, "batch": 1, "values": [2**60] * len(message["values"])}
    with pytest.raises(ParameterError, match="modulo"):
        session.receive(wrapped)
    assert late.decision in session.pending


@pytest.mark.parametrize(
    ("agent", "env", "budget"),
    [
        ("one-pass-pricing", "DPB/Pricing-v0", "rho=1"),
        ("one-pass-pricing", "DPB/Pricing-v0", None),
        ("one-pass-linear", "DPB/Recommendation-v0", "rho=1@local"),
    ],
)
def test_devices_need_a_trust_model_and_private_contexts(agent, env, budget):
    session = session_of(agent, env, budget, 50)[1]
    with pytest.raises(AgentError, match="devices need"):
        session.device()
