"""Sessions whose customers' devices make the messages."""

from __future__ import annotations

import json
import pickle
import threading

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import AgentError, HorizonExceeded, ParameterError
from dpb_gym.privacy import SimulatedAggregator
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


@pytest.mark.parametrize(
    "budget", ["rho=1@local", "eps=2,delta=1e-5@local", "rho=40@shuffler", "rho=40@aggregator"]
)
def test_forged_messages_are_refused_and_honest_ones_are_not(budget):
    """Values that no device sends: too large, of another type, not whole."""
    _, session, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", budget, 200)
    for _ in range(50):
        device = session.device()
        device.decide([0.1, 0.2])
        message = device.message(1)
        values = message["values"]
        for forged in (1e300, -1e4, 2**62, 2**70, "1", None, 1j):
            with pytest.raises(ParameterError):
                session.receive({**message, "values": [forged, *values[1:]]})
        if sums.whole:
            with pytest.raises(ParameterError, match="whole"):
                session.receive({**message, "values": [0.5, *values[1:]]})
        session.receive(message)
    assert sums.rounds == 50


class Masked:
    """Sums of masked messages; another party has the masks."""

    def __init__(self):
        self.masks, self.lock = [], threading.Lock()  # a lock cannot be copied

    def open(self, shape, modulus):
        self.modulus, self.total_masked, self.count = modulus, np.zeros(shape, np.int64), 0

    def submit(self, message):
        self.total_masked = (self.total_masked + message) % self.modulus
        self.count += 1

    def total(self):
        masks, self.masks = np.sum(self.masks, axis=0), []
        return (self.total_masked - masks) % self.modulus, self.count


def test_a_real_protocol_adds_up_masked_messages():
    _, session, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=40@aggregator", 60)
    protocol, rng, exact = Masked(), np.random.default_rng(0), 0.0
    session.aggregate_with(protocol)
    while sums.releases < len(sums.batches):
        device, released = session.device(), sums.releases
        device.decide([0.1 * (device.decision % 7), 0.2])
        message = device.message(device.decision % 2)
        exact = exact + behind(device._agent.curator.releasers[0])._own[0]
        protocol.masks.append(rng.integers(message["modulus"], size=len(message["values"])))
        masked = (message["values"] + protocol.masks[-1]) % message["modulus"]
        session.receive({**message, "values": masked.tolist()})
        if sums.releases > released:
            assert np.abs(sums.value[0] - exact).max() < 6 * sums.noise_std
            exact = 0.0
    with pytest.raises(AgentError, match="before the first message"):
        session.aggregate_with(Masked())


def test_the_agent_learns_on_after_a_batch_that_lost_too_many():
    _, session, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=100@aggregator", 60)
    session.aggregate_with(SimulatedAggregator(tuple(range(4))))
    with pytest.warns(RuntimeWarning, match="nothing of it was released"):
        while not sums.releases:
            device = session.device()
            device.decide([0.1, 0.2])
            session.receive(device.message(1))
    sums.aggregator = SimulatedAggregator()
    while session.decisions < 60:
        device = session.device()
        device.decide([0.1 * (session.decisions % 7), 0.2])
        session.receive(device.message(session.decisions % 2))
    assert sums.releases == len(sums.schedule.ends) and session.agent.theta.any()


def test_agents_cannot_replace_the_aggregator():
    """It would read the messages, each of which has little noise."""
    _, session, _ = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=1@aggregator", 60)
    handle = session.agent.curator.releasers[0]
    with pytest.raises(AttributeError):
        handle.aggregator  # noqa: B018
    with pytest.raises(AttributeError):
        handle.aggregator = SimulatedAggregator()


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
    with pytest.raises(ParameterError, match="whole numbers"):
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
