"""Sessions whose customers' devices make the messages."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpb_gym
from dpb_gym.devices import Device
from dpb_gym.errors import AgentError, BudgetError, HorizonExceeded, ParameterError
from dpb_gym.privacy import CountingShuffler, SimulatedAggregator
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.registry import spec_of


def session_of(agent, env, budget, horizon):
    problem = dpb_gym.make_problem(env, horizon=horizon)
    session = dpb_gym.serve(agent, budget, problem, noise="seeded", seed=1, warm=False)
    return problem, session, behind(session.agent.curator.releasers[0])


def deliver(session, shuffler, message):
    """Give a device's message to the session, through the shuffler if it has bits."""
    message = json.loads(json.dumps(message))
    if "bits" not in message:
        session.receive(message)
    elif message["bits"]:
        batch = shuffler.submit(message)
        if batch is not None:
            session.receive_batch(json.loads(json.dumps(batch)))


def responded(kind, action, feedback):
    if kind == "pricing":
        return feedback.demand[0]
    if kind == "recommendation":
        return feedback.reward[0]
    at = feedback.choice[0]
    return None if at < 0 else int(action[at])


@pytest.mark.slow
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
    errors, shuffler = [], CountingShuffler()
    for t in range(60):
        context = instance.context()
        device = Device(json.loads(json.dumps(session.device(simulation=True).public)))
        given = {} if context.revenues is None else {"revenues": context.revenues[0]}
        action = device.decide(context.features[0], **given)
        feedback = instance.respond(np.array([action])).feedback
        message = device.message(responded(kind, action, feedback))
        exact = exact + behind(device._agent.curator.releasers[0])._own[0]
        released = sums.releases
        deliver(session, shuffler, message)
        if sums.releases > released:
            errors.append((sums.value[0] - exact) / sums.noise_std)
            exact = 0.0
        if t < 59:
            instance.advance()
    assert session.pending == () and sums.releases == len(sums.schedule.ends) > 1
    assert np.mean(np.square(errors)) == pytest.approx(1.0, abs=0.7)
    theta = session.agent.state.theta
    assert np.isfinite(theta).all() and theta.any()


def test_only_one_message_of_each_device_is_received():
    _, session, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=1@local", 3)
    device = session.device(simulation=True)
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
    session.device(simulation=True)
    other = session.device(simulation=True)
    for values in ([1.0], [float("nan")] * len(message["values"])):
        with pytest.raises(ParameterError, match="numbers"):
            session.receive({**message, "decision": other.decision, "values": values})
    with pytest.raises(ParameterError, match="message"):
        session.observe(other.decision, 1)
    with pytest.raises(HorizonExceeded):
        session.device(simulation=True)
    assert session.pending == (2, 3) and sums.rounds == 1


@pytest.mark.parametrize("budget", ["rho=1@local", "eps=2,delta=1e-5@local", "rho=40@aggregator"])
def test_forged_messages_are_refused_and_honest_ones_are_not(budget):
    """Values that no device sends: too large, of another type, not whole."""
    _, session, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", budget, 200)
    for _ in range(50):
        device = session.device(simulation=True)
        device.decide([0.1, 0.2])
        message = device.message(1)
        values = message["values"]
        for forged in (1e300, -1e4, 2**62, 2**70, "1", None, 1j):
            with pytest.raises(ParameterError):
                session.receive({**message, "values": [forged, *values[1:]]})
        if sums.trust.whole:
            with pytest.raises(ParameterError, match="whole"):
                session.receive({**message, "values": [0.5, *values[1:]]})
        session.receive(message)
    assert sums.rounds == 50


@pytest.mark.parametrize("budget", ["rho=1@local", "eps=2,delta=1e-5@local", "rho=40@aggregator"])
def test_messages_of_another_form_are_refused_before_and_after_the_last_release(budget):
    """Other fields, a batch to come, another modulus, and values when no more are needed."""
    _, session, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", budget, 60)
    for left in reversed(range(60)):
        over = sums.releases == len(sums.schedule.ends)
        device = session.device(simulation=True)
        device.decide([0.1, 0.2])
        message = device.message(1)
        forged = [{"more": 1}, {"values": [1e308, "x"]}]
        forged += [{"batch": batch} for batch in ("x", True, None, -1, 1.0, sums.releases + 2)]
        if sums.modulus is None:
            forged.append({"modulus": 7})
        else:
            forged += [{"modulus": modulus} for modulus in (7, "x", None, float(sums.modulus))]
        if over and sums.trust.aggregated:
            forged.append({"values": [0] * sums.shape.width})
        if over or not left % 20:
            for change in forged:
                with pytest.raises(ParameterError):
                    session.receive({**message, **change})
            for name in message:
                with pytest.raises(ParameterError):
                    session.receive({k: v for k, v in message.items() if k != name})
        session.receive(message)
    assert over and session.pending == ()


def test_a_local_message_may_come_after_the_last_release():
    budget = "eps=2,delta=1e-5@local"
    _, session, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", budget, 60)
    late = session.device(simulation=True)
    late.decide([0.1, 0.2])
    for _ in range(59):
        device = session.device(simulation=True)
        device.decide([0.1, 0.2])
        session.receive(device.message(1))
    assert sums.releases == len(sums.schedule.ends)
    session.receive(late.message(1))
    assert session.pending == ()


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
        device, released = session.device(simulation=True), sums.releases
        device.decide([0.1 * (device.decision % 7), 0.2])
        message = device.message(device.decision % 2)
        exact = exact + behind(device._agent.curator.releasers[0])._own[0]
        protocol.masks.append(rng.integers(message["modulus"], size=len(message["values"])))
        masked = (message["values"] + protocol.masks[-1]) % message["modulus"]
        session.receive({**message, "values": masked.tolist()})
        if sums.releases > released:
            assert np.abs(sums.value[0] - exact).max() < 6 * sums.noise_std
            exact = 0.0
    with pytest.raises(AgentError, match="before the first device"):
        session.aggregate_with(Masked())


def test_the_agent_learns_on_after_a_batch_that_lost_too_many():
    _, session, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=100@aggregator", 60)
    session.aggregate_with(SimulatedAggregator(tuple(range(4))))
    with pytest.warns(RuntimeWarning, match="nothing of it was released"):
        while not sums.releases:
            device = session.device(simulation=True)
            device.decide([0.1, 0.2])
            session.receive(device.message(1))
    sums.aggregator = SimulatedAggregator()
    while session.decisions < 60:
        device = session.device(simulation=True)
        device.decide([0.1 * (session.decisions % 7), 0.2])
        session.receive(device.message(session.decisions % 2))
    assert sums.releases == len(sums.schedule.ends) and session.agent.state.theta.any()


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
    late = session.device(simulation=True)
    late.decide([0.1, 0.2])
    message = late.message(1)
    while not sums.releases:
        device = session.device(simulation=True)
        device.decide([0.3, 0.2])
        session.receive(device.message(0))
    with pytest.raises(ParameterError, match="too late"):
        session.receive(message)
    wrapped = {**message, "batch": 1, "modulus": sums.modulus}
    wrapped["values"] = [2**60] * len(message["values"])
    with pytest.raises(ParameterError, match="whole numbers"):
        session.receive(wrapped)
    assert late.decision in session.pending


@pytest.mark.parametrize(
    ("agent", "env", "budget"),
    [
        ("one-pass-pricing", "DPB/Pricing-v0", "rho=1"),
        ("one-pass-pricing", "DPB/Pricing-v0", None),
        ("one-pass-linear", "DPB/Recommendation-v0", "rho=1@local"),
        ("one-pass-linear-joint", "DPB/MultiArmed-v0", "rho=1@local"),
    ],
)
def test_devices_need_a_trust_model_private_contexts_and_new_arms(agent, env, budget):
    session = session_of(agent, env, budget, 50)[1]
    with pytest.raises(AgentError, match="devices need"):
        session.device(simulation=True)


def test_devices_of_real_customers_draw_from_the_operating_system():
    _, session, _ = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=1@local", 50)
    with pytest.raises(AgentError, match="noise='system'"):
        session.device()
    assert session.decisions == 0 and session.pending == ()


def test_a_rehearsal_makes_no_devices_of_real_customers(tmp_path):
    """They would state the guarantee that the first continuation has."""
    pytest.importorskip("opendp")
    session = dpb_gym.serve(
        "one-pass-pricing",
        "rho=1@local",
        "DPB/Pricing-v0",
        warm=False,
        state_dir=tmp_path / "state",
    )
    session.device()
    session.save(tmp_path / "session")
    rehearsal = dpb_gym.Session.load(tmp_path / "session", rehearsal=True)
    with pytest.raises(AgentError, match="without a guarantee makes no devices"):
        rehearsal.device()
    assert rehearsal.device(simulation=True).decision == 2


@pytest.mark.parametrize("trust", ["", "@local", "@shuffler", "@aggregator"])
@pytest.mark.parametrize("rho", [1e-300, 1e-30, 1e-9, 1e9, 1e30])
def test_any_budget_is_kept_or_refused(rho, trust):
    for name, env in (
        ("one-pass-pricing", "DPB/Pricing-v0"),
        ("one-pass-mnl", "DPB/Assortment-v0"),
    ):
        try:
            session = dpb_gym.serve(
                name, f"rho={rho!r}{trust}", env, warm=False, noise="seeded", seed=1
            )
        except BudgetError:
            continue
        assert session.agent.curator.guarantee.rho <= rho * (1 + 1e-9)


def test_a_real_session_needs_a_real_aggregator():
    pytest.importorskip("opendp")
    session = dpb_gym.serve("one-pass-pricing", "rho=1@aggregator", "DPB/Pricing-v0", warm=False)
    with pytest.raises(AgentError, match="aggregate_with"):
        session.device()
    session.aggregate_with(Masked())
    assert session.device().decision == 1
    for other in (SimulatedAggregator(), Masked()):
        with pytest.raises(AgentError, match="before the first device"):
            session.aggregate_with(other)


@pytest.mark.parametrize("trust", ["local", "shuffler", "aggregator"])
def test_a_session_that_others_made_sees_no_customer_either(trust):
    pytest.importorskip("opendp")
    budget = dpb_gym.Budget.parse(f"rho=1@{trust}")
    problem = dpb_gym.make_problem("DPB/Pricing-v0").info
    spec = spec_of("one-pass-pricing", "pricing")
    agent = spec.make()
    agent.set_up(problem, spec.streams([1], budget), budget, noise="system")
    with pytest.raises(AgentError, match="no server sees"):
        dpb_gym.Session(agent, problem).decide([0.1, 0.2])


@pytest.mark.parametrize("trust", ["local", "shuffler", "aggregator"])
def test_a_real_session_without_a_curator_sees_no_customer(trust):
    pytest.importorskip("opendp")
    budget = f"rho=1@{trust}"
    session = dpb_gym.serve("one-pass-pricing", budget, "DPB/Pricing-v0", warm=False)
    with pytest.raises(AgentError, match="no server sees"):
        session.decide([0.1, 0.2])
    assert session.decisions == 0


def test_a_session_decides_on_devices_or_on_the_server():
    """Otherwise an agent that has seen customers would be on the side of the devices."""
    _, session, _ = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=1@local", 50)
    session.decide([0.1, 0.2])
    with pytest.raises(AgentError, match="decided for customers itself"):
        session.device(simulation=True)
    _, session, _ = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=1@local", 50)
    session.device(simulation=True)
    with pytest.raises(AgentError, match="on their devices"):
        session.decide([0.1, 0.2])


def test_an_account_has_no_devices(tmp_path):
    account = dpb_gym.privacy.Account(tmp_path / "people", "eps=3,delta=1e-6")
    session = dpb_gym.serve(
        "one-pass-pricing", "rho=0.01@local", "DPB/Pricing-v0", noise="seeded", warm=False,
        account=account,
    )  # fmt: skip
    with pytest.raises(AgentError, match="account"):
        session.device(simulation=True)


@pytest.mark.slow
def test_a_real_session_with_an_account_decides_and_says_so(tmp_path):
    """An account charges customers by their number, which no device's message has."""
    pytest.importorskip("opendp")
    from dpb_gym.privacy.guarantee import ON_SERVER

    for trust in ("local", "shuffler", "aggregator"):
        session = dpb_gym.serve(
            "one-pass-pricing", f"rho=0.01@{trust}", "DPB/Pricing-v0", warm=False,
            account=dpb_gym.privacy.Account(tmp_path / trust, "eps=3,delta=1e-6"),
        )  # fmt: skip
        assert ON_SERVER in str(session.guarantee)
        session.decide([0.1, 0.2], user=7)
        assert session.decisions == 1


def test_a_class_that_is_not_registered_has_no_devices():
    from dpb_agents.pricing.one_pass_pricing import OnePassPricing

    class Mine(OnePassPricing):
        protects = ("joint", "user-round")

    session = session_of(Mine, "DPB/Pricing-v0", "rho=1@local", 50)[1]
    with pytest.raises(AgentError, match="registered"):
        session.device(simulation=True)


def test_the_text_of_a_guarantee_names_the_operator():
    """It sees prices whatever the mechanism; and contexts where the server decides."""
    from dpb_gym.privacy.guarantee import ON_SERVER, OPERATOR

    for trust in ("local", "shuffler", "aggregator"):
        _, session, _ = session_of("one-pass-pricing", "DPB/Pricing-v0", f"rho=1@{trust}", 50)
        assert OPERATOR in str(session.guarantee) and ON_SERVER not in str(session.guarantee)
        on_device = session.device(simulation=True).guarantee
        assert str(session.guarantee).startswith(str(on_device)) and OPERATOR in str(on_device)
        assert OPERATOR in session.guarantee.provisos
        (entry,) = session.certificate().content["entries"]
        assert OPERATOR in entry["findings"]["excluded"]
    simulated = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=1@local", 50)[1]
    simulated.decide([0.1, 0.2])
    public = session_of("one-pass-linear", "DPB/Recommendation-v0", "rho=1@local", 50)[1]
    for served in (simulated, public):
        assert ON_SERVER in str(served.guarantee) and OPERATOR in str(served.guarantee)
    trusted = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=1", 50)[1]
    assert OPERATOR not in str(trusted.guarantee)


@pytest.mark.parametrize("trust", ["local", "shuffler", "aggregator"])
def test_a_saved_session_goes_on_with_devices(trust, tmp_path):
    session = session_of("one-pass-pricing", "DPB/Pricing-v0", f"rho=40@{trust}", 60)[1]
    shuffler = CountingShuffler()
    play(session, 30, shuffler)
    before = session.device(simulation=True).public
    assert before["releases"]
    session.save(tmp_path / "session")
    later = dpb_gym.Session.load(tmp_path / "session")
    after = later.device(simulation=True).public
    assert after == {**before, "decision": after["decision"]}
    with pytest.raises(AgentError, match="on their devices"):
        later.decide([0.1, 0.2])
    play(later, 20, shuffler)
    assert later.device(simulation=True).public["rounds"] > before["rounds"]


def play(session, customers, shuffler):
    for t in range(customers):
        device = session.device(simulation=True)
        device.decide([0.1 * (t % 7), 0.2])
        deliver(session, shuffler, device.message(t % 2))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)


class TestAnyMessage:
    @pytest.fixture(scope="class")
    @classmethod
    def sides(cls):
        """Return what takes messages, and a message that each of them takes."""
        local = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=40@local", 60)[1]
        one = local.device(simulation=True)
        one.decide([0.1, 0.2])
        shuffled, sums = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=40@shuffler", 60)[1:]
        bits = shuffled.device(simulation=True)
        bits.decide([0.1, 0.2])
        batch = {**sums.header, "ones": [1] * sums.header["coordinates"]}
        return {
            "receive": (local.receive, one.message(1)),
            "receive_batch": (shuffled.receive_batch, batch),
            "submit": (CountingShuffler().submit, bits.message(1)),
        }

    @pytest.mark.parametrize("side", ["receive", "receive_batch", "submit"])
    @settings(max_examples=60, deadline=None)
    @given(value=JSON, data=st.data())
    def test_it_is_taken_or_refused_by_a_documented_error(self, sides, side, value, data):
        take, message = sides[side]
        field = data.draw(st.sampled_from(["", *message]))
        try:
            take({**message, field: value} if field else value)
        except ParameterError as error:
            assert str(error)


class TestShuffledBatches:
    def start(self):
        return session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=40@shuffler", 60)[1:]

    def complete(self, session, sums):
        """Return the first shuffled batch."""
        shuffler, batch = CountingShuffler(), None
        for _ in range(sums.header["customers"]):
            device = session.device(simulation=True)
            device.decide([0.1, 0.2])
            batch = shuffler.submit(device.message(1))
        return batch

    def test_no_decision_number_reaches_the_server(self):
        session, sums = self.start()
        device = session.device(simulation=True)
        assert device.decision is None and session.pending == ()
        device.decide([0.1, 0.2])
        message = device.message(1)
        assert set(message) == {
            "batch", "customers", "coordinates", "bits_each", "once", "bits"
        }  # fmt: skip
        with pytest.raises(AgentError, match="shuffler"):
            session.receive({"decision": 1, "batch": 0, "values": [0.0] * 9})
        assert sums.rounds == 0

    def test_a_batch_is_received_once_and_as_it_was_planned(self):
        session, sums = self.start()
        batch = self.complete(session, sums)
        ones = batch["ones"]
        for forged in (
            {"customers": batch["customers"] - 1},
            {"customers": batch["customers"] + 1},
            {"batch": 1},
            {"bits_each": batch["bits_each"] + 1},
            {"coordinates": 3},
            {"batch": False},
            {"ones": ones[:-1]},
            {"ones": [-1, *ones[1:]]},
            {"ones": [0.5, *ones[1:]]},
            {"ones": [batch["customers"] * batch["bits_each"] + 1, *ones[1:]]},
            {"ones": [None, *ones[1:]]},
            {"ones": [True, *ones[1:]]},
            {"decision": 3},
        ):
            with pytest.raises(ParameterError):
                session.receive_batch({**batch, **forged})
        with pytest.raises(ParameterError):
            session.receive_batch(None)
        assert sums.rounds == sums.releases == 0 and not sums._total.any()
        session.receive_batch(batch)
        assert sums.releases == 1 and sums.rounds == batch["customers"]
        with pytest.raises(ParameterError, match="open batch"):
            session.receive_batch(batch)

    @pytest.mark.slow
    def test_after_the_last_batch_nothing_is_sent(self):
        session, sums = self.start()
        play(session, 60, CountingShuffler())
        assert sums.releases == len(sums.batches)
        with pytest.raises(ParameterError, match="all batches"):
            session.receive_batch({})
        again = self.start()[0]
        play(again, 59, CountingShuffler())
        device = again.device(simulation=True)
        device.decide([0.1, 0.2])
        assert device.message(1)["bits"] == []

    def test_other_sessions_take_no_batches(self):
        session, sums = self.start()
        batch = self.complete(session, sums)
        local = session_of("one-pass-pricing", "DPB/Pricing-v0", "rho=40@local", 60)[1]
        unsplit = self.start()[0]
        for other in (local, unsplit):
            with pytest.raises(AgentError, match="@shuffler"):
                other.receive_batch(batch)
